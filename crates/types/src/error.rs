//! What can go wrong, and which of three things is then true.
//!
//! | variant | what happened | what to do |
//! |---|---|---|
//! | [`Error::Aborted`] | nothing | retry freely |
//! | [`Error::Rejected`] | nothing | do not retry as is: the message says what to change |
//! | [`Error::Unknown`] | perhaps everything | ask again with the same request id |
//!
//! Errors are small and own no memory on the paths that conflicts take: an abort is not rare
//! enough to allocate for.

mod key_excerpt;
mod table;
mod unknown;
pub(crate) mod wire;

pub use key_excerpt::KeyExcerpt;
pub use unknown::Unknown;

use crate::clock::Epoch;
use crate::id::{ClusterId, NodeId, RequestId, ShardId, TableId, WorkerId};
use crate::wait::Wait;
use crate::wire::Coded;
use std::fmt::Display;
use std::time::Duration;

/// The result of every operation of a database.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation or a transaction did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Coded)]
pub enum Error {
    /// Nothing happened; the same transaction may succeed if it is run again.
    #[error("aborted: {0}")]
    #[coded(tag = 0)]
    Aborted(#[from] Aborted),
    /// Nothing happened, and nothing will: the request itself has to change.
    #[error("rejected: {0}")]
    #[coded(tag = 1)]
    Rejected(#[from] Rejected),
    /// The transaction may have committed; only its request id can show it.
    #[error("unknown: {0}")]
    #[coded(tag = 2)]
    Unknown(#[from] Unknown),
}

impl Error {
    /// The error with which a procedure gives up its own transaction: nothing it did takes effect,
    /// and it is not retried.
    ///
    /// ```
    /// # use shoal_types::Error;
    /// let error = Error::reject("insufficient funds");
    /// assert_eq!(error.to_string(), "rejected: the procedure gave up: insufficient funds");
    /// ```
    pub fn reject(reason: impl Into<Box<str>>) -> Error {
        Error::Rejected(Rejected::Procedure { reason: reason.into() })
    }

    /// The error of a client that has no connection, for this reason.
    pub fn not_connected(reason: &impl Display) -> Error {
        Error::Rejected(Rejected::NotConnected { reason: reason.to_string().into() })
    }

    /// The shard that was waited for in vain, if there is one: it has no leader that serves, can make nothing durable, or
    /// has not said how an epoch ended.
    #[must_use]
    pub fn shard(&self) -> Option<ShardId> {
        match self {
            Error::Aborted(Aborted::Conflict(last) | Aborted::RetriesExhausted { last, .. }) => {
                match last {
                    Conflict::Recovering { shard }
                    | Conflict::NoAnswer { shard }
                    | Conflict::NoMajority { shard }
                    | Conflict::Undecided { shard, .. } => Some(*shard),
                    Conflict::ReadChanged { .. }
                    | Conflict::Locked { .. }
                    | Conflict::OtherEpoch { .. }
                    | Conflict::EpochNotOpen { .. }
                    | Conflict::Overtaken { .. }
                    | Conflict::RangeChanged { .. }
                    | Conflict::TableNotKnown { .. }
                    | Conflict::TableDropped { .. } => None,
                }
            }
            Error::Aborted(Aborted::ShardOut { shard })
            | Error::Unknown(
                Unknown::Participant { shard }
                | Unknown::NotDurable { shard }
                | Unknown::Unsettled { shard, .. },
            ) => Some(*shard),
            Error::Aborted(_) | Error::Rejected(_) | Error::Unknown(_) => None,
        }
    }
}

/// Why nothing happened, though a retry may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Coded)]
pub enum Aborted {
    /// Another transaction got in the way, once.
    #[error("{0}")]
    #[coded(tag = 0)]
    Conflict(#[from] Conflict),
    /// Others got in the way at every attempt of the retry budget.
    #[error(
        "gave up after {attempts} attempts, the last because {last}; retry later, or raise the retry budget"
    )]
    #[coded(tag = 1)]
    RetriesExhausted {
        /// How often the transaction ran.
        #[coded(short)]
        attempts: u32,
        /// What stopped the last attempt.
        last: Conflict,
    },
    /// There was no room for another transaction, for as long as one may wait.
    #[error(
        "{open} transactions are open or waiting here, {limit} is {max}; retry later, or raise {limit}"
    )]
    #[coded(tag = 2)]
    Overloaded {
        /// How many were open or waiting.
        #[coded(short)]
        open: usize,
        /// The option to raise, by its name in the configuration.
        #[coded(with = wire::limit_name)]
        limit: &'static str,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// An interactive transaction whose client was silent for too long was given up.
    #[error("its client was idle for {idle:?}; begin again, or raise session_idle_max")]
    #[coded(tag = 3)]
    Idle {
        /// How long one may be silent.
        idle: Duration,
    },
    /// An interactive transaction that was open for too long was given up.
    #[error("it was open for {open:?}; do less in one transaction, or raise session_open_max")]
    #[coded(tag = 4)]
    OpenTooLong {
        /// How long one may be open.
        open: Duration,
    },
    /// The node knows no leaders yet, is about to lead and serves no shard so far, or does not know that it still leads.
    #[error("{node} does not serve at the moment; ask another node")]
    #[coded(tag = 5)]
    NotServing {
        /// The node that was asked.
        #[coded(short)]
        node: NodeId,
    },
    /// Another node owns what the transaction touches, and ownership has changed often lately: the transaction goes there,
    /// instead of what it touches coming here. Clients send the next attempt to that node.
    #[error("{owner} owns what it touches, after many moves; run it again there")]
    #[coded(tag = 11)]
    Moved {
        /// The node that owns what the transaction touches.
        #[coded(short)]
        owner: NodeId,
    },
    /// A majority of the shard's replicas is lost or cut off, so that it takes no part in this epoch.
    #[error(
        "{shard} is out, since a majority of its replicas does not answer; retry when it is back"
    )]
    #[coded(tag = 9)]
    ShardOut {
        /// The shard that the error is about.
        #[coded(short)]
        shard: ShardId,
    },
    /// The transaction was certified, and its epoch ended without it, since a shard that it depends on failed.
    #[error("{epoch} ended without it, since a shard failed; run it again")]
    #[coded(tag = 6)]
    RolledBack {
        /// The epoch in which it was certified.
        #[coded(short)]
        epoch: Epoch,
    },
    /// A step, not the last, of an interactive transaction that is over, or was never begun here.
    #[error("session {session} has no transaction here, or not any more; begin again")]
    #[coded(tag = 7)]
    UnknownSession {
        /// The client's name for it.
        #[coded(short)]
        session: u64,
    },
    /// The leader does not know the session of a call, or not any more, and the call has not taken effect: it never
    /// will. Clients get another session and call again.
    #[error("{request} has not taken effect, and its session is over; call again in another")]
    #[coded(tag = 10)]
    CallSessionOver {
        /// The call that came too late.
        request: RequestId,
    },
    /// A client got no answer before the transaction was asked to commit.
    #[error("{0}; run it again")]
    #[coded(tag = 8)]
    Unanswered(Wait),
}

/// What got in a transaction's way, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Coded)]
pub enum Conflict {
    /// A key that this transaction read has a newer version.
    #[error("{table} {key} changed after it was read")]
    #[coded(tag = 0)]
    ReadChanged {
        /// The table of the key.
        #[coded(short)]
        table: TableId,
        /// The key that the error is about.
        key: KeyExcerpt,
    },
    /// Another transaction holds the lock of a key that this one reads or writes.
    #[error("{table} {key} is locked by another transaction")]
    #[coded(tag = 1)]
    Locked {
        /// The table of the key.
        #[coded(short)]
        table: TableId,
        /// The key that the error is about.
        key: KeyExcerpt,
    },
    /// A version that was read belongs to another epoch, and is not durable.
    #[error("{shard} has a version of {epoch} there that is not committed")]
    #[coded(tag = 2)]
    OtherEpoch {
        /// The shard that was read.
        #[coded(short)]
        shard: ShardId,
        /// The epoch in which the version was written.
        #[coded(short)]
        epoch: Epoch,
    },
    /// The shard's leader has just been appointed, and recovers it.
    #[error("{shard} is being recovered by a new leader")]
    #[coded(tag = 3)]
    Recovering {
        /// The shard that the error is about.
        #[coded(short)]
        shard: ShardId,
    },
    /// The configuration changed before the transaction was certified.
    #[error("{epoch}, in which this transaction began, is not open at one of its shards")]
    #[coded(tag = 4)]
    EpochNotOpen {
        /// The epoch in which the transaction began.
        #[coded(short)]
        epoch: Epoch,
    },
    /// What the transaction read elsewhere depends on more of a shard than had happened there when it
    /// took its place in it.
    #[error("{shard} went on after this transaction took its place there")]
    #[coded(tag = 5)]
    Overtaken {
        /// The shard that the error is about.
        #[coded(short)]
        shard: ShardId,
    },
    /// A shard did not answer in time: it has no serving leader, or none that can be reached.
    #[error("{shard} did not answer in time; it has no serving leader that can be reached")]
    #[coded(tag = 7)]
    NoAnswer {
        /// The shard that the error is about.
        #[coded(short)]
        shard: ShardId,
    },
    /// The shard's leader can make nothing durable, and so certifies nothing.
    #[error("{shard} can make nothing durable; a majority of its voters does not answer")]
    #[coded(tag = 8)]
    NoMajority {
        /// The shard that the error is about.
        #[coded(short)]
        shard: ShardId,
    },
    /// A version that was read is of an epoch of which a shard that the version depends on has not said how it ended:
    /// whether the version counts is not known.
    #[error(
        "a version that was read depends on {shard}, which has not said how {epoch} ended there"
    )]
    #[coded(tag = 9)]
    Undecided {
        /// The shard that has not said so.
        #[coded(short)]
        shard: ShardId,
        /// The epoch in which the version was written; it has ended.
        #[coded(short)]
        epoch: Epoch,
    },
    /// A key appeared in, or left, a range that this transaction scanned or a gap it found absent.
    #[error("keys came to or left a range of {table} that was read")]
    #[coded(tag = 6)]
    RangeChanged {
        /// The table of the range.
        #[coded(short)]
        table: TableId,
    },
    /// A node does not know the table yet, which was created a moment ago, or will never be.
    #[error("{table} is not known yet at a node that was asked for it")]
    #[coded(tag = 10)]
    TableNotKnown {
        /// The table that the node does not know.
        #[coded(short)]
        table: TableId,
    },
    /// A table was dropped after the transaction had read or written something of it.
    #[error("{table} was dropped while the transaction ran")]
    #[coded(tag = 11)]
    TableDropped {
        /// The table that was dropped.
        #[coded(short)]
        table: TableId,
    },
}

/// Why a request can never succeed as it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Coded)]
#[non_exhaustive]
pub enum Rejected {
    /// A key has at least one byte.
    #[error("the key for {table} is empty; a key has at least one byte")]
    #[coded(tag = 0)]
    KeyEmpty {
        /// The table that was asked.
        #[coded(short)]
        table: TableId,
    },
    /// Limit [`crate::limits::KEY_BYTES_MAX`].
    #[error("the key {key} for {table} has {bytes} bytes, KEY_BYTES_MAX is {max}; shorten it")]
    #[coded(tag = 1)]
    KeyTooLong {
        /// The table that was asked.
        #[coded(short)]
        table: TableId,
        /// The beginning of the key.
        key: KeyExcerpt,
        /// The length of the whole key in bytes.
        #[coded(short)]
        bytes: usize,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Limit [`crate::limits::VALUE_BYTES_MAX`].
    #[error(
        "the value for {table} {key} has {bytes} bytes, VALUE_BYTES_MAX is {max}; split it over several keys"
    )]
    #[coded(tag = 2)]
    ValueTooLong {
        /// The table that was asked.
        #[coded(short)]
        table: TableId,
        /// The key that the error is about.
        key: KeyExcerpt,
        /// The length of the refused value in bytes.
        #[coded(short)]
        bytes: usize,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Limit [`crate::limits::TRANSACTION_BYTES_MAX`], or [`crate::limits::TRANSACTION_MESSAGE_BYTES_MAX`].
    #[error(
        "the transaction would write {bytes} bytes, of at most {max} (TRANSACTION_BYTES_MAX, or less with this engine); split it"
    )]
    #[coded(tag = 3)]
    TransactionBytes {
        /// What it would write with this operation.
        #[coded(short)]
        bytes: usize,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Limit [`crate::limits::TRANSACTION_WRITES_MAX`].
    #[error("the transaction would write more than TRANSACTION_WRITES_MAX = {max} keys; split it")]
    #[coded(tag = 4)]
    TransactionWrites {
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Limit [`crate::limits::TRANSACTION_READS_MAX`].
    #[error(
        "the transaction has read TRANSACTION_READS_MAX = {max} rows; read in parts, each its own transaction"
    )]
    #[coded(tag = 5)]
    TransactionReads {
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Limit `transactions_max` of the database's options.
    #[error("{max} transactions are open, transactions_max allows no more; finish some first")]
    #[coded(tag = 6)]
    TooManyTransactions {
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Limit [`crate::limits::TRANSACTIONS_OPEN_MAX`].
    #[error(
        "transactions_max is {asked}, TRANSACTIONS_OPEN_MAX allows no more than {max}; lower it"
    )]
    #[coded(tag = 19)]
    TransactionsMax {
        /// What the options say.
        #[coded(short)]
        asked: usize,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Limit `memory_bytes_max` of the database's options.
    #[error(
        "the database holds {bytes} bytes, memory_bytes_max is {max}; delete data or raise it (memory_mb of a node)"
    )]
    #[coded(tag = 7)]
    MemoryFull {
        /// What the database holds now.
        #[coded(short)]
        bytes: usize,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Limit [`crate::limits::TABLES_MAX`].
    #[error(
        "the database has {max} tables, TABLES_MAX allows no more; put more into one, under a key prefix"
    )]
    #[coded(tag = 8)]
    TooManyTables {
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Limit [`crate::limits::TABLE_NAME_BYTES_MAX`]; a name also has at least one byte.
    #[error("a table name has 1 to {max} bytes, this one has {bytes}")]
    #[coded(tag = 9)]
    TableName {
        /// The length of the refused name in bytes.
        #[coded(short)]
        bytes: usize,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// No table has this id in this database.
    #[error("{table} is no table of this database; create or open it by name first")]
    #[coded(tag = 10)]
    UnknownTable {
        /// The id that was asked for.
        #[coded(short)]
        table: TableId,
    },
    /// No table has this name.
    #[error("there is no table {name:?} in this cluster; create it first")]
    #[coded(tag = 11)]
    UnknownTableName {
        /// The name that was asked for.
        #[coded(short)]
        name: Box<str>,
    },
    /// No procedure has this name.
    #[error("there is no procedure {name:?} on this node; register it on all of them")]
    #[coded(tag = 12)]
    UnknownProcedure {
        /// The name that was asked for.
        #[coded(short)]
        name: Box<str>,
    },
    /// All copies of a call have to reach the same worker.
    #[error("calls with this id belong to {worker} of a node; ask that one")]
    #[coded(tag = 13)]
    OtherWorker {
        /// The worker that takes them.
        #[coded(short)]
        worker: WorkerId,
    },
    /// An insert met a key that exists.
    #[error("{table} {key} exists already; use put to overwrite it")]
    #[coded(tag = 14)]
    KeyExists {
        /// The table of the key.
        #[coded(short)]
        table: TableId,
        /// The key that the error is about.
        key: KeyExcerpt,
    },
    /// An atomic operation met a value it cannot work on.
    #[error("{table} {key} holds {bytes} bytes, `{operation}` works on {expected}")]
    #[coded(tag = 15)]
    WrongValue {
        /// The table of the key.
        #[coded(short)]
        table: TableId,
        /// The key that the error is about.
        key: KeyExcerpt,
        /// The operation that was asked for.
        #[coded(with = wire::operation_name)]
        operation: &'static str,
        /// The length of the value that the key has.
        #[coded(short)]
        bytes: usize,
        /// The length the operation needs.
        #[coded(short)]
        expected: usize,
    },
    /// What a procedure is called with has to fit a frame.
    #[error("the call has {bytes} bytes, frames have {max} at most; pass less, or raise the limit")]
    #[coded(tag = 17)]
    CallTooLong {
        /// The length of the arguments in bytes.
        #[coded(short)]
        bytes: usize,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// What an operation brings to a client has to fit a frame. The transaction can go on.
    #[error(
        "the answer has {bytes} bytes, frames have {max} at most; ask for less, as with a limit on the scan"
    )]
    #[coded(tag = 18)]
    AnswerTooLong {
        /// The length of the refused answer in bytes.
        #[coded(short)]
        bytes: usize,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// The cluster that this client connected to is gone, with all that it held: another was founded at its addresses.
    #[error(
        "cluster {known} is gone with all that it held, {found} was founded in its place; check what is lost, then connect anew"
    )]
    #[coded(tag = 20)]
    FoundedAgain {
        /// The cluster that the client belongs to.
        known: ClusterId,
        /// The cluster that is there now.
        found: ClusterId,
    },
    /// The table was dropped, with all its rows. Its id belongs to no other.
    #[error("{table} was dropped, with all its rows; open or create one by name")]
    #[coded(tag = 21)]
    TableDropped {
        /// The id that was asked for.
        #[coded(short)]
        table: TableId,
    },
    /// Another table has the name.
    #[error(
        "a table {name:?} exists and is partitioned otherwise; use another name, or drop it first"
    )]
    #[coded(tag = 22)]
    TableExists {
        /// The name that was asked for.
        #[coded(short)]
        name: Box<str>,
    },
    /// Limit [`crate::limits::TABLE_IDS_MAX`].
    #[error(
        "the database has given TABLE_IDS_MAX = {max} ids to tables, counting dropped ones; keep tables instead of making them anew"
    )]
    #[coded(tag = 23)]
    TooManyTableIds {
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Without managers a cluster has the tables of its topology, and no others.
    #[error("this cluster has no managers: its tables are those of its topology; name them there")]
    #[coded(tag = 24)]
    TablesFixed,
    /// The tables that the cluster itself uses are neither created nor dropped by name.
    #[error("the table {name:?} belongs to the cluster itself; use another name")]
    #[coded(tag = 25)]
    TableReserved {
        /// The name that was asked for.
        #[coded(short)]
        name: Box<str>,
    },
    /// The partitioning of a table that was to be created is impossible.
    #[error("the table cannot be created: {reason}")]
    #[coded(tag = 26)]
    TablePartitioning {
        /// What is wrong, and what to do about it.
        #[coded(short)]
        reason: Box<str>,
    },
    /// The table is being moved between shards.
    #[error("{table} is being moved between shards; drop it when that has ended")]
    #[coded(tag = 27)]
    TableMoving {
        /// The table that was to be dropped.
        #[coded(short)]
        table: TableId,
    },
    /// A client has no connection to a cluster, or was not made, so that nothing was asked for.
    #[error("{reason}")]
    #[coded(tag = 28)]
    NotConnected {
        /// What was tried, and what happened.
        #[coded(short)]
        reason: Box<str>,
    },
    /// A key is not that of a tuple of the types asked for; see [`crate::tuple::decode`].
    #[error("{reason}; decode it with the types that it was encoded with")]
    #[coded(tag = 29)]
    KeyNotDecoded {
        /// The byte of the key that is wrong, and why.
        #[coded(short)]
        reason: Box<str>,
    },
    /// An engine that moves granules between nodes scans within one granule only.
    #[error(
        "a scan of {table} is wider than a granule; with granules of {prefix_bytes} bytes it would not be: scan less, or divide the table so"
    )]
    #[coded(tag = 30)]
    ScanTooWide {
        /// The table that was scanned.
        #[coded(short)]
        table: TableId,
        /// How many bytes all keys share that the scan can meet; 0 if it can meet any.
        #[coded(short)]
        prefix_bytes: usize,
    },
    /// A granule would grow beyond its limit, up to which one message carries it to another node.
    #[error(
        "the granule of {table} with {key} would have more than {max} bytes; delete some of it, or divide the table into smaller granules"
    )]
    #[coded(tag = 31)]
    GranuleFull {
        /// The first table of the granule's family.
        #[coded(short)]
        table: TableId,
        /// The prefix that names the granule.
        key: KeyExcerpt,
        /// The limit that was reached.
        #[coded(short)]
        max: usize,
    },
    /// Every node that had a granule has died since: its rows are lost.
    #[error(
        "the granule of {table} with {key} was lost with all nodes that had it; restore it from elsewhere"
    )]
    #[coded(tag = 32)]
    DataLost {
        /// The first table of the granule's family.
        #[coded(short)]
        table: TableId,
        /// The prefix that names the granule.
        key: KeyExcerpt,
    },
    /// The cluster's engine does not have tables of which every shard has a copy.
    #[error(
        "{table} is on every shard, which this engine does not support; create it with another partitioning"
    )]
    #[coded(tag = 33)]
    TableEverywhere {
        /// The table that was used.
        #[coded(short)]
        table: TableId,
    },
    /// The database was closed, or its log on disk cannot be written any more.
    #[error("the database is not open any more: {reason}; open it again")]
    #[coded(tag = 34)]
    NotOpen {
        /// Why it takes no transactions.
        #[coded(short)]
        reason: Box<str>,
    },
    /// There is no room on the disk for another segment of the log. Reads go on; writes do when there is room.
    #[error(
        "the disk has no room for the next segment of the log, of {segment_bytes} bytes; make room, then retry"
    )]
    #[coded(tag = 35)]
    DiskFull {
        /// The room that is needed.
        #[coded(short)]
        segment_bytes: u64,
    },
    /// The table is the first of a family that has others.
    #[error("{table} is the first table of a family; drop the other tables of the family first")]
    #[coded(tag = 36)]
    TableFamily {
        /// The table that was to be dropped.
        #[coded(short)]
        table: TableId,
    },
    /// A procedure has touched what its footprint does not have. See [`crate::procedure::Footprint`].
    #[error(
        "the procedure touched {table} {key}, which its footprint does not declare; declare it"
    )]
    #[coded(tag = 37)]
    Undeclared {
        /// The table that was touched.
        #[coded(short)]
        table: TableId,
        /// The key, or the first one of the range that was scanned.
        key: KeyExcerpt,
    },
    /// The procedure itself gave up; see [`Error::reject`].
    #[error("the procedure gave up: {reason}")]
    #[coded(tag = 16)]
    Procedure {
        /// The text that the procedure passed to [`Error::reject`].
        #[coded(short)]
        reason: Box<str>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_what_where_and_what_to_do() {
        let key = KeyExcerpt::new(b"alice\x00");
        let conflict = Conflict::ReadChanged { table: TableId(3), key };
        assert_eq!(
            Error::from(Aborted::from(conflict)).to_string(),
            r"aborted: t3 'alice\x00' changed after it was read"
        );
        assert_eq!(
            Rejected::KeyTooLong {
                table: TableId(1),
                key: KeyExcerpt::new(&[b'k'; 5000]),
                bytes: 5000,
                max: 4096
            }
            .to_string(),
            "the key 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk…' for t1 has 5000 bytes, KEY_BYTES_MAX is 4096; shorten it"
        );
    }

    #[test]
    fn conflicts_stay_small() {
        assert!(size_of::<Conflict>() <= 48);
        assert!(size_of::<Error>() <= 96);
    }
}
