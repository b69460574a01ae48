//! One program on a database that is embedded or connected.

use crate::served::Reef;
use crate::{PATIENCE, block_on};
use bytes::Bytes;
use shoal_client::{
    Aborted, Cause, ClusterOptions, Db, Error, Procedures, Rejected, Result, Scan, TableId,
    Transaction,
};
use shoal_engine::ProcedureTransaction;
use shoal_types::Transaction as _;
use std::thread;

async fn count(tx: &ProcedureTransaction<'_>, key: &[u8]) -> Result<Bytes> {
    let sum = tx.add(tx.table("t")?, key, 1).await?;
    Ok(Bytes::copy_from_slice(&sum.to_le_bytes()))
}

fn procedures() -> Procedures {
    Procedures::new().with("count", count)
}

fn reef() -> Reef {
    Reef::start(3, 1, &["t", "loaded"], procedures())
}

fn options() -> ClusterOptions {
    ClusterOptions { commit_ids: true, ..crate::served::options() }
}

fn embedded() -> Db {
    Db::memory().with_procedures(procedures())
}

/// Moves one, in the middle of which the task may move to another thread, and returns whether what it read agreed.
async fn exchange(tx: &mut Transaction<'_>, table: TableId) -> Result<bool> {
    let (from, to) = (b"a", b"b");
    let before = tx.get(table, from).await?.map(<[u8]>::to_vec);
    tokio::task::yield_now().await;
    let rows = tx.scan(table, Scan::prefix(from).limit(1)).await?;
    let agrees = rows.first().map(|(_, value)| *value) == before.as_deref();
    tx.add(table, from, -1).await?;
    tx.add(table, to, 1).await?;
    Ok(agrees)
}

/// What there is to do with `await`.
async fn program(db: Db) -> Result<()> {
    let table = db.open_table("t").await?;
    assert_eq!(db.table("t")?, table);
    // Once this has committed, every leader serves.
    db.transact(async |tx| tx.scan(table, Scan::all()).await.map(drop)).await?;
    let tx = db.begin()?;
    tx.put(table, b"a", &10_i64.to_le_bytes())?;
    tx.insert(table, b"b", &0_i64.to_le_bytes()).await?;
    let again = tx.insert(table, b"b", b"").await;
    assert!(matches!(again, Err(Error::Rejected(Rejected::KeyExists { .. }))), "{again:?}");
    tx.prefetch(&[(table, b"a"), (table, b"b")]);
    assert_eq!(tx.get_for_update(table, b"a").await?, Some(&10_i64.to_le_bytes()[..]));
    tx.put(table, b"c", b"")?;
    tx.delete(table, b"c")?;
    tx.commit().await?;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let db = db.clone().with_deadline(PATIENCE);
            tokio::spawn(
                async move { db.transact(async move |tx| exchange(tx, table).await).await },
            )
        })
        .collect();
    for task in tasks {
        assert!(task.await.expect("no panic")?);
    }
    let refused: Result<()> = db
        .transact(async |tx| {
            let sum = tx.add(table, b"a", -7).await?;
            if sum < 0 { Err(Error::reject("too little")) } else { Ok(()) }
        })
        .await;
    assert_eq!(refused, Err(Error::reject("too little")));
    assert_eq!(db.call("count", b"a").await?, 7_i64.to_le_bytes()[..]);
    assert_eq!(db.call_near(table, b"b", "count", b"b").await?, 5_i64.to_le_bytes()[..]);
    db.begin()?.rollback();
    load(db).await
}

fn row(number: u64) -> ([u8; 8], [u8; 8]) {
    (number.to_be_bytes(), (number * number).to_le_bytes())
}

/// Loads more rows than a transaction of a load has, twice, and one that is refused.
async fn load(db: Db) -> Result<()> {
    const ROWS: u64 = 2000;
    let table = db.open_table("loaded").await?;
    for _ in 0..2 {
        let db = db.clone();
        let load = async move {
            let mut reported = 0;
            let rows = db.load(table, (0..ROWS).map(row), |more| reported += more).await?;
            Ok::<_, Error>((rows, reported))
        };
        assert_eq!(tokio::spawn(load).await.expect("no panic")?, (ROWS, ROWS));
    }
    let found = db
        .transact(async |tx| {
            let rows = tx.scan(table, Scan::all()).await?;
            Ok(rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<Vec<_>>())
        })
        .await?;
    let expected = (0..ROWS).map(row).map(|(key, value)| (key.to_vec(), value.to_vec()));
    assert!(found == expected.collect::<Vec<_>>(), "{} rows are found", found.len());
    let empty = db.load(table, [(&b"z"[..], b"1"), (&b""[..], b"2")], |_| {}).await;
    assert!(matches!(empty, Err(Error::Rejected(Rejected::KeyEmpty { .. }))), "{empty:?}");
    let unknown = db.load(TableId(77), [(b"z", b"1")], |_| {}).await;
    assert!(matches!(unknown, Err(Error::Rejected(Rejected::UnknownTable { .. }))), "{unknown:?}");
    Ok(())
}

/// The same without.
fn blocking_program(db: &Db) -> Result<()> {
    let table = db.table("t")?;
    let tx = db.begin_blocking()?;
    tx.prefetch(&[(table, b"a")]);
    assert_eq!(tx.get_for_update(table, b"a")?, Some(&7_i64.to_le_bytes()[..]));
    tx.put(table, b"c", b"")?;
    assert_eq!(tx.scan(table, Scan::all().reverse().limit(1))?, [(&b"c"[..], &b""[..])]);
    tx.delete(table, b"c")?;
    tx.insert(table, b"d", b"")?;
    tx.rollback();
    let moved = db.transact_blocking(|tx| {
        tx.add(table, b"a", -1)?;
        tx.add(table, b"b", 1)
    });
    assert_eq!(moved, Ok(6));
    let mut runs = 0;
    let late = db.transact_blocking(|tx| {
        runs += 1;
        let sum = tx.add(table, b"a", 1)?;
        if runs == 1 {
            // Another commits in between: the first attempt meets a conflict.
            db.transact_blocking(|other| other.add(table, b"a", 1))?;
        }
        Ok(sum)
    });
    assert_eq!((late, runs), (Ok(8), 2));
    let refused: Result<()> = db.transact_blocking(|tx| {
        tx.delete(table, b"a")?;
        Err(Error::reject("no"))
    });
    assert_eq!(refused, Err(Error::reject("no")));
    assert_eq!(db.call_blocking("count", b"a")?, 9_i64.to_le_bytes()[..]);
    let loaded = db.table("loaded")?;
    let mut reported = 0;
    assert_eq!(db.load_blocking(loaded, (0..600).map(row), |more| reported += more)?, 600);
    assert_eq!(reported, 600);
    db.begin_blocking()?.commit()
}

#[test]
fn one_program_runs_embedded_and_connected() {
    let db = embedded();
    block_on(program(db.clone())).expect("embedded");
    blocking_program(&db).expect("embedded, on this thread");
    let reef = reef();
    block_on(async {
        let db = Db::connect_with(&reef.addresses(), options()).await.expect("a cluster");
        program(db.clone()).await.expect("connected");
        assert!(db.memory_bytes().is_none() && db.embedded().is_none() && db.cluster().is_some());
    });
    let db = Db::connect_blocking(&reef.addresses(), options()).expect("a cluster");
    blocking_program(&db).expect("connected, on this thread");
}

/// The connections of the client cannot go on meanwhile, so what blocks has others.
#[test]
fn a_thread_that_drives_a_runtime_may_wait() {
    let reef = reef();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let db = Db::connect_with(&reef.addresses(), options()).await.expect("a cluster");
        program(db.clone()).await.expect("connected");
        blocking_program(&db).expect("on the thread of the runtime");
        // And beside it.
        let other = thread::spawn(move || db.transact_blocking(|tx| tx.put(TableId(1), b"e", b"")));
        other.join().expect("no panic").expect("committed");
    });
}

#[test]
fn who_waits_for_a_cluster_that_is_gone_is_told() {
    let reef = reef();
    let db = block_on(async {
        Db::connect_with(&reef.addresses(), options()).await.expect("a cluster")
    });
    drop(reef);
    let hasty = db.with_deadline(std::time::Duration::from_millis(200));
    let lost = hasty.transact_blocking(|tx| tx.put(TableId(1), b"a", b""));
    let Err(Error::Aborted(Aborted::Unanswered(wait))) = lost else { panic!("{lost:?}") };
    assert_eq!(wait.cause, Cause::Unreachable);
}
