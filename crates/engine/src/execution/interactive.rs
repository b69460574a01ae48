//! Interactive transactions: a client sends one step after the other, the coordinator keeps the
//! transaction.
//!
//! What a step has read is shown to the client once it is covered (rule M5), even though the transaction may yet abort.
//! Steps are done in the order of their numbers; those that come before their turn wait for it, so that a client may
//! send many at once, with the beginning and the end. A step that arrives again is answered again; so a client may
//! repeat one until it hears. A client that is silent for too long has its transaction given up.
//!
//! Puts and deletes are answered by what comes after them: a reply says that all of them before its step are done. One
//! that fails ends the transaction, with all steps that wait behind it; so a commit commits all of them or nothing.
//!
//! Which sessions begin, and why none does so twice, is argued in [`registrations`](super::registrations).

use super::local_database::LocalDatabase;
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

/// A client and its number for one of its transactions.
type InteractiveKey = (ClientId, u64);

/// The interactive transactions of a worker.
pub(super) struct InteractiveSessions {
    worker_context: Rc<WorkerContext>,
    book: Rc<RefCell<SessionTable>>,
}

struct SessionTable {
    registrations: Registrations,
    /// Those that are open, and the last of each connection that is over, to repeat its last answer.
    sessions: BTreeMap<InteractiveKey, Rc<RefCell<InteractiveSession>>>,
    /// When to look for silent clients; `None` if nothing is open.
    collect_at: Option<Time>,
}

/// What is known of one.
#[derive(Default)]
struct InteractiveSession {
    /// The client's number for it.
    number: u64,
    /// That of its connection.
    registration: u64,
    /// The step that is waited for.
    next: u32,
    /// Where it is handed over, when it comes.
    step: Rc<ResultSlot<SessionStep>>,
    /// It has come, and is not done.
    busy: bool,
    /// Steps that have come before their turn, and their bytes.
    ahead: BTreeMap<u32, SessionStep>,
    ahead_bytes: usize,
    /// It was let in, so that there is a transaction.
    admitted: bool,
    /// There is no transaction any more.
    over: bool,
    /// That is so since it was given up, which no step was told.
    given_up: Option<Aborted>,
    began_at: Time,
    /// When its client was last heard of.
    heard_at: Time,
    /// What the last steps were told, in their order.
    said: RecentReplies,
}

/// The last answers of a session, with the numbers of their steps: those that its client may not have heard.
#[derive(Default)]
struct RecentReplies {
    replies: VecDeque<(u32, ClientReply)>,
    bytes: usize,
}

/// Steps of a session, as they came in one message: see [`ClientRequest::Steps`](crate::client::ClientRequest::Steps).
#[derive(Debug, Clone)]
pub(super) struct SessionSteps {
    pub(super) registration: u64,
    pub(super) session: u64,
    pub(super) number: u32,
    pub(super) operations: Vec<Operation>,
    pub(super) ending: Option<SessionEnd>,
}

enum SessionStep {
    /// What to do, and whether its client is told also where it brings nothing.
    Operation {
        operation: Operation,
        told: bool,
    },
    End(SessionEnd),
    /// None came for too long, or too many.
    GiveUp(Aborted),
}

impl InteractiveSessions {
    pub(super) fn new(worker_context: &Rc<WorkerContext>) -> InteractiveSessions {
        // Drawn, so that those before a restart had others.
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

    /// How many are known, and how many connections are registered.
    pub(super) fn sizes(&self) -> [usize; 2] {
        let book = self.book.borrow();
        [book.sessions.len(), book.registrations.len()]
    }

    /// Registers a connection, unless it was registered before, and tells it so.
    pub(super) fn register(&self, from: ClientId) {
        let registration = self.book.borrow_mut().register(from);
        self.reply(from, ClientReply::Registered { registration });
    }

    fn reply(&self, to: ClientId, reply: ClientReply) {
        self.worker_context.local_command(LocalCommand::Reply(ReplyToClient { to, reply }));
    }

    /// Takes steps, or answers them; where a session begins with them, what has to be run for it is returned.
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
            // It comes before the beginning, and so before its turn.
            (true, _) if steps.ending != Some(SessionEnd::Rollback) => return None,
            (true | false, _) => {
                let (session, number) = (steps.session, steps.number);
                let result = Err(steps.unknown());
                self.reply(from, ClientReply::Done { session, number, result });
                return None;
            }
        }
        let session = InteractiveSession::new(now, &steps);
        session.borrow_mut().take(now, steps);
        book.begin(key, &session, now + self.worker_context.limits.session_idle_max);
        let (worker_context, book) = (Rc::clone(&self.worker_context), Rc::clone(&self.book));
        Some(Box::pin(async move {
            let mut trace = TransactionTrace { attempts: 1, ..TransactionTrace::default() };
            let ended = run(&worker_context, from, &session, &mut trace).await;
            trace.end(&worker_context, now, &ended, || Kind::Interactive);
            session.borrow_mut().end();
            book.borrow_mut().end(key);
        }))
    }

    /// Gives up those whose clients have been silent for too long.
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
                () if session.heard_at + idle <= now => Some(Aborted::Idle { idle }),
                () if session.began_at + open <= now => Some(Aborted::OpenTooLong { open }),
                () => None,
            };
            // One that has a step under way, or is not let in yet, is looked at again.
            if let Some(aborted) = aborted.filter(|_| !session.busy && session.admitted) {
                session.start(SessionStep::GiveUp(aborted));
            }
            let due = (session.heard_at + idle).min(session.began_at + open);
            let due = due.max(now + idle.min(open) / 4);
            next = Some(next.map_or(due, |next: Time| next.min(due)));
        }
        book.collect_at = next;
    }

    /// When to collect.
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

    /// A session begins, which may; it is looked at for silence from then on.
    fn begin(&mut self, key: InteractiveKey, session: &Rc<RefCell<InteractiveSession>>, at: Time) {
        let (client, number) = key;
        self.registrations.begin(client, number);
        let before = self.sessions.insert(key, Rc::clone(session));
        assert!(before.is_none(), "session {number} of {client:?} is known, and begins");
        self.collect_at.get_or_insert(at);
    }

    /// This one is over. Others of its client that are over need no answer any more.
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
    /// The error where the transaction is not known here, or not any more.
    fn unknown(&self) -> Error {
        let session = self.session;
        match self.ending {
            // It may have been committed and forgotten.
            Some(SessionEnd::Commit | SessionEnd::CommitAs(_)) => {
                Unknown::Session { session }.into()
            }
            // One that was not ended has changed nothing.
            Some(SessionEnd::Confirm | SessionEnd::Rollback) | None => {
                Aborted::UnknownSession { session }.into()
            }
        }
    }

    /// The steps and their numbers, as many as can be counted. A client is told of the last one in any case.
    fn steps(self) -> impl Iterator<Item = (u32, SessionStep)> {
        let count = self.operations.len();
        let has_end = self.ending.is_some();
        let operations = self.operations.into_iter().zip(1..).map(move |(operation, at)| {
            SessionStep::Operation { operation, told: at == count && !has_end }
        });
        (self.number..u32::MAX).zip(operations.chain(self.ending.map(SessionStep::End)))
    }
}

impl SessionStep {
    fn bytes(&self) -> usize {
        match self {
            SessionStep::Operation { operation, .. } => operation.bytes(),
            SessionStep::End(_) | SessionStep::GiveUp(_) => 0,
        }
    }

    /// A copy that shares no memory with the frame it came in, which may be part of much more.
    fn detached(self) -> SessionStep {
        match self {
            SessionStep::Operation { operation, told } => {
                SessionStep::Operation { operation: operation.detached(), told }
            }
            SessionStep::End(_) | SessionStep::GiveUp(_) => self,
        }
    }
}

impl InteractiveSession {
    /// One that begins with these steps.
    fn new(now: Time, steps: &SessionSteps) -> Rc<RefCell<InteractiveSession>> {
        Rc::new(RefCell::new(InteractiveSession {
            number: steps.session,
            registration: steps.registration,
            began_at: now,
            heard_at: now,
            ..InteractiveSession::default()
        }))
    }

    /// Takes steps, or finds what was said to them before.
    fn take(&mut self, now: Time, asked: SessionSteps) -> Vec<ClientReply> {
        self.heard_at = now;
        let mut replies = Vec::new();
        let unknown = asked.unknown();
        for (number, step) in asked.steps() {
            if number < self.next {
                replies.extend(self.said_before(number, &step, &unknown));
            } else if !self.over {
                self.keep(number, step);
            } else {
                let error = self.given_up.map_or(unknown, Error::from);
                replies.extend((number == self.next).then(|| self.told(number, Err(error))));
                break;
            }
        }
        replies
    }

    /// What is said to a step that is done and is asked for again.
    fn said_before(&self, number: u32, step: &SessionStep, unknown: &Error) -> Option<ClientReply> {
        if let Some(said) = self.said.find(number) {
            return Some(said);
        }
        match step {
            // Had it failed, that would have been the last answer.
            SessionStep::Operation { operation, told } if !operation.wants_answer() => {
                told.then(|| self.told(number, Ok(OperationResult::Done)))
            }
            SessionStep::Operation { .. } | SessionStep::End(_) | SessionStep::GiveUp(_) => {
                Some(self.told(number, Err(unknown.clone())))
            }
        }
    }

    /// A step has come that is not done: it is under way already, or begins, or waits for its turn.
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

    /// The step that is waited for has its turn.
    fn start(&mut self, step: SessionStep) {
        self.busy = true;
        self.step.fill(step);
    }

    fn told(&self, number: u32, result: Result<OperationResult>) -> ClientReply {
        ClientReply::Done { session: self.number, number, result }
    }

    /// The step under way is done. Lets the next one have its turn, if it is there.
    fn done(&mut self) {
        self.next += 1;
        self.busy = false;
        self.step = Rc::default();
        if let Some(step) = self.ahead.remove(&self.next) {
            self.ahead_bytes -= step.bytes();
            self.start(step);
        }
    }

    /// The step under way is done, and its client is told.
    fn answer(&mut self, result: Result<OperationResult>) -> ClientReply {
        let reply = self.told(self.next, result);
        self.said.push(self.next, reply.clone());
        self.done();
        reply
    }

    /// There is no transaction any more. What its end was told may be asked for again, and nothing else: it is
    /// remembered for long.
    fn end(&mut self) {
        self.over = true;
        self.step = Rc::default();
        self.ahead = BTreeMap::new();
        self.ahead_bytes = 0;
        self.said.keep(usize::from(self.given_up.is_none()));
    }
}

impl RecentReplies {
    fn push(&mut self, number: u32, reply: ClientReply) {
        let last = bytes(&reply);
        self.bytes += last;
        self.replies.push_back((number, reply));
        // The last one is kept, of any size.
        while self.replies.len() > STEPS_AHEAD_MAX || self.bytes - last > AHEAD_BYTES_MAX {
            self.keep(self.replies.len() - 1);
        }
    }

    /// Forgets all but the last so many.
    fn keep(&mut self, count: usize) {
        while self.replies.len() > count {
            self.bytes -= self.replies.pop_front().map_or(0, |(_, reply)| bytes(&reply));
        }
    }

    /// What a step was told.
    fn find(&self, number: u32) -> Option<ClientReply> {
        let at = self.replies.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.replies.get(at).map(|(_, reply)| reply.clone())
    }
}

/// About how many bytes a reply takes.
fn bytes(reply: &ClientReply) -> usize {
    match reply {
        ClientReply::Done { result: Ok(answer), .. } => answer.bytes(),
        _ => 0,
    }
}

/// One interactive transaction, from its beginning to its end, which is returned.
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
    let transaction = match LocalDatabase::new(worker_context).begin().await {
        Ok(transaction) => transaction,
        Err(error) => {
            answer(Err(error.clone()));
            return Err(error);
        }
    };
    session.borrow_mut().admitted = true;
    // A put or a delete has failed. Only a planted bug goes on then.
    let mut is_spoiled = false;
    loop {
        let step = Rc::clone(&session.borrow().step);
        let waits_since = worker_context.now.get();
        let step = step.take().await;
        trace.client += worker_context.now.get() - waits_since;
        match step {
            SessionStep::Operation { operation, told } => {
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
                if told || operation.wants_answer() {
                    answer(result);
                } else {
                    session.borrow_mut().done();
                }
            }
            SessionStep::GiveUp(aborted) => {
                session.borrow_mut().given_up = Some(aborted);
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

/// Does one step, and waits until what it brought may be shown.
async fn perform(tx: &CoordinatorTransaction, operation: &Operation) -> Result<OperationResult> {
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
    // That a key exists is something that was read, too. An abort tells of nothing, and neither does a write that is done.
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
    fn a_client_is_told_of_the_last_step_of_each_message() {
        let steps = |ending| asked(4, vec![put(1), put(1)], ending).steps();
        let told = |(number, step)| match step {
            SessionStep::Operation { told, .. } => (number, told),
            SessionStep::End(_) | SessionStep::GiveUp(_) => (number, true),
        };
        assert_eq!(steps(None).map(told).collect::<Vec<_>>(), [(4, false), (5, true)]);
        let commit = steps(Some(SessionEnd::Commit)).map(told).collect::<Vec<_>>();
        assert_eq!(commit, [(4, false), (5, false), (6, true)]);
        let mut session = session();
        assert_eq!(come(&mut session, asked(0, vec![put(1), put(1)], None)), []);
        session.done();
        session.done();
        let told = [done(1, Ok(OperationResult::Done))];
        assert_eq!(come(&mut session, asked(0, vec![put(1), put(1)], None)), told, "again");
    }

    #[test]
    fn a_write_that_failed_is_the_last_answer() {
        let mut session = session();
        let message = asked(0, vec![put(1), put(1)], Some(SessionEnd::Commit));
        come(&mut session, message.clone());
        let full = Err(shoal_types::Rejected::MemoryFull { bytes: 1, max: 1 }.into());
        session.answer(full.clone());
        session.end();
        let told = come(&mut session, message);
        assert_eq!(told[0], done(0, full));
        assert!(told.len() == 2 && session.ahead.is_empty(), "nothing waits behind it: {told:?}");
    }

    #[test]
    fn what_waits_and_what_is_remembered_is_bounded() {
        let mut session = session();
        for number in 0..8 {
            come(&mut session, asked(number, vec![put(AHEAD_BYTES_MAX / 3)], None));
        }
        assert_eq!(session.ahead.len(), 2, "two thirds, and some bytes of keys");
        let kept = |session: &InteractiveSession| {
            session.said.replies.iter().map(|(number, _)| *number).collect::<Vec<_>>()
        };
        (0..10).for_each(|number| session.said.push(number, done(number, value())));
        assert_eq!(kept(&session), [5, 6, 7, 8, 9], "four quarters beside the last");
        assert_eq!(session.said.find(5), Some(done(5, value())));
        assert_eq!(session.said.find(4), None);
        let small = |number| done(number, Ok(OperationResult::Done));
        (10..100).for_each(|number| session.said.push(number, small(number)));
        assert_eq!(session.said.replies.len(), STEPS_AHEAD_MAX);
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
