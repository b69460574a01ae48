//! Figures 7 and 8 of the paper: batches, and latency under light load.

use super::experiment::{
    About, Chart, Curve, Experiment, ExperimentRow, Percentile, Plots, PublishedNumber, Quantity,
    add,
};
use super::run::ExperimentRun;
use super::scale::{
    FAR, PROTOCOLS, WAREHOUSES, cores, far_cluster, keys, micro, replicas, small_warehouses, tpcc,
};
use crate::local::ClusterPlan;
use shoal_server::{EngineOptions, Protocol};
use std::time::Duration;

/// Of figure 7: more than the largest batches and those on their way have in them.
const BATCH_CLIENTS: usize = 2_000;

/// More bytes than any batch of figure 7 has.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// And a longer time than any of them should take to fill.
const BATCH_DELAY: Duration = Duration::from_millis(200);

/// Of figure 8: few enough that none waits for a processor.
const LIGHT_CLIENTS: usize = 16;

/// And enough keys that they do not meet.
const LIGHT_KEYS: u32 = 10_000;

/// What a commit may take under light load, at the median and at the 99th percentile.
const MEDIAN_MS_MAX: f64 = 52.0;
const P99_MS_MAX: f64 = 60.0;

/// Figure 7 of the paper: latency over the size of batches.
pub fn over_batches() -> Experiment {
    let median = Quantity::Latency(Percentile::P50, "new-order");
    let mut runs = Vec::new();
    let mut run = |mako: shoal_mako::MakoOptions, words: String| {
        let plan =
            ClusterPlan { engine: EngineOptions::Mako(mako), ..far_cluster(Protocol::Mako, 1) };
        add(&mut runs, ExperimentRun::on(plan, tpcc(WAREHOUSES), BATCH_CLIENTS).called(words))
    };
    let rows = [50, 100, 200, 400, 600, 800].map(|size| {
        let options = shoal_mako::MakoOptions {
            batch_transactions_max: size as usize,
            batch_bytes_max: BATCH_BYTES_MAX,
            batch_delay: BATCH_DELAY,
            ..shoal_mako::MakoOptions::default()
        };
        let row = ExperimentRow::at(size).run(run(options, format!("batches of {size}")));
        match size {
            100 => row.published(Quantity::Throughput, PublishedNumber::Relative(1.0)),
            400 => row.published(Quantity::Throughput, PublishedNumber::Relative(1.158)),
            600 => row.published(median, PublishedNumber::Absolute(121.0)),
            _ => row,
        }
    });
    let by_size = Curve { name: "closed when full".to_owned(), base: 1, rows: rows.into() };
    let usual = run(shoal_mako::MakoOptions::default(), "batches as by default".to_owned());
    let usual = ExperimentRow::named(400, "≤ 400").run(usual);
    let usual =
        Curve { name: "default: 400, 64 KiB or 1 ms".to_owned(), base: 0, rows: vec![usual] };
    let chart = Chart {
        title: "TPC-C over batch sizes",
        axis: "transactions a batch",
        unit: "",
        quantities: vec![Quantity::Throughput, median, Quantity::PerLeaderSecond],
        plots: Plots::AlongAxis,
        curves: vec![by_size, usual],
        notes: vec!["p50 is that of new-orders.".to_owned()],
    };
    Experiment {
        about: About {
            name: "mako-fig7",
            title: "Mako, figure 7: batch size against throughput and latency",
            paper: "TPC-C on 10 shards. Batches of 400 bring 15.8 % more throughput than batches of 100, \
                    and up to 1600 it stays about there. The median latency with 600 is 121 ms: 50 ms for \
                    the round trip, 13 ms for batching, the rest for the watermark.",
            scaled: vec![
                cores(),
                format!(
                    "One shard with {WAREHOUSES} warehouses and {BATCH_CLIENTS} clients, so that one \
                     stream has enough to fill its batches."
                ),
                small_warehouses(),
                replicas(),
                format!(
                    "Batches close when they are full, or {} ms after the one before; by default they \
                     close with 64 KiB or after 1 ms, and are never as large as this: that is the last row.",
                    BATCH_DELAY.as_millis()
                ),
            ],
        },
        runs,
        charts: vec![chart],
    }
}

/// Figure 8 of the paper: latency under light load.
pub fn under_light_load() -> Experiment {
    let latency = |percentile| Quantity::Latency(percentile, "read-modify-write");
    let mut runs = Vec::new();
    let mut rows = Vec::new();
    for protocol in PROTOCOLS {
        for (shards, cross_percent, words) in
            [(1, 0, "1 shard"), (3, 100, "3 shards, all leave theirs")]
        {
            let plan = far_cluster(protocol, shards);
            let words = format!("{}, {words}", plan.engine_name());
            let clients = LIGHT_CLIENTS * shards as usize;
            let run =
                ExperimentRun::on(plan, micro(LIGHT_KEYS, cross_percent), clients).called(&words);
            let row = ExperimentRow::named(0, words).run(add(&mut runs, run));
            let most = [(Percentile::P50, MEDIAN_MS_MAX), (Percentile::P99, P99_MS_MAX)];
            let most = most.map(|(percentile, ms)| (latency(percentile), ms));
            let is_promised = protocol == Protocol::Mako;
            rows.push(ExperimentRow {
                most: if is_promised { most.into() } else { Vec::new() },
                ..row
            });
        }
    }
    let papers = [
        ("the paper: Mako", [57.0, 60.0, 64.0, 65.0, 66.0]),
        ("the paper: Janus", [50.3, 50.5, 50.7, 50.8, 51.3]),
        ("the paper: Calvin", [146.0, 166.0, 202.0, 206.0, 212.0]),
    ];
    rows.extend(papers.map(|(name, papers)| {
        let each = Percentile::UP_TO_P99.into_iter().zip(papers);
        each.fold(ExperimentRow::named(0, name), |row, (percentile, ms)| {
            row.published(latency(percentile), PublishedNumber::Absolute(ms))
        })
    }));
    let chart = Chart {
        title: "Latency under light load",
        axis: "",
        unit: "",
        quantities: Percentile::UP_TO_P99.map(latency).into(),
        plots: Plots::Percentiles,
        curves: vec![Curve { name: String::new(), base: 0, rows }],
        notes: vec![
            "Of transactions that write. Ours that only read are not shown: they are told at once, unless \
             they have read what is not durable yet."
                .to_owned(),
        ],
    };
    Experiment {
        about: About {
            name: "mako-fig8",
            title: "Mako, figure 8: latency under light load",
            paper: "the micro-benchmark on a single replicated shard, under a light load, replicas 50 ms \
                    apart. The median of Mako is 60 ms: 50 ms for the round trip, 3.5 ms for batching, \
                    6.5 ms for the watermark.",
            scaled: vec![
                cores(),
                replicas(),
                format!(
                    "{}; {LIGHT_CLIENTS} clients a shard. One shard, as in the paper, and beside it the \
                     hardest case: three, of which every transaction touches two. Distance as there: {} ms.",
                    keys(LIGHT_KEYS),
                    FAR.as_millis()
                ),
            ],
        },
        runs,
        charts: vec![chart],
    }
}
