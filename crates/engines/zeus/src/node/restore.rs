//! How a node's state is made again: from the parts of its last checkpoint, and the redo records behind that (`redo/`).
//!
//! Until the manager has admitted the process, the node is silent: its disks may be older than what it has promised last.

use super::ZeusNode;
use crate::commit::RestoredSlot;
use crate::planted_bugs::ZeusPlantedBug;
use crate::redo::{Change, RedoPart, RedoRecord, StoredHolding, StoredRow, StoredSlot};
use crate::scope::Scope;
use crate::version::{PipelineId, Slot};
use bytes::Bytes;
use shoal_types::Time;
use shoal_types::wire::decode;
use std::sync::Arc;

impl ZeusNode {
    /// Takes a part of the last checkpoint of a former process of this node. Parts come before records.
    ///
    /// # Panics
    /// If it is none: the files were checked.
    pub fn restore_checkpoint(&mut self, now: Time, part: &Bytes) {
        let RedoRecord { parts } = decode(part).expect("a part of a checkpoint that was checked");
        self.begin_restore(now);
        let began = parts.iter().flat_map(|part| &part.changes).find_map(|change| match change {
            Change::CheckpointBegan { number } => Some(*number),
            _ => None,
        });
        self.awaited_checkpoint = began.or(self.awaited_checkpoint);
        parts.into_iter().for_each(|part| self.restore_part(part));
    }

    /// Takes a redo record of a former process of this node, in their order. The state of a checkpoint has those before it began.
    ///
    /// # Panics
    /// If it is none: the files were checked.
    pub fn restore(&mut self, now: Time, record: &Bytes) {
        let RedoRecord { parts } = decode(record).expect("a redo record that was checked");
        self.begin_restore(now);
        if let Some(awaited) = self.awaited_checkpoint {
            let changes = parts.iter().flat_map(|part| &part.changes);
            let is_begun = |change: &Change| matches!(change, Change::CheckpointBegan { number } if *number == awaited);
            if changes.last().is_some_and(is_begun) {
                self.awaited_checkpoint = None;
            }
            if !self.options.bugs.has(ZeusPlantedBug::RepeatBeforeCheckpoint) {
                return;
            }
        }
        parts.into_iter().for_each(|part| self.restore_part(part));
    }

    fn begin_restore(&mut self, now: Time) {
        assert!(self.redo.is_restoring(), "Z22: {} has recorded before it has read", self.node);
        self.now = now;
        self.is_admitted = self.options.bugs.has(ZeusPlantedBug::ActUnadmitted);
    }

    fn restore_part(&mut self, RedoPart { requests, holdings, changes }: RedoPart) {
        for StoredHolding { granule, state } in holdings {
            self.ownership.restore(scope!(self), &granule, state);
        }
        if !self.options.bugs.has(ZeusPlantedBug::CountRequestsAnew) {
            self.ownership.restore_requests(requests);
        }
        changes.into_iter().for_each(|change| self.restore_change(change));
    }

    fn restore_change(&mut self, change: Change) {
        match change {
            Change::Slot(slot) => self.restore_slot(slot, RestoredSlot::Applied),
            Change::PendingSlot(slot) => self.restore_slot(slot, RestoredSlot::Pending),
            Change::Validated { pipeline, slot } => self.restore_validated(pipeline, slot),
            Change::Rows { granule, rows } => {
                let rows = rows.into_iter().map(StoredRow::row);
                self.rows.restore(&granule, rows);
            }
            Change::RowsValid { granule, clock } => self.rows.validate_until(&granule, clock),
            Change::RowsGone { granule } => self.rows.discard(&granule),
            Change::Entered(view) => {
                if view.epoch > self.view.epoch {
                    self.begin_epoch(Arc::unwrap_or_clone(view));
                }
            }
            Change::CheckpointBegan { .. } => {}
            Change::In(view) => self.view = Arc::unwrap_or_clone(view),
            Change::Placed(tables) => self.set_placement(tables.into()),
            Change::Barrier { replaying, unaware } => self.barrier.restore(replaying, unaware),
            Change::Directories { copying, rebuilt } => self.copies.restore(copying, rebuilt),
            Change::OwnPipeline { of, last, last_clock, validated } => {
                self.pipelines.restore_pipeline(of, last, last_clock, validated);
            }
            Change::FollowedPipeline { pipeline, applied, validated } => {
                self.followed.restore_pipeline(pipeline, applied, validated);
            }
        }
    }

    fn restore_slot(&mut self, slot: StoredSlot, how: RestoredSlot) {
        match slot.inv.pipeline.coordinator == self.as_coordinator() {
            true => self.pipelines.restore_slot(scope!(self), &mut self.ownership, slot, how),
            false => self.followed.restore_slot(scope!(self), &mut self.ownership, slot, how),
        }
    }

    fn restore_validated(&mut self, pipeline: PipelineId, slot: Slot) {
        match pipeline.coordinator == self.as_coordinator() {
            true => self.pipelines.restore_validated(scope!(self), pipeline.of, slot),
            false => self.followed.restore_validated(scope!(self), pipeline, slot),
        }
    }

    /// Whether the node is taking what a former process had recorded: until all of that is taken, its state is of no moment.
    #[must_use]
    pub(crate) fn is_restoring(&self) -> bool {
        self.redo.is_restoring()
    }

    /// Whether the manager has admitted the process: what it has restored may be too old, and is not used, until then.
    pub(crate) fn is_admitted(&self) -> bool {
        self.is_admitted
    }

    /// All that former processes have recorded is taken.
    pub fn end_restore(&mut self, now: Time) {
        self.now = now;
        let scope: &Scope<'_> = scope!(self);
        self.followed.begin_replays(scope);
        self.ownership.end_restore(scope!(self));
        self.copies.end_restore(self.node, &self.view, now);
        assert_eq!(self.awaited_checkpoint, None, "Z22: the log ends before its checkpoint began");
        self.redo.end_restore();
    }

    /// The process is admitted: a node that was restored goes on, as the member that it was.
    pub(super) fn admit(&mut self) {
        if !std::mem::replace(&mut self.is_admitted, true) {
            self.pipelines.repeat_all(self.now);
            self.repeat();
            self.finish();
        }
    }
}
