//! Several measurements of one workload, side by side: each on something else.

use super::page::{
    badge, card, check_list, escape, facts, figure, kind_table, middle_run, notes,
    percentile_figure, stage_table, table, whole,
};
use super::{plot, words};
use crate::bench::Measurement;

/// The heads of the columns of [`rows`].
pub const HEADS: [&str; 6] =
    ["on", "committed/s", "to the first", "per CPU second", "slowest p50", "its p99"];

/// A row for each, by what it ran on.
pub fn rows(measurements: &[Measurement]) -> Vec<[String; 6]> {
    let first = measurements.first().map_or(0.0, |first| first.summary.committed_per_s);
    measurements.iter().map(|measurement| row(measurement, first)).collect()
}

fn row(measurement: &Measurement, first: f64) -> [String; 6] {
    let summary = &measurement.summary;
    let latencies = summary.kinds.iter().filter_map(|kind| kind.latency);
    let slowest = latencies.max_by_key(|latency| latency.columns()[1]);
    let [_, p50, _, p99, ..] = slowest.map_or_else(
        || std::array::from_fn(|_| "–".to_owned()),
        |latency| latency.columns().map(words::latency),
    );
    let per_cpu = summary.committed_per_cpu_s.map_or_else(|| "–".to_owned(), words::rate);
    let share = words::times(summary.committed_per_s / first.max(f64::MIN_POSITIVE));
    let target = measurement.build.target.clone().into_owned();
    [target, words::rate(summary.committed_per_s), share, per_cpu, p50, p99]
}

/// The page of them all.
///
/// # Panics
/// If there are none.
pub fn html(measurements: &[Measurement]) -> String {
    let first = &measurements[0];
    let badge = badge(measurements);
    let header = format!(
        "<header><div><h1>{}</h1><p>Shoal {} · {} clients · {}</p></div>{badge}</header>\n",
        escape(first.workload),
        escape(first.build.version),
        first.load.workers,
        escape(&first.started_at),
    );
    let notes: String = measurements.iter().map(notes).collect();
    let body = [
        header,
        notes,
        overview(measurements),
        throughput(measurements),
        columns(measurements, "Latency percentiles", percentile_figure),
        columns(measurements, "Latency by transaction type", kind_table),
        columns(measurements, "Where the time of writers goes", stage_table),
        columns(measurements, "Checks of the data", check_list),
        facts(first),
    ]
    .concat();
    let title = format!("{} · Shoal", escape(first.workload));
    whole(&title, &body, "One after the other on the same machine: these numbers compare.")
}

fn overview(measurements: &[Measurement]) -> String {
    let rows: Vec<Vec<String>> = rows(measurements)
        .into_iter()
        .map(|cells| cells.iter().map(|cell| escape(cell)).collect())
        .collect();
    let lead = "Committed transactions a second; the slowest transaction type by its median.";
    card("Side by side", lead, &table(&HEADS, &rows))
}

fn throughput(measurements: &[Measurement]) -> String {
    let timelines: Vec<_> =
        measurements.iter().map(|it| middle_run(it).timeline.as_slice()).collect();
    let names: Vec<String> =
        measurements.iter().map(|it| it.build.target.clone().into_owned()).collect();
    card(
        "Throughput over time",
        "Committed transactions a second, after warm-up, in each one’s run of median throughput.",
        &figure(&names, &plot::throughput(&timelines)),
    )
}

/// A card for each, next to the others.
fn columns(
    measurements: &[Measurement],
    title: &str,
    content: fn(&Measurement) -> String,
) -> String {
    let card = |it: &Measurement| card(title, &escape(&it.build.target), &content(it));
    let cards: String = measurements.iter().map(card).collect();
    format!("<div class=\"columns\">\n{cards}</div>\n")
}
