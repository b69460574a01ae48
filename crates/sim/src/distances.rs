//! Delays between datacenters: drawn from the seed, similar or very unequal, or those of well-known regions.

use crate::draw::one_of;
use crate::network::Delay;
use shoal_cluster::topology::Regions;
use shoal_types::{DatacenterId, Distance, Random};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Regions that a simulation can be run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatedRegions {
    /// Three datacenters with a round trip of 50 ms between any two.
    Three,
    /// The four regions of Tiga's evaluation.
    Tiga,
}

impl SimulatedRegions {
    /// Regions by their names on the command line.
    pub const NAMED: [(&str, SimulatedRegions); 2] =
        [("three", SimulatedRegions::Three), ("tiga", SimulatedRegions::Tiga)];

    /// The datacenters of the regions, and the distances between them.
    pub fn regions(self) -> Regions {
        let far = Distance::of_round_trip(Duration::from_millis(50));
        match self {
            SimulatedRegions::Three => Regions::uniform(3, far),
            SimulatedRegions::Tiga => Regions::tiga(),
        }
    }
}

/// The source of a scenario's distances.
#[derive(Debug, Clone)]
pub enum DistanceSource {
    /// The scenario's own draws: each way takes half to one and a half times as long as another.
    Drawn,
    /// This source of randomness: some ways take a thousand times as long as others, also in one of both
    /// directions.
    Unequal(Random),
    /// The round trips of a preset, from which each way has half.
    Regions(SimulatedRegions),
}

/// A row of delays for each datacenter that messages come from, and about the longest round trip in
/// nanoseconds.
pub type DelayMatrix = (Vec<Vec<Delay>>, u64);

impl DistanceSource {
    /// The delays from this source; `drawn` are those of the scenario's draws, which are kept within a
    /// datacenter.
    pub fn delays(self, drawn: DelayMatrix) -> DelayMatrix {
        let near = drawn.0[0][0];
        match self {
            DistanceSource::Drawn => drawn,
            DistanceSource::Unequal(mut random) => {
                let way = |_, _| {
                    let far_ns = one_of(&mut random, &[MS / 10, MS, 5 * MS, 25 * MS, 75 * MS]);
                    let base_ns = far_ns / 2 + random.below(far_ns);
                    let jitter_percent = one_of(&mut random, &[0, 10, 100]);
                    Delay { base_ns, jitter_ns: base_ns * jitter_percent / 100 }
                };
                matrix(drawn.0.len(), near, way)
            }
            DistanceSource::Regions(regions) => {
                let regions = regions.regions();
                let way = |from, to| {
                    let ends = [from, to].map(|end| DatacenterId(end as u32));
                    let Distance { delay, jitter } = regions.distances().between(ends[0], ends[1]);
                    let [base_ns, jitter_ns] = [delay, jitter].map(|span| span.as_nanos() as u64);
                    Delay { base_ns, jitter_ns }
                };
                matrix(regions.names().len(), near, way)
            }
        }
    }
}

/// Draws the delays between `datacenters` datacenters.
pub fn draw(random: &mut Random, datacenters: usize) -> DelayMatrix {
    let near = Delay {
        base_ns: one_of(random, &[1_000, 20_000, 50_000, 200_000]),
        jitter_ns: one_of(random, &[0, 10_000, 100_000, 1_000_000]),
    };
    let far_ns = one_of(random, &[100_000, MS, 5 * MS, 25 * MS]);
    let far_jitter_ns = one_of(random, &[0, 10, 100]);
    matrix(datacenters, near, |_, _| {
        let base_ns = far_ns / 2 + random.below(far_ns);
        Delay { base_ns, jitter_ns: base_ns * far_jitter_ns / 100 }
    })
}

/// A matrix of the delays between datacenters, which `way` returns, row by row; within a datacenter the delay
/// is `near`.
fn matrix(
    datacenters: usize,
    near: Delay,
    mut way: impl FnMut(usize, usize) -> Delay,
) -> DelayMatrix {
    let mut delays = vec![vec![near; datacenters]; datacenters];
    let mut longest = near.base_ns + near.jitter_ns;
    for (from, row) in delays.iter_mut().enumerate() {
        for (to, delay) in row.iter_mut().enumerate() {
            if from != to {
                *delay = way(from, to);
                longest = longest.max(delay.base_ns + delay.jitter_ns);
            }
        }
    }
    (delays, 2 * longest)
}
