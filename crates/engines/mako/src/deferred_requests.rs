//! Requests to shards that are being recovered: they wait until the shard serves, in a queue that is bounded in time and
//! size.

use super::message::MakoRequest;
use shoal_engine::execution::participant_table::BranchHeader;
use shoal_types::{NodeId, ShardId, Time};
use std::collections::VecDeque;

/// A request to a shard that is being recovered.
pub(super) struct DeferredRequest {
    /// Its coordinator.
    pub(super) from: NodeId,
    pub(super) header: BranchHeader,
    pub(super) request: MakoRequest,
    /// Then it is dropped.
    pub(super) until: Time,
}

/// All of them, the first one first.
///
/// Invariant: never more than may wait.
#[derive(Default)]
pub(super) struct DeferredRequests {
    requests: VecDeque<DeferredRequest>,
}

impl DeferredRequests {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Does none wait?
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// One more waits, where fewer than `most` do. Says whether it does.
    pub(super) fn push(&mut self, request: DeferredRequest, most: usize) -> bool {
        let has_room = self.requests.len() < most;
        if has_room {
            self.requests.push_back(request);
        }
        has_room
    }

    /// Drops those to this shard.
    pub(super) fn drop_of(&mut self, shard: ShardId) {
        self.requests.retain(|deferred| deferred.header.shard != shard);
    }

    /// Takes out the first that may go on, since its shard is `served` or its time is over. Those before it keep their
    /// places.
    pub(super) fn next(
        &mut self,
        now: Time,
        served: impl Fn(ShardId) -> bool,
    ) -> Option<DeferredRequest> {
        let is_due = |it: &DeferredRequest| it.until <= now || served(it.header.shard);
        let at = self.requests.iter().position(is_due)?;
        self.requests.remove(at)
    }

    /// When the next is to be dropped.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.requests.iter().map(|deferred| deferred.until).min()
    }

    /// Asserts the invariant above.
    pub(super) fn assert_invariants(&self, most: usize) {
        assert!(self.requests.len() <= most, "{} requests wait, of {most}", self.requests.len());
    }
}
