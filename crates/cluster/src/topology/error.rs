//! Errors of a topology, with the line in its text.

use std::fmt;
use std::ops::Range;

/// The place of an error that is about no part of a text: something is missing, or the topology was not read
/// from a text.
pub(super) const NOWHERE: Range<usize> = 0..0;

/// The longest excerpt of the line in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 80;

/// What is wrong with the text at `span`, a range of bytes.
#[derive(Debug)]
pub(super) struct Complaint {
    pub(super) span: Range<usize>,
    pub(super) what: String,
}

impl Complaint {
    /// The shape of every early return of a check.
    pub(super) fn about<T>(span: Range<usize>, what: impl Into<String>) -> Result<T, Complaint> {
        Err(Complaint { span, what: what.into() })
    }

    /// The error of the parser, with what to do if it does not say so itself.
    pub(super) fn of(error: &toml::de::Error) -> Complaint {
        let message = error.message().replace('\n', ", ");
        let number = message.strip_suffix("u32").or_else(|| message.strip_suffix("usize"));
        let what = match number {
            Some(before) => format!("{before}a number, 0 or more"),
            None if message.starts_with("missing field") => format!("{message}; add it"),
            None if message.starts_with("duplicate key") => format!("{message}; keep one of them"),
            None => message,
        };
        Complaint { span: error.span().unwrap_or(NOWHERE), what }
    }
}

/// Why a topology is invalid: the line, its content, what is wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyError {
    /// The number of the line, from 1; none where the text lacks something, or there was no text.
    pub line: Option<usize>,
    /// The line, without the blanks around it, cut if it is long.
    pub excerpt: Option<String>,
    /// What is wrong, and what to do.
    pub what: String,
}

impl TopologyError {
    /// The complaint, about a place in `text`.
    pub(super) fn within(text: &str, complaint: Complaint) -> TopologyError {
        if complaint.span == NOWHERE {
            return TopologyError::nowhere(complaint);
        }
        let at = complaint.span.start.min(text.len());
        let before = &text.as_bytes()[..at];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let excerpt = text.lines().nth(line - 1).unwrap_or("").trim();
        let cut: String = excerpt.chars().take(EXCERPT_CHARS_MAX).collect();
        let excerpt = if cut.len() < excerpt.len() { cut + "…" } else { cut };
        TopologyError { line: Some(line), excerpt: Some(excerpt), what: complaint.what }
    }

    /// The complaint, about no text.
    pub(super) fn nowhere(complaint: Complaint) -> TopologyError {
        TopologyError { line: None, excerpt: None, what: complaint.what }
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(excerpt) = self.excerpt.as_deref().filter(|excerpt| !excerpt.is_empty()) {
            write!(f, "`{excerpt}`: ")?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for TopologyError {}
