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
use crate::record::{Level, OwnershipTs, READERS_MIN, RequestKind};
use crate::scope::Scope;
use shoal_types::{NodeId, ShardId};
use std::ops::Bound;

/// So many readers more than [`READERS_MIN`] may stay after a move: nodes that read a granule often would only ask again.
const READERS_SPARE: usize = 1;

/// So many granules that cannot be corrected yet are looked at in each turn of `ZeusOptions::repeat_after`.
const LOOKED_AT_MAX: usize = 64;

/// So many granules are looked at together by [`Ownership::is_whole`].
const WHOLE_LOOKED_AT_MAX: usize = 1024;

/// How far the degree of a granule is.
enum DegreeProgress {
    /// There is nothing for this node to do.
    Done,
    /// Another node was asked, or the directory was.
    Asked,
    /// Something else has to be over first.
    Later,
}

impl Ownership {
    /// Looks at the granules of this node whose readers have changed, and has their number corrected.
    pub(crate) fn restore_degree(&mut self, scope: &mut Scope<'_>) {
        if self.recruit_at > scope.now {
            return;
        }
        self.recruit_at = scope.now + scope.options.repeat_after;
        for granule in self.corrections.due(scope.now) {
            if let DegreeProgress::Later = self.correct(scope, &granule) {
                self.note_asked(scope, &granule);
            }
        }
        // In turn, since each may take some time and many nodes may have died.
        let corrected = self.corrected.take();
        let after = corrected.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let others = self.uneven.range((after, Bound::Unbounded));
        let others = others.filter(|granule| !self.corrections.is_under_way(granule));
        let turn: Vec<GranuleId> = others.take(LOOKED_AT_MAX).cloned().collect();
        let mut looked_at = 0;
        for granule in &turn {
            if self.corrections.room() == 0 {
                break;
            }
            self.correct(scope, granule);
            looked_at += 1;
        }
        let is_last = looked_at == turn.len() && looked_at < LOOKED_AT_MAX;
        let last = looked_at.checked_sub(1).map(|last| turn[last].clone()).or(corrected);
        self.corrected = last.filter(|_| !is_last);
    }

    /// Has the degree of a granule corrected, and notes how far that is.
    fn correct(&mut self, scope: &mut Scope<'_>, granule: &GranuleId) -> DegreeProgress {
        let progress = self.correct_degree(scope, granule);
        match progress {
            DegreeProgress::Done => {
                self.uneven.remove(granule);
                self.corrections.end(granule, scope.now);
            }
            DegreeProgress::Asked => self.note_asked(scope, granule),
            DegreeProgress::Later => {}
        }
        progress
    }

    fn note_asked(&mut self, scope: &Scope<'_>, granule: &GranuleId) {
        let as_of = self.known_o_ts(granule);
        self.corrections.ask(granule, as_of, scope.now, scope.options.repeats());
    }

    fn correct_degree(&mut self, scope: &mut Scope<'_>, granule: &GranuleId) -> DegreeProgress {
        let Some(holding) = self.granules.get(granule) else { return DegreeProgress::Done };
        let record = &holding.record;
        let is_lost = record.is_uncreated() || record.is_lost();
        let adopts = record.owner.is_none()
            && !is_lost
            && scope.is_directory_node(granule)
            && scope.directory(granule).next() == Some(scope.node);
        if record.owner != Some(scope.node) && !adopts {
            return DegreeProgress::Done;
        }
        if !holding.is_settled() {
            return DegreeProgress::Later;
        }
        if adopts {
            if !scope.may_pass_barrier() || self.adopt_at > scope.now {
                return DegreeProgress::Later;
            }
            self.request(scope, granule, RequestKind::Own, scope.now);
            return DegreeProgress::Asked;
        }
        if record.readers.len() < READERS_MIN {
            let others = scope.directory(granule).chain(scope.view.live());
            let mut others = others.filter(|node| record.level_of(*node) == Level::None);
            let Some(recruited) = others.next() else { return DegreeProgress::Done };
            drop(others);
            let o_ts = record.o_ts;
            scope.send(recruited, MessageBody::Recruit { granule: granule.clone(), o_ts });
            return DegreeProgress::Asked;
        }
        if record.readers.len() > READERS_MIN + READERS_SPARE {
            let directory: Vec<NodeId> = scope.directory(granule).collect();
            let is_other = |reader: &&NodeId| !directory.contains(reader);
            let reader = record.readers.iter().rev().find(is_other).or(record.readers.last());
            let Some(reader) = reader.copied() else { return DegreeProgress::Done };
            self.request(scope, granule, RequestKind::Drop(reader), scope.now);
            return DegreeProgress::Asked;
        }
        DegreeProgress::Done
    }

    /// Whether all granules of a shard have their degree, or are lost, as far as this directory node knows. Looks at some of them, behind
    /// those that had it: in one epoch no granule loses a reader that it needs (rule Z14).
    pub(crate) fn is_whole(&mut self, scope: &mut Scope<'_>, shard: ShardId) -> bool {
        if !scope.view.is_directory_node(shard, scope.node) || scope.copying.contains(&shard) {
            return false;
        }
        let search = self.whole.entry(shard).or_default();
        let readers_min = READERS_MIN.min(scope.view.members.len() - 1);
        if search.is_over {
            return true;
        }
        let after = search.until.clone();
        let behind = self.granules.iter_after(after.as_ref());
        for (granule, holding) in behind.take(WHOLE_LOOKED_AT_MAX) {
            let record = &holding.record;
            let has_degree = record.owner.is_some() && record.readers.len() >= readers_min;
            // Where something is pending, it may be validated elsewhere.
            let is_none = holding.pending.is_none() && (record.is_uncreated() || record.is_lost());
            if scope.placement.shard_of(granule) == shard && !has_degree && !is_none {
                return false;
            }
            search.until = Some(granule.clone());
        }
        search.is_over = self.granules.iter_after(search.until.as_ref()).next().is_none();
        search.is_over
    }

    /// The owner has too few readers and chose this node. It asks once; the owner repeats itself.
    pub(crate) fn on_recruit(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        o_ts: OwnershipTs,
    ) {
        let holding = self.granules.get(granule);
        let is_asking = holding.is_some_and(|holding| holding.request.is_some());
        if self.level(scope.node, granule) == Level::None && !is_asking {
            let holding = self.holding_mut(granule);
            holding.hint = holding.hint.max(o_ts);
            self.request(scope, granule, RequestKind::Read, scope.now);
        }
    }
}
