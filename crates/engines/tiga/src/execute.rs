//! Execution at a leader: of a piece of a procedure, on the rows of its shard, or of a whole one, on what the participants have
//! sent each other.

use crate::part_reads::PartReads;
use crate::record::Write;
use crate::rows::Rows;
use crate::transaction::{NamedTable, Part, ProcedureCall, RequestRow, Work, check_bytes};
use bumpalo::Bump;
use bytes::Bytes;
use shoal_cluster::topology::TableMap;
use shoal_engine::request_table::{SPLIT_RESULT, request_row, returned_row};
use shoal_types::limits::{check_key, check_value};
use shoal_types::procedure::{Access, DynTransaction, FootprintRange, OperationFuture, Procedures};
use shoal_types::transaction::sum;
use shoal_types::{Error, KeyExcerpt, Rejected, Result, Rows as FoundRows, Scan, TableId};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// What execution needs beside the rows.
pub struct Library<'l> {
    /// The procedures that are registered.
    pub procedures: &'l Procedures,
    /// The tables, by their names.
    pub tables: &'l TableMap,
}

/// What a transaction has done on a shard.
pub struct Execution {
    /// What it returned, or why it had no effect.
    pub outcome: Result<Bytes>,
    /// What a procedure writes on this shard.
    pub writes: Vec<Write>,
    /// What it has read on all participants, if they have sent it to each other.
    pub exchanged: Vec<PartReads>,
}

impl Execution {
    /// Of what has no effect, or writes what it brings along.
    #[must_use]
    pub fn without_writes(outcome: Result<Bytes>) -> Execution {
        Execution { outcome, writes: Vec::new(), exchanged: Vec::new() }
    }
}

/// Runs the piece of a shard. Unless it `is_checked`, rule T13 is disarmed.
#[must_use]
pub fn run_piece(
    work: &Work,
    call: &ProcedureCall,
    rows: &Rows,
    library: &Library<'_>,
    is_checked: bool,
) -> Execution {
    let source = Source::Rows { rows, part: work.part() };
    let is_split = work.transaction.is_multi();
    let (outcome, writes) = run(work, call, source, is_split, library, is_checked);
    Execution { outcome, writes, exchanged: Vec::new() }
}

/// Runs a whole procedure, on what it reads on all participants. It writes what is this shard's. Unless it `is_checked`, rule
/// T13 is disarmed.
#[must_use]
pub fn run_whole(
    work: &Work,
    call: &ProcedureCall,
    exchanged: Vec<PartReads>,
    library: &Library<'_>,
    is_checked: bool,
) -> Execution {
    let source = Source::Exchanged { parts: &work.transaction.parts, reads: &exchanged };
    let (outcome, writes) = run(work, call, source, false, library, is_checked);
    Execution { outcome, writes, exchanged }
}

/// Returns what the procedure returned, and what it writes on this shard if that is no error. `is_split`: other shards
/// contribute to the result.
fn run(
    work: &Work,
    call: &ProcedureCall,
    source: Source<'_>,
    is_split: bool,
    library: &Library<'_>,
    is_checked: bool,
) -> (Result<Bytes>, Vec<Write>) {
    let ProcedureCall { procedure, arguments, tables: named, request } = call;
    let (tables, writes, kept) = (library.tables, RefCell::default(), Bump::new());
    let piece = Piece { source, tables, named, writes, kept, is_checked };
    let procedure = library.procedures.get(procedure);
    let result = procedure.and_then(|procedure| procedure.run_at_once(&piece, arguments));
    let written = piece.writes.into_inner();
    // All participants execute alike, so what all of it writes counts.
    let result = result.and_then(|result| {
        let value = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        let rows = written.iter().map(|((_, key), it)| key.len() + value(it));
        // The row of the call has the result once more.
        let returned = result.len() * if request.is_some() { 2 } else { 1 };
        check_bytes(work.bytes + returned + rows.sum::<usize>()).map(|()| result)
    });
    let Ok(result) = result else { return (result, Vec::new()) };
    let part = work.part();
    let written = written.into_iter();
    let mut writes: Vec<Write> = written
        .filter(|((table, key), _)| !is_checked || part.allows_write(library.tables, *table, key))
        .map(|((table, key), value)| Write { table, key, value })
        .collect();
    if let Some(RequestRow { table, key, number, mark, .. }) =
        request.as_ref().filter(|row| row.home == part.shard)
    {
        let row = match (is_split, mark) {
            (true, _) => request_row(*number, SPLIT_RESULT),
            (false, Some(_)) => returned_row(*number, &result),
            (false, None) => request_row(*number, &result),
        };
        let value = Some(row.into());
        writes.push(Write { table: *table, key: key.clone(), value });
    }
    (Ok(result), writes)
}

/// What an execution reads.
#[derive(Clone, Copy)]
enum Source<'r> {
    /// The rows of one shard.
    Rows {
        /// All that it has.
        rows: &'r Rows,
        /// What is declared of them.
        part: &'r Part,
    },
    /// What the participants have said.
    Exchanged {
        /// What is declared.
        parts: &'r [Part],
        /// What they said, in the order of the parts.
        reads: &'r [PartReads],
    },
}

impl<'r> Source<'r> {
    fn parts(self) -> &'r [Part] {
        match self {
            Source::Rows { part, .. } => std::slice::from_ref(part),
            Source::Exchanged { parts, .. } => parts,
        }
    }

    fn allows_write(self, tables: &TableMap, table: TableId, key: &[u8]) -> bool {
        self.parts().iter().any(|part| part.allows_write(tables, table, key))
    }

    fn allows_read(self, tables: &TableMap, table: TableId, key: &[u8]) -> bool {
        self.parts().iter().any(|part| part.allows_read(tables, table, key))
    }

    fn value(self, tables: &TableMap, table: TableId, key: &[u8]) -> Result<Option<&'r [u8]>> {
        let value = match self {
            Source::Rows { rows, .. } => self
                .allows_read(tables, table, key)
                .then(|| Ok(rows.get(table, key).and_then(|row| row.value.as_deref()))),
            Source::Exchanged { parts, reads } => {
                let mut of = parts.iter().zip(reads);
                let of = of.find(|(part, _)| part.allows_read(tables, table, key));
                of.and_then(|(part, reads)| reads.value(part, table, key))
            }
        };
        value.unwrap_or_else(|| Err(undeclared(table, key)))
    }

    /// The first so many rows of a range, from either end.
    fn rows(
        self,
        scanned: &FootprintRange,
        reverse: bool,
        limit: usize,
    ) -> Result<BTreeMap<&'r [u8], &'r [u8]>> {
        let covers = |range: &FootprintRange| range.access.reads() && range.covers(scanned);
        if !self.parts().iter().flat_map(|part| &part.declared_ranges).any(covers) {
            return Err(undeclared(scanned.table, &scanned.start));
        }
        let mut found = BTreeMap::new();
        match self {
            Source::Rows { rows, .. } => {
                let all = rows.scan(scanned, reverse).take(limit);
                found.extend(all.map(|(key, value)| (&key[..], &value[..])));
            }
            Source::Exchanged { parts, reads } => {
                let of = |(part, reads): (&Part, &'r PartReads)| reads.rows(part, scanned);
                for rows in parts.iter().zip(reads).filter_map(of) {
                    let all = rows?.iter();
                    let all = all.filter(|(key, _)| scanned.contains(scanned.table, key));
                    found.extend(all.map(|(key, value)| (&key[..], &value[..])));
                }
            }
        }
        Ok(found)
    }
}

/// What a procedure has for a table that it does not declare: what it does there is refused, at all participants alike.
const UNDECLARED: TableId = TableId(u32::MAX);

/// The transaction of one execution: its operations are done at once.
struct Piece<'r> {
    source: Source<'r>,
    tables: &'r TableMap,
    named: &'r [NamedTable],
    writes: RefCell<BTreeMap<(TableId, Bytes), Option<Bytes>>>,
    /// Own writes that were read; they live as long as the piece.
    kept: Bump,
    /// Whether it refuses to write what is not declared.
    is_checked: bool,
}

/// The error of a transaction that has touched what it did not declare (rule T13).
fn undeclared(table: TableId, key: &[u8]) -> Error {
    Rejected::Undeclared { table, key: KeyExcerpt::new(key) }.into()
}

impl Piece<'_> {
    fn read(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        let own = self.writes.borrow();
        if let Some(own) = own.get(&(table, Bytes::copy_from_slice(key))) {
            return Ok(own.as_ref().map(|value| &*self.kept.alloc_slice_copy(value)));
        }
        self.source.value(self.tables, table, key)
    }

    fn write(&self, table: TableId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(table, key)?;
        check_value(table, key, value.unwrap_or_default())?;
        if self.is_checked && !self.source.allows_write(self.tables, table, key) {
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
        let scanned = FootprintRange::of(table, &scan, Access::Read);
        let own = self.writes.borrow();
        let own = own.iter().filter(|((of, key), _)| scanned.contains(*of, key));
        let deleted = own.clone().filter(|(_, value)| value.is_none()).count();
        let limit = scan.limit.saturating_add(deleted);
        let mut found = self.source.rows(&scanned, scan.reverse, limit)?;
        for ((_, key), value) in own {
            match value {
                Some(value) => found.insert(key, value),
                None => found.remove(&key[..]),
            };
        }
        let keep = |(key, value): (&[u8], &[u8])| -> (&[u8], &[u8]) {
            (self.kept.alloc_slice_copy(key), self.kept.alloc_slice_copy(value))
        };
        Ok(match scan.reverse {
            true => found.into_iter().rev().take(scan.limit).map(keep).collect(),
            false => found.into_iter().take(scan.limit).map(keep).collect(),
        })
    }
}

impl DynTransaction for Piece<'_> {
    fn table(&self, name: &str) -> Result<TableId> {
        let named = self.named.iter().find(|named| *named.name == *name);
        Ok(named.map_or(UNDECLARED, |named| named.table))
    }

    fn covers(&self, table: TableId, key: &[u8]) -> bool {
        self.source.allows_read(self.tables, table, key)
            || self.source.allows_write(self.tables, table, key)
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
