//! A map whose entries are found by a hash without a seed, so that the same calls make the same map in every process.
//!
//! A step looks the same keys up a dozen times, among all that the node knows. A tree would compare a key with a dozen
//! others each time, each of them elsewhere in memory.
//!
//! ```text
//! slots    – 2 – – 0 1 – –        the number of an entry, where the hash of its key says, or in the next free slot
//! entries  c17 c9 c42             in the order in which they came; the last one takes the place of one that goes
//! ```
//! Invariant: slots are a power of two, at most half of them are taken, and no free slot is between the one that a hash names
//! and that of its entry.

/// What is in a slot that is free.
const FREE: u32 = u32::MAX;

/// The slots of a map that has entries.
const SLOTS_MIN: usize = 16;

/// A key of a [`HashIndex`].
pub trait HashKey: Eq {
    /// The same for equal keys. Keys that are likely to be in one map differ in the lower bits.
    fn hash(&self) -> u64;
}

/// Numbers that are as good as random.
impl HashKey for u64 {
    fn hash(&self) -> u64 {
        *self
    }
}

/// A map without an order.
#[derive(Debug, Clone)]
pub struct HashIndex<K, V> {
    slots: Vec<u32>,
    entries: Vec<(K, V)>,
}

impl<K, V> Default for HashIndex<K, V> {
    fn default() -> HashIndex<K, V> {
        HashIndex { slots: Vec::new(), entries: Vec::new() }
    }
}

impl<K: HashKey, V> HashIndex<K, V> {
    /// The slot in which the search for a key begins.
    fn home(&self, key: &K) -> usize {
        key.hash() as usize & (self.slots.len() - 1)
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// The slot of the first entry from the home of `key` on that `is_it`, or else the free slot behind them.
    fn slot(&self, key: &K, is_it: impl Fn(u32) -> bool) -> usize {
        let mut slot = self.home(key);
        while self.slots[slot] != FREE && !is_it(self.slots[slot]) {
            slot = self.after(slot);
        }
        slot
    }

    fn slot_of(&self, key: &K) -> usize {
        self.slot(key, |entry| self.entries[entry as usize].0 == *key)
    }

    /// The place of the key's entry.
    fn find(&self, key: &K) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let entry = self.slots[self.slot_of(key)];
        (entry != FREE).then_some(entry as usize)
    }

    /// The value of the key, if it has one.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key).map(|entry| &self.entries[entry].1)
    }

    /// The value of the key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).map(|entry| &mut self.entries[entry].1)
    }

    /// The value of the key, which is made if there is none.
    pub fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V
    where
        K: Clone,
    {
        let entry = self.find(key).unwrap_or_else(|| self.push(key.clone(), make()));
        &mut self.entries[entry].1
    }

    /// Sets the value of the key. Returns the former one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Some(entry) => Some(std::mem::replace(&mut self.entries[entry].1, value)),
            None => {
                self.push(key, value);
                None
            }
        }
    }

    /// Removes the entries that `keeps` does not hold for.
    pub fn retain(&mut self, keeps: impl Fn(&K, &V) -> bool) {
        self.entries.retain(|(key, value)| keeps(key, value));
        self.slots.fill(FREE);
        (0..self.entries.len()).for_each(|entry| self.place(entry));
    }

    /// All entries, in an order that says nothing.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry for a key that has none.
    fn push(&mut self, key: K, value: V) -> usize {
        let entry = self.entries.len();
        self.entries.push((key, value));
        match self.entries.len() * 2 > self.slots.len() {
            true => self.grow(),
            false => self.place(entry),
        }
        entry
    }

    fn place(&mut self, entry: usize) {
        let slot = self.slot(&self.entries[entry].0, |_| false);
        self.slots[slot] = u32::try_from(entry).expect("there are fewer than u32::MAX entries");
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        self.slots = vec![FREE; slots];
        (0..self.entries.len()).for_each(|entry| self.place(entry));
    }

    /// Removes the entry of the key. Returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.find(key)?;
        self.free(self.slot_of(key));
        let last = self.entries.len() - 1;
        if entry != last {
            let slot = self.slot(&self.entries[last].0, |other| other as usize == last);
            self.slots[slot] = entry as u32;
        }
        Some(self.entries.swap_remove(entry).1)
    }

    /// Frees a slot, and moves entries behind it that would not be found any more.
    fn free(&mut self, slot: usize) {
        let (mut free, mut slot) = (slot, self.after(slot));
        self.slots[free] = FREE;
        while self.slots[slot] != FREE {
            let home = self.home(&self.entries[self.slots[slot] as usize].0);
            let mask = self.slots.len() - 1;
            // It may move if its home is not behind the free slot, seen from its own.
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(free) & mask {
                self.slots.swap(free, slot);
                free = slot;
            }
            slot = self.after(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use std::collections::BTreeMap;

    #[test]
    fn it_holds_what_a_tree_holds() {
        let (mut map, mut model) = (HashIndex::default(), BTreeMap::new());
        let mut random = Random::new(3);
        for step in 0..20_000_u64 {
            // Many share a home.
            let key = random.below(if step % 4000 < 2000 { 60 } else { 400 }) << (step % 3);
            match random.below(5) {
                0 => assert_eq!(map.remove(&key), model.remove(&key)),
                1 => assert_eq!(map.insert(key, step), model.insert(key, step)),
                2 => {
                    *map.get_or_insert_with(&key, || step) += 1;
                    *model.entry(key).or_insert(step) += 1;
                }
                3 if step % 50 == 0 => {
                    map.retain(|key, value| (key + value) % 3 != 0);
                    model.retain(|key, value| (*key + *value) % 3 != 0);
                }
                _ => assert_eq!(map.get(&key), model.get(&key)),
            }
            assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
            if step % 100 == 0 {
                let all: BTreeMap<u64, u64> =
                    map.iter_mut().map(|(key, value)| (*key, *value)).collect();
                assert_eq!(all, model, "after {step} steps");
            }
        }
    }
}
