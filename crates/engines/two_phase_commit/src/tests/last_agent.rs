//! Decisions that a participant keeps for a coordinator whose node serves no shard.

use super::*;

const THERE: ShardId = ShardId(1);

fn others(sequence: u64) -> TransactionId {
    TransactionId { node: OTHER, worker: WorkerId(0), sequence }
}

fn lock(key: &'static [u8]) -> TwoPhaseCommitRequest {
    TwoPhaseCommitRequest::Lock { operations: write(key) }
}

fn decide(participants: &[ShardId]) -> TwoPhaseCommitRequest {
    TwoPhaseCommitRequest::DecideLast { participants: participants.to_vec() }
}

/// The leader of the other shard asks for the decision on the other node's transaction with this number.
fn inquiry(sequence: u64) -> TwoPhaseCommitMessage {
    let home = DecisionHome { shard: HERE, leadership: FIRST_EPOCH };
    let participant = Participant { shard: THERE, leadership: FIRST_EPOCH };
    TwoPhaseCommitMessage::Inquiry { transaction: others(sequence), home, participant }
}

fn answer(sequence: u64, committed: bool) -> TwoPhaseCommitMessage {
    let participant = Participant { shard: THERE, leadership: FIRST_EPOCH };
    let (transaction, home) = (others(sequence), HERE);
    TwoPhaseCommitMessage::Decision { transaction, home, participant, committed }
}

#[test]
fn the_last_agent_keeps_the_decision_until_it_is_acknowledged() {
    let mut hand = Hand::new();
    assert!(matches!(hand.ask(7, 1, lock(b"a")), Some(TwoPhaseCommitReply::Locked { .. })));
    assert_eq!(hand.ask(7, 2, decide(&[THERE])), None, "it is not validated");
    let validated = hand.ask(7, 2, TwoPhaseCommitRequest::Validate);
    assert_eq!(validated, Some(TwoPhaseCommitReply::Validated));
    for nonsense in [&[][..], &[HERE], &[ShardId(9)]] {
        assert_eq!(hand.ask(7, 3, decide(nonsense)), None);
    }
    assert_eq!(hand.hear(inquiry(7)), [], "it can still be decided");
    assert_eq!(hand.ask(7, 3, decide(&[THERE])), None, "it is not durable");
    assert_eq!(hand.hear(inquiry(7)), []);
    assert!(matches!(only_reply(hand.durable()), Some(TwoPhaseCommitReply::Committed { .. })));
    assert_eq!(hand.value(b"a"), Ok(Some(b"new".to_vec())));
    assert_eq!(hand.hear(inquiry(7)), [answer(7, true)]);
    assert_eq!(hand.step(EngineEvent::Timer), [], "its coordinator sends it to the participant");
    hand.now = hand.now + hand.worker.options().inquire_every;
    assert_eq!(hand.step(EngineEvent::Timer), [answer(7, true)]);
    let (transaction, home, shard) = (others(7), HERE, THERE);
    hand.hear(TwoPhaseCommitMessage::Acknowledgement { transaction, home, shard });
    hand.durable();
    assert_eq!(hand.worker.pending(), 0);
}

#[test]
fn what_is_called_aborted_before_it_comes_is_refused_when_it_comes() {
    let mut hand = Hand::new();
    assert_eq!(hand.hear(inquiry(7)), [answer(7, false)]);
    for request in [lock(b"a"), decide(&[THERE])] {
        let reply = hand.ask(7, 1, request);
        assert!(matches!(reply, Some(TwoPhaseCommitReply::Refused { .. })), "{reply:?}");
    }
    assert_eq!(hand.value(b"a"), Ok(None));
}

#[test]
fn a_branch_that_is_over_without_a_decision_is_aborted() {
    let mut hand = Hand::new();
    assert!(matches!(hand.ask(7, 1, lock(b"a")), Some(TwoPhaseCommitReply::Locked { .. })));
    hand.ask(7, 2, TwoPhaseCommitRequest::Validate);
    let resolved = hand.ask(7, 3, TwoPhaseCommitRequest::Abort);
    assert_eq!(resolved, Some(TwoPhaseCommitReply::Resolved));
    assert_eq!(hand.hear(inquiry(7)), [answer(7, false)]);
    assert_eq!(hand.ask(7, 3, decide(&[THERE])), Some(TwoPhaseCommitReply::Resolved), "repeated");
    hand.durable();
    assert_eq!(hand.worker.pending(), 0);
}

/// A worker whose node leads nothing: the other node leads both shards. What it says until the last agent is to decide.
fn until_it_decides() -> (Hand, Outcome, Vec<TwoPhaseCommitMessage>) {
    until_it_decides_with(PlantedBugs::NONE)
}

fn until_it_decides_with(
    faults: PlantedBugs<TwoPhaseCommitPlantedBug>,
) -> (Hand, Outcome, Vec<TwoPhaseCommitMessage>) {
    let mut hand = Hand::planted(faults);
    hand.configure(OTHER, 2);
    let (outcome, said) = hand.put(&[b"a", b"x"]);
    let home = DecisionHome { shard: HERE, leadership: Epoch(2) };
    assert!(
        matches!(
            requests(&said)[..],
            [TwoPhaseCommitRequest::Lock { .. }, TwoPhaseCommitRequest::Prepare { home: its, .. }]
                if *its == home
        ),
        "{said:?}"
    );
    assert_eq!(hand.reply(&said[0], TwoPhaseCommitReply::Locked { clock: Clock(4) }), []);
    let said = hand.reply(&said[1], TwoPhaseCommitReply::Locked { clock: Clock(5) });
    let both = [&TwoPhaseCommitRequest::Validate, &TwoPhaseCommitRequest::Validate];
    assert_eq!(requests(&said), both);
    assert_eq!(hand.reply(&said[0], TwoPhaseCommitReply::Validated), []);
    let said = hand.reply(&said[1], TwoPhaseCommitReply::Validated);
    assert_eq!(requests(&said), [&decide(&[THERE])]);
    (hand, outcome, said)
}

#[test]
fn a_node_that_leads_nothing_coordinates() {
    let (mut hand, outcome, said) = until_it_decides();
    let committed = TwoPhaseCommitReply::Committed { clock: Some(Clock(4)) };
    let said = hand.reply(&said[0], committed);
    assert_eq!(
        (outcome.get(), requests(&said)),
        (Some(true), vec![&TwoPhaseCommitRequest::Commit])
    );
    assert_eq!(hand.reply(&said[0], TwoPhaseCommitReply::Resolved), []);
    assert_eq!(hand.worker.held(), 0);
}

#[test]
fn a_last_agent_that_is_gone_leaves_the_outcome_unknown_and_participants_alone() {
    let (mut hand, outcome, _) = until_it_decides();
    assert_eq!(hand.configure(OTHER, 3), [], "those that are prepared ask the home shard");
    assert_eq!((outcome.get(), hand.worker.held()), (Some(false), 0));
}

/// The last agent does not answer: it may have locks that nothing else releases soon.
fn a_silent_last_agent_is_told(faults: PlantedBugs<TwoPhaseCommitPlantedBug>) {
    let (mut hand, outcome, _) = until_it_decides_with(faults);
    hand.now = hand.now + hand.worker.options().limits.shard_wait_max;
    let said = hand.step(EngineEvent::Timer);
    assert_eq!(
        (outcome.get(), requests(&said)),
        (Some(false), vec![&TwoPhaseCommitRequest::Abort])
    );
    let TwoPhaseCommitMessage::Request { header, .. } = &said[0] else { unreachable!() };
    assert_eq!(header.shard, HERE);
    hand.now = hand.now + hand.worker.options().limits.retry_after;
    let again = hand.step(EngineEvent::Timer);
    assert_eq!(again, said, "it may be lost, too");
    assert_eq!(hand.reply(&said[0], TwoPhaseCommitReply::Resolved), []);
    assert_eq!(hand.worker.held(), 0);
}

#[test]
fn a_last_agent_that_does_not_answer_is_told_to_undo_its_branch() {
    a_silent_last_agent_is_told(PlantedBugs::NONE);
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn a_last_agent_that_is_told_nothing_more_is_seen() {
    a_silent_last_agent_is_told(PlantedBugs::only(TwoPhaseCommitPlantedBug::LeaveLastAgent));
}

#[test]
fn a_last_agent_that_is_cut_off_holds_its_locks_for_twice_the_longest_wait_at_most() {
    let mut hand = Hand::new();
    let longest = hand.worker.options().limits.shard_wait_max * 2;
    hand.ask(6, 1, lock(b"a"));
    hand.now = hand.now + Duration::from_millis(50);
    hand.ask(7, 1, lock(b"b"));
    hand.ask(7, 2, TwoPhaseCommitRequest::Validate);
    // The pass that ends the first branch is not too early for the second.
    let last = hand.now;
    while hand.worker.held() > 0 {
        hand.now = Time(hand.wakes_at.0 - 1_000_000);
        hand.step(EngineEvent::Timer);
    }
    assert!(hand.now <= last + longest, "{} after {last}", hand.now);
    assert_eq!(hand.value(b"b"), Ok(None));
}

#[test]
fn a_last_agent_that_decides_is_not_undone() {
    let mut hand = Hand::new();
    hand.ask(7, 1, lock(b"a"));
    hand.ask(7, 2, TwoPhaseCommitRequest::Validate);
    assert_eq!(hand.ask(7, 3, decide(&[THERE])), None, "it is not durable");
    assert_eq!(
        hand.ask(7, 4, TwoPhaseCommitRequest::Abort),
        None,
        "its coordinator has given it up"
    );
    assert!(matches!(only_reply(hand.durable()), Some(TwoPhaseCommitReply::Committed { .. })));
    let resolved = hand.ask(7, 4, TwoPhaseCommitRequest::Abort);
    assert_eq!(resolved, Some(TwoPhaseCommitReply::Resolved));
    assert_eq!(hand.value(b"a"), Ok(Some(b"new".to_vec())));
    assert_eq!(hand.hear(inquiry(7)), [answer(7, true)]);
}

#[test]
fn a_last_agent_that_refuses_aborts_the_transaction() {
    let (mut hand, _, said) = until_it_decides();
    let error = shoal_engine::execution::worker_context::recovering(HERE);
    let said = hand.reply(&said[0], TwoPhaseCommitReply::Refused { error });
    assert_eq!(requests(&said), [&TwoPhaseCommitRequest::Abort]);
    let TwoPhaseCommitMessage::Request { header, .. } = &said[0] else { unreachable!() };
    assert_eq!(header.shard, THERE);
    assert_eq!(hand.worker.runtime.counters.conflicts, 1, "it runs again");
}
