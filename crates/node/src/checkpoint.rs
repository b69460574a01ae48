//! Checkpoints of a worker: what its streams and its node's stores hold, so that the log on disk is needed from there on only.
//!
//! ```text
//! Checkpoint ─► Begin ─► heads of all streams ─► shard by shard: parts of the store, what they stand for ─► End ─► Checkpointed
//!               │ the log on disk is needed from here on                     ▲        │
//!               │                                                            └ written┘
//! ```
//! The **heads** are taken when the checkpoint begins: a process that reads it applies to them the records behind that place.
//! The parts of a shard are what a replica would be sent that lacks the entries, so they are loaded in the same way
//! (`shoal-replication`). The store changes while they are taken, and so they stand for more entries than were decided at the
//! beginning, or for as many; the entries behind those are in the heads or in the log.
//!
//! Invariant: when a checkpoint has ended, it has a head and a snapshot of every stream that was there when it began.

use crate::checkpoint_state::{CheckpointBlock, CheckpointStep, CheckpointUnderWay};
use crate::worker::Worker;
use crate::{WorkerEffect, WorkerEffects};
use bytes::Bytes;
use shoal_engine::engine::OF_NODE;
use shoal_engine::{Engine, EngineEvent};
use shoal_log::{LogLength, StreamStorage};
use shoal_types::{ShardId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How soon another checkpoint begins after one that was given up: each takes some of the room that is left.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

impl<E: Engine> Worker<E> {
    /// The log has grown.
    pub(super) fn want_checkpoint(&mut self) {
        self.checkpoints.is_wanted = true;
    }

    /// A stream has received a snapshot, or has ended: what the checkpoint that is under way has of it is not what its records go on
    /// from.
    pub(super) fn interrupt_checkpoint(
        &mut self,
        shard: ShardId,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        if self.checkpoints.under_way.take_if(|it| it.has(shard)).is_some() {
            self.checkpoints.is_wanted = true;
            effects.push(WorkerEffect::Checkpoint(CheckpointStep::Abandon));
        }
    }

    /// Begins a checkpoint where one is due, and goes on with the one that is under way where the engine has given a shard: asks it for
    /// the next one, or ends it. To be called when all records so far are asked to be written, and no step of the engine is under way.
    pub(super) fn advance_checkpoint(
        &mut self,
        now: Time,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        self.begin_checkpoint(now, effects);
        while std::mem::take(&mut self.checkpoints.is_next_due) {
            let Some(under_way) = &self.checkpoints.under_way else { return };
            let Some(shard) = under_way.shards.front().copied() else {
                return effects.push(WorkerEffect::Checkpoint(CheckpointStep::End));
            };
            self.engine_step(now, EngineEvent::CheckpointWanted { shard }, effects);
            self.pass_news(now, effects);
            self.write_records(effects);
        }
    }

    /// When the next checkpoint may begin, if one is due.
    pub(super) fn checkpoint_due(&self) -> Option<Time> {
        let is_due = self.checkpoints.is_wanted || self.records.await_checkpoint();
        let begins = is_due && self.checkpoints.under_way.is_none();
        begins.then_some(self.checkpoints.not_before)
    }

    fn begin_checkpoint(
        &mut self,
        now: Time,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        if self.checkpoint_due().is_none_or(|at| at > now) {
            return;
        }
        self.checkpoints.is_wanted = false;
        let mut blocks = Vec::new();
        let (mut lengths, mut shards) = (BTreeMap::new(), VecDeque::new());
        if self.has_records_of_node() {
            shards.push_back(OF_NODE);
        }
        for (shard, held) in &self.streams {
            // An engine that has no snapshots keeps all of its log.
            let Some(stable) = self.engine.may_cut(*shard) else { return };
            let storage = held.stream.storage();
            let from = LogLength(stable.min(held.delivered)).max(storage.log().start());
            blocks.push(CheckpointBlock::Head { shard: *shard, head: storage.head(from) });
            lengths.insert((*shard, held.number), from);
            shards.push_back(*shard);
        }
        self.checkpoints.begun += 1;
        let number = self.checkpoints.begun;
        self.checkpoints.under_way = Some(CheckpointUnderWay { number, lengths, shards });
        self.checkpoints.is_next_due = true;
        effects.push(WorkerEffect::Checkpoint(CheckpointStep::Begin { number }));
        blocks.into_iter().for_each(|block| push_block(block, effects));
    }

    /// The last block of a checkpoint is written.
    pub(super) fn checkpoint_written(
        &mut self,
        now: Time,
        number: u64,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let under_way = self.checkpoints.under_way.as_ref().filter(|it| it.number == number);
        if let Some(shard) = under_way.and_then(|it| it.shards.front().copied()) {
            self.engine_step(now, EngineEvent::CheckpointWritten { shard }, effects);
        }
    }

    /// The engine gives a part of a shard.
    pub(super) fn checkpoint_part(
        &mut self,
        shard: ShardId,
        part: Bytes,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let under_way = self.checkpoints.under_way.as_ref();
        if under_way.is_some_and(|it| it.shards.front() == Some(&shard)) {
            push_block(CheckpointBlock::Part { shard, part }, effects);
        }
    }

    /// The engine has given all parts of a shard. The next one waits until the effects of its step are done: what a later step
    /// proposes must not come before what this one does.
    pub(super) fn checkpoint_head(
        &mut self,
        shard: ShardId,
        length: LogLength,
        state: Bytes,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let Some(under_way) = &mut self.checkpoints.under_way else { return };
        if under_way.shards.front() == Some(&shard) {
            under_way.shards.pop_front();
            push_block(CheckpointBlock::Snapshot { shard, length, state }, effects);
            self.checkpoints.is_next_due = true;
        }
    }

    /// A checkpoint is durable, or was given up.
    pub(super) fn checkpointed(
        &mut self,
        now: Time,
        number: u64,
        is_durable: bool,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let under_way = self.checkpoints.under_way.take_if(|it| it.number == number);
        let Some(under_way) = under_way else { return };
        if is_durable {
            let durable = self.records.checkpointed(&under_way.lengths);
            self.are_durable(now, durable, effects);
        } else {
            self.checkpoints.not_before = now + AGAIN_AFTER;
        }
    }
}

fn push_block<M, O>(block: CheckpointBlock, effects: &mut WorkerEffects<M, O>) {
    effects.push(WorkerEffect::Checkpoint(CheckpointStep::Block(block)));
}
