//! Things to be done at a time.

use shoal_types::Time;
use std::collections::BTreeMap;

/// Items by their time; those of one time in the order they came.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    items: BTreeMap<(Time, u64), T>,
    next: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers { items: BTreeMap::new(), next: 0 }
    }
}

impl<T> Timers<T> {
    pub(crate) fn add(&mut self, at: Time, item: T) {
        self.items.insert((at, self.next), item);
        self.next += 1;
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes out what is due.
    pub(crate) fn due(&mut self, now: Time, mut done: impl FnMut(T)) {
        while let Some(first) = self.items.first_entry().filter(|first| first.key().0 <= now) {
            done(first.remove());
        }
    }

    /// When the next is due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.items.first_key_value().map(|((at, _), _)| *at)
    }
}
