//! Requests that wait for an answer, and are sent again until it comes.

use super::due_queue::DueQueue;
use shoal_types::{Backoff, Epoch, NodeId, ShardId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// A branch of a transaction, as its coordinator names it: the transaction's sequence and the shard.
pub type BranchKey = (u64, ShardId);

/// The requests to other workers that are not answered, and when to send each again. A branch has at most one request
/// under way.
#[derive(Debug)]
pub(crate) struct RequestRetransmission<M> {
    retry_after: Duration,
    waiting: BTreeMap<BranchKey, PendingRequest<M>>,
    /// When to look at which request again. What was answered meanwhile stays until its turn.
    due: DueQueue<(BranchKey, u32)>,
    /// A request is given up when it has waited for so long.
    wait_max: Duration,
    /// No request has waited for so long before this.
    expires_at: Time,
}

/// A request that goes out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentRequest {
    pub(crate) key: BranchKey,
    /// Which request of the branch.
    pub(crate) step: u32,
    /// The epoch of its transaction.
    pub(crate) epoch: Epoch,
    pub(crate) to: NodeId,
    /// How much longer than others this request may wait.
    pub(crate) extra_wait: Duration,
}

/// A request that has waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpiredRequest {
    pub(crate) key: BranchKey,
    /// The epoch of its transaction.
    pub(crate) epoch: Epoch,
    /// No answer to it is waited for any more.
    pub(crate) is_given_up: bool,
}

/// A request waits twice as long each time it is sent again, up to so many times as long as at first:
/// a node that does not answer may have too much to do, and every copy is more of that.
const PATIENCE_MAX: u32 = 16;

#[derive(Debug)]
struct PendingRequest<M> {
    to: NodeId,
    step: u32,
    /// When it was sent first, or so much later as it may wait longer than others; and the epoch of its transaction.
    since: Time,
    epoch: Epoch,
    message: M,
    /// How long it waits before it is sent again, and when that is.
    backoff: Backoff,
    retry_at: Time,
}

impl<M: Clone> RequestRetransmission<M> {
    pub(crate) fn new(retry_after: Duration, wait_max: Duration) -> RequestRetransmission<M> {
        let (waiting, due) = (BTreeMap::new(), DueQueue::default());
        RequestRetransmission { retry_after, waiting, due, wait_max, expires_at: Time::MAX }
    }

    /// How many requests have no answer, and how many times to look at one are kept.
    pub(crate) fn sizes(&self) -> [usize; 2] {
        [self.waiting.len(), self.due.len()]
    }

    /// Keeps `message`, which goes out now, until the request is answered.
    ///
    /// # Panics
    /// If a request of the branch is under way.
    pub(crate) fn send(&mut self, now: Time, request: SentRequest, message: M) {
        let SentRequest { key, step, epoch, to, extra_wait } = request;
        let mut backoff = Backoff::new(self.retry_after, self.retry_after * PATIENCE_MAX);
        let retry_at = now + backoff.advance();
        let since = now + extra_wait;
        let waiting = PendingRequest { to, step, since, epoch, message, backoff, retry_at };
        let before = self.waiting.insert(key, waiting);
        assert!(before.is_none(), "two requests of branch {key:?} are under way");
        self.expires_at = self.expires_at.min(now + self.wait_max);
        self.due.push(retry_at, (key, step));
    }

    /// An answer to request `step` came from a node. Says whether it was waited for, and `fits` what was
    /// asked; otherwise it is as if it had not come.
    pub(crate) fn answered(
        &mut self,
        from: NodeId,
        key: BranchKey,
        step: u32,
        fits: impl FnOnce(&M) -> bool,
    ) -> bool {
        match self.waiting.get(&key) {
            Some(waiting)
                if (waiting.step, waiting.to) == (step, from) && fits(&waiting.message) =>
            {
                self.waiting.remove(&key);
                true
            }
            _ => false,
        }
    }

    /// Gives up a request: its answer does not matter any more.
    pub(crate) fn forget(&mut self, key: BranchKey) {
        self.waiting.remove(&key);
    }

    /// Gives up all requests of a transaction.
    pub(crate) fn forget_transaction(&mut self, sequence: u64) {
        self.waiting.retain(|(its, _), _| *its != sequence);
    }

    /// Gives up all requests to branches on `shard`, and says whose they are.
    pub(crate) fn forget_shard(&mut self, shard: ShardId) -> Vec<u64> {
        let forgotten = self.waiting.extract_if(.., |(_, its), _| *its == shard);
        forgotten.map(|((sequence, _), _)| sequence).collect()
    }

    /// Finds the requests that have waited for too long, and gives up those that `kept` does not hold for, by their
    /// branches and epochs. Returns them all, and whether each was given up.
    pub(crate) fn expire(
        &mut self,
        now: Time,
        kept: impl Fn(BranchKey, Epoch) -> bool,
    ) -> Vec<ExpiredRequest> {
        if now < self.expires_at {
            return Vec::new();
        }
        let wait_max = self.wait_max;
        let expired = self.waiting.iter().filter(|(_, it)| it.since + wait_max <= now);
        let expired = expired.map(|(key, it)| ExpiredRequest {
            key: *key,
            epoch: it.epoch,
            is_given_up: !kept(*key, it.epoch),
        });
        let expired: Vec<ExpiredRequest> = expired.collect();
        for request in expired.iter().filter(|request| request.is_given_up) {
            self.waiting.remove(&request.key);
        }
        // What is kept is looked at again after a while.
        let next = self.waiting.values().map(|it| it.since + wait_max).min();
        self.expires_at = next.map_or(Time::MAX, |at| at.max(now + wait_max / 8));
        expired
    }

    /// The requests that have no answer: their branches, the nodes asked, and since when.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (BranchKey, NodeId, Time)> + '_ {
        self.waiting.iter().map(|(key, it)| (*key, it.to, it.since))
    }

    /// When the next request may have waited for too long.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        Some(self.expires_at).filter(|at| *at < Time::MAX)
    }

    /// Shows the requests that have waited long enough, to be sent again.
    pub(crate) fn overdue(&mut self, now: Time, mut again: impl FnMut(NodeId, &M)) {
        let RequestRetransmission { waiting, due, .. } = self;
        while let Some((key, step)) = due.take_due(now, |item| retry_at(waiting, item)) {
            let waiting = waiting.get_mut(&key).expect("it is due");
            again(waiting.to, &waiting.message);
            waiting.retry_at = now + waiting.backoff.advance();
            due.push(waiting.retry_at, (key, step));
        }
    }

    /// When to look again.
    pub(crate) fn next_due(&mut self) -> Option<Time> {
        self.due.next_due(|item| retry_at(&self.waiting, item))
    }

    /// How many requests are under way.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// When a request is sent again; `None` if it is answered.
fn retry_at<M>(
    waiting: &BTreeMap<BranchKey, PendingRequest<M>>,
    (key, step): &(BranchKey, u32),
) -> Option<Time> {
    waiting.get(key).filter(|it| it.step == *step).map(|it| it.retry_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_nanos(10);
    const WAIT: Duration = Duration::from_nanos(100);
    const E: Epoch = Epoch(1);

    /// The first request of the branch of a transaction.
    fn request(sequence: u64, epoch: Epoch) -> SentRequest {
        let (key, to) = ((sequence, ShardId(0)), NodeId(2));
        SentRequest { key, step: 1, epoch, to, extra_wait: Duration::ZERO }
    }

    fn due(outbox: &mut RequestRetransmission<&'static str>, now: u64) -> Vec<&'static str> {
        let mut sent = Vec::new();
        outbox.overdue(Time(now), |_, message| sent.push(*message));
        sent
    }

    #[test]
    fn a_request_is_sent_again_until_it_is_answered() {
        let mut outbox = RequestRetransmission::new(RETRY, WAIT);
        outbox.send(Time(0), request(1, E), "one");
        outbox.send(Time(5), request(2, E), "two");
        assert_eq!(outbox.next_due(), Some(Time(10)));
        assert_eq!(due(&mut outbox, 9), Vec::<&str>::new());
        assert_eq!(due(&mut outbox, 10), ["one"]);
        let key = (1, ShardId(0));
        assert!(!outbox.answered(NodeId(2), key, 2, |_| true), "another step");
        assert!(!outbox.answered(NodeId(3), key, 1, |_| true), "another node");
        assert!(!outbox.answered(NodeId(2), key, 1, |asked| *asked == "two"), "another question");
        assert!(outbox.answered(NodeId(2), key, 1, |asked| *asked == "one"));
        assert!(!outbox.answered(NodeId(2), key, 1, |_| true), "twice");
        assert_eq!(due(&mut outbox, 100), ["two"]);
        assert_eq!(outbox.next_due(), Some(Time(120)), "it waits twice as long now");
        (1..9).for_each(|_| drop(due(&mut outbox, 1000)));
        let at = outbox.next_due().map(|at| at.0);
        assert_eq!(at, Some(1040));
        outbox.forget((2, ShardId(0)));
        assert_eq!((outbox.next_due(), outbox.len()), (None, 0));
    }

    #[test]
    fn a_request_expires_however_often_it_was_sent_again() {
        let mut outbox = RequestRetransmission::new(RETRY, WAIT);
        let [first, second, third] = [1, 2, 3].map(|sequence| (sequence, ShardId(0)));
        outbox.send(Time(0), request(1, E), "one");
        outbox.send(Time(5), request(2, E), "two");
        outbox.send(Time(5), request(3, Epoch(2)), "three");
        assert_eq!(due(&mut outbox, 50).len(), 3);
        assert_eq!(outbox.next_expiry(), Some(Time(100)));
        assert!(outbox.answered(NodeId(2), first, 1, |_| true));
        assert_eq!(outbox.expire(Time(100), |_, _| false), []);
        let kept = |_, epoch| epoch == Epoch(2);
        let expired = |key, epoch, is_given_up| ExpiredRequest { key, epoch, is_given_up };
        let both = [expired(second, E, true), expired(third, Epoch(2), false)];
        assert_eq!(outbox.expire(Time(112), kept), both);
        assert_eq!((outbox.next_expiry(), outbox.len()), (Some(Time(124)), 1));
        assert_eq!(outbox.expire(Time(124), |_, _| false), [expired(third, Epoch(2), true)]);
        assert_eq!((outbox.next_due(), outbox.next_expiry(), outbox.len()), (None, None, 0));
    }
}
