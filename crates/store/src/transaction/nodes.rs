//! The node set: the leaves whose gaps and ranges a transaction has read, found again by their address.

use crate::faults::{StoreBug, StoreBugs};
use crate::index::{Leaf, LeafChange, LeafVersion};
use crate::work::{self, Work};
use shoal_types::TableId;
use std::ptr::NonNull;

/// Up to this many leaves, looking at all of them is quicker than a table of them.
const LINEAR_MAX: usize = 16;

/// A gap or a range that was read: its leaf, and the leaf's version.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LeafRead {
    pub(super) table: TableId,
    pub(super) leaf: LeafVersion,
}

/// The leaves whose gaps a transaction has read, for phantom protection. It has each leaf once.
#[derive(Default)]
pub(super) struct NodeSet {
    entries: Vec<LeafRead>,
    /// Places of the entries by address, linear probing, one more than the place or 0; empty up to
    /// `LINEAR_MAX` entries.
    slots: Vec<u32>,
}

impl NodeSet {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is room for one more leaf.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < self.entries.capacity()
    }

    pub(super) fn reserve(&mut self) {
        self.entries.reserve(LINEAR_MAX);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn get(&self, place: usize) -> Option<&LeafRead> {
        self.entries.get(place)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LeafRead> {
        self.entries.iter()
    }

    /// Remembers a leaf. Returns its place.
    ///
    /// Where the leaf was noted before, at another version, the older stays: since then the leaf has
    /// changed by another transaction, and validation has to find that.
    #[inline]
    pub(super) fn note(&mut self, read: LeafRead) -> u32 {
        if self.entries.last() == Some(&read) {
            return self.entries.len() as u32 - 1;
        }
        let place = self.find(read.leaf.leaf).unwrap_or_else(|| {
            self.push(read);
            self.entries.len() - 1
        });
        place as u32
    }

    /// Follows a change that the transaction itself made: its own insertion is no phantom to it (Silo
    /// §4.6). Says whether the transaction had noted the leaf.
    pub(super) fn renew(&mut self, table: TableId, change: &LeafChange, faults: StoreBugs) -> bool {
        let Some(place) = self.find(change.leaf) else { return false };
        let leaf = &mut self.entries[place].leaf;
        if leaf.version != change.from {
            return false;
        }
        leaf.version = change.to;
        if let Some(leaf) = change.split.filter(|_| !faults.has(StoreBug::SplitUnnoted)) {
            self.push(LeafRead { table, leaf });
        }
        true
    }

    fn find(&self, leaf: NonNull<Leaf>) -> Option<usize> {
        let is_it = |read: &LeafRead| {
            work::count(Work::SetProbed);
            read.leaf.leaf == leaf
        };
        if self.slots.is_empty() {
            return self.entries.iter().position(is_it);
        }
        let mut slot = self.slot(leaf);
        while let Some(place) = self.slots[slot].checked_sub(1) {
            if is_it(&self.entries[place as usize]) {
                return Some(place as usize);
            }
            slot = (slot + 1) % self.slots.len();
        }
        None
    }

    fn push(&mut self, read: LeafRead) {
        self.entries.push(read);
        let count = self.entries.len();
        if count <= LINEAR_MAX {
            return;
        }
        if count * 2 > self.slots.len() {
            self.slots.clear();
            self.slots.resize((count * 4).next_power_of_two(), 0);
            (0..count).for_each(|place| self.enter(place));
        } else {
            self.enter(count - 1);
        }
    }

    fn enter(&mut self, place: usize) {
        let LeafVersion { leaf, .. } = self.entries[place].leaf;
        let mut slot = self.slot(leaf);
        while self.slots[slot] != 0 {
            work::count(Work::SetProbed);
            slot = (slot + 1) % self.slots.len();
        }
        self.slots[slot] = place as u32 + 1;
    }

    /// Addresses come from the arena, not from clients, so a fixed factor spreads them.
    fn slot(&self, leaf: NonNull<Leaf>) -> usize {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (leaf.addr().get() as u64).wrapping_mul(FACTOR);
        (mixed >> 32) as usize % self.slots.len()
    }

    /// Bytes that the lists have room for.
    pub(super) fn bytes_listed(&self) -> usize {
        self.entries.capacity() * size_of::<LeafRead>() + self.slots.capacity() * size_of::<u32>()
    }

    /// Forgets all leaves; keeps room for so many.
    pub(super) fn clear(&mut self, kept: usize) {
        self.entries.clear();
        self.entries.shrink_to(kept);
        self.slots.clear();
        self.slots.shrink_to(4 * kept);
    }
}
