//! Table 3 and figure 14 of the Tiga paper: clocks that are more or less wrong.

use super::super::experiment::{
    About, Chart, Curve, Experiment, ExperimentRow, Plots, PublishedNumber, Quantity,
};
use super::super::run::{ExperimentRun, RegionLoad};
use super::rates::RATE;
use super::setup::{
    CLIENTS, Curves, INCREMENT, INCREMENTING, Leaders, Places, SKEW_MOST, all_regions, at_rate,
    chart_of_paths, chart_of_regions, cluster, increments, scaled,
};
use crate::local::ClusterPlan;
use shoal_net::ClockError;
use shoal_server::Protocol;
use shoal_types::NodeId;

/// The clocks of the paper, with thousands of transactions a second and errors in milliseconds.
const CLOCKS: [(&str, f64, f64); 4] = [
    ("Huygens", 158.1, 0.012),
    ("Chrony", 157.1, 4.54),
    ("Ntpd", 156.8, 16.45),
    ("Bad-Clock", 154.7, 62.55),
];

/// The node whose clock alone is wrong: the leader of the second shard, in the region of all leaders.
const WRONG: NodeId = NodeId(3);

/// By how many milliseconds that is.
const ERRORS_MS: [f64; 7] = [0.0, 10.0, -10.0, 100.0, -100.0, 5_000.0, -5_000.0];

/// The place of the greatest among them.
const FAR_AHEAD: usize = 5;

fn error(ms: f64) -> ClockError {
    ClockError((ms * 1e6) as i64)
}

/// The nodes of the first region are ahead by so much, those of the second behind.
fn all_wrong(plan: ClusterPlan, ms: f64) -> ClusterPlan {
    let of_region = [ms, -ms, 0.0];
    let nodes = 0..plan.nodes() as usize;
    let clock_errors = nodes.map(|node| error(of_region[node % of_region.len()])).collect();
    ClusterPlan { clock_errors, ..plan }
}

/// One node is ahead by so much.
fn one_wrong(plan: ClusterPlan, ms: f64) -> ClusterPlan {
    let nodes = (0..plan.nodes()).map(NodeId);
    let clock_errors = nodes.map(|node| error(if node == WRONG { ms } else { 0.0 })).collect();
    ClusterPlan { clock_errors, ..plan }
}

/// Increments in the paper's regions, on a cluster with such clocks.
struct Clocks {
    clients: usize,
    load: RegionLoad,
}

impl Clocks {
    fn run(&self, wrong: impl Fn(ClusterPlan) -> ClusterPlan) -> ExperimentRun {
        let plan = wrong(cluster(Protocol::Tiga, Places::Paper, Leaders::Together));
        ExperimentRun::in_regions(plan, increments(SKEW_MOST), self.clients, self.load)
    }

    /// A curve over the clocks of the paper, and one over the errors of one node.
    fn curves(&self, runs: &mut Vec<ExperimentRun>) -> [Curve; 2] {
        let mut curves = Curves::of(runs);
        let papers = (0..).zip(CLOCKS).map(|(number, (name, thousands, ms))| {
            let row = ExperimentRow { x: ms, ..ExperimentRow::named(number, name) }
                .published(Quantity::Throughput, PublishedNumber::Absolute(thousands * 1e3))
                .published(Quantity::ClockError, PublishedNumber::Absolute(ms));
            (row, self.run(|plan| all_wrong(plan, ms)))
        });
        let papers = curves.curve("tiga, all clocks", papers);
        let of_one = ERRORS_MS.into_iter().map(|ms| {
            let row = ExperimentRow { x: ms, ..ExperimentRow::named(0, format!("{ms:+} ms")) };
            (row, self.run(|plan| one_wrong(plan, ms)))
        });
        [papers, curves.curve("tiga, one clock", of_one)]
    }

    fn experiment(&self, about: About, title: &'static str) -> Experiment {
        let mut runs = Vec::new();
        let curves = self.curves(&mut runs);
        let paths = chart_of_paths("clocks", curves.iter());
        let regions = [
            chart_of_regions(&curves[..1], CLOCKS.len() - 1),
            chart_of_regions(&curves[1..], FAR_AHEAD),
        ];
        let quantities = all_regions(INCREMENT);
        let chart = Chart {
            title,
            axis: "clocks",
            unit: "",
            quantities: quantities.into_iter().chain([Quantity::ClockError]).collect(),
            plots: Plots::AlongAxis,
            curves: curves.into(),
            notes: vec![
                "All clocks: those of the first region, with the leaders, are ahead by the error that the paper has for the clock, those \
                 of the second are behind by as much. One clock: that of the leader of the second shard. Latencies are those of all \
                 regions. Relative: to the first of a curve."
                    .to_owned(),
            ],
        };
        let charts = std::iter::once(chart).chain(regions).chain([paths]).collect();
        Experiment { about, runs, charts }
    }
}

fn scaled_clocks(load: &str) -> Vec<String> {
    scaled(&[
        load,
        "All nodes share the clock of this machine, to which each adds an error that stays as it is; the paper’s change while a daemon \
         corrects them.",
    ])
}

/// Table 3: throughput with clocks that are more or less wrong.
pub fn throughput_by_clock() -> Experiment {
    let about = About {
        name: "tiga-table3",
        title: "Tiga, table 3: throughput and errors of clocks",
        paper: "Increments with skew 0.99 and clocks that ntpd, chrony and Huygens synchronize, and one with an unstable NTP server: \
                154,700 to 158,100 transactions a second.",
        scaled: scaled_clocks(
            "1,600 clients, each of which begins its next transaction when the last has ended.",
        ),
    };
    let clocks = Clocks { clients: INCREMENTING, load: RegionLoad::default() };
    clocks.experiment(about, "Increments, as many as the clients can, by clock")
}

/// Figure 14: latency with clocks that are more or less wrong.
pub fn latency_by_clock() -> Experiment {
    let about = About {
        name: "tiga-fig14",
        title: "Tiga, figure 14: latency by clock",
        paper: "Increments with skew 0.99. With chrony and Huygens the latency is about the same; ntpd causes extra holding time, and \
                where errors approach the delays between regions (Bad-Clock) the latency grows a lot. Its text has no latencies.",
        scaled: scaled_clocks("500 transactions a second and 800 clients on all regions together."),
    };
    let clocks = Clocks { clients: CLIENTS, load: at_rate(RATE) };
    clocks.experiment(about, "Increments by clock, all regions")
}
