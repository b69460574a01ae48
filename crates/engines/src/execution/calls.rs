//! What clients from outside ask of a worker: procedures by name, and interactive transactions.
//!
//! A call takes effect once: in the same transaction in which the procedure runs, its result goes into
//! the table [`REQUESTS_TABLE`] under the client's number. A repetition finds it there, and is itself a
//! read-only transaction: so it too is answered only once the result is committed. A client has one
//! request under way at a time, so one row for each client and shard is enough.
//!
//! A call that failed leaves no row. Its worker remembers that it did, lest a copy of it that comes late
//! take effect after all.

use super::hub::{Errand, Hub, Limits};
use super::interactive::Sessions;
use super::local::Local;
use super::trace::Trace;
use crate::client::{ClientId, Relay, Reply, Request, worker_of};
use crate::engine::Task;
use crate::faults::Fault;
use crate::procedure::Procedures;
use crate::slow::Kind;
use bytes::Bytes;
use consensus::topology::Partitioning;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use types::{
    Database, Epoch, Error, NodeId, Rejected, RequestId, Result, ShardId, Time, Transaction as _,
    Unknown,
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
    /// serves everything else. This node's leader may have taken over from one that answered this call: a
    /// copy of that is recognised by the epoch that it does not know of.
    fn take(&mut self, from: Asker, request: Request) -> Option<Task> {
        let Request::Call { id, home, epoch, .. } = request else {
            return self.serve(from, request);
        };
        if epoch > self.hub.configured.get() {
            // Whoever led then is not known here yet; it asks again.
            return None;
        }
        let worker = worker_of(id, self.hub.topology.workers());
        if worker != self.hub.place.worker {
            let result = Err(Rejected::OtherWorker { worker }.into());
            self.hub.errand(from.told(Reply::Called { id, epoch, result }));
            return None;
        }
        if home.0 >= self.hub.topology.shards() {
            let result = Err(Error::reject(format!("there is no {home} to call a procedure on")));
            self.hub.errand(from.told(Reply::Called { id, epoch, result }));
            return None;
        }
        let (leader, fence) = self.hub.reign(home);
        if leader != self.hub.place.node {
            // What was passed on once is not passed on again: its client asks again.
            if from.via.is_none() {
                let relay = Relay::Request { from: from.client, request };
                self.hub.errand(Errand::Relay { to: leader, relay });
            }
            return None;
        }
        if epoch < fence && !self.hub.faults.has(Fault::IgnoreFence) {
            let result = Err(Unknown::Fenced { request: id, epoch: fence }.into());
            self.hub.errand(from.told(Reply::Called { id, epoch, result }));
            return None;
        }
        self.serve(from, request)
    }

    fn serve(&mut self, from: Asker, request: Request) -> Option<Task> {
        match request {
            Request::Call { id, home, procedure, arguments, epoch } => {
                self.call(from, (id, epoch), home, procedure, arguments)
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

    /// Answers a call, or has it run. What it was answered while somebody else may have run it, only its
    /// row can tell.
    fn call(
        &mut self,
        from: Asker,
        (id, epoch): (RequestId, Epoch),
        home: ShardId,
        procedure: Box<str>,
        arguments: Bytes,
    ) -> Option<Task> {
        let (reign, known) = (self.hub.reign(home), self.hub.configured.get());
        let faults = self.hub.faults;
        // From which reign on a refusal counts.
        let since = match faults.has(Fault::BelieveFormerRefusal) {
            true => Epoch::default(),
            false => reign.1,
        };
        let answer = self.book.borrow().answer(id, since);
        let begin = || {
            let begun = self.book.borrow_mut().begin(id, reign.1);
            begun.map_err(|unknown| Err(unknown.into()))
        };
        let fresh = match answer.map_or_else(begin, Err) {
            Ok(Begun::Runs) => return None,
            Ok(Begun::Fresh) => true,
            Ok(Begun::Perhaps) => faults.has(Fault::UnknownIsFresh),
            Err(result) => {
                self.hub.errand(from.told(Reply::Called { id, epoch, result }));
                return None;
            }
        };
        let (hub, began) = (Rc::clone(&self.hub), self.hub.now.get());
        let procedures = Arc::clone(&self.procedures);
        let book = Rc::clone(&self.book);
        Some(Box::pin(async move {
            let mut trace = Trace::default();
            let called = (&*procedure, &arguments[..]);
            let result = call(&hub, &procedures, (id, home), called, &mut trace).await;
            let unsettled = match &result {
                Ok(_) => false,
                Err(Error::Unknown(Unknown::Participant { .. } | Unknown::NotDurable { .. })) => {
                    true
                }
                Err(Error::Aborted(_)) if !fresh => true,
                // Somebody else leads the shard since, or did meanwhile, and may have run a copy.
                Err(_) => hub.reign(home) != reign && !faults.has(Fault::SettleAfterReign),
            };
            let settled = match unsettled {
                true => Err(Unknown::Unsettled { request: id }.into()),
                false => result,
            };
            book.borrow_mut().end(id, &settled, known, &hub.limits);
            trace.end(&hub, began, &settled, || Kind::Call(procedure));
            hub.errand(from.told(Reply::Called { id, epoch, result: settled }));
        }))
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

/// What becomes of a call that was not answered yet.
#[derive(Debug, PartialEq, Eq)]
enum Begun {
    /// It is running: whoever asked first will be told.
    Runs,
    /// It is run, and never was: all of its client's requests since the last that is remembered are new.
    Fresh,
    /// It is run. Nothing is remembered of its client, so it may have been run before.
    Perhaps,
}

/// What a worker knows of calls.
#[derive(Default)]
struct Book {
    running: BTreeSet<RequestId>,
    /// The last answers, to those whose last call succeeded, and to the others.
    succeeded: Answers,
    failed: Answers,
}

/// Last answers to clients, by their numbers: some that are recent, and some that are older.
#[derive(Default)]
struct Answers {
    recent: BTreeMap<u64, Last>,
    older: BTreeMap<u64, Last>,
}

/// What a client was answered last.
#[derive(Clone)]
struct Last {
    count: u64,
    result: Result<Bytes>,
    /// The epoch of the newest configuration that was known when it began to run.
    epoch: Epoch,
}

impl Answers {
    fn get(&self, client: u64) -> Option<&Last> {
        self.recent.get(&client).or_else(|| self.older.get(&client))
    }

    fn forget(&mut self, client: u64) {
        self.recent.remove(&client);
        self.older.remove(&client);
    }

    /// Keeps another answer in the place of the last one to this client, if there is one.
    fn go_on(&mut self, client: u64, last: &Last) {
        let known = [&mut self.recent, &mut self.older];
        let known = known.into_iter().filter_map(|half| half.get_mut(&client));
        known.for_each(|before| *before = last.clone());
    }

    /// Keeps an answer, and at least so many after it.
    fn keep(&mut self, client: u64, last: Last, remembered: usize) {
        if self.recent.len() >= remembered {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(client, last);
    }
}

impl Book {
    fn last(&self, client: u64) -> Option<&Last> {
        self.succeeded.get(client).or_else(|| self.failed.get(client))
    }

    /// What this request was answered. What was refused before this node leads its home, since `reign`, may
    /// have been run by others.
    fn answer(&self, id: RequestId, reign: Epoch) -> Option<Result<Bytes>> {
        let (client, count) = parts(id);
        let holds = |last: &&Last| last.result.is_ok() || last.epoch >= reign;
        let last = self.last(client).filter(|last| last.count == count);
        last.filter(holds).map(|last| last.result.clone())
    }

    /// Is it to be run, and has it perhaps been run before? This node leads its home since `reign`.
    ///
    /// # Errors
    /// [`Unknown::Forgotten`] where its client has gone on since.
    fn begin(&mut self, id: RequestId, reign: Epoch) -> std::result::Result<Begun, Unknown> {
        let (client, count) = parts(id);
        let last = self.last(client).map(|last| (last.count, last.epoch));
        match last {
            Some((last, _)) if last > count => {
                let last = RequestId(u128::from(client) << 64 | u128::from(last));
                Err(Unknown::Forgotten { request: id, last })
            }
            _ if !self.running.insert(id) => Ok(Begun::Runs),
            // Whoever led before may have run what its client asked for since.
            Some((_, epoch)) if epoch >= reign => Ok(Begun::Fresh),
            Some(_) | None => Ok(Begun::Perhaps),
        }
    }

    fn end(&mut self, id: RequestId, result: &Result<Bytes>, epoch: Epoch, limits: &Limits) {
        self.running.remove(&id);
        if let Err(Error::Unknown(Unknown::Unsettled { .. })) = result {
            return; // Whoever asks again is to be told more.
        }
        let (client, count) = parts(id);
        if self.last(client).is_some_and(|last| last.count > count) {
            return;
        }
        let last = Last { count, result: result.clone(), epoch };
        match result {
            Ok(_) => {
                // A copy of what was refused may still come, however many others succeed meanwhile.
                self.failed.go_on(client, &last);
                self.succeeded.keep(client, last, limits.answers_remembered);
            }
            Err(_) => {
                self.succeeded.forget(client);
                self.failed.keep(client, last, limits.failures_remembered);
            }
        }
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
    (id, home): (RequestId, ShardId),
    (name, arguments): (&str, &[u8]),
    trace: &mut Trace,
) -> Result<Bytes> {
    let unknown = || Rejected::UnknownProcedure { name: name.into() };
    let procedure = procedures.get(name).ok_or_else(unknown)?;
    let local = Local::new(hub);
    let requests = local.table(REQUESTS_TABLE)?;
    let (client, count) = parts(id);
    let key = [&home.0.to_be_bytes()[..], &client.to_be_bytes()].concat();
    local
        .run(trace, async |tx| {
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

    const E: Epoch = Epoch(3);

    fn id(client: u64, count: u64) -> RequestId {
        RequestId(u128::from(client) << 64 | u128::from(count))
    }

    /// So few that everything is forgotten soon.
    fn limits() -> Limits {
        Limits { answers_remembered: 1, failures_remembered: 1, ..Limits::default() }
    }

    #[test]
    fn what_was_refused_stays_refused() {
        let mut book = Book::default();
        let refused: Result<Bytes> =
            Err(Aborted::Overloaded { open: 1, limit: "open_max", max: 1 }.into());
        assert_eq!(book.begin(id(1, 5), E), Ok(Begun::Perhaps), "of that client nothing is known");
        assert_eq!(book.begin(id(1, 5), E), Ok(Begun::Runs));
        book.end(id(1, 5), &refused, E, &limits());
        assert_eq!(book.answer(id(1, 5), E), Some(refused.clone()));
        // Successes of others do not push it out.
        (2..9).for_each(|client| book.end(id(client, 1), &Ok(Bytes::new()), E, &limits()));
        assert_eq!(book.answer(id(1, 5), E), Some(refused.clone()));
        assert_eq!(book.begin(id(1, 6), E), Ok(Begun::Fresh), "the next one");
        book.end(id(1, 6), &Ok(Bytes::new()), E, &limits());
        assert_eq!(book.answer(id(1, 6), Epoch(4)), Some(Ok(Bytes::new())), "it is true for ever");
        // Whoever leads since then cannot know what came between.
        assert_eq!(book.begin(id(1, 7), Epoch(4)), Ok(Begun::Perhaps));
        let (request, last) = (id(1, 5), id(1, 6));
        assert_eq!(book.begin(id(1, 5), E), Err(Unknown::Forgotten { request, last }));
        // It has been refused once: others that succeed do not push it out, and others that fail do.
        (2..9).for_each(|client| book.end(id(client, 2), &Ok(Bytes::new()), E, &limits()));
        assert_eq!(book.answer(id(1, 6), E), Some(Ok(Bytes::new())));
        (2..4).for_each(|client| book.end(id(client, 3), &refused, E, &limits()));
        assert_eq!(book.answer(id(1, 6), E), None);
        assert_eq!(book.begin(id(1, 6), E), Ok(Begun::Perhaps), "only its row can tell");
    }

    #[test]
    fn what_was_refused_in_a_former_reign_may_have_been_run_since() {
        let mut book = Book::default();
        assert_eq!(book.begin(id(1, 5), E), Ok(Begun::Perhaps));
        let refused = Err(Aborted::Overloaded { open: 1, limit: "open_max", max: 1 }.into());
        book.end(id(1, 5), &refused, E, &limits());
        assert_eq!(book.answer(id(1, 5), E), Some(refused));
        assert_eq!(book.answer(id(1, 5), Epoch(4)), None);
        assert_eq!(book.begin(id(1, 5), Epoch(4)), Ok(Begun::Perhaps));
    }

    #[test]
    fn what_nobody_could_look_up_is_run_again() {
        let mut book = Book::default();
        let unsettled = Err(Unknown::Unsettled { request: id(1, 5) }.into());
        assert_eq!(book.begin(id(1, 5), E), Ok(Begun::Perhaps));
        book.end(id(1, 5), &unsettled, E, &limits());
        assert_eq!(book.answer(id(1, 5), E), None);
        assert_eq!(book.begin(id(1, 5), E), Ok(Begun::Perhaps));
    }
}
