//! What the files of a worker's log hold: the newest checkpoint that is whole, and the log behind it.

use crate::WorkerEvent;
use crate::checkpoint_state::CheckpointBlock;
use crate::recovery::{PROCESSES_MAX, RecoveredWorker, RecoveryError, WorkerRecovery};
use bytes::Bytes;
use shoal_cluster::manager::ProcessInstance;
use shoal_types::ShardId;
use shoal_types::wire::decode;
use shoal_wal::{
    CheckpointHead, Folder, FolderError, LogError, LogIdentity, Recovered, checkpoint_name,
    checkpoints, read_checkpoint, recover,
};
use std::collections::BTreeSet;
use thiserror::Error;

/// The kind of the blocks of a worker's checkpoint.
pub(crate) const BLOCK: u8 = 16;

/// Why a worker's log cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WorkerLogError {
    /// The files cannot be read, or are not whole.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The files are whole, and hold what no worker writes.
    #[error(transparent)]
    Content(#[from] RecoveryError),
}

impl From<FolderError> for WorkerLogError {
    fn from(error: FolderError) -> WorkerLogError {
        WorkerLogError::Log(error.into())
    }
}

impl WorkerLogError {
    /// Whether files that were whole once are not any more: the worker has lost its memory.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            WorkerLogError::Log(LogError::Damaged { .. } | LogError::Missing { .. })
            | WorkerLogError::Content(_) => true,
            WorkerLogError::Log(
                LogError::Folder(_) | LogError::Foreign { .. } | LogError::Newer { .. },
            ) => false,
        }
    }
}

/// The parts of a checkpoint that the worker is to receive before it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointParts {
    /// The number of the checkpoint.
    pub number: u64,
    /// The shards of which the worker receives the parts.
    pub shards: BTreeSet<ShardId>,
}

/// What the files of a folder hold.
pub(crate) struct WorkerFiles {
    pub(crate) worker: RecoveredWorker,
    pub(crate) processes: Vec<ProcessInstance>,
    /// The streams whose last records are void.
    pub(crate) void: BTreeSet<ShardId>,
    pub(crate) recovered: Recovered,
    /// All checkpoints, the newest first.
    pub(crate) numbers: Vec<u64>,
    /// The one that is used, with its place among them.
    pub(crate) used: Option<(usize, CheckpointHead)>,
    pub(crate) damaged: Vec<LogError>,
}

impl WorkerFiles {
    /// Reads the newest checkpoint that is whole, and the log behind it. Where `identity` is `None`, any owner will do.
    pub(crate) fn read(
        folder: &mut (impl Folder + ?Sized),
        identity: Option<LogIdentity>,
    ) -> Result<WorkerFiles, WorkerLogError> {
        let numbers = checkpoints(folder)?;
        let mut damaged = Vec::new();
        let (mut recovery, mut used) = (WorkerRecovery::new(), None);
        for (place, number) in numbers.iter().enumerate() {
            match read_heads(folder, *number, identity) {
                Ok((read, head)) => {
                    (recovery, used) = (read, Some((place, head)));
                    break;
                }
                Err(WorkerLogError::Log(error @ LogError::Damaged { .. })) => damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        let first = used.map_or(1, |(_, head)| head.first);
        let mut failure = None;
        let recovered = recover(folder, identity, first, &mut |record| {
            let taken = recovery.record(record.kind, record.shard, record.payload);
            failure = failure.take().or(taken.err());
        });
        let recovered = match (recovered, damaged.first()) {
            // The segments before a checkpoint that is damaged are not there.
            (Err(LogError::Missing { .. }), Some(damage)) => return Err(damage.clone().into()),
            (Ok(recovered), Some(damage)) if used.is_none() && recovered.summaries.is_empty() => {
                return Err(damage.clone().into());
            }
            (recovered, _) => recovered?,
        };
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        // What follows a snapshot is void without its rows. It counted, if the checkpoint that is damaged had these.
        if let Some(damage) = damaged.first().filter(|_| recovery.has_restored()) {
            return Err(damage.clone().into());
        }
        let processes = recovery.take_processes();
        let (worker, void) = recovery.finish()?;
        Ok(WorkerFiles { worker, processes, void, recovered, numbers, used, damaged })
    }
}

/// Removes the checkpoints that are newer than the one that is used, which are damaged. If this process took a snapshot from a peer
/// while they are there, the next one could not know whether what follows it counted.
pub(crate) fn remove_damaged(
    folder: &mut (impl Folder + ?Sized),
    numbers: &[u64],
    used: Option<usize>,
) -> Result<(), FolderError> {
    let damaged = &numbers[..used.unwrap_or(numbers.len())];
    for number in damaged {
        folder.remove(&checkpoint_name(*number))?;
    }
    if damaged.is_empty() { Ok(()) } else { folder.flush_folder() }
}

/// Reads the heads of a checkpoint, and whether it is whole.
fn read_heads(
    folder: &mut (impl Folder + ?Sized),
    number: u64,
    identity: Option<LogIdentity>,
) -> Result<(WorkerRecovery, CheckpointHead), WorkerLogError> {
    let (mut recovery, mut failure) = (WorkerRecovery::new(), None);
    let head = read_checkpoint(folder, number, identity, &mut |kind, block| {
        if kind != BLOCK {
            return Err("a block of an unknown kind");
        }
        let taken = recovery.block(&Bytes::copy_from_slice(block));
        failure = failure.take().or(taken.err());
        Ok(())
    })?;
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    recovery.end_checkpoint(number)?;
    Ok((recovery, head))
}

/// The processes that all of a node's logs name, but for logs from before they were recorded, and for those that name so many that
/// they lack others. None if that leaves no log: then it is not known which processes have written there.
#[must_use]
pub fn named_by_all(logs: impl IntoIterator<Item = Vec<ProcessInstance>>) -> Vec<ProcessInstance> {
    let is_known =
        |processes: &Vec<ProcessInstance>| !processes.is_empty() && processes.len() < PROCESSES_MAX;
    let named = logs.into_iter().filter(is_known);
    let in_both = |all: Vec<ProcessInstance>, of_one: Vec<ProcessInstance>| {
        all.into_iter().filter(|process| of_one.contains(process)).collect()
    };
    named.reduce(in_both).unwrap_or_default()
}

/// Reads parts of a checkpoint, each as the event that the worker receives before it starts.
///
/// # Errors
/// If it cannot be read, though it could before.
pub fn read_parts<M>(
    folder: &mut (impl Folder + ?Sized),
    identity: LogIdentity,
    parts: &CheckpointParts,
    mut pass: impl FnMut(WorkerEvent<M>),
) -> Result<(), WorkerLogError> {
    read_checkpoint(folder, parts.number, Some(identity), &mut |_, block| {
        if let Ok(CheckpointBlock::Part { shard, part }) = decode(&Bytes::copy_from_slice(block))
            && parts.shards.contains(&shard)
        {
            pass(WorkerEvent::CheckpointRead { shard, part });
        }
        Ok(())
    })?;
    Ok(())
}
