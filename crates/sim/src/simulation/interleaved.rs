//! Another worker of a node acts in the midst of a worker's step, as threads do (see [`engines::interleave`]).
//!
//! ```text
//!   worker 0   step ──────────┐ point ┌────────── effects
//!   worker 1                  └─ step ┘
//! ```
//! What is due for the other worker soon is taken from the queue and happens at the first point that the step reaches;
//! if it reaches none, it is due as before. What the other worker lets be seen lies among the observations of the step,
//! at its place.

use super::{Item, Simulation};
use crate::cluster::Cluster;
use crate::violation::Violation;
use engines::interleave::{at_next_point, take_back};
use engines::{Engine, Observation, Place};
use node::{Effect, Effects, Event, Worker};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use types::{Time, WorkerId};

/// What is due for the other worker within this may happen in the midst of a step,
const WINDOW_NS: u64 = 200_000;

/// so many events at most.
const EVENTS_MAX: usize = 4;

/// The other worker, while a step is under way.
pub(super) struct Other<E: Engine> {
    seat: usize,
    script: Rc<RefCell<Script<E>>>,
}

/// What is to happen to it.
struct Script<E: Engine> {
    worker: Worker<E>,
    /// When each is due, in true time and on the node's clock.
    items: Vec<(Time, Time, Item<E::Message>)>,
    done: Option<Done<E>>,
}

/// What it did.
struct Done<E: Engine> {
    effects: Vec<(Time, Vec<Effect<E::Message>>)>,
    /// Its observations among those of the step.
    seen: Range<usize>,
}

impl<E: Engine> Script<E> {
    fn act(&mut self, observations: &mut Option<Vec<Observation>>) {
        let first = observations.as_ref().map_or(0, Vec::len);
        let mut wanted = Effects { effects: Vec::new(), observations: observations.take() };
        let mut effects = Vec::new();
        for (due, local, item) in self.items.drain(..) {
            self.worker.step(local, event(item), &mut wanted);
            effects.push((due, std::mem::take(&mut wanted.effects)));
        }
        *observations = wanted.observations;
        let end = observations.as_ref().map_or(0, Vec::len);
        self.done = Some(Done { effects, seen: first..end });
    }
}

/// What an item is to the worker that it is for.
fn event<M>(item: Item<M>) -> Event<M> {
    match item {
        Item::Message { from, message, .. } => Event::Received { from, message },
        Item::Request { from, request, .. } => Event::Client { from, request },
        Item::Nudge { .. } => Event::Nudged,
        Item::Timer { .. } => Event::Timer,
        Item::ToNode { message, .. } => Event::Told { message },
        _ => unreachable!("it is not for a worker"),
    }
}

/// Is it an event for this worker, which is to happen at `at`?
fn is_for<E: Engine>(cluster: &Cluster<E>, seat: usize, at: Time, item: &Item<E::Message>) -> bool {
    let state = &cluster.seats[seat];
    match item {
        Item::Message { seat: to, .. } | Item::Nudge { seat: to } => *to as usize == seat,
        Item::Request { seat: to, life, .. } => {
            *to as usize == seat && cluster.lives[state.place.node.0 as usize] == *life
        }
        Item::Timer { seat: to } => *to as usize == seat && state.timer_at == at,
        Item::ToNode { node, .. } => state.place == Place { node: *node, worker: WorkerId(0) },
        _ => false,
    }
}

impl<E: Engine + 'static> Simulation<E> {
    /// Perhaps another worker of the node acts in the midst of the step that this one is about to take.
    pub(super) fn interleave(&mut self, seat: usize) -> Option<Other<E>> {
        let percent = self.weather.map_or(0, |weather| weather.interleaved_percent);
        let workers = self.cluster.workers;
        if percent == 0 || workers < 2 || self.random.below(100) >= u64::from(percent) {
            return None;
        }
        let place = self.cluster.seats[seat].place;
        let ahead = 1 + self.random.below(workers as u64 - 1) as u32;
        let worker = WorkerId((place.worker.0 + ahead) % workers as u32);
        let other = self.cluster.seat_of(Place { worker, ..place });
        let state = &self.cluster.seats[other];
        let is_free = state.busy_until <= self.now && state.inbox.is_empty() && state.has_begun;
        if state.worker.is_none() || !is_free {
            return None;
        }
        let (mut items, until) = (Vec::new(), Time(self.now.0 + WINDOW_NS));
        while items.len() < EVENTS_MAX {
            let cluster = &self.cluster;
            let fits = |at: Time, item: &Item<E::Message>| is_for(cluster, other, at, item);
            let Some((due, item)) = self.queue.take_where(until, fits) else { break };
            let local = self.cluster.clocks[place.node.0 as usize].local(due);
            items.push((due, local, item));
        }
        if items.is_empty() {
            return None;
        }
        let worker = self.cluster.seats[other].worker.take().expect("it lives");
        let script = Rc::new(RefCell::new(Script { worker, items, done: None }));
        let acts = Rc::clone(&script);
        at_next_point(Box::new(move |observations| acts.borrow_mut().act(observations)));
        Some(Other { seat: other, script })
    }

    /// The step is over, in which the other worker may have acted. Says where its observations are, and puts it back.
    pub(super) fn end_interleaving(&mut self, other: Other<E>) -> Option<Acted<E>> {
        drop(take_back());
        let Other { seat, script } = other;
        let script = Rc::into_inner(script).expect("what was to happen has, or was taken back");
        let Script { worker, items, done } = script.into_inner();
        self.cluster.seats[seat].worker = Some(worker);
        let Some(Done { effects, seen }) = done else {
            for (due, _, item) in items {
                self.queue.push(due, item);
            }
            return None;
        };
        let last = effects.last().map_or(self.now, |(due, _)| *due);
        let state = &mut self.cluster.seats[seat];
        state.busy_until = state.busy_until.max(last);
        // It has looked around; and a timer that it still wants is asked for again.
        state.nudged = false;
        if state.timer_at <= last {
            (state.timer_at, state.timer_local) = (Time::MAX, Time::MAX);
        }
        self.work.interleaved += 1;
        self.digest.word(last.0);
        Some(Acted { seat, effects, seen })
    }

    /// What the other worker's steps want done.
    pub(super) fn take_others_effect(&mut self, acted: Acted<E>) -> Result<(), Violation> {
        for (due, effects) in acted.effects {
            let own = std::mem::replace(&mut self.effects.effects, effects);
            let judged =
                self.judge_replies(acted.seat).and_then(|()| self.take_effect(acted.seat, due));
            self.effects.effects = own;
            judged?;
        }
        Ok(())
    }
}

/// Another worker has acted in the midst of a step.
pub(super) struct Acted<E: Engine> {
    /// Which.
    pub(super) seat: usize,
    effects: Vec<(Time, Vec<Effect<E::Message>>)>,
    /// Its observations among those of the step.
    pub(super) seen: Range<usize>,
}
