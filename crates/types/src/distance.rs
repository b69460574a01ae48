//! How far datacenters are from each other: the matrix of one-way delays that the network emulates, and that a
//! topology file, a client and a simulation name in the same way.
//!
//! Invariant: from a datacenter to itself there is no distance.

use crate::id::DatacenterId;
use crate::wire::Coded;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest delay, and longest jitter, of one way: half of the minute that is the longest round trip.
pub const ONE_WAY_MAX: Duration = Duration::from_secs(30);

/// How long a frame takes from one place to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Coded)]
pub struct Distance {
    /// The least time of a frame on one way.
    pub delay: Duration,
    /// Up to so much more, each as likely as another.
    pub jitter: Duration,
}

impl Distance {
    /// The distance of a datacenter from itself, and of any two where no network is emulated.
    pub const NONE: Distance = Distance { delay: Duration::ZERO, jitter: Duration::ZERO };

    /// Half a round trip, without jitter.
    #[must_use]
    pub fn of_round_trip(round_trip: Duration) -> Distance {
        Distance { delay: round_trip / 2, jitter: Duration::ZERO }
    }

    /// The longest time that a frame takes.
    #[must_use]
    pub fn longest(self) -> Duration {
        self.delay + self.jitter
    }
}

/// One way from a datacenter to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct Way {
    /// The sender's datacenter.
    pub from: DatacenterId,
    /// The receiver's datacenter; never the same as `from` in a matrix.
    pub to: DatacenterId,
    /// How long frames take on this way; the way back may differ.
    pub distance: Distance,
}

/// How far each datacenter is from each other. The two ways between a pair may differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DistanceMatrix {
    ways: BTreeMap<(DatacenterId, DatacenterId), Distance>,
    /// Of a way that `ways` does not have.
    elsewhere: Distance,
}

impl DistanceMatrix {
    /// The matrix in which every way is [`Distance::NONE`].
    #[must_use]
    pub fn none() -> DistanceMatrix {
        DistanceMatrix::default()
    }

    /// The same distance between any two datacenters.
    #[must_use]
    pub fn uniform(distance: Distance) -> DistanceMatrix {
        DistanceMatrix::none().or(distance)
    }

    /// The same, with this distance on every way that was not set.
    #[must_use]
    pub fn or(self, distance: Distance) -> DistanceMatrix {
        DistanceMatrix { elsewhere: distance, ..self }
    }

    /// Sets the way from one datacenter to another. Returns what was set before.
    ///
    /// # Panics
    /// If that is the same datacenter.
    pub fn set(&mut self, way: Way) -> Option<Distance> {
        assert!(way.from != way.to, "from {} to itself there is no distance", way.from);
        self.ways.insert((way.from, way.to), way.distance)
    }

    /// The same, with this distance between two datacenters, both ways.
    ///
    /// # Panics
    /// If they are one.
    #[must_use]
    pub fn with(mut self, one: DatacenterId, other: DatacenterId, distance: Distance) -> Self {
        self.set(Way { from: one, to: other, distance });
        self.set(Way { from: other, to: one, distance });
        self
    }

    /// The same for the first `datacenters`, with each of their ways set where others than those that are set are long.
    #[must_use]
    pub fn spelled_out(&self, datacenters: u32) -> DistanceMatrix {
        let mut ways = self.ways.clone();
        if self.elsewhere != Distance::NONE {
            for (from, to) in pairs(datacenters) {
                ways.entry((from, to)).or_insert(self.elsewhere);
            }
        }
        DistanceMatrix { ways, elsewhere: Distance::NONE }
    }

    /// The distance of a way: what was set for it, else what [`DistanceMatrix::or`] gave, and [`Distance::NONE`]
    /// within one datacenter.
    #[must_use]
    pub fn between(&self, from: DatacenterId, to: DatacenterId) -> Distance {
        if from == to {
            return Distance::NONE;
        }
        self.way(from, to).unwrap_or(self.elsewhere)
    }

    /// What was set for a way.
    #[must_use]
    pub fn way(&self, from: DatacenterId, to: DatacenterId) -> Option<Distance> {
        self.ways.get(&(from, to)).copied()
    }

    /// The ways that were set, by where they begin and where they end.
    pub fn ways(&self) -> impl ExactSizeIterator<Item = Way> + Clone + '_ {
        self.ways.iter().map(|((from, to), distance)| Way {
            from: *from,
            to: *to,
            distance: *distance,
        })
    }

    /// The longest time there and back between any two of the first `datacenters`.
    #[must_use]
    pub fn round_trip_max(&self, datacenters: u32) -> Duration {
        let round_trip =
            |(one, other)| self.between(one, other).longest() + self.between(other, one).longest();
        pairs(datacenters).map(round_trip).max().unwrap_or_default()
    }
}

/// All ways between the first `datacenters`: where each begins, and where it ends.
fn pairs(datacenters: u32) -> impl Iterator<Item = (DatacenterId, DatacenterId)> {
    let from = move |from| (0..datacenters).filter(move |to| *to != from).map(move |to| (from, to));
    (0..datacenters).flat_map(from).map(|(from, to)| (DatacenterId(from), DatacenterId(to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn distances_are_between_datacenters_and_each_way_has_its_own() {
        let far = Distance::of_round_trip(50 * MS);
        let near = Distance { delay: MS, jitter: MS };
        let slow = Distance { delay: 40 * MS, jitter: Duration::ZERO };
        let [a, b, c] = [0, 1, 2].map(DatacenterId);
        let mut matrix = DistanceMatrix::uniform(far).with(b, a, near);
        assert_eq!(matrix.set(Way { from: c, to: b, distance: slow }), None);
        assert_eq!(matrix.between(a, a), Distance::NONE);
        assert_eq!([matrix.between(a, b), matrix.between(b, a)], [near; 2]);
        assert_eq!([matrix.between(b, c), matrix.between(c, b)], [far, slow]);
        assert_eq!(matrix.between(c, a).delay, 25 * MS);
        assert_eq!(matrix.ways().len(), 3);
        let spelled_out = matrix.spelled_out(3);
        assert_eq!(spelled_out.ways().len(), 6);
        let same = |(from, to)| spelled_out.between(from, to) == matrix.between(from, to);
        assert!(pairs(3).all(same));
        assert_eq!(spelled_out.between(a, DatacenterId(3)), Distance::NONE);
        assert_eq!(matrix.round_trip_max(3), 65 * MS);
        assert_eq!(matrix.round_trip_max(2), 4 * MS);
        assert_eq!([0, 1].map(|few| matrix.round_trip_max(few)), [Duration::ZERO; 2]);
    }

    #[test]
    #[should_panic(expected = "from d1 to itself there is no distance")]
    fn a_datacenter_is_not_far_from_itself() {
        let _ = DistanceMatrix::none().with(DatacenterId(1), DatacenterId(1), Distance::NONE);
    }
}
