//! What writers have seen of a failure.

use crate::terminal::table;
use shoal_workloads::report::words;
use std::time::Duration;

/// What the writers of one shard have seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardTally {
    /// The number of the shard.
    pub shard: u32,
    /// When writes were acknowledged, since the writers began, in order.
    pub acknowledged: Vec<Duration>,
    /// Writes whose outcome is not known.
    pub unknown: u64,
    /// Acknowledged writes that are not there.
    pub lost: u64,
    /// Writes that are there and were not requested.
    pub extra: u64,
}

/// What all have seen.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// What was counted, for each shard.
    pub shards: Vec<ShardTally>,
    /// When the failure began.
    pub struck: Duration,
    /// When the writers were stopped.
    pub ended: Duration,
    /// What cannot be, in words.
    pub wrong: Vec<String>,
}

impl ShardTally {
    pub fn new(shard: u32) -> ShardTally {
        ShardTally { shard, ..ShardTally::default() }
    }

    /// The longest time without an acknowledgement that ended after `struck`, up to `ended`.
    pub fn outage(&self, struck: Duration, ended: Duration) -> Duration {
        let after = self.acknowledged.partition_point(|at| *at <= struck);
        let before = after.checked_sub(1).map_or(Duration::ZERO, |last| self.acknowledged[last]);
        let mut last = before.max(struck);
        let mut longest = Duration::ZERO;
        for at in self.acknowledged[after..].iter().copied().chain([ended]) {
            longest = longest.max(at.saturating_sub(last));
            last = at.max(last);
        }
        longest
    }

    /// Acknowledged writes a second between two times.
    pub fn rate(&self, from: Duration, to: Duration) -> f64 {
        let count = self.acknowledged.iter().filter(|at| (from..to).contains(*at)).count();
        count as f64 / (to.saturating_sub(from)).as_secs_f64().max(1e-9)
    }
}

impl Tally {
    /// Whether nothing was lost, and nothing done that was not requested.
    pub fn holds(&self) -> bool {
        let kept = |tally: &ShardTally| tally.lost == 0 && tally.extra == 0;
        self.wrong.is_empty() && self.shards.iter().all(kept)
    }

    /// As people read it: what became of each shard.
    pub fn text(&self) -> String {
        let (struck, ended) = (self.struck, self.ended);
        let rows = self.shards.iter().map(|tally| {
            [
                format!("S{}", tally.shard),
                format!("{}/s", words::rate(tally.rate(Duration::ZERO, struck))),
                format!("{}/s", words::rate(tally.rate(struck, ended))),
                format!("{:.0} ms", tally.outage(struck, ended).as_secs_f64() * 1000.0),
                words::count(tally.acknowledged.len() as u64),
                words::count(tally.unknown),
                words::count(tally.lost),
            ]
        });
        let heads =
            ["shard", "before", "since", "longest silence", "acknowledged", "unknown", "lost"];
        let mut text = table(heads, rows);
        text.push_str("\n\n");
        for wrong in &self.wrong {
            text.push_str(&format!("wrong: {wrong}\n"));
        }
        let lost: u64 = self.shards.iter().map(|tally| tally.lost + tally.extra).sum();
        text.push_str(match (lost, self.holds()) {
            (0, true) => "Every acknowledged write is there, once.\n",
            _ => "WRITES ARE LOST, or were done twice.\n",
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_outage_is_the_longest_silence_after_the_strike() {
        let acknowledged = [1, 2, 90, 300, 310].map(|at| at * MS).into();
        let tally = ShardTally { acknowledged, ..ShardTally::new(1) };
        assert_eq!(tally.outage(100 * MS, 320 * MS), 200 * MS, "from the strike on");
        assert_eq!(tally.outage(Duration::ZERO, 320 * MS), 210 * MS);
        assert_eq!(tally.outage(305 * MS, 1000 * MS), 690 * MS, "it never came back");
        assert!((tally.rate(Duration::ZERO, 100 * MS) - 30.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_lost_or_done_twice_is_said() {
        let mut tally = Tally { shards: vec![ShardTally::new(0)], ..Tally::default() };
        assert!(tally.holds() && tally.text().contains("once"));
        tally.shards[0].lost = 1;
        assert!(!tally.holds() && tally.text().contains("LOST"));
        tally.shards[0] = ShardTally { extra: 1, ..ShardTally::new(0) };
        assert!(!tally.holds() && tally.text().contains("twice"));
    }
}
