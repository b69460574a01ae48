//! A bank: a reader of all accounts at once sees the same total, and no account overdrawn.

use crate::{catches, db, holds, on_threads};
use shoal::{BlockingTransaction, Result, Scan, TableId};
use shoal_store::{StoreBug, StoreBugs};
use shoal_types::Random;
use std::thread::yield_now;

const ACCOUNTS: u64 = 6;
const EACH: i64 = 100;
const ROUNDS: u64 = 700;

fn balance(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}

/// Moves money between two accounts, if there is enough of it. An account that is emptied is closed,
/// and opened again when money comes in.
fn transfer(tx: &BlockingTransaction<'_>, table: TableId, random: &mut Random) -> Result<()> {
    let from = random.below(ACCOUNTS);
    let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
    let left = tx.get_for_update(table, &from.to_be_bytes())?.map_or(0, balance);
    yield_now();
    let amount = left.min(random.below(EACH as u64) as i64);
    match left - amount {
        0 => tx.delete(table, &from.to_be_bytes())?,
        rest => tx.put(table, &from.to_be_bytes(), &rest.to_le_bytes())?,
    }
    yield_now();
    tx.add(table, &to.to_be_bytes(), amount).map(|_| ())
}

/// Counts totals that are wrong, and debts.
fn violations(faults: StoreBugs, seed: u64) -> u64 {
    let db = db(faults);
    let table = db.table("accounts").expect("a table");
    db.transact_blocking(|tx| {
        (0..ACCOUNTS).try_for_each(|account| tx.add(table, &account.to_be_bytes(), EACH).map(drop))
    })
    .expect("no conflict");
    let audit = || {
        let balances = db.transact_blocking(|tx| {
            let (low, high) = ((ACCOUNTS / 2).to_be_bytes(), (ACCOUNTS / 2).to_be_bytes());
            let mut rows = tx.scan(table, Scan::range(..&low[..]))?;
            yield_now();
            rows.extend(tx.scan(table, Scan::range(&high[..]..).reverse())?);
            Ok(rows.iter().map(|(_, value)| balance(value)).collect::<Vec<_>>())
        });
        let balances = balances.expect("attempts enough");
        let wrong = balances.iter().sum::<i64>() != ACCOUNTS as i64 * EACH;
        u64::from(wrong || balances.iter().any(|balance| *balance < 0))
    };
    let during = on_threads(seed, |number, random| {
        let mut found = 0;
        for _ in 0..ROUNDS {
            match number {
                0 => found += audit(),
                _ => {
                    let drawn = random.clone();
                    random.next_u64();
                    db.transact_blocking(|tx| transfer(tx, table, &mut drawn.clone()))
                        .expect("attempts enough");
                }
            }
        }
        found
    });
    during + audit()
}

#[test]
fn totals_are_constant() {
    holds(violations);
}

#[test]
fn skipping_the_read_set_is_caught() {
    catches(StoreBug::SkipReadSet, violations);
}
