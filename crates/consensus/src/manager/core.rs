//! A replica of the manager: it applies what the log commits, and if it leads, hears nodes, proposes,
//! and tells them what came of it.
//!
//! Nothing it says is true before it is committed and applied here, but that a lease is renewed: see `hearing.rs`.
//! So a manager that is deposed and does not know it does no harm: what it proposes is void, what it tells was so.

use super::command::{Action, Ask, Change, Claim, Command, Heard, Incarnation, Life, Term};
use super::hearing::Hearing;
use super::log::Log;
use super::machine::{Applied, Machine};
use super::message::{ToManager, ToNode};
use super::options::Options;
use std::collections::VecDeque;
use std::sync::Arc;
use types::{ClusterId, NodeId, Time};

/// Ticks in flight: more hide a slower log.
const TICKS_MAX: usize = 16;

/// Other proposals in flight; more are dropped, and asked for again.
const PROPOSALS_MAX: usize = 4096;

/// What happens to a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A node says something.
    Received {
        /// The node.
        from: NodeId,
        /// When it came, if it had to wait; not later than the step.
        at: Time,
        /// What.
        message: ToManager,
    },
    /// A change is asked for. Dropped if this replica does not lead, or loses its lead: ask again,
    /// and another.
    Asked {
        /// The request.
        ask: Ask,
        /// What.
        change: Change,
    },
    /// The log has committed something, or says otherwise who leads.
    Log,
    /// The time of an [`Effect::Timer`] has come. Too early does no harm.
    Timer,
}

/// What a manager wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell a node. It may get lost.
    Send {
        /// The node.
        to: NodeId,
        /// What.
        message: ToNode,
    },
    /// Answer who asked for a change.
    Answer {
        /// The request.
        ask: Ask,
        /// Granted, or why not.
        result: Result<(), super::Refusal>,
    },
    /// Nothing to be done: this was applied, here as on every replica. For those that keep a record.
    Applied(Applied),
    /// Bring [`Event::Timer`] at this time. There is one at most; it replaces an earlier one.
    Timer {
        /// When.
        at: Time,
    },
}

/// What a manager has dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages that no correct node sends.
    pub bad_messages: u64,
    /// Messages and requests to a replica that does not lead.
    pub not_leading: u64,
    /// Claims to an office that another node has by now, and repeats of what is done.
    pub late_messages: u64,
    /// Refused, since too much is in flight.
    pub too_many: u64,
}

/// One replica of the manager. See the [module](super).
#[derive(Debug)]
pub struct Manager<L> {
    options: Options,
    log: L,
    machine: Machine,
    /// The identity of the cluster, should this replica found it.
    drawn: ClusterId,
    /// Since when the `Take` of this term is proposed.
    taking: Option<(Term, Time)>,
    /// The term to which what follows belongs.
    term: Option<Term>,
    /// Heartbeats of this term.
    hearing: Hearing,
    /// The times of ticks in flight.
    ticks: VecDeque<Time>,
    next_tick: Time,
    next_ask: Time,
    /// Other proposals in flight, and since when.
    proposals: Vec<(Action, Time)>,
    timer: Option<Time>,
    counters: Counters,
}

impl<L: Log> Manager<L> {
    /// A replica over `log`, whose commands from its first on change `machine`. Should it be the first that leads, the
    /// cluster's identity is `drawn`, at random.
    #[must_use]
    pub fn new(log: L, machine: Machine, drawn: ClusterId) -> Manager<L> {
        Manager {
            options: machine.options.clone(),
            log,
            machine,
            drawn,
            taking: None,
            term: None,
            hearing: Hearing::default(),
            ticks: VecDeque::new(),
            next_tick: Time::ZERO,
            next_ask: Time::ZERO,
            proposals: Vec::new(),
            timer: None,
            counters: Counters::default(),
        }
    }

    /// Same state, same event: same effects, added to `effects`. `now` is read after the last step
    /// was done, and never decreases in one life.
    pub fn step(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>) {
        self.follow(now, effects);
        match event {
            Event::Received { from, at, message } => {
                self.on_message(now, (from, at), &message, effects);
            }
            Event::Asked { ask, change } => match self.term {
                Some(_) => self.propose_once(now, Action::Change { ask, change }),
                None => self.counters.not_leading += 1,
            },
            Event::Log => {}
            Event::Timer => self.timer = None,
        }
        self.renew(now, effects);
        self.tick(now);
        self.arm(now, effects);
    }

    /// What was applied so far.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The term in which this replica leads and may propose.
    #[must_use]
    pub fn leads(&self) -> Option<Term> {
        self.term
    }

    /// For the owner of the log.
    pub fn log_mut(&mut self) -> &mut L {
        &mut self.log
    }

    /// What was dropped so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes or leaves the lead, and applies what is committed.
    fn follow(&mut self, now: Time, effects: &mut Vec<Effect>) {
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
                self.landed(&command);
            }
            for applied in applied.drain(..) {
                if self.term.is_some() {
                    self.tell(&applied, effects);
                }
                effects.push(Effect::Applied(applied));
            }
        }
    }

    /// It leads when the log says so and its `Take` was applied here before this step, so before
    /// `now` was read: only then may it say the time.
    fn take_lead(&mut self, now: Time) {
        let leads = self.log.leads();
        let term = leads.filter(|term| *term == self.machine.term());
        if self.term != term {
            self.term = term;
            if let Some(term) = term {
                self.hearing.begin(term, now);
            }
            self.ticks.clear();
            self.proposals.clear();
        }
        let Some(term) = leads.filter(|term| *term > self.machine.term()) else { return };
        let is_due = |(taking, since)| taking != term || now - since >= self.options.retry_after;
        if self.taking.is_none_or(is_due) {
            self.taking = Some((term, now));
            let drawn = self.drawn;
            self.log.propose(Command { term, at: now, action: Action::Take { drawn } });
        }
    }

    /// A command of this manager is applied: it is not in flight any more.
    fn landed(&mut self, command: &Command) {
        if let Action::Tick { .. } = command.action {
            self.ticks.retain(|at| *at > command.at);
        } else {
            self.proposals.retain(|(action, _)| *action != command.action);
        }
    }

    fn tell(&self, applied: &Applied, effects: &mut Vec<Effect>) {
        match applied {
            Applied::Joined { node, life, incarnation } => {
                self.welcome(*node, *life, *incarnation, effects);
            }
            Applied::Reported { claim, epoch } => {
                let message = ToNode::Reported { claim: *claim, epoch: *epoch };
                effects.push(Effect::Send { to: claim.node, message });
            }
            Applied::Answered { ask, result } => {
                effects.push(Effect::Answer { ask: *ask, result: result.clone() });
            }
            Applied::Changed(_) => {
                let configuration = self.machine.configuration();
                for (to, standing) in (0..).map(NodeId).zip(&configuration.nodes) {
                    if standing.alive && standing.incarnation > Incarnation(0) {
                        let configuration = Arc::clone(configuration);
                        let message = ToNode::Configured { configuration };
                        effects.push(Effect::Send { to, message });
                    }
                }
            }
            // The new configuration tells the rest.
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
            | Applied::CaughtUp { .. } => {}
        }
    }

    fn welcome(&self, to: NodeId, life: Life, incarnation: Incarnation, effects: &mut Vec<Effect>) {
        let configuration = Arc::clone(self.machine.configuration());
        let message = ToNode::Welcome { life, incarnation, configuration };
        effects.push(Effect::Send { to, message });
    }

    fn on_message(
        &mut self,
        now: Time,
        (from, at): (NodeId, Time),
        message: &ToManager,
        effects: &mut Vec<Effect>,
    ) {
        if self.machine.node(from).is_none() {
            self.counters.bad_messages += 1;
            return;
        }
        if self.term.is_none() {
            self.counters.not_leading += 1;
            return;
        }
        match message.clone() {
            ToManager::Heartbeat { life, incarnation, round, granted, known } => {
                let heard = Heard { node: from, incarnation, round, at, known };
                self.on_heartbeat(now, (life, heard, granted), effects);
            }
            ToManager::Join { life, after, lost } => {
                self.on_join(now, from, (life, after, lost), effects);
            }
            ToManager::Report { claim, epoch, watermark } => {
                self.on_claim(now, from, claim, Action::Report { claim, epoch, watermark });
            }
            ToManager::Close { claim, epoch } => {
                self.on_claim(now, from, claim, Action::Close { claim, epoch });
            }
            ToManager::CaughtUp { claim, replica, incarnation } => {
                self.on_claim(now, from, claim, Action::CaughtUp { claim, replica, incarnation });
            }
            ToManager::Known { incarnation, shard, begun, knowledge } => {
                let node = from;
                let known = Action::Known { node, incarnation, shard, begun, knowledge };
                match self.machine.asks(shard, begun, (node, incarnation)) {
                    true => self.propose_once(now, known),
                    false => self.counters.late_messages += 1,
                }
            }
            ToManager::Held { claim, held } => {
                self.on_claim(now, from, claim, Action::Held { claim, held });
            }
            // For the host of a manager that recovers: by now it is done.
            ToManager::Recalled { .. } => self.counters.late_messages += 1,
        }
    }

    /// Taken, if it is the node that the manager knows.
    fn on_heartbeat(
        &mut self,
        now: Time,
        (life, heard, granted): (Life, Heard, u64),
        effects: &mut Vec<Effect>,
    ) {
        let Some((own_life, own)) = self.machine.node(heard.node) else { return };
        if own == Incarnation(0) || life != own_life {
            let message = ToNode::Stranger { life, incarnation: own };
            effects.push(Effect::Send { to: heard.node, message });
        } else if heard.incarnation != own {
            self.welcome(heard.node, life, own, effects);
        } else {
            self.hearing.hear(now, heard, granted, &self.machine);
            // A node that was taken for dead may have heard nothing: that it learns of this proves it.
            let configuration = self.machine.configuration();
            if !self.machine.is_alive(heard.node) && heard.known < configuration.revision {
                let configuration = Arc::clone(configuration);
                let message = ToNode::Configured { configuration };
                effects.push(Effect::Send { to: heard.node, message });
            }
        }
    }

    fn on_join(
        &mut self,
        now: Time,
        from: NodeId,
        (life, after, lost): (Life, Incarnation, bool),
        effects: &mut Vec<Effect>,
    ) {
        let Some((own_life, own)) = self.machine.node(from) else { return };
        if own > Incarnation(0) && life == own_life {
            self.welcome(from, life, own, effects);
        } else if after == own {
            let heard = match self.machine.options.faults.forget_former_life {
                true => Time::ZERO,
                false => self.hearing.end(from, own),
            };
            self.propose_once(now, Action::Join { node: from, life, after, lost, heard });
        } else {
            let message = ToNode::Stranger { life, incarnation: own };
            effects.push(Effect::Send { to: from, message });
        }
    }

    /// A node says something as a leader. What would be void is not even proposed.
    fn on_claim(&mut self, now: Time, from: NodeId, claim: Claim, action: Action) {
        if claim.node != from {
            self.counters.bad_messages += 1;
        } else if self.machine.counts(&claim) {
            self.propose_once(now, action);
        } else {
            self.counters.late_messages += 1;
        }
    }

    /// Proposes, unless the same is in flight.
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

    /// Renews leases by itself, as far as it led for certain.
    fn renew(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(_) = self.term else { return };
        let led = if self.options.faults.grant_unconfirmed { Some(now) } else { self.log.led() };
        let renewals = led.map(|led| self.hearing.renew(now, led, &self.machine));
        for Heard { node, incarnation, round, known, .. } in renewals.into_iter().flatten() {
            let configuration = self.machine.configuration();
            let revision = configuration.revision;
            let configuration = (known < revision).then(|| Arc::clone(configuration));
            let generation = self.machine.generation;
            let message =
                ToNode::Granted { generation, incarnation, round, revision, configuration };
            effects.push(Effect::Send { to: node, message });
        }
        // Others are far away, or the log has nothing to say to them for a while.
        if self.next_ask <= now && self.hearing.has_waited(now, self.options.tick_every) {
            self.next_ask = now + self.options.tick_every;
            self.log.ask();
        }
    }

    fn tick(&mut self, now: Time) {
        let Some(term) = self.term else { return };
        let wanted = || self.machine.is_due(now) || self.hearing.has_news(now, &self.machine);
        if now < self.next_tick || !wanted() {
            return;
        }
        self.next_tick = now + self.options.tick_every;
        if self.ticks.front().is_some_and(|at| now - *at >= self.options.retry_after) {
            self.ticks.clear(); // Lost, or as good as that.
        }
        if self.ticks.len() < TICKS_MAX {
            self.ticks.push_back(now);
            let heard = self.hearing.told(now, &self.options).collect();
            self.log.propose(Command { term, at: now, action: Action::Tick { heard } });
        }
    }

    /// One timer is on its way while the log says that this replica leads.
    fn arm(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.timer.is_none() && self.log.leads().is_some() {
            let at = now + self.options.tick_every;
            self.timer = Some(at);
            effects.push(Effect::Timer { at });
        }
    }
}
