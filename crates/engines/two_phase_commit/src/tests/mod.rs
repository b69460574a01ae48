//! One worker at a time, by hand: nothing else is there, so what it says and when can be seen.

mod commit;
mod copies;
mod last_agent;
mod recovery;
mod silence;

use super::message::{BranchHeader, DecisionHome, Participant, TwoPhaseCommitReply};
use super::*;
use shoal_cluster::manager::{Incarnation, ManagerOptions, StateMachine};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::limits::TURN;
use shoal_engine::operation::{Operation, OperationResult};
use shoal_engine::planted_bugs::PlantedBugs;
use shoal_engine::procedure::Procedures;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Ballot, Clock, Database, Result, TableId, Transaction};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const T: TableId = TableId(0);
const HERE: ShardId = ShardId(0);
const OTHER: NodeId = NodeId(1);

/// The worker of the node that leads the first of two shards, on which keys below `m` live.
struct Hand {
    worker: TwoPhaseCommit,
    now: Time,
    /// How long the stream was when it began to lead, and what it has proposed since.
    inherited: u64,
    proposed: u64,
    /// When the last step has asked to come back.
    wakes_at: Time,
    /// The last snapshot that a stream was given, and how many entries it stands for.
    snapshot: Option<(u64, Bytes)>,
}

impl Hand {
    fn new() -> Hand {
        Hand::planted(PlantedBugs::NONE)
    }

    fn planted(faults: PlantedBugs<TwoPhaseCommitPlantedBug>) -> Hand {
        let options = TwoPhaseCommitOptions { faults, ..TwoPhaseCommitOptions::default() };
        let [hand] = Hand::with(Topology::symmetric(1, 2, 1, 0, 1), options);
        hand
    }

    /// All workers of the first node of two shards.
    fn of<const WORKERS: usize>(topology: Topology) -> [Hand; WORKERS] {
        Hand::with(topology, TwoPhaseCommitOptions::default())
    }

    fn with<const WORKERS: usize>(
        topology: Topology,
        options: TwoPhaseCommitOptions,
    ) -> [Hand; WORKERS] {
        let splits = [(Box::default(), ShardId(0)), (Box::from(&b"m"[..]), ShardId(1))]
            .into_iter()
            .collect();
        let topology = topology
            .with_tables([("t", Partitioning::Range { splits })])
            .expect("a valid topology");
        let setup = Setup {
            topology: Arc::new(topology),
            procedures: Arc::new(Procedures::new()),
            streams: shoal_log::StreamOptions::default(),
            options,
        };
        let shared = TwoPhaseCommit::share(&setup, NodeId(0));
        let machine = StateMachine::new(Arc::clone(&setup.topology), ManagerOptions::default());
        let mut configuration = Configuration::clone(machine.configuration());
        configuration.nodes.iter_mut().for_each(|node| node.incarnation = Incarnation(1));
        let (configuration, incarnation) = (Arc::new(configuration), Incarnation(1));
        let mut hands = std::array::from_fn(|worker| {
            let worker = TwoPhaseCommit::new(WorkerId(worker as u32), Arc::clone(&shared), 1);
            let (now, wakes_at, snapshot) = (Time::ZERO, Time::MAX, None);
            let mut hand = Hand { worker, now, inherited: 0, proposed: 0, wakes_at, snapshot };
            hand.worker.renew(Time::MAX);
            let configuration = Arc::clone(&configuration);
            hand.step(EngineEvent::Configured { configuration, incarnation });
            hand.step(EngineEvent::Leading { shard: HERE, ballot: Ballot::default(), length: 0 });
            hand.durable();
            (hand.inherited, hand.proposed) = (1, 0);
            hand
        });
        hands.iter_mut().for_each(|hand| drop(hand.step(EngineEvent::Timer)));
        hands
    }

    fn serves(&self) -> bool {
        self.worker.runtime.worker_context.own(HERE).is_some()
    }

    /// The shard of this node is led by that one, since this epoch.
    fn configure(&mut self, leader: NodeId, since: u32) -> Vec<TwoPhaseCommitMessage> {
        let configuration = self.worker.configuration.as_ref().expect("it is configured");
        let mut configuration = Configuration::clone(configuration);
        (configuration.epoch, configuration.shards[0].since) = (Epoch(since), Epoch(since));
        configuration.shards[0].leader = leader;
        configuration.shards[0].ballot = Ballot { epoch: Epoch(since), node: leader };
        let (configuration, incarnation) = (Arc::new(configuration), Incarnation(1));
        self.step(EngineEvent::Configured { configuration, incarnation })
    }

    /// The other node leads its shard since this epoch, without what it had before.
    fn lose_other(&mut self, since: u32) -> Vec<TwoPhaseCommitMessage> {
        let configuration = self.worker.configuration.as_ref().expect("it is configured");
        let mut configuration = Configuration::clone(configuration);
        (configuration.epoch, configuration.shards[1].since) = (Epoch(since), Epoch(since));
        let (configuration, incarnation) = (Arc::new(configuration), Incarnation(1));
        self.step(EngineEvent::Configured { configuration, incarnation })
    }

    /// The node leads again since this epoch, and has inherited what has come.
    fn take_over(&mut self, since: u32) -> Vec<TwoPhaseCommitMessage> {
        self.configure(NodeId(0), since);
        let length = self.worker.streams[0].replay().length();
        (self.inherited, self.proposed) = (length, 0);
        let ballot = Ballot { epoch: Epoch(since), node: NodeId(0) };
        self.step(EngineEvent::Leading { shard: HERE, ballot, length })
    }

    /// The other node says something.
    fn hear(&mut self, message: TwoPhaseCommitMessage) -> Vec<TwoPhaseCommitMessage> {
        self.step(EngineEvent::Received { from: self.other(), message })
    }

    /// The worker of the other node that has the number of this one: no other exchanges messages with it.
    fn other(&self) -> WorkerPlace {
        self.worker.runtime.peer(OTHER)
    }

    /// What it says. How many entries it has proposed is counted.
    fn step(&mut self, event: EngineEvent<TwoPhaseCommitMessage>) -> Vec<TwoPhaseCommitMessage> {
        self.now = self.now + Duration::from_millis(1);
        let mut effects = TwoPhaseCommitEffects::new();
        self.worker.step(self.now, event, &mut effects);
        let mut said = Vec::new();
        self.wakes_at = Time::MAX;
        for effect in effects.effects {
            match effect {
                EngineEffect::Send { to, message } => {
                    assert_eq!(to, self.other());
                    said.push(message);
                }
                EngineEffect::Propose { shard, .. } => self.proposed += u64::from(shard == HERE),
                EngineEffect::Timer { at } => self.wakes_at = self.wakes_at.min(at),
                EngineEffect::Reply(_)
                | EngineEffect::Nudge { .. }
                | EngineEffect::CaughtUp { .. }
                | EngineEffect::CheckpointPart { .. }
                | EngineEffect::CheckpointHead { .. }
                | EngineEffect::Record { .. }
                | EngineEffect::Manager(_) => {}
                EngineEffect::Snapshot { length, state, .. } => {
                    self.snapshot = Some((length, state));
                }
            }
        }
        said
    }

    /// All that was proposed is durable.
    fn durable(&mut self) -> Vec<TwoPhaseCommitMessage> {
        let length = self.inherited + self.proposed;
        self.step(EngineEvent::Durable { shard: HERE, length })
    }

    /// The other node's transaction `sequence` makes its request `step`.
    fn ask(
        &mut self,
        sequence: u64,
        step: u32,
        request: TwoPhaseCommitRequest,
    ) -> Option<TwoPhaseCommitReply> {
        let transaction = TransactionId { node: OTHER, worker: WorkerId(0), sequence };
        let header = BranchHeader {
            transaction,
            shard: HERE,
            step,
            oldest: 0,
            epoch: FIRST_EPOCH,
            leadership: FIRST_EPOCH,
        };
        let message = TwoPhaseCommitMessage::Request { header, request };
        only_reply(self.step(EngineEvent::Received { from: self.other(), message }))
    }

    fn reply(
        &mut self,
        request: &TwoPhaseCommitMessage,
        reply: TwoPhaseCommitReply,
    ) -> Vec<TwoPhaseCommitMessage> {
        let TwoPhaseCommitMessage::Request { header, .. } = request else {
            panic!("{request:?} is no request")
        };
        let BranchHeader { transaction, shard, step, .. } = *header;
        let message = TwoPhaseCommitMessage::Reply { transaction, shard, step, reply };
        self.step(EngineEvent::Received { from: self.other(), message })
    }

    /// Runs a transaction. The cell has its outcome, once the task has it.
    fn run(
        &mut self,
        body: impl AsyncFnMut(&shoal_engine::CoordinatorTransaction) -> Result<()> + 'static,
    ) -> (Outcome, Vec<TwoPhaseCommitMessage>) {
        let outcome = Outcome::default();
        let (db, reported) = (self.worker.local(), Rc::clone(&outcome));
        self.worker.spawn(Box::pin(async move {
            reported.set(Some(db.transact(body).await.is_ok()));
        }));
        let said = self.step(EngineEvent::Timer);
        (outcome, said)
    }

    /// Runs a transaction that writes these keys.
    fn put(&mut self, keys: &'static [&'static [u8]]) -> (Outcome, Vec<TwoPhaseCommitMessage>) {
        self.run(async |tx| keys.iter().try_for_each(|key| tx.put(T, key, b"new")))
    }

    /// Another worker's transaction `sequence` writes this key.
    fn change(&mut self, sequence: u64, key: &'static [u8]) {
        let request = TwoPhaseCommitRequest::OnePhase { operations: write(key), install: true };
        assert_eq!(self.ask(sequence, 1, request), None);
        assert!(matches!(only_reply(self.durable()), Some(TwoPhaseCommitReply::Committed { .. })));
    }

    /// The first attempt of a transaction, which has just asked the other shard to execute this, reads `a` too early.
    /// What the second one asks for.
    fn fail_once(&mut self, said: &[TwoPhaseCommitMessage]) -> Vec<TwoPhaseCommitMessage> {
        assert!(matches!(requests(said)[..], [TwoPhaseCommitRequest::Execute { .. }]), "{said:?}");
        self.change(7, b"a");
        let said = self.reply(&said[0], absent());
        assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Abort]), "{said:?}");
        assert_eq!(self.reply(&said[0], TwoPhaseCommitReply::Resolved), []);
        let said = self.step(EngineEvent::Timer);
        assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Execute { .. }]), "{said:?}");
        said
    }

    /// Every participant agrees with what was prepared: it commits.
    fn finish(&mut self, said: &[TwoPhaseCommitMessage]) {
        assert!(matches!(requests(said)[..], [TwoPhaseCommitRequest::Prepare { .. }]), "{said:?}");
        let said = self.reply(&said[0], TwoPhaseCommitReply::Locked { clock: Clock(40) });
        assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Validate]), "{said:?}");
        assert_eq!(self.reply(&said[0], TwoPhaseCommitReply::Validated), []);
        let said = self.durable();
        assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Commit]), "{said:?}");
        self.reply(&said[0], TwoPhaseCommitReply::Resolved);
        self.durable();
        assert_eq!(self.worker.pending(), 0);
    }

    /// What a transaction of its own finds now, if the key is not locked.
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let tx = self.worker.runtime.worker_context.begin(0)?;
        let value = tx.get(T, key)?.map(<[u8]>::to_vec);
        tx.validate()?;
        Ok(value)
    }
}

type Outcome = Rc<Cell<Option<bool>>>;

/// The one key that was asked for does not exist.
fn absent() -> TwoPhaseCommitReply {
    TwoPhaseCommitReply::Executed { answers: vec![Ok(OperationResult::Value(None))] }
}

fn only_reply(mut said: Vec<TwoPhaseCommitMessage>) -> Option<TwoPhaseCommitReply> {
    assert!(said.len() <= 1, "{said:?}");
    match said.pop()? {
        TwoPhaseCommitMessage::Reply { reply, .. } => Some(reply),
        other => panic!("{other:?} is no reply"),
    }
}

fn requests(said: &[TwoPhaseCommitMessage]) -> Vec<&TwoPhaseCommitRequest> {
    let mut requests = Vec::new();
    for message in said {
        let TwoPhaseCommitMessage::Request { request, .. } = message else {
            panic!("{message:?} is no request")
        };
        requests.push(request);
    }
    requests
}

fn write(key: &'static [u8]) -> Vec<Operation> {
    let (key, value) = (Bytes::from_static(key), Some(Bytes::from_static(b"new")));
    vec![Operation::Put { table: T, key, value }]
}

fn prepare(key: &'static [u8]) -> TwoPhaseCommitRequest {
    let home = DecisionHome { shard: ShardId(1), leadership: FIRST_EPOCH };
    TwoPhaseCommitRequest::Prepare { operations: write(key), home }
}
