//! What is kept of the loss of a shard's majority, once an operator has accepted it. `accept_loss.rs` has the steps.

use super::epoch_end::EpochEnd;
use super::ids::Incarnation;
use shoal_types::wire::Coded;
use shoal_types::{Epoch, NodeId};
use std::collections::BTreeMap;

/// An accepted loss of a shard's majority: kept for as long as the cluster lives, or until another is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Loss {
    /// Drawn by the operator: a request with the same number is a repeat.
    pub number: u64,
    /// When it was accepted, in seconds since 1970, on the operator's clock.
    pub at_s: u64,
    /// The progress of the loss.
    pub stage: LossStage,
    /// The epoch that began when it was accepted.
    pub begun: Epoch,
    /// The nodes that have reported what they know, with their incarnations.
    pub reported: BTreeMap<NodeId, Incarnation>,
    /// The replicas that were removed, and the last incarnation of each that held the shard.
    pub void: BTreeMap<NodeId, Incarnation>,
    /// The outcomes of calls in sessions from before this epoch are lost, unless a row records them.
    pub calls_before: Epoch,
    /// The epochs whose end the shard lacked, and how they end, including those of earlier losses. Also the
    /// first epoch that the shard had ended of which the survivors lack the end, if there is one: they may
    /// lack everything after it.
    pub ends: BTreeMap<Epoch, LostEnd>,
}

/// How far an accepted loss is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum LossStage {
    /// Live nodes are asked what they know of the shard.
    #[coded(tag = 0)]
    Asking,
    /// The survivors vote, and their leader prepares at all of them.
    #[coded(tag = 1)]
    Preparing,
    /// Every epoch whose end the shard lacked has got one, and the survivors are its replicas.
    #[coded(tag = 2)]
    Over,
}

/// How an epoch ends on a shard whose majority is lost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct LostEnd {
    /// The greatest end up to which a live node knew the shard to be durable in the epoch.
    pub known: EpochEnd,
    /// Whether a live node knew that the epoch had ended there: then no end is forced.
    pub has_ended: bool,
    /// How far the survivors hold all of the epoch, once that is known.
    pub held: Option<EpochEnd>,
    /// The end that the epoch is given. What is between `held` and this is missing.
    pub end: Option<EpochEnd>,
}

/// What a node knows of a shard in epochs whose end the shard lacks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct Knowledge {
    /// Up to where the shard was durable.
    pub durable: BTreeMap<Epoch, EpochEnd>,
    /// Where the epochs ended.
    pub ends: BTreeMap<Epoch, EpochEnd>,
}

impl Loss {
    /// Whether it contains the end of this epoch.
    #[must_use]
    pub fn forces(&self, epoch: Epoch) -> bool {
        self.ends.contains_key(&epoch)
    }

    /// Whether this incarnation of a node has reported what it knows.
    #[must_use]
    pub fn has_reported(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.reported.get(&node) == Some(&incarnation)
    }

    /// Adds a node's knowledge of epochs whose ends are lacking.
    pub(super) fn learn(&mut self, knowledge: &Knowledge) {
        for (epoch, lost) in self.ends.iter_mut().filter(|(_, lost)| lost.end.is_none()) {
            if let Some(end) = knowledge.ends.get(epoch).filter(|_| !lost.has_ended) {
                (lost.known, lost.has_ended) = (end.clone(), true);
            }
            let durable = knowledge.durable.get(epoch).filter(|durable| **durable > lost.known);
            if let Some(durable) = durable.filter(|_| !lost.has_ended) {
                lost.known.clone_from(durable);
            }
        }
    }
}
