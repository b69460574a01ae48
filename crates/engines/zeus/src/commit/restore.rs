//! Pipelines after a restart: those of the node's own workers, and those that it follows (`redo/`).

use super::RestoredSlot;
use super::followed::{FollowedPipelines, Held, apply_writes};
use super::pipelines::{PendingSlot, Pipeline, Pipelines, leave};
use crate::ownership::Ownership;
use crate::planted_bugs::ZeusPlantedBug;
use crate::redo::{Change, StoredSlot};
use crate::scope::Scope;
use crate::version::{PipelineId, Slot, WorkerPipeline};
use shoal_types::{Clock, NodeId, Time, WorkerId};
use std::collections::BTreeSet;

impl Pipelines {
    /// How far the pipelines are, and their pending slots.
    pub(crate) fn stored(&self, node: NodeId) -> Vec<Change> {
        let mut stored = Vec::new();
        for (worker, pipelines) in (0..).map(WorkerId).zip(&self.workers) {
            for (number, pipeline) in (0..).zip(pipelines) {
                let of = WorkerPipeline { worker, number };
                let Pipeline { last, last_clock, validated, pending, .. } = pipeline;
                let (last, last_clock, validated) = (*last, *last_clock, *validated);
                stored.push(Change::OwnPipeline { of, last, last_clock, validated });
                stored.extend(pending.iter().map(|slot| {
                    let touched = slot.touched.iter().cloned().collect();
                    let inv = slot.inv.clone();
                    Change::PendingSlot(StoredSlot { inv, from: node, touched })
                }));
            }
        }
        stored
    }

    /// The pipeline, which is made if there is none.
    fn restored(&mut self, of: WorkerPipeline) -> &mut Pipeline {
        let pipelines = &mut self.workers[of.worker.0 as usize];
        let count = pipelines.len().max(of.number as usize + 1);
        pipelines.resize(count, Pipeline::default());
        &mut pipelines[of.number as usize]
    }

    pub(crate) fn restore_pipeline(
        &mut self,
        of: WorkerPipeline,
        last: Slot,
        last_clock: Clock,
        validated: Slot,
    ) {
        let pipeline = self.restored(of);
        (pipeline.last, pipeline.last_clock, pipeline.validated) = (last, last_clock, validated);
    }

    pub(crate) fn restore_slot(
        &mut self,
        scope: &mut Scope<'_>,
        ownership: &mut Ownership,
        slot: StoredSlot,
        how: RestoredSlot,
    ) {
        let StoredSlot { inv, touched, .. } = slot;
        let of = inv.pipeline.of;
        let pipeline = self.restored(of);
        if how == RestoredSlot::Applied {
            if inv.slot <= pipeline.last {
                return; // The checkpoint is newer.
            }
            (pipeline.last, pipeline.last_clock) = (inv.slot, inv.clock);
            apply_writes(scope, ownership, &inv, false);
        }
        let mut touched: BTreeSet<_> = touched.into_iter().collect();
        if scope.has(ZeusPlantedBug::ForgetTouched) {
            touched.clear();
        }
        touched.iter().for_each(|granule| self.touch(granule, of));
        let repeats = scope.options.repeats();
        self.restored(of).pending.push_back(PendingSlot {
            inv,
            acknowledged: BTreeSet::new(),
            touched,
            tag: None,
            readers: Vec::new(),
            recorded: 0,
            repeat_at: scope.now,
            repeats,
        });
    }

    pub(crate) fn restore_validated(
        &mut self,
        scope: &mut Scope<'_>,
        of: WorkerPipeline,
        slot: Slot,
    ) {
        let pipeline = self.restored(of);
        pipeline.validated = pipeline.validated.max(slot);
        let mut left = Vec::new();
        while pipeline.pending.front().is_some_and(|first| first.inv.slot <= slot) {
            let Some(first) = pipeline.pending.pop_front() else { break };
            for writes in &first.inv.writes {
                scope.rows.validate(&writes.granule, &writes.rows, first.inv.version());
            }
            left.push(first.touched);
        }
        left.iter().flatten().for_each(|granule| leave(&mut self.touched, granule));
    }

    /// All that is pending is sent again.
    pub(crate) fn repeat_all(&mut self, now: Time) {
        for pipeline in self.all_mut() {
            pipeline.pending.iter_mut().for_each(|slot| slot.repeat_at = now);
            pipeline.repeat_at = (!pipeline.pending.is_empty()).then_some(now);
        }
    }
}

impl FollowedPipelines {
    /// How far the pipelines are, and their pending slots.
    pub(crate) fn stored(&self) -> Vec<Change> {
        let mut stored = Vec::new();
        for (pipeline, followed) in self.iter() {
            let (pipeline, applied, validated) = (*pipeline, followed.applied, followed.validated);
            stored.push(Change::FollowedPipeline { pipeline, applied, validated });
            stored.extend(followed.pending.values().map(|Held { inv, from, .. }| {
                let (inv, from, touched) = (inv.clone(), *from, Vec::new());
                Change::PendingSlot(StoredSlot { inv, from, touched })
            }));
        }
        stored
    }

    pub(crate) fn restore_pipeline(
        &mut self,
        pipeline: PipelineId,
        applied: Slot,
        validated: Slot,
    ) {
        let followed = self.followed.entry(pipeline).or_default();
        (followed.applied, followed.validated) = (applied, validated);
    }

    pub(crate) fn restore_slot(
        &mut self,
        scope: &mut Scope<'_>,
        ownership: &mut Ownership,
        slot: StoredSlot,
        how: RestoredSlot,
    ) {
        let StoredSlot { inv, from, .. } = slot;
        let followed = self.followed.entry(inv.pipeline).or_default();
        let (remind_at, reminders) = (scope.now, scope.options.repeats());
        let slot = inv.slot;
        let held = Held { inv, from, remind_at, reminders, recorded: 0 };
        match how {
            RestoredSlot::Pending => drop(followed.pending.insert(slot, held)),
            RestoredSlot::Applied if slot <= followed.applied => {} // The checkpoint is newer.
            RestoredSlot::Applied => followed.take(scope, ownership, held),
        }
    }

    pub(crate) fn restore_validated(
        &mut self,
        scope: &mut Scope<'_>,
        pipeline: PipelineId,
        slot: Slot,
    ) {
        let followed = self.followed.entry(pipeline).or_default();
        followed.validated = followed.validated.max(slot);
        followed.validate_applied(scope);
    }

    /// The pending slots of coordinators that are dead in this epoch are replayed, as they were before the restart.
    pub(crate) fn begin_replays(&mut self, scope: &Scope<'_>) {
        self.replays.slots.clear();
        self.replays.repeat_at = scope.now;
        for (pipeline, followed) in &self.followed {
            if !scope.view.is_member(pipeline.coordinator) {
                let slots =
                    followed.pending.keys().map(|slot| ((*pipeline, *slot), BTreeSet::new()));
                self.replays.slots.extend(slots);
            }
        }
        self.note_all_open();
    }
}
