//! Clients outside of the cluster: what they send and receive, and the database they see.
//!
//! A client is a future with a mailbox. It has one request under way at a time and sends it again until
//! it is answered, so with any faults of the network, every answer is definite in the end.
//!
//! ```text
//!   workload ──► Outside ──► Post ──► network ──► worker
//!                              ▲                     │
//!                              └────── replies ──────┘
//! ```

use bytes::Bytes;
use engines::Place;
use engines::client::{ClientId, Ending, Reply, Request, worker_of};
use engines::operation::{Answer, Operation, Range};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use types::{
    Aborted, Arena, CallSession, Conflict, Database, Error, NodeId, Random, Rejected, RequestId,
    Result, Rows, Scan, ShardId, TableId, Time, Transaction, Unknown, WorkerId,
};

/// How a client behaves.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    /// It asks again when no answer came for so long; twice as long each time, up to 16 times.
    pub patience: Duration,
    /// A transaction that meets conflicts runs so often at most.
    pub attempts_max: u32,
    /// It gives up a place that did not answer when it was asked so often, and looks for another. What it
    /// had begun there is over, and it is not known whether a commit took effect.
    pub asks_max: u32,
    /// It waits so long for a transaction or a call and all attempts at it; for ever where there is no limit.
    pub deadline: Option<Duration>,
}

/// A client that asks for the last time waits so long at least.
const TICK: Duration = Duration::from_nanos(1);

/// How long a client waits for an answer.
#[derive(Debug, Clone, Copy)]
struct Waits {
    /// Before it asks again.
    patience: Duration,
    /// So often it asks.
    asks_max: u32,
    /// It does not wait longer than that.
    until: Time,
}

/// A client's mailbox.
#[derive(Debug)]
pub struct Post {
    client: ClientId,
    now: Rc<Cell<Time>>,
    inbox: RefCell<VecDeque<Reply>>,
    outbox: RefCell<VecDeque<(Place, Request)>>,
    wake_at: Cell<Time>,
    asked_again: Cell<u64>,
}

impl Post {
    /// The mailbox of a client that tells the time by `now`.
    pub fn new(client: ClientId, now: Rc<Cell<Time>>) -> Rc<Post> {
        Rc::new(Post {
            client,
            now,
            inbox: RefCell::default(),
            outbox: RefCell::default(),
            wake_at: Cell::new(Time::MAX),
            asked_again: Cell::new(0),
        })
    }

    /// Whose it is.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// A reply has come.
    pub fn deliver(&self, reply: Reply) {
        self.inbox.borrow_mut().push_back(reply);
    }

    /// The next request to send.
    pub fn collect(&self) -> Option<(Place, Request)> {
        self.outbox.borrow_mut().pop_front()
    }

    /// When the client wants to be polled again, also if nothing comes; it is asked once.
    pub fn take_wake(&self) -> Time {
        self.wake_at.replace(Time::MAX)
    }

    /// How often it asked again.
    pub fn asked_again(&self) -> u64 {
        self.asked_again.get()
    }

    fn wake(&self, at: Time) {
        self.wake_at.set(self.wake_at.get().min(at));
    }

    /// Waits.
    pub async fn sleep(&self, span: Duration) {
        let until = self.now.get() + span;
        poll_fn(|_| {
            if self.now.get() >= until {
                return Poll::Ready(());
            }
            self.wake(until);
            Poll::Pending
        })
        .await;
    }

    /// Sends `request` until a reply comes in which `answer` finds what it wants. Other replies are
    /// late ones, to what was asked before. `None` if there was none, however often it was asked, or for how long.
    async fn ask<T>(
        &self,
        request: Request,
        mut to: impl FnMut() -> Place,
        Waits { patience, asks_max, until }: Waits,
        mut answer: impl FnMut(&mut Reply) -> Option<T>,
    ) -> Option<T> {
        let mut patience = patience;
        let mut asks = 0;
        let longest = patience * 16;
        let mut ask_at = Time::ZERO;
        let mut asked = false;
        poll_fn(|_| {
            while let Some(mut reply) = self.inbox.borrow_mut().pop_front() {
                if let Some(wanted) = answer(&mut reply) {
                    return Poll::Ready(Some(wanted));
                }
            }
            if self.now.get() >= ask_at {
                if asks >= asks_max || self.now.get() >= until {
                    return Poll::Ready(None);
                }
                asks += 1;
                self.asked_again.set(self.asked_again.get() + u64::from(asked));
                asked = true;
                self.outbox.borrow_mut().push_back((to(), request.clone()));
                ask_at = (self.now.get() + patience).min(until.max(self.now.get() + TICK));
                patience = longest.min(patience * 2);
            }
            self.wake(ask_at);
            Poll::Pending
        })
        .await
    }
}

/// The database as a client outside sees it. Clones share the client.
#[derive(Debug, Clone)]
pub struct Outside {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    post: Rc<Post>,
    tables: Rc<[String]>,
    /// Its interactive transactions run here, until there is no answer.
    home: Cell<Place>,
    /// Who leads something, as far as it has heard.
    directory: Rc<RefCell<Vec<NodeId>>>,
    workers: u32,
    manners: Manners,
    random: RefCell<Random>,
    sessions: Cell<u64>,
    /// Its sessions for calls, and the number of the last call under each.
    calls: RefCell<BTreeMap<ShardId, (CallSession, u64)>>,
    /// It gives up what it is doing then.
    until: Cell<Time>,
}

impl Outside {
    /// A client whose interactive transactions run on worker `home` of nodes that have `workers` of
    /// them, in a cluster with these tables.
    pub fn new(
        post: Rc<Post>,
        tables: Rc<[String]>,
        (home, directory): (Place, Rc<RefCell<Vec<NodeId>>>),
        workers: u32,
        manners: Manners,
        random: Random,
    ) -> Outside {
        let (home, random) = (Cell::new(home), RefCell::new(random));
        let (sessions, calls) = (Cell::new(0), RefCell::default());
        let until = Cell::new(Time::MAX);
        let inner = Inner {
            post,
            tables,
            home,
            directory,
            workers,
            manners,
            random,
            sessions,
            calls,
            until,
        };
        Outside { inner: Rc::new(inner) }
    }

    /// Who leads something, as far as it has heard.
    pub fn directory(&self) -> Rc<RefCell<Vec<NodeId>>> {
        Rc::clone(&self.inner.directory)
    }

    /// Its mailbox.
    pub fn post(&self) -> &Post {
        &self.inner.post
    }

    /// Calls a procedure once, however often it has to be asked; each time by way of any `node`. Where its
    /// fate is open it is asked for again, after a pause that differs from those of others.
    ///
    /// # Errors
    /// Those of the procedure and of the engine.
    pub async fn call(
        &self,
        mut node: impl FnMut() -> NodeId,
        home: ShardId,
        procedure: &str,
        arguments: Bytes,
    ) -> Result<Bytes> {
        let Inner { calls, random, .. } = &*self.inner;
        self.inner.begin_to_wait();
        // At times it takes another session: then there are more than any worker keeps.
        if random.borrow_mut().chance(1, 4) {
            calls.borrow_mut().remove(&home);
        }
        loop {
            let known = calls.borrow_mut().remove(&home);
            let (session, number) = match known {
                Some(known) => known,
                None => (self.open_calls(&mut node, home).await?, 0),
            };
            let id = RequestId { session, number: number + 1 };
            let result = self.ask_for(id, &mut node, procedure, &arguments).await;
            match &result {
                Err(Error::Aborted(Aborted::CallSessionOver { .. })) => {
                    self.pause().await;
                    continue;
                }
                Err(Error::Unknown(_)) => {}
                Ok(_) | Err(Error::Aborted(_) | Error::Rejected(_)) => {
                    calls.borrow_mut().insert(home, (session, id.number));
                }
            }
            return result;
        }
    }

    /// A session for calls on a shard.
    async fn open_calls(
        &self,
        mut node: impl FnMut() -> NodeId,
        home: ShardId,
    ) -> Result<CallSession> {
        let Inner { post, workers, random, .. } = &*self.inner;
        let worker = WorkerId(random.borrow_mut().below((*workers).into()) as u32);
        let token = random.borrow_mut().next_u64();
        loop {
            let answer = |reply: &mut Reply| match reply {
                Reply::CallsOpened { token: asked, result } if *asked == token => {
                    Some(std::mem::replace(result, Ok(CallSession::default())))
                }
                Reply::CallsOpened { .. }
                | Reply::Called { .. }
                | Reply::Began { .. }
                | Reply::Done { .. } => None,
            };
            let to = || Place { node: node(), worker };
            let request = Request::OpenCalls { token, home };
            match post.ask(request, to, self.inner.waits(u32::MAX), answer).await {
                Some(Err(error @ Error::Aborted(_))) if self.inner.is_over() => return Err(error),
                None if self.inner.is_over() => {
                    return Err(Aborted::from(Conflict::NoAnswer { shard: home }).into());
                }
                Some(Err(Error::Aborted(_))) | None => self.pause().await,
                Some(result) => return result,
            }
        }
    }

    /// Asks for a call until its outcome is known.
    async fn ask_for(
        &self,
        id: RequestId,
        mut node: impl FnMut() -> NodeId,
        procedure: &str,
        arguments: &Bytes,
    ) -> Result<Bytes> {
        let Inner { post, workers, .. } = &*self.inner;
        let worker = worker_of(&id.session, *workers);
        loop {
            let arguments = arguments.clone();
            let request = Request::Call { id, procedure: procedure.into(), arguments };
            let answer = |reply: &mut Reply| match reply {
                Reply::Called { id: called, result } if *called == id => {
                    Some(std::mem::replace(result, Ok(Bytes::new())))
                }
                Reply::Called { .. }
                | Reply::CallsOpened { .. }
                | Reply::Began { .. }
                | Reply::Done { .. } => None,
            };
            let to = || Place { node: node(), worker };
            match post.ask(request, to, self.inner.waits(u32::MAX), answer).await {
                None if self.inner.is_over() => {
                    return Err(Unknown::NoAnswer { request: id }.into());
                }
                Some(Err(error @ Error::Unknown(_))) if self.inner.is_over() => return Err(error),
                None => {}
                Some(Err(Error::Unknown(Unknown::Unsettled { .. }))) => self.pause().await,
                Some(result) => return result,
            }
        }
    }

    /// Before it asks again for what could not be told.
    async fn pause(&self) {
        let Inner { post, manners, random, .. } = &*self.inner;
        let pause = random.borrow_mut().below(8 * manners.patience.as_nanos() as u64);
        post.sleep(Duration::from_nanos(pause)).await;
    }

    async fn begin(&self) -> Result<OutsideTransaction<'_>> {
        let Inner { post, home, manners, sessions, .. } = &*self.inner;
        let session = loop {
            sessions.set(sessions.get() + 1);
            let session = sessions.get();
            let answer = |reply: &mut Reply| match reply {
                Reply::Began { session: began, result } if *began == session => {
                    Some(std::mem::replace(result, Ok(())))
                }
                Reply::Began { .. }
                | Reply::CallsOpened { .. }
                | Reply::Called { .. }
                | Reply::Done { .. } => None,
            };
            let request = Request::Begin { session };
            let waits = self.inner.waits(manners.asks_max);
            match post.ask(request, || home.get(), waits, answer).await {
                Some(Ok(())) => break session,
                Some(Err(error @ Error::Aborted(Aborted::NotServing { .. }))) => {
                    self.inner.move_on();
                    return Err(error);
                }
                Some(Err(error)) => return Err(error),
                None if self.inner.is_over() => {
                    return Err(Aborted::NotServing { node: home.get().node }.into());
                }
                None => self.inner.move_on(),
            }
        };
        Ok(OutsideTransaction {
            client: &self.inner,
            session,
            steps: Cell::new(0),
            over: Cell::new(false),
            waiting: RefCell::default(),
            seen: Arena::default(),
        })
    }

    /// One attempt. `None` where a conflict asks for another one.
    async fn attempt<T>(
        &self,
        body: &mut impl AsyncFnMut(&OutsideTransaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let transaction = self.begin().await?;
        match body(&transaction).await {
            Ok(value) => transaction.end(Ending::Commit).await.map(|()| value),
            Err(error) if transaction.over.get() => Err(error),
            // What the body gives up for, it may have read in a state that never was.
            Err(error @ Error::Rejected(_)) => {
                transaction.end(Ending::Confirm).await?;
                Err(error)
            }
            Err(error) => {
                // The transaction may have timed out, which undoes as much.
                _ = transaction.end(Ending::Rollback).await;
                Err(error)
            }
        }
    }
}

impl Database for Outside {
    type Transaction<'db> = OutsideTransaction<'db>;

    fn table(&self, name: &str) -> Result<TableId> {
        let at = self.inner.tables.iter().position(|table| table == name);
        let at = at.ok_or_else(|| Error::reject(format!("the cluster has no table '{name}'")))?;
        Ok(TableId(at as u32))
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&Self::Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let Inner { post, manners, random, .. } = &*self.inner;
        self.inner.begin_to_wait();
        let mut attempts = 0;
        loop {
            let last: Conflict = match self.attempt(&mut body).await {
                Err(Error::Aborted(Aborted::Conflict(conflict))) => conflict,
                other => return other,
            };
            attempts += 1;
            if attempts >= manners.attempts_max || self.inner.is_over() {
                Err(Aborted::RetriesExhausted { attempts, last })?;
            }
            let longest = (1 << attempts.min(10)) * 50_000;
            let pause = random.borrow_mut().below(longest);
            post.sleep(Duration::from_nanos(pause)).await;
        }
    }
}

impl Inner {
    /// What it does from now on has to end in time.
    fn begin_to_wait(&self) {
        let deadline = self.manners.deadline.map(|deadline| self.post.now.get() + deadline);
        self.until.set(deadline.unwrap_or(Time::MAX));
    }

    /// Has it waited for too long?
    fn is_over(&self) -> bool {
        self.post.now.get() >= self.until.get()
    }

    /// How long it waits for an answer, if it asks so often.
    fn waits(&self, asks_max: u32) -> Waits {
        Waits { patience: self.manners.patience, asks_max, until: self.until.get() }
    }

    /// Chooses another place for what it does next.
    fn move_on(&self) {
        let random = &mut *self.random.borrow_mut();
        if let Some(node) = random.pick(&self.directory.borrow()) {
            let worker = WorkerId(random.below(self.workers.into()) as u32);
            self.home.set(Place { node: *node, worker });
        }
    }
}

/// An interactive transaction of a client outside. Writes that need no answer wait until the next
/// operation that has one.
#[derive(Debug)]
pub struct OutsideTransaction<'db> {
    client: &'db Inner,
    session: u64,
    steps: Cell<u32>,
    /// The other side has ended it.
    over: Cell<bool>,
    waiting: RefCell<VecDeque<Operation>>,
    /// What reads returned, which bodies borrow.
    seen: Arena<Bytes>,
}

/// Does an operation that failed like this leave the transaction open?
fn is_harmless(error: &Error) -> bool {
    matches!(
        error,
        Error::Rejected(
            Rejected::KeyExists { .. }
                | Rejected::KeyEmpty { .. }
                | Rejected::KeyTooLong { .. }
                | Rejected::ValueTooLong { .. }
                | Rejected::WrongValue { .. }
                | Rejected::UnknownTable { .. }
        )
    )
}

impl OutsideTransaction<'_> {
    async fn ask(&self, request: impl FnOnce(u32) -> Request) -> Result<Answer> {
        let number = self.steps.replace(self.steps.get() + 1);
        let Inner { post, home, manners, .. } = self.client;
        let request = request(number);
        let commits = matches!(request, Request::End { ending: Ending::Commit, .. });
        let answer = |reply: &mut Reply| match reply {
            Reply::Done { session, number: step, result }
                if (*session, *step) == (self.session, number) =>
            {
                Some(std::mem::replace(result, Ok(Answer::Done)))
            }
            Reply::Done { .. }
            | Reply::Began { .. }
            | Reply::CallsOpened { .. }
            | Reply::Called { .. } => None,
        };
        let waits = self.client.waits(manners.asks_max);
        let answer = post.ask(request, || home.get(), waits, answer).await;
        let answer = answer.unwrap_or_else(|| {
            self.client.move_on();
            let session = self.session;
            match commits {
                true => Err(Unknown::Session { session }.into()),
                false => Err(Aborted::UnknownSession { session }.into()),
            }
        });
        if answer.as_ref().is_err_and(|error| !is_harmless(error)) {
            self.over.set(true);
        }
        answer
    }

    async fn perform(&self, operation: Operation) -> Result<Answer> {
        self.flush().await?;
        let session = self.session;
        self.ask(|number| Request::Operation { session, number, operation }).await
    }

    async fn flush(&self) -> Result<()> {
        loop {
            let Some(operation) = self.waiting.borrow_mut().pop_front() else { return Ok(()) };
            let session = self.session;
            self.ask(|number| Request::Operation { session, number, operation }).await?;
        }
    }

    async fn end(&self, ending: Ending) -> Result<()> {
        if ending == Ending::Commit {
            self.flush().await?;
        }
        let session = self.session;
        self.ask(|number| Request::End { session, number, ending }).await.map(drop)
    }

    fn later(&self, table: TableId, key: &[u8], value: Option<&[u8]>) {
        let (key, value) = (Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
        self.waiting.borrow_mut().push_back(Operation::Put { table, key, value });
    }
}

impl Transaction for OutsideTransaction<'_> {
    async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        let key = Bytes::copy_from_slice(key);
        match self.perform(Operation::Get { table, key }).await? {
            Answer::Value(value) => Ok(value.map(|value| &self.seen.keep(value)[..])),
            Answer::Rows(_) | Answer::Page(_) | Answer::Later | Answer::Done => {
                panic!("a get was answered with something else")
            }
        }
    }

    async fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        match self.perform(Operation::Scan { table, range: Range::of(&scan) }).await? {
            Answer::Rows(rows) => {
                let kept = |(key, value)| (&self.seen.keep(key)[..], &self.seen.keep(value)[..]);
                Ok(rows.into_iter().map(kept).collect())
            }
            Answer::Value(_) | Answer::Page(_) | Answer::Later | Answer::Done => {
                panic!("a scan was answered with something else")
            }
        }
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.later(table, key, Some(value));
        Ok(())
    }

    async fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        self.perform(Operation::Insert { table, key, value }).await.map(drop)
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.later(table, key, None);
        Ok(())
    }

    async fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        let before =
            match self.get_for_update(table, key).await? {
                None => 0,
                Some(value) => i64::from_le_bytes(value.try_into().map_err(|_| {
                    Error::reject("a client outside adds to values of 8 bytes only")
                })?),
            };
        let after = before.wrapping_add(delta);
        self.put(table, key, &after.to_le_bytes())?;
        Ok(after)
    }
}
