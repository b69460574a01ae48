//! Which calls run, are waited for, or looked up, and when rows are dropped.

use super::*;
use proptest::prelude::*;
use shoal_cluster::manager::Incarnation;
use shoal_types::{Aborted, Epoch, NodeId};

const S: ShardId = ShardId(1);
const KEPT: Duration = Duration::from_secs(600);

fn leadership(since: u32) -> Leadership {
    Leadership { since: Epoch(since), incarnation: Incarnation(1) }
}

fn worker(max: usize) -> CallSessions {
    CallSessions::new(
        WorkerId(0),
        0,
        KeptCalls { sessions_max: max, rows_kept: KEPT },
        PlantedBugs::NONE,
    )
}

/// Grants some in the first leadership.
fn grant(sessions: &mut CallSessions, count: usize, at: Time) {
    for _ in 0..count {
        sessions.grant(at, S, leadership(1));
    }
}

fn id(session: CallSession, number: u64) -> RequestId {
    RequestId { session, number }
}

fn failed() -> Error {
    Aborted::NotServing { node: NodeId(3) }.into()
}

#[test]
fn a_call_runs_once_and_what_failed_stays_failed() {
    let (mut sessions, leadership) = (worker(4), leadership(1));
    let session = sessions.grant(Time::ZERO, S, leadership);
    let begin =
        |sessions: &mut CallSessions, number| sessions.begin(id(session, number), leadership);
    assert_eq!(begin(&mut sessions, 1), CallStart::Runs);
    assert_eq!(begin(&mut sessions, 1), CallStart::Waits);
    assert_eq!(begin(&mut sessions, 2), CallStart::Waits, "one at a time");
    sessions.end(id(session, 1), leadership, CallEnd::Failed(failed()));
    assert_eq!(begin(&mut sessions, 1), CallStart::Failed(failed()));
    assert_eq!(begin(&mut sessions, 3), CallStart::Runs, "a number may be left out");
    sessions.end(id(session, 3), leadership, CallEnd::SeeRow);
    for number in 0..=3 {
        assert_eq!(begin(&mut sessions, number), CallStart::LookUp);
    }
    assert_eq!(begin(&mut sessions, u64::MAX), CallStart::LookUp, "the last of all never runs");
    assert_eq!(begin(&mut sessions, u64::MAX - 1), CallStart::Runs);
    sessions.end(id(session, u64::MAX - 1), leadership, CallEnd::SeeRow);
    assert_eq!(begin(&mut sessions, u64::MAX - 1), CallStart::LookUp);
}

#[test]
fn what_is_not_known_does_not_run() {
    let mut sessions = worker(2);
    let old = sessions.grant(Time::ZERO, S, leadership(1));
    let second = sessions.grant(Time::ZERO, S, leadership(1));
    grant(&mut sessions, 1, Time::ZERO);
    assert_eq!(sessions.begin(id(old, 1), leadership(1)), CallStart::LookUp, "the oldest is over");
    assert_eq!(sessions.begin(id(second, 1), leadership(1)), CallStart::Runs);
    // The leadership of another came between: none of the former sessions is known, with any serials.
    let new = sessions.grant(Time::ZERO, S, leadership(5));
    assert_eq!((new.serial, new.since), (0, Epoch(5)));
    assert_eq!(sessions.begin(id(second, 1), leadership(5)), CallStart::Waits, "it still runs");
    sessions.end(id(second, 1), leadership(1), CallEnd::Failed(failed()));
    assert_eq!(sessions.begin(id(second, 1), leadership(5)), CallStart::LookUp);
    let unknown = [
        CallSession { incarnation: 2, ..new },
        CallSession { since: Epoch(1), ..new },
        CallSession { worker: WorkerId(1), ..new },
        CallSession { home: ShardId(0), ..new },
        CallSession { serial: 1, ..new },
    ];
    for session in unknown {
        assert_eq!(sessions.begin(id(session, 1), leadership(5)), CallStart::LookUp, "{session}");
    }
    assert_eq!(sessions.begin(id(new, 1), leadership(5)), CallStart::Runs);
}

#[test]
fn rows_are_dropped_when_they_were_kept_for_long_or_are_too_many() {
    let (mut sessions, leadership) = (worker(2), leadership(1));
    grant(&mut sessions, 3, Time::ZERO);
    assert_eq!(sessions.next_due(), Some(Time::ZERO + KEPT), "one is over");
    assert_eq!(sessions.overdue(Time::ZERO, |_, _| true), None);
    let at = Time::ZERO + KEPT;
    let overdue = sessions.overdue(at, |_, _| true).expect("long over");
    assert_eq!(overdue, OverdueRows { shard: S, leadership, over: 1, long_over: Some(1) });
    assert_eq!(sessions.overdue(at, |_, _| true), None, "under way");
    sessions.dropped(at, &overdue, false);
    assert_eq!(sessions.next_due(), Some(at + DROP_AGAIN));
    let again = sessions.overdue(at + DROP_AGAIN, |_, _| true).expect("again");
    assert_eq!(again, overdue);
    sessions.dropped(at + DROP_AGAIN, &again, true);
    assert_eq!(sessions.next_due(), None);
    grant(&mut sessions, 2, at);
    assert_eq!(sessions.next_due(), Some(at), "as many are over as are known");
    let overdue = sessions.overdue(at, |_, _| true).expect("too many");
    assert_eq!(overdue, OverdueRows { shard: S, leadership, over: 3, long_over: None });
}

/// A former leader that went on to try would do so for ever, where it serves no shard.
#[test]
fn a_leadership_that_is_over_drops_no_rows() {
    let mut sessions = worker(2);
    grant(&mut sessions, 3, Time::ZERO);
    let at = sessions.next_due().expect("one is over");
    assert_eq!(sessions.overdue(at, |shard, of| (shard, of) != (S, leadership(1))), None);
    assert_eq!(sessions.next_due(), None);
}

#[test]
fn earlier_leaderships_may_have_left_rows() {
    let mut sessions = worker(2);
    let leadership = leadership(7);
    sessions.grant(Time::ZERO, S, leadership);
    let first = sessions.next_due().expect("to be counted");
    let overdue = sessions.overdue(first, |_, _| true).expect("due");
    assert_eq!(overdue, OverdueRows { shard: S, leadership, over: 0, long_over: None });
    sessions.dropped(first, &overdue, true);
    assert_eq!(sessions.next_due(), Some(Time::ZERO + KEPT));
    let overdue = sessions.overdue(Time::ZERO + KEPT, |_, _| true).expect("due");
    assert_eq!(overdue.long_over, Some(0));
    sessions.dropped(Time::ZERO + KEPT, &overdue, true);
    assert_eq!(sessions.next_due(), None);
}

proptest! {
    /// Copies of calls come in any order, among grants and new leaderships: each call runs once at most, and memory has its
    /// bound.
    #[test]
    fn no_call_runs_twice(
        max in 1..4_usize, moves in prop::collection::vec((0..10_u8, any::<[prop::sample::Index; 2]>()), 1..300)
    ) {
        let mut sessions = worker(max);
        let (mut since, mut granted, mut running) = (1, Vec::new(), Vec::new());
        let mut ran = BTreeSet::new();
        for (what, [which, number]) in moves {
            match what {
                0 => since += 1,
                1 | 2 => granted.push(sessions.grant(Time::ZERO, S, leadership(since))),
                3..=7 if !granted.is_empty() => {
                    let call = id(granted[which.index(granted.len())], number.index(5) as u64);
                    if sessions.begin(call, leadership(since)) == CallStart::Runs {
                        prop_assert!(ran.insert(call), "{} runs again", call);
                        running.push((call, since));
                    }
                }
                _ if !running.is_empty() => {
                    let (call, since) = running.swap_remove(which.index(running.len()));
                    let ended = if what == 8 { CallEnd::SeeRow } else { CallEnd::Failed(failed()) };
                    sessions.end(call, leadership(since), ended);
                }
                _ => {}
            }
            prop_assert!(sessions.granted.values().all(|granted| granted.known.len() <= max));
            prop_assert_eq!(sessions.running.len(), running.len());
        }
    }
}
