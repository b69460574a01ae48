//! A prepared branch without a coordinator, as the leader of its shard keeps it (rule P7).

use super::branch_writes::BranchWrites;
use super::message::DecisionHome;
use super::prepared_replay::PreparedBranch;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_store::Locked;
use shoal_types::{Clock, Time};

/// A prepared branch whose outcome is not known here.
pub(super) struct InDoubt {
    pub(super) clock: Clock,
    pub(super) home: DecisionHome,
    /// What it writes, where a former leader has prepared it.
    pub(super) writes: BranchWrites,
    /// `None` until its turn comes, where a former leader has prepared it.
    pub(super) locked: Option<Locked<PooledSession>>,
    /// The decision, once it is known.
    pub(super) committed: Option<bool>,
    /// When to ask next.
    pub(super) ask_at: Time,
}

impl InDoubt {
    /// A branch that this leader has prepared itself.
    pub(super) fn left(locked: Locked<PooledSession>, clock: Clock, home: DecisionHome) -> InDoubt {
        let (writes, locked, ask_at) = (BranchWrites::default(), Some(locked), Time::ZERO);
        InDoubt { clock, home, writes, locked, committed: None, ask_at }
    }

    /// A branch that a former leader has prepared.
    pub(super) fn recovered(branch: &PreparedBranch) -> InDoubt {
        let PreparedBranch { clock, home, ref writes, is_installed } = *branch;
        let writes = if is_installed { BranchWrites::default() } else { writes.clone() };
        let ask_at = Time::ZERO;
        InDoubt { clock, home, writes, locked: None, committed: None, ask_at }
    }
}
