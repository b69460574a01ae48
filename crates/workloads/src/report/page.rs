//! The page: one file with its style and its plots inside, no script, nothing to fetch.
//!
//! Invariant: text that is not this module's own goes through `escape`.

use super::{plot, words};
use crate::bench::Measurement;
use crate::bench::measurement::{CheckResult, Kind, Latency, LatencyFrom, RegionResult, Run};

const STYLE: &str = include_str!("style.css");

/// The page of a measurement.
pub fn html(measurement: &Measurement) -> String {
    let title = format!("{} · Shoal", escape(measurement.workload));
    let body = [
        header(measurement),
        notes(measurement),
        tiles(measurement),
        throughput(measurement),
        percentiles(measurement),
        kinds(measurement),
        region_card(measurement),
        breakdown(measurement),
        cost_card(measurement),
        runs(measurement),
        checks(measurement),
        facts(measurement),
    ]
    .concat();
    let foot = "Compare numbers only with others of the same machine, taken at the same time.";
    whole(&title, &body, foot)
}

/// The file around what a page shows. All of it is HTML already.
pub(super) fn whole(title: &str, body: &str, foot: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
         <footer>{foot}</footer>\n</main>\n</body>\n</html>\n"
    )
}

/// Replaces the characters that HTML gives a meaning.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn header(measurement: &Measurement) -> String {
    let Measurement { build, load, .. } = measurement;
    let workers = if load.workers == 1 { "worker" } else { "workers" };
    let badge = badge(std::slice::from_ref(measurement));
    format!(
        "<header><div><h1>{}</h1><p>Shoal {} · {} database · {} {workers} · {}</p></div>{badge}\
         </header>\n",
        escape(measurement.workload),
        escape(build.version),
        escape(&build.target),
        load.workers,
        escape(&measurement.started_at),
    )
}

/// Whether all checks of these hold, if there were any.
pub(super) fn badge(measurements: &[Measurement]) -> String {
    let mut runs = measurements.iter().flat_map(|measurement| &measurement.runs);
    if runs.all(|run| run.checks.is_empty()) {
        return String::new();
    }
    let (class, verdict) = match measurements.iter().all(Measurement::passed) {
        true => ("good", "all checks hold"),
        false => ("bad", "checks failed"),
    };
    format!("<span class=\"badge {class}\">{verdict}</span>")
}

/// The conditions under which the numbers of a measurement are valid.
pub(super) fn notes(measurement: &Measurement) -> String {
    warnings(measurement)
        .iter()
        .map(|text| format!("<p class=\"note\">{}</p>\n", escape(text)))
        .collect()
}

/// What a reader has to know before believing a number, a sentence each.
pub fn warnings(measurement: &Measurement) -> Vec<String> {
    let mut warnings = Vec::new();
    if measurement.build.profile == "debug" {
        warnings.push("This is a debug build; its numbers say nothing.".to_owned());
    }
    let sum = |number: fn(&Run) -> u64| measurement.runs.iter().map(number).sum::<u64>();
    let overdue = sum(|run| run.overdue);
    // A few are always under way when the time is up.
    if overdue > sum(Run::attempts) / 100 {
        warnings.push(format!(
            "The workers fell behind the rate: {} transactions were due and never began, so \
             latencies are too good.",
            words::count(overdue)
        ));
    }
    let given_up = sum(|run| run.given_up);
    if given_up > 0 {
        warnings.push(format!(
            "{} transactions were given up after their retry budget.",
            words::count(given_up)
        ));
    }
    let cut = sum(|run| run.cut);
    if cut > sum(|run| run.committed + run.rolled_back) / 100 {
        warnings.push(format!(
            "{} transactions had met conflicts when time was up, and were not tried again: latencies are too good.",
            words::count(cut)
        ));
    }
    let unknown = sum(|run| run.unknown);
    if unknown > 0 {
        warnings.push(format!(
            "It is unknown whether {} transactions committed, since leaders failed; checks that count what was \
             committed may fail by them.",
            words::count(unknown)
        ));
    }
    let starvation = measurement.runs.iter().filter_map(Run::starvation).fold(0.0, f64::max);
    if starvation > 0.02 {
        warnings.push(format!(
            "The machine was busy with other work: workers waited for a processor {} of the time.",
            words::percent(starvation)
        ));
    }
    warnings
}

fn tiles(measurement: &Measurement) -> String {
    let summary = &measurement.summary;
    let spread = if measurement.runs.len() > 1 {
        format!(
            "median of {} runs, {} to {}",
            measurement.runs.len(),
            words::rate(summary.committed_per_s_min),
            words::rate(summary.committed_per_s_max)
        )
    } else {
        let Run { throughput, .. } = &measurement.runs[0];
        format!("median interval {}", words::rate(throughput.median_per_s))
    };
    let per_worker = words::rate(summary.committed_per_s / measurement.load.workers as f64);
    let per_cpu = summary.committed_per_cpu_s.map_or("a second".into(), |per_s| {
        format!("a second, {} per CPU second", words::rate(per_s))
    });
    let memory = summary.peak_resident_bytes.map_or("unknown".into(), words::bytes);
    let loaded = format!(
        "{} rows loaded in {}",
        words::count(summary.loaded_rows),
        words::seconds(summary.load_s)
    );
    let tile = |class: &str, name: &str, value: &str, more: &str| {
        format!(
            "<div class=\"card {class}\"><div class=\"tile-name\">{name}</div>\
             <div class=\"tile-value\">{value}</div><div class=\"tile-more\">{more}</div></div>"
        )
    };
    let attempts = summary.committed + summary.rolled_back + summary.conflicts;
    let conflicts = format!("{} of {}", words::count(summary.conflicts), words::count(attempts));
    let rate = words::rate(summary.committed_per_s);
    [
        "<div class=\"tiles\">".to_owned(),
        tile("lead", "committed transactions a second", &rate, &spread),
        tile("", "per worker", &per_worker, &per_cpu),
        tile(
            "",
            "conflicts",
            &words::percent(summary.conflict_rate),
            &format!("{conflicts} attempts"),
        ),
        tile("", "peak memory", &memory, &loaded),
        "</div>\n".to_owned(),
    ]
    .concat()
}

pub(super) fn card(title: &str, lead: &str, content: &str) -> String {
    let lead = if lead.is_empty() { String::new() } else { format!("<p>{lead}</p>") };
    format!("<section class=\"card\"><h2>{title}</h2>{lead}{content}</section>\n")
}

/// A plot under its legend; one series needs none.
pub(super) fn figure(names: &[String], svg: &str) -> String {
    let entry = |(at, name): (usize, &String)| {
        let colour = at % plot::SERIES_COLOURS;
        let name = escape(name);
        format!("<span><i class=\"dot\" style=\"background:var(--s{colour})\"></i>{name}</span>")
    };
    let legend: String = match names {
        [] | [_] => String::new(),
        names => names.iter().enumerate().map(entry).collect(),
    };
    format!("<div class=\"legend\">{legend}</div><figure>{svg}</figure>")
}

fn throughput(measurement: &Measurement) -> String {
    let timelines: Vec<_> = measurement.runs.iter().map(|run| run.timeline.as_slice()).collect();
    let names: Vec<String> = (1..=timelines.len()).map(|run| format!("run {run}")).collect();
    card(
        "Throughput over time",
        "Committed transactions a second, after warm-up.",
        &figure(&names, &plot::throughput(&timelines)),
    )
}

fn percentiles(measurement: &Measurement) -> String {
    let from = match measurement.load.latency_from {
        LatencyFrom::Start => "from its start to its answer, retries included",
        LatencyFrom::Schedule => {
            "from the moment it was due to its answer, so that waiting for a free worker counts"
        }
    };
    let of_run = if measurement.runs.len() > 1 { ", in the run of median throughput" } else { "" };
    card(
        "Latency percentiles",
        &format!("The time in which each part of the transactions is done, {from}{of_run}."),
        &percentile_figure(measurement),
    )
}

/// A figure of the latencies in the run of median throughput.
pub(super) fn percentile_figure(measurement: &Measurement) -> String {
    let run = middle_run(measurement);
    let ran: Vec<&Kind> = run.kinds.iter().filter(|kind| kind.latency.is_some()).collect();
    let names: Vec<String> = ran.iter().map(|kind| kind.name.to_owned()).collect();
    let curves: Vec<_> = ran.iter().map(|kind| kind.curve.as_slice()).collect();
    figure(&names, &plot::percentiles(&curves))
}

/// The run whose throughput is in the middle.
pub fn middle_run(measurement: &Measurement) -> &Run {
    let mut runs: Vec<&Run> = measurement.runs.iter().collect();
    runs.sort_by(|a, b| a.throughput.mean_per_s.total_cmp(&b.throughput.mean_per_s));
    runs[(runs.len() - 1) / 2]
}

/// A table of cells that are HTML already.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    let row = |cells: &Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr>{heads}</tr></thead>\
         <tbody>{rows}</tbody></table></div>"
    )
}

fn kinds(measurement: &Measurement) -> String {
    let lead = if measurement.runs.len() > 1 { "Medians over the runs." } else { "" };
    card("Latency by transaction type", lead, &kind_table(measurement))
}

pub(super) fn kind_table(measurement: &Measurement) -> String {
    let rows: Vec<Vec<String>> = measurement
        .summary
        .kinds
        .iter()
        .map(|kind| {
            let latencies = kind.latency.map_or(vec!["–".to_owned(); 6], |latency| {
                latency.columns().map(words::latency).to_vec()
            });
            [vec![escape(kind.name), words::percent(kind.share)], latencies].concat()
        })
        .collect();
    let heads = ["transaction", "share", "mean", "p50", "p90", "p99", "p99.9", "max"];
    table(&heads, &rows)
}

/// The columns of [`regions`].
pub const REGION_HEADS: [&str; 5] = ["clients in", "committed", "p50", "p90", "p99"];

/// What the clients of each region have seen, of all transaction types: medians over the runs. Nothing where their regions
/// are not known.
pub fn regions(measurement: &Measurement) -> Vec<[String; 5]> {
    let row = |region: &RegionResult| {
        let latency = |of: fn(&Latency) -> u64| {
            region.latency.as_ref().map_or("–".to_owned(), |latency| words::latency(of(latency)))
        };
        [
            region.name.clone(),
            words::count(region.committed),
            latency(|latency| latency.p50_ns),
            latency(|latency| latency.p90_ns),
            latency(|latency| latency.p99_ns),
        ]
    };
    measurement.summary.regions.iter().map(row).collect()
}

/// A table of [`regions`], where there are any.
fn region_card(measurement: &Measurement) -> String {
    let rows = regions(measurement).into_iter();
    let rows: Vec<Vec<String>> =
        rows.map(|cells| cells.iter().map(|cell| escape(cell)).collect()).collect();
    if rows.is_empty() {
        return String::new();
    }
    card("Latency by region", "Of all transaction types.", &table(&REGION_HEADS, &rows))
}

/// Where the time of writers went at their coordinators, in the run of median throughput.
fn breakdown(measurement: &Measurement) -> String {
    if middle_run(measurement).stages.is_empty() {
        return String::new();
    }
    card("Where the time goes", STAGES_LEAD, &stage_table(measurement))
}

/// What has to be known of a [`stage_table`].
const STAGES_LEAD: &str = "Of the transactions that wrote, at their coordinators, on average. Batch and replicate \
     are of each piece that they leave in a shard’s stream; the last row is what they wait for beyond that.";

pub(super) fn stage_table(measurement: &Measurement) -> String {
    let rows: Vec<Vec<String>> = middle_run(measurement)
        .stages
        .iter()
        .map(|stage| {
            let width = stage.share * 100.0;
            let bar = format!("<div class=\"bar\"><i style=\"width:{width:.1}%\"></i></div>");
            let mean = words::latency(stage.mean_ns as u64);
            vec![stage.name.clone(), mean, words::percent(stage.share), bar]
        })
        .collect();
    table(&["stage", "mean", "share", ""], &rows)
}

/// The columns of [`costs`].
pub const COST_HEADS: [&str; 3] = ["processor time of a transaction", "mean", "in the kernel"];

/// What a committed transaction cost the threads of this process, by what they do and in all, in the run of median
/// throughput. Nothing where the clients' threads do everything, or the system does not report it.
pub fn costs(measurement: &Measurement) -> Vec<[String; 3]> {
    let run = middle_run(measurement);
    if run.processor_times.len() < 2 {
        return Vec::new();
    }
    let row = |threads: &str, (total, kernel): (f64, f64)| {
        let [total, kernel] = [total, kernel].map(|ns| words::latency(ns as u64));
        [threads.to_owned(), total, kernel]
    };
    let kinds = run.processor_times.iter().map(|time| row(&time.threads, run.cost_ns(time)));
    kinds.chain([row("all threads of this process", run.total_cost_ns())]).collect()
}

/// What a transaction costs, where that is known.
fn cost_card(measurement: &Measurement) -> String {
    let rows: Vec<Vec<String>> = costs(measurement).into_iter().map(Vec::from).collect();
    if rows.is_empty() {
        return String::new();
    }
    card(
        "What a transaction costs",
        "Processor time of this process for each committed one.",
        &table(&COST_HEADS, &rows),
    )
}

fn runs(measurement: &Measurement) -> String {
    let rows: Vec<Vec<String>> = measurement
        .runs
        .iter()
        .enumerate()
        .map(|(number, run)| {
            vec![
                (number + 1).to_string(),
                run.seed.to_string(),
                words::rate(run.throughput.mean_per_s),
                words::rate(run.throughput.min_per_s),
                words::rate(run.throughput.max_per_s),
                words::count(run.committed),
                words::count(run.rolled_back),
                words::percent(run.conflict_rate()),
                run.committed_per_cpu_s().map_or("unknown".into(), words::rate),
                words::seconds(run.load_s),
                run.loaded_bytes.map_or("unknown".into(), words::bytes),
            ]
        })
        .collect();
    let heads = [
        "run",
        "seed",
        "per second",
        "least",
        "most",
        "committed",
        "rolled back",
        "conflicts",
        "per CPU s",
        "load time",
        "growth",
    ];
    let lead = "Least and most are those of the run’s intervals; growth is the memory that loading \
                took; rollbacks are those the workload demands; a CPU second is one in which a \
                worker had a processor.";
    card("Runs", lead, &table(&heads, &rows))
}

fn checks(measurement: &Measurement) -> String {
    let lead = if measurement.runs.len() > 1 { "After every run." } else { "After the run." };
    card("Checks of the data", lead, &check_list(measurement))
}

/// The list of checks, failed ones first.
pub(super) fn check_list(measurement: &Measurement) -> String {
    let item = |class: &str, mark: &str, check: &CheckResult, detail: String| {
        let name = escape(&check.name);
        format!("<li><b class=\"{class}\">{mark}</b><span>{name}{detail}</span></li>")
    };
    let runs = measurement.runs.iter().enumerate();
    let failed = runs.flat_map(|(number, run)| {
        let failed = run.checks.iter().filter(|check| !check.passed);
        failed.map(move |check| {
            let detail = escape(check.detail.as_deref().unwrap_or("no detail"));
            item("bad", "✗", check, format!("<small>run {}: {detail}</small>", number + 1))
        })
    });
    let holds = |name: &str| {
        let of_name = measurement.runs.iter().flat_map(|run| &run.checks);
        of_name.filter(|check| check.name == name).all(|check| check.passed)
    };
    let held = measurement.runs[0].checks.iter().filter(|check| holds(&check.name));
    let held = held.map(|check| item("good", "✓", check, String::new()));
    let items: String = failed.chain(held).collect();
    if items.is_empty() {
        return "<p>Not asked for.</p>".to_owned();
    }
    format!("<ul class=\"checks\">{items}</ul>")
}

pub(super) fn facts(measurement: &Measurement) -> String {
    let list = |facts: &[(&str, String)]| {
        let row = |(name, value): &(&str, String)| {
            format!("<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(value))
        };
        let rows: String = facts.iter().map(row).collect();
        format!("<table class=\"facts\"><tbody>{rows}</tbody></table>")
    };
    format!(
        "<div class=\"columns\">\n{}{}</div>\n",
        card("Parameters", "", &list(&parameters(measurement))),
        card("Machine", "", &list(&machine(measurement)))
    )
}

/// The parameters of a benchmark, in words.
pub fn parameters(measurement: &Measurement) -> Vec<(&'static str, String)> {
    let load = &measurement.load;
    let rate = load.rate_per_s.map_or("as fast as the workers can".into(), |rate| {
        format!("{} a second, on schedule", words::rate(rate))
    });
    let mut facts: Vec<(&'static str, String)> = measurement
        .parameters
        .iter()
        .map(|parameter| (parameter.name, parameter.value.clone()))
        .collect();
    facts.extend([
        ("workers", load.workers.to_string()),
        ("warm-up", words::seconds(load.warm_up_s)),
        ("duration", words::seconds(load.duration_s)),
        ("rate", rate),
        ("seed", load.seed.to_string()),
        ("memory reserved", words::bytes(load.reserved_bytes)),
    ]);
    facts
}

/// The machine of a benchmark, in words.
pub fn machine(measurement: &Measurement) -> Vec<(&'static str, String)> {
    let (machine, build) = (&measurement.machine, &measurement.build);
    let kernel = machine.kernel.as_deref().unwrap_or("");
    let facts = [
        ("processor", machine.cpu.clone()),
        ("cores", Some(machine.cores.to_string())),
        ("memory", machine.memory_bytes.map(words::bytes)),
        ("system", Some(format!("{} {kernel}", machine.system).trim_end().to_owned())),
        ("transparent huge pages", machine.transparent_huge_pages.clone()),
        ("build", Some(build.profile.to_owned())),
        ("allocator", Some(build.allocator.to_owned())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a b='\"'>&"), "&lt;a b=&#39;&quot;&#39;&gt;&amp;");
    }
}
