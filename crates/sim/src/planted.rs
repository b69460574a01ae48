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
    /// It is caught by one of the seeds below this.
    pub within: u64,
}

/// How soon each bug is to be caught: at least three times what was needed when it was measured.
const BOUNDS: [(&str, &str, u64); Bug::NAMED.len()] = [
    ("skip-remote-validation", "serializability", 2000),
    ("clock-before-lock", "M2", 2000),
    ("safe-clock-past-in-flight", "M3", 2000),
    ("acknowledge-at-certification", "M5", 2000),
    ("ignore-tombstone-stamp", "M1", 2000),
    ("apply-above-watermark", "M6", 2000),
    ("replay-in-arrival-order", "M6", 2000),
    ("count-learner", "M4", 2000),
];

/// All bugs of an engine.
pub fn all(engine: &str) -> Vec<Planted> {
    let bound = |name: &str| BOUNDS.iter().find(|(other, ..)| *other == name);
    let planted = Bug::NAMED.iter().filter(|_| engine == "mako").filter_map(|(name, bug)| {
        let (name, rule, within) = *bound(name)?;
        Some(Planted { engine: "mako", name, bug: *bug, rule, within })
    });
    planted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_bound() {
        assert_eq!(all("mako").len(), Bug::NAMED.len());
    }
}
