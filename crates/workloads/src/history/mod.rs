//! Histories of transactions, and the judge of strict serializability.
//!
//! A **history** is what clients saw: every transaction attempt with its start, end, outcome and
//! operations on lists (`append`, `read`) and registers (`write`, `read`). The **checker** finds
//! out whether one order of the transactions explains all of it, that order respecting real time:
//! who ended before another began comes first. It does so by way of dependencies (Kingsbury and
//! Alvaro, *Elle: Inferring Isolation Anomalies from Experimental Observations*, VLDB'20; Adya,
//! *Weak Consistency*, MIT, 1999): from what was read it infers who must come before whom, and
//! looks for cycles. Every anomaly it reports is one: an inference is only made where every
//! strictly serializable execution with these reads has it. It does not find all there could be:
//! what no read shows stays hidden, and the order of a register's versions is known in part only.
//!
//! In reading order:
//!
//! | module | holds |
//! |---|---|
//! | [`mod@format`] | the words of a history, and its lines (`docs/history-format.md`) |
//! | `indexed` | [`History`]: well formed, with lookups |
//! | `recorder` | [`Recorder`]: writes down what a client does |
//! | `touches` | who committed; what each transaction found and wrote; internal anomalies |
//! | `case` | a history under examination |
//! | `graph` | the dependency graph, and how a range of it costs few edges |
//! | `lists`, `registers`, `realtime` | which dependencies are inferred, and why that is sound |
//! | `cycles` | cycles, their names and shortest witnesses |
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
mod cycles;
mod explain;
pub mod format;
pub mod generator;
mod graph;
mod indexed;
mod lists;
mod realtime;
mod recorder;
mod registers;
pub mod report;
mod touches;

pub use cycles::STEPS_MAX;
pub use format::{Attempt, HistoryError, LineError, Operation, Outcome, Seen};
pub use indexed::{History, TransactionId};
pub use recorder::Recorder;
pub use report::{Anomaly, AnomalyKind, Report};

use case::Case;
use indexed::KeyId;
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

/// Judges a history.
pub fn check(history: &History) -> Report {
    let mut case = Case::new(history);
    let touches = touches::gather(&mut case);
    for number in 0..history.keys() {
        let key = KeyId(number as u32);
        lists::infer(&mut case, key, &touches.lists[number]);
        registers::infer(&mut case, key, &touches.registers[number]);
    }
    realtime::infer(&mut case);
    for cycle in cycles::find(&case.graph, &case.lost_updates) {
        let members: Vec<TransactionId> = cycle.links.iter().map(|link| link.from).collect();
        case.findings.add(cycle.kind, &members, || {
            let summary =
                format!("{} transactions, each of which must precede the next:", members.len());
            (summary, explain::cycle(history, &touches, &case.graph, &cycle.links))
        });
    }
    report(case)
}

fn report(case: Case<'_>) -> Report {
    let history = case.history;
    let with = |outcome| history.ids().filter(move |id| history.attempt(*id).outcome == outcome);
    let committed_unknown = with(Outcome::Unknown).filter(|id| case.committed(*id)).count();
    let mut anomalies = case.findings.anomalies;
    anomalies.sort_by_key(|anomaly| anomaly.kind);
    Report {
        attempts: history.attempts().len(),
        committed: with(Outcome::Ok).count() + committed_unknown,
        committed_unknown,
        aborted: with(Outcome::Aborted).count(),
        operations: history.attempts().iter().map(|attempt| attempt.operations.len()).sum(),
        keys: history.keys(),
        edges: case.graph.counts,
        found: case.findings.found,
        anomalies,
    }
}
