//! Maps of granules that are found by a hash, and one whose entries are visited in order.
//!
//! A step looks the same granules up a dozen times, among all that the node knows. A tree would compare a name with a dozen
//! others each time, each of them elsewhere in memory.
//!
//! ```text
//! slots    – 2 – – 0 1 – –        the number of an entry, where the hash of its name says, or in the next free slot
//! entries  c17 c9 c42             in the order in which they came; the last one takes the place of one that goes
//! ordered  c17 c42 c9             of a GranuleMap only
//! ```
//! Hashes have no seed: the same calls make the same map in every process.
//!
//! Invariant: slots are a power of two, at most half of them are taken, and no free slot is between the one that a hash names
//! and that of its entry.

use crate::granule::GranuleId;
use std::collections::BTreeSet;
use std::ops::Bound;

/// What is in a slot that is free.
const FREE: u32 = u32::MAX;

/// The slots of a map that has entries.
const SLOTS_MIN: usize = 16;

/// An odd number whose bits are as good as random: 2^64 divided by the golden ratio.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A map from granules, without an order.
#[derive(Debug, Clone)]
pub(crate) struct GranuleIndex<V> {
    slots: Vec<u32>,
    entries: Vec<(GranuleId, V)>,
}

/// A map from granules.
#[derive(Debug, Clone)]
pub(crate) struct GranuleMap<V> {
    index: GranuleIndex<V>,
    ordered: BTreeSet<GranuleId>,
}

impl<V> Default for GranuleIndex<V> {
    fn default() -> GranuleIndex<V> {
        GranuleIndex { slots: Vec::new(), entries: Vec::new() }
    }
}

impl<V> Default for GranuleMap<V> {
    fn default() -> GranuleMap<V> {
        GranuleMap { index: GranuleIndex::default(), ordered: BTreeSet::new() }
    }
}

fn hash(granule: &GranuleId) -> u64 {
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(MIXER);
        mixed ^ mixed >> 32
    };
    let begin = mix(u64::from(granule.family.0), granule.prefix.len() as u64);
    granule.prefix.chunks(8).fold(begin, |hash, bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        mix(hash, u64::from_le_bytes(word))
    })
}

impl<V> GranuleIndex<V> {
    /// The slot in which the search for a name begins.
    fn home(&self, granule: &GranuleId) -> usize {
        hash(granule) as usize & (self.slots.len() - 1)
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// The slot of the first entry from the home of `granule` on that `is_it`, or else the free slot behind them.
    fn slot(&self, granule: &GranuleId, is_it: impl Fn(u32) -> bool) -> usize {
        let mut slot = self.home(granule);
        while self.slots[slot] != FREE && !is_it(self.slots[slot]) {
            slot = self.after(slot);
        }
        slot
    }

    fn slot_of(&self, granule: &GranuleId) -> usize {
        self.slot(granule, |entry| self.entries[entry as usize].0 == *granule)
    }

    /// The place of the granule's entry.
    fn find(&self, granule: &GranuleId) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let entry = self.slots[self.slot_of(granule)];
        (entry != FREE).then_some(entry as usize)
    }

    pub(crate) fn get(&self, granule: &GranuleId) -> Option<&V> {
        self.find(granule).map(|entry| &self.entries[entry].1)
    }

    pub(crate) fn get_mut(&mut self, granule: &GranuleId) -> Option<&mut V> {
        self.find(granule).map(|entry| &mut self.entries[entry].1)
    }

    /// The value of the granule, which is made if there is none.
    pub(crate) fn get_or_insert_with(
        &mut self,
        granule: &GranuleId,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let entry = self.find(granule).unwrap_or_else(|| self.push(granule.clone(), make()));
        &mut self.entries[entry].1
    }

    /// Adds an entry for a granule that has none.
    fn push(&mut self, granule: GranuleId, value: V) -> usize {
        let entry = self.entries.len();
        self.entries.push((granule, value));
        match self.entries.len() * 2 > self.slots.len() {
            true => self.grow(),
            false => self.place(entry),
        }
        entry
    }

    fn place(&mut self, entry: usize) {
        let slot = self.slot(&self.entries[entry].0, |_| false);
        self.slots[slot] = u32::try_from(entry).expect("a node knows fewer granules");
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        self.slots = vec![FREE; slots];
        (0..self.entries.len()).for_each(|entry| self.place(entry));
    }

    pub(crate) fn remove(&mut self, granule: &GranuleId) -> Option<V> {
        let entry = self.find(granule)?;
        self.free(self.slot_of(granule));
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

impl<V> GranuleMap<V> {
    pub(crate) fn get(&self, granule: &GranuleId) -> Option<&V> {
        self.index.get(granule)
    }

    pub(crate) fn get_mut(&mut self, granule: &GranuleId) -> Option<&mut V> {
        self.index.get_mut(granule)
    }

    /// The value of the granule, which is made if there is none.
    pub(crate) fn get_or_insert_with(
        &mut self,
        granule: &GranuleId,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let GranuleMap { index, ordered } = self;
        index.get_or_insert_with(granule, || {
            ordered.insert(granule.clone());
            make()
        })
    }

    /// Sets the value of the granule.
    pub(crate) fn insert(&mut self, granule: &GranuleId, value: V) {
        match self.index.find(granule) {
            Some(entry) => self.index.entries[entry].1 = value,
            None => {
                self.ordered.insert(granule.clone());
                self.index.push(granule.clone(), value);
            }
        }
    }

    pub(crate) fn remove(&mut self, granule: &GranuleId) -> Option<V> {
        let removed = self.index.remove(granule)?;
        self.ordered.remove(granule);
        Some(removed)
    }

    pub(crate) fn clear(&mut self) {
        *self = GranuleMap::default();
    }

    /// All entries, ascending by granule.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GranuleId, &V)> {
        self.iter_after(None)
    }

    /// The entries behind this granule, ascending.
    pub(crate) fn iter_after(
        &self,
        after: Option<&GranuleId>,
    ) -> impl Iterator<Item = (&GranuleId, &V)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let granules = self.ordered.range((start, Bound::Unbounded));
        granules.filter_map(|granule| Some((granule, self.get(granule)?)))
    }

    /// All entries, in an order that says nothing.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&GranuleId, &mut V)> {
        self.index.entries.iter_mut().map(|(granule, value)| (&*granule, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_types::{Random, TableId};
    use std::collections::BTreeMap;

    fn granule(number: u64) -> GranuleId {
        // Names of different lengths, also ones that begin alike.
        let bytes = number.to_be_bytes();
        let prefix = Bytes::copy_from_slice(&bytes[(number % 7) as usize..]);
        GranuleId { family: TableId((number % 2) as u32), prefix }
    }

    #[test]
    fn it_holds_what_a_tree_holds() {
        let (mut map, mut model) = (GranuleMap::default(), BTreeMap::new());
        let mut random = Random::new(3);
        for step in 0..20_000_u64 {
            let granule = granule(random.below(if step % 4000 < 2000 { 60 } else { 400 }));
            match random.below(4) {
                0 => assert_eq!(map.remove(&granule), model.remove(&granule)),
                1 => {
                    map.insert(&granule, step);
                    model.insert(granule, step);
                }
                2 => {
                    *map.get_or_insert_with(&granule, || step) += 1;
                    *model.entry(granule).or_insert(step) += 1;
                }
                _ => {
                    assert_eq!(map.get(&granule), model.get(&granule));
                    assert_eq!(map.get_mut(&granule), model.get_mut(&granule));
                }
            }
            if step % 100 == 0 {
                assert!(map.iter().eq(model.iter()), "after {step} steps");
                let (middle, end) = (self::granule(5), Bound::Unbounded);
                let behind = model.range((Bound::Excluded(&middle), end));
                assert!(map.iter_after(Some(&middle)).eq(behind));
                assert_eq!(map.iter_mut().count(), model.len());
            }
        }
        map.clear();
        assert_eq!(map.iter().next(), None);
    }

    #[test]
    fn neighbours_do_not_crowd() {
        let mut map = GranuleMap::default();
        for number in 0..30_000_u32 {
            let prefix = Bytes::copy_from_slice(&number.to_be_bytes());
            map.insert(&GranuleId { family: TableId(1), prefix }, ());
        }
        let steps = |(granule, ()): (&GranuleId, &())| {
            let index = &map.index;
            index.slot_of(granule).wrapping_sub(index.home(granule)) & (index.slots.len() - 1)
        };
        let all: usize = map.iter().map(steps).sum();
        assert!(all < 30_000, "{all} steps in all");
    }
}
