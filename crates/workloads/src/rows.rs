//! Loading and reading whole tables in transactions of a bounded size.

use shoal_types::bulk_load::LoadRow;
use shoal_types::transaction::transact_again;
use shoal_types::{Database, Error, Rejected, Result, Scan, TableId, Transaction};
use std::future::{Future, poll_fn};
use std::ops::{Bound, Range};
use std::task::Poll;

/// Rows that one transaction reads.
const PAGE_ROWS: usize = 512;

/// Rows that one transaction reads by their keys.
const KEYS_READ: u64 = 16;

/// Transactions that read rows by their keys at the same time: an engine may bring each of these rows from far away.
const READING: u64 = 16;

/// Rows of one part of a load: small enough to spread over any number of workers.
const PART_ROWS: u64 = 1 << 14;

/// How many parts `rows` rows make; see [`part_of`].
pub(crate) fn parts(rows: u64) -> usize {
    rows.div_ceil(PART_ROWS) as usize
}

/// The numbers of the rows in `part` of `rows` rows.
pub(crate) fn part_of(rows: u64, part: usize) -> Range<u64> {
    let start = part as u64 * PART_ROWS;
    start..(start + PART_ROWS).min(rows)
}

/// Writes a row for every number in `numbers`; `row` returns its key and value.
pub(crate) async fn load<D: Database, K: AsRef<[u8]>, V: AsRef<[u8]>>(
    db: &D,
    table: TableId,
    numbers: Range<u64>,
    mut row: impl FnMut(u64) -> (K, V),
    loaded: &mut dyn FnMut(u64),
) -> Result<()> {
    let rows = numbers.map(|number| {
        let (key, value) = row(number);
        LoadRow::new(table, key.as_ref(), value.as_ref())
    });
    db.load(rows, loaded).await
}

/// Calls `visit` with every key and value of `table`, in key order. The whole is no snapshot: it is
/// for checks, when no client is active.
///
/// # Errors
/// Those of the database.
pub async fn for_each<D: Database>(
    db: &D,
    table: TableId,
    visit: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    for_each_with_prefix(db, table, &[], visit).await
}

/// [`for_each`] for the keys that begin with `prefix`.
///
/// # Errors
/// Those of the database.
pub async fn for_each_with_prefix<D: Database>(
    db: &D,
    table: TableId,
    prefix: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    let mut last: Option<Box<[u8]>> = None;
    loop {
        // Copied out, so that a body which runs twice is seen once.
        let page = db
            .transact(async |tx| {
                let start = last.as_deref().map_or(Bound::Included(prefix), Bound::Excluded);
                let scan = Scan { start, ..Scan::prefix(prefix) }.limit(PAGE_ROWS);
                let rows = tx.scan(table, scan).await?;
                let copy = |(key, value): (&[u8], &[u8])| (Box::from(key), Box::from(value));
                Ok(rows.into_iter().map(copy).collect::<Vec<(Box<[u8]>, Box<[u8]>)>>())
            })
            .await?;
        for (key, value) in &page {
            visit(key, value);
        }
        let full = page.len() == PAGE_ROWS;
        match page.into_iter().next_back() {
            Some((key, _)) if full => last = Some(key),
            _ => return Ok(()),
        }
    }
}

/// Calls `visit` with the row, or the lack of one, of the key that `key` makes of each number.
pub(crate) async fn visit_rows<D: Database, K: AsRef<[u8]>>(
    db: &D,
    table: TableId,
    numbers: Range<u64>,
    key: impl Fn(u64) -> K,
    mut visit: impl FnMut(u64, Option<&[u8]>),
) -> Result<()> {
    // Copied out, so that a body which runs twice is seen once.
    let read = async |start: u64| {
        let end = (start + KEYS_READ).min(numbers.end);
        transact_again(db, async |tx| {
            let mut page = Vec::new();
            for number in start..end {
                page.push(tx.get(table, key(number).as_ref()).await?.map(Box::<[u8]>::from));
            }
            Ok(page)
        })
        .await
    };
    for first in numbers.clone().step_by((READING * KEYS_READ) as usize) {
        let end = (first + READING * KEYS_READ).min(numbers.end);
        let pages = all_of((first..end).step_by(KEYS_READ as usize).map(&read)).await;
        let pages: Vec<Vec<_>> = pages.into_iter().collect::<Result<_>>()?;
        let rows = pages.iter().flatten();
        (first..end).zip(rows).for_each(|(number, row)| visit(number, row.as_deref()));
    }
    Ok(())
}

/// What all of these futures return, in their order. They run at the same time.
async fn all_of<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut running {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
            is_done &= output.is_some();
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().map(|(_, output)| output.expect("all have ended")).collect()
}

/// Calls `visit` with every key and value of `table`; where the engine's scans are not so wide, with those of the keys that
/// `key` makes of `numbers`. The whole is no snapshot: it is for checks, when no client is active.
///
/// # Errors
/// Those of the database.
pub(crate) async fn for_each_numbered<D: Database, K: AsRef<[u8]>>(
    db: &D,
    table: TableId,
    numbers: Range<u64>,
    key: impl Fn(u64) -> K,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    match for_each(db, table, &mut visit).await {
        Err(Error::Rejected(Rejected::ScanTooWide { .. })) => {}
        done => return done,
    }
    visit_rows(db, table, numbers, &key, |number, row| {
        if let Some(row) = row {
            visit(key(number).as_ref(), row);
        }
    })
    .await
}

/// The error of a workload about data that it never wrote.
#[cold]
pub(crate) fn corrupt(what: &'static str) -> Error {
    Error::reject(format!("the data is corrupt: {what}"))
}
