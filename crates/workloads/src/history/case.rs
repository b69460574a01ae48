//! A history under examination: the graph as it grows, and what has been found so far.

use super::explain;
use super::graph::{Graph, Kind, Note};
use super::indexed::{History, KeyId, TransactionId};
use super::report::{AnomalyKind, Findings};
use super::touches;

/// A history under examination: its graph so far, and the anomalies found.
#[derive(Debug)]
pub(super) struct Case<'h> {
    pub history: &'h History,
    committed: Vec<bool>,
    pub graph: Graph,
    pub findings: Findings<'h>,
    /// Pairs already reported as lost updates; the cycles they form need no second name.
    pub lost_updates: Vec<[TransactionId; 2]>,
    /// Edges and candidates that searches have looked at: the work done so far.
    pub steps: usize,
}

impl<'h> Case<'h> {
    pub fn new(history: &'h History) -> Case<'h> {
        Case {
            history,
            committed: touches::committed(history),
            graph: Graph::new(history.attempts().len()),
            findings: Findings::new(history),
            lost_updates: Vec::new(),
            steps: 0,
        }
    }

    /// Whether the attempt counts as committed.
    pub fn committed(&self, id: TransactionId) -> bool {
        self.committed[id.0 as usize]
    }

    /// The attempts that count as committed, in order.
    pub fn committed_ids(&self) -> Vec<TransactionId> {
        self.history.ids().filter(|id| self.committed(*id)).collect()
    }

    /// Links two transactions, unless they are one.
    pub fn link(&mut self, from: TransactionId, to: TransactionId, kind: Kind, note: Note) {
        if from != to {
            let note = self.graph.note(note);
            self.graph.link(from, to, kind, Some(note));
        }
    }

    /// A committed transaction read `value` of `key`: finds the committed transaction that wrote
    /// it. Where there is none, that is an anomaly and it is reported.
    pub fn writer_of(
        &mut self,
        reader: TransactionId,
        key: KeyId,
        value: u64,
    ) -> Option<TransactionId> {
        let name = self.history.key_name(key);
        let Some(write) = self.history.write_of(key, value) else {
            self.findings.add(AnomalyKind::GarbageRead, &[reader], || {
                (
                    format!("{reader} read {value} from {name}, which no transaction wrote"),
                    Vec::new(),
                )
            });
            return None;
        };
        let writer = write.transaction;
        if !self.committed(writer) {
            self.findings.add(AnomalyKind::G1a, &[writer, reader], || {
                let text = format!(
                    "{reader} read {value} from {name}, written by {writer}, which aborted"
                );
                (text, Vec::new())
            });
            return None;
        }
        Some(writer)
    }

    /// Whether `value`, the newest that a read shows, is what its writer went on to replace by
    /// something not among the `shown`, all within one transaction that is not the reader; that is
    /// an anomaly and it is reported.
    pub fn is_intermediate(
        &mut self,
        reader: TransactionId,
        key: KeyId,
        value: u64,
        shown: &[u64],
    ) -> bool {
        let Some(write) = self.history.write_of(key, value) else { return false };
        let (writer, Some(next)) = (write.transaction, write.next) else { return false };
        if writer == reader || shown.contains(&next) {
            return false;
        }
        let name = self.history.key_name(key);
        self.findings.add(AnomalyKind::G1b, &[writer, reader], || {
            let text = format!(
                "{reader} read {name} as of {value}, but {writer}, which wrote that, went on to write {next}"
            );
            (text, Vec::new())
        });
        true
    }

    /// Reports transactions which all found version `before` of `key` and all wrote the key.
    pub fn lost_update(&mut self, key: KeyId, before: Option<u64>, updaters: &[TransactionId]) {
        let [first, second, others @ ..] = updaters else { return };
        let pair = [*first, *second];
        self.lost_updates.extend(others.iter().map(|other| [*first, *other]));
        self.lost_updates.push(pair);
        let name = self.history.key_name(key);
        self.findings.add(AnomalyKind::LostUpdate, &pair, || {
            let version = before.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
            let more = match others.len() {
                0 => String::new(),
                more => format!(" (and {more} more did the same)"),
            };
            let text = format!(
                "{first} and {second} both found {version} as the newest of {name}, and both \
                 committed a write on top of it{more}"
            );
            let note = Note::new(key, before, None);
            let steps = [(first, second), (second, first)].map(|(from, to)| {
                explain::between_versions(self.history, *from, *to, Kind::Rw, note)
            });
            (text, steps.to_vec())
        });
    }
}
