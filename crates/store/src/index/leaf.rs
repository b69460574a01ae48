//! Leaves: records in the order of their keys.

use super::inner::Separator;
use super::node::{
    Entries, Header, NodePlace, Shape, close_gap, copy_head, copy_slot, open_gap,
    shortest_separator,
};
use crate::key::{common_prefix, head_at};
use crate::memory::Heap;
use crate::record::Record;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr::{self, NonNull};

/// Entries of a leaf: what fills eight cache lines. Small under the permutation tester, so that few
/// keys make many nodes.
pub(crate) const LEAF_MAX: usize = if cfg!(feature = "model") { 3 } else { 28 };

/// A leaf: records in the order of their keys.
#[repr(C)]
pub(crate) struct Leaf {
    header: Header,
    heads: [AtomicU64; LEAF_MAX],
    records: [AtomicPtr<Record>; LEAF_MAX],
}

impl Entries for Leaf {
    fn header(&self) -> &Header {
        &self.header
    }
    fn heads(&self) -> &[AtomicU64] {
        &self.heads
    }
    fn key(&self, at: usize) -> Option<&[u8]> {
        // SAFETY: records found in a leaf are kept by the reader's guard.
        self.record(at).map(|record| unsafe { Record::key(record) })
    }
}

impl Leaf {
    pub(crate) fn allocate(heap: &mut Heap) -> NonNull<Leaf> {
        let leaf = heap.allocate(size_of::<Leaf>()).cast::<Leaf>();
        // SAFETY: fresh, and of the right size and alignment.
        unsafe {
            leaf.write(Leaf {
                header: Header::new(0),
                heads: std::array::from_fn(|_| AtomicU64::new(0)),
                records: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            });
        }
        leaf
    }

    /// # Safety
    /// No reader can reach `leaf` any more.
    pub(crate) unsafe fn free(leaf: NonNull<Leaf>, heap: &mut Heap) {
        // SAFETY: allocated above with this size.
        unsafe { heap.free(leaf.cast(), size_of::<Leaf>()) };
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Finds `key` in the leaf: see [`Entries::find`].
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<NodePlace> {
        Entries::find(self, key)
    }

    /// The record whose head is that of `key`, not yet looked at: a hint, for a prefetch.
    pub(crate) fn likely_record(&self, key: &[u8]) -> Option<NonNull<Record>> {
        self.record(self.find_head(key)?)
    }

    /// The record of an entry.
    #[inline]
    pub(crate) fn record(&self, at: usize) -> Option<NonNull<Record>> {
        NonNull::new(self.records.get(at)?.load(Ordering::Acquire))
    }

    /// Puts `record` at `place`, where a search for its `key` ended.
    ///
    /// REQUIRES: latched, and not full.
    pub(crate) fn insert(&self, place: usize, key: &[u8], record: NonNull<Record>) {
        self.admit(key);
        let shape = self.header.shape();
        open_gap(place, shape.count, |from, to| {
            copy_head(&self.heads, from, to);
            copy_slot(&self.records, from, to);
        });
        self.heads[place].store(head_at(key, shape.prefix_bytes), Ordering::Relaxed);
        self.records[place].store(record.as_ptr(), Ordering::Release);
        self.header.set_shape(Shape { count: shape.count + 1, ..shape });
        self.sharpen();
    }

    /// Takes the entry at `place` out.
    ///
    /// REQUIRES: latched.
    pub(crate) fn remove(&self, place: usize) {
        let shape = self.header.shape();
        close_gap(place, shape.count, |from, to| {
            copy_head(&self.heads, from, to);
            copy_slot(&self.records, from, to);
        });
        self.header.set_shape(Shape { count: shape.count - 1, ..shape });
    }

    /// Moves the upper entries to the private leaf `right`, because `key`, whose place is `place`,
    /// needs room. Returns the separator.
    ///
    /// Where keys come in order, the old leaf stays full and the new one takes what follows.
    ///
    /// REQUIRES: latched, and full.
    pub(crate) fn split(
        &self,
        place: usize,
        key: &[u8],
        right: &Leaf,
        heap: &mut Heap,
    ) -> NonNull<Separator> {
        let shape = self.header.shape();
        let (first, last) = (self.latched_key(0), self.latched_key(shape.count - 1));
        let like = |other: &[u8]| common_prefix(other, key).min(shape.prefix_bytes);
        let at = match place {
            0 => 0,
            place if place == shape.count => shape.count,
            _ => shape.count / 2,
        };
        let separator = match place {
            0 => shortest_separator(key, first),
            place if place == shape.count => shortest_separator(last, key),
            _ => shortest_separator(self.latched_key(at - 1), self.latched_key(at)),
        };
        let separator = Separator::allocate(heap, separator);
        for from in at..shape.count {
            let record = self.records[from].load(Ordering::Relaxed);
            right.records[from - at].store(record, Ordering::Release);
        }
        if at == shape.count {
            right.reshape(key, like(last), 0);
        } else {
            right.rebuild(shape.count - at);
        }
        if at == 0 {
            self.reshape(key, like(first), 0);
        } else if at < shape.count {
            self.rebuild(at);
        }
        separator
    }

    /// Takes over all entries of `right`, the next leaf.
    ///
    /// REQUIRES: both latched; they fit.
    pub(crate) fn merge(&self, right: &Leaf) {
        let (ours, theirs) = (self.header.count(), right.header.count());
        for at in 0..theirs {
            let record = right.records[at].load(Ordering::Relaxed);
            self.records[ours + at].store(record, Ordering::Release);
        }
        self.rebuild(ours + theirs);
    }
}
