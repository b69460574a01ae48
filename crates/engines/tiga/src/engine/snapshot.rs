//! Snapshots between workers: `snapshot.rs` of the protocol has what they are, `snapshot_transfer.rs` of the engines' shared
//! crate how parts travel, are repeated and given up.

use super::message::SnapshotPart;
use super::snapshots::{CHECKPOINT, Snapshots};
use super::{Tiga, TigaEffects, TigaEngineMessage, TigaEngineOptions};
use crate::ledger::Ledger;
use crate::snapshot::{PartContents, SnapshotInProgress, head_part, is_of_head, is_place};
use bytes::Bytes;
use shoal_engine::engine::EngineEffect;
use shoal_replication::snapshot_transfer::{CopyKey, NextPart, SnapshotHead, place_form, place_of};
use shoal_store::WalkPlace;
use shoal_types::wire::{decode, encode};
use shoal_types::{NodeId, ShardId, TableId, Time, WorkerPlace};
use std::collections::BTreeMap;

fn at(shard: ShardId) -> usize {
    shard.0 as usize
}

pub(super) fn shard_at(at: usize) -> ShardId {
    ShardId(at as u32)
}

/// The part of a copy that begins at this place, and where the next one does. The head is fixed with its first part.
pub(super) fn part_of(
    ledger: &Ledger,
    heads: &mut BTreeMap<u64, Bytes>,
    copy: u64,
    from: &WalkPlace,
    options: &TigaEngineOptions,
) -> (PartContents, Option<WalkPlace>) {
    if is_of_head(from) {
        let fixed = || ledger.head(copy, options.protocol.bugs);
        return head_part(heads.entry(copy).or_insert_with(fixed), from, options.snapshot_part);
    }
    let (contents, next) = ledger.copy_part(from, options.snapshot_part);
    (contents, Some(next))
}

/// Giving snapshots.
impl Tiga {
    /// So many entries of the stream of `shard` may be cut: a snapshot can stand for them, and none that is under way stands
    /// for fewer.
    pub(super) fn cuttable(&self, shard: ShardId) -> u64 {
        let applied = self.node.replica(shard).map_or(0, |replica| replica.ledger().applied);
        self.snapshots.senders.least_length(at(shard)).map_or(applied, |given| given.min(applied))
    }

    /// A replica needs entries of the stream of `shard` that are cut.
    pub(super) fn begin_to_give(&mut self, now: Time, shard: ShardId, to: NodeId) {
        if self.snapshots.senders.request_again(now, at(shard), to) {
            return;
        }
        if let Some((copy, head)) = self.begin_copy(shard, to) {
            self.snapshots.senders.begin(now, copy, head, ());
        }
    }

    /// Begins a copy of a shard, if the node has a replica of it.
    pub(super) fn begin_copy(&mut self, shard: ShardId, to: NodeId) -> Option<(u64, SnapshotHead)> {
        // Like no other, of this process or another.
        let copy = self.runtime.worker_context.random.borrow_mut().next_u64();
        let replica = self.node.replica_mut(shard)?;
        let length = replica.ledger().applied;
        replica.ledger_mut().begin_copy(copy);
        // The length is another one once the head is fixed; a copy that is given up before says nothing that counts.
        Some((copy, SnapshotHead { at: at(shard), to, length, state: Bytes::new() }))
    }

    /// Ends the copies of a shard, whose log here begins elsewhere.
    fn stop_giving(&mut self, shard: ShardId, effects: &mut TigaEffects) {
        self.snapshots.checkpoint.stop(at(shard));
        let stopped = self.snapshots.senders.stop(at(shard));
        effects.effects.extend(stopped.iter().map(|head| head.answer(shard)));
        self.forget_ended();
    }

    /// Notes changes no longer for copies that are over.
    pub(super) fn forget_ended(&mut self) {
        let Snapshots { senders, checkpoint, .. } = &self.snapshots;
        let given: Vec<u64> = senders.copies().chain(checkpoint.copy()).collect();
        self.snapshots.heads.retain(|copy, _| given.contains(copy));
        self.node.end_copies(|copy| !given.contains(&copy));
    }

    /// The receiver of a copy has everything before `reached`.
    pub(super) fn part_is_taken(
        &mut self,
        now: Time,
        from: NodeId,
        shard: ShardId,
        copy: u64,
        reached: Option<&(TableId, Bytes)>,
    ) {
        let key = CopyKey { at: at(shard), peer: from, copy };
        let reached = reached.map(place_of);
        let is_known = reached.as_ref().is_none_or(is_place)
            && self.snapshots.senders.acknowledge(now, key, reached);
        if !is_known {
            self.runtime.counters.dropped += 1;
        }
    }

    /// Leaders or members have changed.
    pub(super) fn look_at_snapshots(&mut self) {
        self.snapshots.senders.look_again();
    }

    /// Goes on with the copies that this worker gives.
    pub(super) fn give(&mut self, now: Time, effects: &mut TigaEffects) {
        let retry_after = self.runtime.worker_context.limits.retry_after;
        if !self.snapshots.senders.is_due(now, retry_after) {
            return;
        }
        let (me, configuration) = (self.shared.node, self.configuration.clone());
        let gives = |head: &SnapshotHead| {
            let assignment = configuration.as_ref().and_then(|it| it.shard(shard_at(head.at)));
            assignment.is_some_and(|it| it.holds(me) && it.holds(head.to))
        };
        self.snapshots.senders.turn(now, retry_after, gives, |head| {
            effects.effects.push(head.answer(shard_at(head.at)));
        });
        if let Some(part) = self.snapshots.senders.next_part(now) {
            self.give_part(now, &part, effects);
        }
        self.forget_ended();
    }

    fn give_part(&mut self, now: Time, next: &NextPart<()>, effects: &mut TigaEffects) {
        let NextPart { key, ref from, context: () } = *next;
        let (shard, options) = (shard_at(key.at), &self.shared.setup.options);
        let Some(replica) = self.node.replica(shard) else { return };
        let ledger = replica.ledger();
        let Snapshots { senders, heads, .. } = &mut self.snapshots;
        match (is_of_head(from), heads.contains_key(&key.copy)) {
            (true, false) if senders.is_waiting(key) => {
                return; // What is sent again has to be older than the head.
            }
            (true, false) => senders.conclude(key, ledger.applied, encode(&key.copy)),
            (false, true) => {
                // The receiver has forgotten what it had. The head is too old for parts that are taken now.
                let answer = senders.give_up(key).map(|head| head.answer(shard));
                effects.effects.extend(answer);
                return;
            }
            (true, true) | (false, false) => {}
        }
        let (contents, until) = part_of(ledger, heads, key.copy, from, options);
        self.snapshots.senders.sent(now, next, contents.bytes(), until.clone());
        let (from, until) = (place_form(from.clone()), until.map(place_form));
        let part = SnapshotPart { shard, copy: key.copy, from, until, contents };
        self.send_to(key.peer, TigaEngineMessage::SnapshotPart(part), effects);
    }

    /// When a copy has to be looked at.
    pub(super) fn snapshots_due(&self) -> Option<Time> {
        self.snapshots.senders.next_due(self.runtime.worker_context.limits.retry_after)
    }

    fn send_to(&self, to: NodeId, message: TigaEngineMessage, effects: &mut TigaEffects) {
        let to = WorkerPlace { node: to, ..self.runtime.worker_context.place };
        effects.push(EngineEffect::Send { to, message });
    }
}

/// Taking snapshots.
impl Tiga {
    /// A part of a snapshot has come.
    pub(super) fn take_part(
        &mut self,
        now: Time,
        from: NodeId,
        part: SnapshotPart,
        effects: &mut TigaEffects,
    ) {
        let (shard, copy) = (part.shard, part.copy);
        let assignment = self.configuration.as_ref().and_then(|it| it.shard(shard));
        let is_of_replica = assignment.is_some_and(|it| it.holds(from));
        let Some(replica) = self.node.replica(shard).filter(|_| is_of_replica) else {
            self.runtime.counters.dropped += 1;
            return;
        };
        let ascends = part.until.as_ref().is_none_or(|until| part.from < *until);
        if !ascends {
            self.runtime.counters.dropped += 1;
            return;
        }
        if replica.serves().is_some() {
            // It needs no copy any more: the sender may forget it.
            let message = TigaEngineMessage::SnapshotPartTaken { shard, copy, reached: None };
            return self.send_to(from, message, effects);
        }
        let key = CopyKey { at: at(shard), peer: from, copy };
        let retry_after = self.runtime.worker_context.limits.retry_after;
        let Snapshots { receivers, in_progress, whole, .. } = &mut self.snapshots;
        receivers.arrive(now, retry_after, key, place_of(&part.from), part);
        while let Some(part) = receivers.next(key) {
            let of = in_progress.entry(shard).or_insert_with(|| (key, Default::default()));
            if of.0 != key {
                *of = (key, SnapshotInProgress::default());
            }
            of.1.take(part.contents);
            receivers.advance(key, part.until.as_ref().map(place_of));
            if part.until.is_none()
                && let Some((_, all)) = in_progress.remove(&shard)
            {
                match all.ledger(shard) {
                    Some(ledger) => drop(whole.insert(shard, (key, ledger))),
                    // It is no snapshot that a replica of ours sends: another one is asked for.
                    None => receivers.forget(at(shard)),
                }
            }
        }
        let reached = receivers.reached(key).map(place_form);
        let message = TigaEngineMessage::SnapshotPartTaken { shard, copy, reached };
        self.send_to(from, message, effects);
    }

    /// Whether all of the snapshot is here that goes with this message of a stream.
    pub(super) fn has_copy(
        &self,
        shard: ShardId,
        from: NodeId,
        length: u64,
        state: &Bytes,
    ) -> bool {
        let Ok(copy) = decode::<u64>(state) else { return false };
        let key = CopyKey { at: at(shard), peer: from, copy };
        let whole = self.snapshots.whole.get(&shard);
        let is_here = whole.is_some_and(|(it, ledger)| *it == key && ledger.applied == length);
        is_here && self.node.replica(shard).is_some_and(|replica| replica.serves().is_none())
    }

    /// The stream of `shard` begins behind a snapshot.
    pub(super) fn restore(&mut self, shard: ShardId, state: &Bytes, effects: &mut TigaEffects) {
        self.snapshots.receivers.forget(at(shard));
        self.snapshots.in_progress.remove(&shard);
        let Snapshots { read, whole, .. } = &mut self.snapshots;
        let ledger = match *state == CHECKPOINT {
            true => read.remove(&shard).and_then(|all| all.ledger(shard)),
            false => whole.remove(&shard).map(|(_, ledger)| ledger),
        };
        let ledger = ledger.expect("its copy was looked for, or read, before");
        self.with_node(effects, |node, now, library| node.restored(now, library, shard, ledger));
        self.stop_giving(shard, effects);
    }
}
