//! Seeds, one after another, on all threads.
//!
//! A run lives on one thread from beginning to end; threads share nothing but the number of the next
//! seed. After a failure no later seed is begun, but those before it are ended: the first seed that
//! fails is the same with any number of threads.

use crate::clock::now;
use shoal_sim::coverage::Coverage;
use shoal_sim::metrics::Metrics;
use shoal_sim::{RunOptions, RunReport, Runner};
use shoal_workloads::bench::machine::ThreadTime;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// What to run; see the module.
pub struct SeedSearch {
    /// Runs a seed.
    pub run: Runner,
    /// How each seed is run.
    pub orders: RunOptions,
    /// The first seed; the others follow it.
    pub first: u64,
    /// How many seeds are run.
    pub count: u64,
    /// No seed is begun after so long.
    pub time: Option<Duration>,
    /// The first seed and each n-th after it run twice; 0 for none.
    pub twice_every: u64,
    /// Threads that run seeds at the same time.
    pub jobs: usize,
    /// Go on after a failure.
    pub keep_going: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct SearchTally {
    /// Seeds that were run.
    pub seeds: u64,
    /// Of those, run twice.
    pub twice: u64,
    /// Of those, broke a rule.
    pub failures: u64,
    /// The first of them: which in order it was, its seed, and the rule.
    pub first_failure: Option<(u64, u64, &'static str)>,
    /// All counts together.
    pub metrics: Metrics,
    /// All coverage points together.
    pub coverage: Coverage,
    /// Messages that arrived, with those of second runs.
    pub arrivals: u64,
    /// Time that passed.
    pub elapsed: Duration,
    /// Time that threads had a processor, all together.
    pub worked: Duration,
    /// The seed that took longest.
    pub slowest: Option<(Duration, u64)>,
}

/// A seed that was run.
struct Ran {
    number: u64,
    twice: bool,
    took: Duration,
    report: RunReport,
}

/// A first seed that was not run yet, most likely.
#[expect(clippy::disallowed_methods, reason = "the one choice that no seed makes; it is printed")]
pub fn somewhere() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    shoal_types::Random::new(since.map_or(0, |since| since.as_nanos() as u64)).below(1 << 40)
}

impl SeedSearch {
    /// Runs the seeds. `see` is called for each that ends, and with those that failed.
    pub fn run(&self, see: &mut dyn FnMut(&SearchTally, Option<&RunReport>)) -> SearchTally {
        let began = now();
        let (next, end) = (AtomicU64::new(0), AtomicU64::new(self.count));
        let mut tally = SearchTally::default();
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..self.jobs {
                let (sender, next, end) = (sender.clone(), &next, &end);
                scope.spawn(move || {
                    while let Some(ran) = self.take(began, next, end) {
                        // The counter is shared and outlives the search threads.
                        _ = sender.send(ran);
                    }
                });
            }
            drop(sender);
            for ran in receiver {
                tally.add(&ran, now() - began);
                see(&tally, ran.report.failure.is_some().then_some(&ran.report));
            }
        });
        tally
    }

    /// Runs the next seed, if there is to be one.
    fn take(&self, began: Instant, next: &AtomicU64, end: &AtomicU64) -> Option<Ran> {
        let (began_seed, had) = (now(), ThreadTime::read());
        if self.time.is_some_and(|time| began_seed - began >= time) {
            return None;
        }
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= end.load(Ordering::Relaxed) {
            return None;
        }
        let twice = self.twice_every > 0 && number.is_multiple_of(self.twice_every);
        let report = (self.run)(self.first + number, RunOptions { twice, ..self.orders });
        if report.failure.is_some() && !self.keep_going {
            end.fetch_min(number, Ordering::Relaxed);
        }
        // Others may use this machine, too; where that is not known, all time counts.
        let used = ThreadTime::read().zip(had).map(|(has, had)| has.since(had).running);
        let took = used.unwrap_or_else(|| now() - began_seed);
        Some(Ran { number, twice, took, report })
    }
}

impl SearchTally {
    fn add(&mut self, ran: &Ran, elapsed: Duration) {
        let Ran { number, twice, took, report } = ran;
        self.seeds += 1;
        self.twice += u64::from(*twice);
        self.metrics += &report.metrics;
        self.coverage += report.coverage;
        let work = report.metrics.work;
        self.arrivals += (work.delivered + work.requests + work.replies) * (1 + u64::from(*twice));
        self.elapsed = elapsed;
        self.worked += *took;
        self.slowest = self.slowest.max(Some((*took, report.seed)));
        if let Some(failure) = &report.failure {
            self.failures += 1;
            let failed = (*number, report.seed, failure.violation.rule);
            self.first_failure = Some(self.first_failure.map_or(failed, |first| first.min(failed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_sim::digest::Digest;
    use shoal_sim::{RunFailure, Violation};
    use shoal_types::Time;

    /// A run in no time, of which every thirteenth fails.
    fn quick(seed: u64, orders: RunOptions) -> RunReport {
        let violation = || Violation::new("thirteen", Time::ZERO, "it is divided by 13");
        let mut metrics = Metrics::default();
        metrics.work.delivered = 10;
        RunReport {
            seed,
            scenario: format!("{orders:?}"),
            metrics,
            coverage: Coverage::default(),
            digest: Digest::new(),
            failure: seed
                .is_multiple_of(13)
                .then(|| RunFailure { violation: violation(), trace: Vec::new() }),
        }
    }

    fn search(jobs: usize, keep_going: bool) -> SeedSearch {
        let orders = RunOptions::default();
        SeedSearch {
            run: quick,
            orders,
            first: 1,
            count: 100,
            time: None,
            twice_every: 10,
            jobs,
            keep_going,
        }
    }

    #[test]
    fn the_first_failure_is_the_same_on_any_number_of_threads() {
        for jobs in [1, 2, 8] {
            let tally = search(jobs, false).run(&mut |_, _| {});
            assert_eq!(tally.first_failure, Some((12, 13, "thirteen")));
            assert!(tally.seeds >= 13);
        }
    }

    #[test]
    fn all_seeds_are_run_and_some_twice() {
        let mut seen = 0;
        let tally = search(3, true).run(&mut |_, failed| seen += u64::from(failed.is_some()));
        assert_eq!((tally.seeds, tally.twice, tally.failures, seen), (100, 10, 7, 7));
        assert_eq!(tally.arrivals, 1100);
        assert_eq!(tally.metrics.work.delivered, 1000);
    }

    #[test]
    fn time_ends_a_search() {
        let search = SeedSearch { time: Some(Duration::ZERO), ..search(2, true) };
        assert_eq!(search.run(&mut |_, _| {}).seeds, 0);
    }
}
