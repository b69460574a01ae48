//! What becomes of branches and decisions where leaders fail, or do not answer.

use super::*;
use shoal_replication::codec::WriteRef;
use shoal_store::Change;

const THERE: DecisionHome = DecisionHome { shard: ShardId(1), leadership: FIRST_EPOCH };

/// An entry of a former leader that prepares transactions of the other node, by their numbers and clocks, to write these
/// keys.
fn prepared(records: &[(u64, u64, &[u8])]) -> Bytes {
    let mut batch = record::OpenRecords::new(TwoPhaseCommitOptions::default().part());
    for (sequence, clock, key) in records {
        let transaction = TransactionId { node: OTHER, worker: WorkerId(0), sequence: *sequence };
        batch.prepare(transaction, Clock(*clock), THERE, |write| {
            write(WriteRef::row(T, key, b"new"));
        });
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
fn what_is_in_doubt_is_locked_and_installed_in_slices() {
    let mut options = TwoPhaseCommitOptions::default();
    options.limits.step_keys_max = 2;
    let mut batch = record::OpenRecords::new(options.part());
    let [mut hand] = Hand::with(Topology::symmetric(1, 2, 1, 0, 1), options);
    hand.configure(OTHER, 2);
    batch.prepare(others(7), Clock(5), THERE, |write| {
        (0..40).for_each(|key| write(WriteRef::row(T, &[key], b"new")));
    });
    let entry = batch.close(Epoch(2), Clock(4));
    hand.step(EngineEvent::Decided { shard: HERE, index: 0, entry });
    hand.take_over(3);
    hand.durable();
    let slice = |hand: &mut Hand| {
        assert!(hand.wakes_at <= hand.now + TURN, "the next slice is due at {}", hand.wakes_at);
        hand.step(EngineEvent::Timer);
    };
    let mut steps = 0;
    while !hand.serves() {
        slice(&mut hand);
        steps += 1;
    }
    // Each key is registered, has its turn, is written and is locked.
    assert!((60..=90).contains(&steps), "locked in {steps} steps");
    hand.hear(decided(7, true));
    let mut steps = 0;
    while hand.worker.sliced.is_installing() {
        slice(&mut hand);
        steps += 1;
    }
    assert!((10..=20).contains(&steps), "installed in {steps} steps");
    let mut session = hand.worker.shared.replicas[0].store.session().expect("one more");
    for key in 0..40 {
        let found = session.begin().get(T, &[key]).expect("no lock is left").map(<[u8]>::to_vec);
        assert_eq!(found, Some(b"new".to_vec()), "{key}");
    }
}

/// The keys of many branches in doubt are registered, and those of one that is resolved are taken out again, in slices: no
/// step handles more than it may, and nothing is served before all are locked.
#[test]
fn many_branches_in_doubt_are_taken_over_in_slices() {
    const BRANCHES: u8 = 20;
    const KEYS: u8 = 3;
    let mut options = TwoPhaseCommitOptions::default();
    options.limits.step_keys_max = 2;
    let mut batch = record::OpenRecords::new(options.part());
    let [mut hand] = Hand::with(Topology::symmetric(1, 2, 1, 0, 1), options);
    hand.configure(OTHER, 2);
    for branch in 0..BRANCHES {
        let sequence = u64::from(branch) + 7;
        batch.prepare(others(sequence), Clock(sequence), THERE, |write| {
            (0..KEYS).for_each(|key| write(WriteRef::row(T, &[branch, key], b"new")));
        });
    }
    let entry = batch.close(Epoch(2), Clock(4));
    hand.step(EngineEvent::Decided { shard: HERE, index: 0, entry });
    hand.take_over(3);
    hand.durable();
    let mut steps = 0;
    while !hand.worker.shared.in_doubt[0].is_complete(Epoch(3)) {
        assert!(hand.wakes_at <= hand.now + TURN, "the next slice is due at {}", hand.wakes_at);
        assert!(!hand.serves(), "not all is registered");
        hand.step(EngineEvent::Timer);
        steps += 1;
    }
    assert!(steps >= usize::from(BRANCHES * KEYS) / 2, "registered in {steps} steps");
    // A decision that comes meanwhile is kept.
    hand.hear(decided(7, true));
    while !hand.serves() {
        assert!(hand.wakes_at <= hand.now + TURN, "the next slice is due at {}", hand.wakes_at);
        let locked = hand.worker.streams[0].in_doubt().are_locked();
        assert!(!locked, "all is locked, and the shard is not served");
        hand.step(EngineEvent::Timer);
    }
    (8..7 + u64::from(BRANCHES)).for_each(|sequence| drop(hand.hear(decided(sequence, true))));
    while hand.worker.streams[0].in_doubt().len() + hand.worker.sliced() > 0 {
        assert!(hand.wakes_at <= hand.now + TURN, "the next slice is due at {}", hand.wakes_at);
        hand.step(EngineEvent::Timer);
    }
    let most = hand.worker.counters().runtime.step_keys_most;
    assert!(most <= 6, "a step handled {most} keys");
    for branch in 0..BRANCHES {
        assert_eq!(hand.value(&[branch, 0]), Ok(Some(b"new".to_vec())), "{branch}");
    }
}

/// This node takes over both shards, of which one is home to many branches that are in doubt on the other: it answers its
/// own inquiries and sends itself the decisions, and no step handles more of them than it may.
#[test]
fn what_is_decided_on_the_same_node_is_resolved_in_slices() {
    const BRANCHES: u64 = 40;
    const HOME: ShardId = THERE.shard;
    let mut options = TwoPhaseCommitOptions::default();
    options.limits.step_keys_max = 2;
    let (mut participant, mut home) =
        (record::OpenRecords::new(options.part()), record::OpenRecords::new(options.part()));
    let [mut hand] = Hand::with(Topology::compact(1, 2, 3, 0, 1), options);
    hand.configure(OTHER, 2);
    // All write a key of their own, and every fourth one that others write as well. Every second is committed.
    let keys = |number: u64| [vec![0, number as u8], vec![1 + (number % 4 / 3) as u8, 0]];
    let is_committed = |number: u64| number.is_multiple_of(2);
    for number in 0..BRANCHES {
        let (transaction, clock) = (others(number + 7), Clock(number + 7));
        let own = 1 + usize::from(number % 4 == 3);
        participant.prepare(transaction, clock, THERE, |write| {
            keys(number)[..own].iter().for_each(|key| write(WriteRef::row(T, key, b"new")));
        });
        if is_committed(number) {
            home.commit(transaction, Clock::default(), &[HERE], |_| {});
        }
    }
    for (shard, mut batch) in [(HERE, participant), (HOME, home)] {
        let entry = batch.close(Epoch(2), Clock(4));
        hand.step(EngineEvent::Decided { shard, index: 0, entry });
    }
    let ballot = Ballot { epoch: Epoch(3), node: NodeId(0) };
    let configuration = hand.worker.configuration.as_ref().expect("it is configured");
    let mut configuration = Configuration::clone(configuration);
    configuration.epoch = ballot.epoch;
    for shard in &mut configuration.shards {
        (shard.leader, shard.since, shard.ballot) = (ballot.node, ballot.epoch, ballot);
    }
    let (configuration, incarnation) = (Arc::new(configuration), Incarnation(1));
    hand.step(EngineEvent::Configured { configuration, incarnation });
    for (shard, at) in [(HERE, 0), (HOME, 1)] {
        let length = hand.worker.streams[at].replay().length();
        hand.step(EngineEvent::Leading { shard, ballot, length });
    }
    let mut steps = 0;
    while hand.worker.pending() > 0 {
        for (shard, at) in [(HERE, 0), (HOME, 1)] {
            let undecided = hand.worker.streams[at].log().undecided() as u64;
            let length = hand.worker.streams[at].replay().length() + undecided;
            hand.step(EngineEvent::Durable { shard, length });
            steps += 1;
        }
        assert!(steps < 1000, "{:?} after {steps} steps", hand.worker.sizes());
    }
    assert!(steps >= BRANCHES as usize / 2, "all is resolved in {steps} steps");
    let most = hand.worker.counters().runtime.step_keys_most;
    assert!(most <= 6, "a step handled {most} keys");
    for number in 0..BRANCHES {
        let expected = is_committed(number).then(|| b"new".to_vec());
        assert_eq!(hand.value(&keys(number)[0]), Ok(expected), "{number}");
    }
}

/// A follower whose replay is held up by a lock is asked for a copy: how many entries that may stand for.
fn copy_while_blocked(faults: PlantedBugs<TwoPhaseCommitPlantedBug>) -> u64 {
    let options = TwoPhaseCommitOptions { faults, ..TwoPhaseCommitOptions::default() };
    let [mut hand] = Hand::with(Topology::symmetric(1, 2, 1, 0, 1), options);
    hand.configure(OTHER, 2);
    let mut session = hand.worker.shared.replicas[0].store.session().expect("one more");
    let writes = session.begin();
    writes.put(T, b"a", b"mine").expect("it fits");
    let locked = writes.lock().expect("no other lock");
    for index in 0..10 {
        let mut batch = record::OpenRecords::new(TwoPhaseCommitOptions::default().part());
        if index == 0 {
            batch.commit(others(7), Clock(5), &[], |write| write(WriteRef::row(T, b"a", b"new")));
        }
        let entry = batch.close(Epoch(2), Clock(5 + index));
        hand.step(EngineEvent::Decided { shard: HERE, index, entry });
    }
    hand.step(EngineEvent::SnapshotWanted { shard: HERE, to: OTHER });
    drop(locked);
    hand.worker.cuttable(HERE)
}

#[test]
fn a_copy_stands_only_for_what_is_in_the_store() {
    assert_eq!(copy_while_blocked(PlantedBugs::NONE), 0);
}

#[test]
#[should_panic(expected = "P10")]
fn a_copy_that_stands_for_more_is_noticed() {
    copy_while_blocked(PlantedBugs::only(TwoPhaseCommitPlantedBug::CopyUnreached));
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
    let mut batch = record::OpenRecords::new(TwoPhaseCommitOptions::default().part());
    batch.commit(others(7), Clock(5), &[ShardId(1)], |write| write(WriteRef::row(T, b"a", b"new")));
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
    let mut batch = record::OpenRecords::new(TwoPhaseCommitOptions::default().part());
    batch.commit(others(sequence), Clock(clock), &[], |write| {
        write(WriteRef { table: T, key: b"a", change: Change::Delete });
    });
    batch.prepare(others(sequence + 1), Clock(clock + 1), THERE, |write| {
        write(WriteRef::row(T, b"c", b"new"));
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

#[test]
fn who_has_only_read_through_a_leader_that_is_gone_is_told_aborted_and_who_has_written_unknown() {
    for writes in [false, true] {
        let mut hand = Hand::new();
        let (outcome, mut said) = hand.run(async move |tx| match writes {
            true => tx.put(T, b"x", b"mine"),
            false => tx.get(T, b"x").await.map(drop),
        });
        if !writes {
            said = hand.reply(&said[0], absent());
        }
        assert!(
            matches!(requests(&said)[..], [TwoPhaseCommitRequest::OnePhase { .. }]),
            "{said:?}"
        );
        hand.lose_other(2);
        let conflicts = hand.worker.runtime.counters.conflicts;
        match writes {
            true => assert_eq!((outcome.get(), conflicts), (Some(false), 0), "it is unknown"),
            false => assert_eq!((outcome.get(), conflicts), (None, 1), "it runs again"),
        }
    }
}

#[test]
fn what_waits_for_its_turn_in_doubt_does_not_wake_its_worker_all_the_time() {
    let mut hand = Hand::new();
    hand.configure(OTHER, 2);
    let entry = prepared(&[(7, 5, b"a"), (8, 6, b"a")]);
    hand.step(EngineEvent::Decided { shard: HERE, index: 0, entry });
    hand.take_over(3);
    hand.durable();
    hand.step(EngineEvent::Timer);
    assert!(!hand.serves());
    assert!(hand.wakes_at > hand.now + 10 * BLOCKED_FOR, "{} at {}", hand.wakes_at, hand.now);
}

#[test]
fn what_was_aborted_here_is_not_confirmed_as_committed() {
    let mut hand = Hand::new();
    hand.configure(OTHER, 2);
    let entry = prepared(&[(7, 5, b"a")]);
    hand.step(EngineEvent::Decided { shard: HERE, index: 0, entry });
    let mut batch = record::OpenRecords::new(TwoPhaseCommitOptions::default().part());
    batch.outcome(others(7), false);
    let entry = batch.close(Epoch(2), Clock(5));
    hand.step(EngineEvent::Decided { shard: HERE, index: 1, entry });
    hand.take_over(3);
    hand.durable();
    assert_eq!(hand.hear(decided(7, true)), [], "that breaks P8, and is to be seen");
    let acknowledged = hand.hear(decided(8, true));
    assert!(matches!(acknowledged[..], [TwoPhaseCommitMessage::Acknowledgement { .. }]));
}

/// A request of the other node to the leadership that began in this epoch.
fn request(
    sequence: u64,
    leadership: u32,
    request: TwoPhaseCommitRequest,
) -> TwoPhaseCommitMessage {
    let (transaction, leadership) = (others(sequence), Epoch(leadership));
    let (step, oldest, epoch) = (1, 0, FIRST_EPOCH);
    let header = BranchHeader { transaction, shard: HERE, step, oldest, epoch, leadership };
    TwoPhaseCommitMessage::Request { header, request }
}

#[test]
fn requests_to_a_shard_that_is_being_recovered_wait_but_for_those_that_hold_locks_elsewhere() {
    let mut hand = Hand::new();
    hand.configure(OTHER, 2);
    hand.configure(NodeId(0), 3);
    let operations = vec![Operation::Get { table: T, key: Bytes::from_static(b"a") }];
    let execute = TwoPhaseCommitRequest::Execute { operations };
    assert_eq!(hand.hear(request(7, 3, execute.clone())), [], "its stream is not prepared");
    assert_eq!(hand.hear(request(8, 2, execute)), [], "of a former leadership");
    for _ in 0..2 {
        let reply = only_reply(hand.hear(request(9, 3, prepare(b"a"))));
        assert!(matches!(reply, Some(TwoPhaseCommitReply::Refused { .. })), "{reply:?}");
    }
    assert_eq!(hand.worker.held(), 1);
    hand.take_over(3);
    let said = hand.durable();
    assert!(hand.serves());
    let answers = said.iter().chain(&hand.step(EngineEvent::Timer)).cloned().collect();
    assert_eq!(only_reply(answers), Some(absent()), "it is served");
}
