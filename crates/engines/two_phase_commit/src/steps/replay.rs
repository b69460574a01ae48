//! Replay of what streams have committed, on followers, and on a leader that takes over (rules P2 and P4).

use crate::observation::TwoPhaseCommitObservation;
use crate::{FIRST_EPOCH, TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::execution::session_pool::SessionPool;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::StreamWrite;
use shoal_replication::replay::replay;
use shoal_replication::replay_budget::bytes_of;
use shoal_store::Change;
use shoal_types::Stamp;
use std::rc::Rc;

impl TwoPhaseCommit {
    /// Applies what the streams have committed, as far as no other worker holds a lock.
    pub(crate) fn replay_active(&mut self, effects: &mut TwoPhaseCommitEffects) {
        let faults = self.shared.setup.options.limits.faults;
        let worker = self.runtime.worker_context.place.worker;
        let mut from = 0;
        while let Some(at) = self.streams.next_active(from) {
            from = at + 1;
            let (replica, stream) = (&self.shared.replicas[at], &mut self.streams[at]);
            if !stream.replay().is_due() {
                continue;
            }
            let operations = &mut self.runtime.counters.operations;
            let observations = &mut effects.observations;
            let inherited = stream.greatest_inherited();
            let applied = stream.advance(|sessions, (transaction, clock), writes| {
                let stamp = Stamp::local(FIRST_EPOCH, clock);
                let before = observations.as_ref().map_or(0, Vec::len);
                if !self.budget.take(bytes_of(writes)) {
                    return 0;
                }
                let floor = replica.floor();
                let replayed = writes.iter().map(|write| write.borrowed().replayed(stamp.as_ref()));
                let observed = observations.as_mut();
                let unapplied = replay(replica, Some(&floor), sessions, replayed, faults, observed);
                // Behind a delta that waits for its base all is applied once more.
                let done = unapplied.applied(writes.len());
                if done == 0 {
                    self.budget.give_back();
                }
                if clock <= inherited
                    && let Some(observations) = &mut *observations
                {
                    let value = |write: &StreamWrite| value_of(sessions, write);
                    observe_inherited(transaction, writes, value, before, observations);
                }
                *operations += done as u64;
                done
            });
            replica.progress(worker, applied);
        }
    }
}

/// The value that a write which was just applied has given its row; `None` for a tombstone.
fn value_of(sessions: &Rc<SessionPool>, write: &StreamWrite) -> Option<Vec<u8>> {
    match &write.change {
        Change::Delete => None,
        Change::Row(value) => Some(value.to_vec()),
        Change::Delta(_) => {
            let mut session = sessions.take().expect("it was applied with one");
            let transaction = session.begin();
            let row = transaction.get_where(write.table, &write.key, |_| true);
            // The table may be dropped by now.
            row.ok().flatten().and_then(|row| row.value.map(<[u8]>::to_vec))
        }
    }
}

/// A node has applied what a leader had committed, itself or its predecessor, and perhaps never installed: shows it as its own.
fn observe_inherited(
    transaction: TransactionId,
    writes: &[StreamWrite],
    value: impl Fn(&StreamWrite) -> Option<Vec<u8>>,
    before: usize,
    observations: &mut Vec<TwoPhaseCommitObservation>,
) {
    let mut installed = Vec::new();
    for observation in &observations[before..] {
        let TwoPhaseCommitObservation::Applied { shard, stamp, table, key, won } = observation
        else {
            continue;
        };
        if installed.is_empty() {
            let (shard, clock) = (*shard, stamp.clock);
            installed.push(TwoPhaseCommitObservation::Recovered { transaction, shard, clock });
        }
        let write =
            writes.iter().rfind(|write| (write.table, &write.key[..]) == (*table, &key[..]));
        if let (true, Some(write)) = (*won, write) {
            installed.push(TwoPhaseCommitObservation::Installed {
                transaction,
                shard: *shard,
                stamp: stamp.clone(),
                table: *table,
                key: key.clone(),
                value: value(write),
                is_inherited: true,
            });
        }
    }
    if let Some(TwoPhaseCommitObservation::Recovered { transaction, shard, clock }) =
        installed.first()
    {
        let (transaction, shard, clock) = (*transaction, *shard, *clock);
        installed.push(TwoPhaseCommitObservation::Resolved {
            transaction,
            shard,
            clock,
            installed: true,
        });
    }
    observations.extend(installed);
}
