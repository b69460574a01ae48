//! Reports of closed epochs, for an engine whose outcomes do not depend on how they end: nothing is ever left hanging.

use crate::engine::{EngineEffect, EngineEffects};
use shoal_cluster::manager::Configuration;
use shoal_types::{Ballot, Epoch, ShardId};
use std::collections::BTreeSet;

/// What a worker has reported to the manager of epochs that are closed and not settled.
#[derive(Debug, Default)]
pub struct EpochReports {
    sent: BTreeSet<(ShardId, Ballot, Epoch)>,
}

impl EpochReports {
    /// Reports that nothing was left hanging in closed epochs that lack their end, on the shards that this worker leads: once
    /// under each ballot.
    pub fn report<M, O>(
        &mut self,
        configuration: &Configuration,
        led: impl Iterator<Item = (ShardId, Ballot)>,
        effects: &mut EngineEffects<M, O>,
    ) {
        for (shard, ballot) in led {
            for epoch in configuration.closing() {
                if configuration.lacks_end(epoch, shard) && self.sent.insert((shard, ballot, epoch))
                {
                    effects.push(EngineEffect::ended_whole(shard, epoch));
                }
            }
        }
        if !self.sent.is_empty() {
            self.sent.retain(|(.., epoch)| configuration.closing().any(|it| it == *epoch));
        }
    }

    /// How many are kept.
    #[expect(
        clippy::len_without_is_empty,
        reason = "it is counted, and nothing asks whether it is empty"
    )]
    #[must_use]
    pub fn len(&self) -> usize {
        self.sent.len()
    }
}
