//! What was rolled back leaves the stores: in the background here, and whenever it is met (design
//! §5, "Failure").
//!
//! Each worker of a node makes its own pass over a shard that the node has led, once the shard has ended an
//! epoch that lost something: by then it installs nothing of that any more, and the last worker's pass
//! finds all that any of them had installed. It makes another whenever a further shard has ended that epoch: no pass waits
//! until the epoch is settled, which never happens while a shard is lost (rule M12). A replica that took a copy makes
//! passes, too: it rolls back like any other (rule M10).

use shoal_store::RollBack;
use shoal_types::Time;
use std::time::Duration;

/// The pause before the next part.
const PAUSE: Duration = Duration::from_micros(200);

/// The pause before the next part where locks were in the way.
pub(super) const LOCKED_PAUSE: Duration = Duration::from_millis(2);

/// A pass over a store.
pub(super) struct RollbackCollection {
    /// The place of the shard.
    pub(super) at: usize,
    pub(super) cursor: RollBack,
    due: Time,
    /// More is to be swept since it began: another follows.
    again: bool,
}

impl RollbackCollection {
    /// The collection cannot go on now.
    pub(super) fn put_off(&mut self, now: Time) {
        self.due = now + LOCKED_PAUSE;
    }
}

/// The passes of a worker.
///
/// Invariant: there is at most one over each shard.
#[derive(Default)]
pub(super) struct RollbackCollections {
    passes: Vec<RollbackCollection>,
}

impl RollbackCollections {
    /// How many passes are under way.
    pub(super) fn len(&self) -> usize {
        self.passes.len()
    }

    /// When to go on with one.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.passes.iter().map(|pass| pass.due).min()
    }

    /// Begins a pass over the shard at this place, where that `is_swept`.
    pub(super) fn begin(&mut self, at: usize, is_swept: bool, now: Time) {
        match self.passes.iter_mut().find(|pass| pass.at == at) {
            // One that begins anew whenever something ends may never come to its own end.
            Some(pass) => pass.again = is_swept,
            None if is_swept => {
                let cursor = RollBack::default();
                self.passes.push(RollbackCollection { at, cursor, due: now, again: false });
            }
            None => {}
        }
    }

    /// The one that is due and has waited longest: each shard has its turn.
    pub(super) fn next(&mut self, now: Time) -> Option<&mut RollbackCollection> {
        let due = self.passes.iter_mut().filter(|pass| pass.due <= now);
        due.min_by_key(|pass| pass.due)
    }

    /// A pass over the shard at this place has come so far; `over` says that locks were in the way.
    pub(super) fn advance(&mut self, at: usize, next: Option<RollBack>, over: bool, now: Time) {
        let pass = self.passes.iter_mut().find(|pass| pass.at == at).expect("it is under way");
        match next {
            Some(next) => {
                pass.cursor = next;
                pass.due = now + if over { LOCKED_PAUSE } else { PAUSE };
            }
            None if pass.again => {
                (pass.cursor, pass.again) = (RollBack::default(), false);
                pass.due = now + PAUSE;
            }
            None => self.passes.retain(|pass| pass.at != at),
        }
    }

    /// Ends the pass over the shard at this place.
    pub(super) fn forget(&mut self, at: usize) {
        self.passes.retain(|pass| pass.at != at);
    }

    /// Asserts the invariant above.
    pub(super) fn assert_invariants(&self) {
        for (place, pass) in self.passes.iter().enumerate() {
            let is_twice = self.passes[..place].iter().any(|other| other.at == pass.at);
            assert!(!is_twice, "two passes are made over the shard at {}", pass.at);
        }
    }
}
