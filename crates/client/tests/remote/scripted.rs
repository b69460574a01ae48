//! Nodes that do what a script says, and what comes naturally where it says nothing.

use crate::served::{config, options, topology};
use bytes::Bytes;
use shoal_client::{Cluster, ClusterOptions, NodeId, ShardId};
use shoal_cluster::manager::{Configuration, ManagerOptions, Revision, StateMachine};
use shoal_cluster::topology::Topology;
use shoal_engine::client::{
    ClientReply, ClientRequest, ClientRouting, Directory, FromClient, SessionEnd, ToClient,
};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_net::{Core, CoreInput, Network, Outbox, listen};
use shoal_types::wire::{decode, encode};
use shoal_types::{CallSession, TableId, Time, WorkerId};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What every connection is registered under.
const REGISTRATION: u64 = 9;

/// What a node does about a frame.
#[derive(Debug, Clone)]
pub enum Do {
    /// What comes naturally: reads find nothing, all else succeeds.
    Naturally,
    /// The node sends this reply.
    Reply(ClientReply),
    /// The worker answers what was asked before as well, in this order.
    Replies(Vec<ClientReply>),
    /// The worker sends this, which need not be a message.
    Say(Bytes),
    /// The worker closes the connection.
    Close,
    /// The worker has not received the request.
    Nothing,
}

/// A frame that a node was sent.
#[derive(Debug, Clone)]
pub struct Asked {
    pub node: NodeId,
    pub worker: WorkerId,
    pub what: ClientRequest,
}

impl Asked {
    /// How it ends a transaction, if it does.
    pub fn ending(&self) -> Option<SessionEnd> {
        match &self.what {
            ClientRequest::Steps { ending, .. } => ending.clone(),
            _ => None,
        }
    }

    /// Has it operations of a transaction?
    pub fn has_operations(&self) -> bool {
        matches!(&self.what, ClientRequest::Steps { operations, .. } if !operations.is_empty())
    }
}

/// What a node does about a request.
type Script = Box<dyn FnMut(&Asked) -> Do + Send>;

/// What the nodes share.
struct Plot {
    script: Script,
    asked: Vec<Asked>,
    /// Requests for sessions for calls, of which no script says anything.
    opened: Vec<Asked>,
    /// So many of those are not received yet.
    unheard: usize,
    /// So many requests to register a connection are not received yet.
    unheard_registrations: usize,
    directory: Directory,
    /// Nodes that say nothing at all, not even where everything is.
    hung: Vec<NodeId>,
    /// Nodes that reach no other: they answer no request, and still report where everything was.
    cut_off: Vec<(NodeId, Directory)>,
}

/// A cluster of such nodes.
pub struct Scripted {
    nodes: Vec<Network<()>>,
    plot: Arc<Mutex<Plot>>,
    pub topology: Arc<Topology>,
}

fn lock(plot: &Mutex<Plot>) -> MutexGuard<'_, Plot> {
    plot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One worker of a node.
struct Actor {
    node: NodeId,
    worker: WorkerId,
    plot: Arc<Mutex<Plot>>,
}

impl Core for Actor {
    type Command = ();

    fn step(&mut self, _: Time, input: CoreInput<()>, out: &mut Outbox) {
        let CoreInput::FromClient { client, frame, .. } = input else { return };
        let mut plot = lock(&self.plot);
        if plot.hung.contains(&self.node) {
            return;
        }
        let what = match decode(&frame).expect("the client makes sense") {
            FromClient::Request(request) => request,
            FromClient::Directory => {
                let cut_off = plot.cut_off.iter().find(|(node, _)| *node == self.node);
                let known = cut_off.map_or(&plot.directory, |(_, then)| then);
                let told = ToClient::Directory(known.clone());
                return out.to_client(client, encode(&told));
            }
            FromClient::Status | FromClient::Isolate(_) => return,
        };
        if what == ClientRequest::Register {
            if plot.unheard_registrations > 0 {
                plot.unheard_registrations -= 1;
                return;
            }
            if plot.cut_off.iter().all(|(node, _)| *node != self.node) {
                let reply = ClientReply::Registered { registration: REGISTRATION };
                out.to_client(client, encode(&ToClient::Reply(reply)));
            }
            return;
        }
        let asked = Asked { node: self.node, worker: self.worker, what };
        let opens = matches!(asked.what, ClientRequest::OpenCalls { .. });
        if opens {
            plot.opened.push(asked.clone());
        } else {
            plot.asked.push(asked.clone());
        }
        if plot.cut_off.iter().any(|(node, _)| *node == self.node) {
            return;
        }
        if let ClientRequest::OpenCalls { token, home } = asked.what {
            if plot.unheard > 0 {
                plot.unheard -= 1;
                return;
            }
            let serial = plot.opened.len() as u64;
            let session = CallSession { home, serial, ..CallSession::default() };
            let reply = ClientReply::CallsOpened { token, result: Ok(session) };
            return out.to_client(client, encode(&ToClient::Reply(reply)));
        }
        match (plot.script)(&asked) {
            Do::Naturally => {
                let replies = naturally(asked.what).into_iter();
                replies.for_each(|reply| out.to_client(client, encode(&ToClient::Reply(reply))));
            }
            Do::Reply(reply) => out.to_client(client, encode(&ToClient::Reply(reply))),
            Do::Replies(replies) => {
                let replies = replies.into_iter().map(|reply| encode(&ToClient::Reply(reply)));
                replies.for_each(|frame| out.to_client(client, frame));
            }
            Do::Say(bytes) => out.to_client(client, bytes),
            Do::Close => out.close_client(client, "so it is written"),
            Do::Nothing => {}
        }
    }
}

fn naturally(what: ClientRequest) -> Vec<ClientReply> {
    match what {
        ClientRequest::Steps { session, number, operations, ending, .. } => {
            let last = number + operations.len() as u32 - u32::from(ending.is_none());
            let answers = (number..).zip(operations).filter_map(|(number, operation)| {
                let answer = match operation {
                    Operation::Get { .. } => OperationResult::Value(None),
                    Operation::Scan { .. } => OperationResult::Rows(Vec::new()),
                    Operation::Put { .. } if number < last => return None,
                    Operation::Put { .. } | Operation::Insert { .. } => OperationResult::Done,
                };
                Some((number, answer))
            });
            let end = ending.map(|ending| match ending {
                SessionEnd::Call { .. } => (last, OperationResult::Value(Some("done".into()))),
                _ => (last, OperationResult::Done),
            });
            let done = |(number, answer)| ClientReply::Done { session, number, result: Ok(answer) };
            answers.chain(end).map(done).collect()
        }
        ClientRequest::Call { id, .. } => {
            vec![ClientReply::Called { id, result: Ok("done".into()) }]
        }
        ClientRequest::Resolve { id } => {
            let committed = Bytes::from_static(shoal_engine::client::COMMITTED);
            vec![ClientReply::Called { id, result: Ok(committed) }]
        }
        ClientRequest::ChangeTable { ask, .. } => {
            vec![ClientReply::TableChanged { ask, result: Ok(TableId(0)) }]
        }
        ClientRequest::Register | ClientRequest::OpenCalls { .. } => {
            unreachable!("answered without a script")
        }
    }
}

impl Scripted {
    /// So many nodes of one worker; node k leads shard k, until they say otherwise.
    pub fn start(nodes: u32, script: impl FnMut(&Asked) -> Do + Send + 'static) -> Scripted {
        let listeners: Vec<TcpListener> =
            (0..nodes).map(|_| listen("127.0.0.1:0").expect("a port")).collect();
        let topology = Arc::new(topology(&listeners, 1, &["people"]));
        let directory = Directory {
            topology: Arc::clone(&topology),
            configuration: None,
            routing: ClientRouting::Leaders,
        };
        let plot = Plot {
            script: Box::new(script),
            asked: Vec::new(),
            opened: Vec::new(),
            unheard: 0,
            unheard_registrations: 0,
            directory,
            hung: Vec::new(),
            cut_off: Vec::new(),
        };
        let plot = Arc::new(Mutex::new(plot));
        let started = listeners.into_iter().zip((0..).map(NodeId)).map(|(listener, node)| {
            let plot = Arc::clone(&plot);
            let core = move |worker, _: &_| Actor { node, worker, plot: Arc::clone(&plot) };
            Network::start(config(&topology, node), listener, core).expect("a node")
        });
        Scripted { nodes: started.collect(), plot, topology }
    }

    /// From now on nodes say that clients choose coordinators so.
    pub fn route(&self, routing: ClientRouting) {
        lock(&self.plot).directory.routing = routing;
    }

    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address().to_string()).collect()
    }

    /// A client that never asks again for lack of patience.
    pub async fn connect(&self) -> Cluster {
        let (patience, silence_max) = (crate::PATIENCE, crate::PATIENCE);
        self.connect_with(ClusterOptions { patience, silence_max, ..options() }).await
    }

    pub async fn connect_with(&self, options: ClusterOptions) -> Cluster {
        Cluster::connect_with(&self.addresses(), options).await.expect("a cluster")
    }

    /// All that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.plot).asked.clone()
    }

    /// Requests for sessions for calls so far.
    pub fn opened(&self) -> Vec<Asked> {
        lock(&self.plot).opened.clone()
    }

    /// The next so many requests for sessions are not received.
    pub fn lose_opens(&self, count: usize) {
        lock(&self.plot).unheard = count;
    }

    /// The next so many requests to register a connection are not received, as by a node without a lease.
    pub fn lose_registrations(&self, count: usize) {
        lock(&self.plot).unheard_registrations = count;
    }

    /// Waits until something was asked.
    pub async fn until(&self, wanted: impl Fn(&Asked) -> bool) {
        while !lock(&self.plot).asked.iter().any(&wanted) {
            tokio::task::yield_now().await;
        }
    }

    /// From now on the nodes report that `leader` leads `shard`.
    pub fn appoint(&self, shard: ShardId, leader: NodeId) {
        self.configure(|configuration| {
            configuration.nodes.iter_mut().for_each(|node| node.alive = true);
            configuration.shards[shard.0 as usize].leader = leader;
        });
    }

    /// From now on that node reaches no other. They report that it is dead, and that `successor` leads in its
    /// place; it reports what it knew.
    pub fn cut_off(&self, node: NodeId, successor: NodeId) {
        let before = lock(&self.plot).directory.clone();
        lock(&self.plot).cut_off.push((node, before));
        self.configure(|configuration| {
            for (number, other) in configuration.nodes.iter_mut().enumerate() {
                other.alive = number != node.0 as usize;
            }
            let led = configuration.shards.iter_mut().filter(|shard| shard.leader == node);
            led.for_each(|shard| shard.leader = successor);
        });
    }

    fn configure(&self, change: impl FnOnce(&mut Configuration)) {
        let mut plot = lock(&self.plot);
        let machine = StateMachine::new(Arc::clone(&self.topology), ManagerOptions::default());
        let before = plot.directory.configuration.as_deref();
        let mut configuration = before.unwrap_or(machine.configuration()).clone();
        configuration.revision = Revision(configuration.revision.0 + 1);
        change(&mut configuration);
        plot.directory.configuration = Some(Arc::new(configuration));
    }

    /// From now on that node says nothing.
    pub fn hang(&self, node: NodeId) {
        lock(&self.plot).hung.push(node);
    }

    /// The node is no more.
    pub fn kill(&mut self, node: NodeId) {
        self.nodes[node.0 as usize].handle().stop();
    }
}
