//! Installations in slices: what is committed, and too long for one step (rule P4).
//!
//! ```text
//!   committed ─► slice ─► slice ─► … ─► last slice ─► clock resolved, outcome appended if it was prepared
//! ```
//! A lease must not run out behind a step. What is installed is committed, and the rest stays locked until its
//! turn: a transaction that meets some versions of before and some of after gives up. The clock is in flight until the last
//! slice: so the safe clock of the stream is below it, and with that what counts as applied here (P5, P10). A leader
//! that lays its lead down installs the rest at once: its store must have what its stream has committed.

use super::leader_log::RecordWaiter;
use super::sliced_work::Installing;
use super::{FIRST_EPOCH, TwoPhaseCommit, TwoPhaseCommitEffects};
use crate::observation::TwoPhaseCommitObservation;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::Locked;
use shoal_types::{Clock, Stamp};
use std::collections::VecDeque;

impl TwoPhaseCommit {
    /// Installs what is committed, and releases its locks; or begins to. If it was prepared, its outcome follows, for which
    /// `outcome` waits.
    pub(super) fn install(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: Locked<PooledSession>,
        clock: Clock,
        outcome: Option<RecordWaiter>,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let installing = Installing { at, transaction, locked, clock, outcome, next: 0 };
        let most = self.options().limits.step_keys_max;
        // A short one has nothing to wait for.
        if let Some(rest) = self.install_some(installing, most, effects) {
            self.installing.push_back(rest);
        }
    }

    /// Goes on with what is installed in slices, by one slice.
    pub(super) fn install_more(&mut self, effects: &mut TwoPhaseCommitEffects) {
        let Some(installing) = self.installing.pop_front() else { return };
        let most = self.options().limits.step_keys_max;
        if let Some(rest) = self.install_some(installing, most, effects) {
            self.installing.push_front(rest);
        }
    }

    /// This node is about to lay down the lead of the shard at this place: what is committed there is installed first.
    pub(super) fn install_rest(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let (own, others): (VecDeque<_>, _) =
            std::mem::take(&mut self.installing).into_iter().partition(|it| it.at == at);
        self.installing = others;
        for it in own {
            let rest = self.install_some(it, usize::MAX, effects);
            assert!(rest.is_none(), "P4: a committed transaction is left half installed");
        }
    }

    /// Installs the next `most` writes. Gives back what is left, unless those were the last.
    fn install_some(
        &mut self,
        mut installing: Installing,
        most: usize,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Option<Installing> {
        let Installing { at, transaction, ref mut locked, clock, outcome, ref mut next } =
            installing;
        let (shard, stamp) = (self.leader_logs[at].lead.shard, Stamp::local(FIRST_EPOCH, clock));
        let (from, writes) = (*next, locked.size().writes);
        *next = writes.min(from.saturating_add(most));
        if let Some(observations) = &mut effects.observations {
            let mut left = *next - from;
            locked.writes_from(from, |table, key, value| {
                observations.push(TwoPhaseCommitObservation::Installed {
                    transaction,
                    shard,
                    stamp: stamp.clone(),
                    table,
                    key: key.to_vec(),
                    value: value.map(<[u8]>::to_vec),
                });
                left -= 1;
                left > 0
            });
        }
        self.runtime.worker_context.worked(*next - from);
        // What is installed is committed, and so is all that was before it.
        locked.install_until(*next, stamp.as_ref(), |_| true);
        if *next < writes {
            return Some(installing);
        }
        drop(installing);
        self.leader_logs[at].lead.end_in_flight(clock);
        effects.observe(|| TwoPhaseCommitObservation::Resolved {
            transaction,
            shard,
            clock,
            installed: true,
        });
        if let Some(waiter) = outcome {
            self.prepared_replays[at].note_installed(transaction);
            self.append_outcome(at, transaction, true, Some(waiter));
        }
        None
    }
}
