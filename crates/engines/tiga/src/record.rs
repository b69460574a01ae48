//! Entries of a shard's log: released transactions, and the records of recoveries.

use crate::digest::Digest;
use crate::part_reads::PartReads;
use crate::stamp::Stamp;
use crate::transaction::{
    Body, FIXED_BYTES, KeyAccess, PREDECESSOR_BYTES, Part, Predecessor, ROW_BYTES, Transaction,
    value_bytes,
};
use bytes::Bytes;
use shoal_engine::TransactionId;
use shoal_types::wire::Coded;
use shoal_types::{Ballot, Error, NodeId, ShardId, TableId, Time};
use std::sync::Arc;

/// The bytes of an error in an entry, at most.
const ERROR_BYTES: usize = 256;

/// A row that is written.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Write {
    /// The table of the key.
    #[coded(short)]
    pub table: TableId,
    /// The key that is written.
    pub key: Bytes,
    /// The value; `None` deletes.
    pub value: Option<Bytes>,
}

/// What a participant has named with its `Ready` (rule T23).
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Promise {
    /// The participant.
    #[coded(short)]
    pub shard: ShardId,
    /// What stood there in front of the transaction, conflicted with it, and was not decided. Named by stamps: what is kept by a
    /// recovery is executed again, and what its digest covers may have been dropped meanwhile.
    pub in_front: Vec<Stamp>,
}

/// A released transaction.
#[derive(Debug, Clone, PartialEq, Coded)]
pub struct Record {
    /// The timestamp, on which all participants agree.
    pub t: Time,
    /// What it rests on in this log.
    pub digest: Digest,
    /// The ballots of all participants under which it was released, in the order of its parts (rule T16).
    pub ballots: Vec<Ballot>,
    /// What it returned on this shard, or why it had no effect.
    pub outcome: Result<Bytes, Error>,
    /// What a procedure wrote on this shard. What is certified stands in the transaction.
    pub procedure_writes: Vec<Write>,
    /// What a procedure of shape `Whole` has read on each participant, in the order of the parts; empty if one of them could
    /// not say it, and for all else.
    pub exchanged: Vec<PartReads>,
    /// What participants have named in front of it, those that have named something (rule T23).
    pub promises: Vec<Promise>,
    /// The transaction, whole, so that another participant can import it from here.
    pub transaction: Arc<Transaction>,
}

impl Record {
    /// Where it stands in the order of conflicting ones.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp { t: self.t, id: self.id() }
    }

    /// Its bytes in an entry, at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let written = self.procedure_writes.iter();
        let written =
            written.map(|write| write.key.len() + value_bytes(&write.value)).sum::<usize>();
        let read = self.exchanged.iter().map(PartReads::bytes).sum::<usize>();
        let returned = self.outcome.as_ref().map_or(ERROR_BYTES, Bytes::len);
        let named =
            self.promises.iter().map(|it| ROW_BYTES + it.in_front.len() * PREDECESSOR_BYTES);
        let fixed = FIXED_BYTES + self.ballots.len() * ROW_BYTES + named.sum::<usize>();
        self.transaction.bytes() + written + read + returned + fixed
    }

    /// The name of the transaction.
    #[must_use]
    pub fn id(&self) -> TransactionId {
        self.transaction.id
    }

    /// Whether the leader of a shard has said that this stands in front of it there.
    #[must_use]
    pub fn names(&self, shard: ShardId, stamp: Stamp) -> bool {
        let mut of_shard = self.promises.iter().filter(|promise| promise.shard == shard);
        of_shard.any(|promise| promise.in_front.contains(&stamp))
    }

    /// What the shard at this place has contributed, as far as others need it.
    ///
    /// # Errors
    /// That for which it had no effect.
    pub fn contribution(&self, place: usize) -> Result<PartReads, Error> {
        match self.exchanged.get(place) {
            Some(reads) => Ok(reads.clone()),
            None => self.outcome.clone().map(|_| PartReads::default()),
        }
    }

    /// What it wrote on the shard of this part.
    #[must_use]
    pub fn writes(&self, part: &Part) -> Vec<Write> {
        match (&self.transaction.body, &self.outcome) {
            (Body::Pieces { .. } | Body::Whole { .. }, _) => self.procedure_writes.clone(),
            (Body::Certify, Err(_)) => Vec::new(),
            (Body::Certify, Ok(_)) => {
                let written = part.writes.iter().zip(&part.certificate.values);
                let write = |(access, value): (&KeyAccess, &Option<Bytes>)| Write {
                    table: access.table,
                    key: access.key.clone(),
                    value: value.clone(),
                };
                written.map(write).collect()
            }
        }
    }
}

/// A transaction that may have been committed by votes, and is not in the log.
#[derive(Debug, Clone, PartialEq, Coded)]
pub struct Candidate {
    /// The timestamp at which it was voted for.
    pub t: Time,
    /// What those votes said that it rests on.
    pub digest: Digest,
    /// What of that was not decided where it was voted for.
    pub predecessors: Vec<Predecessor>,
    /// What was voted for.
    pub transaction: Arc<Transaction>,
}

impl Candidate {
    /// Where it stands in the order of conflicting ones.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp { t: self.t, id: self.transaction.id }
    }
}

/// A transaction that a shard does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct Refusal {
    /// The name of the transaction.
    pub id: TransactionId,
    /// Older ones of its coordinator are over, as the transaction says; 0 where only its name is known.
    #[coded(short)]
    pub oldest: u64,
    /// No replica of the shard has voted for it at a later timestamp.
    pub t: Time,
}

/// An entry of a shard's log.
#[derive(Debug, Clone, PartialEq, Coded)]
pub enum Entry {
    /// Transactions that the leader has released, in this order.
    #[coded(tag = 0)]
    Batch {
        /// The transactions.
        records: Vec<Arc<Record>>,
        /// All that the leader will ever release at or below this is in the log up to here (rule T15).
        seal: Time,
        /// Transactions of several shards that all participants have in decided entries.
        settled: Vec<TransactionId>,
        /// Transactions that the shard never takes (rule T21).
        refused: Vec<Refusal>,
    },
    /// A leader has adopted the log up to here; these candidates it has collected (rule T17).
    #[coded(tag = 1)]
    Start {
        /// The ballot of the leader.
        ballot: Ballot,
        /// What may have been committed.
        candidates: Vec<Candidate>,
    },
    /// A leader has ended its recovery: votes may be given under its ballot (rule T17).
    #[coded(tag = 2)]
    Final {
        /// The ballot of the leader.
        ballot: Ballot,
        /// Whose votes count under it.
        voters: Vec<NodeId>,
        /// What it releases at these timestamps.
        kept: Vec<Candidate>,
    },
}

/// What another shard knows of a transaction, for a recovery.
#[derive(Debug, Clone, PartialEq, Coded)]
pub enum Item {
    /// The transaction is released there, or was imported: its timestamp is agreed.
    #[coded(tag = 0)]
    Agreed {
        /// The record of the shard that answers; outcome and writes are that shard's.
        record: Arc<Record>,
    },
    /// The transaction waits there, at this timestamp.
    #[coded(tag = 1)]
    Waiting {
        /// Where it stands.
        stamp: Stamp,
    },
}

impl Item {
    /// About its bytes in a message.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Item::Agreed { record } => record.bytes(),
            Item::Waiting { .. } => size_of::<Stamp>(),
        }
    }
}

/// How far the recovery of a ballot is, by the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct Base {
    /// The ballot of the last start or final record.
    pub ballot: Ballot,
    /// Whether it is a final one.
    pub is_final: bool,
    /// Whose votes count under a final one: another configuration may have other voters.
    pub voters: Vec<NodeId>,
}

/// What a voter gives to a new leader: what it has voted for and does not know decided.
#[derive(Debug, Clone, PartialEq, Default, Coded)]
pub struct TentativeList {
    /// The ballot under which it has voted.
    pub base: Ballot,
    /// What it has voted for, or accepted under that ballot.
    pub entries: Vec<Candidate>,
}

/// The shards that take part in a transaction beside one.
pub fn others(transaction: &Transaction, shard: ShardId) -> impl Iterator<Item = ShardId> + '_ {
    transaction.parts.iter().map(|part| part.shard).filter(move |other| *other != shard)
}
