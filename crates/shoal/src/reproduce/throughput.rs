//! Figures 6, 9 and 12 of the paper: throughput over the number of shards, over the share of transactions that
//! leave their shard, and over forms of stamps.

use super::experiment::{
    About, Chart, Curve, Experiment, ExperimentRow, Percentile, Plots, Quantity, add,
};
use super::run::ExperimentRun;
use super::scale::{
    CROSS_PERCENT, KEYS_OF_SHARD, MICRO_CLIENTS, ORDER_CLIENTS, PROTOCOLS, WAREHOUSES, conversion,
    cores, far_cluster, keys, micro, replicas, small_warehouses, tpcc,
};
use crate::local::ClusterPlan;
use shoal_bench::{BenchLoad, MicroLoad};
use shoal_mako::StampForm;
use shoal_server::{EngineOptions, Protocol};
use shoal_types::REMOTE_CLOCKS_MAX;

/// Clients on all shards together that have no distance to overcome.
const NEAR_CLIENTS: usize = 480;

/// Shards of a cluster whose size is not what it is about.
const SHARDS: u32 = 3;

/// Numbers of shards in figure 6; we have no machine for the last.
const FIGURE_6_SHARDS: [u32; 4] = [1, 2, 3, 10];

/// What is run over shards in figure 6.
struct Scaled {
    title: &'static str,
    clients: usize,
    load: BenchLoad,
    /// What the paper has published, by shards.
    papers: &'static [(u32, f64)],
}

/// Figure 6 of the paper: throughput over the number of shards.
pub fn over_shards() -> Experiment {
    let orders = Scaled {
        title: "TPC-C over shards",
        clients: ORDER_CLIENTS,
        load: tpcc(WAREHOUSES),
        papers: &[(1, 0.96e6), (10, 3.66e6)],
    };
    let small = Scaled {
        title: "The micro-benchmark over shards",
        clients: MICRO_CLIENTS,
        load: micro(KEYS_OF_SHARD, CROSS_PERCENT),
        papers: &[(10, 16.7e6)],
    };
    let mut runs = Vec::new();
    let charts = [orders, small].map(|scaled| scaled.chart(&mut runs));
    Experiment {
        about: About {
            name: "mako-fig6",
            title: "Mako, figure 6: throughput over the number of shards",
            paper: "1 to 10 shards, each with machines of its own, 24 workers and as many warehouses; \
                    replicas 50 ms apart. TPC-C: 0.96 M transactions a second on one shard, 3.66 M on ten. \
                    Micro-benchmark, of whose accesses 5 % go to another shard: 16.7 M on ten. What its 2PC \
                    does stands in the drawing only.",
            scaled: vec![
                cores(),
                "1 to 3 shards.".to_owned(),
                replicas(),
                format!(
                    "TPC-C: {WAREHOUSES} warehouses and {ORDER_CLIENTS} clients, on however many shards. \
                     Micro-benchmark: {}, and {MICRO_CLIENTS} clients on all together.",
                    keys(KEYS_OF_SHARD)
                ),
                small_warehouses(),
                conversion(),
                "Two-phase-commit is our own baseline.".to_owned(),
            ],
        },
        runs,
        charts: charts.into(),
    }
}

impl Scaled {
    fn chart(&self, runs: &mut Vec<ExperimentRun>) -> Chart {
        let curves = PROTOCOLS.map(|protocol| self.curve(protocol, runs));
        Chart {
            title: self.title,
            axis: "shards",
            unit: "",
            quantities: vec![
                Quantity::Throughput,
                Quantity::PerShard,
                Quantity::PerLeaderSecond,
                Quantity::Aborted,
            ],
            plots: Plots::AlongAxis,
            curves: curves.into(),
            notes: vec![
                "All shards share these cores, so throughput cannot grow with them here. What can be \
                 compared is what a second of the leaders' processors brings: it would not change if \
                 shards cost each other nothing."
                    .to_owned(),
            ],
        }
    }

    fn curve(&self, protocol: Protocol, runs: &mut Vec<ExperimentRun>) -> Curve {
        let is_ours = |shards: u32| shards <= SHARDS;
        let papers = if protocol == Protocol::Mako { self.papers } else { &[] };
        let rows = FIGURE_6_SHARDS.map(|shards| {
            let row = ExperimentRow::at(shards).measured_there(Quantity::Throughput, papers);
            if !is_ours(shards) {
                return row;
            }
            let run = ExperimentRun::on(far_cluster(protocol, shards), self.load, self.clients);
            row.run(add(runs, run))
        });
        let name = protocol.name().to_owned();
        Curve { name, base: 0, rows: rows.into_iter().filter(ExperimentRow::is_there).collect() }
    }
}

/// Figure 9 of the paper: throughput over the share of transactions on several shards.
pub fn over_shares() -> Experiment {
    let mut runs = Vec::new();
    let rows = [0, 10, 25, 50, 75, 100].map(|percent| {
        let run = ExperimentRun::on(
            far_cluster(Protocol::Mako, SHARDS),
            micro(KEYS_OF_SHARD, percent),
            MICRO_CLIENTS,
        );
        let run = add(&mut runs, run.called(format!("{percent} % leave their shard")));
        let papers = [(0, 60.3e6), (100, 1.1e6)];
        let row = ExperimentRow::at(percent).run(run).measured_there(Quantity::Throughput, &papers);
        let kept_min = (percent == 100).then_some((Quantity::Throughput, 0.1));
        ExperimentRow { kept_min, ..row }
    });
    let chart = Chart {
        title: "The micro-benchmark, over the share of transactions that leave their shard",
        axis: "leave their shard",
        unit: "%",
        quantities: vec![
            Quantity::Throughput,
            Quantity::PerLeaderSecond,
            Quantity::Latency(Percentile::P50, "read-modify-write"),
        ],
        plots: Plots::AlongAxis,
        curves: vec![Curve { name: "mako".to_owned(), base: 0, rows: rows.into() }],
        notes: vec!["p50 is that of read-modify-writes.".to_owned()],
    };
    Experiment {
        about: About {
            name: "mako-fig9",
            title: "Mako, figure 9: transactions that leave their shard",
            paper: "the micro-benchmark on 10 shards. 60.3 M transactions a second where none leaves its \
                    shard, 1.1 M (98.2 % less) where all do, mostly for the time that calls between shards \
                    take.",
            scaled: vec![
                cores(),
                format!(
                    "{SHARDS} shards; {}; {MICRO_CLIENTS} clients on all together.",
                    keys(KEYS_OF_SHARD)
                ),
                replicas(),
                "A transaction that leaves its shard does so with one of its four keys.".to_owned(),
            ],
        },
        runs,
        charts: vec![chart],
    }
}

/// Figure 12 of the paper: throughput over the form of stamps.
pub fn over_stamps() -> Experiment {
    let forms = [
        ("full", StampForm::Full),
        ("sparse, the default", StampForm::Sparse { remote_max: REMOTE_CLOCKS_MAX }),
        ("one timestamp", StampForm::Timestamp),
    ];
    let (keys_of_shard, cross_percent) = (KEYS_OF_SHARD, CROSS_PERCENT);
    let load =
        BenchLoad::Micro(MicroLoad { keys_of_shard, cross_percent, all_write: true, calls: false });
    let mut runs = Vec::new();
    let curves = forms.map(|(name, stamps)| {
        let rows = [1, 2, 3, 4, 6].map(|shards| {
            let options = shoal_mako::MakoOptions { stamps, ..shoal_mako::MakoOptions::default() };
            let engine = EngineOptions::Mako(options);
            let plan = ClusterPlan { engine, ..ClusterPlan::new(shards, 1) };
            let run = ExperimentRun::on(plan, load, NEAR_CLIENTS);
            ExperimentRow::at(shards)
                .run(add(&mut runs, run.called(format!("stamps {name}, {shards} shards"))))
        });
        Curve { name: name.to_owned(), base: 0, rows: rows.into() }
    });
    let chart = Chart {
        title: "Forms of stamps, over shards",
        axis: "shards",
        unit: "",
        quantities: vec![Quantity::Throughput, Quantity::PerShard, Quantity::PerLeaderSecond],
        plots: Plots::AlongAxis,
        curves: curves.into(),
        notes: vec![
            "The paper's curve of full vectors bends beyond 320 shards, which one machine cannot show: here \
             the forms are to be level."
                .to_owned(),
        ],
    };
    Experiment {
        about: About {
            name: "mako-fig12",
            title: "Mako, figure 12: how vector clocks scale",
            paper: "hundreds of shards of one core each; four read-modify-writes a transaction, 5 % of the \
                    accesses on another shard. Full vectors scale up to 320 shards and then degrade; a \
                    single timestamp and vectors of exactly 64 entries scale almost linearly. Its text has \
                    no throughput.",
            scaled: vec![
                cores(),
                format!(
                    "1 to 6 shards without followers, so that the cores are the leaders'; {}; \
                     {NEAR_CLIENTS} clients on all together.",
                    keys(KEYS_OF_SHARD)
                ),
                conversion(),
                format!(
                    "Where the paper has exactly 64 entries, sparse stamps have what is not durable yet, at \
                     most {REMOTE_CLOCKS_MAX}."
                ),
            ],
        },
        runs,
        charts: vec![chart],
    }
}
