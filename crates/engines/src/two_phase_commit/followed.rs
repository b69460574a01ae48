//! A shard as a follower's worker sees it: what is prepared waits for its outcome (rule P5).
//!
//! A record is applied as soon as its stream has decided it. Streams of other workers are replayed
//! beside this one, so on one key the greatest clock wins, and a tombstone stays until nothing older
//! can arrive: until every worker has replayed its stream up to a safe clock beyond it.

use super::record::{Entry, Record};
use crate::execution::sessions::Sessions;
use crate::replication::codec::Write;
use crate::replication::replica::Replica;
use crate::transaction_id::TransactionId;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use types::{Clock, ShardId};

/// See the module.
pub(super) struct Followed {
    pub(super) shard: ShardId,
    pub(super) sessions: Rc<Sessions>,
    /// What is prepared, and not known to be committed.
    prepared: BTreeMap<TransactionId, (Clock, Vec<Write>)>,
    /// The clocks of that.
    clocks: BTreeSet<Clock>,
    /// The safe clock of the last entry.
    safe: Clock,
}

impl Followed {
    pub(super) fn new(replica: &Replica) -> Followed {
        Followed {
            shard: replica.shard,
            sessions: Sessions::new(replica.store.clone()),
            prepared: BTreeMap::new(),
            clocks: BTreeSet::new(),
            safe: Clock::ZERO,
        }
    }

    /// Takes the next entry of the stream, and gives what is to be applied to `apply`.
    pub(super) fn enter(&mut self, entry: Entry, mut apply: impl FnMut(Clock, Vec<Write>)) {
        for (transaction, record) in entry.records {
            match record {
                Record::Prepare { clock, home: _, writes } => {
                    self.clocks.insert(clock);
                    let before = self.prepared.insert(transaction, (clock, writes));
                    assert!(before.is_none(), "{transaction} was prepared twice on {}", self.shard);
                }
                Record::Commit { clock, participants: _, writes } => apply(clock, writes),
                Record::Committed => {
                    let (clock, writes) = self.take(transaction);
                    apply(clock, writes);
                }
                Record::Aborted => drop(self.take(transaction)),
            }
        }
        let Followed { shard, clocks, safe, .. } = self;
        assert!(entry.safe >= *safe, "P5: the safe clock of {shard} went back");
        assert!(
            clocks.first().is_none_or(|first| *first > entry.safe),
            "P5: {} is called safe on {shard}, and what became of it is not known",
            entry.safe
        );
        *safe = entry.safe;
    }

    fn take(&mut self, transaction: TransactionId) -> (Clock, Vec<Write>) {
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
