//! A record: a key, and one word that guards and leads to its versions.
//!
//! ```text
//! | word 8 | table 2 | key length 2 | key … |
//! word: | address of the newest version, or null | marked 1 | dead 1 | locked 1 |
//! ```
//! Silo keeps a lock-and-TID word beside the data, and a reader reads word, data, word (SOSP'13
//! §4.5). Here versions never change, and a reader's guard keeps the one it read from being freed
//! and its address from being used again; so the address itself identifies the version, one load
//! reads lock and version together, and validation is one comparison. The TID is the version's
//! stamp.
//!
//! A record without a version is a **placeholder**: a transaction that inserts the key put it into
//! the index before it locked it. A **dead** record has left the index, or is leaving it under the
//! leaf's latch; a transaction that finds one looks the key up
//! again. A **marked** record stands in a queue of chains that are to be cut (`trim.rs`).
//!
//! Invariants: only the holder of the lock replaces the version, marks the record and takes the mark off; a dead record stays
//! dead; only an unlocked record without a mark whose newest version is a tombstone, or that has none, dies.

use crate::memory::Heap;
use crate::sync::{AtomicPtr, Ordering, spin_loop};
use crate::version::Version;
use shoal_types::{KeyExcerpt, TableId};
use std::ptr::{self, NonNull};

const LOCKED: usize = 1;
const DEAD: usize = 2;
const MARKED: usize = 4;

/// How long a writer waits for a lock: longer than any certification takes, unless its thread was
/// interrupted, and then waiting would only waste time.
const LOCK_SPINS: u32 = 256;

/// A key, and the word that guards it and leads to its newest version.
#[repr(C, align(8))]
pub(crate) struct Record {
    word: AtomicPtr<Version>,
    table: u16,
    key_bytes: u16,
}

/// The value of a record's word at one instant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(*mut Version);

/// Why a record could not be locked.
pub(crate) enum LockError {
    /// Another transaction has the record locked.
    Held,
    /// The record has left the index; the key has to be looked up again.
    Dead,
}

impl Word {
    /// The newest version, or `None` for a placeholder.
    #[inline]
    pub(crate) fn version(self) -> *mut Version {
        self.0.map_addr(|address| address & !(LOCKED | DEAD | MARKED))
    }

    #[inline]
    pub(crate) fn is_locked(self) -> bool {
        self.0.addr() & LOCKED != 0
    }

    #[inline]
    pub(crate) fn is_dead(self) -> bool {
        self.0.addr() & DEAD != 0
    }

    /// Whether the record stands in a queue.
    #[inline]
    pub(crate) fn is_marked(self) -> bool {
        self.0.addr() & MARKED != 0
    }
}

impl Record {
    /// A placeholder that no other transaction can see yet.
    ///
    /// # Panics
    /// If the key is longer than the limit, which the caller has checked.
    pub(crate) fn allocate(heap: &mut Heap, table: TableId, key: &[u8]) -> NonNull<Record> {
        let key_bytes = u16::try_from(key.len()).expect("the key's length was checked");
        let table = u16::try_from(table.0).expect("TABLES_MAX fits 16 bits");
        let record = heap.allocate(Self::bytes(key.len())).cast::<Record>();
        // SAFETY: fresh, aligned, and long enough for the header and the key behind it.
        unsafe {
            record.write(Record { word: AtomicPtr::new(ptr::null_mut()), table, key_bytes });
            ptr::copy_nonoverlapping(key.as_ptr(), Self::key_start(record), key.len());
        }
        record
    }

    /// Gives the memory of the record, not of its versions, back.
    ///
    /// # Safety
    /// No reader can reach it any more.
    pub(crate) unsafe fn free(record: NonNull<Record>, heap: &mut Heap) {
        // SAFETY: allocated above with this size, and unreachable now.
        unsafe {
            let size = Self::bytes(usize::from(record.as_ref().key_bytes));
            heap.free(record.cast(), size);
        }
    }

    /// The memory it takes, without its versions.
    ///
    /// # Safety
    /// It is not freed yet.
    pub(crate) unsafe fn bytes_taken(record: NonNull<Record>) -> usize {
        // SAFETY: the caller's promise.
        Self::bytes(usize::from(unsafe { record.as_ref() }.key_bytes))
    }

    /// The header ends where `key_bytes` does; the key begins there, without padding.
    const KEY_OFFSET: usize = std::mem::offset_of!(Record, key_bytes) + size_of::<u16>();

    fn bytes(key_bytes: usize) -> usize {
        (Self::KEY_OFFSET + key_bytes).next_multiple_of(8).max(size_of::<Record>())
    }

    fn key_start(record: NonNull<Record>) -> *mut u8 {
        // SAFETY: inside the block.
        unsafe { record.as_ptr().cast::<u8>().add(Self::KEY_OFFSET) }
    }

    /// The key.
    ///
    /// # Safety
    /// `record` was allocated here and cannot be freed during `'a`.
    #[inline]
    pub(crate) unsafe fn key<'a>(record: NonNull<Record>) -> &'a [u8] {
        // SAFETY: `allocate` wrote that many bytes there; they never change. The pointer, not a
        // reference to the header, is used, because the key lies beyond the header.
        unsafe {
            let length = usize::from(record.as_ref().key_bytes);
            std::slice::from_raw_parts(Self::key_start(record), length)
        }
    }

    /// Whether it is the record of this key, and not dead.
    ///
    /// # Safety
    /// As for [`key`](Record::key).
    #[inline]
    pub(crate) unsafe fn is_live(record: NonNull<Record>, table: TableId, key: &[u8]) -> bool {
        // SAFETY: the caller's promise.
        let (guarded, found) = unsafe { (record.as_ref(), Self::key(record)) };
        debug_assert!(guarded.table != Heap::POISONED, "a freed record was found");
        found == key && guarded.table() == table && !guarded.word().is_dead()
    }

    /// Whether it has left the index, or was freed, as far as freed memory is overwritten.
    ///
    /// # Safety
    /// It is, or was, a record of a store whose memory has not gone back to the system.
    pub(crate) unsafe fn is_removed(record: NonNull<Record>) -> bool {
        // SAFETY: the caller's promise.
        let record = unsafe { record.as_ref() };
        record.table == Heap::POISONED || record.word().is_dead()
    }

    /// The beginning of the key, for messages.
    ///
    /// # Safety
    /// As for [`key`](Record::key).
    pub(crate) unsafe fn excerpt(record: NonNull<Record>) -> KeyExcerpt {
        // SAFETY: the caller's promise.
        KeyExcerpt::new(unsafe { Self::key(record) })
    }

    /// The table that the record belongs to.
    #[inline]
    pub(crate) fn table(&self) -> TableId {
        TableId(u32::from(self.table))
    }

    /// Lock and newest version at one instant.
    ///
    /// Sequentially consistent, as are the locks: of two transactions that each lock what the other
    /// validates, one sees the other's lock.
    #[inline]
    pub(crate) fn word(&self) -> Word {
        Word(self.word.load(Ordering::SeqCst))
    }

    /// Takes the lock; waits a little for another holder. Returns the newest version.
    pub(crate) fn lock(&self) -> Result<*mut Version, LockError> {
        for _ in 0..LOCK_SPINS {
            match self.try_lock() {
                Err(LockError::Held) => spin_loop(),
                locked => return locked,
            }
        }
        Err(LockError::Held)
    }

    /// Takes the lock, if no other transaction holds it. Returns the newest version.
    #[inline]
    pub(crate) fn try_lock(&self) -> Result<*mut Version, LockError> {
        let word = self.word();
        if word.is_dead() {
            return Err(LockError::Dead);
        }
        if word.is_locked() {
            return Err(LockError::Held);
        }
        let locked = word.0.map_addr(|address| address | LOCKED);
        let swap = self.word.compare_exchange(word.0, locked, Ordering::SeqCst, Ordering::Relaxed);
        swap.map(|_| word.version()).map_err(|_| LockError::Held)
    }

    /// Locks a record that no other session sees yet.
    pub(crate) fn begin_locked(&self) {
        self.word.store(
            ptr::null_mut::<Version>().map_addr(|address| address | LOCKED),
            Ordering::Relaxed,
        );
    }

    /// Releases the lock and makes `newest` (perhaps the same as before) the newest version.
    ///
    /// REQUIRES: the caller holds the lock.
    pub(crate) fn unlock(&self, newest: *mut Version) {
        debug_assert!(self.word().is_locked(), "released a lock that is not held");
        self.store(newest, 0);
    }

    /// Makes `newest` the newest version and keeps the lock.
    ///
    /// REQUIRES: the caller holds the lock.
    pub(crate) fn replace(&self, newest: *mut Version) {
        debug_assert!(self.word().is_locked(), "changed a record without its lock");
        self.store(newest, LOCKED);
    }

    /// Marks the record as one that stands in a queue, or takes the mark off.
    ///
    /// REQUIRES: the caller holds the lock.
    #[inline]
    pub(crate) fn mark(&self, stands: bool) {
        let word = self.word();
        debug_assert!(word.is_locked(), "marked a record without its lock");
        let mark = if stands { MARKED } else { 0 };
        let marked = word.0.map_addr(|address| address & !MARKED | mark);
        self.word.store(marked, Ordering::Release);
    }

    /// Another word, with the mark that it has.
    ///
    /// REQUIRES: the caller holds the lock.
    #[inline]
    fn store(&self, newest: *mut Version, bits: usize) {
        // No other thread changes it while the lock is held.
        let mark = self.word.load(Ordering::Relaxed).addr() & MARKED;
        self.word.store(newest.map_addr(|address| address | bits | mark), Ordering::Release);
    }

    /// Kills the record if it is unlocked and not marked, and `newest` is still its newest version, a tombstone or
    /// null. Returns whether it did.
    ///
    /// REQUIRES: the caller holds the latch of the record's leaf and takes the record out of it.
    pub(crate) fn kill(&self, newest: *mut Version) -> bool {
        let dead = newest.map_addr(|address| address | DEAD);
        self.word.compare_exchange(newest, dead, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn a_short_key_fits_sixteen_bytes() {
        assert_eq!(Record::bytes(4), 16);
        assert_eq!(Record::bytes(5), 24);
        assert_eq!(Record::bytes(1), 16);
    }
}
