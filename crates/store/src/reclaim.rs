//! Reclamation: memory that was unlinked from the shared structures is freed once no reader can still reach it.
//!
//! Readers take no locks, so what a writer unlinks may still be read. A session
//! holds a **guard** while it works (one per transaction, not per read): its slot shows the **era**
//! it began in. What is unlinked waits in the unlinking session's **limbo**, tagged with an era,
//! until no guard from then can be left. (This is epoch-based reclamation, Fraser 2004 §5.2.3; in
//! this project *epoch* is the configuration's number, so here it is called era. The library for it
//! ties its guards to threads; ours belong to sessions, which move between threads with the
//! transaction they serve.)
//!
//! ```text
//! era      7          8          9          10
//! guard    [pin 7 ... unlink X, tag 8 ...]
//! other          [pin 8 ... may still read X ...]
//! X is freed                                 when the era has reached 8 + 2
//! ```
//! Invariants:
//! 1. While a guard shows era p, the era is p or p + 1: it moves on from g only after every slot
//!    was seen idle or showing g.
//! 2. So what is unlinked under a guard of era p is unlinked in era p or p + 1, and is tagged p + 1.
//!    A reader that can still reach it holds a guard of at most p + 1, hence the era is at most p + 2.
//! 3. It is freed when the era has reached tag + 2 = p + 3.
//! 4. A record is found for two eras longer, in the lookup cache (`lookup_cache.rs`), and its tag is greater by as many.

use crate::faults::{StoreBug, StoreBugs};
use crate::index::{Inner, Leaf, Separator};
use crate::lookup_cache::CacheTable;
use crate::memory::{Arena, Heap};
use crate::record::Record;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};
use crate::version::Version;
use crossbeam_utils::CachePadded;
use shoal_types::limits::TRANSACTIONS_OPEN_MAX;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

/// What a slot shows while its session holds no guard. Eras begin at 1.
const IDLE: u64 = 0;

/// A session tries to advance the era when this many entries were added to its limbo since the last try.
const ADVANCE_EVERY: usize = if cfg!(feature = "model") { 1 } else { 64 };
/// The same limit in bytes.
const ADVANCE_BYTES: usize = 64 << 10;

/// A limbo with more entries than this, or too many bytes, is handed to all sessions: its own may rest for long.
const LIMBO_MAX: usize = 16 * ADVANCE_EVERY;
const LIMBO_BYTES_MAX: usize = 4 * ADVANCE_BYTES;
/// Where the store's memory is limited, the limbos of all sessions together stay within this part of
/// it, but for [`LIMBO_BYTES_MIN`] a session: sessions at rest free nothing, and a store that is full
/// of their garbage would refuse every put.
const LIMBO_SHARE: usize = 16;
const LIMBO_BYTES_MIN: usize = 4 << 10;

/// The most handed-over entries that a session frees at a time: more than it adds itself.
const ADOPTED_MAX: usize = 4 * ADVANCE_EVERY;
/// After this many transactions a session frees entries that others handed over, even if it has none of its own: else the garbage would stay once all transactions only read, or fail.
const ADOPT_EVERY: u32 = if cfg!(feature = "model") { 1 } else { 64 };
/// The most entries that a transaction frees at its beginning while the store is short of memory: some 0.5 ms.
const RELIEVED_MAX: usize = 64 * ADVANCE_EVERY;
/// The store is short of memory when handed-over entries take this part of the limit.
const ORPHANS_SHARE: u64 = 8;
/// For how many eras longer the lookup cache may show a record: see invariant 4.
const CACHED_ERAS: u64 = 2;
/// The number of advances of the era until an entry that is unlinked now may be freed: see invariants 3 and 4.
const RIPE_ERAS: usize = 3 + CACHED_ERAS as usize;

/// The eras, and a slot for every session. Shared by all sessions of a store.
pub(crate) struct Eras {
    shared: CachePadded<ReclaimShared>,
    slots: Box<[CachePadded<AtomicU64>]>,
    memory_bytes_max: usize,
    /// The number of slots that were ever used: the others are not searched.
    slots_used: AtomicU64,
    free_slots: Mutex<Vec<usize>>,
    /// Entries of dropped sessions, and of sessions that were blocked for long.
    orphans: Mutex<VecDeque<RetiredBatch>>,
    faults: StoreBugs,
}

/// Fields that every transaction reads at its beginning or end, and few write.
struct ReclaimShared {
    era: AtomicU64,
    /// The size of `orphans` in bytes.
    orphan_bytes: AtomicU64,
    /// 1 since a put was refused for want of memory, until no orphan is left.
    short: AtomicU64,
}

/// An object that no new reader can reach any more, to be freed once no guard from before is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retired {
    Version(NonNull<Version>),
    Record(NonNull<Record>),
    Leaf(NonNull<Leaf>),
    Inner(NonNull<Inner>),
    Separator(NonNull<Separator>),
    CacheTable(NonNull<CacheTable>),
}

struct RetiredBatch {
    tag: u64,
    what: Retired,
}

// SAFETY: what waits belongs to the holder of the entry; any thread may free it.
unsafe impl Send for RetiredBatch {}

impl Retired {
    /// The size of its memory in bytes.
    #[inline]
    fn weight(self) -> usize {
        // SAFETY: what waits is not freed yet.
        unsafe {
            match self {
                Retired::Version(version) => version.as_ref().bytes_taken(),
                Retired::Record(record) => Record::bytes_taken(record),
                Retired::Leaf(_) => size_of::<Leaf>(),
                Retired::Inner(_) => size_of::<Inner>(),
                Retired::Separator(separator) => Separator::bytes_taken(separator),
                Retired::CacheTable(table) => table.as_ref().bytes_taken(),
            }
        }
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// No reader can reach it any more.
    unsafe fn free(self, heap: &mut Heap) {
        // SAFETY: the caller's promise, for each kind.
        unsafe {
            match self {
                Retired::Version(version) => Version::free(version, heap),
                Retired::Record(record) => Record::free(record, heap),
                Retired::Leaf(leaf) => Leaf::free(leaf, heap),
                Retired::Inner(inner) => Inner::free(inner, heap),
                Retired::Separator(separator) => Separator::free(separator, heap),
                Retired::CacheTable(table) => {
                    heap.count(-(table.as_ref().bytes_taken() as i64));
                    CacheTable::free(table);
                }
            }
        }
    }
}

impl RetiredBatch {
    /// Gives the memory back, and the room in the list.
    ///
    /// # Safety
    /// No reader can reach it any more.
    unsafe fn free(self, heap: &mut Heap) {
        // SAFETY: the caller's promise.
        unsafe { self.what.free(heap) };
        heap.count(-(size_of::<RetiredBatch>() as i64));
    }
}

impl Eras {
    /// REQUIRES: `sessions_max` within [`TRANSACTIONS_OPEN_MAX`].
    pub(crate) fn new(sessions_max: usize, memory_bytes_max: usize, faults: StoreBugs) -> Eras {
        assert!(sessions_max <= TRANSACTIONS_OPEN_MAX, "slots for {sessions_max} sessions");
        Eras {
            shared: CachePadded::new(ReclaimShared {
                era: AtomicU64::new(1),
                orphan_bytes: AtomicU64::new(0),
                short: AtomicU64::new(0),
            }),
            memory_bytes_max,
            slots: (0..sessions_max).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect(),
            slots_used: AtomicU64::new(0),
            free_slots: Mutex::new((0..sessions_max).rev().collect()),
            orphans: Mutex::new(VecDeque::new()),
            faults,
        }
    }

    /// The most sessions that can exist at once.
    pub(crate) fn sessions_max(&self) -> usize {
        self.slots.len()
    }

    /// The store refused a put for lack of memory: from now on transactions begin by freeing what they can.
    pub(crate) fn fall_short(&self) {
        self.shared.short.store(1, Ordering::Relaxed);
    }

    /// Whether memory is so short that a transaction should free some before it begins.
    #[inline]
    fn is_short(&self) -> bool {
        let heavy = (self.memory_bytes_max as u64 / ORPHANS_SHARE).max(1);
        self.shared.orphan_bytes.load(Ordering::Relaxed) >= heavy
            || self.shared.short.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn has_orphans(&self) -> bool {
        self.shared.orphan_bytes.load(Ordering::Relaxed) != 0
    }

    /// The most bytes that may wait in a limbo.
    fn limbo_bytes_max(&self) -> usize {
        let sessions = self.slots_used.load(Ordering::Relaxed).max(1) as usize;
        let share = self.memory_bytes_max / LIMBO_SHARE / sessions;
        share.clamp(LIMBO_BYTES_MIN, LIMBO_BYTES_MAX)
    }

    /// Advances the era if every guard shows the present one. Returns the era.
    fn advance(&self) -> u64 {
        let era = self.shared.era.load(Ordering::Relaxed);
        // Orders the load above before the slots below, against the fence in `pin`.
        fence(Ordering::SeqCst);
        let used = self.slots_used.load(Ordering::Acquire) as usize;
        for slot in &self.slots[..used] {
            let shown = slot.load(Ordering::Acquire);
            if shown != IDLE && shown != era {
                return era;
            }
        }
        let next =
            self.shared.era.compare_exchange(era, era + 1, Ordering::AcqRel, Ordering::Acquire);
        next.map_or_else(|newer| newer, |era| era + 1)
    }

    /// Frees all handed-over entries.
    ///
    /// # Safety
    /// No session is left.
    pub(crate) unsafe fn free_orphans(&self, heap: &mut Heap) {
        for waiting in lock(&self.orphans).drain(..) {
            // SAFETY: without sessions there is no guard.
            unsafe { waiting.free(heap) };
        }
    }
}

/// One session's slot, limbo and heap.
pub(crate) struct Memory {
    eras: Arc<Eras>,
    slot: usize,
    /// The era the slot shows, or `IDLE`.
    pinned: u64,
    limbo: VecDeque<RetiredBatch>,
    limbo_bytes: usize,
    /// How long and how heavy the limbo may grow before the next try to move the era on.
    advance_at: usize,
    advance_at_bytes: usize,
    /// The number of transactions until the session frees entries that others handed over.
    adopt_in: u32,
    pub(crate) heap: Heap,
}

impl Memory {
    /// Takes a slot; `None` if all are taken.
    pub(crate) fn new(eras: &Arc<Eras>, arena: &Arc<Arena>) -> Option<Memory> {
        let slot = lock(&eras.free_slots).pop()?;
        eras.slots_used.fetch_max(slot as u64 + 1, Ordering::AcqRel);
        Some(Memory {
            eras: Arc::clone(eras),
            slot,
            pinned: IDLE,
            limbo: VecDeque::new(),
            limbo_bytes: 0,
            advance_at: ADVANCE_EVERY,
            advance_at_bytes: ADVANCE_BYTES.min(eras.limbo_bytes_max()),
            adopt_in: ADOPT_EVERY,
            heap: Heap::new(Arc::clone(arena)),
        })
    }

    /// Whether the session holds its guard.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned != IDLE
    }

    /// Takes the guard: from here on, nothing reachable is freed until [`unpin`](Memory::unpin).
    pub(crate) fn pin(&mut self) {
        assert_eq!(self.pinned, IDLE, "a session holds one guard at a time");
        if self.eras.is_short() {
            self.relieve(&|| false);
        }
        let slot = &self.eras.slots[self.slot];
        let mut era = self.eras.shared.era.load(Ordering::Relaxed);
        loop {
            // Release: a thread that sees this guard has seen the end of the one before.
            slot.store(era, Ordering::Release);
            // Either `advance` sees the slot, or the load below sees the era it moved to.
            fence(Ordering::SeqCst);
            let now = self.eras.shared.era.load(Ordering::Acquire);
            if now == era || self.eras.faults.has(StoreBug::PinWithoutSecondLook) {
                break;
            }
            era = now;
        }
        self.pinned = era;
    }

    /// Gives the guard back, and frees what may be freed.
    pub(crate) fn unpin(&mut self) {
        assert_ne!(self.pinned, IDLE, "gave back a guard it did not hold");
        self.pinned = IDLE;
        self.eras.slots[self.slot].store(IDLE, Ordering::Release);
        self.adopt_in = self.adopt_in.wrapping_sub(1);
        let adopts = self.adopt_in == 0 && {
            self.adopt_in = ADOPT_EVERY;
            self.eras.has_orphans()
        };
        if adopts
            || self.limbo.len() >= self.advance_at
            || self.limbo_bytes >= self.advance_at_bytes
        {
            self.collect();
        }
    }

    /// Frees what it can, of its own limbo and of what was handed over, until `enough`; at most
    /// [`RELIEVED_MAX`] of the latter. Under a guard that is only what was unlinked before it.
    #[cold]
    #[inline(never)]
    pub(crate) fn relieve(&mut self, enough: &dyn Fn() -> bool) {
        let mut left = RELIEVED_MAX;
        for _ in 0..RIPE_ERAS {
            let era = self.eras.advance();
            self.free_ripe(era);
            while left > 0 && !enough() {
                let freed = self.adopt_orphans(era);
                // `enough` sees the total, not what this session has yet to add to it.
                self.heap.fold();
                if freed == 0 {
                    break;
                }
                left = left.saturating_sub(freed);
            }
        }
        self.heap.fold();
        if !self.eras.has_orphans() {
            self.eras.shared.short.store(0, Ordering::Relaxed);
        }
    }

    /// Hands over what was just unlinked.
    ///
    /// REQUIRES: under the guard; no new reader can find it.
    pub(crate) fn retire(&mut self, what: Retired) {
        assert_ne!(self.pinned, IDLE, "unlinked {what:?} without a guard");
        if self.eras.faults.has(StoreBug::FreeTooEarly) {
            // SAFETY: none, that is the planted bug.
            unsafe { what.free(&mut self.heap) };
            return;
        }
        self.limbo_bytes += what.weight();
        self.heap.count(size_of::<RetiredBatch>() as i64);
        let early = self.eras.faults.has(StoreBug::TagTooEarly);
        let cached = if matches!(what, Retired::Record(_)) { CACHED_ERAS } else { 0 };
        let tag = cached + if early { self.pinned } else { self.pinned + 1 };
        self.limbo.push_back(RetiredBatch { tag, what });
    }

    #[cold]
    fn collect(&mut self) {
        let mut era = self.eras.advance();
        self.free_ripe(era);
        // What is heavy goes at once, if no guard is in the way: see invariant 3.
        for _ in 0..2 {
            if self.limbo_bytes >= ADVANCE_BYTES {
                era = self.eras.advance();
                self.free_ripe(era);
            }
        }
        if self.eras.has_orphans() {
            self.adopt_orphans(era);
        }
        let limbo_bytes_max = self.eras.limbo_bytes_max();
        if self.limbo.len() >= LIMBO_MAX || self.limbo_bytes >= limbo_bytes_max {
            self.hand_over();
        }
        self.advance_at = self.limbo.len() + ADVANCE_EVERY;
        self.advance_at_bytes = (self.limbo_bytes + ADVANCE_BYTES).min(limbo_bytes_max);
    }

    fn free_ripe(&mut self, era: u64) {
        while let Some(waiting) = pop_ripe(&mut self.limbo, era) {
            self.limbo_bytes -= waiting.what.weight();
            // SAFETY: invariant 3.
            unsafe { waiting.free(&mut self.heap) };
        }
    }

    /// Frees entries of other sessions that no reader can reach, at most [`ADOPTED_MAX`]. Returns their number.
    fn adopt_orphans(&mut self, era: u64) -> usize {
        let mut orphans = lock(&self.eras.orphans);
        let (mut freed, mut bytes) = (0, 0);
        while freed < ADOPTED_MAX
            && let Some(waiting) = pop_ripe(&mut orphans, era)
        {
            freed += 1;
            bytes += waiting.what.weight();
            // SAFETY: invariant 3, which holds whichever session frees.
            unsafe { waiting.free(&mut self.heap) };
        }
        // Under the lock, so that the sum is that of the list.
        self.eras.shared.orphan_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        freed
    }

    /// Hands the limbo's entries over to all sessions.
    fn hand_over(&mut self) {
        let mut orphans = lock(&self.eras.orphans);
        orphans.extend(self.limbo.drain(..));
        self.eras.shared.orphan_bytes.fetch_add(self.limbo_bytes as u64, Ordering::Relaxed);
        self.limbo_bytes = 0;
    }
}

/// The first entry, if no reader can reach it any more.
fn pop_ripe(waiting: &mut VecDeque<RetiredBatch>, era: u64) -> Option<RetiredBatch> {
    waiting.front().filter(|first| first.tag + 2 <= era)?;
    waiting.pop_front()
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.pinned != IDLE {
            self.unpin();
        }
        self.collect();
        self.hand_over();
        lock(&self.eras.free_slots).push(self.slot);
    }
}
