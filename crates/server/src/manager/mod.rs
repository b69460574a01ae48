//! A node's part of the configuration manager, on a thread of its own: its log writes to disk and waits for it.
//!
//! ```text
//!   worker host of the first worker ── inputs ──► manager inbox ─► manager ◄── exchange ──► raft ── asks ──► RPC
//!             ▲   ▲                          │         │                                        │
//!             │   └──── shared status: who, how ◄────┘         │                                        │
//!             └────────────── commands: told, send ◄───┴────────────────────────────────────────┘
//! ```
//! Heartbeats of nodes are left on the shared status, where the manager inbox finds them when other managers have acknowledged that this
//! one leads: so they wake no manager inbox.
//! Messages between managers go over the connections of the first workers. Every node has a manager inbox, so that any can
//! be told to host a manager; and so that any that knows who the managers are tells those who know less.
//!
//! Who they are stands in the managers' log, as lists with versions. `managers` in a node's file is where to begin.
//! A node sends the version it has with all that it says, and is told of a later one; while it is granted no lease,
//! it asks one more node each time, until it has found one that knows. So no node has to be restarted when a
//! manager moves, and one that begins with an old file finds its way. Nodes that have a folder keep the list in it.
//! While more than half of its lease is left, a node shows itself to the manager that has granted it, and to no other.
//!
//! 1. *No member votes twice.* A member of the log is a volume, on a node. A node that lost its volume has another one, which is
//!    none of the members, and what is asked of the lost one is not answered (`shoal_raft::Member`).
//! 2. *A cluster begins once.* The first of the named managers begins it when all of them say, one after the other,
//!    that their volumes are new (`bootstrap.rs`). When one has a log, or any node has heard of managers, there is a
//!    cluster, and who has nothing waits to be let in.
//! 3. *A cluster is itself.* Its first manager draws its identity (`shoal_cluster::manager::Action::Take`). A node learns it
//!    from its managers, keeps it in its folder, and from then on talks with no node of another (`shoal_net::Identity`). So a node
//!    that has missed that all others began anew comes to nothing, and neither do its lists of managers.
//! 4. *Who was dropped ends its manager*, and sets its volume aside, when it hears of a committed list without it; but
//!    not before that list is on its disk, so that it knows of a cluster for ever.
//! 5. *Managers whose loss was accepted stay lost* (`recovery.rs`). The list of those that follow is later than any of
//!    theirs, and one that comes back hears it from any node that it says something to.
//!
//! Read in this order: `manager_inbox.rs`, `manager_host.rs`, `folder.rs`; `bootstrap.rs`, `change.rs` with `operator.rs`, `recovery.rs`;
//! `rpc.rs`.

mod bootstrap;
mod change;
mod folder;
mod host;
mod inbox;
mod operator;
mod recovery;
mod rpc;

pub use operator::{FromOperator, OperatorRefusal, RecoveryStage, RememberedManagers, ToOperator};

use crate::envelope::{RpcReply, RpcRequest};
use crate::worker_host::WorkerCommand;
use folder::ManagerFolder;
use inbox::ManagerInbox;
use shoal_cluster::manager::{ManagerOptions, ToManager};
use shoal_cluster::topology::Topology;
use shoal_net::SystemClock;
use shoal_raft::LogMembers;
use shoal_types::{ClusterId, NodeId, Random, Time};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;

/// Most inputs that wait at a manager inbox. More get lost, and are said again.
const LETTERS_MAX: usize = 1 << 14;

/// What comes to a manager inbox from its node.
#[derive(Debug)]
pub(crate) enum ManagerInput {
    /// A node says something to managers, and which version of their list it has.
    FromNode { from: NodeId, version: u64, message: ToManager },
    /// Another manager inbox asks something.
    Ask { from: NodeId, number: u64, question: RpcRequest },
    /// The answer of another node to a request with this number.
    Answer { from: NodeId, number: u64, answer: RpcReply },
    /// Who the managers are, as another manager inbox knows.
    Members { from: NodeId, members: LogMembers },
    /// The node has joined this cluster, and belongs to it for good.
    Joined(ClusterId),
    /// An operator wants something changed.
    Operator { client: shoal_net::ConnectedClient, wanted: FromOperator },
}

/// What a manager inbox and the worker host beside it both see.
#[derive(Debug)]
struct SharedStatus {
    /// Where to begin: the managers of the node's file.
    named: Vec<NodeId>,
    /// The manager's clock, by which heartbeats come too.
    clock: SystemClock,
    state: Mutex<SharedStatusState>,
}

#[derive(Debug, Default)]
struct SharedStatusState {
    /// Who the managers are, by the latest committed list that was heard of.
    known: LogMembers,
    /// The log of the manager that is hosted here.
    log: Option<shoal_raft::RaftHandle>,
    /// The last heartbeat of each node, and when it came. They wait, and wake no manager inbox: there are more of them than of all
    /// other inputs.
    heartbeats: BTreeMap<NodeId, (Time, ToManager)>,
}

impl SharedStatusState {
    /// Keeps a heartbeat for the manager here, which may be about to lead. Says whether it has to be read at once, since
    /// its node knows less of who the managers are.
    fn keep_heartbeat(
        &mut self,
        now: Time,
        from: NodeId,
        version: u64,
        message: &ToManager,
    ) -> bool {
        if version < self.known.version {
            return true;
        }
        if self.log.is_some() {
            self.heartbeats.insert(from, (now, message.clone()));
        }
        false
    }

    /// Takes the heartbeats that have come since then. Older ones are of another leadership.
    fn take_heartbeats(&mut self, since: Time) -> BTreeMap<NodeId, (Time, ToManager)> {
        let mut kept = std::mem::take(&mut self.heartbeats);
        kept.retain(|_, (at, _)| *at >= since);
        kept
    }
}

impl SharedStatus {
    fn state(&self) -> MutexGuard<'_, SharedStatusState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_heartbeat(&self, from: NodeId, version: u64, message: &ToManager) -> bool {
        let mut state = self.state();
        state.keep_heartbeat(self.clock.now(), from, version, message)
    }

    fn known(&self) -> LogMembers {
        self.state().known.clone()
    }

    /// No manager is hosted here any more.
    fn close(&self) {
        let mut state = self.state();
        state.log = None;
        state.heartbeats.clear();
    }

    fn version(&self) -> u64 {
        self.state().known.version
    }

    /// Takes a list, if it is a later one.
    fn learn(&self, members: LogMembers) -> bool {
        let mut state = self.state();
        let is_news = members.version > state.known.version;
        if is_news {
            state.known = members;
        }
        is_news
    }
}

/// The way to the manager inbox of this process.
#[derive(Debug, Clone)]
pub(crate) struct InputSender {
    input_queue: mpsc::Sender<ManagerInput>,
    shared_status: Arc<SharedStatus>,
    /// How long a lease lasts that managers grant.
    pub(crate) lease: Duration,
}

impl InputSender {
    /// A way, and its end, of a node whose file names these managers.
    pub(crate) fn new(named: Vec<NodeId>, lease: Duration) -> (InputSender, InputReceiver) {
        let (input_queue, received) = mpsc::channel(LETTERS_MAX);
        let shared_status =
            Arc::new(SharedStatus { named, clock: SystemClock::new(), state: Mutex::default() });
        let manager_inputs =
            InputSender { input_queue, shared_status: Arc::clone(&shared_status), lease };
        (manager_inputs, InputReceiver { input_queue: received, shared_status })
    }

    /// Leaves an input. It gets lost if too many wait, or if the manager inbox is no more.
    pub(crate) fn post(&self, manager_input: ManagerInput) {
        if let ManagerInput::FromNode {
            from,
            version,
            message: message @ ToManager::Heartbeat { .. },
        } = &manager_input
            && !self.shared_status.keep_heartbeat(*from, *version, message)
        {
            return;
        }
        if self.input_queue.try_send(manager_input).is_err() {
            tracing::debug!("an input to the manager got lost");
        }
    }

    /// The nodes that have managers, as far as is known here, and the version of that list; 0 for that of the file.
    pub(crate) fn managers(&self) -> (u64, Vec<NodeId>) {
        let state = self.shared_status.state();
        match state.known.version {
            0 => (0, self.shared_status.named.clone()),
            version => (version, state.known.nodes().into_iter().collect()),
        }
    }

    /// Of the manager that is hosted here, how it is, and whether it votes by the latest list that is known.
    pub(crate) fn hosted(&self) -> Option<(shoal_raft::LogMember, shoal_raft::RaftStatus, bool)> {
        let state = self.shared_status.state();
        let log = state.log.as_ref()?;
        Some((log.me(), log.status(), state.known.voters.contains(&log.me())))
    }
}

/// The end of a [`InputSender`].
#[derive(Debug)]
pub(crate) struct InputReceiver {
    input_queue: mpsc::Receiver<ManagerInput>,
    shared_status: Arc<SharedStatus>,
}

/// Which cluster a node belongs to, by what it keeps in its folder.
pub(crate) fn cluster_of(data: Option<&Path>) -> io::Result<Option<ClusterId>> {
    ManagerFolder(data.map(Path::to_owned)).cluster()
}

/// A manager inbox to be started.
#[derive(Debug)]
pub(crate) struct ManagerPlan {
    pub(crate) node: NodeId,
    pub(crate) topology: Arc<Topology>,
    pub(crate) options: ManagerOptions,
    pub(crate) log: shoal_raft::RaftOptions,
    /// Where the log and the list of managers are kept. `None` for memory, for a process that has no other after it.
    pub(crate) data: Option<PathBuf>,
    /// Volumes are drawn from it.
    pub(crate) random: Random,
}

/// Starts a node's manager inbox. It ends when all senders to it are gone, which is when its node has ended.
pub(crate) fn start(
    plan: ManagerPlan,
    inbox: InputReceiver,
    worker_hosts: shoal_net::Handle<WorkerCommand>,
) -> io::Result<thread::JoinHandle<()>> {
    let name = format!("{}-manager", plan.node);
    let InputReceiver { mut input_queue, shared_status } = inbox;
    let folder = ManagerFolder(plan.data.clone());
    shared_status.learn(folder.members()?);
    // A node that has a log hosts a manager, also where its file does not say so. Of those that are named there, one that knows of a
    // cluster and has no log is to host none: it was dropped, or has lost it.
    let hosts = folder.has_log()
        || (shared_status.named.contains(&plan.node) && shared_status.version() == 0);
    let storage = hosts.then(|| folder.log()).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    thread::Builder::new().name(name).spawn(move || {
        let stops = StopWorkersOnDrop(worker_hosts.clone());
        let node = plan.node;
        runtime.block_on(async {
            let mut manager_inbox = ManagerInbox::new(plan, shared_status, worker_hosts);
            if let Err(error) = manager_inbox.work(storage, &mut input_queue).await {
                tracing::error!(%node, %error, "the manager has stopped");
            }
            manager_inbox.close().await;
        });
        drop(stops);
    })
}

/// A node that is to have a manager, and has none, is no use to the cluster.
struct StopWorkersOnDrop(shoal_net::Handle<WorkerCommand>);

impl Drop for StopWorkersOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::manager::{Incarnation, ProcessInstance, Revision, StateMachine};

    fn heartbeat(round: u64) -> ToManager {
        let (instance, incarnation, known) = (ProcessInstance(1), Incarnation(1), Revision(0));
        ToManager::Heartbeat { instance, incarnation, round, granted: 0, known }
    }

    #[test]
    fn heartbeats_wake_only_those_who_know_more_than_the_sender() {
        let mut state = SharedStatusState::default();
        state.known.version = 3;
        assert!(state.keep_heartbeat(Time(1), NodeId(1), 2, &heartbeat(1)), "it has to be told");
        assert!(!state.keep_heartbeat(Time(1), NodeId(1), 3, &heartbeat(1)));
        assert!(state.take_heartbeats(Time(0)).is_empty(), "nobody is here to want them");
    }

    #[tokio::test]
    async fn the_last_heartbeat_of_each_node_waits_and_not_for_ever() {
        let (_, log) = shoal_raft::start(
            NodeId(0),
            shoal_raft::Volume(1),
            &shoal_raft::RaftOptions::default(),
            StateMachine::new(
                Arc::new(Topology::symmetric(1, 1, 1, 0, 1)),
                ManagerOptions::default(),
            ),
            shoal_raft::InMemoryDisk::default(),
            NoManager,
        )
        .await
        .expect("it starts");
        let mut state = SharedStatusState { log: Some(log), ..SharedStatusState::default() };
        for (at, node, round) in [(1, 1, 1), (5, 2, 1), (6, 1, 2), (2, 3, 9)] {
            assert!(!state.keep_heartbeat(Time(at), NodeId(node), 0, &heartbeat(round)));
        }
        let taken: Vec<_> = state.take_heartbeats(Time(5)).into_iter().collect();
        let wanted = [(1, 6, 2), (2, 5, 1)];
        let wanted = wanted.map(|(node, at, round)| (NodeId(node), (Time(at), heartbeat(round))));
        assert_eq!(taken, wanted);
        assert!(state.take_heartbeats(Time(0)).is_empty(), "each is taken once");
    }

    struct NoManager;

    impl shoal_raft::Transport for NoManager {
        async fn call(
            &self,
            to: NodeId,
            _: bytes::Bytes,
        ) -> Result<bytes::Bytes, shoal_raft::Unreachable> {
            Err(shoal_raft::Unreachable { to })
        }

        fn now(&self) -> Time {
            Time::ZERO
        }
    }
}
