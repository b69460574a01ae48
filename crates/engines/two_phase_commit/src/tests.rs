//! One worker at a time, by hand: nothing else is there, so what it says and when can be seen.

use super::message::{BranchHeader, DecisionHome, Participant, TwoPhaseCommitRequest};
use super::*;
use shoal_cluster::manager::{Incarnation, ManagerOptions, StateMachine};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_engine::procedure::Procedures;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Clock, Database, Result, TableId, Transaction};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
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
}

impl Hand {
    fn new() -> Hand {
        let [hand] = Hand::of(Topology::symmetric(1, 2, 1, 0, 1));
        hand
    }

    /// All workers of the first node of two shards.
    fn of<const WORKERS: usize>(topology: Topology) -> [Hand; WORKERS] {
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
            options: TwoPhaseCommitOptions::default(),
        };
        let shared = TwoPhaseCommit::share(&setup, NodeId(0));
        let machine = StateMachine::new(Arc::clone(&setup.topology), ManagerOptions::default());
        let mut configuration = Configuration::clone(machine.configuration());
        configuration.nodes.iter_mut().for_each(|node| node.incarnation = Incarnation(1));
        let (configuration, incarnation) = (Arc::new(configuration), Incarnation(1));
        let mut hands = std::array::from_fn(|worker| {
            let worker = TwoPhaseCommit::new(WorkerId(worker as u32), Arc::clone(&shared), 1);
            let mut hand = Hand { worker, now: Time::ZERO, inherited: 0, proposed: 0 };
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

    /// It leads again since this epoch, and has inherited what has come.
    fn take_over(&mut self, since: u32) -> Vec<TwoPhaseCommitMessage> {
        self.configure(NodeId(0), since);
        let length = self.worker.prepared_replays[0].length;
        (self.inherited, self.proposed) = (length, 0);
        let ballot = Ballot { epoch: Epoch(since), node: NodeId(0) };
        self.step(EngineEvent::Leading { shard: HERE, ballot, length })
    }

    /// The other node says something.
    fn hear(&mut self, message: TwoPhaseCommitMessage) -> Vec<TwoPhaseCommitMessage> {
        let from = self.worker.runtime.peer(OTHER);
        self.step(EngineEvent::Received { from, message })
    }

    /// What it says. How many entries it has proposed is counted.
    fn step(&mut self, event: EngineEvent<TwoPhaseCommitMessage>) -> Vec<TwoPhaseCommitMessage> {
        self.now = self.now + Duration::from_millis(1);
        let mut effects = TwoPhaseCommitEffects::new();
        self.worker.step(self.now, event, &mut effects);
        let mut said = Vec::new();
        for effect in effects.effects {
            match effect {
                EngineEffect::Send { to, message } => {
                    assert_eq!(to, self.worker.runtime.peer(OTHER));
                    said.push(message);
                }
                EngineEffect::Propose { shard, .. } => self.proposed += u64::from(shard == HERE),
                EngineEffect::Reply(_)
                | EngineEffect::Timer { .. }
                | EngineEffect::Nudge { .. }
                | EngineEffect::Manager(_)
                | EngineEffect::Snapshot { .. } => {}
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
        let from = self.worker.runtime.peer(OTHER);
        only_reply(self.step(EngineEvent::Received { from, message }))
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
        let from = self.worker.runtime.peer(OTHER);
        self.step(EngineEvent::Received { from, message })
    }

    /// Runs a transaction. The cell has its outcome, once it is told.
    fn run(
        &mut self,
        body: impl AsyncFnMut(&shoal_engine::CoordinatorTransaction) -> Result<()> + 'static,
    ) -> (Outcome, Vec<TwoPhaseCommitMessage>) {
        let outcome = Outcome::default();
        let (db, told) = (self.worker.local(), Rc::clone(&outcome));
        self.worker.spawn(Box::pin(async move {
            told.set(Some(db.transact(body).await.is_ok()));
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

#[test]
fn nothing_is_seen_or_told_before_it_is_durable() {
    let mut hand = Hand::new();
    let (outcome, said) = hand.put(&[b"a"]);
    assert_eq!((said, hand.proposed), (vec![], 1));
    assert_eq!(outcome.get(), None);
    assert!(hand.value(b"a").is_err(), "it is locked");
    hand.durable();
    assert_eq!(outcome.get(), Some(true));
    assert_eq!(hand.value(b"a"), Ok(Some(b"new".to_vec())));
    assert_eq!(hand.worker.pending(), 0);
}

#[test]
fn a_participant_goes_step_by_step_and_each_only_once() {
    let mut hand = Hand::new();
    let locked = Some(TwoPhaseCommitReply::Locked { clock: Clock(1) });
    for _ in 0..2 {
        assert_eq!(hand.ask(7, 1, prepare(b"a")), locked);
        assert_eq!(hand.proposed, 1);
    }
    assert_eq!(hand.ask(7, 2, TwoPhaseCommitRequest::Commit), None, "nothing is decided yet");
    for _ in 0..2 {
        assert_eq!(hand.ask(7, 2, TwoPhaseCommitRequest::Validate), None, "it is not durable");
    }
    assert_eq!(only_reply(hand.durable()), Some(TwoPhaseCommitReply::Validated));
    assert_eq!(
        hand.ask(7, 2, TwoPhaseCommitRequest::Validate),
        Some(TwoPhaseCommitReply::Validated)
    );
    assert!(hand.value(b"a").is_err(), "it is locked");
    for _ in 0..2 {
        assert_eq!(
            hand.ask(7, 3, TwoPhaseCommitRequest::Commit),
            None,
            "the outcome is not durable"
        );
        assert_eq!(hand.value(b"a"), Ok(Some(b"new".to_vec())));
    }
    assert_eq!(hand.ask(7, 4, TwoPhaseCommitRequest::Abort), None, "what is committed stays so");
    assert_eq!(only_reply(hand.durable()), Some(TwoPhaseCommitReply::Resolved));
    assert_eq!(hand.ask(7, 3, TwoPhaseCommitRequest::Commit), Some(TwoPhaseCommitReply::Resolved));
    assert_eq!((hand.proposed, hand.worker.pending()), (2, 0));
}

#[test]
fn an_abort_releases_what_is_prepared_and_shuts_the_door() {
    let mut hand = Hand::new();
    assert!(matches!(hand.ask(7, 1, prepare(b"a")), Some(TwoPhaseCommitReply::Locked { .. })));
    assert!(
        matches!(hand.ask(8, 1, prepare(b"a")), Some(TwoPhaseCommitReply::Refused { .. })),
        "no waiting"
    );
    assert_eq!(hand.ask(7, 2, TwoPhaseCommitRequest::Abort), Some(TwoPhaseCommitReply::Resolved));
    assert_eq!(hand.value(b"a"), Ok(None));
    // One that overtakes what it ends.
    assert_eq!(hand.ask(9, 2, TwoPhaseCommitRequest::Abort), Some(TwoPhaseCommitReply::Resolved));
    assert_eq!(hand.ask(9, 1, prepare(b"a")), None);
    hand.durable();
    hand.step(EngineEvent::Timer);
    hand.durable();
    assert_eq!(hand.worker.pending(), 0);
}

#[test]
fn a_transaction_that_is_all_here_commits_in_one_phase() {
    let mut hand = Hand::new();
    let request = || TwoPhaseCommitRequest::OnePhase { operations: write(b"a"), install: true };
    assert_eq!(hand.ask(7, 1, request()), None);
    assert_eq!(hand.ask(7, 1, request()), None);
    assert_eq!(hand.ask(7, 2, TwoPhaseCommitRequest::Abort), None, "its record is in the stream");
    let committed = Some(TwoPhaseCommitReply::Committed { clock: Some(Clock(1)) });
    assert_eq!(only_reply(hand.durable()), committed);
    assert_eq!(hand.ask(7, 1, request()), committed);
    assert_eq!(hand.value(b"a"), Ok(Some(b"new".to_vec())));
    assert_eq!((hand.proposed, hand.worker.pending()), (1, 0));
}

#[test]
fn a_coordinator_decides_when_all_is_prepared_and_tells_when_that_is_durable() {
    let mut hand = Hand::new();
    let (outcome, said) = hand.put(&[b"a", b"x"]);
    assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Prepare { .. }]), "{said:?}");
    let said = hand.reply(&said[0], TwoPhaseCommitReply::Locked { clock: Clock(40) });
    assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Validate]), "{said:?}");
    assert_eq!(hand.proposed, 0);
    let none = hand.reply(&said[0], TwoPhaseCommitReply::Validated);
    assert_eq!((none, hand.proposed), (vec![], 1));
    assert_eq!(outcome.get(), None);
    assert!(hand.value(b"a").is_err(), "it is locked");
    let said = hand.durable();
    assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Commit]), "{said:?}");
    assert_eq!(outcome.get(), Some(true));
    assert_eq!(hand.value(b"a"), Ok(Some(b"new".to_vec())));
    assert!(hand.worker.pending() > 0, "the decision is kept");
    hand.reply(&said[0], TwoPhaseCommitReply::Resolved);
    assert_eq!(hand.proposed, 2, "its end");
    hand.durable();
    assert_eq!(hand.worker.pending(), 0);
}

#[test]
fn the_only_shard_that_is_written_decides() {
    let mut hand = Hand::new();
    let (outcome, said) = hand.run(async |tx| {
        tx.get(T, b"a").await?;
        tx.put(T, b"x", b"new")
    });
    assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Lock { .. }]), "{said:?}");
    let said = hand.reply(&said[0], TwoPhaseCommitReply::Locked { clock: Clock(40) });
    assert!(
        matches!(requests(&said)[..], [TwoPhaseCommitRequest::OnePhase { install: true, .. }]),
        "{said:?}"
    );
    assert_eq!(outcome.get(), None);
    let said = hand.reply(&said[0], TwoPhaseCommitReply::Committed { clock: Some(Clock(40)) });
    assert_eq!((said, outcome.get()), (vec![], Some(true)));
    assert_eq!((hand.proposed, hand.worker.pending()), (0, 0));
}

#[test]
fn what_is_in_vain_is_asked_of_nobody() {
    // What changes is written as well, is read beside what is written, or only read here.
    for (key, writes) in [(b"a", true), (b"b", true), (b"a", false)] {
        let mut hand = Hand::new();
        let (outcome, said) = hand.run(async move |tx| {
            tx.get(T, key).await?;
            if writes {
                tx.put(T, b"a", b"mine")?;
            }
            tx.get(T, b"x").await?;
            tx.put(T, b"x", b"mine")
        });
        assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Execute { .. }]), "{said:?}");
        hand.change(7, key);
        let said = hand.reply(&said[0], absent());
        assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Abort]), "{said:?}");
        assert_eq!(hand.value(key), Ok(Some(b"new".to_vec())), "it is not locked");
        assert_eq!((hand.worker.runtime.counters.conflicts, outcome.get()), (1, None));
    }
}

#[test]
fn another_attempt_reads_here_last() {
    let (mut hand, noted) = (Hand::new(), Rc::new(RefCell::new(Vec::new())));
    let notes = Rc::clone(&noted);
    let (outcome, said) = hand.run(async move |tx| {
        tx.prefetch(&[(T, b"x")]);
        let read = tx.get(T, b"a").await?.map(<[u8]>::to_vec);
        notes.borrow_mut().push(read);
        tx.get(T, b"x").await?;
        tx.put(T, b"a", b"mine")?;
        tx.put(T, b"x", b"mine")
    });
    let said = hand.fail_once(&said);
    assert_eq!(*noted.borrow(), [None], "the second one waits");
    hand.change(8, b"a");
    let said = hand.reply(&said[0], absent());
    assert_eq!(*noted.borrow(), [None, Some(b"new".to_vec())]);
    hand.finish(&said);
    assert_eq!((hand.worker.runtime.counters.conflicts, outcome.get()), (1, Some(true)));
}

#[test]
fn the_last_check_is_still_made() {
    for writes in [true, false] {
        let mut hand = Hand::new();
        let (_, said) = hand.run(async move |tx| {
            tx.get(T, b"b").await?;
            if writes {
                tx.put(T, b"a", b"mine")?;
            }
            tx.put(T, b"x", b"mine")
        });
        let asked = requests(&said);
        let locks = matches!(
            asked[..],
            [TwoPhaseCommitRequest::Prepare { .. } | TwoPhaseCommitRequest::Lock { .. }]
        );
        assert!(locks, "{said:?}");
        hand.change(7, b"b");
        let said = hand.reply(&said[0], TwoPhaseCommitReply::Locked { clock: Clock(40) });
        assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Abort]), "{said:?}");
    }
}

#[test]
fn who_keeps_meeting_conflicts_is_told_before_he_stops_waiting() {
    let mut hand = Hand::new();
    assert!(matches!(hand.ask(9, 1, prepare(b"a")), Some(TwoPhaseCommitReply::Locked { .. })));
    let (outcome, _) = hand.put(&[b"a"]);
    let mut try_until = |span| {
        let until = hand.now + span;
        while hand.now < until && outcome.get().is_none() {
            hand.now = hand.now + Duration::from_millis(50);
            hand.step(EngineEvent::Timer);
        }
        outcome.get()
    };
    assert_eq!(try_until(Duration::from_secs(6)), None);
    assert_eq!(try_until(Duration::from_secs(2)), Some(false));
}

#[test]
fn reads_awaited_together_end() {
    let mut hand = Hand::new();
    let (outcome, said) = hand.run(async |tx| {
        tx.prefetch(&[(T, b"x")]);
        let (mut here, mut there) = (pin!(tx.get(T, b"a")), pin!(tx.get(T, b"x")));
        let (mut is_first, mut read, mut took) = (true, false, false);
        // First it is seen that the one here waits; from then on the other one takes what it waits for.
        poll_fn(|context| {
            for is_there in [!is_first, is_first] {
                match is_there {
                    true if !took => took = there.as_mut().poll(context).is_ready(),
                    false if !read => read = here.as_mut().poll(context).is_ready(),
                    _ => {}
                }
            }
            is_first = false;
            if read && took { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        tx.put(T, b"a", b"mine")?;
        tx.put(T, b"x", b"mine")
    });
    let said = hand.fail_once(&said);
    let said = hand.reply(&said[0], absent());
    hand.finish(&said);
    assert_eq!(outcome.get(), Some(true));
}

#[test]
fn a_participant_prepares_nothing_in_vain() {
    let mut hand = Hand::new();
    let operations = vec![Operation::Get { table: T, key: Bytes::from_static(b"b") }];
    assert_eq!(hand.ask(9, 1, TwoPhaseCommitRequest::Execute { operations }), Some(absent()));
    hand.change(7, b"b");
    let proposed = hand.proposed;
    assert!(matches!(hand.ask(9, 2, prepare(b"a")), Some(TwoPhaseCommitReply::Refused { .. })));
    assert_eq!((hand.proposed, hand.value(b"a")), (proposed, Ok(None)));
}

const THERE: DecisionHome = DecisionHome { shard: ShardId(1), leadership: FIRST_EPOCH };

/// An entry of a former leader that prepares transactions of the other node, by their numbers and clocks, to write these
/// keys.
fn prepared(records: &[(u64, u64, &[u8])]) -> Bytes {
    let mut batch = record::OpenRecords::default();
    for (sequence, clock, key) in records {
        let transaction = TransactionId { node: OTHER, worker: WorkerId(0), sequence: *sequence };
        batch.prepare(transaction, Clock(*clock), THERE, |write| write(T, key, Some(b"new")));
    }
    batch.close(Epoch(2), Clock(4))
}

fn others(sequence: u64) -> TransactionId {
    TransactionId { node: OTHER, worker: WorkerId(0), sequence }
}

fn decided(sequence: u64, committed: bool) -> TwoPhaseCommitMessage {
    let participant = Participant { shard: HERE, leadership: Epoch(3) };
    let (transaction, home) = (others(sequence), THERE.shard);
    TwoPhaseCommitMessage::Decision { transaction, home, participant, committed }
}

#[test]
fn what_is_in_doubt_is_locked_before_its_shard_is_served_and_asked_for() {
    let mut hand = Hand::new();
    hand.configure(OTHER, 2);
    let entry = prepared(&[(7, 5, b"a"), (8, 6, b"b")]);
    hand.step(EngineEvent::Decided { shard: HERE, index: 0, entry });
    let participant = Participant { shard: HERE, leadership: Epoch(3) };
    let inquiry = |sequence| {
        let (transaction, home) = (others(sequence), THERE);
        TwoPhaseCommitMessage::Inquiry { transaction, home, participant }
    };
    assert_eq!(hand.take_over(3), [inquiry(7), inquiry(8)]);
    assert!(hand.value(b"a").is_err() && hand.value(b"b").is_err(), "they are locked");
    assert_eq!(hand.hear(decided(7, true)), []);
    assert_eq!(hand.hear(decided(8, false)), []);
    assert_eq!(hand.value(b"a"), Ok(Some(b"new".to_vec())));
    assert_eq!(hand.value(b"b"), Ok(None));
    let (transaction, home, shard) = (others(7), THERE.shard, HERE);
    let acknowledgement = TwoPhaseCommitMessage::Acknowledgement { transaction, home, shard };
    assert_eq!(hand.hear(decided(7, true)), [], "its outcome is not durable");
    assert_eq!(hand.durable(), std::slice::from_ref(&acknowledgement));
    assert_eq!(hand.hear(decided(7, true)), [acknowledgement], "the last one may be lost");
    assert_eq!(hand.worker.pending(), 0);
}

#[test]
fn of_two_in_doubt_on_one_key_the_first_is_resolved_before_the_shard_is_served() {
    let mut hand = Hand::new();
    hand.configure(OTHER, 2);
    let entry = prepared(&[(7, 5, b"a"), (8, 6, b"a")]);
    hand.step(EngineEvent::Decided { shard: HERE, index: 0, entry });
    hand.take_over(3);
    hand.durable();
    assert!(!hand.serves());
    // Known too early, and kept.
    hand.hear(decided(8, true));
    assert!(!hand.serves() && hand.value(b"a").is_err());
    hand.hear(decided(7, true));
    assert!(hand.serves());
    assert_eq!(hand.value(b"a"), Ok(Some(b"new".to_vec())));
}

#[test]
fn no_answer_is_given_while_a_transaction_is_undecided() {
    let mut hand = Hand::new();
    let (outcome, said) = hand.put(&[b"a", b"x"]);
    let TwoPhaseCommitMessage::Request { header, .. } = &said[0] else { panic!("{said:?}") };
    let transaction = header.transaction;
    let participant = Participant { shard: ShardId(1), leadership: FIRST_EPOCH };
    let home = DecisionHome { shard: HERE, leadership: FIRST_EPOCH };
    let inquiry = |transaction| TwoPhaseCommitMessage::Inquiry { transaction, home, participant };
    assert_eq!(hand.hear(inquiry(transaction)), []);
    let answer = |transaction, committed| {
        let home = HERE;
        TwoPhaseCommitMessage::Decision { transaction, home, participant, committed }
    };
    let unknown = TransactionId { sequence: 99, ..transaction };
    assert_eq!(hand.hear(inquiry(unknown)), [answer(unknown, false)]);
    let said = hand.reply(&said[0], TwoPhaseCommitReply::Locked { clock: Clock(40) });
    hand.reply(&said[0], TwoPhaseCommitReply::Validated);
    assert_eq!(hand.hear(inquiry(transaction)), [], "the decision is not durable");
    hand.durable();
    assert_eq!(outcome.get(), Some(true));
    assert_eq!(hand.hear(inquiry(transaction)), [answer(transaction, true)]);
}

#[test]
fn a_later_leader_tells_what_is_decided_and_calls_the_rest_aborted() {
    let mut hand = Hand::new();
    hand.configure(OTHER, 2);
    let mut batch = record::OpenRecords::default();
    batch.commit(others(7), Clock(5), &[ShardId(1)], |write| write(T, b"a", Some(b"new")));
    let entry = batch.close(Epoch(2), Clock(5));
    hand.step(EngineEvent::Decided { shard: HERE, index: 0, entry });
    let participant = Participant { shard: ShardId(1), leadership: FIRST_EPOCH };
    let answer = |sequence, committed| {
        let (transaction, home) = (others(sequence), HERE);
        TwoPhaseCommitMessage::Decision { transaction, home, participant, committed }
    };
    let home = DecisionHome { shard: HERE, leadership: Epoch(2) };
    let inquiry = |sequence| {
        let transaction = others(sequence);
        TwoPhaseCommitMessage::Inquiry { transaction, home, participant }
    };
    assert_eq!(hand.hear(inquiry(8)), [], "another one leads");
    assert_eq!(hand.take_over(3), [answer(7, true)]);
    assert_eq!(hand.value(b"a"), Ok(Some(b"new".to_vec())));
    // A later leader can still have inherited what this one has not.
    assert_eq!((hand.hear(inquiry(8)), hand.serves()), (vec![], false));
    hand.durable();
    assert!(hand.serves(), "an entry of its own is durable");
    assert_eq!(hand.hear(inquiry(8)), [answer(8, false)]);
    let (transaction, shard) = (others(7), ShardId(1));
    let acknowledgement = TwoPhaseCommitMessage::Acknowledgement { transaction, home: HERE, shard };
    assert_eq!(hand.hear(acknowledgement), []);
    assert_eq!(hand.proposed, 2, "its end");
    hand.durable();
    assert_eq!(hand.worker.pending(), 0);
}

#[test]
fn without_a_lease_nothing_is_served() {
    let mut hand = Hand::new();
    hand.worker.renew(Time(1));
    assert_eq!(hand.ask(7, 1, prepare(b"a")), None);
    hand.worker.renew(Time::MAX);
    assert!(matches!(hand.ask(7, 1, prepare(b"a")), Some(TwoPhaseCommitReply::Locked { .. })));
}

#[test]
fn a_former_leader_of_a_participant_is_not_answered() {
    let mut hand = Hand::new();
    let home = DecisionHome { shard: HERE, leadership: FIRST_EPOCH };
    let inquiry = |leadership| {
        let (transaction, participant) = (others(7), Participant { shard: ShardId(1), leadership });
        TwoPhaseCommitMessage::Inquiry { transaction, home, participant }
    };
    assert!(matches!(
        hand.hear(inquiry(FIRST_EPOCH))[..],
        [TwoPhaseCommitMessage::Decision { committed: false, .. }]
    ));
    let mut configuration =
        Configuration::clone(hand.worker.configuration.as_ref().expect("it is configured"));
    (configuration.epoch, configuration.shards[1].since) = (Epoch(4), Epoch(4));
    let (configuration, incarnation) = (Arc::new(configuration), Incarnation(1));
    hand.step(EngineEvent::Configured { configuration, incarnation });
    assert_eq!(hand.hear(inquiry(FIRST_EPOCH)), [], "its successor may have ended the transaction");
}

/// An entry of a former leader: a delete of `a`, committed, and a transaction that is prepared to write `c`.
fn deleted(sequence: u64, clock: u64) -> Bytes {
    let mut batch = record::OpenRecords::default();
    batch.commit(others(sequence), Clock(clock), &[], |write| write(T, b"a", None));
    batch.prepare(others(sequence + 1), Clock(clock + 1), THERE, |write| {
        write(T, b"c", Some(b"new"));
    });
    batch.close(Epoch(2), Clock(clock))
}

#[test]
fn what_is_deleted_does_not_come_back_with_what_is_in_doubt() {
    let [mut first, mut second] = Hand::of(Topology::symmetric(1, 2, 1, 0, 2));
    first.configure(OTHER, 2);
    second.configure(OTHER, 2);
    let entry = prepared(&[(7, 5, b"a")]);
    first.step(EngineEvent::Decided { shard: HERE, index: 1, entry });
    second.step(EngineEvent::Decided { shard: HERE, index: 1, entry: deleted(8, 6) });
    first.take_over(3);
    second.take_over(3);
    // The session that has replayed the delete installs this, while `a` is not locked yet.
    second.hear(decided(9, true));
    first.hear(decided(7, true));
    first.durable();
    second.durable();
    first.step(EngineEvent::Timer);
    assert!(first.serves());
    assert_eq!(first.value(b"a"), Ok(None), "its delete has the greater clock");
    assert_eq!(first.value(b"c"), Ok(Some(b"new".to_vec())));
}

#[test]
fn what_does_not_become_prepared_here_is_given_up() {
    let [mut hand] = Hand::of(Topology::compact(1, 2, 1, 0, 1));
    let shard = ShardId(1);
    hand.step(EngineEvent::Leading { shard, ballot: Ballot::default(), length: 0 });
    hand.step(EngineEvent::Durable { shard, length: 1 });
    let (outcome, said) = hand.put(&[b"a", b"x"]);
    assert_eq!((said, outcome.get()), (vec![], None));
    assert!(hand.value(b"a").is_err(), "it is locked");
    let wait_max = hand.worker.options().limits.shard_wait_max;
    hand.now = hand.now + (wait_max - Duration::from_millis(2));
    hand.step(EngineEvent::Timer);
    assert!(hand.value(b"a").is_err(), "it waits");
    hand.step(EngineEvent::Timer);
    assert_eq!((hand.worker.runtime.counters.conflicts, hand.value(b"a")), (1, Ok(None)));
    // The record becomes durable after all, and then what became of it.
    hand.step(EngineEvent::Durable { shard, length: 2 });
    assert_eq!(outcome.get(), None, "another attempt is to come");
}

#[test]
fn a_commit_that_is_not_confirmed_is_told_like_that_of_a_former_leader() {
    let mut hand = Hand::new();
    let (outcome, said) = hand.put(&[b"a", b"x"]);
    let said = hand.reply(&said[0], TwoPhaseCommitReply::Locked { clock: Clock(40) });
    hand.reply(&said[0], TwoPhaseCommitReply::Validated);
    let said = hand.durable();
    assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Commit]), "{said:?}");
    assert_eq!(outcome.get(), Some(true));
    hand.now = hand.now + hand.worker.options().limits.shard_wait_max;
    let said = hand.step(EngineEvent::Timer);
    assert!(
        matches!(said[..], [TwoPhaseCommitMessage::Decision { committed: true, .. }]),
        "{said:?}"
    );
    let sequences = &hand.worker.runtime.worker_context.sequences;
    assert_eq!(sequences.borrow().oldest(), 1, "others are not held up");
    let (transaction, shard) = (TransactionId { node: NodeId(0), ..others(0) }, ShardId(1));
    hand.hear(TwoPhaseCommitMessage::Acknowledgement { transaction, home: HERE, shard });
    hand.durable();
    assert_eq!(hand.worker.pending(), 0);
}

#[test]
fn a_decision_that_takes_too_long_is_told_like_that_of_a_former_leader() {
    let mut hand = Hand::new();
    let (outcome, said) = hand.put(&[b"a", b"x"]);
    let said = hand.reply(&said[0], TwoPhaseCommitReply::Locked { clock: Clock(40) });
    hand.reply(&said[0], TwoPhaseCommitReply::Validated);
    hand.now = hand.now + hand.worker.options().limits.shard_wait_max;
    hand.step(EngineEvent::Timer);
    assert_eq!(outcome.get(), Some(false), "it is unknown");
    let sequences = &hand.worker.runtime.worker_context.sequences;
    assert_eq!(sequences.borrow().oldest(), 1, "others are not held up");
    let said = hand.durable();
    assert!(
        matches!(said[..], [TwoPhaseCommitMessage::Decision { committed: true, .. }]),
        "{said:?}"
    );
    let (transaction, shard) = (TransactionId { node: NodeId(0), ..others(0) }, ShardId(1));
    hand.hear(TwoPhaseCommitMessage::Acknowledgement { transaction, home: HERE, shard });
    hand.durable();
    assert_eq!(hand.worker.pending(), 0);
}
