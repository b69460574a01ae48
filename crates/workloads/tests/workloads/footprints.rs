//! Procedures of the workloads touch nothing outside of the footprints that they declare, and those that are sets of
//! pieces do the same piece by piece as at once.

use bytes::Bytes;
use futures_executor::block_on;
use shoal_types::procedure::{DynTransaction, OperationFuture, Shape};
use shoal_types::{
    Call, Database, Footprint, ProcedureTransaction, Procedures, Result, Rows, Scan, TableId,
    Transaction,
};
use shoal_workloads::increments::{INCREMENT, Increments};
use shoal_workloads::micro::{Micro, TOUCH};
use shoal_workloads::model::{Model, ModelTransaction};
use shoal_workloads::procedures;
use shoal_workloads::tpcc::{Kind, Scale, TpcC};
use shoal_workloads::workload::Workload;
use shoal_workloads::ycsb::{Distribution, Letter, OPERATION, VALUE_BYTES_MIN, Ycsb};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Shards of the database on which pieces are executed.
const SHARDS: usize = 3;

/// The shard of a key, which has nothing to do with the order of keys.
fn shard_of(table: TableId, key: &[u8]) -> usize {
    let sum = key.iter().fold(table.0 as usize, |sum, byte| 31 * sum % 1009 + usize::from(*byte));
    sum % SHARDS
}

/// A transaction that holds what is touched against a footprint, and has the rows of one shard alone, if it is a piece.
struct Declared<'m> {
    tx: &'m ModelTransaction,
    footprint: &'m Footprint,
    piece: Option<usize>,
    complaints: RefCell<Vec<String>>,
}

impl Declared<'_> {
    fn touch(&self, how: &str, table: TableId, key: &[u8], is_allowed: bool) {
        let is_declared = is_allowed || self.footprint.shape == Shape::Unknown;
        if !is_declared || !self.covers(table, key) {
            let complaint = format!("{how} {table} {}", key.escape_ascii());
            self.complaints.borrow_mut().push(complaint);
        }
    }

    fn read(&self, table: TableId, key: &[u8]) {
        self.touch("read", table, key, self.footprint.allows_read(table, key));
    }

    fn write(&self, table: TableId, key: &[u8]) {
        self.touch("wrote", table, key, self.footprint.allows_write(table, key));
    }
}

impl DynTransaction for Declared<'_> {
    fn table(&self, name: &str) -> Result<TableId> {
        DynTransaction::table(self.tx, name)
    }

    fn covers(&self, table: TableId, key: &[u8]) -> bool {
        self.piece.is_none_or(|piece| shard_of(table, key) == piece)
    }

    fn get<'t: 'f, 'f>(
        &'t self,
        table: TableId,
        key: &'f [u8],
    ) -> OperationFuture<'f, Option<&'t [u8]>> {
        self.read(table, key);
        DynTransaction::get(self.tx, table, key)
    }

    fn scan<'t: 'f, 'f>(&'t self, table: TableId, scan: Scan<'f>) -> OperationFuture<'f, Rows<'t>> {
        let is_declared = self.footprint.shape == Shape::Unknown;
        if !is_declared && !self.footprint.allows_scan(table, &scan) {
            self.complaints.borrow_mut().push(format!("scanned {table} {scan:?}"));
        }
        let all = DynTransaction::scan(self.tx, table, scan.limit(usize::MAX));
        let OperationFuture::Ready(Some(rows)) = all else { panic!("the model waits for nothing") };
        OperationFuture::ready(rows.map(|rows| {
            let covered = rows.into_iter().filter(|(key, _)| self.covers(table, key));
            covered.take(scan.limit).collect()
        }))
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, key);
        Transaction::put(self.tx, table, key, value)
    }

    fn insert<'f>(
        &'f self,
        table: TableId,
        key: &'f [u8],
        value: &'f [u8],
    ) -> OperationFuture<'f, ()> {
        self.read(table, key);
        self.write(table, key);
        DynTransaction::insert(self.tx, table, key, value)
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.write(table, key);
        Transaction::delete(self.tx, table, key)
    }

    fn add<'f>(&'f self, table: TableId, key: &'f [u8], delta: i64) -> OperationFuture<'f, i64> {
        self.read(table, key);
        self.write(table, key);
        DynTransaction::add(self.tx, table, key, delta)
    }
}

/// How often each procedure was called, by its name and the shape that it declared.
type Seen = BTreeMap<(String, &'static str), usize>;

/// A database on which each call is executed as a whole, and on a copy piece by piece, where it can be.
#[derive(Clone)]
struct Twice {
    whole: Model,
    pieces: Model,
    procedures: Arc<Procedures>,
    seen: Rc<RefCell<Seen>>,
}

impl Twice {
    fn new(whole: Model, pieces: Model, procedures: Procedures) -> Twice {
        Twice { whole, pieces, procedures: Arc::new(procedures), seen: Rc::default() }
    }

    async fn execute(
        &self,
        db: &Model,
        call: &Call<'_>,
        footprint: &Footprint,
        piece: Option<usize>,
    ) -> Result<Bytes> {
        let procedure = self.procedures.get(call.procedure)?;
        let mut complaints = Vec::new();
        let result = db
            .transact(async |tx| {
                let declared = Declared { tx, footprint, piece, complaints: RefCell::default() };
                let handle = ProcedureTransaction::new(&declared);
                let result = procedure.run(&handle, call.arguments).await;
                complaints = declared.complaints.take();
                result
            })
            .await;
        assert!(complaints.is_empty(), "{} {piece:?}: {complaints:?}", call.procedure);
        result
    }

    /// All rows of the tables, which are the same in both.
    fn compare(&self, tables: u32) {
        for table in (0..tables).map(TableId) {
            let [whole, pieces] = [&self.whole, &self.pieces].map(|db| {
                let rows = db.transact(async |tx| {
                    let rows = Transaction::scan(tx, table, Scan::all()).await?;
                    let owned = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
                    Ok(rows.into_iter().map(owned).collect::<Vec<_>>())
                });
                block_on(rows).expect("rows")
            });
            assert!(whole == pieces, "{table} differs");
        }
    }
}

impl Database for Twice {
    type Transaction<'db> = ModelTransaction;

    fn table(&self, name: &str) -> Result<TableId> {
        let table = self.whole.table(name)?;
        assert_eq!(self.pieces.table(name)?, table);
        Ok(table)
    }

    async fn transact<T>(
        &self,
        body: impl AsyncFnMut(&ModelTransaction) -> Result<T>,
    ) -> Result<T> {
        self.whole.transact(body).await
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        let procedure = self.procedures.get(call.procedure)?;
        let footprint = procedure.footprint(call.arguments)?;
        let shape = match footprint.shape {
            Shape::Pieces => "pieces",
            Shape::Whole => "whole",
            Shape::Unknown => "unknown",
        };
        *self.seen.borrow_mut().entry((call.procedure.to_owned(), shape)).or_default() += 1;
        let whole = self.execute(&self.whole, call, &footprint, None).await;
        let other = if footprint.shape == Shape::Pieces {
            let mut results = Vec::new();
            for piece in 0..SHARDS {
                results.push(self.execute(&self.pieces, call, &footprint, Some(piece)).await?);
            }
            procedure.combine(call.arguments, results)
        } else {
            self.execute(&self.pieces, call, &footprint, None).await
        };
        assert_eq!(whole, other, "{}: a whole, and its pieces", call.procedure);
        if let Ok(whole) = &whole {
            let alone = procedure.combine(call.arguments, vec![whole.clone()]);
            assert_eq!(alone.as_ref(), Ok(whole), "{}: combined alone", call.procedure);
        }
        whole
    }
}

/// Runs so many transactions of a workload, all of them calls, and its checks.
fn run<W: Workload>(make: impl Fn(&Twice) -> W, transactions: usize, tables: u32) -> Seen {
    let procedures = procedures::register(Procedures::new());
    let db = Twice::new(Model::new(), Model::new(), procedures);
    let workload = make(&db);
    for part in 0..workload.load_parts() {
        for copy in [&db.whole, &db.pieces] {
            block_on(workload.load(copy, part, 7, &mut |_| ())).expect("loaded");
        }
    }
    let mut client = workload.client(0, 1);
    for _ in 0..transactions {
        block_on(workload.next(&db, &mut client)).expect("a transaction");
    }
    let checks = block_on(workload.check(&db)).expect("checks");
    let failed: Vec<_> = checks.into_iter().filter(|check| check.verdict.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    db.compare(tables);
    db.seen.take()
}

#[test]
fn micro_is_a_set_of_pieces() {
    let seen = run(|db| Micro::new(db, 50).expect("a table").calling(), 500, 1);
    assert_eq!(seen, Seen::from([((TOUCH.to_owned(), "pieces"), 500)]));
}

#[test]
fn increments_are_sets_of_pieces() {
    for shards in [1, 3] {
        let make = |db: &Twice| Increments::new(db, shards, 20, Distribution::Zipfian(0.9));
        let seen = run(|db| make(db).expect("a table").calling(), 500, 1);
        assert_eq!(seen, Seen::from([((INCREMENT.to_owned(), "pieces"), 500)]));
    }
}

#[test]
fn ycsb_is_a_set_of_pieces() {
    for letter in [Letter::A, Letter::D, Letter::E, Letter::F] {
        let uniform = Distribution::Uniform;
        let make = |db: &Twice| Ycsb::new(db, letter, 60, VALUE_BYTES_MIN, uniform);
        let seen = run(|db| make(db).expect("a table").calling(), 300, 1);
        assert_eq!(seen, Seen::from([((OPERATION.to_owned(), "pieces"), 300)]), "{letter:?}");
    }
}

#[test]
fn tpcc_touches_what_it_declares() {
    let seen = run(|db| TpcC::new(db, Scale::small(2)).expect("tables").calling(), 1000, 11);
    let names = ["delivery", "new_order", "order_status", "payment", "stock_level"];
    let whole = names.map(|name| (format!("tpcc.{name}"), "whole"));
    assert!(seen.keys().eq(&whole), "{seen:?}");
    assert_eq!(seen.values().sum::<usize>(), 1000);
}

#[test]
fn order_statuses_can_stay_interactive_where_all_else_is_called() {
    for (kind, called) in [(Kind::OrderStatus, 0), (Kind::StockLevel, 50)] {
        let make = |db: &Twice| TpcC::new(db, Scale::small(2)).expect("tables").of_kind(kind);
        let seen = run(|db| make(db).calling().with_interactive_multi_shot(), 50, 11);
        assert_eq!(seen.values().sum::<usize>(), called, "{seen:?}");
    }
}

#[test]
fn arguments_that_are_none_are_refused() {
    let procedures = procedures::register(Procedures::new());
    let db = Model::new().with_procedures(procedures::register(Procedures::new()));
    for name in procedures.names() {
        for bytes in [&b""[..], b"\xff", &[0; 7], &[0xff; 40]] {
            let call = block_on(db.call(&Call::new(name, bytes)));
            let footprint = procedures.get(name).expect("it is there").footprint(bytes);
            assert!(call.is_err(), "{name} {bytes:?}");
            assert!(footprint.is_err(), "{name} {bytes:?}");
        }
    }
}
