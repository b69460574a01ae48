//! How tasks and what they ask for take turns within a step, in every engine.

use super::limits::TURN;
use super::runtime::{Runtime, RuntimeMessage};
use super::worker_context::EngineRequest;
use crate::events::{EngineEffect, EngineEffects};
use shoal_types::Time;

/// How many rounds of tasks and what they ask for one step makes before others get their turn.
const ROUNDS_MAX: u32 = 64;

/// The owner of a runtime: a worker of an engine.
pub trait TaskDriver {
    /// What it says to others.
    type Message: RuntimeMessage;

    /// What it lets a checker see.
    type Observation;

    /// The runtime that the driver belongs to.
    fn runtime(&mut self) -> &mut Runtime<Self::Message>;

    /// Does what a task asks for, or begins to.
    fn answer(
        &mut self,
        ask: EngineRequest,
        effects: &mut EngineEffects<Self::Message, Self::Observation>,
    );

    /// Wakes what waits for something else than an answer, before each round.
    fn release(&mut self, _effects: &mut EngineEffects<Self::Message, Self::Observation>) {}

    /// Lets tasks and waiting requests go on, as far as they can now.
    fn run(&mut self, now: Time, effects: &mut EngineEffects<Self::Message, Self::Observation>) {
        self.runtime().repeat(now, effects);
        for _ in 0..ROUNDS_MAX {
            self.release(effects);
            self.runtime().begin_round(now);
            let mut moved = self.answer_all(effects);
            // What a task asks for is done before the next one runs. So a transaction on own shards commits before
            // another one reads, and they do not conflict.
            while self.runtime().tasks.poll_next() {
                moved = true;
                self.answer_all(effects);
            }
            if !moved {
                return;
            }
        }
        effects.push(EngineEffect::Timer { at: now + TURN });
    }

    /// Answers all that is asked. Says whether there was anything.
    fn answer_all(
        &mut self,
        effects: &mut EngineEffects<Self::Message, Self::Observation>,
    ) -> bool {
        let mut any = false;
        while let Some(ask) = self.runtime().next_ask(effects) {
            any = true;
            self.answer(ask, effects);
        }
        any
    }
}
