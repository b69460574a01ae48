//! What a simulation makes of an engine's observations beside judging them: it counts rare paths, adds up digests, and
//! follows recoveries. One file for each engine.

mod mako;
mod two_phase_commit;

use crate::checks::EngineRules;
use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::recovery::RecoveryFact;
use shoal_engine::Engine;
use shoal_types::ShardId;
use std::fmt::Debug;

/// An engine that runs in simulated clusters.
pub trait Simulated: Engine<Observation: Observed> + 'static {
    /// What its observations are judged by.
    type Rules: EngineRules<Observation = Self::Observation>;
}

/// An observation of an engine.
pub trait Observed: Clone + Debug + 'static {
    /// Counts the rare paths that it shows.
    fn cover(&self, coverage: &mut Coverage);

    /// Adds it to the digest of all that happens.
    fn digest(&self, digest: &mut Digest);

    /// What it says of the recovery of a shard, if anything.
    fn recovery(&self) -> Option<RecoveryFact>;

    /// The entry of which it speaks, by its index in the worker's stream of a shard: checkers are shown it.
    fn entry(&self) -> Option<(ShardId, u64)>;

    /// The shard of which a copy is sent: checkers are told how long its streams are at the sender.
    fn copied(&self) -> Option<ShardId>;
}
