//! Tables 1 and 2 of the Tiga paper: the most throughput, with leaders in one region and in three.

use super::super::experiment::{
    About, Chart, Curve, Experiment, ExperimentRow, Percentile, Plots, PublishedNumber, Quantity,
};
use super::super::run::{ExperimentRun, RegionLoad};
use super::setup::{
    Curves, ENGINES, INCREMENT, INCREMENTING, Leaders, NEW_ORDER, Places, SKEW, all_regions,
    chart_of_paths, chart_of_regions, cluster, increments, orders, scaled, scaled_orders,
};
use shoal_bench::BenchLoad;
use shoal_server::Protocol;

/// The same with TPC-C, where more would only meet more conflicts.
const ORDERING: usize = 240;

const THOUSAND: f64 = 1e3;

/// Table 1: thousands of transactions a second, with increments and with TPC-C.
const TABLE_1: [(&str, f64, f64); 8] = [
    ("Tiga", 157.3, 21.6),
    ("Calvin+", 119.6, 6.1),
    ("Janus", 77.8, 10.8),
    ("NCC", 47.4, 0.86),
    ("Tapir", 44.2, 1.1),
    ("Detock", 34.5, 13.3),
    ("2PL+Paxos", 22.9, 2.1),
    ("OCC+Paxos", 21.8, 0.9),
];

/// Table 2: with leaders apart, thousands of transactions a second, and the median latency in seconds.
const TABLE_2: [(&str, f64, f64); 7] = [
    ("Tiga", 141.9, 0.30),
    ("Calvin+", 120.0, 0.67),
    ("Janus", 71.9, 0.46),
    ("NCC", 40.7, 0.73),
    ("Tapir", 44.7, 0.44),
    ("2PL+Paxos", 18.6, 1.09),
    ("OCC+Paxos", 18.0, 1.11),
];

const MEDIAN: Quantity = Quantity::Latency(Percentile::P50, INCREMENT);

/// What is run in table 1.
struct Workload {
    title: &'static str,
    /// Before the words of a run.
    what: &'static str,
    load: BenchLoad,
    kind: &'static str,
    clients: usize,
    /// Thousands of transactions a second that the paper has published, by system.
    papers: fn(&(&'static str, f64, f64)) -> f64,
}

fn thousands(row: ExperimentRow, per_ms: f64) -> ExperimentRow {
    row.published(Quantity::Throughput, PublishedNumber::Absolute(per_ms * THOUSAND))
}

impl Workload {
    /// A curve of each set of regions: our engines, and in the paper's regions the paper's systems below.
    fn chart(&self, curves: &mut Curves<'_>) -> Chart {
        let of_places = |places: Places| {
            let rows = (0..).zip(ENGINES).map(|(number, protocol)| {
                let plan = cluster(protocol, places, Leaders::Together);
                let run =
                    ExperimentRun::in_regions(plan, self.load, self.clients, RegionLoad::default());
                (ExperimentRow::named(number, protocol.name()), run)
            });
            let mut curve = curves.curve(places.words(), rows);
            if places == Places::Paper {
                self.add_papers(&mut curve);
            }
            curve
        };
        Chart {
            title: self.title,
            axis: "system",
            unit: "",
            quantities: all_regions(self.kind),
            plots: Plots::AlongAxis,
            curves: Places::all().map(of_places).collect(),
            notes: vec![format!(
                "Relative: to Tiga. Latencies are those of all {} transactions.",
                self.kind
            )],
        }
    }

    fn add_papers(&self, curve: &mut Curve) {
        let [tiga, others @ ..] = &TABLE_1;
        let first = curve.rows.remove(0);
        curve.rows.insert(0, thousands(first, (self.papers)(tiga)));
        let rows = (ENGINES.len() as u32..).zip(others).map(|(number, papers)| {
            let name = format!("the paper: {}", papers.0);
            thousands(ExperimentRow::named(number, name), (self.papers)(papers))
        });
        curve.rows.extend(rows);
    }
}

/// Table 1: the most throughput.
pub fn most_throughput() -> Experiment {
    let micro = Workload {
        title: "Increments, as many as the clients can",
        what: "increments, ",
        load: increments(SKEW),
        kind: INCREMENT,
        clients: INCREMENTING,
        papers: |(_, micro, _)| *micro,
    };
    let tpcc = Workload {
        title: "TPC-C, as many as the clients can",
        what: "TPC-C, ",
        load: orders(),
        kind: NEW_ORDER,
        clients: ORDERING,
        papers: |(_, _, tpcc)| *tpcc,
    };
    let mut runs = Vec::new();
    let mut charts: Vec<Chart> =
        [micro, tpcc].map(|it| it.chart(&mut Curves { runs: &mut runs, what: it.what })).into();
    charts.extend([regions_of(&charts[0]), paths_of(&charts[0], "Increments: how tiga committed")]);
    charts.push(paths_of(&charts[1], "TPC-C: how tiga committed"));
    Experiment {
        about: About {
            name: "tiga-table1",
            title: "Tiga, table 1: the most throughput",
            paper: "Three increments on three shards, skew 0.5, and TPC-C on six, at more and more transactions a second until \
                    throughput grows no more. Tiga 157,300 and 21,600 a second, the next best 119,600 (Calvin+) and 13,300 \
                    (Detock).",
            scaled: scaled(&[
                "As many clients as keep both cores busy, each of which begins its next transaction when the last has ended: \
                 1,600 with increments, 240 with TPC-C.",
                &scaled_orders(),
                "The others are our own engines; the paper’s systems stand below. two-phase-commit is of the kind of OCC+Paxos.",
            ]),
        },
        runs,
        charts,
    }
}

/// The rows of one engine in a chart whose curves are sets of regions.
fn rows_of<'c>(
    chart: &'c Chart,
    name: &str,
) -> impl Iterator<Item = (&'c Curve, &'c ExperimentRow)> {
    let of_curve =
        move |curve: &'c Curve| Some((curve, curve.rows.iter().find(|row| row.label == name)?));
    chart.curves.iter().filter_map(of_curve).collect::<Vec<_>>().into_iter()
}

/// How the transactions of tiga were committed, over sets of regions.
fn paths_of(chart: &Chart, title: &'static str) -> Chart {
    let of_tiga = rows_of(chart, Protocol::Tiga.name());
    let rows = (0..).zip(of_tiga).map(|(number, (places, row))| ExperimentRow {
        run: row.run,
        ..ExperimentRow::named(number, &places.name)
    });
    let name = Protocol::Tiga.name().to_owned();
    let curve = Curve { name, base: 0, rows: rows.collect() };
    Chart { title, ..chart_of_paths("regions", std::iter::once(&curve)) }
}

/// The latencies by region, of each engine in the paper's.
fn regions_of(chart: &Chart) -> Chart {
    let of_engine = |protocol: Protocol| {
        let (_, row) = rows_of(chart, protocol.name()).next()?;
        let row = ExperimentRow { run: row.run, ..ExperimentRow::named(0, "four regions") };
        Some(Curve { name: protocol.name().to_owned(), base: 0, rows: vec![row] })
    };
    let curves: Vec<Curve> = ENGINES.into_iter().filter_map(of_engine).collect();
    chart_of_regions(&curves, 0)
}

/// Table 2: the same with leaders in three regions.
pub fn leaders_apart() -> Experiment {
    let mut runs = Vec::new();
    let mut curves = Curves::of(&mut runs);
    let of_engine = |(places, protocol): (Places, Protocol)| {
        let rows = [(Leaders::Together, "together"), (Leaders::Apart, "apart")];
        let rows = (0..).zip(rows).map(|(number, (leaders, name))| {
            let plan = cluster(protocol, places, leaders);
            let load = increments(SKEW);
            let run = ExperimentRun::in_regions(plan, load, INCREMENTING, RegionLoad::default());
            let row = ExperimentRow::named(number, name);
            let is_papers = places == Places::Paper && protocol == Protocol::Tiga;
            (if is_papers { papers_row(row, "Tiga", leaders) } else { row }, run)
        });
        curves.curve(format!("{}, {}", protocol.name(), places.words()), rows)
    };
    let all = Places::all().flat_map(|places| ENGINES.map(|protocol| (places, protocol)));
    let ours: Vec<Curve> = all.map(of_engine).collect();
    let paths = chart_of_paths("leaders", ours.iter());
    let regions = chart_of_regions(&ours[..ENGINES.len()], 1);
    let papers = TABLE_2.iter().skip(1).map(|(name, ..)| papers_curve(name));
    let chart = Chart {
        title: "Increments, with leaders in one region and in three",
        axis: "leaders",
        unit: "",
        quantities: all_regions(INCREMENT),
        plots: Plots::AlongAxis,
        curves: ours.into_iter().chain(papers).collect(),
        notes: vec!["Relative: to leaders that are together, of the same system.".to_owned()],
    };
    Experiment {
        about: About {
            name: "tiga-table2",
            title: "Tiga, table 2: leaders apart",
            paper: "Servers are rotated, so that the leaders of the three shards are in three regions; increments, skew 0.5. The \
                    throughput of Tiga is 9.7 % less and its median latency 34 % more, that of Calvin+ 162 % more. Leaders that \
                    are apart execute before they have agreed (detective).",
            scaled: scaled(&[
                "1,600 clients, each of which begins its next transaction when the last has ended.",
                "Whether leaders that are apart vote before they have agreed (detective) shows in the executions that are discarded.",
                "The others are our own engines; the paper’s systems stand below.",
            ]),
        },
        runs,
        charts: vec![chart, regions, paths],
    }
}

/// A system of the paper, with leaders together or apart.
fn papers_row(row: ExperimentRow, name: &str, leaders: Leaders) -> ExperimentRow {
    match leaders {
        Leaders::Together => {
            let found = TABLE_1.iter().find(|(known, ..)| *known == name);
            found.into_iter().fold(row, |row, (_, micro, _)| thousands(row, *micro))
        }
        Leaders::Apart => {
            let found = TABLE_2.iter().find(|(known, ..)| *known == name);
            found.into_iter().fold(row, |row, (_, throughput, seconds)| {
                let latency = PublishedNumber::Absolute(seconds * THOUSAND);
                thousands(row, *throughput).published(MEDIAN, latency)
            })
        }
    }
}

fn papers_curve(name: &str) -> Curve {
    let rows = [(Leaders::Together, "together"), (Leaders::Apart, "apart")];
    let rows = (0..).zip(rows).map(|(number, (leaders, label))| {
        papers_row(ExperimentRow::named(number, label), name, leaders)
    });
    Curve { name: format!("the paper: {name}"), base: 0, rows: rows.collect() }
}
