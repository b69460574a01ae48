//! What the checker found, for people and for programs.

use super::format::{Operation, Outcome, Seen};
use super::indexed::{History, TransactionId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Witnesses kept of each kind of anomaly; all are counted.
pub const WITNESSES_MAX: usize = 8;

/// Transactions that are shown where an anomaly concerns any number of them.
pub(super) const TRANSACTIONS_SHOWN_MAX: usize = 8;

/// Elements of a list that are shown; of a longer one, the last.
const ELEMENTS_SHOWN_MAX: usize = 8;

/// What can be wrong with a history. The names are Adya's (thesis, 1999) and Elle's (VLDB'20), the
/// worst first; `…-realtime` means that the cycle needs an edge of real time, so that the history
/// may be serializable, but not strictly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum AnomalyKind {
    /// A read returned a value that was not written.
    #[serde(rename = "garbage-read")]
    GarbageRead,
    /// A list holds an element twice.
    #[serde(rename = "duplicate-element")]
    DuplicateElement,
    /// A transaction's reads contradict its own earlier reads and writes.
    #[serde(rename = "internal")]
    Internal,
    /// Two reads of a list that no order of the appends explains.
    #[serde(rename = "incompatible-order")]
    IncompatibleOrder,
    /// A read of what an aborted transaction wrote.
    G1a,
    /// A read of what a transaction wrote and then overwrote itself.
    G1b,
    /// A cycle of writes: versions of several keys are in opposite orders.
    G0,
    /// A cycle of writes and reads of them.
    G1c,
    /// Two transactions read the same version and both replaced it.
    #[serde(rename = "lost-update")]
    LostUpdate,
    /// A cycle with exactly one overwritten read.
    #[serde(rename = "G-single")]
    GSingle,
    /// A cycle with several overwritten reads.
    #[serde(rename = "G2-item")]
    G2Item,
    /// A cycle of writes and of real time.
    #[serde(rename = "G0-realtime")]
    G0Realtime,
    /// A cycle of writes, reads of them and real time.
    #[serde(rename = "G1c-realtime")]
    G1cRealtime,
    /// G-single with real time.
    #[serde(rename = "G-single-realtime")]
    GSingleRealtime,
    /// G2-item with real time.
    #[serde(rename = "G2-item-realtime")]
    G2ItemRealtime,
    /// No order explains the history, and no one cycle shows why.
    #[serde(rename = "no-order")]
    NoOrder,
}

impl AnomalyKind {
    /// The kind's name, as in the JSON of a report.
    pub fn name(self) -> &'static str {
        match self {
            AnomalyKind::GarbageRead => "garbage-read",
            AnomalyKind::DuplicateElement => "duplicate-element",
            AnomalyKind::Internal => "internal",
            AnomalyKind::IncompatibleOrder => "incompatible-order",
            AnomalyKind::G1a => "G1a",
            AnomalyKind::G1b => "G1b",
            AnomalyKind::G0 => "G0",
            AnomalyKind::G1c => "G1c",
            AnomalyKind::LostUpdate => "lost-update",
            AnomalyKind::GSingle => "G-single",
            AnomalyKind::G2Item => "G2-item",
            AnomalyKind::G0Realtime => "G0-realtime",
            AnomalyKind::G1cRealtime => "G1c-realtime",
            AnomalyKind::GSingleRealtime => "G-single-realtime",
            AnomalyKind::G2ItemRealtime => "G2-item-realtime",
            AnomalyKind::NoOrder => "no-order",
        }
    }

    /// The kind's meaning, in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            AnomalyKind::GarbageRead => "garbage read: a value that no transaction wrote",
            AnomalyKind::DuplicateElement => "one append took effect twice",
            AnomalyKind::Internal => "a transaction contradicts its own reads or writes",
            AnomalyKind::IncompatibleOrder => "no order of the appends explains these reads",
            AnomalyKind::G1a => "dirty read: of a transaction that aborted",
            AnomalyKind::G1b => "dirty read: of an intermediate value",
            AnomalyKind::G0 => "dirty write: transactions overwrote each other in a circle",
            AnomalyKind::G1c => "circular information flow: each saw or overwrote the other",
            AnomalyKind::LostUpdate => "lost update: two replaced the same version",
            AnomalyKind::GSingle => "read skew: saw a part of another's effects, missed a part",
            AnomalyKind::G2Item => "write skew: each missed what another wrote",
            AnomalyKind::G0Realtime => "a write took effect before one that had already ended",
            AnomalyKind::G1cRealtime => "a read saw a write that began after the read had ended",
            AnomalyKind::GSingleRealtime => "stale read: missed what had ended before it began",
            AnomalyKind::G2ItemRealtime => "reads missed writes in an order time rules out",
            AnomalyKind::NoOrder => "every order of the versions contradicts some read",
        }
    }
}

impl fmt::Display for AnomalyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why one transaction must come before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dependency {
    /// The second replaced what the first wrote.
    Ww,
    /// The second read what the first wrote.
    Wr,
    /// The second replaced what the first read.
    Rw,
    /// The first had ended before the second began.
    Realtime,
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dependency::Ww => "ww",
            Dependency::Wr => "wr",
            Dependency::Rw => "rw",
            Dependency::Realtime => "realtime",
        })
    }
}

/// An edge of a cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The transaction that must come first.
    pub from: TransactionId,
    /// The transaction that must come after it.
    pub to: TransactionId,
    /// The rule by which it must.
    pub dependency: Dependency,
    /// The reads and writes, or the times, that prove the dependency, in words.
    pub why: String,
    /// Other transactions that the evidence rests on.
    pub others: Vec<TransactionId>,
}

/// An anomaly with its witness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// The kind of the anomaly.
    pub kind: AnomalyKind,
    /// The violation in one sentence.
    pub summary: String,
    /// The transactions it takes, each in a line of text.
    pub transactions: BTreeMap<TransactionId, String>,
    /// For a cycle, its edges in order; the last leads back to the first.
    pub cycle: Vec<Step>,
}

/// Edges of the dependency graph as it was built; one edge of it can stand for several
/// dependencies that share an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct EdgeCounts {
    /// From a write to the one that overwrites it.
    pub ww: usize,
    /// From a write to a read of it.
    pub wr: usize,
    /// From a read to the write that overwrites what was read.
    pub rw: usize,
    /// From the end of a transaction to those that began after it.
    pub realtime: usize,
}

/// The checker's verdict on a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Strictly serializable: an order that explains it was found.
    Consistent,
    /// Neither an order nor an anomaly was found within the bounds of the search.
    Undecided,
    /// Not strictly serializable: there are anomalies.
    Violated,
}

/// The verdict on a history, and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether the history keeps the rules.
    pub verdict: Verdict,
    /// Attempts of the history.
    pub attempts: usize,
    /// Attempts that committed, by their outcome or because a committed transaction read them.
    pub committed: usize,
    /// Committed attempts whose outcome the history leaves unknown.
    pub committed_unknown: usize,
    /// The number of aborted attempts.
    pub aborted: usize,
    /// Operations of all attempts of the history.
    pub operations: usize,
    /// Different keys that the operations name.
    pub keys: usize,
    /// Edges of the dependency graph, by the dependency that they stand for.
    pub edges: EdgeCounts,
    /// The work it took: edges and candidates that searches looked at.
    pub steps: usize,
    /// The number of anomalies of each kind.
    pub found: BTreeMap<AnomalyKind, usize>,
    /// Witnesses, at most [`WITNESSES_MAX`] of each kind, the worst kind first.
    pub anomalies: Vec<Anomaly>,
}

impl Report {
    /// An order was found that explains the history. An undecided history is not clean.
    pub fn is_clean(&self) -> bool {
        self.verdict == Verdict::Consistent
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = self.attempts - self.aborted - (self.committed - self.committed_unknown);
        writeln!(
            f,
            "{} attempts: {} committed, {} aborted, {unknown} unknown (of these, {} were read and \
             so committed); {} operations on {} keys",
            self.attempts,
            self.committed - self.committed_unknown,
            self.aborted,
            self.committed_unknown,
            self.operations,
            self.keys
        )?;
        let EdgeCounts { ww, wr, rw, realtime } = self.edges;
        writeln!(f, "graph: {ww} ww, {wr} wr, {rw} rw, {realtime} realtime edges")?;
        match self.verdict {
            Verdict::Consistent => {
                return writeln!(
                    f,
                    "verdict: consistent with strict serializability; an order was found"
                );
            }
            Verdict::Undecided => {
                return writeln!(
                    f,
                    "verdict: UNDECIDED: found neither an anomaly nor an order that explains all in {} steps; \
                     record fewer concurrent writes of each register, or use lists",
                    self.steps
                );
            }
            Verdict::Violated => {}
        }
        let found: Vec<String> =
            self.found.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        writeln!(f, "verdict: NOT strictly serializable: {}", found.join(", "))?;
        for anomaly in &self.anomalies {
            write!(f, "\n{anomaly}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.kind, self.kind.meaning())?;
        writeln!(f, "  {}", self.summary)?;
        for text in self.transactions.values() {
            writeln!(f, "    {text}")?;
        }
        for step in &self.cycle {
            let Step { from, to, dependency, why, others: _ } = step;
            writeln!(f, "  {from} → {to} ({dependency}): {why}")?;
        }
        Ok(())
    }
}

/// Collects anomalies: counts all, keeps the first few of each kind.
#[derive(Debug)]
pub(super) struct Findings<'h> {
    history: &'h History,
    pub found: BTreeMap<AnomalyKind, usize>,
    pub anomalies: Vec<Anomaly>,
}

impl<'h> Findings<'h> {
    pub fn new(history: &'h History) -> Findings<'h> {
        Findings { history, found: BTreeMap::new(), anomalies: Vec::new() }
    }

    /// Counts an anomaly, and keeps the description that `explain` returns if it is one of the first of
    /// its kind.
    pub fn add(
        &mut self,
        kind: AnomalyKind,
        transactions: &[TransactionId],
        explain: impl FnOnce() -> (String, Vec<Step>),
    ) {
        let count = self.found.entry(kind).or_default();
        *count += 1;
        if *count > WITNESSES_MAX {
            return;
        }
        let (summary, cycle) = explain();
        let others = cycle.iter().flat_map(|step| &step.others);
        let texts = transactions.iter().chain(others).map(|&id| (id, describe(self.history, id)));
        let transactions = texts.collect();
        self.anomalies.push(Anomaly { kind, summary, transactions, cycle });
    }
}

/// A transaction in a line: `T3 (client 1, 20..35 ns, ok): read x → [1, 2]; append x 3`.
fn describe(history: &History, id: TransactionId) -> String {
    let attempt = history.attempt(id);
    let end = attempt.end_ns.map_or_else(String::new, |end| end.to_string());
    let outcome = match attempt.outcome {
        Outcome::Ok => "ok",
        Outcome::Aborted => "aborted",
        Outcome::Unknown => "unknown",
    };
    let operations: Vec<String> = attempt
        .operations
        .iter()
        .map(|operation| match operation {
            Operation::Append(key, value) => format!("append {key} {value}"),
            Operation::Write(key, value) => format!("write {key} {value}"),
            Operation::Read(key, Seen::Absent) => format!("read {key} → nothing"),
            Operation::Read(key, Seen::Value(value)) => format!("read {key} → {value}"),
            Operation::Read(key, Seen::List(elements)) => {
                format!("read {key} → {}", show_list(elements))
            }
        })
        .collect();
    format!(
        "{id} (client {}, {}..{end} ns, {outcome}): {}",
        attempt.client,
        attempt.start_ns,
        operations.join("; ")
    )
}

/// A list's elements, or the last of them if there are many.
pub(super) fn show_list(elements: &[u64]) -> String {
    let hidden = elements.len().saturating_sub(ELEMENTS_SHOWN_MAX);
    let mut text = String::from("[");
    if hidden > 0 {
        let _ = write!(text, "… {hidden} more, ");
    }
    let shown: Vec<String> = elements[hidden..].iter().map(u64::to_string).collect();
    text + &shown.join(", ") + "]"
}
