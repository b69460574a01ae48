//! The node's log on disk: what former processes have recorded, checkpoints, and what the manager has to know so that no node leaves
//! with the last copy of a granule.
//!
//! All of it belongs to the node and to no shard, and is done by the node's first worker, in whose log it is.

use super::node_checkpoint::{NextPart, NodeCheckpoint, PAUSE, empty_checkpoint};
use super::shared::LOG_WORKER;
use super::{Zeus, ZeusEffects};
use bytes::Bytes;
use shoal_cluster::manager::ManagerRequest;
use shoal_engine::engine::{EngineEffect, OF_NODE};
use shoal_types::{ShardId, Time};
use std::time::Duration;

/// How often leaders look whether the granules of their shards have their degree, and report that.
const WHOLE_EVERY: Duration = Duration::from_millis(200);

impl Zeus {
    /// Takes what former processes of the node have recorded behind the last checkpoint.
    pub(super) fn restore(&mut self, now: Time, records: &[Bytes], effects: &mut ZeusEffects) {
        self.with_node(effects, |shared| {
            let node = &mut shared.node;
            records.iter().for_each(|record| node.restore(now, record));
            node.end_restore(now);
        });
    }

    /// Gives the first part of the node's checkpoint.
    pub(super) fn begin_checkpoint(&mut self, now: Time, effects: &mut ZeusEffects) {
        let part = self.with_node(effects, |shared| shared.node.checkpoint_head());
        effects.push(EngineEffect::CheckpointPart { shard: OF_NODE, part });
        self.checkpoint =
            NodeCheckpoint { next: NextPart::Behind(None), is_writing: true, next_at: now + PAUSE };
    }

    /// Gives the next part of the checkpoint that is under way, if it is time for it.
    pub(super) fn give_checkpoint(&mut self, now: Time, effects: &mut ZeusEffects) {
        if self.checkpoint.due().is_none_or(|at| at > now) {
            return;
        }
        let NextPart::Behind(after) = &self.checkpoint.next else { return };
        let given = |shared: &mut super::SharedNode| shared.node.checkpoint_part(after.as_ref());
        let (part, last) = self.with_node(effects, given);
        effects.push(EngineEffect::CheckpointPart { shard: OF_NODE, part });
        let next = last.map_or(NextPart::End, |last| NextPart::Behind(Some(last)));
        self.checkpoint = NodeCheckpoint { next, is_writing: true, next_at: now + PAUSE };
    }

    /// The part that was given last is written.
    pub(super) fn checkpoint_written(&mut self, effects: &mut ZeusEffects) {
        self.checkpoint.is_writing = false;
        if self.checkpoint.next == NextPart::End {
            self.checkpoint = NodeCheckpoint::default();
            effects.push(empty_checkpoint(OF_NODE));
        }
    }

    /// Whether this worker reports to the manager that the granules of shards have their degree.
    pub(super) fn reports_whole(&self) -> bool {
        self.shared.is_on_disk()
            && self.runtime.worker_context.place.worker == LOG_WORKER
            && !self.led.is_empty()
    }

    /// Reports it, at times.
    pub(super) fn report_whole(&mut self, now: Time, effects: &mut ZeusEffects) {
        if !self.reports_whole() || self.whole_due > now {
            return;
        }
        self.whole_due = now + WHOLE_EVERY;
        for shard in self.led.keys().copied().collect::<Vec<ShardId>>() {
            let whole = self.with_node(effects, |shared| {
                let node = &mut shared.node;
                node.is_whole(now, shard).then(|| node.view().epoch)
            });
            let request = whole.map(|epoch| ManagerRequest::Whole { shard, epoch });
            effects.effects.extend(request.map(EngineEffect::Manager));
        }
    }
}
