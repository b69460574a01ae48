//! A branch on its way through certification, in as many steps as its size takes: its reads are gathered, its writes
//! locked, its reads validated. One that is short takes one call for each.

use super::session_pool::{PooledSession, StoreBranch};
use super::worker_context::WorkerContext;
use shoal_store::{Locked, Locking, Size};
use shoal_types::Result;

/// How far a branch has come in its certification.
pub struct StagedCertification {
    /// How far it has come.
    pub stage: CertificationStage,
    /// The place of the next read to be gathered; `None` when all are.
    pub gathers: Option<usize>,
    /// The place of the next read to be validated; `None` when all are.
    validates: Option<usize>,
}

/// How far a branch has come.
pub enum CertificationStage {
    /// The branch has no lock.
    Reading(StoreBranch),
    /// The branch has some of its locks.
    Locking(Locking<PooledSession>),
    /// The branch has all of its locks.
    Locked(Locked<PooledSession>),
}

impl StagedCertification {
    /// A branch that has executed. Its first so many reads are gathered.
    pub fn reading(branch: StoreBranch, gathered: usize) -> StagedCertification {
        StagedCertification {
            stage: CertificationStage::Reading(branch),
            gathers: Some(gathered),
            validates: Some(0),
        }
    }

    /// A branch that holds its locks, and whose reads are gathered.
    pub fn locked(locked: Locked<PooledSession>) -> StagedCertification {
        StagedCertification {
            stage: CertificationStage::Locked(locked),
            gathers: None,
            validates: Some(0),
        }
    }

    /// Does it change anything?
    pub fn is_read_only(&self) -> bool {
        match &self.stage {
            CertificationStage::Reading(branch) => branch.is_read_only(),
            CertificationStage::Locking(_) | CertificationStage::Locked(_) => false,
        }
    }

    /// What it holds, if that is all of its locks.
    pub fn into_locked(self) -> Option<Locked<PooledSession>> {
        match self.stage {
            CertificationStage::Locked(locked) => Some(locked),
            CertificationStage::Reading(_) | CertificationStage::Locking(_) => None,
        }
    }

    /// Does it hold all of its locks?
    pub fn is_locked(&self) -> bool {
        matches!(self.stage, CertificationStage::Locked(_))
    }

    /// Takes its locks, as many as a step may. It has all when the stage says so.
    ///
    /// # Errors
    /// A conflict where another holds one.
    pub fn lock_some(self, worker_context: &WorkerContext) -> Result<StagedCertification> {
        let StagedCertification { stage, gathers, validates } = self;
        let most = worker_context.limits.step_keys_max;
        let mut locking = match stage {
            CertificationStage::Reading(branch) => {
                worker_context.worked(branch.size().writes.min(most));
                branch.locking()
            }
            CertificationStage::Locking(locking) => {
                worker_context.worked(most);
                locking
            }
            CertificationStage::Locked(_) => {
                return Ok(StagedCertification { stage, gathers, validates });
            }
        };
        let stage = match locking.lock_some(most)? {
            true => CertificationStage::Locked(locking.locked()),
            false => CertificationStage::Locking(locking),
        };
        Ok(StagedCertification { stage, gathers, validates })
    }

    /// Validates its reads, as many as a step may. Says whether those were the last.
    ///
    /// # Errors
    /// The conflict that was found.
    pub fn validate_some(&mut self, worker_context: &WorkerContext) -> Result<bool> {
        let Some(from) = self.validates else { return Ok(true) };
        let most = worker_context.step_reads_max();
        let (Size { reads, .. }, next) = match &self.stage {
            CertificationStage::Reading(branch) => {
                (branch.size(), branch.validate_some(from, most)?)
            }
            CertificationStage::Locked(locked) => {
                (locked.size(), locked.validate_some(from, most)?)
            }
            CertificationStage::Locking(_) => unreachable!("what is validated has its locks"),
        };
        worker_context.looked_at((reads - from.min(reads)).min(most));
        self.validates = next;
        Ok(next.is_none())
    }
}
