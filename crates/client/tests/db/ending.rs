//! However a transaction ends (error, panic, a dropped future, too many attempts) nothing of it
//! happened, nothing stays locked, and its place is free for the next.

use futures_executor::block_on;
use shoal_client::{Aborted, Conflict, Db, Error, Options, Rejected, Scan, TableId};
use shoal_types::KeyExcerpt;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

/// So few that one lost place in each test would show.
const TRANSACTIONS_MAX: usize = 2;

fn db() -> (Db, TableId) {
    let options =
        Options { transactions_max: TRANSACTIONS_MAX, attempts_max: 3, ..Options::default() };
    let db = Db::with_options(options);
    let table = db.table("t").expect("a table");
    db.transact_blocking(|tx| tx.put(table, b"x", b"before")).expect("no conflict");
    (db, table)
}

/// The database is as [`db`] made it, and can do all it could.
#[track_caller]
fn untouched(db: &Db, table: TableId) {
    let open: Vec<_> = (0..TRANSACTIONS_MAX).map(|_| db.begin().expect("a free place")).collect();
    drop(open);
    db.transact_blocking(|tx| {
        assert_eq!(tx.scan(table, Scan::all())?, [(&b"x"[..], &b"before"[..])]);
        Ok(())
    })
    .expect("nothing is locked");
    db.transact_blocking(|tx| {
        tx.put(table, b"x", b"after")?;
        tx.insert(table, b"y", b"after")
    })
    .expect("nothing is locked");
    db.transact_blocking(|tx| {
        tx.put(table, b"x", b"before")?;
        tx.delete(table, b"y")
    })
    .expect("nothing is locked");
}

#[test]
fn a_panic_rolls_back() {
    let (db, table) = db();
    for _ in 0..=TRANSACTIONS_MAX {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            block_on(db.transact(async |tx| {
                tx.put(table, b"x", b"lost")?;
                tx.insert(table, b"y", b"lost").await?;
                if tx.get(table, b"y").await?.is_some() {
                    panic!("on purpose");
                }
                Ok(())
            }))
        }));
        assert!(panicked.is_err());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            db.transact_blocking::<()>(|tx| {
                tx.delete(table, b"x")?;
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
    }
    untouched(&db, table);
}

#[test]
fn an_error_of_the_body_rolls_back_and_comes_out() {
    let (db, table) = db();
    let error = || Error::reject("changed my mind");
    for _ in 0..=TRANSACTIONS_MAX {
        let ended = block_on(db.transact(async |tx| {
            tx.put(table, b"x", b"lost")?;
            tx.delete(table, b"x")?;
            tx.insert(table, b"y", b"lost").await?;
            Err::<(), _>(error())
        }));
        assert_eq!(ended, Err(error()));
        assert_eq!(db.transact_blocking(|tx| tx.insert(table, b"x", b"").map(|()| 1)), {
            Err(Rejected::KeyExists { table, key: KeyExcerpt::new(b"x") }.into())
        });
    }
    untouched(&db, table);
}

#[test]
fn a_dropped_future_rolls_back() {
    let (db, table) = db();
    for _ in 0..=TRANSACTIONS_MAX {
        let mut reached = false;
        let mut future = Box::pin(db.transact(async |tx| {
            tx.put(table, b"x", b"lost")?;
            tx.insert(table, b"y", b"lost").await?;
            reached = true;
            pending::<()>().await;
            Ok(())
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        drop(future);
        assert!(reached);
        // A future that was never polled has not even begun.
        drop(db.transact(async |tx| tx.put(table, b"x", b"lost")));
    }
    untouched(&db, table);
}

/// A body that waits half-way lets others go first, and is run again if they were in the way.
#[test]
fn a_body_may_wait() {
    let (db, table) = db();
    let mut runs = 0;
    let mut future = Box::pin(db.transact(async |tx| {
        runs += 1;
        let seen = tx.get(table, b"x").await?.unwrap_or_default().to_vec();
        let mut waited = false;
        std::future::poll_fn(|_| match std::mem::replace(&mut waited, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        tx.put(table, b"y", &seen)
    }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    db.transact_blocking(|tx| tx.put(table, b"x", b"between")).unwrap();
    while future.as_mut().poll(&mut context).is_pending() {}
    drop(future);
    assert_eq!(runs, 2);
    let y = db.transact_blocking(|tx| Ok(tx.get(table, b"y")?.map(<[u8]>::to_vec))).unwrap();
    assert_eq!(y.as_deref(), Some(&b"between"[..]));
}

/// What a body computed from reads that never were is not its verdict.
#[test]
fn an_error_from_an_inconsistent_read_is_not_believed() {
    let (db, table) = db();
    let mut runs = 0;
    let verdict = db.transact_blocking(|tx| {
        runs += 1;
        let seen = tx.get(table, b"x")?.unwrap_or_default().to_vec();
        if runs == 1 {
            db.transact_blocking(|other| other.put(table, b"x", b"changed"))?;
            return Err(Error::reject("saw what was before"));
        }
        Ok(seen)
    });
    assert_eq!(verdict, Ok(b"changed".to_vec()));
}

#[test]
fn attempts_run_out() {
    for (attempts_max, runs_expected) in [(0, 1), (1, 1), (3, 3)] {
        let db = Db::with_options(Options { attempts_max, ..Options::default() });
        let table = db.table("t").unwrap();
        let in_the_way = || db.transact_blocking(|tx| tx.add(table, b"x", 1)).map(|_| ());
        in_the_way().unwrap();
        let last = Conflict::ReadChanged { table, key: KeyExcerpt::new(b"x") };
        let expected = Aborted::RetriesExhausted { attempts: runs_expected, last };
        let mut runs = 0;
        let ended = db.transact_blocking(|tx| {
            runs += 1;
            tx.get(table, b"x")?;
            in_the_way()?;
            tx.put(table, b"y", b"")
        });
        assert_eq!((ended, runs), (Err(expected.into()), runs_expected));
        let ended = block_on(db.transact(async |tx| {
            runs += 1;
            tx.get(table, b"x").await?;
            in_the_way()?;
            tx.put(table, b"y", b"")
        }));
        assert_eq!((ended, runs), (Err(expected.into()), 2 * runs_expected));
        let y = db.transact_blocking(|tx| Ok(tx.get(table, b"y")?.is_some()));
        assert_eq!(y, Ok(false));
    }
}

#[test]
fn too_many_transactions_are_refused_until_one_ends() {
    let (db, table) = db();
    let refused = Rejected::TooManyTransactions { max: TRANSACTIONS_MAX };
    let mut open: Vec<_> = (0..TRANSACTIONS_MAX).map(|_| db.begin().unwrap()).collect();
    for _ in 0..3 {
        assert_eq!(db.begin().map(drop), Err(refused.clone().into()));
        assert_eq!(db.begin_blocking().map(drop), Err(refused.clone().into()));
        assert_eq!(db.transact_blocking(|_| Ok(())), Err(refused.clone().into()));
        assert_eq!(block_on(db.transact(async |_| Ok(()))), Err(refused.clone().into()));
    }
    open.pop().unwrap().rollback();
    db.transact_blocking(|tx| tx.get(table, b"x").map(|_| ())).unwrap();
    drop(open);
    // Places that rest with one thread serve the others too.
    for _ in 0..2 * TRANSACTIONS_MAX {
        std::thread::scope(|scope| {
            let used = scope.spawn(|| db.transact_blocking(|tx| tx.get(table, b"x").map(|_| ())));
            used.join().expect("no panic").unwrap();
        });
    }
    untouched(&db, table);
}

#[test]
fn a_transaction_outlives_its_database() {
    let (db, table) = db();
    let (first, second) = (db.begin_blocking().unwrap(), db.begin_blocking().unwrap());
    drop(db);
    first.put(table, b"x", b"new").unwrap();
    assert_eq!(second.get(table, b"x").unwrap(), Some(&b"before"[..]));
    first.commit().unwrap();
    assert_eq!(second.get(table, b"x").unwrap(), Some(&b"new"[..]), "reads are of the newest");
    assert!(matches!(second.commit(), Err(Error::Aborted(Aborted::Conflict(_)))));
}
