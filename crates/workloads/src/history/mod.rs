//! Histories of transactions, and the judge of strict serializability.
//!
//! A **history** is what clients saw: every transaction attempt with its start, end, outcome and
//! operations on lists (`append`, `read`) and registers (`write`, `read`). The **checker** finds
//! out whether one order of the transactions explains all of it, that order respecting real time:
//! what ended before another began comes first. There are three verdicts:
//!
//! - **Not strictly serializable.** From what was read the checker infers which transaction must
//!   come before which, and looks for cycles (Kingsbury and Alvaro, *Elle: Inferring Isolation
//!   Anomalies from Experimental Observations*, VLDB'20; Adya, *Weak Consistency*, MIT, 1999). An
//!   inference is only made where every strictly serializable execution with these reads has it.
//! - **Consistent.** The checker has found an order, and has run the transactions in it one by one.
//! - **Undecided.** It found neither within its bounds. The order of a register's versions is known
//!   in part only, and to complete it is NP-hard (Papadimitriou, JACM 1979). Histories of lists
//!   alone are always decided.
//!
//! In reading order:
//!
//! | module | holds |
//! |---|---|
//! | [`mod@format`] | the words of a history, and its lines (`docs/history-format.md`) |
//! | `indexed` | [`History`]: well formed, with lookups |
//! | `recorder` | [`Recorder`]: writes down what a client does |
//! | `touches` | which attempts committed; what each transaction found and wrote |
//! | `case` | a history under examination |
//! | `gather` | the touches of a history; internal anomalies |
//! | `graph` | the dependency graph, and how a range of it costs few edges |
//! | `lists`, `registers`, `realtime` | which dependencies are inferred, and why that is sound |
//! | `components`, `cycles` | cycles, their names and shortest witnesses |
//! | `order`, `deadlines`, `replay` | the search for an order, and its proof |
//! | `pruning` | orders of a register's versions that everything else excludes |
//! | `explain`, [`report`] | words |
//! | [`generator`] | clients that make histories on any database |
//!
//! ```
//! use shoal_workloads::history::{AnomalyKind, History, check};
//!
//! let text = r#"
//! {"client":1,"start_ns":0,"end_ns":9,"outcome":"ok","operations":[{"write":["x",1]}]}
//! {"client":2,"start_ns":10,"end_ns":19,"outcome":"ok","operations":[{"read":["x",null]}]}
//! "#;
//! let report = check(&History::read(text.trim().as_bytes())?);
//! assert_eq!(report.anomalies[0].kind, AnomalyKind::GSingleRealtime);
//! # Ok::<(), shoal_workloads::history::HistoryError>(())
//! ```

mod case;
mod components;
mod cycles;
mod deadlines;
mod explain;
pub mod format;
mod gather;
pub mod generator;
mod graph;
mod indexed;
mod lists;
mod order;
mod pruning;
mod realtime;
mod recorder;
mod registers;
mod replay;
pub mod report;
mod touches;

pub use cycles::STEPS_MAX;
pub use format::{Attempt, HistoryError, LineError, Operation, Outcome, Seen};
pub use indexed::{History, TransactionId};
pub use recorder::Recorder;
pub use report::{Anomaly, AnomalyKind, Report, Verdict};

use case::Case;
use indexed::KeyId;
use order::Search;
use pruning::Pruned;
use registers::Version;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Judges the history in a file of JSON lines.
///
/// # Errors
/// Where the file cannot be read or holds no well-formed history. A history with anomalies is no
/// error but a report of them.
pub fn check_file(path: impl AsRef<Path>) -> Result<Report, HistoryError> {
    let path = path.as_ref();
    let file =
        File::open(path).map_err(|source| HistoryError::Open { path: path.to_owned(), source })?;
    Ok(check(&History::read(BufReader::new(file))?))
}

/// How much work the search for an order may take: edges and candidates it looks at. A history that
/// would take more is undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// For the search itself, beyond what one pass over the history takes.
    pub search_steps: usize,
    /// The most steps of pruning the orders of versions.
    pub pruning_steps: usize,
}

impl Bounds {
    /// Some ten seconds on one core.
    pub const DEFAULT: Bounds = Bounds { search_steps: 50_000_000, pruning_steps: 500_000_000 };
}

/// The part of the search's bound that is spent before orders of versions are pruned: most
/// histories need no more, and others much less after pruning.
const FIRST_SEARCH_DIVISOR: usize = 50;

/// Judges a history within the default bounds of the search.
pub fn check(history: &History) -> Report {
    check_within(history, Bounds::DEFAULT)
}

/// Judges a history with these bounds.
pub fn check_within(history: &History, bounds: Bounds) -> Report {
    let mut case = Case::new(history);
    let touches = gather::gather(&mut case);
    let mut versions: Vec<Vec<Version>> = Vec::with_capacity(history.keys());
    for number in 0..history.keys() {
        let key = KeyId(number as u32);
        lists::infer(&mut case, key, &touches.lists[number]);
        versions.push(registers::infer(&mut case, key, &touches.registers[number]));
    }
    realtime::infer(&mut case);
    find_cycles(&mut case, &touches);
    let decided = !case.findings.found.is_empty() || decide(&mut case, &touches, &versions, bounds);
    report(case, decided)
}

/// Reports the cycles of the graph.
fn find_cycles(case: &mut Case<'_>, touches: &touches::Touches<'_>) {
    let history = case.history;
    let cycles = cycles::find(history, &case.graph, &case.lost_updates, &mut case.steps);
    for cycle in cycles {
        let members: Vec<TransactionId> = cycle.links.iter().map(|link| link.from).collect();
        case.findings.add(cycle.kind, &members, || {
            let summary =
                format!("{} transactions, each of which must precede the next:", members.len());
            (summary, explain::cycle(history, touches, &case.graph, &cycle.links))
        });
    }
}

/// Decides a history whose graph has no cycle so far: finds an order that explains it, or an
/// anomaly. Returns whether it found either.
fn decide(
    case: &mut Case<'_>,
    touches: &touches::Touches<'_>,
    versions: &[Vec<Version>],
    bounds: Bounds,
) -> bool {
    let first = bounds.search_steps / FIRST_SEARCH_DIVISOR;
    let mut found = order::search(case, versions, None, first);
    if !matches!(found, Search::Order(_)) {
        let open = match pruning::prune(case, versions, bounds.pruning_steps) {
            Pruned::Cyclic => {
                find_cycles(case, touches);
                assert!(!case.findings.found.is_empty(), "a graph with a cycle has one to report");
                return true;
            }
            Pruned::Open(open) => Some(open),
            Pruned::TooMany => None,
        };
        found = order::search(case, versions, open.as_deref(), bounds.search_steps);
    }
    match found {
        Search::Order(order) => {
            if let Some(fault) = replay::fault(case.history, &order) {
                panic!("the order that was found does not explain the history: {fault}");
            }
            true
        }
        Search::None(members) => {
            report_no_order(case, &members);
            true
        }
        Search::GaveUp => false,
    }
}

/// Reports transactions of which all orders were tried: an anomaly without a cycle that would show it.
fn report_no_order(case: &mut Case<'_>, members: &[TransactionId]) {
    let shown = &members[..members.len().min(report::TRANSACTIONS_SHOWN_MAX)];
    case.findings.add(AnomalyKind::NoOrder, shown, || {
        let text = format!(
            "all orders of {} transactions were tried that their dependencies allow; in each of them \
             one would read what was replaced",
            members.len()
        );
        (text, Vec::new())
    });
}

fn report(case: Case<'_>, decided: bool) -> Report {
    let history = case.history;
    let with = |outcome| history.ids().filter(move |id| history.attempt(*id).outcome == outcome);
    let committed_unknown = with(Outcome::Unknown).filter(|id| case.committed(*id)).count();
    let mut anomalies = case.findings.anomalies;
    anomalies.sort_by_key(|anomaly| anomaly.kind);
    let verdict = match (case.findings.found.is_empty(), decided) {
        (false, _) => Verdict::Violated,
        (true, true) => Verdict::Consistent,
        (true, false) => Verdict::Undecided,
    };
    Report {
        verdict,
        attempts: history.attempts().len(),
        committed: with(Outcome::Ok).count() + committed_unknown,
        committed_unknown,
        aborted: with(Outcome::Aborted).count(),
        operations: history.attempts().iter().map(|attempt| attempt.operations.len()).sum(),
        keys: history.keys(),
        edges: case.graph.counts,
        steps: case.steps,
        found: case.findings.found,
        anomalies,
    }
}
