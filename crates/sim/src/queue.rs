//! Future events, ordered by time.
//!
//! The heap holds small entries, and their items are in a slab beside it, so that sifting moves 24 bytes
//! however large a message is, and nothing is allocated once both have grown. Items that are due at the same
//! instant are ordered by a draw from the seed.

use shoal_types::{Random, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of items by time.
#[derive(Debug)]
pub struct EventQueue<T> {
    heap: BinaryHeap<Reverse<QueueEntry>>,
    items: Vec<Option<T>>,
    free: Vec<u32>,
    random: Random,
}

/// Ordered by time, then by the random draw; the slot makes the order total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct QueueEntry {
    at: Time,
    lot: u32,
    item: u32,
}

impl<T> EventQueue<T> {
    /// An empty queue that draws the order of simultaneous items from `random`.
    pub fn new(random: Random) -> EventQueue<T> {
        EventQueue { heap: BinaryHeap::new(), items: Vec::new(), free: Vec::new(), random }
    }

    /// Adds an item that is due at `at`.
    pub fn push(&mut self, at: Time, item: T) {
        let place = match self.free.pop() {
            Some(place) => {
                self.items[place as usize] = Some(item);
                place
            }
            None => {
                self.items.push(Some(item));
                u32::try_from(self.items.len() - 1).expect("fewer items than fill the memory")
            }
        };
        let lot = (self.random.next_u64() >> 32) as u32;
        self.heap.push(Reverse(QueueEntry { at, lot, item: place }));
    }

    /// When the next item is due.
    #[inline]
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Removes the item that is due next, with its time; simultaneous ones in an order drawn at random.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse(QueueEntry { at, item, .. }) = self.heap.pop()?;
        self.free.push(item);
        let item = self.items[item as usize].take().expect("an entry stands for one item");
        Some((at, item))
    }

    /// Removes the earliest item that is due up to `until` and for which `fits` returns true.
    pub fn take_where(
        &mut self,
        until: Time,
        fits: impl Fn(Time, &T) -> bool,
    ) -> Option<(Time, T)> {
        let fits = |entry: &QueueEntry| {
            let item = self.items[entry.item as usize].as_ref();
            entry.at <= until && item.is_some_and(|item| fits(entry.at, item))
        };
        let entries = self.heap.iter().map(|Reverse(entry)| *entry);
        let entry = entries.filter(fits).min()?;
        self.heap.retain(|Reverse(other)| *other != entry);
        self.free.push(entry.item);
        let item = self.items[entry.item as usize].take();
        Some((entry.at, item.expect("an entry stands for one item")))
    }

    /// The number of items in the queue.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// The number of slots for items, used and free: the most items that the queue has had at once.
    pub fn slots(&self) -> usize {
        self.items.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
