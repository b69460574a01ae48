//! What a node is told, and the file in which it stands.
//!
//! ```toml
//! cluster = "bank"                    # its name: others are refused
//! node = "s0v0"                       # which of the topology's nodes this is
//! topology = "topology.toml"          # the same on every node; paths begin where this file is
//! managers = ["s0v0", "s1v0", "s2v0"] # the nodes that have managers: 1, 3 or 5, the same on every node
//! data = "data"                       # where a manager keeps its log
//! secret = "secret"                   # a file that only nodes can read, of at least 16 bytes
//!
//! client_secret = "client-secret"     # may be left out: then every client is let in
//! engine = "mako"                     # or "two-phase-commit", which has no managers
//! pin = true                          # workers to cores; otherwise false
//! chaos = true                        # clients may cut the node off; otherwise false
//! slow_ms = 100                       # transactions that take longer are logged; otherwise 1000, and 0 for none
//! http = "127.0.0.1:9100"             # health and metrics; may be left out: then there are none
//!
//! [distance]                          # emulated, between datacenters; may be left out
//! round_trip_ms = 50
//! jitter_ms = 2
//!
//! [tls]                               # may be left out: then nothing is encrypted
//! certificates = "node.pem"
//! key = "node.key"
//! authorities = "ca.pem"
//! ```

use consensus::topology::{Topology, TopologyError};
use engines::client::{REQUESTS_TABLE, requests_table};
use net::tls::{Identity, NodeTls, TlsError, read_certificates};
use net::{Distance, Secret};
use serde::Deserialize;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use types::NodeId;

/// A commit protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Mako: certify first, replicate in the background.
    #[default]
    Mako,
    /// The classic one, to compare with. Its leaders never change.
    TwoPhaseCommit,
}

/// What takes longer is slow, if the file does not say otherwise: more than any distance takes.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// What a node is told. Start from [`NodeConfig::new`].
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The cluster's name.
    pub cluster: String,
    /// This node.
    pub node: NodeId,
    /// Nodes with their addresses, shards, tables. The same on every node.
    pub topology: Arc<Topology>,
    /// The nodes that have managers: 1, 3 or 5, the same on every node. None: leaders never change, and
    /// nothing survives the failure of one.
    pub managers: Vec<NodeId>,
    /// The folder for a manager's log. `None`: in memory, for a life after which no other comes.
    pub data: Option<PathBuf>,
    /// What only nodes of the cluster know.
    pub secret: Secret,
    /// What clients have to know.
    pub client_secret: Secret,
    /// TLS, if it is on.
    pub tls: Option<NodeTls>,
    /// How far datacenters are from each other.
    pub distance: Distance,
    /// Whether each worker is pinned to a core.
    pub pin: bool,
    /// The commit protocol.
    pub protocol: Protocol,
    /// Whether clients may cut the node off from others: for tests.
    pub chaos: bool,
    /// A transaction that takes longer is logged. `None`: none is.
    pub slow_after: Option<Duration>,
    /// Where it answers questions about its health, and for its metrics. It lets everybody ask.
    pub http: Option<SocketAddr>,
}

/// What is wrong with a node's configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: {error}")]
    Form {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        error: Box<toml::de::Error>,
    },
    /// The topology is wrong.
    #[error("{path}: {error}")]
    Topology {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: Box<TopologyError>,
    },
    /// It names a node that is not in the topology.
    #[error("there is no node '{0}' in the topology")]
    UnknownNode(String),
    /// A node that others could not reach.
    #[error("node '{0}' has no address in the topology")]
    NoAddress(String),
    /// A number of managers that cannot be.
    #[error("1, 3 or 5 nodes have managers, not {0}")]
    Managers(usize),
    /// Its leaders never change.
    #[error("two-phase-commit has no managers: leave them out")]
    ManagersUnused,
    /// Certificates and keys.
    #[error("{0}")]
    Tls(#[from] TlsError),
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cluster: String,
    node: String,
    topology: PathBuf,
    #[serde(default)]
    managers: Vec<String>,
    data: Option<PathBuf>,
    secret: PathBuf,
    client_secret: Option<PathBuf>,
    #[serde(default)]
    engine: Protocol,
    #[serde(default)]
    pin: bool,
    #[serde(default)]
    chaos: bool,
    slow_ms: Option<u64>,
    http: Option<SocketAddr>,
    #[serde(default)]
    distance: DistanceTable,
    tls: Option<TlsTable>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DistanceTable {
    round_trip_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    certificates: PathBuf,
    key: PathBuf,
    authorities: PathBuf,
}

impl NodeConfig {
    /// A node of a cluster that is called `shoal`, on one machine: no distance, no TLS, clients need no
    /// secret, nothing is kept on disk.
    ///
    /// # Errors
    /// Where the parts do not fit together.
    pub fn new(
        topology: &Topology,
        node: NodeId,
        managers: Vec<NodeId>,
        secret: Secret,
    ) -> Result<NodeConfig, ConfigError> {
        let config = NodeConfig {
            cluster: "shoal".to_owned(),
            node,
            topology: Arc::new(with_requests(topology)),
            managers,
            data: None,
            secret,
            client_secret: Secret::none(),
            tls: None,
            distance: Distance::default(),
            pin: false,
            protocol: Protocol::default(),
            chaos: false,
            slow_after: Some(SLOW_AFTER),
            http: None,
        };
        config.check()?;
        Ok(config)
    }

    /// Reads the file at `path`; see the module.
    ///
    /// # Errors
    /// What is wrong, and in which file.
    pub fn read(path: &Path) -> Result<NodeConfig, ConfigError> {
        let text = read_text(path)?;
        let form = |error| ConfigError::Form { path: path.to_owned(), error: Box::new(error) };
        let file: File = toml::from_str(&text).map_err(form)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let place = folder.join(&file.topology);
        let wrong = |error| ConfigError::Topology { path: place.clone(), error: Box::new(error) };
        let topology = Topology::parse(&read_text(&place)?).map_err(wrong)?;
        let id = |name: &String| {
            let node = topology.nodes().iter().find(|node| node.name == *name);
            node.map(|node| node.id).ok_or_else(|| ConfigError::UnknownNode(name.clone()))
        };
        let managers = file.managers.iter().map(id).collect::<Result<_, _>>()?;
        let secret = read_secret(&folder.join(&file.secret))?;
        let mut config = NodeConfig::new(&topology, id(&file.node)?, managers, secret)?;
        if let Some(secret) = &file.client_secret {
            config.client_secret = read_secret(&folder.join(secret))?;
        }
        if let Some(tls) = &file.tls {
            let identity = Identity::read(&folder.join(&tls.certificates), &folder.join(&tls.key))?;
            let authorities = read_certificates(&folder.join(&tls.authorities))?;
            config.tls = Some(NodeTls::new(&identity, &authorities, &file.cluster)?);
        }
        config.cluster = file.cluster;
        config.data = file.data.map(|data| folder.join(data));
        config.pin = file.pin;
        config.chaos = file.chaos;
        config.slow_after = match file.slow_ms {
            None => Some(SLOW_AFTER),
            Some(0) => None,
            Some(ms) => Some(Duration::from_millis(ms)),
        };
        config.http = file.http;
        config.protocol = file.engine;
        let ms = |ms: f64| Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default();
        let DistanceTable { round_trip_ms, jitter_ms } = file.distance;
        config.distance = Distance { delay: ms(round_trip_ms) / 2, jitter: ms(jitter_ms) };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let lost = self.topology.nodes().iter().find(|node| node.address.is_none());
        if let Some(node) = lost {
            return Err(ConfigError::NoAddress(node.name.clone()));
        }
        match (self.protocol, self.managers.len()) {
            (_, 0) | (Protocol::Mako, 1 | 3 | 5) => Ok(()),
            (Protocol::Mako, count) => Err(ConfigError::Managers(count)),
            (Protocol::TwoPhaseCommit, _) => Err(ConfigError::ManagersUnused),
        }
    }
}

/// The topology, and the table in which the outcomes of calls are kept.
fn with_requests(topology: &Topology) -> Topology {
    if topology.table(REQUESTS_TABLE).is_some() {
        return topology.clone();
    }
    let tables = topology.tables().iter();
    let mut tables: Vec<_> =
        tables.map(|table| (table.name().to_owned(), table.partitioning().clone())).collect();
    let (name, partitioning) = requests_table(topology.shards());
    tables.push((name.to_owned(), partitioning));
    topology.clone().with_tables(tables).expect("one more table of a name that is free")
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|error| ConfigError::File { path: path.to_owned(), error })
}

fn read_secret(path: &Path) -> Result<Secret, ConfigError> {
    Ok(Secret::new(read_text(path)?.trim_end().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a node's file with this in it.
    fn read(more: &str) -> Result<NodeConfig, ConfigError> {
        let folder = tempfile::tempdir().expect("a folder");
        let topology = Topology::builder().workers(1).datacenter("here");
        let topology = topology.node_at("n0", "here", "127.0.0.1:7000").shard("n0", ["n0"], []);
        let topology = topology.build().expect("a topology").to_toml();
        let node = format!(
            "cluster = \"reef\"\nnode = \"n0\"\ntopology = \"topology.toml\"\nsecret = \"secret\"\n{more}"
        );
        for (name, text) in [
            ("topology.toml", &*topology),
            ("secret", "sixteen bytes at least"),
            ("node.toml", &node),
        ] {
            fs::write(folder.path().join(name), text).expect("written");
        }
        NodeConfig::read(&folder.path().join("node.toml"))
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let config = read("").expect("a configuration");
        assert_eq!((config.http, config.slow_after), (None, Some(SLOW_AFTER)));
    }

    #[test]
    fn what_operators_want_to_see_is_read() {
        let config = read("http = \"127.0.0.1:9100\"\nslow_ms = 100\n").expect("a configuration");
        assert_eq!(config.http, Some(([127, 0, 0, 1], 9100).into()));
        assert_eq!(config.slow_after, Some(Duration::from_millis(100)));
        assert_eq!(read("slow_ms = 0\n").expect("a configuration").slow_after, None);
    }

    #[test]
    fn what_nobody_knows_is_refused_by_name() {
        for (more, named) in
            [("htp = \"x\"\n", "htp"), ("http = \"here\"\n", "http"), ("slow_ms = -1\n", "slow_ms")]
        {
            let error = read(more).expect_err("refused").to_string();
            assert!(error.contains(named), "{more}: {error}");
        }
    }
}
