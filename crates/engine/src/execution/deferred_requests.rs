//! Requests to branches on shards that this node is about to lead: they wait until the shard is served, bounded in time and
//! number. A coordinator sends its request again much later than a shard is recovered.
//!
//! Invariant: no more of them wait than [`Limits::queue_max`].

use super::limits::Limits;
use super::participant_table::BranchHeader;
use shoal_types::{NodeId, ShardId, Time};
use std::collections::VecDeque;

/// A request `R` that waits for its shard to be served.
#[derive(Debug)]
pub struct DeferredRequest<R> {
    /// The coordinator's node.
    pub from: NodeId,
    /// Which request.
    pub header: BranchHeader,
    /// What to do.
    pub request: R,
    /// Until when it waits.
    until: Time,
}

/// The requests of one worker that wait, in the order in which they came.
#[derive(Debug)]
pub struct DeferredRequests<R> {
    queue: VecDeque<DeferredRequest<R>>,
}

impl<R> Default for DeferredRequests<R> {
    fn default() -> Self {
        DeferredRequests { queue: VecDeque::new() }
    }
}

impl<R> DeferredRequests<R> {
    /// Keeps a request; no longer than a transaction may wait for room, and no more of them than may wait. Says whether it
    /// does: otherwise its coordinator has to ask again.
    pub fn defer(
        &mut self,
        now: Time,
        limits: &Limits,
        from: NodeId,
        header: &BranchHeader,
        request: R,
    ) -> bool {
        let has_room = self.queue.len() < limits.queue_max;
        if has_room {
            let until = now + limits.queue_wait_max;
            self.queue.push_back(DeferredRequest { from, header: *header, request, until });
        }
        has_room
    }

    /// Takes out the first that may go on, since its shard is `served` or it has waited too long. Those before it keep their
    /// places.
    pub fn next(
        &mut self,
        now: Time,
        served: impl Fn(ShardId) -> bool,
    ) -> Option<DeferredRequest<R>> {
        let is_due = |it: &DeferredRequest<R>| it.until <= now || served(it.header.shard);
        let at = self.queue.iter().position(is_due)?;
        self.queue.remove(at)
    }

    /// The node is not about to lead this shard any more.
    pub fn forget(&mut self, shard: ShardId) {
        self.queue.retain(|deferred| deferred.header.shard != shard);
    }

    /// When the first has waited too long.
    pub fn next_due(&self) -> Option<Time> {
        self.queue.iter().map(|deferred| deferred.until).min()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Asserts the invariant above.
    pub fn assert_invariants(&self, limits: &Limits) {
        let (waiting, most) = (self.queue.len(), limits.queue_max);
        assert!(waiting <= most, "{waiting} requests wait, of {most}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction_id::TransactionId;
    use shoal_types::{Epoch, WorkerId};

    fn header(shard: u32) -> BranchHeader {
        let transaction = TransactionId { node: NodeId(1), worker: WorkerId(0), sequence: 5 };
        let (step, oldest, epoch, leadership) = (1, 0, Epoch(1), Epoch(1));
        BranchHeader { transaction, shard: ShardId(shard), step, oldest, epoch, leadership }
    }

    #[test]
    fn requests_wait_in_their_order_until_their_shard_is_served_or_for_too_long() {
        let limits = Limits { queue_max: 3, ..Limits::default() };
        let mut requests = DeferredRequests::default();
        let mut defer =
            |shard, request| requests.defer(Time(1), &limits, NodeId(1), &header(shard), request);
        assert!(defer(0, "one") && defer(1, "two") && defer(0, "three"));
        assert!(!defer(0, "four"), "there are too many");
        assert_eq!(requests.next_due(), Some(Time(1) + limits.queue_wait_max));
        requests.assert_invariants(&limits);
        let next = |requests: &mut DeferredRequests<_>, now, served: Option<u32>| {
            let next = requests.next(now, |shard| Some(shard.0) == served);
            next.map(|it| it.request)
        };
        assert_eq!(next(&mut requests, Time(2), None), None, "it is early");
        assert_eq!(next(&mut requests, Time(2), Some(0)), Some("one"));
        assert_eq!(next(&mut requests, Time(2), Some(0)), Some("three"), "another waits before it");
        assert_eq!(next(&mut requests, Time(2), Some(0)), None);
        let late = Time(1) + limits.queue_wait_max;
        assert_eq!(next(&mut requests, late, None), Some("two"), "it has waited too long");
        assert!(requests.is_empty() && requests.next_due().is_none());
    }

    #[test]
    fn requests_to_a_shard_that_this_node_is_not_to_lead_are_forgotten() {
        let (limits, mut requests) = (Limits::default(), DeferredRequests::default());
        assert!(requests.defer(Time(1), &limits, NodeId(1), &header(0), "one"));
        assert!(requests.defer(Time(1), &limits, NodeId(1), &header(1), "two"));
        requests.forget(ShardId(0));
        let next = requests.next(Time(2), |_| true).map(|it| it.request);
        assert_eq!((next, requests.len()), (Some("two"), 0));
    }
}
