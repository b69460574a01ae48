//! The factor analysis of the paper (§7.9): what each part of the system costs.

use super::experiment::{About, Chart, Curve, Experiment, ExperimentRow, Plots, Quantity, add};
use super::run::{ExperimentRun, On};
use super::scale::{
    FAR, ORDER_CLIENTS, REPLICAS, WAREHOUSES, cores, far_cluster, small_warehouses, tpcc,
};
use crate::local::ClusterPlan;
use shoal_server::Protocol;

/// Workers of the embedded database, and of a node that has the cores to itself.
const WORKERS: u32 = 2;

/// Shards from where on there are several.
const SHARDS: u32 = 3;

/// Clients in leaders where nothing is far away.
const NEAR_CLIENTS: usize = 24;

/// Transactions a second that the paper has published, by row.
const PAPERS: [(u32, f64); 5] = [(1, 1.66e6), (2, 1.48e6), (4, 0.47e6), (5, 0.36e6), (6, 0.36e6)];

/// What each part of the design contributes to the throughput of TPC-C, as a table in the paper has it.
pub fn table() -> Experiment {
    let load = tpcc(WAREHOUSES);
    let mut runs = Vec::new();
    let embedded = ExperimentRun {
        words: "embedded".to_owned(),
        load,
        on: On::Embedded,
        clients: WORKERS as usize,
    };
    let embedded = add(&mut runs, embedded);
    let alone = ClusterPlan { workers: WORKERS, ..ClusterPlan::new(1, 1) };
    let alone = add(&mut runs, ExperimentRun::on(alone, load, NEAR_CLIENTS));
    let several =
        add(&mut runs, ExperimentRun::on(ClusterPlan::new(SHARDS, 1), load, NEAR_CLIENTS));
    let far = ExperimentRun::on(far_cluster(Protocol::Mako, SHARDS), load, ORDER_CLIENTS);
    let far = add(&mut runs, far);
    let rows = [
        ExperimentRow::named(1, "Silo"),
        ExperimentRow::named(2, "+ versions: the embedded database").run(embedded),
        ExperimentRow::named(3, "(a node: stamps, streams, one shard)").run(alone),
        ExperimentRow::named(4, "+ distributed transactions").run(several),
        ExperimentRow::named(5, "+ replication"),
        ExperimentRow::named(6, "+ replay (all of it)").run(far),
    ];
    let rows = rows.map(|row| row.measured_there(Quantity::Throughput, &PAPERS));
    let chart = Chart {
        title: "TPC-C, one part after the other",
        axis: "what is there",
        unit: "",
        quantities: vec![Quantity::Throughput, Quantity::PerLeaderSecond, Quantity::Aborted],
        plots: Plots::AlongAxis,
        curves: vec![Curve { name: "TPC-C".to_owned(), base: 1, rows: rows.into() }],
        notes: vec![
            "Relative: to the store with versions. Of Silo there is no equivalent, since our store always \
             keeps versions; nor of replication without replay, since followers always replay. The paper has \
             no node alone."
                .to_owned(),
            "In the last row followers have two thirds of the work, on the same cores; per leader CPU s \
             leaves them out."
                .to_owned(),
        ],
    };
    Experiment {
        about: About {
            name: "table-factor",
            title: "Mako, §7.9: what each part costs",
            paper: "TPC-C on 10 shards, a machine each, a second: Silo 1.66 M transactions, with versions \
                    1.48 M (11.1 % less), with distributed transactions 0.47 M (68.1 % less), with \
                    replication 0.36 M (22.5 % less), with replay 0.36 M.",
            scaled: vec![
                cores(),
                format!(
                    "{WAREHOUSES} warehouses in all rows. The embedded database and the node alone have \
                     {WORKERS} workers, the {SHARDS} shards one each; in the last row each shard has \
                     {REPLICAS} replicas, {} ms apart.",
                    FAR.as_millis()
                ),
                small_warehouses(),
                format!(
                    "{WORKERS} clients in the embedded database, {NEAR_CLIENTS} in the leaders where nothing \
                     is far, {ORDER_CLIENTS} where replicas are."
                ),
            ],
        },
        runs,
        charts: vec![chart],
    }
}
