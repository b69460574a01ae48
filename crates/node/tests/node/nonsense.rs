//! Messages that no honest node sends, from peers and from clients, among those that they do: nothing
//! that comes from outside stops a worker.
//!
//! *Unauthorized* senders send what they may not send, or what cannot be: it is dropped, and the correct work
//! ends well. *Liars* say anything in the name of any node. What becomes of the data then is what names and
//! ballots are trusted for; but no node stops. Only a leader's own entries are left alone: a replica
//! takes what its leader has decided, or stops.

mod two_phase_commit;

use crate::common::seeds;
use bytes::Bytes;
use shoal_cluster::manager::Incarnation;
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::{
    self, ClientId, ClientReply, ClientRequest, Relay, ReplyToClient, RequestFromClient,
    requests_table,
};
use shoal_engine::engine::Setup;
use shoal_engine::operation::{Operation, OperationResult, OwnedScan};
use shoal_engine::{Engine, ProcedureTransaction, Procedures, TransactionId};
use shoal_log::LogLength;
use shoal_mako::Mako;
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage, WorkerOrigin};
use shoal_store::{Change, Delta};
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::{
    Aborted, Ballot, CallSession, Clock, Conflict, Database, Epoch, Error, NodeId, Random,
    RequestId, Scan, ShardId, Stamp, TableId, Time, Transaction, VectorWatermark, WorkerId,
    WorkerPlace,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const SHARDS: u32 = 2;
const ACCOUNTS: u64 = 12;
const EPOCH: Epoch = Epoch(1);

/// Small numbers, so that they name what is there; now and then one that is beyond all bounds.
fn number(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => u64::MAX,
        1 => (1 << 62) + random.below(3),
        2 => random.below(1 << 20),
        _ => random.below(12),
    }
}

fn small(random: &mut Random) -> u32 {
    u32::try_from(number(random)).unwrap_or(u32::MAX)
}

fn node(random: &mut Random) -> NodeId {
    NodeId(random.below(8) as u32)
}

fn shard(random: &mut Random) -> ShardId {
    ShardId(small(random))
}

fn stamp(random: &mut Random) -> Stamp {
    let mut stamp = Stamp::local(Epoch(random.below(3) as u32), Clock(number(random)));
    for _ in 0..random.below(4) {
        let named = if random.chance(1, 3) { ShardId::EVERY } else { shard(random) };
        stamp.push(ShardId(99), named, Clock(number(random)));
    }
    stamp
}

fn operation(random: &mut Random) -> Operation {
    let table = TableId(if random.chance(1, 6) { small(random) } else { 1 });
    let key = bytes(random).into();
    match random.below(4) {
        0 => Operation::Get { table, key },
        1 => Operation::Scan { table, range: OwnedScan::of(&Scan::all().limit(3)) },
        2 => {
            Operation::Put { table, key, value: random.chance(1, 2).then(|| bytes(random).into()) }
        }
        _ => Operation::Insert { table, key, value: bytes(random).into() },
    }
}

fn operations(random: &mut Random) -> Vec<Operation> {
    (0..random.below(4)).map(|_| operation(random)).collect()
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let length = if random.chance(1, 20) { 5000 } else { random.below(10) as usize };
    vec![random.below(4) as u8; length]
}

fn answers(random: &mut Random) -> Vec<Result<OperationResult, Error>> {
    let one = |_| match random.below(3) {
        0 => Ok(OperationResult::Done),
        1 => Ok(OperationResult::Value(None)),
        _ => Err(refusal()),
    };
    (0..2).map(one).collect()
}

fn refusal() -> Error {
    Aborted::from(Conflict::OtherEpoch { shard: ShardId(0), epoch: Epoch(7) }).into()
}

fn transaction(random: &mut Random) -> TransactionId {
    let worker = WorkerId(random.below(2) as u32);
    TransactionId { node: node(random), worker, sequence: number(random) }
}

/// A client's request; what it asks of is not what the honest work asks of.
fn request(random: &mut Random, registered: &[u64]) -> ClientRequest {
    let (session, number) = (random.below(6), small(random).wrapping_add(random.below(2) as u32));
    let id = RequestId { session: call_session(random), number: random.below(9) };
    let endings = [
        client::SessionEnd::Commit,
        client::SessionEnd::Confirm,
        client::SessionEnd::Rollback,
        client::SessionEnd::CommitAs(id),
    ];
    match random.below(7) {
        0 => ClientRequest::Register,
        6 => ClientRequest::Resolve { id },
        4 => ClientRequest::OpenCalls { token: session, home: shard(random) },
        1..=3 => ClientRequest::Steps {
            registration: random.pick(registered).copied().unwrap_or(session),
            session,
            number,
            operations: (0..random.below(4)).map(|_| operation(random)).collect(),
            ending: random.pick(&endings).cloned().filter(|_| random.chance(1, 3)),
        },
        _ => ClientRequest::Call {
            id,
            procedure: if random.chance(1, 2) { "note".into() } else { "nothing".into() },
            arguments: bytes(random).into(),
        },
    }
}

/// A session for calls, which was granted or not.
fn call_session(random: &mut Random) -> CallSession {
    CallSession {
        home: shard(random),
        since: Epoch(random.below(3) as u32),
        incarnation: random.below(3) as u32,
        worker: WorkerId(small(random)),
        serial: random.below(5),
    }
}

fn relay(random: &mut Random) -> Relay {
    let client = ClientId(random.below(4));
    match random.chance(1, 2) {
        true => Relay::Request(RequestFromClient { from: client, request: request(random, &[]) }),
        false => {
            let reply = ClientReply::Registered { registration: random.below(4) };
            Relay::Reply(ReplyToClient { to: client, reply })
        }
    }
}

type Header = shoal_mako::message::BranchHeader;

/// A header with one thing changed.
fn bend(random: &mut Random, mut header: Header) -> Header {
    match random.below(7) {
        0 => header.transaction = transaction(random),
        1 => header.transaction.sequence = number(random),
        2 => header.shard = shard(random),
        3 => header.step = small(random),
        4 => header.oldest = number(random),
        5 => header.epoch = Epoch(small(random)),
        _ => {}
    }
    header
}

/// What has to be known of an engine to talk nonsense to it.
trait Forge: Engine {
    /// Something like a real message, with something changed.
    fn forge(random: &mut Random, real: &Self::Message) -> Self::Message;

    /// Whether the message means nothing from `from`, which did not send the real message
    /// it was made of.
    fn is_strange(message: &Self::Message, from: NodeId, leaders: &[NodeId]) -> bool;

    /// A real message made impossible, to come from its sender; if that can be.
    fn spoil(random: &mut Random, real: &Self::Message) -> Option<Self::Message>;
}

fn mako_request(random: &mut Random) -> shoal_mako::message::MakoRequest {
    use shoal_mako::message::MakoRequest;
    match random.below(6) {
        0 => MakoRequest::Execute { operations: operations(random) },
        1 => MakoRequest::Lock { operations: operations(random), validate: random.chance(1, 2) },
        2 => MakoRequest::Validate { last: random.chance(1, 2) },
        3 => MakoRequest::Commit { operations: operations(random), install: random.chance(1, 2) },
        4 => MakoRequest::Install { stamp: stamp(random) },
        _ => MakoRequest::Abort,
    }
}

fn mako_reply(random: &mut Random) -> shoal_mako::message::MakoReply {
    use shoal_mako::message::MakoReply;
    match random.below(6) {
        0 => MakoReply::Executed { answers: answers(random), dependencies: stamp(random) },
        1 => MakoReply::Locked { clock: Clock(number(random)), dependencies: stamp(random) },
        2 => MakoReply::Validated,
        3 => MakoReply::Certified { stamp: stamp(random) },
        4 => MakoReply::Resolved,
        _ => MakoReply::Refused { error: refusal() },
    }
}

fn watermark(random: &mut Random) -> VectorWatermark {
    let mut watermark = VectorWatermark::new(EPOCH, random.below(4) as usize);
    for shard in 0..3 {
        watermark.raise(ShardId(shard), Clock(number(random)));
    }
    watermark
}

fn gossip(random: &mut Random) -> shoal_mako::MakoMessage {
    let watermark = watermark(random);
    let ended = (0..random.below(3)).map(|_| ShardId(number(random) as u32)).collect();
    shoal_mako::MakoMessage::Gossip { watermark, ended, floor: Clock(number(random)) }
}

/// What a write makes of a row.
fn change(random: &mut Random) -> Change<Bytes> {
    match random.below(3) {
        0 => Change::Delete,
        1 => Change::Row(bytes(random).into()),
        _ => {
            let (base, length) = ((Epoch(small(random)), Clock(number(random))), small(random));
            Change::Delta(Delta { base, length, patch: bytes(random).into() })
        }
    }
}

/// A part of a copy, or an answer to one.
fn copy(random: &mut Random) -> shoal_mako::MakoMessage {
    let (shard, copy) = (shard(random), random.below(3));
    if random.chance(1, 3) {
        let reached =
            random.chance(2, 3).then(|| (TableId(small(random) % 3), bytes(random).into()));
        return shoal_mako::MakoMessage::ChunkTaken { shard, copy, reached };
    }
    let mut place = || (TableId(small(random) % 3), bytes(random).into());
    let (from, until) = (place(), Some(place()));
    let row = |random: &mut Random| shoal_mako::message::ChunkRow {
        table: TableId(small(random) % 3),
        epoch: Epoch(small(random)),
        clock: Clock(number(random)),
        key: bytes(random).into(),
        value: bytes(random).into(),
    };
    let rows = (0..random.below(3)).map(|_| row(random)).collect();
    let undecided = |random: &mut Random| shoal_mako::message::UndecidedRow {
        table: TableId(small(random) % 3),
        key: bytes(random).into(),
        change: change(random),
        stamp: stamp(random),
    };
    let undecided = (0..random.below(3)).map(|_| undecided(random)).collect();
    let (cut, settled) = (Clock(number(random)), Epoch(small(random)));
    let until = until.filter(|_| random.chance(2, 3));
    let watermarks = (0..random.below(3)).map(|_| watermark(random)).collect();
    shoal_mako::MakoMessage::Chunk(shoal_mako::message::SnapshotChunk {
        shard,
        copy,
        cut,
        from,
        until,
        contents: shoal_mako::message::ChunkContents {
            settled,
            forgotten: Epoch(settled.0 / 2),
            watermarks,
            rows,
            undecided,
        },
    })
}

/// A request like a real one, or another to the same branch.
fn twist_request<R>(
    random: &mut Random,
    header: Header,
    real: R,
    other: fn(&mut Random) -> R,
) -> (Header, R) {
    let request = if random.chance(1, 2) { other(random) } else { real };
    (bend(random, header), request)
}

/// A reply like a real one, or another, to the same request or a different one.
fn twist_reply<R>(
    random: &mut Random,
    step: u32,
    real: R,
    other: fn(&mut Random) -> R,
) -> (u32, R) {
    let reply = if random.chance(2, 3) { other(random) } else { real };
    (if random.chance(1, 5) { small(random) } else { step }, reply)
}

impl Forge for Mako {
    fn forge(random: &mut Random, real: &shoal_mako::MakoMessage) -> shoal_mako::MakoMessage {
        use shoal_mako::MakoMessage;
        match real.clone() {
            _ if random.chance(1, 10) => gossip(random),
            _ if random.chance(1, 10) => MakoMessage::Relay(relay(random)),
            _ if random.chance(1, 10) => copy(random),
            MakoMessage::Request { header, request } => {
                let (header, request) = twist_request(random, header, request, mako_request);
                MakoMessage::Request { header, request }
            }
            MakoMessage::Reply { transaction, shard, step, reply } => {
                let (step, reply) = twist_reply(random, step, reply, mako_reply);
                MakoMessage::Reply { transaction, shard, step, reply }
            }
            MakoMessage::Relay(_) => MakoMessage::Relay(relay(random)),
            MakoMessage::Gossip { .. } => gossip(random),
            MakoMessage::Chunk(_) | MakoMessage::ChunkTaken { .. } => copy(random),
        }
    }

    fn is_strange(message: &shoal_mako::MakoMessage, from: NodeId, leaders: &[NodeId]) -> bool {
        match message {
            shoal_mako::MakoMessage::Request { header, .. } => header.transaction.node != from,
            shoal_mako::MakoMessage::Reply { .. } | shoal_mako::MakoMessage::Relay(_) => true,
            shoal_mako::MakoMessage::Gossip { .. } => !leaders.contains(&from),
            // A leader is believed what its shard has.
            shoal_mako::MakoMessage::Chunk(part) => {
                leaders.get(part.shard.0 as usize) != Some(&from)
            }
            shoal_mako::MakoMessage::ChunkTaken { .. } => true,
        }
    }

    fn spoil(
        random: &mut Random,
        real: &shoal_mako::MakoMessage,
    ) -> Option<shoal_mako::MakoMessage> {
        use shoal_mako::MakoMessage;
        use shoal_mako::message::{MakoReply, MakoRequest};
        let mut spoilt = real.clone();
        match &mut spoilt {
            MakoMessage::Request { request: MakoRequest::Install { stamp }, .. } => {
                stamp.clock = Clock(stamp.clock.0 + 1 + random.below(5));
            }
            MakoMessage::Request { header, .. } => match random.below(3) {
                0 => header.step = 0,
                1 => header.oldest = u64::MAX,
                _ => header.epoch = Epoch(9),
            },
            MakoMessage::Reply { reply, .. } => {
                *reply = match reply {
                    MakoReply::Refused { .. } => return None,
                    MakoReply::Executed { .. } => MakoReply::Validated,
                    MakoReply::Locked { dependencies, .. } => {
                        MakoReply::Locked { clock: Clock::MAX, dependencies: dependencies.clone() }
                    }
                    MakoReply::Certified { .. } => {
                        MakoReply::Certified { stamp: Stamp::local(Epoch(4), Clock(1)) }
                    }
                    MakoReply::Validated => MakoReply::Resolved,
                    MakoReply::Resolved => MakoReply::Validated,
                };
            }
            MakoMessage::Gossip { floor, .. } => *floor = Clock::MAX,
            MakoMessage::Chunk(part) => part.cut = Clock::MAX,
            MakoMessage::Relay(_) | MakoMessage::ChunkTaken { .. } => return None,
        }
        Some(spoilt)
    }
}

/// Forged messages of a stream: of unauthorized senders under ballots that no node has, of faulty ones under the leader's.
fn stream_nonsense(random: &mut Random, leader: NodeId, lies: bool) -> shoal_log::StreamMessage {
    let length = |random: &mut Random| LogLength(number(random));
    let appointed = Ballot { epoch: EPOCH, node: leader };
    let foreign = Ballot { epoch: Epoch(2 + random.below(8) as u32), node: node(random) };
    let ballot = if lies { appointed } else { foreign };
    let (accepted, decided, from) = (length(random), length(random), length(random));
    let accepted_ballot = *random.pick(&[appointed, foreign, Ballot::default()]).expect("some");
    let votes = random.chance(1, 2);
    match random.below(6) {
        0 => {
            let entries = (0..random.below(3)).map(|_| vec![b'x'].into()).collect();
            shoal_log::StreamMessage::Promise {
                ballot,
                accepted_ballot,
                accepted,
                decided,
                from,
                entries,
                votes,
            }
        }
        1 => {
            let messages = random.next_u64() >> random.below(64);
            shoal_log::StreamMessage::Fetch { ballot, accepted_ballot, from, messages }
        }
        2 => {
            let (next, until) = (length(random), length(random));
            let round = random.below(3);
            shoal_log::StreamMessage::Accepted {
                ballot,
                length: accepted,
                next,
                until,
                decided,
                round,
                votes,
            }
        }
        3 => shoal_log::StreamMessage::Snapshot {
            ballot: appointed,
            length: accepted,
            state: bytes(random).into(),
        },
        4 => shoal_log::StreamMessage::Rejected { ballot: appointed, promised: foreign },
        _ => shoal_log::StreamMessage::Prepare {
            ballot: foreign,
            accepted_ballot,
            accepted,
            decided,
        },
    }
}

type Place = (NodeId, WorkerId);
type Cause<E> = WorkerEvent<<E as Engine>::Message>;

/// Nodes of one worker each, what is on its way to them, and a sender of nonsense.
struct Cluster<E: Forge> {
    topology: Arc<Topology>,
    leaders: Vec<NodeId>,
    workers: BTreeMap<Place, Worker<E>>,
    shared: BTreeMap<NodeId, Arc<E::Shared>>,
    coming: BTreeMap<(Time, u64), (Place, Cause<E>)>,
    number: u64,
    now: Time,
    random: Random,
    lies: bool,
    quiet: bool,
    nonsense: u64,
    /// What connections of clients are registered under.
    registered: Vec<u64>,
}

impl<E: Forge> Cluster<E> {
    fn new(seed: u64, lies: bool) -> Cluster<E> {
        let hashed = Partitioning::Hash { prefix_bytes: 0 };
        let tables = [("accounts", hashed.clone()), ("notes", hashed), requests_table(SHARDS)];
        let topology = Topology::symmetric(3, SHARDS, 3, 0, 1).with_tables(tables);
        let topology = Arc::new(topology.expect("a valid topology"));
        let note = async |tx: &ProcedureTransaction<'_>, arguments: &[u8]| {
            tx.put(TableId(1), &[&b"n"[..], arguments].concat(), b"noted")?;
            Ok(Vec::new().into())
        };
        let setup = Setup {
            topology: Arc::clone(&topology),
            procedures: Arc::new(Procedures::new().with("note", note)),
            streams: shoal_log::StreamOptions::default(),
            options: E::Options::default(),
        };
        let mut cluster = Cluster {
            leaders: topology.shard_ids().map(|shard| topology.leader(shard)).collect(),
            workers: BTreeMap::new(),
            shared: BTreeMap::new(),
            coming: BTreeMap::new(),
            number: 0,
            now: Time::ZERO,
            random: Random::new(seed),
            lies,
            quiet: false,
            nonsense: 0,
            registered: Vec::new(),
            topology: Arc::clone(&topology),
        };
        for node in topology.nodes() {
            let (place, shared) = ((node.id, WorkerId(0)), E::share(&setup, node.id));
            let seed = seed ^ u64::from(node.id.0);
            let origin = WorkerOrigin::fixed(&setup.topology, seed);
            let new = Worker::new(place.1, node.id, &setup, Arc::clone(&shared), origin);
            cluster.workers.insert(place, new);
            cluster.shared.insert(node.id, shared);
            cluster.send(Duration::ZERO, place, WorkerEvent::Start);
        }
        cluster
    }

    fn send(&mut self, after: Duration, to: Place, event: Cause<E>) {
        self.number += 1;
        self.coming.insert((self.now + after, self.number), (to, event));
    }

    /// Delivers what comes, at most so much, until `done`. Says whether it is.
    fn run(&mut self, events: u64, done: impl Fn(&Cluster<E>) -> bool) -> bool {
        for _ in 0..events {
            if done(self) {
                return true;
            }
            let Some(((at, _), (to, event))) = self.coming.pop_first() else {
                self.now = self.now + Duration::from_millis(1);
                continue;
            };
            self.now = self.now.max(at);
            if !self.quiet {
                self.disturb(to, &event);
            }
            self.step(to, event);
        }
        done(self)
    }

    fn step(&mut self, to: Place, event: Cause<E>) {
        let mut effects = WorkerEffects::new();
        self.workers.get_mut(&to).expect("a worker").step(self.now, event, &mut effects);
        for effect in effects.effects {
            match effect {
                WorkerEffect::Send { to: receiver, message } => {
                    // Liars name nodes that are not there; what goes to them is lost.
                    let receiver = (receiver.node, receiver.worker);
                    if self.workers.contains_key(&receiver) {
                        let delay = Duration::from_nanos(50_000 + self.random.below(200_000));
                        let from = WorkerPlace { node: to.0, worker: to.1 };
                        self.send(delay, receiver, WorkerEvent::Received { from, message });
                    }
                }
                WorkerEffect::Timer { at } => {
                    let after = at.max(self.now) - self.now;
                    self.send(after, to, WorkerEvent::Timer);
                }
                WorkerEffect::Reply(ReplyToClient {
                    reply: ClientReply::Registered { registration },
                    ..
                }) => {
                    self.registered.push(registration);
                }
                WorkerEffect::Nudge { .. }
                | WorkerEffect::Reply(_)
                | WorkerEffect::Tell { .. }
                | WorkerEffect::Write { .. }
                | WorkerEffect::Checkpoint(_)
                | WorkerEffect::Superseded => {}
            }
        }
    }

    /// Says something that makes no sense, in view of what is about to happen.
    fn disturb(&mut self, to: Place, event: &Cause<E>) {
        if self.random.chance(1, 12) {
            let (from, to) = (ClientId(self.random.below(4)), self.any_place());
            let request = request(&mut self.random, &self.registered);
            self.nonsense += 1;
            self.step(to, WorkerEvent::Client(RequestFromClient { from, request }));
        }
        if let WorkerEvent::Received { from, message } = event
            && self.random.chance(1, 3)
        {
            self.distort(from.node, to, message);
        }
    }

    fn any_place(&mut self) -> Place {
        let at = self.random.below(self.workers.len() as u64) as usize;
        *self.workers.keys().nth(at).expect("so many")
    }

    fn distort(&mut self, real: NodeId, to: Place, message: &WorkerMessage<E::Message>) {
        if self.random.chance(1, 10) {
            // What is true of one worker is nothing that another may say.
            let from = WorkerPlace { node: real, worker: WorkerId(1) };
            self.nonsense += 1;
            let before = self.dropped();
            self.step(to, WorkerEvent::Received { from, message: message.clone() });
            assert_eq!(self.dropped(), before + 1, "{message:?} of {from}");
            return;
        }
        let random = &mut self.random;
        let (from, to) = match random.chance(1, 3) {
            true => (node(random), to),
            false => (real, if random.chance(1, 6) { self.any_place() } else { to }),
        };
        let random = &mut self.random;
        if from == to.0 {
            return;
        }
        let message = match message {
            WorkerMessage::Stream { shard, .. } => {
                let shard = if random.chance(1, 10) { ShardId(small(random)) } else { *shard };
                let known = shard.0 < SHARDS;
                let leader = if known { self.topology.leader(shard) } else { node(random) };
                let message = stream_nonsense(random, leader, self.lies);
                let incarnation = Incarnation(random.below(4) as u32);
                WorkerMessage::Stream { shard, incarnation, message }
            }
            WorkerMessage::Engine { generation, message } => {
                let forged = E::forge(random, message);
                let strange = from != real && E::is_strange(&forged, from, &self.leaders);
                let said = match self.lies || strange {
                    true => Some(forged),
                    false if from == real => E::spoil(random, message),
                    false => None,
                };
                let Some(said) = said else { return };
                WorkerMessage::Engine { generation: *generation, message: said }
            }
        };
        self.nonsense += 1;
        let from = WorkerPlace { node: from, worker: to.1 };
        self.step(to, WorkerEvent::Received { from, message });
    }

    fn dropped(&self) -> u64 {
        let of =
            |worker: &Worker<E>| worker.engine().counters().runtime.dropped + worker.bad_messages();
        self.workers.values().map(of).sum()
    }

    fn rows(&self, node: NodeId, shard: ShardId) -> Vec<(TableId, Vec<u8>, Vec<u8>)> {
        let store = E::store(&self.shared[&node], shard).expect("a replica");
        let mut session = store.session().expect("a session");
        let tx = session.begin();
        let mut all = Vec::new();
        for table in (0..3).map(TableId) {
            let rows = tx.scan(table, Scan::all()).expect("within limits");
            all.extend(rows.into_iter().map(|(key, value)| (table, key.to_vec(), value.to_vec())));
        }
        all
    }
}

/// Moves money between accounts. What comes of it is another's business.
async fn transfers<D: Database>(db: D, mut random: Random, rounds: u32) {
    let accounts = db.table("accounts").expect("there");
    for _ in 0..rounds {
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let moved = db.transact(async |tx| {
            tx.add(accounts, &from.to_be_bytes(), -1).await?;
            tx.add(accounts, &to.to_be_bytes(), 1).await
        });
        let _told = moved.await;
    }
}

fn begin<E: Forge>(seed: u64, lies: bool) -> (Cluster<E>, Rc<Cell<u32>>) {
    let mut cluster = Cluster::<E>::new(seed, lies);
    let running = Rc::new(Cell::new(0));
    for leader in cluster.leaders.clone() {
        for task in 0..3 {
            let place = (leader, WorkerId(0));
            let engine = cluster.workers.get_mut(&place).expect("a worker").engine_mut();
            let (db, running) = (engine.local(), Rc::clone(&running));
            let random = Random::new(seed).fork(u64::from(leader.0) << 8 | task);
            running.set(running.get() + 1);
            engine.spawn(Box::pin(async move {
                transfers(db, random, 25).await;
                running.set(running.get() - 1);
            }));
            cluster.send(Duration::from_millis(1), place, WorkerEvent::Nudged);
        }
    }
    (cluster, running)
}

fn unauthorized_messages_change_nothing<E: Forge>() {
    for seed in seeds(0..12) {
        let (mut cluster, running) = begin::<E>(seed, false);
        let ended = cluster.run(400_000, |_| running.get() == 0);
        assert!(ended, "seed {seed}: {} tasks hang at {}", running.get(), cluster.now);
        assert!(cluster.nonsense > 300, "seed {seed}: only {}", cluster.nonsense);
        assert!(cluster.dropped() > 100, "seed {seed}: only {}", cluster.dropped());
        cluster.quiet = true;
        let until = cluster.now + Duration::from_secs(2);
        assert!(cluster.run(400_000, |cluster| cluster.now > until), "seed {seed} is not quiet");
        let mut total = 0;
        for shard in cluster.topology.shard_ids() {
            let rows = cluster.rows(cluster.topology.leader(shard), shard);
            for replica in cluster.topology.replicas(shard) {
                assert_eq!(rows, cluster.rows(replica, shard), "seed {seed}: {replica}, {shard}");
            }
            let accounts = rows.iter().filter(|(table, ..)| *table == TableId(0));
            total += accounts
                .map(|(_, _, value)| i64::from_le_bytes(value[..].try_into().expect("a sum")))
                .sum::<i64>();
        }
        assert_eq!(total, 0, "seed {seed}: money was made");
    }
}

fn liars_stop_nobody<E: Forge>() {
    for seed in seeds(0..40) {
        let result = std::panic::catch_unwind(|| {
            let (mut cluster, running) = begin::<E>(seed, true);
            // Whether it ends is up to the liars.
            cluster.run(20_000, |_| running.get() == 0);
            assert!(cluster.nonsense > 300, "only {}", cluster.nonsense);
        });
        assert!(result.is_ok(), "seed {seed}");
    }
}

/// Every test for every engine.
macro_rules! engines {
    ($($name:ident: $engine:ty,)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn unauthorized_messages_change_nothing() {
                super::unauthorized_messages_change_nothing::<$engine>();
            }

            #[test]
            fn liars_stop_nobody() {
                super::liars_stop_nobody::<$engine>();
            }
        }
    )* };
}

engines! {
    with_mako: Mako,
    with_two_phase_commit: TwoPhaseCommit,
}
