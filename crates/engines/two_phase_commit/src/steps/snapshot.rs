//! Snapshots: how a replica gets what its streams have no more, since they were cut (rule P10).
//!
//! ```text
//!   sender                                             receiver
//!   its stream is asked for entries that are cut
//!     checkpoint, cut         ── first part ────────►  rows of a range; what is not among them, and not newer, goes
//!     part of its store       ── part 2 ────────────►  …
//!     writes of the checkpoint ── more parts ───────►  kept until the stream begins
//!                             ◄── all before this ───
//!                             ── the last part ─────►  the copy is whole
//!     stream ── Snapshot: what it says, which copy ─►  stream: begins behind these entries
//! ```
//! Each worker's stream has snapshots of its own, the store is one: so each brings all of it. `snapshot_transfer.rs` of the
//! engines' shared crate has how parts travel, are repeated and given up.
//!
//! All that is in a store is committed (P4), so every row may be given. Parts show what is there when they are taken, so the
//! whole is no moment's state. The **cut** of a part is the clock up to which every stream of the shard was applied when the
//! copy began, or up to which a copy that the sender took itself had brought the part's keys by then: where that was half a
//! copy, the first parts have a greater cut than the others, and none has keys of two cuts. Beyond it a part has tombstones
//! too: leaders and followers keep them until all streams are applied up to there, and as long as a copy with a lesser cut
//! is given ([`ShardReplica::removable`]). Of what half a copy had deleted the sender has no tombstone.
//!
//! A snapshot stands for the entries up to a **checkpoint** (`prepared_replay.rs`), all of whose commits are in the sender's
//! store. It does not wait for the cut: a branch in doubt, whose home cannot be reached, has a clock that holds up what counts
//! as applied for as long as that lasts, and streams are cut all the same. What the checkpoint has prepared
//! without an outcome goes with it, and so do the decisions that are not acknowledged, and the first writes of transactions
//! whose last are to come. Such writes are not in the message of the stream, which is one frame: they are the last parts of
//! the copy (`branch_writes.rs`).
//!
//! Why the receiver ends where the sender is:
//!
//! - What the entries have committed is in the parts, or what came in its place: in a later part that is newer, and
//!   it comes again with its entry. Versions go by clocks (P2), so once more does no harm.
//! - What was deleted beyond the cut is in the parts as a tombstone, or what came in its place.
//! - What was deleted up to the cut is not in the parts, and its tombstone may be gone. So a key that the receiver has from
//!   up to the cut, and the part has not, goes; and what any worker of the receiver replays of such clocks is skipped as
//!   far as parts have come: the [floor](shoal_replication::replay_floor).
//! - What is prepared at the checkpoint, and has no outcome at the sender, has a clock above the cut: a stream is not applied
//!   up to a clock whose outcome it lacks (P5). If it has one, that comes to the receiver as an entry, and is skipped up to the
//!   cut like everything else.
//! - A part can be late, and the receiver have come further by other ways. What all its streams have up to some clock it
//!   has or has deleted; rows up to there are skipped.
//! - Half a copy does no harm: what is there is committed, and newer or the same. What is not comes with the next copy, which
//!   begins from the first key again.

use crate::branch_writes::{CopyContext, is_among_writes, next_writes, writes_begin};
use crate::message::{ChunkContents, DecisionHome, SnapshotChunk, SnapshotRow, SnapshotWrite};
use crate::observation::TwoPhaseCommitObservation;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use crate::prepared_replay::{Checkpoint, PreparedBranch};
use crate::{FIRST_EPOCH, TwoPhaseCommit, TwoPhaseCommitEffects, TwoPhaseCommitMessage};
use bytes::Bytes;
use shoal_engine::engine::EngineEffect;
use shoal_engine::planted_bugs::PlantedBugs;
use shoal_replication::applied_write::AppliedWrite;
use shoal_replication::checkpoint_copy::take_all;
use shoal_replication::codec::StreamWrite;
use shoal_replication::replay_floor::ReplayClaim;
use shoal_replication::replica::ShardReplica;
use shoal_replication::snapshot_chunk::{ChunkVersion, copy_row};
use shoal_replication::snapshot_transfer::{
    CopyKey, ERASED_MAX, NextPart, SnapshotHead, place_form, place_of as place,
};
use shoal_store::{Session, WalkPlace};
use shoal_types::limits::{KEY_BYTES_MAX, TABLE_IDS_MAX, VALUE_BYTES_MAX};
use shoal_types::wire::{Coded, decode, encode};
use shoal_types::{Clock, Epoch, NodeId, Result, ShardId, Stamp, StampRef, TableId, Time};
use std::collections::BTreeSet;
use std::rc::Rc;

/// No shard gets that far: a greater clock is nonsense.
const CLOCK_MAX: Clock = Clock(1 << 62);

/// A snapshot that names leaderships so far beyond the epoch that this node knows is nonsense.
const EPOCHS_AHEAD_MAX: u32 = 1 << 16;

/// What stands for the first entries of a stream, together with the parts of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
struct SnapshotMetadata {
    copy: u64,
    checkpoint: Checkpoint,
}

/// Sending copies.
impl TwoPhaseCommit {
    /// Makes checkpoints of what the stream at this place says, and takes them for stable. Looked at with its entries: where
    /// none come, nothing is to be cut.
    pub(crate) fn stabilize(&mut self, at: usize) {
        let ignores = self.options().faults.has(TwoPhaseCommitPlantedBug::CopyUnreached);
        self.streams[at].stabilize(ignores);
    }

    /// So many entries of this worker's stream of `shard` may be cut: a snapshot can stand for them, and none that is under
    /// way stands for fewer.
    pub(crate) fn cuttable(&self, shard: ShardId) -> u64 {
        let at = self.streams.place_of(shard).expect("a stream that is held");
        let given = self.senders.least_length(at);
        given.unwrap_or(u64::MAX).min(self.streams[at].replay().stable().state.length)
    }

    /// A replica needs entries of this worker's stream of `shard` that are cut.
    pub(crate) fn begin_to_give(&mut self, now: Time, shard: ShardId, to: NodeId) {
        let at = self.streams.place_of(shard).expect("a stream that is held");
        if self.senders.request_again(now, at, to) {
            return;
        }
        let (copy, head, context) = self.begin_copy(at, to);
        self.senders.begin(now, copy, head, context);
        self.keep_tombstones(at);
    }

    /// What a copy stands for that begins now: its number, its head, and what it takes along. From now on all tombstones
    /// stay, until [`keep_tombstones`](TwoPhaseCommit::keep_tombstones) is called.
    fn begin_copy(&mut self, at: usize, to: NodeId) -> (u64, SnapshotHead, CopyContext) {
        let (replica, replay) = (&self.shared.replicas[at], self.streams[at].replay());
        let faults = self.shared.setup.options.faults;
        let mut checkpoint = replay.stable().clone();
        assert!(
            replay.first_missing().is_none_or(|entry| entry >= checkpoint.state.length),
            "P10: a copy stands for {} entries, and what {:?} has committed is not in the store",
            checkpoint.state.length,
            replay.first_missing()
        );
        // In this order: what goes meanwhile is below the cut.
        let worker = self.runtime.worker_context.place.worker;
        replica.keep_tombstones(worker);
        let claims = Rc::from(claims(replica, faults));
        if faults.has(TwoPhaseCommitPlantedBug::SnapshotWithoutPrepared) {
            checkpoint.state.prepared.clear();
        }
        // Like no other, of this process or another.
        let copy = self.runtime.worker_context.random.borrow_mut().next_u64();
        let length = checkpoint.state.length;
        let writes = Rc::new(checkpoint.state.writes_to_come());
        let state = encode(&SnapshotMetadata { copy, checkpoint });
        (copy, SnapshotHead { at, to, length, state }, CopyContext { claims, writes })
    }

    /// The node takes a checkpoint, which is to have the shard.
    pub(crate) fn begin_checkpoint(&mut self, now: Time, shard: ShardId) {
        let at = self.streams.place_of(shard).expect("a stream that is held");
        let (copy, head, context) = self.begin_copy(at, self.runtime.worker_context.place.node);
        self.checkpoint_copy.begin(now, copy, head, context);
        self.keep_tombstones(at);
    }

    /// The parts that were given for the checkpoint are written.
    pub(crate) fn checkpoint_written(&mut self, effects: &mut TwoPhaseCommitEffects) {
        if let Some(head) = self.checkpoint_copy.written() {
            let (at, shard) = (head.at, self.streams[head.at].shard());
            effects.push(head.of_checkpoint(shard));
            self.keep_tombstones(at);
        }
    }

    /// Ends the copies of the shard at this place: what follows the entries that they stand for is gone here.
    pub(crate) fn stop_giving(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let shard = self.streams[at].shard();
        self.checkpoint_copy.stop(at);
        effects.effects.extend(self.senders.stop(at).iter().map(|head| head.answer(shard)));
        self.keep_tombstones(at);
    }

    /// Tombstones stay that copies which are given have to include (rule P10).
    fn keep_tombstones(&self, at: usize) {
        let contexts = self.senders.contexts(at).chain(self.checkpoint_copy.context(at));
        let least = contexts.map(CopyContext::cut).min();
        let worker = self.runtime.worker_context.place.worker;
        let forgets =
            self.options().faults.has(TwoPhaseCommitPlantedBug::ForgetTombstonesWhileCopied);
        let least = least.filter(|_| !forgets).unwrap_or(Clock::MAX);
        self.shared.replicas[at].remove_tombstones(worker, least);
    }

    /// The receiver of a copy has everything before `reached`.
    pub(crate) fn part_is_taken(
        &mut self,
        from: NodeId,
        shard: ShardId,
        copy: u64,
        reached: Option<&(TableId, Bytes)>,
    ) {
        let now = self.runtime.worker_context.now.get();
        let is_known = self.streams.place_of(shard).is_some_and(|at| {
            self.senders.acknowledge(now, CopyKey { at, peer: from, copy }, reached.map(place))
        });
        self.runtime.counters.dropped += u64::from(!is_known);
    }

    /// Goes on with the copies that this worker gives.
    pub(crate) fn give(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        let worker_context = &self.runtime.worker_context;
        let replicas = &self.shared.replicas;
        let given = self.senders.places();
        let gives = |head: &SnapshotHead| {
            worker_context.leaderships.sends(replicas[head.at].shard, head.to)
        };
        self.senders.turn(now, worker_context.limits.retry_after, gives, |head| {
            effects.push(head.answer(replicas[head.at].shard));
        });
        if let Some(part) = self.senders.next_part(now) {
            self.give_part(now, &part, effects);
        }
        // Some copies may be over.
        given.into_iter().for_each(|at| self.keep_tombstones(at));
    }

    pub(crate) fn give_part(
        &mut self,
        now: Time,
        next: &NextPart<CopyContext>,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let NextPart { key: CopyKey { at, peer, copy }, ref from, ref context } = *next;
        let options = &self.shared.setup.options;
        let &ReplayClaim { cut, until: ref ends } = context.claim(from);
        let (mut rows, mut writes, mut bytes) = (Vec::new(), Vec::new(), 0);
        let until = if is_among_writes(from) {
            let (taken, until) = next_writes(&context.writes, from, options.snapshot_part);
            writes = taken;
            bytes += writes.iter().map(SnapshotWrite::bytes).sum::<usize>();
            until.filter(|_| {
                !options.faults.has(TwoPhaseCommitPlantedBug::SnapshotWithoutLaterWrites)
            })
        } else {
            let Ok(mut session) = self.runtime.worker_context.own[at].sessions.take() else {
                return;
            };
            // What is beyond the cut may have been deleted where the receiver has it: so tombstones go with the rows.
            let without = options.faults.has(TwoPhaseCommitPlantedBug::CopyWithoutTombstones);
            let committed = |stamp: StampRef<'_>| stamp.clock <= cut || without;
            let undecided = |stamp: StampRef<'_>| stamp.clock > cut;
            let until = session.copy(from, options.snapshot_part, committed, undecided, |it| {
                if ends.as_ref().is_some_and(|ends| !ends.is_behind(it.table, it.key)) {
                    return; // Another part has it.
                }
                let (table, key) = (it.table, Bytes::copy_from_slice(it.key));
                let value = it.value.map(Bytes::copy_from_slice);
                bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
                rows.push(SnapshotRow { table, clock: it.stamp.clock, key, value });
            });
            let until = until.into_iter().chain(ends.clone()).min();
            until.or_else(|| (!context.writes.is_empty()).then(writes_begin))
        };
        let shard = self.shared.replicas[at].shard;
        let (from, end) = (place_form(from.clone()), until.clone().map(place_form));
        let contents = ChunkContents { rows, writes };
        let part = SnapshotChunk { shard, copy, cut, from, until: end, contents };
        if peer == self.runtime.worker_context.place.node {
            self.checkpoint_copy.given(now, until);
            effects.push(EngineEffect::CheckpointPart { shard, part: encode(&part) });
        } else {
            self.senders.sent(now, next, bytes, until);
            let (to, message) = (self.runtime.peer(peer), TwoPhaseCommitMessage::Chunk(part));
            effects.push(EngineEffect::Send { to, message });
        }
    }
}

/// Receiving copies.
impl TwoPhaseCommit {
    /// A part of a copy has come.
    pub(crate) fn take_part(
        &mut self,
        from: NodeId,
        part: SnapshotChunk,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let leaderships = &self.runtime.worker_context.leaderships;
        let own = self.streams.place_of(part.shard);
        let is_leader = own.is_some_and(|at| self.streams[at].has_begun());
        if is_leader && leaderships.takes(part.shard, from) {
            // A leader that has begun needs no copy any more: its sender may forget it.
            self.acknowledge_part(from, part.shard, part.copy, None, effects);
            return;
        }
        let Some(at) = own.filter(|at| self.may_take(*at, from, &part)) else {
            self.runtime.counters.dropped += 1;
            return;
        };
        let (shard, copy, key) = (part.shard, part.copy, part.key(at, from));
        let now = self.runtime.worker_context.now.get();
        let retry_after = self.runtime.worker_context.limits.retry_after;
        self.receivers.arrive(now, retry_after, key, place(&part.from), part);
        while let Some(part) = self.receivers.next(key) {
            let Ok(reached) = self.copy_part(at, &part, effects) else {
                break; // It comes again.
            };
            self.copied_writes.take(key, &part.contents.writes);
            self.receivers.advance(key, reached);
        }
        self.acknowledge_part(from, shard, copy, self.receivers.reached(key), effects);
    }

    /// A part of this node's checkpoint is read.
    ///
    /// # Panics
    /// If it is none: the files were checked.
    pub(crate) fn read_checkpoint(&mut self, part: &Bytes, effects: &mut TwoPhaseCommitEffects) {
        let part: SnapshotChunk = decode(part).expect("a part of a checkpoint that was checked");
        let at = self.streams.place_of(part.shard).expect("a stream that is held");
        let part = take_all(part, |part| {
            self.copy_part(at, part, effects).expect("nothing else uses the store")
        });
        let key = part.key(at, self.runtime.worker_context.place.node);
        self.copied_writes.take(key, &part.contents.writes);
    }

    /// Reports to the sender of a copy the place before which this node has everything; `None` if it needs no more.
    fn acknowledge_part(
        &self,
        sender: NodeId,
        shard: ShardId,
        copy: u64,
        reached: Option<WalkPlace>,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let reached = reached.map(place_form);
        let message = TwoPhaseCommitMessage::ChunkTaken { shard, copy, reached };
        effects.push(EngineEffect::Send { to: self.runtime.peer(sender), message });
    }

    /// Can this be so, and is it for this node to take?
    fn may_take(&self, at: usize, from: NodeId, part: &SnapshotChunk) -> bool {
        let fits = |row: &SnapshotRow| {
            let value = row.value.as_deref().unwrap_or_default();
            row.clock <= CLOCK_MAX && self.may_write(row.table, &row.key, value)
        };
        let fits_beside = |it: &SnapshotWrite| {
            let StreamWrite { table, ref key, ref change } = it.write;
            let change = change.borrowed();
            change.is_well_formed() && self.may_write(table, key, change.content())
        };
        // Rows and writes are in different parts, so that no part with writes is taken in pieces.
        let is_one = if is_among_writes(&place(&part.from)) {
            part.contents.rows.is_empty()
        } else {
            part.contents.writes.is_empty()
        };
        self.runtime.worker_context.leaderships.takes(part.shard, from)
            && is_one
            && !self.streams[at].has_begun()
            && part.ascends()
            && part.cut <= CLOCK_MAX
            && part.contents.rows.iter().all(fits)
            && part.contents.writes.iter().all(fits_beside)
    }

    /// Is there such a table, and is that a key and a value of it?
    fn may_write(&self, table: TableId, key: &[u8], value: &[u8]) -> bool {
        (table.0 as usize) < TABLE_IDS_MAX
            && (1..=KEY_BYTES_MAX).contains(&key.len())
            && value.len() <= VALUE_BYTES_MAX
    }

    /// Makes a range of the store what the part says, as far as it gets: a range may hold much that goes, or a lock be in
    /// the way. Returns before which place it has; `None` where it has the last part.
    fn copy_part(
        &mut self,
        at: usize,
        part: &SnapshotChunk,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Result<Option<WalkPlace>> {
        let replica = &self.shared.replicas[at];
        let mut session = self.runtime.worker_context.own[at].sessions.take()?;
        let (from, until) = part.range();
        let kept: BTreeSet<(TableId, &[u8])> =
            part.contents.rows.iter().map(|row| (row.table, &row.key[..])).collect();
        // No worker replays meanwhile.
        let mut floor = replica.floor_mut();
        let here = replica.reached();
        for row in &part.contents.rows {
            if row.clock > here && !floor.has(row.table, &row.key, row.clock) {
                take_row(part.shard, &mut session, row, &mut effects.observations)?;
            }
        }
        self.runtime.counters.operations += part.contents.rows.len() as u64;
        // What goes leaves no trace but the floor: so that follows as far as this gets.
        let stale = |table: TableId, key: &[u8], stamp: StampRef<'_>| {
            stamp.clock <= part.cut && !kept.contains(&(table, key))
        };
        let faults = self.shared.setup.options.faults;
        let left = match faults.has(TwoPhaseCommitPlantedBug::CopyKeepsDeleted) {
            true => None,
            false if is_among_writes(&from) => None,
            false => {
                // What begins behind the rows ends them.
                let until = until.as_ref().filter(|until| !is_among_writes(until));
                session.erase(&from, until, ERASED_MAX, stale)
            }
        };
        let reached = left.or(until);
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
        let (Some(at), Ok(metadata)) =
            (self.streams.place_of(shard), decode::<SnapshotMetadata>(state))
        else {
            return false;
        };
        let SnapshotMetadata { copy, checkpoint: Checkpoint { state, .. } } = metadata;
        let key = CopyKey { at, peer: from, copy };
        let last =
            self.runtime.worker_context.leaderships.configured().0.saturating_add(EPOCHS_AHEAD_MAX);
        let is_prepared = |branch: &PreparedBranch| {
            let PreparedBranch { clock, home: DecisionHome { shard, .. }, .. } = *branch;
            clock > state.safe && clock <= state.greatest && self.has_shard(shard)
        };
        let mut written = self.copied_writes.transactions(key);
        let is_decided = |shards: &Vec<ShardId>| {
            !shards.is_empty() && shards.iter().all(|shard| self.has_shard(*shard))
        };
        self.receivers.reached(key).is_none()
            && written.all(|transaction| state.is_to_come(transaction))
            && state.length == length
            && state.safe >= self.streams[at].replay().safe()
            && state.greatest <= CLOCK_MAX
            && state.safe <= CLOCK_MAX
            && state.leadership <= Epoch(last)
            && state.prepared.values().all(is_prepared)
            && state.decided.values().all(is_decided)
    }

    /// This worker's stream of `shard` begins behind a snapshot.
    pub(crate) fn restored(
        &mut self,
        shard: ShardId,
        state: &Bytes,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let at = self.streams.place_of(shard).expect("a stream that is held");
        let SnapshotMetadata { checkpoint, .. } = decode(state).expect("it was looked at before");
        self.receivers.forget(at);
        let writes = self.copied_writes.remove(at);
        self.streams[at].restore(checkpoint, writes);
        self.stop_giving(at, effects);
        effects.observe(|| TwoPhaseCommitObservation::Restored { shard });
    }
}

/// Up to where the node has all that the streams of a shard have committed, or what came in its place, of which keys.
fn claims(
    replica: &ShardReplica,
    faults: PlantedBugs<TwoPhaseCommitPlantedBug>,
) -> Vec<ReplayClaim> {
    let mut claims = replica.floor().claims_above(replica.reached());
    if faults.has(TwoPhaseCommitPlantedBug::CopyWithOneCut) {
        claims.drain(..claims.len() - 1);
    }
    claims
}

/// A row that a replica has looked at, as it is shown.
struct CopiedRow(TwoPhaseCommitObservation);

impl From<AppliedWrite> for CopiedRow {
    fn from(it: AppliedWrite) -> CopiedRow {
        let AppliedWrite { shard, stamp, table, key, won } = it;
        CopiedRow(TwoPhaseCommitObservation::Copied { shard, stamp, table, key, won })
    }
}

/// Puts a row where it is not, unless there is a newer one.
fn take_row(
    shard: ShardId,
    session: &mut Session,
    row: &SnapshotRow,
    observations: &mut Option<Vec<TwoPhaseCommitObservation>>,
) -> Result<()> {
    let stamp = &Stamp::local(FIRST_EPOCH, row.clock);
    let (table, key, value) = (row.table, &row.key[..], row.value.as_deref());
    let mut copied = observations.is_some().then(Vec::<CopiedRow>::new);
    copy_row(shard, session, ChunkVersion { table, key, value, stamp }, copied.as_mut())?;
    if let (Some(observations), Some(copied)) = (observations, copied) {
        observations.extend(copied.into_iter().map(|CopiedRow(it)| it));
    }
    Ok(())
}
