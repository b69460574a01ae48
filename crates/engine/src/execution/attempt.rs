//! What is kept of an attempt of a transaction until it is answered.
//!
//! It is a plain value. It goes from the transaction to the engine with the commit, or, where the attempt touches other
//! shards, is a part of its [`RemoteBranches`](super::remote_branches::RemoteBranches) from the first such operation on.

use super::admission::AdmissionTimes;
use super::slot_pool::SlotUse;
use super::stage_times::StageMarks;
use crate::transaction_id::TransactionId;
use shoal_types::{Epoch, Time};
use std::cell::Cell;

/// An attempt of a transaction.
#[derive(Debug)]
pub struct Attempt {
    /// The id of this attempt of the transaction.
    pub id: TransactionId,
    /// The epoch that was open when the transaction began.
    pub epoch: Epoch,
    /// The times at which the transaction reached its stages.
    pub marks: StageMarks,
    /// Whether it is a client's, which makes the next attempt at another node after [`Aborted::Moved`].
    ///
    /// [`Aborted::Moved`]: shoal_types::Aborted::Moved
    pub may_move: bool,
    pub(crate) times: AdmissionTimes,
    /// Where the outcome is waited for, once the body is done.
    pub(crate) outcome: Cell<Option<SlotUse>>,
}

impl Attempt {
    /// When the transaction asked to be let in, which all its attempts have in common.
    pub fn asked_at(&self) -> Time {
        self.times.asked
    }
}

#[cfg(test)]
impl Attempt {
    /// One that began at this time.
    pub(crate) fn begun(id: TransactionId, epoch: Epoch, now: Time) -> Attempt {
        Attempt {
            id,
            epoch,
            marks: StageMarks::begin(now, true),
            may_move: false,
            times: AdmissionTimes { asked: now, entered: now },
            outcome: Cell::new(None),
        }
    }
}
