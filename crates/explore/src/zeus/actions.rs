//! What can happen in a state, and the model as the searches see it.

use super::data::{Granule, Kind, NodeId, Set};
use super::messages::Envelope;
use super::rules::Rules;
use super::scenarios::Scenario;
use super::state::{Budget, Node, State, Status};
use super::step::Step;
use crate::model::{Model, Violation};
use std::fmt;
use std::rc::Rc;

/// One scenario under some rules.
#[derive(Debug)]
pub(super) struct Zeus {
    pub scenario: Scenario,
    pub rules: Rules,
}

/// One thing that can happen.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Deliver(Rc<Envelope>),
    /// The owner delays its acknowledgement for a transaction of its own.
    DeliverAndHold(Rc<Envelope>),
    /// The message stays under way, and is delivered again.
    DeliverCopy(Rc<Envelope>),
    Lose(Rc<Envelope>),
    Timers(NodeId),
    Request {
        node: NodeId,
        granule: Granule,
        kind: Kind,
        driver: NodeId,
    },
    Planned(u8),
    Commit(u8),
    Read(u8),
    Crash(NodeId),
    Suspect(NodeId),
    DeclareDead(NodeId),
    Return(NodeId),
    Adopt(NodeId),
    PassBarrier(NodeId),
    RemoveTombstone(NodeId, Granule),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Deliver(envelope) => write!(f, "{envelope}"),
            Action::DeliverAndHold(envelope) => {
                write!(f, "{envelope}; the owner holds the granule")
            }
            Action::DeliverCopy(envelope) => write!(f, "{envelope}; a copy stays under way"),
            Action::Lose(envelope) => write!(f, "lost: {envelope}"),
            Action::Timers(node) => write!(f, "the timers of n{node} fire"),
            Action::Request { node, granule, kind, driver } => {
                write!(f, "n{node} asks n{driver} for g{granule}: {kind:?}")
            }
            Action::Planned(number) => write!(f, "planned request {number} is made"),
            Action::Commit(number) => write!(f, "T{number} commits locally"),
            Action::Read(number) => write!(f, "T{number} reads or checks its next granule"),
            Action::Crash(node) => write!(f, "n{node} crashes"),
            Action::Suspect(node) => write!(f, "n{node} lives and is declared dead"),
            Action::DeclareDead(node) => write!(f, "n{node} is declared dead"),
            Action::Return(node) => write!(f, "n{node} is let in again"),
            Action::Adopt(node) => write!(f, "n{node} learns of the epoch"),
            Action::PassBarrier(node) => write!(f, "n{node} learns that all have replayed"),
            Action::RemoveTombstone(node, granule) => {
                write!(f, "n{node} removes the tombstone in g{granule}")
            }
        }
    }
}

impl Model for Zeus {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        self.scenario.initial()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let step = self.step(state.clone());
        step.messages(actions);
        // A commit comes before requests: a fair run takes the first, and what has moved is to be used.
        step.run(actions);
        step.ask(actions);
        step.membership(actions);
        let may_fire = match step.is_quiet() {
            true => step.unsettled().is_some(),
            false => state.budget.early_timers > 0,
        };
        if may_fire {
            actions.extend(state.members().map(Action::Timers));
        }
    }

    fn apply(&self, state: &State, action: &Action) -> Result<State, Violation> {
        let mut step = self.step(state.clone());
        step.act(action);
        step.check_state();
        let mut violation = step.violation.take();
        if violation.is_none() && step.is_quiet() {
            violation = match step.unsettled() {
                None => {
                    step.check_settled();
                    step.violation.take()
                }
                Some(_) => self.step(step.state.clone()).run_fairly(),
            };
        }
        violation.map_or(Ok(step.state), Err)
    }

    fn check_end(&self, state: &State) -> Result<(), Violation> {
        let what = self.step(state.clone()).unsettled();
        what.map_or(Ok(()), |what| Err(Violation { rule: "liveness", what }))
    }
}

impl Zeus {
    fn step(&self, state: State) -> Step<'_> {
        Step { scenario: &self.scenario, rules: self.rules, state, violation: None, holds: false }
    }
}

/// A run without faults must have settled everything after so many rounds.
const FAIR_ROUNDS: usize = 16;
/// So many requests can be made in one.
const FAIR_REQUESTS: u8 = 50;
/// So many messages are delivered in a round of a fair run.
const FAIR_MESSAGES: usize = 400;

impl Step<'_> {
    fn messages(&self, actions: &mut Vec<Action>) {
        let budget = self.state.budget;
        for envelope in &self.state.network {
            if envelope.epoch <= self.node(envelope.to).view.epoch {
                actions.push(Action::Deliver(envelope.clone()));
                if self.scenario.holds {
                    actions.push(Action::DeliverAndHold(envelope.clone()));
                }
                if budget.duplicates > 0 {
                    actions.push(Action::DeliverCopy(envelope.clone()));
                }
            }
            if budget.losses > 0 {
                actions.push(Action::Lose(envelope.clone()));
            }
        }
    }

    /// Requests, and tombstones that can be removed.
    fn ask(&self, actions: &mut Vec<Action>) {
        for node in self.state.members() {
            for granule in self.granules() {
                let holding = self.holding(node, granule);
                if holding.requested.is_none()
                    && self.state.budget.requests > 0
                    && !self.is_lost(granule)
                    && let Some(kind) = self.needs(node, granule)
                {
                    let drivers = self.directory(node).iter();
                    let drivers = drivers.take(if self.scenario.any_driver { 8 } else { 1 });
                    actions.extend(drivers.map(|driver| Action::Request {
                        node,
                        granule,
                        kind,
                        driver,
                    }));
                }
                let can_forget = holding.row.is_tombstone && holding.row.is_valid;
                if can_forget && holding.is_replica {
                    actions.push(Action::RemoveTombstone(node, granule));
                }
            }
        }
        for number in 0..self.scenario.requests.len() as u8 {
            let (node, granule, kind) = self.scenario.requests[usize::from(number)];
            let holding = self.holding(node, granule);
            let owns = holding.record.owner == Some(node) && holding.pending.is_none();
            let can_ask = match kind {
                Kind::Own | Kind::Read => true,
                Kind::Leave => holding.serves && holding.record.owner != Some(node),
                Kind::Drop(_) => owns,
            };
            let is_idle = holding.requested.is_none() && self.state.is_member(node);
            if can_ask && is_idle && !self.state.requested.has(number) {
                actions.push(Action::Planned(number));
            }
        }
    }

    /// Local commits and the steps of read-only transactions.
    fn run(&self, actions: &mut Vec<Action>) {
        let transactions = self.scenario.transactions.iter().zip(&self.state.transactions);
        for (number, (transaction, state)) in transactions.enumerate() {
            if transaction.writes.is_empty() {
                if self.can_read(number) {
                    actions.push(Action::Read(number as u8));
                }
            } else if state.status == Status::Waiting && self.can_commit(transaction) {
                actions.push(Action::Commit(number as u8));
            }
        }
    }

    fn membership(&self, actions: &mut Vec<Action>) {
        let State { configuration, budget, .. } = &self.state;
        for node in self.state.node_ids() {
            let at = self.node(node);
            let is_in = configuration.live.has(node);
            let may_die = at.is_alive && self.directory_survives(node);
            if may_die && budget.crashes > 0 && self.scenario.crashing.has(node) {
                actions.push(Action::Crash(node));
            }
            if !at.is_alive && is_in {
                actions.push(Action::DeclareDead(node));
            }
            if may_die && is_in && budget.suspicions > 0 && self.scenario.suspected.has(node) {
                actions.push(Action::Suspect(node));
            }
            if !is_in && budget.returns > 0 {
                actions.push(Action::Return(node));
            }
            if at.is_alive && is_in && at.view.epoch < configuration.epoch {
                actions.push(Action::Adopt(node));
            }
            if is_in && self.can_pass_barrier(node) {
                actions.push(Action::PassBarrier(node));
            }
        }
    }

    /// A directory node stays that has the records: the loss of all of them is not modelled.
    fn directory_survives(&self, without: NodeId) -> bool {
        let mut others = self.scenario.directory.without(without).iter();
        others.any(|node| self.state.is_member(node) && !self.node(node).is_copying)
    }

    /// No message is under way, and all nodes that live know the epoch.
    fn is_quiet(&self) -> bool {
        let configuration = &self.state.configuration;
        let mut live = configuration.live.iter();
        self.state.network.is_empty()
            && live.all(|node| self.node(node).view.epoch == configuration.epoch)
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Deliver(envelope) => self.deliver(envelope, false),
            Action::DeliverAndHold(envelope) => {
                self.holds = true;
                self.deliver(envelope, false);
                self.holds = false;
            }
            Action::DeliverCopy(envelope) => {
                self.state.budget.duplicates -= 1;
                self.deliver(envelope, true);
            }
            Action::Lose(envelope) => {
                self.state.budget.losses -= 1;
                self.state.network.remove(envelope);
            }
            Action::Timers(node) => {
                if !self.is_quiet() {
                    self.state.budget.early_timers -= 1;
                }
                self.fire_timers(*node, true);
            }
            Action::Request { node, granule, kind, driver } => {
                self.state.budget.requests -= 1;
                self.request(*node, *granule, *kind, *driver);
            }
            Action::Planned(number) => {
                self.state.requested = self.state.requested.with(*number);
                let (node, granule, kind) = self.scenario.requests[usize::from(*number)];
                if let Some(driver) = self.directory(node).iter().next() {
                    self.request(node, granule, kind, driver);
                }
            }
            Action::Commit(number) => self.commit_locally(usize::from(*number)),
            Action::Read(number) => self.read_on(usize::from(*number)),
            Action::Crash(node) => {
                self.state.budget.crashes -= 1;
                self.crash(*node);
            }
            Action::Suspect(node) => {
                self.state.budget.suspicions -= 1;
                self.remove(*node);
            }
            Action::DeclareDead(node) => self.remove(*node),
            Action::Return(node) => {
                self.state.budget.returns -= 1;
                self.let_in(*node);
            }
            Action::Adopt(node) => self.adopt(*node),
            Action::PassBarrier(node) => self.node_mut(*node).barrier = true,
            Action::RemoveTombstone(node, granule) => {
                let row = &mut self.holding_mut(*node, *granule).row;
                (row.version, row.is_tombstone) = (Default::default(), false);
            }
        }
        self.collect_garbage();
    }

    fn deliver(&mut self, envelope: &Envelope, stays: bool) {
        if !stays {
            self.state.network.remove(envelope);
        }
        self.receive(envelope.to, envelope.from, envelope.message.clone());
    }

    /// Runs on without faults; everything has to settle. One node at a time asks for granules, as the ages of
    /// transactions would have it: without them, contenders can take granules from each other for ever.
    fn run_fairly(mut self) -> Option<Violation> {
        self.state.budget = Budget { requests: FAIR_REQUESTS, ..Budget::default() };
        for round in 0..FAIR_ROUNDS {
            let favoured = (round % self.state.nodes.len()) as NodeId;
            for node in self.state.node_ids().chain(self.state.node_ids()) {
                self.drain(favoured);
                // The search takes the same actions, and finds what they break by itself.
                if self.violation.is_some() || self.unsettled().is_none() {
                    return None;
                }
                if self.state.is_member(node) {
                    self.fire_timers(node, node == favoured);
                    self.collect_garbage();
                }
            }
        }
        let what = self.unsettled()?;
        Some(Violation { rule: "liveness", what: format!("{what}, however long the nodes run on") })
    }

    /// Does what can be done, in a fixed order, until nothing is left.
    fn drain(&mut self, favoured: NodeId) {
        for _ in 0..FAIR_MESSAGES {
            let mut actions = Vec::new();
            self.membership(&mut actions);
            if actions.is_empty() {
                self.messages(&mut actions);
                actions.retain(|action| matches!(action, Action::Deliver(_)));
            }
            if actions.is_empty() {
                self.run(&mut actions);
                self.ask(&mut actions);
                actions.retain(|action| match action {
                    Action::Request { node, .. } => *node == favoured,
                    action => !matches!(action, Action::Planned(_)),
                });
            }
            let Some(action) = actions.first() else { return };
            self.act(action);
            self.check_state();
            if self.violation.is_some() {
                return;
            }
        }
    }
}

impl Scenario {
    /// Nodes, records and rows as the scenario has them, all validated.
    fn initial(&self) -> State {
        let count = usize::from(self.nodes);
        let all = (0..self.nodes).fold(Set::default(), Set::with);
        let configuration =
            super::state::Configuration { epoch: 1, live: all, since: vec![1; count] };
        let mut nodes = vec![Node::empty(count, self.granules.len()); count];
        for (number, node) in (0..).zip(&mut nodes) {
            (node.is_alive, node.barrier) = (true, true);
            node.view = configuration.clone();
            for (holding, (owner, readers)) in node.holdings.iter_mut().zip(&self.granules) {
                holding.record.o_ts.version = 1;
                holding.record.owner = Some(*owner);
                holding.record.readers = *readers;
                holding.hint = holding.record.o_ts;
                holding.is_replica = *owner == number || readers.has(number);
                holding.serves = holding.is_replica;
            }
        }
        State {
            nodes: nodes.into_iter().map(Rc::new).collect(),
            network: Default::default(),
            configuration,
            transactions: vec![super::state::TransactionState::waiting(); self.transactions.len()],
            requested: Set::default(),
            budget: self.budget,
        }
    }
}
