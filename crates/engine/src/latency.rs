//! How long transactions took: histograms by outcome, and by stage of those that wrote.
//!
//! The bounds of buckets are powers of two, so that the bucket of a time is found in one instruction.

use crate::metrics::COMMIT_STAGES_MAX;
use shoal_types::{Error, Result};

/// Buckets of a histogram. The last has no bound.
pub const BUCKETS: usize = 22;

/// The first bucket holds times up to 2 to the power of this, in nanoseconds: 8 µs.
const FIRST_BITS: u32 = 13;

/// Stages that every engine has, in order, before those that it declares: their names.
pub const COMMON_STAGES: [&str; 3] = ["entering", "retrying", "executing"];

/// Times, counted in buckets. All numbers wrap around.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// How many times are in each bucket, and not in those before it.
    pub counts: [u64; BUCKETS],
    /// All of them, added up.
    pub sum_ns: u64,
}

impl LatencyHistogram {
    /// The greatest time of each bucket but the last, in nanoseconds.
    pub fn bounds_ns() -> impl Iterator<Item = u64> {
        (0..BUCKETS as u32 - 1).map(|bucket| 1 << (FIRST_BITS + bucket))
    }

    /// Counts a time.
    pub fn add(&mut self, ns: u64) {
        let bits = u64::BITS - ns.saturating_sub(1).leading_zeros();
        let bucket = bits.saturating_sub(FIRST_BITS) as usize;
        let count = &mut self.counts[bucket.min(BUCKETS - 1)];
        *count = count.wrapping_add(1);
        self.sum_ns = self.sum_ns.wrapping_add(ns);
    }
}

/// The time, in seconds, that such a part of the times in these buckets does not exceed: exact to the bucket, and within it as
/// if its times were spread evenly. The last bucket counts as one that is as wide as all before it. `None` if there is no time.
pub fn quantile_s(counts: &[u64], part: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let wanted = (all as f64 * part).ceil().max(1.0);
    let bounds: Vec<u64> = LatencyHistogram::bounds_ns().collect();
    let mut sum = 0.0;
    for (at, count) in counts.iter().enumerate() {
        let count = *count as f64;
        if count > 0.0 && sum + count >= wanted {
            let low = at.checked_sub(1).map_or(0, |below| bounds[below]) as f64;
            let high = bounds.get(at).map_or(2.0 * low, |bound| *bound as f64);
            return Some((low + (high - low) * (wanted - sum) / count) / 1e9);
        }
        sum += count;
    }
    None
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The transaction took effect.
    Committed,
    /// The client wanted it to have no effect.
    Undone,
    /// Nothing happened; it may succeed if it is run again.
    Aborted,
    /// Nothing happened, and never will.
    Rejected,
    /// The transaction may have committed.
    Unknown,
}

impl Outcome {
    /// All of them, in order.
    pub const ALL: [Outcome; 5] = [
        Outcome::Committed,
        Outcome::Undone,
        Outcome::Aborted,
        Outcome::Rejected,
        Outcome::Unknown,
    ];

    /// The outcome of a transaction with this result, which was to commit.
    pub fn of<T>(result: &Result<T>) -> Outcome {
        match result {
            Ok(_) => Outcome::Committed,
            Err(Error::Aborted(_)) => Outcome::Aborted,
            Err(Error::Rejected(_)) => Outcome::Rejected,
            Err(Error::Unknown(_)) => Outcome::Unknown,
        }
    }

    /// The name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Committed => "committed",
            Outcome::Undone => "undone",
            Outcome::Aborted => "aborted",
            Outcome::Rejected => "rejected",
            Outcome::Unknown => "unknown",
        }
    }
}

/// The histograms of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latencies {
    /// From when a transaction was asked for until its outcome was reported, for each [`Outcome`] in order.
    pub outcomes: [LatencyHistogram; Outcome::ALL.len()],
    /// The time in each stage, of transactions that wrote and committed: [`COMMON_STAGES`], and those of the engine.
    pub stages: [LatencyHistogram; COMMON_STAGES.len() + COMMIT_STAGES_MAX],
}

impl Latencies {
    /// A transaction has ended like this, after so long.
    pub fn add_outcome(&mut self, outcome: Outcome, ns: u64) {
        self.outcomes[outcome as usize].add(ns);
    }

    /// A transaction that wrote has committed, and was so long in each stage.
    pub fn add_stages(&mut self, stages_ns: impl Iterator<Item = u64>) {
        self.stages.iter_mut().zip(stages_ns).for_each(|(stage, ns)| stage.add(ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let bounds: Vec<u64> = LatencyHistogram::bounds_ns().collect();
        assert_eq!((bounds.len(), bounds[0]), (BUCKETS - 1, 8192));
        assert!(bounds.is_sorted() && bounds[BUCKETS - 2] > 8_000_000_000);
        for ns in [0, 1, 8191, 8192, 8193, 1_000_000, bounds[BUCKETS - 2], u64::MAX] {
            let mut histogram = LatencyHistogram::default();
            histogram.add(ns);
            let bucket = bounds.iter().position(|bound| ns <= *bound).unwrap_or(BUCKETS - 1);
            assert_eq!((histogram.counts[bucket], histogram.sum_ns), (1, ns), "{ns}");
        }
    }

    #[test]
    fn outcomes_stand_at_their_numbers() {
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            let mut latencies = Latencies::default();
            latencies.add_outcome(outcome, 5);
            assert_eq!(latencies.outcomes[at].sum_ns, 5, "{}", outcome.name());
        }
        assert_eq!(Outcome::of(&Ok(())), Outcome::Committed);
        assert_eq!(Outcome::of::<()>(&Err(Error::reject("no"))), Outcome::Rejected);
    }
}
