//! The simulation: events happen one after another in virtual time, and the seed alone decides which and
//! when.
//!
//! ```text
//!   queue ──► what is due next ──► worker.step(local time, event) ──► effects
//!     ▲                               │ observations                     │
//!     │                               ▼                                  ▼
//!     │                            checks                     network, clock, other workers
//!     └──────────────────────────────────────────────────────────────────┘
//! ```
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the event loop, and the effects of a worker's step |
//! | `event.rs` | what may happen |
//! | `seen.rs` | what checkers and the digest are shown |
//! | `management.rs` | managers, and the messages between nodes and them |
//! | `failing.rs` | faults, and how they end |
//! | `losing.rs` | a shard loses a majority of its voters |
//! | `replacing.rs` | replicas move to other nodes |
//! | `growing.rs` | nodes are added and removed |
//! | `interleaved.rs` | workers of a node that act within each other's steps |
//! | `connected_process.rs`, `client_processes.rs` | clients outside, and their connections; what they send and receive |
//! | `persistence.rs` | storages that lag behind memory |
//! | `late_copies.rs`, `late.rs` | copies of requests that are held back; how they arrive, very late |
//!
//! A worker takes one event at a time. What a step does to the worker's own state happens when it
//! begins; what it sends leaves when it ends, and until then the worker is busy.

mod bytes;
mod client_processes;
mod connected_process;
mod event;
mod failing;
mod growing;
mod interleaved;
mod late;
mod late_copies;
mod losing;
mod management;
mod persistence;
mod replacing;
mod seen;

use crate::checks::Checks;
use crate::clock::NodeClock;
use crate::cluster::SimulatedCluster;
use crate::coverage::Coverage;
use crate::cpu::{Cpu, StepWork};
use crate::digest::Digest;
use crate::fault_schedule::FaultSchedule;
use crate::majority_loss::AcceptedLoss;
use crate::managers::{ManagersPlan, SimulatedManagers};
use crate::metrics::{Metrics, Work};
use crate::network::{Delay, SimulatedNetwork};
use crate::node_changes::NodeChanges;
use crate::observed::Simulated;
use crate::queue::EventQueue;
use crate::recovery::Recoveries;
use crate::replacements::Replacements;
use crate::trace::EventTrace;
use crate::violation::Violation;
use connected_process::ConnectedProcess;
use event::SimulationEvent;
use late_copies::LateCopies;
use shoal_cluster::manager::{Applied, Incarnation};
use shoal_cluster::topology::Topology;
use shoal_engine::client::{ReplyToClient, ToClient};
use shoal_engine::engine::{Setup, Task};
use shoal_engine::{LocalDatabase, WorkerPlace};
use shoal_node::{WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage};
use shoal_store::Store;
use shoal_types::{NodeId, Random, ShardId, Time, WorkerId};
use shoal_wal::DiskPlantedBugs;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// More events than this within [`EVENTS_COUNTED_FOR`] mean that events cause events, and that time hardly advances.
const EVENTS_MAX: u64 = 5_000_000;
const EVENTS_COUNTED_FOR: Duration = Duration::from_secs(1);

/// The longest delay of a nudge to another worker of the node.
const NUDGE_NS_MAX: u64 = 2_000;

/// The environment of a cluster.
#[derive(Debug, Clone)]
pub struct SimulationWorld {
    /// The clock of each node: of those that the cluster begins with, then of those that are added.
    pub clocks: Vec<NodeClock>,
    /// The datacenters of nodes that can be added while the cluster runs.
    pub latecomers: Vec<usize>,
    /// Delays between datacenters: a row for each that messages come from.
    pub delays: Vec<Vec<Delay>>,
    /// The datacenter of each client outside; the first is client 0.
    pub clients: Vec<usize>,
    /// The prices of the workers' actions.
    pub cpu: Cpu,
    /// The longest time until a stream's promises and entries are durable, in nanoseconds; 0 if they are
    /// durable at once.
    pub persistence_ns: u64,
    /// If streams are recorded on virtual disks, whose operations take up to a quarter of that time: the bugs of what uses these.
    pub disks: Option<DiskPlantedBugs>,
    /// Whether engines' observations are judged by their rules.
    pub is_judged: bool,
    /// The managers' settings; `None` if the configuration never changes.
    pub managers: Option<ManagersPlan>,
}

/// An event that [`Simulation::watch`] reports; `O` is the engine's observation.
#[derive(Debug)]
pub enum WatchedEvent<'a, O> {
    /// An observation of the engine of a worker.
    Observed(WorkerPlace, &'a O),
    /// An effect of a command that the managers have applied.
    Applied(&'a Applied),
}

/// Called with an event and its true time.
pub type EventWatcher<O> = Box<dyn FnMut(Time, WatchedEvent<'_, O>)>;

/// A simulated cluster with its environment, in virtual time.
pub struct Simulation<E: Simulated> {
    topology: Arc<Topology>,
    now: Time,
    true_time: Rc<Cell<Time>>,
    queue: EventQueue<SimulationEvent<E::Message>>,
    cluster: SimulatedCluster<E>,
    outsiders: Vec<ConnectedProcess>,
    network: SimulatedNetwork,
    managers: Option<SimulatedManagers>,
    /// When the managers' log is polled next.
    log_at: Time,
    changes_every_ns: u64,
    replacements: Replacements,
    node_changes: NodeChanges,
    recoveries: Recoveries,
    /// Nodes whose memory was lost, and whether the managers know the process that reported so.
    forgetful: BTreeMap<NodeId, bool>,
    /// The incarnation that the managers knew of a node when its memory was last lost.
    forgot_after: BTreeMap<NodeId, Incarnation>,
    /// When the last process of each node ended.
    ended_at: BTreeMap<NodeId, Time>,
    /// Nodes that stay crashed until the end of the run.
    gone: BTreeSet<NodeId>,
    /// The shard that is lost for good.
    lost: Option<ShardId>,
    /// The loss of a majority that an operator is about to accept.
    accepted_loss: Option<AcceptedLoss>,
    /// The number of crashes placed within recoveries.
    recovery_crashes: u32,
    fault_schedule: Option<FaultSchedule>,
    late: LateCopies,
    /// Percentage of lost messages of clients that break their connection.
    broken_percent: u32,
    random: Random,
    cpu: Cpu,
    /// The longest time until changes of streams are durable, in nanoseconds; 0 if they are durable at once.
    persistence_ns: u64,
    checks: Option<Checks<E::Rules>>,
    effects: WorkerEffects<E::Message, E::Observation>,
    work: Work,
    coverage: Coverage,
    digest: Digest,
    /// Whether every word of every message is added to the digest.
    is_thorough: bool,
    trace: Option<EventTrace>,
    watcher: Option<EventWatcher<E::Observation>>,
    /// The events since `counted_since`.
    events: u64,
    counted_since: Time,
}

impl<E: Simulated> Simulation<E> {
    /// A cluster that starts at time zero in the environment `world`, with what the engine needs of its managers.
    pub fn new(setup: &Setup<E::Options>, world: SimulationWorld, seed: u64) -> Simulation<E> {
        let root = Random::new(seed);
        let topology = Arc::clone(&setup.topology);
        let nodes = topology.nodes().iter().map(|node| node.datacenter.0 as usize);
        let (nodes, count) = (nodes.chain(world.latecomers.iter().copied()), world.clocks.len());
        let managers = world.managers.iter().flat_map(|it| it.datacenters.iter().copied());
        let ends: Vec<usize> = nodes.chain(world.clients.iter().copied()).chain(managers).collect();
        let managers = world.managers.map(|plan| plan.serving::<E>(&topology));
        let options = managers.as_ref().map(|plan| plan.options.clone());
        let workers = topology.workers() as usize;
        let observations = world.is_judged.then(Vec::new);
        // Drops what a failed run on this thread may have left.
        drop(shoal_engine::interleave::take_back());
        let mut simulation = Simulation {
            now: Time::ZERO,
            true_time: Rc::default(),
            queue: EventQueue::new(root.fork(1)),
            cluster: SimulatedCluster::new(
                setup,
                world.clocks,
                world.persistence_ns > 0,
                world.disks.map(|it| (Duration::from_nanos(world.persistence_ns / 4), it)),
                options,
                root.fork(2).next_u64(),
            ),
            outsiders: Vec::new(),
            network: SimulatedNetwork::new(&ends, &world.delays, workers, root.fork(3)),
            managers: managers.map(|it| SimulatedManagers::new(&topology, it, root.fork(5))),
            log_at: Time::MAX,
            changes_every_ns: 0,
            replacements: Replacements::default(),
            node_changes: NodeChanges::new(world.latecomers),
            recoveries: Recoveries::new(topology.shards(), topology.workers()),
            forgetful: BTreeMap::new(),
            forgot_after: BTreeMap::new(),
            ended_at: BTreeMap::new(),
            gone: BTreeSet::new(),
            lost: None,
            accepted_loss: None,
            recovery_crashes: 0,
            fault_schedule: None,
            late: LateCopies::new(root.fork(6)),
            broken_percent: 0,
            random: root.fork(4),
            cpu: world.cpu,
            persistence_ns: world.persistence_ns,
            checks: world.is_judged.then(|| Checks::new(&topology, count)),
            effects: WorkerEffects { effects: Vec::new(), observations },
            work: Work::default(),
            coverage: Coverage::default(),
            digest: Digest::new(),
            is_thorough: false,
            trace: None,
            watcher: None,
            events: 0,
            counted_since: Time::ZERO,
            topology,
        };
        let founders = simulation.topology.nodes().len() * simulation.cluster.workers;
        for simulated_worker in 0..founders as u32 {
            let at = Time(simulation.random.below(100_000));
            simulation.queue.push(at, SimulationEvent::Start { simulated_worker, instance: 1 });
        }
        simulation.look_at_log();
        simulation
    }

    /// Adds every word of every message to the digest.
    pub fn be_thorough(&mut self) {
        self.is_thorough = true;
    }

    /// Calls `watcher` with what engines and managers do from now on.
    pub fn watch(&mut self, watcher: EventWatcher<E::Observation>) {
        self.watcher = Some(watcher);
        self.effects.observations.get_or_insert_default();
    }

    /// The true time, up to which all events are handled; no node's clock shows it.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The true time, shared with clients.
    pub fn true_time(&self) -> Rc<Cell<Time>> {
        Rc::clone(&self.true_time)
    }

    /// The shape of the cluster.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The state of the checks; `None` if nothing is judged.
    pub fn checks(&self) -> Option<&Checks<E::Rules>> {
        self.checks.as_ref()
    }

    /// The digest of all events so far.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Which rare paths were reached.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage;
        coverage.take_metrics(&self.metrics());
        coverage
    }

    /// The counters of the run.
    pub fn metrics(&self) -> Metrics {
        let engines = self.cluster.counted();
        let asked_again = self.outsiders.iter().map(|outsider| outsider.asked_again);
        let outcomes = crate::metrics::Outcomes {
            asked_again: asked_again.sum(),
            ..crate::metrics::Outcomes::default()
        };
        let (traffic, work) = (self.network.traffic, self.work);
        Metrics { traffic, work, engines, outcomes, simulated_ns: self.now.0.into() }
    }

    /// A node's copy of a shard.
    pub fn store(&self, node: NodeId, shard: ShardId) -> Option<Arc<Store>> {
        self.cluster.store(node, shard)
    }

    /// The database for tasks on this worker.
    pub fn local(&self, place: WorkerPlace) -> LocalDatabase {
        let worker = self.cluster.worker(self.cluster.worker_at(place));
        worker.expect("tasks run on nodes that are up").engine().local()
    }

    /// The total cost of this worker's steps so far.
    pub fn worked(&self, place: WorkerPlace) -> Duration {
        self.cluster.simulated_workers[self.cluster.worker_at(place)].worked
    }

    /// Runs a task on a worker.
    pub fn spawn(&mut self, place: WorkerPlace, task: Task) {
        let simulated_worker = self.cluster.worker_at(place);
        let worker = self.cluster.simulated_workers[simulated_worker].worker.as_mut();
        worker.expect("tasks run on nodes that are up").engine_mut().spawn(task);
        self.nudge(simulated_worker, self.now);
    }

    /// Runs all events that are due up to and at `until`.
    ///
    /// # Errors
    /// The first violation of a rule.
    pub fn run_until(&mut self, until: Time) -> Result<(), Violation> {
        while self.queue.next_at().is_some_and(|at| at <= until) {
            let (at, item) = self.queue.pop().expect("something is due");
            if at > self.now {
                self.now = at;
                self.true_time.set(at);
            }
            if at >= self.counted_since + EVENTS_COUNTED_FOR {
                (self.events, self.counted_since) = (0, at);
            }
            self.events += 1;
            if self.events > EVENTS_MAX {
                let what = "virtual time hardly advances: events cause events";
                return Err(Violation::new("progress", self.now, what));
            }
            self.happen(item)?;
        }
        self.now = self.now.max(until);
        self.true_time.set(self.now);
        Ok(())
    }

    fn happen(&mut self, item: SimulationEvent<E::Message>) -> Result<(), Violation> {
        match item {
            SimulationEvent::Start { simulated_worker, instance } => {
                let node = self.cluster.simulated_workers[simulated_worker as usize].place.node;
                if self.cluster.instances[node.0 as usize] != instance || !self.cluster.is_up(node)
                {
                    return Ok(());
                }
                self.cluster.simulated_workers[simulated_worker as usize].has_begun = true;
                self.begin_worker(simulated_worker as usize)
            }
            SimulationEvent::Message { simulated_worker, instance, from, message } => {
                let current = self.cluster.instances[from.node.0 as usize];
                if instance.is_some_and(|instance| instance != current) {
                    return Ok(()); // It ended with the process.
                }
                self.work.delivered += 1;
                self.reach(simulated_worker as usize, WorkerEvent::Received { from, message })
            }
            SimulationEvent::Request { simulated_worker, instance, request } => {
                let node = self.cluster.simulated_workers[simulated_worker as usize].place.node;
                if self.cluster.instances[node.0 as usize] != instance {
                    return Ok(()); // The connection over which it came has ended.
                }
                self.work.requests += 1;
                self.reach(simulated_worker as usize, WorkerEvent::Client(request))
            }
            SimulationEvent::Nudge { simulated_worker } => {
                self.reach(simulated_worker as usize, WorkerEvent::Nudged)
            }
            SimulationEvent::Timer { simulated_worker } => {
                if self.cluster.simulated_workers[simulated_worker as usize].timer_at != self.now {
                    return Ok(()); // An earlier one was asked for meanwhile.
                }
                self.work.timers += 1;
                self.reach(simulated_worker as usize, WorkerEvent::Timer)
            }
            SimulationEvent::Persisted { simulated_worker, instance } => {
                self.persist(simulated_worker as usize, instance)
            }
            SimulationEvent::Free { simulated_worker } => self.look(simulated_worker as usize),
            SimulationEvent::Asked { simulated_worker, instance, from, waits } => {
                match self.busy_until(simulated_worker).filter(|_| waits) {
                    Some(at) => self.queue.push(
                        at,
                        SimulationEvent::Asked { simulated_worker, instance, from, waits: false },
                    ),
                    None => self.tell_directory(simulated_worker, instance, from),
                }
                Ok(())
            }
            SimulationEvent::Dial { client, number, simulated_worker, waits } => {
                match self.busy_until(simulated_worker).filter(|_| waits) {
                    Some(at) => {
                        let again = SimulationEvent::Dial {
                            client,
                            number,
                            simulated_worker,
                            waits: false,
                        };
                        self.queue.push(at, again);
                    }
                    None => self.dialed_by(client, number, simulated_worker),
                }
                Ok(())
            }
            SimulationEvent::Dialed { client, number, answer } => {
                self.dialed(client, number, answer);
                Ok(())
            }
            SimulationEvent::Said { client, number, said } => {
                self.receive(client, number, said);
                Ok(())
            }
            SimulationEvent::Lost { client, number } => {
                self.connection_lost(client, number);
                Ok(())
            }
            SimulationEvent::ClientTimer { client } => {
                self.client_timer(client);
                Ok(())
            }
            SimulationEvent::RandomFault => {
                self.scheduled_fault();
                Ok(())
            }
            SimulationEvent::Planned { scheduled_fault, until } => {
                self.start_planned_fault(scheduled_fault, until);
                Ok(())
            }
            SimulationEvent::ToManager { manager, from, message } => {
                let Some(managers) = &self.managers else { return Ok(()) };
                let at = managers.local(self.now, manager as usize);
                let event = shoal_cluster::manager::ManagerEvent::Received { from, at, message };
                self.manager_step(manager as usize, Some(event))
            }
            SimulationEvent::ToNode { node, message } => {
                let host = self.cluster.worker_at(WorkerPlace { node, worker: WorkerId(0) });
                self.reach(host, WorkerEvent::FromManager { message })
            }
            SimulationEvent::ManagerTimer { manager } => self.manager_timer(manager as usize),
            SimulationEvent::Log => self.exchange(),
            SimulationEvent::Change => self.change(),
            SimulationEvent::Replace => self.replace(),
            SimulationEvent::AcceptLoss => self.accept_loss(),
            SimulationEvent::ChangeNodes => self.change_nodes(),
            SimulationEvent::Retire { node } => {
                self.retire(node);
                Ok(())
            }
            SimulationEvent::Restart { node, instance, lost } => {
                if self.cluster.instances[node.0 as usize] == instance {
                    self.restart(node, lost);
                }
                Ok(())
            }
            SimulationEvent::ManagerUp { manager } => {
                self.start_manager(manager as usize);
                Ok(())
            }
            SimulationEvent::OutageOver => {
                self.end_outage();
                Ok(())
            }
            SimulationEvent::Strike { node } => {
                self.strike(node);
                Ok(())
            }
            SimulationEvent::EndVoid { node, instance } => {
                self.end_void(node, instance);
                Ok(())
            }
        }
    }

    /// An event arrives at a worker, which takes it once it is free.
    fn reach(
        &mut self,
        simulated_worker: usize,
        event: WorkerEvent<E::Message>,
    ) -> Result<(), Violation> {
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        if state.worker.is_none() || !state.has_begun {
            // The node is down, so no worker is nudged. A process that starts checks for work anyway.
            state.nudged &= !matches!(event, WorkerEvent::Nudged);
            return Ok(());
        }
        if state.busy_until <= self.now && state.inbox.is_empty() {
            return self.step(simulated_worker, self.now, event);
        }
        state.inbox.push_back((self.now, event));
        self.look_later(simulated_worker);
        Ok(())
    }

    fn look_later(&mut self, simulated_worker: usize) {
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        if !state.will_look {
            state.will_look = true;
            self.queue.push(
                state.busy_until.max(self.now),
                SimulationEvent::Free { simulated_worker: simulated_worker as u32 },
            );
        }
    }

    fn look(&mut self, simulated_worker: usize) -> Result<(), Violation> {
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        state.will_look = false;
        if state.busy_until <= self.now
            && let Some((arrived, event)) = state.inbox.pop_front()
        {
            self.step(simulated_worker, arrived, event)?;
        }
        if !self.cluster.simulated_workers[simulated_worker].inbox.is_empty() {
            self.look_later(simulated_worker);
        }
        Ok(())
    }

    /// A worker takes an event that reached it at `arrived`.
    fn step(
        &mut self,
        simulated_worker: usize,
        arrived: Time,
        event: WorkerEvent<E::Message>,
    ) -> Result<(), Violation> {
        let place = self.cluster.simulated_workers[simulated_worker].place;
        self.work.steps += 1;
        self.digest_event(simulated_worker, &event);
        self.note(|now, trace| trace.note(now, format_args!("{place} {event:?}")));
        let local = self.cluster.clocks[place.node.0 as usize].local(self.now);
        let times = self.cluster.event_times(place.node, self.now, arrived);
        let received = bytes::of_event(&event);
        let other = self.interleave(simulated_worker);
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        match event {
            WorkerEvent::Timer => (state.timer_at, state.timer_local) = (Time::MAX, Time::MAX),
            WorkerEvent::Nudged => state.nudged = false,
            WorkerEvent::Start
            | WorkerEvent::Received { .. }
            | WorkerEvent::Client(_)
            | WorkerEvent::Persisted { .. }
            | WorkerEvent::Recorded { .. }
            | WorkerEvent::CheckpointRead { .. }
            | WorkerEvent::Checkpoint
            | WorkerEvent::CheckpointWritten { .. }
            | WorkerEvent::Checkpointed { .. }
            | WorkerEvent::FromManager { .. } => {}
        }
        let worker = state.worker.as_mut().expect("a worker that takes a step is up");
        times.into_iter().for_each(|times| worker.set_times(times));
        worker.step(local, event, &mut self.effects);
        let acted = other.and_then(|other| self.end_interleaving(other));
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        let worker = state.worker.as_mut().expect("it took a step");

        let counters = worker.engine().runtime_counters();
        let before = std::mem::replace(&mut state.operations, counters.operations);
        let operations = counters.operations - before;
        let kept = counters.batch_bytes + counters.replayed_bytes;
        let kept = kept - std::mem::replace(&mut state.bytes, kept);
        let keys = counters.step_keys - std::mem::replace(&mut state.keys, counters.step_keys);
        let refused = worker.refused_appends();
        let before = std::mem::replace(&mut state.refused_appends, refused);
        self.work.refused_appends += refused.saturating_sub(before);
        let is_message = |effect: &&WorkerEffect<E::Message>| {
            matches!(
                effect,
                WorkerEffect::Send { .. } | WorkerEffect::Reply(_) | WorkerEffect::Tell { .. }
            )
        };
        let messages = self.effects.effects.iter().filter(is_message).count() as u64;
        let slowdown = self.cluster.slowdown_percent[place.node.0 as usize];
        let sent: u64 = self.effects.effects.iter().map(bytes::of_effect).sum();
        let work = StepWork { messages, operations, bytes: received + kept + sent, keys };
        let cost = Duration::from_nanos(self.cpu.cost_ns(work, slowdown));
        let cost = cost + self.interruption();
        let state = &mut self.cluster.simulated_workers[simulated_worker];
        let end = self.now + cost;
        state.worked += cost;
        state.busy_until = state.busy_until.max(end);
        self.observe(simulated_worker, acted.as_ref())?;
        if let Some(acted) = acted {
            self.take_others_effect(acted)?;
        }
        self.take_effect(simulated_worker, end)?;
        self.await_persistence(simulated_worker);
        Ok(())
    }

    /// Performs the effects of a step of this worker, which ends at `end`.
    fn take_effect(&mut self, simulated_worker: usize, end: Time) -> Result<(), Violation> {
        let place = self.cluster.simulated_workers[simulated_worker].place;
        let node = place.node.0 as usize;
        let mut effects = std::mem::take(&mut self.effects.effects);
        self.digest.word(effects.len() as u64);
        for effect in effects.drain(..) {
            match effect {
                WorkerEffect::Send { to, message } => {
                    assert!(to != place, "{place} sends to itself: {message:?}");
                    self.send(end, place, to, message);
                }
                WorkerEffect::Reply(ReplyToClient { to, reply }) => {
                    self.say(end, to, ToClient::Reply(reply));
                }
                WorkerEffect::Timer { at: local } => {
                    let at = self.cluster.clocks[node].when(local).max(Time(end.0 + 1));
                    let state = &mut self.cluster.simulated_workers[simulated_worker];
                    if at < state.timer_at {
                        (state.timer_at, state.timer_local) = (at, local);
                        self.queue.push(
                            at,
                            SimulationEvent::Timer { simulated_worker: simulated_worker as u32 },
                        );
                    }
                }
                WorkerEffect::Tell { message } => self.tell_managers(end, place.node, &message),
                WorkerEffect::Write { records } => self.record(simulated_worker, records),
                WorkerEffect::Checkpoint(step) => self.checkpoint(simulated_worker, step),
                WorkerEffect::Superseded => self.superseded(place)?,
                WorkerEffect::Nudge { worker } => {
                    self.nudge(
                        self.cluster.worker_at(WorkerPlace { node: place.node, worker }),
                        end,
                    );
                }
            }
        }
        self.effects.effects = effects;
        Ok(())
    }

    fn send(
        &mut self,
        at: Time,
        from: WorkerPlace,
        to: WorkerPlace,
        message: WorkerMessage<E::Message>,
    ) {
        let arrivals = self.network.send(at, from.into(), to.into());
        let simulated_worker = self.cluster.worker_at(to) as u32;
        let instance = (from.node == to.node).then(|| self.cluster.instances[to.node.0 as usize]);
        let arrives =
            |message| SimulationEvent::Message { simulated_worker, instance, from, message };
        if let [Some(first), second] = arrivals {
            if let Some(second) = second {
                self.queue.push(second, arrives(message.clone()));
            }
            self.queue.push(first, arrives(message));
        }
    }

    fn nudge(&mut self, simulated_worker: usize, at: Time) {
        if !std::mem::replace(&mut self.cluster.simulated_workers[simulated_worker].nudged, true) {
            let at = Time(at.0 + self.random.below(NUDGE_NS_MAX));
            self.queue
                .push(at, SimulationEvent::Nudge { simulated_worker: simulated_worker as u32 });
        }
    }

    #[inline]
    fn note(&mut self, write: impl FnOnce(Time, &mut EventTrace)) {
        if let Some(trace) = &mut self.trace {
            write(self.now, trace);
        }
    }

    /// Lets time pass until `done` returns true, which is tested from time to time, or `patience` has passed.
    /// Returns whether it did.
    ///
    /// # Errors
    /// The first violation of a rule.
    pub fn run_while_not(
        &mut self,
        patience: Duration,
        done: impl Fn(&Simulation<E>) -> bool,
    ) -> Result<bool, Violation> {
        let end = self.now + patience;
        let slice = (patience / 2000).max(Duration::from_micros(200));
        while !done(self) {
            if self.now >= end {
                return Ok(false);
            }
            self.run_until(end.min(self.now + slice))?;
        }
        Ok(true)
    }
}
