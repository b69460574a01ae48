//! What a node keeps on disk: the log of its manager, if it hosts one, and the list of managers.

use shoal_cluster::manager::StateMachine;
use shoal_disk::flush_names;
use shoal_raft::{DiskStorage, InMemoryDisk, LogMember, LogMembers};
use shoal_types::ClusterId;
use shoal_types::wire::{decode, encode};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const LOG: &str = "manager.redb";
/// The last log that was set aside.
const DROPPED: &str = "manager.redb.dropped";
const MEMBERS: &str = "managers";
const CLUSTER: &str = "cluster";

/// The storage of a manager's log.
pub(super) enum LogStorage {
    Disk(DiskStorage),
    Memory(InMemoryDisk),
}

/// The folder in which a node keeps the list of managers, and the log if it hosts a manager. Without a
/// folder, nothing is kept.
#[derive(Debug)]
pub(super) struct ManagerFolder(pub(super) Option<PathBuf>);

impl ManagerFolder {
    /// Whether the contents outlive the process.
    pub(super) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn has_log(&self) -> bool {
        self.0.as_ref().is_some_and(|folder| folder.join(LOG).exists())
    }

    /// The log, which is created if it does not exist.
    pub(super) fn log(&self) -> io::Result<LogStorage> {
        Ok(match &self.0 {
            Some(folder) => LogStorage::Disk(DiskStorage::open(&folder.join(LOG))?),
            None => LogStorage::Memory(InMemoryDisk::new()),
        })
    }

    /// Replaces the log by another one, which begins with this machine and this member alone. If it cannot be
    /// written, the former one stays.
    pub(super) fn begin_log(
        &self,
        manager_client: LogMember,
        machine: &StateMachine,
        version: u64,
    ) -> io::Result<(LogStorage, LogMembers)> {
        let Some(folder) = &self.0 else {
            let memory = InMemoryDisk::new();
            let members = shoal_raft::begin_with(&memory, manager_client, machine, version)?;
            return Ok((LogStorage::Memory(memory), members));
        };
        let next = folder.join(format!("{LOG}.next"));
        if next.exists() {
            fs::remove_file(&next)?; // The file of an interrupted attempt.
        }
        let disk = DiskStorage::open(&next)?;
        let members = shoal_raft::begin_with(&disk, manager_client, machine, version)?;
        fs::rename(next, folder.join(LOG))?;
        flush_names(folder)?;
        Ok((LogStorage::Disk(disk), members))
    }

    /// Sets aside the log of a manager that was removed from these members, which are stored first.
    pub(super) fn drop_log(&self, members: &LogMembers) -> io::Result<()> {
        self.keep(members)?;
        match &self.0 {
            Some(folder) => fs::rename(folder.join(LOG), folder.join(DROPPED)),
            None => Ok(()),
        }
    }

    /// The list of managers that was stored; an empty one, if none was.
    pub(super) fn members(&self) -> io::Result<LogMembers> {
        let Some(folder) = &self.0 else { return Ok(LogMembers::default()) };
        let path = folder.join(MEMBERS);
        match fs::read(&path) {
            Ok(bytes) => decode(&bytes.into()).map_err(|error| {
                let what = format!("{} is damaged: {error}; remove it", path.display());
                io::Error::new(io::ErrorKind::InvalidData, what)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LogMembers::default()),
            Err(error) => Err(error),
        }
    }

    /// Stores it. It is on disk when this returns.
    pub(super) fn keep(&self, members: &LogMembers) -> io::Result<()> {
        self.write(MEMBERS, &encode(members))
    }

    /// The cluster that the node has joined, if it has joined one.
    pub(super) fn cluster(&self) -> io::Result<Option<ClusterId>> {
        let Some(folder) = &self.0 else { return Ok(None) };
        let path = folder.join(CLUSTER);
        match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(Some).map_err(|error| {
                let what = format!("{} is damaged: {error}; write there what `shoal status` shows of the other nodes", path.display());
                io::Error::new(io::ErrorKind::InvalidData, what)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores it. It is on disk when this returns.
    pub(super) fn keep_cluster(&self, cluster: ClusterId) -> io::Result<()> {
        self.write(CLUSTER, format!("{cluster}\n").as_bytes())
    }

    /// Writes a file atomically.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let Some(folder) = &self.0 else { return Ok(()) };
        let next = folder.join(format!("{name}.next"));
        let mut file = File::create(&next)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(next, folder.join(name))?;
        flush_names(folder)
    }
}

/// The identity of a node's cluster, from its folder.
pub(crate) fn cluster_of(data: Option<&Path>) -> io::Result<Option<ClusterId>> {
    ManagerFolder(data.map(Path::to_owned)).cluster()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_raft::{LogMember, Volume};
    use shoal_types::NodeId;

    #[test]
    fn what_is_kept_is_found_and_a_log_goes_only_when_it_is() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = ManagerFolder(Some(place.path().to_owned()));
        assert_eq!(folder.members().expect("nothing"), LogMembers::default());
        assert!(!folder.has_log());
        drop(folder.log().expect("made"));
        assert!(folder.has_log());
        let manager_client = LogMember { node: NodeId(3), volume: Volume(5) };
        let members = LogMembers { version: 7, voters: vec![manager_client], learners: vec![] };
        folder.drop_log(&members).expect("set aside");
        assert!(!folder.has_log() && place.path().join(DROPPED).exists());
        assert_eq!(folder.members().expect("kept"), members);
        fs::write(place.path().join(MEMBERS), b"?").expect("written");
        let damaged = folder.members().expect_err("damaged").to_string();
        assert!(damaged.contains("managers is damaged"), "{damaged}");

        assert_eq!(folder.cluster().expect("nothing"), None);
        let cluster = ClusterId::new(0xbeef).expect("not 0");
        folder.keep_cluster(cluster).expect("kept");
        assert_eq!(folder.cluster().expect("kept"), Some(cluster));
        fs::write(place.path().join(CLUSTER), b"none").expect("written");
        let damaged = folder.cluster().expect_err("damaged").to_string();
        assert!(damaged.contains("cluster is damaged"), "{damaged}");

        drop(folder.log().expect("made"));
        let nowhere = ManagerFolder(Some(place.path().join("gone")));
        nowhere.drop_log(&members).expect_err("nothing is kept there");
        let memory = ManagerFolder(None);
        memory.drop_log(&members).expect("nothing to do");
        assert!(!memory.has_log() && !memory.is_kept());
    }
}
