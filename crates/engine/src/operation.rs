//! Operations that travel: from a coordinator to a participant, from a client to a coordinator.

use bytes::Bytes;
use shoal_store::Session;
use shoal_types::transaction::ScanEnd;
use shoal_types::wire::Coded;
use shoal_types::{Result, Scan, TableId};
use std::ops::{Bound, DerefMut};

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum Operation {
    /// See [`shoal_types::Transaction::get`].
    #[coded(tag = 0)]
    Get {
        /// The table of the key.
        #[coded(short)]
        table: TableId,
        /// The key that is read.
        key: Bytes,
    },
    /// See [`shoal_types::Transaction::scan`].
    #[coded(tag = 1)]
    Scan {
        /// The table of the rows.
        #[coded(short)]
        table: TableId,
        /// Which rows.
        range: OwnedScan,
    },
    /// See [`shoal_types::Transaction::put`] and [`shoal_types::Transaction::delete`].
    #[coded(tag = 2)]
    Put {
        /// The table of the key.
        #[coded(short)]
        table: TableId,
        /// The key that is written.
        key: Bytes,
        /// The value; `None` deletes.
        value: Option<Bytes>,
    },
    /// See [`shoal_types::Transaction::insert`].
    #[coded(tag = 3)]
    Insert {
        /// The table of the key.
        #[coded(short)]
        table: TableId,
        /// The key, which must not exist.
        key: Bytes,
        /// The value of the new key.
        value: Bytes,
    },
}

/// What an operation brought.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum OperationResult {
    /// Of a get.
    #[coded(tag = 0)]
    Value(Option<Bytes>),
    /// Of a scan, in its order.
    #[coded(tag = 1)]
    Rows(#[coded(short)] Vec<(Bytes, Bytes)>),
    /// Of a scan: the first of its rows. The others have to be asked for.
    #[coded(tag = 3)]
    Page(#[coded(short)] Vec<(Bytes, Bytes)>),
    /// Of a get or a scan that was not done, since one answer would bring too much. It has to be asked for again.
    #[coded(tag = 4)]
    Later,
    /// Of everything else.
    #[coded(tag = 2)]
    Done,
}

impl OperationResult {
    /// About how many bytes it takes to say.
    pub fn bytes(&self) -> usize {
        match self {
            OperationResult::Value(value) => value.as_ref().map_or(0, Bytes::len),
            OperationResult::Rows(rows) | OperationResult::Page(rows) => {
                rows.iter().map(|(key, value)| key.len() + value.len()).sum()
            }
            OperationResult::Later | OperationResult::Done => 0,
        }
    }
}

/// How much the answer to one request may still bring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyBudget {
    /// Rows that scans find.
    pub rows: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
}

/// One answer brings no more rows, and no more bytes but for one row: a step must not take long, nor a frame be too
/// long. More saves round trips.
pub(crate) const ANSWER: ReplyBudget = ReplyBudget { rows: 1 << 12, bytes: 1 << 20 };

impl ReplyBudget {
    /// Is nothing left?
    pub(crate) fn is_used_up(self) -> bool {
        self.rows == 0 || self.bytes == 0
    }

    /// What is left after this answer.
    pub fn after(self, answer: &OperationResult) -> ReplyBudget {
        let rows = match answer {
            OperationResult::Rows(rows) | OperationResult::Page(rows) => rows.len(),
            OperationResult::Value(_) | OperationResult::Later | OperationResult::Done => 0,
        };
        let bytes = self.bytes.saturating_sub(answer.bytes());
        ReplyBudget { rows: self.rows.saturating_sub(rows), bytes }
    }
}

/// A [`Scan`] that owns its bounds.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct OwnedScan {
    /// Where the keys begin.
    pub start: Bound<Bytes>,
    /// Where they end.
    pub end: RangeEnd,
    /// From the greatest key to the least.
    pub reverse: bool,
    /// At most this many rows.
    #[coded(short)]
    pub limit: u64,
}

/// The upper end of a [`OwnedScan`].
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum RangeEnd {
    /// A bound on keys.
    #[coded(tag = 0)]
    Bound(Bound<Bytes>),
    /// The last key that begins with these bytes.
    #[coded(tag = 1)]
    Prefix(Bytes),
}

impl OwnedScan {
    /// A copy of `scan`.
    pub fn of(scan: &Scan<'_>) -> OwnedScan {
        OwnedScan {
            start: scan.start.map(Bytes::copy_from_slice),
            end: match scan.end {
                ScanEnd::Bound(bound) => RangeEnd::Bound(bound.map(Bytes::copy_from_slice)),
                ScanEnd::Prefix(prefix) => RangeEnd::Prefix(Bytes::copy_from_slice(prefix)),
            },
            reverse: scan.reverse,
            limit: scan.limit as u64,
        }
    }

    /// The scan that it is a copy of.
    pub fn scan(&self) -> Scan<'_> {
        Scan {
            start: self.start.as_ref().map(|key| &key[..]),
            end: match &self.end {
                RangeEnd::Bound(bound) => ScanEnd::Bound(bound.as_ref().map(|key| &key[..])),
                RangeEnd::Prefix(prefix) => ScanEnd::Prefix(prefix),
            },
            reverse: self.reverse,
            limit: usize::try_from(self.limit).unwrap_or(usize::MAX),
        }
    }
}

impl OwnedScan {
    fn bytes(&self) -> usize {
        let bound = |bound: &Bound<Bytes>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        bound(&self.start)
            + match &self.end {
                RangeEnd::Bound(end) => bound(end),
                RangeEnd::Prefix(prefix) => prefix.len(),
            }
    }

    fn detached(&self) -> OwnedScan {
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let bound = |bound: &Bound<Bytes>| bound.as_ref().map(copy);
        let end = match &self.end {
            RangeEnd::Bound(end) => RangeEnd::Bound(bound(end)),
            RangeEnd::Prefix(prefix) => RangeEnd::Prefix(copy(prefix)),
        };
        OwnedScan { start: bound(&self.start), end, ..*self }
    }
}

impl Operation {
    /// The table that it is about.
    pub fn table(&self) -> TableId {
        match self {
            Operation::Get { table, .. }
            | Operation::Scan { table, .. }
            | Operation::Put { table, .. }
            | Operation::Insert { table, .. } => *table,
        }
    }

    /// Does it change anything?
    pub fn writes(&self) -> bool {
        matches!(self, Operation::Put { .. } | Operation::Insert { .. })
    }

    /// Does it look at anything, so that the transaction depends on what was there?
    pub fn reads(&self) -> bool {
        // Deleting what is absent does nothing, and depends on that.
        !matches!(self, Operation::Put { value: Some(_), .. })
    }

    /// How many bytes of keys and values it writes, if it writes.
    pub(crate) fn bytes_written(&self) -> Option<usize> {
        match self {
            Operation::Get { .. } | Operation::Scan { .. } => None,
            Operation::Put { key, value, .. } => {
                Some(key.len() + value.as_ref().map_or(0, bytes::Bytes::len))
            }
            Operation::Insert { key, value, .. } => Some(key.len() + value.len()),
        }
    }

    /// About how many bytes it takes to say.
    pub fn bytes(&self) -> usize {
        match self {
            Operation::Get { key, .. } => key.len(),
            Operation::Scan { range, .. } => range.bytes(),
            Operation::Put { .. } | Operation::Insert { .. } => {
                self.bytes_written().expect("it writes")
            }
        }
    }

    /// A copy that shares no memory with what it was read from.
    pub(crate) fn detached(&self) -> Operation {
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        match self {
            Operation::Get { table, key } => Operation::Get { table: *table, key: copy(key) },
            Operation::Scan { table, range } => {
                Operation::Scan { table: *table, range: range.detached() }
            }
            Operation::Put { table, key, value } => {
                Operation::Put { table: *table, key: copy(key), value: value.as_ref().map(copy) }
            }
            Operation::Insert { table, key, value } => {
                Operation::Insert { table: *table, key: copy(key), value: copy(value) }
            }
        }
    }

    /// Does it bring rows?
    pub(crate) fn brings_rows(&self) -> bool {
        matches!(self, Operation::Get { .. } | Operation::Scan { .. })
    }

    /// Does the client wait for what it brings?
    pub fn wants_answer(&self) -> bool {
        !matches!(self, Operation::Put { .. })
    }

    /// Does it. A scan brings as many rows as there is room for, and one.
    pub(crate) fn perform<S: DerefMut<Target = Session>>(
        &self,
        transaction: &shoal_store::Transaction<S>,
        room: ReplyBudget,
    ) -> Result<OperationResult> {
        match self {
            Operation::Get { table, key } => Ok(OperationResult::Value(
                transaction.get(*table, key)?.map(Bytes::copy_from_slice),
            )),
            Operation::Scan { table, range } => {
                let scan = range.scan();
                let (asked, most) = (scan.limit, scan.limit.min(room.rows.max(1)));
                let rows = transaction.scan(*table, scan.limit(most))?;
                let found = rows.len();
                let (mut copied, mut bytes) = (Vec::new(), 0);
                for (key, value) in rows {
                    bytes += key.len() + value.len();
                    if bytes > room.bytes && !copied.is_empty() {
                        break;
                    }
                    copied.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
                }
                let is_all = copied.len() == found && (found < most || most == asked);
                Ok(if is_all {
                    OperationResult::Rows(copied)
                } else {
                    OperationResult::Page(copied)
                })
            }
            Operation::Put { table, key, value: Some(value) } => {
                transaction.put(*table, key, value).map(|()| OperationResult::Done)
            }
            Operation::Put { table, key, value: None } => {
                transaction.delete(*table, key).map(|()| OperationResult::Done)
            }
            Operation::Insert { table, key, value } => {
                transaction.insert(*table, key, value).map(|()| OperationResult::Done)
            }
        }
    }
}
