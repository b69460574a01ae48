//! The emulated wide area: how long a frame is held before it is sent, and which ways are cut.
//!
//! A frame to a node of another datacenter is held for a one-way delay and a random jitter, by its
//! sender, above the socket: the same for every engine. As over one TCP connection, no frame overtakes
//! another: one that draws a short jitter waits for those before it.
//!
//! Invariant: what one way releases is in the order, and not before the delay, in which it was held.

use shoal_types::{NodeId, Random, Time};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A group of nodes near each other, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DatacenterNumber(pub u32);

impl fmt::Display for DatacenterNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dc{}", self.0)
    }
}

/// How far it is from one place to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distance {
    /// One way, at least.
    pub delay: Duration,
    /// Up to so much more, each as likely as another.
    pub jitter: Duration,
}

impl Distance {
    /// Half a round trip, without jitter.
    pub fn of_round_trip(round_trip: Duration) -> Distance {
        Distance { delay: round_trip / 2, jitter: Duration::ZERO }
    }
}

/// How far it is between datacenters. Within one there is no distance but the real one.
#[derive(Debug, Clone, Default)]
pub struct Distances {
    elsewhere: Distance,
    pairs: BTreeMap<(DatacenterNumber, DatacenterNumber), Distance>,
}

impl Distances {
    /// No distance anywhere.
    pub fn none() -> Distances {
        Distances::default()
    }

    /// The same distance between any two datacenters.
    pub fn uniform(distance: Distance) -> Distances {
        Distances { elsewhere: distance, pairs: BTreeMap::new() }
    }

    /// That distance between these two, both ways.
    #[must_use]
    pub fn with(
        mut self,
        one: DatacenterNumber,
        other: DatacenterNumber,
        distance: Distance,
    ) -> Distances {
        self.pairs.insert((one.min(other), one.max(other)), distance);
        self
    }

    /// How far it is.
    pub fn between(&self, one: DatacenterNumber, other: DatacenterNumber) -> Distance {
        if one == other {
            return Distance::default();
        }
        let pair = (one.min(other), one.max(other));
        self.pairs.get(&pair).copied().unwrap_or(self.elsewhere)
    }
}

/// What can be done to the ways to and from a peer while all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkFaults {
    /// Frames to it are dropped, those held included.
    pub cut_to: bool,
    /// Frames from it are dropped.
    pub cut_from: bool,
    /// Frames to it take so much longer.
    pub slow: Duration,
}

impl LinkFaults {
    /// Nothing passes, either way.
    pub const CUT: LinkFaults = LinkFaults { cut_to: true, cut_from: true, slow: Duration::ZERO };
}

/// The way from one worker to a peer: says when each frame may go.
#[derive(Debug)]
pub(crate) struct DelayedPath {
    distance: Distance,
    pub link_faults: LinkFaults,
    random: Random,
    /// When the last frame goes that was held.
    last: Time,
}

impl DelayedPath {
    pub fn new(distance: Distance, peer: NodeId, random: &Random) -> DelayedPath {
        DelayedPath {
            distance,
            link_faults: LinkFaults::default(),
            random: random.fork(u64::from(peer.0)),
            last: Time::ZERO,
        }
    }

    /// When a frame of now may go: `None` if at once.
    pub fn release(&mut self, now: Time) -> Option<Time> {
        let delay = self.distance.delay + self.link_faults.slow;
        if delay.is_zero() && self.distance.jitter.is_zero() && self.last <= now {
            return None;
        }
        let jitter = u64::try_from(self.distance.jitter.as_nanos()).unwrap_or(u64::MAX);
        let drawn = self.random.range_inclusive(0, jitter);
        self.last = self.last.max(now + delay + Duration::from_nanos(drawn));
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn distances_are_between_datacenters_both_ways() {
        let far = Distance::of_round_trip(50 * MS);
        let near = Distance { delay: MS, jitter: MS };
        let [a, b, c] = [0, 1, 2].map(DatacenterNumber);
        let distances = Distances::uniform(far).with(b, a, near);
        assert_eq!(distances.between(a, a), Distance::default());
        assert_eq!([distances.between(a, b), distances.between(b, a)], [near; 2]);
        assert_eq!(distances.between(c, a).delay, 25 * MS);
    }

    #[test]
    fn a_way_delays_keeps_order_and_repeats_from_its_seed() {
        let distance = Distance { delay: 25 * MS, jitter: 10 * MS };
        let releases = |seed| {
            let mut way = DelayedPath::new(distance, NodeId(1), &Random::new(seed));
            (0..1000)
                .map(|at| (Time(at * 1000), way.release(Time(at * 1000)).expect("a delay")))
                .collect::<Vec<_>>()
        };
        let first = releases(1);
        assert!(first.iter().all(|(held, gone)| *gone >= *held + 25 * MS));
        assert!(first.windows(2).all(|two| two[0].1 <= two[1].1), "overtaken");
        assert_eq!(first, releases(1));
        assert_ne!(first, releases(2));
    }

    #[test]
    fn no_frame_overtakes_one_held_when_the_way_was_slow() {
        let mut way = DelayedPath::new(Distance::default(), NodeId(1), &Random::new(1));
        assert_eq!(way.release(Time(5)), None);
        way.link_faults.slow = MS;
        assert_eq!(way.release(Time(5)), Some(Time(1_000_005)));
        way.link_faults.slow = Duration::ZERO;
        assert_eq!(way.release(Time(6)), Some(Time(1_000_005)));
        assert_eq!(way.release(Time(1_000_005)), None);
    }
}
