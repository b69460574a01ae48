//! State that the manager inbox of a node shares with the worker host beside it: the list of managers, and the manager
//! here.

use shoal_cluster::manager::ToManager;
use shoal_net::SystemClock;
use shoal_raft::LogMembers;
use shoal_types::{NodeId, Time};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State that a manager inbox shares with the worker host beside it.
#[derive(Debug)]
pub(super) struct SharedStatus {
    /// The managers of the node's file, where to begin.
    pub(super) named: Vec<NodeId>,
    /// The clock of the manager, and of the arrival of heartbeats.
    pub(super) clock: SystemClock,
    state: Mutex<SharedStatusState>,
}

#[derive(Debug, Default)]
pub(super) struct SharedStatusState {
    /// The latest committed list of managers that is known here.
    pub(super) known: LogMembers,
    /// The log of the manager that is hosted here.
    pub(super) log: Option<shoal_raft::RaftHandle>,
    /// The last heartbeat of each node, and when it arrived. Heartbeats do not wake the manager inbox: there
    /// are more of them than of all other inputs.
    heartbeats: BTreeMap<NodeId, (Time, ToManager)>,
}

impl SharedStatusState {
    /// Keeps a heartbeat for the manager here, which may be about to lead. Returns whether it has to be
    /// handled at once, since its node has an older list of managers.
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

    /// Takes the heartbeats that have arrived since then. Older ones belong to another leadership.
    pub(super) fn take_heartbeats(&mut self, since: Time) -> BTreeMap<NodeId, (Time, ToManager)> {
        let mut kept = std::mem::take(&mut self.heartbeats);
        kept.retain(|_, (at, _)| *at >= since);
        kept
    }
}

impl SharedStatus {
    /// The status of a node whose file names these managers.
    pub(super) fn new(named: Vec<NodeId>) -> SharedStatus {
        SharedStatus { named, clock: SystemClock::new(), state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SharedStatusState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep_heartbeat(&self, from: NodeId, version: u64, message: &ToManager) -> bool {
        let mut state = self.state();
        state.keep_heartbeat(self.clock.now(), from, version, message)
    }

    pub(super) fn known(&self) -> LogMembers {
        self.state().known.clone()
    }

    /// No manager is hosted here any more.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.log = None;
        state.heartbeats.clear();
    }

    pub(super) fn version(&self) -> u64 {
        self.state().known.version
    }

    /// Takes a list, if it is a later one.
    pub(super) fn learn(&self, members: LogMembers) -> bool {
        let mut state = self.state();
        let is_news = members.version > state.known.version;
        if is_news {
            state.known = members;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::manager::{
        Incarnation, ManagerOptions, ProcessInstance, Revision, StateMachine,
    };
    use shoal_cluster::topology::Topology;
    use std::sync::Arc;

    fn heartbeat(round: u64) -> ToManager {
        let (instance, incarnation, known) = (ProcessInstance(1), Incarnation(1), Revision(0));
        ToManager::Heartbeat { instance, incarnation, round, granted: 0, known }
    }

    #[test]
    fn a_heartbeat_with_an_old_list_wakes_the_inbox() {
        let mut state = SharedStatusState::default();
        state.known.version = 3;
        assert!(state.keep_heartbeat(Time(1), NodeId(1), 2, &heartbeat(1)), "it needs the list");
        assert!(!state.keep_heartbeat(Time(1), NodeId(1), 3, &heartbeat(1)));
        assert!(state.take_heartbeats(Time(0)).is_empty(), "no manager is hosted here");
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
