//! Transactions of scripts: a list of operations, run as a task of a worker.

use super::engines::LocalDatabase;
use bytes::Bytes;
use shoal_types::{Aborted, Database, Error, Result, Scan, Transaction};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Where transactions leave what they have read and how they ended.
pub type Transcript = Rc<RefCell<Vec<String>>>;

/// Where a transaction pauses until the script has it go on.
#[derive(Default)]
pub struct Gate {
    is_open: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Gate {
    pub fn open(&self) {
        self.is_open.set(true);
        self.waker.take().into_iter().for_each(Waker::wake);
    }

    async fn pass(&self) {
        poll_fn(|context| match self.is_open.replace(false) {
            true => Poll::Ready(()),
            false => {
                self.waker.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await;
    }
}

/// Runs the operations as one transaction, and says how it ended.
pub async fn transaction(
    db: LocalDatabase,
    name: String,
    operations: String,
    gate: Rc<Gate>,
    transcript: Transcript,
) {
    let outcome = db
        .transact(async |tx| {
            for operation in operations.split(", ") {
                let words: Vec<_> = operation.split_whitespace().collect();
                if words == ["pause"] {
                    transcript.borrow_mut().push(format!("{name} pauses"));
                    gate.pass().await;
                } else if let Some(line) = perform(&db, tx, &words).await? {
                    transcript.borrow_mut().push(format!("{name} {line}"));
                }
            }
            Ok(())
        })
        .await;
    transcript.borrow_mut().push(match outcome {
        Ok(()) => format!("{name} is told: committed"),
        // It was run as often as the script says.
        Err(Error::Aborted(Aborted::RetriesExhausted { last, .. })) => {
            format!("{name} is told: aborted: {last}")
        }
        Err(error) => format!("{name} is told: {error}"),
    });
}

/// Says what it has read.
async fn perform(
    db: &LocalDatabase,
    tx: &impl Transaction,
    words: &[&str],
) -> Result<Option<String>> {
    let table = db.table("t")?;
    match *words {
        ["get", key] => {
            let value = tx.get(table, key.as_bytes()).await?;
            let value = value.map_or("none".to_owned(), |value| value.escape_ascii().to_string());
            return Ok(Some(format!("reads {key}: {value}")));
        }
        ["scan", prefix] => {
            let rows = tx.scan(table, Scan::prefix(prefix.as_bytes())).await?;
            let row = |(key, value): &(&[u8], &[u8])| {
                let row = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                super::messages::show_row(&row)
            };
            let rows: Vec<_> = rows.iter().map(row).collect();
            return Ok(Some(format!("scans {prefix}: {}", rows.join(" "))));
        }
        ["put", key, value] => tx.put(table, key.as_bytes(), value.as_bytes())?,
        ["insert", key, value] => tx.insert(table, key.as_bytes(), value.as_bytes()).await?,
        ["delete", key] => tx.delete(table, key.as_bytes())?,
        ["add", key, delta] => {
            tx.add(table, key.as_bytes(), delta.parse().expect("a number")).await?;
        }
        ["rollback"] => return Err(Error::reject("the script says so")),
        _ => panic!("no such operation: {words:?}"),
    }
    Ok(None)
}
