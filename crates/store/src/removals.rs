//! The keys whose record may have become empty, and which should leave the index then.

use crate::memory::Heap;
use crate::record::Record;
use shoal_types::TableId;
use std::collections::VecDeque;
use std::ptr::NonNull;

/// Keys that may have to leave the index, the newest at the back. The heap of the session at work counts
/// what they take.
#[derive(Default)]
pub(crate) struct Removals {
    keys: VecDeque<(TableId, Box<[u8]>)>,
}

impl Removals {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The key of a record that may be empty.
    ///
    /// # Safety
    /// The record is kept.
    pub(crate) unsafe fn push_back(&mut self, record: NonNull<Record>, heap: &mut Heap) {
        // SAFETY: the caller's promise.
        let (table, key) = unsafe { (record.as_ref().table(), Record::key(record)) };
        heap.count(Self::bytes(key) as i64);
        self.keys.push_back((table, key.into()));
    }

    pub(crate) fn pop_back(&mut self, heap: &mut Heap) -> Option<(TableId, Box<[u8]>)> {
        let (table, key) = self.keys.pop_back()?;
        heap.count(-(Self::bytes(&key) as i64));
        Some((table, key))
    }

    /// Puts one back that came out at the other end and has to wait.
    pub(crate) fn push_front(&mut self, table: TableId, key: Box<[u8]>, heap: &mut Heap) {
        heap.count(Self::bytes(&key) as i64);
        self.keys.push_front((table, key));
    }

    pub(crate) fn append(&mut self, others: &mut Removals) {
        self.keys.append(&mut others.keys);
    }

    fn bytes(key: &[u8]) -> usize {
        size_of::<(TableId, Box<[u8]>)>() + key.len()
    }
}
