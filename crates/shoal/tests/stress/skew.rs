//! Write skew: of two on duty one may leave, never both at once.

use crate::{catches, db, holds, on_threads};
use shoal::{BlockingTransaction, Result, TableId};
use shoal_store::{StoreBug, StoreBugs};
use std::thread::yield_now;

const PAIRS: u64 = 2;
const ROUNDS: u64 = 700;

/// Reads both of a pair; `mine` leaves if both are on duty, and comes back if it is not. Says whether
/// one of them was there.
fn turn(tx: &BlockingTransaction<'_>, table: TableId, pair: u64, mine: u64) -> Result<bool> {
    let key = |member: u64| [pair as u8, member as u8];
    let on_duty = |member| tx.get(table, &key(member)).map(|value| value == Some(b"on"));
    let (me, other) = (on_duty(mine)?, on_duty(1 - mine)?);
    yield_now();
    match (me, other) {
        (true, true) => tx.put(table, &key(mine), b"off")?,
        (true, false) => {}
        (false, _) => tx.put(table, &key(mine), b"on")?,
    }
    Ok(me || other)
}

/// Counts how often no doctor was on duty.
fn deserted(faults: StoreBugs, seed: u64) -> u64 {
    let db = db(faults);
    let table = db.table("duty").expect("a table");
    db.transact_blocking(|tx| {
        (0..PAIRS).try_for_each(|pair| {
            (0..2u8).try_for_each(|member| tx.put(table, &[pair as u8, member], b"on"))
        })
    })
    .expect("no conflict");
    on_threads(seed, |number, random| {
        let mut round = || {
            let pair = random.below(PAIRS);
            let is_any_on_duty = db.transact_blocking(|tx| turn(tx, table, pair, number % 2));
            u64::from(!is_any_on_duty.expect("attempts enough"))
        };
        (0..ROUNDS).map(|_| round()).sum()
    })
}

#[test]
fn somebody_is_always_on_duty() {
    holds(deserted);
}

#[test]
fn skipping_the_read_set_is_caught() {
    catches(StoreBug::SkipReadSet, deserted);
}
