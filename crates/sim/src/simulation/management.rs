//! Managers, and the messages between nodes and them.

use super::{Simulation, SimulationEvent, WatchedEvent};
use crate::managers::{EpochChanges, ManagerOutput, SimulatedManagers};
use crate::network::WorkerEnd;
use crate::observed::Simulated;
use crate::violation::Violation;
use shoal_cluster::manager::{
    Ask, ClusterChange, Configuration, LossStage, ManagerEvent, ToManager,
};
use shoal_cluster::topology::Topology;
use shoal_engine::WorkerPlace;
use shoal_types::{NodeId, ShardId, Time, WorkerId};
use std::sync::Arc;
use std::time::Duration;

impl<E: Simulated> Simulation<E> {
    /// The shape of the cluster, with the tables that the managers have created by now.
    pub fn truth_topology(&self) -> Arc<Topology> {
        let managers = self.managers.as_ref();
        managers.map_or(&self.topology, |managers| &managers.truth().topology).clone()
    }

    /// How many managers there are; 0 where no manager is simulated.
    pub(super) fn manager_count(&self) -> usize {
        self.managers.as_ref().map_or(0, SimulatedManagers::count)
    }

    /// The link end of a manager: managers follow nodes and clients.
    pub(super) fn end_of_manager(&self, manager: usize) -> usize {
        let managers = self.manager_count();
        self.network.ends() - managers + manager
    }

    /// The most keys that one step of a worker has locked, validated, installed or rolled back.
    pub fn step_keys_most(&self) -> u64 {
        let workers = self
            .cluster
            .simulated_workers
            .iter()
            .filter_map(|simulated_worker| simulated_worker.worker.as_ref());
        let most = workers.map(|worker| worker.engine().runtime_counters().step_keys_most);
        most.max().unwrap_or_default()
    }

    /// The newest configuration that a manager has applied; `None` if there are no managers.
    pub fn configuration(&self) -> Option<&Arc<Configuration>> {
        self.managers.as_ref().map(SimulatedManagers::truth)
    }

    /// The leader of a shard in the newest configuration.
    pub fn leader(&self, shard: ShardId) -> NodeId {
        let assignment = self.configuration().and_then(|truth| truth.shard(shard));
        assignment.map_or_else(|| self.topology.leader(shard), |assignment| assignment.leader)
    }

    /// The replicas of a shard in the newest configuration, the leader first.
    pub fn holders(&self, shard: ShardId) -> Vec<NodeId> {
        let leader = self.leader(shard);
        let assignment = self.configuration().and_then(|truth| truth.shard(shard));
        let holders: Vec<NodeId> = match assignment {
            Some(assignment) => assignment.holders().collect(),
            None => self.topology.replicas(shard).collect(),
        };
        [leader].into_iter().chain(holders.into_iter().filter(|node| *node != leader)).collect()
    }

    /// Whether the node is up.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.cluster.is_up(node)
    }

    /// Whether the node never restarts.
    pub fn is_gone(&self, node: NodeId) -> bool {
        self.gone.contains(&node)
    }

    /// The number of a node's current process.
    pub fn instance(&self, node: NodeId) -> u32 {
        self.cluster.instances[node.0 as usize]
    }

    /// The lease of a node: how long it may act without a manager. Zero where there are no managers.
    pub fn lease(&self) -> Duration {
        self.managers.as_ref().map_or(Duration::ZERO, |it| it.options().lease_at_manager())
    }

    /// Whether every shard but the lost one serves.
    pub fn is_led(&self) -> bool {
        let all_lead = self.not_led().is_none();
        all_lead
            && self.configuration().is_none_or(|truth| self.recoveries.all_serve(truth, self.lost))
    }

    /// The first shard whose leader does not lead all its streams, not counting the lost one.
    pub fn not_led(&self) -> Option<ShardId> {
        let ballot = |shard| Some(self.configuration()?.shard(shard)?.ballot);
        let mut shards = self.topology.shard_ids().filter(|shard| Some(*shard) != self.lost);
        shards.find(|shard| {
            !(0..self.topology.workers()).map(WorkerId).all(|worker| {
                let place = WorkerPlace { node: self.leader(*shard), worker };
                let worker = self.cluster.worker(self.cluster.worker_at(place));
                let stream = worker.and_then(|worker| worker.stream(*shard));
                stream.is_some_and(|stream| {
                    let newest = ballot(*shard).is_none_or(|ballot| stream.ballot() == ballot);
                    stream.is_leading() && newest
                })
            })
        })
    }

    /// Whether every closed epoch is settled, and every node has learned so. While a shard is lost: whether
    /// all others have ended them.
    pub fn is_settled(&self) -> bool {
        if let Some(lost) = self.lost {
            return self.others_have_ended(lost);
        }
        let Some(truth) = self.configuration() else { return true };
        let nodes = (0..self.cluster.clocks.len() as u32).map(NodeId);
        truth.settled.0 + 1 == truth.epoch.0
            && nodes.filter(|node| self.cluster.is_up(*node)).all(|node| {
                let host = self.cluster.worker_at(WorkerPlace { node, worker: WorkerId(0) });
                let manager_client =
                    self.cluster.worker(host).and_then(|worker| worker.manager_client());
                let known = manager_client.and_then(|client| client.configuration());
                known.is_some_and(|known| known.settled == truth.settled)
            })
    }

    /// Sends a node's message to every manager.
    pub(super) fn tell_managers(&mut self, at: Time, from: NodeId, message: &ToManager) {
        let managers = self.manager_count();
        for manager in 0..managers {
            let end = self.end_of_manager(manager);
            let arrivals =
                self.network.send(at, WorkerEnd::first(from.0 as usize), WorkerEnd::first(end));
            for at in arrivals.into_iter().flatten() {
                let (manager, message) = (manager as u32, message.clone());
                self.queue.push(at, SimulationEvent::ToManager { manager, from, message });
            }
        }
    }

    /// Gives a manager an event, or the log's events.
    pub(super) fn manager_step(
        &mut self,
        manager: usize,
        event: Option<ManagerEvent>,
    ) -> Result<(), Violation> {
        let Some(managers) = &mut self.managers else { return Ok(()) };
        if let (Some(trace), Some(event)) = (&mut self.trace, &event)
            && !matches!(
                event,
                ManagerEvent::Timer
                    | ManagerEvent::Received { message: ToManager::Heartbeat { .. }, .. }
            )
        {
            trace.note(self.now, format_args!("manager {manager} {event:?}"));
        }
        let before = Arc::clone(managers.truth());
        let ManagerOutput { messages, timer, applied } = managers.step(self.now, manager, event)?;
        let truth = Arc::clone(managers.truth());
        if let Some(at) = timer {
            self.queue.push(at, SimulationEvent::ManagerTimer { manager: manager as u32 });
        }
        let end = self.end_of_manager(manager);
        for (node, message) in messages {
            let arrivals = self.network.send(
                self.now,
                WorkerEnd::first(end),
                WorkerEnd::first(node.0 as usize),
            );
            for at in arrivals.into_iter().flatten() {
                self.queue.push(at, SimulationEvent::ToNode { node, message: message.clone() });
            }
        }
        for applied in &applied {
            self.note_applied(applied, &truth)?;
        }
        if truth.revision > before.revision {
            // Not before: what has caught up by then may have done so in its former role.
            if let Some(checks) = &mut self.checks {
                checks.configured(&truth);
            }
            self.remember(&truth);
            self.may_crash_in_replacement(&before, &truth);
        }
        self.look_at_log();
        Ok(())
    }

    fn note_applied(
        &mut self,
        applied: &shoal_cluster::manager::Applied,
        truth: &Configuration,
    ) -> Result<(), Violation> {
        use shoal_cluster::manager::Applied;
        if let Applied::Answered { ask, .. } = applied {
            self.replacements.asked.remove(ask);
        }
        if !matches!(applied, Applied::Changed(_)) {
            self.note(|now, trace| trace.note(now, format_args!("managers: {applied:?}")));
        }
        if let Some(watcher) = &mut self.watcher {
            watcher(self.now, WatchedEvent::Applied(applied));
        }
        match applied {
            Applied::NodeAdded { node } => self.node_added(*node),
            Applied::NodeRemoved { node } => self.node_removed(*node),
            Applied::Loss { loss, .. } if loss.stage == LossStage::Over => self.loss_is_over(),
            _ => {}
        }
        let is_known = match applied {
            Applied::Appointed { ballot, .. } => self.is_admitted_as_known(ballot.node, truth),
            _ => false,
        };
        if let Some(checks) = &mut self.checks {
            match applied {
                Applied::Final(ends) => checks.is_final(self.now, ends)?,
                // If it has lost its memory once more, the managers may not know yet (seed 26547).
                Applied::CaughtUp { shard, replica, incarnation }
                    if self.forgot_after.get(replica) != Some(incarnation) =>
                {
                    checks.remembers(self.now, *shard, *replica)?;
                }
                Applied::TableDropped { table } => checks.table_dropped(*table),
                Applied::Loss { shard, loss } => {
                    checks.void(*shard, |node| loss.void.contains_key(&node));
                }
                Applied::Out { shard, epoch, since } => {
                    // Several commands may be applied in one step: the open epoch may be a later one than
                    // when the shard went out.
                    checks.out(*shard, *epoch, since.is_some());
                }
                Applied::Appointed { shard, ballot } => {
                    let formers = self.cluster.leases(*shard);
                    let formers = formers.filter(|(node, ..)| *node != ballot.node);
                    checks.appointed(self.now, *shard, *ballot, formers)?;
                    if is_known {
                        checks.appointed_anew(self.now, *shard, *ballot)?;
                    }
                }
                _ => {}
            }
        }
        for step in self.recoveries.applied(applied, truth) {
            self.may_crash_in_recovery(Some(step));
        }
        Ok(())
    }

    pub(super) fn manager_timer(&mut self, manager: usize) -> Result<(), Violation> {
        let at = self.managers.as_ref().map_or(Time::MAX, |managers| managers.timer_at(manager));
        if at != self.now {
            return Ok(()); // It was put off, or its clock goes otherwise now.
        }
        self.manager_step(manager, Some(ManagerEvent::Timer))
    }

    /// Exchanges entries between every manager and the log.
    pub(super) fn exchange(&mut self) -> Result<(), Violation> {
        if self.log_at != self.now {
            return Ok(());
        }
        self.log_at = Time::MAX;
        let managers = self.manager_count();
        (0..managers).try_for_each(|manager| self.manager_step(manager, None))
    }

    /// Schedules the next exchange with the log.
    pub(super) fn look_at_log(&mut self) {
        let Some(due) = self.managers.as_ref().and_then(SimulatedManagers::log_due) else { return };
        let at = due.max(self.now);
        if at < self.log_at {
            self.log_at = at;
            self.queue.push(at, SimulationEvent::Log);
        }
    }

    /// Lets epochs change from now on.
    pub fn set_changes(&mut self, changes: EpochChanges) {
        self.changes_every_ns = changes.every_ns;
        self.plan_change();
    }

    fn plan_change(&mut self) {
        self.plan_request(self.changes_every_ns, SimulationEvent::Change);
    }

    /// Draws when the next request of an operator is made, of a kind that is made so often on average; never, where that is 0.
    pub(super) fn plan_request(&mut self, every_ns: u64, event: SimulationEvent<E::Message>) {
        if every_ns > 0 && self.managers.is_some() {
            let pause = self.random.range_inclusive(1, 2 * every_ns);
            self.queue.push(Time(self.now.0 + pause), event);
        }
    }

    /// Makes a request of an operator to all managers, of which the one that leads proposes it.
    pub(super) fn ask_managers(
        &mut self,
        ask: Ask,
        change: &ClusterChange,
    ) -> Result<(), Violation> {
        let count = self.managers.as_ref().map_or(0, SimulatedManagers::count);
        for manager in 0..count {
            let change = change.clone();
            self.manager_step(manager, Some(ManagerEvent::Asked { ask, change }))?;
        }
        Ok(())
    }

    /// Begins an epoch, if the one before has ended; and draws the time of the next.
    pub(super) fn change(&mut self) -> Result<(), Violation> {
        if self.changes_every_ns == 0 {
            return Ok(());
        }
        let Some(managers) = &mut self.managers else { return Ok(()) };
        // A move that is under way is cancelled, so that the next can begin.
        let ends = if managers.truth().moving.is_some() { &[true, false][..] } else { &[false] };
        for ends in ends {
            let Some(managers) = &mut self.managers else { return Ok(()) };
            let (ask, change) = managers.next_change(*ends);
            self.ask_managers(ask, &change)?;
        }
        self.plan_change();
        Ok(())
    }
}
