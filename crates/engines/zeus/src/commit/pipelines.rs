//! The slots of this node's workers that are committed locally, until they are validated.
//!
//! A worker has several pipelines. A follower that does not follow a slot waits with the next one until it knows the slot to be
//! validated (rule Z6), so in one pipeline slots whose followers differ would be a round trip apart. Those with the same followers
//! share a pipeline. Invariant: no two pipelines have pending slots that touch the same granule, so none depends on another.

use super::worker_turns::WorkerTurns;
use crate::granule::GranuleId;
use crate::granule_map::GranuleIndex;
use crate::message::{MessageBody, ReplicationInv};
use crate::ownership::PendingSlots;
use crate::planted_bugs::ZeusPlantedBug;
use crate::scope::Scope;
use crate::version::{PipelineId, Slot, WorkerPipeline};
use shoal_types::{Backoff, Clock, Epoch, NodeId, Time, WorkerId};
use std::collections::{BTreeSet, VecDeque};

/// The most pipelines of a worker. Followers keep some numbers of each for ever. Granules of one shard have the same replicas until they
/// move, and then those of few others.
const PIPELINES_MAX: usize = 16;

/// A transaction whose outcome may be revealed: it is validated, with all that it depends on (rule Z7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validated {
    /// The worker that ran it.
    pub worker: WorkerId,
    /// Its place in its pipeline.
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
    /// The name of its transaction; `None` if a former process of the node has committed it.
    pub tag: Option<u64>,
    /// The names of transactions that only read, behind it.
    pub readers: Vec<u64>,
    /// The redo record that has it.
    pub recorded: u64,
    pub repeat_at: Time,
    /// The waits until then.
    pub repeats: Backoff,
}

/// Slots that are applied and validated in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Pipeline {
    /// The slot begun last.
    pub last: Slot,
    pub last_clock: Clock,
    /// All slots up to this one are validated.
    pub validated: Slot,
    pub pending: VecDeque<PendingSlot>,
    /// Nothing has to be sent again before; `None` while no slot is pending.
    pub repeat_at: Option<Time>,
}

/// The pipelines of a node.
#[derive(Debug)]
pub struct Pipelines {
    /// Those of each worker, by their numbers.
    pub(super) workers: Vec<Vec<Pipeline>>,
    /// The pipeline whose pending slots touch a granule, and how many of them do. There is one only: slots of different pipelines
    /// do not depend on each other, since a follower may apply a later one alone.
    pub(super) touched: GranuleIndex<(WorkerPipeline, u32)>,
    pub(super) turns: WorkerTurns,
}

impl PendingSlots for Pipelines {
    fn touches(&self, granule: &GranuleId) -> bool {
        self.touching(granule).is_some()
    }

    fn writes(&self, granule: &GranuleId) -> bool {
        let slots = self.all().flat_map(|pipeline| &pipeline.pending);
        slots.flat_map(|slot| &slot.inv.writes).any(|writes| writes.granule == *granule)
    }
}

impl Pipelines {
    pub(crate) fn new(workers: u32) -> Pipelines {
        let workers = (0..workers).map(|_| vec![Pipeline::default()]).collect();
        Pipelines { workers, touched: GranuleIndex::default(), turns: WorkerTurns::default() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Pipeline> {
        self.workers.iter().flatten()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Pipeline> {
        self.workers.iter_mut().flatten()
    }

    /// # Panics
    /// If there is no such pipeline.
    pub(super) fn get(&self, of: WorkerPipeline) -> &Pipeline {
        &self.workers[of.worker.0 as usize][of.number as usize]
    }

    /// # Panics
    /// If there is no such pipeline.
    pub(super) fn get_mut(&mut self, of: WorkerPipeline) -> &mut Pipeline {
        &mut self.workers[of.worker.0 as usize][of.number as usize]
    }

    /// The pipeline of the pending slots that read or wrote the granule.
    pub(super) fn touching(&self, granule: &GranuleId) -> Option<WorkerPipeline> {
        self.touched.get(granule).map(|(of, _)| *of)
    }

    /// The pipeline for a transaction of the worker that depends on no pending slot: one whose last slot has the same followers, since
    /// another follower would have to wait until the slots before it are validated; else one without pending slots.
    pub(super) fn choose(
        &mut self,
        worker: WorkerId,
        followers: &BTreeSet<NodeId>,
    ) -> WorkerPipeline {
        let pipelines = &mut self.workers[worker.0 as usize];
        let is_alike = |pipeline: &Pipeline| {
            pipeline.pending.back().is_some_and(|last| last.inv.followers == *followers)
        };
        let is_idle = |pipeline: &Pipeline| pipeline.pending.is_empty();
        let found =
            pipelines.iter().position(is_alike).or_else(|| pipelines.iter().position(is_idle));
        let number = found.unwrap_or_else(|| {
            if pipelines.len() < PIPELINES_MAX {
                pipelines.push(Pipeline::default());
                return pipelines.len() - 1;
            }
            let pending = |number: &usize| pipelines[*number].pending.len();
            (0..pipelines.len()).min_by_key(pending).expect("each worker has one")
        });
        WorkerPipeline { worker, number: number as u32 }
    }

    /// How many slots are pending.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.all().map(|pipeline| pipeline.pending.len()).sum()
    }

    /// The live followers whose acknowledgement the oldest pending slots wait for, each once.
    #[must_use]
    pub fn stalling(&self) -> BTreeSet<NodeId> {
        let oldest = self.all().filter_map(|pipeline| pipeline.pending.front());
        oldest.flat_map(|slot| slot.inv.followers.difference(&slot.acknowledged).copied()).collect()
    }

    /// The name of a pipeline; `None` while the node is out.
    pub(super) fn id(scope: &Scope<'_>, of: WorkerPipeline) -> Option<PipelineId> {
        let coordinator = scope.view.member(scope.node)?;
        Some(PipelineId { coordinator, of })
    }

    /// Adds a slot that was committed locally, and sends it to its followers.
    pub(super) fn begin(&mut self, scope: &mut Scope<'_>, slot: PendingSlot) {
        let of = slot.inv.pipeline.of;
        slot.touched.iter().for_each(|granule| self.touch(granule, of));
        let pipeline = self.get_mut(of);
        assert_eq!(slot.inv.slot, pipeline.last.next(), "Z6: slots follow each other");
        (pipeline.last, pipeline.last_clock) = (slot.inv.slot, slot.inv.clock);
        let (followers, inv) = (slot.inv.followers.clone(), pipeline.to_send(&slot.inv));
        pipeline.repeat_at = pipeline.repeat_at.into_iter().chain([slot.repeat_at]).min();
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
        let pipelines = self.workers.get_mut(id.of.worker.0 as usize);
        let pipeline = pipelines.and_then(|pipelines| pipelines.get_mut(id.of.number as usize));
        let Some(pipeline) = pipeline else { return };
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
        let Pipelines { workers, touched, turns } = self;
        for (worker, pipelines) in (0..).map(WorkerId).zip(workers) {
            for (number, pipeline) in (0..).zip(pipelines) {
                let of = WorkerPipeline { worker, number };
                pipeline.validate(scope, of, validated, |granules| {
                    granules.iter().for_each(|granule| leave(touched, granule));
                    left.extend(granules);
                });
            }
        }
        let until = scope.now + scope.options.favour;
        for granule in &left {
            if touched.get(granule).is_none() {
                turns.settle(granule, until);
            }
        }
        left
    }

    /// One more pending slot of the pipeline touches the granule.
    pub(super) fn touch(&mut self, granule: &GranuleId, of: WorkerPipeline) {
        let (other, count) = self.touched.get_or_insert_with(granule, || (of, 0));
        assert_eq!(*other, of, "Z6: pending slots of two pipelines touch {granule}");
        *count += 1;
    }

    /// Sends again what was not acknowledged in time, and ends turns that were not taken.
    pub(crate) fn repeat(&mut self, scope: &mut Scope<'_>) {
        if self.turns.end(scope.now) {
            scope.rows.wake();
        }
        for pipeline in self.all_mut() {
            if pipeline.repeat_at.is_none_or(|at| at > scope.now) {
                continue;
            }
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
            pipeline.repeat_at = pipeline.pending.iter().map(|slot| slot.repeat_at).min();
            for (missing, inv) in again {
                scope.send_to_all(missing, &MessageBody::ReplicationInv(inv));
            }
        }
    }

    /// When something has to be sent again.
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        let repeats = self.all().filter_map(|pipeline| pipeline.repeat_at);
        repeats.chain(self.turns.due()).min()
    }

    /// In a new epoch: the dead follow nothing, and what is pending is sent again.
    pub(crate) fn enter_epoch(
        &mut self,
        epoch: Epoch,
        now: Time,
        is_dead: impl Fn(NodeId) -> bool,
    ) {
        for pipeline in self.all_mut() {
            for slot in &mut pipeline.pending {
                let since = slot.inv.pipeline.coordinator.since;
                assert!(since <= epoch, "Z10: a slot of a later epoch");
                slot.inv.followers.retain(|follower| !is_dead(*follower));
                slot.repeat_at = now;
                slot.repeats.reset();
            }
            pipeline.repeat_at = (!pipeline.pending.is_empty()).then_some(now);
        }
    }
}

/// A slot that touched the granule is validated.
pub(super) fn leave(touched: &mut GranuleIndex<(WorkerPipeline, u32)>, granule: &GranuleId) {
    let (_, count) = touched.get_mut(granule).expect("a pending slot is counted");
    *count -= 1;
    if *count == 0 {
        touched.remove(granule);
    }
}

impl Pipeline {
    /// The `ReplicationInv` as it is sent now.
    fn to_send(&self, inv: &ReplicationInv) -> ReplicationInv {
        ReplicationInv { previous_validated: self.validated.next() == inv.slot, ..inv.clone() }
    }

    /// Validates slots in order, and notifies the followers. `left` receives the granules that each had touched.
    fn validate(
        &mut self,
        scope: &mut Scope<'_>,
        of: WorkerPipeline,
        validated: &mut Vec<Validated>,
        mut left: impl FnMut(BTreeSet<GranuleId>),
    ) {
        let (mut followers, before) = (BTreeSet::new(), self.validated);
        while let Some(slot) = self.take_acknowledged(scope) {
            for writes in &slot.inv.writes {
                scope.rows.validate(&writes.granule, &writes.rows, slot.inv.version());
            }
            left(slot.touched);
            followers.extend(&slot.inv.followers);
            let tags = slot.tag.into_iter().chain(slot.readers);
            let (worker, slot) = (of.worker, slot.inv.slot);
            validated.extend(tags.map(|tag| Validated { worker, slot, tag }));
        }
        let id = Pipelines::id(scope, of);
        if let Some(id) = id.filter(|_| self.validated > before) {
            scope.redo.validate(id, self.validated);
        }
        if let (false, Some(id)) = (followers.is_empty(), id) {
            // Followers of later slots only have to know that they may apply them.
            let mut later: Vec<_> = self.pending.iter().map(|slot| &slot.inv.followers).collect();
            later.dedup();
            followers.extend(later.into_iter().flatten());
            let body = MessageBody::ReplicationVal { pipeline: id, slot: self.validated };
            scope.send_to_all(followers, &body);
        }
    }

    /// The oldest pending slot, if all its followers have acknowledged; it is validated now.
    fn take_acknowledged(&mut self, scope: &Scope<'_>) -> Option<PendingSlot> {
        let oldest = self.pending.front()?;
        let is_first =
            scope.has(ZeusPlantedBug::FirstAckValidates) && !oldest.acknowledged.is_empty();
        let is_everywhere = oldest.inv.followers.is_subset(&oldest.acknowledged) || is_first;
        // Without followers nothing else says that it survives a restart.
        if !is_everywhere || !scope.redo.is_durable(oldest.recorded) {
            return None;
        }
        let slot = self.pending.pop_front()?;
        assert_eq!(slot.inv.slot, self.validated.next(), "Z6: slots are validated in order");
        self.validated = slot.inv.slot;
        self.repeat_at = self.repeat_at.filter(|_| !self.pending.is_empty());
        Some(slot)
    }
}
