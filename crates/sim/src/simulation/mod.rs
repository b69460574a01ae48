//! The simulation: one thing happens after another, in virtual time, and nothing but the seed decides
//! which and when.
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
//! | `mod.rs` | what is due next, and what a worker's step leads to |
//! | `seen.rs` | what checkers and the digest are shown |
//! | `management.rs` | managers, and what nodes and they say to each other |
//! | `failing.rs` | what goes wrong, and how it ends |
//! | `losing.rs` | a shard loses a majority of its voters |
//! | `interleaved.rs` | workers of a node that act in the midst of each other's steps |
//! | `outsiders.rs` | clients outside, and their connections |
//! | `late.rs` | copies of requests that come very late |
//!
//! A worker takes one event at a time. What a step does to the worker's own state happens when it
//! begins; what it sends leaves when it ends, and until then the worker is busy.

mod bytes;
mod failing;
mod interleaved;
mod late;
mod losing;
mod management;
mod outsiders;
mod seen;

use crate::checks::{Checks, Rules};
use crate::clients::process::{Answer, Number};
use crate::clock::NodeClock;
use crate::cluster::{Cluster, Seat};
use crate::cpu::{Cpu, StepWork};
use crate::digest::Digest;
use crate::managers::{Managed, Managers};
use crate::metrics::{Metrics, Work};
use crate::network::{Delay, Network};
use crate::probes::Probes;
use crate::queue::Queue;
use crate::recovery::Recoveries;
use crate::trace::Trace;
use crate::violation::Violation;
use crate::weather::{Blow, Weather};
use consensus::manager::{Applied, Incarnation, ToManager, ToNode};
use consensus::topology::Topology;
use engines::client::{ClientId, Request, ToClient};
use engines::engine::{Setup, Task};
use engines::{Engine, Local, Observation, Place};
use late::LateCopies;
use node::{Effect, Effects, Event, Message};
use outsiders::Outsider;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use types::{NodeId, Random, ShardId, Time, WorkerId};

/// So many events at one instant are no progress any more.
const EVENTS_AT_ONCE_MAX: u64 = 2_000_000;

/// Nudges reach another worker of the node within this.
const NUDGE_NS_MAX: u64 = 2_000;

/// The world around a cluster.
#[derive(Debug, Clone)]
pub struct World {
    /// A clock for each node.
    pub clocks: Vec<NodeClock>,
    /// How long messages take between datacenters: a row for each they come from.
    pub delays: Vec<Vec<Delay>>,
    /// In which datacenter each client outside is; the first is client 0.
    pub clients: Vec<usize>,
    /// What work costs.
    pub cpu: Cpu,
    /// What streams have promised and accepted becomes durable within this; at once where it is nothing.
    pub persistence_ns: u64,
    /// By what checkers judge; `None` if it is not watched.
    pub rules: Option<Rules>,
    /// Who manages the cluster; `None` if its configuration never changes.
    pub managers: Option<Managed>,
}

/// Something that is going to happen.
enum Item<M> {
    /// A worker of this life of its node begins.
    Start {
        seat: u32,
        life: u32,
    },
    Message {
        seat: u32,
        from: NodeId,
        message: Message<M>,
    },
    /// A client asks something of a worker of this life of its node.
    Request {
        seat: u32,
        life: u32,
        from: ClientId,
        request: Request,
    },
    /// A client asks such a worker where everything is. One that is busy is asked once more when it is free.
    Asked {
        seat: u32,
        life: u32,
        from: ClientId,
        waits: bool,
    },
    /// A client wants to connect to a worker. One that is busy looks at it when it is free.
    Dial {
        client: u32,
        number: Number,
        seat: u32,
        waits: bool,
    },
    /// What came of that.
    Dialed {
        client: u32,
        number: Number,
        answer: Answer,
    },
    /// A client is told something over a connection.
    Said {
        client: u32,
        number: Number,
        said: ToClient,
    },
    /// A client hears that a connection has ended.
    Lost {
        client: u32,
        number: Number,
    },
    Nudge {
        seat: u32,
    },
    Timer {
        seat: u32,
    },
    /// Some of what the streams of a worker have changed, in this life of its node, is durable.
    Persisted {
        seat: u32,
        life: u32,
    },
    /// A worker that was busy looks into its inbox.
    Free {
        seat: u32,
    },
    ClientTimer {
        client: u32,
    },
    Blow,
    /// A fault that goes with one before.
    Planned {
        blow: Blow,
        until: Time,
    },
    /// A node says something to a manager.
    ToManager {
        manager: u32,
        from: NodeId,
        message: ToManager,
    },
    /// A manager says something to a node.
    ToNode {
        node: NodeId,
        message: ToNode,
    },
    ManagerTimer {
        manager: u32,
    },
    /// The managers' log has news.
    Log,
    /// An epoch is to begin.
    Change,
    /// A node that crashed starts again.
    Restart {
        node: NodeId,
        life: u32,
        lost: bool,
    },
    /// A manager that stopped starts again.
    ManagerUp {
        manager: u32,
    },
    /// An outage of the managers' log is over.
    OutageOver,
    /// A node crashes in the midst of a recovery.
    Strike {
        node: NodeId,
    },
}

/// Something that [`Simulation::watch`] shows.
#[derive(Debug, Clone, Copy)]
pub enum Sight<'a> {
    /// A worker's engine did something.
    Observed(Place, &'a Observation),
    /// The managers did something.
    Applied(&'a Applied),
}

/// Is shown what happens, and when.
pub type Watcher = Box<dyn FnMut(Time, Sight<'_>)>;

/// See the module.
pub struct Simulation<E: Engine> {
    topology: Arc<Topology>,
    now: Time,
    true_time: Rc<Cell<Time>>,
    queue: Queue<Item<E::Message>>,
    cluster: Cluster<E>,
    outsiders: Vec<Outsider>,
    network: Network,
    managers: Option<Managers>,
    /// When the managers' log is looked at next.
    log_at: Time,
    changes_every_ns: u64,
    recoveries: Recoveries,
    /// Nodes whose memory was lost, and whether the managers know of the life that said so.
    forgetful: BTreeMap<NodeId, bool>,
    /// Which incarnation the managers knew of a node when its memory was lost last.
    forgot_after: BTreeMap<NodeId, Incarnation>,
    /// Nodes that never come back.
    gone: BTreeSet<NodeId>,
    /// The shard that is lost for good.
    lost: Option<ShardId>,
    /// Crashes that were put into recoveries.
    strikes: u32,
    weather: Option<Weather>,
    late: LateCopies,
    /// Of a hundred messages of clients that have to be sent again, so many break their connection.
    broken_percent: u32,
    random: Random,
    cpu: Cpu,
    /// Changes of streams become durable within this; at once where it is nothing.
    persistence_ns: u64,
    checks: Option<Checks>,
    effects: Effects<E::Message>,
    work: Work,
    probes: Probes,
    digest: Digest,
    /// Every word of every message counts for the digest.
    is_thorough: bool,
    trace: Option<Trace>,
    watcher: Option<Watcher>,
    events_at_once: u64,
}

impl<E: Engine + 'static> Simulation<E> {
    /// A cluster that starts at time zero, in this world.
    pub fn new(setup: &Setup<E::Options>, world: World, seed: u64) -> Simulation<E> {
        let root = Random::new(seed);
        let topology = Arc::clone(&setup.topology);
        let nodes = topology.nodes().iter().map(|node| node.datacenter.0 as usize);
        let managers = world.managers.iter().flat_map(|it| it.datacenters.iter().copied());
        let ends: Vec<usize> = nodes.chain(world.clients.iter().copied()).chain(managers).collect();
        let options = world.managers.as_ref().map(|managed| managed.options.clone());
        let workers = topology.workers() as usize;
        let observations = world.rules.map(|_| Vec::new());
        // What a run on this thread that failed has left.
        drop(engines::interleave::take_back());
        let mut simulation = Simulation {
            now: Time::ZERO,
            true_time: Rc::default(),
            queue: Queue::new(root.fork(1)),
            cluster: Cluster::new(
                setup,
                (world.clocks, world.persistence_ns > 0),
                options,
                root.fork(2).next_u64(),
            ),
            outsiders: Vec::new(),
            network: Network::new(&ends, &world.delays, workers, root.fork(3)),
            managers: world.managers.map(|it| Managers::new(&topology, it, root.fork(5))),
            log_at: Time::MAX,
            changes_every_ns: 0,
            recoveries: Recoveries::new(topology.shards(), topology.workers()),
            forgetful: BTreeMap::new(),
            forgot_after: BTreeMap::new(),
            gone: BTreeSet::new(),
            lost: None,
            strikes: 0,
            weather: None,
            late: LateCopies::new(root.fork(6)),
            broken_percent: 0,
            random: root.fork(4),
            cpu: world.cpu,
            persistence_ns: world.persistence_ns,
            checks: world.rules.map(|rules| Checks::new(&topology, rules)),
            effects: Effects { effects: Vec::new(), observations },
            work: Work::default(),
            probes: Probes::default(),
            digest: Digest::new(),
            is_thorough: false,
            trace: None,
            watcher: None,
            events_at_once: 0,
            topology,
        };
        for seat in 0..simulation.cluster.seats.len() as u32 {
            let at = Time(simulation.random.below(100_000));
            simulation.queue.push(at, Item::Start { seat, life: 1 });
        }
        simulation.look_at_log();
        simulation
    }

    /// Lets every word of every message count for the digest.
    pub fn be_thorough(&mut self) {
        self.is_thorough = true;
    }

    /// Keeps the last `lines` events in words, from now on.
    pub fn keep_trace(&mut self, lines: usize) {
        self.trace = Some(Trace::new(lines));
    }

    /// The last events.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().map_or_else(Vec::new, Trace::into_lines)
    }

    /// Shows `watcher` what engines and managers do, from now on.
    pub fn watch(&mut self, watcher: Watcher) {
        self.watcher = Some(watcher);
        self.effects.observations.get_or_insert_default();
    }

    /// The true time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The true time, as clients can tell it.
    pub fn true_time(&self) -> Rc<Cell<Time>> {
        Rc::clone(&self.true_time)
    }

    /// The shape of the cluster.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Clocks will keep no bound: leases are at risk, and nothing else.
    pub fn expect_wild_clocks(&mut self) {
        if let Some(checks) = &mut self.checks {
            checks.expect_wild_clocks();
        }
    }

    /// What the checkers know.
    pub fn checks(&self) -> Option<&Checks> {
        self.checks.as_ref()
    }

    /// Everything that happened so far in one number.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Which rare paths were reached.
    pub fn probes(&self) -> Probes {
        let mut probes = self.probes;
        probes.take_metrics(&self.metrics());
        probes
    }

    /// What was counted.
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

    /// The database as tasks on this worker see it.
    pub fn local(&self, place: Place) -> Local {
        let worker = self.cluster.worker(self.cluster.seat_of(place));
        worker.expect("nobody is sent to a node that is down").engine().local()
    }

    /// How long this worker has worked so far.
    pub fn worked(&self, place: Place) -> Duration {
        self.cluster.seats[self.cluster.seat_of(place)].worked
    }

    /// Runs a task on a worker.
    pub fn spawn(&mut self, place: Place, task: Task) {
        let seat = self.cluster.seat_of(place);
        let worker = self.cluster.seats[seat].worker.as_mut();
        worker.expect("nobody is sent to a node that is down").engine_mut().spawn(task);
        self.nudge(seat, self.now);
    }

    /// Transactions under way, on all workers.
    pub fn pending(&self) -> usize {
        let workers = self.cluster.seats.iter().filter_map(|seat| seat.worker.as_ref());
        workers.map(|worker| worker.engine().pending()).sum()
    }

    /// Where they are.
    pub fn pending_places(&self) -> Vec<(Place, usize)> {
        let alive = |seat: &Seat<E>| Some((seat.place, seat.worker.as_ref()?.engine().pending()));
        self.cluster.seats.iter().filter_map(alive).filter(|(_, pending)| *pending > 0).collect()
    }

    /// Makes a node slower than it could be: 100 is its full speed, 1000 a tenth of it.
    pub fn slow_down(&mut self, node: NodeId, percent: u64) {
        self.cluster.slowdown_percent[node.0 as usize] = percent;
    }

    /// Lets everything happen up to and at `until`.
    ///
    /// # Errors
    /// The first violation of a rule.
    pub fn run_until(&mut self, until: Time) -> Result<(), Violation> {
        while self.queue.next_at().is_some_and(|at| at <= until) {
            let (at, item) = self.queue.pop().expect("something is due");
            if at > self.now {
                self.now = at;
                self.true_time.set(at);
                self.events_at_once = 0;
            }
            self.events_at_once += 1;
            if self.events_at_once > EVENTS_AT_ONCE_MAX {
                let what = "time stands still: events bring about events at the same instant";
                return Err(Violation::new("progress", self.now, what));
            }
            self.happen(item)?;
        }
        self.now = self.now.max(until);
        self.true_time.set(self.now);
        Ok(())
    }

    fn happen(&mut self, item: Item<E::Message>) -> Result<(), Violation> {
        match item {
            Item::Start { seat, life } => {
                let node = self.cluster.seats[seat as usize].place.node;
                if self.cluster.lives[node.0 as usize] != life || !self.cluster.is_up(node) {
                    return Ok(());
                }
                self.cluster.seats[seat as usize].has_begun = true;
                self.reach(seat as usize, Event::Start)
            }
            Item::Message { seat, from, message } => {
                self.work.delivered += 1;
                self.reach(seat as usize, Event::Received { from, message })
            }
            Item::Request { seat, life, from, request } => {
                let node = self.cluster.seats[seat as usize].place.node;
                if self.cluster.lives[node.0 as usize] != life {
                    return Ok(()); // The connection over which it came has ended.
                }
                self.work.requests += 1;
                self.reach(seat as usize, Event::Client { from, request })
            }
            Item::Nudge { seat } => self.reach(seat as usize, Event::Nudged),
            Item::Timer { seat } => {
                if self.cluster.seats[seat as usize].timer_at != self.now {
                    return Ok(()); // An earlier one was asked for meanwhile.
                }
                self.work.timers += 1;
                self.reach(seat as usize, Event::Timer)
            }
            Item::Persisted { seat, life } => self.persist(seat as usize, life),
            Item::Free { seat } => self.look(seat as usize),
            Item::Asked { seat, life, from, waits } => {
                match self.busy_until(seat).filter(|_| waits) {
                    Some(at) => self.queue.push(at, Item::Asked { seat, life, from, waits: false }),
                    None => self.tell_directory(seat, life, from),
                }
                Ok(())
            }
            Item::Dial { client, number, seat, waits } => {
                match self.busy_until(seat).filter(|_| waits) {
                    Some(at) => {
                        let again = Item::Dial { client, number, seat, waits: false };
                        self.queue.push(at, again);
                    }
                    None => self.dialed_by(client, number, seat),
                }
                Ok(())
            }
            Item::Dialed { client, number, answer } => {
                self.dialed(client, number, answer);
                Ok(())
            }
            Item::Said { client, number, said } => {
                self.hear(client, number, said);
                Ok(())
            }
            Item::Lost { client, number } => {
                self.connection_lost(client, number);
                Ok(())
            }
            Item::ClientTimer { client } => {
                self.client_timer(client);
                Ok(())
            }
            Item::Blow => {
                self.blow();
                Ok(())
            }
            Item::Planned { blow, until } => {
                self.fall_as_planned(blow, until);
                Ok(())
            }
            Item::ToManager { manager, from, message } => {
                let Some(managers) = &self.managers else { return Ok(()) };
                let at = managers.local(self.now, manager as usize);
                let event = consensus::manager::Event::Received { from, at, message };
                self.manager_step(manager as usize, Some(event))
            }
            Item::ToNode { node, message } => {
                let host = self.cluster.seat_of(Place { node, worker: WorkerId(0) });
                self.reach(host, Event::Told { message })
            }
            Item::ManagerTimer { manager } => self.manager_timer(manager as usize),
            Item::Log => self.exchange(),
            Item::Change => self.change(),
            Item::Restart { node, life, lost } => {
                if self.cluster.lives[node.0 as usize] == life {
                    self.restart(node, lost);
                }
                Ok(())
            }
            Item::ManagerUp { manager } => {
                self.start_manager(manager as usize);
                Ok(())
            }
            Item::OutageOver => {
                self.end_outage();
                Ok(())
            }
            Item::Strike { node } => {
                self.strike(node);
                Ok(())
            }
        }
    }

    /// An event reaches a worker, which takes it when it can.
    fn reach(&mut self, seat: usize, event: Event<E::Message>) -> Result<(), Violation> {
        let state = &mut self.cluster.seats[seat];
        if state.worker.is_none() || !state.has_begun {
            // There is no node to take it. One that begins looks around anyway.
            state.nudged &= !matches!(event, Event::Nudged);
            return Ok(());
        }
        if state.busy_until <= self.now && state.inbox.is_empty() {
            return self.step(seat, event);
        }
        state.inbox.push_back(event);
        self.look_later(seat);
        Ok(())
    }

    fn look_later(&mut self, seat: usize) {
        let state = &mut self.cluster.seats[seat];
        if !state.will_look {
            state.will_look = true;
            self.queue.push(state.busy_until.max(self.now), Item::Free { seat: seat as u32 });
        }
    }

    fn look(&mut self, seat: usize) -> Result<(), Violation> {
        let state = &mut self.cluster.seats[seat];
        state.will_look = false;
        if state.busy_until <= self.now
            && let Some(event) = state.inbox.pop_front()
        {
            self.step(seat, event)?;
        }
        if !self.cluster.seats[seat].inbox.is_empty() {
            self.look_later(seat);
        }
        Ok(())
    }

    /// A worker takes an event.
    fn step(&mut self, seat: usize, event: Event<E::Message>) -> Result<(), Violation> {
        let place = self.cluster.seats[seat].place;
        self.work.steps += 1;
        self.digest_event(seat, &event);
        self.note(|now, trace| trace.note(now, format_args!("{place} {event:?}")));
        let local = self.cluster.clocks[place.node.0 as usize].local(self.now);
        let received = bytes::of_event(&event);
        let other = self.interleave(seat);
        let state = &mut self.cluster.seats[seat];
        match event {
            Event::Timer => (state.timer_at, state.timer_local) = (Time::MAX, Time::MAX),
            Event::Nudged => state.nudged = false,
            Event::Start
            | Event::Received { .. }
            | Event::Client { .. }
            | Event::Persisted { .. }
            | Event::Told { .. } => {}
        }
        let worker = state.worker.as_mut().expect("only who lives takes a step");
        worker.step(local, event, &mut self.effects);
        let acted = other.and_then(|other| self.end_interleaving(other));
        let state = &mut self.cluster.seats[seat];
        let worker = state.worker.as_mut().expect("it took a step");

        let counters = worker.engine().counters();
        let before = std::mem::replace(&mut state.operations, counters.operations);
        let operations = counters.operations - before;
        let kept = counters.batch_bytes + counters.replayed_bytes;
        let kept = kept - std::mem::replace(&mut state.bytes, kept);
        let keys = counters.step_keys - std::mem::replace(&mut state.keys, counters.step_keys);
        let is_message = |effect: &&Effect<E::Message>| {
            matches!(effect, Effect::Send { .. } | Effect::Reply { .. } | Effect::Tell { .. })
        };
        let messages = self.effects.effects.iter().filter(is_message).count() as u64;
        let slowdown = self.cluster.slowdown_percent[place.node.0 as usize];
        let sent: u64 = self.effects.effects.iter().map(bytes::of_effect).sum();
        let work = StepWork { messages, operations, bytes: received + kept + sent, keys };
        let cost = Duration::from_nanos(self.cpu.cost_ns(work, slowdown));
        let cost = cost + self.interruption();
        let state = &mut self.cluster.seats[seat];
        let end = self.now + cost;
        state.worked += cost;
        state.busy_until = state.busy_until.max(end);
        self.observe(seat, acted.as_ref())?;
        if let Some(acted) = acted {
            self.take_others_effect(acted)?;
        }
        self.take_effect(seat, end)?;
        self.await_persistence(seat);
        Ok(())
    }

    /// What the streams of a worker have changed becomes durable some time later, where storages are late.
    fn await_persistence(&mut self, seat: usize) {
        let state = &mut self.cluster.seats[seat];
        let Some(worker) = state.worker.as_ref().filter(|_| self.persistence_ns > 0) else {
            return;
        };
        let mut streams = self.topology.shards_of(state.place.node);
        let pending = |shard| worker.stream(shard).is_some_and(|it| it.storage().pending() > 0);
        if !state.persists && streams.any(pending) {
            state.persists = true;
            let life = self.cluster.lives[state.place.node.0 as usize];
            let at = Time(self.now.0 + 1 + self.random.below(self.persistence_ns));
            self.queue.push(at, Item::Persisted { seat: seat as u32, life });
        }
    }

    fn persist(&mut self, seat: usize, life: u32) -> Result<(), Violation> {
        let node = self.cluster.seats[seat].place.node;
        if self.cluster.lives[node.0 as usize] != life || !self.cluster.is_up(node) {
            return Ok(());
        }
        self.cluster.seats[seat].persists = false;
        let all = self.random.chance(1, 2);
        let changes = if all { usize::MAX } else { 1 + self.random.below(4) as usize };
        self.reach(seat, Event::Persisted { changes })
    }

    /// For how long the step that is under way stands still, before what it sends leaves.
    fn interruption(&mut self) -> Duration {
        let Some(weather) = self.weather.filter(|it| it.interrupted_ppm > 0) else {
            return Duration::ZERO;
        };
        if self.random.below(1_000_000) >= u64::from(weather.interrupted_ppm) {
            return Duration::ZERO;
        }
        self.work.interrupted += 1;
        Duration::from_nanos(self.random.below(weather.longest_ns.max(1)))
    }

    /// Does what a step of this worker, which ends at `end`, wants done.
    fn take_effect(&mut self, seat: usize, end: Time) -> Result<(), Violation> {
        let place = self.cluster.seats[seat].place;
        let node = place.node.0 as usize;
        let mut effects = std::mem::take(&mut self.effects.effects);
        self.digest.word(effects.len() as u64);
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { to, message } => {
                    assert!(to != place.node, "{place} sends to itself: {message:?}");
                    self.send(end, place, to, message);
                }
                Effect::Reply { to, reply } => self.say(end, to, ToClient::Reply(reply)),
                Effect::Timer { at: local } => {
                    let at = self.cluster.clocks[node].when(local).max(Time(end.0 + 1));
                    let state = &mut self.cluster.seats[seat];
                    if at < state.timer_at {
                        (state.timer_at, state.timer_local) = (at, local);
                        self.queue.push(at, Item::Timer { seat: seat as u32 });
                    }
                }
                Effect::Tell { message } => self.tell_managers(end, place.node, &message),
                Effect::Superseded => self.superseded(place)?,
                Effect::Nudge { worker } => {
                    self.nudge(self.cluster.seat_of(Place { node: place.node, worker }), end);
                }
            }
        }
        self.effects.effects = effects;
        Ok(())
    }

    fn send(&mut self, at: Time, from: Place, to: NodeId, message: Message<E::Message>) {
        let worker = from.worker.0 as usize;
        let arrivals = self.network.send(at, from.node.0 as usize, to.0 as usize, worker);
        let seat = self.cluster.seat_of(Place { node: to, worker: from.worker }) as u32;
        let from = from.node;
        if let [Some(first), second] = arrivals {
            if let Some(second) = second {
                let message = message.clone();
                self.queue.push(second, Item::Message { seat, from, message });
            }
            self.queue.push(first, Item::Message { seat, from, message });
        }
    }

    fn nudge(&mut self, seat: usize, at: Time) {
        if !std::mem::replace(&mut self.cluster.seats[seat].nudged, true) {
            let at = Time(at.0 + self.random.below(NUDGE_NS_MAX));
            self.queue.push(at, Item::Nudge { seat: seat as u32 });
        }
    }

    #[inline]
    fn note(&mut self, write: impl FnOnce(Time, &mut Trace)) {
        if let Some(trace) = &mut self.trace {
            write(self.now, trace);
        }
    }

    /// Lets time pass until `done` holds, which is looked at now and then, or `patience` is over. Says
    /// whether it does.
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
