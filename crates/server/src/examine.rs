//! What the folder of a node holds of logs, for operators.

use crate::disks::{self, DisksError, RebootLoss, Volume};
use shoal_disk::DiskFolder;
use shoal_node::{ExaminedWorkerLog, WorkerLogError};
use shoal_types::{NodeId, WorkerId};
use std::path::Path;

/// The log of a worker, or why it cannot be used.
#[derive(Debug)]
pub struct ExaminedLog {
    /// The worker whose log it is.
    pub worker: WorkerId,
    /// What it holds.
    pub log: Result<ExaminedWorkerLog, WorkerLogError>,
}

/// What the folder of a node holds.
#[derive(Debug)]
pub struct NodeExamination {
    /// The node that has written it.
    pub node: NodeId,
    /// The random number of the volume.
    pub volume: u64,
    /// What was lost when the machine was started anew since.
    pub reboot_loss: RebootLoss,
    /// The cluster has given up what the logs hold: the next process begins without memory.
    pub is_void: bool,
    /// Logs that were set aside, by the names of their folders.
    pub set_aside: Vec<String>,
    /// By worker.
    pub logs: Vec<ExaminedLog>,
}

impl NodeExamination {
    /// Reads all logs in the folder of a node, the `data` of its file. Nothing is changed. `None` where no node has written logs there.
    ///
    /// # Errors
    /// [`DisksError`], where the files that name the owner cannot be read.
    pub fn of(data: &Path) -> Result<Option<NodeExamination>, DisksError> {
        let logs = disks::logs(data);
        let Some(volume) = Volume::read(&logs)? else { return Ok(None) };
        let examined = (0..volume.workers).map(WorkerId).map(|worker| -> Result<_, DisksError> {
            let path = disks::worker_folder(&logs, worker);
            if !path.exists() {
                return Ok(ExaminedLog { worker, log: Ok(ExaminedWorkerLog::default()) });
            }
            let owner = disks::identity(None, volume.node, volume.volume, worker);
            let mut folder = DiskFolder::view(&path)?;
            Ok(ExaminedLog { worker, log: ExaminedWorkerLog::of(&mut folder, Some(owner)) })
        });
        let logs_examined = examined.collect::<Result<Vec<_>, _>>()?;
        let is_sealed = |it: &ExaminedLog| it.log.as_ref().is_ok_and(|log| log.is_sealed);
        Ok(Some(NodeExamination {
            node: volume.node,
            volume: volume.volume,
            reboot_loss: volume.reboot_loss(logs_examined.iter().all(is_sealed)),
            is_void: disks::is_void(&logs),
            set_aside: disks::set_aside_before(data)?,
            logs: logs_examined,
        }))
    }

    /// Whether a process of the node uses the folder.
    ///
    /// # Errors
    /// [`DisksError::Folder`], which names the process.
    pub fn check_free(data: &Path) -> Result<(), DisksError> {
        disks::check_free(&disks::logs(data))
    }
}
