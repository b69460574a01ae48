//! Inner nodes: children, and the separators between them.
//!
//! ```text
//! children:      c0    c1    c2
//! separators:       s0    s1          keys of c1: s0 <= key < s1
//! ```
//! A separator is the shortest key that parts its neighbours, so that few bytes distinguish most.

use super::node::{Entries, Header, Shape, close_gap, copy_head, copy_slot, open_gap};
use crate::key::head_at;
use crate::memory::Heap;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr::{self, NonNull};

/// Separators of an inner node, which has one child more: what fills sixteen cache lines.
pub(crate) const INNER_MAX: usize = if cfg!(feature = "model") { 4 } else { 39 };

/// A separator: a key of its own, which never changes.
#[repr(C)]
pub(crate) struct Separator {
    bytes: u16,
}

impl Separator {
    pub(super) fn allocate(heap: &mut Heap, key: &[u8]) -> NonNull<Separator> {
        let bytes = u16::try_from(key.len()).expect("separators are no longer than keys");
        let separator = heap.allocate(size_of::<Separator>() + key.len()).cast::<Separator>();
        // SAFETY: fresh, and long enough for the length and the key behind it.
        unsafe {
            separator.write(Separator { bytes });
            ptr::copy_nonoverlapping(key.as_ptr(), separator.add(1).cast().as_ptr(), key.len());
        }
        separator
    }

    /// # Safety
    /// No reader can reach `separator` any more.
    pub(crate) unsafe fn free(separator: NonNull<Separator>, heap: &mut Heap) {
        // SAFETY: allocated above with this size.
        unsafe {
            let bytes = Self::bytes_taken(separator);
            heap.free(separator.cast(), bytes);
        }
    }

    /// The memory it takes.
    ///
    /// # Safety
    /// It is not freed yet.
    pub(crate) unsafe fn bytes_taken(separator: NonNull<Separator>) -> usize {
        // SAFETY: the caller's promise.
        size_of::<Separator>() + usize::from(unsafe { separator.as_ref() }.bytes)
    }

    /// Its key.
    ///
    /// # Safety
    /// `separator` cannot be freed during `'a`.
    pub(crate) unsafe fn key<'a>(separator: NonNull<Separator>) -> &'a [u8] {
        // SAFETY: `allocate` wrote that many bytes behind the length; they never change.
        unsafe {
            let bytes = usize::from(separator.as_ref().bytes);
            std::slice::from_raw_parts(separator.add(1).cast().as_ptr(), bytes)
        }
    }
}

/// A node whose children are nodes, with the keys that separate them.
#[repr(C)]
pub(crate) struct Inner {
    header: Header,
    heads: [AtomicU64; INNER_MAX],
    children: [AtomicPtr<Header>; INNER_MAX + 1],
    separators: [AtomicPtr<Separator>; INNER_MAX],
}

impl Entries for Inner {
    fn header(&self) -> &Header {
        &self.header
    }
    fn heads(&self) -> &[AtomicU64] {
        &self.heads
    }
    fn key(&self, at: usize) -> Option<&[u8]> {
        // SAFETY: separators found in a node are kept by the reader's guard.
        self.separator(at).map(|separator| unsafe { Separator::key(separator) })
    }
}

impl Inner {
    /// A search looks at the node up to the separators, and at those only where heads are equal.
    pub(super) const SEARCHED_BYTES: usize = std::mem::offset_of!(Inner, separators);

    /// A node with one child and no separator.
    pub(super) fn allocate(heap: &mut Heap, level: u8, child: NonNull<Header>) -> NonNull<Inner> {
        let inner = heap.allocate(size_of::<Inner>()).cast::<Inner>();
        // SAFETY: fresh, and of the right size and alignment.
        unsafe {
            inner.write(Inner {
                header: Header::new(level),
                heads: std::array::from_fn(|_| AtomicU64::new(0)),
                children: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
                separators: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            });
            inner.as_ref().children[0].store(child.as_ptr(), Ordering::Relaxed);
        }
        inner
    }

    /// # Safety
    /// No reader can reach `inner` any more.
    pub(crate) unsafe fn free(inner: NonNull<Inner>, heap: &mut Heap) {
        // SAFETY: allocated above with this size.
        unsafe { heap.free(inner.cast(), size_of::<Inner>()) };
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Which child holds `key`; `None` asks a reader that raced with a writer to begin again.
    #[inline]
    pub(super) fn place_of(&self, key: &[u8]) -> Option<usize> {
        self.find(key).map(|place| place.at + usize::from(place.equal))
    }

    /// Which child holds the greatest keys below `key`.
    pub(super) fn place_before(&self, key: &[u8]) -> Option<usize> {
        self.find(key).map(|place| place.at)
    }

    /// `None` behind the last child, which a reader may meet while the node is changed.
    #[inline]
    pub(super) fn child(&self, place: usize) -> Option<NonNull<Header>> {
        NonNull::new(self.children.get(place)?.load(Ordering::Acquire))
    }

    /// The separator at `at`, which parts the children `at` and `at + 1`.
    pub(super) fn separator(&self, at: usize) -> Option<NonNull<Separator>> {
        NonNull::new(self.separators.get(at)?.load(Ordering::Acquire))
    }

    /// Puts `child` behind the child at `place`, with `separator` between them.
    ///
    /// REQUIRES: latched or private, and not full.
    pub(super) fn insert(
        &self,
        place: usize,
        separator: NonNull<Separator>,
        child: NonNull<Header>,
    ) {
        // SAFETY: the separator is new, or comes from a node that is latched too.
        let key = unsafe { Separator::key(separator) };
        self.admit(key);
        let Shape { count, prefix_bytes } = self.header.shape();
        open_gap(place, count, |from, to| {
            copy_head(&self.heads, from, to);
            copy_slot(&self.separators, from, to);
            copy_slot(&self.children, from + 1, to + 1);
        });
        self.heads[place].store(head_at(key, prefix_bytes), Ordering::Relaxed);
        self.separators[place].store(separator.as_ptr(), Ordering::Release);
        self.children[place + 1].store(child.as_ptr(), Ordering::Release);
        self.header.set_shape(Shape { count: count + 1, prefix_bytes });
        self.sharpen();
    }

    /// Takes out the separator at `at` and the child behind it.
    ///
    /// REQUIRES: latched.
    pub(super) fn remove(&self, at: usize) {
        let shape = self.header.shape();
        close_gap(at, shape.count, |from, to| {
            copy_head(&self.heads, from, to);
            copy_slot(&self.separators, from, to);
            copy_slot(&self.children, from + 1, to + 1);
        });
        self.header.set_shape(Shape { count: shape.count - 1, ..shape });
    }

    /// Moves the upper half to a new node and returns it with the separator between the two, which
    /// neither holds any more. `place` is where an insertion is about to happen below.
    ///
    /// REQUIRES: latched, and full.
    pub(super) fn split(
        &self,
        place: usize,
        heap: &mut Heap,
    ) -> (NonNull<Separator>, NonNull<Inner>) {
        let count = self.header.count();
        // Where keys come in order, the old node stays full and the new one takes what follows.
        let at = if place == count { count - 1 } else { count / 2 };
        let (Some(middle), Some(first)) = (self.separator(at), self.child(at + 1)) else {
            unreachable!("an entry within the count of a latched node");
        };
        let right = Self::allocate(heap, self.header.level(), first);
        // SAFETY: just made.
        let node = unsafe { right.as_ref() };
        node.take(0, self, at + 1, count);
        node.rebuild(count - at - 1);
        self.rebuild(at);
        (middle, right)
    }

    /// Takes over all that `right`, the next node, has; `separator` stood between the two.
    ///
    /// REQUIRES: both latched; they fit, with the separator.
    pub(super) fn merge(&self, separator: NonNull<Separator>, right: &Inner) {
        let (ours, theirs) = (self.header.count(), right.header.count());
        self.separators[ours].store(separator.as_ptr(), Ordering::Release);
        let first = right.children[0].load(Ordering::Relaxed);
        self.children[ours + 1].store(first, Ordering::Release);
        self.take(ours + 1, right, 0, theirs);
        self.rebuild(ours + 1 + theirs);
    }

    /// Copies the separators `from..end` of `other`, each with the child behind it, to `to` on.
    fn take(&self, to: usize, other: &Inner, from: usize, end: usize) {
        for offset in 0..end - from {
            let separator = other.separators[from + offset].load(Ordering::Relaxed);
            let child = other.children[from + offset + 1].load(Ordering::Relaxed);
            self.separators[to + offset].store(separator, Ordering::Release);
            self.children[to + offset + 1].store(child, Ordering::Release);
        }
    }
}
