//! Interactive transactions: a client sends steps, and the coordinator keeps the transaction between them.
//!
//! What a step has read is revealed to the client once it is durable, even though the transaction may abort later. Steps
//! are executed in the order of their numbers; those that arrive before their turn are kept, so that a client may send
//! many at once, with the beginning and the end. A repeated step is answered again, so a client repeats a step until it
//! is answered. The transaction of a client that sends nothing for too long is rolled back.
//!
//! Puts and deletes are answered by the reply to a later step, which acknowledges all of them before it. One that fails
//! ends the transaction, with all steps behind it; so a commit commits all of them or nothing.
//!
//! [`registrations`](super::registrations) has the rule which sessions begin, and the argument that none begins twice.

use super::registered_call;
use super::registrations::Registrations;
use super::request_rows::write_committed;
use super::slot::ResultSlot;
use super::tasks::Task;
use super::transaction::CoordinatorTransaction;
use super::transaction_trace::TransactionTrace;
use super::worker_context::{BodyEnd, LocalCommand, WorkerContext};
use crate::client::{
    AHEAD_BYTES_MAX, ClientId, ClientReply, ReplyToClient, STEPS_AHEAD_MAX, SessionEnd,
};
use crate::operation::{Operation, OperationResult};
use crate::planted_bugs::PlantedBug;
use crate::slow::Kind;
use bytes::Bytes;
use shoal_types::{Aborted, Error, Result, Time, Transaction as _, Unknown};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// A client, and the number of one of its transactions.
type InteractiveKey = (ClientId, u64);

/// The interactive transactions of a worker.
pub(super) struct InteractiveSessions {
    worker_context: Rc<WorkerContext>,
    book: Rc<RefCell<SessionTable>>,
}

struct SessionTable {
    registrations: Registrations,
    /// The open sessions, and of each connection the last one that is over, to repeat its last answer.
    sessions: BTreeMap<InteractiveKey, Rc<RefCell<InteractiveSession>>>,
    /// When to look for clients that send nothing; `None` if no session is open.
    collect_at: Option<Time>,
}

/// The state of an interactive transaction.
#[derive(Default)]
struct InteractiveSession {
    /// The number of the session, which the client has counted.
    number: u64,
    /// The registration of the connection.
    registration: u64,
    /// The number of the next step.
    next: u32,
    /// The slot in which the transaction's task receives the next step.
    step: Rc<ResultSlot<SessionStep>>,
    /// A step is being executed.
    busy: bool,
    /// Steps that have arrived before their turn, and their bytes.
    ahead: BTreeMap<u32, SessionStep>,
    ahead_bytes: usize,
    /// The transaction was admitted.
    admitted: bool,
    /// The transaction has ended.
    over: bool,
    /// Why the transaction was rolled back by this worker, until a step is answered with that.
    aborted_by: Option<Aborted>,
    began_at: Time,
    /// When the last message of the client arrived.
    received_at: Time,
    /// The replies to the last steps, in their order.
    replies: RecentReplies,
}

/// The last replies of a session, with the numbers of their steps: those that the client may not have received.
#[derive(Default)]
struct RecentReplies {
    replies: VecDeque<(u32, ClientReply)>,
    bytes: usize,
}

/// The steps of one [`ClientRequest::Steps`](crate::client::ClientRequest::Steps).
#[derive(Debug, Clone)]
pub(super) struct SessionSteps {
    pub(super) registration: u64,
    pub(super) session: u64,
    pub(super) number: u32,
    pub(super) operations: Vec<Operation>,
    pub(super) ending: Option<SessionEnd>,
}

enum SessionStep {
    /// An operation, and whether it is answered even if it has no result of its own.
    Operation {
        operation: Operation,
        answered: bool,
    },
    End(SessionEnd),
    /// No step arrived for too long, or the session has ended for another reason: roll back.
    GiveUp(Aborted),
}

impl InteractiveSessions {
    pub(super) fn new(worker_context: &Rc<WorkerContext>) -> InteractiveSessions {
        // Drawn, so that registrations of an earlier process were others.
        let first = worker_context.random.borrow().fork(2).next_u64() >> 2;
        let (idle_max, faults) =
            (worker_context.limits.answers_remembered, worker_context.limits.faults);
        let table = SessionTable {
            registrations: Registrations::new(first, idle_max, faults),
            sessions: BTreeMap::new(),
            collect_at: None,
        };
        InteractiveSessions {
            worker_context: Rc::clone(worker_context),
            book: Rc::new(RefCell::new(table)),
        }
    }

    /// The number of sessions in the table, and of registered connections.
    pub(super) fn sizes(&self) -> [usize; 2] {
        let book = self.book.borrow();
        [book.sessions.len(), book.registrations.len()]
    }

    /// Registers a connection, unless it is registered, and answers with its registration.
    pub(super) fn register(&self, from: ClientId) {
        let registration = self.book.borrow_mut().register(from);
        self.reply(from, ClientReply::Registered { registration });
    }

    fn reply(&self, to: ClientId, reply: ClientReply) {
        self.worker_context.local_command(LocalCommand::Reply(ReplyToClient { to, reply }));
    }

    /// Accepts steps, or answers them. If a session begins with them, returns the task that executes it.
    pub(super) fn take(&self, from: ClientId, steps: SessionSteps) -> Option<Task> {
        let key = (from, steps.session);
        let mut book = self.book.borrow_mut();
        let now = self.worker_context.now.get();
        let found = book
            .sessions
            .get(&key)
            .filter(|session| session.borrow().registration == steps.registration);
        if let Some(session) = found.cloned() {
            let replies = session.borrow_mut().take(now, steps);
            replies.into_iter().for_each(|reply| self.reply(from, reply));
            return None;
        }
        let begins = book.registrations.may_begin(from, steps.registration, steps.session);
        match (begins, steps.number) {
            (true, 0) => {}
            // The beginning has not arrived yet.
            (true, _) if steps.ending != Some(SessionEnd::Rollback) => return None,
            (true | false, _) => {
                let (session, number) = (steps.session, steps.number);
                let result = Err(steps.unknown());
                self.reply(from, ClientReply::Done { session, number, result });
                return None;
            }
        }
        let session = InteractiveSession::new(now, &steps);
        let calls =
            steps.operations.is_empty() && matches!(steps.ending, Some(SessionEnd::Call { .. }));
        session.borrow_mut().take(now, steps);
        book.begin(key, &session, now + self.worker_context.limits.session_idle_max);
        let (worker_context, book) = (Rc::clone(&self.worker_context), Rc::clone(&self.book));
        Some(Box::pin(async move {
            if calls {
                call(&worker_context, from, &session, now).await;
            } else {
                let mut trace = TransactionTrace { attempts: 1, ..TransactionTrace::default() };
                let ended = run(&worker_context, from, &session, &mut trace).await;
                trace.end(&worker_context, now, &ended, || Kind::Interactive);
            }
            session.borrow_mut().end();
            book.borrow_mut().end(key);
        }))
    }

    /// Rolls back the sessions whose clients have sent nothing for too long.
    pub(super) fn collection(&self, now: Time) {
        let mut book = self.book.borrow_mut();
        if book.collect_at.is_none_or(|at| now < at) {
            return;
        }
        let idle = self.worker_context.limits.session_idle_max;
        let open = self.worker_context.limits.session_open_max;
        let mut next = None;
        for session in book.sessions.values() {
            let mut session = session.borrow_mut();
            if session.over {
                continue;
            }
            let aborted = match () {
                () if session.received_at + idle <= now => Some(Aborted::Idle { idle }),
                () if session.began_at + open <= now => Some(Aborted::OpenTooLong { open }),
                () => None,
            };
            // One that has a step under way, or is not let in yet, is looked at again.
            if let Some(aborted) = aborted.filter(|_| !session.busy && session.admitted) {
                session.start(SessionStep::GiveUp(aborted));
            }
            let due = (session.received_at + idle).min(session.began_at + open);
            let due = due.max(now + idle.min(open) / 4);
            next = Some(next.map_or(due, |next: Time| next.min(due)));
        }
        book.collect_at = next;
    }

    /// When to collect next.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.book.borrow().collect_at
    }
}

impl SessionTable {
    fn register(&mut self, client: ClientId) -> u64 {
        let registration = self.registrations.register(client);
        self.forget_idle();
        registration
    }

    /// Begins a session that may begin.
    fn begin(&mut self, key: InteractiveKey, session: &Rc<RefCell<InteractiveSession>>, at: Time) {
        let (client, number) = key;
        self.registrations.begin(client, number);
        let before = self.sessions.insert(key, Rc::clone(session));
        assert!(before.is_none(), "session {number} of {client:?} is known, and begins");
        self.collect_at.get_or_insert(at);
    }

    /// Notes that a session is over. Earlier ones of the client need no answer any more.
    fn end(&mut self, key: InteractiveKey) {
        let (client, number) = key;
        let others = self.sessions.range((client, 0)..(client, number));
        let answered = others.filter(|(_, session)| session.borrow().over);
        let answered: Vec<InteractiveKey> = answered.map(|(key, _)| *key).collect();
        answered.iter().for_each(|key| drop(self.sessions.remove(key)));
        self.registrations.end(client);
        self.forget_idle();
    }

    fn forget_idle(&mut self) {
        while let Some(client) = self.registrations.forget_one() {
            let sessions = self.sessions.range((client, 0)..=(client, u64::MAX));
            let sessions: Vec<InteractiveKey> = sessions.map(|(key, _)| *key).collect();
            sessions.iter().for_each(|key| drop(self.sessions.remove(key)));
        }
    }
}

impl SessionSteps {
    /// The error for a step of a session that is not in the table.
    fn unknown(&self) -> Error {
        let session = self.session;
        match self.ending {
            // It may have committed, and been dropped from the table.
            Some(SessionEnd::Commit | SessionEnd::CommitAs(_) | SessionEnd::Call { .. }) => {
                Unknown::Session { session }.into()
            }
            // A session without an end has changed nothing.
            Some(SessionEnd::Confirm | SessionEnd::Rollback) | None => {
                Aborted::UnknownSession { session }.into()
            }
        }
    }

    /// The steps with their numbers. The last one is answered in any case.
    fn steps(self) -> impl Iterator<Item = (u32, SessionStep)> {
        let count = self.operations.len();
        let has_end = self.ending.is_some();
        let operations = self.operations.into_iter().zip(1..).map(move |(operation, at)| {
            SessionStep::Operation { operation, answered: at == count && !has_end }
        });
        (self.number..u32::MAX).zip(operations.chain(self.ending.map(SessionStep::End)))
    }
}

impl SessionStep {
    fn bytes(&self) -> usize {
        match self {
            SessionStep::Operation { operation, .. } => operation.bytes(),
            SessionStep::End(SessionEnd::Call { procedure, arguments, .. }) => {
                procedure.len() + arguments.len()
            }
            SessionStep::End(_) | SessionStep::GiveUp(_) => 0,
        }
    }

    /// A copy that shares no memory with the received frame, which may be much larger.
    fn detached(self) -> SessionStep {
        match self {
            SessionStep::Operation { operation, answered } => {
                SessionStep::Operation { operation: operation.detached(), answered }
            }
            SessionStep::End(SessionEnd::Call { id, procedure, arguments }) => {
                let arguments = Bytes::copy_from_slice(&arguments);
                SessionStep::End(SessionEnd::Call { id, procedure, arguments })
            }
            SessionStep::End(_) | SessionStep::GiveUp(_) => self,
        }
    }
}

impl InteractiveSession {
    /// A session that begins with these steps.
    fn new(now: Time, steps: &SessionSteps) -> Rc<RefCell<InteractiveSession>> {
        Rc::new(RefCell::new(InteractiveSession {
            number: steps.session,
            registration: steps.registration,
            began_at: now,
            received_at: now,
            ..InteractiveSession::default()
        }))
    }

    /// Accepts new steps, and returns the replies to repeated ones.
    fn take(&mut self, now: Time, asked: SessionSteps) -> Vec<ClientReply> {
        self.received_at = now;
        let mut replies = Vec::new();
        let unknown = asked.unknown();
        for (number, step) in asked.steps() {
            if number < self.next {
                replies.extend(self.repeated_reply(number, &step, &unknown));
            } else if !self.over {
                self.keep(number, step);
            } else {
                let error = self.aborted_by.map_or(unknown, Error::from);
                replies
                    .extend((number == self.next).then(|| self.reply_to_step(number, Err(error))));
                break;
            }
        }
        replies
    }

    /// The reply to a repeated step that was executed.
    fn repeated_reply(
        &self,
        number: u32,
        step: &SessionStep,
        unknown: &Error,
    ) -> Option<ClientReply> {
        if let Some(reply) = self.replies.find(number) {
            return Some(reply);
        }
        match step {
            // Had it failed, that would have been the last answer.
            SessionStep::Operation { operation, answered } if !operation.wants_answer() => {
                answered.then(|| self.reply_to_step(number, Ok(OperationResult::Done)))
            }
            SessionStep::Operation { .. } | SessionStep::End(_) | SessionStep::GiveUp(_) => {
                Some(self.reply_to_step(number, Err(unknown.clone())))
            }
        }
    }

    /// Accepts a step that was not executed: it is executed now, kept for its turn, or a repeat of one of these.
    fn keep(&mut self, number: u32, step: SessionStep) {
        let ahead = number - self.next;
        if ahead == 0 {
            if !self.busy {
                self.start(step);
            }
            return;
        }
        let bytes = self.ahead_bytes + step.bytes();
        let has_room = (ahead as usize) < STEPS_AHEAD_MAX && bytes <= AHEAD_BYTES_MAX;
        if has_room && !self.ahead.contains_key(&number) {
            self.ahead_bytes = bytes;
            self.ahead.insert(number, step.detached());
        }
    }

    /// Passes the next step to the transaction's task.
    fn start(&mut self, step: SessionStep) {
        self.busy = true;
        self.step.fill(step);
    }

    fn reply_to_step(&self, number: u32, result: Result<OperationResult>) -> ClientReply {
        ClientReply::Done { session: self.number, number, result }
    }

    /// Ends the current step, and passes on the next one if it has arrived.
    fn done(&mut self) {
        self.next += 1;
        self.busy = false;
        self.step = Rc::default();
        if let Some(step) = self.ahead.remove(&self.next) {
            self.ahead_bytes -= step.bytes();
            self.start(step);
        }
    }

    /// Ends the current step, and keeps its reply.
    fn answer(&mut self, result: Result<OperationResult>) -> ClientReply {
        let reply = self.reply_to_step(self.next, result);
        self.replies.push(self.next, reply.clone());
        self.done();
        reply
    }

    /// Ends the session. Only the reply to its last step may be requested again: it is kept for long.
    fn end(&mut self) {
        self.over = true;
        self.step = Rc::default();
        self.ahead = BTreeMap::new();
        self.ahead_bytes = 0;
        self.replies.keep(usize::from(self.aborted_by.is_none()));
    }
}

impl RecentReplies {
    fn push(&mut self, number: u32, reply: ClientReply) {
        let last = bytes(&reply);
        self.bytes += last;
        self.replies.push_back((number, reply));
        // The last reply is kept, of any size.
        while self.replies.len() > STEPS_AHEAD_MAX || self.bytes - last > AHEAD_BYTES_MAX {
            self.keep(self.replies.len() - 1);
        }
    }

    /// Drops all but the last replies.
    fn keep(&mut self, count: usize) {
        while self.replies.len() > count {
            self.bytes -= self.replies.pop_front().map_or(0, |(_, reply)| bytes(&reply));
        }
    }

    /// The reply to a step.
    fn find(&self, number: u32) -> Option<ClientReply> {
        let at = self.replies.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.replies.get(at).map(|(_, reply)| reply.clone())
    }
}

/// The approximate size of a reply, in bytes.
fn bytes(reply: &ClientReply) -> usize {
    match reply {
        ClientReply::Done { result: Ok(answer), .. } => answer.bytes(),
        _ => 0,
    }
}

/// Executes a transaction that is one call of a procedure.
async fn call(
    worker_context: &Rc<WorkerContext>,
    to: ClientId,
    session: &RefCell<InteractiveSession>,
    began: Time,
) {
    // Its transaction is admitted when it runs. Until then and meanwhile the session is given up by no collection.
    let step = Rc::clone(&session.borrow().step);
    let SessionStep::End(SessionEnd::Call { id, procedure, arguments }) = step.take().await else {
        unreachable!("this session begins with a call");
    };
    let mut trace = TransactionTrace::default();
    let result = registered_call::run(worker_context, id, &procedure, &arguments, &mut trace).await;
    trace.end(worker_context, began, &result, || Kind::Call(procedure));
    let reply = session.borrow_mut().answer(result.map(|it| OperationResult::Value(Some(it))));
    worker_context.local_command(LocalCommand::Reply(ReplyToClient { to, reply }));
}

/// Executes an interactive transaction, and returns its end.
async fn run(
    worker_context: &Rc<WorkerContext>,
    to: ClientId,
    session: &RefCell<InteractiveSession>,
    trace: &mut TransactionTrace,
) -> Result<()> {
    let answer = |result| {
        let reply = session.borrow_mut().answer(result);
        worker_context.local_command(LocalCommand::Reply(ReplyToClient { to, reply }));
    };
    let permit = match worker_context.admission.enter(worker_context.now.get()).await {
        Ok(permit) => permit,
        Err(error) => {
            answer(Err(error.clone()));
            return Err(error);
        }
    };
    let transaction = CoordinatorTransaction::begin(worker_context, &permit, false);
    transaction.let_move();
    session.borrow_mut().admitted = true;
    // A put or a delete has failed. Only a planted bug goes on then.
    let mut is_spoiled = false;
    loop {
        let step = Rc::clone(&session.borrow().step);
        let waits_since = worker_context.now.get();
        let step = step.take().await;
        trace.client += worker_context.now.get() - waits_since;
        match step {
            SessionStep::Operation { operation, answered } => {
                let result = perform(&transaction, &operation).await;
                trace.see(worker_context, || transaction.done());
                is_spoiled |= result.is_err() && !operation.wants_answer();
                let forgets = worker_context.limits.faults.has(PlantedBug::CommitPastFailedWrite);
                let goes_on = matches!(result, Ok(_) | Err(Error::Rejected(_)));
                if !goes_on || (is_spoiled && !forgets) {
                    let ended = result.clone().map(drop);
                    drop(transaction);
                    answer(result);
                    return ended;
                }
                if answered || operation.wants_answer() {
                    answer(result);
                } else {
                    session.borrow_mut().done();
                }
            }
            SessionStep::GiveUp(aborted) => {
                session.borrow_mut().aborted_by = Some(aborted);
                return Err(aborted.into());
            }
            SessionStep::End(ending) => {
                let forgets = worker_context.limits.faults.has(PlantedBug::CommitPastFailedWrite);
                assert!(!is_spoiled || forgets, "{ending:?} after a write that failed, of {to:?}");
                trace.undone = !ending.commits();
                let ended = match ending {
                    SessionEnd::Commit => transaction.end(BodyEnd::Commit).await,
                    SessionEnd::CommitAs(id) => {
                        let number = session.borrow().number;
                        match write_committed(worker_context, &transaction, id, number).await {
                            Ok(()) => transaction.end(BodyEnd::Commit).await,
                            Err(error) => {
                                drop(transaction);
                                Err(error)
                            }
                        }
                    }
                    SessionEnd::Call { .. } => {
                        drop(transaction);
                        Err(Error::reject("a call is a transaction of its own"))
                    }
                    SessionEnd::Confirm => transaction.end(BodyEnd::Confirm).await,
                    SessionEnd::Rollback => {
                        drop(transaction);
                        Ok(())
                    }
                };
                answer(ended.clone().map(|()| OperationResult::Done));
                return ended;
            }
        }
    }
}

/// Executes a step, and waits until its result may be revealed.
async fn perform(
    tx: &CoordinatorTransaction<'_>,
    operation: &Operation,
) -> Result<OperationResult> {
    let result = match operation {
        Operation::Get { table, key } => {
            let value = tx.get(*table, key).await;
            value.map(|value| OperationResult::Value(value.map(Bytes::copy_from_slice)))
        }
        Operation::Scan { table, range } => tx.scan(*table, range.scan()).await.map(|rows| {
            let copied = |(key, value): (&[u8], &[u8])| {
                (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))
            };
            OperationResult::Rows(rows.into_iter().map(copied).collect())
        }),
        Operation::Put { table, key, value: Some(value) } => {
            tx.put(*table, key, value).map(|()| OperationResult::Done)
        }
        Operation::Put { table, key, value: None } => {
            tx.delete(*table, key).map(|()| OperationResult::Done)
        }
        Operation::Insert { table, key, value } => {
            tx.insert(*table, key, value).await.map(|()| OperationResult::Done)
        }
    };
    // That a key exists is something that was read, too. An abort shows nothing, and neither does a write that is done.
    if operation.wants_answer() && !matches!(result, Err(Error::Aborted(_))) {
        tx.reveal().await?;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted_bugs::PlantedBugs;
    use shoal_types::TableId;

    const TABLE: TableId = TableId(0);

    fn value() -> Result<OperationResult> {
        Ok(OperationResult::Value(Some(Bytes::from(vec![0; AHEAD_BYTES_MAX / 4]))))
    }

    fn done(number: u32, result: Result<OperationResult>) -> ClientReply {
        ClientReply::Done { session: 1, number, result }
    }

    fn put(bytes: usize) -> Operation {
        let value = Some(Bytes::from(vec![0; bytes]));
        Operation::Put { table: TABLE, key: Bytes::from_static(b"key"), value }
    }

    fn get() -> Operation {
        Operation::Get { table: TABLE, key: Bytes::from_static(b"key") }
    }

    fn asked(number: u32, operations: Vec<Operation>, ending: Option<SessionEnd>) -> SessionSteps {
        SessionSteps { registration: 7, session: 1, number, operations, ending }
    }

    fn session() -> InteractiveSession {
        InteractiveSession { number: 1, registration: 7, ..InteractiveSession::default() }
    }

    fn come(session: &mut InteractiveSession, asked: SessionSteps) -> Vec<ClientReply> {
        session.take(Time(1), asked)
    }

    #[test]
    fn steps_that_come_early_have_their_turn() {
        let mut session = session();
        for number in [2, 1, 0, 2, 0] {
            assert_eq!(come(&mut session, asked(number, vec![get()], None)), []);
        }
        assert_eq!((session.next, session.busy, session.ahead.len()), (0, true, 2));
        for number in 0..3 {
            assert!(session.busy);
            assert_eq!(session.answer(value()), done(number, value()));
        }
        assert_eq!((session.next, session.busy, session.ahead_bytes), (3, false, 0));
        let again = asked(1, vec![get()], None);
        assert_eq!(come(&mut session, again), [done(1, value())], "once more");
        let far = 3 + STEPS_AHEAD_MAX as u32;
        assert_eq!(come(&mut session, asked(far, vec![get()], None)), []);
        assert_eq!(come(&mut session, asked(far - 1, vec![get()], None)), []);
        assert_eq!(session.ahead.len(), 1, "one is too far ahead");
        session.end();
        let next = asked(3, vec![get(), get()], None);
        assert!(come(&mut session, next).len() == 1, "only the first is waited for");
        assert_eq!(come(&mut session, asked(4, vec![get()], None)), []);
        assert_eq!(session.ahead.len() + session.ahead_bytes, 0);
        let unknown = Err(Aborted::UnknownSession { session: 1 }.into());
        let last = asked(2, vec![get()], None);
        assert_eq!(come(&mut session, last), [done(2, value())], "the last answer stays");
        let first = asked(0, vec![get()], None);
        assert_eq!(come(&mut session, first), [done(0, unknown)], "others are forgotten");
        assert_eq!(come(&mut session, asked(u32::MAX, vec![get(), get()], None)), []);
    }

    #[test]
    fn a_commit_waits_for_its_turn_and_writes_need_no_answers() {
        let mut session = session();
        let commit = |number, puts| asked(number, vec![put(1); puts], Some(SessionEnd::Commit));
        assert_eq!(come(&mut session, commit(1, 2)), []);
        assert!(!session.busy, "the first step is missing");
        assert_eq!(come(&mut session, asked(0, vec![get()], None)), []);
        assert_eq!(session.answer(value()), done(0, value()));
        (0..2).for_each(|_| {
            assert!(session.busy);
            session.done();
        });
        assert!((session.next, session.busy) == (3, true), "the commit has its turn");
        session.answer(Ok(OperationResult::Done));
        session.end();
        let committed = [done(3, Ok(OperationResult::Done))];
        assert_eq!(come(&mut session, commit(1, 2)), committed, "asked for again");
        assert_eq!(come(&mut session, commit(3, 0)), committed, "the same");
    }

    #[test]
    fn the_last_step_of_each_message_is_answered() {
        let steps = |ending| asked(4, vec![put(1), put(1)], ending).steps();
        let answered = |(number, step)| match step {
            SessionStep::Operation { answered, .. } => (number, answered),
            SessionStep::End(_) | SessionStep::GiveUp(_) => (number, true),
        };
        assert_eq!(steps(None).map(answered).collect::<Vec<_>>(), [(4, false), (5, true)]);
        let commit = steps(Some(SessionEnd::Commit)).map(answered).collect::<Vec<_>>();
        assert_eq!(commit, [(4, false), (5, false), (6, true)]);
        let mut session = session();
        assert_eq!(come(&mut session, asked(0, vec![put(1), put(1)], None)), []);
        session.done();
        session.done();
        let replies = [done(1, Ok(OperationResult::Done))];
        assert_eq!(come(&mut session, asked(0, vec![put(1), put(1)], None)), replies, "again");
    }

    #[test]
    fn a_write_that_failed_is_the_last_answer() {
        let mut session = session();
        let message = asked(0, vec![put(1), put(1)], Some(SessionEnd::Commit));
        come(&mut session, message.clone());
        let full = Err(shoal_types::Rejected::MemoryFull { bytes: 1, max: 1 }.into());
        session.answer(full.clone());
        session.end();
        let replies = come(&mut session, message);
        assert_eq!(replies[0], done(0, full));
        assert!(
            replies.len() == 2 && session.ahead.is_empty(),
            "nothing waits behind it: {replies:?}"
        );
    }

    #[test]
    fn what_waits_and_what_is_remembered_is_bounded() {
        let mut session = session();
        for number in 0..8 {
            come(&mut session, asked(number, vec![put(AHEAD_BYTES_MAX / 3)], None));
        }
        assert_eq!(session.ahead.len(), 2, "two thirds, and some bytes of keys");
        let kept = |session: &InteractiveSession| {
            session.replies.replies.iter().map(|(number, _)| *number).collect::<Vec<_>>()
        };
        (0..10).for_each(|number| session.replies.push(number, done(number, value())));
        assert_eq!(kept(&session), [5, 6, 7, 8, 9], "four quarters beside the last");
        assert_eq!(session.replies.find(5), Some(done(5, value())));
        assert_eq!(session.replies.find(4), None);
        let small = |number| done(number, Ok(OperationResult::Done));
        (10..10 + 2 * STEPS_AHEAD_MAX as u32)
            .for_each(|number| session.replies.push(number, small(number)));
        assert_eq!(session.replies.replies.len(), STEPS_AHEAD_MAX);
    }

    #[test]
    fn the_last_session_of_each_client_is_remembered() {
        let mut book = SessionTable {
            registrations: Registrations::new(1, 2, PlantedBugs::NONE),
            sessions: BTreeMap::new(),
            collect_at: None,
        };
        let mut end = |client: u64, number: u64| {
            let client = ClientId(client);
            let registration = book.register(client);
            let steps = SessionSteps { registration, session: number, ..asked(0, vec![], None) };
            assert!(book.registrations.may_begin(client, registration, number));
            let session = InteractiveSession::new(Time(1), &steps);
            book.begin((client, number), &session, Time(2));
            session.borrow_mut().end();
            book.end((client, number));
            let left = book.sessions.keys().map(|(client, number)| (client.0, *number));
            (left.collect::<Vec<_>>(), book.registrations.len())
        };
        assert_eq!(end(1, 1).0, [(1, 1)]);
        assert_eq!(end(1, 2).0, [(1, 2)]);
        assert_eq!(end(2, 7).0, [(1, 2), (2, 7)]);
        assert_eq!(end(3, 1).0, [(2, 7), (3, 1)], "the oldest goes");
        let (left, registered) = (4..1000).map(|number| end(3, number)).last().expect("some");
        assert_eq!((left, registered), (vec![(2, 7), (3, 999)], 2));
    }
}
