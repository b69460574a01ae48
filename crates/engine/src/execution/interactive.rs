//! Interactive transactions: a client sends one step after the other, the coordinator keeps the
//! transaction.
//!
//! What a step has read is shown to the client once it is covered (rule M5), even though the
//! transaction may yet abort. Steps are done in the order of their numbers; those that come before their turn
//! wait for it, so that a client may send many at once. A step that arrives again is answered again; so a client
//! may repeat one until it hears. A client that is silent for too long has its transaction given up. A transaction that was
//! forgotten may begin once more, by a late copy; the serial tells the two apart.

use super::local_database::LocalDatabase;
use super::slot::ResultSlot;
use super::transaction::CoordinatorTransaction;
use super::transaction_trace::TransactionTrace;
use super::worker_context::{BodyEnd, LocalCommand, WorkerContext};
use crate::client::{self, AHEAD_BYTES_MAX, ClientId, ClientReply, STEPS_AHEAD_MAX};
use crate::engine::Task;
use crate::operation::{Operation, OperationResult};
use crate::planted_bugs::PlantedBug;
use crate::slow::Kind;
use bytes::Bytes;
use shoal_types::{Aborted, Error, Result, Time, Transaction as _, Unknown};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// A client and its number for one of its transactions.
type InteractiveKey = (ClientId, u64);

/// The interactive transactions of a worker.
pub(super) struct InteractiveSessions {
    worker_context: Rc<WorkerContext>,
    book: Rc<RefCell<SessionTable>>,
    next_serial: Cell<u64>,
}

#[derive(Default)]
struct SessionTable {
    sessions: BTreeMap<InteractiveKey, Rc<RefCell<InteractiveSession>>>,
    /// Those that are over, oldest first, among others that are forgotten.
    ended: VecDeque<InteractiveKey>,
    /// How many are over and not forgotten: the last of each client, to repeat its last answer.
    over: usize,
    /// When to look for silent clients; `None` if nothing is open.
    collect_at: Option<Time>,
}

/// What is known of one.
#[derive(Default)]
struct InteractiveSession {
    /// The name of this transaction, which no other of this worker has.
    serial: u64,
    /// The step that is waited for.
    next: u32,
    /// Where it is handed over, when it comes.
    step: Rc<ResultSlot<SessionStep>>,
    /// It has come, and is not answered.
    busy: bool,
    /// Steps that have come before their turn, and their bytes.
    ahead: BTreeMap<u32, Operation>,
    ahead_bytes: usize,
    /// There is no transaction any more.
    over: bool,
    /// That is so since it was given up, which no step was told.
    given_up: Option<Aborted>,
    began_at: Time,
    /// When its client was last heard of.
    heard_at: Time,
    /// What its beginning was told.
    begun: Option<ClientReply>,
    /// What the last steps were told, in their order.
    said: RecentReplies,
}

/// The last answers of a session: those that its client may not have heard.
#[derive(Default)]
struct RecentReplies {
    replies: VecDeque<ClientReply>,
    bytes: usize,
}

/// A step, by its names.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepRequest {
    pub(super) session: u64,
    /// The transaction that its client has heard of, if it has.
    pub(super) serial: Option<u64>,
    pub(super) number: u32,
}

pub(super) enum SessionStep {
    Operation(Operation),
    End(client::SessionEnd),
    /// None came for too long, or too many.
    GiveUp(Aborted),
}

impl InteractiveSessions {
    pub(super) fn new(worker_context: &Rc<WorkerContext>) -> InteractiveSessions {
        // Drawn, so that those before a restart had others.
        let first = worker_context.random.borrow().fork(2).next_u64() >> 2;
        InteractiveSessions {
            worker_context: Rc::clone(worker_context),
            book: Rc::default(),
            next_serial: Cell::new(first),
        }
    }

    /// How many are known, and how many are listed as over.
    pub(super) fn sizes(&self) -> [usize; 2] {
        let book = self.book.borrow();
        [book.sessions.len(), book.ended.len()]
    }

    /// Begins one, unless it was begun before.
    pub(super) fn begin(&self, from: ClientId, number: u64) -> Option<Task> {
        let key = (from, number);
        let mut book = self.book.borrow_mut();
        if let Some(session) = book.sessions.get(&key) {
            let session = session.borrow();
            if session.next == 0
                && let Some(reply) = session.begun.clone()
            {
                self.worker_context.local_command(LocalCommand::Reply { to: from, reply });
            }
            return None;
        }
        if book.sessions.range((from, number)..=(from, u64::MAX)).next().is_some() {
            // Its client has long gone on.
            return None;
        }
        let heard_at = self.worker_context.now.get();
        let began_at = heard_at;
        let serial = self.next_serial.get();
        self.next_serial.set(
            serial + u64::from(!self.worker_context.limits.faults.has(PlantedBug::ReuseSerials)),
        );
        let session =
            InteractiveSession { serial, began_at, heard_at, ..InteractiveSession::default() };
        let session = Rc::new(RefCell::new(session));
        book.sessions.insert(key, Rc::clone(&session));
        book.collect_at.get_or_insert(heard_at + self.worker_context.limits.session_idle_max);
        let (worker_context, book) = (Rc::clone(&self.worker_context), Rc::clone(&self.book));
        Some(Box::pin(async move {
            let mut trace = TransactionTrace { attempts: 1, ..TransactionTrace::default() };
            let ended = run(&worker_context, key, &session, &mut trace).await;
            trace.end(&worker_context, began_at, &ended, || Kind::Interactive);
            session.borrow_mut().end();
            book.borrow_mut().end(key, worker_context.limits.answers_remembered);
        }))
    }

    /// Takes a step, or answers it.
    pub(super) fn step(&self, from: ClientId, asked: StepRequest, step: SessionStep) {
        let found = self.book.borrow().sessions.get(&(from, asked.session)).cloned();
        let reply = match found {
            None => Some(not_here(asked, &step)),
            Some(found) => found.borrow_mut().step(self.worker_context.now.get(), asked, step),
        };
        if let Some(reply) = reply {
            self.worker_context.local_command(LocalCommand::Reply { to: from, reply });
        }
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
            if let Some(aborted) = aborted.filter(|_| !session.busy && session.begun.is_some()) {
                session.busy = true;
                session.step.fill(SessionStep::GiveUp(aborted));
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
    /// This one is over. Others of its client that are over need no answer any more.
    fn end(&mut self, key: InteractiveKey, remembered: usize) {
        let (client, number) = key;
        let others = self.sessions.range((client, 0)..(client, number));
        let answered = others.filter(|(_, session)| session.borrow().over);
        let answered: Vec<InteractiveKey> = answered.map(|(key, _)| *key).collect();
        answered.iter().for_each(|key| self.forget(key));
        self.ended.push_back(key);
        self.over += 1;
        while self.over > remembered
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget(&oldest);
        }
        if self.ended.len() > 2 * self.over + 64 {
            let sessions = &self.sessions;
            self.ended.retain(|key| sessions.contains_key(key));
        }
    }

    fn forget(&mut self, key: &InteractiveKey) {
        self.over -= usize::from(self.sessions.remove(key).is_some());
    }
}

impl InteractiveSession {
    /// Takes a step, or finds what was said to it before.
    fn step(&mut self, now: Time, asked: StepRequest, step: SessionStep) -> Option<ClientReply> {
        // A client that has not heard of any transaction has read nothing yet.
        if asked.serial.is_some_and(|serial| serial != self.serial) {
            return Some(not_here(asked, &step));
        }
        self.heard_at = now;
        let number = asked.number;
        let Some(ahead) = number.checked_sub(self.next) else {
            let said = self.said.back((self.next - number) as usize);
            return said.or_else(|| Some(not_here(asked, &step)));
        };
        if self.over {
            return (ahead == 0).then(|| match self.given_up {
                Some(aborted) => asked.reply(Err(aborted.into())),
                None => not_here(asked, &step),
            });
        }
        if ahead == 0 && !self.busy {
            self.busy = true;
            self.step.fill(step);
        } else if ahead > 0 && (ahead as usize) < STEPS_AHEAD_MAX {
            self.keep(number, step);
        }
        None
    }

    /// A step has come before its turn. A commit is not kept: a step before it may fail.
    fn keep(&mut self, number: u32, step: SessionStep) {
        let SessionStep::Operation(operation) = step else { return };
        let bytes = self.ahead_bytes + operation.bytes();
        if bytes <= AHEAD_BYTES_MAX && !self.ahead.contains_key(&number) {
            self.ahead_bytes = bytes;
            // The frame that it came in may be part of much more.
            self.ahead.insert(number, operation.detached());
        }
    }

    /// The step under way is answered. Lets the next one have its turn, if it is there.
    fn answer(&mut self, reply: ClientReply) {
        self.said.push(reply);
        self.next += 1;
        self.busy = false;
        self.step = Rc::default();
        if let Some(operation) = self.ahead.remove(&self.next) {
            self.ahead_bytes -= operation.bytes();
            self.busy = true;
            self.step.fill(SessionStep::Operation(operation));
        }
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
    fn push(&mut self, reply: ClientReply) {
        let last = bytes(&reply);
        self.bytes += last;
        self.replies.push_back(reply);
        // The last one is kept, of any size.
        while self.replies.len() > STEPS_AHEAD_MAX || self.bytes - last > AHEAD_BYTES_MAX {
            self.keep(self.replies.len() - 1);
        }
    }

    /// Forgets all but the last so many.
    fn keep(&mut self, count: usize) {
        while self.replies.len() > count {
            self.bytes -= self.replies.pop_front().as_ref().map_or(0, bytes);
        }
    }

    /// The last answer is one back.
    fn back(&self, steps: usize) -> Option<ClientReply> {
        let at = self.replies.len().checked_sub(steps)?;
        self.replies.get(at).cloned()
    }
}

/// About how many bytes a reply takes.
fn bytes(reply: &ClientReply) -> usize {
    match reply {
        ClientReply::Done { result: Ok(answer), .. } => answer.bytes(),
        _ => 0,
    }
}

impl StepRequest {
    fn reply(self, result: Result<OperationResult>) -> ClientReply {
        let StepRequest { session, serial, number } = self;
        ClientReply::Done { session, serial, number, result }
    }
}

/// The answer to a step of a transaction that is not known here, or not any more.
fn not_here(asked: StepRequest, step: &SessionStep) -> ClientReply {
    let session = asked.session;
    asked.reply(Err(match step {
        // It may have been committed and forgotten.
        SessionStep::End(client::SessionEnd::Commit) => Unknown::Session { session }.into(),
        // One that was not ended has changed nothing.
        _ => Aborted::UnknownSession { session }.into(),
    }))
}

/// One interactive transaction, from its beginning to its end, which is returned.
async fn run(
    worker_context: &Rc<WorkerContext>,
    key: InteractiveKey,
    session: &RefCell<InteractiveSession>,
    trace: &mut TransactionTrace,
) -> Result<()> {
    let (to, name) = key;
    let serial = session.borrow().serial;
    let (mut tx, result) = match LocalDatabase::new(worker_context).begin().await {
        Ok(tx) => (Some(tx), Ok(())),
        Err(error) => (None, Err(error)),
    };
    let mut ended = result.clone();
    let reply = ClientReply::Began { session: name, result: result.map(|()| serial) };
    session.borrow_mut().begun = Some(reply.clone());
    worker_context.local_command(LocalCommand::Reply { to, reply });
    while let Some(transaction) = tx.take() {
        let step = Rc::clone(&session.borrow().step);
        let waits_since = worker_context.now.get();
        let step = step.take().await;
        trace.client += worker_context.now.get() - waits_since;
        let (result, goes_on) = match step {
            SessionStep::Operation(operation) => {
                let result = perform(&transaction, &operation).await;
                let goes_on = matches!(result, Ok(_) | Err(Error::Rejected(_)));
                trace.see(worker_context, &transaction);
                (result, goes_on.then_some(transaction))
            }
            SessionStep::GiveUp(aborted) => {
                session.borrow_mut().given_up = Some(aborted);
                return Err(aborted.into());
            }
            SessionStep::End(ending) => {
                trace.undone = ending != client::SessionEnd::Commit;
                let done = match ending {
                    client::SessionEnd::Commit => transaction.end(BodyEnd::Commit).await,
                    client::SessionEnd::Confirm => transaction.end(BodyEnd::Confirm).await,
                    client::SessionEnd::Rollback => Ok(()),
                };
                (done.map(|()| OperationResult::Done), None)
            }
        };
        if goes_on.is_none() {
            ended = result.as_ref().map(drop).map_err(Clone::clone);
        }
        tx = goes_on;
        let mut session = session.borrow_mut();
        let asked = StepRequest { session: name, serial: Some(serial), number: session.next };
        let reply = asked.reply(result);
        session.answer(reply.clone());
        worker_context.local_command(LocalCommand::Reply { to, reply });
    }
    ended
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
    // That a key exists is something that was read, too. An abort tells of nothing.
    if operation.reads() && !matches!(result, Err(Error::Aborted(_))) {
        tx.reveal().await?;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(number: u32) -> ClientReply {
        let result = Ok(OperationResult::Value(Some(Bytes::from(vec![0; AHEAD_BYTES_MAX / 4]))));
        ClientReply::Done { session: 1, serial: None, number, result }
    }

    fn began(session: u64) -> ClientReply {
        ClientReply::Began { session, result: Ok(0) }
    }

    fn asked(number: u32) -> StepRequest {
        StepRequest { session: 1, serial: None, number }
    }

    fn put(bytes: usize) -> SessionStep {
        let (table, key) = (shoal_types::TableId(0), Bytes::from_static(b"key"));
        let value = Some(Bytes::from(vec![0; bytes]));
        SessionStep::Operation(Operation::Put { table, key, value })
    }

    #[test]
    fn steps_that_come_early_have_their_turn() {
        let mut session = InteractiveSession::default();
        let come =
            |session: &mut InteractiveSession, number| session.step(Time(1), asked(number), put(1));
        for number in [2, 1, 0, 2, 0] {
            assert_eq!(come(&mut session, number), None);
        }
        assert_eq!((session.next, session.busy, session.ahead.len()), (0, true, 2));
        (0..3).for_each(|number| {
            assert!(session.busy);
            session.answer(done(number));
        });
        assert_eq!((session.next, session.busy, session.ahead_bytes), (3, false, 0));
        assert_eq!(come(&mut session, 1), Some(done(1)), "once more");
        let far = 3 + STEPS_AHEAD_MAX as u32;
        assert_eq!(come(&mut session, far), None);
        assert_eq!(come(&mut session, far - 1), None);
        assert_eq!(session.ahead.len(), 1, "one is too far ahead");
        session.end();
        assert!(come(&mut session, 3).is_some() && come(&mut session, 4).is_none());
        assert_eq!(session.ahead.len() + session.ahead_bytes, 0);
        let unknown = Err(Aborted::UnknownSession { session: 1 }.into());
        let unknown = ClientReply::Done { session: 1, serial: None, number: 0, result: unknown };
        assert_eq!(come(&mut session, 2), Some(done(2)), "the last answer stays");
        assert_eq!(come(&mut session, 0), Some(unknown), "others are forgotten");
    }

    #[test]
    fn a_commit_waits_for_the_answers_to_all_steps() {
        let mut session = InteractiveSession::default();
        let end = |ending| SessionStep::End(ending);
        assert_eq!(session.step(Time(1), asked(1), end(client::SessionEnd::Commit)), None);
        assert_eq!(session.step(Time(1), asked(0), put(1)), None);
        session.answer(done(0));
        assert!(!session.busy, "it came too early");
        session.step(Time(1), asked(1), end(client::SessionEnd::Commit));
        assert!(session.busy);
    }

    #[test]
    fn what_waits_and_what_is_remembered_is_bounded() {
        let mut session = InteractiveSession::default();
        for number in 0..8 {
            session.step(Time(1), asked(number), put(AHEAD_BYTES_MAX / 3));
        }
        assert_eq!(session.ahead.len(), 2, "two thirds, and some bytes of keys");
        (0..10).for_each(|number| session.said.push(done(number)));
        assert_eq!(session.said.back(1), Some(done(9)));
        assert_eq!(session.said.back(5), Some(done(5)), "four quarters beside the last");
        assert_eq!(session.said.back(6), None);
        (10..100).for_each(|number| session.said.push(began(number)));
        assert_eq!(session.said.replies.len(), STEPS_AHEAD_MAX);
    }

    #[test]
    fn the_last_session_of_each_client_is_remembered() {
        let mut book = SessionTable::default();
        let mut end = |client: u64, number: u64| {
            let key = (ClientId(client), number);
            let session = InteractiveSession { over: true, ..InteractiveSession::default() };
            book.sessions.insert(key, Rc::new(RefCell::new(session)));
            book.end(key, 2);
            let left = book.sessions.keys().map(|(client, number)| (client.0, *number));
            (left.collect::<Vec<_>>(), book.ended.len())
        };
        assert_eq!(end(1, 1).0, [(1, 1)]);
        assert_eq!(end(1, 2).0, [(1, 2)]);
        assert_eq!(end(2, 7).0, [(1, 2), (2, 7)]);
        assert_eq!(end(3, 1).0, [(2, 7), (3, 1)], "the oldest goes");
        let (left, queued) = (4..1000).map(|number| end(3, number)).last().expect("some");
        assert_eq!(left, [(2, 7), (3, 999)]);
        assert!(queued < 100, "{queued} are queued for two that are remembered");
    }
}
