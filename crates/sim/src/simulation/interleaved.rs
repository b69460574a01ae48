//! Another worker of a node acts within a worker's step, as threads do (see [`shoal_engine::interleave`]).
//!
//! ```text
//!   worker 0   step ──────────┐ point ┌────────── effects
//!   worker 1                  └─ step ┘
//! ```
//! Events that are due soon for the other worker are taken from the queue and happen at the first
//! interleaving point that the step reaches; if it reaches none, they stay due as before. The other worker's
//! observations are inserted among those of the step, in order.

use super::{Simulation, SimulationEvent};
use crate::cluster::SimulatedCluster;
use crate::observed::Simulated;
use crate::violation::Violation;
use shoal_engine::interleave::{at_next_point, take_back};
use shoal_engine::{Engine, WorkerPlace};
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent};
use shoal_types::{EventTimes, Time, WorkerId};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Events of the other worker that are due within this time may happen within a step.
const WINDOW_NS: u64 = 200_000;

/// The most events of the other worker within one step.
const EVENTS_MAX: usize = 4;

/// The other worker, while a step is under way.
pub(super) struct OtherWorker<E: Engine> {
    simulated_worker: usize,
    script: Rc<RefCell<OtherScript<E>>>,
}

/// The events that the other worker takes.
struct OtherScript<E: Engine> {
    worker: Worker<E>,
    items: Vec<OtherItem<E::Message>>,
    done: Option<OtherDone<E>>,
}

/// An event that is due for the other worker.
struct OtherItem<M> {
    /// When it is due, in true time.
    due: Time,
    /// The same time on the node's clock.
    local: Time,
    /// The same on its transaction clock, if it has one.
    times: Option<EventTimes>,
    event: SimulationEvent<M>,
}

/// What the other worker has done.
struct OtherDone<E: Engine> {
    effects: Vec<(Time, Vec<WorkerEffect<E::Message>>)>,
    /// The range of its observations among those of the step.
    seen: Range<usize>,
}

impl<E: Engine> OtherScript<E> {
    fn act(&mut self, observations: &mut Option<Vec<E::Observation>>) {
        let first = observations.as_ref().map_or(0, Vec::len);
        let mut wanted = WorkerEffects { effects: Vec::new(), observations: observations.take() };
        let mut effects = Vec::new();
        for OtherItem { due, local, times, event: item } in self.items.drain(..) {
            times.into_iter().for_each(|times| self.worker.set_times(times));
            self.worker.step(local, event(item), &mut wanted);
            effects.push((due, std::mem::take(&mut wanted.effects)));
        }
        *observations = wanted.observations;
        let end = observations.as_ref().map_or(0, Vec::len);
        self.done = Some(OtherDone { effects, seen: first..end });
    }
}

/// The worker event of an item that is for a worker.
fn event<M>(item: SimulationEvent<M>) -> WorkerEvent<M> {
    match item {
        SimulationEvent::Message { from, message, .. } => WorkerEvent::Received { from, message },
        SimulationEvent::Request { request, .. } => WorkerEvent::Client(request),
        SimulationEvent::Nudge { .. } => WorkerEvent::Nudged,
        SimulationEvent::Timer { .. } => WorkerEvent::Timer,
        SimulationEvent::ToNode { message, .. } => WorkerEvent::FromManager { message },
        _ => unreachable!("it is not for a worker"),
    }
}

/// Whether the item is an event for this worker that may happen at `at`.
fn is_for<E: Engine>(
    cluster: &SimulatedCluster<E>,
    simulated_worker: usize,
    at: Time,
    item: &SimulationEvent<E::Message>,
) -> bool {
    let state = &cluster.simulated_workers[simulated_worker];
    match item {
        SimulationEvent::Message { simulated_worker: to, instance, .. } => {
            let current = cluster.instances[state.place.node.0 as usize];
            *to as usize == simulated_worker && instance.is_none_or(|instance| instance == current)
        }
        SimulationEvent::Nudge { simulated_worker: to } => *to as usize == simulated_worker,
        SimulationEvent::Request { simulated_worker: to, instance, .. } => {
            *to as usize == simulated_worker
                && cluster.instances[state.place.node.0 as usize] == *instance
        }
        SimulationEvent::Timer { simulated_worker: to } => {
            *to as usize == simulated_worker && state.timer_at == at
        }
        SimulationEvent::ToNode { node, .. } => {
            state.place == WorkerPlace { node: *node, worker: WorkerId(0) }
        }
        _ => false,
    }
}

impl<E: Simulated> Simulation<E> {
    /// Draws how long the current step pauses before its messages are sent.
    pub(super) fn interruption(&mut self) -> Duration {
        let Some(fault_schedule) = self.fault_schedule.filter(|it| it.interrupted_ppm > 0) else {
            return Duration::ZERO;
        };
        if self.random.below(1_000_000) >= u64::from(fault_schedule.interrupted_ppm) {
            return Duration::ZERO;
        }
        self.work.interrupted += 1;
        Duration::from_nanos(self.random.below(fault_schedule.longest_ns.max(1)))
    }

    /// Draws whether another worker of the node acts within the step that this worker is about to take.
    pub(super) fn interleave(&mut self, simulated_worker: usize) -> Option<OtherWorker<E>> {
        let percent =
            self.fault_schedule.map_or(0, |fault_schedule| fault_schedule.interleaved_percent);
        let workers = self.cluster.workers;
        if percent == 0 || workers < 2 || self.random.below(100) >= u64::from(percent) {
            return None;
        }
        let place = self.cluster.simulated_workers[simulated_worker].place;
        let ahead = 1 + self.random.below(workers as u64 - 1) as u32;
        let worker = WorkerId((place.worker.0 + ahead) % workers as u32);
        let other = self.cluster.worker_at(WorkerPlace { worker, ..place });
        let state = &self.cluster.simulated_workers[other];
        let is_free = state.busy_until <= self.now && state.inbox.is_empty() && state.has_begun;
        if state.worker.is_none() || !is_free {
            return None;
        }
        let (mut items, until) = (Vec::new(), Time(self.now.0 + WINDOW_NS));
        while items.len() < EVENTS_MAX {
            let cluster = &self.cluster;
            let fits =
                |at: Time, item: &SimulationEvent<E::Message>| is_for(cluster, other, at, item);
            let Some((due, item)) = self.queue.take_where(until, fits) else { break };
            let local = self.cluster.clocks[place.node.0 as usize].local(due);
            let times = self.cluster.event_times(place.node, due, due);
            items.push(OtherItem { due, local, times, event: item });
        }
        if items.is_empty() {
            return None;
        }
        let worker = self.cluster.simulated_workers[other].worker.take().expect("it lives");
        let script = Rc::new(RefCell::new(OtherScript { worker, items, done: None }));
        let acts = Rc::clone(&script);
        at_next_point(Box::new(move |observations| {
            let observations = observations.downcast_mut();
            acts.borrow_mut().act(observations.expect("workers of a cluster run the same engine"));
        }));
        Some(OtherWorker { simulated_worker: other, script })
    }

    /// The step in which the other worker may have acted has ended. Puts that worker back, and returns what
    /// it has done.
    pub(super) fn end_interleaving(&mut self, other: OtherWorker<E>) -> Option<OtherActed<E>> {
        drop(take_back());
        let OtherWorker { simulated_worker, script } = other;
        let script = Rc::into_inner(script).expect("what was to happen has, or was taken back");
        let OtherScript { worker, items, done } = script.into_inner();
        self.cluster.simulated_workers[simulated_worker].worker = Some(worker);
        let Some(OtherDone { effects, seen }) = done else {
            for OtherItem { due, event, .. } in items {
                self.queue.push(due, event);
            }
            return None;
        };
        let last = effects.last().map_or(self.now, |(due, _)| *due);
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        state.busy_until = state.busy_until.max(last);
        // The other worker has checked for work, and sets its timer again if it still needs it.
        state.nudged = false;
        if state.timer_at <= last {
            (state.timer_at, state.timer_local) = (Time::MAX, Time::MAX);
        }
        self.work.interleaved += 1;
        self.digest.word(last.0);
        Some(OtherActed { simulated_worker, effects, seen })
    }

    /// Applies the effects of the other worker's steps.
    pub(super) fn take_others_effect(&mut self, acted: OtherActed<E>) -> Result<(), Violation> {
        for (due, effects) in acted.effects {
            let own = std::mem::replace(&mut self.effects.effects, effects);
            let judged = self
                .judge_replies(acted.simulated_worker)
                .and_then(|()| self.take_effect(acted.simulated_worker, due));
            self.effects.effects = own;
            judged?;
        }
        self.await_persistence(acted.simulated_worker);
        Ok(())
    }
}

/// Another worker has acted within a step.
pub(super) struct OtherActed<E: Engine> {
    /// The place of that worker in the cluster's list.
    pub(super) simulated_worker: usize,
    effects: Vec<(Time, Vec<WorkerEffect<E::Message>>)>,
    /// The range of its observations among those of the step.
    pub(super) seen: Range<usize>,
}
