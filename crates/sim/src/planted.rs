//! Planted bugs: each disarms one rule, and a simulation that does not see the loss of it counts for
//! nothing. The table says within how many seeds each has to be caught.

use crate::subject::Bug;

/// A planted bug and what is expected of the checkers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planted {
    /// The engine it is planted in.
    pub engine: &'static str,
    /// Its name, as on the command line.
    pub name: &'static str,
    /// The bug.
    pub bug: Bug,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// The rules whose checkers may catch it. That something else fails, as by a crash, proves nothing of
    /// them.
    pub caught_by: &'static [&'static str],
    /// Where to look first: for a bug that few seeds catch, just before one of them.
    pub first: u64,
    /// It is caught by one of so many seeds, whichever is the first.
    pub within: u64,
}

/// Engine, bug, the rule it breaks, the rules it may be caught by, and how soon it is to be caught: at
/// least three times the longest stretch of two hundred seeds that missed it when that was measured.
type Bound = (&'static str, &'static str, &'static str, &'static [&'static str], u64);

const BOUNDS: &[Bound] = &[
    ("mako", "skip-remote-validation", "serializability", CLIENTS, 40),
    // The clock of an idle branch holds the shard back, mostly before it is used.
    ("mako", "clock-before-lock", "M2", &["M2", "assertion", "liveness"], 50),
    ("mako", "safe-clock-past-in-flight", "M3", &["M3"], 30),
    ("mako", "acknowledge-at-certification", "M5", &["M5"], 10),
    ("mako", "reveal-at-once", "M5", &["M5"], 40),
    ("mako", "ignore-tombstone-stamp", "M1", &["M1"], 100),
    ("mako", "install-own-clock-only", "M1", &["M1"], 30),
    ("mako", "apply-above-watermark", "M6", &["M6"], 30),
    ("mako", "replay-in-arrival-order", "M6", &["M6"], 40),
    ("mako", "validate-before-locks", "serializability", CLIENTS, 430),
    ("mako", "ignore-request-rows", "exactly once", &["exactly once", "client"], 300),
    ("mako", "serve-forgotten-sessions", "exactly once", FORGOTTEN, 300),
    ("mako", "reuse-session-numbers", "exactly once", FORGOTTEN, 300),
    ("mako", "drop-known-rows", "exactly once", FORGOTTEN, 300),
    ("mako", "read-unsettled-epoch", "M8", &["M8"], 100),
    ("mako", "end-epoch-in-flight", "M9", &["M9", "assertion"], 100),
    ("mako", "end-whole-while-hanging", "M9", LOST, 60),
    ("mako", "report-before-durable", "M9", &["M9", "assertion"], 30),
    ("mako", "act-without-lease", "M7", &["M7"], 700),
    ("mako", "roll-back-by-clock", "M9", &["M5", "M6", "M9", "atomicity", "replicas"], 60),
    ("mako", "keep-dead-locks", "liveness", &["liveness", "assertion"], 60),
    ("mako", "silence-resolves", "M3", LOST, 300),
    ("mako", "cut-unabsorbed", "M6", COPIES, 100),
    ("mako", "copy-uncommitted", "M6", COPIES, 100),
    ("mako", "copy-keeps-deleted", "M6", COPIES, 100),
    ("mako", "count-learner", "M4", &["M4"], 60),
    ("mako", "forget-promise", "M4", &["M4", "M9", "assertion", "liveness"], 700),
    ("mako", "appoint-early", "M7", &["M7"], 800),
    ("mako", "appoint-hasty", "M7", &["M7"], 800),
    ("mako", "lease-from-reply", "M7", &["M7"], 2000),
    ("two-phase-commit", "skip-remote-validation", "serializability", CLIENTS, 30),
    ("two-phase-commit", "safe-clock-past-in-flight", "P5", &["P5"], 10),
    ("two-phase-commit", "acknowledge-at-certification", "P4", &["P4"], 10),
    ("two-phase-commit", "validate-before-locks", "P1", CLIENTS, 300),
    ("two-phase-commit", "replay-in-arrival-order", "M6", &["P5"], 40),
    ("two-phase-commit", "count-learner", "P4", &["P4"], 60),
    ("two-phase-commit", "serve-forgotten-sessions", "exactly once", FORGOTTEN, 300),
];

/// An end that says too much: of what was reported, or of what was lost by it.
const LOST: &[&str] = &["M9", "assertion", "lost acknowledgement", "atomicity"];

/// A replica that has what it should not, or has not what it should.
const COPIES: &[&str] = &["M6", "M10", "replicas", "assertion", "M2", "lost acknowledgement"];

/// A call that ran twice, or after its client was told that it did not.
const FORGOTTEN: &[&str] = &["exactly once", "client"];

/// What clients see, and nobody else.
const CLIENTS: &[&str] = &["client"];

impl Planted {
    /// Is a failure of this rule what was expected?
    pub fn is_caught_by(&self, rule: &str) -> bool {
        self.caught_by.contains(&rule)
    }
}

/// Bugs that one in some hundred seeds catches, and one that does. After a change that makes all seeds different
/// the search begins there as well as anywhere.
const RARE: &[(&str, &str, u64)] = &[
    ("mako", "act-without-lease", 713),
    ("mako", "appoint-early", 521),
    ("mako", "copy-keeps-deleted", 100),
    ("mako", "cut-unabsorbed", 100),
    ("mako", "lease-from-reply", 1117),
];

/// All bugs that are planted in an engine.
///
/// # Panics
/// If the table has a bug that nobody knows.
pub fn all(engine: &str) -> Vec<Planted> {
    let of_engine = BOUNDS.iter().filter(|(other, ..)| *other == engine);
    let planted = of_engine.map(|(engine, name, rule, caught_by, within)| {
        let bug = Bug::named(name).unwrap_or_else(|| panic!("{name} is no bug"));
        let rare = RARE.iter().find(|rare| (rare.0, rare.1) == (*engine, *name));
        let first = rare.map_or(0, |(_, _, first)| *first);
        Planted { engine, name, bug, rule, caught_by, first, within: *within }
    });
    planted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::ENGINES;

    #[test]
    fn every_bug_is_planted_somewhere() {
        let planted: Vec<Planted> = ENGINES.iter().flat_map(|(name, _)| all(name)).collect();
        assert_eq!(planted.len(), BOUNDS.len(), "a bug is planted in an engine that nobody knows");
        for (engine, name, _) in RARE {
            assert!(all(engine).iter().any(|planted| planted.name == *name), "{name} is not there");
        }
        for (name, _) in Bug::NAMED {
            assert!(planted.iter().any(|planted| planted.name == name), "{name} is never planted");
        }
    }
}
