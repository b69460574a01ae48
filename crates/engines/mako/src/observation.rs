//! What a checker can see of `mako`: facts as they happen, for judges that have the whole cluster
//! before them. Nothing in the engine depends on whether it is watched.

use shoal_engine::TransactionId;
use shoal_replication::applied_write::AppliedWrite;
use shoal_types::{Ballot, Clock, Epoch, ShardId, Stamp, TableId, VectorWatermark};

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MakoObservation {
    /// A transaction read a version here, present or a tombstone.
    Read {
        /// The transaction that was observed.
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
    /// A branch of another node's transaction is locked here, with a clock that is drawn for it.
    Locked {
        /// The shard whose clock it is.
        shard: ShardId,
        /// The epoch of the transaction.
        epoch: Epoch,
        /// What was drawn.
        clock: Clock,
    },
    /// A clock is no longer in flight.
    Resolved {
        /// Whose it was.
        transaction: TransactionId,
        /// The shard that drew it.
        shard: ShardId,
        /// The clock that the shard drew for it.
        clock: Clock,
        /// The piece was installed; otherwise its coordinator gave it up.
        installed: bool,
    },
    /// The coordinator has certified a transaction.
    Certified {
        /// The transaction that was observed.
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
    /// This worker has acted as the leader of a shard: served reads, taken locks, or validated (rule M7).
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
        /// Epochs of which no piece follows, and up to which clock this stream has all of theirs:
        /// [`Clock::MAX`] where nothing was left hanging.
        ends: Vec<(Epoch, Clock)>,
        /// The safe clock that it carries.
        safe: Clock,
        /// The clocks of its pieces.
        clocks: Vec<Clock>,
    },
    /// This node takes the shard for durable up to here.
    Watermark {
        /// The shard that is durable.
        shard: ShardId,
        /// How far.
        clock: Clock,
    },
    /// The end of an epoch on a shard that this node leads goes to the manager (rule M9).
    Reported {
        /// The shard that ends the epoch.
        shard: ShardId,
        /// Which epoch.
        epoch: Epoch,
        /// The final shard watermark.
        watermark: Clock,
    },
    /// This worker has settled an epoch: it has answered and replayed what is covered of it, and nothing else
    /// of it ever will be.
    Settled {
        /// The final vector watermark.
        watermark: VectorWatermark,
    },
    /// An epoch has opened on this node, for all of its workers: the ones before are closed (rule M8).
    Opened {
        /// The epoch that has opened.
        epoch: Epoch,
    },
    /// A pass that rolls back has found a committed tombstone as the newest version of a key, and lets it go: nothing older
    /// can arrive here.
    Swept {
        /// The shard that the key belongs to.
        shard: ShardId,
        /// The tombstone's stamp as the shard keeps it.
        stamp: Stamp,
    },
    /// The end of the open epoch is asked for, since something hangs that holds up a shard, or waits too long for one.
    HeldUp {
        /// The shard that is held up, or that was waited for.
        shard: ShardId,
        /// The open epoch.
        epoch: Epoch,
    },
    /// A client or task learns that a certified transaction was rolled back.
    RolledBack {
        /// The transaction that was observed.
        transaction: TransactionId,
        /// Is its epoch settled? Else a shard has ended the epoch before what it depends on.
        settled: bool,
    },
    /// A client receives an outcome, or something that was read.
    Acknowledged {
        /// Of which transaction.
        transaction: TransactionId,
        /// The shard as which `stamp` is written.
        own: ShardId,
        /// All that it reveals.
        stamp: Stamp,
    },
    /// This worker's stream of a shard begins behind a snapshot: a copy of the shard has come.
    Restored {
        /// The shard of the stream.
        shard: ShardId,
    },
    /// This worker has taken the last part of a copy of a shard.
    Copied {
        /// The shard that is copied.
        shard: ShardId,
        /// All that was committed up to this clock is here, or what came in its place.
        cut: Clock,
    },
    /// A part of a copy of a shard goes to another replica: all rows of a range that are committed (rule M10).
    Given {
        /// The shard that is copied.
        shard: ShardId,
        /// All that was committed up to this clock is in it, or what came in its place.
        cut: Clock,
        /// Where the range begins.
        from: (TableId, Vec<u8>),
        /// Where it ends; `None` for the end of the shard.
        until: Option<(TableId, Vec<u8>)>,
        /// How the epochs after the first of these and up to the second ended the sender knows.
        settled: (Epoch, Epoch),
        /// What it says of epochs.
        watermarks: Vec<VectorWatermark>,
        /// The rows, in order: table, key, and the epoch and clock of the version.
        rows: Vec<(TableId, Vec<u8>, Epoch, Clock)>,
        /// What is undecided in the range: table, key, and the epoch and clock of the version.
        undecided: Vec<(TableId, Vec<u8>, Epoch, Clock)>,
        /// Versions up to the cut that are left out, since they are not known to be committed and how their epoch
        /// ends is open.
        withheld: usize,
    },
    /// A new leader has installed a version that it inherited, of which it is not known yet whether it counts.
    Inherited {
        /// The shard that the key belongs to.
        shard: ShardId,
        /// The stamp, as the shard keeps it.
        stamp: Stamp,
        /// The table of the key.
        table: TableId,
        /// The key whose version it is.
        key: Vec<u8>,
    },
    /// A follower has looked at one write of a piece.
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

impl From<AppliedWrite> for MakoObservation {
    fn from(it: AppliedWrite) -> MakoObservation {
        let AppliedWrite { shard, stamp, table, key, won } = it;
        MakoObservation::Applied { shard, stamp, table, key, won }
    }
}
