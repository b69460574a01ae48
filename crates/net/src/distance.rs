//! The emulated wide-area network: how long a frame is delayed before it is sent, and which directions are cut.
//!
//! A frame to a node of another datacenter is delayed for the distance and a random jitter, by its sender, above the
//! socket: the same for every engine. As over one TCP connection, no frame overtakes another: one that draws a short
//! jitter waits for those before it. A client that is assigned to a datacenter delays the frames of both directions
//! itself (`client.rs`).
//!
//! Invariant: the frames of one direction are released in their order, and not before their delay has passed.

use shoal_types::{Distance, NodeId, Random, Time};
use std::time::Duration;

/// Faults of the link to a peer, which can change at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkFaults {
    /// Frames to the peer are dropped, delayed ones included.
    pub cut_to: bool,
    /// Frames from the peer are dropped.
    pub cut_from: bool,
    /// The additional delay of frames to the peer.
    pub slow: Duration,
}

impl LinkFaults {
    /// Both directions are cut.
    pub const CUT: LinkFaults = LinkFaults { cut_to: true, cut_from: true, slow: Duration::ZERO };
}

/// The emulated path from a worker to a peer: determines when each frame is released.
#[derive(Debug)]
pub(crate) struct DelayedPath {
    distance: Distance,
    pub link_faults: LinkFaults,
    random: Random,
    /// When the last delayed frame is released.
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

    /// When a frame that is sent at `now` is released: `None` if at once.
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
