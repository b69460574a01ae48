//! A measurement as people read it on a terminal.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Row, Table, TableStyle};
use console::Term;
use shoal_types::counted::{FLUSH_NS, FLUSHES};
use shoal_workloads::bench::measurement::Run;
use shoal_workloads::bench::{Measurement, StageTime};
use shoal_workloads::report::{comparison, page, words};
use std::fmt::Write;

/// The measurement in words and tables.
pub fn text(measurement: &Measurement) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail, hence the results thrown away below.
    _ = writeln!(text, "{}\n", headline(measurement));
    _ = writeln!(text, "{}\n", kinds(measurement));
    if let Some(regions) = regions(measurement) {
        _ = writeln!(text, "{regions}\n");
    }
    if let Some(stages) = stages(measurement) {
        _ = writeln!(text, "{stages}\n");
    }
    if let Some(costs) = costs(measurement) {
        _ = writeln!(text, "{costs}\n");
    }
    if measurement.runs.len() > 1 {
        _ = writeln!(text, "{}\n", runs(measurement));
    }
    text += &facts("parameters", &page::parameters(measurement));
    text += &facts("machine", &page::machine(measurement));
    text += &outcome(measurement);
    text += &checks(measurement);
    for warning in page::warnings(measurement) {
        _ = writeln!(text, "warning: {warning}");
    }
    text
}

fn headline(measurement: &Measurement) -> String {
    let summary = &measurement.summary;
    let per_worker = summary.committed_per_s / measurement.load.workers as f64;
    let per_cpu = summary
        .committed_per_cpu_s
        .map_or(String::new(), |per_s| format!(", {} per CPU second", words::rate(per_s)));
    let mut line = format!(
        "{}: {} committed transactions a second ({} a worker{})",
        measurement.workload,
        words::rate(summary.committed_per_s),
        words::rate(per_worker),
        per_cpu,
    );
    if measurement.runs.len() > 1 {
        _ = write!(
            line,
            "\nmedian of {} runs, {} to {}",
            measurement.runs.len(),
            words::rate(summary.committed_per_s_min),
            words::rate(summary.committed_per_s_max),
        );
    }
    line
}

/// Several measurements of one workload, by what it ran on.
pub fn side_by_side(measured: &[Measurement]) -> String {
    let rows = comparison::rows(measured);
    format!("{}\n\n", table(comparison::HEADS, rows.into_iter()))
}

/// Lines below the heads and the last row; space does the rest.
const STYLE: TableStyle = TableStyle::new().header_separator(RULE).bottom_border(RULE);
const RULE: LineStyle = LineStyle::none().fill('─').junction('─');

/// What every terminal has room for.
pub const COLUMNS_MAX: usize = 80;

/// Tables below each other that show what one table would that is too wide for a terminal: each begins with the first
/// column, which names the row.
///
/// # Panics
/// If a row has more or fewer cells than there are heads.
pub fn tables(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    assert!(rows.iter().all(|row| row.len() == heads.len()), "{heads:?} and {rows:?}");
    // With a blank on both sides, and one to the next column.
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        3 + cells.max().unwrap_or(0).max(heads[at].chars().count())
    };
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut left = 0;
    for at in 1..heads.len() {
        if left < width(at) {
            parts.push(vec![0]);
            left = (COLUMNS_MAX + 1).saturating_sub(width(0));
        }
        parts.last_mut().expect("one was begun").push(at);
        left = left.saturating_sub(width(at));
    }
    let part = |columns: &Vec<usize>| {
        let mut table = Table::new();
        let cells = |row: &Vec<String>| columns.iter().map(|at| row[*at].clone()).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        let heads: Vec<&str> = columns.iter().map(|at| heads[*at]).collect();
        table.load_style(STYLE).set_header(heads).add_rows(rows);
        // A single cell may still be wider than the terminal.
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(COLUMNS_MAX as u16);
        align(&mut table);
        table.trim_fmt()
    };
    parts.iter().map(part).collect::<Vec<String>>().join("\n\n")
}

/// A table with its numbers to the right.
pub fn table<const N: usize>(heads: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(heads).add_rows(rows);
    align(&mut table);
    table.trim_fmt()
}

/// A table of text, no wider than a terminal.
pub struct Listing {
    /// The table.
    pub text: String,
    /// Rows of which not all is shown.
    pub cut: usize,
}

/// A table of text in which each row is one line; what is too wide for so many columns is cut.
pub fn listing<const N: usize>(
    heads: [&str; N],
    rows: &[[String; N]],
    columns: Option<u16>,
) -> Listing {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(heads).set_truncation_indicator("…");
    for cells in rows {
        let mut row = Row::from(cells);
        row.max_height(1);
        table.add_row(row);
    }
    if let Some(columns) = columns {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    }
    let text = table.trim_fmt();
    // Below the heads and their line.
    let lines = text.lines().skip(2);
    let is_cut = |(line, cells): &(&str, &[String; N])| {
        !cells.iter().all(|cell| line.contains(cell.as_str()))
    };
    let cut = lines.zip(rows).filter(is_cut).count();
    Listing { text, cut }
}

/// A text as one argument for the shell.
pub fn argument(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:,+=@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// How wide the terminal is to which is written, or as wide as `COLUMNS` says; `None` where there is neither.
pub fn columns() -> Option<u16> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.or_else(|| Term::stdout().size_checked().map(|(_, columns)| columns))
}

/// All columns but the first hold numbers.
fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn kinds(measurement: &Measurement) -> String {
    let rows = measurement.summary.kinds.iter().map(|kind| {
        let latencies = kind.latency.map(|latency| latency.columns().map(words::latency));
        let [mean, p50, p90, p99, p99_9, max] =
            latencies.unwrap_or_else(|| std::array::from_fn(|_| "–".to_owned()));
        [kind.name.to_owned(), words::percent(kind.share), mean, p50, p90, p99, p99_9, max]
    });
    table(["transaction", "share", "mean", "p50", "p90", "p99", "p99.9", "max"], rows)
}

/// What the clients of each region have seen, where their regions are known.
fn regions(measurement: &Measurement) -> Option<String> {
    let rows = page::regions(measurement);
    (!rows.is_empty()).then(|| table(page::REGION_HEADS, rows.into_iter()))
}

/// What a transaction costs the threads of this process, where several kinds of them have a part in it.
fn costs(measurement: &Measurement) -> Option<String> {
    let rows = page::costs(measurement);
    (!rows.is_empty()).then(|| table(page::COST_HEADS, rows.into_iter()))
}

/// Where the time of writers goes, if it is known.
fn stages(measurement: &Measurement) -> Option<String> {
    let stages = &page::middle_run(measurement).stages;
    let row = |stage: &StageTime| {
        let mean = words::latency(stage.mean_ns as u64);
        [stage.name.clone(), mean, words::percent(stage.share)]
    };
    let heads = ["where a writer's time goes", "mean", "share"];
    (!stages.is_empty()).then(|| table(heads, stages.iter().map(row)))
}

fn runs(measurement: &Measurement) -> String {
    let rows = measurement.runs.iter().enumerate().map(|(number, run)| {
        [
            (number + 1).to_string(),
            run.seed.to_string(),
            words::rate(run.throughput.mean_per_s),
            words::rate(run.throughput.min_per_s),
            words::rate(run.throughput.max_per_s),
            words::percent(run.conflict_rate()),
            run.committed_per_cpu_s().map_or("unknown".into(), words::rate),
        ]
    });
    table(["run", "seed", "per second", "least", "most", "conflicts", "per CPU s"], rows)
}

/// Facts on one line, which a terminal wraps as it likes.
fn facts(title: &str, facts: &[(&str, String)]) -> String {
    let facts: Vec<String> = facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{title:<11} {}\n", facts.join(" · "))
}

/// The medians over the runs, except for the process's memory, which is the most in any run.
fn outcome(measurement: &Measurement) -> String {
    let summary = &measurement.summary;
    let each = if measurement.runs.len() > 1 { " · medians a run" } else { "" };
    let mut outcome = format!(
        "{:<11} {} committed · {} rolled back as demanded · {} conflicts ({}){each}\n",
        "outcome",
        words::count(summary.committed),
        words::count(summary.rolled_back),
        words::count(summary.conflicts),
        words::percent(summary.conflict_rate),
    );
    outcome.push_str(&flushes(page::middle_run(measurement)).unwrap_or_default());
    let bytes = |bytes: Option<u64>| bytes.map_or("unknown".into(), words::bytes);
    _ = writeln!(
        outcome,
        "{:<11} {} rows loaded in {} · then {} of data · process at most {}",
        "memory",
        words::count(summary.loaded_rows),
        words::seconds(summary.load_s),
        bytes(summary.loaded_bytes),
        bytes(summary.peak_resident_bytes),
    );
    outcome
}

/// What the logs of a cluster have flushed in a run, where it counts that.
fn flushes(run: &Run) -> Option<String> {
    let count = |name: &str| run.counted.get(name).copied();
    let flushes = count(FLUSHES).filter(|flushes| *flushes > 0)?;
    let mean = words::latency(count(FLUSH_NS)? / flushes);
    let per_s = words::rate(flushes as f64 / run.measured_s);
    Some(format!("{:<11} {per_s} a second on all nodes · {mean} each\n", "flushes"))
}

/// The checks that failed, and how many held.
fn checks(measurement: &Measurement) -> String {
    let all = || measurement.runs.iter().flat_map(|run| &run.checks);
    if all().next().is_none() {
        return format!("{:<11} not asked for\n", "checks");
    }
    let held = all().filter(|check| check.passed).count();
    let mut text = format!("{:<11} {held} of {} hold\n", "checks", all().count());
    for check in all().filter(|check| !check.passed) {
        let detail = check.detail.as_deref().unwrap_or("no detail");
        _ = writeln!(text, "  FAILED {}: {detail}", check.name);
    }
    text
}

/// Names, one after the other.
pub fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_workloads::bench::{self, BenchSettings, Build, Threads};
    use shoal_workloads::model::Model;
    use shoal_workloads::ycsb::{Distribution, Letter, Ycsb};

    #[test]
    fn tables_are_no_wider_than_a_terminal_and_show_everything() {
        let heads = ["node", "a", "b", "c", "d"];
        let narrow =
            tables(&heads, [["n0", "1", "2", "3", "4"].map(str::to_owned).into()].into_iter());
        assert_eq!(narrow.matches("node").count(), 1, "{narrow}");
        let cells = ["s0v0", "datacenter-of-a-long-name", "12345 67890", "x", "y"];
        let mut row = cells.map(str::to_owned).to_vec();
        row[4] = "s0v1 100, ".repeat(20);
        row[3] = "z".repeat(30);
        let wide = tables(&heads, [row.clone(), row].into_iter());
        for line in wide.lines() {
            assert!(line.chars().count() <= COLUMNS_MAX, "too wide: {line}\n{wide}");
        }
        for part in ["datacenter-of-a-long-name", "12345 67890", &"z".repeat(30)] {
            assert_eq!(wide.matches(part).count(), 2, "{part}:\n{wide}");
        }
        assert_eq!(wide.matches("100,").count(), 40, "{wide}");
    }

    #[test]
    fn listings_cut_what_is_too_wide_and_say_so() {
        let row = |key: &str, value: String| [key.to_owned(), value];
        let rows =
            [row("a", "short".to_owned()), row("b", "é".repeat(200)), row("c", String::new())];
        for columns in [80, 120] {
            let listing = listing(["key", "value"], &rows, Some(columns));
            assert_eq!(listing.cut, 1, "{}", listing.text);
            let widest = listing.text.lines().map(|line| line.chars().count()).max();
            assert_eq!(widest, Some(usize::from(columns)), "{}", listing.text);
        }
        let whole = listing(["key", "value"], &rows, None);
        assert!(whole.cut == 0 && whole.text.contains(&rows[1][1]), "{}", whole.text);
    }

    #[test]
    fn the_outcome_shows_medians_and_not_the_last_run() {
        let settings = BenchSettings {
            workers: 1,
            warm_up: std::time::Duration::ZERO,
            duration: std::time::Duration::from_millis(1),
            rate_per_s: None,
            seed: 1,
            runs: 2,
            check: false,
            reserved_bytes: 0,
        };
        let build =
            Build { version: "0", profile: "debug", allocator: "system", target: "model".into() };
        let make = || {
            let db = Model::new();
            let ycsb = Ycsb::new(&db, Letter::C, 100, 100, Distribution::Uniform)?;
            Ok((Threads(db), std::sync::Arc::new(ycsb)))
        };
        let mut measurement = bench::run(&settings, build, make, &mut |_| ()).expect("it runs");
        measurement.runs[1].committed = 999;
        measurement.summary.committed = 123;
        let shown = outcome(&measurement);
        assert!(shown.contains("123 committed") && shown.contains("medians a run"), "{shown}");
        assert!(!shown.contains("999"), "{shown}");
    }
}
