//! When nodes are in: their deaths, and the epochs that begin with deaths and returns where the engine asks for that.
//!
//! Invariant: with [`membership_epochs`](crate::manager::ManagerOptions::membership_epochs), a node and the epoch since which
//! it is in name one membership, and no configuration of that epoch or a later one has an earlier membership of it.

use super::{Applied, StateMachine};
use shoal_types::{Epoch, NodeId, Time};

impl StateMachine {
    /// Declares a node dead, whose lease has run out by every clock.
    pub(super) fn declare_dead(&mut self, id: NodeId, now: Time, effects: &mut Vec<Applied>) {
        self.nodes[id.0 as usize].alive = false;
        (self.changed, self.members_changed) = (true, true);
        for shard in &mut self.shards {
            if shard.assignment.leader == id && shard.vacant.is_none() {
                shard.vacant = Some(now);
            }
        }
        effects.push(Applied::Died(id));
    }

    /// The epoch since which a node is alive that is admitted, or revived, now: the next one, where that begins an epoch.
    pub(super) fn next_membership(&self) -> Epoch {
        Epoch(self.epoch.0.saturating_add(u32::from(self.options.membership_epochs)))
    }

    /// Begins an epoch for the deaths and returns of the command that is applied, unless it has begun one: `before` was open.
    pub(super) fn begin_membership_epoch(&mut self, before: Epoch, effects: &mut Vec<Applied>) {
        let members_changed = std::mem::take(&mut self.members_changed);
        if members_changed && self.options.membership_epochs && self.epoch == before {
            let chosen = self.promote_replicas();
            self.raise_epoch(&chosen, effects);
        }
    }
}
