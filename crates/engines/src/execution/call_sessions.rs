//! Which calls may run: the sessions that this worker granted to clients, as in *Raft* (dissertation, §6.3), but kept in
//! the leader's memory alone.
//!
//! ```text
//!   serial    0 … │ 40   41   42   43 │ 44 …
//!            over │   known: a new    │ not granted
//!                 │   call may run    │
//!                 └─ oldest           └─ oldest + known.len(), granted next
//! ```
//! The leader of a shard grants sessions for calls on it. Each worker grants its own, and keeps the last
//! [`call_sessions_max`](super::Limits::call_sessions_max). A call runs only if its session is known here and it is
//! the first call of the session with its number, or a greater one, to arrive. Everything else is *looked up*: the answer
//! is what the session's row in the table of requests says, and nothing runs.
//!
//! **Why no call that was told *aborted* runs later.** A session is named by the shard, the epoch in which its
//! leader's reign began, that leader's incarnation, the worker and a count. The manager gives a new epoch to a reign
//! whenever the leader or its incarnation changes, so the name belongs to one worker of one process, and the
//! count makes it unique there. Without a manager no epoch tells a process from the one before it; so the count begins at
//! a number of 62 bits that is drawn when the process starts, which also keeps clients from guessing the sessions of others. Calls of a session run in that worker alone, and there only while the session is
//! known. Within that time every number that was begun is below [`Known::next`], so each call runs at most once.
//! A session that was forgotten, one of an earlier reign, of an earlier process, or of a process that another replaced,
//! is unknown, and stays unknown: `oldest` only grows, and a reign that ended does not come back. So to forget what failed
//! is safe, as it comes with forgetting the session; a copy of any call may be late by any time.
//!
//! **Why a call that committed does not run twice.** It runs at most once, as above. What remains is that its client
//! could be told *aborted* and call again under another id. A lookup says *aborted* only where a transaction on the
//! serving leader proves that the row is absent and was not dropped. The run that might still write the row is then over:
//! in this process it is not among [`CallSessions::running`]; and what another leader ran is committed, or rolled back,
//! before its successor serves the shard. For a run writes its row in the same transaction, and as the leader of the
//! shard in the reign in which it began: each attempt checks that, before its first operation and after its last.
//!
//! **Why memory is bounded.** A worker knows at most `call_sessions_max` sessions for each shard that its node leads, with a
//! number and at most one error each; the sessions that were forgotten while a call of theirs ran cost as much as that
//! transaction. Rows of sessions that are over are dropped by [`request_rows`](super::request_rows), after they were
//! refused: what is below `oldest`, or of an earlier reign, is refused before its row goes.
//!
//! A grant that is lost, or repeated, leaves a session that no client uses: it is forgotten as others are. A client that
//! was slow for an hour, and whose session is over, is told so, and gets another.

use super::hub::Reign;
use crate::faults::{Fault, Faults};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::{CallSession, Error, RequestId, ShardId, Time, WorkerId};

/// After this, rows that could not be dropped are tried again.
const DROP_AGAIN: Duration = Duration::from_secs(1);

/// What becomes of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It runs now; [`CallSessions::end`] has to follow.
    Runs,
    /// A copy of it runs, or an earlier call of its session: its client asks again.
    Waits,
    /// It has failed with this error.
    Failed(Error),
    /// Only its row can tell.
    LookUp,
}

/// How a call has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It has committed, or that is open: its row tells.
    SeeRow,
    /// It has not taken effect, and never will.
    Failed(Error),
}

/// The sessions of a worker, for all shards.
#[derive(Debug)]
pub(super) struct CallSessions {
    worker: WorkerId,
    /// The serial of the first session in each reign: drawn when the process starts.
    first: u64,
    /// As in [`Limits`](super::Limits).
    sessions_max: usize,
    rows_kept: Duration,
    faults: Faults,
    granted: BTreeMap<ShardId, Granted>,
    /// Calls that run, whether their sessions are over or not.
    running: BTreeSet<RequestId>,
}

/// The sessions for one shard, in one reign of this process.
#[derive(Debug)]
struct Granted {
    reign: Reign,
    /// The serial of the first that is known: those before are over.
    oldest: u64,
    known: VecDeque<Known>,
    rows: Rows,
}

/// A session that is known.
#[derive(Debug, Default)]
struct Known {
    /// Calls with a lower number have begun here, or never will.
    next: u64,
    /// How the last one that began has ended, if it has.
    last: Option<Ended>,
}

/// When rows of sessions that are over are dropped.
#[derive(Debug)]
struct Rows {
    /// At that time, the sessions before this serial and those of earlier reigns were over.
    over: Option<(Time, u64)>,
    /// The sessions before this serial were over when rows were dropped last.
    dropped: u64,
    /// When to drop some.
    due: Option<Time>,
}

/// Which rows of a shard's sessions to drop: of those that are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overdue {
    pub(super) shard: ShardId,
    pub(super) reign: Reign,
    /// The sessions of this reign before this serial are over, and all of earlier ones: too many of their rows may be kept.
    pub(super) over: u64,
    /// The sessions before this serial have been over for so long that all of their rows go.
    pub(super) long_over: Option<u64>,
}

impl CallSessions {
    /// None yet, of a worker whose first will have that serial.
    pub(super) fn new(
        (worker, first): (WorkerId, u64),
        sessions_max: usize,
        rows_kept: Duration,
        faults: Faults,
    ) -> CallSessions {
        let (granted, running) = (BTreeMap::new(), BTreeSet::new());
        CallSessions { worker, first, sessions_max, rows_kept, faults, granted, running }
    }

    /// Grants a session for `shard`, which this node serves in `reign`.
    pub(super) fn grant(&mut self, now: Time, shard: ShardId, reign: Reign) -> CallSession {
        let (worker, first) = (self.worker, self.first);
        let (max, kept) = (self.sessions_max, self.rows_kept);
        let new = || Granted::new(now, (reign, first), kept);
        let granted = self.granted.entry(shard).or_insert_with(new);
        if granted.reign != reign {
            *granted = new();
        }
        let serial = granted.oldest + granted.known.len() as u64;
        granted.known.push_back(Known::default());
        if granted.known.len() > max {
            granted.known.pop_front();
            granted.oldest += 1;
            granted.rows.ended(now, granted.oldest, (max, kept));
        }
        let Reign { since, incarnation } = reign;
        CallSession { home: shard, since, incarnation: incarnation.0, worker, serial }
    }

    /// What becomes of a call on a shard that this node leads in `reign`.
    pub(super) fn begin(&mut self, id: RequestId, reign: Reign) -> Begun {
        let first = RequestId { number: 0, ..id };
        let last = RequestId { number: u64::MAX, ..id };
        if self.running.range(first..=last).next().is_some() {
            return Begun::Waits;
        }
        // The last number of all never runs: none is greater, to say that it has.
        let Some(next) = id.number.checked_add(1) else { return Begun::LookUp };
        let forgets = self.faults.has(Fault::ServeForgottenSessions);
        match self.known(id.session, reign) {
            None if !forgets => return Begun::LookUp,
            None => {}
            Some(known) if id.number < known.next => match &known.last {
                Some(Ended::Failed(error)) if next == known.next => {
                    return Begun::Failed(error.clone());
                }
                Some(_) | None => return Begun::LookUp,
            },
            Some(known) => {
                known.next = next;
                known.last = None;
            }
        }
        self.running.insert(id);
        Begun::Runs
    }

    /// A call that ran, in `reign`, has ended.
    pub(super) fn end(&mut self, id: RequestId, reign: Reign, ended: Ended) {
        assert!(self.running.remove(&id), "{id} has ended and did not run");
        let Some(known) = self.known(id.session, reign) else { return };
        assert!(
            known.next == id.number + 1,
            "{id} ran, and another call of its session began: {known:?}"
        );
        known.last = Some(ended);
    }

    fn known(&mut self, session: CallSession, reign: Reign) -> Option<&mut Known> {
        let CallSession { home, since, incarnation, worker, serial } = session;
        let granted = self.granted.get_mut(&home).filter(|granted| granted.reign == reign)?;
        let of_reign = (since, incarnation) == (reign.since, reign.incarnation.0)
            || self.faults.has(Fault::ReuseSessionNumbers);
        let at = serial.checked_sub(granted.oldest)?;
        let at = usize::try_from(at).ok().filter(|_| of_reign && worker == self.worker)?;
        granted.known.get_mut(at)
    }

    /// How many sessions are known, and how many calls run.
    pub(super) fn sizes(&self) -> [usize; 2] {
        let known = self.granted.values().map(|granted| granted.known.len());
        [known.sum(), self.running.len()]
    }

    /// When rows are to be dropped next.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.granted.values().filter_map(|granted| granted.rows.due).min()
    }

    /// Rows that are to be dropped now, if there are any, in reigns that last: those of others are for the successors to drop.
    /// Afterwards, [`CallSessions::dropped`] is to be called.
    pub(super) fn overdue(
        &mut self,
        now: Time,
        lasts: impl Fn(ShardId, Reign) -> bool,
    ) -> Option<Overdue> {
        let kept = self.rows_kept;
        for (_, granted) in self.granted.iter_mut().filter(|(shard, it)| !lasts(**shard, it.reign))
        {
            granted.rows.due = None;
        }
        let is_due = |granted: &Granted| granted.rows.due.is_some_and(|due| due <= now);
        let (shard, granted) = self.granted.iter_mut().find(|(_, granted)| is_due(granted))?;
        let Granted { reign, oldest, ref mut rows, .. } = *granted;
        rows.due = None;
        let long_over = rows.over.filter(|(at, _)| *at + kept <= now).map(|(_, over)| over);
        Some(Overdue { shard: *shard, reign, over: oldest, long_over })
    }

    /// Those rows were dropped, or could not be.
    pub(super) fn dropped(&mut self, now: Time, overdue: &Overdue, done: bool) {
        let (max, kept) = (self.sessions_max, self.rows_kept);
        let Some(granted) = self.granted.get_mut(&overdue.shard) else { return };
        if granted.reign != overdue.reign {
            return;
        }
        let (oldest, rows) = (granted.oldest, &mut granted.rows);
        if !done {
            rows.due = Some(now + DROP_AGAIN);
            return;
        }
        rows.dropped = overdue.over;
        if let Some(long_over) = overdue.long_over {
            rows.over = (oldest > long_over).then_some((now, oldest));
        }
        rows.due = rows.over.map(|(at, _)| at + kept);
        if oldest > rows.dropped {
            rows.ended(now, oldest, (max, kept));
        }
    }
}

impl Granted {
    fn new(now: Time, (reign, first): (Reign, u64), kept: Duration) -> Granted {
        // Earlier reigns and incarnations may have left rows.
        let over = (!reign.is_first()).then_some((now, first));
        let due = over.map(|_| now + kept.min(DROP_AGAIN));
        let rows = Rows { over, dropped: first, due };
        Granted { reign, oldest: first, known: VecDeque::new(), rows }
    }
}

impl Rows {
    /// The sessions before `oldest` are over.
    fn ended(&mut self, now: Time, oldest: u64, (max, kept): (usize, Duration)) {
        let (at, _) = *self.over.get_or_insert((now, oldest));
        let due = if oldest - self.dropped >= max as u64 { now } else { at + kept };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }
}

#[cfg(test)]
mod tests;
