//! The slots of this node's workers that are committed locally, until they are validated.

use super::worker_turns::WorkerTurns;
use crate::granule::GranuleId;
use crate::granule_map::GranuleIndex;
use crate::message::{MessageBody, ReplicationInv};
use crate::ownership::PendingSlots;
use crate::planted_bugs::ZeusPlantedBug;
use crate::scope::Scope;
use crate::version::{PipelineId, Slot};
use shoal_types::{Backoff, Clock, Epoch, NodeId, Time, WorkerId};
use std::collections::{BTreeSet, VecDeque};

/// A transaction whose outcome may be revealed: it is validated, with all that it depends on (rule Z7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validated {
    /// The worker that ran it.
    pub worker: WorkerId,
    /// Its place in the pipeline of that worker.
    pub slot: Slot,
    /// The name that its driver gave it.
    pub tag: u64,
}

/// A transaction that is committed locally and not validated.
#[derive(Debug, Clone)]
pub(super) struct PendingSlot {
    pub inv: ReplicationInv,
    pub acknowledged: BTreeSet<NodeId>,
    /// The granules that it has read or written.
    pub touched: BTreeSet<GranuleId>,
    pub tag: u64,
    /// The names of transactions that only read, behind it.
    pub readers: Vec<u64>,
    pub repeat_at: Time,
    /// The waits until then.
    pub repeats: Backoff,
}

/// The slots of one worker.
#[derive(Debug, Clone, Default)]
pub(super) struct Pipeline {
    /// The slot begun last.
    pub last: Slot,
    pub last_clock: Clock,
    /// All slots up to this one are validated.
    pub validated: Slot,
    pub pending: VecDeque<PendingSlot>,
}

/// The pipelines of a node.
#[derive(Debug)]
pub struct Pipelines {
    pub(super) workers: Vec<Pipeline>,
    /// How many pending slots of which workers touch a granule: of one worker, mostly.
    touched: GranuleIndex<Vec<(WorkerId, u32)>>,
    pub(super) turns: WorkerTurns,
}

impl PendingSlots for Pipelines {
    fn touches(&self, granule: &GranuleId) -> bool {
        self.touching(granule).next().is_some()
    }

    fn writes(&self, granule: &GranuleId) -> bool {
        let slots = self.workers.iter().flat_map(|pipeline| &pipeline.pending);
        slots.flat_map(|slot| &slot.inv.writes).any(|writes| writes.granule == *granule)
    }
}

impl Pipelines {
    pub(crate) fn new(workers: u32) -> Pipelines {
        let workers = (0..workers).map(|_| Pipeline::default()).collect();
        Pipelines { workers, touched: GranuleIndex::default(), turns: WorkerTurns::default() }
    }

    /// The workers that have pending slots which read or wrote the granule.
    pub(super) fn touching(&self, granule: &GranuleId) -> impl Iterator<Item = WorkerId> {
        self.touched.get(granule).into_iter().flatten().map(|(worker, _)| *worker)
    }

    /// How many slots are pending.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.workers.iter().map(|pipeline| pipeline.pending.len()).sum()
    }

    /// The slot up to which all of a worker's are validated.
    ///
    /// # Panics
    /// If there is no such worker.
    #[must_use]
    pub fn validated(&self, worker: WorkerId) -> Slot {
        self.workers[worker.0 as usize].validated
    }

    /// The live followers whose acknowledgement the oldest pending slots wait for, each once.
    #[must_use]
    pub fn stalling(&self) -> BTreeSet<NodeId> {
        let oldest = self.workers.iter().filter_map(|pipeline| pipeline.pending.front());
        oldest.flat_map(|slot| slot.inv.followers.difference(&slot.acknowledged).copied()).collect()
    }

    /// The name of a worker's pipeline; `None` while the node is out.
    pub(super) fn id(scope: &Scope<'_>, worker: WorkerId) -> Option<PipelineId> {
        let coordinator = scope.view.member(scope.node)?;
        Some(PipelineId { coordinator, worker })
    }

    /// Adds a slot that was committed locally, and sends it to its followers.
    pub(super) fn begin(&mut self, scope: &mut Scope<'_>, slot: PendingSlot) {
        let worker = slot.inv.pipeline.worker;
        slot.touched.iter().for_each(|granule| self.touch(granule, worker));
        let pipeline = &mut self.workers[worker.0 as usize];
        assert_eq!(slot.inv.slot, pipeline.last.next(), "Z6: slots follow each other");
        (pipeline.last, pipeline.last_clock) = (slot.inv.slot, slot.inv.clock);
        let (followers, inv) = (slot.inv.followers.clone(), pipeline.to_send(&slot.inv));
        pipeline.pending.push_back(slot);
        scope.send_to_all(followers, &MessageBody::ReplicationInv(inv));
    }

    /// A follower has applied a slot of this node. If it is validated already, that is sent again: a follower reminds of
    /// what it holds pending.
    pub(crate) fn on_ack(
        &mut self,
        scope: &mut Scope<'_>,
        from: NodeId,
        id: PipelineId,
        slot: Slot,
    ) {
        let Some(pipeline) = self.workers.get_mut(id.worker.0 as usize) else { return };
        if slot <= pipeline.validated {
            let slot = pipeline.validated;
            return scope.send(from, MessageBody::ReplicationVal { pipeline: id, slot });
        }
        // Slots follow each other, and those up to `validated` are gone.
        let place = usize::try_from(slot.0 - pipeline.validated.0 - 1).unwrap_or(usize::MAX);
        if let Some(slot) = pipeline.pending.get_mut(place) {
            slot.acknowledged.insert(from);
        }
    }

    /// Validates slots in order, as far as all their followers have acknowledged. Their rows are valid now, where their
    /// version is still that slot's (rule Z15). Returns the granules that they had read or written.
    pub(crate) fn validate(
        &mut self,
        scope: &mut Scope<'_>,
        validated: &mut Vec<Validated>,
    ) -> BTreeSet<GranuleId> {
        let mut left = BTreeSet::new();
        for at in 0..self.workers.len() {
            let mut told = BTreeSet::new();
            while let Some(slot) = self.workers[at].take_acknowledged(scope) {
                for writes in &slot.inv.writes {
                    scope.rows.validate(&writes.granule, &writes.rows, slot.inv.version());
                }
                let worker = WorkerId(at as u32);
                slot.touched.iter().for_each(|granule| self.leave(granule, worker));
                left.extend(slot.touched);
                told.extend(&slot.inv.followers);
                let tags = std::iter::once(slot.tag).chain(slot.readers);
                let slot = slot.inv.slot;
                validated.extend(tags.map(|tag| Validated { worker, slot, tag }));
            }
            let pipeline = &self.workers[at];
            let id = Pipelines::id(scope, WorkerId(at as u32));
            if let (false, Some(id)) = (told.is_empty(), id) {
                // Followers of later slots only have to know that they may apply them.
                let mut followers: Vec<_> =
                    pipeline.pending.iter().map(|slot| &slot.inv.followers).collect();
                followers.dedup();
                told.extend(followers.into_iter().flatten());
                let body = MessageBody::ReplicationVal { pipeline: id, slot: pipeline.validated };
                scope.send_to_all(told, &body);
            }
        }
        let until = scope.now + scope.options.favour;
        for granule in &left {
            let touching = self.touched.get(granule).into_iter().flatten();
            self.turns.settle(granule, touching.map(|(worker, _)| *worker), until);
        }
        left
    }

    /// One more pending slot of the worker touches the granule.
    pub(super) fn touch(&mut self, granule: &GranuleId, worker: WorkerId) {
        let counts = self.touched.get_or_insert_with(granule, Vec::new);
        match counts.iter_mut().find(|(other, _)| *other == worker) {
            Some((_, count)) => *count += 1,
            None => counts.push((worker, 1)),
        }
    }

    /// A slot that touched the granule is validated.
    fn leave(&mut self, granule: &GranuleId, worker: WorkerId) {
        let counts = self.touched.get_mut(granule).expect("a pending slot is counted");
        let at = counts.iter().position(|(other, _)| *other == worker).expect("it is counted");
        counts[at].1 -= 1;
        if counts[at].1 == 0 {
            counts.swap_remove(at);
        }
        if counts.is_empty() {
            self.touched.remove(granule);
        }
    }

    /// Sends again what was not acknowledged in time, and ends turns that were not taken.
    pub(crate) fn repeat(&mut self, scope: &mut Scope<'_>) {
        if self.turns.end(scope.now) {
            scope.rows.wake();
        }
        for pipeline in &mut self.workers {
            let mut again = Vec::new();
            let validated = pipeline.validated;
            for slot in pipeline.pending.iter_mut().filter(|slot| slot.repeat_at <= scope.now) {
                slot.repeat_at = scope.now + slot.repeats.advance();
                let missing: Vec<_> =
                    slot.inv.followers.difference(&slot.acknowledged).copied().collect();
                let mut inv = slot.inv.clone();
                inv.previous_validated = validated.next() == inv.slot;
                again.push((missing, inv));
            }
            for (missing, inv) in again {
                scope.send_to_all(missing, &MessageBody::ReplicationInv(inv));
            }
        }
    }

    /// When something has to be sent again.
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        let slots = self.workers.iter().flat_map(|pipeline| &pipeline.pending);
        slots.map(|slot| slot.repeat_at).chain(self.turns.due()).min()
    }

    /// In a new epoch: the dead follow nothing, and what is pending is sent again.
    pub(crate) fn enter_epoch(
        &mut self,
        epoch: Epoch,
        now: Time,
        is_dead: impl Fn(NodeId) -> bool,
    ) {
        let slots = self.workers.iter_mut().flat_map(|pipeline| &mut pipeline.pending);
        for slot in slots {
            assert!(slot.inv.pipeline.coordinator.since <= epoch, "Z10: a slot of a later epoch");
            slot.inv.followers.retain(|follower| !is_dead(*follower));
            slot.repeat_at = now;
            slot.repeats.reset();
        }
    }
}

impl Pipeline {
    /// The `ReplicationInv` as it is sent now.
    fn to_send(&self, inv: &ReplicationInv) -> ReplicationInv {
        ReplicationInv { previous_validated: self.validated.next() == inv.slot, ..inv.clone() }
    }

    /// The oldest pending slot, if all its followers have acknowledged; it is validated now.
    fn take_acknowledged(&mut self, scope: &Scope<'_>) -> Option<PendingSlot> {
        let oldest = self.pending.front()?;
        let is_first =
            scope.has(ZeusPlantedBug::FirstAckValidates) && !oldest.acknowledged.is_empty();
        if !oldest.inv.followers.is_subset(&oldest.acknowledged) && !is_first {
            return None;
        }
        let slot = self.pending.pop_front()?;
        assert_eq!(slot.inv.slot, self.validated.next(), "Z6: slots are validated in order");
        self.validated = slot.inv.slot;
        Some(slot)
    }
}
