//! Outcomes that are not known.

use crate::id::{ClusterId, RequestId, ShardId};
use crate::wait::Wait;
use crate::wire::Coded;

/// Why it is not known what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Coded)]
pub enum Unknown {
    /// Only the request's id can settle it.
    #[error("no answer to request {request}; ask again with the same id")]
    #[coded(tag = 0)]
    NoAnswer {
        /// The request whose fate is open.
        request: RequestId,
    },
    /// The leader could not look whether the request took effect: the lookup was refused itself, met conflicts, or found
    /// a row of which it is not known whether it counts.
    #[error(
        "whether {request} took effect could not be looked up, for want of {shard}; ask again with the same id"
    )]
    #[coded(tag = 1)]
    Unsettled {
        /// The request whose fate is open.
        request: RequestId,
        /// The shard that the lookup waited for: one that has not said how an epoch ended, or else that of the row.
        #[coded(short)]
        shard: ShardId,
    },
    /// The outcome is not kept any more: its session has made a later call, or was over for long. It will not take
    /// effect from now on.
    #[error("the outcome of {request} is not kept any more; read what it should have written")]
    #[coded(tag = 2)]
    Forgotten {
        /// The request whose fate is open.
        request: RequestId,
    },
    /// The majority of the call's shard was lost, and an operator accepted that. Whether it committed was known there; it
    /// never runs from now on.
    #[error(
        "the outcome of {request} was lost with a majority of its shard; read what it should have written"
    )]
    #[coded(tag = 10)]
    Lost {
        /// The request whose fate is open.
        request: RequestId,
    },
    /// One shard was to decide alone, and its leader failed before it said so.
    #[error("the leader of {shard} failed while it decided; read what should be there")]
    #[coded(tag = 3)]
    Participant {
        /// The shard that the error is about.
        #[coded(short)]
        shard: ShardId,
    },
    /// The transaction was certified, and a shard that it depends on did not become durable as far as that in time.
    #[error(
        "it was certified, and {shard}, which it depends on, is not durable so far; read what should be there"
    )]
    #[coded(tag = 8)]
    NotDurable {
        /// The shard that the error is about.
        #[coded(short)]
        shard: ShardId,
    },
    /// An interactive transaction that is not known here, or not any more: it may have committed.
    #[error("session {session} has no transaction here, or not any more; read what it wrote")]
    #[coded(tag = 5)]
    Session {
        /// The client's name for it.
        #[coded(short)]
        session: u64,
    },
    /// A client asked for the commit of an interactive transaction, and received no answer in time.
    #[error("{wait}; session {session} may have committed: read what it wrote")]
    #[coded(tag = 6)]
    Commit {
        /// The client's name for it.
        #[coded(short)]
        session: u64,
        /// For how long it waited, and why in vain.
        wait: Wait,
    },
    /// A client called a procedure, and received no answer in time.
    #[error("{wait}; ask for {request} again")]
    #[coded(tag = 7)]
    Call {
        /// The request whose fate is open.
        request: RequestId,
        /// For how long it waited, and why in vain.
        wait: Wait,
    },
    /// A client asked for a table to be created or dropped, and received no answer in time.
    #[error("{wait}; whether the table was created, or dropped, is not known: ask again")]
    #[coded(tag = 11)]
    Table {
        /// For how long it waited, and why in vain.
        wait: Wait,
    },
    /// The transaction, or one that it had read from, was to be written to disk, and that failed or was cut short.
    #[error(
        "it may not be durable, since writing the log failed; open the database again and read what should be there"
    )]
    #[coded(tag = 12)]
    LogFailed,
    /// A client called a procedure, and before it was answered, its cluster was gone: another was founded at its addresses,
    /// in which this call never runs.
    #[error(
        "cluster {known}, which was asked for {request}, is gone, {found} was founded in its place; check what is lost, then connect anew"
    )]
    #[coded(tag = 9)]
    FoundedAgain {
        /// The request whose outcome is lost.
        request: RequestId,
        /// The cluster that the client belongs to.
        known: ClusterId,
        /// The cluster that is there now.
        found: ClusterId,
    },
}
