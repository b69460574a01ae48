//! The last ten minutes of a node: rates and latencies, and the epochs that began.

use crate::status::{NodeStatus, StreamStatus};
use serde::Serialize;
use shoal_engine::latency::{Outcome, quantile_s};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The time between two samples.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(2);

/// The samples of ten minutes.
const SAMPLES_MAX: usize = 300;

/// Epochs that are remembered.
const EPOCHS_MAX: usize = 64;

/// What a node did between two looks at it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// The end, in milliseconds since 1970.
    at_ms: u64,
    /// Transactions a second of each [`Outcome`].
    per_second: [f64; Outcome::ALL.len()],
    /// Conflicts a second, by reason.
    conflicts_per_second: BTreeMap<String, f64>,
    /// What half of those that committed took at most, in seconds. `None` if none did.
    p50_s: Option<f64>,
    /// The same of 99 in a hundred.
    p99_s: Option<f64>,
    /// Transactions under way.
    open: usize,
    /// Bytes of the node's copies of shards.
    memory_bytes: usize,
    /// The most entries that a follower of a stream led here lacks.
    behind: u64,
}

/// An epoch that began, as this node saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct EpochChange {
    /// When it was seen, in milliseconds since 1970.
    at_ms: u64,
    /// The epoch that was open before.
    from: u32,
    /// The epoch that is open since.
    to: u32,
    /// The shards that have another leader.
    leaders: Vec<LeaderChange>,
    /// Transactions of this node that were rolled back from then until the next change.
    rolled_back: u64,
}

/// A shard that has another leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct LeaderChange {
    shard: u32,
    from: u32,
    to: u32,
}

/// The counters of a node, all its workers together.
#[derive(Debug, Clone, Default)]
struct Totals {
    time_ns: u64,
    epoch: u32,
    leaders: Vec<u32>,
    /// How often each outcome was.
    outcomes: [u64; Outcome::ALL.len()],
    /// How often there was a conflict, by reason.
    conflicts: BTreeMap<String, u64>,
    /// The latencies of those that committed, by bucket.
    committed: Vec<u64>,
    rolled_back: u64,
}

/// What the node remembers of itself.
#[derive(Debug, Default)]
pub(crate) struct History {
    last: Option<Totals>,
    samples: VecDeque<Sample>,
    epochs: VecDeque<EpochChange>,
}

impl History {
    /// The samples, oldest first.
    pub(crate) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    /// The epochs that began, oldest first.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = &EpochChange> {
        self.epochs.iter()
    }

    /// Adds what has happened since the last look. While a worker does not answer nothing is known, and the next sample is
    /// of all that time.
    pub(crate) fn add(&mut self, statuses: &[Option<NodeStatus>]) {
        let Some(workers) = statuses.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
            return;
        };
        let totals = totals(&workers);
        if let Some(last) = &self.last
            && totals.time_ns > last.time_ns
        {
            let at_ms = totals.time_ns / 1_000_000;
            if self.samples.len() == SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back(sample(at_ms, last, &totals, &workers));
            if totals.epoch != last.epoch {
                if self.epochs.len() == EPOCHS_MAX {
                    self.epochs.pop_front();
                }
                self.epochs.push_back(change(at_ms, last, &totals));
            }
            if let Some(epoch) = self.epochs.back_mut() {
                epoch.rolled_back += totals.rolled_back.wrapping_sub(last.rolled_back);
            }
        }
        self.last = Some(totals);
    }
}

fn totals(workers: &[&NodeStatus]) -> Totals {
    let mut totals = Totals::default();
    if let Some(first) = workers.first() {
        totals.time_ns = first.time_ns;
        totals.epoch = first.epoch;
        totals.leaders.clone_from(&first.leaders);
    }
    for status in workers {
        for (latency, outcome) in status.outcome_latencies.iter().zip(Outcome::ALL) {
            let count = &mut totals.outcomes[outcome as usize];
            *count = latency.counts.iter().fold(*count, |sum, more| sum.wrapping_add(*more));
            if outcome == Outcome::Committed {
                totals.committed.resize(latency.counts.len(), 0);
                for (sum, more) in totals.committed.iter_mut().zip(&latency.counts) {
                    *sum = sum.wrapping_add(*more);
                }
            }
        }
        for (reason, count) in status.conflicts() {
            let sum = totals.conflicts.entry(reason).or_default();
            *sum = sum.wrapping_add(count);
        }
        totals.rolled_back += status.counter("rolled_back");
    }
    totals
}

fn sample(at_ms: u64, last: &Totals, totals: &Totals, workers: &[&NodeStatus]) -> Sample {
    let seconds = (totals.time_ns - last.time_ns) as f64 / 1e9;
    let mut per_second = [0.0; Outcome::ALL.len()];
    for (rate, (now, before)) in
        per_second.iter_mut().zip(totals.outcomes.iter().zip(&last.outcomes))
    {
        *rate = now.wrapping_sub(*before) as f64 / seconds;
    }
    let conflicts = totals.conflicts.iter().map(|(reason, now)| {
        let before = last.conflicts.get(reason).copied().unwrap_or_default();
        (reason.clone(), now.wrapping_sub(before) as f64 / seconds)
    });
    let before = last.committed.iter().chain(std::iter::repeat(&0));
    let counts: Vec<u64> = totals
        .committed
        .iter()
        .zip(before)
        .map(|(now, before)| now.wrapping_sub(*before))
        .collect();
    let streams = workers.iter().flat_map(|it| &it.streams);
    Sample {
        at_ms,
        per_second,
        conflicts_per_second: conflicts.collect(),
        p50_s: quantile_s(&counts, 0.5),
        p99_s: quantile_s(&counts, 0.99),
        open: workers.iter().map(|status| status.pending).sum(),
        memory_bytes: workers.first().map_or(0, |status| status.memory_bytes),
        behind: streams.map(StreamStatus::behind).max().unwrap_or_default(),
    }
}

fn change(at_ms: u64, last: &Totals, totals: &Totals) -> EpochChange {
    let pairs = last.leaders.iter().zip(&totals.leaders).enumerate();
    let leaders = pairs
        .filter(|(_, (from, to))| from != to)
        .map(|(shard, (from, to))| LeaderChange { shard: shard as u32, from: *from, to: *to });
    EpochChange {
        at_ms,
        from: last.epoch,
        to: totals.epoch,
        leaders: leaders.collect(),
        rolled_back: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::LatencyStatus;
    use shoal_engine::latency::LatencyHistogram;

    /// A node of one worker at this second, which has committed so many transactions of 1 to 2 ms.
    fn status(
        second: u64,
        committed: u64,
        epoch: u32,
        leader: u32,
        rolled_back: u64,
    ) -> NodeStatus {
        let bounds: Vec<u64> = LatencyHistogram::bounds_ns().collect();
        let mut counts = vec![0; bounds.len() + 1];
        let bucket = bounds.iter().position(|bound| *bound >= 1_500_000).expect("a bucket");
        counts[bucket] = committed;
        NodeStatus {
            time_ns: second * 1_000_000_000,
            epoch,
            leaders: vec![0, leader],
            outcome_latencies: vec![LatencyStatus { name: "committed".into(), counts, sum_ns: 0 }],
            counters: vec![
                ("rolled_back".into(), rolled_back),
                ("conflicts".into(), committed / 10),
                ("conflicts_read_changed".into(), committed / 100),
            ],
            ..NodeStatus::default()
        }
    }

    #[test]
    fn rates_and_latencies_are_those_between_two_looks() {
        let mut history = History::default();
        history.add(&[Some(status(10, 1000, 1, 1, 0))]);
        assert_eq!(history.samples().count(), 0, "there is nothing to compare with");
        history.add(&[None]);
        history.add(&[Some(status(14, 3000, 1, 1, 0))]);
        let sample = history.samples().next().expect("one");
        assert_eq!((sample.at_ms, sample.per_second[0]), (14_000, 500.0));
        assert_eq!(sample.conflicts_per_second, [("read changed".to_owned(), 5.0)].into());
        let (p50, p99) = (sample.p50_s.expect("some"), sample.p99_s.expect("some"));
        assert!(0.000_5 < p50 && p50 < p99 && p99 < 0.003, "{p50} {p99}");
        history.add(&[Some(status(16, 3000, 1, 1, 0))]);
        assert_eq!(history.samples().last().expect("two").p99_s, None);
        assert_eq!(history.epochs().count(), 0);
    }

    #[test]
    fn a_failover_is_remembered_with_what_it_rolled_back() {
        let mut history = History::default();
        history.add(&[Some(status(10, 0, 1, 1, 5))]);
        history.add(&[Some(status(12, 0, 3, 4, 5))]);
        history.add(&[Some(status(14, 0, 3, 4, 12))]);
        let leaders = vec![LeaderChange { shard: 1, from: 1, to: 4 }];
        let expected = EpochChange { at_ms: 12_000, from: 1, to: 3, leaders, rolled_back: 7 };
        assert_eq!(history.epochs().collect::<Vec<_>>(), [&expected]);
    }

    #[test]
    fn what_is_older_than_ten_minutes_is_forgotten() {
        let mut history = History::default();
        for second in 0..1000 {
            history.add(&[Some(status(2 * second, second, second as u32, 1, 0))]);
        }
        assert_eq!(history.samples().count(), SAMPLES_MAX);
        assert_eq!(history.epochs().count(), EPOCHS_MAX);
        assert_eq!(history.epochs().last().expect("one").to, 999);
    }
}
