//! Interactive transactions: a client sends one step after the other, the coordinator keeps the
//! transaction.
//!
//! What a step has read is shown to the client once it is covered (rule M5), even though the
//! transaction may yet abort. A step that arrives again is answered again; so a client may repeat one
//! until it hears.

use super::hub::{Ask, Ending, Hub};
use super::local::Local;
use super::slot::Slot;
use super::transaction::Transaction;
use crate::client::{self, ClientId, Reply};
use crate::engine::Task;
use crate::operation::{Answer, Operation};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use types::{Error, Rejected, Result, Transaction as _};

/// How many ended transactions a worker remembers, to repeat their last answers.
const ENDED_MAX: usize = 1 << 12;

type Key = (ClientId, u64);

/// The interactive transactions of a worker.
pub(super) struct Sessions {
    hub: Rc<Hub>,
    open: Rc<RefCell<Book>>,
}

#[derive(Default)]
struct Book {
    sessions: BTreeMap<Key, Rc<RefCell<Session>>>,
    /// Those that are over, oldest first.
    ended: VecDeque<Key>,
}

/// What is known of one.
#[derive(Default)]
struct Session {
    /// The step that is waited for.
    next: u32,
    /// Where it is handed over, when it comes.
    step: Rc<Slot<Step>>,
    /// It has come, and is not answered.
    busy: bool,
    last: Option<Reply>,
}

enum Step {
    Operation(Operation),
    End(client::Ending),
}

impl Sessions {
    pub(super) fn new(hub: &Rc<Hub>) -> Sessions {
        Sessions { hub: Rc::clone(hub), open: Rc::default() }
    }

    /// Begins one, unless it was begun before.
    pub(super) fn begin(&self, from: ClientId, number: u64) -> Option<Task> {
        let key = (from, number);
        if let Some(session) = self.open.borrow().sessions.get(&key) {
            if session.borrow().next == 0 {
                self.hub.ask(Ask::Reply { to: from, reply: began(number, Ok(())) });
            }
            return None;
        }
        let session = Rc::new(RefCell::new(Session::default()));
        self.open.borrow_mut().sessions.insert(key, Rc::clone(&session));
        let (hub, book) = (Rc::clone(&self.hub), Rc::clone(&self.open));
        Some(Box::pin(async move {
            run(&hub, key, &session).await;
            let mut book = book.borrow_mut();
            book.ended.push_back(key);
            if book.ended.len() > ENDED_MAX
                && let Some(oldest) = book.ended.pop_front()
            {
                book.sessions.remove(&oldest);
            }
        }))
    }

    pub(super) fn operation(
        &self,
        from: ClientId,
        session: u64,
        number: u32,
        operation: Operation,
    ) {
        self.step(from, session, number, Step::Operation(operation));
    }

    pub(super) fn end(&self, from: ClientId, session: u64, number: u32, ending: client::Ending) {
        self.step(from, session, number, Step::End(ending));
    }

    fn step(&self, from: ClientId, session: u64, number: u32, step: Step) {
        let found = self.open.borrow().sessions.get(&(from, session)).cloned();
        let Some(found) = found else {
            let result = Err(Rejected::UnknownSession { session }.into());
            let reply = Reply::Done { session, number, result };
            return self.hub.ask(Ask::Reply { to: from, reply });
        };
        let mut found = found.borrow_mut();
        if number == found.next && !found.busy {
            found.busy = true;
            found.step.fill(step);
        } else if number + 1 == found.next
            && let Some(reply) = found.last.clone()
        {
            self.hub.ask(Ask::Reply { to: from, reply });
        }
    }
}

fn began(session: u64, result: Result<()>) -> Reply {
    Reply::Began { session, result }
}

/// One interactive transaction, from its beginning to its end.
async fn run(hub: &Rc<Hub>, key: Key, session: &RefCell<Session>) {
    let (to, number) = key;
    let tx = match Local::new(hub).begin().await {
        Ok(tx) => tx,
        Err(error) => {
            return hub.ask(Ask::Reply { to, reply: began(number, Err(error)) });
        }
    };
    hub.ask(Ask::Reply { to, reply: began(number, Ok(())) });
    let mut tx = Some(tx);
    while let Some(transaction) = tx.take() {
        let step = Rc::clone(&session.borrow().step);
        let (result, goes_on) = match step.take().await {
            Step::Operation(operation) => {
                let result = perform(&transaction, &operation).await;
                let goes_on = matches!(result, Ok(_) | Err(Error::Rejected(_)));
                (result, goes_on.then_some(transaction))
            }
            Step::End(ending) => {
                let done = match ending {
                    client::Ending::Commit => transaction.end(Ending::Commit).await,
                    client::Ending::Confirm => transaction.end(Ending::Confirm).await,
                    client::Ending::Rollback => Ok(()),
                };
                (done.map(|()| Answer::Done), None)
            }
        };
        tx = goes_on;
        let mut session = session.borrow_mut();
        let reply = Reply::Done { session: number, number: session.next, result };
        session.last = Some(reply.clone());
        session.next += 1;
        session.busy = false;
        session.step = Rc::default();
        hub.ask(Ask::Reply { to, reply });
    }
}

/// Does one step, and waits until what it brought may be shown.
async fn perform(tx: &Transaction, operation: &Operation) -> Result<Answer> {
    let result = match operation {
        Operation::Get { table, key } => {
            let value = tx.get(*table, key).await;
            value.map(|value| Answer::Value(value.map(Bytes::copy_from_slice)))
        }
        Operation::Scan { table, range } => tx.scan(*table, range.scan()).await.map(|rows| {
            let copied = |(key, value): (&[u8], &[u8])| {
                (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))
            };
            Answer::Rows(rows.into_iter().map(copied).collect())
        }),
        Operation::Put { table, key, value: Some(value) } => {
            tx.put(*table, key, value).map(|()| Answer::Done)
        }
        Operation::Put { table, key, value: None } => tx.delete(*table, key).map(|()| Answer::Done),
        Operation::Insert { table, key, value } => {
            tx.insert(*table, key, value).await.map(|()| Answer::Done)
        }
    };
    // That a key exists is something that was read, too.
    if operation.reads() {
        tx.reveal().await?;
    }
    result
}
