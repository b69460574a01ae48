//! Faults and their ends: faults of the schedule, crashes placed within recoveries, and the healing of all
//! faults.

use super::{Simulation, SimulationEvent};
use crate::clock::NodeClock;
use crate::disk::SimulatedDisk;
use crate::fault_schedule::{
    FaultSchedule, FaultTargets, Isolation, LostDirection, ScheduledFault,
};
use crate::managers::SimulatedManagers;
use crate::observed::Simulated;
use crate::recovery::ShardRecoveryStage;
use crate::transaction_clocks::TransactionClocks;
use crate::violation::Violation;
use shoal_cluster::manager::{Configuration, Incarnation, ManagerClient, ProcessInstance};
use shoal_engine::WorkerPlace;
use shoal_types::{NodeId, Random, ShardId, Time, WorkerId};
use std::time::Duration;

/// The most crashes that are placed within the recoveries of a run.
const RECOVERY_CRASHES_MAX: u32 = 6;

/// Of the links between a node and managers that fail in both directions, one in so many is delayed towards
/// the node instead of cut: then grants of the managers from before arrive after the fault.
const LATE_ONE_IN: u64 = 3;

/// The greatest time that a restarted clock shows, in nanoseconds.
const SHOWN_NS_MAX: u64 = 10_000_000_000;

/// How much later than its process a worker begins that reads a checkpoint, at most, in nanoseconds.
const BEGINS_NS_MAX: u64 = 50_000_000;

impl<E: Simulated> Simulation<E> {
    /// Starts the faults of this schedule.
    pub fn set_fault_schedule(&mut self, fault_schedule: FaultSchedule) {
        self.network.set_troubles(fault_schedule.troubles);
        if fault_schedule.every_ns > 0 {
            let pause = fault_schedule.pause_ns(&mut self.random);
            self.queue.push(Time(self.now.0 + pause), SimulationEvent::RandomFault);
        }
        self.fault_schedule = Some(fault_schedule);
        if let Some(managers) = &mut self.managers {
            managers.set_rough(true);
        }
        for worker in &mut self.cluster.simulated_workers {
            let disk = worker.disk.iter_mut();
            disk.for_each(|disk| disk.plan_troubles(self.now, fault_schedule.disks));
        }
    }

    /// Sets the time that a node needs, in percent of the usual time: 1000 makes it ten times slower.
    pub fn slow_down(&mut self, node: NodeId, percent: u64) {
        self.cluster.slowdown_percent[node.0 as usize] = percent;
    }

    /// Sets the time that each operation of a node's disks takes.
    pub fn set_disk_delay(&mut self, node: NodeId, each: Duration) {
        let workers = self.cluster.workers_of(node);
        let workers = &mut self.cluster.simulated_workers[workers];
        workers.iter_mut().filter_map(|it| it.disk.as_mut()).for_each(|it| it.set_delay(each));
    }

    /// Clocks will exceed their bounds: leases need not hold, and every other rule does.
    pub fn expect_wild_clocks(&mut self) {
        if let Some(checks) = &mut self.checks {
            checks.expect_wild_clocks();
        }
    }

    /// Ends all faults: links carry messages, clocks keep their bounds, and every node that is down restarts.
    pub fn heal(&mut self) {
        (self.fault_schedule, self.accepted_loss) = (None, None);
        self.network.heal(self.now);
        let disks = self.cluster.simulated_workers.iter_mut().filter_map(|it| it.disk.as_mut());
        disks.for_each(SimulatedDisk::heal);
        self.cluster.transaction_clocks.iter_mut().for_each(TransactionClocks::calm);
        let Some(managers) = &mut self.managers else { return };
        managers.set_rough(false);
        let down = managers.down();
        self.end_outage();
        self.retire_all();
        down.into_iter().for_each(|manager| self.start_manager(manager));
        for clock in 0..self.cluster.clocks.len() + self.manager_count() {
            let drift = self.draw_drift();
            self.change_clock(clock, |now, it| it.turn(now, drift));
        }
        for node in (0..self.cluster.clocks.len() as u32).map(NodeId) {
            if !self.cluster.is_up(node) && !self.gone.contains(&node) {
                self.restart(node, false);
            }
        }
    }

    /// Starts a fault, and draws the next one.
    pub(super) fn scheduled_fault(&mut self) {
        let Some(fault_schedule) = self.fault_schedule else { return };
        if fault_schedule.apart_ns > 0 && self.lacks_copies() {
            let next = Time(self.now.0 + fault_schedule.apart_ns);
            return self.queue.push(next, SimulationEvent::RandomFault);
        }
        let (nodes, workers) = (self.cluster.clocks.len(), self.cluster.simulated_workers.len());
        let extent = FaultTargets {
            nodes,
            clients: self.outsiders.len(),
            workers,
            datacenters: self.topology.datacenters().len(),
            shards: self.topology.shards() as usize,
            managers: self.manager_count(),
        };
        let (scheduled_fault, lasts) = fault_schedule.draw(&mut self.random, extent);
        let until = Time(self.now.0 + lasts);
        self.note(|now, trace| trace.note(now, format_args!("{scheduled_fault:?} until {until}")));
        self.start_fault(scheduled_fault, until, &fault_schedule);
        let pause = fault_schedule.pause_ns(&mut self.random);
        let pause = match fault_schedule.apart_ns {
            0 => pause,
            apart => pause.max(lasts + apart),
        };
        self.queue.push(Time(self.now.0 + pause), SimulationEvent::RandomFault);
    }

    /// Whether a node is out, or has not caught up since it was: a late message, too, holds up heartbeats behind it, so that its
    /// sender is declared dead (zeus, seed 9390741).
    fn lacks_copies(&self) -> bool {
        let Some(truth) = self.configuration() else { return false };
        let mut nodes = (0..).map(NodeId).zip(&truth.nodes);
        truth.shards.iter().any(|it| !it.empty.is_empty())
            || nodes.any(|(id, it)| {
                self.cluster.is_member(id) && it.incarnation > Incarnation(0) && !it.alive
            })
    }

    fn start_fault(
        &mut self,
        scheduled_fault: ScheduledFault,
        until: Time,
        fault_schedule: &FaultSchedule,
    ) {
        let nodes = self.cluster.clocks.len();
        match scheduled_fault {
            ScheduledFault::Clog(from, to) => self.network.clog(from, to, until),
            ScheduledFault::Cut(from, to) => self.network.cut(from, to, until),
            ScheduledFault::Silence(node) => {
                for other in (0..nodes).filter(|other| *other != node) {
                    self.network.clog(node, other, until);
                    self.network.clog(other, node, until);
                }
            }
            ScheduledFault::Stall(simulated_worker) => self.stall(simulated_worker, until),
            ScheduledFault::Pause(node) => self.pause(NodeId(node as u32), until),
            ScheduledFault::Crash(node) => self.crash(NodeId(node as u32), until),
            ScheduledFault::Datacenter(datacenter) => self.crash_datacenter(datacenter, until),
            ScheduledFault::Power => self.cut_power(until),
            ScheduledFault::Part(node, others, way) => self.part(node, others, way, until),
            ScheduledFault::Clock(clock) => self.disturb_clock(clock, fault_schedule.wild_clocks),
            ScheduledFault::Elect => {
                if let Some(managers) = &mut self.managers {
                    managers.elect(self.now, &mut self.random);
                }
                self.look_at_log();
            }
            ScheduledFault::Outage => {
                self.work.outages += 1;
                if let Some(managers) = &mut self.managers {
                    managers.set_out(true);
                }
                self.queue.push(until, SimulationEvent::OutageOver);
            }
            ScheduledFault::Manager(manager) => self.stop_manager(manager, until),
            ScheduledFault::Forget(shard) => self.forget_behind(ShardId(shard as u32)),
            ScheduledFault::Diverge(shard) => self.diverge(shard),
            ScheduledFault::CutOffLeader(shard) => {
                let leader = self.leader(ShardId(shard as u32)).0 as usize;
                self.part(leader, Isolation::All, LostDirection::Both, until);
            }
            ScheduledFault::Lose(shard, fate) => self.lose_majority(shard, fate),
        }
    }

    /// Starts a planned fault, unless the faults have been healed.
    pub(super) fn start_planned_fault(&mut self, scheduled_fault: ScheduledFault, until: Time) {
        if let Some(fault_schedule) = self.fault_schedule {
            self.note(|now, trace| {
                trace.note(now, format_args!("{scheduled_fault:?} until {until}"));
            });
            self.start_fault(scheduled_fault, until, &fault_schedule);
        }
    }

    /// Cuts off the leader of a shard, with the entries that it appends meanwhile, until another has led for
    /// a while; then cuts off that one. So sequences of two ballots are there to adopt, of which the longer
    /// may be the older.
    fn diverge(&mut self, shard: usize) {
        self.work.diverged += 1;
        let lease = self.lease().as_nanos() as u64;
        let back_at = Time(self.now.0 + lease + self.random.below(2 * lease));
        let leader = self.leader(ShardId(shard as u32)).0 as usize;
        self.part(leader, Isolation::All, LostDirection::Both, back_at);
        let around = self.random.below(lease / 4 + 1);
        let behead_at = match self.random.chance(1, 2) {
            true => Time(back_at.0.saturating_sub(around)),
            false => Time(back_at.0 + around),
        };
        let until = Time(behead_at.0 + lease + self.random.below(2 * lease));
        self.queue.push(
            behead_at,
            SimulationEvent::Planned {
                scheduled_fault: ScheduledFault::CutOffLeader(shard),
                until,
            },
        );
    }

    /// Delays followers of a shard so that only its leader and a minimal majority have what it decides. One
    /// of these loses its memory and restarts soon; then the leader is paused or isolated for longer than its lease. The remaining replicas are a majority without the decided entries, if the one without memory
    /// counts.
    fn forget_behind(&mut self, shard: ShardId) {
        let assignment = self.configuration().and_then(|truth| truth.shard(shard)).cloned();
        let Some(assignment) = assignment else { return };
        let leader = assignment.leader;
        let mut others: Vec<NodeId> =
            assignment.voters.iter().copied().filter(|voter| *voter != leader).collect();
        self.random.shuffle(&mut others);
        let (Some(forgets), majority) = (others.pop(), assignment.voters.len() / 2 + 1) else {
            return;
        };
        self.work.forgot_behind += 1;
        let lease = self.lease().as_nanos() as u64;
        let crash_at = Time(self.now.0 + self.random.below(lease));
        let back_at = Time(crash_at.0 + 1 + self.random.below(lease / 4 + 1));
        let silent_at = Time(crash_at.0 + self.random.below(lease));
        let connected_at = Time(silent_at.0 + 2 * lease + self.random.below(2 * lease));
        for behind in others.iter().skip(majority.saturating_sub(2)) {
            let (from, to) = (leader.0 as usize, behind.0 as usize);
            self.network.cut(from, to, silent_at);
        }
        let scheduled_fault = ScheduledFault::Crash(forgets.0 as usize);
        self.queue.push(crash_at, SimulationEvent::Planned { scheduled_fault, until: back_at });
        let leader = leader.0 as usize;
        let scheduled_fault = match self.random.chance(1, 2) {
            true => ScheduledFault::Pause(leader),
            false => ScheduledFault::Part(leader, Isolation::All, LostDirection::Both),
        };
        self.queue
            .push(silent_at, SimulationEvent::Planned { scheduled_fault, until: connected_at });
    }

    fn pause(&mut self, node: NodeId, until: Time) {
        self.work.pauses += 1;
        for simulated_worker in self.cluster.workers_of(node) {
            self.stall(simulated_worker, until);
        }
    }

    fn stall(&mut self, simulated_worker: usize, until: Time) {
        self.work.stalls += 1;
        let busy_until = &mut self.cluster.simulated_workers[simulated_worker].busy_until;
        *busy_until = (*busy_until).max(until);
    }

    fn crash_datacenter(&mut self, datacenter: usize, until: Time) {
        self.work.datacenters_lost += 1;
        let topology = self.truth_topology();
        let there = topology.nodes().iter();
        let there = there.filter(|node| node.datacenter.0 as usize == datacenter);
        let nodes: Vec<NodeId> = there.map(|node| node.id).collect();
        nodes.into_iter().for_each(|node| self.crash(node, until));
        let managers = self.manager_count();
        for manager in 0..managers {
            if self.network.datacenter(self.end_of_manager(manager)) == datacenter {
                self.stop_manager(manager, until);
            }
        }
    }

    /// Crashes all nodes at once, and as many managers as may be down. They restart one after the other.
    fn cut_power(&mut self, until: Time) {
        self.work.power_lost += 1;
        let restarts = until.0 - self.now.0 + 1;
        for node in (0..self.cluster.clocks.len() as u32).map(NodeId) {
            let until = Time(until.0 + self.random.below(restarts));
            self.crash_with(node, until, false);
        }
        (0..self.manager_count()).for_each(|manager| self.stop_manager(manager, until));
    }

    /// Loses messages between a node and some others.
    pub(super) fn part(&mut self, node: usize, others: Isolation, way: LostDirection, until: Time) {
        let ends: Vec<usize> = match (others, self.configuration()) {
            (Isolation::Managers, _) => {
                let managers = self.manager_count();
                (0..managers).map(|manager| self.end_of_manager(manager)).collect()
            }
            (Isolation::All, _) => {
                let managers = self.manager_count();
                let managers = (0..managers).map(|manager| self.end_of_manager(manager));
                (0..self.cluster.clocks.len()).chain(managers).collect()
            }
            (Isolation::Followers, Some(truth)) => {
                let id = NodeId(node as u32);
                let led = truth.shards.iter().filter(|it| it.leader == id);
                led.flat_map(|it| it.voters.iter().chain(&it.learners))
                    .map(|replica| replica.0 as usize)
                    .collect()
            }
            (Isolation::Leaders, Some(truth)) => {
                truth.shards.iter().map(|it| it.leader.0 as usize).collect()
            }
            (Isolation::Some | Isolation::Followers | Isolation::Leaders, _) => {
                let random = &mut self.random;
                (0..self.cluster.clocks.len()).filter(|_| random.chance(1, 2)).collect()
            }
        };
        let is_late = others == Isolation::Managers && self.random.chance(1, LATE_ONE_IN);
        for end in ends.into_iter().filter(|end| *end != node) {
            if way != LostDirection::In {
                self.network.cut(node, end, until);
            }
            match way {
                LostDirection::Out => {}
                LostDirection::In | LostDirection::Both if is_late => {
                    self.network.clog(end, node, until);
                }
                LostDirection::In | LostDirection::Both => self.network.cut(end, node, until),
            }
        }
        self.work.parts += 1;
    }

    /// From now on the transaction clocks of two nodes differ by no more than so, and know it.
    pub fn keep_clocks_within(&mut self, difference: Duration) {
        if let Some(clocks) = &mut self.cluster.transaction_clocks {
            clocks.keep_within(difference);
        }
    }

    /// Crashes a node for good.
    pub fn fail(&mut self, node: NodeId) {
        self.crash_with(node, Time::MAX, true);
    }

    /// Crashes a node, which restarts at `until`. One that alone has something is paused instead.
    pub(super) fn crash(&mut self, node: NodeId, until: Time) {
        let has_last_copy = || self.checks.as_ref().is_some_and(|it| it.has_last_copy(node));
        if !self.topology.durability().is_on_disk() && has_last_copy() {
            return self.pause(node, until);
        }
        self.crash_with(node, until, true);
    }

    /// Crashes a node, which restarts at `until`. Its disks lose what they have not flushed, without `power`.
    fn crash_with(&mut self, node: NodeId, until: Time, power: bool) {
        if !self.cluster.is_up(node) {
            return;
        }
        if self.fault_schedule.is_some_and(|fault_schedule| fault_schedule.forgets) {
            if !self.may_forget(node) {
                return self.pause(node, until);
            }
            self.forgetful.insert(node, false);
        }
        self.end_instance(node, until, power);
        let gone_percent =
            self.fault_schedule.map_or(0, |fault_schedule| fault_schedule.gone_percent);
        if gone_percent > 0
            && self.random.below(100) < u64::from(gone_percent)
            && self.may_forget(node)
            && !self.is_last_for_clients(node)
        {
            self.work.gone += 1;
            self.gone.insert(node);
            return;
        }
        let lost_percent =
            self.fault_schedule.map_or(0, |fault_schedule| fault_schedule.lost_percent);
        let lost = self.random.below(100) < u64::from(lost_percent);
        let instance = self.cluster.instances[node.0 as usize];
        self.queue.push(until, SimulationEvent::Restart { node, instance, lost });
    }

    /// Ends the process of a node that is up. Without `power`, its disks lose what they have not flushed.
    pub(super) fn end_instance(&mut self, node: NodeId, until: Time, power: bool) {
        if let Some(truth) = self.managers.as_ref().map(|managers| managers.truth()) {
            for stage in self.recoveries.interrupted(node, truth) {
                self.coverage.interrupted(stage);
            }
        }
        self.note(|now, trace| trace.note(now, format_args!("{node} crashes, until {until}")));
        self.work.crashes += 1;
        self.digest.word(u64::from(node.0) << 8 | 0xc0);
        self.cluster.end_instance(node, power);
        self.ended_at.insert(node, self.now);
        self.break_connections_to(node);
        if let Some(checks) = &mut self.checks {
            checks.crashed(node);
        }
    }

    /// A disk of the node has failed, and its process ends: what it has not flushed may be lost, though the power was there.
    pub(super) fn end_for_disk(&mut self, node: NodeId) {
        self.work.failed_disks += 1;
        let until = self.soon();
        self.end_instance(node, until, false);
        self.restart_at(node, until);
    }

    /// A time at which a process begins, after one that its disks have ended.
    fn soon(&mut self) -> Time {
        let after = self.fault_schedule.map_or(1, |it| it.longest_ns.max(1));
        Time(self.now.0 + 1 + self.random.below(after))
    }

    pub(super) fn restart_at(&mut self, node: NodeId, at: Time) {
        let instance = self.cluster.instances[node.0 as usize];
        self.queue.push(at, SimulationEvent::Restart { node, instance, lost: false });
    }

    /// In some restarts, has a read of a disk of the node fail. Returns whether the process does not begin.
    fn is_unreadable(&mut self, node: NodeId) -> bool {
        let percent = self.fault_schedule.map_or(0, |it| it.disks.unreadable_percent);
        if percent == 0 || self.random.below(100) >= u64::from(percent) {
            return false;
        }
        let process = ProcessInstance(self.random.next_u64());
        let workers = self.cluster.workers_of(node);
        let mut disks =
            self.cluster.simulated_workers[workers].iter_mut().filter_map(|it| it.disk.as_mut());
        let is_unreadable = disks.any(|disk| disk.fails_to_begin(process));
        self.work.unreadable_disks += u64::from(is_unreadable);
        is_unreadable
    }

    /// Changes bits of a node's disks in some restarts. Returns whether one of them is of no use any more.
    fn damages(&mut self, node: NodeId) -> bool {
        let percent = self.fault_schedule.map_or(0, |it| it.disks.damaged_percent);
        if percent == 0 || self.random.below(100) >= u64::from(percent) || !self.may_forget(node) {
            return false;
        }
        let workers = self.cluster.workers_of(node);
        let disks = self.cluster.simulated_workers[workers].iter_mut();
        let damaged =
            disks.filter_map(|it| it.disk.as_mut()).filter_map(|it| it.damage().then_some(()));
        let damaged = damaged.count();
        self.work.damaged_disks += damaged as u64;
        damaged > 0
    }

    /// Puts back a disk of a node in some restarts. Returns whether it lacks the process that was admitted last.
    fn puts_back(&mut self, node: NodeId) -> bool {
        let percent = self.fault_schedule.map_or(0, |it| it.disks.put_back_percent);
        if percent == 0 || self.random.below(100) >= u64::from(percent) || !self.may_forget(node) {
            return false;
        }
        let Some(managers) = &self.managers else { return false };
        let admitted = managers.admitted(node);
        let workers = self.cluster.workers_of(node);
        let mut disks =
            self.cluster.simulated_workers[workers].iter_mut().filter_map(|it| it.disk.as_mut());
        let is_older = disks.any(|disk| disk.put_back(admitted));
        self.work.disks_put_back += u64::from(is_older);
        is_older
    }

    /// Whether every shard keeps a majority of voters with memory if this node loses its own.
    fn may_forget(&self, node: NodeId) -> bool {
        let Some(truth) = self.configuration() else { return false };
        if self.has_durable_members() {
            // Of a node that has left, nothing counts any more.
            return !truth.nodes[node.0 as usize].alive || self.others_have_all(node);
        }
        truth.shards.iter().filter(|it| it.voters.contains(&node)).all(|it| {
            let others = it.full_voters().filter(|voter| *voter != node);
            let remembers = |voter: &NodeId| {
                !self.forgetful.contains_key(voter)
                    && !self.gone.contains(voter)
                    && !self.stays_down(*voter)
            };
            others.filter(remembers).count() > it.voters.len() / 2
        })
    }

    /// Whether a node may end for good, as far as what it has beside replicas of shards is concerned.
    pub(super) fn may_be_gone(&self, node: NodeId) -> bool {
        !self.has_durable_members() || self.others_have_all(node)
    }

    /// Whether nodes have copies of their own, beside replicas of shards, on disks.
    fn has_durable_members(&self) -> bool {
        E::MEMBERSHIP_EPOCHS && self.topology.durability().is_on_disk()
    }

    /// Whether all other nodes are there and admitted, none of them without memory, and have copies of all that this one has. A disk that
    /// is lost while another voter of a shard is out, or is about to be declared dead since it does not get admitted in time, takes the
    /// majority of that shard's directory (zeus, seed 807309673).
    fn others_have_all(&self, node: NodeId) -> bool {
        let nodes = (0..self.cluster.clocks.len() as u32).map(NodeId);
        let mut others = nodes.filter(|other| *other != node && self.cluster.is_member(*other));
        let is_there = |other| match self.configuration() {
            Some(truth) => {
                self.cluster.is_up(other)
                    && self.is_admitted_as_known(other, truth)
                    && self.has_lease_beyond(other, node)
            }
            None => self.cluster.is_up(other),
        };
        let are_well = others.all(is_there);
        let is_lost = |other: &NodeId| *other != node;
        are_well
            && self.managers.as_ref().is_none_or(SimulatedManagers::has_all_copies)
            && !self.forgetful.keys().any(is_lost)
            && !self.lacks_copies()
            && !self.checks.as_ref().is_some_and(|checks| checks.is_only_replica(node))
    }

    /// Whether the lease of one node lasts for longer than any that the last process of another can have had. A voter counts until its
    /// lease ends: where one ends before that of a node whose disk is lost, and is not renewed, the managers declare it
    /// dead while they do not know of the disk, and the majority is gone (zeus, seed 807311122).
    fn has_lease_beyond(&self, other: NodeId, ended: NodeId) -> bool {
        let Some(ended_at) = self.ended_at.get(&ended) else { return true };
        let host = self.cluster.worker_at(WorkerPlace { node: other, worker: WorkerId(0) });
        let client = self.cluster.worker(host).and_then(|worker| worker.manager_client());
        let lease_end = client.and_then(ManagerClient::lease_end);
        // What the process had sent last may have been on its way for a while.
        let last = *ended_at + self.lease() + self.lease() / 4;
        lease_end.is_some_and(|end| self.cluster.clocks[other.0 as usize].when(end) >= last)
    }

    /// The managers have applied a command: replicas that had lost their memory may have caught up.
    pub(super) fn remember(&mut self, truth: &Configuration) {
        let nodes: Vec<NodeId> = self.forgetful.keys().copied().collect();
        for node in nodes {
            let admitted = self.is_admitted_as_known(node, truth);
            let known = self.forgetful.entry(node).or_default();
            let is_news = admitted && !std::mem::replace(known, *known || admitted);
            if is_news {
                self.may_crash_sender(node, truth);
            }
            let known = self.forgetful.entry(node).or_default();
            if *known && !truth.shards.iter().any(|it| it.empty.contains_key(&node)) {
                self.forgetful.remove(&node);
            }
        }
    }

    /// Whether the managers have admitted the node's current process, and it has learned so.
    pub(super) fn is_admitted_as_known(&self, node: NodeId, truth: &Configuration) -> bool {
        let host = self.cluster.worker_at(WorkerPlace { node, worker: WorkerId(0) });
        let manager_client = self.cluster.worker(host).and_then(|worker| worker.manager_client());
        let own = manager_client.and_then(|client| client.incarnation());
        own == Some(truth.nodes[node.0 as usize].incarnation)
    }

    /// Starts a new process of a node. It begins without memory if `wants_lost` and every shard can bear
    /// that, or if the memory was lost earlier and no manager knows yet.
    pub(super) fn restart(&mut self, node: NodeId, wants_lost: bool) {
        let is_absent = self.gone.contains(&node) || self.stays_down(node);
        if self.cluster.is_up(node) || is_absent || !self.cluster.is_member(node) {
            return;
        }
        let is_kept = !wants_lost && self.forgetful.get(&node) != Some(&false);
        if is_kept && self.is_unreadable(node) {
            self.note(|now, trace| {
                trace.note(now, format_args!("{node} does not start: a disk cannot be read"));
            });
            let at = self.soon();
            return self.restart_at(node, at);
        }
        if self.node_changes.every_ns > 0 && self.random.chance(1, 2) {
            let file = self.file();
            self.cluster.set_file(node, Some(file));
        }
        let untold = self.forgetful.get(&node) == Some(&false);
        let lost = untold || wants_lost && self.may_forget(node) || self.damages(node);
        let is_older = !lost && self.puts_back(node);
        self.work.lost += u64::from(lost);
        if lost || is_older {
            self.forgetful.insert(node, false);
            let managers = self.managers.as_ref();
            let known = managers.map(|it| it.truth().nodes[node.0 as usize].incarnation);
            self.forgot_after.extend(known.map(|known| (node, known)));
            // A process that was not admitted had promised nothing (mako, seed 134278746).
            if known != Some(Incarnation::default())
                && let Some(checks) = &mut self.checks
            {
                checks.forgets(node);
            }
        }
        self.note(|now, trace| {
            let how = match (lost, is_older) {
                (true, _) => "without its memory",
                (false, true) => "with an older image of a disk",
                (false, false) => "with its disk",
            };
            trace.note(now, format_args!("{node} starts again, {how}"));
        });
        let (shown, drift) = (self.random.below(SHOWN_NS_MAX), self.draw_drift());
        self.cluster.clocks[node.0 as usize] = NodeClock::anew(self.now, shown, drift);
        self.cluster.begin_instance(node, lost);
        let instance = self.cluster.instances[node.0 as usize];
        for simulated_worker in self.cluster.workers_of(node) {
            self.cluster.simulated_workers[simulated_worker].busy_until = self.now;
            let at = Time(self.now.0 + self.draw_begin(simulated_worker));
            self.queue.push(
                at,
                SimulationEvent::Start { simulated_worker: simulated_worker as u32, instance },
            );
        }
    }

    /// How long after its process a worker begins. One that reads a large checkpoint may be much later than the others: the node asks to
    /// be admitted when the last of them has begun.
    fn draw_begin(&mut self, simulated_worker: usize) -> u64 {
        let state = &self.cluster.simulated_workers[simulated_worker];
        let reads = !state.begins_with.is_empty() && state.place.worker != WorkerId(0);
        let is_late = reads && self.random.chance(1, 2);
        self.random.below(if is_late { BEGINS_NS_MAX } else { 100_000 })
    }

    /// A process learns that a newer one of its node is admitted, or that its disks are older than the last one that was: judges
    /// that this is so. Another process follows, without memory.
    pub(super) fn superseded(&mut self, place: WorkerPlace) -> Result<(), Violation> {
        let worker = self.cluster.worker(self.cluster.worker_at(place));
        let manager_client = worker.and_then(|worker| worker.manager_client());
        if manager_client.is_some_and(ManagerClient::has_older_disks)
            && self.forgetful.get(&place.node) == Some(&false)
        {
            let instance = self.cluster.instances[place.node.0 as usize];
            let at = Time(self.now.0 + 1);
            self.queue.push(at, SimulationEvent::EndVoid { node: place.node, instance });
            return Ok(());
        }
        let what = format!("{} was told of a newer process that it does not have", place.node);
        Err(Violation::new("membership", self.now, what))
    }

    /// A process ends that cannot use what its disks have; the next one, which comes soon, begins without memory.
    pub(super) fn end_void(&mut self, node: NodeId, instance: u32) {
        if self.cluster.instances[node.0 as usize] == instance && self.cluster.is_up(node) {
            let until = Time(self.now.0 + 1 + self.random.below(SHOWN_NS_MAX));
            self.end_instance(node, until, true);
            self.queue.push(until, SimulationEvent::Restart { node, instance, lost: true });
        }
    }

    fn stop_manager(&mut self, manager: usize, until: Time) {
        let Some(managers) = &mut self.managers else { return };
        if managers.stop(self.now, manager, &mut self.random) {
            self.work.managers_lost += 1;
            self.queue.push(until, SimulationEvent::ManagerUp { manager: manager as u32 });
            self.look_at_log();
        }
    }

    pub(super) fn start_manager(&mut self, manager: usize) {
        let (shown, drift) = (self.random.below(SHOWN_NS_MAX), self.draw_drift());
        let clock = NodeClock::anew(self.now, shown, drift);
        if let Some(managers) = &mut self.managers {
            managers.start(self.now, manager, clock);
        }
        self.look_at_log();
    }

    pub(super) fn end_outage(&mut self) {
        if let Some(managers) = &mut self.managers {
            managers.set_out(false);
        }
        self.look_at_log();
    }

    /// Draws a drift within the bound that every node assumes.
    fn draw_drift(&mut self) -> i64 {
        let bound = self.managers.as_ref().map_or(0, |it| i64::from(it.options().drift_ppm));
        draw_drift(&mut self.random, bound)
    }

    fn disturb_clock(&mut self, clock: usize, wild: bool) {
        if !wild {
            let drift = self.draw_drift();
            return self.change_clock(clock, |now, it| it.turn(now, drift));
        }
        self.work.wild_clocks += 1;
        let lease = self.managers.as_ref().map_or(0, |it| it.options().lease.as_nanos() as u64);
        let ahead = self.random.below(4 * lease + 1);
        let drift = draw_drift(&mut self.random, NodeClock::BROKEN_PPM_MAX);
        match self.random.chance(1, 2) {
            true => self.change_clock(clock, |now, it| it.jump(now, ahead)),
            false => self.change_clock(clock, |now, it| it.turn(now, drift)),
        }
    }

    /// Changes the clock of a node, or of a manager, counted after the nodes, and the timers that depend on
    /// it.
    fn change_clock(&mut self, clock: usize, change: impl FnOnce(Time, &mut NodeClock)) {
        let (now, nodes) = (self.now, self.cluster.clocks.len());
        let Some(node) = (clock < nodes).then_some(NodeId(clock as u32)) else {
            let manager = clock - nodes;
            if let Some(managers) = &mut self.managers {
                let at = managers.change_clock(manager, now, |it| change(now, it));
                if at < Time::MAX {
                    self.queue.push(at, SimulationEvent::ManagerTimer { manager: manager as u32 });
                }
            }
            return;
        };
        change(now, &mut self.cluster.clocks[clock]);
        for at in self.cluster.workers_of(node) {
            let simulated_worker = &mut self.cluster.simulated_workers[at];
            // A timer that has fired already is in the inbox.
            if simulated_worker.timer_at >= now && simulated_worker.timer_at < Time::MAX {
                let local = simulated_worker.timer_local;
                simulated_worker.timer_at =
                    self.cluster.clocks[clock].when(local).max(Time(now.0 + 1));
                self.queue.push(
                    simulated_worker.timer_at,
                    SimulationEvent::Timer { simulated_worker: at as u32 },
                );
            }
        }
    }

    /// A recovery has progressed: a node that it needs may crash now.
    pub(super) fn may_crash_in_recovery(&mut self, step: Option<(ShardRecoveryStage, NodeId)>) {
        let Some((stage, node)) = step else { return };
        let Some(fault_schedule) = self.fault_schedule.filter(|it| it.struck_percent > 0) else {
            return;
        };
        if self.recovery_crashes >= RECOVERY_CRASHES_MAX
            || self.random.below(100) >= u64::from(fault_schedule.struck_percent)
        {
            return;
        }
        self.recovery_crashes += 1;
        let nodes = self.cluster.clocks.len() as u64;
        // The node that leads the recovery, or another one; the dead one cannot crash again.
        let same = stage != ShardRecoveryStage::LeaseOut && self.random.chance(2, 3);
        let node = if same { node } else { NodeId(self.random.below(nodes) as u32) };
        let soon = self.random.below(fault_schedule.longest_ns / 16 + 2);
        let at = Time(self.now.0 + if self.random.chance(1, 2) { 0 } else { soon });
        self.queue.push(at, SimulationEvent::Strike { node });
    }

    /// A node without memory is admitted, and is about to be sent copies: the leader of one of its shards may
    /// fail now.
    fn may_crash_sender(&mut self, receiver: NodeId, truth: &Configuration) {
        let Some(fault_schedule) = self.fault_schedule else { return };
        let emptied = truth.shards.iter().filter(|it| it.empty.contains_key(&receiver));
        let leaders: Vec<NodeId> = emptied.map(|it| it.leader).collect();
        let Some(leader) = self.random.pick(&leaders).copied() else { return };
        if self.recovery_crashes >= RECOVERY_CRASHES_MAX
            || self.random.below(100) >= u64::from(fault_schedule.struck_percent)
        {
            return;
        }
        self.recovery_crashes += 1;
        self.work.senders_struck += 1;
        let soon = self.random.below(fault_schedule.longest_ns / 4 + 2);
        self.queue.push(Time(self.now.0 + soon), SimulationEvent::Strike { node: leader });
    }

    pub(super) fn strike(&mut self, node: NodeId) {
        let Some(fault_schedule) = self.fault_schedule else { return };
        let lasts = 1 + self.random.below(fault_schedule.longest_ns.max(1));
        self.crash(node, Time(self.now.0 + lasts));
    }
}

fn draw_drift(random: &mut Random, bound: i64) -> i64 {
    random.below(2 * bound as u64 + 1) as i64 - bound
}
