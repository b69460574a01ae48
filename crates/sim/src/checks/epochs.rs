//! M8: a transaction reads no version of a later epoch, and one of an earlier epoch only if that is durable.
//! Its clocks were all drawn while its epoch was open on the node: so all clocks of an epoch are below those
//! of the next.

use super::durable::Durable;
use super::transactions::SeenAttempt;
use super::verdict::RuleVerdict;
use shoal_engine::TransactionId;
use shoal_types::{Clock, Epoch, NodeId, ShardId};
use std::collections::BTreeMap;

/// The epoch that is open on each node, and the one that was open when each clock in flight was drawn.
#[derive(Debug, Default)]
pub struct OpenEpochs {
    open: BTreeMap<NodeId, Epoch>,
    drawn: BTreeMap<(NodeId, ShardId, Clock), Epoch>,
}

impl OpenEpochs {
    /// An epoch opens on a node, for all of its workers.
    pub fn opens(&mut self, node: NodeId, epoch: Epoch) {
        let open = self.open.entry(node).or_default();
        *open = epoch.max(*open);
    }

    /// A clock is drawn on a node.
    pub fn drawn(&mut self, node: NodeId, shard: ShardId, clock: Clock) {
        let open = self.open.get(&node).copied().unwrap_or_default();
        self.drawn.insert((node, shard, clock), open);
    }

    /// The clock is not in flight any more.
    pub fn resolved(&mut self, node: NodeId, shard: ShardId, clock: Clock) {
        self.drawn.remove(&(node, shard, clock));
    }

    /// A node has crashed: its next process begins with the first epoch.
    pub fn crashed(&mut self, node: NodeId) {
        self.open.remove(&node);
        self.drawn.retain(|(other, ..), _| *other != node);
    }

    /// A clock that was drawn on the node is used for a transaction of this epoch: it was sent to the
    /// coordinator, or a version was installed with it.
    pub fn uses(&self, node: NodeId, shard: ShardId, epoch: Epoch, clock: Clock) -> RuleVerdict {
        match self.drawn.get(&(node, shard, clock)) {
            Some(open) if *open > epoch => Err(format!(
                "a transaction of {epoch} gets {clock} of {shard}, which was drawn when {open} was open on {node}"
            )),
            _ => Ok(()),
        }
    }
}

/// Judges a transaction that has just been certified.
pub fn check(id: TransactionId, seen: &SeenAttempt, durable: &Durable) -> RuleVerdict {
    let Some(certified) = &seen.certified else { return Ok(()) };
    let epoch = certified.stamp.epoch;
    for read in &seen.reads {
        if read.stamp.epoch > epoch {
            return Err(format!(
                "{id} of {epoch} read a version of {} on {}",
                read.stamp.epoch, read.shard
            ));
        }
        if read.stamp.epoch < epoch
            && let Some((shard, clock)) = durable.missing(read.shard, &read.stamp)
        {
            return Err(format!(
                "{id} of {epoch} read a version of {} on {}, which depends on {shard} up to \
                 {clock}, and that is not durable",
                read.stamp.epoch, read.shard
            ));
        }
    }
    Ok(())
}
