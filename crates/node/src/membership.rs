//! What the workers of a node share of the cluster's state: the configuration, and how long the node may act on it. The
//! worker that hosts the [`ManagerClient`](shoal_cluster::manager::ManagerClient) receives it from the manager, and
//! publishes it here for the others.
//!
//! Order matters: a configuration is published before the lease that was granted for it. A worker reads
//! the lease first and the configuration's version after it, so a lease never lasts longer for an old
//! leadership than it was granted to that.

use shoal_cluster::manager::{
    Configuration, Incarnation, ManagerOptions, ManagerRequest, StateMachine,
};
use shoal_cluster::topology::Topology;
use shoal_types::{Ballot, NodeId, ShardId, Time, WorkerId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the workers of a node know of the cluster: the configuration, and until when they may act on it. Shared by the
/// workers of a node.
#[derive(Debug)]
pub struct Membership {
    workers: u32,
    /// The number of workers that have not begun.
    beginning: AtomicU32,
    /// On the node's clock.
    lease_end: AtomicU64,
    /// See [`Membership::is_recalled`].
    is_recalled: AtomicBool,
    /// Moves with the configuration.
    version: AtomicU64,
    /// The number of requests that wait to be sent.
    words: AtomicU64,
    state: Mutex<MembershipState>,
}

#[derive(Debug, Default)]
struct MembershipState {
    known: Option<KnownConfiguration>,
    /// The requests that the manager client has to send.
    words: Vec<ManagerRequest>,
    /// Replicas without memory, and for how many streams each has caught up.
    caught_up: BTreeMap<(ShardId, NodeId), CaughtUp>,
}

#[derive(Debug, PartialEq, Eq)]
struct CaughtUp {
    ballot: Ballot,
    incarnation: Incarnation,
    workers: Vec<WorkerId>,
}

/// The configuration, and which process of this node it admits.
#[derive(Debug, Clone)]
pub(crate) struct KnownConfiguration {
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) incarnation: Incarnation,
}

impl Membership {
    /// A node without a configuration or a lease, which the manager client will receive.
    pub fn new(workers: u32) -> Arc<Membership> {
        Arc::new(Membership {
            workers,
            beginning: AtomicU32::new(workers),
            lease_end: AtomicU64::new(0),
            is_recalled: AtomicBool::new(false),
            version: AtomicU64::new(0),
            words: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// A node of a cluster without a manager, whose configuration never changes: it is as the topology
    /// says, and leases last for ever.
    pub fn fixed(topology: &Arc<Topology>) -> Arc<Membership> {
        let machine = StateMachine::new(Arc::clone(topology), ManagerOptions::default());
        let mut configuration = Configuration::clone(machine.configuration());
        configuration.nodes.iter_mut().for_each(|node| node.incarnation = Incarnation(1));
        let membership = Membership::new(topology.workers());
        membership.publish(&Arc::new(configuration), Incarnation(1));
        membership.renew(Time::MAX);
        membership
    }

    fn state(&self) -> MutexGuard<'_, MembershipState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of workers of the node.
    pub(crate) fn workers(&self) -> u32 {
        self.workers
    }

    /// A worker has begun, with all that its log and its checkpoint have.
    pub(crate) fn begin(&self) {
        let before = self.beginning.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "each of {} workers begins once", self.workers);
    }

    /// Whether all workers have begun. No process asks to be admitted before. What it reports of a shard has to cover what any
    /// of its workers has read; and a node that [knows more](crate::Worker::exceeds) than its cluster finds that out
    /// when it is admitted.
    pub(crate) fn have_all_begun(&self) -> bool {
        self.beginning.load(Ordering::Acquire) == 0
    }

    /// Whether the configuration never changes.
    pub(crate) fn is_fixed(&self) -> bool {
        self.lease_end() == Time::MAX
    }

    /// The end of the node's lease.
    pub fn lease_end(&self) -> Time {
        Time(self.lease_end.load(Ordering::Acquire))
    }

    /// The configuration has changed.
    pub(crate) fn publish(&self, configuration: &Arc<Configuration>, incarnation: Incarnation) {
        let mut state = self.state();
        // One that leaves, and comes back under the same ballot, has to catch up once more.
        state.caught_up.retain(|(shard, replica), _| {
            let assignment = configuration.shard(*shard);
            assignment
                .is_some_and(|assignment| assignment.catching_up().any(|it| it.node == *replica))
        });
        state.known =
            Some(KnownConfiguration { configuration: Arc::clone(configuration), incarnation });
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The lease lasts until then, for nodes that have the last configuration.
    pub(crate) fn renew(&self, lease_end: Time) {
        self.lease_end.store(lease_end.0, Ordering::Release);
    }

    /// Whether the node has pledged to managers whose configuration it has not received yet. It has sent them what it knows,
    /// and must accept no more from other nodes: these may know epochs that the new managers will begin again.
    pub(crate) fn is_recalled(&self) -> bool {
        self.is_recalled.load(Ordering::Acquire)
    }

    /// Sets whether the node waits for the configuration of managers to which it has pledged.
    pub(crate) fn recall(&self, is_recalled: bool) {
        self.is_recalled.store(is_recalled, Ordering::Release);
    }

    /// The configuration, if it is another than that of version `seen`.
    pub(crate) fn news(&self, seen: &mut u64) -> Option<KnownConfiguration> {
        if self.version.load(Ordering::Acquire) == *seen {
            return None;
        }
        let state = self.state();
        *seen = self.version.load(Ordering::Acquire);
        state.known.clone()
    }

    /// Adds a request for the manager client to send.
    pub(crate) fn say(&self, word: ManagerRequest) {
        self.state().words.push(word);
        self.words.fetch_add(1, Ordering::Release);
    }

    /// The numbers of requests that wait to be sent, and of known replicas without memory.
    pub(crate) fn pending(&self) -> usize {
        let state = self.state();
        state.words.len() + state.caught_up.len()
    }

    /// The requests that the manager client has to send.
    pub(crate) fn words(&self) -> Vec<ManagerRequest> {
        if self.words.swap(0, Ordering::Acquire) == 0 {
            return Vec::new();
        }
        std::mem::take(&mut self.state().words)
    }

    /// A replica of `shard`, in this incarnation, has accepted under `ballot` all of this worker's stream
    /// that was inherited. Says whether it is news that this holds for the streams of all workers.
    pub(crate) fn caught_up(
        &self,
        worker: WorkerId,
        shard: ShardId,
        replica: NodeId,
        ballot: Ballot,
        incarnation: Incarnation,
    ) -> bool {
        let mut state = self.state();
        let new = || CaughtUp { ballot, incarnation, workers: Vec::new() };
        let entry = state.caught_up.entry((shard, replica)).or_insert_with(new);
        if (entry.ballot, entry.incarnation) != (ballot, incarnation) {
            *entry = new();
        }
        if entry.workers.contains(&worker) {
            return false;
        }
        entry.workers.push(worker);
        let all = entry.workers.len() == self.workers as usize;
        drop(state);
        if all {
            self.say(ManagerRequest::CaughtUp { shard, replica, ballot, incarnation });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::Epoch;

    const SHARD: ShardId = ShardId(0);
    const REPLICA: NodeId = NodeId(1);

    #[test]
    fn a_replica_has_caught_up_with_its_last_stream_under_one_ballot() {
        let membership = Membership::new(2);
        let ballot = |epoch| Ballot { epoch: Epoch(epoch), node: NodeId(0) };
        let caught_up = |worker, epoch, incarnation| {
            let incarnation = Incarnation(incarnation);
            membership.caught_up(WorkerId(worker), SHARD, REPLICA, ballot(epoch), incarnation)
        };
        assert!(!caught_up(0, 1, 2) && !caught_up(0, 1, 2));
        assert!(!caught_up(1, 2, 2), "under another ballot");
        assert!(!caught_up(0, 2, 3), "in another process");
        assert!(caught_up(1, 2, 3) && !caught_up(1, 2, 3));
        let (ballot, incarnation) = (ballot(2), Incarnation(3));
        let word = ManagerRequest::CaughtUp { shard: SHARD, replica: REPLICA, ballot, incarnation };
        assert_eq!(membership.words(), [word]);
        assert_eq!(membership.words(), []);
    }

    #[test]
    fn a_replica_that_left_and_came_back_has_to_catch_up_again() {
        let topology = Arc::new(Topology::symmetric(1, 3, 1, 0, 1));
        let machine = StateMachine::new(Arc::clone(&topology), ManagerOptions::default());
        let with = |empty: &[NodeId]| {
            let mut configuration = Configuration::clone(machine.configuration());
            configuration.shards[0].empty = empty.iter().map(|it| (*it, Epoch(1))).collect();
            Arc::new(configuration)
        };
        let membership = Membership::new(1);
        let caught_up = || {
            let (worker, ballot) = (WorkerId(0), Ballot::default());
            membership.caught_up(worker, SHARD, REPLICA, ballot, Incarnation(1))
        };
        membership.publish(&with(&[NodeId(1)]), Incarnation(1));
        assert!(caught_up());
        membership.publish(&with(&[NodeId(1), NodeId(2)]), Incarnation(1));
        assert!(!caught_up(), "it was said");
        membership.publish(&with(&[]), Incarnation(1));
        membership.publish(&with(&[NodeId(1)]), Incarnation(1));
        assert!(caught_up());
    }
}
