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
//! [`call_sessions_max`](super::Limits::call_sessions_max). A call is executed only if its session is known here, and no call of
//! the session with its number or a greater one has arrived before. Every other call is *looked up*: it is answered by
//! the session's row in the table of requests, and not executed.
//!
//! **Why no call that was answered *aborted* is executed later.** A session is named by the shard, the epoch in which its
//! leader's leadership began, that leader's incarnation, the worker and a count. The manager gives a new epoch to a leadership
//! whenever the leader or its incarnation changes, so the name belongs to one worker of one process, and the
//! count makes it unique there. Without a manager the epoch does not identify the process; so the count begins at
//! a number of 62 bits that is drawn when the process starts, which also keeps clients from guessing the sessions of others. Calls of a session run in that worker alone, and there only while the session is
//! known. Within that time every number that was begun is below [`KnownSession::next`], so each call runs at most once.
//! A session that was forgotten, one of an earlier leadership, of an earlier process, or of a process that another replaced,
//! is unknown, and stays unknown: `oldest` only grows, and a leadership that ended does not come back. So to forget what failed
//! is safe, as it comes with forgetting the session; a copy of any call may be late by any time.
//!
//! **Why a call that committed does not run twice.** It runs at most once, as above. What remains is that its client
//! could be answered *aborted* and call again under another id. A lookup answers *aborted* only where a transaction on the
//! serving leader proves that the row is absent and was not dropped. The run that might still write the row is then over:
//! in this process it is not among [`CallSessions::running`]; and what another leader ran is committed, or rolled back,
//! before its successor serves the shard. For a run writes its row in the same transaction, and as the leader of the
//! shard in the leadership in which it began: each attempt checks that, before its first operation and after its last.
//!
//! **Why memory is bounded.** A worker knows at most `call_sessions_max` sessions for each shard that its node leads, with a
//! number and at most one error each; the sessions that were forgotten while a call of theirs ran cost as much as that
//! transaction. Rows of sessions that are over are dropped by [`request_rows`](super::request_rows), after they were
//! refused: what is below `oldest`, or of an earlier leadership, is refused before its row goes.
//!
//! A grant that is lost, or repeated, leaves a session that no client uses: it is forgotten as others are. A client that
//! sends nothing for an hour, and whose session is over, is answered so, and gets another.

use super::leaderships::Leadership;
use crate::planted_bugs::{PlantedBug, PlantedBugs};
use bytes::Bytes;
use shoal_types::{CallSession, Error, RequestId, ShardId, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// After this, rows that could not be dropped are tried again.
const DROP_AGAIN: Duration = Duration::from_secs(1);

/// How a call is handled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallStart {
    /// The call is executed now; [`CallSessions::end`] has to follow.
    Runs,
    /// A copy of the call, or an earlier call of its session, is being executed: the client sends it again.
    Waits,
    /// The call has failed with this error.
    Failed(Error),
    /// The call has returned this.
    Returned(Bytes),
    /// The row of the call has the answer.
    LookUp,
}

/// How a call has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The call has committed, or may have: its row has the outcome.
    SeeRow,
    /// The call has committed and returned this, which its row does not have.
    Returned(Bytes),
    /// The call has not taken effect, and never will.
    Failed(Error),
}

/// The limits of call sessions, from [`Limits`](super::Limits).
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptCalls {
    pub(super) sessions_max: usize,
    pub(super) rows_kept: Duration,
}

/// The sessions of a worker, for all shards.
#[derive(Debug)]
pub(super) struct CallSessions {
    worker: WorkerId,
    /// The serial of the first session in each leadership: drawn when the process starts.
    first: u64,
    kept: KeptCalls,
    faults: PlantedBugs,
    granted: BTreeMap<ShardId, GrantedSessions>,
    /// Calls that are being executed, whether or not their sessions are over.
    running: BTreeSet<RequestId>,
}

/// The sessions for one shard, in one leadership of this process.
#[derive(Debug)]
struct GrantedSessions {
    leadership: Leadership,
    /// The serial of the first that is known: those before are over.
    oldest: u64,
    known: VecDeque<KnownSession>,
    rows: RowCollection,
}

/// A session that this worker has granted and not dropped.
#[derive(Debug, Default)]
struct KnownSession {
    /// Calls with a lower number have begun here, or never will.
    next: u64,
    /// The outcome of the last call that began, if it has ended.
    last: Option<CallEnd>,
}

/// When rows of sessions that are over are dropped.
#[derive(Debug)]
struct RowCollection {
    /// At that time, the sessions before this serial and those of earlier leaderships were over.
    over: Option<(Time, u64)>,
    /// The sessions before this serial were over when rows were dropped last.
    dropped: u64,
    /// When to drop some.
    due: Option<Time>,
}

/// Which rows of a shard's sessions to drop: of those that are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OverdueRows {
    pub(super) shard: ShardId,
    pub(super) leadership: Leadership,
    /// The sessions of this leadership before this serial are over, and all of earlier ones: too many of their rows may be kept.
    pub(super) over: u64,
    /// The sessions before this serial have been over for so long that all of their rows go.
    pub(super) long_over: Option<u64>,
}

impl CallSessions {
    /// No sessions; the first will have the serial `first`.
    pub(super) fn new(
        worker: WorkerId,
        first: u64,
        kept: KeptCalls,
        faults: PlantedBugs,
    ) -> CallSessions {
        let (granted, running) = (BTreeMap::new(), BTreeSet::new());
        CallSessions { worker, first, kept, faults, granted, running }
    }

    /// Grants a session for `shard`, which this node serves in `leadership`.
    pub(super) fn grant(
        &mut self,
        now: Time,
        shard: ShardId,
        leadership: Leadership,
    ) -> CallSession {
        let (worker, first, kept) = (self.worker, self.first, self.kept);
        let new = || GrantedSessions::new(now, leadership, first, kept.rows_kept);
        let granted = self.granted.entry(shard).or_insert_with(new);
        if granted.leadership != leadership {
            *granted = new();
        }
        let serial = granted.oldest + granted.known.len() as u64;
        granted.known.push_back(KnownSession::default());
        if granted.known.len() > kept.sessions_max {
            granted.known.pop_front();
            granted.oldest += 1;
            granted.rows.ended(now, granted.oldest, kept);
        }
        let Leadership { since, incarnation } = leadership;
        CallSession { home: shard, since, incarnation: incarnation.0, worker, serial }
    }

    /// Decides how a call on a shard is handled that this node leads in `leadership`.
    pub(super) fn begin(&mut self, id: RequestId, leadership: Leadership) -> CallStart {
        let first = RequestId { number: 0, ..id };
        let last = RequestId { number: u64::MAX, ..id };
        if self.running.range(first..=last).next().is_some() {
            return CallStart::Waits;
        }
        // The last number is never executed: no greater one could mark it as executed.
        let Some(next) = id.number.checked_add(1) else { return CallStart::LookUp };
        let forgets = self.faults.has(PlantedBug::ServeForgottenSessions);
        match self.known(id.session, leadership) {
            None if !forgets => return CallStart::LookUp,
            None => {}
            Some(known) if id.number < known.next => match &known.last {
                Some(CallEnd::Failed(error)) if next == known.next => {
                    return CallStart::Failed(error.clone());
                }
                Some(CallEnd::Returned(result)) if next == known.next => {
                    return CallStart::Returned(result.clone());
                }
                Some(_) | None => return CallStart::LookUp,
            },
            Some(known) => {
                known.next = next;
                known.last = None;
            }
        }
        self.running.insert(id);
        CallStart::Runs
    }

    /// Ends a call that was executed in `leadership`.
    pub(super) fn end(&mut self, id: RequestId, leadership: Leadership, ended: CallEnd) {
        assert!(self.running.remove(&id), "{id} has ended and did not run");
        let Some(known) = self.known(id.session, leadership) else { return };
        assert!(
            known.next == id.number + 1,
            "{id} ran, and another call of its session began: {known:?}"
        );
        known.last = Some(ended);
    }

    fn known(&mut self, session: CallSession, leadership: Leadership) -> Option<&mut KnownSession> {
        let CallSession { home, since, incarnation, worker, serial } = session;
        let granted =
            self.granted.get_mut(&home).filter(|granted| granted.leadership == leadership)?;
        let of_leadership = (since, incarnation) == (leadership.since, leadership.incarnation.0)
            || self.faults.has(PlantedBug::ReuseSessionNumbers);
        let at = serial.checked_sub(granted.oldest)?;
        let at = usize::try_from(at).ok().filter(|_| of_leadership && worker == self.worker)?;
        granted.known.get_mut(at)
    }

    /// The number of known sessions, and of calls that are being executed.
    pub(super) fn sizes(&self) -> [usize; 2] {
        let known = self.granted.values().map(|granted| granted.known.len());
        [known.sum(), self.running.len()]
    }

    /// When rows are to be dropped next.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.granted.values().filter_map(|granted| granted.rows.due).min()
    }

    /// Rows that are to be dropped now, if there are any, in leaderships that last: those of others are for the successors to drop.
    /// Afterwards, [`CallSessions::dropped`] is to be called.
    pub(super) fn overdue(
        &mut self,
        now: Time,
        lasts: impl Fn(ShardId, Leadership) -> bool,
    ) -> Option<OverdueRows> {
        let kept = self.kept.rows_kept;
        for (_, granted) in
            self.granted.iter_mut().filter(|(shard, it)| !lasts(**shard, it.leadership))
        {
            granted.rows.due = None;
        }
        let is_due = |granted: &GrantedSessions| granted.rows.due.is_some_and(|due| due <= now);
        let (shard, granted) = self.granted.iter_mut().find(|(_, granted)| is_due(granted))?;
        let GrantedSessions { leadership, oldest, ref mut rows, .. } = *granted;
        rows.due = None;
        let long_over = rows.over.filter(|(at, _)| *at + kept <= now).map(|(_, over)| over);
        Some(OverdueRows { shard: *shard, leadership, over: oldest, long_over })
    }

    /// Notes that those rows were dropped, or could not be.
    pub(super) fn dropped(&mut self, now: Time, overdue: &OverdueRows, done: bool) {
        let kept = self.kept;
        let Some(granted) = self.granted.get_mut(&overdue.shard) else { return };
        if granted.leadership != overdue.leadership {
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
        rows.due = rows.over.map(|(at, _)| at + kept.rows_kept);
        if oldest > rows.dropped {
            rows.ended(now, oldest, kept);
        }
    }
}

impl GrantedSessions {
    fn new(now: Time, leadership: Leadership, first: u64, kept: Duration) -> GrantedSessions {
        // Earlier leaderships and incarnations may have left rows.
        let over = (!leadership.is_first()).then_some((now, first));
        let due = over.map(|_| now + kept.min(DROP_AGAIN));
        let rows = RowCollection { over, dropped: first, due };
        GrantedSessions { leadership, oldest: first, known: VecDeque::new(), rows }
    }
}

impl RowCollection {
    /// The sessions before `oldest` are over.
    fn ended(&mut self, now: Time, oldest: u64, kept: KeptCalls) {
        let (at, _) = *self.over.get_or_insert((now, oldest));
        let due = if oldest - self.dropped >= kept.sessions_max as u64 {
            now
        } else {
            at + kept.rows_kept
        };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }
}

#[cfg(test)]
mod tests;
