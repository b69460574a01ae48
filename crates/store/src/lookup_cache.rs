//! The lookup cache: a hash table from keys to records, beside the index.
//!
//! A lookup in the index goes down some five levels, and on data larger than the processor's caches it waits for the last
//! of them one after the other. A key that was looked up before is found here by the hash that its transaction computes in
//! any case: one wait for a bucket, and one for the record.
//!
//! ```text
//! bucket:  eight entries, a cache line
//! entry:   | tag 19 | address of a record, without its three lowest bits 45 |    null: empty
//! hash:    | tag: bits 13 to 31 | bucket: the lowest bits, as many as there are |    of the upper half of the hash
//! ```
//! It is a cache: an entry may be missing or be evicted at any time, and the index decides what exists. A record that is
//! found here is treated like one that the index returned, placeholders and dead ones included; an absent key is never
//! found here. Keys come in with a lookup in the index, and their neighbours in the leaf with them.
//!
//! It grows when entries find no room. The new table is published at once, and is filled from the old one a few buckets at a
//! time, with each entry that is added; until that is done, a lookup that misses the new table looks at the old one.
//! From 2¹³ buckets on the tag has what the number of a bucket lacks, so that no key has to be looked at for that; smaller
//! tables are not copied.
//!
//! Concurrency. A record that leaves the index is killed first, and then removed here ([`LookupCache::remove`]); an entry
//! is added first, and then the record is looked at: a dead one is removed again. So one of the two sees the other. Likewise an
//! entry that is copied is removed again where the original is not there any more. `remove` begins with the old table, and
//! begins again where the tables have changed meanwhile.
//!
//! Invariant: an entry of a record that was removed is found only while the session holds its guard that added it, having met
//! the record in the index, or the session that copied it meanwhile. So the guards under which it is found are at most two eras younger
//! than those that could find it in the index: records wait two eras longer (`reclaim.rs`).

use crate::faults::{StoreBug, StoreBugs};
use crate::guarded::Guarded;
use crate::memory::{Arena, Heap, prefetch, zeroed_slice};
use crate::record::Record;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, fence};
use crossbeam_utils::CachePadded;
use shoal_types::TableId;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Entries of a bucket. One under the permutation tester, where each is an access to order.
const SLOTS: usize = if cfg!(feature = "model") { 1 } else { 8 };
/// Bits of the number of a bucket in the first table.
const FIRST_BITS: u32 = if cfg!(feature = "model") { 1 } else { 4 };
/// The bits of a hash below its tag: tables with fewer buckets are not copied.
const TAG_SHIFT: u32 = if cfg!(feature = "model") { 1 } else { 13 };
/// More would leave a tag too short.
const BITS_MAX: u32 = 26;
/// Where an entry's tag begins.
const ENTRY_TAG_SHIFT: u32 = 45;
const ENTRY_ADDRESS: usize = (1 << ENTRY_TAG_SHIFT) - 1;
/// Records are aligned to this many bits.
const ALIGN_BITS: u32 = 3;
/// Buckets that are copied with each entry that is added.
const COPIED_AT_ONCE: u64 = if cfg!(feature = "model") { 1 } else { 8 };
/// A table takes at most this part of the store's memory, unless it is small.
const MEMORY_SHARE: usize = 4;
const SMALL_BYTES: usize = 16 << 10;
/// How much of what follows a record is brought near with it: its first version, as a rule.
const PREFETCH_BYTES: usize = 129;

const _: () = assert!(align_of::<Record>() >= 1 << ALIGN_BITS);
const _: () = assert!(usize::BITS == 64, "an entry is a tag and an address of 48 bits");

/// The cache of one store.
pub(crate) struct LookupCache {
    /// Null until the first entry.
    newest: AtomicPtr<CacheTable>,
    arena: Arc<Arena>,
    memory_bytes_max: usize,
    faults: StoreBugs,
}

/// One table of a [`LookupCache`].
pub(crate) struct CacheTable {
    buckets: Box<[Bucket]>,
    bits: u32,
    progress: CachePadded<Progress>,
}

/// What changes of a table beside its entries; seldom, once it is filled.
struct Progress {
    /// The table before this one, until its entries are copied.
    older: AtomicPtr<CacheTable>,
    /// Buckets of the older table that threads have begun to copy, and that are copied.
    begun: AtomicU64,
    copied: AtomicU64,
    /// Entries that found no room.
    overflows: AtomicU64,
    /// Whether it grows: `OPEN`, `GROWN` or `REFUSED`.
    growth: AtomicU64,
}

/// The table has not become too small yet.
const OPEN: u64 = 0;
/// A thread makes the next table.
const GROWN: u64 = 1;
/// There was no memory for the next one. It is asked for again after as many overflows.
const REFUSED: u64 = 2;

#[repr(align(64))]
struct Bucket {
    entries: [AtomicPtr<Record>; SLOTS],
}

/// The result of adding an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Added {
    There,
    New,
    NoRoom,
}

/// What of the hash of a key the cache uses: its upper half is spread well (`transaction/hash.rs`).
fn upper(hash: u64) -> u64 {
    hash >> 32
}

fn tag(hash: u64) -> usize {
    (upper(hash) >> TAG_SHIFT) as usize & (usize::MAX >> ENTRY_TAG_SHIFT)
}

/// The entry of a record; `None` where its address is too long for one.
fn entry(hash: u64, record: NonNull<Record>) -> Option<*mut Record> {
    let address = record.addr().get() >> ALIGN_BITS;
    (address <= ENTRY_ADDRESS)
        .then(|| record.as_ptr().map_addr(|_| address | tag(hash) << ENTRY_TAG_SHIFT))
}

/// The record of an entry.
#[inline]
fn record_of(entry: *mut Record) -> Option<NonNull<Record>> {
    NonNull::new(entry.map_addr(|entry| (entry & ENTRY_ADDRESS) << ALIGN_BITS))
}

impl Bucket {
    /// A record whose tag is that of the key; seldom another key's.
    #[inline]
    fn find(&self, tag: usize) -> Option<NonNull<Record>> {
        let mut found = ptr::null_mut();
        for entry in &self.entries {
            let entry = entry.load(Ordering::Acquire);
            found = std::hint::select_unpredictable(
                entry.addr() >> ENTRY_TAG_SHIFT == tag && !entry.is_null(),
                entry,
                found,
            );
        }
        record_of(found)
    }

    /// Adds an entry, in place of another if it has to and may.
    fn add(&self, entry: *mut Record, evict: bool) -> Added {
        let mut free = None;
        for slot in &self.entries {
            let there = slot.load(Ordering::SeqCst);
            if there == entry {
                return Added::There;
            }
            if there.is_null() {
                free = free.or(Some(slot));
            }
        }
        match free {
            Some(slot) => {
                slot.store(entry, Ordering::SeqCst);
                Added::New
            }
            None if evict => {
                let victim = (entry.addr() >> ENTRY_TAG_SHIFT) % SLOTS;
                self.entries[victim].store(entry, Ordering::SeqCst);
                Added::NoRoom
            }
            None => Added::NoRoom,
        }
    }

    fn remove(&self, entry: *mut Record) {
        for slot in &self.entries {
            if slot.load(Ordering::SeqCst) == entry {
                // Where another entry came meanwhile, this one is gone.
                let _ = slot.compare_exchange(
                    entry,
                    ptr::null_mut(),
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                );
            }
        }
    }
}

impl CacheTable {
    fn new(bits: u32, older: *mut CacheTable) -> CacheTable {
        let progress = Progress {
            older: AtomicPtr::new(older),
            begun: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
            growth: AtomicU64::new(OPEN),
        };
        let empty = || Bucket { entries: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) };
        // SAFETY: outside of the permutation tester a bucket is eight null pointers.
        let buckets = unsafe { zeroed_slice(1 << bits, empty) };
        CacheTable { buckets, bits, progress: CachePadded::new(progress) }
    }

    /// # Safety
    /// The caller holds a guard during `'g`.
    unsafe fn older<'g>(&self) -> Option<Guarded<'g, CacheTable>> {
        // SAFETY: it is retired when its entries are copied, so the guard keeps it.
        unsafe { Guarded::at(self.progress.older.load(Ordering::SeqCst)) }
    }

    fn bytes_of(bits: u32) -> usize {
        size_of::<CacheTable>() + (size_of::<Bucket>() << bits)
    }

    /// The memory it takes.
    pub(crate) fn bytes_taken(&self) -> usize {
        Self::bytes_of(self.bits)
    }

    /// Frees a table.
    ///
    /// # Safety
    /// No reader can reach it any more.
    pub(crate) unsafe fn free(table: NonNull<CacheTable>) {
        // SAFETY: made by `Box::new`; and the caller's promise.
        drop(unsafe { Box::from_raw(table.as_ptr()) });
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &Bucket {
        &self.buckets[upper(hash) as usize & (self.buckets.len() - 1)]
    }

    /// Copies some of the older table's buckets. Returns whether all are copied, to the one thread that copied the last.
    fn copy_some(&self, older: &CacheTable, faults: StoreBugs) -> bool {
        let all = older.buckets.len() as u64;
        let from = self.progress.begun.fetch_add(COPIED_AT_ONCE, Ordering::SeqCst);
        if from >= all {
            return false;
        }
        let until = all.min(from + COPIED_AT_ONCE);
        for at in from as usize..until as usize {
            older.buckets[at].entries.iter().for_each(|slot| self.copy(older, at, slot, faults));
        }
        self.progress.copied.fetch_add(until - from, Ordering::SeqCst) + (until - from) == all
    }

    fn copy(&self, older: &CacheTable, at: usize, slot: &AtomicPtr<Record>, faults: StoreBugs) {
        let entry = slot.load(Ordering::SeqCst);
        if entry.is_null() {
            return;
        }
        // The bits of the new number that the old one lacks are the tag's.
        let tag = entry.addr() >> ENTRY_TAG_SHIFT;
        let number = at | (tag >> (older.bits - TAG_SHIFT)) << older.bits;
        let bucket = &self.buckets[number & (self.buckets.len() - 1)];
        if bucket.add(entry, false) == Added::New {
            fence(Ordering::SeqCst);
            if slot.load(Ordering::SeqCst) != entry && !faults.has(StoreBug::CopyUnchecked) {
                bucket.remove(entry);
            }
        }
    }
}

impl LookupCache {
    pub(crate) fn new(
        arena: &Arc<Arena>,
        memory_bytes_max: usize,
        faults: StoreBugs,
    ) -> LookupCache {
        let (newest, arena) = (AtomicPtr::new(ptr::null_mut()), Arc::clone(arena));
        LookupCache { newest, arena, memory_bytes_max, faults }
    }

    /// # Safety
    /// The caller holds a guard during `'g`.
    #[inline]
    unsafe fn newest<'g>(&self) -> Option<Guarded<'g, CacheTable>> {
        // SAFETY: a table is retired when it is replaced, so the guard keeps it.
        unsafe { Guarded::at(self.newest.load(Ordering::SeqCst)) }
    }

    /// Asks for the bucket of a key.
    ///
    /// # Safety
    /// The caller holds a guard, for as long as it uses what it is given; so for all that follow.
    #[inline]
    pub(crate) unsafe fn prefetch(&self, hash: u64) {
        // SAFETY: the caller's promise.
        if let Some(table) = unsafe { self.newest() } {
            prefetch(ptr::from_ref(table.bucket(hash)), 1);
        }
    }

    /// A record that is probably that of the key, which is not looked at; and asks for it.
    ///
    /// # Safety
    /// As for [`prefetch`](LookupCache::prefetch).
    #[inline]
    pub(crate) unsafe fn likely(&self, hash: u64) -> Option<NonNull<Record>> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.newest() }?.bucket(hash).find(tag(hash))?;
        prefetch(found.as_ptr(), PREFETCH_BYTES);
        Some(found)
    }

    /// The record of a key, if there is an entry. It may be dying.
    ///
    /// # Safety
    /// As for [`prefetch`](LookupCache::prefetch).
    #[inline]
    pub(crate) unsafe fn find(
        &self,
        hash: u64,
        table: TableId,
        key: &[u8],
    ) -> Option<NonNull<Record>> {
        // SAFETY: the caller's promise; so for all below.
        let found = unsafe { self.likely(hash) };
        // SAFETY: as above.
        found.filter(|record| unsafe { Record::is_live(*record, table, key) })
    }

    /// The same in the table that is being replaced.
    ///
    /// # Safety
    /// As for [`prefetch`](LookupCache::prefetch).
    pub(crate) unsafe fn find_older(
        &self,
        hash: u64,
        table: TableId,
        key: &[u8],
    ) -> Option<NonNull<Record>> {
        // SAFETY: the caller's promise; so for all below.
        let older = unsafe { self.newest()?.older() }?;
        let found = older.bucket(hash).find(tag(hash));
        // SAFETY: as above.
        found.filter(|record| unsafe { Record::is_live(*record, table, key) })
    }

    /// Whether there is an entry of the record.
    ///
    /// # Safety
    /// As for [`prefetch`](LookupCache::prefetch).
    pub(crate) unsafe fn has(&self, hash: u64, record: NonNull<Record>) -> bool {
        // SAFETY: the caller's promise.
        let table = unsafe { self.newest() };
        table.is_some_and(|table| table.bucket(hash).find(tag(hash)) == Some(record))
    }

    /// Whether there may be room for entries that were not asked for.
    ///
    /// # Safety
    /// As for [`prefetch`](LookupCache::prefetch).
    pub(crate) unsafe fn has_room(&self) -> bool {
        // SAFETY: the caller's promise.
        let table = unsafe { self.newest() };
        table.is_none_or(|table| table.progress.growth.load(Ordering::Relaxed) != REFUSED)
    }

    /// Adds an entry; in place of another only where `evict` says so. Returns a table to retire, if one was replaced.
    ///
    /// # Safety
    /// As for [`prefetch`](LookupCache::prefetch); `record` is that of a key with this hash, and was found in the index under
    /// this guard.
    pub(crate) unsafe fn add(
        &self,
        hash: u64,
        record: NonNull<Record>,
        evict: bool,
        heap: &mut Heap,
    ) -> Option<NonNull<CacheTable>> {
        let entry = entry(hash, record)?;
        // SAFETY: the caller's promise; so for all below.
        let Some(table) = (unsafe { self.newest() }) else {
            return self.grow(None, heap);
        };
        let added = table.bucket(hash).add(entry, evict);
        if added != Added::There {
            fence(Ordering::SeqCst);
            // Either this sees that the record is dead, or `remove` sees the entry.
            // SAFETY: as above.
            if unsafe { record.as_ref() }.word().is_dead()
                && !self.faults.has(StoreBug::DeadIsCached)
            {
                table.bucket(hash).remove(entry);
                // SAFETY: as above.
                unsafe { self.remove(hash, record) };
            }
        }
        if added == Added::NoRoom {
            let overflows = table.progress.overflows.fetch_add(1, Ordering::Relaxed) + 1;
            if overflows >= (table.buckets.len() as u64).div_ceil(4) {
                let replaced = self.grow(Some(table), heap);
                if replaced.is_some() {
                    return replaced;
                }
            }
        }
        // SAFETY: as above.
        unsafe { self.copy_some() }
    }

    /// Copies some entries of the table that is being replaced, if there is one. Returns it, to be retired, with the last.
    ///
    /// # Safety
    /// As for [`prefetch`](LookupCache::prefetch).
    pub(crate) unsafe fn copy_some(&self) -> Option<NonNull<CacheTable>> {
        // SAFETY: the caller's promise; so for the older one.
        let table = unsafe { self.newest() }?;
        // SAFETY: as above.
        let older = unsafe { table.older() }?;
        if !table.copy_some(&older, self.faults) {
            return None;
        }
        table.progress.older.store(ptr::null_mut(), Ordering::SeqCst);
        Some(older.pointer())
    }

    /// Removes the entries of a record.
    ///
    /// # Safety
    /// As for [`prefetch`](LookupCache::prefetch); the record is dead.
    pub(crate) unsafe fn remove(&self, hash: u64, record: NonNull<Record>) {
        let Some(entry) = entry(hash, record) else { return };
        if self.faults.has(StoreBug::CachedWhenRemoved) {
            return;
        }
        loop {
            fence(Ordering::SeqCst);
            // SAFETY: the caller's promise; so for all below.
            let Some(table) = (unsafe { self.newest() }) else { return };
            // SAFETY: as above.
            if let Some(older) = unsafe { table.older() } {
                older.bucket(hash).remove(entry);
            }
            fence(Ordering::SeqCst);
            table.bucket(hash).remove(entry);
            if self.newest.load(Ordering::SeqCst) == table.pointer().as_ptr() {
                return;
            }
        }
    }

    /// Puts a larger table in front of `full`, unless another thread does, or there is no room. Returns `full` where it is
    /// not copied, to be retired.
    #[cold]
    fn grow(
        &self,
        full: Option<Guarded<'_, CacheTable>>,
        heap: &mut Heap,
    ) -> Option<NonNull<CacheTable>> {
        let bits = match full {
            None => FIRST_BITS,
            Some(full) if full.bits < TAG_SHIFT => full.bits + 2,
            Some(full) => full.bits + 1,
        };
        if let Some(full) = full
            && !self.may_grow(&full, bits)
        {
            return None;
        }
        let before = full.map_or(ptr::null_mut(), |full| full.pointer().as_ptr());
        let is_copied = full.is_some_and(|full| full.bits >= TAG_SHIFT);
        let older = if is_copied { before } else { ptr::null_mut() };
        let made = Box::into_raw(Box::new(CacheTable::new(bits, older)));
        let swap = self.newest.compare_exchange(before, made, Ordering::SeqCst, Ordering::Relaxed);
        if swap.is_err() {
            // SAFETY: made above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(made) });
            return None;
        }
        heap.count(CacheTable::bytes_of(bits) as i64);
        full.filter(|_| !is_copied).map(Guarded::pointer)
    }

    /// Whether this thread is to replace a full table by one of so many bits.
    fn may_grow(&self, full: &CacheTable, bits: u32) -> bool {
        let Progress { older, overflows, growth, .. } = &*full.progress;
        // Where it is being filled, there is time until that is done.
        if !older.load(Ordering::SeqCst).is_null() || growth.swap(GROWN, Ordering::SeqCst) == GROWN
        {
            return false;
        }
        let (bytes, taken) = (CacheTable::bytes_of(bits), self.arena.bytes());
        let fits = bytes <= (taken / MEMORY_SHARE).max(SMALL_BYTES)
            && taken.saturating_add(bytes) <= self.memory_bytes_max
            && bits <= BITS_MAX;
        if !fits {
            overflows.store(0, Ordering::Relaxed);
            growth.store(REFUSED, Ordering::SeqCst);
        }
        fits
    }

    /// Asserts, in tests, that no entry is that of a record that was removed. Freed records are looked at, which are still
    /// memory of the store.
    ///
    /// # Safety
    /// No session is left, and the records in the index are not freed.
    unsafe fn assert_invariant(&self, table: &CacheTable) {
        for entry in table.buckets.iter().flat_map(|bucket| &bucket.entries) {
            // SAFETY: the caller's promise.
            let is_removed = |record: NonNull<Record>| unsafe { Record::is_removed(record) };
            let removed = record_of(entry.load(Ordering::SeqCst)).is_some_and(is_removed);
            assert!(!removed, "the lookup cache has a record that was removed");
        }
    }

    /// Frees the tables.
    ///
    /// # Safety
    /// No session is left, and the records in the index are not freed.
    pub(crate) unsafe fn tear_down(&self, heap: &mut Heap) {
        let mut next = self.newest.load(Ordering::SeqCst);
        while let Some(table) = NonNull::new(next) {
            // SAFETY: the caller's promise.
            unsafe {
                if cfg!(any(debug_assertions, feature = "faults")) {
                    self.assert_invariant(table.as_ref());
                }
                next = table.as_ref().progress.older.load(Ordering::SeqCst);
                heap.count(-(table.as_ref().bytes_taken() as i64));
                CacheTable::free(table);
            }
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::store::{Options, Store};

    const KEYS: u64 = 150_000;

    fn key(number: u64) -> [u8; 8] {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
    }

    fn filled(options: Options) -> (Arc<Store>, TableId) {
        let store = Arc::new(Store::new(options));
        let table = store.table("t").expect("a table");
        let mut session = store.session().expect("a session");
        for first in (0..KEYS).step_by(1000) {
            let tx = session.begin();
            for number in first..first + 1000 {
                tx.put(table, &key(number), &[7; 100]).expect("within limits");
            }
            tx.commit().expect("no other transaction runs");
        }
        (store, table)
    }

    /// How many of the keys have an entry.
    fn cached(store: &Arc<Store>, table: TableId) -> u64 {
        let mut session = store.session().expect("a session");
        let tx = session.begin();
        let has_entry = |number: &u64| {
            let key = key(*number);
            let hash = store.hash_keys.hash(table, &key);
            // SAFETY: the transaction holds a guard.
            unsafe { store.lookup_cache.find(hash, table, &key) }.is_some()
        };
        let cached = (0..KEYS).filter(has_entry).count() as u64;
        drop(tx);
        cached
    }

    fn look_all_up(store: &Arc<Store>, table: TableId) {
        let mut session = store.session().expect("a session");
        for number in 0..KEYS {
            let tx = session.begin();
            assert!(tx.get(table, &key(number)).expect("within limits").is_some());
        }
    }

    #[test]
    fn it_grows_until_what_is_looked_up_has_room() {
        let (store, table) = filled(Options::default());
        assert_eq!(cached(&store, table), 0, "nothing was looked up");
        look_all_up(&store, table);
        look_all_up(&store, table);
        let cached = cached(&store, table);
        assert!(cached >= KEYS * 95 / 100, "{cached} of {KEYS} keys have an entry");
        let newest = store.lookup_cache.newest.load(Ordering::SeqCst);
        // SAFETY: no table is replaced meanwhile.
        let bits = unsafe { (*newest).bits };
        assert!(bits > TAG_SHIFT, "tables of 2^{bits} buckets are not copied");
    }

    #[test]
    fn it_takes_no_more_than_its_share_of_a_limited_memory() {
        let all = filled(Options::default()).0.memory_bytes();
        let limited = Options { memory_bytes_max: all + (256 << 10), ..Options::default() };
        let (store, table) = filled(limited);
        look_all_up(&store, table);
        look_all_up(&store, table);
        assert!(store.memory_bytes() <= all + (256 << 10), "more memory than allowed");
        assert!(cached(&store, table) > 0, "there is room for some entries");
    }

    #[test]
    fn a_record_that_leaves_the_index_leaves_no_entry() {
        let (store, table) = filled(Options::default());
        look_all_up(&store, table);
        let mut session = store.session().expect("a session");
        for number in 0..KEYS {
            let tx = session.begin();
            tx.delete(table, &key(number)).expect("within limits");
            tx.commit().expect("no other transaction runs");
        }
        let newest = store.lookup_cache.newest.load(Ordering::SeqCst);
        // SAFETY: no table is replaced meanwhile.
        let table = unsafe { &*newest };
        let entries = table.buckets.iter().flat_map(|bucket| &bucket.entries);
        let left = entries.filter(|entry| !entry.load(Ordering::SeqCst).is_null());
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn an_entry_has_all_bits_of_its_record_and_of_its_tag() {
        let mut bytes = [0u64; 2];
        let record = NonNull::from(&mut bytes).cast::<Record>();
        for hash in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let entry = entry(hash, record).expect("a short address");
            assert_eq!(record_of(entry), Some(record));
            assert_eq!(entry.addr() >> ENTRY_TAG_SHIFT, tag(hash));
        }
    }
}
