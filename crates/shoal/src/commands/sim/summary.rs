//! What a simulation found, in words and tables.

use super::arguments::BugChoice;
use super::search::{SearchTally, SeedSearch};
use crate::duration::span;
use crate::terminal::table;
use shoal_sim::metrics::Metrics;
use shoal_sim::planted;
use shoal_sim::{RunReport, SimulatedEngine};
use shoal_workloads::report::words;
use std::fmt::Write;
use std::time::Duration;

/// What is going to be run, so that it can be run again.
pub fn opening(engine: &str, fault: Option<BugChoice>, search: &SeedSearch) -> String {
    let SeedSearch { first, count, time, .. } = search;
    let seeds = match (count, time) {
        (1, _) => format!("seed {first}"),
        (_, Some(time)) => {
            format!("seeds from {first}, for {}", words::seconds(time.as_secs_f64()))
        }
        (_, None) => format!("seeds {first} to {}", first + (count - 1)),
    };
    let fault = fault.map_or(String::new(), |planted| format!(", with {} planted", planted.name));
    format!("{engine}, {seeds}{fault}\n")
}

/// A run that failed: how to see it again, what was broken, and what happened last.
pub fn failure(again: &str, report: &RunReport) -> String {
    let Some(failure) = &report.failure else { return String::new() };
    let seed = report.seed;
    let mut text = format!("\nseed {seed} broke a rule. To see it again:\n\n  {again}\n\n");
    _ = writeln!(text, "rule      {}", failure.violation);
    _ = writeln!(text, "scenario  {}", report.scenario);
    if !failure.trace.is_empty() {
        _ = writeln!(text, "\nits last {} events:\n", failure.trace.len());
        for line in &failure.trace {
            _ = writeln!(text, "{line}");
        }
    }
    text + "\n"
}

/// The coverage points that no seed reached, though seeds should.
pub fn unreached(engine: SimulatedEngine, first: u64, tally: &SearchTally) -> Vec<String> {
    points(engine, first, tally).filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
}

/// The coverage points that seeds of the engine should reach from `first` on, its own last, and how often they did.
fn points(
    engine: SimulatedEngine,
    first: u64,
    tally: &SearchTally,
) -> impl Iterator<Item = (String, u64)> {
    let shared = tally.coverage.all().filter(move |(name, _)| engine.is_to_reach(name, first));
    let paths = engine.paths(first).iter();
    let paths = paths.map(|path| (path.replace('_', " "), tally.metrics.engines.get(path)));
    shared.map(|(name, count)| (name.to_owned(), count)).chain(paths)
}

/// Everything that was counted.
pub fn tables(engine: SimulatedEngine, first: u64, tally: &SearchTally) -> String {
    if tally.seeds == 0 {
        return String::new();
    }
    let mut text = String::new();
    for part in [outcomes(&tally.metrics), faults(&tally.metrics), coverage(engine, first, tally)] {
        _ = writeln!(text, "\n{part}");
    }
    text + "\n" + &facts(tally)
}

fn outcomes(metrics: &Metrics) -> String {
    let outcomes = metrics.outcomes;
    let all = outcomes.done + outcomes.gave_up + outcomes.unknown;
    let share = |part: u64| words::percent(part as f64 / all.max(1) as f64);
    let row = |name: &str, count: u64| [name.to_owned(), words::count(count), share(count)];
    let rows = [
        row("committed", outcomes.done - outcomes.rolled_back),
        row("rolled back on demand", outcomes.rolled_back),
        row("aborted for conflicts", outcomes.gave_up - outcomes.refused),
        row("refused for overload", outcomes.refused),
        row("no outcome", outcomes.unknown),
    ];
    table(["transactions", "count", "share"], rows.into_iter())
}

fn faults(metrics: &Metrics) -> String {
    let traffic = metrics.traffic;
    let each = |count: u64| match count {
        0 => "–".to_owned(),
        count => format!("1 in {}", words::count((traffic.sent / count).max(1))),
    };
    let kinds = [
        ("messages lost", traffic.lost, true),
        ("messages arrived twice", traffic.duplicated, true),
        ("messages out of order", traffic.reordered, true),
        ("messages much too late", traffic.late, true),
        ("messages held by a clog", traffic.clogged, true),
        ("links clogged", traffic.clogs, false),
        ("links cut", traffic.cuts, false),
        ("workers stalled", metrics.work.stalls, false),
    ];
    let rows = kinds.into_iter().map(|(name, count, of_messages)| {
        let share = if of_messages { each(count) } else { String::new() };
        [name.to_owned(), words::count(count), share]
    });
    table(["faults", "count", "of messages"], rows)
}

/// Two columns of coverage points, for they are many.
fn coverage(engine: SimulatedEngine, first: u64, tally: &SearchTally) -> String {
    let all: Vec<[String; 2]> = points(engine, first, tally)
        .map(|(name, count)| {
            [name, if count == 0 { "never ◄".to_owned() } else { words::count(count) }]
        })
        .collect();
    let half = all.len().div_ceil(2);
    let rows = (0..half).map(|at| {
        let [left, left_count] = all[at].clone();
        let [right, right_count] = all.get(half + at).cloned().unwrap_or_default();
        [left, left_count, right, right_count]
    });
    let mut rows: Vec<[String; 4]> = rows.collect();
    // Names are left of their counts.
    let width = rows.iter().map(|row| row[2].chars().count()).max().unwrap_or(0);
    for row in &mut rows {
        row[2] = format!("  {:<width$}", row[2]);
    }
    let head = format!("  {:<width$}", "probe");
    table(["probe", "reached", &head, "reached"], rows.into_iter())
}

fn facts(tally: &SearchTally) -> String {
    let SearchTally { seeds, twice, metrics, elapsed, worked, .. } = tally;
    let simulated = Duration::from_nanos(metrics.simulated_ns.min(u64::MAX.into()) as u64);
    let ratio = simulated.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
    let per_core = tally.arrivals as f64 / worked.as_secs_f64().max(1e-9);
    let work = metrics.work;
    let mut text = String::new();
    let mut fact = |name: &str, what: String| _ = writeln!(text, "{name:<11} {what}");
    fact(
        "seeds",
        format!(
            "{} · {} of them run twice, with the same result",
            words::count(*seeds),
            words::count(*twice)
        ),
    );
    fact(
        "simulated",
        format!("{} in {} · {ratio:.1} × as fast as time", span(simulated), span(*elapsed)),
    );
    let all = work.delivered + work.requests + work.replies;
    fact(
        "messages",
        format!("{} delivered · {} a second of one core", words::count(all), words::rate(per_core)),
    );
    fact(
        "events",
        format!(
            "{} steps · {} observations judged",
            words::count(work.steps),
            words::count(work.observations)
        ),
    );
    if let Some((took, seed)) = tally.slowest {
        fact("slowest", format!("seed {seed}, {}", span(took)));
    }
    text
}

/// What is to be remembered.
pub fn verdict(engine: &str, fault: Option<BugChoice>, first: u64, tally: &SearchTally) -> String {
    let seeds = words::count(tally.seeds);
    let seeds = if tally.seeds == 1 { "the seed".to_owned() } else { format!("{seeds} seeds") };
    match (fault, tally.first_failure) {
        (None, None) => format!("\n{engine}: {seeds} kept every rule\n"),
        (None, Some((_, seed, rule))) => format!(
            "\n{engine}: {} of {seeds} broke a rule, first seed {seed}: {rule}\n",
            words::count(tally.failures)
        ),
        (Some(planted), Some((number, seed, rule))) => format!(
            "\n{engine}: {} was caught by {rule}, in the {} of the seeds from {first} (seed {seed}); \
             {} of {seeds} caught it\n{}",
            planted.name,
            ordinal(number + 1),
            words::count(tally.failures),
            unexpected(engine, planted, rule)
        ),
        (Some(planted), None) => {
            format!("\n{engine}: {} was not caught: {seeds} kept every rule\n", planted.name)
        }
    }
}

/// What is said of a rule that is none of those that have to catch the bug.
fn unexpected(engine: &str, planted: BugChoice, rule: &str) -> String {
    match planted::all(engine).iter().find(|case| case.name == planted.name) {
        Some(case) if !case.is_caught_by(rule) => {
            format!("This proves nothing: it should be caught by {}\n", case.caught_by.join(", "))
        }
        _ => String::new(),
    }
}

fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    words::count(number) + ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_endings() {
        let endings: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal).to_vec();
        assert_eq!(endings.join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 112th");
    }
}
