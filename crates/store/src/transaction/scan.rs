//! Scans: the index's rows and the transaction's own writes, in one order.

use super::Transaction;
use super::sets::{Recent, Sets};
use super::writes::{TableWrites, Write, WrittenKey};
use crate::guarded::Guarded;
use crate::index::{Index, Seek};
use crate::memory::prefetch;
use crate::record::Record;
use crate::session::Session;
use crate::version::Version;
use shoal_types::limits::check_key;
use shoal_types::transaction::ScanEnd;
use shoal_types::{Result, Rows, Scan, TableId};
use std::cmp::Ordering;
use std::collections::btree_map;
use std::ops::{Bound, DerefMut};
use std::ptr::NonNull;

impl<S: DerefMut<Target = Session>> Transaction<S> {
    /// The rows that `scan` asks for, in its order. The whole range that was looked at, up to the
    /// last row returned where the limit ended it, is protected against phantoms.
    ///
    /// # Errors
    /// [`Rejected`](shoal_types::Rejected) for an unknown table and for oversized bounds.
    pub fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        let index = self.session().store.index(table)?;
        let state = &mut *self.session().state.borrow_mut();
        let mut bound = std::mem::take(&mut state.sets.bound);
        let range = Range::of(&scan, &mut bound);
        for key in [range.low, range.high].into_iter().filter_map(bound_key) {
            // An empty bound is below every key, and harmless.
            if !key.is_empty() {
                check_key(table, key)?;
            }
        }
        let rows = state.sets.scan(index, table, range, scan.reverse, scan.limit);
        state.sets.bound = bound;
        rows
    }
}

/// How much of each version a scan asks for beforehand: a short value; longer ones come in order.
const PREFETCH_ROW_BYTES: usize = 65;

/// A scan's bounds, both as keys.
#[derive(Clone, Copy)]
struct Range<'k> {
    low: Bound<&'k [u8]>,
    high: Bound<&'k [u8]>,
}

fn bound_key(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

impl<'k> Range<'k> {
    /// The bounds of `scan`; the end of a prefix's range is built in `buffer`.
    fn of(scan: &Scan<'k>, buffer: &'k mut Vec<u8>) -> Range<'k> {
        let high = match scan.end {
            ScanEnd::Bound(bound) => bound,
            ScanEnd::Prefix(prefix) => {
                // The least key above all that begin with the prefix: one more in the last byte
                // that has room for it.
                let kept = prefix.iter().rposition(|byte| *byte != u8::MAX).map_or(0, |at| at + 1);
                buffer.clear();
                buffer.extend_from_slice(&prefix[..kept]);
                match buffer.last_mut() {
                    Some(last) => {
                        *last += 1;
                        Bound::Excluded(buffer.as_slice())
                    }
                    None => Bound::Unbounded,
                }
            }
        };
        Range { low: scan.start, high }
    }

    /// Can there be no key in it?
    fn is_empty(&self) -> bool {
        match (bound_key(self.low), bound_key(self.high)) {
            (Some(low), Some(high)) => match low.cmp(high) {
                Ordering::Less => false,
                Ordering::Equal => {
                    !matches!((self.low, self.high), (Bound::Included(_), Bound::Included(_)))
                }
                Ordering::Greater => true,
            },
            _ => false,
        }
    }

    fn is_above_low(&self, key: &[u8]) -> bool {
        match self.low {
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
            Bound::Unbounded => true,
        }
    }

    /// May the range hold a key below `key`?
    fn reaches_below(&self, key: &[u8]) -> bool {
        bound_key(self.low).is_none_or(|low| low < key)
    }

    fn is_below_high(&self, key: &[u8]) -> bool {
        match self.high {
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
            Bound::Unbounded => true,
        }
    }

    fn seek(&self, reverse: bool) -> Seek<'k> {
        match (reverse, self.low, self.high) {
            (false, Bound::Included(low), _) => Seek::From(low),
            (false, Bound::Excluded(low), _) => Seek::After(low),
            (false, Bound::Unbounded, _) => Seek::First,
            (true, _, Bound::Included(high)) => Seek::DownFrom(high),
            (true, _, Bound::Excluded(high)) => Seek::Before(high),
            (true, _, Bound::Unbounded) => Seek::Last,
        }
    }

    /// Is `key` beyond the far end of a scan in this direction?
    fn is_past(&self, key: &[u8], reverse: bool) -> bool {
        if reverse { !self.is_above_low(key) } else { !self.is_below_high(key) }
    }
}

/// The transaction's own writes in a range, as far as they are not yet merged into a scan's rows.
struct Own<'w> {
    rest: Option<btree_map::Range<'w, WrittenKey, u32>>,
    /// The place of the next one in the scan's order.
    next: Option<u32>,
    reverse: bool,
}

impl<'w> Own<'w> {
    fn new(rows: &'w TableWrites, range: Range<'_>, reverse: bool) -> Own<'w> {
        let Range { low, high } = range;
        let asked = !rows.is_empty() && !range.is_empty();
        let rest = asked.then(|| rows.range::<[u8], _>((low, high)));
        let mut own = Own { rest, next: None, reverse };
        own.advance();
        own
    }

    fn advance(&mut self) {
        let reverse = self.reverse;
        let next = self
            .rest
            .as_mut()
            .and_then(|rest| if reverse { rest.next_back() } else { rest.next() });
        self.next = next.map(|(_, place)| *place);
    }

    /// The next own write at or before `key` in the scan's order, and whether it is at `key`.
    fn take_until(&mut self, writes: &[Write], key: Option<&[u8]>) -> Option<(Write, bool)> {
        let write = writes[self.next? as usize];
        let order = key.map_or(Ordering::Less, |key| {
            // SAFETY: the record is kept by the guard, or private.
            let order = unsafe { Record::key(write.record) }.cmp(key);
            if self.reverse { order.reverse() } else { order }
        });
        if order == Ordering::Greater {
            return None;
        }
        self.advance();
        Some((write, order == Ordering::Equal))
    }
}

impl Sets {
    fn scan<'g>(
        &mut self,
        index: &Index,
        table: TableId,
        range: Range<'_>,
        reverse: bool,
        limit: usize,
    ) -> Result<Rows<'g>> {
        let written = self.writes.lend_rows(table);
        let mut own = Own::new(&written, range, reverse);
        let rows = self.merge(index, table, range, limit, &mut own);
        self.writes.return_rows(table, written);
        rows
    }

    /// Merges the index's rows with the transaction's own writes.
    fn merge<'g>(
        &mut self,
        index: &Index,
        table: TableId,
        range: Range<'_>,
        limit: usize,
        own: &mut Own<'_>,
    ) -> Result<Rows<'g>> {
        let reverse = own.reverse;
        let mut rows = Rows::with_capacity(limit.min(16));
        let mut seek = Some(range.seek(reverse));
        while let Some(from) = seek
            && rows.len() < limit
        {
            self.check_reads()?;
            // SAFETY: pinned while the transaction runs.
            let found = unsafe { index.rows(from, limit - rows.len()) };
            self.note_leaf(table, found.leaf);
            seek = found.next;
            prefetch_rows(found.records());
            for record in found.records() {
                // SAFETY: kept by the guard.
                let key = unsafe { Record::key(record) };
                if range.is_past(key, reverse) || rows.len() >= limit {
                    seek = None;
                    break;
                }
                let mut overwritten = false;
                while let Some((write, same)) = own.take_until(&self.writes.entries, Some(key)) {
                    overwritten |= same;
                    push_row(&mut rows, write.record, write.version.as_ptr());
                }
                if overwritten {
                    continue;
                }
                // A dead record is leaving the index; the validation of the leaf's version, noted above, covers that.
                if let Some(version) = self.read_record(record) {
                    if rows.len() < Recent::SLOTS_MAX {
                        self.recent.note(self.hash_keys.hash(table, key), record);
                    }
                    push_row(&mut rows, record, version);
                }
            }
            // A leaf that begins beyond the range has no keys of it.
            let beyond = match seek {
                Some(Seek::From(fence)) => !range.is_below_high(fence),
                // The leaf before ends below this fence.
                Some(Seek::Before(fence)) => !range.reaches_below(fence),
                _ => false,
            };
            if beyond {
                seek = None;
            }
        }
        while rows.len() < limit
            && let Some((write, _)) = own.take_until(&self.writes.entries, None)
        {
            push_row(&mut rows, write.record, write.version.as_ptr());
        }
        rows.truncate(limit);
        Ok(rows)
    }
}

/// Brings the rows of a leaf near together, instead of one after the other.
pub(crate) fn prefetch_rows(records: impl Iterator<Item = NonNull<Record>> + Clone) {
    if records.clone().nth(1).is_none() {
        return;
    }
    records.clone().for_each(|record| prefetch(record.as_ptr(), size_of::<Record>() + 1));
    for record in records {
        // SAFETY: kept by the guard.
        prefetch(unsafe { record.as_ref() }.word().version(), PREFETCH_ROW_BYTES);
    }
}

/// Adds the row, unless the version is a tombstone.
fn push_row(rows: &mut Rows<'_>, record: NonNull<Record>, version: *mut Version) {
    // SAFETY: a version that this transaction read or wrote, and its record, live until it ends; the
    // rows borrow it.
    let row = unsafe {
        Guarded::at(version).and_then(Guarded::value).map(|value| (Record::key(record), value))
    };
    rows.extend(row);
}
