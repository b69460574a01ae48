//! The model: ordered maps. Operations that it and every kind of transaction can do, with outcomes
//! that compare.

use shoal_client::{BlockingTransaction, Error, Rejected, Rows, Scan, TableId, Transaction};
use shoal_types::Random;
use std::collections::BTreeMap;
use std::ops::{Bound, DerefMut};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Tables the operations work on.
pub const TABLES: u8 = 3;

/// One operation. Keys are numbers that [`key_of`] spells out.
#[derive(Debug, Clone)]
pub enum Op {
    Put(u8, u8, Value),
    Insert(u8, u8, Value),
    Delete(u8, u8),
    Add(u8, u8, i64),
    Get(u8, u8),
    GetForUpdate(u8, u8),
    Scan { table: u8, range: Range, reverse: bool, limit: Option<usize> },
}

/// A value: a number, which `add` understands, or so many equal bytes.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    Number(i64),
    Bytes(u8, u16),
}

impl Value {
    fn bytes(self) -> Vec<u8> {
        match self {
            Value::Number(number) => number.to_le_bytes().to_vec(),
            Value::Bytes(byte, length) => vec![byte; usize::from(length)],
        }
    }
}

/// What a scan asks for, by numbers of keys.
#[derive(Debug, Clone, Copy)]
pub enum Range {
    All,
    Prefix(u8),
    Between(Bound<u8>, Bound<u8>),
}

/// What an operation answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Exists,
    WrongValue,
    Value(Option<Vec<u8>>),
    Sum(i64),
    Rows(Vec<(Vec<u8>, Vec<u8>)>),
}

/// The key of this number: one of four prefixes, and bodies with and without a long beginning in
/// common, so that key heads alike and different both occur.
pub fn key_of(number: u8) -> Vec<u8> {
    let mut key = vec![b'a' + number % 4];
    if number % 8 < 4 {
        key.extend_from_slice(b"a beginning in common/");
    }
    key.push(number);
    key
}

/// All tables' contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    tables: [BTreeMap<Vec<u8>, Vec<u8>>; TABLES as usize],
}

impl Model {
    /// Does `op`, and answers as a transaction on this state must.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Put(table, key, value) => {
                self.table(*table).insert(key_of(*key), value.bytes());
                Outcome::Done
            }
            Op::Insert(table, key, value) => {
                let rows = self.table(*table);
                if rows.contains_key(&key_of(*key)) {
                    return Outcome::Exists;
                }
                rows.insert(key_of(*key), value.bytes());
                Outcome::Done
            }
            Op::Delete(table, key) => {
                self.table(*table).remove(&key_of(*key));
                Outcome::Done
            }
            Op::Add(table, key, delta) => {
                let old = match self.table(*table).get(&key_of(*key)).map(|old| old[..].try_into())
                {
                    None => 0,
                    Some(Ok(number)) => i64::from_le_bytes(number),
                    Some(Err(_)) => return Outcome::WrongValue,
                };
                let sum = old.wrapping_add(*delta);
                self.table(*table).insert(key_of(*key), sum.to_le_bytes().to_vec());
                Outcome::Sum(sum)
            }
            Op::Get(table, key) | Op::GetForUpdate(table, key) => {
                Outcome::Value(self.table(*table).get(&key_of(*key)).cloned())
            }
            Op::Scan { table, range, reverse, limit } => {
                Outcome::Rows(self.scan(*table, *range, *reverse, limit.unwrap_or(usize::MAX)))
            }
        }
    }

    fn table(&mut self, table: u8) -> &mut BTreeMap<Vec<u8>, Vec<u8>> {
        &mut self.tables[usize::from(table)]
    }

    fn scan(
        &self,
        table: u8,
        range: Range,
        reverse: bool,
        limit: usize,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let is_in = |key: &[u8]| match range {
            Range::All => true,
            Range::Prefix(number) => key.starts_with(&prefix_of(number)),
            Range::Between(low, high) => {
                (match low.map(key_of) {
                    Bound::Included(low) => key >= &low[..],
                    Bound::Excluded(low) => key > &low[..],
                    Bound::Unbounded => true,
                }) && match high.map(key_of) {
                    Bound::Included(high) => key <= &high[..],
                    Bound::Excluded(high) => key < &high[..],
                    Bound::Unbounded => true,
                }
            }
        };
        let mut rows: Vec<_> = self.tables[usize::from(table)]
            .iter()
            .filter(|(key, _)| is_in(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if reverse {
            rows.reverse();
        }
        rows.truncate(limit);
        rows
    }
}

fn prefix_of(number: u8) -> Vec<u8> {
    // The first prefix is empty; the others reach into the keys more or less deeply.
    let key = key_of(number);
    key[..usize::from(number % 4).min(key.len())].to_vec()
}

/// A transaction that can do operations. An error is one that no operation should meet.
pub trait Subject {
    fn apply(&self, tables: &[TableId], op: &Op) -> Result<Outcome, Error>;
}

fn owned(rows: Rows<'_>) -> Outcome {
    Outcome::Rows(rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
}

/// The same for transactions whose operations have to be awaited and for those without.
macro_rules! subject {
    ($transaction:ty $(| $session:ident)?, $wait:expr) => {
        impl $(<$session: DerefMut<Target = shoal_store::Session>>)? Subject for $transaction {
            fn apply(&self, tables: &[TableId], op: &Op) -> Result<Outcome, Error> {
                let id = |table: &u8| tables[usize::from(*table)];
                let result = match op {
                    Op::Put(table, key, value) => self
                        .put(id(table), &key_of(*key), &value.bytes())
                        .map(|()| Outcome::Done),
                    Op::Insert(table, key, value) => {
                        let (key, value) = (key_of(*key), value.bytes());
                        let inserted = self.insert(id(table), &key, &value);
                        $wait(inserted).map(|()| Outcome::Done)
                    }
                    Op::Delete(table, key) => {
                        self.delete(id(table), &key_of(*key)).map(|()| Outcome::Done)
                    }
                    Op::Add(table, key, delta) => {
                        $wait(self.add(id(table), &key_of(*key), *delta)).map(Outcome::Sum)
                    }
                    Op::Get(table, key) => $wait(self.get(id(table), &key_of(*key)))
                        .map(|value| Outcome::Value(value.map(<[u8]>::to_vec))),
                    Op::GetForUpdate(table, key) => {
                        subject!(@update $($session)? self, id(table), &key_of(*key), $wait)
                            .map(|value| Outcome::Value(value.map(<[u8]>::to_vec)))
                    }
                    Op::Scan { table, range, reverse, limit } => {
                        let (low, high);
                        let mut scan = match range {
                            Range::All => Scan::all(),
                            Range::Prefix(number) => {
                                low = prefix_of(*number);
                                Scan::prefix(&low)
                            }
                            Range::Between(from, to) => {
                                (low, high) = (key_of(number(*from)), key_of(number(*to)));
                                Scan::range((from.map(|_| &low[..]), to.map(|_| &high[..])))
                            }
                        };
                        if *reverse {
                            scan = scan.reverse();
                        }
                        if let Some(limit) = limit {
                            scan = scan.limit(*limit);
                        }
                        $wait(self.scan(id(table), scan)).map(owned)
                    }
                };
                match result {
                    Err(Error::Rejected(Rejected::KeyExists { .. })) => Ok(Outcome::Exists),
                    Err(Error::Rejected(Rejected::WrongValue { .. })) => Ok(Outcome::WrongValue),
                    other => other,
                }
            }
        }
    };
    // The store has one kind of read only.
    (@update $session:ident $tx:expr, $table:expr, $key:expr, $wait:expr) => {
        $tx.get($table, $key)
    };
    (@update $tx:expr, $table:expr, $key:expr, $wait:expr) => {
        $wait($tx.get_for_update($table, $key))
    };
}

fn number(bound: Bound<u8>) -> u8 {
    match bound {
        Bound::Included(number) | Bound::Excluded(number) => number,
        Bound::Unbounded => 0,
    }
}

subject!(Transaction<'_>, at_once);

/// What a future returns that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("an operation on an embedded database waits"),
    }
}
subject!(BlockingTransaction<'_>, std::convert::identity);
subject!(shoal_store::Transaction<S> | S, std::convert::identity);

/// A random operation on the first `keys` keys.
pub fn draw(random: &mut Random, keys: u8) -> Op {
    let table = random.below(TABLES.into()) as u8;
    let key = random.below(keys.into()) as u8;
    match random.below(20) {
        0..3 => Op::Put(table, key, draw_value(random)),
        3..5 => Op::Insert(table, key, draw_value(random)),
        5..8 => Op::Delete(table, key),
        8..11 => Op::Add(table, key, random.below(9) as i64 - 4),
        11..14 => Op::Get(table, key),
        14 => Op::GetForUpdate(table, key),
        _ => Op::Scan {
            table,
            range: draw_range(random, keys),
            reverse: random.chance(1, 2),
            limit: random.chance(1, 2).then(|| random.below(6) as usize),
        },
    }
}

fn draw_value(random: &mut Random) -> Value {
    match random.below(8) {
        0..6 => Value::Number(random.below(100) as i64),
        6 => Value::Bytes(random.below(256) as u8, random.below(9) as u16),
        _ => Value::Bytes(random.below(256) as u8, random.below(10_000) as u16),
    }
}

fn draw_range(random: &mut Random, keys: u8) -> Range {
    let mut bound = || {
        let key = random.below(keys.into()) as u8;
        match random.below(5) {
            0..2 => Bound::Included(key),
            2..4 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        }
    };
    let (low, high) = (bound(), bound());
    match random.below(6) {
        0 => Range::All,
        1..3 => Range::Prefix(random.below(keys.into()) as u8),
        _ => Range::Between(low, high),
    }
}
