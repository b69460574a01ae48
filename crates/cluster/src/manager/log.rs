//! What the manager needs of a log: one order of commands, told to all its replicas.

use super::command::{Command, Term};
use super::state_machine::StateMachine;
use shoal_types::Time;
use std::collections::VecDeque;

/// One replica of the log.
///
/// Its implementation promises: all replicas are told the same commands in the same order, each from the first one on,
/// or from the one after those that a machine it is given has applied; and at most one replica, in one process of it, leads in a term, and a later
/// leader in a higher one. Who led in a term and says that it does not never leads in that one again. A leader may learn late that it is none any more. A proposal may get lost,
/// or be committed any time later, even in a later term.
pub trait ManagerLog {
    /// The term in which this replica leads, as far as it knows.
    fn leads(&self) -> Option<Term>;

    /// A time, by the clock that the manager's steps are given, at which this replica led for certain: every replica that
    /// leads in a later term was elected after it. The latest that is known.
    fn led(&self) -> Option<Time>;

    /// [`led`](ManagerLog::led) should become later: others are to be asked now. They are now and then without this.
    fn ask(&mut self);

    /// Proposes a command. If it gets lost, nothing says so.
    fn propose(&mut self, command: Command);

    /// A machine that has applied all commands before the next committed one, where the log begins with it, or
    /// the replica was so far behind that the others had no commands for it any more. Told once.
    fn restored(&mut self) -> Option<StateMachine> {
        None
    }

    /// The next committed command, if it is known already. Each is told once.
    fn committed(&mut self) -> Option<Command>;
}

/// A log that its owner carries: what is proposed waits here to be taken, what is committed is
/// put here. Between a [`Manager`](super::Manager) and a library with threads of its own, or a
/// simulation.
#[derive(Debug, Clone, Default)]
pub struct CarriedLog {
    /// Whether this replica leads, and in which term.
    pub term: Option<Term>,
    /// When it led for certain.
    pub led: Option<Time>,
    /// To be taken: whether others are to be asked.
    pub asks: bool,
    /// To be taken: what was proposed, in order.
    pub proposed: VecDeque<Command>,
    /// To be put, with nothing left in `decided`: the machine that what is committed next goes on from.
    pub restored: Option<Box<StateMachine>>,
    /// To be put: what is committed, in order.
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
