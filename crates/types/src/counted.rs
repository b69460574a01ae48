//! What a database has counted.

use std::collections::BTreeMap;

/// The name of the count of flushes of logs on disk.
pub const FLUSHES: &str = "flushes";

/// The name of the count of nanoseconds that these took.
pub const FLUSH_NS: &str = "flush_ns";

/// What a database has counted since it began, by name. Counts grow and wrap around.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// How much there was of everything, by its name.
    pub counts: BTreeMap<String, u64>,
    /// Which of them are times of a commit's stages, in order.
    pub stages: Vec<CountedStage>,
}

/// A count that is the time of a stage of commits, of all transactions that wrote; the last stage is the one in which what
/// they wrote is replicated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedStage {
    /// The name of the count.
    pub counter: String,
    /// What reports call the stage.
    pub label: String,
}

impl Counted {
    /// What was counted since `before`, which was counted earlier; nothing, where nothing was known then.
    pub fn since(mut self, before: &Counted) -> Counted {
        if before.counts.is_empty() {
            return Counted::default();
        }
        for (name, count) in &mut self.counts {
            *count = count.wrapping_sub(before.counts.get(name).copied().unwrap_or(0));
        }
        self
    }
}
