//! Nodes with an engine, on loopback: each worker's core translates between frames and events.

use crate::SECRET;
use bytes::Bytes;
use shoal_client::{Access, Cluster, ClusterOptions};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::{
    ClientId, ClientRouting, Directory, FromClient, ReplyToClient, RequestFromClient, ToClient,
    requests_table,
};
use shoal_engine::engine::Setup;
use shoal_engine::{Engine, Procedures};
use shoal_mako::Mako;
use shoal_net::{Core, CoreInput, Network, NetworkConfig, Outbox, PeerConfig, Secret, listen};
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage, WorkerOrigin};
use shoal_types::wire::{decode, encode};
use shoal_types::{DatacenterId, Distance, DistanceMatrix, NodeId, Time, WorkerId};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

pub const CLUSTER: &str = "reef";

/// One worker of a node.
struct Served {
    worker: Worker<Mako>,
    topology: Arc<Topology>,
}

impl Served {
    fn event(&mut self, now: Time, event: WorkerEvent<shoal_mako::MakoMessage>, out: &mut Outbox) {
        let mut effects = WorkerEffects::new();
        self.worker.step(now, event, &mut effects);
        for effect in effects.effects {
            match effect {
                WorkerEffect::Send { to, message } => out.to_worker(to, encode(&message)),
                WorkerEffect::Reply(ReplyToClient { to, reply }) => {
                    out.to_client(
                        shoal_net::ConnectedClient(to.0),
                        encode(&ToClient::Reply(reply)),
                    );
                }
                WorkerEffect::Timer { at } => out.timer(at),
                WorkerEffect::Nudge { worker } => out.nudge(worker),
                WorkerEffect::Tell { .. } | WorkerEffect::Superseded => {
                    unreachable!("there is no manager")
                }
                WorkerEffect::Write { .. } | WorkerEffect::Checkpoint(_) => {
                    unreachable!("storages are in memory")
                }
            }
        }
    }

    fn client(
        &mut self,
        now: Time,
        from: shoal_net::ConnectedClient,
        frame: &Bytes,
        out: &mut Outbox,
    ) {
        match decode(frame).expect("the client makes sense") {
            FromClient::Request(request) => {
                self.event(
                    now,
                    WorkerEvent::Client(RequestFromClient { from: ClientId(from.0), request }),
                    out,
                );
            }
            FromClient::Directory => {
                let topology = Arc::clone(&self.topology);
                let told = ToClient::Directory(Directory {
                    topology,
                    configuration: None,
                    routing: ClientRouting::Leaders,
                });
                out.to_client(from, encode(&told));
            }
            FromClient::Status => out.to_client(from, encode(&ToClient::Status("{}".into()))),
            FromClient::Isolate(_) => out.to_client(from, encode(&ToClient::Isolated(false))),
        }
    }
}

impl Core for Served {
    type Command = ();

    fn step(&mut self, now: Time, input: CoreInput<()>, out: &mut Outbox) {
        match input {
            CoreInput::Started => self.event(now, WorkerEvent::Start, out),
            CoreInput::FromPeer { from, frame, .. } => {
                let message: WorkerMessage<shoal_mako::MakoMessage> =
                    decode(&frame).expect("peers make sense");
                self.event(now, WorkerEvent::Received { from, message }, out);
            }
            CoreInput::FromClient { client, frame, .. } => self.client(now, client, &frame, out),
            CoreInput::Timer => self.event(now, WorkerEvent::Timer, out),
            CoreInput::Nudged => self.event(now, WorkerEvent::Nudged, out),
            CoreInput::PeerUp { .. }
            | CoreInput::PeerDown { .. }
            | CoreInput::ClientGone { .. }
            | CoreInput::FromOperator { .. }
            | CoreInput::Command(()) => {}
        }
    }
}

/// A cluster in this process: node k leads shard k, all hold all.
pub struct Reef {
    nodes: Vec<Network<()>>,
}

impl Reef {
    /// So many nodes with so many workers, and these tables.
    pub fn start(nodes: u32, workers: u16, tables: &[&str], procedures: Procedures) -> Reef {
        let listeners: Vec<TcpListener> =
            (0..nodes).map(|_| listen("127.0.0.1:0").expect("a port")).collect();
        let topology = Arc::new(topology(&listeners, workers, tables));
        let procedures = Arc::new(procedures);
        let (streams, options) =
            (shoal_log::StreamOptions::default(), shoal_mako::MakoOptions::default());
        let setup = Setup { topology: Arc::clone(&topology), procedures, streams, options };
        let started = listeners.into_iter().zip((0..).map(NodeId));
        let started = started.map(|(listener, own)| {
            let (shared, setup) = (Mako::share(&setup, own), setup.clone());
            let config = config(&topology, own);
            let core = move |worker: WorkerId, _: &_| {
                let topology = Arc::clone(&setup.topology);
                let origin = WorkerOrigin::fixed(&topology, u64::from(own.0 << 8 | worker.0));
                let worker = Worker::new(worker, own, &setup, Arc::clone(&shared), origin);
                Served { worker, topology }
            };
            Network::start(config, listener, core).expect("a node")
        });
        Reef { nodes: started.collect() }
    }

    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address().to_string()).collect()
    }

    pub async fn connect(&self) -> Cluster {
        Cluster::connect_with(&self.addresses(), options()).await.expect("a cluster")
    }
}

/// Short waits, unless a test asks for long ones, and commits without ids: those have tests of their own.
pub fn options() -> ClusterOptions {
    ClusterOptions {
        access: Access::open(CLUSTER),
        deadline: crate::PATIENCE,
        commit_ids: false,
        ..ClusterOptions::default()
    }
}

/// What a node's network receives.
pub fn config(topology: &Topology, own: NodeId) -> NetworkConfig {
    let peers = topology.nodes().iter().filter(|node| node.id != own).map(|node| PeerConfig {
        node: node.id,
        address: node.address.clone().expect("written"),
        datacenter: DatacenterId::default(),
    });
    NetworkConfig {
        peers: peers.collect(),
        workers: topology.workers() as u16,
        ..NetworkConfig::new(CLUSTER, own, Secret::new(SECRET))
    }
}

/// From where the nodes are to where none is, one way.
pub const FAR: Duration = Duration::from_millis(15);

/// Node k listens there and leads shard k; all hold all, and all are `here`.
pub fn topology(listeners: &[TcpListener], workers: u16, tables: &[&str]) -> Topology {
    let name = |node: usize| format!("n{node}");
    let builder = Topology::builder().workers(workers.into());
    let mut builder = builder.datacenter("here").datacenter("far");
    for (node, listener) in listeners.iter().enumerate() {
        let address = listener.local_addr().expect("an address").to_string();
        builder = builder.node_at(name(node), "here", address);
    }
    for leader in 0..listeners.len() {
        let voters = (0..listeners.len()).map(name);
        builder = builder.shard(name(leader), voters, Vec::new());
    }
    let (requests, partitioning) = requests_table(listeners.len() as u32);
    builder = builder.table(requests, partitioning);
    for table in tables {
        builder = builder.table(*table, Partitioning::Hash { prefix_bytes: 0 });
    }
    let far = Distance { delay: FAR, jitter: Duration::ZERO };
    let distances = DistanceMatrix::none().with(DatacenterId(0), DatacenterId(1), far);
    let topology = builder.build().and_then(|topology| topology.with_distances(&distances));
    topology.expect("a valid topology")
}
