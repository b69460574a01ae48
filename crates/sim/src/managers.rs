//! The configuration managers of a simulated cluster: a few replicas over a simulated log, each with a clock
//! of its own.
//!
//! The simulation calls them: it delivers events, and sends their messages to nodes over the network. What
//! they apply is the reference for the whole run: the first manager to apply a command reports its effect,
//! and all others have to report the same.

use crate::clock::NodeClock;
use crate::violation::Violation;
use shoal_cluster::manager::{
    Applied, Ask, CarriedLog, ClusterChange, Configuration, FinalEnds, LogPace, Manager,
    ManagerEffect, ManagerEvent, ManagerOptions, ProcessInstance, SimulatedLog, StateMachine,
    ToNode,
};
use shoal_cluster::topology::Topology;
use shoal_engine::Engine;
use shoal_types::{ClusterId, Epoch, NodeId, Random, TableId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often epochs change without a failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EpochChanges {
    /// The mean time between two such epochs in nanoseconds; 0 for never.
    pub every_ns: u64,
}

/// The settings of a cluster's managers.
#[derive(Debug, Clone)]
pub struct ManagersPlan {
    /// The datacenter of each manager.
    pub datacenters: Vec<usize>,
    /// The clock of each manager.
    pub clocks: Vec<NodeClock>,
    /// The pace of their log while links are faulty; otherwise every step takes the least time of this.
    pub pace: LogPace,
    /// The timeouts of managers and nodes.
    pub options: ManagerOptions,
}

impl ManagersPlan {
    /// The plan, with what the engine needs of its managers.
    pub(crate) fn serving<E: Engine>(self, topology: &Topology) -> ManagersPlan {
        let options = shoal_engine::engine::manager_options::<E>(topology, self.options);
        ManagersPlan { options, ..self }
    }
}

/// The effects of a manager's step.
#[derive(Debug, Default)]
pub(crate) struct ManagerOutput {
    /// Messages to send to nodes.
    pub messages: Vec<(NodeId, ToNode)>,
    /// The true time at which the manager's timer fires.
    pub timer: Option<Time>,
    /// The effects of commands that no other manager had applied before.
    pub applied: Vec<Applied>,
}

struct ManagerServer {
    manager: Manager<CarriedLog>,
    /// Whether the manager's process is stopped.
    is_down: bool,
    clock: NodeClock,
    /// When its timer fires, on its own clock and in true time.
    timer: (Time, Time),
    /// How many effects of commands it has reported in this process.
    applied: usize,
}

impl ManagerServer {
    /// A manager whose process begins with `machine`.
    fn new(machine: StateMachine, clock: NodeClock, drawn: ClusterId) -> ManagerServer {
        ManagerServer {
            manager: Manager::new(CarriedLog::default(), machine, drawn),
            is_down: false,
            clock,
            timer: (Time::MAX, Time::MAX),
            applied: 0,
        }
    }
}

/// The managers of a simulated cluster, and their log.
pub(crate) struct SimulatedManagers {
    topology: Arc<Topology>,
    options: ManagerOptions,
    pace: LogPace,
    log: SimulatedLog,
    servers: Vec<ManagerServer>,
    /// The effects of all commands so far.
    applied: Vec<Applied>,
    finals: BTreeMap<Epoch, FinalEnds>,
    /// The table that each request has created.
    created: BTreeMap<Ask, TableId>,
    asks: u64,
    /// The random source of the cluster's identity.
    identities: Random,
    /// The newest configuration that any manager has made.
    truth: Arc<Configuration>,
}

/// The fork of the random source for identities, separate from the log's.
const IDENTITIES: u64 = 1;

impl SimulatedManagers {
    pub(crate) fn new(
        topology: &Arc<Topology>,
        managed: ManagersPlan,
        random: Random,
    ) -> SimulatedManagers {
        let ManagersPlan { datacenters, clocks, pace, options } = managed;
        assert_eq!(datacenters.len(), clocks.len(), "every manager has a clock");
        let mut identities = random.fork(IDENTITIES);
        let steady = LogPace::steady(pace.delay_min);
        let mut log = SimulatedLog::new(datacenters.len(), steady, random);
        log.elect(Time::ZERO, 0);
        let machine = StateMachine::new(Arc::clone(topology), options.clone());
        let server =
            |clock| ManagerServer::new(machine.clone(), clock, ClusterId::draw(&mut identities));
        let truth = Arc::clone(machine.configuration());
        SimulatedManagers {
            topology: Arc::clone(topology),
            servers: clocks.into_iter().map(server).collect(),
            options,
            pace,
            log,
            applied: Vec::new(),
            finals: BTreeMap::new(),
            created: BTreeMap::new(),
            asks: 0,
            identities,
            truth,
        }
    }

    /// How many managers there are, stopped ones included.
    pub(crate) fn count(&self) -> usize {
        self.servers.len()
    }

    /// The timeouts of managers and nodes.
    pub(crate) fn options(&self) -> &ManagerOptions {
        &self.options
    }

    /// The newest configuration that any manager has applied.
    pub(crate) fn truth(&self) -> &Arc<Configuration> {
        &self.truth
    }

    /// Whether no manager waits for copies of what a node had that has left.
    pub(crate) fn has_all_copies(&self) -> bool {
        self.servers.iter().all(|server| server.manager.machine().has_all_copies())
    }

    /// The process of a node that was admitted last; the default before there was one.
    pub(crate) fn admitted(&self, node: NodeId) -> ProcessInstance {
        let joined = |applied: &Applied| match applied {
            Applied::Joined { node: other, instance, .. } if *other == node => Some(*instance),
            _ => None,
        };
        self.applied.iter().rev().find_map(joined).unwrap_or_default()
    }

    /// The next time at which the log has an event for a manager.
    pub(crate) fn log_due(&self) -> Option<Time> {
        self.log.due()
    }

    /// The local time of a manager at the true time `now`.
    pub(crate) fn local(&self, now: Time, manager: usize) -> Time {
        self.servers[manager].clock.local(now)
    }

    /// When a manager's timer fires, in true time.
    pub(crate) fn timer_at(&self, manager: usize) -> Time {
        self.servers[manager].timer.1
    }

    /// Gives a manager an event, or the log's events.
    pub(crate) fn step(
        &mut self,
        now: Time,
        manager: usize,
        event: Option<ManagerEvent>,
    ) -> Result<ManagerOutput, Violation> {
        let server = &mut self.servers[manager];
        let mut wanted = ManagerOutput::default();
        if server.is_down {
            // A stopped manager takes nothing from the log; it reads the log again when it restarts.
            self.log.exchange(now, server.clock.local(now), manager, &mut CarriedLog::default());
            return Ok(wanted);
        }
        let own = server.clock.local(now);
        let news = self.log.exchange(now, own, manager, server.manager.log_mut());
        let event = match event {
            None if !news => return Ok(wanted),
            None => ManagerEvent::Log,
            Some(event) => event,
        };
        if event == ManagerEvent::Timer {
            server.timer = (Time::MAX, Time::MAX);
        }
        let mut effects = Vec::new();
        server.manager.step(own, event, &mut effects);
        self.log.exchange(now, own, manager, server.manager.log_mut());
        for effect in effects {
            match effect {
                ManagerEffect::Send { to, message } => wanted.messages.push((to, message)),
                ManagerEffect::Answer { .. } => {}
                ManagerEffect::Applied(applied) => {
                    let told = self.note(manager, applied);
                    let told = told.map_err(|what| Violation::new("M9", now, what))?;
                    let tables = told.as_ref().map_or(Ok(()), |told| self.note_table(told));
                    tables.map_err(|what| Violation::new("tables", now, what))?;
                    wanted.applied.extend(told);
                }
                ManagerEffect::Timer { at } => {
                    let server = &mut self.servers[manager];
                    server.timer = (at, server.clock.when(at).max(Time(now.0 + 1)));
                    wanted.timer = Some(server.timer.1);
                }
            }
        }
        let configuration = self.servers[manager].manager.machine().configuration();
        if configuration.revision > self.truth.revision {
            self.truth = Arc::clone(configuration);
        }
        Ok(wanted)
    }

    /// Checks that all managers report the same effects, and that the ends of an epoch never change.
    fn note(&mut self, manager: usize, applied: Applied) -> Result<Option<Applied>, String> {
        let server = &mut self.servers[manager];
        let place = server.applied;
        server.applied += 1;
        if let Some(before) = self.applied.get(place) {
            if *before != applied {
                return Err(format!("manager {manager} reports {applied:?}, another {before:?}"));
            }
            return Ok(None);
        }
        if let Applied::Final(ends) = &applied {
            let epoch = ends.epoch();
            let before = self.finals.entry(epoch).or_insert_with(|| ends.clone());
            if before != ends {
                return Err(format!("{epoch} had ended with {before:?}, and now with {ends:?}"));
            }
        }
        self.applied.push(applied.clone());
        Ok(Some(applied))
    }

    /// Checks that a request creates one table, under an id that no table had.
    fn note_table(&mut self, applied: &Applied) -> Result<(), String> {
        let Applied::TableCreated { ask, table, name } = applied else { return Ok(()) };
        if let Some(before) = self.created.insert(*ask, *table) {
            return Err(format!("request {ask} has created {before}, and {name:?} as {table}"));
        }
        let first = self.topology.tables().next();
        let expected = TableId(first.0 + self.created.len() as u32 - 1);
        match *table == expected {
            true => Ok(()),
            false => Err(format!("{name:?} is {table}, and the next id was {expected}")),
        }
    }

    /// The change with which the next epoch begins: a move that no node carries out, or, if `ends`, the end
    /// of the last such move.
    pub(crate) fn next_change(&mut self, ends: bool) -> (Ask, ClusterChange) {
        let ask = self.next_ask();
        let change = match &self.truth.moving {
            Some(moving) if ends => ClusterChange::CancelMove { table: moving.table },
            Some(_) | None => {
                let tables = self.truth.topology.tables();
                let table = tables.iter().nth(self.asks as usize % tables.len().max(1));
                let table = table.expect("a cluster has a table of its own");
                let partitioning = table.partitioning().clone();
                ClusterChange::BeginMove { table: table.id(), partitioning }
            }
        };
        (ask, change)
    }

    /// The number of another request.
    pub(crate) fn next_ask(&mut self) -> Ask {
        self.asks += 1;
        Ask(self.asks)
    }

    /// Makes the log slow or fast.
    pub(crate) fn set_rough(&mut self, is_rough: bool) {
        let steady = LogPace::steady(self.pace.delay_min);
        self.log.set_pace(if is_rough { self.pace.clone() } else { steady });
    }

    /// Begins or ends an outage of the log.
    pub(crate) fn set_out(&mut self, is_out: bool) {
        self.log.set_out(is_out);
    }

    /// Makes a random manager that is up the leader, after some time.
    pub(crate) fn elect(&mut self, now: Time, random: &mut Random) {
        let up: Vec<usize> =
            (0..self.servers.len()).filter(|at| !self.servers[*at].is_down).collect();
        if let Some(chosen) = random.pick(&up) {
            self.log.elect(now, *chosen);
        }
    }

    /// Stops a manager, unless it is the last one that is up. Returns whether it did.
    pub(crate) fn stop(&mut self, now: Time, manager: usize, random: &mut Random) -> bool {
        let up = self.servers.iter().filter(|server| !server.is_down).count();
        if self.servers[manager].is_down || up <= self.servers.len() / 2 + 1 {
            return false;
        }
        self.servers[manager].is_down = true;
        self.servers[manager].timer = (Time::MAX, Time::MAX);
        if self.log.leader() == Some(manager) {
            self.elect(now, random);
        }
        true
    }

    /// Restarts a stopped manager: its new process knows only the log.
    pub(crate) fn start(&mut self, now: Time, manager: usize, clock: NodeClock) {
        let machine = StateMachine::new(Arc::clone(&self.topology), self.options.clone());
        let server = &mut self.servers[manager];
        if !server.is_down {
            return;
        }
        *server = ManagerServer::new(machine, clock, ClusterId::draw(&mut self.identities));
        self.log.restart(now, manager);
        if self.log.leader().is_none() {
            self.log.elect(now, manager);
        }
    }

    /// The managers that are stopped.
    pub(crate) fn down(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|manager| self.servers[*manager].is_down).collect()
    }

    /// Changes a manager's clock. Returns the true time at which its timer fires by the changed clock.
    pub(crate) fn change_clock(
        &mut self,
        manager: usize,
        now: Time,
        change: impl FnOnce(&mut NodeClock),
    ) -> Time {
        let server = &mut self.servers[manager];
        change(&mut server.clock);
        if server.timer.0 < Time::MAX {
            server.timer.1 = server.clock.when(server.timer.0).max(Time(now.0 + 1));
        }
        server.timer.1
    }
}
