//! What clients write down: outcomes, histories, complaints, latencies.

use crate::metrics::Outcomes;
use hdrhistogram::Histogram;
use shoal_types::{Aborted, Conflict, Error, Rejected, Time};
use shoal_workloads::history::Recorder;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A task of a run; see [`Ledger::begin`].
#[derive(Debug)]
pub struct AtWork {
    ledger: Ledger,
    scenario_clients: &'static str,
    is_done: bool,
}

impl AtWork {
    /// The task has done what it was to do.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let ledger = self.ledger.clone();
        ledger.end(self);
    }
}

/// Shared by all clients of a run; see the module.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    books: Rc<RefCell<LedgerState>>,
}

/// What kind of transaction took how long: the clients, its kind.
pub type LatencyKind = (&'static str, usize);

#[derive(Debug, Default)]
struct LedgerState {
    outcomes: Outcomes,
    /// What clients met that must not be.
    complaints: Vec<(Time, String)>,
    recorders: Vec<Recorder>,
    latencies: BTreeMap<LatencyKind, Histogram<u64>>,
    at_work: usize,
    /// Plays whose clients were not told every outcome.
    uncertain: Vec<&'static str>,
    /// Plays whose data the database has no room for.
    left_out: Vec<&'static str>,
}

impl LedgerState {
    /// Not every outcome of the clients is known.
    fn doubt(&mut self, scenario_clients: &'static str) {
        if !self.uncertain.contains(&scenario_clients) {
            self.uncertain.push(scenario_clients);
        }
    }
}

impl Ledger {
    /// An empty one.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// A task of the run begins, for this play. It is over when the guard is gone: done, or dead with the
    /// node on which it ran.
    pub fn begin(&self, scenario_clients: &'static str) -> AtWork {
        self.books.borrow_mut().at_work += 1;
        AtWork { ledger: self.clone(), scenario_clients, is_done: false }
    }

    fn end(&self, work: &AtWork) {
        let books = &mut *self.books.borrow_mut();
        books.at_work -= 1;
        if !work.is_done {
            books.outcomes.died += 1;
            books.doubt(work.scenario_clients);
        }
    }

    /// A part of the data of a group of clients was not loaded. Where there is no room for it, the clients is left out.
    pub fn not_loaded(&self, scenario_clients: &'static str, part: usize, at: Time, error: &Error) {
        let books = &mut *self.books.borrow_mut();
        match error {
            Error::Rejected(Rejected::MemoryFull { .. }) => books.left_out.push(scenario_clients),
            Error::Rejected(_) | Error::Aborted(_) | Error::Unknown(_) => {
                let what = format!("{scenario_clients}: part {part} was not loaded: {error}");
                books.complaints.push((at, what));
            }
        }
    }

    /// Is there no room for the data of the clients?
    pub fn is_left_out(&self, scenario_clients: &'static str) -> bool {
        self.books.borrow().left_out.contains(&scenario_clients)
    }

    /// Tasks that are not done.
    pub fn at_work(&self) -> usize {
        self.books.borrow().at_work
    }

    /// A transaction of this kind was done, from `began` to `ended` in true time.
    pub fn done(&self, kind: LatencyKind, began: Time, ended: Time, rolled_back: bool) {
        let books = &mut *self.books.borrow_mut();
        books.outcomes.done += 1;
        books.outcomes.rolled_back += u64::from(rolled_back);
        let latencies = books
            .latencies
            .entry(kind)
            .or_insert_with(|| Histogram::new(3).expect("three digits are a precision"));
        // A histogram that grows takes every number.
        _ = latencies.record((ended - began).as_nanos() as u64);
    }

    /// A transaction of `scenario_clients` failed. An abort may happen; a rejection must not.
    pub fn failed(&self, scenario_clients: &'static str, at: Time, error: &Error) {
        let books = &mut *self.books.borrow_mut();
        books.outcomes.for_want_of_shard += u64::from(error.shard().is_some());
        let last = match error {
            Error::Aborted(Aborted::Conflict(last) | Aborted::RetriesExhausted { last, .. }) => {
                Some(last)
            }
            Error::Aborted(_) | Error::Rejected(_) | Error::Unknown(_) => None,
        };
        let undecided = matches!(last, Some(Conflict::Undecided { .. }));
        books.outcomes.undecided += u64::from(undecided);
        match error {
            Error::Aborted(aborted) => {
                books.outcomes.gave_up += 1;
                books.outcomes.refused += u64::from(matches!(aborted, Aborted::Overloaded { .. }));
            }
            Error::Unknown(_) => {
                books.outcomes.unknown += 1;
                books.doubt(scenario_clients);
            }
            // Nothing has happened, and other transactions may have more luck.
            Error::Rejected(Rejected::MemoryFull { .. }) => books.outcomes.full += 1,
            Error::Rejected(_) => {
                books.complaints.push((at, format!("{scenario_clients}: {error}")));
            }
        }
    }

    /// A client asks for a call again whose outcome it does not know.
    pub fn calls_again(&self) {
        self.books.borrow_mut().outcomes.called_again += 1;
    }

    /// Something is wrong.
    pub fn complain(&self, at: Time, what: String) {
        self.books.borrow_mut().complaints.push((at, what));
    }

    /// The first thing that is wrong.
    pub fn complaint(&self) -> Option<(Time, String)> {
        self.books.borrow().complaints.first().cloned()
    }

    /// Was a client of the clients left without an outcome?
    pub fn is_uncertain(&self, scenario_clients: &str) -> bool {
        self.books.borrow().uncertain.contains(&scenario_clients)
    }

    /// A client hands in what it recorded.
    pub fn hand_in(&self, recorder: Recorder) {
        self.books.borrow_mut().recorders.push(recorder);
    }

    /// All that was recorded.
    pub fn take_recorders(&self) -> Vec<Recorder> {
        std::mem::take(&mut self.books.borrow_mut().recorders)
    }

    /// What clients met.
    pub fn outcomes(&self) -> Outcomes {
        self.books.borrow().outcomes
    }

    /// How long transactions took, by kind.
    pub fn latencies(&self) -> BTreeMap<LatencyKind, Histogram<u64>> {
        self.books.borrow().latencies.clone()
    }

    /// Forgets what was counted and measured, as after a warm-up.
    pub fn forget(&self) {
        let books = &mut *self.books.borrow_mut();
        books.outcomes = Outcomes::default();
        books.latencies.clear();
    }
}
