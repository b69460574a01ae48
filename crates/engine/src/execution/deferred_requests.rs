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

    /// Takes out the requests whose shards are `served`, in their order, and drops those that have waited too long. Returns
    /// how many were dropped.
    pub fn take_served(
        &mut self,
        now: Time,
        served: impl Fn(ShardId) -> bool,
    ) -> (Vec<DeferredRequest<R>>, u64) {
        let (ready, waiting): (Vec<_>, Vec<_>) =
            self.queue.drain(..).partition(|it| served(it.header.shard));
        let before = waiting.len();
        self.queue.extend(waiting.into_iter().filter(|it| it.until > now));
        let dropped = before - self.queue.len();
        (ready, dropped as u64)
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
        let take = |requests: &mut DeferredRequests<_>, now, served: Option<u32>| {
            let (ready, dropped) = requests.take_served(now, |shard| Some(shard.0) == served);
            (ready.into_iter().map(|it| it.request).collect::<Vec<_>>(), dropped)
        };
        assert_eq!(take(&mut requests, Time(2), None), (vec![], 0), "no shard is served");
        assert_eq!(take(&mut requests, Time(2), Some(0)), (vec!["one", "three"], 0));
        assert_eq!(take(&mut requests, Time(2), Some(0)), (vec![], 0));
        let late = Time(1) + limits.queue_wait_max;
        assert_eq!(take(&mut requests, late, None), (vec![], 1), "it has waited too long");
        assert!(requests.is_empty() && requests.next_due().is_none());
    }

    #[test]
    fn requests_to_a_shard_that_this_node_is_not_to_lead_are_forgotten() {
        let (limits, mut requests) = (Limits::default(), DeferredRequests::default());
        assert!(requests.defer(Time(1), &limits, NodeId(1), &header(0), "one"));
        assert!(requests.defer(Time(1), &limits, NodeId(1), &header(1), "two"));
        requests.forget(ShardId(0));
        let (ready, _) = requests.take_served(Time(2), |_| true);
        let ready: Vec<_> = ready.into_iter().map(|it| it.request).collect();
        assert_eq!((ready, requests.len()), (vec!["two"], 0));
    }
}
