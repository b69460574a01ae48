//! Figure 11 of the Tiga paper: a leader that stops.

use super::super::experiment::{
    About, Chart, Experiment, ExperimentRow, LeaderStop, Plots, PublishedNumber, Quantity,
};
use super::super::run::{ExperimentRun, RegionLoad};
use super::rates::RATE;
use super::setup::{CLIENTS, Curves, ENGINES, Leaders, Places, SKEW, cluster, increments, scaled};
use shoal_server::Protocol;
use shoal_types::ShardId;

/// The shard whose leader stops: not the one whose nodes have the managers, as the paper's view manager is elsewhere, too.
const STOPPED: ShardId = ShardId(1);

/// Seconds until the paper's throughput is what it was before.
const RECOVERED_S: f64 = 3.8;

/// Figure 11: throughput and latency around the stop of a leader.
pub fn leader_stops() -> Experiment {
    let mut runs = Vec::new();
    let mut curves = Curves::of(&mut runs);
    let of_engine = |protocol: Protocol| {
        let rows = (0..).zip(Places::all()).map(|(number, places)| {
            let plan = cluster(protocol, places, Leaders::Together);
            let load = RegionLoad { rate_per_s: Some(RATE.into()), leader_stops: Some(STOPPED) };
            let run = ExperimentRun::in_regions(plan, increments(SKEW), CLIENTS, load);
            let row = ExperimentRow::named(number, places.words());
            let outage = Quantity::Around(LeaderStop::Outage);
            let row = match (protocol, places) {
                (Protocol::Tiga, Places::Paper) => {
                    row.published(outage, PublishedNumber::Absolute(RECOVERED_S))
                }
                _ => row,
            };
            (row, run)
        });
        curves.curve(protocol.name(), rows)
    };
    let quantities = [
        LeaderStop::ThroughputBefore,
        LeaderStop::Outage,
        LeaderStop::ThroughputAfter,
        LeaderStop::LatencyBefore,
        LeaderStop::LatencyAfter,
    ];
    let chart = Chart {
        title: "Increments around the stop of a leader",
        axis: "regions",
        unit: "",
        quantities: quantities.map(Quantity::Around).into(),
        plots: Plots::OverTime,
        curves: ENGINES.map(of_engine).into(),
        notes: vec![
            "Before: the first third of the time, at the end of which the leader stops; after: the last third. Outage: until no \
             interval of 0.1 s has less than half of the throughput before. Throughput afterwards contains what was due \
             meanwhile, and latencies are from the moment at which transactions were due."
                .to_owned(),
        ],
    };
    Experiment {
        about: About {
            name: "tiga-fig11",
            title: "Tiga, figure 11: a leader fails",
            paper: "Increments with skew 0.5, 10,000 a second for each of eight coordinators; the leader of one shard is killed. \
                    After 3.8 s throughput is what it was. Latency is higher from then on, since with two replicas left the \
                    shard commits on the slow path.",
            scaled: scaled(&[
                "500 transactions a second and 800 clients on all regions together; each run takes three times --duration, and after \
                 a third of it the node that leads the second shard ends as in a crash, and does not come back.",
                "The managers, which appoint leaders, are at the nodes of the first shard, in the three regions with replicas.",
                "The others are our own engines.",
            ]),
        },
        runs,
        charts: vec![chart],
    }
}
