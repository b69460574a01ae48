//! The degree of replication: an owner and [`READERS_MIN`] readers, where there are as many nodes.
//!
//! The owner keeps it, off the path of transactions: where a node has died it has another one ask to read, and after a move,
//! which makes the old owner a reader, it drops one reader of those that there are too many of. A directory node stays if it
//! can, since it is an arbiter of each move anyway.
//!
//! A granule whose owner has died has no node that keeps its degree until one needs it: after a while the leader of its
//! directory takes it.

use super::Ownership;
use crate::granule::GranuleId;
use crate::message::MessageBody;
use crate::record::{Level, READERS_MIN, RequestKind};
use crate::scope::Scope;
use shoal_types::NodeId;
use std::ops::Bound;

/// So many readers more than [`READERS_MIN`] may stay after a move: nodes that read a granule often would only ask again.
const READERS_SPARE: usize = 1;

/// So many granules are looked at in each turn of `ZeusOptions::repeat_after`.
const CORRECTED_MAX: usize = 64;

impl Ownership {
    /// Looks at the granules of this node whose readers have changed, and has their number corrected.
    pub(crate) fn restore_degree(&mut self, scope: &mut Scope<'_>) {
        if self.recruit_at > scope.now || self.uneven.is_empty() {
            return;
        }
        self.recruit_at = scope.now + scope.options.repeat_after;
        // In turn, since each may take some time and many nodes may have died.
        let after = self.corrected.take().map_or(Bound::Unbounded, Bound::Excluded);
        let turn: Vec<GranuleId> =
            self.uneven.range((after, Bound::Unbounded)).take(CORRECTED_MAX).cloned().collect();
        for granule in &turn {
            if !self.correct_degree(scope, granule) {
                self.uneven.remove(granule);
            }
        }
        self.corrected = turn.into_iter().nth(CORRECTED_MAX - 1);
    }

    /// Whether there is still something to be done.
    fn correct_degree(&mut self, scope: &mut Scope<'_>, granule: &GranuleId) -> bool {
        let Some(holding) = self.granules.get(granule) else { return false };
        let record = &holding.record;
        let is_lost = record.is_uncreated() || record.replicas().next().is_none();
        let adopts = record.owner.is_none()
            && !is_lost
            && scope.is_directory_node(granule)
            && scope.directory(granule).next() == Some(scope.node);
        if record.owner != Some(scope.node) && !adopts {
            return false;
        }
        if !holding.is_settled() {
            return true;
        }
        if adopts {
            if scope.may_pass_barrier() && self.adopt_at <= scope.now {
                self.request(scope, granule, RequestKind::Own, scope.now);
            }
            return true;
        }
        if record.readers.len() < READERS_MIN {
            let others = scope.directory(granule).chain(scope.view.live());
            let mut others = others.filter(|node| record.level_of(*node) == Level::None);
            let Some(recruited) = others.next() else { return false };
            drop(others);
            scope.send(recruited, MessageBody::Recruit { granule: granule.clone() });
            return true;
        }
        if record.readers.len() > READERS_MIN + READERS_SPARE {
            let directory: Vec<NodeId> = scope.directory(granule).collect();
            let is_other = |reader: &&NodeId| !directory.contains(reader);
            let reader = record.readers.iter().rev().find(is_other).or(record.readers.last());
            let Some(reader) = reader.copied() else { return false };
            self.request(scope, granule, RequestKind::Drop(reader), scope.now);
            return true;
        }
        false
    }

    /// The owner has too few readers and chose this node. It asks once; the owner repeats itself.
    pub(crate) fn on_recruit(&mut self, scope: &mut Scope<'_>, granule: &GranuleId) {
        let holding = self.granules.get(granule);
        let is_asking = holding.is_some_and(|holding| holding.request.is_some());
        if self.level(scope.node, granule) == Level::None && !is_asking {
            self.request(scope, granule, RequestKind::Read, scope.now);
        }
    }
}
