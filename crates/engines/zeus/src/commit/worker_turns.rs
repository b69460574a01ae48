//! Which transaction of a node is next on a granule that several workers write, or several pipelines of one.
//!
//! A transaction waits until no pending slot of another pipeline has touched its granules. Others may begin such slots all the
//! time, so the oldest transaction that waits for a granule is noted, and younger ones wait behind it. Transactions that wait hold
//! nothing, and slots end: the oldest one of all commits.
//!
//! It is noted on all of its granules that pending slots touch, also of the pipeline that it will join: otherwise it would find one
//! granule free, and the next one touched again.
//!
//! Invariant: while a transaction is noted without a limit, pending slots touch the granule. Once they are validated it is
//! woken, and has to come back within [`favour`](crate::ZeusOptions::favour): it may have failed meanwhile.

use crate::granule::GranuleId;
use shoal_types::{Time, WorkerId};
use std::collections::BTreeMap;

/// The oldest transactions that wait for granules.
#[derive(Debug, Default)]
pub(super) struct WorkerTurns(BTreeMap<GranuleId, Waiting>);

/// The oldest transaction that waits for slots of other pipelines on a granule.
#[derive(Debug)]
struct Waiting {
    worker: WorkerId,
    born: Time,
    /// Until when it has to come back, if it waits for no slot any more.
    until: Option<Time>,
}

impl WorkerTurns {
    /// A transaction of the worker that was born then waits for slots of other pipelines.
    pub(super) fn wait(&mut self, granule: &GranuleId, worker: WorkerId, born: Time) {
        let waiting = self.0.get(granule);
        if waiting.is_none_or(|waiting| born <= waiting.born) {
            self.0.insert(granule.clone(), Waiting { worker, born, until: None });
        }
    }

    /// Whether an older transaction waits for the granule.
    pub(super) fn is_behind(&self, granule: &GranuleId, born: Time) -> bool {
        self.0.get(granule).is_some_and(|waiting| waiting.born < born)
    }

    /// A transaction of the worker that was born then is committed.
    pub(super) fn commit(&mut self, granule: &GranuleId, worker: WorkerId, born: Time) {
        let waiting = self.0.get(granule);
        if waiting.is_some_and(|waiting| (waiting.worker, waiting.born) == (worker, born)) {
            self.0.remove(granule);
        }
    }

    /// No pending slot touches the granule any more.
    pub(super) fn settle(&mut self, granule: &GranuleId, until: Time) {
        if let Some(waiting) = self.0.get_mut(granule) {
            waiting.until.get_or_insert(until);
        }
    }

    /// Forgets those that have not come back in time. Says whether there were any.
    pub(super) fn end(&mut self, now: Time) -> bool {
        let before = self.0.len();
        self.0.retain(|_, waiting| waiting.until.is_none_or(|until| until > now));
        self.0.len() < before
    }

    /// When the next one has to have come back.
    pub(super) fn due(&self) -> Option<Time> {
        self.0.values().filter_map(|waiting| waiting.until).min()
    }
}
