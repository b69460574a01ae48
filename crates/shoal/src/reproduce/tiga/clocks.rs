//! Table 3 and figure 14 of the Tiga paper: clocks that are more or less wrong. Nodes of a cluster in one process have the
//! clock of its machine, and none can be made wrong: so there is what the paper says, and nothing beside it.

use super::super::experiment::{
    About, Chart, Curve, Experiment, ExperimentRow, Plots, PublishedNumber, Quantity,
};

/// The clocks, with thousands of transactions a second and errors in milliseconds.
const CLOCKS: [(&str, f64, f64); 4] = [
    ("Ntpd", 156.8, 16.45),
    ("Chrony", 157.1, 4.54),
    ("Huygens", 158.1, 0.012),
    ("Bad-Clock", 154.7, 62.55),
];

/// Why there is nothing to measure.
fn not_measured() -> Vec<String> {
    vec![
        "Not measured: all nodes have the clock of this machine, and neither `shoal serve` nor a cluster of this process has an \
         option for the error of a node’s clock."
            .to_owned(),
        "What wrong clocks do is tested in virtual time: `shoal sim --engine tiga` draws clocks that are off by up to seconds."
            .to_owned(),
    ]
}

fn published(about: About) -> Experiment {
    let rows = (0..).zip(CLOCKS).map(|(number, (name, thousands, error_ms))| {
        let throughput = PublishedNumber::Absolute(thousands * 1e3);
        ExperimentRow { x: error_ms, ..ExperimentRow::named(number, format!("the paper: {name}")) }
            .published(Quantity::Throughput, throughput)
            .published(Quantity::ClockError, PublishedNumber::Absolute(error_ms))
    });
    let chart = Chart {
        title: "Throughput by clock, in the paper",
        axis: "clocks",
        unit: "",
        quantities: vec![Quantity::Throughput, Quantity::ClockError],
        plots: Plots::AlongAxis,
        curves: vec![Curve { name: "the paper".to_owned(), base: 0, rows: rows.collect() }],
        notes: Vec::new(),
    };
    Experiment { about, runs: Vec::new(), charts: vec![chart] }
}

/// Table 3: throughput with clocks that are more or less wrong.
pub fn throughput_by_clock() -> Experiment {
    published(About {
        name: "tiga-table3",
        title: "Tiga, table 3: throughput and errors of clocks",
        paper: "Increments with skew 0.99 and clocks that ntpd, chrony and Huygens synchronize, and one with an unstable NTP server: \
                154,700 to 158,100 transactions a second.",
        scaled: not_measured(),
    })
}

/// Figure 14: latency with clocks that are more or less wrong.
pub fn latency_by_clock() -> Experiment {
    published(About {
        name: "tiga-fig14",
        title: "Tiga, figure 14: latency by clock",
        paper: "Increments with skew 0.99. With chrony and Huygens the latency is about the same; ntpd causes extra holding time, and \
                where errors approach the delays between regions (Bad-Clock) the latency grows a lot. Its text has no latencies.",
        scaled: not_measured(),
    })
}
