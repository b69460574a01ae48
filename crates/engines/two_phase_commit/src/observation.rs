//! What a checker can see of `two_phase_commit`: facts as they happen, for judges that have the whole cluster
//! before them. Nothing in the engine depends on whether it is watched.

use shoal_engine::TransactionId;
use shoal_replication::applied_write::AppliedWrite;
use shoal_types::{Ballot, Clock, ShardId, Stamp, TableId};

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TwoPhaseCommitObservation {
    /// A transaction read a version here, present or a tombstone.
    Read {
        /// The transaction that reads.
        transaction: TransactionId,
        /// The shard that keeps the version.
        shard: ShardId,
        /// The version's stamp as that shard keeps it.
        stamp: Stamp,
        /// There was no value.
        tombstone: bool,
    },
    /// A clock was drawn: it is in flight on this worker.
    Drawn {
        /// The client or task that it is for.
        transaction: TransactionId,
        /// The shard whose clock it is.
        shard: ShardId,
        /// What was drawn.
        clock: Clock,
    },
    /// A clock is no longer in flight.
    Resolved {
        /// Whose it was.
        transaction: TransactionId,
        /// The shard that drew it.
        shard: ShardId,
        /// The clock that was resolved.
        clock: Clock,
        /// The piece was installed; otherwise its coordinator gave it up.
        installed: bool,
    },
    /// A leader appends that a transaction which is prepared on its shard is aborted.
    GaveUp {
        /// Whose branch.
        transaction: TransactionId,
        /// Where it was prepared.
        shard: ShardId,
    },
    /// The coordinator has decided to commit a transaction.
    Certified {
        /// The transaction that is decided.
        transaction: TransactionId,
        /// The shard as which `stamp` is written.
        own: ShardId,
        /// The stamp of its writes.
        stamp: Stamp,
        /// Where it writes, with the clocks drawn there.
        writes: Vec<(ShardId, Clock)>,
    },
    /// A version of a key was installed by the leader.
    Installed {
        /// The worker that did it.
        transaction: TransactionId,
        /// The shard that the key belongs to.
        shard: ShardId,
        /// The version's stamp as this shard keeps it.
        stamp: Stamp,
        /// The table of the key.
        table: TableId,
        /// The key whose version it is.
        key: Vec<u8>,
        /// The value; `None` for a tombstone.
        value: Option<Vec<u8>>,
        /// Whether it comes from a replayed entry of another leader: then the table need not be known here.
        is_inherited: bool,
    },
    /// This worker's stream of a shard is prepared under a ballot: what others had appended beyond
    /// `length` is lost.
    Led {
        /// The shard that the worker leads.
        shard: ShardId,
        /// The appointment.
        ballot: Ballot,
        /// What was inherited.
        length: u64,
    },
    /// This worker has begun to serve a shard as its leader: all of it is recovered.
    Serves {
        /// The shard that is served.
        shard: ShardId,
        /// The appointment.
        ballot: Ballot,
    },
    /// A new leader has found a transaction prepared in its stream, without an outcome: its clock is in flight again.
    Recovered {
        /// The prepared transaction.
        transaction: TransactionId,
        /// The shard on which it is prepared.
        shard: ShardId,
        /// What was drawn for it.
        clock: Clock,
    },
    /// This worker has acted as the leader of a shard: served reads, taken locks, or validated (rule P6).
    Acted {
        /// The shard that is led.
        shard: ShardId,
        /// The appointment.
        ballot: Ballot,
    },
    /// An entry was proposed to the stream that this worker leads.
    Appended {
        /// The shard of the stream.
        shard: ShardId,
        /// The appointment.
        ballot: Ballot,
        /// The index in the stream.
        index: u64,
        /// The safe clock that it carries.
        safe: Clock,
        /// The clocks of its records.
        clocks: Vec<Clock>,
    },
    /// A replica has looked at a row of a copy.
    Copied {
        /// The shard that is copied.
        shard: ShardId,
        /// The version's stamp as the shard keeps it.
        stamp: Stamp,
        /// The table of the row.
        table: TableId,
        /// The key of the row.
        key: Vec<u8>,
        /// The version is the newest one now; otherwise a newer one was there.
        won: bool,
    },
    /// This worker's stream of a shard begins behind a snapshot.
    Restored {
        /// The shard of the stream.
        shard: ShardId,
    },
    /// A client receives an outcome, or something that was read.
    Acknowledged {
        /// The transaction of the client.
        transaction: TransactionId,
        /// How many shards it writes; 0 while it executes.
        shards: usize,
    },
    /// A follower has looked at one write of a transaction.
    Applied {
        /// The shard that is replayed.
        shard: ShardId,
        /// The version's stamp as the shard keeps it.
        stamp: Stamp,
        /// The table of the key.
        table: TableId,
        /// The key that is written.
        key: Vec<u8>,
        /// The version is the newest one now; otherwise a newer one was there.
        won: bool,
    },
}

impl From<AppliedWrite> for TwoPhaseCommitObservation {
    fn from(it: AppliedWrite) -> TwoPhaseCommitObservation {
        let AppliedWrite { shard, stamp, table, key, won } = it;
        TwoPhaseCommitObservation::Applied { shard, stamp, table, key, won }
    }
}
