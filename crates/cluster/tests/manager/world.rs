//! Nodes, managers, their clocks, a log and a network, in one process and in true time.
//!
//! After everything that happens, no shard may have two leaders with valid leases (rule M7), by
//! by any clock. And when a manager appoints a leader, the lease of the one before has ended in true
//! time, whether or not the new one knows of its appointment: how long that takes must not hide that it came too early.

use shoal_cluster::manager::{
    Applied, Ask, CarriedLog, CatchingUp, ClusterChange, Configuration, EpochEnd, FinalEnds,
    Incarnation, LogPace, Manager, ManagerClient, ManagerClientEffect, ManagerClientEvent,
    ManagerEffect, ManagerEvent, ManagerOptions, ManagerPlantedBugs, ManagerRequest,
    ProcessInstance, SimulatedLog, StateMachine, ToManager, ToNode,
};
use shoal_cluster::topology::Topology;
use shoal_types::wire::{Coded, decode, encode};
use shoal_types::{Ballot, ClusterId, Epoch, NodeId, Random, ShardId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// The identity that the first manager draws.
pub const DRAWN: ClusterId = ClusterId::new(7).expect("not 0");

/// A clock that runs at some rate, for some time.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Parts per million more than true time, or less.
    rate: i64,
    since: Time,
    reading: u64,
}

impl Dial {
    pub fn new(offset: u64, rate: i64) -> Dial {
        Dial { rate, since: Time::ZERO, reading: offset }
    }

    pub fn read(&self, now: Time) -> Time {
        let passed = (now - self.since).as_nanos() as i128;
        Time(self.reading + (passed * i128::from(1_000_000 + self.rate) / 1_000_000) as u64)
    }

    pub fn set_rate(&mut self, now: Time, rate: i64) {
        let reading = self.read(now).0;
        *self = Dial { rate, since: now, reading };
    }

    /// When it will read so much, or now.
    fn when(&self, at: Time, now: Time) -> Time {
        let ahead = i128::from(at.0.saturating_sub(self.reading));
        let rate = i128::from(1_000_000 + self.rate);
        let passed = (ahead * 1_000_000 + rate - 1) / rate;
        Time(self.since.0 + passed as u64).max(now)
    }
}

/// What the network does with messages.
#[derive(Debug, Clone)]
pub struct NetworkFaults {
    pub loss_percent: u64,
    pub repeat_percent: u64,
    pub delay_min: Duration,
    pub delay_max: Duration,
    /// Messages that come late by up to `late_max`.
    pub late_percent: u64,
    pub late_max: Duration,
    /// Messages that managers leave unread for a while.
    pub waits_percent: u64,
}

impl NetworkFaults {
    pub fn fair(delay: Duration) -> NetworkFaults {
        NetworkFaults {
            loss_percent: 0,
            repeat_percent: 0,
            delay_min: delay,
            delay_max: delay,
            late_percent: 0,
            late_max: Duration::ZERO,
            waits_percent: 0,
        }
    }
}

/// A node's process and its owner.
pub struct Node {
    pub dial: Dial,
    pub member: Option<ManagerClient>,
    survivors: u64,
    pub paused: Option<Time>,
    delivered: Delivered,
    /// What the owner has done under the ballots it has.
    done: BTreeSet<Task>,
}

impl Node {
    fn down(dial: Dial) -> Node {
        let (delivered, done) = (Delivered::default(), BTreeSet::new());
        Node { dial, member: None, survivors: 0, paused: None, delivered, done }
    }
}

/// What was delivered to an owner, to see that it grows.
#[derive(Default)]
struct Delivered {
    revision: u64,
    epoch: Epoch,
    finals: BTreeSet<Epoch>,
}

/// What a leader does about a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Report { shard: ShardId, epoch: Epoch, ballot: Ballot },
    CaughtUp { shard: ShardId, replica: NodeId, incarnation: u32, after: Epoch, ballot: Ballot },
}

pub struct Server {
    pub dial: Dial,
    pub manager: Option<Manager<CarriedLog>>,
    survivors: u64,
    /// How many of the effects of all commands it has reported.
    applied: usize,
}

enum Happening {
    ToManager {
        from: NodeId,
        to: usize,
        message: ToManager,
    },
    /// Read later than it came.
    Read {
        from: NodeId,
        to: usize,
        instance: u64,
        at: Time,
        message: ToManager,
    },
    ToNode {
        from: usize,
        to: NodeId,
        message: ToNode,
    },
    NodeTimer {
        node: NodeId,
        instance: u64,
    },
    ManagerTimer {
        manager: usize,
        instance: u64,
    },
    Task {
        node: NodeId,
        instance: u64,
        task: Task,
    },
    Log,
}

/// How a cluster is set up.
pub struct Setup {
    pub topology: Topology,
    pub options: ManagerOptions,
    pub managers: usize,
    pub pace: LogPace,
    pub network_faults: NetworkFaults,
    /// Time that owners take to report and to catch up; `None`: they do not.
    pub owners: Option<Duration>,
    pub random: Random,
}

pub struct World {
    pub now: Time,
    pub topology: Arc<Topology>,
    pub options: ManagerOptions,
    /// What is wrong with the first manager alone.
    pub odd: ManagerPlantedBugs,
    pub nodes: Vec<Node>,
    /// Former lives that are silent and do not know that they are over.
    pub zombies: Vec<(NodeId, Dial, ManagerClient)>,
    pub servers: Vec<Server>,
    pub log: SimulatedLog,
    pub network_faults: NetworkFaults,
    pub owners: Option<Duration>,
    pub random: Random,
    /// Nodes that do not reach managers, and those that managers do not reach.
    pub mute: BTreeSet<NodeId>,
    pub deaf: BTreeSet<NodeId>,
    /// Nodes that do not reach a manager.
    pub blocked: BTreeSet<(NodeId, usize)>,
    happenings: BTreeMap<(Time, u64), Happening>,
    counted: u64,
    timers: BTreeMap<(bool, u32), (Time, u64)>,
    /// What all commands have done, as the first manager that applied them said.
    pub applied: Vec<Applied>,
    pub finals: BTreeMap<Epoch, FinalEnds>,
    /// Whether appointments are judged when they are made.
    pub judges_appointments: bool,
    pub answers: Vec<(Ask, bool)>,
    asks: u64,
    pub trace: Vec<String>,
}

/// What a leader of this ballot finds at the end of an epoch. Others find something else, which no correct leader does
/// after one that has reported: so one sees whose word counted.
pub fn epoch_end(shard: ShardId, epoch: Epoch, ballot: Ballot) -> EpochEnd {
    let seed = u64::from(shard.0) << 48 | u64::from(epoch.0) << 32;
    let seed = seed | u64::from(ballot.epoch.0) << 16 | u64::from(ballot.node.0);
    match Random::new(seed).next_u64() >> 40 {
        hanging if hanging % 2 == 0 => EpochEnd::up_to(hanging),
        _ if ballot.epoch <= epoch => EpochEnd::Whole,
        other => EpochEnd::up_to(other),
    }
}

impl World {
    pub fn new(setup: Setup) -> World {
        let topology = Arc::new(setup.topology);
        let mut random = setup.random;
        let log = SimulatedLog::new(setup.managers, setup.pace, random.fork(1));
        let mut dial = || Dial::new(random.below(1 << 40), 0);
        let nodes = topology.nodes().iter().map(|_| Node::down(dial())).collect();
        let servers = (0..setup.managers)
            .map(|_| Server { dial: dial(), manager: None, survivors: 0, applied: 0 })
            .collect();
        let mut world = World {
            now: Time(1_000_000),
            topology,
            odd: setup.options.faults,
            options: setup.options,
            nodes,
            zombies: Vec::new(),
            servers,
            log,
            network_faults: setup.network_faults,
            owners: setup.owners,
            random,
            mute: BTreeSet::new(),
            deaf: BTreeSet::new(),
            blocked: BTreeSet::new(),
            happenings: BTreeMap::new(),
            counted: 0,
            timers: BTreeMap::new(),
            applied: Vec::new(),
            finals: BTreeMap::new(),
            judges_appointments: true,
            answers: Vec::new(),
            asks: 0,
            trace: Vec::new(),
        };
        for manager in 0..world.servers.len() {
            world.start_manager(manager);
        }
        world
    }

    pub fn start_manager(&mut self, manager: usize) {
        let mut options = self.options.clone();
        if manager == 0 {
            options.faults = self.odd;
        }
        let machine = StateMachine::new(Arc::clone(&self.topology), options);
        let server = &mut self.servers[manager];
        server.manager = Some(Manager::new(CarriedLog::default(), machine, DRAWN));
        server.survivors += 1;
        server.applied = 0;
        self.log.restart(self.now, manager);
        self.happen(self.now, Happening::Log);
    }

    pub fn start(&mut self, node: NodeId, lost: bool) -> Result<(), String> {
        let instance = ProcessInstance(self.random.next_u64());
        let it = &mut self.nodes[node.0 as usize];
        it.member = Some(ManagerClient::new(node, instance, lost, self.options.clone()));
        it.survivors += 1;
        it.paused = None;
        (it.delivered, it.done) = (Delivered::default(), BTreeSet::new());
        self.member_step(node, ManagerClientEvent::Timer)
    }

    pub fn crash(&mut self, node: NodeId, zombie: bool) {
        let it = &mut self.nodes[node.0 as usize];
        if let Some(member) = it.member.take()
            && zombie
        {
            self.zombies.push((node, it.dial.clone(), member));
        }
    }

    pub fn ask(&mut self, change: &ClusterChange) -> Result<(), String> {
        self.asks += 1;
        let ask = Ask(self.asks);
        (0..self.servers.len()).try_for_each(|manager| {
            self.manager_step(manager, Some(ManagerEvent::Asked { ask, change: change.clone() }))
        })
    }

    pub fn elect(&mut self, manager: usize) {
        self.log.elect(self.now, manager);
        self.happen(self.now, Happening::Log);
    }

    /// Lets everything happen until then.
    pub fn run_until(&mut self, end: Time) -> Result<(), String> {
        loop {
            let own = self.happenings.keys().next().map(|(at, _)| *at);
            let next = own.into_iter().chain(self.log.due()).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            match self.happenings.first_entry().filter(|first| first.key().0 <= at) {
                Some(first) => {
                    let happening = first.remove();
                    self.take(happening)?;
                }
                None => self.exchange()?,
            }
            self.check_leaders()?;
        }
        self.now = end;
        self.check_leaders()
    }

    pub fn wait(&mut self, span: Duration) -> Result<(), String> {
        self.run_until(self.now + span)
    }

    /// The nodes that lead a shard at this moment; former processes too.
    pub fn leaders(&self, shard: ShardId) -> Vec<NodeId> {
        let ids = (0..).map(NodeId);
        let living = self.nodes.iter().zip(ids).filter_map(|(node, id)| {
            let member = node.member.as_ref()?;
            member.leads(shard, node.dial.read(self.now)).then_some(id)
        });
        let dead = self.zombies.iter().filter_map(|(id, dial, member)| {
            member.leads(shard, dial.read(self.now)).then_some(*id)
        });
        living.chain(dead).collect()
    }

    fn check_leaders(&self) -> Result<(), String> {
        for shard in self.topology.shard_ids() {
            let leaders = self.leaders(shard);
            if leaders.len() > 1 {
                return Err(format!("M7: {shard} is led by {leaders:?} at {}", self.now));
            }
        }
        Ok(())
    }

    /// A manager has just appointed this process of a node: the leases of all others that led have ended.
    fn check_former(&self, shard: ShardId, new: (NodeId, Incarnation)) -> Result<(), String> {
        let holds = |id: NodeId, dial: &Dial, member: &ManagerClient| {
            let now = dial.read(self.now);
            let is_former = Some(new) != member.incarnation().map(|incarnation| (id, incarnation));
            is_former && member.leads(shard, now)
        };
        let living = self.nodes.iter().zip((0..).map(NodeId));
        let living = living.filter_map(|(node, id)| Some((id, &node.dial, node.member.as_ref()?)));
        let dead = self.zombies.iter().map(|(id, dial, member)| (*id, dial, member));
        match living.chain(dead).find(|(id, dial, member)| holds(*id, dial, member)) {
            Some((former, _, _)) if self.judges_appointments => Err(format!(
                "M7: {} is appointed to {shard} at {}, while {former} holds a lease of it",
                new.0, self.now
            )),
            _ => Ok(()),
        }
    }

    fn happen(&mut self, at: Time, happening: Happening) {
        self.counted += 1;
        self.happenings.insert((at, self.counted), happening);
    }

    fn set_timer(&mut self, key: (bool, u32), at: Time, happening: Happening) {
        if let Some(before) = self.timers.remove(&key) {
            self.happenings.remove(&before);
        }
        self.happen(at, happening);
        self.timers.insert(key, (at, self.counted));
    }

    fn take(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::ToManager { from, to, message } => {
                if self.mute.contains(&from) || self.blocked.contains(&(from, to)) {
                    return Ok(());
                }
                let (at, instance) =
                    (self.servers[to].dial.read(self.now), self.servers[to].survivors);
                let waits = self.network_faults.waits_percent;
                if waits == 0 || self.random.below(100) >= waits {
                    return self
                        .manager_step(to, Some(ManagerEvent::Received { from, at, message }));
                }
                let wait = Duration::from_millis(self.random.below(300));
                self.happen(self.now + wait, Happening::Read { from, to, instance, at, message });
                Ok(())
            }
            Happening::Read { from, to, instance, at, message } => {
                if self.servers[to].survivors != instance {
                    return Ok(());
                }
                self.manager_step(to, Some(ManagerEvent::Received { from, at, message }))
            }
            Happening::ToNode { from, to, message } => {
                let node = &self.nodes[to.0 as usize];
                if self.deaf.contains(&to) || node.member.is_none() {
                    return Ok(());
                }
                if let Some(until) = node.paused.filter(|until| *until > self.now) {
                    self.happen(until, Happening::ToNode { from, to, message });
                    return Ok(());
                }
                self.member_step(to, ManagerClientEvent::Received(message))
            }
            Happening::NodeTimer { node, instance } => {
                let it = &self.nodes[node.0 as usize];
                if it.survivors != instance || it.member.is_none() {
                    return Ok(());
                }
                if let Some(until) = it.paused.filter(|until| *until > self.now) {
                    self.set_timer((true, node.0), until, Happening::NodeTimer { node, instance });
                    return Ok(());
                }
                self.member_step(node, ManagerClientEvent::Timer)
            }
            Happening::ManagerTimer { manager, instance } => {
                if self.servers[manager].survivors != instance {
                    return Ok(());
                }
                self.manager_step(manager, Some(ManagerEvent::Timer))
            }
            Happening::Task { node, instance, task } => self.carry_out(node, instance, task),
            Happening::Log => self.exchange(),
        }
    }

    /// Every manager talks to the log.
    fn exchange(&mut self) -> Result<(), String> {
        (0..self.servers.len()).try_for_each(|manager| self.manager_step(manager, None))
    }

    /// Gives a manager an event, or what the log has for it.
    pub fn manager_step(
        &mut self,
        manager: usize,
        event: Option<ManagerEvent>,
    ) -> Result<(), String> {
        let (now, server) = (self.now, &mut self.servers[manager]);
        let Some(it) = &mut server.manager else { return Ok(()) };
        let own = server.dial.read(now);
        let news = self.log.exchange(now, own, manager, it.log_mut());
        let event = match event {
            None if !news => return Ok(()),
            None => ManagerEvent::Log,
            Some(event) => event,
        };
        let mut effects = Vec::new();
        it.step(own, event, &mut effects);
        self.log.exchange(now, own, manager, it.log_mut());
        for effect in effects {
            match effect {
                ManagerEffect::Send { to, message } => self.send_node(manager, to, &message),
                ManagerEffect::Answer { ask, result } => {
                    self.answers.push((ask, result.is_ok()));
                    match result {
                        Ok(()) => self.trace.push(format!("m{manager} grants {ask}")),
                        Err(why) => self.trace.push(format!("m{manager} refuses {ask}: {why}")),
                    }
                }
                ManagerEffect::Applied(applied) => self.note(manager, applied)?,
                ManagerEffect::Timer { at } => {
                    let server = &self.servers[manager];
                    let (at, instance) = (server.dial.when(at, now), server.survivors);
                    let timer = Happening::ManagerTimer { manager, instance };
                    self.set_timer((false, manager as u32), at, timer);
                }
            }
        }
        Ok(())
    }

    /// All managers apply the same effects.
    fn note(&mut self, manager: usize, applied: Applied) -> Result<(), String> {
        let place = self.servers[manager].applied;
        self.servers[manager].applied += 1;
        if let Some(before) = self.applied.get(place) {
            if *before != applied {
                return Err(format!("m{manager} says {applied:?}, another {before:?}"));
            }
            return Ok(());
        }
        if let Some(line) = show_applied(&applied) {
            self.trace.push(line);
        }
        match &applied {
            Applied::NodeAdded { node } => {
                assert_eq!(node.0 as usize, self.nodes.len(), "numbers have no gaps");
                let dial = Dial::new(self.random.fork(1).below(1 << 40), 0);
                self.nodes.push(Node::down(dial));
            }
            Applied::Final(last) => self.check_final(last)?,
            Applied::Appointed { shard, ballot } => {
                let machine =
                    self.servers[manager].manager.as_ref().expect("it has just applied").machine();
                let (_, incarnation) = machine.node(ballot.node).expect("it is appointed");
                self.check_former(*shard, (ballot.node, incarnation))?;
            }
            _ => {}
        }
        self.applied.push(applied);
        Ok(())
    }

    /// An FVW never changes, in the words of any node.
    fn check_final(&mut self, last: &FinalEnds) -> Result<(), String> {
        let epoch = last.epoch();
        let before = self.finals.entry(epoch).or_insert_with(|| last.clone());
        if before != last {
            return Err(format!("M9: FVW({epoch}) was {before:?}, is {last:?}"));
        }
        Ok(())
    }

    pub fn member_step(&mut self, id: NodeId, event: ManagerClientEvent) -> Result<(), String> {
        let (now, node) = (self.now, &mut self.nodes[id.0 as usize]);
        let Some(member) = &mut node.member else { return Ok(()) };
        let reading = node.dial.read(now);
        let held = member.holds_lease(reading);
        let mut effects = Vec::new();
        member.step(reading, event, &mut effects);
        if !held && member.holds_lease(reading) {
            self.trace.push(format!("{id} holds a lease"));
        }
        for effect in effects {
            match effect {
                ManagerClientEffect::Send { message } => self.send_managers(id, &message),
                ManagerClientEffect::Configured { configuration } => {
                    self.configured(id, &configuration)?;
                }
                ManagerClientEffect::Final { ends } => {
                    let delivered = &mut self.nodes[id.0 as usize].delivered;
                    if !delivered.finals.insert(ends.epoch()) {
                        return Err(format!("{id} received FVW({}) again", ends.epoch()));
                    }
                    self.check_final(&ends)?;
                }
                ManagerClientEffect::TableChanged { ask, result } => {
                    self.trace
                        .push(format!("{id} receives the answer to request {ask}: {result:?}"));
                }
                ManagerClientEffect::Superseded => self.trace.push(format!("{id} is superseded")),
                ManagerClientEffect::Timer { at } => {
                    let node = &self.nodes[id.0 as usize];
                    let (at, instance) = (node.dial.when(at, now), node.survivors);
                    self.set_timer((true, id.0), at, Happening::NodeTimer { node: id, instance });
                }
            }
        }
        Ok(())
    }

    fn configured(&mut self, id: NodeId, configuration: &Arc<Configuration>) -> Result<(), String> {
        let node = &mut self.nodes[id.0 as usize];
        let (revision, epoch) = (configuration.revision.0, configuration.epoch);
        if revision <= node.delivered.revision || epoch < node.delivered.epoch {
            return Err(format!("{id} received revision {revision}, {epoch} again"));
        }
        (node.delivered.revision, node.delivered.epoch) = (revision, epoch);
        let settled = configuration.settled;
        self.trace.push(format!("{id} knows revision {revision} of {epoch}, {settled} settled"));
        let (Some(owners), Some(own)) =
            (self.owners, node.member.as_ref().and_then(ManagerClient::incarnation))
        else {
            return Ok(());
        };
        let mut tasks = Vec::new();
        for (shard, it) in (0..).map(ShardId).zip(&configuration.shards) {
            if (it.leader, it.incarnation) != (id, own) {
                continue;
            }
            let ballot = it.ballot;
            let lacking =
                configuration.closing().filter(|epoch| configuration.lacks_end(*epoch, shard));
            tasks.extend(lacking.map(|epoch| Task::Report { shard, epoch, ballot }));
            tasks.extend(it.catching_up().map(|CatchingUp { node: replica, after, .. }| {
                let incarnation = configuration.nodes[replica.0 as usize].incarnation.0;
                Task::CaughtUp { shard, replica, incarnation, after, ballot }
            }));
        }
        let instance = node.survivors;
        for task in tasks {
            if self.nodes[id.0 as usize].done.insert(task) {
                let delay = self.random.below(owners.as_nanos() as u64 + 1);
                let at = self.now + Duration::from_nanos(delay);
                self.happen(at, Happening::Task { node: id, instance, task });
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, id: NodeId, instance: u64, task: Task) -> Result<(), String> {
        let node = &self.nodes[id.0 as usize];
        if node.survivors != instance {
            return Ok(());
        }
        if let Some(until) = node.paused.filter(|until| *until > self.now) {
            self.happen(until, Happening::Task { node: id, instance, task });
            return Ok(());
        }
        let configuration = node.member.as_ref().and_then(ManagerClient::configuration);
        let ballot_of = |shard| Some(configuration?.shard(shard)?.ballot);
        match task {
            Task::Report { shard, epoch, ballot } if ballot_of(shard) == Some(ballot) => {
                let end = epoch_end(shard, epoch, ballot);
                self.member_step(
                    id,
                    ManagerClientEvent::Request(ManagerRequest::Report { shard, epoch, end }),
                )
            }
            // It may come when the node leads under another ballot: that is for the member to see.
            Task::CaughtUp { shard, replica, incarnation, ballot, .. } => {
                // A replica that is down catches up with nothing.
                let node = &self.nodes[replica.0 as usize];
                let member = node.member.as_ref();
                let up = member
                    .and_then(ManagerClient::incarnation)
                    .is_some_and(|it| it.0 == incarnation);
                if !up {
                    let later = self.now + Duration::from_millis(50);
                    self.happen(later, Happening::Task { node: id, instance, task });
                    return Ok(());
                }
                let incarnation = Incarnation(incarnation);
                let event = ManagerClientEvent::Request(ManagerRequest::CaughtUp {
                    shard,
                    replica,
                    ballot,
                    incarnation,
                });
                self.member_step(id, event)
            }
            Task::Report { .. } => Ok(()),
        }
    }

    fn send_managers(&mut self, from: NodeId, message: &ToManager) {
        for to in 0..self.servers.len() {
            for at in self.journeys() {
                let message = carried(message);
                self.happen(at, Happening::ToManager { from, to, message });
            }
        }
    }

    fn send_node(&mut self, from: usize, to: NodeId, message: &ToNode) {
        for at in self.journeys() {
            self.happen(at, Happening::ToNode { from, to, message: carried(message) });
        }
    }

    /// When a message arrives: never, once, or twice.
    fn journeys(&mut self) -> Vec<Time> {
        let network_faults = self.network_faults.clone();
        let span = |span: Duration| span.as_nanos() as u64;
        let mut arrivals = Vec::new();
        let random = &mut self.random;
        let lost = random.below(100) < network_faults.loss_percent;
        let copies =
            if lost { 0 } else { 1 + u64::from(random.below(100) < network_faults.repeat_percent) };
        for _ in 0..copies {
            let late = random.below(100) < network_faults.late_percent;
            let late = if late { random.below(span(network_faults.late_max) + 1) } else { 0 };
            let delay = random
                .range_inclusive(span(network_faults.delay_min), span(network_faults.delay_max));
            arrivals.push(self.now + Duration::from_nanos(delay + late));
        }
        arrivals
    }
}

/// A message as it arrives, out of the bytes that it was sent as.
fn carried<T: Coded + PartialEq + Debug>(message: &T) -> T {
    let arrived = decode(&encode(message)).expect("what was encoded");
    assert_eq!(arrived, *message);
    arrived
}

/// What is worth a line; not the heartbeats.
fn show_applied(applied: &Applied) -> Option<String> {
    let line = match applied {
        Applied::Founded(_)
        | Applied::Changed(_)
        | Applied::Answered { .. }
        | Applied::TableCreated { .. }
        | Applied::TableDropped { .. }
        | Applied::Loss { .. }
        | Applied::Ended { .. } => return None,
        Applied::NodeAdded { node } => format!("{node} is added"),
        Applied::NodeRemoved { node } => format!("{node} is removed"),
        Applied::Took(term) => format!("term {term} begins"),
        Applied::Joined { node, incarnation, .. } => {
            format!("{node} joins, incarnation {incarnation}")
        }
        Applied::Died(node) => format!("{node} is taken for dead"),
        Applied::Revived(node) => format!("{node} is alive again"),
        Applied::Raised(epoch) => format!("{epoch} begins"),
        Applied::Appointed { shard, ballot } => format!("{shard} is led by {ballot}"),
        Applied::Reported { claim, epoch } => {
            format!("{} reports {epoch} for {}", claim.node, claim.shard)
        }
        Applied::Out { shard, since: Some(epoch), .. } => format!("{shard} is out since {epoch}"),
        Applied::Out { shard, since: None, .. } => format!("{shard} is in again"),
        Applied::Final(last) => format!("FVW({}) is final", last.epoch()),
        Applied::CaughtUp { shard, replica, .. } => format!("{replica} is full again for {shard}"),
    };
    Some(line)
}
