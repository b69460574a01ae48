//! Ranges under insertions and deletions: what a scan did not find must not have been there.

use crate::{catches, db, holds, on_threads};
use shoal::{BlockingTransaction, Db, Result, Scan, TableId};
use shoal_store::{StoreBug, StoreBugs};
use shoal_types::Random;
use std::thread::yield_now;

const ROUNDS: u64 = 300;

fn count(tx: &BlockingTransaction<'_>, table: TableId, reverse: bool) -> Result<u64> {
    let scan = if reverse { Scan::prefix(b"r").reverse() } else { Scan::prefix(b"r") };
    Ok(tx.scan(table, scan)?.len() as u64)
}

fn key(number: u64) -> [u8; 9] {
    let mut key = *b"r--------";
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Inserts a key if the range has less than `most` rows, else deletes what it finds first. Says how
/// many rows there were.
fn book(tx: &BlockingTransaction<'_>, table: TableId, drawn: u64, most: u64) -> Result<u64> {
    let rows = count(tx, table, drawn.is_multiple_of(2))?;
    yield_now();
    if rows < most {
        tx.put(table, &key(drawn % (4 * most)), b"")?;
    } else {
        for (row, _) in tx.scan(table, Scan::prefix(b"r").limit(2))? {
            tx.delete(table, row)?;
        }
    }
    Ok(rows)
}

/// Counts how often a range has more rows than any transaction allowed.
fn overbooked(most: u64) -> impl Fn(StoreBugs, u64) -> u64 {
    move |faults, seed| {
        let db = db(faults);
        let table = db.table("t").expect("a table");
        on_threads(seed, |_, random| {
            let mut round = || {
                let drawn = random.next_u64();
                let rows = db.transact_blocking(|tx| book(tx, table, drawn, most));
                u64::from(rows.expect("attempts enough") > most)
            };
            (0..ROUNDS).map(|_| round()).sum()
        })
    }
}

/// Puts a key into both tables or takes it out of both, and compares the tables: the same number of
/// rows, always.
fn pair_up(db: &Db, tables: [TableId; 2], random: &mut Random) -> u64 {
    let (number, writes) = (random.below(80), random.chance(2, 3));
    let unequal = db.transact_blocking(|tx| {
        if writes {
            let there = tx.get(tables[1], &key(number))?.is_some();
            for table in tables {
                yield_now();
                match there {
                    true => tx.delete(table, &key(number))?,
                    false => tx.insert(table, &key(number), b"")?,
                }
            }
            return Ok(false);
        }
        let first = count(tx, tables[0], false)?;
        yield_now();
        Ok(first != count(tx, tables[1], true)?)
    });
    // A key that is there, though the other table lacks it, is rejected by `insert`: a row too many.
    u64::from(unequal.unwrap_or(true))
}

fn unpaired(faults: StoreBugs, seed: u64) -> u64 {
    let db = db(faults);
    let tables = ["one", "two"].map(|name| db.table(name).expect("a table"));
    on_threads(seed, |_, random| (0..ROUNDS).map(|_| pair_up(&db, tables, random)).sum())
}

#[test]
fn ranges_keep_to_their_bounds() {
    holds(overbooked(2));
    // More than a leaf holds.
    holds(overbooked(40));
}

#[test]
fn tables_stay_equal() {
    holds(unpaired);
}

#[test]
fn skipping_the_node_set_is_caught() {
    catches(StoreBug::SkipNodeSet, overbooked(2));
    catches(StoreBug::SkipNodeSet, unpaired);
}
