//! One-way delays from this node to others, clock skew included, and the margin that is added to them.

use shoal_types::transaction_clock::STEP_AHEAD_MIN;
use shoal_types::{NodeId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Samples count for so long.
const WINDOW: Duration = Duration::from_secs(2);

/// No more samples are kept of a node.
const SAMPLES_MAX: usize = 512;

/// After so much time the percentile is computed again.
const FRESH: Duration = Duration::from_millis(20);

/// The most that the margin grows to.
const MARGIN_MAX: Duration = Duration::from_millis(5);

/// The margin is adapted after so many votes.
const VOTES: u32 = 200;

#[derive(Debug, Default)]
struct Samples {
    /// When each was taken, on the local clock, and the delay in nanoseconds; negative where the clock there is behind.
    all: VecDeque<(Time, i64)>,
    percentile: i64,
    least: i64,
    computed_at: Time,
}

/// The delays to other nodes.
#[derive(Debug, Default)]
pub struct Delays {
    nodes: BTreeMap<NodeId, Samples>,
    votes: u32,
    late: u32,
    margin: Duration,
}

impl Delays {
    /// A message that was sent at `sent` arrived at `arrived`, each on the clock of that node.
    pub fn sample(&mut self, now: Time, node: NodeId, sent: Time, arrived: Time) {
        let delay = (arrived.0 as i64).wrapping_sub(sent.0 as i64);
        let samples = self.nodes.entry(node).or_default();
        if samples.percentile.saturating_sub(delay) > STEP_AHEAD_MIN.as_nanos() as i64 {
            // One of the clocks was set: by the older samples, timestamps would be so far ahead that they are refused.
            samples.all.clear();
        }
        samples.all.push_back((now, delay));
        let is_old = |at: &Time| *at + WINDOW < now;
        while samples.all.len() > SAMPLES_MAX
            || samples.all.front().is_some_and(|(at, _)| is_old(at))
        {
            samples.all.pop_front();
        }
        if samples.all.len() < 16 || samples.computed_at + FRESH <= now {
            let mut delays: Vec<i64> = samples.all.iter().map(|(_, delay)| *delay).collect();
            let at = (delays.len() * 95).div_ceil(100).saturating_sub(1);
            samples.least = delays.iter().min().copied().unwrap_or_default();
            (samples.percentile, samples.computed_at) = (*delays.select_nth_unstable(at).1, now);
        }
    }

    /// The 95th percentile of the delay to a node, in nanoseconds; `None` where nothing is known.
    #[must_use]
    pub fn to(&self, node: NodeId) -> Option<i64> {
        self.nodes.get(&node).map(|samples| samples.percentile)
    }

    /// Whether the leader and the nearest others of a majority are within this delay, as far as messages that did not wait on
    /// their way show it.
    #[must_use]
    pub fn is_near(
        &self,
        voters: &[NodeId],
        leader: NodeId,
        majority: usize,
        within: Duration,
    ) -> bool {
        let is_near = |node: &NodeId| {
            let least = self.nodes.get(node).map(|samples| samples.least);
            least.is_some_and(|ns| ns.unsigned_abs() <= within.as_nanos() as u64)
        };
        let others = voters.iter().filter(|node| **node != leader);
        is_near(&leader) && others.filter(|node| is_near(node)).count() + 1 >= majority
    }

    /// The delay to the node that is furthest, in nanoseconds; 0 where nothing is known.
    #[must_use]
    pub fn most(&self) -> i64 {
        self.nodes.values().map(|samples| samples.percentile).max().unwrap_or(0)
    }

    /// A vote says when its transaction arrived.
    pub fn vote(&mut self, is_late: bool, least: Duration) {
        (self.votes, self.late) = (self.votes + 1, self.late + u32::from(is_late));
        if self.votes < VOTES {
            return;
        }
        let margin = self.margin.max(least);
        self.margin = match self.late * 100 > self.votes {
            true => (margin * 5 / 4).min(MARGIN_MAX.max(least)),
            false => (margin * 19 / 20).max(least),
        };
        (self.votes, self.late) = (0, 0);
    }

    /// What is added to the delays, at least `least`.
    #[must_use]
    pub fn margin(&self, least: Duration) -> Duration {
        self.margin.max(least)
    }

    /// How far ahead the timestamp of a transaction has to be for the `fast` nearest of these replicas and their leader, in
    /// nanoseconds; and how far its leader is.
    #[must_use]
    pub fn headroom(&self, voters: &[NodeId], leader: NodeId, fast: usize) -> (i64, i64) {
        let delay = |node: &NodeId| self.to(*node).unwrap_or(0);
        let to_leader = delay(&leader);
        let mut others: Vec<i64> =
            voters.iter().filter(|node| **node != leader).map(delay).collect();
        others.sort_unstable();
        let furthest = others.get(fast.saturating_sub(2)).filter(|_| fast > 1);
        (to_leader.max(furthest.copied().unwrap_or(i64::MIN)), to_leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_percentile_is_of_the_last_seconds_and_skew_counts() {
        let mut delays = Delays::default();
        let node = NodeId(1);
        for sample in 1..=100 {
            delays.sample(Time(sample * MS), node, Time(1000 * MS), Time((1000 + sample) * MS));
        }
        delays.sample(Time(200 * MS), node, Time(5 * MS), Time(6 * MS));
        let percentile = delays.to(node).expect("sampled");
        assert!((94..=97).contains(&(percentile / MS as i64)), "{percentile}");
        delays.sample(Time(3000 * MS), node, Time(9 * MS), Time(4 * MS));
        assert_eq!(delays.to(node), Some(-5 * MS as i64));
    }

    #[test]
    fn a_clock_that_was_set_makes_older_samples_void() {
        let (mut delays, node) = (Delays::default(), NodeId(1));
        for sample in 1..=50 {
            delays.sample(Time(sample * MS), node, Time(9000 * MS), Time(9001 * MS));
        }
        delays.sample(Time(51 * MS), node, Time(11_000 * MS), Time(9001 * MS));
        assert_eq!(delays.to(node), Some(-1999 * MS as i64));
        delays.sample(Time(52 * MS), node, Time(11_000 * MS), Time(9003 * MS));
        assert_eq!(delays.to(node), Some(-1997 * MS as i64));
    }

    #[test]
    fn headroom_reaches_the_leader_and_the_nearest_of_a_quorum() {
        let mut delays = Delays::default();
        for node in 0..5 {
            let delay = u64::from(node) * 10 * MS;
            delays.sample(Time(MS), NodeId(node), Time(MS), Time(MS + delay));
        }
        let voters: Vec<NodeId> = (0..5).map(NodeId).collect();
        let headroom = |leader, fast| delays.headroom(&voters, NodeId(leader), fast).0 / MS as i64;
        assert_eq!([headroom(0, 4), headroom(4, 4), headroom(2, 3)], [30, 40, 20]);
        assert_eq!(headroom(1, 1), 10);
    }

    #[test]
    fn the_margin_grows_while_votes_are_late() {
        let (mut delays, least) = (Delays::default(), Duration::from_micros(200));
        (0..VOTES).for_each(|vote| delays.vote(vote % 10 == 0, least));
        assert_eq!(delays.margin(least), Duration::from_micros(250));
        (0..10 * VOTES).for_each(|_| delays.vote(false, least));
        assert_eq!(delays.margin(least), least);
    }
}
