//! Blocks: their sizes, the spans they are cut from, and the lists in which free ones wait.

use std::ptr::{self, NonNull};

/// Small blocks come in multiples of this, and every block is aligned to it.
pub(super) const STEP: usize = 8;
/// Up to this size; from there on in eight sizes for each doubling, so that at most an eighth is lost
/// and what is freed soon fits something again.
pub(super) const SMALL_MAX: usize = 256;
/// Longer blocks come from the general allocator.
pub(super) const CLASSED_MAX: usize = 4 << 10;
pub(super) const SMALL_CLASSES: usize = SMALL_MAX / STEP;
pub(super) const CLASSES: usize = SMALL_CLASSES + 8 * (CLASSED_MAX / SMALL_MAX).ilog2() as usize;
/// Blocks whose size is a multiple of this, nodes above all, are aligned to it.
pub(super) const LINE: usize = 64;

/// The class of blocks of `bytes` bytes and their size; no class for those of the general allocator.
#[inline]
pub(super) fn class(bytes: usize) -> (Option<usize>, usize) {
    if bytes <= SMALL_MAX {
        let class = bytes.div_ceil(STEP);
        return (Some(class), class * STEP);
    }
    if bytes > CLASSED_MAX {
        return (None, bytes.next_multiple_of(STEP));
    }
    let last = bytes - 1;
    let doubling = last.ilog2();
    let eighth = last >> (doubling - 3);
    let class = SMALL_CLASSES + 8 * (doubling - SMALL_MAX.ilog2()) as usize + (eighth & 7) + 1;
    (Some(class), (eighth + 1) << (doubling - 3))
}

/// The size of the blocks of `class`: the inverse of [`class`].
pub(super) fn class_bytes(class: usize) -> usize {
    if class <= SMALL_CLASSES {
        return class * STEP;
    }
    let (doubling, eighth) = ((class - SMALL_CLASSES - 1) / 8, (class - SMALL_CLASSES - 1) % 8);
    (9 + eighth) << (doubling + SMALL_MAX.ilog2() as usize - 3)
}

/// How many free blocks of a size a heap gathers before it gives some away: about 16 KiB of them.
pub(super) fn magazine_blocks(bytes: usize) -> usize {
    ((16 << 10) / bytes).clamp(4, 128)
}

/// Unused memory, to cut blocks from.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: *mut u8,
    pub(super) bytes: usize,
}

// SAFETY: a span is memory that no other owner uses.
unsafe impl Send for Span {}

impl Default for Span {
    fn default() -> Span {
        Span { start: ptr::null_mut(), bytes: 0 }
    }
}

impl Span {
    /// Cuts `bytes` off at the front, aligned to `align`. Returns also how many bytes it left out before them.
    pub(super) fn cut(&mut self, bytes: usize, align: usize) -> Option<(NonNull<u8>, usize)> {
        let skip = self.start.addr().wrapping_neg() & (align - 1);
        if skip + bytes > self.bytes {
            return None;
        }
        let block = self.start.wrapping_add(skip);
        self.start = block.wrapping_add(bytes);
        self.bytes -= skip + bytes;
        NonNull::new(block).map(|block| (block, skip))
    }
}

/// Free blocks of one size, each holding the address of the next.
#[derive(Clone, Copy)]
pub(super) struct FreeList {
    head: *mut u8,
    pub(super) count: usize,
}

// SAFETY: free blocks are memory that no other owner uses.
unsafe impl Send for FreeList {}

impl FreeList {
    pub(super) const EMPTY: FreeList = FreeList { head: ptr::null_mut(), count: 0 };

    /// The size of the blocks, which are of `class`.
    pub(super) fn bytes(&self, class: usize) -> u64 {
        (self.count * class_bytes(class)) as u64
    }

    pub(super) fn push(&mut self, block: NonNull<u8>) {
        // SAFETY: a free block has room for an address, and is aligned for it.
        unsafe { block.cast::<*mut u8>().write(self.head) };
        self.head = block.as_ptr();
        self.count += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.head)?;
        // SAFETY: `push` wrote it.
        self.head = unsafe { block.cast::<*mut u8>().read() };
        self.count -= 1;
        Some(block)
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_fit_and_waste_little() {
        let mut before = (0, 0);
        for bytes in 1..=CLASSED_MAX {
            let (Some(class), size) = class(bytes) else { panic!("{bytes} bytes have no class") };
            assert!(size >= bytes && size.is_multiple_of(STEP) && class <= CLASSES);
            assert_eq!(class_bytes(class), size);
            assert!(size - bytes < STEP.max(bytes / 8 + 1), "{bytes} bytes in {size}");
            assert!((class, size) == before || (class == before.0 + 1 && size > before.1));
            assert!(!bytes.is_multiple_of(LINE) || size.is_multiple_of(LINE));
            before = (class, size);
        }
        assert_eq!(before, (CLASSES, CLASSED_MAX));
        assert_eq!(class(CLASSED_MAX + 1), (None, CLASSED_MAX + STEP));
    }
}
