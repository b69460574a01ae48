//! A serial reference database: the plainest thing that keeps every promise of
//! [`shoal_types::Database`]. Property tests compare the real ones with it, and workloads are tested
//! against it.
//!
//! One mutex guards ordered maps. A transaction takes the maps out of it, holds the lock until it
//! ends, and puts them back, so transactions run one after another and never conflict. Its own
//! writes stand in a second set of maps, which a commit applies and anything else drops.
//!
//! Invariants:
//! - The maps are back in the mutex before the lock is released, whichever way a transaction ends
//!   (committed, rolled back, panicked, its future dropped half-way).
//! - What a transaction hands out never moves while the transaction lives: committed rows are not
//!   touched before it ends, own writes lie in append-only `Slots`.
//!
//! A thread that holds a transaction open must not start another: it would wait for itself.

mod procedure;

use bytes::Bytes;
use shoal_types::transaction::{ScanEnd, sum};
use shoal_types::{
    Call, Database, KeyExcerpt, Procedures, Rejected, Result, Rows, Scan, TableId, Transaction,
    limits,
};
use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The serial reference database. Clones share the data.
#[derive(Debug, Clone, Default)]
pub struct Model {
    data: Arc<Mutex<Data>>,
    procedures: Arc<Procedures>,
}

type Table = BTreeMap<Box<[u8]>, Box<[u8]>>;

#[derive(Debug, Default)]
struct Data {
    names: BTreeMap<String, TableId>,
    tables: Vec<Table>,
}

impl Model {
    /// A database without tables and procedures.
    pub fn new() -> Model {
        Model::default()
    }

    /// The same database, on which these procedures can be called, and no others.
    #[must_use]
    pub fn with_procedures(self, procedures: Procedures) -> Model {
        Model { procedures: Arc::new(procedures), ..self }
    }

    fn lock(&self) -> MutexGuard<'_, Data> {
        // A panic in a body leaves the data whole (see the invariants), so poison means nothing.
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Database for Model {
    type Transaction<'db> = ModelTransaction;

    fn table(&self, name: &str) -> Result<TableId> {
        let mut data = self.lock();
        if let Some(table) = data.names.get(name) {
            return Ok(*table);
        }
        let max = limits::TABLE_NAME_BYTES_MAX;
        if name.is_empty() || name.len() > max {
            return Err(Rejected::TableName { bytes: name.len(), max }.into());
        }
        if data.tables.len() == limits::TABLES_MAX {
            return Err(Rejected::TooManyTables { max: limits::TABLES_MAX }.into());
        }
        let table = TableId(data.tables.len() as u32);
        data.names.insert(name.to_owned(), table);
        data.tables.push(Table::new());
        Ok(table)
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&Self::Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut open = Open::new(self.lock());
        let value = body(&open.transaction).await?;
        open.commit();
        Ok(value)
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        let procedure = self.procedures.get(call.procedure)?;
        self.transact(async |tx| procedure.run_at_once(tx, call.arguments)).await
    }
}

/// A transaction in progress and the lock it runs under.
struct Open<'a> {
    home: MutexGuard<'a, Data>,
    transaction: ModelTransaction,
}

impl<'a> Open<'a> {
    fn new(mut home: MutexGuard<'a, Data>) -> Open<'a> {
        let transaction = ModelTransaction {
            committed: mem::take(&mut home),
            writes: RefCell::default(),
            slots: Slots::default(),
            bytes: Cell::new(0),
        };
        Open { home, transaction }
    }

    fn commit(&mut self) {
        let writes = mem::take(&mut *self.transaction.writes.borrow_mut());
        for ((table, key), write) in writes {
            let rows = &mut self.transaction.committed.tables[table.0 as usize];
            match write.value {
                Some(slot) => rows.insert(key, self.transaction.slots.get(slot).into()),
                None => rows.remove(&key),
            };
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        *self.home = mem::take(&mut self.transaction.committed);
    }
}

/// A transaction that holds the whole database while it runs, so that transactions are serial.
#[derive(Debug)]
pub struct ModelTransaction {
    committed: Data,
    writes: RefCell<BTreeMap<Name, Write>>,
    slots: Slots,
    /// Keys and values written so far, for the limit.
    bytes: Cell<usize>,
}

/// A key and the table it belongs to.
type Name = (TableId, Box<[u8]>);

/// An own write: where its key and its value lie; no value means deleted.
#[derive(Debug, Clone, Copy)]
struct Write {
    key: usize,
    value: Option<usize>,
}

impl ModelTransaction {
    /// The committed rows of `table`, once `table` and `key` are found to be in order.
    fn rows(&self, table: TableId, key: &[u8]) -> Result<&Table> {
        let max = limits::KEY_BYTES_MAX;
        if key.is_empty() {
            return Err(Rejected::KeyEmpty { table }.into());
        }
        if key.len() > max {
            let (key, bytes) = (KeyExcerpt::new(key), key.len());
            return Err(Rejected::KeyTooLong { table, key, bytes, max }.into());
        }
        self.table(table)
    }

    fn table(&self, table: TableId) -> Result<&Table> {
        let rows = self.committed.tables.get(table.0 as usize);
        Ok(rows.ok_or(Rejected::UnknownTable { table })?)
    }

    fn read(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        let rows = self.rows(table, key)?;
        match self.writes.borrow().get(&(table, key.into())) {
            Some(write) => Ok(write.value.map(|slot| self.slots.get(slot))),
            None => Ok(rows.get(key).map(|value| &**value)),
        }
    }

    fn write(&self, table: TableId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.rows(table, key)?;
        let length = value.map_or(0, <[u8]>::len);
        let max = limits::VALUE_BYTES_MAX;
        if length > max {
            let key = KeyExcerpt::new(key);
            return Err(Rejected::ValueTooLong { table, key, bytes: length, max }.into());
        }
        let (bytes, max) = (self.bytes.get() + key.len() + length, limits::TRANSACTION_BYTES_MAX);
        if bytes > max {
            return Err(Rejected::TransactionBytes { bytes, max }.into());
        }
        let mut writes = self.writes.borrow_mut();
        let name = (table, Box::from(key));
        let max = limits::TRANSACTION_WRITES_MAX;
        if writes.len() == max && !writes.contains_key(&name) {
            return Err(Rejected::TransactionWrites { max }.into());
        }
        self.bytes.set(bytes);
        let write =
            Write { key: self.slots.push(key), value: value.map(|value| self.slots.push(value)) };
        writes.insert(name, write);
        Ok(())
    }

    /// The own writes of `table` within the bounds, in key order; `None` is a delete.
    fn own(&self, table: TableId, range: Range<'_>) -> Vec<(&[u8], Option<&[u8]>)> {
        let writes = self.writes.borrow();
        let of_table = (table, Box::default())..(TableId(table.0 + 1), Box::default());
        writes
            .range::<Name, _>(of_table)
            .filter(|((_, key), _)| range.contains(key))
            .map(|(_, write)| {
                (self.slots.get(write.key), write.value.map(|slot| self.slots.get(slot)))
            })
            .collect()
    }

    fn rows_of(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        let rows = self.table(table)?;
        let end = successor(&scan.end);
        let range = Range { start: scan.start, end: end.as_ref().map(|key| &**key) };
        if range.is_empty() {
            return Ok(Rows::new());
        }
        let committed = rows
            .range::<[u8], _>((range.start, range.end))
            .map(|(key, value)| (&**key, Some(&**value)));
        let own = self.own(table, range).into_iter();
        Ok(if scan.reverse {
            merge(committed.rev(), own.rev(), |a, b| b.cmp(a), scan.limit)
        } else {
            merge(committed, own, |a, b| a.cmp(b), scan.limit)
        })
    }

    fn insert_absent(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        if self.read(table, key)?.is_some() {
            return Err(Rejected::KeyExists { table, key: KeyExcerpt::new(key) }.into());
        }
        self.write(table, key, Some(value))
    }

    fn add_to(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        let sum = sum(table, key, self.read(table, key)?, delta)?;
        self.write(table, key, Some(&sum.to_le_bytes()))?;
        Ok(sum)
    }
}

impl Transaction for ModelTransaction {
    async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.read(table, key)
    }

    async fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        self.rows_of(table, scan)
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, key, Some(value))
    }

    async fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert_absent(table, key, value)
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.write(table, key, None)
    }

    async fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        self.add_to(table, key, delta)
    }
}

#[derive(Debug, Clone, Copy)]
struct Range<'a> {
    start: Bound<&'a [u8]>,
    end: Bound<&'a [u8]>,
}

impl Range<'_> {
    fn contains(&self, key: &[u8]) -> bool {
        let after_start = match self.start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        };
        let before_end = match self.end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        };
        after_start && before_end
    }

    /// Whether no key can lie between the bounds.
    fn is_empty(&self) -> bool {
        match (self.start, self.end) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => start >= end,
        }
    }
}

/// The end of a scan as a bound: past a prefix lies the next byte string that does not begin with
/// it, if there is one.
fn successor(end: &ScanEnd<'_>) -> Bound<Vec<u8>> {
    match end {
        ScanEnd::Bound(bound) => bound.map(<[u8]>::to_vec),
        ScanEnd::Prefix(prefix) => match prefix.iter().rposition(|byte| *byte < u8::MAX) {
            None => Bound::Unbounded,
            Some(last) => {
                let mut next = prefix[..=last].to_vec();
                next[last] += 1;
                Bound::Excluded(next)
            }
        },
    }
}

/// Two sorted sequences as one, the second winning where both have a key; deleted keys left out.
fn merge<'a>(
    committed: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    own: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    order: impl Fn(&[u8], &[u8]) -> Ordering,
    limit: usize,
) -> Rows<'a> {
    let (mut committed, mut own) = (committed.peekable(), own.peekable());
    let mut rows = Rows::new();
    while rows.len() < limit {
        let order = match (committed.peek(), own.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => order(a, b),
        };
        let overwritten = if order.is_le() { committed.next() } else { None };
        let row = if order.is_ge() { own.next() } else { overwritten };
        if let Some((key, Some(value))) = row {
            rows.push((key, value));
        }
    }
    rows
}

/// Room for one byte string, filled once.
type Slot = OnceCell<Box<[u8]>>;

/// Byte strings that stay where they are: append-only, so that a shared reference can both add and
/// hand out. Bucket i holds 2^i of them and is never resized.
#[derive(Debug, Default)]
struct Slots {
    buckets: [OnceCell<Box<[Slot]>>; Slots::BUCKETS],
    length: Cell<usize>,
}

// A write takes two slots, a key's and a value's; overwriting an own write takes two more, so it is
// the limit on bytes that bounds them: a key has at least one.
const _: () = assert!(2 * limits::TRANSACTION_BYTES_MAX < 1 << Slots::BUCKETS);

impl Slots {
    const BUCKETS: usize = 28;

    /// Bucket and place in it.
    fn place(slot: usize) -> (usize, usize) {
        let bucket = (slot + 1).ilog2();
        (bucket as usize, slot + 1 - (1 << bucket))
    }

    fn push(&self, bytes: &[u8]) -> usize {
        let slot = self.length.get();
        let (bucket, at) = Self::place(slot);
        let bucket = self.buckets[bucket]
            .get_or_init(|| (0..1 << bucket).map(|_| OnceCell::new()).collect());
        bucket[at].set(bytes.into()).expect("each slot is filled once");
        self.length.set(slot + 1);
        slot
    }

    fn get(&self, slot: usize) -> &[u8] {
        let (bucket, at) = Self::place(slot);
        let filled = self.buckets[bucket].get().and_then(|bucket| bucket[at].get());
        filled.expect("a slot is filled before its number is known")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::block_on;
    use shoal_types::Error;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A database with rows a, c, e, g in one table.
    fn letters() -> (Model, TableId) {
        let model = Model::new();
        let table = model.table("letters").unwrap();
        block_on(model.transact(async |tx| {
            for key in [b"a", b"c", b"e", b"g"] {
                tx.put(table, key, b"old")?;
            }
            Ok(())
        }))
        .unwrap();
        (model, table)
    }

    async fn keys<'a>(tx: &'a ModelTransaction, table: TableId, scan: Scan<'_>) -> Vec<&'a [u8]> {
        tx.scan(table, scan).await.unwrap().into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn reads_and_scans_see_own_writes() {
        let (model, table) = letters();
        block_on(model.transact(async |tx| {
            let before = tx.get(table, b"c").await?;
            tx.put(table, b"c", b"new")?;
            tx.insert(table, b"d", b"new").await?;
            tx.delete(table, b"e")?;
            let rows = tx.scan(table, Scan::all()).await?;
            assert_eq!(before, Some(&b"old"[..]));
            let expected: [(&[u8], &[u8]); 4] =
                [(b"a", b"old"), (b"c", b"new"), (b"d", b"new"), (b"g", b"old")];
            assert_eq!(rows, expected);
            assert_eq!(tx.get(table, b"e").await?, None);
            assert_eq!(keys(tx, table, Scan::all().reverse().limit(2)).await, [b"g", b"d"]);
            Ok(())
        }))
        .unwrap();
    }

    #[test]
    fn bounds_and_prefixes() {
        let (model, table) = letters();
        block_on(model.transact(async |tx| {
            tx.put(table, b"c1", b"")?;
            tx.put(table, b"\xff\xff", b"")?;
            let range =
                |start: Bound<&'static [u8]>, end: Bound<&'static [u8]>| Scan::range((start, end));
            use Bound::{Excluded, Included};
            let inner = range(Excluded(b"a"), Excluded(b"e"));
            assert_eq!(keys(tx, table, inner).await, [b"c".as_slice(), b"c1"]);
            assert_eq!(keys(tx, table, range(Included(b"e"), Included(b"e"))).await, [b"e"]);
            assert!(keys(tx, table, range(Excluded(b"e"), Excluded(b"e"))).await.is_empty());
            assert!(keys(tx, table, range(Included(b"g"), Included(b"a"))).await.is_empty());
            assert_eq!(keys(tx, table, Scan::prefix(b"c")).await, [b"c".as_slice(), b"c1"]);
            assert_eq!(keys(tx, table, Scan::prefix(b"\xff")).await, [b"\xff\xff"]);
            assert_eq!(keys(tx, table, Scan::prefix(b"")).await.len(), 6);
            Ok(())
        }))
        .unwrap();
    }

    #[test]
    fn only_a_commit_takes_effect() {
        let (model, table) = letters();
        let failed = block_on(model.transact(async |tx| {
            tx.put(table, b"a", b"new")?;
            Err::<(), _>(Error::reject("changed my mind"))
        }));
        assert!(matches!(failed, Err(Error::Rejected(Rejected::Procedure { .. }))));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            block_on(model.transact(async |tx| {
                tx.put(table, b"a", b"new")?;
                if tx.get(table, b"a").await?.is_some() {
                    panic!("on purpose");
                }
                Ok(())
            }))
        }));
        assert!(panicked.is_err());
        let value =
            block_on(model.transact(async |tx| Ok(tx.get(table, b"a").await?.unwrap().to_vec())));
        assert_eq!(value.unwrap(), b"old");
    }

    #[test]
    fn add_and_insert_check_what_is_there() {
        let (model, table) = letters();
        block_on(model.transact(async |tx| {
            assert_eq!(tx.add(table, b"n", 5).await?, 5);
            assert_eq!(tx.add(table, b"n", i64::MAX).await?, i64::MIN + 4);
            let wrong = tx.add(table, b"a", 1).await;
            assert!(matches!(wrong, Err(Error::Rejected(Rejected::WrongValue { bytes: 3, .. }))));
            let exists = tx.insert(table, b"a", b"").await;
            assert!(matches!(exists, Err(Error::Rejected(Rejected::KeyExists { .. }))));
            tx.delete(table, b"a")?;
            tx.insert(table, b"a", b"again").await
        }))
        .unwrap();
    }

    #[test]
    fn bad_input_is_rejected() {
        let (model, table) = letters();
        block_on(model.transact(async |tx| {
            let rejected = |result: Result<()>| match result {
                Err(Error::Rejected(reason)) => reason,
                other => panic!("{other:?}"),
            };
            let long = vec![1; limits::KEY_BYTES_MAX + 1];
            let huge = vec![1; limits::VALUE_BYTES_MAX + 1];
            assert!(matches!(rejected(tx.put(table, b"", b"")), Rejected::KeyEmpty { .. }));
            assert!(matches!(rejected(tx.delete(table, &long)), Rejected::KeyTooLong { .. }));
            assert!(matches!(rejected(tx.put(table, b"k", &huge)), Rejected::ValueTooLong { .. }));
            let unknown = rejected(tx.put(TableId(7), b"k", b""));
            assert!(matches!(unknown, Rejected::UnknownTable { table: TableId(7) }));
            Ok(())
        }))
        .unwrap();
        assert!(model.table("").is_err());
        assert_eq!(model.table("letters").unwrap(), table);
    }
}
