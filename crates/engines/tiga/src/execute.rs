//! Execution at a leader: a piece of a procedure, on the rows of the shard, and what is certified.

use crate::digest::{granule_resource, table_resource};
use crate::record::Write;
use crate::rows::Rows;
use crate::transaction::{Body, Part, RequestRow, Work};
use bumpalo::Bump;
use bytes::Bytes;
use shoal_cluster::topology::TableMap;
use shoal_engine::request_table::{SPLIT_RESULT, request_row};
use shoal_types::limits::{check_key, check_value};
use shoal_types::procedure::{DynTransaction, OperationFuture, Procedures};
use shoal_types::transaction::{ScanEnd, sum};
use shoal_types::{
    Aborted, Conflict, Error, KeyExcerpt, Rejected, Result, Rows as FoundRows, Scan, TableId,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;

/// What execution needs beside the rows.
pub struct Library<'l> {
    /// The procedures that are registered.
    pub procedures: &'l Procedures,
    /// The tables, by their names.
    pub tables: &'l TableMap,
}

/// Runs the piece of a shard. Returns what it returned, and what it writes if that is no error.
pub fn run_piece(work: &Work, rows: &Rows, library: &Library<'_>) -> (Result<Bytes>, Vec<Write>) {
    let Body::Pieces { procedure, arguments, request } = &work.transaction.body else {
        return (Ok(Bytes::new()), Vec::new());
    };
    let piece = Piece {
        rows,
        part: work.part(),
        tables: library.tables,
        writes: RefCell::default(),
        kept: Bump::new(),
    };
    let result = library
        .procedures
        .get(procedure)
        .and_then(|procedure| procedure.run_at_once(&piece, arguments));
    let Ok(result) = result else { return (result, Vec::new()) };
    let mut writes: Vec<Write> = piece
        .writes
        .into_inner()
        .into_iter()
        .map(|((table, key), value)| Write { table, key, value })
        .collect();
    if let Some(RequestRow { table, key, number, .. }) =
        request.as_ref().filter(|row| row.home == work.part().shard)
    {
        let told = if work.transaction.is_multi() { SPLIT_RESULT } else { &result[..] };
        let value = Some(request_row(*number, told).into());
        writes.push(Write { table: *table, key: key.clone(), value });
    }
    (Ok(result), writes)
}

/// Whether what a certificate says of this shard is so. `None` while that rests on rows that are not decided (rule T18).
///
/// # Errors
/// What has changed since it was read.
pub fn verdict(work: &Work, rows: &Rows, is_only: bool) -> Option<Result<()>> {
    let part = work.part();
    for (key, version) in part.reads.iter().zip(&part.certificate.versions) {
        if !is_only && !rows.is_decided(key.table, &key.key) {
            return None;
        }
        let found = rows.get(key.table, &key.key).map_or(0, |row| row.version);
        if found != *version {
            let (table, key) = (key.table, KeyExcerpt::new(&key.key));
            return Some(Err(Aborted::from(Conflict::ReadChanged { table, key }).into()));
        }
    }
    let ranges = part.ranges.iter().filter(|range| !range.writes);
    for (range, version) in ranges.zip(&part.certificate.ranges) {
        let resource = match &range.granule {
            Some(prefix) => granule_resource(range.table, prefix),
            None => table_resource(range.table),
        };
        if !is_only && !rows.is_range_decided(resource) {
            return None;
        }
        if rows.range(resource).version != *version {
            let table = range.table;
            return Some(Err(Aborted::from(Conflict::RangeChanged { table }).into()));
        }
    }
    Some(Ok(()))
}

/// The transaction of one piece: its operations are done at once.
struct Piece<'r> {
    rows: &'r Rows,
    part: &'r Part,
    tables: &'r TableMap,
    writes: RefCell<BTreeMap<(TableId, Bytes), Option<Bytes>>>,
    /// Own writes that were read; they live as long as the piece.
    kept: Bump,
}

/// The error of a transaction that has touched what it did not declare (rule T13).
fn undeclared(table: TableId, key: &[u8]) -> Error {
    let key = KeyExcerpt::new(key);
    Error::reject(format!(
        "the procedure touched {table} {key}, which its footprint does not declare"
    ))
}

impl Piece<'_> {
    fn read(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        if !self.part.allows_read(table, key) && !self.part.allows_write(table, key) {
            return Err(undeclared(table, key));
        }
        let own = self.writes.borrow();
        let own = own.get(&(table, Bytes::copy_from_slice(key)));
        if let Some(own) = own {
            return Ok(own.as_ref().map(|value| &*self.kept.alloc_slice_copy(value)));
        }
        if !self.part.allows_read(table, key) {
            return Err(undeclared(table, key));
        }
        Ok(self.rows.get(table, key).and_then(|row| row.value.as_deref()))
    }

    fn write(&self, table: TableId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(table, key)?;
        check_value(table, key, value.unwrap_or_default())?;
        if !self.part.allows_write(table, key) {
            return Err(undeclared(table, key));
        }
        let key = Bytes::copy_from_slice(key);
        let value = value.map(Bytes::copy_from_slice);
        self.writes.borrow_mut().insert((table, key), value);
        Ok(())
    }

    fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        if self.read(table, key)?.is_some() {
            let key = KeyExcerpt::new(key);
            return Err(Rejected::KeyExists { table, key }.into());
        }
        self.write(table, key, Some(value))
    }

    fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<FoundRows<'_>> {
        let bounds = bounds_of(&scan);
        let is_declared = self.part.ranges.iter().any(|range| {
            let holds = |prefix: &Bytes| match (&bounds.0, &scan.end) {
                (Bound::Included(start) | Bound::Excluded(start), ScanEnd::Prefix(end)) => {
                    start.starts_with(prefix) && end.starts_with(prefix)
                }
                (
                    Bound::Included(start) | Bound::Excluded(start),
                    ScanEnd::Bound(Bound::Included(end) | Bound::Excluded(end)),
                ) => start.starts_with(prefix) && end.starts_with(prefix),
                _ => false,
            };
            range.table == table && range.granule.as_ref().is_none_or(holds)
        });
        if !is_declared {
            return Err(Error::reject(format!(
                "the procedure scanned a range of {table} that its footprint does not declare"
            )));
        }
        let own = self.writes.borrow();
        let mut found: BTreeMap<&Bytes, &[u8]> =
            self.rows.scan(table, &bounds, false).map(|(key, value)| (key, &value[..])).collect();
        let within = |key: &Bytes| {
            (match &bounds.0 {
                Bound::Included(start) => key >= start,
                Bound::Excluded(start) => key > start,
                Bound::Unbounded => true,
            }) && match &bounds.1 {
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
                Bound::Unbounded => true,
            }
        };
        for ((_, key), value) in own.iter().filter(|((of, key), _)| *of == table && within(key)) {
            match value {
                Some(value) => found.insert(key, value),
                None => found.remove(key),
            };
        }
        let keep = |(key, value): (&Bytes, &[u8])| -> (&[u8], &[u8]) {
            (self.kept.alloc_slice_copy(key), self.kept.alloc_slice_copy(value))
        };
        Ok(match scan.reverse {
            true => found.into_iter().rev().take(scan.limit).map(keep).collect(),
            false => found.into_iter().take(scan.limit).map(keep).collect(),
        })
    }
}

/// The bounds of the keys that a scan can meet.
#[must_use]
pub fn bounds_of(scan: &Scan<'_>) -> (Bound<Bytes>, Bound<Bytes>) {
    let start = scan.start.map(Bytes::copy_from_slice);
    let end = match scan.end {
        ScanEnd::Bound(bound) => bound.map(Bytes::copy_from_slice),
        ScanEnd::Prefix(prefix) => match prefix.iter().rposition(|byte| *byte < u8::MAX) {
            None => Bound::Unbounded,
            Some(last) => {
                let mut above = prefix[..=last].to_vec();
                above[last] += 1;
                Bound::Excluded(above.into())
            }
        },
    };
    match (&start, scan.end) {
        // A prefix alone begins with itself.
        (Bound::Unbounded, ScanEnd::Prefix(prefix)) => {
            (Bound::Included(Bytes::copy_from_slice(prefix)), end)
        }
        _ => (start, end),
    }
}

impl DynTransaction for Piece<'_> {
    fn table(&self, name: &str) -> Result<TableId> {
        let table = self.tables.named(name);
        Ok(table.ok_or_else(|| Rejected::UnknownTableName { name: name.into() })?)
    }

    fn covers(&self, table: TableId, key: &[u8]) -> bool {
        self.part.allows_read(table, key) || self.part.allows_write(table, key)
    }

    fn get<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> OperationFuture<'f, Option<&'t [u8]>> {
        OperationFuture::ready(self.read(table, key))
    }

    fn scan<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        scan: Scan<'f>,
    ) -> OperationFuture<'f, FoundRows<'t>> {
        OperationFuture::ready(self.scan(table, scan))
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, key, Some(value))
    }

    fn insert<'f>(
        &'f self,
        table: TableId,
        key: &'f [u8],
        value: &'f [u8],
    ) -> OperationFuture<'f, ()> {
        OperationFuture::ready(Piece::insert(self, table, key, value))
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.write(table, key, None)
    }

    fn add<'f>(&'f self, table: TableId, key: &'f [u8], delta: i64) -> OperationFuture<'f, i64> {
        let added = self
            .read(table, key)
            .and_then(|value| sum(table, key, value, delta))
            .and_then(|sum| self.write(table, key, Some(&sum.to_le_bytes())).map(|()| sum));
        OperationFuture::ready(added)
    }
}
