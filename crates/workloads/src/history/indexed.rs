//! A well-formed history, with the lookups that judging it needs.
//!
//! Invariants, held by [`History::new`]:
//! - every key is a list or a register, not both;
//! - a value is written to a key at most once, so that a value names the write it came from
//!   (recoverability in the sense of Elle, VLDB'20, §3);
//! - an attempt has an end exactly if its outcome is known, and does not end before it starts.

use super::format::{
    ATTEMPTS_MAX, Attempt, HistoryError, KeyKind, LineError, OPERATIONS_MAX, Operation, Outcome,
    Seen, read_attempts,
};
use super::recorder::Recorder;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, Write as _};

/// An attempt's number in its history. Shown as its line: the first is `T1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u32);

impl TransactionId {
    /// The line it stands on, the first being 1.
    pub fn line(self) -> usize {
        self.0 as usize + 1
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.line())
    }
}

impl Serialize for TransactionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A key's number in its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KeyId(pub u32);

/// The one write of a value to a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    /// The transaction that wrote it.
    pub transaction: TransactionId,
    /// What the same transaction wrote to the key next: if anything, this value was intermediate.
    pub next: Option<u64>,
}

#[derive(Debug)]
struct Key {
    name: String,
    /// The kind, and the first line from which that follows; a null does not determine it.
    kind: Option<(KeyKind, usize)>,
}

/// Attempts that form a well-formed history.
#[derive(Debug)]
pub struct History {
    attempts: Vec<Attempt>,
    keys: Vec<Key>,
    /// The key of every operation, attempt after attempt.
    operation_keys: Vec<KeyId>,
    /// The index in `operation_keys` of each attempt's first operation.
    offsets: Vec<usize>,
    writes: HashMap<(KeyId, u64), Write>,
}

impl History {
    /// The history of these attempts; the first is on line 1.
    ///
    /// # Errors
    /// [`HistoryError::Line`] with the first rule that is broken.
    pub fn new(attempts: Vec<Attempt>) -> Result<History, HistoryError> {
        let mut history = History {
            attempts: Vec::new(),
            keys: Vec::new(),
            operation_keys: Vec::new(),
            offsets: vec![0],
            writes: HashMap::new(),
        };
        let mut names = HashMap::new();
        for (number, attempt) in attempts.iter().enumerate() {
            let line = number + 1;
            let fail = |cause| HistoryError::Line { line, cause };
            if line > ATTEMPTS_MAX {
                return Err(fail(LineError::TooManyAttempts));
            }
            if history.operation_keys.len() + attempt.operations.len() > OPERATIONS_MAX {
                return Err(fail(LineError::TooManyOperations));
            }
            check_times(attempt).map_err(fail)?;
            for operation in &attempt.operations {
                let key = history.key_named(operation.key(), &mut names);
                history.settle_kind(key, operation, line).map_err(fail)?;
                history.operation_keys.push(key);
            }
            history.offsets.push(history.operation_keys.len());
            let first = history.offsets[number];
            history.add_writes(attempt, first, TransactionId(number as u32)).map_err(fail)?;
        }
        history.attempts = attempts;
        Ok(history)
    }

    /// Reads a history from JSON lines.
    ///
    /// # Errors
    /// Where reading fails or the text is no history, with the line and the cause.
    pub fn read(reader: impl BufRead) -> Result<History, HistoryError> {
        History::new(read_attempts(reader)?)
    }

    /// What these clients recorded, by time of start. What a recorder still holds open has an
    /// unknown outcome.
    ///
    /// # Errors
    /// Where what they recorded is no well-formed history.
    pub fn merge(recorders: impl IntoIterator<Item = Recorder>) -> Result<History, HistoryError> {
        let mut attempts: Vec<Attempt> =
            recorders.into_iter().flat_map(Recorder::into_attempts).collect();
        attempts.sort_by_key(|attempt| (attempt.start_ns, attempt.end_ns, attempt.client));
        History::new(attempts)
    }

    /// Writes it as JSON lines.
    ///
    /// # Errors
    /// Those of `writer`.
    pub fn write(&self, writer: impl io::Write) -> io::Result<()> {
        let mut writer = io::BufWriter::new(writer);
        for attempt in &self.attempts {
            serde_json::to_writer(&mut writer, attempt)?;
            writer.write_all(b"\n")?;
        }
        writer.flush()
    }

    /// The attempts; number *i* is on line *i* + 1.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    pub(super) fn attempt(&self, id: TransactionId) -> &Attempt {
        &self.attempts[id.0 as usize]
    }

    /// The operations of an attempt, with their keys.
    pub(super) fn operations(
        &self,
        id: TransactionId,
    ) -> impl Iterator<Item = (KeyId, &Operation)> + Clone {
        let first = self.offsets[id.0 as usize];
        let operations = &self.attempt(id).operations;
        self.operation_keys[first..].iter().copied().zip(operations)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = TransactionId> + use<> {
        (0..self.attempts.len() as u32).map(TransactionId)
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key_name(&self, key: KeyId) -> &str {
        &self.keys[key.0 as usize].name
    }

    /// What the key holds. A key that was only ever found absent counts as a register.
    pub(super) fn key_kind(&self, key: KeyId) -> KeyKind {
        self.keys[key.0 as usize].kind.map_or(KeyKind::Register, |(kind, _)| kind)
    }

    /// The transaction that wrote `value` to `key`, if there is one.
    pub(super) fn write_of(&self, key: KeyId, value: u64) -> Option<Write> {
        self.writes.get(&(key, value)).copied()
    }

    fn key_named<'a>(&mut self, name: &'a str, names: &mut HashMap<&'a str, KeyId>) -> KeyId {
        *names.entry(name).or_insert_with(|| {
            self.keys.push(Key { name: name.to_owned(), kind: None });
            KeyId(self.keys.len() as u32 - 1)
        })
    }

    fn settle_kind(
        &mut self,
        key: KeyId,
        operation: &Operation,
        line: usize,
    ) -> Result<(), LineError> {
        let kind = match operation {
            Operation::Append(..) | Operation::Read(_, Seen::List(_)) => KeyKind::List,
            Operation::Write(..) | Operation::Read(_, Seen::Value(_)) => KeyKind::Register,
            Operation::Read(_, Seen::Absent) => return Ok(()),
        };
        let key = &mut self.keys[key.0 as usize];
        let (settled, first_line) = *key.kind.get_or_insert((kind, line));
        if settled == kind {
            return Ok(());
        }
        Err(LineError::MixedKey { key: key.name.clone(), kind, other: settled, first_line })
    }

    fn add_writes(
        &mut self,
        attempt: &Attempt,
        first: usize,
        transaction: TransactionId,
    ) -> Result<(), LineError> {
        let mut next = HashMap::new();
        // From the last to the first, so that each write knows its successor.
        for (index, operation) in attempt.operations.iter().enumerate().rev() {
            let (Operation::Append(name, value) | Operation::Write(name, value)) = operation else {
                continue;
            };
            let key = self.operation_keys[first + index];
            let write = Write { transaction, next: next.insert(key, *value) };
            if let Some(earlier) = self.writes.insert((key, *value), write) {
                let first_line = earlier.transaction.line();
                return Err(LineError::WrittenTwice {
                    key: name.clone(),
                    value: *value,
                    first_line,
                });
            }
        }
        Ok(())
    }
}

fn check_times(attempt: &Attempt) -> Result<(), LineError> {
    match (attempt.outcome, attempt.end_ns) {
        (Outcome::Unknown, None) => Ok(()),
        (Outcome::Unknown, Some(_)) => Err(LineError::EndOfUnknown),
        (Outcome::Ok | Outcome::Aborted, None) => Err(LineError::EndMissing),
        (Outcome::Ok | Outcome::Aborted, Some(end_ns)) if end_ns < attempt.start_ns => {
            Err(LineError::EndBeforeStart { start_ns: attempt.start_ns, end_ns })
        }
        (Outcome::Ok | Outcome::Aborted, Some(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        History::read(text.as_bytes()).expect_err("not well formed").to_string()
    }

    #[test]
    fn rules_between_lines_name_both_lines() {
        let written = r#"{"client":0,"start_ns":1,"end_ns":2,"outcome":"ok","operations":[{"write":["x",1]}]}"#;
        let appended = written.replace("write", "append");
        assert_eq!(
            error_of(&format!("{written}\n{written}")),
            "line 2: 1 is written to key 'x' again, first on line 1; a history needs each value \
             written at most once a key, aborted attempts included"
        );
        assert_eq!(
            error_of(&format!("{written}\n{appended}\n")),
            "line 2: key 'x' is used as a list here and as a register on line 1; use two keys"
        );
        assert!(
            error_of(&format!("{written}\n\n{appended}")).starts_with("line 2: the line is empty")
        );
    }

    #[test]
    fn times_agree_with_the_outcome() {
        let line = |end: &str, outcome: &str| {
            format!(r#"{{"client":0,"start_ns":5,{end}"outcome":"{outcome}","operations":[]}}"#)
        };
        assert!(error_of(&line("", "ok")).contains("`end_ns` is missing"));
        assert!(error_of(&line(r#""end_ns":9,"#, "unknown")).contains("leave it out"));
        assert!(error_of(&line(r#""end_ns":4,"#, "aborted")).contains("before it starts at 5"));
        assert!(History::read(line("", "unknown").as_bytes()).is_ok());
    }

    #[test]
    fn what_is_written_can_be_read() {
        let text = r#"{"client":0,"start_ns":1,"end_ns":2,"outcome":"ok","operations":[{"append":["x",1]},{"append":["x",2]}]}
{"client":1,"start_ns":3,"outcome":"unknown","operations":[{"read":["x",[1,2]]}]}
"#;
        let history = History::read(text.as_bytes()).expect("well formed");
        let mut written = Vec::new();
        history.write(&mut written).expect("memory takes everything");
        assert_eq!(String::from_utf8(written).expect("JSON is text"), text);
        assert_eq!(history.write_of(KeyId(0), 1).expect("written").next, Some(2));
    }
}
