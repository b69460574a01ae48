//! The processes of a cluster's nodes: how they start, and how they end.

use super::namespaces::Namespaces;
use super::{ClusterFolder, LocalNode};
use crate::clock::now;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A node that was asked to end and has not is killed after this.
const ASKED_MAX: Duration = Duration::from_secs(2);

/// A killed process that is not gone after this is left to the system.
const KILLED_MAX: Duration = Duration::from_secs(2);

/// How often it is looked whether processes have ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A node in a process of its own.
struct NodeProcess {
    name: String,
    child: Child,
    died: Option<Instant>,
}

/// The processes of all nodes, in the order of the nodes. Clones are handles to the same processes.
///
/// No lock is held while a process is waited for, so that [`kill`](NodeProcesses::kill) never waits.
#[derive(Clone, Default)]
pub struct NodeProcesses(Arc<Mutex<Vec<NodeProcess>>>);

/// What became of a process since the last look.
pub enum ProcessChange {
    /// The node of this name has ended.
    Ended(String, ExitStatus),
    /// The process of the node at this place has been dead for as long as asked.
    Due(usize),
}

impl NodeProcesses {
    fn lock(&self) -> MutexGuard<'_, Vec<NodeProcess>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the process of the next node, or another one for the node at this place. Returns its number.
    ///
    /// # Errors
    /// If the system cannot start it.
    pub fn start(
        &self,
        folder: &ClusterFolder,
        namespaces: Option<&Namespaces>,
        at: usize,
        node: &LocalNode,
    ) -> io::Result<u32> {
        let child = spawn(folder, namespaces, at, &node.name)?;
        let process = child.id();
        let started = NodeProcess { name: node.name.clone(), child, died: None };
        let mut processes = self.lock();
        match processes.get_mut(at) {
            Some(place) => *place = started,
            None => processes.push(started),
        }
        Ok(process)
    }

    /// Which processes have ended since the last call, and which nodes have been without one for `restart_after`.
    pub fn look(&self, restart_after: Option<Duration>) -> Vec<ProcessChange> {
        let mut changes = Vec::new();
        for (at, process) in self.lock().iter_mut().enumerate() {
            if process.died.is_none()
                && let Ok(Some(status)) = process.child.try_wait()
            {
                process.died = Some(now());
                changes.push(ProcessChange::Ended(process.name.clone(), status));
            }
            if let (Some(died), Some(after)) = (process.died, restart_after)
                && died.elapsed() >= after
            {
                changes.push(ProcessChange::Due(at));
            }
        }
        changes
    }

    /// A node could not be started: it is due again later.
    pub fn postpone(&self, at: usize) {
        self.lock()[at].died = Some(now());
    }

    /// Has all of them end. One that hangs is killed.
    pub async fn end(&self) {
        for process in self.lock().iter_mut() {
            // A node ends when its standard input does.
            drop(process.child.stdin.take());
        }
        if !self.gone_within(ASKED_MAX).await {
            self.kill();
            self.gone_within(KILLED_MAX).await;
        }
    }

    async fn gone_within(&self, patience: Duration) -> bool {
        let began = now();
        loop {
            let alive = |process: &mut NodeProcess| matches!(process.child.try_wait(), Ok(None));
            // All are looked at: the system keeps a process until its end was seen.
            let left = self.lock().iter_mut().filter_map(|it| alive(it).then_some(())).count();
            if left == 0 || began.elapsed() >= patience {
                return left == 0;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Kills all of them, and waits for none.
    pub fn kill(&self) {
        for process in self.lock().iter_mut() {
            // It may be gone already.
            let _ = process.child.kill();
        }
    }
}

/// Starts the node at this place among them, which ends with this process.
fn spawn(
    folder: &ClusterFolder,
    namespaces: Option<&Namespaces>,
    at: usize,
    name: &str,
) -> io::Result<Child> {
    let program = std::env::current_exe()?;
    let mut command = match namespaces {
        Some(namespaces) => namespaces.command(at, &program),
        None => Command::new(program),
    };
    let place = folder.node(name);
    let log = File::options().create(true).append(true).open(place.join("node.log"))?;
    command
        .arg("serve")
        .arg("--with-input")
        .arg("--config")
        .arg(place.join("node.toml"))
        // Held open by us: it sees when we are gone.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        // A Ctrl-C in the terminal is for us, and we end the nodes.
        .process_group(0)
        .spawn()
}
