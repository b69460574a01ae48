//! Installations in slices: what is committed, and too long for one step (rule P4).
//!
//! ```text
//!   committed ─► slice ─► slice ─► … ─► last slice ─► clock resolved, outcome appended if it was prepared
//! ```
//! A lease must not run out behind a step. What is installed is committed, and the rest stays locked until its
//! turn: a transaction that meets some versions of before and some of after gives up. The clock is in flight until the last
//! slice: so the safe clock of the stream is below it, and with that what counts as applied here (P5, P10). A leader
//! that lays its lead down installs the rest at once: its store must have what its stream has committed.

use crate::leader_log::RecordWaiter;
use crate::observation::TwoPhaseCommitObservation;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use crate::sliced_work::Installing;
use crate::{FIRST_EPOCH, TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::{Locked, LockedWrite};
use shoal_types::{Clock, Stamp};

impl TwoPhaseCommit {
    /// Installs what is committed, and releases its locks; or begins to. If it was prepared, its outcome follows, for which
    /// `outcome` waits.
    pub(crate) fn install(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: Locked<PooledSession>,
        clock: Clock,
        outcome: Option<RecordWaiter>,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let (next, in_doubt) = (0, None);
        let most = self.options().limits.step_keys_max;
        self.begin_to_install(
            Installing { at, transaction, locked, clock, outcome, next, in_doubt },
            most,
            effects,
        );
    }

    /// Installs `most` writes, and keeps the rest for later steps. Of a branch in doubt (`in_doubt`), streams of other
    /// workers may have gone further than that of its outcome.
    pub(crate) fn begin_to_install(
        &mut self,
        installing: Installing,
        most: usize,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        // A short one has nothing to wait for.
        if let Some(rest) = self.install_some(installing, most, effects) {
            self.sliced.install_later(rest);
        }
    }

    /// Goes on with what is installed in slices, by one slice.
    pub(crate) fn install_more(&mut self, effects: &mut TwoPhaseCommitEffects) {
        let Some(installing) = self.sliced.next_installing() else { return };
        let most = self.options().limits.step_keys_max;
        if let Some(rest) = self.install_some(installing, most, effects) {
            self.sliced.install_next(rest);
        }
    }

    /// This node is about to lay down the lead of the shard at this place: what is committed there is installed first.
    pub(crate) fn install_rest(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        for it in self.sliced.take_installing(at) {
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
        let (from, writes) = (installing.next, installing.locked.size().writes);
        installing.next = writes.min(from.saturating_add(most));
        self.runtime.worker_context.worked(installing.next - from);
        match installing.in_doubt {
            Some(_) => self.install_newer(&mut installing, from, effects),
            None => self.install_committed(&mut installing, from, effects),
        }
        if installing.next < writes {
            return Some(installing);
        }
        let Installing { at, transaction, locked, clock, outcome, in_doubt, .. } = installing;
        drop(locked);
        self.streams[at].end_in_flight(clock);
        let shard = self.streams[at].shard();
        effects.observe(|| TwoPhaseCommitObservation::Resolved {
            transaction,
            shard,
            clock,
            installed: true,
        });
        self.streams[at].installed(transaction, outcome.is_some());
        if outcome.is_some() {
            self.append_outcome(at, transaction, true, outcome);
        }
        if let Some(writes) = in_doubt {
            self.streams[at].end_in_doubt(clock, writes);
        }
        None
    }

    /// Installs the writes from a place on up to the next one: they are newer than what is there.
    fn install_committed(
        &self,
        installing: &mut Installing,
        from: usize,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let Installing { at, transaction, ref mut locked, clock, next, .. } = *installing;
        let (shard, stamp) = (self.streams[at].shard(), Stamp::local(FIRST_EPOCH, clock));
        if let Some(observations) = &mut effects.observations {
            let mut left = next - from;
            locked.writes_from(from, |LockedWrite { table, key, value, .. }| {
                observations.push(TwoPhaseCommitObservation::Installed {
                    transaction,
                    shard,
                    stamp: stamp.clone(),
                    table,
                    key: key.to_vec(),
                    value: value.map(<[u8]>::to_vec),
                    is_inherited: false,
                });
                left -= 1;
                left > 0
            });
        }
        // What is installed is committed, and so is all that was before it.
        let forgets = self.options().faults.has(TwoPhaseCommitPlantedBug::ForgetTombstonesAtOnce);
        let removable = if forgets { Clock::MAX } else { self.shared.replicas[at].removable() };
        locked.install_committed_until(next, stamp.as_ref(), |old| old.clock <= removable);
    }

    /// Installs those of the writes from a place on up to the next one that are newer than what is there.
    fn install_newer(
        &self,
        installing: &mut Installing,
        from: usize,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let Installing { at, transaction, ref mut locked, clock, next, .. } = *installing;
        let (shard, stamp) = (self.streams[at].shard(), Stamp::local(FIRST_EPOCH, clock));
        let mut values = Vec::new();
        if effects.observations.is_some() {
            locked.writes_from(from, |write| {
                values.push(write.value.map(<[u8]>::to_vec));
                values.len() < next - from
            });
        }
        let (mut values, observations) = (values.into_iter(), &mut effects.observations);
        // The session may have replayed deletes. Before the shard is served, something older can still come in their place.
        let removable = self.shared.replicas[at].removable();
        locked.replay_until(
            next,
            stamp.as_ref(),
            |newest| newest.clock < clock,
            |tombstone| tombstone.clock <= removable,
            |table, key, won| {
                let value = values.next().flatten();
                if let Some(observations) = observations
                    && won
                {
                    let (stamp, key) = (stamp.clone(), key.to_vec());
                    observations.push(TwoPhaseCommitObservation::Installed {
                        transaction,
                        shard,
                        stamp,
                        table,
                        key,
                        value,
                        is_inherited: false,
                    });
                }
            },
        );
    }
}
