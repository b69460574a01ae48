//! A shard as a follower's worker sees it: what is prepared waits for its outcome (rule P5).
//!
//! A record is applied as soon as its stream has decided it. Streams of other workers are replayed
//! beside this one, so on one key the greatest clock wins, and a tombstone stays until nothing older
//! can arrive: until every worker has replayed its stream up to a safe clock beyond it.

use super::record::{CommitRecord, RecordEntry};
use shoal_engine::execution::session_pool::SessionPool;
use shoal_engine::replication::codec::StreamWrite;
use shoal_engine::replication::replica::ShardReplica;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Clock, ShardId};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// See the module.
pub(super) struct PreparedReplay {
    pub(super) shard: ShardId,
    pub(super) sessions: Rc<SessionPool>,
    /// What is prepared, and not known to be committed.
    prepared: BTreeMap<TransactionId, (Clock, Vec<StreamWrite>)>,
    /// The first writes of what is not prepared or committed yet.
    parts: BTreeMap<TransactionId, Vec<StreamWrite>>,
    /// The clocks of what is prepared.
    clocks: BTreeSet<Clock>,
    /// The safe clock of the last entry.
    safe: Clock,
}

impl PreparedReplay {
    pub(super) fn new(replica: &ShardReplica) -> PreparedReplay {
        PreparedReplay {
            shard: replica.shard,
            sessions: SessionPool::new(replica.store.clone(), usize::MAX),
            prepared: BTreeMap::new(),
            parts: BTreeMap::new(),
            clocks: BTreeSet::new(),
            safe: Clock::ZERO,
        }
    }

    /// Takes the next entry of the stream, and gives what is to be applied to `apply`.
    pub(super) fn enter(
        &mut self,
        entry: RecordEntry,
        mut apply: impl FnMut(Clock, Vec<StreamWrite>),
    ) {
        for (transaction, record) in entry.records {
            match record {
                CommitRecord::Part { writes } => {
                    self.parts.entry(transaction).or_default().extend(writes);
                }
                CommitRecord::Prepare { clock, home: _, writes } => {
                    let writes = self.whole(transaction, writes);
                    self.clocks.insert(clock);
                    let before = self.prepared.insert(transaction, (clock, writes));
                    assert!(before.is_none(), "{transaction} was prepared twice on {}", self.shard);
                }
                CommitRecord::Commit { clock, participants: _, writes } => {
                    apply(clock, self.whole(transaction, writes));
                }
                CommitRecord::Committed => {
                    let (clock, writes) = self.take(transaction);
                    apply(clock, writes);
                }
                CommitRecord::Aborted => drop(self.take(transaction)),
            }
        }
        let PreparedReplay { shard, clocks, safe, .. } = self;
        assert!(entry.safe >= *safe, "P5: the safe clock of {shard} went back");
        assert!(
            clocks.first().is_none_or(|first| *first > entry.safe),
            "P5: {} is called safe on {shard}, and what became of it is not known",
            entry.safe
        );
        *safe = entry.safe;
    }

    /// All writes of a transaction, of which these are the last.
    fn whole(&mut self, transaction: TransactionId, last: Vec<StreamWrite>) -> Vec<StreamWrite> {
        let Some(mut writes) = self.parts.remove(&transaction) else { return last };
        writes.extend(last);
        writes
    }

    fn take(&mut self, transaction: TransactionId) -> (Clock, Vec<StreamWrite>) {
        let prepared = self.prepared.remove(&transaction);
        let Some((clock, writes)) = prepared else {
            panic!("{transaction} was not prepared on {}", self.shard);
        };
        self.clocks.remove(&clock);
        (clock, writes)
    }

    /// Everything of this stream up to here has been replayed.
    pub(super) fn applied(&self) -> Clock {
        self.safe
    }

    /// How many transactions wait for their outcome.
    pub(super) fn pending(&self) -> usize {
        self.prepared.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_cluster::topology::{Partitioning, Topology};
    use shoal_engine::execution::Limits;
    use shoal_types::{Epoch, NodeId, TableId, WorkerId};

    fn followed() -> PreparedReplay {
        let topology = Topology::symmetric(1, 1, 1, 0, 1)
            .with_tables([("t", Partitioning::Hash { prefix_bytes: 0 })])
            .expect("a valid topology");
        PreparedReplay::new(
            &ShardReplica::all(&topology, NodeId(0), Epoch(1), &Limits::default())[0],
        )
    }

    fn id(sequence: u64) -> TransactionId {
        TransactionId { node: NodeId(1), worker: WorkerId(0), sequence }
    }

    fn prepare(number: u64) -> (TransactionId, CommitRecord) {
        let write = StreamWrite { table: TableId(0), key: Bytes::from("key"), value: None };
        let (clock, home) = (Clock(number), ShardId(0));
        (id(number), CommitRecord::Prepare { clock, home, writes: vec![write] })
    }

    fn enter(
        followed: &mut PreparedReplay,
        safe: u64,
        records: Vec<(TransactionId, CommitRecord)>,
    ) -> Vec<u64> {
        let mut applied = Vec::new();
        let entry = RecordEntry { epoch: Epoch(1), safe: Clock(safe), records };
        followed.enter(entry, |clock, writes| {
            assert_eq!(writes.len(), 1);
            applied.push(clock.0);
        });
        applied
    }

    #[test]
    fn what_is_prepared_waits_for_its_outcome() {
        let mut followed = followed();
        let prepared = vec![prepare(5), prepare(6), prepare(7)];
        assert_eq!(enter(&mut followed, 4, prepared), [0; 0]);
        assert_eq!(enter(&mut followed, 4, vec![(id(7), CommitRecord::Committed)]), [7]);
        assert_eq!(enter(&mut followed, 5, vec![(id(5), CommitRecord::Aborted)]), [0; 0]);
        assert_eq!((followed.applied(), followed.pending()), (Clock(5), 1));
        assert_eq!(enter(&mut followed, 9, vec![(id(6), CommitRecord::Committed)]), [6]);
        assert_eq!((followed.applied(), followed.pending()), (Clock(9), 0));
    }

    #[test]
    #[should_panic(expected = "P5")]
    fn what_is_prepared_is_above_the_safe_clock() {
        enter(&mut followed(), 5, vec![prepare(5)]);
    }
}
