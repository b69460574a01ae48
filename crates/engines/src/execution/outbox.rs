//! Requests that wait for an answer, and are sent again until it comes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;
use types::{NodeId, ShardId, Time};

/// A branch of a transaction, as its coordinator names it: the transaction's sequence and the shard.
pub(crate) type BranchKey = (u64, ShardId);

/// See the module. A branch has at most one request under way.
#[derive(Debug)]
pub(crate) struct Outbox<M> {
    retry_after: Duration,
    waiting: BTreeMap<BranchKey, Waiting<M>>,
    /// When to look at which request again. What was answered meanwhile stays until its turn.
    due: BinaryHeap<Reverse<(Time, BranchKey, u32)>>,
}

/// A request waits twice as long each time it is sent again, up to so many times as long as at first:
/// whoever does not answer may have too much to do, and every copy is more of that.
const PATIENCE_MAX: u32 = 16;

#[derive(Debug)]
struct Waiting<M> {
    to: NodeId,
    step: u32,
    message: M,
    /// How many times as long as at first it waits.
    patience: u32,
}

impl<M: Clone> Outbox<M> {
    pub(crate) fn new(retry_after: Duration) -> Outbox<M> {
        Outbox { retry_after, waiting: BTreeMap::new(), due: BinaryHeap::new() }
    }

    /// Keeps `message`, which goes out now, until request `step` of the branch is answered.
    ///
    /// # Panics
    /// If a request of the branch is under way.
    pub(crate) fn send(&mut self, now: Time, key: BranchKey, step: u32, to: NodeId, message: M) {
        let before = self.waiting.insert(key, Waiting { to, step, message, patience: 1 });
        assert!(before.is_none(), "two requests of branch {key:?} are under way");
        self.due.push(Reverse((now + self.retry_after, key, step)));
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

    /// Gives up all requests to branches on `shard`, and says whose they are.
    pub(crate) fn forget_shard(&mut self, shard: ShardId) -> Vec<u64> {
        let forgotten = self.waiting.extract_if(.., |(_, its), _| *its == shard);
        forgotten.map(|((sequence, _), _)| sequence).collect()
    }

    /// Shows the requests that have waited long enough, to be sent again.
    pub(crate) fn overdue(&mut self, now: Time, mut again: impl FnMut(NodeId, &M)) {
        while let Some(Reverse((at, key, step))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            let waiting = self.waiting.get_mut(&key).filter(|waiting| waiting.step == step);
            let Some(waiting) = waiting else { continue };
            again(waiting.to, &waiting.message);
            waiting.patience = (2 * waiting.patience).min(PATIENCE_MAX);
            self.due.push(Reverse((now + self.retry_after * waiting.patience, key, step)));
        }
    }

    /// When to look again.
    pub(crate) fn next_due(&mut self) -> Option<Time> {
        while let Some(Reverse((at, key, step))) = self.due.peek() {
            if self.waiting.get(key).is_some_and(|waiting| waiting.step == *step) {
                return Some(*at);
            }
            self.due.pop();
        }
        None
    }

    /// How many requests are under way.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_nanos(10);

    fn due(outbox: &mut Outbox<&'static str>, now: u64) -> Vec<&'static str> {
        let mut sent = Vec::new();
        outbox.overdue(Time(now), |_, message| sent.push(*message));
        sent
    }

    #[test]
    fn a_request_is_sent_again_until_it_is_answered() {
        let mut outbox = Outbox::new(RETRY);
        outbox.send(Time(0), (1, ShardId(0)), 1, NodeId(2), "one");
        outbox.send(Time(5), (2, ShardId(0)), 1, NodeId(2), "two");
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
}
