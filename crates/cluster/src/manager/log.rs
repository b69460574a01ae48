//! The interface of the manager to its log: one order of commands for all replicas.

use super::command::Command;
use super::ids::Term;
use super::state_machine::StateMachine;
use shoal_types::Time;
use std::collections::VecDeque;

/// One replica of the log.
///
/// An implementation guarantees: all replicas receive the same commands in the same order, each from the
/// first one on, or from the one after those that a restored state contains. At most one replica, in one
/// process of it, leads in a term, and a later leader has a higher term. A replica that has reported the end
/// of its lead in a term never leads in that term again. A leader may learn late that it leads no more. A
/// proposal may be lost, or be committed at any later time, even in a later term.
pub trait ManagerLog {
    /// The term in which this replica leads, as far as it knows.
    fn leads(&self) -> Option<Term>;

    /// A time, by the clock that the manager's steps are given, at which this replica led for certain: every replica that
    /// leads in a later term was elected after it. The latest that is known.
    fn led(&self) -> Option<Time>;

    /// Requests that [`led`](ManagerLog::led) becomes later: other replicas are asked now. They are asked
    /// from time to time anyway.
    fn ask(&mut self);

    /// Proposes a command. Its loss is not reported.
    fn propose(&mut self, command: Command);

    /// A state that contains all commands before the next committed one, if the log begins with it, or the
    /// replica was so far behind that the others had no commands for it any more. Returned once.
    fn restored(&mut self) -> Option<StateMachine> {
        None
    }

    /// The next committed command, if it is known already. Each is returned once.
    fn committed(&mut self) -> Option<Command>;
}

/// A log that its owner transfers: proposals wait here to be taken, and committed commands are put here. It
/// connects a [`Manager`](super::Manager) with a library that has its own threads, or with a simulation.
#[derive(Debug, Clone, Default)]
pub struct CarriedLog {
    /// The term in which this replica leads, if it does.
    pub term: Option<Term>,
    /// The last time at which it led for certain.
    pub led: Option<Time>,
    /// For the owner to take: whether other replicas are to be asked.
    pub asks: bool,
    /// For the owner to take: the proposed commands, in order.
    pub proposed: VecDeque<Command>,
    /// For the owner to put, while `decided` is empty: the state from which the next committed commands
    /// continue.
    pub restored: Option<Box<StateMachine>>,
    /// For the owner to put: the committed commands, in order.
    pub decided: VecDeque<Command>,
}

impl ManagerLog for CarriedLog {
    fn leads(&self) -> Option<Term> {
        self.term
    }

    fn led(&self) -> Option<Time> {
        self.led
    }

    fn ask(&mut self) {
        self.asks = true;
    }

    fn propose(&mut self, command: Command) {
        self.proposed.push_back(command);
    }

    fn restored(&mut self) -> Option<StateMachine> {
        self.restored.take().map(|machine| *machine)
    }

    fn committed(&mut self) -> Option<Command> {
        self.decided.pop_front()
    }
}
