//! The words of a history, and the lines they are written as.
//!
//! One transaction attempt is one line of JSON; `docs/history-format.md` gives the grammar and a
//! worked example. Everything here is plain data: [`History`](super::History) is what has been
//! found to be well formed.

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::PathBuf;

/// Longest line that is read, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Attempts that one history may have.
pub const ATTEMPTS_MAX: usize = 4_000_000;

/// Operations of all attempts of one history.
pub const OPERATIONS_MAX: usize = 10_000_000;

// The checker numbers the edges of its graph in 32 bits. A fan links to a suffix with an edge a
// level of its tree, and each transaction left out costs two a level: at most 5 levels' worth of
// edges an operation for what follows its version, and as many for what follows in time.
const _: () = {
    let levels = OPERATIONS_MAX.ilog2() as usize + 1;
    assert!(OPERATIONS_MAX * 2 * 5 * levels + ATTEMPTS_MAX * levels <= u32::MAX as usize);
};

/// An attempt at a transaction, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// The client that ran it. Only for readers of the history: no order is inferred from it.
    pub client: u64,
    /// When the client called, in nanoseconds of a clock that all clients share.
    pub start_ns: u64,
    /// When the client had its answer; `None` exactly where the outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ns: Option<u64>,
    /// The outcome of the attempt.
    pub outcome: Outcome,
    /// The operations of the attempt, in order.
    pub operations: Vec<Operation>,
}

/// The outcome that the client received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The attempt has committed, and has an end time.
    Ok,
    /// The attempt had no effect.
    Aborted,
    /// The attempt may have committed, or may yet: the client received no outcome.
    Unknown,
}

/// One operation on one key. A key is either a list or a register, for the whole history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Puts a value at the end of the key's list.
    Append(String, u64),
    /// Sets the register to a value.
    Write(String, u64),
    /// Reads the key. A read that got no answer is left out of the history.
    Read(String, Seen),
}

impl Operation {
    /// The key it works on.
    pub fn key(&self) -> &str {
        match self {
            Operation::Append(key, _) | Operation::Write(key, _) | Operation::Read(key, _) => key,
        }
    }
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// There is no such key: an unwritten register, or a list nothing was appended to.
    Absent,
    /// The value of a register.
    Value(u64),
    /// A list's elements, the first appended first.
    List(Vec<u64>),
}

impl Serialize for Seen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Seen::Absent => serializer.serialize_unit(),
            Seen::Value(value) => serializer.serialize_u64(*value),
            Seen::List(elements) => elements.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seen, D::Error> {
        struct SeenVisitor;

        impl<'de> Visitor<'de> for SeenVisitor {
            type Value = Seen;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("null, an integer from 0 to 2^64-1, or a list of such integers")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Seen, E> {
                Ok(Seen::Absent)
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Seen, E> {
                Ok(Seen::Value(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Seen, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    elements.push(element);
                }
                Ok(Seen::List(elements))
            }
        }

        deserializer.deserialize_any(SeenVisitor)
    }
}

/// Why a text is not a history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file that was asked for.
        path: PathBuf,
        /// Why the system did not open it.
        source: io::Error,
    },
    /// The file could not be read to its end.
    #[error("line {line}: cannot read: {source}")]
    Read {
        /// The line that was being read, the first being 1.
        line: usize,
        /// Why the system did not read on.
        source: io::Error,
    },
    /// A line breaks a rule of the format.
    #[error("line {line}: {cause}")]
    Line {
        /// Which line, the first being 1; in memory, the attempt's place in order of start.
        line: usize,
        /// The rule that the line breaks.
        cause: LineError,
    },
}

/// Why a line is malformed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line is not the JSON of an attempt.
    #[error("column {column}: {message}")]
    Json {
        /// The column of the error, in bytes from 1.
        column: usize,
        /// What was found, and what was expected.
        message: String,
    },
    /// There is nothing on it.
    #[error("the line is empty; every line is one transaction attempt")]
    Empty,
    /// The line has more than [`LINE_BYTES_MAX`] bytes.
    #[error(
        "the line is longer than LINE_BYTES_MAX = {LINE_BYTES_MAX}; read fewer or shorter lists"
    )]
    TooLong,
    /// The history has more than [`ATTEMPTS_MAX`] attempts.
    #[error("a history has at most ATTEMPTS_MAX = {ATTEMPTS_MAX} attempts; split it")]
    TooManyAttempts,
    /// The history has more than [`OPERATIONS_MAX`] operations.
    #[error("a history has at most OPERATIONS_MAX = {OPERATIONS_MAX} operations; split it")]
    TooManyOperations,
    /// An attempt of known outcome has no end time.
    #[error("`end_ns` is missing; only an attempt of unknown outcome has none")]
    EndMissing,
    /// An attempt of unknown outcome may take effect at any later time.
    #[error("`end_ns` is given though the outcome is unknown; leave it out")]
    EndOfUnknown,
    /// An attempt cannot end before it starts.
    #[error("it ends at {end_ns}, before it starts at {start_ns}")]
    EndBeforeStart {
        /// The start that the line gives, in nanoseconds.
        start_ns: u64,
        /// The end that the line gives, in nanoseconds.
        end_ns: u64,
    },
    /// A value names its write only if it is written once.
    #[error(
        "{value} is written to key '{key}' again, first on line {first_line}; \
         a history needs each value written at most once a key, aborted attempts included"
    )]
    WrittenTwice {
        /// The key that was written.
        key: String,
        /// The value that was written.
        value: u64,
        /// The line of the earlier write.
        first_line: usize,
    },
    /// A key is a list or a register.
    #[error(
        "key '{key}' is used as a {kind} here and as a {other} on line {first_line}; use two keys"
    )]
    MixedKey {
        /// The key that is used in two ways.
        key: String,
        /// The kind as which the key is used.
        kind: KeyKind,
        /// The kind as which the key was used before.
        other: KeyKind,
        /// The line that determined the former kind.
        first_line: usize,
    },
}

/// What the values of a key are; a key has one kind throughout a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Values appended one after the other.
    List,
    /// A read returns the value written last.
    Register,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyKind::List => "list",
            KeyKind::Register => "register",
        })
    }
}

/// Reads attempts, one a line, to the end.
pub(super) fn read_attempts(mut reader: impl BufRead) -> Result<Vec<Attempt>, HistoryError> {
    let mut attempts = Vec::new();
    let mut text = Vec::new();
    loop {
        let line = attempts.len() + 1;
        text.clear();
        let length = (&mut reader)
            .take(LINE_BYTES_MAX as u64 + 1)
            .read_until(b'\n', &mut text)
            .map_err(|source| HistoryError::Read { line, source })?;
        if length == 0 {
            return Ok(attempts);
        }
        attempts.push(read_line(&text).map_err(|cause| HistoryError::Line { line, cause })?);
    }
}

fn read_line(text: &[u8]) -> Result<Attempt, LineError> {
    if text.len() > LINE_BYTES_MAX {
        return Err(LineError::TooLong);
    }
    if text.trim_ascii().is_empty() {
        return Err(LineError::Empty);
    }
    // Left to itself, the library would also take an array of the fields.
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(LineError::Json { column: 1, message: "expected a JSON object".to_owned() });
    }
    serde_json::from_slice(text).map_err(|error| {
        // The library counts lines within the text it was given, which is always one.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        LineError::Json { column: error.column(), message }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_written() {
        let text = r#"{"client":1,"start_ns":5,"end_ns":9,"outcome":"ok","operations":[{"append":["x",1]},{"read":["x",[1]]},{"write":["r",2]},{"read":["r",2]},{"read":["q",null]}]}"#;
        let attempt = read_line(text.as_bytes()).expect("well formed");
        assert_eq!(attempt.operations.len(), 5);
        assert_eq!(attempt.operations[4], Operation::Read("q".into(), Seen::Absent));
        assert_eq!(serde_json::to_string(&attempt).expect("plain data"), text);
    }

    #[test]
    fn a_bad_line_says_where_and_why() {
        let cases: [(&[u8], &str); 7] = [
            (b"\n", "the line is empty"),
            (b"{", "column 1: EOF while parsing an object"),
            (b"[1]", "column 1: expected a JSON object"),
            (
                br#"{"client":1,"start_ns":5,"outcome":"maybe","operations":[]}"#,
                "unknown variant `maybe`",
            ),
            (
                br#"{"client":1,"start_ns":5,"outcome":"ok","operations":[{"read":["x",-1]}]}"#,
                "invalid type: integer `-1`, expected null, an integer",
            ),
            (
                br#"{"client":1,"start_ns":5,"outcome":"ok","operations":[],"x":0}"#,
                "unknown field `x`",
            ),
            (b"{\"client\":\xff}", "column 1"),
        ];
        for (text, expected) in cases {
            let error = read_line(text).expect_err("malformed").to_string();
            assert!(error.contains(expected), "{error} lacks {expected}");
        }
    }
}
