//! Detective agreement (§3.8 of the paper): a leader that is far from the others votes before they have agreed on a timestamp.
//!
//! ```text
//!   due, nothing before it ──► executed, voted for ──► Ready(t) of all ──► appended as it was executed
//!                                       └ agreed on a later timestamp ──► discarded; executed and voted for again there
//! ```
//! If all participants have voted at one timestamp under one set of ballots, no leader among them proposes a later one, and
//! the transaction is committed. `Ready` means the same as without, so each leader chooses alone. Only procedures in pieces are
//! voted for so: others are executed on what participants send each other with `Ready`.
//!
//! The vote binds like a follower's: the conflict tables are set first, nothing is read over it (rule T11), and once the leader
//! is none any more the vote stands in its tentative list (E11). Where votes are on disk, leaders agree first (`vote_log.rs`).

use crate::observation::TigaObservation;
use crate::planted_bugs::TigaPlantedBug;
use crate::queue::{OptimisticVote, Origin, Waiting};
use crate::record::{Record, others};
use crate::replica::Replica;
use crate::stamp::Stamp;
use crate::step::Step;
use crate::tentative::Tentative;
use crate::transaction::Body;
use shoal_engine::TransactionId;
use shoal_types::{Ballot, NodeId};
use std::sync::Arc;

impl Replica {
    /// Whether this leader votes for a transaction before the others have agreed with it. What a recovery has left is agreed
    /// on first.
    fn is_voted_optimistically(
        &self,
        step: &Step<'_>,
        waiting: &Waiting,
        ballots: &[Ballot],
    ) -> bool {
        let transaction = &waiting.work.transaction;
        let named = transaction.parts.iter().map(|part| &part.ballot);
        let Some(leading) = &self.leading else { return false };
        let from = i64::try_from(step.options.detective_from.as_nanos()).unwrap_or(i64::MAX);
        let is_far = |shard| leading.distances.get(&shard).is_some_and(|ns| *ns >= from);
        // All that it votes for may stand in a list, which one message holds.
        self.queue.voted_bytes() < step.options.window_bytes
            && !step.is_recorded
            && matches!(waiting.origin, Origin::Accepted)
            && !transaction.by_log
            && matches!(transaction.body, Body::Pieces { .. })
            && named.eq(ballots)
            && others(transaction, self.shard).any(is_far)
    }

    /// Executes the transaction at the head of its queue and votes for it, if leaders are so far apart, and unless it has.
    pub(crate) fn vote_optimistically(
        &mut self,
        step: &mut Step<'_>,
        stamp: Stamp,
        ballots: &[Ballot],
    ) {
        let Some((_, waiting)) = self.queue.get(stamp.id) else { return };
        let keeps = step.options.bugs.has(TigaPlantedBug::KeepRevoked);
        let has_voted = |voted: &OptimisticVote| voted.record.t == stamp.t || keeps;
        if !self.is_voted_optimistically(step, waiting, ballots)
            || waiting.voted.as_ref().is_some_and(has_voted)
        {
            return;
        }
        self.counters.discarded += u64::from(waiting.voted.is_some());
        self.conflicts.note(&waiting.work.locks, stamp.t);
        let (record, history) = self.execute(step, stamp, waiting, ballots.to_vec());
        let (record, times) = (Arc::new(record), waiting.times);
        let ballot = self.leading.as_ref().map(|leading| leading.ballot).unwrap_or_default();
        let shard = self.shard;
        step.observe(|| {
            let record = Arc::clone(&record);
            TigaObservation::VotedOptimistically { shard, ballot, record }
        });
        self.vote(step, &record, false, times);
        self.counters.optimistic += 1;
        self.queue.vote(stamp.id, OptimisticVote { record, history });
    }

    /// What this leader has voted for and releases now. A vote at another timestamp leaves nothing (rule T3).
    pub(crate) fn take_vote(
        &mut self,
        step: &Step<'_>,
        stamp: Stamp,
        waiting: &mut Waiting,
    ) -> Option<OptimisticVote> {
        let voted = waiting.voted.take()?;
        if voted.record.t == stamp.t {
            return Some(voted);
        }
        self.counters.discarded += 1;
        let keeps = step.options.bugs.has(TigaPlantedBug::KeepRevoked);
        let record = |record: &Record| Arc::new(Record { t: stamp.t, ..Record::clone(record) });
        keeps.then(|| OptimisticVote { record: record(&voted.record), ..voted })
    }

    /// The coordinator asks again for what this leader may have voted for.
    pub(crate) fn repeat_vote(&mut self, step: &mut Step<'_>, from: NodeId, id: TransactionId) {
        let Some((_, waiting)) = self.queue.get(id).filter(|_| from == id.node) else { return };
        if let Some(record) = waiting.voted.as_ref().map(|voted| Arc::clone(&voted.record)) {
            self.vote(step, &record, false, Default::default());
        }
    }

    /// Empties the queue of a leadership that ends. The votes that may have committed something stay in the tentative list, as a
    /// follower has them.
    pub(crate) fn clear_queue(&mut self) {
        for (stamp, waiting) in self.queue.iter() {
            let Waiting { work, voted: Some(OptimisticVote { record, history }), times, .. } =
                waiting
            else {
                continue;
            };
            if record.t == stamp.t {
                let (work, history, times) = (work.clone(), history.clone(), *times);
                self.tentative.insert(Tentative::new(stamp, work, history, true, times));
            }
        }
        self.queue.clear();
    }
}
