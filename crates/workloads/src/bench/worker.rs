//! One worker: a thread with a client of its own, and the loop whose speed is measured.
//!
//! In a closed loop a transaction begins when the last one ended, so one reading of the clock
//! serves both. In an open loop it begins when it is due; a worker that is late does not wait, and
//! the time it is late counts as latency.
//!
//! Invariant: only the worker writes its [`Counters`] and its [`KindTally`]s.

use super::executor::block_on;
use super::machine::ThreadTime;
use crate::tally::Padded;
use crate::workload::Workload;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use types::{Aborted, Database, Error, Result};

/// Latencies above this are recorded as this.
const LATENCY_MAX: Duration = Duration::from_secs(1000);

/// Significant digits of a latency.
const LATENCY_DIGITS: u8 = 3;

/// A worker that waits for its next transaction sleeps until this long before it is due, since
/// sleepers wake late, and spins from there.
const SPIN_BEFORE: Duration = Duration::from_micros(200);

/// What the workers are to do, set by the runner and read before every transaction.
#[derive(Debug, Default)]
pub(super) struct Gate(Padded<AtomicU8>);

/// A state of the [`Gate`], in the order in which they follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    WarmUp,
    Measure,
    Stop,
}

impl Gate {
    pub(super) fn set(&self, phase: Phase) {
        self.0.0.store(phase as u8, Ordering::Relaxed);
    }

    #[inline]
    fn phase(&self) -> Phase {
        match self.0.0.load(Ordering::Relaxed) {
            0 => Phase::WarmUp,
            1 => Phase::Measure,
            _ => Phase::Stop,
        }
    }
}

/// What the runner looks at while a worker runs: transactions committed so far, warm-up included.
pub(super) type Counters = Padded<AtomicU64>;

/// What a worker has seen of one transaction type while measuring.
#[derive(Debug, Clone)]
pub(super) struct KindTally {
    pub(super) latencies: Histogram<u64>,
    pub(super) rolled_back: u64,
    pub(super) conflicts: u64,
}

/// What a worker, or all of them, have seen while measuring.
#[derive(Debug, Clone)]
pub(super) struct WorkerTally {
    pub(super) kinds: Vec<KindTally>,
    /// Transactions given up, and the conflicts they met.
    pub(super) given_up: u64,
    pub(super) given_up_conflicts: u64,
    pub(super) overdue: u64,
    /// How the workers got processors; none where the system does not say.
    pub(super) time: Option<ThreadTime>,
}

impl WorkerTally {
    pub(super) fn new(kinds: usize) -> WorkerTally {
        let latencies = Histogram::new_with_max(nanoseconds(LATENCY_MAX), LATENCY_DIGITS)
            .expect("the bounds are in order");
        WorkerTally {
            kinds: vec![KindTally { latencies, rolled_back: 0, conflicts: 0 }; kinds],
            given_up: 0,
            given_up_conflicts: 0,
            overdue: 0,
            time: Some(ThreadTime::default()),
        }
    }

    /// Adds what another worker has seen.
    pub(super) fn add(&mut self, other: &WorkerTally) {
        for (kind, other) in self.kinds.iter_mut().zip(&other.kinds) {
            kind.latencies.add(&other.latencies).expect("all histograms have the same bounds");
            kind.rolled_back += other.rolled_back;
            kind.conflicts += other.conflicts;
        }
        self.given_up += other.given_up;
        self.given_up_conflicts += other.given_up_conflicts;
        self.overdue += other.overdue;
        self.time = self.time.zip(other.time).map(|(time, other)| ThreadTime {
            running: time.running + other.running,
            waiting: time.waiting + other.waiting,
        });
    }
}

/// When transactions begin.
#[derive(Debug)]
pub(super) enum Pace {
    /// Each when the last one has ended.
    Closed,
    /// One every `every`, the next at `due`.
    Open { due: Instant, every: Duration },
}

impl Pace {
    /// Waits until the next transaction may begin, and says since when it could have. Returns
    /// early when the gate says stop.
    #[inline]
    fn begin(&mut self, last_end: Instant, gate: &Gate) -> Instant {
        match self {
            Pace::Closed => last_end,
            Pace::Open { due, every } => {
                let begin = *due;
                *due += *every;
                wait_until(begin, last_end, gate);
                begin
            }
        }
    }

    /// How many transactions were due before `end` and did not begin.
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

/// One worker's surroundings.
pub(super) struct Worker<'a, D, W> {
    pub(super) db: &'a D,
    pub(super) workload: &'a W,
    pub(super) gate: &'a Gate,
    pub(super) counters: &'a Counters,
}

impl<D: Database, W: Workload> Worker<'_, D, W> {
    /// Runs transactions of `client` until the gate says stop, and returns what it has seen in the
    /// phase that is measured.
    ///
    /// # Errors
    /// The first one that is no abort: the workload or the database is broken.
    pub(super) fn run(&self, mut client: W::Client, mut pace: Pace) -> Result<WorkerTally> {
        let mut tally = WorkerTally::new(self.workload.kinds().len());
        let (mut last_end, mut last_phase) = (Instant::now(), Phase::WarmUp);
        let mut time_before = None;
        loop {
            let begin = pace.begin(last_end, self.gate);
            let phase = self.gate.phase();
            if phase != last_phase {
                let time = ThreadTime::read();
                if phase == Phase::Stop {
                    tally.overdue = pace.overdue(Instant::now());
                    tally.time = time.zip(time_before).map(|(time, before)| time.since(before));
                    return Ok(tally);
                }
                (last_phase, time_before) = (phase, time);
            }
            let outcome = block_on(self.workload.next(self.db, &mut client));
            let end = Instant::now();
            last_end = end;
            if phase == Phase::Measure {
                tally.record(&outcome, end.saturating_duration_since(begin));
            }
            match outcome {
                Ok(done) if !done.rolled_back => {
                    let count = self.counters.0.load(Ordering::Relaxed);
                    self.counters.0.store(count + 1, Ordering::Relaxed);
                }
                Ok(_) | Err(Error::Aborted(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl WorkerTally {
    #[inline]
    fn record(&mut self, outcome: &Result<crate::workload::Done>, latency: Duration) {
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
                    | Aborted::RolledBack { .. }
                    | Aborted::Unanswered(_) => 0,
                };
            }
            // Ends the worker.
            Err(_) => {}
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
        assert_eq!(pace.begin(late, &gate), start);
        assert_eq!(pace.begin(late, &gate), start + every);
        assert_eq!(pace.overdue(late), 8);
        gate.set(Phase::Stop);
        wait_until(Instant::now() + Duration::from_secs(3600), Instant::now(), &gate);
    }

    #[test]
    fn tallies_add_up() {
        let done =
            |kind, retries, rolled_back| Ok(crate::workload::Done { kind, retries, rolled_back });
        let mut one = WorkerTally::new(2);
        one.record(&done(0, 0, false), Duration::from_micros(5));
        one.record(&done(1, 3, true), Duration::from_secs(5000));
        let mut both = one.clone();
        both.add(&one);
        assert_eq!(both.kinds[0].latencies.len(), 2);
        assert_eq!((both.kinds[1].conflicts, both.kinds[1].rolled_back), (6, 2));
        assert!(both.kinds[1].latencies.max() >= nanoseconds(LATENCY_MAX));
    }
}
