//! How tasks and what they ask for take turns within a step, in every engine.

use super::desk::{Desk, Envelope, TURN};
use super::hub::Ask;
use crate::engine::{Effect, Effects};
use types::Time;

/// How many rounds of tasks and what they ask for one step makes before others get their turn.
const ROUNDS_MAX: u32 = 64;

/// The owner of a desk: a worker of an engine.
pub(crate) trait Clerk {
    /// What it says to others.
    type Message: Envelope;

    /// The desk.
    fn desk(&mut self) -> &mut Desk<Self::Message>;

    /// Does what a task asks for, or begins to.
    fn answer(&mut self, ask: Ask, effects: &mut Effects<Self::Message>);

    /// Lets go on who waits for something else than an answer, before each round.
    fn release(&mut self, _effects: &mut Effects<Self::Message>) {}

    /// Lets tasks and waiting requests go on, as far as they can now.
    fn run(&mut self, now: Time, effects: &mut Effects<Self::Message>) {
        self.desk().repeat(now, effects);
        for _ in 0..ROUNDS_MAX {
            self.release(effects);
            self.desk().begin_round(now);
            let mut moved = self.answer_all(effects);
            // What a task asks for is done before the next one runs. So a transaction on own shards commits before
            // another one reads, and they do not conflict.
            while self.desk().tasks.poll_next() {
                moved = true;
                self.answer_all(effects);
            }
            if !moved {
                return;
            }
        }
        effects.push(Effect::Timer { at: now + TURN });
    }

    /// Answers all that is asked. Says whether there was anything.
    fn answer_all(&mut self, effects: &mut Effects<Self::Message>) -> bool {
        let mut any = false;
        while let Some(ask) = self.desk().next_ask(effects) {
            any = true;
            self.answer(ask, effects);
        }
        any
    }
}
