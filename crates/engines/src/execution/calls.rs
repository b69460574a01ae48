//! What clients from outside ask of a worker: procedures by name, and interactive transactions.
//!
//! A call takes effect once: in the same transaction in which the procedure runs, its result goes into
//! the table [`REQUESTS_TABLE`] under the client's number. A repetition finds it there, and is itself a
//! read-only transaction: so it too is answered only once the result is committed. A client has one
//! request under way at a time, so one row for each client and shard is enough.
//!
//! A call that failed leaves no row. Its worker remembers that it did, lest a copy of it that comes late
//! take effect after all.

use super::hub::{Errand, Hub};
use super::interactive::Sessions;
use super::local::Local;
use crate::client::{ClientId, Relay, Reply, Request, worker_of};
use crate::engine::Task;
use crate::faults::Fault;
use crate::procedure::Procedures;
use bytes::Bytes;
use consensus::topology::Partitioning;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use types::{
    Database, Error, NodeId, Rejected, RequestId, Result, ShardId, Time, Transaction as _, Unknown,
};

/// The table in which the outcomes of calls are kept.
pub const REQUESTS_TABLE: &str = "shoal.requests";

/// How [`REQUESTS_TABLE`] is partitioned: a row lives on the shard that its key begins with.
pub fn requests_table(shards: u32) -> (&'static str, Partitioning) {
    let splits = (0..shards).map(|shard| {
        let first = if shard == 0 { Box::default() } else { Box::from(shard.to_be_bytes()) };
        (first, ShardId(shard))
    });
    (REQUESTS_TABLE, Partitioning::Range { splits: splits.collect() })
}

/// The requests of a worker that are under way.
pub(crate) struct Calls {
    hub: Rc<Hub>,
    procedures: Arc<Procedures>,
    book: Rc<RefCell<Book>>,
    sessions: Sessions,
}

impl Calls {
    pub(crate) fn new(hub: &Rc<Hub>, procedures: &Arc<Procedures>) -> Calls {
        Calls {
            hub: Rc::clone(hub),
            procedures: Arc::clone(procedures),
            book: Rc::default(),
            sessions: Sessions::new(hub),
        }
    }

    /// Gives up interactive transactions whose clients have been silent for too long.
    pub(crate) fn sweep(&self, now: Time) {
        self.sessions.sweep(now);
    }

    /// When there may be one to give up.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.sessions.next_due()
    }

    /// Takes a request; what has to be run for it is returned.
    pub(crate) fn request(&mut self, from: ClientId, request: Request) -> Option<Task> {
        self.take(Asker { client: from, via: None }, request)
    }

    /// Takes what another node passes on; what has to be run for it is returned.
    pub(crate) fn relayed(&mut self, node: NodeId, relay: Relay) -> Option<Task> {
        match relay {
            Relay::Request { from, request: request @ Request::Call { .. } } => {
                self.take(Asker { client: from, via: Some(node) }, request)
            }
            // Sessions are not passed on.
            Relay::Request { .. } => None,
            Relay::Reply { to, reply } => {
                self.hub.errand(Errand::Reply { to, reply });
                None
            }
        }
    }

    /// Refuses a call that came to the wrong worker, passes on one that came to the wrong node, and
    /// serves everything else. What was passed on once is not passed on again.
    fn take(&mut self, from: Asker, request: Request) -> Option<Task> {
        let Request::Call { id, home, .. } = request else { return self.serve(from, request) };
        let worker = worker_of(id, self.hub.topology.workers());
        if worker != self.hub.place.worker {
            let result = Err(Rejected::OtherWorker { worker }.into());
            self.hub.errand(from.told(Reply::Called { id, result }));
            return None;
        }
        let known = home.0 < self.hub.topology.shards();
        if from.via.is_none() && known && self.hub.own(home).is_none() {
            let to = self.hub.topology.leader(home);
            let relay = Relay::Request { from: from.client, request };
            self.hub.errand(Errand::Relay { to, relay });
            return None;
        }
        self.serve(from, request)
    }

    fn serve(&mut self, from: Asker, request: Request) -> Option<Task> {
        match request {
            Request::Call { id, home, procedure, arguments } => {
                if let Some(result) = self.book.borrow().answer(id) {
                    self.hub.errand(from.told(Reply::Called { id, result }));
                    return None;
                }
                let begun = self.book.borrow_mut().begin(id);
                match begun {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(unknown) => {
                        let result = Err(unknown.into());
                        self.hub.errand(from.told(Reply::Called { id, result }));
                        return None;
                    }
                }
                let hub = Rc::clone(&self.hub);
                let procedures = Arc::clone(&self.procedures);
                let book = Rc::clone(&self.book);
                Some(Box::pin(async move {
                    let result = call(&hub, &procedures, id, home, &procedure, &arguments).await;
                    book.borrow_mut().end(id, &result, hub.limits.clients_remembered);
                    hub.errand(from.told(Reply::Called { id, result }));
                }))
            }
            Request::Begin { session } => self.sessions.begin(from.client, session),
            Request::Operation { session, number, operation } => {
                self.sessions.operation(from.client, session, number, operation);
                None
            }
            Request::End { session, number, ending } => {
                self.sessions.end(from.client, session, number, ending);
                None
            }
        }
    }
}

/// Whom to answer.
#[derive(Debug, Clone, Copy)]
struct Asker {
    client: ClientId,
    /// The node that it is connected to, if not this one.
    via: Option<NodeId>,
}

impl Asker {
    fn told(self, reply: Reply) -> Errand {
        let to = self.client;
        match self.via {
            None => Errand::Reply { to, reply },
            Some(node) => Errand::Relay { to: node, relay: Relay::Reply { to, reply } },
        }
    }
}

/// What a worker knows of calls.
#[derive(Default)]
struct Book {
    running: BTreeSet<RequestId>,
    /// The last answer to each client, by its number; moves to `older` when there are many.
    recent: BTreeMap<u64, (u64, Result<Bytes>)>,
    older: BTreeMap<u64, (u64, Result<Bytes>)>,
}

impl Book {
    fn last(&self, client: u64) -> Option<&(u64, Result<Bytes>)> {
        self.recent.get(&client).or_else(|| self.older.get(&client))
    }

    /// What this request was answered.
    fn answer(&self, id: RequestId) -> Option<Result<Bytes>> {
        let (client, count) = parts(id);
        self.last(client).filter(|(last, _)| *last == count).map(|(_, result)| result.clone())
    }

    /// Is it to be run? Not if it runs.
    ///
    /// # Errors
    /// [`Unknown::Forgotten`] where its client has gone on since.
    fn begin(&mut self, id: RequestId) -> std::result::Result<bool, Unknown> {
        let (client, count) = parts(id);
        match self.last(client) {
            Some((last, _)) if *last > count => {
                let last = RequestId(u128::from(client) << 64 | u128::from(*last));
                Err(Unknown::Forgotten { request: id, last })
            }
            _ => Ok(self.running.insert(id)),
        }
    }

    fn end(&mut self, id: RequestId, result: &Result<Bytes>, remembered: usize) {
        self.running.remove(&id);
        let (client, count) = parts(id);
        if self.last(client).is_some_and(|(last, _)| *last > count) {
            return;
        }
        if self.recent.len() >= remembered {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(client, (count, result.clone()));
    }
}

/// A client's number, and its count of requests.
fn parts(id: RequestId) -> (u64, u64) {
    ((id.0 >> 64) as u64, id.0 as u64)
}

/// Runs a procedure once, or finds out what it returned when it ran.
async fn call(
    hub: &Rc<Hub>,
    procedures: &Procedures,
    id: RequestId,
    home: ShardId,
    name: &str,
    arguments: &[u8],
) -> Result<Bytes> {
    let unknown = || Rejected::UnknownProcedure { name: name.into() };
    let procedure = procedures.get(name).ok_or_else(unknown)?;
    let local = Local::new(hub);
    let requests = local.table(REQUESTS_TABLE)?;
    let (client, count) = parts(id);
    let key = [&home.0.to_be_bytes()[..], &client.to_be_bytes()].concat();
    local
        .transact(async |tx| {
            if let Some(row) = tx.get(requests, &key).await? {
                let (last, result) = row.split_at_checked(8).ok_or_else(corrupt)?;
                let last = u64::from_le_bytes(last.try_into().map_err(|_| corrupt())?);
                if last == count && !hub.faults.has(Fault::IgnoreRequestRows) {
                    return Ok(Bytes::copy_from_slice(result));
                }
                if last > count {
                    let last = RequestId(u128::from(client) << 64 | u128::from(last));
                    Err(Unknown::Forgotten { request: id, last })?;
                }
            }
            let result = procedure.call(tx, arguments).await?;
            tx.put(requests, &key, &[&count.to_le_bytes()[..], &result].concat())?;
            Ok(result)
        })
        .await
}

fn corrupt() -> Error {
    Error::reject("a row of the table of requests is shorter than its count")
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Aborted;

    fn id(client: u64, count: u64) -> RequestId {
        RequestId(u128::from(client) << 64 | u128::from(count))
    }

    #[test]
    fn what_was_refused_stays_refused() {
        let mut book = Book::default();
        let refused: Result<Bytes> =
            Err(Aborted::Overloaded { open: 1, limit: "open_max", max: 1 }.into());
        assert_eq!(book.begin(id(1, 5)), Ok(true));
        assert_eq!(book.begin(id(1, 5)), Ok(false), "it runs");
        book.end(id(1, 5), &refused, 1);
        assert_eq!(book.answer(id(1, 5)), Some(refused.clone()));
        assert_eq!(book.begin(id(1, 6)), Ok(true), "the next one");
        book.end(id(1, 6), &Ok(Bytes::new()), 1);
        let (request, last) = (id(1, 5), id(1, 6));
        assert_eq!(book.begin(id(1, 5)), Err(Unknown::Forgotten { request, last }));
        // Another client pushes it into the older half, and a third one out of that.
        book.end(id(2, 1), &refused, 1);
        assert_eq!(book.answer(id(1, 6)), Some(Ok(Bytes::new())));
        book.end(id(3, 1), &refused, 1);
        assert_eq!(book.answer(id(1, 6)), None);
    }
}
