//! What a simulation does with an engine's observations besides judging them: it counts rare paths, updates
//! the digest, and follows recoveries. One file for each engine.

mod mako;
mod tiga;
mod two_phase_commit;
mod zeus;

use crate::checks::EngineRules;
use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::recovery::RecoveryFact;
use shoal_engine::Engine;
use shoal_types::{ShardId, TableId};
use std::fmt::Debug;

/// An engine that runs in simulated clusters.
pub trait Simulated: Engine<Observation: Observed> + 'static {
    /// The rules by which its observations are judged.
    type Rules: EngineRules<Observation = Self::Observation>;
}

/// An observation of an engine.
pub trait Observed: Clone + Debug + 'static {
    /// Counts the rare paths that the observation shows.
    fn cover(&self, coverage: &mut Coverage);

    /// Adds the observation to the digest of the run.
    fn digest(&self, digest: &mut Digest);

    /// The progress in the recovery of a shard that it shows, if any.
    fn recovery(&self) -> Option<RecoveryFact>;

    /// The stream entry that it is about, as a shard and an index in the worker's stream: checkers are shown
    /// that entry.
    fn entry(&self) -> Option<(ShardId, u64)> {
        None
    }

    /// The table of which a leader installs a row.
    fn installed_table(&self) -> Option<TableId> {
        None
    }

    /// The shard of which it sends a copy: checkers are shown the lengths of the sender's streams.
    fn copied(&self) -> Option<ShardId> {
        None
    }
}
