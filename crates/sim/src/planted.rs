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
    /// It is caught by one of so many seeds, whichever is the first.
    pub within: u64,
}

/// Engine, bug, rule, and how soon it is to be caught: at least three times the longest stretch of two
/// hundred seeds that missed it when that was measured.
const BOUNDS: &[(&str, &str, &str, u64)] = &[
    ("mako", "skip-remote-validation", "serializability", 40),
    ("mako", "clock-before-lock", "M2", 50),
    ("mako", "safe-clock-past-in-flight", "M3", 30),
    ("mako", "acknowledge-at-certification", "M5", 10),
    ("mako", "ignore-tombstone-stamp", "M1", 100),
    ("mako", "apply-above-watermark", "M6", 30),
    ("mako", "replay-in-arrival-order", "M6", 40),
    ("mako", "count-learner", "M4", 60),
    ("two-phase-commit", "skip-remote-validation", "serializability", 30),
    ("two-phase-commit", "safe-clock-past-in-flight", "P5", 10),
    ("two-phase-commit", "acknowledge-at-certification", "P4", 10),
    ("two-phase-commit", "validate-before-locks", "P1", 1000),
    ("two-phase-commit", "replay-in-arrival-order", "M6", 40),
    ("two-phase-commit", "count-learner", "P4", 40),
];

/// All bugs that are planted in an engine.
///
/// # Panics
/// If the table has a bug that nobody knows.
pub fn all(engine: &str) -> Vec<Planted> {
    let of_engine = BOUNDS.iter().filter(|(other, ..)| *other == engine);
    let planted = of_engine.map(|(engine, name, rule, within)| {
        let bug = Bug::named(name).unwrap_or_else(|| panic!("{name} is no bug"));
        Planted { engine, name, bug, rule, within: *within }
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
        for (name, _) in Bug::NAMED {
            assert!(planted.iter().any(|planted| planted.name == name), "{name} is never planted");
        }
    }
}
