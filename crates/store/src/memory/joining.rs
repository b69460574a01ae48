//! Free blocks of the depot are joined into spans, so that memory which was freed in one size serves another.
//!
//! A store whose values change their size frees blocks of one class and asks for blocks of the next: without
//! this, the free blocks of every size that was ever in use would stay, each for its own size only. When heaps
//! ask for memory that was never used, and much of the arena lies in the depot, the arena makes a round:
//!
//! ```text
//! depot: lists by class ──gather──► free blocks by chunk of addresses ──join──► spans, where neighbours are
//!          ▲                                                          │         enough of them
//!          └──────────────────────── all others ◄─────────────────────┘
//! ```
//! Bounds:
//! - One call handles about [`BLOCKS_AT_ONCE`] blocks, since it runs inside the step that needs memory; a round
//!   takes as many calls as there are blocks. What is gathered serves no heap until it is joined.
//! - A round that makes spans of little of what it gathered is the last one until another region was taken:
//!   live blocks lie between the free ones, and another round would find the same.
//!
//! Invariant: a block is in one place only: a list of its class, a chunk of the round, or inside a span.

use super::Arena;
use super::blocks::{CLASSES, FreeList, Span, class_bytes, magazine_blocks};
use super::round::{Block, JoiningRound};
use crate::sync::{Ordering, lock};
use std::ptr::NonNull;

/// Walking so many blocks of a list, mostly cache misses, and sorting them takes a few milliseconds.
const BLOCKS_AT_ONCE: usize = 1 << 15;
/// Blocks are sorted, and joined, within chunks of so many bytes of addresses.
const CHUNK_BYTES: usize = 1 << 20;
/// The shortest run that becomes a span; shorter ones stay blocks.
const RUN_BYTES_MIN: usize = 16 << 10;
/// A round begins where the depot holds this part of all regions.
const DEPOT_SHARE: usize = 4;
/// A round was worth it if this part of the bytes that it gathered became spans.
const JOINED_SHARE: usize = 4;

impl Arena {
    /// Goes on with a round, or begins one if enough lies free in `region_bytes` of regions.
    #[cold]
    pub(super) fn join_blocks(&self, region_bytes: usize) {
        let round = &mut *lock(&self.joining);
        if !round.is_under_way() {
            let free_bytes = self.depot_bytes.load(Ordering::Relaxed);
            let is_worth_it = free_bytes >= (region_bytes / DEPOT_SHARE) as u64;
            // Another session may have made spans while this one waited for the lock.
            let has_spans = !lock(&self.regions).returned.is_empty();
            if !is_worth_it || has_spans || round.vain_at_bytes == region_bytes {
                return;
            }
            (round.gathers, round.gathered_bytes, round.joined_bytes) = (Some(1), 0, 0);
        }
        let mut left = BLOCKS_AT_ONCE;
        while left > 0
            && let Some(class) = round.gathers
        {
            left = left.saturating_sub(self.gather_list(class, round));
        }
        if round.gathers.is_none() {
            self.join_chunks(left, round);
            let in_vain = round.joined_bytes < round.gathered_bytes.div_ceil(JOINED_SHARE);
            if !round.is_under_way() && in_vain {
                round.vain_at_bytes = region_bytes;
            }
        }
        lock(&self.regions).joining = round.is_under_way();
    }

    /// Gathers a list of the class, or goes on to the next class where there is none. Returns how many
    /// blocks that were.
    fn gather_list(&self, class: usize, round: &mut JoiningRound) -> usize {
        let Some(mut list) = self.take_list(class) else {
            round.gathers = Some(class + 1).filter(|class| *class <= CLASSES);
            return 0;
        };
        let blocks = list.count;
        while let Some(start) = list.pop() {
            let block = Block { start, class };
            round.chunks.entry(block.address() / CHUNK_BYTES).or_default().push(block);
        }
        round.gathered_bytes += blocks * class_bytes(class);
        blocks
    }

    /// Makes spans of the runs in the first chunks that are long enough, and lists of the rest.
    fn join_chunks(&self, mut left: usize, round: &mut JoiningRound) {
        let mut lists = [FreeList::EMPTY; CLASSES + 1];
        while left > 0
            && let Some((_, mut blocks)) = round.chunks.pop_first()
        {
            left = left.saturating_sub(blocks.len());
            blocks.sort_unstable_by_key(|block| block.address());
            for run in blocks.chunk_by(|block, next| block.end() == next.address()) {
                match self.keep_run(run) {
                    true => round.joined_bytes += run[run.len() - 1].end() - run[0].address(),
                    false => run.iter().for_each(|block| self.put_block(*block, &mut lists)),
                }
            }
        }
        for (class, list) in lists.into_iter().enumerate() {
            if list.count > 0 {
                self.put_list(class, list);
            }
        }
    }

    /// Makes a span of neighbours if they are long enough, and of one region: the system may put the next one
    /// right behind it. Returns whether it did.
    fn keep_run(&self, run: &[Block]) -> bool {
        let (start, end) = (run[0].address(), run[run.len() - 1].end());
        if end - start < RUN_BYTES_MIN {
            return false;
        }
        let mut regions = lock(&self.regions);
        let holds_all = |region: NonNull<u8>, bytes: usize| {
            region.addr().get() <= start && end <= region.addr().get() + bytes
        };
        let region = regions.all.iter().find(|(region, layout)| holds_all(*region, layout.size()));
        let Some((region, _)) = region else { return false };
        // From the region's pointer: one that came back with a block may reach no further than the block.
        let start = region.as_ptr().with_addr(start);
        regions.returned.push(Span { start, bytes: end - start.addr() });
        true
    }

    /// Puts a block back, and a list into the depot that is as long as a heap's would be.
    fn put_block(&self, block: Block, lists: &mut [FreeList]) {
        let list = &mut lists[block.class];
        list.push(block.start);
        if list.count >= magazine_blocks(class_bytes(block.class)) {
            self.put_list(block.class, std::mem::replace(list, FreeList::EMPTY));
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use crate::memory::blocks::CLASSED_MAX;
    use crate::memory::{Arena, Heap};
    use shoal_types::Random;
    use std::sync::Arc;

    /// Fills `bytes` with blocks of one size, writes to them, and frees all but one in `keep_one_in`.
    fn fill_and_free(
        heap: &mut Heap,
        size: usize,
        bytes: usize,
        keep_one_in: usize,
    ) -> Vec<(std::ptr::NonNull<u8>, usize)> {
        let mut blocks: Vec<_> = (0..bytes / size)
            .map(|n| {
                let block = heap.allocate(size);
                // SAFETY: fresh.
                unsafe { block.write_bytes(n as u8, size) };
                block
            })
            .collect();
        let mut random = Random::new(size as u64);
        for n in (1..blocks.len()).rev() {
            blocks.swap(n, random.below(n as u64 + 1) as usize);
        }
        let kept = blocks.len().checked_div(keep_one_in).unwrap_or(0);
        for block in blocks.drain(kept..) {
            // SAFETY: ours, given up.
            unsafe { heap.free(block, size) };
        }
        blocks.into_iter().map(|block| (block, size)).collect()
    }

    #[test]
    fn memory_freed_in_one_size_serves_all_others() {
        let arena = Arc::new(Arena::default());
        let mut heap = Heap::new(Arc::clone(&arena));
        let held = 24 << 20;
        for step in 1..=40 {
            fill_and_free(&mut heap, CLASSED_MAX * step / 40, held, 0);
        }
        for size in [32, 72, 64, 4096, 200, 1000] {
            fill_and_free(&mut heap, size, held, 0);
        }
        let taken = arena.region_bytes();
        assert!(taken < 5 * held, "{taken} bytes from the system for {held} at a time");
    }

    #[test]
    fn blocks_in_use_keep_their_bytes_while_their_neighbours_are_joined() {
        let arena = Arc::new(Arena::default());
        let mut heap = Heap::new(Arc::clone(&arena));
        let mut kept = Vec::new();
        for round in 0..30usize {
            let size = 24 + round * 131 % 3000;
            let blocks = fill_and_free(&mut heap, size, 4 << 20, 200);
            for (block, size) in &blocks {
                // SAFETY: held.
                unsafe { block.write_bytes(round as u8, *size) };
            }
            kept.push(blocks);
        }
        for (round, blocks) in kept.into_iter().enumerate() {
            for (block, size) in blocks {
                // SAFETY: held, and given up afterwards.
                unsafe {
                    let bytes = std::slice::from_raw_parts(block.as_ptr(), size);
                    assert!(
                        bytes.iter().all(|byte| *byte == round as u8),
                        "a block in use was given away"
                    );
                    heap.free(block, size);
                }
            }
        }
        drop(heap);
        assert_eq!(arena.bytes(), 0);
    }
}
