//! Figures 7, 8 and 10 of the Tiga paper: over the rate at which transactions begin.

use super::super::experiment::{About, Chart, Experiment, ExperimentRow, Plots};
use super::super::run::ExperimentRun;
use super::setup::{
    CLIENTS, Curves, ENGINES, INCREMENT, LOCAL, Leaders, NEW_ORDER, PlaceNames, Places, REMOTE,
    SKEW, all_regions, at_rate, chart_of_paths, chart_of_regions, chart_over_distances, cluster,
    increments, one_region, orders, scaled, scaled_orders,
};
use shoal_bench::BenchLoad;
use shoal_server::Protocol;

/// Increments a second, of all clients together.
const RATES: [u32; 4] = [200, 500, 1_000, 2_000];

/// The rate of the experiments over distances, and of those that vary something else.
pub const RATE: u32 = 500;

/// The place of [`RATE`] among the others.
const RATE_AT: usize = 1;

/// Transactions of TPC-C a second.
const ORDER_RATES: [u32; 4] = [50, 100, 200, 400];

/// That of the experiment over distances, and its place among the others.
const ORDER_RATE: u32 = 100;
const ORDER_RATE_AT: usize = 1;

/// An experiment over rates, of whose charts some are about one region.
struct OverRates {
    about: About,
    title: &'static str,
    load: BenchLoad,
    /// The kind of transactions whose latency is shown, where it is that of all regions.
    kind: &'static str,
    region: Option<PlaceNames>,
    rates: [u32; 4],
    /// The rate of the chart over distances, and of that of regions, by its place.
    rate_at: usize,
}

impl OverRates {
    fn experiment(self) -> Experiment {
        let mut runs = Vec::new();
        let mut curves = Curves::of(&mut runs);
        let run = |protocol: Protocol, places: Places, per_s: u32| {
            let plan = cluster(protocol, places, Leaders::Together);
            ExperimentRun::in_regions(plan, self.load, CLIENTS, at_rate(per_s))
        };
        let of_engine = |protocol: Protocol| {
            let rows = self.rates.into_iter().map(|per_s| {
                let region = self.region.map(|names| names.paper);
                let row = ExperimentRow { region, ..ExperimentRow::at(per_s) };
                (row, run(protocol, Places::Paper, per_s))
            });
            curves.curve(protocol.name(), rows)
        };
        let of_engines = ENGINES.map(of_engine);
        let rate = self.rates[self.rate_at];
        let distances =
            curves.over_distances(&|protocol, places| run(protocol, places, rate), self.region);
        let quantities = match self.region {
            Some(_) => one_region(),
            None => all_regions(self.kind),
        };
        let paths = chart_of_paths("", of_engines.iter().chain(&distances));
        let regions = chart_of_regions(&of_engines, self.rate_at);
        let over_rates = Chart {
            title: self.title,
            axis: "begin a second",
            unit: "",
            quantities: quantities.clone(),
            plots: Plots::AlongAxis,
            curves: of_engines.into(),
            notes: vec![
                "Throughput and aborts are those of all regions. Transactions begin on schedule: a latency is from the moment at \
                 which a transaction was due, and a client has one at a time, so that few are under way beyond saturation. \
                 Relative: to the least rate."
                    .to_owned(),
            ],
        };
        let title = "The same on uniform distances, at one rate";
        let over_distances = chart_over_distances(title, quantities, distances);
        let charts = vec![over_rates, regions, over_distances, paths];
        Experiment { about: self.about, runs, charts }
    }
}

fn over_increments(about: About, title: &'static str, region: PlaceNames) -> Experiment {
    let (load, kind) = (increments(SKEW), INCREMENT);
    let (rates, rate_at) = (RATES, RATE_AT);
    OverRates { about, title, load, kind, region: Some(region), rates, rate_at }.experiment()
}

fn scaled_rates() -> Vec<String> {
    scaled(&[
        "200 to 2,000 transactions a second and 800 clients on all regions together; in the paper up to more than 157,000.",
        "The others are our own engines; what the paper’s others do stands in the drawing only.",
    ])
}

/// Figure 7: increments over rates, as clients near the leaders see it.
pub fn in_local_region() -> Experiment {
    let about = About {
        name: "tiga-fig7",
        title: "Tiga, figure 7: increments over rates, in the leaders’ region",
        paper: "Increments with skew 0.5 at more and more transactions a second; throughput, commit rate and latency of the \
                coordinators in South Carolina, where the leaders are. Tiga takes one wide-area round trip; Janus, Tapir and \
                Calvin+ do at low rates. Its text has no latency.",
        scaled: scaled_rates(),
    };
    over_increments(about, "Increments over rates, clients in South Carolina", LOCAL)
}

/// Figure 8: the same, as clients see it that are near no replica.
pub fn in_remote_region() -> Experiment {
    let about = About {
        name: "tiga-fig8",
        title: "Tiga, figure 8: increments over rates, in a region without replicas",
        paper: "The same for the coordinators in Hong Kong, where no server is: Tiga takes one wide-area round trip there, too, \
                and Janus, Tapir and Calvin+ at least two. Its text has no latency.",
        scaled: scaled_rates(),
    };
    over_increments(about, "Increments over rates, clients in Hong Kong", REMOTE)
}

/// Figure 10: TPC-C over rates.
pub fn orders_over_rates() -> Experiment {
    let about = About {
        name: "tiga-fig10",
        title: "Tiga, figure 10: TPC-C over rates",
        paper: "TPC-C on six shards, at more and more transactions a second; throughput, commit rate and latency over all \
                regions. Tiga commits up to 21,600 a second with the lowest latency; 2PL+Paxos, OCC+Paxos and Tapir abort most. \
                Its text has no latency.",
        scaled: scaled(&[
            "50 to 400 transactions a second and 800 clients on all regions together.",
            &scaled_orders(),
            "The others are our own engines.",
        ]),
    };
    OverRates {
        about,
        title: "TPC-C over rates, all regions",
        load: orders(),
        kind: NEW_ORDER,
        region: None,
        rates: ORDER_RATES,
        rate_at: ORDER_RATE_AT,
    }
    .experiment()
}

const _: () = assert!(RATES[RATE_AT] == RATE && ORDER_RATES[ORDER_RATE_AT] == ORDER_RATE);
