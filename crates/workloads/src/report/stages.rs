//! Where the time of a transaction goes, by what the database has counted.

use std::collections::BTreeMap;

/// A part of a transaction's time.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// The name of the stage.
    pub name: &'static str,
    /// The mean time of the stage, in nanoseconds.
    pub mean_ns: f64,
    /// The stage's part of the whole time, 0 to 1.
    pub share: f64,
}

/// What comes before a transaction is certified, by the names of what is counted.
const BEFORE: [(&str, &str); 5] = [
    ("entering_ns", "waits to be let in"),
    ("retrying_ns", "earlier attempts"),
    ("executing_ns", "execute"),
    ("locking_ns", "lock"),
    ("validating_ns", "validate, prepare"),
];

/// The stages of an average transaction that wrote, at its coordinator; none if the database has not counted
/// them. The last three are what it waits for once it is certified: those that its pieces take in batches
/// and streams, and what is left for that to be known, and for what it depends on.
pub fn stages(counted: &BTreeMap<String, u64>) -> Vec<Stage> {
    let count = |name: &str| counted.get(name).copied().unwrap_or(0) as f64;
    let writers = count("writers");
    if writers == 0.0 {
        return Vec::new();
    }
    let mut means: Vec<(&'static str, f64)> =
        BEFORE.iter().map(|(counter, name)| (*name, count(counter) / writers)).collect();
    let awaiting = count("awaiting_ns") / writers;
    let piece = |name: &str| count(name) / count("pieces").max(1.0);
    let batching = piece("batching_ns").min(awaiting);
    let replicating = piece("replicating_ns").min(awaiting - batching);
    means.push(("batch", batching));
    means.push(("replicate", replicating));
    means.push(("watermark, the rest", awaiting - batching - replicating));
    let whole: f64 = means.iter().map(|(_, mean)| mean).sum();
    let stage = |(name, mean_ns)| Stage { name, mean_ns, share: mean_ns / whole.max(1.0) };
    means.into_iter().map(stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_to_the_time_at_the_coordinator() {
        let counted = [
            ("writers", 10),
            ("entering_ns", 10),
            ("executing_ns", 200),
            ("locking_ns", 300),
            ("awaiting_ns", 5000),
            ("pieces", 20),
            ("batching_ns", 1000),
            ("replicating_ns", 8000),
        ];
        let counted = counted.map(|(name, count)| (name.to_owned(), count)).into();
        let stages = stages(&counted);
        let means: Vec<f64> = stages.iter().map(|stage| stage.mean_ns).collect();
        assert_eq!(means, [1.0, 0.0, 20.0, 30.0, 0.0, 50.0, 400.0, 50.0]);
        assert!((stages.iter().map(|stage| stage.share).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_said_where_nothing_is_counted() {
        assert_eq!(stages(&BTreeMap::new()), []);
    }
}
