//! The index and its records alone, without transactions: only for
//! benchmarks against other ordered maps (`benches/index.rs`). Behind the feature `bare`.
//!
//! A value is one number, in a version of its own, so that a lookup follows the same pointers as a
//! transaction's: leaf, record, version.

use crate::guarded::Guarded;
use crate::index::{Insertion, Lookup, Seek};
use crate::record::Record;
use crate::session::Session;
use crate::store::{Options, Store};
use crate::transaction::prefetch_rows;
use crate::version::{Content, Version};
use shoal_types::limits::KEY_BYTES_MAX;
use shoal_types::{Result, TableId};
use std::ptr::NonNull;
use std::sync::Arc;

/// An ordered concurrent map from keys to numbers.
#[derive(Debug)]
pub struct BareIndex {
    store: Arc<Store>,
    table: TableId,
}

/// One thread's access to a [`BareIndex`].
#[derive(Debug)]
pub struct BareHandle {
    session: Session,
    table: TableId,
}

/// A handle that holds its guard against reclamation. Take it for a batch of operations, as a
/// transaction does.
#[derive(Debug)]
pub struct BareGuard<'h> {
    handle: &'h mut BareHandle,
}

impl BareIndex {
    /// An empty map.
    ///
    /// # Errors
    /// None: an empty store has room for a table.
    pub fn new() -> Result<BareIndex> {
        let store = Arc::new(Store::new(Options::default()));
        let table = store.table("bare")?;
        Ok(BareIndex { store, table })
    }

    /// Access for one thread.
    ///
    /// # Errors
    /// [`TooManyTransactions`](shoal_types::Rejected::TooManyTransactions) if too many handles are in use.
    pub fn handle(&self) -> Result<BareHandle> {
        Ok(BareHandle { session: self.store.session()?, table: self.table })
    }
}

impl BareHandle {
    /// Nothing that the guard may read is freed while it lives.
    pub fn pin(&mut self) -> BareGuard<'_> {
        self.session.state.get_mut().memory.pin();
        BareGuard { handle: self }
    }
}

impl BareGuard<'_> {
    /// Puts `value` under `key` if the key is absent; returns whether it was.
    ///
    /// # Panics
    /// If the key is longer than a key may be.
    pub fn insert(&mut self, key: &[u8], value: u64) -> bool {
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes", key.len());
        let BareHandle { session: Session { state, store, .. }, table } = &mut *self.handle;
        let memory = &mut state.get_mut().memory;
        let index = store.index(*table).expect("made in `new`");
        let record = Record::allocate(&mut memory.heap, *table, key);
        let version = Version::allocate(&mut memory.heap, Content::Value(&value.to_le_bytes()));
        // SAFETY: the record is private, and later kept by the guard.
        let private = unsafe { record.as_ref() };
        let locked = private.lock().is_ok();
        assert!(locked, "no other thread can reach it");
        private.unlock(version.as_ptr());
        // SAFETY: pinned; the record is private.
        match unsafe { index.insert(record, memory, &mut |_| {}) } {
            Insertion::Inserted => true,
            Insertion::Exists(_) => {
                // SAFETY: both stayed private.
                unsafe {
                    Version::free(version, &mut memory.heap);
                    Record::free(record, &mut memory.heap);
                }
                false
            }
        }
    }

    /// The number under `key`; `None` if it was never inserted.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        let BareHandle { session, table } = &*self.handle;
        let index = session.store.index(*table).expect("made in `new`");
        // SAFETY: pinned.
        match unsafe { index.get(key) } {
            Lookup::Found(record, _) => Self::value(record),
            Lookup::Absent(_) => None,
        }
    }

    /// Visits up to `count` rows from `key` on, in order.
    pub fn scan(&self, key: &[u8], count: usize, mut visit: impl FnMut(&[u8], u64)) {
        let BareHandle { session, table } = &*self.handle;
        let index = session.store.index(*table).expect("made in `new`");
        let (mut seek, mut left) = (Some(Seek::From(key)), count);
        while let Some(from) = seek.filter(|_| left > 0) {
            // SAFETY: pinned.
            let rows = unsafe { index.rows(from, left) };
            prefetch_rows(rows.records());
            for record in rows.records() {
                left -= 1;
                // SAFETY: kept by the guard.
                let key = unsafe { Record::key(record) };
                Self::value(record).into_iter().for_each(|value| visit(key, value));
            }
            seek = rows.next;
        }
    }

    fn value(record: NonNull<Record>) -> Option<u64> {
        // SAFETY: kept by the guard, and so is the version.
        let version = unsafe { Guarded::at(record.as_ref().word().version()) };
        version.and_then(Guarded::value)?.try_into().ok().map(u64::from_le_bytes)
    }
}

impl Drop for BareGuard<'_> {
    fn drop(&mut self) {
        self.handle.session.state.get_mut().memory.unpin();
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn it_maps_keys_to_numbers_in_order() {
        let index = BareIndex::new().expect("an empty one");
        let mut handle = index.handle().expect("the first");
        let mut guard = handle.pin();
        for number in (0..500u64).rev() {
            assert!(guard.insert(&number.to_be_bytes(), number));
        }
        assert!(!guard.insert(&7u64.to_be_bytes(), 8));
        assert_eq!(guard.get(&7u64.to_be_bytes()), Some(7));
        assert_eq!(guard.get(b"elsewhere"), None);
        let mut seen = Vec::new();
        guard.scan(&490u64.to_be_bytes(), 5, |_, number| seen.push(number));
        assert_eq!(seen, [490, 491, 492, 493, 494]);
    }
}
