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
    /// Takes a redo record, or a part of a checkpoint, of a former process of this node.
    ///
    /// # Panics
    /// If it is none: the files were checked.
    pub fn restore(&mut self, now: Time, record: &Bytes) {
        let RedoRecord { parts } = decode(record).expect("a redo record that was checked");
        self.now = now;
        self.is_admitted = self.options.bugs.has(ZeusPlantedBug::ActUnadmitted);
        self.redo.pause();
        for RedoPart { requests, holdings, changes } in parts {
            for StoredHolding { granule, state } in holdings {
                self.ownership.restore(scope!(self), &granule, state);
            }
            if !self.options.bugs.has(ZeusPlantedBug::CountRequestsAnew) {
                self.ownership.restore_requests(requests);
            }
            changes.into_iter().for_each(|change| self.restore_change(change));
        }
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
        self.redo.is_paused()
    }

    /// All that former processes have recorded is taken.
    pub fn end_restore(&mut self, now: Time) {
        self.now = now;
        let scope: &Scope<'_> = scope!(self);
        self.followed.begin_replays(scope);
        self.ownership.end_restore(scope!(self));
        self.copies.end_restore(self.node, &self.view, now);
        self.redo.resume();
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
