//! A replica of the manager: it applies the commands that the log commits, and if it leads, receives nodes'
//! messages, proposes commands, and sends the results.
//!
//! It sends nothing before the command is committed and applied here, except renewals of leases: see
//! `lease_tracker.rs`. So a deposed manager that does not know it does no harm: its proposals are void, and
//! its messages are about states that existed.

use super::command::{
    Action, ClusterChange, Command, HeartbeatRecord, LeadershipClaim, TableChange,
};
use super::ids::{Ask, Incarnation, ProcessInstance, Term};
use super::lease_tracker::LeaseTracker;
use super::log::ManagerLog;
use super::message::{ToManager, ToNode};
use super::options::ManagerOptions;
use super::refusal::ChangeRefusal;
use super::request::ManagerRequest;
use super::state_machine::{Applied, StateMachine};
use shoal_types::{ClusterId, NodeId, Rejected, TableId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most ticks in flight: more hide a slower log.
const TICKS_MAX: usize = 16;

/// The most other proposals in flight; more are dropped, and requested again by their senders.
const PROPOSALS_MAX: usize = 4096;

/// The most changes of tables whose nodes wait for an answer; more are dropped, and requested again.
const TABLE_REQUESTS_MAX: usize = 1024;

/// An event for a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagerEvent {
    /// A message of a node has arrived.
    Received {
        /// The node that sent it.
        from: NodeId,
        /// The time of its arrival, if it had to wait; not later than the step.
        at: Time,
        /// The message as it was decoded; the manager checks what it claims.
        message: ToManager,
    },
    /// A change is requested. Dropped if this replica does not lead, or stops leading: the request has to be
    /// repeated, possibly at another replica.
    Asked {
        /// The id of the request.
        ask: Ask,
        /// The change that an operator or client asks for.
        change: ClusterChange,
    },
    /// The log has committed entries, or reports another leader.
    Log,
    /// The time of a [`ManagerEffect::Timer`] has passed. An early call is legal.
    Timer,
}

/// An effect of the manager, to be applied in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagerEffect {
    /// Send to a node. The message may be lost.
    Send {
        /// The node that is to receive it.
        to: NodeId,
        /// What was applied, or a lease that the manager may grant.
        message: ToNode,
    },
    /// Answer the request for a change.
    Answer {
        /// The id of the request.
        ask: Ask,
        /// Whether the change is granted, or why not.
        result: Result<(), ChangeRefusal>,
    },
    /// Requires no action: this was applied, here as on every replica. For observers.
    Applied(Applied),
    /// Deliver [`ManagerEvent::Timer`] at this time. It replaces an earlier timer.
    Timer {
        /// On this manager's clock.
        at: Time,
    },
}

/// Counts of what a manager has dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ManagerCounters {
    /// Messages that no correct node sends.
    pub bad_messages: u64,
    /// Messages and requests to a replica that does not lead.
    pub not_leading: u64,
    /// Reports of former leaders, and repeats.
    pub late_messages: u64,
    /// Messages refused because too many proposals are in flight.
    pub too_many: u64,
}

/// One replica of the manager. See the [module](super).
#[derive(Debug)]
pub struct Manager<L> {
    options: ManagerOptions,
    log: L,
    machine: StateMachine,
    /// The identity of the cluster, if this replica founds it.
    drawn: ClusterId,
    /// Since when the `Take` of this term is proposed.
    taking: Option<(Term, Time)>,
    /// The term to which the following fields belong.
    term: Option<Term>,
    /// Heartbeats of this term.
    lease_tracker: LeaseTracker,
    /// The times of ticks in flight.
    ticks: VecDeque<Time>,
    next_tick: Time,
    next_ask: Time,
    /// Other proposals in flight, and since when.
    proposals: Vec<(Action, Time)>,
    /// Changes of tables that nodes have asked for.
    table_requests: BTreeMap<Ask, TableRequest>,
    timer: Option<Time>,
    counters: ManagerCounters,
}

/// A change of tables that a node has asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TableRequest {
    from: NodeId,
    change: TableChange,
    /// What came of it, if that is applied.
    result: Option<Result<TableId, Rejected>>,
}

impl<L: ManagerLog> Manager<L> {
    /// A replica over `log`, whose commands apply to `machine` from the first of them on. If it is the first
    /// to lead, the cluster's identity is `drawn`, at random.
    #[must_use]
    pub fn new(log: L, machine: StateMachine, drawn: ClusterId) -> Manager<L> {
        Manager {
            options: machine.options.clone(),
            log,
            machine,
            drawn,
            taking: None,
            term: None,
            lease_tracker: LeaseTracker::default(),
            ticks: VecDeque::new(),
            next_tick: Time::ZERO,
            next_ask: Time::ZERO,
            proposals: Vec::new(),
            table_requests: BTreeMap::new(),
            timer: None,
            counters: ManagerCounters::default(),
        }
    }

    /// Handles an event and appends the effects to `effects`. Deterministic. `now` is read after the last
    /// step was done, and never decreases in one process.
    pub fn step(&mut self, now: Time, event: ManagerEvent, effects: &mut Vec<ManagerEffect>) {
        self.follow(now, effects);
        match event {
            ManagerEvent::Received { from, at, message } => {
                self.on_message(now, from, at, &message, effects);
            }
            ManagerEvent::Asked { ask, change } => match self.term {
                Some(_) => self.propose_once(now, Action::Change { ask, change }),
                None => self.counters.not_leading += 1,
            },
            ManagerEvent::Log => {}
            ManagerEvent::Timer => self.timer = None,
        }
        self.answer_table_requests(effects);
        self.renew(now, effects);
        self.tick(now);
        self.arm(now, effects);
    }

    /// The state after all applied commands.
    #[must_use]
    pub fn machine(&self) -> &StateMachine {
        &self.machine
    }

    /// The term in which this replica leads and may propose.
    #[must_use]
    pub fn leads(&self) -> Option<Term> {
        self.term
    }

    /// The log, for its owner.
    pub fn log_mut(&mut self) -> &mut L {
        &mut self.log
    }

    /// What was dropped so far.
    #[must_use]
    pub fn counters(&self) -> ManagerCounters {
        self.counters
    }

    /// Starts or stops leading as the log reports, and applies committed commands.
    fn follow(&mut self, now: Time, effects: &mut Vec<ManagerEffect>) {
        if let Some(machine) = self.log.restored() {
            assert!(
                machine.term() >= self.machine.term(),
                "restored to before what was applied: {machine:?}"
            );
            self.machine = machine;
        }
        self.take_lead(now);
        let mut applied = Vec::new();
        while let Some(command) = self.log.committed() {
            self.machine.apply(&command, &mut applied);
            if self.term.is_some_and(|term| term != self.machine.term()) {
                self.term = None; // Another has taken it.
            }
            if self.term == Some(command.term) {
                self.remove_in_flight(&command);
            }
            for applied in applied.drain(..) {
                if self.term.is_some() {
                    self.note_table_change(&applied);
                    self.on_applied(&applied, effects);
                }
                effects.push(ManagerEffect::Applied(applied));
            }
        }
    }

    /// The replica leads when the log reports so and its `Take` was applied here before this step, so before
    /// `now` was read: only then may its commands carry times.
    fn take_lead(&mut self, now: Time) {
        let leads = self.log.leads();
        let term = leads.filter(|term| *term == self.machine.term());
        if self.term != term {
            self.term = term;
            if let Some(term) = term {
                self.lease_tracker.begin(term, now);
            }
            self.ticks.clear();
            self.proposals.clear();
            self.table_requests.clear();
        }
        let Some(term) = leads.filter(|term| *term > self.machine.term()) else { return };
        let is_due = |(taking, since)| taking != term || now - since >= self.options.retry_after;
        if self.taking.is_none_or(is_due) {
            self.taking = Some((term, now));
            let drawn = self.drawn;
            let action = match self.machine.cluster() {
                Some(_) => Action::Take { drawn },
                None => Action::Found { drawn, topology: self.machine.topology() },
            };
            self.log.propose(Command { term, at: now, action });
        }
    }

    /// A command of this manager is applied: it is no longer in flight.
    fn remove_in_flight(&mut self, command: &Command) {
        if let Action::Tick { .. } = command.action {
            self.ticks.retain(|at| *at > command.at);
        } else {
            self.proposals.retain(|(action, _)| *action != command.action);
        }
    }

    fn on_applied(&self, applied: &Applied, effects: &mut Vec<ManagerEffect>) {
        match applied {
            Applied::Joined { node, instance, incarnation } => {
                self.welcome(*node, *instance, *incarnation, effects);
            }
            Applied::Reported { claim, epoch } => {
                let message = ToNode::Reported { claim: *claim, epoch: *epoch };
                effects.push(ManagerEffect::Send { to: claim.node, message });
            }
            Applied::Answered { ask, result } => {
                effects.push(ManagerEffect::Answer { ask: *ask, result: result.clone() });
            }
            Applied::Changed(_) => {
                let configuration = self.machine.configuration();
                for (to, standing) in (0..).map(NodeId).zip(&configuration.nodes) {
                    if standing.alive && standing.incarnation > Incarnation(0) {
                        let configuration = Arc::clone(configuration);
                        let message = ToNode::Configured { configuration };
                        effects.push(ManagerEffect::Send { to, message });
                    }
                }
            }
            // The new configuration contains the other effects.
            Applied::Founded(_)
            | Applied::Took(_)
            | Applied::Died(_)
            | Applied::Revived(_)
            | Applied::Raised(_)
            | Applied::Appointed { .. }
            | Applied::Ended { .. }
            | Applied::Out { .. }
            | Applied::Loss { .. }
            | Applied::Final(_)
            | Applied::TableCreated { .. }
            | Applied::TableDropped { .. }
            | Applied::NodeAdded { .. }
            | Applied::NodeRemoved { .. }
            | Applied::CaughtUp { .. } => {}
        }
    }

    fn welcome(
        &self,
        to: NodeId,
        instance: ProcessInstance,
        incarnation: Incarnation,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let configuration = Arc::clone(self.machine.configuration());
        let message = ToNode::Welcome { instance, incarnation, configuration };
        effects.push(ManagerEffect::Send { to, message });
    }

    fn on_message(
        &mut self,
        now: Time,
        from: NodeId,
        at: Time,
        message: &ToManager,
        effects: &mut Vec<ManagerEffect>,
    ) {
        if !message.is_within_limits() {
            self.counters.bad_messages += 1;
            return;
        }
        if self.term.is_none() {
            self.counters.not_leading += 1;
            return;
        }
        // One that is not known may have been added, which is not applied here yet; or was started before it is added.
        if self.machine.node(from).is_none() || self.machine.is_removed(from) {
            self.counters.late_messages += 1;
            return;
        }
        match message.clone() {
            ToManager::Heartbeat { instance, incarnation, round, granted, known } => {
                let heartbeat = HeartbeatRecord { node: from, incarnation, round, at, known };
                self.on_heartbeat(now, instance, heartbeat, granted, effects);
            }
            ToManager::Join { instance, after, lost } => {
                self.on_join(now, from, instance, after, lost, effects);
            }
            ToManager::Request { incarnation, ballot, request } => {
                let shard = request.shard();
                let claim = LeadershipClaim { node: from, incarnation, shard, ballot };
                self.on_request(now, claim, request);
            }
            // Only the host of a recovering manager uses these; the recovery is over by now.
            ToManager::Recalled { .. } => self.counters.late_messages += 1,
            ToManager::ChangeTable { incarnation, ask, change } => {
                self.on_table_request(now, from, incarnation, ask, change);
            }
        }
    }

    /// A node asks for a change of tables. The answer is that of the log: what this replica knows may be of before another
    /// one led.
    fn on_table_request(
        &mut self,
        now: Time,
        from: NodeId,
        incarnation: Incarnation,
        ask: Ask,
        change: TableChange,
    ) {
        let admitted = self.machine.node(from).is_some_and(|(_, own)| own == incarnation);
        if !admitted || incarnation == Incarnation(0) {
            self.counters.late_messages += 1;
            return;
        }
        if let Some(known) = self.table_requests.get_mut(&ask) {
            if known.change != change {
                self.counters.bad_messages += 1;
                return;
            }
            known.from = from;
            if known.result.is_some() {
                return; // It is applied, and answered as soon as nodes have learned of it.
            }
        } else if self.table_requests.len() >= TABLE_REQUESTS_MAX {
            self.counters.too_many += 1;
            return;
        }
        let request = TableRequest { from, change: change.clone(), result: None };
        self.table_requests.entry(ask).or_insert(request);
        self.propose_once(now, Action::Change { ask, change: ClusterChange::Table(change) });
    }

    /// Notes what came of a change of tables that a node has asked for.
    fn note_table_change(&mut self, applied: &Applied) {
        let Applied::Answered { ask, result } = applied else { return };
        let Some(request) = self.table_requests.get_mut(ask) else { return };
        request.result = match result {
            Ok(()) => self.machine.changed_table(*ask, &request.change).map(Ok),
            Err(ChangeRefusal::Table(why)) => Some(Err(why.clone())),
            // That of an operator, with the same number.
            Err(_) => return,
        };
    }

    /// Answers nodes whose changes of tables are applied, once all nodes that live have learned of them.
    fn answer_table_requests(&mut self, effects: &mut Vec<ManagerEffect>) {
        if self.term.is_none() || self.table_requests.is_empty() {
            return;
        }
        let machine = &self.machine;
        self.table_requests.retain(|ask, request| {
            let Some(result) = request.result.clone() else { return true };
            if result.as_ref().is_ok_and(|table| !machine.is_table_change_known(*table)) {
                return true;
            }
            let message = ToNode::TableChanged { ask: *ask, result };
            effects.push(ManagerEffect::Send { to: request.from, message });
            false
        });
    }

    /// Handles a heartbeat, if it is of the node's known process.
    fn on_heartbeat(
        &mut self,
        now: Time,
        instance: ProcessInstance,
        heartbeat: HeartbeatRecord,
        granted: u64,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let Some((own_instance, own)) = self.machine.node(heartbeat.node) else { return };
        if own == Incarnation(0) || instance != own_instance {
            self.name_newest(heartbeat.node, instance, effects);
        } else if heartbeat.incarnation != own {
            self.welcome(heartbeat.node, instance, own, effects);
        } else {
            let ended = self.lease_tracker.accept(now, heartbeat, granted, &self.machine);
            effects.extend(ended.map(|ended| self.grant(&ended)));
            // A node that was declared dead may have missed this: a grant with the configuration makes it
            // known.
            let configuration = self.machine.configuration();
            if !self.machine.is_alive(heartbeat.node) && heartbeat.known < configuration.revision {
                let configuration = Arc::clone(configuration);
                let message = ToNode::Configured { configuration };
                effects.push(ManagerEffect::Send { to: heartbeat.node, message });
            }
        }
    }

    fn on_join(
        &mut self,
        now: Time,
        from: NodeId,
        instance: ProcessInstance,
        after: Incarnation,
        lost: bool,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let Some((own_instance, own)) = self.machine.node(from) else { return };
        if own > Incarnation(0) && instance == own_instance {
            self.welcome(from, instance, own, effects);
        } else if after == own {
            let last_heartbeat = match self.machine.options.faults.forget_former_instance {
                true => Time::ZERO,
                false => self.lease_tracker.end(from, own),
            };
            if !self.machine.awaits_lease_end(now, from, lost, last_heartbeat) {
                self.propose_once(
                    now,
                    Action::Join { node: from, instance, after, lost, last_heartbeat },
                );
            }
        } else {
            self.name_newest(from, instance, effects);
        }
    }

    /// Answers a process of a node that is not the newest incarnation: it learns which one is.
    fn name_newest(&self, to: NodeId, instance: ProcessInstance, effects: &mut Vec<ManagerEffect>) {
        let Some((admitted, incarnation)) = self.machine.node(to) else { return };
        let message = ToNode::OtherProcess { instance, incarnation, admitted };
        effects.push(ManagerEffect::Send { to, message });
    }

    /// A node makes a request. A command that would be void is not even proposed.
    fn on_request(&mut self, now: Time, claim: LeadershipClaim, request: ManagerRequest) {
        let LeadershipClaim { node, incarnation, shard, ballot } = claim;
        let counts = match &request {
            ManagerRequest::Known { begun, .. } => {
                self.machine.asks(shard, *begun, node, incarnation)
            }
            // This request is made under the ballot under which the replica has caught up.
            ManagerRequest::CaughtUp { ballot: under, .. } if *under != ballot => {
                self.counters.bad_messages += 1;
                return;
            }
            ManagerRequest::Close { .. } => self.machine.is_process(&claim),
            ManagerRequest::Whole { .. } => {
                self.machine.counts(&claim) && self.machine.awaits_whole(shard)
            }
            ManagerRequest::Report { .. }
            | ManagerRequest::CaughtUp { .. }
            | ManagerRequest::Held { .. } => self.machine.counts(&claim),
        };
        if !counts {
            self.counters.late_messages += 1;
            return;
        }
        let action = match request {
            ManagerRequest::Report { epoch, end, .. } => Action::Report { claim, epoch, end },
            ManagerRequest::Close { epoch, .. } => Action::Close { claim, epoch },
            ManagerRequest::CaughtUp { replica, incarnation, .. } => {
                Action::CaughtUp { claim, replica, incarnation }
            }
            ManagerRequest::Known { begun, knowledge, .. } => {
                Action::Known { node, incarnation, shard, begun, knowledge }
            }
            ManagerRequest::Held { held, .. } => Action::Held { claim, held },
            ManagerRequest::Whole { epoch, .. } => Action::Whole { claim, epoch },
        };
        self.propose_once(now, action);
    }

    /// Proposes an action, unless the same is in flight.
    fn propose_once(&mut self, now: Time, action: Action) {
        let Some(term) = self.term else { return };
        self.proposals.retain(|(_, since)| now - *since < self.options.retry_after);
        if self.proposals.iter().any(|(other, _)| *other == action) {
            self.counters.late_messages += 1;
        } else if self.proposals.len() >= PROPOSALS_MAX {
            self.counters.too_many += 1;
        } else {
            self.proposals.push((action.clone(), now));
            self.log.propose(Command { term, at: now, action });
        }
    }

    /// The answer to a heartbeat: a lease from its sending, with the configuration if the node lacks that.
    fn grant(&self, heartbeat: &HeartbeatRecord) -> ManagerEffect {
        let HeartbeatRecord { node, incarnation, round, known, .. } = *heartbeat;
        let configuration = self.machine.configuration();
        let (generation, revision) = (self.machine.generation, configuration.revision);
        let configuration = (known < revision).then(|| Arc::clone(configuration));
        let message = ToNode::Granted { generation, incarnation, round, revision, configuration };
        ManagerEffect::Send { to: node, message }
    }

    /// Renews leases without the log, as far as this replica led for certain.
    fn renew(&mut self, now: Time, effects: &mut Vec<ManagerEffect>) {
        let Some(_) = self.term else { return };
        let led = if self.options.faults.grant_unconfirmed { Some(now) } else { self.log.led() };
        let renewals = led.map(|led| self.lease_tracker.renew(now, led, &self.machine));
        effects.extend(renewals.into_iter().flatten().map(|heartbeat| self.grant(&heartbeat)));
        // Others are far away, or the log sends them nothing for a while.
        if self.next_ask <= now && self.lease_tracker.has_waited(now, self.options.tick_every) {
            self.next_ask = now + self.options.tick_every;
            self.log.ask();
        }
    }

    fn tick(&mut self, now: Time) {
        let Some(term) = self.term else { return };
        let wanted = || self.machine.is_due(now) || self.lease_tracker.has_news(now, &self.machine);
        if now < self.next_tick || !wanted() {
            return;
        }
        self.next_tick = now + self.options.tick_every;
        if self.ticks.front().is_some_and(|at| now - *at >= self.options.retry_after) {
            self.ticks.clear(); // Lost, or as good as that.
        }
        if self.ticks.len() < TICKS_MAX {
            self.ticks.push_back(now);
            let heartbeats = self.lease_tracker.unexpired(now, &self.options).collect();
            self.log.propose(Command { term, at: now, action: Action::Tick { heartbeats } });
        }
    }

    /// Sets one timer while the log reports that this replica leads.
    fn arm(&mut self, now: Time, effects: &mut Vec<ManagerEffect>) {
        if self.timer.is_none() && self.log.leads().is_some() {
            let at = now + self.options.tick_every;
            self.timer = Some(at);
            effects.push(ManagerEffect::Timer { at });
        }
    }
}
