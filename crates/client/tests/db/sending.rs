//! Tasks and threads: futures can be spawned, transactions and clones of a database can be sent.

use bytes::Bytes;
use shoal_client::{
    Db, Error, ProcedureTransaction, Procedures, Result, Scan, TableId, Transaction,
};
use shoal_types::Transaction as _;
use std::thread;

fn db() -> (Db, TableId) {
    let db = Db::memory();
    let table = db.table("t").expect("a table");
    (db, table)
}

fn sum(db: &Db, table: TableId) -> i64 {
    let number = |value: &[u8]| i64::from_le_bytes(value.try_into().expect("eight bytes"));
    let total = db.transact_blocking(|tx| {
        Ok(tx.scan(table, Scan::all())?.iter().map(|(_, value)| number(value)).sum())
    });
    total.expect("no other transaction is in the way")
}

/// Moves one from each of two keys to the other and counts the rounds under a third.
async fn exchange(tx: &mut Transaction<'_>, table: TableId) -> Result<()> {
    let before = tx.get(table, b"a").await?.map(<[u8]>::to_vec);
    tx.add(table, b"a", -1).await?;
    tokio::task::yield_now().await;
    tx.add(table, b"b", 1).await?;
    let after = tx.get(table, b"a").await?;
    assert_ne!(before.as_deref(), after);
    let rows = tx.scan(table, Scan::range(&b"a"[..]..&b"c"[..])).await?;
    assert_eq!(rows.len(), 2);
    tx.add(table, b"rounds", 1).await.map(|_| ())
}

#[test]
fn transactions_run_as_tasks_of_many_threads() {
    const TASKS: i64 = 8;
    const ROUNDS: i64 = 100;
    let (db, table) = db();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().expect("a runtime");
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let db = db.clone();
                tokio::spawn(async move {
                    for _ in 0..ROUNDS {
                        db.transact(async move |tx| exchange(tx, table).await).await?;
                    }
                    Ok::<(), Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic").expect("attempts enough");
        }
    });
    assert_eq!(sum(&db, table), TASKS * ROUNDS);
}

#[test]
fn a_task_may_keep_what_it_read_and_captured_while_it_waits() {
    let (db, table) = db();
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    let name = String::from("ada");
    let read = runtime.block_on(async {
        tokio::spawn(async move {
            let mut runs = 0;
            db.transact(async move |tx| {
                runs += 1;
                tx.put(table, name.as_bytes(), b"1815")?;
                let value = tx.get(table, name.as_bytes()).await?;
                tokio::task::yield_now().await;
                let rows = tx.scan(table, Scan::all()).await?;
                tokio::task::yield_now().await;
                assert_eq!(rows.first().map(|(_, value)| *value), value);
                Ok(value.map(<[u8]>::to_vec))
            })
            .await
        })
        .await
        .expect("no panic")
    });
    assert_eq!(read.expect("no other transaction is in the way").as_deref(), Some(&b"1815"[..]));
}

#[test]
fn an_interactive_transaction_moves_between_threads() {
    let (db, table) = db();
    let tx = db.begin_blocking().expect("room");
    tx.add(table, b"a", 1).expect("within limits");
    let tx = thread::spawn(move || {
        tx.add(table, b"b", 1).expect("within limits");
        tx
    });
    let tx = tx.join().expect("no panic");
    tx.commit().expect("no other transaction is in the way");
    let tx = db.begin().expect("room");
    thread::spawn(move || drop(tx)).join().expect("no panic");
    assert_eq!(sum(&db, table), 2);
}

#[test]
fn clones_are_the_same_database() {
    const THREADS: i64 = 4;
    const ROUNDS: i64 = 500;
    let (db, table) = db();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let db = db.clone();
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    db.transact_blocking(|tx| tx.add(table, b"x", 1)).expect("attempts enough");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(sum(&db, table), THREADS * ROUNDS);
}

/// Adds one to the key that it is called with.
async fn count(tx: &ProcedureTransaction<'_>, key: &[u8]) -> Result<Bytes> {
    let sum = tx.add(tx.table("t")?, key, 1).await?;
    Ok(Bytes::copy_from_slice(&sum.to_le_bytes()))
}

#[test]
fn calls_run_as_tasks_of_many_threads_and_each_takes_effect_once() {
    const TASKS: i64 = 8;
    const ROUNDS: i64 = 100;
    let (db, table) = db();
    let db = db.with_procedures(Procedures::new().with("count", count));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().expect("a runtime");
    runtime.block_on(async {
        let call = |_| {
            let db = db.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    db.call("count", b"a").await?;
                }
                Ok::<(), Error>(())
            })
        };
        for task in (0..TASKS).map(call).collect::<Vec<_>>() {
            task.await.expect("no panic").expect("attempts enough");
        }
    });
    assert_eq!(sum(&db, table), TASKS * ROUNDS);
    let next = db.call_blocking("count", b"a").expect("no other transaction is in the way");
    assert_eq!(next, (TASKS * ROUNDS + 1).to_le_bytes()[..]);
    assert!(Db::memory().call_blocking("count", b"a").is_err(), "it knows none");
}
