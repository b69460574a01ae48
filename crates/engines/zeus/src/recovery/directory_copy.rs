//! Copies of the directory, for a directory node that is new or was out. A voter of a shard that takes the place of another is
//! new; the manager waits with the next replacement until the leader of the shard reports that it has the directory.
//!
//! Such a node counts as an arbiter from the epoch's beginning, and answers nothing until it has all records (rule Z18). So
//! no granule of the shard can move while it copies, and what it is given in parts is of one time. Pending records are
//! copied, too: a record that the other arbiters have acknowledged must not be missed here.
//!
//! Where no live node has the directory, it is rebuilt from what all live nodes know of the granules that they hold, this one
//! included. Of the records of a granule the newest one counts, but a reader that is no arbiter does not learn of later moves: the
//! record that it has may name an owner that has let the granule go, and readers that were dropped. So:
//!
//! - a node is the owner only if it reports itself as the owner, with its copy. It is an arbiter of each change, so its record
//!   is complete, and no reader in it was dropped;
//! - where the owner does not report itself, a node is a reader only if it reports a copy that serves. A reader stops serving
//!   before it acknowledges that it is dropped, so what does not serve may be old;
//! - what is pending, and was asked for by a node that is gone, counts as validated: it may have been, and a former owner that
//!   lacks the `Val` was no arbiter of later changes. It names an owner that is gone, so that of its readers those count that serve.
//!   But where an owner reports itself that has acknowledged nothing since, it is the owner still, and may have slots which its
//!   readers lack (rule Z4): then its record counts, and what is pending stays so, and is replayed.
//!
//! Nothing is created before that; and nothing after it, since a granule that no node knows may have been lost
//! with the directory and all its copies (rule Z21). Only where no directory node was ever out, or one that is in has been
//! one since the first epoch, was there nothing before: it has acknowledged no creation.

use crate::granule::GranuleId;
use crate::message::{CopiedRecord, DirectoryCopy, Inv, MessageBody};
use crate::ownership::{Ownership, PendingSlots};
use crate::planted_bugs::ZeusPlantedBug;
use crate::record::OwnershipTs;
use crate::scope::Scope;
use crate::view::View;
use shoal_types::{Epoch, NodeId, ShardId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The copies of directories that a node is making.
#[derive(Debug, Default)]
pub(crate) struct DirectoryCopies {
    /// The shards whose directory is not here yet.
    copying: BTreeSet<ShardId>,
    /// The shards whose directory is here, and was rebuilt by a node that may not have learned of all granules.
    rebuilt: BTreeSet<ShardId>,
    shards: BTreeMap<ShardId, Copying>,
    /// The shards whose directory is rebuilt from what this node knows, since no other one is live.
    alone: Vec<ShardId>,
    /// The nodes that are asked whether they have copied a directory, and in this epoch have not said so.
    asked: BTreeSet<(ShardId, NodeId)>,
    /// Those that have said so.
    copied: BTreeSet<(ShardId, NodeId)>,
    /// A directory has been copied, here or by a node that was asked, since that was asked last.
    has_news: bool,
    repeat_at: Time,
}

/// The copy of one shard's directory.
#[derive(Debug, Default)]
struct Copying {
    sources: BTreeMap<NodeId, Source>,
    /// What nodes with the directory have sent.
    records: BTreeMap<GranuleId, CopiedRecord>,
    /// What the others have sent, of the granules that they hold.
    reported: Reports,
}

/// What nodes without the directory know of granules.
#[derive(Debug, Default)]
struct Reports(BTreeMap<GranuleId, Reported>);

/// What nodes without the directory know of a granule.
#[derive(Debug)]
struct Reported {
    newest: CopiedRecord,
    /// The nodes that have a copy which serves.
    serving: BTreeSet<NodeId>,
    /// Those of them that report themselves as the owner, each by its own record.
    owners: BTreeSet<NodeId>,
    /// Those of these that have acknowledged nothing that would replace it.
    unmoved: BTreeSet<NodeId>,
}

/// A node that is asked.
#[derive(Debug, Default)]
struct Source {
    /// The last granule that it has sent.
    after: Option<GranuleId>,
    is_done: bool,
    has_directory: bool,
    /// Its directory may lack granules.
    is_rebuilt: bool,
}

impl DirectoryCopies {
    /// The shards whose directory the node is copying.
    pub(crate) fn copying(&self) -> &BTreeSet<ShardId> {
        &self.copying
    }

    /// The shards whose directory may lack granules that were created.
    pub(crate) fn rebuilt(&self) -> &BTreeSet<ShardId> {
        &self.rebuilt
    }

    /// In a new epoch: a node copies the directories that it keeps and did not keep in `since`, the last epoch that it was in,
    /// or all where it was out in between; a copy that was begun earlier begins anew, with the nodes of this epoch.
    pub(crate) fn enter_epoch(
        &mut self,
        node: NodeId,
        since: Option<Epoch>,
        view: &View,
        now: Time,
    ) {
        let shards = (0..view.directories.len() as u32).map(ShardId);
        let kept: BTreeSet<ShardId> =
            shards.filter(|shard| view.is_directory_node(*shard, node)).collect();
        self.copying.retain(|shard| kept.contains(shard));
        self.rebuilt.retain(|shard| kept.contains(shard));
        let has_kept = |shard: &ShardId| {
            since.is_some_and(|since| view.is_directory_node_since(*shard, node, since))
        };
        self.copying.extend(kept.into_iter().filter(|shard| !has_kept(shard)));
        (self.asked, self.copied) = (BTreeSet::new(), BTreeSet::new());
        if view.live().all(|other| other == node) {
            // No other node could know anything.
            self.alone = std::mem::take(&mut self.copying).into_iter().collect();
            let alone = self.alone.iter().copied();
            self.rebuilt.extend(alone.filter(|shard| !is_first(view, *shard)));
        }
        self.repeat_at = now;
        self.shards = self.copying.iter().map(|shard| (*shard, Copying::of(node, view))).collect();
    }

    /// The state that a former process of the node had recorded.
    pub(crate) fn restore(&mut self, copying: BTreeSet<ShardId>, rebuilt: BTreeSet<ShardId>) {
        (self.copying, self.rebuilt) = (copying, rebuilt);
    }

    /// After a restart, copies that were under way begin anew.
    pub(crate) fn end_restore(&mut self, node: NodeId, view: &View, now: Time) {
        self.alone.clear();
        self.repeat_at = now;
        self.shards = self.copying.iter().map(|shard| (*shard, Copying::of(node, view))).collect();
    }

    /// Asks the sources for what is missing.
    pub(crate) fn repeat(&mut self, scope: &mut Scope<'_>) {
        if self.wakes_at().is_none_or(|at| at > scope.now) {
            return;
        }
        self.repeat_at = scope.now + scope.options.repeat_after;
        for (shard, copying) in &self.shards {
            let missing = copying.sources.iter().filter(|(_, source)| !source.is_done);
            for (node, source) in missing {
                let body = MessageBody::CopyRequest { shard: *shard, after: source.after.clone() };
                scope.send(*node, body);
            }
        }
        for (shard, node) in &self.asked {
            scope.send(*node, MessageBody::CopyQuery { shard: *shard });
        }
    }

    /// Whether this node keeps the directory of the shard, and has all of it.
    fn has_directory(&self, scope: &Scope<'_>, shard: ShardId) -> bool {
        scope.view.is_directory_node(shard, scope.node) && !self.copying.contains(&shard)
    }

    /// Asks a directory node whether it has copied the directory, until it has.
    pub(crate) fn ask_copied(&mut self, shard: ShardId, node: NodeId, now: Time) {
        if !self.copied.contains(&(shard, node)) && self.asked.insert((shard, node)) {
            self.repeat_at = now;
        }
    }

    /// Whether another node has said in this epoch that it has the directory.
    pub(crate) fn has_copied(&self, shard: ShardId, node: NodeId) -> bool {
        self.copied.contains(&(shard, node))
    }

    /// The leader of a shard asks whether its directory is here. It asks again until it is.
    pub(crate) fn on_query(&self, scope: &mut Scope<'_>, from: NodeId, shard: ShardId) {
        if self.has_directory(scope, shard) {
            scope.send(from, MessageBody::CopyDone { shard });
        }
    }

    /// Another node has the directory.
    pub(crate) fn on_done(&mut self, from: NodeId, shard: ShardId) {
        self.asked.remove(&(shard, from));
        self.has_news |= self.copied.insert((shard, from));
    }

    /// Whether a directory has been copied, here or by a node that was asked, since this was called last.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// When something has to be sent again.
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        let is_open = !self.shards.is_empty() || !self.asked.is_empty();
        is_open.then_some(self.repeat_at)
    }

    /// Another node asks for what is known here of a shard's granules.
    pub(crate) fn on_request(
        &self,
        scope: &mut Scope<'_>,
        ownership: &Ownership,
        from: NodeId,
        shard: ShardId,
        after: Option<GranuleId>,
    ) {
        let most = scope.options.copied_records_max;
        let is_directory = self.has_directory(scope, shard);
        let (records, is_last) = ownership.copied_records(scope, shard, after.as_ref(), most);
        let is_rebuilt = is_directory && self.rebuilt.contains(&shard);
        let copy = DirectoryCopy { shard, after, is_directory, is_rebuilt, records, is_last };
        scope.send(from, MessageBody::Copy(copy));
    }

    /// A part of a copy has come. Gives all records, once the copy is complete.
    pub(crate) fn on_copy(
        &mut self,
        scope: &mut Scope<'_>,
        ownership: &Ownership,
        from: NodeId,
        copy: DirectoryCopy,
    ) -> Option<Vec<CopiedRecord>> {
        let shard = copy.shard;
        let copying = self.shards.get_mut(&shard)?;
        let source = copying.sources.get_mut(&from)?;
        if source.is_done || source.after != copy.after {
            return None; // A part that came before.
        }
        if source.after.is_some() && source.has_directory != copy.is_directory {
            // It has the directory since it was asked first: what it had sent before is not all of it.
            *source = Source::default();
            scope.send(from, MessageBody::CopyRequest { shard, after: None });
            return None;
        }
        source.after = copy.records.last().map(|last| last.granule.clone()).or(copy.after);
        (source.is_done, source.has_directory) = (copy.is_last, copy.is_directory);
        source.is_rebuilt = copy.is_rebuilt;
        if !copy.is_last {
            let body = MessageBody::CopyRequest { shard, after: source.after.clone() };
            scope.send(from, body);
        }
        let layout = &scope.placement.layout;
        let kept = copy.records.into_iter();
        let kept = kept.filter(|record| !layout.is_dropped(record.granule.family));
        kept.for_each(|record| copying.add(from, copy.is_directory, record));
        if !copying.is_complete() {
            return None;
        }
        let mut directories = copying.sources.values().filter(|it| it.is_done && it.has_directory);
        let directory = directories.next();
        let is_rebuilt = match directory {
            Some(source) => source.is_rebuilt,
            None => !is_first(scope.view, shard) && !scope.has(ZeusPlantedBug::CreateWhatWasLost),
        };
        let is_from_directory = directory.is_some();
        if is_rebuilt {
            self.rebuilt.insert(shard);
        }
        self.copying.remove(&shard);
        self.has_news = true;
        let Copying { records, reported, .. } = self.shards.remove(&shard)?;
        Some(match is_from_directory {
            true => records.into_values().collect(),
            false => ownership.rebuild(scope, shard, reported),
        })
    }

    /// Where no other node is live, the directories are rebuilt from what this node knows. Gives their records, once.
    pub(crate) fn take_alone(
        &mut self,
        scope: &Scope<'_>,
        ownership: &Ownership,
    ) -> Vec<CopiedRecord> {
        let shards = std::mem::take(&mut self.alone).into_iter();
        shards.flat_map(|shard| ownership.rebuild(scope, shard, Reports::default())).collect()
    }
}

fn is_first(view: &View, shard: ShardId) -> bool {
    view.directories[shard.0 as usize].is_first
}

impl Copying {
    fn of(node: NodeId, view: &View) -> Copying {
        let others = view.live().filter(|other| *other != node);
        let sources = others.map(|other| (other, Source::default())).collect();
        Copying { sources, ..Copying::default() }
    }

    /// A node with the directory has sent all of it, or all nodes have sent what they have.
    fn is_complete(&self) -> bool {
        let mut done = self.sources.values().filter(|source| source.is_done);
        done.any(|source| source.has_directory)
            || self.sources.values().all(|source| source.is_done)
    }

    fn add(&mut self, from: NodeId, is_directory: bool, record: CopiedRecord) {
        if !is_directory {
            return self.reported.add(from, record);
        }
        match self.records.get_mut(&record.granule) {
            Some(known) if known.newness() >= record.newness() => {}
            Some(known) => *known = record,
            None => drop(self.records.insert(record.granule.clone(), record)),
        }
    }
}

impl Reports {
    fn add(&mut self, from: NodeId, record: CopiedRecord) {
        let reported = self.0.entry(record.granule.clone()).or_insert_with(|| Reported {
            newest: record.clone(),
            serving: BTreeSet::new(),
            owners: BTreeSet::new(),
            unmoved: BTreeSet::new(),
        });
        if record.serves {
            reported.serving.insert(from);
        }
        if record.serves && record.record.owner == Some(from) {
            reported.owners.insert(from);
            if !record.is_acknowledged {
                reported.unmoved.insert(from);
            }
        }
        if record.newness() > reported.newest.newness() {
            reported.newest = record;
        }
    }
}

impl Reported {
    /// The record that counts: the newest one, less the nodes that it names and that do not have what it says.
    fn counted(self, scope: &Scope<'_>) -> CopiedRecord {
        let Reported { mut newest, serving, owners, unmoved } = self;
        let is_unmoved = newest.record.owner.is_some_and(|owner| unmoved.contains(&owner))
            && !scope.has(ZeusPlantedBug::CountUnacknowledged);
        let is_gone = |inv: &mut Inv| !scope.view.is_member(inv.requested.by);
        let may_be_validated = |inv: &mut Inv| !is_unmoved && is_gone(inv);
        if let Some(inv) = newest.pending.take_if(may_be_validated) {
            newest.record = inv.record;
        }
        let record = &mut newest.record;
        if record.owner.is_none_or(|owner| !owners.contains(&owner)) {
            record.owner = None;
            record.readers.retain(|reader| serving.contains(reader));
        }
        newest
    }
}

impl CopiedRecord {
    fn newness(&self) -> (OwnershipTs, Option<OwnershipTs>) {
        (self.record.o_ts, self.pending.as_ref().map(|inv| inv.record.o_ts))
    }
}

impl Ownership {
    /// What is known here of a shard's granules after one, ascending, at most so many; and whether there are no more.
    fn copied_records(
        &self,
        scope: &Scope<'_>,
        shard: ShardId,
        after: Option<&GranuleId>,
        most: usize,
    ) -> (Vec<CopiedRecord>, bool) {
        let of_shard = self.holdings_after(after);
        let of_shard = of_shard.filter(|(granule, _)| scope.placement.shard_of(granule) == shard);
        let mut records: Vec<CopiedRecord> = of_shard
            .take(most + 1)
            .map(|(granule, holding)| CopiedRecord {
                granule: granule.clone(),
                record: holding.record.clone(),
                serves: holding.is_replica && holding.serves,
                pending: holding
                    .pending
                    .as_ref()
                    .filter(|_| !scope.has(ZeusPlantedBug::CopyWithoutPending))
                    .map(|pending| pending.inv.clone()),
                is_acknowledged: holding.pending.as_ref().is_some_and(|it| it.is_acknowledged),
            })
            .collect();
        let is_last = records.len() <= most;
        records.truncate(most);
        (records, is_last)
    }

    /// The records of a shard's directory that no node has: what the others have reported, and what is known here. What is pending
    /// here stays so.
    fn rebuild(
        &self,
        scope: &Scope<'_>,
        shard: ShardId,
        mut reported: Reports,
    ) -> Vec<CopiedRecord> {
        let (own, _) = self.copied_records(scope, shard, None, usize::MAX - 1);
        let is_known = |own: &CopiedRecord| !own.record.is_uncreated();
        for own in own.into_iter().filter(is_known) {
            reported.add(scope.node, CopiedRecord { pending: None, ..own });
        }
        reported.0.into_values().map(|reported| reported.counted(scope)).collect()
    }

    /// Takes a copied directory. What is pending is answered as if its `Inv` had come now.
    pub(crate) fn take_copy(
        &mut self,
        scope: &mut Scope<'_>,
        slots: &impl PendingSlots,
        from: NodeId,
        records: Vec<CopiedRecord>,
    ) {
        for CopiedRecord { granule, record, pending, .. } in records {
            if !record.is_uncreated() {
                self.take_record(scope, &granule, record);
            }
            if let Some(inv) = pending {
                self.on_inv(scope, slots, from, inv);
            }
        }
    }
}
