//! What nodes say to each other. Every message may be lost, repeated, reordered or late.

use crate::answer::AnswerPart;
use crate::digest::Digest;
use crate::part_reads::PartReads;
use crate::record::{Item, TentativeList};
use crate::stamp::Stamp;
use crate::transaction::Transaction;
use bytes::Bytes;
use shoal_engine::TransactionId;
use shoal_engine::operation::{OperationResult, OwnedScan};
use shoal_types::wire::Coded;
use shoal_types::{Ballot, Error, NodeId, ShardId, TableId, Time};
use std::sync::Arc;

/// A replica's vote for a transaction. Final for its ballot.
#[derive(Debug, Clone, PartialEq, Coded)]
pub struct Vote {
    /// The transaction that is voted for.
    pub id: TransactionId,
    /// The shard of the replica.
    #[coded(short)]
    pub shard: ShardId,
    /// The timestamp at which it was released.
    pub t: Time,
    /// What it rests on there.
    pub digest: Digest,
    /// The ballot under which the replica votes.
    pub ballot: Ballot,
    /// The leader's vote says more.
    pub leader: Option<LeaderVote>,
}

/// What only a leader can say with its vote.
#[derive(Debug, Clone, PartialEq, Coded)]
pub struct LeaderVote {
    /// The ballots of all participants under which it was released (rule T16).
    pub ballots: Vec<Ballot>,
    /// What it returned on the shard.
    pub outcome: Result<Bytes, Error>,
    /// A majority has it in the log (rule T6).
    pub is_stable: bool,
}

/// A read of a transaction that buffers its writes, and certifies later what it has read.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum Read {
    /// Reads one row.
    #[coded(tag = 0)]
    Key {
        /// The table of the key.
        #[coded(short)]
        table: TableId,
        /// The key that is read.
        key: Bytes,
    },
    /// Scans rows, ascending or descending.
    #[coded(tag = 1)]
    Range {
        /// The table of the rows.
        #[coded(short)]
        table: TableId,
        /// Which rows.
        range: OwnedScan,
        /// The granule that holds them; `None`: the whole table.
        granule: Option<Bytes>,
    },
}

/// What a read found, and the version of that: of the row, or of the range.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Found {
    /// A value or rows.
    pub result: OperationResult,
    /// What `certify` compares.
    pub version: u64,
}

/// What one node says to another. Which shard a message is about, its receiver looks up.
#[derive(Debug, Clone, PartialEq, Coded)]
pub enum Message {
    /// Coordinator to all replicas of the participants; a leader to another that lacks it. Repeated until it is voted for; a
    /// replica takes a transaction once.
    #[coded(tag = 0)]
    Submit {
        /// The timestamp, a little ahead.
        t: Time,
        /// When it was sent, on the sender's transaction clock; zero from a leader.
        sent: Time,
        /// What is to be released.
        transaction: Arc<Transaction>,
    },
    /// Replica to coordinator.
    #[coded(tag = 1)]
    Vote {
        /// What the replica has released.
        vote: Vote,
        /// When the transaction was sent, and when it arrived, each on the clock of that node.
        sent: Time,
        /// See `sent`.
        arrived: Time,
    },
    /// Leader to coordinator, and to the other participants: its log refuses the transaction, in a decided entry (rule T21).
    #[coded(tag = 2)]
    Gone {
        /// The transaction.
        id: TransactionId,
        /// The shard that will not release it.
        #[coded(short)]
        shard: ShardId,
        /// The ballot of its leader.
        ballot: Ballot,
        /// When it was sent, and when it arrived, each on the clock of that node; zero where that is not known.
        sent: Time,
        /// See `sent`.
        arrived: Time,
    },
    /// Leader to the leaders of the other participants: it has accepted the transaction. Repeated until they are ready.
    #[coded(tag = 3)]
    Propose {
        /// The transaction.
        id: TransactionId,
        /// The shard of the receiver.
        #[coded(short)]
        to: ShardId,
        /// The shard of the sender.
        #[coded(short)]
        shard: ShardId,
        /// The ballot of the sender.
        ballot: Ballot,
        /// The timestamp at which it is accepted there.
        t: Time,
        /// The ballot of the receiver that the transaction names.
        named: Ballot,
        /// Whether this is a repetition, which asks for an answer.
        again: bool,
        /// When it was sent, on the sender's transaction clock.
        sent: Time,
    },
    /// Leader to the leaders of the other participants: under these ballots, nothing that conflicts is accepted or released
    /// below `t` there (rule T2).
    #[coded(tag = 4)]
    Ready {
        /// The transaction.
        id: TransactionId,
        /// The shard of the receiver.
        #[coded(short)]
        to: ShardId,
        /// The shard of the sender.
        #[coded(short)]
        shard: ShardId,
        /// The timestamp on which all agree.
        t: Time,
        /// The current ballots of all participants, as the sender knows them (rule T20).
        ballots: Vec<Ballot>,
        /// What it reads on the sender's shard, or whether what it certifies there is so.
        contribution: Result<PartReads, Error>,
        /// What stands in front of it on the sender's shard, conflicts with it, and is not decided (rule T23).
        in_front: Vec<Stamp>,
    },
    /// Leader to a leader that has proposed it: send the transaction.
    #[coded(tag = 5)]
    Want {
        /// The transaction.
        id: TransactionId,
        /// The shard of the receiver.
        #[coded(short)]
        to: ShardId,
    },
    /// Leader to the leaders of the other participants: these are decided in its log.
    #[coded(tag = 6)]
    Settled {
        /// The transactions.
        ids: Vec<TransactionId>,
        /// The shard of the receiver.
        #[coded(short)]
        to: ShardId,
        /// The shard of the sender.
        #[coded(short)]
        shard: ShardId,
        /// The ballot of the sender: what a leader says that another has replaced does not count.
        ballot: Ballot,
        /// Whether this is a repetition, which asks for an answer.
        again: bool,
    },
    /// A new leader to the voters of its shard: send the tentative list. Repeated until enough have.
    #[coded(tag = 7)]
    ListWanted {
        /// The shard that is meant.
        #[coded(short)]
        shard: ShardId,
        /// The ballot of the new leader.
        ballot: Ballot,
    },
    /// A voter that has promised the ballot, to its leader.
    #[coded(tag = 8)]
    List {
        /// The shard that is meant.
        #[coded(short)]
        shard: ShardId,
        /// The promised ballot.
        ballot: Ballot,
        /// What the voter has voted for.
        list: TentativeList,
    },
    /// A recovering leader, whose start record is decided, to the leader of another shard. Repeated until it is answered.
    #[coded(tag = 9)]
    Query {
        /// The shard of the receiver.
        #[coded(short)]
        to: ShardId,
        /// The shard that recovers.
        #[coded(short)]
        shard: ShardId,
        /// The ballot of its leader.
        ballot: Ballot,
    },
    /// The answer: what the shard knows of transactions that it shares with the recovering one. From then on only the new
    /// ballot of that one counts there (rule T20).
    #[coded(tag = 10)]
    Answer {
        /// The shard that recovers.
        #[coded(short)]
        to: ShardId,
        /// The ballot for which it was asked.
        asked: Ballot,
        /// The shard that answers.
        #[coded(short)]
        shard: ShardId,
        /// The ballot of its leader.
        ballot: Ballot,
        /// Which of the messages that make up the answer this is.
        part: AnswerPart,
        /// What it knows.
        items: Vec<Item>,
    },
    /// Coordinator to the leader of a shard: read these at once. Repeated until it is answered.
    #[coded(tag = 11)]
    Reads {
        /// The shard that is meant.
        #[coded(short)]
        shard: ShardId,
        /// Names the request among those of the coordinator.
        number: u64,
        /// What is read.
        reads: Vec<Read>,
    },
    /// The answer, in the order of the reads: all of them, or as many from the first on as one message takes.
    #[coded(tag = 12)]
    ReadsDone {
        /// See [`Message::Reads`].
        number: u64,
        /// What each found.
        found: Vec<Found>,
    },
    /// Follower to coordinator: it has synced these, which it had not voted for as the leader has (§3.7 of the paper).
    #[coded(tag = 13)]
    Synced {
        /// The shard of the follower.
        #[coded(short)]
        shard: ShardId,
        /// The ballot under which it has accepted them.
        ballot: Ballot,
        /// The transactions, and where they stand.
        transactions: Vec<(TransactionId, Time)>,
    },
}

/// A message and where it goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// The receiver.
    pub to: NodeId,
    /// What is sent.
    pub message: Message,
}
