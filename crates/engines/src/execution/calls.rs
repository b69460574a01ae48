//! What clients from outside ask of a worker: sessions for calls, procedures by name, and interactive transactions.
//!
//! A call takes effect once: in the same transaction in which the procedure runs, its result goes into the row of its
//! session in the table of requests ([`request_rows`](super::request_rows)). Which calls may run, and why that keeps the
//! promise, is on the front page of [`call_sessions`](super::call_sessions).

use super::call_sessions::{Begun, CallSessions, Ended};
use super::hub::{Errand, Hub, Reign};
use super::interactive::{Asked, Sessions, Step};
use super::local::Local;
use super::request_rows::{
    REQUESTS_TABLE, drop_rows, look_up, request_key, request_row, unsettled,
};
use super::trace::Trace;
use crate::client::{ClientId, Relay, Reply, Request, worker_of};
use crate::engine::Task;
use crate::faults::Fault;
use crate::procedure::Procedures;
use crate::slow::Kind;
use bytes::Bytes;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use types::{
    Database, Error, NodeId, Rejected, RequestId, Result, ShardId, Time, Transaction as _,
};

/// The requests of a worker that are under way.
pub(crate) struct Calls {
    hub: Rc<Hub>,
    procedures: Arc<Procedures>,
    granted: Rc<RefCell<CallSessions>>,
    sessions: Sessions,
}

/// A call, as it was asked for.
struct Call {
    id: RequestId,
    procedure: Box<str>,
    arguments: Bytes,
}

impl Calls {
    pub(crate) fn new(hub: &Rc<Hub>, procedures: &Arc<Procedures>) -> Calls {
        let (limits, worker) = (&hub.limits, hub.place.worker);
        let (max, kept) = (limits.call_sessions_max, limits.call_rows_kept);
        // A planted bug takes the numbers of others for its own: they are the same then.
        let reuses = hub.faults.has(Fault::ReuseSessionNumbers);
        let first = hub.random.borrow().fork(1).next_u64() >> 2;
        let first = (worker, if reuses { 0 } else { first });
        let granted = CallSessions::new(first, max, kept, hub.faults);
        Calls {
            hub: Rc::clone(hub),
            procedures: Arc::clone(procedures),
            granted: Rc::new(RefCell::new(granted)),
            sessions: Sessions::new(hub),
        }
    }

    /// Gives up interactive transactions whose clients have been silent for too long, and has rows dropped that were kept
    /// for long enough: what has to be run for that is returned.
    pub(crate) fn sweep(&self, now: Time) -> Option<Task> {
        self.sessions.sweep(now);
        let lasts = |shard, reign| self.hub.own_reign(shard) == Some(reign);
        let overdue = self.granted.borrow_mut().overdue(now, lasts)?;
        let (hub, granted) = (Rc::clone(&self.hub), Rc::clone(&self.granted));
        Some(Box::pin(async move {
            let done = drop_rows(&hub, &overdue).await.is_ok();
            granted.borrow_mut().dropped(hub.now.get(), &overdue, done);
        }))
    }

    /// How many interactive transactions are known, and listed as over; call sessions, and calls that run.
    pub(crate) fn sizes(&self) -> [usize; 4] {
        let ([sessions, over], [known, running]) =
            (self.sessions.sizes(), self.granted.borrow().sizes());
        [sessions, over, known, running]
    }

    /// When there may be something to sweep.
    pub(crate) fn next_due(&self) -> Option<Time> {
        [self.sessions.next_due(), self.granted.borrow().next_due()].into_iter().flatten().min()
    }

    /// Takes a request; what has to be run for it is returned.
    pub(crate) fn request(&mut self, from: ClientId, request: Request) -> Option<Task> {
        self.take(Asker { client: from, via: None }, request)
    }

    /// Takes what another node passes on; what has to be run for it is returned.
    pub(crate) fn relayed(&mut self, node: NodeId, relay: Relay) -> Option<Task> {
        match relay {
            Relay::Request {
                from,
                request: request @ (Request::Call { .. } | Request::OpenCalls { .. }),
            } => self.take(Asker { client: from, via: Some(node) }, request),
            // Interactive transactions are not passed on.
            Relay::Request { .. } => None,
            Relay::Reply { to, reply } => {
                self.hub.errand(Errand::Reply { to, reply });
                None
            }
        }
    }

    /// Refuses a call that came to the wrong worker, passes on what came to the wrong node, and serves everything else.
    fn take(&mut self, from: Asker, request: Request) -> Option<Task> {
        let home = match &request {
            Request::OpenCalls { home, .. } => *home,
            Request::Call { id, .. } => id.session.home,
            Request::Begin { .. } | Request::Operation { .. } | Request::End { .. } => {
                return self.interactive(from.client, request);
            }
        };
        if let Err(error) = self.check(&request, home) {
            self.hub.errand(from.refused(&request, error));
            return None;
        }
        let leader = self.hub.leader(home);
        if leader != self.hub.place.node {
            // What was passed on once is not passed on again: its client asks again.
            if from.via.is_none() {
                let relay = Relay::Request { from: from.client, request };
                self.hub.errand(Errand::Relay { to: leader, relay });
            }
            return None;
        }
        let reign = self.hub.own_reign(home)?;
        match request {
            Request::Call { id, procedure, arguments } => {
                self.call(from, Call { id, procedure, arguments }, reign)
            }
            Request::OpenCalls { token, home } => {
                let serves = self.hub.check_reign(home, reign);
                let now = self.hub.now.get();
                let result = serves.map(|()| self.granted.borrow_mut().grant(now, home, reign));
                self.hub.errand(from.told(Reply::CallsOpened { token, result }));
                None
            }
            Request::Begin { .. } | Request::Operation { .. } | Request::End { .. } => None,
        }
    }

    /// Can this worker serve such a request, if its node leads the shard?
    fn check(&self, request: &Request, home: ShardId) -> Result<()> {
        if let Request::Call { id, .. } = request {
            let worker = worker_of(&id.session, self.hub.topology.workers());
            if worker != self.hub.place.worker {
                Err(Rejected::OtherWorker { worker })?;
            }
        }
        if home.0 >= self.hub.topology.shards() {
            return Err(Error::reject(format!("there is no {home} to call a procedure on")));
        }
        Ok(())
    }

    fn interactive(&mut self, from: ClientId, request: Request) -> Option<Task> {
        match request {
            Request::Begin { session } => return self.sessions.begin(from, session),
            Request::Operation { session, serial, number, operation } => {
                let asked = Asked { session, serial, number };
                self.sessions.step(from, asked, Step::Operation(operation));
            }
            Request::End { session, serial, number, ending } => {
                self.sessions.step(from, Asked { session, serial, number }, Step::End(ending));
            }
            Request::Call { .. } | Request::OpenCalls { .. } => {}
        }
        None
    }

    /// Answers a call, has it run, or has its row looked up. A session of a reign of which this node has not heard yet is
    /// not judged: its client asks again.
    fn call(&mut self, from: Asker, call: Call, reign: Reign) -> Option<Task> {
        let id = call.id;
        if id.session.since > self.hub.configured.get() {
            return None;
        }
        let begun = self.granted.borrow_mut().begin(id, reign);
        let runs = match begun {
            Begun::Waits => return None,
            Begun::Failed(error) => {
                self.hub.errand(from.told(Reply::Called { id, result: Err(error) }));
                return None;
            }
            Begun::Runs => true,
            Begun::LookUp => false,
        };
        let (hub, began) = (Rc::clone(&self.hub), self.hub.now.get());
        let procedures = Arc::clone(&self.procedures);
        let granted = Rc::clone(&self.granted);
        Some(Box::pin(async move {
            let mut trace = Trace::default();
            let result = if runs {
                let result = run(&hub, &procedures, &call, reign, &mut trace).await;
                let (ended, result) = settle(id, result);
                granted.borrow_mut().end(id, reign, ended);
                result
            } else {
                look_up(&hub, id, &mut trace).await
            };
            trace.end(&hub, began, &result, || Kind::Call(call.procedure));
            hub.errand(from.told(Reply::Called { id, result }));
        }))
    }
}

/// How a run has ended, and what its client is told.
fn settle(id: RequestId, result: Result<Bytes>) -> (Ended, Result<Bytes>) {
    match result {
        Ok(result) => (Ended::SeeRow, Ok(result)),
        Err(error @ (Error::Aborted(_) | Error::Rejected(_))) => {
            (Ended::Failed(error.clone()), Err(error))
        }
        // Its row will tell, when it can be read.
        Err(error @ Error::Unknown(_)) => (Ended::SeeRow, Err(unsettled(id, &error))),
    }
}

/// The client to answer.
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

    /// A request cannot be served here.
    fn refused(self, request: &Request, error: Error) -> Errand {
        self.told(match *request {
            Request::OpenCalls { token, .. } => Reply::CallsOpened { token, result: Err(error) },
            Request::Call { id, .. } => Reply::Called { id, result: Err(error) },
            Request::Begin { session } => Reply::Began { session, result: Err(error) },
            Request::Operation { session, serial, number, .. }
            | Request::End { session, serial, number, .. } => {
                Reply::Done { session, serial, number, result: Err(error) }
            }
        })
    }
}

/// Runs a procedure that has not run before, in `reign`, and keeps its result in the session's row.
async fn run(
    hub: &Rc<Hub>,
    procedures: &Procedures,
    call: &Call,
    reign: Reign,
    trace: &mut Trace,
) -> Result<Bytes> {
    let Call { id, procedure: name, arguments } = call;
    let unknown = || Rejected::UnknownProcedure { name: name.clone() };
    let procedure = procedures.get(name).ok_or_else(unknown)?;
    let local = Local::new(hub);
    let requests = local.table(REQUESTS_TABLE)?;
    let key = request_key(&id.session);
    local
        .run(trace, async |tx| {
            hub.check_reign(id.session.home, reign)?;
            let result = procedure.call(tx, arguments).await?;
            tx.put(requests, &key, &request_row(id.number, &result))?;
            // No successor has looked for this row in vain: the transaction is of an epoch in which this node leads.
            hub.check_reign(id.session.home, reign)?;
            Ok(result)
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Aborted, ShardId, Unknown};

    #[test]
    fn only_what_is_definite_is_told_of_a_run() {
        let id = RequestId { number: 5, ..RequestId::default() };
        assert_eq!(settle(id, Ok(Bytes::new())), (Ended::SeeRow, Ok(Bytes::new())));
        let aborted = Error::from(Aborted::NotServing { node: NodeId(1) });
        let failed = (Ended::Failed(aborted.clone()), Err(aborted.clone()));
        assert_eq!(settle(id, Err(aborted)), failed);
        let open = settle(id, Err(Unknown::Participant { shard: ShardId(1) }.into()));
        let unsettled = Unknown::Unsettled { request: id, shard: ShardId(1) }.into();
        assert_eq!(open, (Ended::SeeRow, Err(unsettled)));
    }
}
