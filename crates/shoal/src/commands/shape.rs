//! The shape of a cluster on the command line.

use super::CommandError;
use crate::duration;
use crate::local::ClusterPlan;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, value_parser};
use shoal_cluster::topology::Regions;
use shoal_server::Protocol;
use shoal_types::Distance;
use std::fs;
use std::time::Duration;

/// Shards, copies and distances.
#[derive(Debug, Args)]
pub struct Shape {
    /// Parts of the data, each with a leader of its own
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=64))]
    shards: u32,
    /// Copies of each shard, in datacenters of their own while there are enough of them: 1, 3, 5 or 7
    #[arg(long, default_value_t = 3, value_parser = replicas)]
    replicas: u32,
    /// The datacenters: `three`, as far from each other as `--wan` says; `tiga`, the four of the evaluation of Tiga
    /// (south-carolina, finland, brazil, and hong-kong, where three replicas leave room for clients only); or a file with
    /// `[[datacenter]]` and `[[distance]]` as a topology has them [default: one for each replica, `--wan` apart]
    #[arg(long, value_name = "three|tiga|FILE", value_parser = regions)]
    regions: Option<RegionsChoice>,
    /// Emulated round trip between datacenters: 0ms, 50ms [default: 0ms]
    #[arg(long, value_name = "ROUND_TRIP", value_parser = duration::parse)]
    wan: Option<Duration>,
    /// Emulated jitter, one way
    #[arg(long, default_value = "0ms", value_parser = duration::parse)]
    jitter: Duration,
    /// Over how many datacenters the leaders are spread, in turn; at most as many as there are replicas
    #[arg(long, default_value_t = 1, value_name = "DATACENTERS", value_parser = value_parser!(u32).range(1..=7))]
    leaders_in: u32,
}

fn replicas(text: &str) -> Result<u32, String> {
    let known = [1, 3, 5, 7];
    let count = text.parse().ok().filter(|count| known.contains(count));
    count.ok_or_else(|| "1, 3, 5 or 7".to_owned())
}

/// Datacenters, as the command line names them.
#[derive(Debug, Clone)]
enum RegionsChoice {
    /// Three of them, the same distance from each other.
    Three,
    /// Regions that have distances of their own.
    Known(Regions),
}

fn regions(text: &str) -> Result<RegionsChoice, String> {
    match text {
        "three" => return Ok(RegionsChoice::Three),
        "tiga" => return Ok(RegionsChoice::Known(Regions::tiga())),
        _ => {}
    }
    let read = fs::read_to_string(text).map_err(|error| {
        format!("it is neither `three` nor `tiga`, and no file that can be read: {error}")
    });
    let regions = Regions::parse(&read?).map_err(|error| error.to_string());
    regions.map(RegionsChoice::Known)
}

/// The commit protocols, by their names.
pub fn engine() -> impl TypedValueParser<Value = Protocol> {
    let value =
        |protocol: Protocol| PossibleValue::new(protocol.name()).help(protocol.info().about);
    let named = |name: String| Protocol::named(&name).ok_or("there is no such protocol");
    PossibleValuesParser::new(Protocol::ALL.iter().copied().map(value)).try_map(named)
}

impl Shape {
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// A cluster of this shape, with so many workers on each node.
    pub fn plan(&self, workers: u32, protocol: Protocol) -> Result<ClusterPlan, CommandError> {
        Ok(ClusterPlan {
            workers,
            regions: self.regions()?,
            leader_datacenters: self.leaders_in.min(self.replicas),
            engine: protocol.options(),
            ..ClusterPlan::new(self.shards, self.replicas)
        })
    }

    fn regions(&self) -> Result<Regions, CommandError> {
        let delay = self.wan.unwrap_or_default() / 2;
        let distance = Distance { delay, jitter: self.jitter };
        match (&self.regions, self.wan) {
            (None, _) => Ok(Regions::uniform(self.replicas, distance)),
            (Some(RegionsChoice::Three), _) => Ok(Regions::uniform(3, distance)),
            (Some(RegionsChoice::Known(regions)), None) => {
                Ok(regions.clone().with_jitter(self.jitter))
            }
            (Some(RegionsChoice::Known(_)), Some(_)) => {
                let two =
                    "--wan: these regions have distances of their own; leave out one of the two";
                Err(CommandError::Usage(two.to_owned()))
            }
        }
    }
}
