//! A violation: a rule of the house that a run broke.

use shoal_engine::WorkerPlace;
use shoal_types::Time;
use std::fmt;

/// What was broken, how, when and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule: `M4`, `history`, `liveness` …
    pub rule: &'static str,
    /// What happened, in words.
    pub what: String,
    /// When, in true time.
    pub at: Time,
    /// On which worker, where it was one.
    pub place: Option<WorkerPlace>,
}

impl Violation {
    /// A violation that no single worker is to blame for.
    pub fn new(rule: &'static str, at: Time, what: impl Into<String>) -> Violation {
        Violation { rule, what: what.into(), at, place: None }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.rule, self.at)?;
        if let Some(place) = self.place {
            write!(f, " on {place}")?;
        }
        write!(f, ": {}", self.what)
    }
}
