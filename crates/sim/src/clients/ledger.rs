//! What the clients of a run record: outcomes, histories, errors, latencies.

use crate::metrics::Outcomes;
use hdrhistogram::Histogram;
use shoal_types::{Aborted, Conflict, Error, Rejected, Time};
use shoal_workloads::history::Recorder;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A task of a run, counted from [`Ledger::begin`] until it is dropped.
#[derive(Debug)]
pub struct OpenTask {
    ledger: Ledger,
    scenario_clients: &'static str,
    is_done: bool,
}

impl OpenTask {
    /// Marks the task as finished: it did not die with its node.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for OpenTask {
    fn drop(&mut self) {
        let ledger = self.ledger.clone();
        ledger.end(self);
    }
}

/// The record of a run, shared by all its clients.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    state: Rc<RefCell<LedgerState>>,
}

/// A kind of transaction: the name of the clients, and the number of the kind among theirs.
pub type LatencyKind = (&'static str, usize);

#[derive(Debug, Default)]
struct LedgerState {
    outcomes: Outcomes,
    /// Violations that clients have seen, in the order of their times.
    errors: Vec<(Time, String)>,
    recorders: Vec<Recorder>,
    latencies: BTreeMap<LatencyKind, Histogram<u64>>,
    open_tasks: usize,
    /// Names of the groups of clients of which some outcome is unknown.
    uncertain: Vec<&'static str>,
    /// Names of the groups of clients whose data the database has no room for.
    without_data: Vec<&'static str>,
}

impl LedgerState {
    /// Some outcome of this group of clients is unknown.
    fn mark_uncertain(&mut self, scenario_clients: &'static str) {
        if !self.uncertain.contains(&scenario_clients) {
            self.uncertain.push(scenario_clients);
        }
    }
}

impl Ledger {
    /// A ledger in which nothing is recorded.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// A task of this group of clients begins. It ends when the guard is dropped: finished, or killed with
    /// the node on which it ran.
    pub fn begin(&self, scenario_clients: &'static str) -> OpenTask {
        self.state.borrow_mut().open_tasks += 1;
        OpenTask { ledger: self.clone(), scenario_clients, is_done: false }
    }

    fn end(&self, work: &OpenTask) {
        let state = &mut *self.state.borrow_mut();
        state.open_tasks -= 1;
        if !work.is_done {
            state.outcomes.died += 1;
            state.mark_uncertain(work.scenario_clients);
        }
    }

    /// A part of the data of a group of clients was not loaded. If there is no room for it, or an outcome is unknown, the
    /// group does not run.
    pub fn not_loaded(&self, scenario_clients: &'static str, part: usize, at: Time, error: &Error) {
        let state = &mut *self.state.borrow_mut();
        match error {
            Error::Rejected(Rejected::MemoryFull { .. } | Rejected::DiskFull { .. })
            | Error::Unknown(_) => {
                state.without_data.push(scenario_clients);
            }
            Error::Rejected(_) | Error::Aborted(_) => {
                let what = format!("{scenario_clients}: part {part} was not loaded: {error}");
                state.errors.push((at, what));
            }
        }
    }

    /// Whether some of the data of this group of clients is missing, or may be.
    pub fn lacks_data(&self, scenario_clients: &'static str) -> bool {
        self.state.borrow().without_data.contains(&scenario_clients)
    }

    /// The number of tasks that have not ended.
    pub fn open_tasks(&self) -> usize {
        self.state.borrow().open_tasks
    }

    /// A transaction of this kind has finished; it ran from `began` to `ended` in true time.
    pub fn done(&self, kind: LatencyKind, began: Time, ended: Time, rolled_back: bool) {
        let state = &mut *self.state.borrow_mut();
        state.outcomes.done += 1;
        state.outcomes.rolled_back += u64::from(rolled_back);
        let latencies = state
            .latencies
            .entry(kind)
            .or_insert_with(|| Histogram::new(3).expect("three digits are a precision"));
        // Recording fails only beyond a fixed maximum, and this histogram grows.
        _ = latencies.record((ended - began).as_nanos() as u64);
    }

    /// A transaction of `scenario_clients` failed. An abort is legal; a rejection is not.
    pub fn failed(&self, scenario_clients: &'static str, at: Time, error: &Error) {
        let state = &mut *self.state.borrow_mut();
        state.outcomes.for_want_of_shard += u64::from(error.shard().is_some());
        let last = match error {
            Error::Aborted(Aborted::Conflict(last) | Aborted::RetriesExhausted { last, .. }) => {
                Some(last)
            }
            Error::Aborted(_) | Error::Rejected(_) | Error::Unknown(_) => None,
        };
        let undecided = matches!(last, Some(Conflict::Undecided { .. }));
        state.outcomes.undecided += u64::from(undecided);
        match error {
            Error::Aborted(aborted) => {
                state.outcomes.gave_up += 1;
                state.outcomes.refused += u64::from(matches!(aborted, Aborted::Overloaded { .. }));
            }
            Error::Unknown(_) => {
                state.outcomes.unknown += 1;
                state.mark_uncertain(scenario_clients);
            }
            // The transaction had no effect, and a later one may find room.
            Error::Rejected(Rejected::MemoryFull { .. } | Rejected::DiskFull { .. }) => {
                state.outcomes.full += 1;
            }
            Error::Rejected(_) => {
                state.errors.push((at, format!("{scenario_clients}: {error}")));
            }
        }
    }

    /// A client repeats a call whose outcome it does not know.
    pub fn calls_again(&self) {
        self.state.borrow_mut().outcomes.called_again += 1;
    }

    /// Records a violation that a client has seen at `at`.
    pub fn report_error(&self, at: Time, what: String) {
        self.state.borrow_mut().errors.push((at, what));
    }

    /// The first violation that was recorded.
    pub fn first_error(&self) -> Option<(Time, String)> {
        self.state.borrow().errors.first().cloned()
    }

    /// Whether some outcome of this group of clients is unknown.
    pub fn is_uncertain(&self, scenario_clients: &str) -> bool {
        self.state.borrow().uncertain.contains(&scenario_clients)
    }

    /// A client hands in what it recorded.
    pub fn hand_in(&self, recorder: Recorder) {
        self.state.borrow_mut().recorders.push(recorder);
    }

    /// Takes the histories that clients have handed in; later calls return only later ones.
    pub fn take_recorders(&self) -> Vec<Recorder> {
        std::mem::take(&mut self.state.borrow_mut().recorders)
    }

    /// Counts of the outcomes that clients have seen.
    pub fn outcomes(&self) -> Outcomes {
        self.state.borrow().outcomes
    }

    /// Latencies of transactions, by kind.
    pub fn latencies(&self) -> BTreeMap<LatencyKind, Histogram<u64>> {
        self.state.borrow().latencies.clone()
    }

    /// Drops what was counted and measured so far, as after a warm-up.
    pub fn forget(&self) {
        let state = &mut *self.state.borrow_mut();
        state.outcomes = Outcomes::default();
        state.latencies.clear();
    }
}
