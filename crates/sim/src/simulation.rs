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
//! A worker takes one event at a time. What a step does to the worker's own state happens when it
//! begins; what it sends leaves when it ends, and until then the worker is busy.

use crate::authority::{Authority, Changes, News};
use crate::checks::{Checks, Moment, Rules};
use crate::clients::outside::Post;
use crate::clock::NodeClock;
use crate::cluster::Cluster;
use crate::cpu::Cpu;
use crate::digest::Digest;
use crate::metrics::{Engines, Metrics, Work};
use crate::network::{Delay, Network};
use crate::probes::Probes;
use crate::queue::Queue;
use crate::trace::Trace;
use crate::violation::Violation;
use crate::weather::{Blow, Weather};
use consensus::stream::Stream;
use consensus::topology::Topology;
use engines::client::{ClientId, Reply, Request};
use engines::engine::{Setup, Task};
use engines::{Engine, Local, Observation, Place};
use node::{Effect, Effects, Event, Message};
use std::cell::Cell;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use store::Store;
use types::{Clock, Epoch, NodeId, Random, ShardId, Time, WorkerId};

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
    /// By what checkers judge; `None` if nobody watches.
    pub rules: Option<Rules>,
}

/// Something that is going to happen.
enum Item<M> {
    Start {
        seat: u32,
    },
    Message {
        seat: u32,
        from: NodeId,
        message: Message<M>,
    },
    Request {
        seat: u32,
        from: ClientId,
        request: Request,
    },
    Reply {
        client: u32,
        reply: Reply,
    },
    Nudge {
        seat: u32,
    },
    Timer {
        seat: u32,
    },
    /// A worker that was busy looks into its inbox.
    Free {
        seat: u32,
    },
    ClientTimer {
        client: u32,
    },
    Blow,
    /// The authority opens an epoch.
    Open,
    /// It hears how an epoch ended on a shard.
    Report {
        shard: ShardId,
        epoch: Epoch,
        watermark: Clock,
    },
    /// A worker hears from it.
    News {
        seat: u32,
        news: News,
    },
}

/// A client outside.
struct Outsider {
    post: Rc<Post>,
    /// `None` once it is done.
    task: Option<Task>,
    wake_at: Time,
}

/// See the module.
pub struct Simulation<E: Engine> {
    topology: Arc<Topology>,
    now: Time,
    true_time: Rc<Cell<Time>>,
    queue: Queue<Item<E::Message>>,
    cluster: Cluster<E>,
    outsiders: Vec<Outsider>,
    network: Network,
    authority: Authority,
    weather: Option<Weather>,
    random: Random,
    cpu: Cpu,
    checks: Option<Checks>,
    effects: Effects<E::Message>,
    work: Work,
    probes: Probes,
    digest: Digest,
    /// Every word of every message counts for the digest.
    is_thorough: bool,
    trace: Option<Trace>,
    events_at_once: u64,
}

impl<E: Engine> Simulation<E> {
    /// A cluster that starts at time zero, in this world.
    pub fn new(setup: &Setup<E::Options>, world: World, seed: u64) -> Simulation<E> {
        let root = Random::new(seed);
        let topology = Arc::clone(&setup.topology);
        let nodes = topology.nodes().iter().map(|node| node.datacenter.0 as usize);
        let ends: Vec<usize> = nodes.chain(world.clients.iter().copied()).collect();
        let workers = topology.workers() as usize;
        let observations = world.rules.map(|_| Vec::new());
        let mut simulation = Simulation {
            now: Time::ZERO,
            true_time: Rc::default(),
            queue: Queue::new(root.fork(1)),
            cluster: Cluster::new(setup, world.clocks, root.fork(2).next_u64()),
            outsiders: Vec::new(),
            network: Network::new(&ends, &world.delays, workers, root.fork(3)),
            authority: Authority::new(topology.shards()),
            weather: None,
            random: root.fork(4),
            cpu: world.cpu,
            checks: world.rules.map(|rules| Checks::new(&topology, rules)),
            effects: Effects { effects: Vec::new(), observations },
            work: Work::default(),
            probes: Probes::default(),
            digest: Digest::new(),
            is_thorough: false,
            trace: None,
            events_at_once: 0,
            topology,
        };
        for seat in 0..simulation.cluster.seats.len() as u32 {
            let at = Time(simulation.random.below(100_000));
            simulation.queue.push(at, Item::Start { seat });
        }
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
        let mut engines = Engines::default();
        for seat in &self.cluster.seats {
            let counters = seat.worker.engine().counters();
            engines += Engines {
                certified: counters.certified,
                committed: counters.committed,
                wrote: counters.wrote,
                cross_shard: counters.cross_shard,
                conflicts: counters.conflicts,
                resent: counters.resent,
                dropped: counters.dropped,
                stamps: counters.stamps,
                stamp_entries: counters.stamp_entries,
                batches: counters.batches,
                batch_bytes: counters.batch_bytes,
            };
        }
        let asked_again = self.outsiders.iter().map(|outsider| outsider.post.asked_again());
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
        self.cluster.seats[self.cluster.seat_of(place)].worker.engine().local()
    }

    /// How long this worker has worked so far.
    pub fn worked(&self, place: Place) -> Duration {
        self.cluster.seats[self.cluster.seat_of(place)].worked
    }

    /// Runs a task on a worker.
    pub fn spawn(&mut self, place: Place, task: Task) {
        let seat = self.cluster.seat_of(place);
        self.cluster.seats[seat].worker.engine_mut().spawn(task);
        self.nudge(seat, self.now);
    }

    /// Adds a client outside, the next of those that the world announced.
    pub fn admit(&mut self, post: Rc<Post>, task: Task) {
        let client = self.outsiders.len();
        assert_eq!(post.client(), ClientId(client as u64), "clients come in order");
        self.outsiders.push(Outsider { post, task: Some(task), wake_at: self.now });
        self.queue.push(self.now, Item::ClientTimer { client: client as u32 });
    }

    /// Gives client `client` something new to do.
    pub fn employ(&mut self, client: usize, task: Task) {
        self.outsiders[client].task = Some(task);
        self.outsiders[client].wake_at = self.now;
        self.queue.push(self.now, Item::ClientTimer { client: client as u32 });
    }

    /// Transactions under way, on all workers.
    pub fn pending(&self) -> usize {
        self.cluster.seats.iter().map(|seat| seat.worker.engine().pending()).sum()
    }

    /// Does every stream have its leader?
    pub fn is_led(&self) -> bool {
        self.topology.shard_ids().all(|shard| {
            (0..self.topology.workers()).map(WorkerId).all(|worker| {
                let place = Place { node: self.topology.leader(shard), worker };
                let seat = &self.cluster.seats[self.cluster.seat_of(place)];
                seat.worker.stream(shard).is_some_and(Stream::is_leading)
            })
        })
    }

    /// Lets things go wrong from now on.
    pub fn set_weather(&mut self, weather: Weather) {
        self.network.set_troubles(weather.troubles);
        if weather.every_ns > 0 {
            let pause = weather.pause_ns(&mut self.random);
            self.queue.push(Time(self.now.0 + pause), Item::Blow);
        }
        self.weather = Some(weather);
    }

    /// Ends everything that goes wrong.
    pub fn heal(&mut self) {
        self.weather = None;
        self.network.heal(self.now);
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
            Item::Start { seat } => self.reach(seat as usize, Event::Start),
            Item::Message { seat, from, message } => {
                self.work.delivered += 1;
                self.reach(seat as usize, Event::Received { from, message })
            }
            Item::Request { seat, from, request } => {
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
            Item::Free { seat } => self.look(seat as usize),
            Item::Reply { client, reply } => {
                self.work.replies += 1;
                self.note(|now, trace| {
                    trace.note(now, format_args!("client {client} is told {reply:?}"));
                });
                self.outsiders[client as usize].post.deliver(reply);
                self.poll(client as usize);
                Ok(())
            }
            Item::ClientTimer { client } => {
                let wake_at = &mut self.outsiders[client as usize].wake_at;
                if *wake_at == self.now {
                    *wake_at = Time::MAX;
                    self.poll(client as usize);
                }
                Ok(())
            }
            Item::Blow => {
                self.blow();
                Ok(())
            }
            Item::Open => {
                self.open_epoch();
                Ok(())
            }
            Item::Report { shard, epoch, watermark } => self.hear_report(shard, epoch, watermark),
            Item::News { seat, news } => {
                let event = match news {
                    News::Opened(epoch) => Event::Epoch { epoch },
                    News::Settled(watermark) => Event::Settled { watermark },
                };
                self.reach(seat as usize, event)
            }
        }
    }

    /// An event reaches a worker, which takes it when it can.
    fn reach(&mut self, seat: usize, event: Event<E::Message>) -> Result<(), Violation> {
        let state = &mut self.cluster.seats[seat];
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
        let state = &mut self.cluster.seats[seat];
        match event {
            Event::Timer => state.timer_at = Time::MAX,
            Event::Nudged => state.nudged = false,
            Event::Start
            | Event::Received { .. }
            | Event::Client { .. }
            | Event::Epoch { .. }
            | Event::Settled { .. } => {}
        }
        state.worker.step(local, event, &mut self.effects);

        let operations = state.worker.engine().counters().operations;
        let done = operations - std::mem::replace(&mut state.operations, operations);
        let is_message = |effect: &&Effect<E::Message>| {
            matches!(effect, Effect::Send { .. } | Effect::Reply { .. })
        };
        let messages = self.effects.effects.iter().filter(is_message).count() as u64;
        let slowdown = self.cluster.slowdown_percent[place.node.0 as usize];
        let cost = Duration::from_nanos(self.cpu.cost_ns(messages, done, slowdown));
        let end = self.now + cost;
        state.worked += cost;
        state.busy_until = state.busy_until.max(end);
        self.observe(seat)?;
        self.take_effect(seat, end);
        Ok(())
    }

    fn digest_event(&mut self, seat: usize, event: &Event<E::Message>) {
        let kind = match event {
            Event::Start => 0,
            Event::Received { from, message: Message::Engine(_) } => 1 | u64::from(from.0) << 8,
            Event::Received { from, message: Message::Stream { .. } } => 2 | u64::from(from.0) << 8,
            Event::Client { from, .. } => 3 | from.0 << 8,
            Event::Timer => 4,
            Event::Nudged => 5,
            Event::Epoch { epoch } => 6 | u64::from(epoch.0) << 8,
            Event::Settled { watermark } => 7 | u64::from(watermark.epoch().0) << 8,
        };
        self.digest.word(self.now.0);
        self.digest.word(kind << 16 | seat as u64);
        if self.is_thorough {
            // A digest takes whatever is written into it.
            _ = write!(self.digest, "{event:?}");
        }
    }

    /// Shows the checkers what a step did.
    fn observe(&mut self, seat: usize) -> Result<(), Violation> {
        let Some(checks) = &mut self.checks else { return Ok(()) };
        let Some(mut observations) = self.effects.observations.take() else { return Ok(()) };
        let state = &self.cluster.seats[seat];
        let place = state.place;
        for shard in self.topology.shards_of(place.node) {
            if let Some(stream) = state.worker.stream(shard) {
                checks.accepted(shard, place.worker, place.node, stream.accepted().0);
            }
        }
        let moment = Moment { at: self.now, place };
        let mut verdict = Ok(());
        for observation in observations.drain(..) {
            self.work.observations += 1;
            if let Some(trace) = &mut self.trace {
                trace.note(self.now, format_args!("  {place} {observation:?}"));
            }
            self.probes.see(&observation);
            digest_observation(&mut self.digest, &observation);
            if verdict.is_ok() {
                verdict = checks.observe(moment, &observation);
            }
        }
        self.effects.observations = Some(observations);
        verdict?;
        let replies = self.effects.effects.iter().filter_map(|effect| match effect {
            Effect::Reply { to, reply } => Some((*to, reply)),
            Effect::Send { .. }
            | Effect::Timer { .. }
            | Effect::Nudge { .. }
            | Effect::Report { .. } => None,
        });
        for (to, reply) in replies {
            checks.replied(moment, to, reply)?;
        }
        Ok(())
    }

    /// Does what a step of this worker, which ends at `end`, wants done.
    fn take_effect(&mut self, seat: usize, end: Time) {
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
                Effect::Reply { to, reply } => {
                    let client = to.0 as u32;
                    let end_of_link = self.cluster.clocks.len() + client as usize;
                    let arrivals = self.network.send(end, node, end_of_link, 0);
                    for at in arrivals.into_iter().flatten() {
                        self.queue.push(at, Item::Reply { client, reply: reply.clone() });
                    }
                }
                Effect::Timer { at } => {
                    let at = self.cluster.clocks[node].when(at).max(Time(end.0 + 1));
                    let timer_at = &mut self.cluster.seats[seat].timer_at;
                    if at < *timer_at {
                        *timer_at = at;
                        self.queue.push(at, Item::Timer { seat: seat as u32 });
                    }
                }
                Effect::Report { shard, epoch, watermark } => {
                    let at = end + Duration::from_nanos(self.authority.delay_ns(&mut self.random));
                    self.queue.push(at, Item::Report { shard, epoch, watermark });
                }
                Effect::Nudge { worker } => {
                    self.nudge(self.cluster.seat_of(Place { node: place.node, worker }), end);
                }
            }
        }
        self.effects.effects = effects;
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

    /// Lets a client outside go on, and sends what it has to say.
    fn poll(&mut self, client: usize) {
        let outsider = &mut self.outsiders[client];
        if let Some(task) = &mut outsider.task
            && task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        {
            outsider.task = None;
        }
        let post = Rc::clone(&outsider.post);
        let wake_at = post.take_wake();
        if wake_at < outsider.wake_at || outsider.wake_at <= self.now {
            outsider.wake_at = wake_at;
            if wake_at < Time::MAX {
                outsider.wake_at = wake_at.max(Time(self.now.0 + 1));
                let item = Item::ClientTimer { client: client as u32 };
                self.queue.push(outsider.wake_at, item);
            }
        }
        while let Some((place, request)) = post.collect() {
            self.note(|now, trace| {
                trace.note(now, format_args!("client {client} asks {place} {request:?}"));
            });
            if let Some(checks) = &mut self.checks {
                checks.asked(post.client(), &request);
            }
            let from = self.cluster.clocks.len() + client;
            let arrivals = self.network.send(self.now, from, place.node.0 as usize, 0);
            let seat = self.cluster.seat_of(place) as u32;
            for at in arrivals.into_iter().flatten() {
                let (from, request) = (post.client(), request.clone());
                self.queue.push(at, Item::Request { seat, from, request });
            }
        }
    }

    /// Lets epochs change from now on.
    pub fn set_changes(&mut self, changes: Changes) {
        self.authority.set_changes(changes);
        self.plan_epoch();
    }

    /// Is every epoch settled that is closed?
    pub fn is_settled(&self) -> bool {
        self.authority.is_quiet()
    }

    fn plan_epoch(&mut self) {
        if let Some(pause) = self.authority.pause_ns(&mut self.random) {
            self.queue.push(Time(self.now.0 + pause), Item::Open);
        }
    }

    /// An epoch opens, and the next is drawn.
    fn open_epoch(&mut self) {
        if self.authority.pause_ns(&mut self.random.clone()).is_none() {
            return;
        }
        if let Some(epoch) = self.authority.open_next() {
            self.tell_nodes(&News::Opened(epoch));
        }
        self.plan_epoch();
    }

    fn hear_report(
        &mut self,
        shard: ShardId,
        epoch: Epoch,
        watermark: Clock,
    ) -> Result<(), Violation> {
        let settled = self.authority.report(shard, epoch, watermark);
        for last in settled.map_err(|what| Violation::new("M9", self.now, what))? {
            self.tell_nodes(&News::Settled(last));
        }
        Ok(())
    }

    /// Some worker of every node hears it, some time later.
    fn tell_nodes(&mut self, news: &News) {
        for node in 0..self.cluster.clocks.len() {
            let worker = WorkerId(self.random.below(self.cluster.workers as u64) as u32);
            let seat = self.cluster.seat_of(Place { node: NodeId(node as u32), worker }) as u32;
            let at = Time(self.now.0 + self.authority.delay_ns(&mut self.random));
            self.queue.push(at, Item::News { seat, news: news.clone() });
        }
    }

    /// Something goes wrong, and the next is drawn.
    fn blow(&mut self) {
        let Some(weather) = self.weather else { return };
        let (nodes, seats) = (self.cluster.clocks.len(), self.cluster.seats.len());
        let (blow, lasts) = weather.draw(&mut self.random, nodes, self.outsiders.len(), seats);
        let until = Time(self.now.0 + lasts);
        self.note(|now, trace| trace.note(now, format_args!("{blow:?} until {until}")));
        match blow {
            Blow::Clog(from, to) => self.network.clog(from, to, until),
            Blow::Cut(from, to) => self.network.cut(from, to, until),
            Blow::Silence(node) => {
                for other in (0..nodes).filter(|other| *other != node) {
                    self.network.clog(node, other, until);
                    self.network.clog(other, node, until);
                }
            }
            Blow::Stall(seat) => {
                self.work.stalls += 1;
                let busy_until = &mut self.cluster.seats[seat].busy_until;
                *busy_until = (*busy_until).max(until);
            }
        }
        let pause = weather.pause_ns(&mut self.random);
        self.queue.push(Time(self.now.0 + pause), Item::Blow);
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

fn digest_observation(digest: &mut Digest, observation: &Observation) {
    let mut words = |kind: u64, one: u64, other: u64| {
        digest.word(kind);
        digest.word(one);
        digest.word(other);
    };
    match observation {
        Observation::Read { transaction, stamp, .. } => {
            words(1, transaction.sequence, stamp.clock.0);
        }
        Observation::Drawn { transaction, clock, .. } => words(2, transaction.sequence, clock.0),
        Observation::Resolved { transaction, clock, .. } => words(3, transaction.sequence, clock.0),
        Observation::Certified { transaction, stamp, .. } => {
            words(4, transaction.sequence, stamp.clock.0);
        }
        Observation::Installed { transaction, stamp, key, value, .. } => {
            words(5, transaction.sequence, stamp.clock.0);
            digest.bytes(key);
            digest.bytes(value.as_deref().unwrap_or_default());
        }
        Observation::Appended { index, safe, .. } => words(6, *index, safe.0),
        Observation::Settled { epoch } => words(10, epoch.0.into(), 0),
        Observation::Watermark { shard, clock } => words(7, shard.0.into(), clock.0),
        Observation::Told { transaction, stamp, .. } => {
            words(8, transaction.sequence, stamp.clock.0);
        }
        Observation::Applied { stamp, key, won, .. } => {
            words(9, stamp.clock.0, (*won).into());
            digest.bytes(key);
        }
    }
}
