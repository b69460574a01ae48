//! The options of demonstrations.

use std::rc::Rc;

/// The size of a demonstration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For reports: processors as fast as measured, thousands of clients.
    Full,
    /// For tests: slow processors, few clients, short periods, in the same proportions.
    Small,
}

/// What a demonstration is doing, for a line on the terminal.
#[derive(Debug, Clone)]
pub struct DemonstrationProgress {
    /// The part of the demonstration that is running.
    pub what: String,
    /// How much of that part is done, from 0 to 1.
    pub done: f64,
}

/// Called with the progress of a demonstration.
pub type ProgressWatcher = Rc<dyn Fn(DemonstrationProgress)>;

/// The options that all demonstrations share.
#[derive(Clone)]
pub struct DemonstrationOptions {
    /// The seed of all random draws.
    pub seed: u64,
    /// The size of the demonstration.
    pub size: Size,
    /// Called as the demonstration progresses.
    pub watcher: ProgressWatcher,
}

impl DemonstrationOptions {
    /// Options of a demonstration whose progress is not shown.
    pub fn new(seed: u64, size: Size) -> DemonstrationOptions {
        DemonstrationOptions { seed, size, watcher: Rc::new(|_| {}) }
    }

    /// Returns a function that reports to the watcher how much of `what` is done.
    pub(super) fn tick(&self, what: String) -> Box<dyn FnMut(f64)> {
        let watcher = Rc::clone(&self.watcher);
        Box::new(move |done| watcher(DemonstrationProgress { what: what.clone(), done }))
    }
}

/// The role of an engine in the demonstrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// The engine has to meet the targets that each demonstration names.
    Targets,
    /// The engine is shown for comparison only.
    Nothing,
}
