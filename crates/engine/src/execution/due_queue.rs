//! Items that are to be looked at when their time comes: only those that are due are visited.
//!
//! The owner of the items knows when each of them is due, and the queue knows no later time than that: an item that is gone,
//! or due later than when it was queued, is found out when its turn comes. So nothing is to be done here when an item goes,
//! or is put off; the owner queues it again only where it becomes due earlier, or was due and will be again.
//!
//! Invariant: after [`shrink`](DueQueue::shrink) there are at most twice as many entries as live items, and a few.

use shoal_types::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// So many entries of items that are gone may always stay.
const STALE_MIN: usize = 64;

/// Items by the times at which they are to be looked at; those of one time in their order.
#[derive(Debug)]
pub struct DueQueue<K> {
    entries: BinaryHeap<Reverse<(Time, K)>>,
}

impl<K: Ord> Default for DueQueue<K> {
    fn default() -> DueQueue<K> {
        DueQueue { entries: BinaryHeap::new() }
    }
}

impl<K: Ord + Copy> DueQueue<K> {
    /// An item is due at this time, or later.
    pub fn push(&mut self, at: Time, item: K) {
        self.entries.push(Reverse((at, item)));
    }

    /// Takes out the next item that is due. `due_at` returns when an item is due; `None` for one that is gone.
    pub fn take_due(&mut self, now: Time, due_at: impl Fn(&K) -> Option<Time>) -> Option<K> {
        if self.next_due(due_at)? > now {
            return None;
        }
        self.entries.pop().map(|Reverse((_, item))| item)
    }

    /// When the next item is due.
    pub fn next_due(&mut self, due_at: impl Fn(&K) -> Option<Time>) -> Option<Time> {
        loop {
            let Reverse((at, item)) = *self.entries.peek()?;
            match due_at(&item) {
                Some(due) if due <= at => return Some(at),
                due => {
                    self.entries.pop();
                    self.entries.extend(due.map(|due| Reverse((due, item))));
                }
            }
        }
    }

    /// Forgets the items that are gone, if there are many more entries than the `live` items.
    pub fn shrink(&mut self, live: usize, due_at: impl Fn(&K) -> Option<Time>) {
        if self.entries.len() > 2 * live + STALE_MIN {
            self.entries.retain(|Reverse((_, item))| due_at(item).is_some());
        }
    }

    /// The number of entries, of which some may be of items that are gone.
    #[expect(
        clippy::len_without_is_empty,
        reason = "it is counted, and nothing asks whether it is empty"
    )]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn only_what_is_due_is_visited() {
        let mut queue = DueQueue::default();
        let mut items = BTreeMap::from([("a", Time(5)), ("b", Time(3)), ("c", Time(3))]);
        items.iter().for_each(|(item, at)| queue.push(*at, *item));
        let take = |queue: &mut DueQueue<_>, items: &BTreeMap<&str, Time>, now| {
            queue.take_due(Time(now), |item| items.get(item).copied())
        };
        assert_eq!(take(&mut queue, &items, 2), None);
        assert_eq!(take(&mut queue, &items, 3), Some("b"));
        items.remove("c");
        items.insert("a", Time(9));
        assert_eq!(take(&mut queue, &items, 8), None, "one is gone, one is put off");
        assert_eq!(queue.next_due(|item| items.get(item).copied()), Some(Time(9)));
        queue.push(Time(6), "a");
        items.insert("a", Time(6));
        assert_eq!(take(&mut queue, &items, 6), Some("a"), "it is due earlier than it was");
        items.insert("a", Time(12));
        queue.push(Time(12), "a");
        assert_eq!(take(&mut queue, &items, 11), None, "it was queued twice, and is due once");
        items.clear();
        assert_eq!((take(&mut queue, &items, 99), queue.len()), (None, 0));
    }

    #[test]
    fn what_is_gone_is_forgotten_before_its_time() {
        let mut queue = DueQueue::default();
        for item in 0..1000_u64 {
            queue.push(Time(5000 + item), item);
            queue.shrink(1, |other| (*other == item).then_some(Time(5000 + item)));
            assert!(queue.len() <= 2 + STALE_MIN, "{}", queue.len());
        }
    }
}
