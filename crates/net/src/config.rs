//! The network configuration of a node: its identity, its peers, its limits.

use crate::cluster_id::{CLUSTER_BYTES_MAX, SharedClusterId};
use crate::secret::{SECRET_BYTES_MIN, Secret};
use crate::tls::NodeTls;
use shoal_types::wire::{CLIENT_MESSAGES, MessageVersions, PEER_MESSAGES};
use shoal_types::{DatacenterId, DistanceMatrix, NodeId, WorkerId};
use std::time::Duration;
use thiserror::Error;

/// How another node of the cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConfig {
    /// The id of the node.
    pub node: NodeId,
    /// The address at which it listens, as `host:port`.
    pub address: String,
    /// The datacenter in which it runs.
    pub datacenter: DatacenterId,
}

/// The limits on connections, frames and queues. All of them are enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Longest frame, in bytes. More room for large values, more memory that a peer can make us keep.
    /// Default 32 MiB.
    pub frame_bytes_max: usize,
    /// Most bytes in flight to one peer, delayed ones included; beyond, frames are dropped. Default 64 MiB.
    pub peer_queue_bytes_max: usize,
    /// Most frames of the same. Default 1 Mi.
    pub peer_queue_frames_max: usize,
    /// Bytes queued for a client above which nothing more is read from it. Default 1 MiB.
    pub client_queue_bytes: usize,
    /// Bytes queued for a client above which it is closed: it sends requests and does not read the replies.
    /// Default 64 MiB.
    pub client_queue_bytes_max: usize,
    /// Most clients of one worker. Default 10 000.
    pub clients_max: usize,
    /// Most unauthenticated connections of one worker; beyond, the oldest is closed. Default 256.
    pub unauthenticated_max: usize,
    /// Longest time that authentication may take. Default 3 s.
    pub handshake_max: Duration,
    /// A connection whose other end has sent nothing for so long, not even acknowledgements, is closed.
    /// Longer survives longer outages, shorter notices them earlier. Default 10 s.
    pub silence_max: Duration,
    /// Most frames that the core handles in one turn of the loop; then its output is sent. More saves system
    /// calls, less is fairer. Default 512.
    pub turn_frames_max: usize,
    /// Longest duration of a turn. Default 100 µs.
    pub turn_max: Duration,
    /// Most frames of one connection that wait for the core; beyond, nothing more is read from it.
    /// Default 512.
    pub unread_frames_max: usize,
    /// Most bytes of the same. Default 4 MiB.
    pub unread_bytes_max: usize,
    /// The first pause before a peer that was not reached is dialed again. Default 10 ms.
    pub redial_min: Duration,
    /// The longest such pause; each is twice the one before. Default 500 ms.
    pub redial_max: Duration,
    /// Most commands that wait for one worker. Default 64 Ki.
    pub commands_max: usize,
    /// Most frames that wait for one worker which other workers of the node pass to it; beyond, they are dropped.
    /// Default 64 Ki.
    pub passed_frames_max: usize,
    /// Most bytes of the same. Default 64 MiB.
    pub passed_bytes_max: usize,
    /// Lines logged in a second for one worker; more are counted and left out. Default 10.
    pub log_lines_max: u32,
}

impl Default for NetworkLimits {
    fn default() -> NetworkLimits {
        NetworkLimits {
            frame_bytes_max: 32 << 20,
            peer_queue_bytes_max: 64 << 20,
            peer_queue_frames_max: 1 << 20,
            client_queue_bytes: 1 << 20,
            client_queue_bytes_max: 64 << 20,
            clients_max: 10_000,
            unauthenticated_max: 256,
            handshake_max: Duration::from_secs(3),
            silence_max: Duration::from_secs(10),
            turn_frames_max: 512,
            turn_max: Duration::from_micros(100),
            unread_frames_max: 512,
            unread_bytes_max: 4 << 20,
            redial_min: Duration::from_millis(10),
            redial_max: Duration::from_millis(500),
            commands_max: 64 << 10,
            passed_frames_max: 64 << 10,
            passed_bytes_max: 64 << 20,
            log_lines_max: 10,
        }
    }
}

/// The configuration of a node's network.
#[derive(Debug, Clone)]
pub struct NetworkConfig {
    /// The cluster's name. Nodes and clients of another are refused.
    pub cluster: String,
    /// The identity of this node's cluster, as far as it is known. Nodes of other clusters are refused.
    pub identity: SharedClusterId,
    /// A digest of the engine, and of those of its options that have to be the same on all nodes. Nodes with another one are
    /// refused. Default 0: it is not compared.
    pub engine_digest: u16,
    /// The versions of messages that this node uses with other nodes. Default: those of this build.
    pub peer_versions: MessageVersions,
    /// The versions of messages that it uses with clients. Default: those of this build.
    pub client_versions: MessageVersions,
    /// The node that this process runs.
    pub node: NodeId,
    /// The number of this process of the node: greater than that of any before.
    pub instance: u64,
    /// The number of workers, which is the same on every node of the cluster.
    pub workers: u16,
    /// Whether each is pinned to a core of its own. Default no.
    pub pin: bool,
    /// The datacenter in which it runs.
    pub datacenter: DatacenterId,
    /// The other nodes of the cluster.
    pub peers: Vec<PeerConfig>,
    /// The secret of the nodes.
    pub secret: Secret,
    /// The secret of clients; with [`Secret::none`] every client is admitted.
    pub client_secret: Secret,
    /// TLS, if it is on: then there are no plain connections at all.
    pub tls: Option<NodeTls>,
    /// The emulated distances between datacenters.
    pub distances: DistanceMatrix,
    /// The seed of jitter and of pauses between dials.
    pub seed: u64,
    /// The limits on frames, queues and times.
    pub limits: NetworkLimits,
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NetworkConfigError {
    /// The secret is too short to prove anything.
    #[error("the cluster's secret has {0} bytes; at least {SECRET_BYTES_MIN} are needed")]
    ShortSecret(usize),
    /// The name of the cluster is empty, or too long for the handshake.
    #[error("the cluster's name has {0} bytes; 1 to {CLUSTER_BYTES_MAX} are allowed")]
    Name(usize),
    /// The number of workers is out of range.
    #[error("a node has 1 to 1024 workers, not {0}")]
    Workers(u16),
    /// A node is among the peers twice, or is this node itself.
    #[error("{0} is listed twice among the nodes")]
    Twice(NodeId),
    /// A limit is zero or too large.
    #[error("the limit {0} is zero or too large")]
    Limit(&'static str),
}

impl NetworkConfig {
    /// One worker, no peers, no TLS, no distance, the default limits.
    pub fn new(cluster: impl Into<String>, node: NodeId, secret: Secret) -> NetworkConfig {
        NetworkConfig {
            cluster: cluster.into(),
            identity: SharedClusterId::default(),
            engine_digest: 0,
            peer_versions: PEER_MESSAGES,
            client_versions: CLIENT_MESSAGES,
            node,
            instance: 0,
            workers: 1,
            pin: false,
            datacenter: DatacenterId::default(),
            peers: Vec::new(),
            secret,
            client_secret: Secret::none(),
            tls: None,
            distances: DistanceMatrix::none(),
            seed: u64::from(node.0),
            limits: NetworkLimits::default(),
        }
    }

    /// Checks whether a node can run with this configuration.
    pub fn validate(&self) -> Result<(), NetworkConfigError> {
        if self.secret.bytes().len() < SECRET_BYTES_MIN {
            return Err(NetworkConfigError::ShortSecret(self.secret.bytes().len()));
        }
        if self.cluster.is_empty() || self.cluster.len() > CLUSTER_BYTES_MAX {
            return Err(NetworkConfigError::Name(self.cluster.len()));
        }
        if self.workers == 0 || self.workers > 1024 {
            return Err(NetworkConfigError::Workers(self.workers));
        }
        let mut nodes: Vec<NodeId> = self.peers.iter().map(|peer| peer.node).collect();
        nodes.push(self.node);
        nodes.sort_unstable();
        if let Some(twice) = nodes.windows(2).find(|two| two[0] == two[1]) {
            return Err(NetworkConfigError::Twice(twice[0]));
        }
        self.limits.validate()
    }

    /// The ids of the node's workers.
    pub fn worker_ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..u32::from(self.workers)).map(WorkerId)
    }
}

impl NetworkLimits {
    fn validate(&self) -> Result<(), NetworkConfigError> {
        let rooms = [
            ("frame_bytes_max", self.frame_bytes_max),
            ("peer_queue_bytes_max", self.peer_queue_bytes_max),
            ("peer_queue_frames_max", self.peer_queue_frames_max),
            ("client_queue_bytes", self.client_queue_bytes),
            ("client_queue_bytes_max", self.client_queue_bytes_max),
            ("unauthenticated_max", self.unauthenticated_max),
            ("turn_frames_max", self.turn_frames_max),
            ("unread_frames_max", self.unread_frames_max),
            ("unread_bytes_max", self.unread_bytes_max),
            ("passed_frames_max", self.passed_frames_max),
            ("passed_bytes_max", self.passed_bytes_max),
        ];
        if let Some((name, _)) = rooms.iter().find(|(_, room)| *room == 0) {
            return Err(NetworkConfigError::Limit(name));
        }
        let lengths = u64::try_from(self.frame_bytes_max).is_ok_and(|max| max < 1 << 32);
        if lengths { Ok(()) } else { Err(NetworkConfigError::Limit("frame_bytes_max")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_what_is_wrong_with_it() {
        let good = NetworkConfig::new("c", NodeId(1), Secret::new([7; 16]));
        assert_eq!(good.validate(), Ok(()));
        let peer = PeerConfig {
            node: NodeId(1),
            address: "127.0.0.1:1".to_owned(),
            datacenter: DatacenterId::default(),
        };
        let limits = NetworkLimits { turn_frames_max: 0, ..NetworkLimits::default() };
        let cases = [
            (
                NetworkConfig { secret: Secret::new([7; 15]), ..good.clone() },
                NetworkConfigError::ShortSecret(15),
            ),
            (NetworkConfig { cluster: String::new(), ..good.clone() }, NetworkConfigError::Name(0)),
            (
                NetworkConfig { cluster: "x".repeat(65), ..good.clone() },
                NetworkConfigError::Name(65),
            ),
            (NetworkConfig { workers: 0, ..good.clone() }, NetworkConfigError::Workers(0)),
            (
                NetworkConfig { peers: vec![peer], ..good.clone() },
                NetworkConfigError::Twice(NodeId(1)),
            ),
            (
                NetworkConfig { limits, ..good.clone() },
                NetworkConfigError::Limit("turn_frames_max"),
            ),
        ];
        for (config, error) in cases {
            assert_eq!(config.validate(), Err(error));
        }
        assert_eq!(format!("{:?}", good.secret), "Secret", "never shown");
    }
}
