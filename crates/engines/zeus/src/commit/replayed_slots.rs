//! The slots of dead coordinators that a node replays.

use crate::version::{PipelineId, Slot};
use shoal_types::{NodeId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What a node replays, and which nodes have acknowledged it.
#[derive(Debug, Default)]
pub(super) struct Replays {
    pub slots: BTreeMap<(PipelineId, Slot), BTreeSet<NodeId>>,
    pub repeat_at: Time,
}

impl Replays {
    /// Whether the slot is replayed here.
    pub(super) fn has(&self, pipeline: PipelineId, slot: Slot) -> bool {
        self.slots.contains_key(&(pipeline, slot))
    }

    /// All slots of the pipeline up to this one are validated.
    pub(super) fn forget(&mut self, pipeline: PipelineId, slot: Slot) {
        self.slots.retain(|(of, replayed), _| *of != pipeline || *replayed > slot);
    }

    pub(super) fn wakes_at(&self) -> Option<Time> {
        (!self.slots.is_empty()).then_some(self.repeat_at)
    }
}
