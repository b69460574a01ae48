//! A cluster in this process, and a client that sends it frames.

use bytes::Bytes;
use shoal_client::ClusterOptions;
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::{ClientReply, ClientRequest, FromClient, ToClient, worker_of};
use shoal_engine::{ProcedureTransaction, Procedures};
use shoal_net::client::{Access, ClientConnection, Role, connect};
use shoal_net::{Secret, listen};
use shoal_server::{FromOperator, NodeConfig, NodeStatus, Protocol, Server, ServerEnd, ToOperator};
use shoal_types::wire::{decode, encode};
use shoal_types::{
    Aborted, CallSession, Error, NodeId, RequestId, Result, ShardId, Transaction, Unknown, WorkerId,
};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so long something is wrong, not slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// So long a call waits for its answer before it is sent again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

pub struct Cluster {
    /// What lets clients in.
    pub access: Access,
    pub configs: Vec<NodeConfig>,
    pub servers: Vec<Option<Server>>,
}

/// Adds one to a counter, and says what it is now.
async fn count(tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
    let table = shoal_types::TableId(0);
    let sum = tx.add(table, arguments, 1).await?;
    Ok(Bytes::copy_from_slice(&sum.to_le_bytes()))
}

/// Adds one to each of ten counters, which are on all shards.
async fn count_ten(tx: &ProcedureTransaction<'_>, _arguments: &[u8]) -> Result<Bytes> {
    for key in 0..10_u8 {
        tx.add(shoal_types::TableId(0), &[key], 1).await?;
    }
    Ok(Bytes::new())
}

fn procedures() -> Arc<Procedures> {
    Arc::new(
        Procedures::new()
            .with("count", count)
            .with("count_ten", count_ten)
            .with("fill", crate::sizes::fill),
    )
}

/// What only nodes and operators know.
fn secret() -> Secret {
    Secret::new([7; 32])
}

impl Cluster {
    /// Shards of three replicas each, on nodes of their own; the first three nodes have managers.
    pub fn start(shards: u32, workers: u32, protocol: Protocol) -> Cluster {
        Cluster::start_with(shards, workers, protocol, |_| {})
    }

    /// The same, with something changed for each node.
    pub fn start_with(
        shards: u32,
        workers: u32,
        protocol: Protocol,
        change: impl Fn(&mut NodeConfig),
    ) -> Cluster {
        let mut builder = Topology::builder().workers(workers).datacenter("here");
        let mut listeners = Vec::new();
        for node in 0..3 * shards {
            let listener = listen("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address").to_string();
            builder = builder.node_at(format!("n{node}"), "here", address);
            listeners.push(listener);
        }
        let table = Partitioning::Hash { prefix_bytes: 0 };
        let mut builder = builder.table("counters", table);
        for shard in 0..shards {
            let voters: Vec<String> = (0..3).map(|at| format!("n{}", 3 * shard + at)).collect();
            builder = builder.shard(voters[0].clone(), voters.clone(), []);
        }
        let topology = builder.build().expect("a topology");
        let managers = vec![NodeId(0), NodeId(1), NodeId(2)];
        let secret = secret();
        let config = |node: u32| {
            let (managers, secret) = (managers.clone(), secret.clone());
            let config = NodeConfig::new(&topology, NodeId(node), managers, secret);
            let http = Some(([127, 0, 0, 1], 0).into());
            // Every transaction takes longer than that.
            let slow_after = Some(Duration::from_nanos(1));
            let config = config.expect("a configuration");
            let mut config = NodeConfig { engine: protocol.options(), http, slow_after, ..config };
            change(&mut config);
            config
        };
        let configs: Vec<NodeConfig> = (0..3 * shards).map(config).collect();
        let mut cluster = Cluster { access: Access::open("shoal"), configs, servers: Vec::new() };
        for (node, listener) in listeners.into_iter().enumerate() {
            let server = cluster.begin(node, Some(listener));
            cluster.servers.push(Some(server));
        }
        cluster
    }

    fn begin(&self, node: usize, listener: Option<TcpListener>) -> Server {
        Server::start(&self.configs[node], procedures(), listener).expect("a node")
    }

    /// Has a node added to the cluster, and starts its process.
    pub async fn add_node(&mut self, name: &str, number: u64) -> NodeId {
        let listener = listen("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let wanted = FromOperator::AddNode {
            name: name.to_owned(),
            datacenter: "here".to_owned(),
            address: address.clone(),
            number,
        };
        let added = self.decide(wanted, is_over).await;
        let ToOperator::NodeAdded { node, .. } = added else {
            panic!("it is not added: {added:?}")
        };
        let last = self.configs.last().expect("there are nodes");
        let topology = (*last.topology).clone().with_added_node(name, "here", Some(&address));
        let topology = Arc::new(topology.expect("another node"));
        let config = NodeConfig { node, topology, ..last.clone() };
        assert_eq!(node.0 as usize, self.configs.len(), "it has the next number");
        self.configs.push(config);
        let server = self.begin(node.0 as usize, Some(listener));
        self.servers.push(Some(server));
        node
    }

    /// Has a node removed from the cluster.
    pub async fn remove_node(&self, node: NodeId, number: u64) -> ToOperator {
        self.decide(FromOperator::RemoveNode { node, number }, is_over).await
    }

    /// A node ends, as in a crash.
    pub fn kill(&mut self, node: NodeId) {
        let server = self.servers[node.0 as usize].take().expect("it runs");
        server.stop();
        match server.join() {
            // It was asked to, or had ended before, and another process is to follow.
            Ok(()) | Err(ServerEnd::Failed(_)) => {}
            Err(ended) => panic!("{node} has ended: {ended}"),
        }
    }

    /// The node begins another process.
    pub fn restart(&mut self, node: NodeId) {
        let at = node.0 as usize;
        assert!(self.servers[at].is_none(), "{node} runs");
        self.servers[at] = Some(self.begin(at, None));
    }

    pub fn client(&self, number: u64) -> Client<'_> {
        Client { cluster: self, token: number << 32, sessions: BTreeMap::new() }
    }

    pub fn address(&self, node: NodeId) -> String {
        let node = self.configs[node.0 as usize].topology.node(node).expect("a node");
        node.address.clone().expect("an address")
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.servers[node.0 as usize].is_some()
    }

    /// A session for calls on a shard.
    pub async fn open_session(&self, via: NodeId, home: ShardId) -> CallSession {
        self.client(77).open(via, home).await.expect("it serves")
    }

    /// Asks for the first call of a session.
    pub async fn ask_in(
        &self,
        session: CallSession,
        via: NodeId,
        procedure: &str,
    ) -> Result<Bytes> {
        let mut client = self.client(78);
        client.sessions.insert(session.home, (session, 0));
        client.call(via, session.home, procedure, &[1]).await
    }

    /// How a node is, if it says so.
    pub async fn status(&self, node: NodeId) -> Option<NodeStatus> {
        let mut connection = self.connect(node, None).await?;
        connection.sender.send(encode(&FromClient::Status)).await.ok()?;
        let answer = tokio::time::timeout(PATIENCE, connection.receiver.receive()).await.ok()?;
        match decode(&answer.ok()?).expect("a frame") {
            ToClient::Status(json) => Some(serde_json::from_slice(&json).expect("a status")),
            other => panic!("asked for the status, was told {other:?}"),
        }
    }

    /// How a node is that runs.
    pub async fn status_of(&self, node: NodeId) -> NodeStatus {
        answered(node, async || self.status(node).await).await
    }

    /// The answer of a node to an operator, if it answers.
    pub async fn operate(&self, node: NodeId, wanted: &FromOperator) -> Option<ToOperator> {
        let (role, secret) = (Role::Operator, secret());
        let access = Access { role, secret, ..self.access.clone() };
        let connected = connect(&self.address(node), &access, Some(WorkerId(0))).await;
        let ClientConnection { sender, mut receiver, .. } = connected.ok()?;
        sender.send(encode(wanted)).await.ok()?;
        let told = tokio::time::timeout(PATIENCE, receiver.receive()).await.ok()?.ok()?;
        Some(decode(&told).expect("a frame"))
    }

    /// The answer of a node that runs to an operator.
    pub async fn answer(&self, node: NodeId, wanted: &FromOperator) -> ToOperator {
        answered(node, async || self.operate(node, wanted).await).await
    }

    /// A client of the nodes that run.
    pub async fn connect_client(&self) -> shoal_client::Cluster {
        let addresses: Vec<String> =
            self.running().into_iter().map(|node| self.address(node)).collect();
        shoal_client::Cluster::connect_with(&addresses, ClusterOptions::default())
            .await
            .expect("connected")
    }

    async fn connect(&self, node: NodeId, worker: Option<WorkerId>) -> Option<ClientConnection> {
        connect(&self.address(node), &self.access, worker).await.ok()
    }

    /// Asks the manager that leads, until it says something that is the last word.
    pub async fn decide(
        &self,
        wanted: FromOperator,
        last: impl Fn(&ToOperator) -> bool,
    ) -> ToOperator {
        loop {
            for node in self.running() {
                match self.operate(node, &wanted).await {
                    Some(told) if last(&told) => return told,
                    Some(_) | None => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The nodes that run.
    pub fn running(&self) -> Vec<NodeId> {
        (0..).map(NodeId).take(self.servers.len()).filter(|node| self.is_up(*node)).collect()
    }

    /// Asks one node until it says what comes of it.
    pub async fn ask(&self, node: NodeId, wanted: &FromOperator) -> ToOperator {
        let began = now();
        loop {
            let told = self.answer(node, wanted).await;
            match told {
                ToOperator::UnderWay(_) | ToOperator::NotLeading { .. } => {}
                told => return told,
            }
            assert!(began.elapsed() < PATIENCE, "{wanted:?}: {node} says {told:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Has one manager replaced by another, by asking the leader until it is done.
    pub async fn replace_manager(&self, outgoing: NodeId, incoming: NodeId) -> Vec<NodeId> {
        let began = now();
        let mut last = None;
        loop {
            for node in self.running() {
                let wanted = FromOperator::ReplaceManager { outgoing, incoming };
                last = self.operate(node, &wanted).await;
                match &last {
                    Some(ToOperator::Done { managers }) => return managers.clone(),
                    Some(ToOperator::UnderWay(_) | ToOperator::NotLeading { .. }) | None => {}
                    Some(told) => panic!("{outgoing} to {incoming}: {told:?}"),
                }
            }
            assert!(began.elapsed() < PATIENCE, "{outgoing} to {incoming}: {last:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until all that run know that these are the managers.
    pub async fn until_managed(&self, managers: [u32; 3]) {
        for node in self.running() {
            let knows = |status: &NodeStatus| status.managers == managers;
            self.until("it knows the managers", node, knows).await;
        }
    }

    /// Waits until it holds of a node's status.
    pub async fn until(&self, what: &str, node: NodeId, holds: impl Fn(&NodeStatus) -> bool) {
        let began = now();
        loop {
            let status = self.status(node).await;
            if status.as_ref().is_some_and(&holds) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {node} is {status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Whether a change of nodes is done, or refused.
fn is_over(told: &ToOperator) -> bool {
    matches!(
        told,
        ToOperator::NodeAdded { is_known: true, .. }
            | ToOperator::NodeRemoved { is_known: true }
            | ToOperator::Refused(_)
    )
}

/// A client that has one call under way at a time.
pub struct Client<'c> {
    cluster: &'c Cluster,
    /// Names its requests for sessions.
    token: u64,
    /// The sessions, and the last number that each has used.
    sessions: BTreeMap<ShardId, (CallSession, u64)>,
}

impl Client<'_> {
    /// Calls a procedure, by way of this node or any other, until its outcome is known.
    pub async fn call(
        &mut self,
        first: NodeId,
        home: ShardId,
        procedure: &str,
        arguments: &[u8],
    ) -> Result<Bytes> {
        loop {
            let known = self.sessions.remove(&home);
            let (session, last) = match known {
                Some(known) => known,
                None => (self.open(first, home).await?, 0),
            };
            let id = RequestId { session, number: last + 1 };
            let arguments = Bytes::copy_from_slice(arguments);
            let request = ClientRequest::Call { id, procedure: procedure.into(), arguments };
            let worker = worker_of(&session, self.workers());
            let called = |reply| match reply {
                ClientReply::Called { id: called, result } if called == id => Some(result),
                _ => None,
            };
            let result = self.ask_for(first, worker, request, called).await;
            if let Err(Error::Aborted(Aborted::CallSessionOver { .. })) = result {
                continue;
            }
            self.sessions.insert(home, (session, id.number));
            return result;
        }
    }

    async fn open(&mut self, first: NodeId, home: ShardId) -> Result<CallSession> {
        self.token += 1;
        let token = self.token;
        let opened = |reply| match reply {
            ClientReply::CallsOpened { token: asked, result } if asked == token => match result {
                Err(Error::Aborted(_)) => None,
                result => Some(result),
            },
            _ => None,
        };
        self.ask_for(first, WorkerId(0), ClientRequest::OpenCalls { token, home }, opened).await
    }

    fn workers(&self) -> u32 {
        self.cluster.configs[0].topology.workers()
    }

    /// Asks one node after the other.
    async fn ask_for<T>(
        &self,
        first: NodeId,
        worker: WorkerId,
        request: ClientRequest,
        answer: impl Fn(ClientReply) -> Option<Result<T>>,
    ) -> Result<T> {
        let nodes = self.cluster.servers.len() as u32;
        let (began, mut node) = (now(), first);
        loop {
            if began.elapsed() >= PATIENCE {
                for node in self.cluster.running() {
                    println!("{:?}", self.cluster.status(node).await);
                }
                panic!("{request:?} is not answered");
            }
            match self.ask(node, worker, request.clone()).await.and_then(&answer) {
                Some(Err(Error::Unknown(Unknown::Unsettled { .. }))) | None => {
                    node = NodeId((node.0 + 1) % nodes);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Some(result) => return result,
            }
        }
    }

    async fn ask(
        &self,
        node: NodeId,
        worker: WorkerId,
        request: ClientRequest,
    ) -> Option<ClientReply> {
        if !self.cluster.is_up(node) {
            return None;
        }
        let mut connection = self.cluster.connect(node, Some(worker)).await?;
        connection.sender.send(encode(&FromClient::Request(request))).await.ok()?;
        let answer = tokio::time::timeout(ASK_AGAIN, connection.receiver.receive()).await.ok()?;
        match decode(&answer.ok()?).expect("a frame") {
            ToClient::Reply(reply) => Some(reply),
            other => panic!("asked for something else, was told {other:?}"),
        }
    }
}

/// Adds one to a counter of the shard, by way of this node, and returns what it is then.
pub async fn counted(cluster: &Cluster, number: u64, via: NodeId, shard: ShardId, key: u8) -> i64 {
    let mut client = cluster.client(number);
    loop {
        match client.call(via, shard, "count", &[key]).await {
            // A shard takes part again with the next epoch.
            Err(Error::Aborted(Aborted::ShardOut { .. })) => {}
            counted => {
                let bytes = counted.expect("counted");
                return i64::from_le_bytes(bytes[..].try_into().expect("8 bytes"));
            }
        }
    }
}

/// Asks a node until it answers: one that has just started, or a busy machine, may need several attempts.
async fn answered<T>(node: NodeId, ask: impl AsyncFn() -> Option<T>) -> T {
    let began = now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{node} does not answer");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until it holds.
pub async fn until_so(what: &str, holds: impl Fn() -> bool) {
    let began = now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "a test gives up after a while")]
fn now() -> Instant {
    Instant::now()
}
