//! A run: load, warm up, measure, check; and several runs alike, each on a database of its own.
//!
//! ```text
//! calling thread:  wait  | warm up … | sample throughput every 100 ms … | merge | check
//! loaders:         load … |
//! clients:                | transactions, back to back or at a fixed rate | tallies
//! ```
//!
//! The calling thread sets the `Gate`; workers read it before each transaction, so a measurement
//! is off by at most one transaction a worker at either end.

use super::executor::block_on;
use super::gate::{Gate, Phase};
use super::loader::{Loaded, Loader};
use super::machine::{self, Machine};
use super::measurement::{
    self, Interval, Kind, Latency, LatencyFrom, Load, Measurement, Parameter, RegionResult, Run,
    Summary, Throughput,
};
use super::place::{BenchPlace, BenchRole};
use super::processor_time::{ProcessorTime, ThreadTimes};
use super::schedule::Schedule;
use super::stages::stages;
use super::worker::{BenchCounters, Pace, Worker, WorkerTally, WorkersShared};
use crate::workload::Workload;
use shoal_types::{Counted, Database as _, Error, Result};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use super::measurement::Build;

/// The settings of a benchmark.
#[derive(Debug, Clone)]
pub struct BenchSettings {
    /// Clients, each with one transaction at a time; at least 1.
    pub workers: usize,
    /// Time before the measurement, in which caches, allocator and branch predictors settle.
    pub warm_up: Duration,
    /// Time of the measurement; above 0.
    pub duration: Duration,
    /// Transactions a second over all workers, begun on schedule (open loop); without one, each
    /// worker begins the next when the last has ended (closed loop). Above 0.
    pub rate_per_s: Option<f64>,
    /// The seed of all random draws.
    pub seed: u64,
    /// The number of runs, each on a fresh database; at least 1.
    pub runs: usize,
    /// Whether to check the data after each run.
    pub check: bool,
    /// Memory that each database took before its run; stated with the result.
    pub reserved_bytes: u64,
}

/// The progress of a benchmark.
#[derive(Debug, Clone, Copy)]
pub struct BenchProgress {
    /// Which of the runs it is, from 0.
    pub run: usize,
    /// The stage that is running.
    pub stage: Stage,
    /// Rows loaded, or milliseconds passed.
    pub done: u64,
    /// What `done` is at the end of the stage: all rows, or the milliseconds that it takes.
    pub of: u64,
    /// Rows or committed transactions a second, lately.
    pub per_s: f64,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The database is made, and takes the memory it shall have.
    Preparing,
    /// The initial data goes in.
    Loading,
    /// Transactions run and do not count, until caches are warm.
    WarmingUp,
    /// Transactions run and count.
    Measuring,
    /// The workload's conditions are checked on the data as it is left.
    Checking,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[error("while {stage}: {error}")]
pub struct Failure {
    /// The stage that failed, in words.
    pub stage: &'static str,
    /// The error of the database.
    pub error: Error,
}

impl Failure {
    fn while_(stage: &'static str) -> impl FnOnce(Error) -> Failure {
        move |error| Failure { stage, error }
    }
}

/// The interval at which throughput is sampled and progress reported.
const INTERVAL: Duration = Duration::from_millis(100);

/// Runs the workload that `make` sets up, on the database that it makes for each run, with clients at the
/// place that it makes.
///
/// # Errors
/// Where the database refuses what the workload asks. Checks that fail are no error but part of
/// the measurement.
///
/// # Panics
/// If a setting is out of its range.
pub fn run<P: BenchPlace, W: Workload + 'static>(
    settings: &BenchSettings,
    build: Build,
    mut make: impl FnMut() -> Result<(P, Arc<W>)>,
    progress: &mut dyn FnMut(BenchProgress),
) -> std::result::Result<Measurement, Failure> {
    assert!(settings.workers > 0 && settings.runs > 0, "nothing to run: {settings:?}");
    assert!(settings.duration > Duration::ZERO, "no time to measure: {settings:?}");
    assert!(settings.rate_per_s.is_none_or(|rate| rate > 0.0), "no rate: {settings:?}");
    let started_at = utc(SystemTime::now());
    let mut workload_facts = None;
    let mut runs = Vec::new();
    for number in 0..settings.runs {
        let stage = Stage::Preparing;
        progress(BenchProgress { run: number, stage, done: 0, of: 1, per_s: 0.0 });
        let (place, workload) = make().map_err(Failure::while_("making the tables"))?;
        workload_facts.get_or_insert_with(|| (workload.name(), workload.parameters()));
        let stage = RunStage {
            settings,
            place: &place,
            workload: &workload,
            seed: settings.seed.wrapping_add(number as u64),
        };
        runs.push(stage.run(&mut |state| progress(BenchProgress { run: number, ..state }))?);
    }
    let (workload, parameters) = workload_facts.expect("there was a run");
    Ok(Measurement {
        format: measurement::FORMAT,
        started_at,
        build,
        machine: Machine::read(),
        workload,
        parameters: parameters.into_iter().map(|(name, value)| Parameter { name, value }).collect(),
        load: settings.facts(),
        summary: Summary::of(&runs),
        runs,
    })
}

impl BenchSettings {
    fn facts(&self) -> Load {
        Load {
            workers: self.workers,
            warm_up_s: self.warm_up.as_secs_f64(),
            duration_s: self.duration.as_secs_f64(),
            rate_per_s: self.rate_per_s,
            latency_from: match self.rate_per_s {
                Some(_) => LatencyFrom::Schedule,
                None => LatencyFrom::Start,
            },
            seed: self.seed,
            runs: self.runs,
            reserved_bytes: self.reserved_bytes,
        }
    }

    /// When worker `number` begins its transactions. The workers take turns.
    fn pace(&self, number: usize, start: Instant) -> Pace {
        match self.rate_per_s {
            None => Pace::Closed,
            Some(rate) => {
                let turn = Duration::from_secs_f64((1.0 / rate).min(3600.0));
                Pace::Open {
                    due: start + turn * number as u32,
                    every: Duration::from_secs_f64((self.workers as f64 / rate).min(3600.0)),
                }
            }
        }
    }
}

/// The state of one run.
struct RunStage<'a, P, W> {
    settings: &'a BenchSettings,
    place: &'a P,
    workload: &'a Arc<W>,
    seed: u64,
}

/// The result of the measured phase.
struct Measured {
    tally: WorkerTally,
    regions: Vec<RegionResult>,
    seconds: f64,
    timeline: Vec<Interval>,
    processor_times: Vec<ProcessorTime>,
    counted: Counted,
}

impl<P: BenchPlace, W: Workload + 'static> RunStage<'_, P, W> {
    fn run(&self, progress: &mut dyn FnMut(BenchProgress)) -> std::result::Result<Run, Failure> {
        let begun = Instant::now();
        let loaded_rows = self.load(progress).map_err(Failure::while_("loading"))?;
        let load_s = begun.elapsed().as_secs_f64();
        let loaded_bytes = self.place.database().memory_bytes().map(|bytes| bytes as u64);
        let measured = self.measure(progress).map_err(Failure::while_("running"))?;
        let checks = if self.settings.check {
            let rows = self.workload.rows();
            let stage = Stage::Checking;
            progress(BenchProgress { run: 0, stage, done: 0, of: rows, per_s: 0.0 });
            block_on(self.workload.check(self.place.database()))
                .map_err(Failure::while_("checking"))?
        } else {
            Vec::new()
        };
        let kinds = self.kinds(&measured.tally);
        let committed = kinds.iter().map(|kind| kind.committed).sum();
        Ok(Run {
            seed: self.seed,
            loaded_rows,
            load_s,
            loaded_bytes,
            peak_resident_bytes: machine::peak_resident_bytes(),
            measured_s: measured.seconds,
            committed,
            rolled_back: kinds.iter().map(|kind| kind.rolled_back).sum(),
            conflicts: kinds.iter().map(|kind| kind.conflicts).sum::<u64>()
                + measured.tally.given_up_conflicts
                + measured.tally.cut_conflicts,
            given_up: measured.tally.given_up,
            cut: measured.tally.cut,
            unknown: measured.tally.unknown,
            overdue: measured.tally.overdue,
            running_s: measured.tally.time.map(|time| time.running.as_secs_f64()),
            waiting_s: measured.tally.time.map(|time| time.waiting.as_secs_f64()),
            processor_times: measured.processor_times,
            stages: stages(&measured.counted),
            counted: measured.counted.counts,
            throughput: Throughput::new(committed, measured.seconds, &measured.timeline),
            kinds,
            regions: measured.regions,
            timeline: measured.timeline,
            checks: checks.into_iter().map(Into::into).collect(),
        })
    }

    fn kinds(&self, tally: &WorkerTally) -> Vec<Kind> {
        let names = self.workload.kinds();
        names
            .iter()
            .zip(&tally.kinds)
            .map(|(name, kind)| Kind {
                name,
                committed: kind.latencies.len() - kind.rolled_back,
                rolled_back: kind.rolled_back,
                conflicts: kind.conflicts,
                running_s: kind.running.map(|running| running.as_secs_f64()),
                latency: Latency::of(&kind.latencies),
                curve: measurement::curve(&kind.latencies),
            })
            .collect()
    }

    /// Loads the parts side by side and returns how many rows they had.
    fn load(&self, progress: &mut dyn FnMut(BenchProgress)) -> Result<u64> {
        let shares = self.place.shares(self.workload.load_parts(), self.settings.workers);
        let loaders = shares.len();
        let loaded = Arc::new(Loaded::default());
        let (ended, receiver) = channel();
        for (number, parts) in shares.into_iter().enumerate() {
            let loader = Loader {
                workload: Arc::clone(self.workload),
                seed: self.seed,
                parts,
                loaded: Arc::clone(&loaded),
                ended: ended.clone(),
            };
            self.place.spawn(BenchRole::Loader(number), loader);
        }
        drop(ended);
        let begun = Instant::now();
        let (mut done, mut result) = (0, Ok(()));
        loop {
            match receiver.recv_timeout(INTERVAL) {
                Ok(ended) => {
                    result = result.and(ended);
                    done += 1;
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let done = loaded.rows.load(Ordering::Relaxed);
                    let per_s = done as f64 / begun.elapsed().as_secs_f64();
                    let (stage, of) = (Stage::Loading, self.workload.rows());
                    progress(BenchProgress { run: 0, stage, done, of, per_s });
                }
            }
        }
        result?;
        assert_eq!(done, loaders, "a loader is gone: its thread has panicked");
        Ok(loaded.rows.load(Ordering::Relaxed))
    }

    /// Runs the clients through warm-up and measurement.
    fn measure(&self, progress: &mut dyn FnMut(BenchProgress)) -> Result<Measured> {
        let clients = 0..self.settings.workers;
        let thread_group = |client| self.place.thread_group(client).unwrap_or(client);
        let thread_groups = clients.clone().map(thread_group).max().map_or(0, |last| last + 1);
        let tally = || WorkerTally::new(self.workload.kinds().len());
        let shared = Arc::new(WorkersShared {
            workload: Arc::clone(self.workload),
            gate: Arc::new(Gate::default()),
            schedule: Schedule::default(),
            counters: clients.clone().map(|_| BenchCounters::default()).collect(),
            tallies: (0..thread_groups).map(|_| Mutex::new(tally())).collect(),
        });
        if self.settings.rate_per_s.is_some() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.schedule.run());
        }
        let (ended, receiver) = channel();
        let start = Instant::now();
        let mut has_first = vec![false; thread_groups];
        for number in clients {
            let thread_group = thread_group(number);
            let worker = Worker {
                shared: Arc::clone(&shared),
                number,
                client: self.workload.client(number, self.seed),
                pace: self.settings.pace(number, start),
                thread_group,
                alone: self.place.thread_group(number).is_none(),
                first: !std::mem::replace(&mut has_first[thread_group], true),
                ended: ended.clone(),
            };
            self.place.spawn(BenchRole::Client(number), worker);
        }
        drop(ended);
        let (counted, regions) = (&|| self.place.database().counted(), self.place.regions());
        Watch { shared: &shared, receiver, ended: 0, counted, regions, progress }.run(self.settings)
    }
}

/// The calling thread while clients run.
struct Watch<'a, W> {
    shared: &'a WorkersShared<W>,
    receiver: Receiver<Result<()>>,
    /// How many workers have ended.
    ended: usize,
    counted: &'a dyn Fn() -> Counted,
    /// Where the thread groups are, in turn.
    regions: &'a [String],
    progress: &'a mut dyn FnMut(BenchProgress),
}

impl<W> Watch<'_, W> {
    fn run(mut self, settings: &BenchSettings) -> Result<Measured> {
        let warm_up = self.watch(Stage::WarmingUp, settings.warm_up);
        let before = (self.counted)();
        let times_before = ThreadTimes::read();
        let begun = Instant::now();
        let measured = warm_up.and_then(|_| {
            self.shared.gate.set(Phase::Measure);
            self.watch(Stage::Measuring, settings.duration)
        });
        self.shared.gate.set(Phase::Stop);
        self.shared.schedule.end();
        let seconds = begun.elapsed().as_secs_f64();
        let processor_times = ThreadTimes::read().since(&times_before);
        let counted = (self.counted)().since(&before);
        for ended in &self.receiver {
            ended?;
            self.ended += 1;
        }
        let timeline = measured?;
        assert_eq!(self.ended, settings.workers, "a client is gone: its thread has panicked");
        let thread_groups = 0..self.shared.tallies.len();
        let tallies = thread_groups.map(|thread_group| {
            let mut tally = std::mem::take(&mut *self.shared.tally(thread_group));
            tally.attribute_time();
            tally
        });
        let tallies: Vec<WorkerTally> = tallies.collect();
        let regions = self.of_regions(&tallies);
        let tally = sum_of(tallies.iter()).expect("there is a client");
        Ok(Measured { tally, regions, seconds, timeline, processor_times, counted })
    }

    /// What the clients of each region have seen, of these thread groups.
    fn of_regions(&self, tallies: &[WorkerTally]) -> Vec<RegionResult> {
        let regions = self.regions.iter().enumerate();
        let result = |(at, name): (usize, &String)| {
            let tally = sum_of(tallies.iter().skip(at).step_by(self.regions.len()));
            let kinds = tally.map(|tally| tally.kinds).unwrap_or_default();
            let rolled_back: u64 = kinds.iter().map(|kind| kind.rolled_back).sum();
            let latencies = kinds.into_iter().map(|kind| kind.latencies).reduce(|mut all, more| {
                all.add(more).expect("all histograms have the same bounds");
                all
            });
            RegionResult {
                name: name.clone(),
                committed: latencies.as_ref().map_or(0, |all| all.len() - rolled_back),
                latency: latencies.as_ref().and_then(Latency::of),
            }
        };
        regions.map(result).collect()
    }

    /// Samples throughput for `duration`. A worker ends early only with an error.
    fn watch(&mut self, stage: Stage, duration: Duration) -> Result<Vec<Interval>> {
        let mut timeline = Vec::new();
        let begun = Instant::now();
        let (mut last, mut last_count) = (begun, self.committed());
        let mut last_latency_ns = self.latency_ns();
        while begun.elapsed() < duration {
            // The last interval takes in a remainder that would be too short to be meaningful.
            let left = duration.saturating_sub(last.saturating_duration_since(begun));
            let interval = if left < INTERVAL * 3 / 2 { left } else { INTERVAL };
            let wait = (last + interval).saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(wait) {
                Ok(ended) => {
                    ended?;
                    self.ended += 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Every client has panicked.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let (now, count, latency_ns) = (Instant::now(), self.committed(), self.latency_ns());
            let news = count - last_count;
            let per_s = news as f64 / (now - last).as_secs_f64();
            let end = now - begun;
            timeline.push(Interval {
                end_s: end.as_secs_f64(),
                committed_per_s: per_s,
                mean_latency_ns: latency_ns.wrapping_sub(last_latency_ns).checked_div(news),
            });
            (last, last_count, last_latency_ns) = (now, count, latency_ns);
            let (done, of) = (end.as_millis() as u64, duration.as_millis() as u64);
            (self.progress)(BenchProgress { run: 0, stage, done: done.min(of), of, per_s });
        }
        Ok(timeline)
    }

    fn committed(&self) -> u64 {
        let counters = self.shared.counters.iter();
        counters.map(|counter| counter.0.committed.load(Ordering::Relaxed)).sum()
    }

    /// The sum of the latencies of what was committed, modulo 2^64.
    fn latency_ns(&self) -> u64 {
        let counters = self.shared.counters.iter();
        let each = counters.map(|counter| counter.0.latency_ns.load(Ordering::Relaxed));
        each.fold(0, u64::wrapping_add)
    }
}

/// What these thread groups have seen together.
fn sum_of<'t>(mut tallies: impl Iterator<Item = &'t WorkerTally>) -> Option<WorkerTally> {
    let first = tallies.next()?.clone();
    Some(tallies.fold(first, |mut sum, tally| {
        sum.add(tally);
        sum
    }))
}

/// A moment as `2026-01-31 23:59 UTC`. Civil date from days: Howard Hinnant's `civil_from_days`.
fn utc(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, minutes) = (seconds / 86_400 + 719_468, seconds % 86_400 / 60);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(at(1_767_225_600), "2026-01-01 00:00 UTC");
    }
}
