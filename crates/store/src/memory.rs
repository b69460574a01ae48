//! Where the store's memory comes from, and how much of it is in use.
//!
//! Every session has a [`Heap`] of its own. It counts what the session allocates and frees and
//! folds the count into the store's total now and then, so that counting costs no shared write.

use crate::sync::{AtomicI64, Ordering};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// How far a session's count may run ahead of the total: 64 KiB.
const FOLD_BYTES: i64 = 64 << 10;

/// Bytes that all sessions of a store hold together.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    bytes: AtomicI64,
}

impl Usage {
    /// Bytes in use, to within `FOLD_BYTES` a session.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// One session's access to memory.
pub(crate) struct Heap {
    usage: Arc<Usage>,
    /// Allocated less freed since the last fold.
    pending_bytes: i64,
}

impl Heap {
    pub(crate) fn new(usage: Arc<Usage>) -> Heap {
        Heap { usage, pending_bytes: 0 }
    }

    /// A block of at least `bytes` bytes, aligned to 8 below the size of a cache line and to a
    /// cache line from there on.
    #[inline]
    pub(crate) fn allocate(&mut self, bytes: usize) -> NonNull<u8> {
        let layout = Self::layout(bytes);
        self.count(layout.size() as i64);
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// Gives a block back.
    ///
    /// # Safety
    /// `block` came from `allocate(bytes)` of a heap of this store and is not used any more.
    #[inline]
    pub(crate) unsafe fn free(&mut self, block: NonNull<u8>, bytes: usize) {
        let layout = Self::layout(bytes);
        self.count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { dealloc(block.as_ptr(), layout) };
    }

    fn layout(bytes: usize) -> Layout {
        let align = if bytes.is_multiple_of(64) { 64 } else { 8 };
        Layout::from_size_align(bytes.max(8), align).expect("sizes are bounded by the limits")
    }

    #[inline]
    fn count(&mut self, bytes: i64) {
        self.pending_bytes += bytes;
        if self.pending_bytes.abs() >= FOLD_BYTES {
            self.fold();
        }
    }

    /// Brings the store's total up to date with this session.
    pub(crate) fn fold(&mut self) {
        self.usage.bytes.fetch_add(self.pending_bytes, Ordering::Relaxed);
        self.pending_bytes = 0;
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        self.fold();
    }
}
