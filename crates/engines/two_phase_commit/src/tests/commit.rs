//! The commit of a transaction, at its coordinator and at its participants.

use super::*;
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

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
