//! A shard whose majority is lost for good, as an operator has accepted (the manager's part is
//! `cluster/src/manager/accept_loss.rs`).
//!
//! 1. Every node stops to learn how far the shard was durable in the epochs before the loss, and where it ended, and
//!    reports to the manager what it knows ([`Epochs::freeze`](super::epochs::Epochs::freeze)). Nothing but the configuration
//!    changes that any more.
//! 2. The leader of the survivors, once all that they hold is decided, reports how far that goes; then it waits.
//! 3. The configuration says how those epochs ended, and the leader closes them like any others whose ends are known
//!    (`steps/leadership.rs`).
//!
//! Invariant: no forced end is below what a node has acted by (M9). A node that was away while others were asked may
//! know more: it must not go on with what it has in memory ([`Engine::exceeds`](shoal_engine::Engine::exceeds)).

use super::epoch_ends::clock_of;
use shoal_cluster::manager::{Configuration, Loss, LossStage};
use shoal_types::{Clock, Epoch, ShardId};
use std::collections::BTreeMap;

/// Losses of majorities that were accepted, of any shards, as the configuration says.
#[derive(Debug, Default)]
pub(super) struct Losses {
    losses: BTreeMap<ShardId, Loss>,
}

impl Losses {
    /// The configuration has changed.
    pub(super) fn follow(&mut self, configuration: &Configuration) {
        let shards = (0..).map(ShardId).zip(&configuration.shards);
        let losses = shards.filter_map(|(id, shard)| Some((id, shard.loss.clone()?)));
        self.losses = losses.collect();
    }

    /// Each, with its shard.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ShardId, &Loss)> {
        self.losses.iter().map(|(shard, loss)| (*shard, loss))
    }

    /// Was no loss accepted?
    pub(super) fn is_empty(&self) -> bool {
        self.losses.is_empty()
    }

    /// Is it still open how the lost epochs of a shard end?
    pub(super) fn is_open(&self, shard: ShardId) -> bool {
        self.losses.get(&shard).is_some_and(|loss| loss.stage != LossStage::Over)
    }

    /// Does the configuration say how an epoch ends on a shard, and no stream?
    pub(super) fn force(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.losses.get(&shard).is_some_and(|loss| loss.forces(epoch))
    }

    /// The greatest clock at which a lost epoch of a shard ended: what is drawn from now on is greater (M8).
    pub(super) fn greatest_end(&self, shard: ShardId) -> Clock {
        let ends = self.losses.get(&shard).into_iter().flat_map(|loss| loss.ends.values());
        let ends =
            ends.filter_map(|lost| lost.end.as_ref()).map(clock_of).filter(|end| *end < Clock::MAX);
        ends.max().unwrap_or_default()
    }

    /// The loss of a shard whose survivors are to say how far they hold its epochs.
    pub(super) fn preparing(&self, shard: ShardId) -> Option<&Loss> {
        self.losses.get(&shard).filter(|loss| loss.stage == LossStage::Preparing)
    }
}
