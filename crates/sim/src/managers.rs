//! The configuration managers of a simulated cluster: a few replicas over a log that exists only here,
//! each with a clock of its own.
//!
//! They are steered from outside: who calls them brings events, and carries what they say to nodes over
//! the network. What they apply is the truth of this world: the first to apply a command says what it
//! did, and all others have to say the same.

use crate::clock::NodeClock;
use crate::violation::Violation;
use shoal_cluster::manager::{
    Applied, Ask, CarriedLog, ClusterChange, Configuration, FinalEnds, LogPace, Manager,
    ManagerEffect, ManagerEvent, ManagerOptions, SimulatedLog, StateMachine, ToNode,
};
use shoal_cluster::topology::Topology;
use shoal_types::{ClusterId, Epoch, NodeId, Random, TableId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often epochs change without a node having failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EpochChanges {
    /// On average, so long from one epoch to the next; 0 for never.
    pub every_ns: u64,
}

/// Managers to be made.
#[derive(Debug, Clone)]
pub struct ManagersPlan {
    /// In which datacenter each of them is.
    pub datacenters: Vec<usize>,
    /// What each goes by.
    pub clocks: Vec<NodeClock>,
    /// How fast their log is in bad fault schedule; otherwise it always takes the least of this.
    pub pace: LogPace,
    /// How patient they are, and the nodes with them.
    pub options: ManagerOptions,
}

/// What a step of a manager asks for.
#[derive(Debug, Default)]
pub(crate) struct ManagerOutput {
    /// To be sent.
    pub messages: Vec<(NodeId, ToNode)>,
    /// The manager's timer goes off at this true time.
    pub timer: Option<Time>,
    /// Facts that are new to this world.
    pub applied: Vec<Applied>,
}

struct ManagerServer {
    manager: Manager<CarriedLog>,
    /// It takes no part in anything.
    is_down: bool,
    clock: NodeClock,
    /// When its timer goes off, on its own clock and in true time.
    timer: (Time, Time),
    /// How many of the effects of all commands it has told in this process.
    applied: usize,
}

impl ManagerServer {
    /// One that begins a process, and has applied nothing to `machine`.
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

/// The managers of a simulated cluster, and the log under them.
pub(crate) struct SimulatedManagers {
    topology: Arc<Topology>,
    options: ManagerOptions,
    pace: LogPace,
    log: SimulatedLog,
    servers: Vec<ManagerServer>,
    /// What all commands have done.
    applied: Vec<Applied>,
    finals: BTreeMap<Epoch, FinalEnds>,
    asks: u64,
    /// What managers draw the cluster's identity from.
    identities: Random,
    /// The newest configuration.
    truth: Arc<Configuration>,
}

/// What identities are drawn from, apart from the log.
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
            asks: 0,
            identities,
            truth,
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.servers.len()
    }

    /// How patient they are.
    pub(crate) fn options(&self) -> &ManagerOptions {
        &self.options
    }

    /// The newest configuration that any of them has applied.
    pub(crate) fn truth(&self) -> &Arc<Configuration> {
        &self.truth
    }

    /// When the log has news for a manager.
    pub(crate) fn log_due(&self) -> Option<Time> {
        self.log.due()
    }

    /// What a manager's clock shows.
    pub(crate) fn local(&self, now: Time, manager: usize) -> Time {
        self.servers[manager].clock.local(now)
    }

    /// When a manager's timer goes off.
    pub(crate) fn timer_at(&self, manager: usize) -> Time {
        self.servers[manager].timer.1
    }

    /// Gives a manager an event, or what the log has for it.
    pub(crate) fn step(
        &mut self,
        now: Time,
        manager: usize,
        event: Option<ManagerEvent>,
    ) -> Result<ManagerOutput, Violation> {
        let server = &mut self.servers[manager];
        let mut wanted = ManagerOutput::default();
        if server.is_down {
            // What the log tells it now is told again when it comes back.
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

    /// All managers tell the same story, in which no FVW ever changes.
    fn note(&mut self, manager: usize, applied: Applied) -> Result<Option<Applied>, String> {
        let server = &mut self.servers[manager];
        let place = server.applied;
        server.applied += 1;
        if let Some(before) = self.applied.get(place) {
            if *before != applied {
                return Err(format!("manager {manager} says {applied:?}, another {before:?}"));
            }
            return Ok(None);
        }
        if let Applied::Final(watermark) = &applied {
            let epoch = watermark.epoch();
            let before = self.finals.entry(epoch).or_insert_with(|| watermark.clone());
            if before != watermark {
                return Err(format!("FVW({epoch}) was {before:?} and is {watermark:?}"));
            }
        }
        self.applied.push(applied.clone());
        Ok(Some(applied))
    }

    /// Asks for a move that no node is to carry out, so that an epoch begins; or for the end of the one
    /// that was asked for last.
    pub(crate) fn next_change(&mut self, ends: bool) -> (Ask, ClusterChange) {
        self.asks += 1;
        let change = match &self.truth.moving {
            Some(moving) if ends => ClusterChange::CancelMove { table: moving.table },
            Some(_) | None => {
                let table = self.asks as usize % self.topology.tables().len().max(1);
                let partitioning = self.topology.tables()[table].partitioning().clone();
                ClusterChange::BeginMove { table: TableId(table as u32), partitioning }
            }
        };
        (Ask(self.asks), change)
    }

    /// Bad fault schedule begins or ends.
    pub(crate) fn set_rough(&mut self, is_rough: bool) {
        let steady = LogPace::steady(self.pace.delay_min);
        self.log.set_pace(if is_rough { self.pace.clone() } else { steady });
    }

    /// Ends or begins an outage of the log.
    pub(crate) fn set_out(&mut self, is_out: bool) {
        self.log.set_out(is_out);
    }

    /// One that is up leads from now on, some time later.
    pub(crate) fn elect(&mut self, now: Time, random: &mut Random) {
        let up: Vec<usize> =
            (0..self.servers.len()).filter(|at| !self.servers[*at].is_down).collect();
        if let Some(chosen) = random.pick(&up) {
            self.log.elect(now, *chosen);
        }
    }

    /// A manager stops. The last one that is up does not. Says whether it did.
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

    /// A manager that had stopped begins a new process, of which it knows nothing but the log.
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

    /// Managers that have stopped.
    pub(crate) fn down(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|manager| self.servers[*manager].is_down).collect()
    }

    /// Changes a manager's clock. Returns when its timer goes off by it.
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
