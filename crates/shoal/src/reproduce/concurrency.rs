//! Figure 11 of the paper: more clients do not mean more throughput where locks are held over a distance.

use super::experiment::{
    About, Chart, Curve, Experiment, ExperimentRow, Plots, PublishedNumber, Quantity, add,
};
use super::run::ExperimentRun;
use super::scale::{PROTOCOLS, cores, far_cluster, new_orders, replicas, small_warehouses};
use crate::local::ClusterPlan;
use shoal_server::Protocol;

/// The leaders of two shards are in two datacenters.
const SHARDS: u32 = 2;

/// One on each shard, so that each remote order line leaves its shard.
const WAREHOUSES: u16 = 2;

/// Clients a warehouse. In the paper 240 warehouses have 12,000 and 24,000: 50 and 100 each.
const CLIENTS: [u32; 6] = [1, 4, 16, 50, 100, 200];

/// Where the throughput of the paper's 2PC stops to grow.
const PLATEAU: u32 = 50;

/// Figure 11 of the paper: throughput and latency over the number of clients.
pub fn over_clients() -> Experiment {
    let load = new_orders(WAREHOUSES);
    let mut runs = Vec::new();
    let curves = PROTOCOLS.map(|protocol| {
        let rows = CLIENTS.map(|clients| {
            let plan = ClusterPlan { leader_datacenters: 2, ..far_cluster(protocol, SHARDS) };
            let words = format!("{}, {clients} clients a warehouse", plan.engine_name());
            let all = clients as usize * usize::from(WAREHOUSES);
            let row = ExperimentRow::at(clients)
                .run(add(&mut runs, ExperimentRun::on(plan, load, all).called(words)));
            match (protocol, clients) {
                (Protocol::TwoPhaseCommit, PLATEAU) => {
                    row.published(Quantity::Throughput, PublishedNumber::Relative(1.0))
                }
                (Protocol::TwoPhaseCommit, more) if more > PLATEAU => row
                    .published(Quantity::Throughput, PublishedNumber::Relative(1.0))
                    .published(Quantity::Aborted, PublishedNumber::Absolute(0.98)),
                _ => row,
            }
        });
        let base = CLIENTS.iter().position(|clients| *clients == PLATEAU).unwrap_or(0);
        Curve { name: protocol.name().to_owned(), base, rows: rows.into() }
    });
    let chart = Chart {
        title: "New-orders over clients, leaders in two datacenters",
        axis: "clients a warehouse",
        unit: "",
        quantities: vec![Quantity::Throughput, Quantity::Aborted, Quantity::PerLeaderSecond],
        plots: Plots::AlongAxis,
        curves: curves.into(),
        notes: vec![
            "Relative: to 50 clients a warehouse, the paper's 12,000. Aborted: of all attempts; each \
             client tries again until it succeeds."
                .to_owned(),
        ],
    };
    Experiment {
        about: About {
            name: "mako-fig11",
            title: "Mako, figure 11: more and more clients",
            paper: "new-order transactions of TPC-C under 2PC, about 9 % of them on several shards, leaders \
                    spread evenly over two datacenters. From 12,000 clients on throughput stays flat, and \
                    beyond them the rate of aborts goes up to 98 %. Mako is not in this figure.",
            scaled: vec![
                cores(),
                format!(
                    "{SHARDS} shards with a warehouse each. The paper has 10 shards with 24: so 12,000 \
                     clients are {PLATEAU} a warehouse, and that is what we count by."
                ),
                small_warehouses(),
                replicas(),
                "With two warehouses every remote order line leaves its shard: about 9 % of the \
                 transactions."
                    .to_owned(),
                "Mako is added to compare.".to_owned(),
            ],
        },
        runs,
        charts: vec![chart],
    }
}
