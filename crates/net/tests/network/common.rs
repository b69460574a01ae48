//! Nodes whose cores report their events to a test and do what it asks; and waiting.

use bytes::Bytes;
use shoal_net::{
    Core, CoreInput, CounterTotals, Handle, Network, NetworkConfig, Outbox, PeerConfig, Secret,
    listen,
};
use shoal_types::{DatacenterId, NodeId, Time, WorkerId};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than anything takes; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const SECRET: [u8; 32] = [7; 32];

pub const WORKER: WorkerId = WorkerId(0);

/// What a test has a core do.
pub type Order = Box<dyn FnOnce(Time, &mut Outbox) + Send>;

/// What happened to a core, and when.
#[derive(Debug)]
pub struct Happened {
    pub at: Time,
    pub worker: WorkerId,
    pub input: CoreInput<()>,
}

/// Reports all its events, and does as ordered.
struct Told {
    worker: WorkerId,
    tell: mpsc::Sender<Happened>,
}

impl Core for Told {
    type Command = Order;

    fn step(&mut self, at: Time, input: CoreInput<Order>, out: &mut Outbox) {
        let input = match input {
            CoreInput::Command(order) => return order(at, out),
            CoreInput::Started => CoreInput::Started,
            CoreInput::FromPeer { from, frame, arrived } => {
                assert!(arrived <= at, "it is taken at {at}, and arrived at {arrived}");
                CoreInput::FromPeer { from, frame, arrived }
            }
            CoreInput::FromClient { client, frame, arrived } => {
                assert!(arrived <= at, "it is taken at {at}, and arrived at {arrived}");
                CoreInput::FromClient { client, frame, arrived }
            }
            CoreInput::FromOperator { client, frame } => CoreInput::FromOperator { client, frame },
            CoreInput::PeerUp { node, instance, version } => {
                CoreInput::PeerUp { node, instance, version }
            }
            CoreInput::PeerDown { node } => CoreInput::PeerDown { node },
            CoreInput::ClientGone { client } => CoreInput::ClientGone { client },
            CoreInput::Timer => CoreInput::Timer,
            CoreInput::Nudged => CoreInput::Nudged,
        };
        // A test that has ended does not listen any more.
        let _ = self.tell.send(Happened { at, worker: self.worker, input });
    }
}

/// A node and what happens to it.
pub struct Node {
    pub network: Network<Order>,
    pub happened: mpsc::Receiver<Happened>,
}

impl Node {
    pub fn start(config: NetworkConfig, listener: TcpListener) -> Node {
        let (tell, happened) = mpsc::channel();
        let core = move |worker, _: &Handle<Order>| Told { worker, tell: tell.clone() };
        Node { network: Network::start(config, listener, core).expect("a node"), happened }
    }

    pub fn alone(config: NetworkConfig) -> Node {
        Node::start(config, port())
    }

    pub fn handle(&self) -> &Handle<Order> {
        self.network.handle()
    }

    pub fn address(&self) -> SocketAddr {
        self.network.address()
    }

    pub fn counters(&self) -> CounterTotals {
        self.handle().counters()
    }

    pub fn order(&self, order: impl FnOnce(Time, &mut Outbox) + Send + 'static) {
        let sent = self.handle().command(WORKER, Box::new(order));
        assert!(sent.is_ok(), "the worker has ended");
    }

    pub fn send(&self, node: NodeId, frame: impl Into<Bytes>) {
        let frame = frame.into();
        self.order(move |_, out| out.to_peer(node, frame));
    }

    /// The first thing that happens and is meant.
    #[track_caller]
    pub fn wait<T>(&self, meant: impl Fn(&Happened) -> Option<T>) -> T {
        loop {
            let happened = self.happened.recv_timeout(PATIENCE).expect("it never happens");
            if let Some(found) = meant(&happened) {
                return found;
            }
        }
    }

    #[track_caller]
    pub fn wait_up(&self, peer: NodeId) -> u64 {
        self.wait(|happened| match happened.input {
            CoreInput::PeerUp { node, instance, .. } if node == peer => Some(instance),
            _ => None,
        })
    }

    #[track_caller]
    pub fn wait_frame(&self) -> (Time, Bytes) {
        self.wait(|happened| match &happened.input {
            CoreInput::FromPeer { frame, .. } | CoreInput::FromClient { frame, .. } => {
                Some((happened.at, frame.clone()))
            }
            _ => None,
        })
    }

    /// Until its counters say so.
    #[track_caller]
    pub fn wait_count(&self, says: impl Fn(&CounterTotals) -> bool) -> CounterTotals {
        wait_until(|| Some(self.counters()).filter(&says))
    }
}

/// Asks again and again.
#[track_caller]
pub fn wait_until<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    let (_never, pause) = mpsc::channel::<()>();
    let step = Duration::from_millis(1);
    for _ in 0..PATIENCE.as_millis() {
        if let Some(found) = condition() {
            return found;
        }
        let _ = pause.recv_timeout(step);
    }
    panic!("it never comes to be");
}

pub fn port() -> TcpListener {
    listen("127.0.0.1:0").expect("a port")
}

pub fn config(node: u32) -> NetworkConfig {
    NetworkConfig::new("reef", NodeId(node), Secret::new(SECRET))
}

pub fn peer(node: u32, address: SocketAddr) -> PeerConfig {
    PeerConfig {
        node: NodeId(node),
        address: address.to_string(),
        datacenter: DatacenterId::default(),
    }
}

/// Nodes 0, 1 and so on, connected each to each.
pub fn cluster(count: u32, adjust: impl Fn(&mut NetworkConfig)) -> Vec<Node> {
    let listeners: Vec<_> = (0..count).map(|_| port()).collect();
    let at = |node: u32| listeners[node as usize].local_addr().expect("an address");
    let addresses: Vec<_> = (0..count).map(at).collect();
    let configs = (0..count).map(|own| {
        let others = (0..count).filter(|other| *other != own);
        let peers = others.map(|other| peer(other, addresses[other as usize])).collect();
        let mut config = NetworkConfig { peers, ..config(own) };
        adjust(&mut config);
        config
    });
    let configs: Vec<_> = configs.collect();
    let started = configs.into_iter().zip(listeners);
    let nodes: Vec<_> = started.map(|(config, listener)| Node::start(config, listener)).collect();
    for (own, node) in nodes.iter().enumerate() {
        let mut missing: Vec<_> =
            (0..count).map(NodeId).filter(|other| other.0 as usize != own).collect();
        while !missing.is_empty() {
            let up = node.wait(|happened| match happened.input {
                CoreInput::PeerUp { node, .. } if happened.worker == WORKER => Some(node),
                _ => None,
            });
            missing.retain(|other| *other != up);
        }
    }
    nodes
}
