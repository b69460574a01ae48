//! A shard and the process that leads it.

use super::ShardState;
use crate::manager::command::LeadershipClaim;
use crate::manager::configuration::Assignment;
use crate::manager::ids::Incarnation;
use crate::manager::options::ManagerOptions;
use shoal_types::{Epoch, NodeId, Time};

impl ShardState {
    pub(super) fn is_led_by(&self, claim: &LeadershipClaim) -> bool {
        let Assignment { leader, incarnation, ballot, .. } = self.assignment;
        (leader, incarnation, ballot) == (claim.node, claim.incarnation, claim.ballot)
    }

    /// A replica has lost its memory: it does not vote until a leader of a later appointment reports that it has caught up.
    pub(super) fn lose_memory(&mut self, replica: NodeId, epoch: Epoch) {
        self.assignment.empty.insert(replica, epoch);
        self.ready.remove(&replica);
    }

    /// A node begins a new process: the shards that it led are vacant once the lease of the former process
    /// has run out.
    pub(super) fn on_new_instance(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        lease_end: Time,
        options: &ManagerOptions,
    ) {
        if self.assignment.leader != node {
            return;
        }
        if options.faults.keep_leadership {
            self.assignment.incarnation = incarnation;
        } else if self.vacant.is_none() {
            self.vacant = Some(lease_end);
        }
    }
}
