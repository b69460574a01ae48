//! What the folder of a worker's log holds, for operators.

use crate::worker_files::{WorkerFiles, WorkerLogError};
use shoal_log::StreamStorage;
use shoal_types::{Ballot, ShardId};
use shoal_wal::{
    ExaminedCheckpoint, Folder, LogIdentity, SegmentSummary, Torn, examine_checkpoints,
};

/// A stream as its worker would begin with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExaminedStream {
    /// The shard of the stream.
    pub shard: ShardId,
    /// The highest ballot that was promised.
    pub promised: Ballot,
    /// The ballot under which the entries were accepted.
    pub accepted: Ballot,
    /// The first entry that is held: those before it are in the checkpoint.
    pub first: u64,
    /// How many entries there are, with those before the first that is held.
    pub length: u64,
    /// How many of them are known to be decided.
    pub decided: u64,
    /// The records behind the last snapshot from a peer are void: no checkpoint had its rows.
    pub is_void: bool,
}

/// What the folder of a worker's log holds. The default is that of an empty folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExaminedWorkerLog {
    /// The owner that its files name; `None` where nothing was written yet.
    pub identity: Option<LogIdentity>,
    /// How many processes have written to it.
    pub incarnation: u64,
    /// The segments of the log that would be read, in order.
    pub segments: Vec<SegmentSummary>,
    /// Where the end of the log is torn, if it is.
    pub torn: Option<Torn>,
    /// Whether the last process ended in order.
    pub is_sealed: bool,
    /// The newest first.
    pub checkpoints: Vec<ExaminedCheckpoint>,
    /// By shard.
    pub streams: Vec<ExaminedStream>,
}

impl ExaminedWorkerLog {
    /// Reads all files of a folder, of any owner where `owner` is `None`. Nothing is changed where the folder cannot be changed. Of a
    /// folder that is in use, the end of the log may look torn.
    ///
    /// # Errors
    /// Why a worker could not begin with it.
    pub fn of(
        folder: &mut (impl Folder + ?Sized),
        owner: Option<LogIdentity>,
    ) -> Result<ExaminedWorkerLog, WorkerLogError> {
        let checkpoints = examine_checkpoints(folder)?;
        let WorkerFiles { worker, void, recovered, .. } = WorkerFiles::read(folder, owner)?;
        let stream = |(shard, storage): (&ShardId, &shoal_log::MemoryStorage)| ExaminedStream {
            shard: *shard,
            promised: storage.promised(),
            accepted: storage.accepted_ballot(),
            first: storage.log().start().0,
            length: storage.log().length().0,
            decided: storage.decided().0,
            is_void: void.contains(shard),
        };
        Ok(ExaminedWorkerLog {
            identity: recovered.identity,
            incarnation: recovered.incarnation,
            segments: recovered.summaries,
            torn: recovered.torn,
            is_sealed: recovered.is_sealed,
            checkpoints,
            streams: worker.storages.iter().map(stream).collect(),
        })
    }
}
