//! What a `Ready` promises of a shard's order when its leader is lost (rule T23).
//!
//! ```text
//!   1  T: Y is ready, X releases it. Y's followers lack T
//!   2  A: behind T on X, committed
//!   3  B: begins on Y, below T. Y's followers vote for it, Y's leader is lost
//!   4  Y imports T. With B in front of it: B, T, A, but A had ended before B began
//! ```
//! The lost leader had promised to release nothing below T, so B is not committed. But what it had released in front of T before it
//! promised may be, by votes alone. So a `Ready` names what its leader has released in front of the transaction, that conflicts
//! with it and is not decided, and the records of other shards keep those names. A recovery that imports the transaction keeps in
//! front of it what is named there and nothing else: all else that may be committed is in the adopted log. Where the clocks stand for
//! a `Ready` (`clock_agreement.rs`), nothing like B is voted for: when T was released, all clocks were past its timestamp.

use crate::clock_agreement::is_ready_awaited;
use crate::locks::LockIndex;
use crate::planted_bugs::TigaPlantedBug;
use crate::queue::{Origin, Waiting};
use crate::record::{Candidate, Promise, Record};
use crate::replica::Replica;
use crate::step::Step;
use crate::transaction::Work;
use shoal_engine::TransactionId;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Replica {
    /// What the participants have named in front of a transaction that is released, this one too: another leader that imports it from
    /// this record may have to answer when this one is lost.
    pub(crate) fn promises(&self, waiting: &Waiting) -> Vec<Promise> {
        let Waiting { work, origin, readies, own, .. } = waiting;
        if let Origin::Imported(record) = origin {
            return record.promises.clone();
        }
        let promise = |shard| {
            let readiness = if shard == self.shard { own.as_ref() } else { readies.get(&shard) };
            let in_front = readiness?.in_front.clone();
            (!in_front.is_empty()).then_some(Promise { shard, in_front })
        };
        work.transaction.parts.iter().map(|part| part.shard).filter_map(promise).collect()
    }

    /// Whether a candidate would stand in front of an imported transaction with which it conflicts, and which was released on the
    /// promise that nothing like it would (rules T18 and T23).
    pub(crate) fn is_excluded(
        &self,
        step: &Step<'_>,
        candidate: &Candidate,
        imports: &BTreeMap<TransactionId, Arc<Record>>,
    ) -> bool {
        let Some(work) = Work::new(&candidate.transaction, self.shard) else { return true };
        let mut index = LockIndex::default();
        index.add(candidate.stamp(), &work.locks);
        let keeps = step.options.bugs.has(TigaPlantedBug::KeepInFront);
        imports.values().any(|record| {
            let other = Work::new(&record.transaction, self.shard);
            record.stamp() > candidate.stamp()
                && is_ready_awaited(step, &record.transaction, self.shard)
                && (!keeps || record.transaction.exchanges())
                && other.is_some_and(|other| index.rivals(&other.locks).next().is_some())
                && !record.names(self.shard, candidate.stamp())
        })
    }
}
