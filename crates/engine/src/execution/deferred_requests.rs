//! Requests to branches on shards that this node is about to lead: they wait until the shard is served, bounded in time and
//! number. A coordinator sends its request again much later than a shard is recovered.

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

    /// Takes out those whose shards are `served`, and drops those that have waited too long. Returns the first, and how many
    /// the others are.
    pub fn take(
        &mut self,
        now: Time,
        served: impl Fn(ShardId) -> bool,
    ) -> (Vec<DeferredRequest<R>>, u64) {
        let (mut due, mut late) = (Vec::new(), 0);
        for deferred in std::mem::take(&mut self.queue) {
            if served(deferred.header.shard) {
                due.push(deferred);
            } else if deferred.until > now {
                self.queue.push_back(deferred);
            } else {
                late += 1;
            }
        }
        (due, late)
    }

    /// The node is not about to lead this shard any more.
    pub fn forget(&mut self, shard: ShardId) {
        self.queue.retain(|deferred| deferred.header.shard != shard);
    }

    /// When the first has waited too long.
    pub fn next_due(&self) -> Option<Time> {
        self.queue.front().map(|deferred| deferred.until)
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len()
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
        let (served, late) = requests.take(Time(2), |shard| shard == ShardId(0));
        let served: Vec<&str> = served.into_iter().map(|it| it.request).collect();
        assert_eq!((served, late, requests.len()), (vec!["one", "three"], 0, 1));
        let (served, late) = requests.take(Time(1) + limits.queue_wait_max, |_| false);
        assert_eq!((served.len(), late, requests.is_empty()), (0, 1, true));
    }
}
