//! One worker: a client, and the loop whose speed is measured.
//!
//! In a closed loop a transaction begins when the last one ended, so one reading of the clock
//! serves both. In an open loop it begins when it is due; a worker that is late does not wait, and
//! the time it is late counts as latency.
//!
//! Invariant: only the worker writes its [`BenchCounters`], and only those of its thread group, which are all on one
//! thread, its [`KindTally`]s.

use super::gate::{Gate, Gated, Phase, is_over};
use super::machine::ThreadTime;
use super::place::Work;
use super::schedule::Schedule;
use crate::tally::Padded;
use crate::workload::Workload;
use hdrhistogram::Histogram;
use shoal_types::{Aborted, Database, Error, Result};
use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Latencies above this are recorded as this.
const LATENCY_MAX: Duration = Duration::from_secs(1000);

/// Significant digits of a latency.
const LATENCY_DIGITS: u8 = 3;

/// A worker that waits for its next transaction sleeps until this long before it is due, since
/// sleepers wake late, and spins from there.
const SPIN_BEFORE: Duration = Duration::from_micros(200);

/// What the runner looks at while a worker runs.
pub(super) type BenchCounters = Padded<BenchCounter>;

/// What a worker has committed so far, warm-up included. Only the worker writes it.
#[derive(Debug, Default)]
pub(super) struct BenchCounter {
    /// How many transactions.
    pub(super) committed: AtomicU64,
    /// The sum of their latencies, modulo 2^64.
    pub(super) latency_ns: AtomicU64,
}

impl BenchCounter {
    #[inline]
    fn count(&self, latency: Duration) {
        let add = |sum: &AtomicU64, more: u64| {
            sum.store(sum.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.committed, 1);
        add(&self.latency_ns, nanoseconds(latency));
    }
}

/// What a worker has seen of one transaction type while measuring.
#[derive(Debug, Clone)]
pub(super) struct KindTally {
    pub(super) latencies: Histogram<u64>,
    pub(super) rolled_back: u64,
    pub(super) conflicts: u64,
    /// How long the threads had a processor that have run no transaction of another type; none if there is no such thread.
    pub(super) running: Option<Duration>,
}

/// The tally of a thread group, or of all thread groups, of the measured phase.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerTally {
    pub(super) kinds: Vec<KindTally>,
    /// Transactions given up, and the conflicts they met.
    pub(super) given_up: u64,
    pub(super) given_up_conflicts: u64,
    /// Transactions that were under way when time was up, and not tried again, and the conflicts they had met.
    pub(super) cut: u64,
    pub(super) cut_conflicts: u64,
    pub(super) unknown: u64,
    pub(super) overdue: u64,
    /// How the threads got processors; none where the system does not report it.
    pub(super) time: Option<ThreadTime>,
}

impl WorkerTally {
    pub(super) fn new(kinds: usize) -> WorkerTally {
        let latencies = Histogram::new_with_max(nanoseconds(LATENCY_MAX), LATENCY_DIGITS)
            .expect("the bounds are in order");
        WorkerTally {
            kinds: vec![
                KindTally { latencies, rolled_back: 0, conflicts: 0, running: None };
                kinds
            ],
            given_up: 0,
            given_up_conflicts: 0,
            cut: 0,
            cut_conflicts: 0,
            unknown: 0,
            overdue: 0,
            time: None,
        }
    }

    /// Of the tally of one thread: if all its transactions were of one type, the time of the thread is that type's.
    pub(super) fn attribute_time(&mut self) {
        let mut seen = self.kinds.iter_mut().filter(|kind| !kind.latencies.is_empty());
        if let (Some(kind), None) = (seen.next(), seen.next()) {
            kind.running = self.time.map(|time| time.running);
        }
    }

    /// Adds what another thread group has seen.
    pub(super) fn add(&mut self, other: &WorkerTally) {
        for (kind, other) in self.kinds.iter_mut().zip(&other.kinds) {
            kind.latencies.add(&other.latencies).expect("all histograms have the same bounds");
            kind.rolled_back += other.rolled_back;
            kind.conflicts += other.conflicts;
            kind.running = match (kind.running, other.running) {
                (Some(running), Some(other)) => Some(running + other),
                (running, other) => running.or(other),
            };
        }
        self.given_up += other.given_up;
        self.given_up_conflicts += other.given_up_conflicts;
        self.cut += other.cut;
        self.cut_conflicts += other.cut_conflicts;
        self.unknown += other.unknown;
        self.overdue += other.overdue;
        self.time = self.time.zip(other.time).map(|(time, other)| ThreadTime {
            running: time.running + other.running,
            waiting: time.waiting + other.waiting,
        });
    }
}

/// When a client begins its next transaction.
#[derive(Debug)]
pub(super) enum Pace {
    /// Each when the last one has ended.
    Closed,
    /// One transaction every `every`, the next at `due`.
    Open { due: Instant, every: Duration },
}

impl Pace {
    /// When the next transaction begins, after one that ended at `last_end`: in the past, where it is late.
    #[inline]
    fn next(&mut self, last_end: Instant) -> Instant {
        match self {
            Pace::Closed => last_end,
            Pace::Open { due, every } => {
                let begin = *due;
                *due += *every;
                begin
            }
        }
    }

    /// The number of transactions that were due before `end` and did not begin.
    fn overdue(&self, end: Instant) -> u64 {
        match self {
            Pace::Closed => 0,
            Pace::Open { due, every } => {
                let late = end.saturating_duration_since(*due);
                (late.as_nanos() / every.as_nanos().max(1)) as u64
            }
        }
    }
}

fn wait_until(due: Instant, mut now: Instant, gate: &Gate) {
    while now < due && gate.phase() != Phase::Stop {
        match (due - now).checked_sub(SPIN_BEFORE) {
            // In short naps, to notice the end.
            Some(rest) => std::thread::sleep(rest.min(Duration::from_millis(20))),
            None => std::hint::spin_loop(),
        }
        now = Instant::now();
    }
}

/// The state that all workers of a run share.
pub(super) struct WorkersShared<W> {
    pub(super) workload: Arc<W>,
    pub(super) gate: Arc<Gate>,
    /// When clients that share a thread begin their next transactions.
    pub(super) schedule: Schedule,
    /// The counters of each worker.
    pub(super) counters: Vec<BenchCounters>,
    /// The tally of each thread group: the workers of one thread.
    pub(super) tallies: Vec<Mutex<WorkerTally>>,
}

impl<W> WorkersShared<W> {
    pub(super) fn tally(&self, thread_group: usize) -> MutexGuard<'_, WorkerTally> {
        // Of a worker that has panicked nothing is asked any more.
        self.tallies[thread_group].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client of a benchmark, on a thread.
pub(super) struct Worker<W: Workload> {
    pub(super) shared: Arc<WorkersShared<W>>,
    pub(super) number: usize,
    pub(super) client: W::Client,
    pub(super) pace: Pace,
    /// The index of its thread group's tally.
    pub(super) thread_group: usize,
    /// Whether it is the only worker of its thread.
    pub(super) alone: bool,
    /// Whether it is the one of its thread that reports how the thread got processors.
    pub(super) first: bool,
    /// Where it reports how it ended.
    pub(super) ended: Sender<Result<()>>,
}

impl<W: Workload + 'static> Work for Worker<W> {
    async fn run<D: Database>(mut self, db: D) {
        let db = Gated::new(db, Arc::clone(&self.shared.gate));
        let ended = self.work(&db).await;
        // Without a runner it is not needed.
        let _ = self.ended.send(ended);
    }
}

impl<W: Workload> Worker<W> {
    /// Runs transactions until the gate stops it, and tallies those in the phase that is measured.
    ///
    /// # Errors
    /// The first one that is no abort: the workload or the database is broken.
    async fn work<D: Database>(&mut self, db: &Gated<D>) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut own = self.alone.then(|| mem::take(&mut *shared.tally(self.thread_group)));
        let result = self.run_transactions(db, &shared, &mut own).await;
        if let Some(own) = own {
            *shared.tally(self.thread_group) = own;
        }
        result
    }

    async fn run_transactions<D: Database>(
        &mut self,
        db: &Gated<D>,
        shared: &WorkersShared<W>,
        own: &mut Option<WorkerTally>,
    ) -> Result<()> {
        let (gate, counter) = (&shared.gate, &shared.counters[self.number].0);
        let (mut last_end, mut last_phase) = (Instant::now(), Phase::WarmUp);
        let mut time_before = None;
        loop {
            let begin = self.pace.next(last_end);
            if begin > last_end {
                match self.alone {
                    true => wait_until(begin, last_end, gate),
                    false => shared.schedule.wait(begin).await,
                }
            }
            let phase = gate.phase();
            if phase != last_phase {
                let time = if self.first { ThreadTime::read() } else { None };
                if phase == Phase::Stop {
                    let time = time.zip(time_before).map(|(time, before)| time.since(before));
                    let overdue = self.pace.overdue(Instant::now());
                    self.note(shared, own, |tally| tally.end(overdue, time));
                    return Ok(());
                }
                (last_phase, time_before) = (phase, time);
            }
            let outcome = shared.workload.next(db, &mut self.client).await;
            let end = Instant::now();
            last_end = end;
            let latency = end.saturating_duration_since(begin);
            if phase == Phase::Measure {
                self.note(shared, own, |tally| tally.record(&outcome, latency, db.runs()));
            }
            match outcome {
                Ok(done) if !done.rolled_back => counter.count(latency),
                // Leaders may fail meanwhile, and with them what they were asked.
                Ok(_) | Err(Error::Aborted(_) | Error::Unknown(_)) => {}
                Err(error) if is_over(&error) => {}
                Err(error @ Error::Rejected(_)) => return Err(error),
            }
            if !self.alone {
                let_others().await;
            }
        }
    }

    #[inline]
    fn note(
        &self,
        shared: &WorkersShared<W>,
        own: &mut Option<WorkerTally>,
        note: impl FnOnce(&mut WorkerTally),
    ) {
        match own {
            Some(tally) => note(tally),
            None => note(&mut shared.tally(self.thread_group)),
        }
    }
}

/// Lets others run that share the thread: not every transaction has to wait for something.
async fn let_others() {
    let mut have_they = false;
    poll_fn(|context| {
        if mem::replace(&mut have_they, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl WorkerTally {
    /// Adds what a worker reports at its end: how many transactions were overdue, and the time of its thread.
    fn end(&mut self, overdue: u64, time: Option<ThreadTime>) {
        self.overdue += overdue;
        self.time = self.time.or(time);
    }

    #[inline]
    fn record(&mut self, outcome: &Result<crate::workload::Done>, latency: Duration, runs: u64) {
        match outcome {
            Ok(done) => {
                let kind = &mut self.kinds[done.kind];
                kind.latencies.saturating_record(nanoseconds(latency));
                kind.rolled_back += u64::from(done.rolled_back);
                kind.conflicts += u64::from(done.retries);
            }
            Err(Error::Aborted(aborted)) => {
                self.given_up += 1;
                self.given_up_conflicts += match aborted {
                    Aborted::Conflict(_) => 1,
                    Aborted::RetriesExhausted { attempts, .. } => u64::from(*attempts),
                    Aborted::Overloaded { .. }
                    | Aborted::Idle { .. }
                    | Aborted::OpenTooLong { .. }
                    | Aborted::UnknownSession { .. }
                    | Aborted::NotServing { .. }
                    | Aborted::Moved { .. }
                    | Aborted::ShardOut { .. }
                    | Aborted::RolledBack { .. }
                    | Aborted::CallSessionOver { .. }
                    | Aborted::Unanswered(_) => 0,
                };
            }
            Err(Error::Unknown(_)) => self.unknown += 1,
            Err(error) if is_over(error) => {
                self.cut += 1;
                self.cut_conflicts += runs;
            }
            // Ends the worker.
            Err(Error::Rejected(_)) => {}
        }
    }
}

#[inline]
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_keeps_its_schedule_when_late() {
        let (start, every) = (Instant::now(), Duration::from_millis(1));
        let mut pace = Pace::Open { due: start, every };
        let gate = Gate::default();
        let late = start + 10 * every;
        assert_eq!(pace.next(late), start);
        assert_eq!(pace.next(late), start + every);
        assert_eq!(pace.overdue(late), 8);
        gate.set(Phase::Stop);
        wait_until(Instant::now() + Duration::from_secs(3600), Instant::now(), &gate);
    }

    #[test]
    fn tallies_add_up() {
        let done =
            |kind, retries, rolled_back| Ok(crate::workload::Done { kind, retries, rolled_back });
        let mut one = WorkerTally::new(2);
        one.record(&done(0, 0, false), Duration::from_micros(5), 1);
        one.record(&done(1, 3, true), Duration::from_secs(5000), 4);
        let unknown = shoal_types::Unknown::Session { session: 1 };
        one.record(&Err(unknown.into()), Duration::from_micros(5), 1);
        let mut both = one.clone();
        both.add(&one);
        assert_eq!((both.kinds[0].latencies.len(), both.unknown), (2, 2));
        assert_eq!((both.kinds[1].conflicts, both.kinds[1].rolled_back), (6, 2));
        assert!(both.kinds[1].latencies.max() >= nanoseconds(LATENCY_MAX));
    }

    #[test]
    fn the_time_of_a_thread_is_that_of_the_only_type_that_it_ran() {
        let running = Duration::from_millis(3);
        let of = |kinds: &[usize]| {
            let mut tally = WorkerTally::new(2);
            tally.time = Some(ThreadTime { running, waiting: Duration::ZERO });
            for kind in kinds {
                let done = crate::workload::Done { kind: *kind, retries: 0, rolled_back: false };
                tally.record(&Ok(done), Duration::from_micros(5), 1);
            }
            tally.attribute_time();
            tally
        };
        let mut sum = of(&[1, 1]);
        [of(&[0, 1]), of(&[1]), of(&[])].iter().for_each(|tally| sum.add(tally));
        assert_eq!((sum.kinds[0].running, sum.kinds[1].running), (None, Some(2 * running)));
    }
}
