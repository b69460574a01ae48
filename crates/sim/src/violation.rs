//! A violation: a rule that a run broke.

use shoal_engine::WorkerPlace;
use shoal_types::Time;
use std::fmt;

/// A broken rule, with the time, the place and a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule's name: `M4`, `history`, `liveness` …
    pub rule: &'static str,
    /// The description of what happened.
    pub what: String,
    /// The true time of the violation.
    pub at: Time,
    /// The worker whose step broke the rule, if one did.
    pub place: Option<WorkerPlace>,
}

impl Violation {
    /// A violation that is not due to a single worker.
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
