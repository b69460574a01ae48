//! Opening, closing, and opening again.

use crate::{files, rows, small};
use futures_executor::block_on;
use shoal_client::{Db, Error, OpenError, Options, Rejected};

#[test]
fn what_was_committed_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..4_u8 {
        let db = Db::open(folder.path()).unwrap();
        let names = ["one", "two"].map(|name| db.table(name).unwrap());
        let before = rows(&db, "one");
        assert_eq!(before.len(), usize::from(round));
        db.transact_blocking(|tx| {
            tx.put(names[0], &[b'k', round], &[round; 100])?;
            tx.put(names[1], b"k", &[round])?;
            tx.delete(names[1], &[b'd', round.wrapping_sub(1)])?;
            tx.put(names[1], &[b'd', round], b"")
        })
        .unwrap();
        assert_eq!(
            db.transact_blocking(|tx| tx.add(names[1], b"sum", 1)),
            Ok(i64::from(round) + 1)
        );
        let expected = [vec![b'd', round], b"k".to_vec(), b"sum".to_vec()];
        let keys: Vec<_> = rows(&db, "two").into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, expected);
    }
}

#[test]
fn large_values_and_large_transactions_span_segments() {
    let folder = tempfile::tempdir().unwrap();
    let value = |n: usize| vec![n as u8; n * 20_000];
    {
        let db = Db::open_with(folder.path(), small()).unwrap();
        let table = db.table("t").unwrap();
        for n in 1..6 {
            db.transact_blocking(|tx| tx.put(table, &[n as u8], &value(n))).unwrap();
        }
    }
    let db = Db::open_with(folder.path(), small()).unwrap();
    let expected: Vec<_> = (1..6).map(|n| (vec![n as u8], value(n))).collect();
    assert_eq!(rows(&db, "t"), expected);
}

#[test]
fn tables_keep_names_ids_and_deaths() {
    let folder = tempfile::tempdir().unwrap();
    let (old, other) = {
        let db = Db::open_with(folder.path(), small()).unwrap();
        let (old, other) = (db.table("old").unwrap(), db.table("other").unwrap());
        db.transact_blocking(|tx| tx.put(old, b"k", b"v")).unwrap();
        db.transact_blocking(|tx| tx.put(other, b"k", b"v")).unwrap();
        assert_eq!(block_on(db.drop_table("old")), Ok(old));
        (old, other)
    };
    let db = Db::open_with(folder.path(), small()).unwrap();
    let gone = db.transact_blocking(|tx| tx.put(old, b"k", b"v"));
    assert_eq!(gone, Err(Rejected::TableDropped { table: old }.into()));
    assert_eq!(db.table("other"), Ok(other));
    let new = db.table("old").unwrap();
    assert!(new > other, "an id is given once: {new}");
    assert_eq!((rows(&db, "old").len(), rows(&db, "other").len()), (0, 1));
    let long = "x".repeat(200);
    assert!(matches!(db.table(&long), Err(Error::Rejected(Rejected::TableName { .. }))));
}

#[test]
fn a_second_user_is_refused_and_told_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open_with(folder.path(), small()).unwrap();
    let error = Db::open_with(folder.path(), small()).map(drop).unwrap_err();
    let text = format!("{} is in use by process {}", folder.path().display(), std::process::id());
    assert!(error.to_string().starts_with(&text), "{error}");
    db.close();
    Db::open_with(folder.path(), small()).expect("it is closed");
}

#[test]
fn after_closing_nothing_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open_with(folder.path(), small()).unwrap();
    let table = db.table("t").unwrap();
    let open = db.begin_blocking().unwrap();
    open.put(table, b"late", b"").unwrap();
    db.transact_blocking(|tx| tx.put(table, b"early", b"")).unwrap();
    db.flush().unwrap();
    db.clone().close();
    let closed: Error = Rejected::NotOpen { reason: "it was closed".into() }.into();
    assert_eq!(open.commit(), Err(closed.clone()));
    assert_eq!(db.transact_blocking(|tx| tx.get(table, b"early").map(|_| ())), Err(closed.clone()));
    assert_eq!(db.table("another"), Err(closed));
    db.close();
    let again = Db::open_with(folder.path(), small()).unwrap();
    assert_eq!(rows(&again, "t"), [(b"early".to_vec(), vec![])]);
}

#[test]
fn futures_wait_without_a_thread_each() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open_with(folder.path(), small()).unwrap();
    let table = db.table("t").unwrap();
    let many = (0..64_u8).map(|n| {
        let db = db.clone();
        async move {
            let put = async |tx: &mut shoal_client::Transaction<'_>| tx.put(table, &[n], b"x");
            db.transact(put).await.unwrap();
            let read = db.transact(async |tx| Ok(tx.get(table, &[n]).await?.is_some())).await;
            assert_eq!(read, Ok(true));
            let failed = db.transact(async |tx| {
                tx.get(table, &[n]).await?;
                Err::<(), _>(Error::reject("no"))
            });
            assert_eq!(failed.await, Err(Error::reject("no")));
            // Dropped while it waits: it happened all the same.
            let tx = db.begin().unwrap();
            tx.put(table, &[n, n], b"y").unwrap();
            drop(tx.commit());
        }
    });
    block_on(futures_of(many));
    db.flush().unwrap();
    db.close();
    assert_eq!(rows(&Db::open_with(folder.path(), small()).unwrap(), "t").len(), 128);
}

/// Polls all until all are done.
async fn futures_of(futures: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut open: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        open.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if open.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[test]
fn folders_of_others_are_refused_and_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    Db::open_with(folder.path(), small()).unwrap().table("t").unwrap();
    let segment = folder.path().join("log-000000");
    let mut bytes = std::fs::read(&segment).unwrap();
    // Both copies of the header, and so all of them, are gone.
    bytes[..1024].fill(b'x');
    std::fs::write(&segment, &bytes).unwrap();
    let error = Db::open_with(folder.path(), small()).map(drop).unwrap_err();
    let text = "log-000000 is damaged at byte 0: neither copy of the segment's header is whole; `shoal doctor` says more";
    assert_eq!(error.to_string(), text);
    assert_eq!(std::fs::read(&segment).unwrap(), bytes);
    assert!(files(folder.path(), "checkpoint") == 0);
}

#[test]
fn memory_is_not_on_disk() {
    let db = Db::memory();
    assert_eq!(db.flush(), Ok(()));
    db.close();
    db.table("t").expect("closing does nothing to it");
    assert_eq!(db.backup("/nowhere"), Err(OpenError::NotOnDisk));
}

#[test]
fn limits_hold_for_what_is_added() {
    let folder = tempfile::tempdir().unwrap();
    {
        let db = Db::open_with(folder.path(), small()).unwrap();
        let table = db.table("t").unwrap();
        let rows = (0..2000_u32).map(|n| (n.to_be_bytes(), [0; 1000]));
        db.load_blocking(table, rows, |_| ()).unwrap();
    }
    let options = Options { memory_bytes_max: 1 << 20, ..small() };
    let db = Db::open_with(folder.path(), options).expect("what is there is not refused");
    let table = db.table("t").unwrap();
    let refused = db.transact_blocking(|tx| tx.put(table, b"more", b"")).unwrap_err();
    assert!(matches!(refused, Error::Rejected(Rejected::MemoryFull { .. })), "{refused}");
    db.transact_blocking(|tx| tx.delete(table, &7_u32.to_be_bytes())).unwrap();
}
