//! What the experiments on Tiga have in common: clusters, workloads, and charts.

use super::super::experiment::{
    Chart, CommitPath, Curve, ExperimentRow, Percentile, Plots, Quantity, add,
};
use super::super::run::{ExperimentRun, RegionLoad};
use super::super::scale::{REPLICAS, own_cores, tenth};
use crate::local::ClusterPlan;
use shoal_bench::{BenchLoad, IncrementsLoad, TpccLoad};
use shoal_cluster::topology::Regions;
use shoal_server::Protocol;
use shoal_types::Distance;
use shoal_workloads::report::words;
use shoal_workloads::ycsb::Distribution;
use std::time::Duration;

/// The shards; the paper has six for TPC-C.
pub const SHARDS: u32 = 3;

/// Keys of each shard; a million in the paper.
pub const KEYS_OF_SHARD: u32 = 30_000;

/// Warehouses on all shards together.
const WAREHOUSES: u16 = 6;

/// Clients on all regions together where a rate is given: more than are under way at any time, up to saturation.
pub const CLIENTS: usize = 800;

/// Transactions under way at a time, with increments: enough to keep two cores busy over these distances.
pub const INCREMENTING: usize = 1_600;

/// The least skew of the paper, and the greatest.
pub const SKEW: f64 = 0.5;
pub const SKEW_MOST: f64 = 0.99;

/// Distances beside those of the paper's regions, in milliseconds one way.
pub const UNIFORM_MS: [u32; 3] = [25, 50, 150];

/// The engine of the paper, and those beside it.
pub const ENGINES: [Protocol; 3] = [Protocol::Tiga, Protocol::Mako, Protocol::TwoPhaseCommit];

/// The kinds of transactions of the increments, and of TPC-C, whose latency is shown.
pub const INCREMENT: &str = "increment";
pub const NEW_ORDER: &str = "new-order";

/// Where nodes and clients are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// In the four regions of the paper.
    Paper,
    /// In four regions that are so many milliseconds from each other, one way.
    Uniform(u32),
}

/// A region, of the paper's and of as many others.
#[derive(Debug, Clone, Copy)]
pub struct PlaceNames {
    pub paper: &'static str,
    pub uniform: &'static str,
}

/// The first region, in which the leaders are that are together.
pub const LOCAL: PlaceNames = PlaceNames { paper: "south-carolina", uniform: "dc0" };

/// The last one, which has clients and no replica.
pub const REMOTE: PlaceNames = PlaceNames { paper: "hong-kong", uniform: "dc3" };

/// The names of the regions in the evaluation of the paper.
const PAPERS_REGIONS: [&str; 4] = ["south-carolina", "finland", "brazil", "hong-kong"];

impl Places {
    /// The regions of the paper, and those that are all as far from each other.
    pub fn all() -> impl Iterator<Item = Places> {
        std::iter::once(Places::Paper).chain(UNIFORM_MS.map(Places::Uniform))
    }

    fn regions(self) -> Regions {
        match self {
            Places::Paper => Regions::tiga(),
            Places::Uniform(ms) => {
                let delay = Duration::from_millis(ms.into());
                Regions::uniform(4, Distance { delay, jitter: Duration::ZERO })
            }
        }
    }

    /// In few words.
    pub fn words(self) -> String {
        match self {
            Places::Paper => "four regions".to_owned(),
            Places::Uniform(ms) => format!("{ms} ms one way"),
        }
    }

    /// The name that a region has here.
    pub fn name(self, names: PlaceNames) -> &'static str {
        match self {
            Places::Paper => names.paper,
            Places::Uniform(_) => names.uniform,
        }
    }
}

/// Where the leaders are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaders {
    /// All in the first region.
    Together,
    /// Each in another region.
    Apart,
}

/// A cluster whose replicas are in three of the regions, and that has a node without replicas in the last, as the paper has coordinators
/// there.
pub fn cluster(protocol: Protocol, places: Places, leaders: Leaders) -> ClusterPlan {
    let leader_datacenters = match leaders {
        Leaders::Together => 1,
        Leaders::Apart => REPLICAS,
    };
    ClusterPlan {
        engine: protocol.options(),
        regions: places.regions(),
        leader_datacenters,
        coordinators_in: vec![places.name(REMOTE).to_owned()],
        ..ClusterPlan::new(SHARDS, REPLICAS)
    }
}

/// Three increments a transaction, by Zipf's law of this skew.
pub fn increments(skew: f64) -> BenchLoad {
    let distribution = Distribution::Zipfian(skew);
    BenchLoad::Increments(IncrementsLoad {
        keys_of_shard: KEYS_OF_SHARD,
        distribution,
        calls: true,
    })
}

/// TPC-C with payments by name and order-statuses that are interactive.
pub fn orders() -> BenchLoad {
    BenchLoad::TpcC(TpccLoad {
        scale: tenth(WAREHOUSES),
        new_orders_only: false,
        any_home: false,
        calls: true,
        interactive_multi_shot: true,
    })
}

/// So many transactions a second.
pub fn at_rate(per_s: u32) -> RegionLoad {
    RegionLoad { rate_per_s: Some(per_s.into()), leader_stops: None }
}

/// Runs of an experiment, and the curves in which they stand.
pub struct Curves<'r> {
    pub runs: &'r mut Vec<ExperimentRun>,
    /// What all of these curves have in common, for the words of their runs; nothing, where it is the experiment.
    pub what: &'static str,
}

impl<'r> Curves<'r> {
    /// Those of all runs of an experiment.
    pub fn of(runs: &'r mut Vec<ExperimentRun>) -> Curves<'r> {
        Curves { runs, what: "" }
    }

    /// A curve with a row for each of these runs, which stand beside each other.
    pub fn curve(
        &mut self,
        name: impl Into<String>,
        rows: impl Iterator<Item = (ExperimentRow, ExperimentRun)>,
    ) -> Curve {
        let name = name.into();
        let rows = rows.map(|(row, run)| {
            let words = format!("{}{name}, {}", self.what, row.label);
            row.run(add(self.runs, run.called(words)))
        });
        Curve { rows: rows.collect(), name, base: 0 }
    }

    /// A curve of each engine over the uniform distances.
    pub fn over_distances(
        &mut self,
        run: &dyn Fn(Protocol, Places) -> ExperimentRun,
        region: Option<PlaceNames>,
    ) -> Vec<Curve> {
        let of_engine = |protocol: Protocol| {
            let rows = UNIFORM_MS.into_iter().map(|ms| {
                let (row, places) = (ExperimentRow::at(ms), Places::Uniform(ms));
                let region = region.map(|names| places.name(names));
                (ExperimentRow { region, ..row }, run(protocol, places))
            });
            self.curve(format!("{}, uniform", protocol.name()), rows)
        };
        ENGINES.map(of_engine).into()
    }
}

/// What stands in a chart over distances.
pub fn chart_over_distances(
    title: &'static str,
    quantities: Vec<Quantity>,
    curves: Vec<Curve>,
) -> Chart {
    Chart {
        title,
        axis: "one way",
        unit: "ms",
        quantities,
        plots: Plots::AlongAxis,
        curves,
        notes: vec![
            "All four regions are so far from each other; the last has clients, a coordinator and no replica."
                .to_owned(),
        ],
    }
}

/// Throughput, latencies of transactions of this kind, and aborts.
pub fn all_regions(kind: &'static str) -> Vec<Quantity> {
    let percentiles = [Percentile::P50, Percentile::P90, Percentile::P99];
    let latencies = percentiles.map(|percentile| Quantity::Latency(percentile, kind));
    with_latencies(latencies.into())
}

/// The same, but latencies of all transactions of clients in the region of each row.
pub fn one_region() -> Vec<Quantity> {
    with_latencies(latencies_of_region().into())
}

fn latencies_of_region() -> [Quantity; 3] {
    [Percentile::P50, Percentile::P90, Percentile::P99].map(Quantity::RegionLatency)
}

fn with_latencies(latencies: Vec<Quantity>) -> Vec<Quantity> {
    let throughput = std::iter::once(Quantity::Throughput);
    throughput.chain(latencies).chain([Quantity::AbortedByNodes]).collect()
}

/// How the transactions of these curves were committed, where clocks decide their order.
pub fn chart_of_paths<'c>(axis: &'static str, curves: impl Iterator<Item = &'c Curve>) -> Chart {
    let of_tiga = curves.filter(|curve| curve.name.starts_with(Protocol::Tiga.name()));
    let row = |row: &ExperimentRow| {
        let run = row.run?;
        Some(ExperimentRow { x: row.x, ..ExperimentRow::named(0, &row.label).run(run) })
    };
    let curve = |curve: &Curve| Curve {
        name: curve.name.clone(),
        base: 0,
        rows: curve.rows.iter().filter_map(row).collect(),
    };
    Chart {
        title: "How tiga committed",
        axis,
        unit: "",
        quantities: CommitPath::ALL.map(Quantity::Committed).into(),
        plots: Plots::AlongAxis,
        curves: of_tiga.map(curve).collect(),
        notes: vec![
            "1 WRTT: fast on all shards, in one wide-area round trip from the coordinator. Late arrivals, withheld votes, dropped \
             entries and discarded executions are of a hundred commits, each counted at every replica. Discarded are executions of \
             leaders that voted before all had agreed (detective): none of leaders in one region, nor where the engine has no count \
             of them."
                .to_owned(),
        ],
    }
}

/// The latencies in each region of the row at this place of each curve.
pub fn chart_of_regions(curves: &[Curve], at: usize) -> Chart {
    let of_curve = |curve: &Curve| {
        let row = &curve.rows[at];
        let run = row.run.expect("it is measured");
        let name = format!("{}, {}", curve.name, row.label);
        PAPERS_REGIONS.map(|region| {
            ExperimentRow::named(0, format!("{name}, {region}")).run(run).of_region(region)
        })
    };
    let rows = curves.iter().flat_map(of_curve).collect();
    Chart {
        title: "Latency by region",
        axis: "clients in",
        unit: "",
        quantities: latencies_of_region().into(),
        plots: Plots::Percentiles,
        curves: vec![Curve { name: String::new(), base: 0, rows }],
        notes: vec![
            "To all three replicas and back, 130 ms from South Carolina, 230 ms from Finland and from Brazil, 300 ms from Hong \
             Kong. The nearest node coordinates a call with tiga; with the others the leader of its home shard, to which it goes first."
                .to_owned(),
        ],
    }
}

/// How all of them are scaled.
pub fn scaled(more: &[&str]) -> Vec<String> {
    let mut scaled = vec![
        format!(
            "{} all clients and replicas; in the paper each of nine servers and the coordinators have machines of 16 cores.",
            own_cores()
        ),
        format!(
            "{SHARDS} shards of {REPLICAS} replicas, of one worker each; {} keys a shard instead of a million.",
            words::count(KEYS_OF_SHARD.into())
        ),
        "Clients are in all four regions, in turn, and those of one region share its connections.".to_owned(),
        format!(
            "The paper says of the regions that they are 60 to 150 ms apart, one way; here {}, of which those between are \
             estimates.",
            Regions::tiga()
        ),
        "Transactions are calls. With tiga the nearest node coordinates them, in the region without replicas a node of its own; with the \
         others the leader of the first shard does."
            .to_owned(),
    ];
    scaled.extend(more.iter().map(|more| (*more).to_owned()));
    scaled
}

/// How TPC-C is scaled.
pub fn scaled_orders() -> String {
    format!(
        "TPC-C: {WAREHOUSES} warehouses on {SHARDS} shards, where the paper has six shards, with a tenth of the usual items and \
         customers; payments by name and order-statuses are interactive."
    )
}
