//! When a request that has no answer is sent again.
//!
//! A request or its answer may be lost, and a node that does not answer may have too much to do. So a request is sent
//! again after [`patience`](super::options::ClusterOptions::patience), and each further time after twice as long, until it is
//! answered or its deadline has passed. Steps of a transaction and calls of procedures share this rule.

use super::environment::{ClientEnvironment, after, timeout_at};
use super::options::ClusterOptions;
use shoal_types::{Backoff, Time};

/// The waits for the answer to one request.
#[derive(Debug)]
pub(super) struct Retransmission {
    backoff: Backoff,
    /// Waits that have brought no answer.
    unanswered: u32,
    /// The time at which the request is given up.
    until: Time,
}

impl Retransmission {
    /// The waits for a request that is answered before `until`, or given up.
    pub(super) fn new(options: &ClusterOptions, until: Time) -> Retransmission {
        let backoff = Backoff::new(options.patience, options.patience_max());
        Retransmission { backoff, unanswered: 0, until }
    }

    /// The time at which the request is given up.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    /// How many waits have brought no answer.
    pub(super) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// What `answer` brings; `None` when the request is to be sent again, or the deadline has passed.
    pub(super) async fn wait<T>(
        &self,
        world: &dyn ClientEnvironment,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        timeout_at(world, self.until.min(after(world, self.backoff.bound())), answer).await
    }

    /// Counts a wait that brought no answer: the next one is longer.
    pub(super) fn count(&mut self) {
        self.unanswered += 1;
        self.backoff.advance();
    }
}
