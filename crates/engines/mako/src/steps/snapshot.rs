//! Snapshots: how a replica gets what its streams have no more, since they were cut.
//!
//! ```text
//!   sender                                            receiver
//!   its stream is asked for entries that are cut
//!     extent stable, cut    ── first part ──────────►  rows of a range, as the sender has them now
//!     part of its store    ── part 1 ──────────────►  …; what is not among them and not newer goes
//!                         ◄── all before this place ─
//!                          ── the last part ────────►  the copy is whole
//!     stream ── Snapshot: extent, FVWs, which copy ─►  stream: begins behind the extent
//! ```
//! Each worker's stream has snapshots of its own, the store is one: so each brings all of it. Parts show what
//! is committed when they are taken, so the whole is no moment's state. The **cut** is the clock up to which
//! every stream of the shard was stable at the sender when it began, or up to which a whole copy that it took itself
//! had brought everything.
//!
//! **A part holds committed versions only (rule M10).** A store also has versions that this node certified in a
//! lead of its own; their clocks show nothing, since a successor's clocks pass them while their epoch is not
//! settled. A row is given if, and only if, the sender's watermark or FVW of the row's epoch covers its stamp
//! (`Epochs::covers`). That is knowledge of what streams have decided: a shard has one leader an epoch that
//! draws clocks, and where its watermark has reached a clock, every stream has decided its pieces up to that
//! clock (M3, M4), for good (M9). A piece that was never decided lies above every safe clock that its stream
//! decided in its epoch, and so above the shard's watermark and its end. What a sender has from a copy keeps of its
//! stamp only epoch and clock. Therefore each part says how far the sender knows all epochs to be durable that were not settled,
//! read after the rows were, and the receiver takes that over before it stores any of them. By induction over copies of
//! copies each node's watermarks cover the whole stamp of every row that it has from a copy, whether the store keeps
//! that stamp or the short one, or had the version before. So the sender decides by its watermarks alone, what a receiver
//! has from copies is rolled back by the same rule as everything else, and a part whose rows its watermarks do not
//! cover is refused.
//!
//! The newest committed version of a key is in its chain, below all that is not committed: installing trims only
//! what is below a version that the watermarks cover, and the sender asks the same watermarks, later.
//! So a key that a part lacks has no committed value: its newest committed version is a tombstone, or was one
//! until that left the index, or there is none. Tombstones that are not committed hide nothing from a copy, and
//! never leave the index. The receiver's watermarks cover the tombstone, too: where its entry is still to come, it is committed
//! when it comes, and what is older gives way to it (`undecided_versions.rs`).
//!
//! **What is undecided goes beside the rows** (rule M12): versions in decided entries of which only another shard can say
//! whether they count, with their stamps. `undecided_versions.rs` has what becomes of them at the receiver.
//!
//! Why the receiver ends where the sender is:
//!
//! - Every piece in the entries up to the extent is stable before the first part is taken, or came with a whole
//!   copy, and has a clock up to the cut (`stable_prefix.rs`). The sender's watermarks cover it, or never will. So each is
//!   in the parts, or what came in its place: in a later part that
//!   is newer, and it comes again with its entry. Versions go by stamps (rule M6), so once more does no harm.
//! - What was deleted up to the cut is not in the parts, and its tombstone may be gone. So a key that the receiver
//!   has from up to the cut, and the part has not, goes; and what any worker of the receiver replays of such
//!   clocks is skipped as far as parts have come: the [floor](shoal_replication::replay_floor). What is deleted after
//!   the cut is in entries that are still to come.
//! - A part can be late, and the receiver have come further by other ways. What all its streams have up to some
//!   clock it has or has deleted, and so it is with the floor; rows up to there are skipped.
//! - Half a copy does no harm: what is there is committed and newer or the same, and what is not comes with
//!   the entries, or with the next copy, which begins from the first key again.
//!
//! `snapshot_transfer.rs` of the engines' shared crate has how parts travel, are repeated and given up. A copy that the stream
//! asks for again, under a new ballot of its leader, may go on: the entries that it stands for are decided for good, and no
//! entry behind them is cut while the copy is kept.

use crate::observation::MakoObservation;
use crate::options::{ENTRIES_MAX, MakoOptions};
use crate::planted_bugs::MakoPlantedBug;
use crate::snapshot_chunk::{
    ChunkContents, ChunkRow, SnapshotChunk, SnapshotScope, UndecidedRow, observation,
};
use crate::stable_prefix::StreamExtent;
use crate::{Mako, MakoEffects, MakoMessage, plausibility};
use bytes::Bytes;
use shoal_engine::engine::EngineEffect;
use shoal_replication::checkpoint_copy::take_all;
use shoal_replication::snapshot_chunk::{ChunkVersion, copy_row};
use shoal_replication::snapshot_transfer::{
    CopyKey, ERASED_MAX, NextPart, SnapshotHead, place_form as form, place_of as place,
};
use shoal_store::{Change, WalkPlace};
use shoal_types::wire::Coded;
use shoal_types::wire::{decode, encode};
use shoal_types::{
    Epoch, NodeId, Result, ShardId, Stamp, StampRef, TableId, Time, VectorWatermark,
};
use std::cell::Cell;
use std::collections::BTreeSet;

/// A snapshot that concerns epochs so far beyond those that this node knows is malformed.
const EPOCHS_AHEAD_MAX: u32 = 1 << 16;

/// The metadata of a snapshot, which stands for the entries of a stream up to an extent, together with the parts of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
struct SnapshotMetadata {
    copy: u64,
    extent: StreamExtent,
    /// The FVWs up to the extent's that do not cover all of their epochs.
    finals: Vec<VectorWatermark>,
}

/// Sends snapshots of shards.
impl Mako {
    /// The extent of this worker's stream of the shard at this place that is stable in the store.
    fn stable_extent(&self, at: usize) -> &StreamExtent {
        match self.options().faults.has(MakoPlantedBug::CutUnstable) {
            true => self.follower_replays.of(at).extent(),
            false => self.follower_replays.of(at).stable().extent(),
        }
    }

    /// So many entries of this worker's stream of `shard` may be cut: the store has them for good, and no copy
    /// that is under way stands for fewer.
    pub(crate) fn may_cut(&self, shard: ShardId) -> u64 {
        let at = self.place_of(shard).expect("a stream that is held");
        let stable = self.stable_extent(at).length;
        self.snapshot_senders.least_length(at).map_or(stable, |length| length.min(stable))
    }

    /// A replica needs entries of this worker's stream of `shard` that are cut.
    pub(crate) fn begin_to_give(&mut self, now: Time, shard: ShardId, to: NodeId) {
        let at = self.place_of(shard).expect("a stream that is held");
        if self.snapshot_senders.request_again(now, at, to) {
            return;
        }
        let (copy, head, scope) = self.begin_copy(at, to);
        self.snapshot_senders.begin(now, copy, head, scope);
    }

    /// What a copy stands for that begins now: its number, its head, and up to where it brings everything.
    fn begin_copy(&mut self, at: usize, to: NodeId) -> (u64, SnapshotHead, SnapshotScope) {
        let replica = &self.shared.replicas[at];
        let extent = self.stable_extent(at).clone();
        let faults = self.options().faults;
        // The extent of this worker may come from a copy that this node has received: then the streams of other workers
        // may not be stable up to there.
        let cut = match faults.has(MakoPlantedBug::CopyFromOneStream) {
            true => extent.greatest,
            false => replica.covered().max(replica.floor().whole()),
        };
        // Like no other, of this process or another.
        let copy = self.runtime.worker_context.random.borrow_mut().next_u64();
        let watermarks = self.watermarks.borrow();
        let finals = watermarks.partial(extent.finals).cloned();
        let finals =
            finals.filter(|_| !faults.has(MakoPlantedBug::SnapshotWithoutFinals)).collect();
        let settled = watermarks.settled();
        let length = extent.length;
        let state = encode(&SnapshotMetadata { copy, extent, finals });
        (copy, SnapshotHead { at, to, length, state }, SnapshotScope { cut, settled })
    }

    /// The node takes a checkpoint, which is to have the shard.
    pub(crate) fn begin_checkpoint(&mut self, now: Time, shard: ShardId) {
        let at = self.place_of(shard).expect("a stream that is held");
        let (copy, head, scope) = self.begin_copy(at, self.runtime.worker_context.place.node);
        self.checkpoint_copy.begin(now, copy, head, scope);
    }

    /// The parts that were given for the checkpoint are written.
    pub(crate) fn checkpoint_written(&mut self, effects: &mut MakoEffects) {
        if let Some(head) = self.checkpoint_copy.written() {
            let shard = self.runtime.worker_context.own[head.at].shard;
            effects.push(head.of_checkpoint(shard));
        }
    }

    /// Ends the copies that stand for entries of the stream at this place: what follows them is gone here.
    pub(crate) fn stop_giving(&mut self, at: usize, effects: &mut MakoEffects) {
        let shard = self.follower_replays.of(at).shard();
        self.checkpoint_copy.stop(at);
        for head in self.snapshot_senders.stop(at) {
            effects.push(head.answer(shard));
        }
    }

    /// The receiver of a copy has everything before `place`.
    pub(crate) fn part_is_taken(
        &mut self,
        from: NodeId,
        shard: ShardId,
        copy: u64,
        reached: Option<&(TableId, Bytes)>,
    ) {
        let now = self.runtime.worker_context.now.get();
        let key = self.place_of(shard).map(|at| CopyKey { at, peer: from, copy });
        let reached = reached.map(place);
        if !key.is_some_and(|key| self.snapshot_senders.acknowledge(now, key, reached)) {
            self.runtime.counters.dropped += 1;
        }
    }

    /// Goes on with the copies that this worker gives.
    pub(crate) fn give(&mut self, now: Time, effects: &mut MakoEffects) {
        let retry_after = self.runtime.worker_context.limits.retry_after;
        let worker_context = &self.runtime.worker_context;
        let shard_of = |at: usize| worker_context.own[at].shard;
        let gives =
            |head: &SnapshotHead| worker_context.leaderships.sends(shard_of(head.at), head.to);
        self.snapshot_senders.turn(now, retry_after, gives, |head| {
            effects.push(head.answer(shard_of(head.at)));
        });
        if let Some(part) = self.snapshot_senders.next_part(now) {
            self.give_part(now, &part, effects);
        }
    }

    pub(crate) fn give_part(
        &mut self,
        now: Time,
        next: &NextPart<SnapshotScope>,
        effects: &mut MakoEffects,
    ) {
        let NextPart { key: CopyKey { at, peer, copy }, from, context } = next.clone();
        let SnapshotScope { cut, settled } = context;
        let own = &self.runtime.worker_context.own[at];
        let Ok(mut session) = own.sessions.take() else { return };
        let (shard, MakoOptions { snapshot_part, faults, .. }) =
            (own.shard, &self.shared.setup.options);
        let epochs = &self.shared.epochs;
        let withheld = Cell::new(0);
        let undecided = |stamp: StampRef<'_>| epochs.is_undecided(shard, stamp);
        let committed = |stamp: StampRef<'_>| {
            if epochs.covers(shard, stamp) || faults.has(MakoPlantedBug::CopyUncommitted) {
                return true;
            }
            let by_clock = stamp.clock <= cut && epochs.is_live(stamp.epoch);
            withheld.set(withheld.get() + usize::from(by_clock && !undecided(stamp)));
            by_clock && faults.has(MakoPlantedBug::CopyByClock)
        };
        let mut rows = Vec::new();
        // Meanwhile nothing moves from the table to the store.
        let mut kept = self.shared.undecided(shard).lock();
        let mut beside = Vec::new();
        let until = session.copy(&from, *snapshot_part, committed, undecided, |copied| {
            let (table, key) = (copied.table, Bytes::copy_from_slice(copied.key));
            let value = copied.value.map(Bytes::copy_from_slice);
            match (copied.committed, value) {
                (true, Some(value)) => {
                    let (epoch, clock) = (copied.stamp.epoch, copied.stamp.clock);
                    rows.push(ChunkRow { table, epoch, clock, key, value });
                }
                (true, None) => {}
                (false, value) => {
                    let (change, stamp) = (Change::of(value), copied.stamp.to_stamp());
                    beside.push(UndecidedRow { table, key, change, stamp });
                }
            }
        });
        // The table has some that are decided by now.
        let kept_rows = kept.rows(&from, until.as_ref());
        beside.extend(kept_rows.filter(|row| !epochs.rejects(shard, row.stamp.as_ref())));
        drop(kept);
        if faults.has(MakoPlantedBug::CopyWithoutUndecided) {
            beside.clear();
        }
        let undecided = beside;
        let beside = |row: &UndecidedRow| row.key.len() + row.change.borrowed().content().len();
        let bytes = rows.iter().map(|row| row.key.len() + row.value.len()).sum::<usize>()
            + undecided.iter().map(beside).sum::<usize>();
        // Asked after the rows were: so what is known of their epochs covers them.
        let watermarks = self.watermarks_of(&rows, settled, from == WalkPlace::default());
        let forgotten = self.watermarks.borrow().forgotten();
        let contents = ChunkContents { settled, forgotten, watermarks, rows, undecided };
        let (from, end) = (form(from), until.clone().map(form));
        let part = SnapshotChunk { shard, copy, cut, from, until: end, contents };
        let planted =
            faults.has(MakoPlantedBug::CopyUncommitted) || faults.has(MakoPlantedBug::CopyByClock);
        assert!(planted || self.covers(&part), "M10: a row of {part:?} is not covered");
        effects.observe(|| observation(&part, withheld.get()));
        if peer == self.runtime.worker_context.place.node {
            self.checkpoint_copy.given(now, until);
            effects.push(EngineEffect::CheckpointPart { shard, part: encode(&part) });
        } else {
            self.snapshot_senders.sent(now, next, bytes, until);
            let (to, message) = (self.runtime.peer(peer), MakoMessage::Chunk(part));
            effects.push(EngineEffect::Send { to, message });
        }
    }

    /// What the receiver of a part needs to know of epochs: see [`ChunkContents::watermarks`].
    fn watermarks_of(
        &self,
        rows: &[ChunkRow],
        settled: Epoch,
        is_first: bool,
    ) -> Vec<VectorWatermark> {
        let faults = self.options().faults;
        let epochs = &self.shared.epochs;
        let forgotten = self.watermarks.borrow().forgotten();
        let is_told = |epoch: &Epoch| {
            // How one ended that is forgotten counts for nothing but its rows.
            *epoch > forgotten && !faults.has(MakoPlantedBug::CopyWatermarksOfRows)
                || rows.iter().any(|row| row.epoch == *epoch)
        };
        let later = (settled.0 + 1..=epochs.open().0).map(Epoch).filter(is_told);
        let later = later.map(|epoch| epochs.watermark(epoch).expect("it has opened"));
        let watermarks = self.watermarks.borrow();
        let says = is_first && !faults.has(MakoPlantedBug::SnapshotWithoutFinals);
        let finals = watermarks.partial(settled).filter(|_| says).cloned();
        finals.chain(later).collect()
    }

    /// When to go on.
    pub(crate) fn next_given(&self) -> Option<Time> {
        self.snapshot_senders.next_due(self.runtime.worker_context.limits.retry_after)
    }
}

/// Receives snapshots of shards.
impl Mako {
    /// A part of a copy has come.
    pub(crate) fn take_part(
        &mut self,
        from: NodeId,
        part: SnapshotChunk,
        effects: &mut MakoEffects,
    ) {
        let worker_context = &self.runtime.worker_context;
        let is_leader = worker_context.own(part.shard).is_some();
        if is_leader && worker_context.leaderships.takes(part.shard, from) {
            // A leader that serves needs no copy any more: its sender may forget it.
            self.acknowledge_part(from, part.shard, part.copy, None, effects);
            return;
        }
        let Some(at) = self.place_of(part.shard).filter(|_| self.may_take(from, &part)) else {
            self.runtime.counters.dropped += 1;
            return;
        };
        let (shard, copy, key) = (part.shard, part.copy, part.key(at, from));
        let now = self.runtime.worker_context.now.get();
        let retry_after = self.runtime.worker_context.limits.retry_after;
        self.snapshot_receivers.arrive(now, retry_after, key, place(&part.from), part);
        self.take_in_turn(key, effects);
        self.acknowledge_part(from, shard, copy, self.snapshot_receivers.reached(key), effects);
    }

    /// A part of this node's checkpoint is read.
    ///
    /// # Panics
    /// If it is none: the files were checked.
    pub(crate) fn read_checkpoint(&mut self, part: &Bytes, effects: &mut MakoEffects) {
        let part: SnapshotChunk = decode(part).expect("a part of a checkpoint that was checked");
        let at = self.place_of(part.shard).expect("a stream that is held");
        let forgotten = part.contents.forgotten;
        if self.epochs.first().epoch() <= forgotten {
            // Nothing is in memory of epochs so old.
            self.shared.epochs.begin_behind(forgotten);
            self.watermarks.borrow_mut().forget(forgotten);
            self.follow_epochs(effects);
        }
        assert!(self.learn_watermarks(&part, effects), "M10: what a checkpoint has is not covered");
        let part = take_all(part, |part| {
            self.copy_part(at, part, effects).expect("nothing else uses the store")
        });
        if !part.contents.undecided.is_empty() {
            self.follower_replays.leave_undecided();
        }
        if part.until.is_none() {
            effects.observe(|| MakoObservation::Copied { shard: part.shard, cut: part.cut });
        }
    }

    /// Reports to the sender of a copy the place before which this node has everything; `None` if it needs no more.
    fn acknowledge_part(
        &self,
        sender: NodeId,
        shard: ShardId,
        copy: u64,
        reached: Option<WalkPlace>,
        effects: &mut MakoEffects,
    ) {
        let reached = reached.map(form);
        let message = MakoMessage::ChunkTaken { shard, copy, reached };
        effects.push(EngineEffect::Send { to: self.runtime.peer(sender), message });
    }

    /// Takes the parts of a copy whose turn it is.
    fn take_in_turn(&mut self, key: CopyKey, effects: &mut MakoEffects) {
        while let Some(part) = self.snapshot_receivers.next(key) {
            if !self.learn_watermarks(&part, effects) {
                self.runtime.counters.dropped += 1;
                break; // The part is implausible.
            }
            let Ok(reached) = self.copy_part(key.at, &part, effects) else {
                break; // The part is sent again.
            };
            if !part.contents.undecided.is_empty() {
                self.follower_replays.leave_undecided();
            }
            if reached.is_none() {
                effects.observe(|| MakoObservation::Copied { shard: part.shard, cut: part.cut });
            }
            self.snapshot_receivers.advance(key, reached);
        }
    }

    /// Can this be so, and is it for this node to take?
    fn may_take(&self, from: NodeId, part: &SnapshotChunk) -> bool {
        let shards = self.runtime.worker_context.topology.shards() as usize;
        let (first, last) = (crate::FIRST_EPOCH, self.last_epoch());
        let is_known = |epoch| part.contents.watermarks.iter().any(|it| it.epoch() == epoch);
        let fits = |row: &ChunkRow| {
            let told = row.epoch <= part.contents.settled || is_known(row.epoch);
            row.epoch >= first && row.epoch <= last && told && plausibility::clock(row.clock)
        };
        let fits_undecided = |row: &UndecidedRow| {
            let UndecidedRow { stamp, change, .. } = row;
            change.borrowed().is_well_formed()
                && stamp.epoch >= first
                && stamp.epoch <= last
                && plausibility::stamp(stamp, stamp.epoch, part.shard, shards as u32)
                && stamp.as_ref().remote.len() <= ENTRIES_MAX
        };
        let whole = |it: &VectorWatermark| {
            it.shards() == shards && it.epoch() >= first && it.epoch() <= last
        };
        let worker_context = &self.runtime.worker_context;
        worker_context.leaderships.takes(part.shard, from)
            && worker_context.own(part.shard).is_none()
            && part.ascends()
            && plausibility::clock(part.cut)
            && part.contents.settled < last
            // A part of long ago, or from a sender that knows no more what this node lacks.
            && part.contents.settled >= self.watermarks.borrow().forgotten()
            && self.epochs.first().epoch() > part.contents.forgotten
            && part.contents.watermarks.iter().all(whole)
            && part.contents.rows.iter().all(fits)
            && part.contents.undecided.iter().all(fits_undecided)
    }

    /// No correct peer knows of a later epoch.
    fn last_epoch(&self) -> Epoch {
        Epoch(self.runtime.worker_context.epoch.get().0.saturating_add(EPOCHS_AHEAD_MAX))
    }

    /// Takes over what the sender of a part knows of epochs, so that this node takes each row for committed, and each deletion that the
    /// part shows by lacking a row, in all that it is asked later (rule M10). Says whether that is so of the rows.
    fn learn_watermarks(&mut self, part: &SnapshotChunk, effects: &mut MakoEffects) -> bool {
        if self.options().faults.has(MakoPlantedBug::CopyWithoutWatermarks) {
            return true;
        }
        if place(&part.from) == WalkPlace::default() {
            self.learn_finals(part.contents.settled, &part.contents.watermarks, effects);
        }
        let later = part.contents.watermarks.iter().filter(|it| it.epoch() > part.contents.settled);
        for watermark in later {
            self.open_epoch(watermark.epoch(), effects);
            // Where this node has the FVW, that is complete.
            let Some(live) = self.epochs.get(watermark.epoch()) else { continue };
            if live.watermark().merge(watermark) {
                self.gossip.receives_news();
                self.runtime.nudge_others(effects);
            }
        }
        self.covers(part)
    }

    /// Does this node take all rows of a part for committed?
    fn covers(&self, part: &SnapshotChunk) -> bool {
        let epochs = &self.shared.epochs;
        let is_covered = |row: &ChunkRow| {
            let stamp = Stamp::local(row.epoch, row.clock);
            row.epoch <= epochs.open() && epochs.covers(part.shard, stamp.as_ref())
        };
        part.contents.rows.iter().all(is_covered)
    }

    /// The epochs up to `last` are settled: these are the FVWs of those that lost something.
    fn learn_finals(&mut self, last: Epoch, finals: &[VectorWatermark], effects: &mut MakoEffects) {
        let shards = self.runtime.worker_context.topology.shards() as usize;
        let settled = self.watermarks.borrow().settled();
        for epoch in (settled.0 + 1..=last.0).map(Epoch) {
            let partial = finals.iter().find(|watermark| watermark.epoch() == epoch).cloned();
            let whole = || VectorWatermark::whole(epoch, shards);
            let last = partial.unwrap_or_else(whole);
            if !self.exceeds_final(&last) {
                self.learn_settled(last, effects);
            }
        }
    }

    /// Makes a range of the store what the part says, as far as it gets: a range may hold much that goes, a lock may
    /// be in the way, or a row be none. Returns before which place it has; `None` where it has the last part.
    fn copy_part(
        &mut self,
        at: usize,
        part: &SnapshotChunk,
        effects: &mut MakoEffects,
    ) -> Result<Option<WalkPlace>> {
        let own = &self.runtime.worker_context.own[at];
        let replica = self.shared.replica(part.shard).expect("held");
        let mut session = own.sessions.take()?;
        let (from, until) = part.range();
        let kept: BTreeSet<(TableId, &[u8])> =
            part.contents.rows.iter().map(|row| (row.table, &row.key[..])).collect();
        let undecided = part.contents.undecided_orders();
        assert!(
            self.covers(part),
            "M10: {} takes rows that it does not know to be committed",
            part.shard
        );
        // No worker replays meanwhile.
        let mut floor = replica.floor_mut();
        let mut aside = self.shared.undecided(part.shard).lock();
        let here = replica.reached();
        for row in &part.contents.rows {
            let ChunkRow { table, epoch, clock, key, .. } = row;
            let was_undecided = aside.has(*table, key, (*epoch, *clock));
            if was_undecided || *clock > here && !floor.has(*table, key, *clock) {
                let (table, value) = (*table, Some(&row.value[..]));
                let stamp = &Stamp::local(*epoch, *clock);
                let version = ChunkVersion { table, key, value, stamp };
                copy_row(part.shard, &mut session, version, effects.observations.as_mut())?;
            }
            // Not before: where a lock was in the way, the part comes again.
            aside.supersede(row.table, key, (*epoch, *clock));
        }
        self.runtime.counters.operations += part.contents.rows.len() as u64;
        // Rows that are removed leave no trace but the floor, which follows the copy.
        let stale = |table: TableId, key: &[u8], stamp: StampRef<'_>| {
            let is_undecided = || undecided.contains(&(table, key, (stamp.epoch, stamp.clock)));
            stamp.clock <= part.cut && !kept.contains(&(table, key)) && !is_undecided()
        };
        let left = match self.shared.setup.options.faults.has(MakoPlantedBug::CopyKeepsDeleted) {
            true => None,
            false => session.erase(&from, until.as_ref(), ERASED_MAX, stale),
        };
        let reached = left.or(until);
        self.shared.take_undecided(part, &mut session, &floor, here, &mut aside)?;
        floor.raise(part.cut, reached.clone());
        Ok(reached)
    }

    /// Has this worker all of the copy that goes with this snapshot of its stream of `shard`, and can it be true?
    pub(crate) fn has_copy(
        &self,
        shard: ShardId,
        from: NodeId,
        length: u64,
        state: &Bytes,
    ) -> bool {
        let (Some(at), Ok(head)) = (self.place_of(shard), decode::<SnapshotMetadata>(state)) else {
            return false;
        };
        let SnapshotMetadata { copy, extent, finals } = head;
        let key = CopyKey { at, peer: from, copy };
        let (before, shards) = (
            self.follower_replays.of(at).extent(),
            self.runtime.worker_context.topology.shards() as usize,
        );
        // The epoch after the last FVW is open, or its opening is on its way to this node.
        let known = self.last_epoch().0;
        self.snapshot_receivers.reached(key).is_none()
            && extent.length == length
            && extent.safe >= before.safe
            && plausibility::clock(extent.greatest)
            && extent.finals.0.max(extent.ended.0) <= known
            && finals.iter().all(|last| last.shards() == shards)
    }

    /// This worker's stream of `shard` begins behind a snapshot.
    pub(crate) fn restored(&mut self, shard: ShardId, state: &Bytes, effects: &mut MakoEffects) {
        let at = self.place_of(shard).expect("a stream that is held");
        let SnapshotMetadata { extent, finals, .. } =
            decode(state).expect("it was looked at before");
        self.snapshot_receivers.forget(at);
        let (last, safe) = (extent.finals, extent.safe);
        let worker = self.runtime.worker_context.place.worker;
        self.stop_giving(at, effects);
        self.shared.replica(shard).expect("held").cover(worker, safe);
        self.replay(|replays, target| replays.restore(at, extent, target));
        effects.observe(|| MakoObservation::Restored { shard });
        self.learn_finals(last, &finals, effects);
    }
}
