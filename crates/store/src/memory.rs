//! The store's memory: its allocation, and the count of bytes in use.
//!
//! ```text
//! arena   regions from the system, on huge pages     one a store, behind locks
//!           | spans, and full lists of free blocks
//! heap    a span to cut blocks from, free lists      one a session, not shared
//! ```
//! Why not the general allocator: records and versions are looked up at random, so on pages of 4 KiB
//! most lookups miss the address cache too, and the general allocator uses huge pages only if the
//! process configures it at its start, which a library cannot. And a record and its version, made together, come to lie
//! together. `docs/lessons.md` has the numbers.
//!
//! Blocks are cut in a few sizes (`memory/blocks.rs`); a freed block waits in a list of
//! its size (magazines and a depot: Bonwick and Adams, USENIX ATC'01), so that what one session
//! frees another can use. Before the arena takes another region, it joins free blocks that are neighbours
//! (`memory/joining.rs`). Larger blocks are the general allocator's. Regions are given back when the store goes.
//!
//! Every heap counts what it allocates and frees and folds the count into the arena's total now and
//! then, so that counting costs no shared write.

mod blocks;
mod joining;
mod round;

use crate::sync::{AtomicI64, AtomicU64, Mutex, Ordering, lock};
use blocks::{
    CLASSED_MAX, CLASSES, FreeList, LINE, STEP, Span, class, class_bytes, magazine_blocks,
};
use round::JoiningRound;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// The first region is small, for small stores; each is twice as large as the one before.
const REGION_BYTES_MIN: usize = 128 << 10;
const REGION_BYTES_MAX: usize = 32 << 20;
const HUGE_PAGE: usize = 2 << 20;
const SMALL_PAGE: usize = 4 << 10;
/// Likewise for the spans of a heap.
const SPAN_BYTES_MIN: usize = 16 << 10;
const SPAN_BYTES_MAX: usize = 256 << 10;

/// How far a heap's count may run ahead of the total: 64 KiB.
const FOLD_BYTES: i64 = 64 << 10;

const _: () = assert!(CLASSED_MAX < SPAN_BYTES_MIN && SPAN_BYTES_MIN < REGION_BYTES_MIN);
const _: () = assert!(SPAN_BYTES_MAX.is_multiple_of(LINE) && REGION_BYTES_MIN.is_multiple_of(LINE));

/// The memory that all heaps of a store share.
pub(crate) struct Arena {
    /// Bytes allocated and not freed, up to what the heaps have not folded in yet.
    bytes: AtomicI64,
    regions: Mutex<Regions>,
    /// Full lists of free blocks, by size.
    depot: Box<[Mutex<Vec<FreeList>>]>,
    /// Bytes of the blocks in the depot.
    depot_bytes: AtomicU64,
    joining: Mutex<JoiningRound>,
}

#[derive(Default)]
struct Regions {
    all: Vec<(NonNull<u8>, Layout)>,
    /// The unused rest of the last region.
    rest: Span,
    /// Unused spans of dropped heaps, and spans of joined free blocks.
    returned: Vec<Span>,
    /// The size of all regions.
    bytes: usize,
    /// A round of joining free blocks is under way: every request for a span takes it further.
    joining: bool,
}

// SAFETY: regions only move their addresses around.
unsafe impl Send for Regions {}

impl Default for Arena {
    fn default() -> Arena {
        Arena {
            bytes: AtomicI64::new(0),
            regions: Mutex::new(Regions::default()),
            depot: (0..=CLASSES).map(|_| Mutex::new(Vec::new())).collect(),
            depot_bytes: AtomicU64::new(0),
            joining: Mutex::new(JoiningRound::default()),
        }
    }
}

impl Arena {
    /// Bytes in use, to within `FOLD_BYTES` a heap.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Adds memory that is no block to what is in use, or takes it off.
    pub(crate) fn count(&self, bytes: i64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes taken from the system, used or not.
    #[cfg(all(test, not(feature = "model")))]
    pub(crate) fn region_bytes(&self) -> usize {
        lock(&self.regions).bytes
    }

    /// Takes memory from the system before it is needed, and touches it, so that no transaction waits
    /// while the system finds and clears a page. Does nothing where the system has not that much.
    pub(crate) fn reserve(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut regions = lock(&self.regions);
        let Some(bytes) = bytes.checked_next_multiple_of(HUGE_PAGE) else { return };
        if !regions.take(bytes) {
            return;
        }
        let Span { start, bytes } = regions.rest;
        for offset in (0..bytes).step_by(SMALL_PAGE) {
            // SAFETY: inside the region, which is not used yet.
            unsafe { start.add(offset).write_volatile(0) };
        }
    }

    /// A span, as a rule of `bytes` bytes; one that was returned or joined is as long as it is.
    fn span(&self, bytes: usize) -> Span {
        let mut regions = lock(&self.regions);
        if regions.joining || regions.are_short() {
            let region_bytes = regions.bytes;
            drop(regions);
            self.join_blocks(region_bytes);
            regions = lock(&self.regions);
        }
        regions.unused(bytes).unwrap_or_else(|| {
            regions.grow();
            regions.unused(bytes).expect("a region is longer than a span")
        })
    }

    fn take_list(&self, class: usize) -> Option<FreeList> {
        let list = lock(&self.depot[class]).pop()?;
        self.depot_bytes.fetch_sub(list.bytes(class), Ordering::Relaxed);
        Some(list)
    }

    fn put_list(&self, class: usize, list: FreeList) {
        // First the count, so that it is never less than what is there.
        self.depot_bytes.fetch_add(list.bytes(class), Ordering::Relaxed);
        lock(&self.depot[class]).push(list);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (region, layout) in lock(&self.regions).all.drain(..) {
            // SAFETY: allocated in `grow` with this layout; heaps hold the arena, so none is left.
            unsafe { dealloc(region.as_ptr(), layout) };
        }
    }
}

impl Regions {
    /// A span that takes nothing from the system, if there is one.
    fn unused(&mut self, bytes: usize) -> Option<Span> {
        self.returned.pop().or_else(|| {
            let (start, _) = self.rest.cut(bytes, LINE)?;
            Some(Span { start: start.as_ptr(), bytes })
        })
    }

    /// Whether little unused memory is left. Then joining begins, which takes a few calls.
    fn are_short(&self) -> bool {
        let little = (self.bytes / 8).min(REGION_BYTES_MAX / 4);
        self.returned.is_empty() && self.rest.bytes < little
    }

    #[cold]
    fn grow(&mut self) {
        let bytes = (REGION_BYTES_MIN << self.all.len().min(16)).min(REGION_BYTES_MAX);
        if !self.take(bytes) {
            handle_alloc_error(Layout::new::<[u8; REGION_BYTES_MIN]>());
        }
    }

    /// Takes a region from the system, if it has one.
    fn take(&mut self, bytes: usize) -> bool {
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { LINE };
        let Ok(layout) = Layout::from_size_align(bytes, align) else { return false };
        // SAFETY: the size is not zero.
        let Some(region) = NonNull::new(unsafe { alloc(layout) }) else { return false };
        if bytes >= HUGE_PAGE {
            advise_huge_pages(region, bytes);
        }
        self.all.push((region, layout));
        self.bytes += bytes;
        let rest = std::mem::replace(&mut self.rest, Span { start: region.as_ptr(), bytes });
        if rest.bytes > CLASSED_MAX {
            self.returned.push(rest);
        }
        true
    }
}

/// One session's access to memory.
pub(crate) struct Heap {
    arena: Arc<Arena>,
    /// Allocated less freed since the last fold.
    pending_bytes: i64,
    span: Span,
    span_bytes: usize,
    free: Box<[Magazine]>,
}

/// The free blocks of one size that a heap has at hand.
#[derive(Clone, Copy)]
struct Magazine {
    active: FreeList,
    /// Either full or without any block.
    spare: FreeList,
}

impl Heap {
    pub(crate) fn new(arena: Arc<Arena>) -> Heap {
        let empty = Magazine { active: FreeList::EMPTY, spare: FreeList::EMPTY };
        Heap {
            arena,
            pending_bytes: 0,
            span: Span::default(),
            span_bytes: SPAN_BYTES_MIN,
            free: vec![empty; CLASSES + 1].into_boxed_slice(),
        }
    }

    /// A block of at least `bytes` bytes, aligned to 8; to a cache line where `bytes` is a multiple
    /// of one.
    #[inline]
    pub(crate) fn allocate(&mut self, bytes: usize) -> NonNull<u8> {
        let (class, bytes) = class(bytes);
        self.count(bytes as i64);
        let Some(class) = class else { return allocate_large(bytes) };
        match self.free[class].active.pop() {
            Some(block) => block,
            None => self.refill(class, bytes),
        }
    }

    /// Gives a block back.
    ///
    /// # Safety
    /// `block` came from `allocate(bytes)` of a heap of this store and is not used any more.
    #[inline]
    pub(crate) unsafe fn free(&mut self, block: NonNull<u8>, bytes: usize) {
        let (class, bytes) = class(bytes);
        self.count(-(bytes as i64));
        if cfg!(any(debug_assertions, feature = "faults")) {
            // A reader that still looks at it shall notice.
            // SAFETY: the caller gave the block up.
            unsafe { block.write_bytes(POISON, bytes) };
        }
        let Some(class) = class else {
            // SAFETY: a block without a class came from `allocate_large`.
            return unsafe { dealloc(block.as_ptr(), large(bytes)) };
        };
        let magazine = &mut self.free[class];
        magazine.active.push(block);
        if magazine.active.count >= magazine_blocks(bytes) {
            self.exchange(class);
        }
    }

    /// Finds a block where the list of its class is empty.
    #[cold]
    #[inline(never)]
    fn refill(&mut self, class: usize, bytes: usize) -> NonNull<u8> {
        let magazine = &mut self.free[class];
        let more = if magazine.spare.count > 0 {
            Some(std::mem::replace(&mut magazine.spare, FreeList::EMPTY))
        } else {
            self.arena.take_list(class)
        };
        if let Some(list) = more {
            magazine.active = list;
            return magazine.active.pop().expect("a list that is not empty");
        }
        let align = if bytes.is_multiple_of(LINE) { LINE } else { STEP };
        loop {
            let start = self.span.start;
            if let Some((block, skipped)) = self.span.cut(bytes, align) {
                self.keep(Span { start, bytes: skipped });
                return block;
            }
            let next = self.arena.span(self.span_bytes);
            let rest = std::mem::replace(&mut self.span, next);
            self.keep(rest);
            self.span_bytes = (self.span_bytes * 2).min(SPAN_BYTES_MAX);
        }
    }

    /// Makes free blocks of a span that is too short for others, so that its bytes can be used and joined.
    fn keep(&mut self, mut span: Span) {
        while span.bytes >= STEP {
            // Blocks of some classes are aligned to a cache line.
            let is_aligned = span.start.addr().is_multiple_of(LINE);
            let fits = |class: &usize| {
                let bytes = class_bytes(*class);
                bytes <= span.bytes && (is_aligned || !bytes.is_multiple_of(LINE))
            };
            let class = (1..=CLASSES).rev().find(fits).expect("the smallest block is a step");
            let (block, _) = span.cut(class_bytes(class), STEP).expect("it is that long");
            self.free[class].active.push(block);
        }
    }

    /// Puts a full list aside; the one that lay there goes to the depot.
    #[cold]
    fn exchange(&mut self, class: usize) {
        let magazine = &mut self.free[class];
        let full = std::mem::replace(&mut magazine.active, FreeList::EMPTY);
        let old = std::mem::replace(&mut magazine.spare, full);
        if old.count > 0 {
            self.arena.put_list(class, old);
        }
    }

    /// Adds memory that is not a block of this heap, like a session's lists, to what is in use.
    #[inline]
    pub(crate) fn count(&mut self, bytes: i64) {
        self.pending_bytes += bytes;
        if self.pending_bytes.abs() >= FOLD_BYTES {
            self.fold();
        }
    }

    /// Brings the store's total up to date with this session.
    pub(crate) fn fold(&mut self) {
        self.arena.bytes.fetch_add(self.pending_bytes, Ordering::Relaxed);
        self.pending_bytes = 0;
    }
}

/// What freed memory is filled with in tests.
const POISON: u8 = 0xdb;

impl Heap {
    /// Two bytes of freed memory in tests.
    pub(crate) const POISONED: u16 = u16::from_ne_bytes([POISON; 2]);
}

/// Asks for `bytes` bytes to be brought near before they are needed: one wait instead of several.
#[inline]
pub(crate) fn prefetch<T>(start: *const T, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect that a program could see, at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>().wrapping_add(offset)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}

/// Memory of the general allocator, on huge pages if it is that large, all zeros; the system clears it when it is touched.
/// The permutation tester's atomics are no zeros: there each element is `empty`.
///
/// # Safety
/// Zeros are a `T`, but for the permutation tester's.
pub(crate) unsafe fn zeroed_slice<T>(count: usize, empty: impl Fn() -> T) -> Box<[T]> {
    if cfg!(feature = "model") {
        return (0..count).map(|_| empty()).collect();
    }
    let layout = Layout::array::<T>(count).expect("sizes are bounded by the limits");
    assert!(layout.size() > 0, "an empty slice needs no memory");
    // SAFETY: the size is not zero.
    let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        handle_alloc_error(layout)
    };
    let skipped = start.addr().get().next_multiple_of(HUGE_PAGE) - start.addr().get();
    if layout.size() >= skipped + HUGE_PAGE {
        // SAFETY: inside of what was allocated.
        advise_huge_pages(unsafe { start.add(skipped) }, layout.size() - skipped);
    }
    // SAFETY: allocated above with this layout; and the caller's promise.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start.cast().as_ptr(), count)) }
}

/// Asks for huge pages. A wish: where the system refuses it, everything works, only slower.
fn advise_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the advice does not change what the range holds.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, bytes);
}

fn large(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, STEP).expect("sizes are bounded by the limits")
}

#[cold]
fn allocate_large(bytes: usize) -> NonNull<u8> {
    let layout = large(bytes);
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Drop for Heap {
    fn drop(&mut self) {
        self.fold();
        for (class, magazine) in self.free.iter().enumerate() {
            for list in [magazine.active, magazine.spare] {
                if list.count > 0 {
                    self.arena.put_list(class, list);
                }
            }
        }
        if self.span.bytes > CLASSED_MAX {
            lock(&self.arena.regions).returned.push(self.span);
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use shoal_types::Random;

    #[test]
    fn blocks_are_distinct_aligned_and_used_again() {
        let arena = Arc::new(Arena::default());
        let mut heaps = [Heap::new(Arc::clone(&arena)), Heap::new(Arc::clone(&arena))];
        let mut random = Random::new(7);
        let mut held: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
        for round in 0..60_000u32 {
            let heap = &mut heaps[random.below(2) as usize];
            if held.len() > 500 || (round % 3 == 2 && !held.is_empty()) {
                let (block, bytes, mark) =
                    held.swap_remove(random.below(held.len() as u64) as usize);
                // SAFETY: held blocks are ours, and this one is given up.
                unsafe {
                    let content = std::slice::from_raw_parts(block.as_ptr(), bytes);
                    assert!(content.iter().all(|byte| *byte == mark), "it was overwritten");
                    heap.free(block, bytes);
                }
                continue;
            }
            let most = [64, 600, 20_000][random.below(3) as usize];
            let bytes = 1 + random.below(most) as usize;
            let block = heap.allocate(bytes);
            assert!(block.addr().get().is_multiple_of(STEP));
            assert!(
                !bytes.is_multiple_of(LINE)
                    || bytes > CLASSED_MAX
                    || block.addr().get().is_multiple_of(LINE)
            );
            // SAFETY: fresh.
            unsafe { block.write_bytes(round as u8, bytes) };
            held.push((block, bytes, round as u8));
        }
        for (block, bytes, _) in held {
            // SAFETY: ours, given up.
            unsafe { heaps[0].free(block, bytes) };
        }
        drop(heaps);
        assert_eq!(arena.bytes(), 0);
    }

    #[test]
    fn what_one_heap_frees_another_uses() {
        let arena = Arc::new(Arena::default());
        let (mut one, mut two) = (Heap::new(Arc::clone(&arena)), Heap::new(Arc::clone(&arena)));
        for _ in 0..200_000 {
            let block = one.allocate(500);
            // SAFETY: not used.
            unsafe { two.free(block, 500) };
        }
        let regions = lock(&arena.regions).all.len();
        assert!(regions <= 2, "{regions} regions for one block at a time");
    }
}
