//! Snapshots in checkpoints of the node, and what waits until records are durable.
//!
//! A checkpoint has what a replica would be sent that lacks the entries (`snapshot.rs`). What replicas have recorded before is not
//! read with it: they record what counts of that again when it begins.

use super::snapshot::{part_of, shard_at};
use super::snapshots::{CHECKPOINT, Snapshots};
use super::{Tiga, TigaEffects};
use crate::snapshot::{PartContents, is_of_head};
use crate::step::VoteRecord;
use bytes::Bytes;
use shoal_engine::engine::EngineEffect;
use shoal_replication::snapshot_transfer::NextPart;
use shoal_types::wire::{decode, encode};
use shoal_types::{ShardId, Time};

impl Tiga {
    /// The node takes a checkpoint, which is to have the shard.
    pub(super) fn begin_checkpoint(
        &mut self,
        now: Time,
        shard: ShardId,
        effects: &mut TigaEffects,
    ) {
        self.with_node(effects, |node, now, library| node.record_list(now, library, shard));
        if let Some((copy, head)) = self.begin_copy(shard, self.shared.node) {
            self.snapshots.checkpoint.begin(now, copy, head, ());
        }
        self.forget_ended();
    }

    /// Goes on with the copy for a checkpoint.
    pub(super) fn give_checkpoint(&mut self, now: Time, effects: &mut TigaEffects) {
        let Some(NextPart { key, from, context: () }) = self.snapshots.checkpoint.next_part(now)
        else {
            return;
        };
        let (shard, options) = (shard_at(key.at), &self.shared.setup.options);
        let Some(replica) = self.node.replica(shard) else {
            return self.snapshots.checkpoint.stop(key.at);
        };
        let ledger = replica.ledger();
        let Snapshots { checkpoint, heads, .. } = &mut self.snapshots;
        if is_of_head(&from) && !heads.contains_key(&key.copy) {
            checkpoint.conclude(ledger.applied, CHECKPOINT);
        }
        let (contents, until) = part_of(ledger, heads, key.copy, &from, options);
        checkpoint.given(now, until);
        effects.push(EngineEffect::CheckpointPart { shard, part: encode(&contents) });
    }

    /// The parts that were given for the checkpoint are written.
    pub(super) fn checkpoint_written(&mut self, effects: &mut TigaEffects) {
        if let Some(head) = self.snapshots.checkpoint.written() {
            let shard = shard_at(head.at);
            effects.push(head.of_checkpoint(shard));
            self.forget_ended();
        }
    }

    /// A part of this node's checkpoint is read.
    ///
    /// # Panics
    /// If it is none: the files were checked.
    pub(super) fn read_checkpoint(&mut self, shard: ShardId, part: &Bytes) {
        let part: PartContents = decode(part).expect("a part of a checkpoint that was checked");
        self.snapshots.read.entry(shard).or_default().take(part);
    }

    /// Has what replicas record written.
    pub(super) fn record(&mut self, records: Vec<VoteRecord>, effects: &mut TigaEffects) {
        for VoteRecord { shard, record, is_first, voids, sends } in records {
            let waiting = self.unrecorded.entry(shard).or_default();
            if voids {
                waiting.iter_mut().for_each(Vec::clear);
            }
            waiting.push_back(sends);
            effects.push(EngineEffect::Record { shard, record, is_first });
        }
    }

    /// So many more records of a shard are durable: what has waited for them is sent.
    pub(super) fn recorded(&mut self, shard: ShardId, records: u64, effects: &mut TigaEffects) {
        let Some(waiting) = self.unrecorded.get_mut(&shard) else { return };
        let durable = waiting.drain(..records as usize);
        let sends: Vec<_> = durable.flatten().collect();
        if !sends.is_empty() {
            self.with_node(effects, |node, now, library| node.send_all(now, library, sends));
        }
    }

    /// Forgets what waits for records of shards of which the node has no replica any more, and their copies.
    pub(super) fn forget_shards(&mut self, is_held: impl Fn(ShardId) -> bool) {
        self.unrecorded.retain(|shard, _| is_held(*shard));
        // A checkpoint that stands for no entries is read, and nothing begins behind it.
        self.snapshots.read.clear();
        let copied = self.snapshots.checkpoint.place();
        if let Some(place) = copied.filter(|place| !is_held(shard_at(*place))) {
            self.snapshots.checkpoint.stop(place);
        }
    }
}
