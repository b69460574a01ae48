//! Agreement by the clocks (ε mode, §6 of the paper): where the clocks of all nodes differ by less than ε, waiting until one of
//! them is past t + ε replaces the `Ready` of the others.
//!
//! ```text
//!   all have proposed at most t ──► this clock is past t + ε ──► released
//!                                     └ so all clocks are past t: no leader accepts, and no follower votes for, less than t
//! ```
//! What `Ready` promises holds without a message, since in this mode a leader accepts nothing below its own clock, and a follower
//! holds a transaction to be late that is. A node whose clock may be wrong by more than ε/2 accepts, votes for and releases
//! nothing, and does not renew its lease, so another one leads (rule T12).
//!
//! Two things remain that a clock does not say: what participants have read for each other, and whether a call has an outcome
//! already. So procedures that are `Whole` and certificates are agreed on as without this mode, and of a call that its home
//! decides about (rule T10) the others wait for the `Ready` of that home.
//!
//! As printed, a leader releases what another has raised (hole 6): here the proposals of all participants are there first, under
//! current ballots, and none is above t. A proposal does not change under its ballot, and a recovery keeps what it has a proposal
//! for only at that timestamp.

use crate::planted_bugs::TigaPlantedBug;
use crate::replica::Replica;
use crate::step::Step;
use crate::transaction::{Body, Transaction, Work};
use shoal_types::{ShardId, Time};

/// Whether other participants wait until this one says that it is `Ready`; otherwise until the clock says so.
pub(crate) fn is_ready_awaited(step: &Step<'_>, transaction: &Transaction, of: ShardId) -> bool {
    let Body::Pieces { call } = &transaction.body else { return true };
    let home = call.request.as_ref().filter(|it| it.mark.is_some()).map(|it| it.home);
    step.options.epsilon.is_none() || home == Some(of)
}

/// From when on no participant accepts anything below `t` any more, on this clock.
pub(crate) fn past_everywhere(step: &Step<'_>, t: Time) -> Time {
    let is_small = step.options.bugs.has(TigaPlantedBug::SmallEpsilon);
    let epsilon = step.options.epsilon.filter(|_| !is_small).unwrap_or_default();
    Time((t + epsilon).0 + 1)
}

impl Replica {
    /// The least timestamp at which this replica accepts a transaction now: above all that conflicts (rule T1) and, in this mode,
    /// ahead of its clock.
    pub(crate) fn least_accepted(&self, step: &Step<'_>, work: &Work) -> Time {
        let counts_reads = !step.options.bugs.has(TigaPlantedBug::IgnoreReadTimestamps);
        let above = Time(self.conflicts.greatest(&work.locks, counts_reads).0 + 1);
        match step.options.epsilon {
            Some(_) => above.max(Time(step.clock.0 + 1)),
            None => above,
        }
    }
}
