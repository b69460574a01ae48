//! A branch on its way through certification, in as many steps as its size takes: its reads are gathered, its writes
//! locked, its reads validated. One that is short takes one call for each.

use super::hub::{Branch, Hub};
use super::sessions::Pooled;
use store::{Locked, Locking, Size};
use types::Result;

/// See the module.
pub(crate) struct Staged {
    pub(crate) stage: Stage,
    /// The place of the next read to be gathered; `None` when all are.
    pub(crate) gathers: Option<usize>,
    /// The place of the next read to be validated; `None` when all are.
    validates: Option<usize>,
}

/// How far a branch has come.
pub(crate) enum Stage {
    /// It has no lock.
    Reading(Branch),
    /// It has some of its locks.
    Locking(Locking<Pooled>),
    /// It has all of its locks.
    Locked(Locked<Pooled>),
}

impl Staged {
    /// A branch that has executed. Its first so many reads are gathered.
    pub(crate) fn reading(branch: Branch, gathered: usize) -> Staged {
        Staged { stage: Stage::Reading(branch), gathers: Some(gathered), validates: Some(0) }
    }

    /// A branch that holds its locks, and whose reads are gathered.
    pub(crate) fn locked(locked: Locked<Pooled>) -> Staged {
        Staged { stage: Stage::Locked(locked), gathers: None, validates: Some(0) }
    }

    /// Does it change anything?
    pub(crate) fn is_read_only(&self) -> bool {
        match &self.stage {
            Stage::Reading(branch) => branch.is_read_only(),
            Stage::Locking(_) | Stage::Locked(_) => false,
        }
    }

    /// Has it executed and nothing else, and can all the rest be done in one step?
    pub(crate) fn is_short(&self, hub: &Hub) -> bool {
        matches!(&self.stage, Stage::Reading(branch) if hub.is_short(branch.size()))
    }

    /// The branch, if it has executed and nothing else.
    pub(crate) fn into_branch(self) -> Option<Branch> {
        match self.stage {
            Stage::Reading(branch) => Some(branch),
            Stage::Locking(_) | Stage::Locked(_) => None,
        }
    }

    /// Takes its locks, as many as a step may. It has all when the stage says so.
    ///
    /// # Errors
    /// A conflict where another holds one.
    pub(crate) fn lock_some(self, hub: &Hub) -> Result<Staged> {
        let Staged { stage, gathers, validates } = self;
        let most = hub.limits.step_keys_max;
        let mut locking = match stage {
            Stage::Reading(branch) => {
                hub.worked(branch.size().writes.min(most));
                branch.locking()
            }
            Stage::Locking(locking) => {
                hub.worked(most);
                locking
            }
            Stage::Locked(_) => return Ok(Staged { stage, gathers, validates }),
        };
        let stage = match locking.lock_some(most)? {
            true => Stage::Locked(locking.locked()),
            false => Stage::Locking(locking),
        };
        Ok(Staged { stage, gathers, validates })
    }

    /// Validates its reads, as many as a step may. Says whether those were the last.
    ///
    /// # Errors
    /// The conflict that was found.
    pub(crate) fn validate_some(&mut self, hub: &Hub) -> Result<bool> {
        let Some(from) = self.validates else { return Ok(true) };
        let most = hub.step_reads_max();
        let (Size { reads, .. }, next) = match &self.stage {
            Stage::Reading(branch) => (branch.size(), branch.validate_some(from, most)?),
            Stage::Locked(locked) => (locked.size(), locked.validate_some(from, most)?),
            Stage::Locking(_) => unreachable!("what is validated has its locks"),
        };
        hub.looked_at((reads - from.min(reads)).min(most));
        self.validates = next;
        Ok(next.is_none())
    }
}
