//! Where the time of a transaction goes, by what the database has counted.

use serde::Serialize;
use shoal_types::Counted;

/// A part of a transaction's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageTime {
    /// The name of the stage.
    pub name: String,
    /// The mean time of the stage, in nanoseconds.
    pub mean_ns: f64,
    /// The stage's part of the whole time, 0 to 1.
    pub share: f64,
}

/// What comes before a commit, by the names of what is counted.
const BEFORE: [(&str, &str); 3] = [
    ("entering_ns", "waits to be let in"),
    ("retrying_ns", "earlier attempts"),
    ("executing_ns", "execute"),
];

/// The stages of an average transaction that wrote, at its coordinator; none if the database has not counted
/// them. The last one of its commit is shown in three parts: what transactions take in batches and in streams, and the rest.
pub fn stages(counted: &Counted) -> Vec<StageTime> {
    let count = |name: &str| counted.counts.get(name).copied().unwrap_or(0) as f64;
    let writers = count("writers");
    let Some((replicated, commit)) = counted.stages.split_last().filter(|_| writers > 0.0) else {
        return Vec::new();
    };
    let before = BEFORE.iter().map(|(counter, name)| ((*name).to_owned(), count(counter)));
    let commit = commit.iter().map(|stage| (stage.label.clone(), count(&stage.counter)));
    let means = before.chain(commit).map(|(name, sum)| (name, sum / writers));
    let mut means: Vec<(String, f64)> = means.collect();
    let whole = count(&replicated.counter) / writers;
    let each = |name: &str| count(name) / count("replicated").max(1.0);
    let batching = each("batching_ns").min(whole);
    let replicating = each("replicating_ns").min(whole - batching);
    means.push(("batch".to_owned(), batching));
    means.push(("replicate".to_owned(), replicating));
    means.push((replicated.label.clone(), whole - batching - replicating));
    let whole: f64 = means.iter().map(|(_, mean)| mean).sum();
    let stage = |(name, mean_ns)| StageTime { name, mean_ns, share: mean_ns / whole.max(1.0) };
    means.into_iter().map(stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::CountedStage;

    #[test]
    fn stages_add_up_to_the_time_at_the_coordinator() {
        let counts = [
            ("writers", 10),
            ("entering_ns", 10),
            ("executing_ns", 200),
            ("locking_ns", 300),
            ("awaiting_ns", 5000),
            ("replicated", 20),
            ("batching_ns", 1000),
            ("replicating_ns", 8000),
        ];
        let stage = |counter: &str, label: &str| CountedStage {
            counter: counter.to_owned(),
            label: label.to_owned(),
        };
        let counted = Counted {
            counts: counts.map(|(name, count)| (name.to_owned(), count)).into(),
            stages: vec![stage("locking_ns", "lock"), stage("awaiting_ns", "the rest")],
        };
        let stages = stages(&counted);
        let means: Vec<f64> = stages.iter().map(|stage| stage.mean_ns).collect();
        assert_eq!(means, [1.0, 0.0, 20.0, 30.0, 50.0, 400.0, 50.0]);
        let names: Vec<&str> = stages.iter().map(|stage| &stage.name[..]).collect();
        assert_eq!(names[3..], ["lock", "batch", "replicate", "the rest"]);
        assert!((stages.iter().map(|stage| stage.share).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_said_where_nothing_is_counted() {
        assert_eq!(stages(&Counted::default()), []);
    }
}
