//! Requests of clients to a worker: sessions for calls, calls of procedures, and interactive transactions.
//!
//! A call takes effect once: in the same transaction in which the procedure runs, its result goes into the row of its
//! session in the table of requests ([`request_rows`](super::request_rows)). [`call_sessions`](super::call_sessions) decides which
//! calls are executed, and argues that each takes effect once.

use super::call_sessions::{CallEnd, CallSessions, CallStart, KeptCalls};
use super::interactive::{InteractiveSessions, SessionSteps};
use super::leaderships::Leadership;
use super::local_database::LocalDatabase;
use super::procedure_run::{Executed, ProcedureRun};
use super::request_rows::{drop_rows, look_up, resolve, unsettled};
use super::tasks::Task;
use super::transaction_trace::TransactionTrace;
use super::worker_context::{DeclaredRow, LocalCommand, WorkerContext};
use crate::client::{
    ClientId, ClientReply, ClientRequest, Relay, ReplyToClient, RequestFromClient, worker_of,
};
use crate::planted_bugs::PlantedBug;
use crate::request_table::{REQUESTS_TABLE, request_key, request_row};
use crate::slow::Kind;
use bytes::Bytes;
use shoal_types::{
    Database, Error, NodeId, Rejected, RequestId, Result, ShardId, Time, Transaction as _,
};
use std::cell::RefCell;
use std::rc::Rc;

/// The sessions and requests of a worker's clients.
pub(crate) struct ProcedureCalls {
    worker_context: Rc<WorkerContext>,
    granted: Rc<RefCell<CallSessions>>,
    sessions: InteractiveSessions,
}

/// A call, as a client has sent it.
struct ProcedureCall {
    id: RequestId,
    procedure: Box<str>,
    arguments: Bytes,
}

impl ProcedureCalls {
    pub(crate) fn new(worker_context: &Rc<WorkerContext>) -> ProcedureCalls {
        let (limits, worker) = (&worker_context.limits, worker_context.place.worker);
        let (sessions_max, rows_kept) = (limits.call_sessions_max, limits.call_rows_kept);
        let kept = KeptCalls { sessions_max, rows_kept };
        // A planted bug takes the numbers of others for its own: they are the same then.
        let reuses = worker_context.limits.faults.has(PlantedBug::ReuseSessionNumbers);
        let first = worker_context.random.borrow().fork(1).next_u64() >> 2;
        let first = if reuses { 0 } else { first };
        let granted = CallSessions::new(worker, first, kept, worker_context.limits.faults);
        ProcedureCalls {
            worker_context: Rc::clone(worker_context),
            granted: Rc::new(RefCell::new(granted)),
            sessions: InteractiveSessions::new(worker_context),
        }
    }

    /// Rolls back interactive transactions whose clients have sent nothing for too long. Returns the task that drops rows
    /// which were kept for long enough, if there are any.
    pub(crate) fn collection(&self, now: Time) -> Option<Task> {
        self.sessions.collection(now);
        let lasts = |shard, leadership| {
            self.worker_context.leaderships.own_leadership(shard) == Some(leadership)
        };
        let overdue = self.granted.borrow_mut().overdue(now, lasts)?;
        let (worker_context, granted) = (Rc::clone(&self.worker_context), Rc::clone(&self.granted));
        Some(Box::pin(async move {
            let done = drop_rows(&worker_context, &overdue).await.is_ok();
            granted.borrow_mut().dropped(worker_context.now.get(), &overdue, done);
        }))
    }

    /// The numbers of interactive transactions, registered connections, call sessions, and calls that are being executed.
    pub(crate) fn sizes(&self) -> [usize; 4] {
        let ([sessions, registered], [known, running]) =
            (self.sessions.sizes(), self.granted.borrow().sizes());
        [sessions, registered, known, running]
    }

    /// When there may be something to collect.
    pub(crate) fn next_due(&self) -> Option<Time> {
        [self.sessions.next_due(), self.granted.borrow().next_due()].into_iter().flatten().min()
    }

    /// Accepts a request. Returns the task that it needs, if any.
    pub(crate) fn request(&mut self, request: RequestFromClient) -> Option<Task> {
        let RequestFromClient { from, request } = request;
        self.take(Caller { client: from, via: None }, request)
    }

    /// Accepts a relayed message of another node. Returns the task that it needs, if any.
    pub(crate) fn relayed(&mut self, node: NodeId, relay: Relay) -> Option<Task> {
        match relay {
            Relay::Request(RequestFromClient {
                from,
                request:
                    request @ (ClientRequest::Call { .. }
                    | ClientRequest::Resolve { .. }
                    | ClientRequest::OpenCalls { .. }),
            }) => self.take(Caller { client: from, via: Some(node) }, request),
            // Interactive transactions are not relayed.
            Relay::Request(_) => None,
            Relay::Reply(reply) => {
                self.worker_context.local_command(LocalCommand::Reply(reply));
                None
            }
        }
    }

    /// Refuses a call to the wrong worker, relays a request to the wrong node, and serves every other request.
    fn take(&mut self, from: Caller, request: ClientRequest) -> Option<Task> {
        let home = match &request {
            ClientRequest::OpenCalls { home, .. } => *home,
            ClientRequest::Call { id, .. } | ClientRequest::Resolve { id } => id.session.home,
            ClientRequest::Register | ClientRequest::Steps { .. } => {
                return self.interactive(from.client, request);
            }
            // That is the worker's, and does not come here.
            ClientRequest::ChangeTable { .. } => return None,
        };
        if let Err(error) = self.check(&request, home) {
            let refused = from.refused(&request, error);
            refused.into_iter().for_each(|reply| self.worker_context.local_command(reply));
            return None;
        }
        let leader = self.worker_context.leaderships.leader(home).node;
        if leader != self.worker_context.place.node {
            // A relayed request is not relayed again: the client sends it again.
            if from.via.is_none() {
                let relay = Relay::Request(RequestFromClient { from: from.client, request });
                self.worker_context.local_command(LocalCommand::Relay { to: leader, relay });
            }
            return None;
        }
        let leadership = self.worker_context.leaderships.own_leadership(home)?;
        match request {
            ClientRequest::Call { id, procedure, arguments } => {
                self.call(from, ProcedureCall { id, procedure, arguments }, leadership)
            }
            ClientRequest::Resolve { id } => self.resolve(from, id),
            ClientRequest::OpenCalls { token, home } => {
                let serves = self.worker_context.check_leadership(home, leadership);
                let now = self.worker_context.now.get();
                let result =
                    serves.map(|()| self.granted.borrow_mut().grant(now, home, leadership));
                self.worker_context
                    .local_command(from.told(ClientReply::CallsOpened { token, result }));
                None
            }
            ClientRequest::Register
            | ClientRequest::Steps { .. }
            | ClientRequest::ChangeTable { .. } => None,
        }
    }

    /// Whether this worker can serve the request, if its node leads the shard.
    fn check(&self, request: &ClientRequest, home: ShardId) -> Result<()> {
        if let ClientRequest::Call { id, .. } | ClientRequest::Resolve { id } = request {
            let worker = worker_of(&id.session, self.worker_context.topology.workers());
            if worker != self.worker_context.place.worker {
                Err(Rejected::OtherWorker { worker })?;
            }
        }
        if home.0 >= self.worker_context.topology.shards() {
            return Err(Error::reject(format!("there is no {home} to call a procedure on")));
        }
        Ok(())
    }

    fn interactive(&mut self, from: ClientId, request: ClientRequest) -> Option<Task> {
        match request {
            ClientRequest::Register => self.sessions.register(from),
            ClientRequest::Steps { registration, session, number, operations, ending } => {
                let steps = SessionSteps { registration, session, number, operations, ending };
                return self.sessions.take(from, steps);
            }
            ClientRequest::Call { .. }
            | ClientRequest::Resolve { .. }
            | ClientRequest::OpenCalls { .. }
            | ClientRequest::ChangeTable { .. } => {}
        }
        None
    }

    /// Looks up the outcome of a commit. A request in a session of a leadership that this node does not know yet is ignored: the
    /// client sends it again.
    fn resolve(&self, from: Caller, id: RequestId) -> Option<Task> {
        if id.session.since > self.worker_context.leaderships.configured() {
            return None;
        }
        let (worker_context, began) =
            (Rc::clone(&self.worker_context), self.worker_context.now.get());
        Some(Box::pin(async move {
            let mut trace = TransactionTrace::default();
            let result = resolve(&worker_context, id, &mut trace).await;
            trace.end(&worker_context, began, &result, || Kind::Task);
            worker_context.local_command(from.told(ClientReply::Called { id, result }));
        }))
    }

    /// Answers a call, executes it, or looks up its row. A call in a session of a leadership that this node does not know yet
    /// is ignored: the client sends it again.
    fn call(&mut self, from: Caller, call: ProcedureCall, leadership: Leadership) -> Option<Task> {
        let id = call.id;
        if id.session.since > self.worker_context.leaderships.configured() {
            return None;
        }
        let begun = self.granted.borrow_mut().begin(id, leadership);
        let runs = match begun {
            CallStart::Waits => return None,
            CallStart::Failed(error) => {
                self.worker_context
                    .local_command(from.told(ClientReply::Called { id, result: Err(error) }));
                return None;
            }
            CallStart::Returned(result) => {
                self.worker_context
                    .local_command(from.told(ClientReply::Called { id, result: Ok(result) }));
                return None;
            }
            CallStart::Runs => true,
            CallStart::LookUp => false,
        };
        let (worker_context, began) =
            (Rc::clone(&self.worker_context), self.worker_context.now.get());
        let granted = Rc::clone(&self.granted);
        Some(Box::pin(async move {
            let mut trace = TransactionTrace::default();
            let result = if runs {
                let result = run(&worker_context, &call, leadership, &mut trace).await;
                let (ended, result) = settle(id, result);
                granted.borrow_mut().end(id, leadership, ended);
                result
            } else {
                look_up(&worker_context, id, &mut trace).await
            };
            trace.end(&worker_context, began, &result, || Kind::Call(call.procedure));
            worker_context.local_command(from.told(ClientReply::Called { id, result }));
        }))
    }
}

/// The outcome of an execution, and the reply to the client.
fn settle(id: RequestId, result: Result<(Bytes, bool)>) -> (CallEnd, Result<Bytes>) {
    match result {
        Ok((result, false)) => (CallEnd::SeeRow, Ok(result)),
        Ok((result, true)) => (CallEnd::Returned(result.clone()), Ok(result)),
        Err(error @ (Error::Aborted(_) | Error::Rejected(_))) => {
            (CallEnd::Failed(error.clone()), Err(error))
        }
        // Its row will show it, when it can be read.
        Err(error @ Error::Unknown(_)) => (CallEnd::SeeRow, Err(unsettled(id, &error))),
    }
}

/// The client to answer.
#[derive(Debug, Clone, Copy)]
struct Caller {
    client: ClientId,
    /// The node that it is connected to, if not this one.
    via: Option<NodeId>,
}

impl Caller {
    fn told(self, reply: ClientReply) -> LocalCommand {
        let reply = ReplyToClient { to: self.client, reply };
        match self.via {
            None => LocalCommand::Reply(reply),
            Some(node) => LocalCommand::Relay { to: node, relay: Relay::Reply(reply) },
        }
    }

    /// Refuses a request that cannot be served here. Interactive transactions are refused by their sessions.
    fn refused(self, request: &ClientRequest, error: Error) -> Option<LocalCommand> {
        let reply = match *request {
            ClientRequest::OpenCalls { token, .. } => {
                ClientReply::CallsOpened { token, result: Err(error) }
            }
            ClientRequest::Call { id, .. } | ClientRequest::Resolve { id } => {
                ClientReply::Called { id, result: Err(error) }
            }
            ClientRequest::Register
            | ClientRequest::Steps { .. }
            | ClientRequest::ChangeTable { .. } => return None,
        };
        Some(self.told(reply))
    }
}

/// Runs a procedure that has not run before, in `leadership`, and keeps its result in the session's row; or says that the
/// row does not have it, since several shards have contributed to it.
async fn run(
    worker_context: &Rc<WorkerContext>,
    call: &ProcedureCall,
    leadership: Leadership,
    trace: &mut TransactionTrace,
) -> Result<(Bytes, bool)> {
    let ProcedureCall { id, procedure, arguments } = call;
    let procedure = ProcedureRun::new(worker_context, procedure, arguments)?;
    let local = LocalDatabase::new(worker_context);
    let requests = local.table(REQUESTS_TABLE)?;
    local
        .run(trace, async |tx| {
            tx.let_move();
            worker_context.check_leadership(id.session.home, leadership)?;
            let key = Bytes::from(request_key(&id.session));
            let request = DeclaredRow { id: *id, table: requests, key, mark: None };
            let result = match procedure.attempt(tx, Some(request)).await? {
                Executed::ByEngine { result, is_split } => return Ok((result, is_split)),
                Executed::Here(result) => result,
            };
            tx.put(requests, &request_key(&id.session), &request_row(id.number, &result))?;
            // No successor has looked for this row in vain: the transaction is of an epoch in which this node leads.
            worker_context.check_leadership(id.session.home, leadership)?;
            Ok((result, false))
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::{Aborted, ShardId, Unknown};

    #[test]
    fn only_what_is_definite_is_told_of_a_run() {
        let id = RequestId { number: 5, ..RequestId::default() };
        assert_eq!(settle(id, Ok((Bytes::new(), false))), (CallEnd::SeeRow, Ok(Bytes::new())));
        let returned = (CallEnd::Returned("a".into()), Ok("a".into()));
        assert_eq!(settle(id, Ok(("a".into(), true))), returned);
        let aborted = Error::from(Aborted::NotServing { node: NodeId(1) });
        let failed = (CallEnd::Failed(aborted.clone()), Err(aborted.clone()));
        assert_eq!(settle(id, Err(aborted)), failed);
        let open = settle(id, Err(Unknown::Participant { shard: ShardId(1) }.into()));
        let unsettled = Unknown::Unsettled { request: id, shard: ShardId(1) }.into();
        assert_eq!(open, (CallEnd::SeeRow, Err(unsettled)));
    }
}
