//! Figures 9 and 12 of the Tiga paper: over the skew of the keys.

use super::super::experiment::{About, Chart, Curve, Experiment, ExperimentRow, Plots};
use super::super::run::ExperimentRun;
use super::rates::RATE;
use super::setup::{
    CLIENTS, Curves, ENGINES, INCREMENT, Leaders, Places, SKEW, SKEW_MOST, all_regions, at_rate,
    chart_of_paths, chart_of_regions, chart_over_distances, cluster, increments, scaled,
};
use shoal_server::Protocol;

/// Of the paper, from the least to the most.
const SKEWS: [f64; 4] = [SKEW, 0.75, 0.9, SKEW_MOST];

/// What is said of all rates here.
const RATE_SCALED: &str = "500 transactions a second and 800 clients on all regions together; in the paper 8,000 for each of eight coordinators.";

fn run(protocol: Protocol, places: Places, leaders: Leaders, skew: f64) -> ExperimentRun {
    let plan = cluster(protocol, places, leaders);
    ExperimentRun::in_regions(plan, increments(skew), CLIENTS, at_rate(RATE))
}

/// A curve over skews, in the paper's regions.
fn curve(curves: &mut Curves<'_>, name: &str, protocol: Protocol, leaders: Leaders) -> Curve {
    let rows = SKEWS.into_iter().map(|skew| {
        let row = ExperimentRow { x: skew, ..ExperimentRow::named(0, skew.to_string()) };
        (row, run(protocol, Places::Paper, leaders, skew))
    });
    curves.curve(name, rows)
}

/// The charts of curves over skews, and of others over distances at the greatest skew.
fn charts(title: &'static str, over_skews: Vec<Curve>, distances: Vec<Curve>) -> Vec<Chart> {
    let regions = chart_of_regions(&over_skews, SKEWS.len() - 1);
    let paths = chart_of_paths("", over_skews.iter().chain(&distances));
    let chart = Chart {
        title,
        axis: "skew",
        unit: "",
        quantities: all_regions(INCREMENT),
        plots: Plots::AlongAxis,
        curves: over_skews,
        notes: vec!["Latencies are those of all regions. Relative: to the least skew.".to_owned()],
    };
    let title = "The same on uniform distances, skew 0.99";
    let over_distances = chart_over_distances(title, all_regions(INCREMENT), distances);
    vec![chart, regions, over_distances, paths]
}

/// Figure 9: increments over skews.
pub fn over_skew() -> Experiment {
    let mut runs = Vec::new();
    let mut curves = Curves::of(&mut runs);
    let over_skews = ENGINES
        .map(|protocol| curve(&mut curves, protocol.name(), protocol, Leaders::Together))
        .into();
    let distances = curves.over_distances(
        &|protocol, places| run(protocol, places, Leaders::Together, SKEW_MOST),
        None,
    );
    Experiment {
        about: About {
            name: "tiga-fig9",
            title: "Tiga, figure 9: increments over skews",
            paper: "8,000 transactions a second for each coordinator, skew 0.5 to 0.99; throughput, commit rate and latency over \
                    all regions. Tiga and Calvin+ keep their throughput, Tapir and the locking ones abort more and more. Its \
                    text has no numbers.",
            scaled: scaled(&[
                RATE_SCALED,
                "With fewer keys the hottest are hotter, and with a lower rate fewer transactions meet at them.",
                "The others are our own engines.",
            ]),
        },
        charts: charts("Increments over skews, all regions", over_skews, distances),
        runs,
    }
}

/// Figure 12: the latency over skews, with leaders in one region and in three.
pub fn leaders_over_skew() -> Experiment {
    let mut runs = Vec::new();
    let mut curves = Curves::of(&mut runs);
    let mut over_skews =
        vec![curve(&mut curves, "tiga, together", Protocol::Tiga, Leaders::Together)];
    over_skews.extend(ENGINES.map(|protocol| {
        let name = format!("{}, apart", protocol.name());
        curve(&mut curves, &name, protocol, Leaders::Apart)
    }));
    let distances = curves
        .over_distances(&|protocol, places| run(protocol, places, Leaders::Apart, SKEW_MOST), None);
    let title = "Increments over skews, with leaders in one region and in three";
    Experiment {
        about: About {
            name: "tiga-fig12",
            title: "Tiga, figure 12: leaders together and apart, over skews",
            paper: "8,000 transactions a second for each coordinator, skew 0.5 to 0.99, leaders in one region and in three. Apart, \
                    the latency grows more with the skew, since executions are rolled back, and stays below that of the others. \
                    Its text has no numbers.",
            scaled: scaled(&[
                RATE_SCALED,
                "Whether leaders that are apart vote before they have agreed (detective) shows in the executions that are discarded.",
                "The others are our own engines, with leaders apart.",
            ]),
        },
        charts: charts(title, over_skews, distances),
        runs,
    }
}
