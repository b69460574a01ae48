//! What clients from outside ask of a worker: procedures by name, and interactive transactions.
//!
//! A call takes effect once: in the same transaction in which the procedure runs, its result goes into
//! the table [`REQUESTS_TABLE`] under the client's number. A repetition finds it there, and is itself a
//! read-only transaction: so it too is answered only once the result is committed. A client has one
//! request under way at a time, so one row for each client and shard is enough.

use super::hub::{Ask, Hub};
use super::interactive::Sessions;
use super::local::Local;
use crate::client::{ClientId, Reply, Request};
use crate::engine::Task;
use crate::procedure::Procedures;
use bytes::Bytes;
use consensus::topology::Partitioning;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use types::{Database, Error, Rejected, RequestId, Result, ShardId, Time, Transaction as _};

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
    running: Rc<RefCell<BTreeSet<(ClientId, RequestId)>>>,
    sessions: Sessions,
}

impl Calls {
    pub(crate) fn new(hub: &Rc<Hub>, procedures: &Arc<Procedures>) -> Calls {
        Calls {
            hub: Rc::clone(hub),
            procedures: Arc::clone(procedures),
            running: Rc::default(),
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
        match request {
            Request::Call { id, home, procedure, arguments } => {
                if !self.running.borrow_mut().insert((from, id)) {
                    // The answer to the first one will do.
                    return None;
                }
                let hub = Rc::clone(&self.hub);
                let procedures = Arc::clone(&self.procedures);
                let running = Rc::clone(&self.running);
                Some(Box::pin(async move {
                    let result = call(&hub, &procedures, id, home, &procedure, &arguments).await;
                    running.borrow_mut().remove(&(from, id));
                    hub.ask(Ask::Reply { to: from, reply: Reply::Called { id, result } });
                }))
            }
            Request::Begin { session } => self.sessions.begin(from, session),
            Request::Operation { session, number, operation } => {
                self.sessions.operation(from, session, number, operation);
                None
            }
            Request::End { session, number, ending } => {
                self.sessions.end(from, session, number, ending);
                None
            }
        }
    }
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
    let (client, count) = ((id.0 >> 64) as u64, id.0 as u64);
    let key = [&home.0.to_be_bytes()[..], &client.to_be_bytes()].concat();
    local
        .transact(async |tx| {
            if let Some(row) = tx.get(requests, &key).await? {
                let (last, result) = row.split_at_checked(8).ok_or_else(corrupt)?;
                let last = u64::from_le_bytes(last.try_into().map_err(|_| corrupt())?);
                if last == count {
                    return Ok(Bytes::copy_from_slice(result));
                }
                if last > count {
                    let last = RequestId(u128::from(client) << 64 | u128::from(last));
                    Err(Rejected::StaleRequest { request: id, last })?;
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
