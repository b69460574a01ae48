//! What a worker measures: numbers with names, which are declared where they are counted.
//!
//! | what | declared by | read by |
//! |---|---|---|
//! | [`RuntimeCounters`] | this crate | all that know a worker |
//! | [`Counters`] of an engine, and each [`CommitStage`] | the engine | by name: `declarations.rs` |
//! | each [`ShardMetric`] | the engine | by name, for each shard |
//!
//! So status, metrics and reports show what an engine declares, and name nothing that only one engine knows.

/// The declaration of a number that a worker measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Lower case; the unit comes last, where it is not a count: `_ns`, `_bytes`. No two of an engine are alike.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// What is measured, as a sentence.
    pub help: &'static str,
}

/// How a number behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// The number only grows, and wraps around.
    Counter,
    /// The greatest that there was.
    Greatest,
    /// The number is the present one.
    Level,
}

/// Numbers that are counted under names: made by [`counters!`](crate::counters).
pub trait Counters: Copy {
    /// What they are, in order.
    const DECLARED: &'static [Metric];

    /// The numbers, in the order of the declarations.
    fn values(&self) -> Vec<u64>;
}

/// Declares a struct of counters. A field's documentation is also its [`Metric::help`]; its [`MetricKind`] stands before
/// its name.
#[macro_export]
macro_rules! counters {
    (
        $(#[doc = $doc:literal])+
        $visibility:vis struct $name:ident {
            $($(#[doc = $help:literal])+ $kind:ident $field:ident,)*
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        $visibility struct $name {
            $($(#[doc = $help])+ pub $field: u64,)*
        }

        impl $crate::metrics::Counters for $name {
            const DECLARED: &'static [$crate::metrics::Metric] = &[
                $($crate::metrics::Metric {
                    name: stringify!($field),
                    kind: $crate::metrics::MetricKind::$kind,
                    help: concat!($($help),+).trim_ascii(),
                },)*
            ];

            fn values(&self) -> Vec<u64> {
                vec![$(self.$field),*]
            }
        }
    };
}

counters! {
    /// What the worker of any engine counts.
    pub struct RuntimeCounters {
        /// Transactions that were coordinated here and whose commit was reported to the client.
        Counter committed,
        /// Transactions that were coordinated here, wrote, and went on to commit.
        Counter wrote,
        /// Transactions that were coordinated here, wrote more than one shard, and went on to commit.
        Counter cross_shard,
        /// Attempts that met a conflict.
        Counter conflicts,
        /// Conflicts because a key that was read had changed.
        Counter conflicts_read_changed,
        /// Conflicts because a key was locked.
        Counter conflicts_locked,
        /// Conflicts because keys came to or left a range that was read.
        Counter conflicts_range_changed,
        /// Conflicts because of an epoch that had ended, or was not open at a shard.
        Counter conflicts_epoch,
        /// Conflicts because a shard recovered, did not answer, or had no majority.
        Counter conflicts_unavailable,
        /// Conflicts for other reasons.
        Counter conflicts_other,
        /// Transactions, with any outcome, that took longer than slow_ms.
        Counter slow,
        /// Requests to other workers that were sent again.
        Counter resent,
        /// Messages that were malformed or obsolete.
        Counter dropped,
        /// Operations on records: read, written, scanned, replayed.
        Counter operations,
        /// Keys locked, installed or rolled back, and a sixteenth of the reads validated.
        Counter step_keys,
        /// The most of these keys in one step.
        Greatest step_keys_most,
        /// Batches appended to streams, heartbeats included.
        Counter batches,
        /// Bytes of those batches.
        Counter batch_bytes,
        /// Bytes of writes that were replayed where the node follows.
        Counter replayed_bytes,
        /// Transactions that wrote, were coordinated here and answered; the times of stages are about these.
        Counter writers,
        /// Nanoseconds in which they waited for admission.
        Counter entering_ns,
        /// Nanoseconds of their attempts that met conflicts, and of pauses after them.
        Counter retrying_ns,
        /// Nanoseconds of their last attempts; of interactive ones, also of their clients between steps.
        Counter executing_ns,
        /// Transactions in streams that are led here, once decided, each for every shard it writes; the next times are about these.
        Counter replicated,
        /// Nanoseconds in which they waited in batches.
        Counter batching_ns,
        /// Nanoseconds in which they were in the stream and not decided.
        Counter replicating_ns,
    }
}

/// The most stages that a commit can have.
pub const COMMIT_STAGES_MAX: usize = 4;

/// A stage of a transaction that wrote, from when its body is done until it is answered. Its time is counted in nanoseconds of
/// the worker's own time, so that what happens within one step takes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitStage {
    /// The name of its counter, which ends in `_ns`.
    pub name: &'static str,
    /// What reports call it. Of the last stage, in which what was written is replicated: what they call the rest of it.
    pub label: &'static str,
    /// What happens in it, as a sentence.
    pub help: &'static str,
}

/// The sums of the times of decided transactions in streams, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransitTimes {
    /// The number of transactions, each counted once for every shard that it writes.
    pub replicated: u64,
    /// While transactions gathered in batches.
    pub batching_ns: u64,
    /// While transactions were in the stream, and not decided.
    pub replicating_ns: u64,
}

/// A number that a worker reports of each shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardMetric {
    /// As of a [`Metric`], whose kind is [`MetricKind::Level`].
    pub name: &'static str,
    /// What it is, as a sentence.
    pub help: &'static str,
    /// The heading under which a status shows it, if it does: of the shard's leader, or of its followers.
    pub column: Option<ShardColumn>,
}

/// A counter of the first worker of a node, which a status shows for each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeColumn {
    /// Its name.
    pub counter: &'static str,
    /// The heading of the column.
    pub heading: &'static str,
}

/// Where a status shows a number of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardColumn {
    /// The value of the leader, under this heading.
    Leader(&'static str),
    /// The value of each follower, under this heading.
    Followers(&'static str),
}

/// What a worker has counted since it began. `C` is what its engine counts beside what all count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineCounters<C> {
    /// What every engine counts.
    pub runtime: RuntimeCounters,
    /// How long the transactions that wrote were in each of the engine's stages, all added up.
    pub stages_ns: [u64; COMMIT_STAGES_MAX],
    /// What this engine counts.
    pub own: C,
}
