//! The logs of a node's workers on disk, from the folder to what each worker begins with.
//!
//! ```text
//! DATA/log/volume        whose folder it is; with which durability it was used, in which boot of the kernel
//! DATA/log/worker-0/     log-000000 log-000001 … checkpoint-000000000007 lock
//! DATA/log.damaged-1/    set aside
//! ```
//! Whether the node still has its memory is decided here ([`OpenedDisks::is_lost`]), for all of its shards: each worker's log has
//! records of all of them.

use crate::planted::ServerPlantedBugs;
use shoal_cluster::manager::ProcessInstance;
use shoal_disk::{DiskFolder, OpenFolderError, flush_names};
use shoal_node::{
    CheckpointParts, DiskEffect, OpenedLog, RecoveredWorker, WorkerLog, WorkerLogError,
    WorkerLogOptions, named_by_all,
};
use shoal_types::{ClusterId, Durability, NodeId, WorkerId};
use shoal_wal::{LogError, LogIdentity};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// The folder of the logs in the node's folder.
const LOGS: &str = "log";
const VOLUME: &str = "volume";
/// A file that says that the logs are to be used no more.
const VOID: &str = "void";
/// How the names of logs begin that were set aside.
const ASIDE: &str = "log.damaged-";

/// Where the kernel says in which boot it is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why a node does not start with the logs in its folder.
#[derive(Debug, Error)]
pub enum DisksError {
    /// A folder cannot be used.
    #[error(transparent)]
    Folder(#[from] OpenFolderError),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    System {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The files are of another node, or of a newer build.
    #[error("{path}: {error}")]
    Refused {
        /// The folder.
        path: PathBuf,
        /// What is wrong with them.
        error: WorkerLogError,
    },
    /// The folder is another node's, or the node has another number of workers now.
    #[error("{path} belongs to {found}, expected {expected}: this is the folder of another node")]
    Foreign {
        /// The file that says so.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
    /// There are logs, and the file that says whose they are is gone.
    #[error(
        "{path} is missing, and there are logs beside it: put it back, or move its folder away, and the node begins without memory"
    )]
    NoVolume {
        /// The file.
        path: PathBuf,
    },
    /// The disk has no room for the first segment.
    #[error("{path}: the disk has no room for a segment of the log")]
    Full {
        /// The folder.
        path: PathBuf,
    },
}

impl DisksError {
    /// Whether a later start may succeed though nothing is configured anew: when the disk has room again, or can be read.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            DisksError::Full { .. } => true,
            // Others are what the system says; this is what a file says that is malformed.
            DisksError::System { error, .. } => error.kind() != io::ErrorKind::Other,
            DisksError::Folder(error) => matches!(error, OpenFolderError::Failed { .. }),
            DisksError::Refused { error, .. } => {
                matches!(error, WorkerLogError::Log(LogError::Folder(_)))
            }
            DisksError::Foreign { .. } | DisksError::NoVolume { .. } => false,
        }
    }
}

/// What the logs of a node that had not stopped in order lost when its machine was started anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebootLoss {
    /// Nothing: with `fsync`, or where the node had stopped in order, or the machine was not started anew.
    Nothing,
    /// All, if the node begins with `async`: an earlier build, which did not record its durability, wrote the logs.
    AllIfAsync,
    /// All: the durability was `async`, and what was written may not have reached the disk.
    All,
}

impl RebootLoss {
    /// Whether a process with this durability finds nothing that counts.
    fn is_all(self, durability: Durability) -> bool {
        match self {
            RebootLoss::Nothing => false,
            RebootLoss::AllIfAsync => durability == Durability::Async,
            RebootLoss::All => true,
        }
    }
}

/// Whose logs a folder has, as its file `volume` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) node: NodeId,
    pub(crate) workers: u32,
    /// A random number, drawn when the folder was first used.
    pub(crate) volume: u64,
    /// The durability with which it was used last; `None` where an earlier build wrote the file.
    durability: Option<Durability>,
    /// The boot in which it was used last.
    boot: String,
}

/// The folder of the logs in the folder of a node.
pub(crate) fn logs(data: &Path) -> PathBuf {
    data.join(LOGS)
}

/// The folder of a worker's log among those.
pub(crate) fn worker_folder(logs: &Path, worker: WorkerId) -> PathBuf {
    logs.join(format!("worker-{}", worker.0))
}

/// Fails, with the number of the process, if a process uses these logs.
pub(crate) fn check_free(logs: &Path) -> Result<(), DisksError> {
    let Some(volume) = Volume::read(logs)? else { return Ok(()) };
    let mut workers = (0..volume.workers).map(WorkerId);
    workers.try_for_each(|worker| Ok(DiskFolder::check_free(&worker_folder(logs, worker))?))
}

/// Whether the next process of the node begins without memory.
pub(crate) fn is_void(logs: &Path) -> bool {
    logs.join(VOID).exists()
}

/// The names of logs that were set aside in the folder of a node, ascending.
pub(crate) fn set_aside_before(data: &Path) -> Result<Vec<String>, DisksError> {
    let all = fs::read_dir(data).and_then(|all| all.collect::<io::Result<Vec<_>>>());
    let all = all.map_err(|error| failed(data, error))?.into_iter();
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(ASIDE)).collect();
    names.sort_unstable();
    Ok(names)
}

/// In which boot the kernel is; empty where it does not say.
fn present_boot() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// The log of a worker that was opened.
pub(crate) struct OpenedDisk {
    pub(crate) folder: DiskFolder,
    pub(crate) identity: LogIdentity,
    pub(crate) log: WorkerLog,
    /// What the log wants first.
    pub(crate) effects: Vec<DiskEffect>,
    /// The number of the checkpoint that was read.
    pub(crate) checkpoint: Option<u64>,
}

/// What a worker begins with.
pub(crate) struct OpenedWorker {
    pub(crate) disk: OpenedDisk,
    /// What its streams had stored.
    pub(crate) recovered: RecoveredWorker,
    /// The checkpoint whose parts it receives before it starts, if there is one.
    pub(crate) begins_with: Option<CheckpointToRead>,
    /// The former processes of the node that its log names.
    processes: Vec<ProcessInstance>,
    /// Whether the last one had ended in order.
    is_sealed: bool,
    /// Nothing was written there before.
    is_new: bool,
}

/// The checkpoint of a worker, and where its parts are read.
pub(crate) struct CheckpointToRead {
    pub(crate) folder: DiskFolder,
    pub(crate) identity: LogIdentity,
    pub(crate) parts: CheckpointParts,
}

/// Has the next process of the node begin without memory: its logs hold what the cluster has given up.
pub(crate) fn void(data: &Path) -> io::Result<()> {
    let logs = logs(data);
    let path = logs.join(VOID);
    fs::write(&path, "")?;
    fs::File::open(&path)?.sync_all()?;
    flush_names(&logs)
}

/// The logs of a node's workers.
pub(crate) struct OpenedDisks {
    /// By the number of the worker.
    pub(crate) workers: Vec<OpenedWorker>,
    /// The node has nothing of its former processes.
    pub(crate) is_lost: bool,
}

/// The owner of the logs that are to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DisksOwner {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) node: NodeId,
    pub(crate) workers: u32,
    pub(crate) durability: Durability,
    /// The process that opens them.
    pub(crate) process: ProcessInstance,
    /// How much longer flushes take than they do.
    pub(crate) flush_delay: Duration,
    /// What is not flushed is lost with the process.
    pub(crate) loses_unflushed: bool,
    /// After so many flushes all fail.
    pub(crate) flushes_fail_after: Option<u32>,
    pub(crate) planted: ServerPlantedBugs,
}

impl OpenedDisks {
    /// The former processes of the node that all logs name.
    pub(crate) fn named(&self) -> Vec<ProcessInstance> {
        named_by_all(self.workers.iter().map(|worker| worker.processes.clone()))
    }

    /// Opens the logs below the node's folder `data`, and makes them where there are none. What is damaged is set aside, and
    /// the node has lost its memory then. `new_volume` is a random number.
    pub(crate) fn open(
        data: &Path,
        owner: DisksOwner,
        new_volume: u64,
    ) -> Result<OpenedDisks, DisksError> {
        let (path, boot) = (logs(data), present_boot());
        if boot.is_empty() && owner.durability == Durability::Async {
            tracing::warn!(
                node = %owner.node, file = BOOT_ID,
                "the kernel does not say in which boot it is: with durability async the node loses its memory unless it is stopped in order"
            );
        }
        if is_void(&path) {
            // A process that still ends uses files of this folder by their names.
            check_free(&path)?;
            set_aside(data)?;
        }
        let found = Volume::read(&path)?;
        let DisksOwner { node, workers, .. } = owner;
        let durability = Some(owner.durability);
        let new = Volume { node, workers, volume: new_volume, durability, boot };
        let Some(found) = found else { return OpenedDisks::begin(&path, owner, &new) };
        found.check(&path, &new)?;
        // What the kernel had may not have reached the disk, unless the node had stopped in order.
        let was_async = found.durability.unwrap_or(owner.durability) == Durability::Async;
        let has_lost_all = |workers: &[OpenedWorker]| {
            let loss = found.reboot_loss(workers.iter().all(|worker| worker.is_sealed));
            loss.is_all(owner.durability) && !owner.planted.trust_other_boots
        };
        match open_all(&path, owner, found.volume) {
            Ok(workers) if has_lost_all(&workers) => {
                tracing::warn!(
                    node = %owner.node, path = %path.display(),
                    "the machine was started anew since this node ran, which had not stopped in order, and its durability was async: its \
                     logs are set aside"
                );
                drop(workers);
                OpenedDisks::begin_anew(data, owner, &new)
            }
            // A process that began without memory ended before it had written to all of its logs; or files are gone.
            Ok(workers) if workers.iter().any(|worker| worker.is_new != workers[0].is_new) => {
                tracing::warn!(
                    node = %owner.node, path = %path.display(),
                    "the log of a worker is empty: all logs of the node are set aside, and it begins without memory"
                );
                drop(workers);
                OpenedDisks::begin_anew(data, owner, &new)
            }
            Ok(workers) => {
                if was_async && owner.durability != Durability::Async {
                    // From now on the durability says that all of it is on the disk.
                    let mut folders = workers.iter().map(|worker| &worker.disk.folder);
                    let flushed = folders.try_for_each(DiskFolder::flush_all);
                    flushed.map_err(|error| failed(&path, error))?;
                }
                Volume { boot: new.boot, durability: new.durability, ..found }.write(&path)?;
                // All of them, where that process had not written to any.
                let is_lost = workers.iter().any(|worker| worker.is_new);
                OpenedDisks::get_ready(workers, is_lost)
            }
            Err(DisksError::Refused { path: worker, error }) if error.is_damage() => {
                tracing::error!(
                    node = %owner.node, path = %worker.display(), %error,
                    "the log of a worker is damaged: all logs of the node are set aside, and it begins without memory"
                );
                OpenedDisks::begin_anew(data, owner, &new)
            }
            Err(error) => Err(error),
        }
    }

    /// Sets aside what there is, and begins without memory.
    fn begin_anew(data: &Path, owner: DisksOwner, new: &Volume) -> Result<OpenedDisks, DisksError> {
        set_aside(data)?;
        OpenedDisks::begin(&logs(data), owner, new)
    }

    fn begin(path: &Path, owner: DisksOwner, new: &Volume) -> Result<OpenedDisks, DisksError> {
        // The name of the folder is on the disk before anything in it counts.
        let data = path.parent().expect("it is in the node's folder");
        let made = fs::create_dir_all(path).and_then(|()| flush_names(data));
        made.map_err(|error| failed(path, error))?;
        new.write(path)?;
        OpenedDisks::get_ready(open_all(path, owner, new.volume)?, true)
    }

    /// Has all logs name this process, which nothing did before: a log that does not end in order any more, beside a `volume` of
    /// another boot, would be set aside by the next process, if this one ended in between.
    fn get_ready(mut workers: Vec<OpenedWorker>, is_lost: bool) -> Result<OpenedDisks, DisksError> {
        workers.iter_mut().try_for_each(|worker| worker.disk.get_ready())?;
        Ok(OpenedDisks { workers, is_lost })
    }
}

fn failed(path: &Path, error: io::Error) -> DisksError {
    DisksError::System { path: path.to_owned(), error }
}

/// Gives the folder of the logs another name, which no former one has.
fn set_aside(data: &Path) -> Result<(), DisksError> {
    let path = logs(data);
    let names = (1..).map(|number: u32| data.join(format!("{ASIDE}{number}")));
    let free = names.into_iter().find(|name| !name.exists()).expect("numbers do not end");
    // Both names are on the disk before what comes instead is.
    let renamed = fs::rename(&path, free).and_then(|()| flush_names(data));
    renamed.map_err(|error| failed(&path, error))
}

fn open_all(path: &Path, owner: DisksOwner, volume: u64) -> Result<Vec<OpenedWorker>, DisksError> {
    (0..owner.workers).map(|worker| open_one(path, owner, volume, WorkerId(worker))).collect()
}

fn open_one(
    path: &Path,
    owner: DisksOwner,
    volume: u64,
    worker: WorkerId,
) -> Result<OpenedWorker, DisksError> {
    let path = worker_folder(path, worker);
    let mut folder = DiskFolder::open(&path)?.with_flush_delay(owner.flush_delay);
    if owner.durability == Durability::Async {
        folder = folder.without_flushes();
    }
    if owner.loses_unflushed {
        folder = folder.losing_unflushed();
    }
    if let Some(flushes) = owner.flushes_fail_after {
        folder = folder.failing_after(flushes);
    }
    let identity = identity(owner.cluster, owner.node, volume, worker);
    let mut effects = Vec::new();
    let options = WorkerLogOptions::default();
    let opened = WorkerLog::open(&mut folder, identity, options, owner.process, &mut effects);
    let OpenedLog {
        log, recovered, checkpoint, processes, torn, is_sealed, is_new, damaged, ..
    } = opened.map_err(|error| DisksError::Refused { path: path.clone(), error })?;
    if let Some(torn) = torn {
        tracing::info!(
            path = %path.display(), file = %torn.file, offset = torn.offset,
            "the log ended in a group that was being written: it is cut there, and nothing of it was acknowledged"
        );
    }
    for error in damaged {
        tracing::warn!(path = %path.display(), %error, "a checkpoint is damaged: an older one is used");
    }
    let number = checkpoint.as_ref().map(|parts| parts.number);
    let begins_with =
        checkpoint.map(|parts| CheckpointToRead { folder: folder.another(), identity, parts });
    let disk = OpenedDisk { folder, identity, log, effects, checkpoint: number };
    Ok(OpenedWorker { disk, recovered, begins_with, processes, is_sealed, is_new })
}

/// The owner that the files of a worker's log name. Each worker's records are its own: another number keeps them apart.
pub(crate) fn identity(
    cluster: Option<ClusterId>,
    node: NodeId,
    volume: u64,
    worker: WorkerId,
) -> LogIdentity {
    LogIdentity { cluster, node, volume: volume.wrapping_add(u64::from(worker.0)) }
}

impl OpenedDisk {
    /// Has the log durably name this process.
    fn get_ready(&mut self) -> Result<(), DisksError> {
        let path = self.folder.path().to_owned();
        match self.log.get_ready(&mut self.folder, &mut self.effects) {
            Ok(true) => Ok(()),
            Ok(false) => Err(DisksError::Full { path }),
            Err(error) => Err(DisksError::Refused { path, error: error.into() }),
        }
    }
}

impl Volume {
    /// What was lost when the machine was started anew since the folder was used last, which had `ended_in_order` or not.
    pub(crate) fn reboot_loss(&self, ended_in_order: bool) -> RebootLoss {
        let present = present_boot();
        match self.durability {
            _ if ended_in_order => RebootLoss::Nothing,
            _ if self.boot == present && !present.is_empty() => RebootLoss::Nothing,
            Some(Durability::Async) => RebootLoss::All,
            Some(Durability::Memory | Durability::Fsync) => RebootLoss::Nothing,
            None => RebootLoss::AllIfAsync,
        }
    }

    /// What the folder of the logs says; `None` where there is none.
    pub(crate) fn read(folder: &Path) -> Result<Option<Volume>, DisksError> {
        let path = folder.join(VOLUME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // It is written before the first log is.
                let has_logs = worker_folder(folder, WorkerId(0)).exists();
                return if has_logs { Err(DisksError::NoVolume { path }) } else { Ok(None) };
            }
            Err(error) => return Err(failed(&path, error)),
        };
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
        };
        let read = || {
            Some(Volume {
                node: NodeId(field("node")?.parse().ok()?),
                workers: field("workers")?.parse().ok()?,
                volume: u64::from_str_radix(field("volume")?, 16).ok()?,
                durability: match field("durability") {
                    Some(level) => Some(level.parse().ok()?),
                    None => None,
                },
                boot: field("boot").unwrap_or_default().to_owned(),
            })
        };
        let malformed = || failed(&path, io::Error::other("it is damaged: move the folder away"));
        read().map(Some).ok_or_else(malformed)
    }

    /// It is on disk when this returns.
    fn write(&self, folder: &Path) -> Result<(), DisksError> {
        let Volume { node, workers, volume, durability, boot } = self;
        let level = durability.map_or_else(String::new, |level| format!("durability {level}\n"));
        let (node, volume) = (node.0, format_args!("{volume:016x}"));
        let text = format!("node {node}\nworkers {workers}\nvolume {volume}\n{level}boot {boot}\n");
        let (path, next) = (folder.join(VOLUME), folder.join("volume.next"));
        let written = fs::write(&next, text)
            .and_then(|()| fs::File::open(&next)?.sync_all())
            .and_then(|()| fs::rename(&next, &path))
            .and_then(|()| flush_names(folder));
        written.map_err(|error| failed(&path, error))
    }

    fn check(&self, path: &Path, expected: &Volume) -> Result<(), DisksError> {
        let describe = |it: &Volume| format!("{} with {} workers", it.node, it.workers);
        match (self.node, self.workers) == (expected.node, expected.workers) {
            true => Ok(()),
            false => Err(DisksError::Foreign {
                path: path.join(VOLUME),
                found: describe(self),
                expected: describe(expected),
            }),
        }
    }
}
