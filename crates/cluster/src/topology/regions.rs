//! Sets of datacenters with the distances between them, without nodes: what a command emulates a wide area by. A
//! region is a datacenter by its name.
//!
//! ```
//! # use shoal_cluster::topology::Regions;
//! let regions = Regions::parse(r#"
//!     [[datacenter]]
//!     name = "oregon"
//!
//!     [[datacenter]]
//!     name = "iowa"
//!
//!     [[distance]]
//!     between = ["oregon", "iowa"]
//!     one_way_ms = 18
//! "#)?;
//! assert_eq!(regions.to_string(), "oregon–iowa 18 ms");
//! # Ok::<(), shoal_cluster::topology::TopologyError>(())
//! ```

use super::cluster::{Datacenter, Topology};
use super::distances::{self, as_milliseconds};
use super::draft::{DatacenterDraft, DistanceDraft};
use super::error::{Complaint, TopologyError};
use super::validate;
use serde::Deserialize;
use shoal_types::{DatacenterId, Distance, DistanceMatrix, Way};
use std::fmt;
use std::time::Duration;

/// Datacenters and how far they are from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regions {
    names: Vec<String>,
    distances: DistanceMatrix,
}

/// The part of a topology file with these distances.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionsDraft {
    #[serde(default, rename = "datacenter")]
    datacenters: Vec<DatacenterDraft>,
    #[serde(default, rename = "distance")]
    distances: Vec<DistanceDraft>,
}

impl Regions {
    /// Datacenters `dc0`, `dc1` and so on, all as far from each other.
    pub fn uniform(count: u32, distance: Distance) -> Regions {
        let names = (0..count).map(|datacenter| format!("dc{datacenter}")).collect();
        Regions { names, distances: DistanceMatrix::uniform(distance).spelled_out(count) }
    }

    /// The regions of the evaluation of Tiga (technical report, §5.1): replicas are in South Carolina, Finland and
    /// Brazil, and coordinators there and in Hong Kong, which has no replica. Since replicas go round the regions,
    /// with three replicas a shard these are where the report has them.
    ///
    /// The report publishes no delay of a pair, only their range: "cross-region delays range from 60 ms to 150 ms"
    /// (§5.7), compared there with the one-way delays that its coordinators measure. The ends of the range are the
    /// nearest and the farthest pair here. The other four are this project's estimates within it, by the length of
    /// the cables between the regions.
    pub fn tiga() -> Regions {
        let [south_carolina, finland, brazil, hong_kong] = [0, 1, 2, 3].map(DatacenterId);
        let pairs = [
            (south_carolina, finland, 65),
            (south_carolina, brazil, 60),
            (south_carolina, hong_kong, 100),
            (finland, brazil, 115),
            (finland, hong_kong, 130),
            (brazil, hong_kong, 150),
        ];
        let distances = pairs.into_iter().fold(DistanceMatrix::none(), |all, (one, other, ms)| {
            let delay = Duration::from_millis(ms);
            all.with(one, other, Distance { delay, jitter: Duration::ZERO })
        });
        let names = ["south-carolina", "finland", "brazil", "hong-kong"].map(str::to_owned);
        Regions { names: names.into(), distances }
    }

    /// The regions of a text that has the `[[datacenter]]` and `[[distance]]` of a topology file, and nothing else.
    ///
    /// # Errors
    /// If the text is no TOML, or has something else.
    pub fn parse(text: &str) -> Result<Regions, TopologyError> {
        let parsed = toml::from_str::<RegionsDraft>(text).map_err(|error| Complaint::of(&error));
        let read = parsed.and_then(|RegionsDraft { datacenters, distances }| {
            let (datacenters, names) = validate::datacenters(datacenters)?;
            let distances = distances::read(distances, &names)?;
            Ok(Regions { names: names_of(&datacenters), distances })
        });
        read.map_err(|complaint| TopologyError::within(text, complaint))
    }

    /// The datacenters of a topology.
    pub fn of(topology: &Topology) -> Regions {
        Regions { names: names_of(topology.datacenters()), distances: topology.distances().clone() }
    }

    /// The names; a datacenter's number is its place.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The distances between the datacenters.
    pub fn distances(&self) -> &DistanceMatrix {
        &self.distances
    }

    /// The same, with this much more jitter on each way that has a delay.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Duration) -> Regions {
        let ways: Vec<Way> = self.distances.ways().collect();
        for Way { from, to, distance } in
            ways.into_iter().filter(|way| !way.distance.delay.is_zero())
        {
            let distance = Distance { jitter: distance.jitter + jitter, ..distance };
            self.distances.set(Way { from, to, distance });
        }
        self
    }

    /// How long it takes between each two of them, there and back, without jitter.
    pub fn round_trips(&self) -> impl Iterator<Item = Duration> + '_ {
        let count = self.names.len() as u32;
        let pairs = (0..count).flat_map(|one| (0..one).map(move |other| (one, other)));
        pairs.map(|(one, other)| {
            let (one, other) = (DatacenterId(one), DatacenterId(other));
            let (there, back) =
                (self.distances.between(one, other), self.distances.between(other, one));
            there.delay + back.delay
        })
    }

    fn name(&self, datacenter: DatacenterId) -> &str {
        self.names.get(datacenter.0 as usize).map_or("?", String::as_str)
    }
}

fn names_of(datacenters: &[Datacenter]) -> Vec<String> {
    datacenters.iter().map(|datacenter| datacenter.name.clone()).collect()
}

/// The distances, one way: `a–b 65 ms` where both ways are alike, else `a→b 65 ms, b→a 70 ms`. Where all are the same,
/// `25 ms between any two`; where there are none, nothing.
impl fmt::Display for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ways =
            self.distances.ways().filter(|way| way.distance != Distance::NONE).peekable();
        let Some(first) = ways.peek().copied() else { return Ok(()) };
        let ways: Vec<Way> = ways.collect();
        let count = self.names.len();
        if count > 2
            && ways.len() == count * (count - 1)
            && ways.iter().all(|way| way.distance == first.distance)
        {
            return write!(f, "{} between any two", in_words(first.distance));
        }
        let mut comma = "";
        for Way { from, to, distance } in ways {
            let arrow = match self.distances.between(to, from) == distance {
                // Written with the other one.
                true if from > to => continue,
                true => '–',
                false => '→',
            };
            let (from, to, distance) = (self.name(from), self.name(to), in_words(distance));
            write!(f, "{comma}{from}{arrow}{to} {distance}")?;
            comma = ", ";
        }
        Ok(())
    }
}

fn in_words(distance: Distance) -> String {
    let Distance { delay, jitter } = distance;
    match jitter.is_zero() {
        true => format!("{} ms", as_milliseconds(delay)),
        false => format!("{} to {} ms", as_milliseconds(delay), as_milliseconds(delay + jitter)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_regions_of_tiga_are_as_far_as_its_report_says() {
        let regions = Regions::tiga();
        let delays = regions.distances().ways().map(|way| way.distance.delay);
        let (min, max) = (delays.clone().min(), delays.clone().max());
        assert_eq!([min, max], [60, 150].map(|ms| Some(Duration::from_millis(ms))));
        assert_eq!(delays.len(), 12);
        assert_eq!(regions.distances().round_trip_max(4), Duration::from_millis(300));
        assert_eq!(
            regions.to_string(),
            "south-carolina–finland 65 ms, south-carolina–brazil 60 ms, south-carolina–hong-kong 100 ms, \
             finland–brazil 115 ms, finland–hong-kong 130 ms, brazil–hong-kong 150 ms"
        );
    }

    #[test]
    fn distances_are_told_in_words() {
        let far = Distance { delay: Duration::from_micros(2500), jitter: Duration::from_millis(1) };
        assert_eq!(Regions::uniform(3, far).to_string(), "2.5 to 3.5 ms between any two");
        assert_eq!(Regions::uniform(2, far).to_string(), "dc0–dc1 2.5 to 3.5 ms");
        assert_eq!(Regions::uniform(3, Distance::NONE).to_string(), "");
        let text = "datacenter = [{ name = 'a' }, { name = 'b' }]\n\
                    [[distance]]\nfrom = 'b'\nto = 'a'\none_way_ms = 3";
        let regions = Regions::parse(text).expect("regions");
        assert_eq!(regions.to_string(), "b→a 3 ms");
        let jittery = regions.with_jitter(Duration::from_millis(1));
        assert_eq!(jittery.to_string(), "b→a 3 to 4 ms");
    }

    #[test]
    fn what_is_not_about_regions_is_refused() {
        let refused = |text| Regions::parse(text).expect_err("no regions").to_string();
        assert_eq!(refused(""), "there is no datacenter; add a [[datacenter]]");
        assert!(refused("workers = 1").starts_with("line 1: `workers = 1`: unknown field"));
    }
}
