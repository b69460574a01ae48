//! What is held for transactions whose coordinators or participants are silent comes to an end.

use super::*;

/// How many things a table of the worker holds.
fn size(hand: &Hand, table: &str) -> usize {
    let sizes = hand.worker.sizes();
    sizes.iter().find(|(name, _)| *name == table).unwrap_or_else(|| panic!("no {table}")).1
}

fn read(key: &'static [u8]) -> TwoPhaseCommitRequest {
    let operations = vec![Operation::Get { table: T, key: Bytes::from_static(key) }];
    TwoPhaseCommitRequest::Execute { operations }
}

#[test]
fn what_is_not_prepared_ends_when_its_coordinator_is_silent_and_what_is_prepared_stays() {
    let mut hand = Hand::new();
    assert_eq!(hand.ask(7, 1, read(b"a")), Some(absent()));
    let lock = TwoPhaseCommitRequest::Lock { operations: write(b"b") };
    assert!(matches!(hand.ask(8, 1, lock), Some(TwoPhaseCommitReply::Locked { .. })));
    assert!(matches!(hand.ask(9, 1, prepare(b"c")), Some(TwoPhaseCommitReply::Locked { .. })));
    hand.durable();
    assert_eq!(hand.worker.held(), 3);
    let limits = hand.worker.options().limits.clone();
    hand.now = hand.now + limits.shard_wait_max;
    hand.step(EngineEvent::Timer);
    assert!(hand.value(b"b").is_err(), "its coordinator may still wait for others");
    hand.now = hand.now + limits.shard_wait_max;
    hand.step(EngineEvent::Timer);
    assert_eq!((hand.worker.held(), hand.value(b"b")), (2, Ok(None)));
    hand.now = hand.now + limits.session_open_max;
    hand.step(EngineEvent::Timer);
    assert_eq!((hand.worker.held(), size(&hand, "branches")), (1, 1));
    assert!(hand.value(b"c").is_err(), "only its home shard knows what was decided");
    // A coordinator that comes after that gives the transaction up.
    for (sequence, request) in [(7, read(b"a")), (8, TwoPhaseCommitRequest::Validate)] {
        let reply = hand.ask(sequence, 2, request);
        assert!(matches!(reply, Some(TwoPhaseCommitReply::Refused { .. })), "{reply:?}");
    }
}

#[test]
fn an_abort_that_is_not_answered_is_not_said_for_ever() {
    let mut hand = Hand::new();
    let limits = hand.worker.options().limits.clone();
    for number in 1..=20 {
        let (_, said) = hand.run(async |tx| {
            tx.get(T, b"x").await?;
            Err(shoal_types::Aborted::NotServing { node: NodeId(0) })?
        });
        assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Execute { .. }]), "{said:?}");
        let said = hand.reply(&said[0], absent());
        assert!(matches!(requests(&said)[..], [TwoPhaseCommitRequest::Abort]), "{said:?}");
        assert_eq!(size(&hand, "requests without an answer"), number);
    }
    hand.now = hand.now + limits.shard_wait_max / 2;
    assert_eq!(hand.step(EngineEvent::Timer).len(), 20, "they are said once more");
    hand.now = hand.now + limits.shard_wait_max;
    hand.step(EngineEvent::Timer);
    for table in ["requests without an answer", "transactions not confirmed by participants"] {
        assert_eq!(size(&hand, table), 0, "{table}");
    }
    assert_eq!(hand.worker.pending(), 0);
    let sequences = &hand.worker.runtime.worker_context.sequences;
    assert_eq!(sequences.borrow().oldest(), 20, "participants need not remember them");
}
