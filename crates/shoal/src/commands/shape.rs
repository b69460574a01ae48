//! The shape of a cluster on the command line.

use crate::duration;
use crate::local::ClusterPlan;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, value_parser};
use shoal_server::Protocol;
use std::time::Duration;

/// Shards, copies and distances.
#[derive(Debug, Args)]
pub struct Shape {
    /// Parts of the data, each with a leader of its own
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=64))]
    shards: u32,
    /// Copies of each shard, in datacenters of their own: 1, 3, 5 or 7
    #[arg(long, default_value_t = 3, value_parser = replicas)]
    replicas: u32,
    /// Emulated round trip between datacenters: 0ms, 50ms
    #[arg(long, default_value = "0ms", value_name = "ROUND_TRIP", value_parser = duration::parse)]
    wan: Duration,
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

/// The commit protocols, by their names.
pub fn engine() -> impl TypedValueParser<Value = Protocol> {
    let value = |protocol: Protocol| PossibleValue::new(protocol.name()).help(protocol.about());
    let named = |name: String| Protocol::named(&name).ok_or("there is no such protocol");
    PossibleValuesParser::new(Protocol::ALL.map(value)).try_map(named)
}

impl Shape {
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// A cluster of this shape, with so many workers on each node.
    pub fn plan(&self, workers: u32, protocol: Protocol) -> ClusterPlan {
        ClusterPlan {
            workers,
            round_trip: self.wan,
            jitter: self.jitter,
            leader_datacenters: self.leaders_in.min(self.replicas),
            protocol,
            ..ClusterPlan::new(self.shards, self.replicas)
        }
    }
}
