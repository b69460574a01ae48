//! A transaction on a cluster: its operations, and its end.
//!
//! Writes have no answer of their own: they are buffered, and sent with the next operation that has one, or with the
//! commit. So a transaction that only writes is one message. Reads that are awaited together are sent together as well.
//! A coordinator is chosen when the first message is sent: the leader of the first key that the transaction names.

use super::attempts::CallSpan;
use super::connection::{NodeConnection, SharedSession};
use super::environment::timeout_at;
use super::granule_routes::GranuleName;
use super::lock;
use super::read_ahead::ReadAhead;
use super::retransmission::Retransmission;
use super::session::{ClientSession, StepError, StepReply};
use super::shared::{ClusterInner, TransactionPermit};
use bytes::Bytes;
use shoal_cluster::topology::Homes;
use shoal_engine::WorkerPlace;
use shoal_engine::client::SessionEnd;
use shoal_engine::operation::{Operation, OperationResult, OwnedScan};
use shoal_types::bulk_load::LoadRow;
use shoal_types::limits::{TRANSACTION_BYTES_MAX, TRANSACTION_WRITES_MAX, check_key, check_value};
use shoal_types::transaction::ScanEnd;
use shoal_types::{
    Aborted, Arena, Awaited, Cause, Error, KeyExcerpt, NodeId, Rejected, RequestId, Result, Rows,
    Scan, ShardId, TableId, Time, Unknown, Wait, WorkerId,
};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::{OnceCell, oneshot};

/// The bytes of a frame beside those of a key and a value, at most.
const FRAME_OVERHEAD: usize = 64;

/// A transaction on a cluster, with the operations of the embedded
/// [`Transaction`](crate::Transaction). Reads see its own writes; writes are buffered and take effect
/// together, at commit. What is read borrows the transaction. Dropping it rolls it back, without
/// waiting.
///
/// ```no_run
/// # use shoal_client::{Cluster, Error};
/// # async fn example(db: Cluster) -> Result<(), Error> {
/// let people = db.table("people")?;
/// let tx = db.begin()?;
/// tx.put(people, b"ada", b"1815")?;
/// let (ada, eve) = tokio::join!(tx.get(people, b"ada"), tx.get(people, b"eve"));
/// assert_eq!((ada?, eve?), (Some(&b"1815"[..]), None));
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// An operation that fails with [`Aborted`](Error::Aborted) or [`Unknown`](Error::Unknown) ends it: all
/// that follow fail with the same error.
pub struct ClusterTransaction {
    inner: Arc<ClusterInner>,
    _permit: Option<TransactionPermit>,
    timeout: OperationTimeout,
    session: SharedSession,
    /// The connection to the coordinator, once a message was sent.
    link: OnceCell<Arc<NodeConnection>>,
    /// The shard of the first key that was named and belongs to one shard.
    first: OnceLock<ShardId>,
    /// The granule of the first key that was named, if granules move to the node that uses them.
    first_granule: OnceLock<Option<GranuleName>>,
    /// The shard of the first key that it writes: where the row of its commit lies.
    first_written: OnceLock<ShardId>,
    writes: Mutex<BufferedWrites>,
    /// Reads that were announced by [`prefetch`](ClusterTransaction::prefetch).
    ahead: Mutex<ReadAhead>,
    /// The error that ended the transaction before its commit or rollback.
    over: OnceLock<Error>,
    /// The values that were read.
    values: Arena<Bytes>,
    rows: Arena<Vec<(Bytes, Bytes)>>,
}

/// How long the operations of a transaction may take.
#[derive(Debug, Clone, Copy)]
pub(super) enum OperationTimeout {
    /// All operations together end at this time.
    Until(Time),
    /// Each operation may take this long.
    Each(Duration),
}

/// Writes that are not sent yet: the last of each key.
#[derive(Debug, Default)]
struct BufferedWrites {
    waiting: BTreeMap<(TableId, Bytes), Option<Bytes>>,
    bytes: usize,
}

impl ClusterTransaction {
    pub(super) fn new(
        inner: &Arc<ClusterInner>,
        permit: Option<TransactionPermit>,
        timeout: OperationTimeout,
    ) -> ClusterTransaction {
        ClusterTransaction {
            inner: Arc::clone(inner),
            _permit: permit,
            timeout,
            session: Arc::new(Mutex::new(ClientSession::new(
                inner.options.access.limits.frame_bytes_max,
            ))),
            link: OnceCell::new(),
            first: OnceLock::new(),
            first_granule: OnceLock::new(),
            first_written: OnceLock::new(),
            writes: Mutex::default(),
            ahead: Mutex::default(),
            over: OnceLock::new(),
            values: Arena::default(),
            rows: Arena::default(),
        }
    }

    /// The value of `key`, or `None` where there is none.
    ///
    /// # Errors
    /// [`Rejected`] for an unknown table, an empty or an oversized key; [`Aborted`] where the transaction
    /// is over.
    pub async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        check_key(table, key)?;
        self.name_key(table, key)?;
        let key = Bytes::copy_from_slice(key);
        let ahead = lock(&self.ahead).take(table, &key);
        let result = match ahead {
            Some(reply) => {
                self.check()?;
                let until = self.until();
                self.wait(&self.link(until).await?, reply, until).await?
            }
            None => self.perform(Operation::Get { table, key }).await?,
        };
        match result {
            OperationResult::Value(value) => Ok(value.map(|value| &self.values.keep(value)[..])),
            OperationResult::Rows(_)
            | OperationResult::Page(_)
            | OperationResult::Later
            | OperationResult::Done => {
                unreachable!("the session checks that the answer is of a get")
            }
        }
    }

    /// Like [`get`](ClusterTransaction::get), and says that a write of the key will follow.
    ///
    /// # Errors
    /// As for [`get`](ClusterTransaction::get).
    pub async fn get_for_update(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.get(table, key).await
    }

    /// Announces keys that will be read soon. They are read together, with the next operation that has an answer: one round
    /// trip instead of one for each key.
    pub fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        let mut ahead = lock(&self.ahead);
        for (table, key) in keys {
            // An invalid key is rejected when it is read.
            if check_key(*table, key).is_ok() && self.name_key(*table, key).is_ok() {
                ahead.want(*table, Bytes::copy_from_slice(key));
            }
        }
    }

    /// The rows that `scan` asks for, in its order. Until this transaction commits, no other can add,
    /// change or remove a row of the range, or this one is retried.
    ///
    /// # Errors
    /// As for [`get`](ClusterTransaction::get), of its bounds.
    pub async fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        check_bounds(table, &scan)?;
        let topology = self.inner.client_shared.view.topology();
        let first = match topology.homes(table, &scan) {
            None => return Err(Rejected::UnknownTable { table }.into()),
            Some(Homes::One(shard)) => Some(shard),
            Some(Homes::Mixed(shards) | Homes::Ordered(shards)) => shards.first().copied(),
            Some(Homes::Everywhere) => None,
        };
        self.name_shard(first);
        if let Bound::Included(key) | Bound::Excluded(key) = scan.start {
            self.name_granule(table, key);
        }
        match self.perform(Operation::Scan { table, range: OwnedScan::of(&scan) }).await? {
            OperationResult::Rows(rows) => {
                let kept = self.rows.keep(rows);
                Ok(kept.iter().map(|(key, value)| (&key[..], &value[..])).collect())
            }
            OperationResult::Value(_)
            | OperationResult::Page(_)
            | OperationResult::Later
            | OperationResult::Done => {
                unreachable!("the session checks that the answer is of a scan")
            }
        }
    }

    /// Writes `value` under `key`, whether or not the key exists. The write is buffered until the next operation that has
    /// an answer; if the cluster refuses the write, that operation fails.
    ///
    /// # Errors
    /// [`Rejected`] for an unknown table, and where a limit would be passed.
    pub fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_write(table, key, value)?;
        self.write(table, Bytes::copy_from_slice(key), Some(Bytes::copy_from_slice(value)))
    }

    /// [`put`](ClusterTransaction::put) of a row, whose bytes are shared and not copied.
    pub(super) fn put_row(&self, row: &LoadRow) -> Result<()> {
        let LoadRow { table, key, value } = row;
        self.check_write(*table, key, value)?;
        self.write(*table, key.clone(), Some(value.clone()))
    }

    /// Writes `value` under a key that does not exist.
    ///
    /// # Errors
    /// [`Rejected::KeyExists`] where it does: the transaction can go on. And as for
    /// [`put`](ClusterTransaction::put) and [`get`](ClusterTransaction::get).
    pub async fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_write(table, key, value)?;
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        lock(&self.ahead).forget(table, &key);
        self.perform(Operation::Insert { table, key, value }).await.map(drop)
    }

    /// Removes `key`, whether or not it exists.
    ///
    /// # Errors
    /// As for [`put`](ClusterTransaction::put).
    pub fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.check_write(table, key, &[])?;
        self.write(table, Bytes::copy_from_slice(key), None)
    }

    /// Adds `delta`, wrapping, to the little-endian `i64` under `key` (an absent key counts as 0) and
    /// returns the sum.
    ///
    /// # Errors
    /// [`Rejected::WrongValue`] where the value is not 8 bytes long. And as for
    /// [`get`](ClusterTransaction::get).
    pub async fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        let before = self.get_for_update(table, key).await?;
        let sum = shoal_types::transaction::sum(table, key, before, delta)?;
        self.put(table, key, &sum.to_le_bytes())?;
        Ok(sum)
    }

    /// Commits: all writes take effect at one instant, or the error says what is true. If this future is
    /// dropped before it is done, the outcome is not known.
    ///
    /// # Errors
    /// [`Aborted`]: nothing happened, the same transaction may succeed if it is run again from its
    /// beginning. [`Unknown::Session`] or [`Unknown::Commit`] where the answer was lost, and the deadline passed before the
    /// client had found out what became of it ([`commit_ids`](crate::ClusterOptions::commit_ids)).
    pub async fn commit(self) -> Result<()> {
        self.end(SessionEnd::Commit).await
    }

    /// Rolls back: nothing happened. Dropping does the same.
    pub fn rollback(self) {}

    pub(super) async fn end(&self, ending: SessionEnd) -> Result<()> {
        self.check()?;
        let idle = self.link.get().is_none();
        if idle && lock(&self.writes).waiting.is_empty() {
            return Ok(());
        }
        let until = self.until();
        let link = self.link(until).await?;
        let commits = ending == SessionEnd::Commit;
        let home = self.first_written.get().filter(|_| commits).copied();
        let Some(home) = home.filter(|_| self.inner.options.commit_ids) else {
            let ended = self.send_end(&link, ending, until).await;
            return ended.map_err(|error| self.of_commit_without_id(error, &link));
        };
        let span = CallSpan { began: self.inner.world().now(), until };
        let mut number = match self.inner.request_session(home, span).await {
            Ok(number) => number,
            Err(error) => return Err(self.over(error)),
        };
        let id = number.request();
        let ended = match self.send_end(&link, SessionEnd::CommitAs(id), until).await {
            Err(unknown @ Error::Unknown(_)) => {
                self.inner.resolve(id, unknown, span).await.map(drop)
            }
            ended => ended,
        };
        self.inner.numbers.give_back_if_known(number, &ended);
        ended
    }

    /// Calls a procedure, as the only step of this transaction, at its coordinator. Where the answer was lost, what became of the
    /// call is asked for by its id.
    ///
    /// # Errors
    /// Those of the procedure, and as for [`call`](crate::Cluster::call).
    pub(super) async fn call(
        &self,
        id: RequestId,
        procedure: &str,
        arguments: Bytes,
        span: CallSpan,
    ) -> Result<Bytes> {
        self.name_shard(Some(id.session.home));
        let link = self.link(span.until).await?;
        let ending = SessionEnd::Call { id, procedure: procedure.into(), arguments };
        let outcome = link.with(&self.session, |session| session.end(ending));
        match self.wait(&link, outcome, span.until).await {
            Ok(OperationResult::Value(Some(result))) => Ok(result),
            Ok(other) => unreachable!("the session takes no {other:?} for the result of a call"),
            Err(Error::Unknown(unknown)) => {
                let unknown = self.of_call(unknown, id, &link, span);
                self.inner.resolve(id, unknown.into(), span).await
            }
            Err(error) => Err(error),
        }
    }

    /// The error of a call whose answer was lost, as its caller receives it if its outcome cannot be found out either.
    fn of_call(
        &self,
        unknown: Unknown,
        request: RequestId,
        link: &NodeConnection,
        span: CallSpan,
    ) -> Unknown {
        let wait = match unknown {
            Unknown::Commit { wait, .. } => Wait { awaited: Awaited::Call, ..wait },
            Unknown::Session { .. } | Unknown::Participant { .. } => {
                let (node, waited) = (Some(link.node()), self.inner.world().now() - span.began);
                let cause = self.cause(Cause::Disconnected);
                Wait { node, awaited: Awaited::Call, cause, waited }
            }
            other => return other,
        };
        Unknown::Call { request, wait }
    }

    /// The error of a commit without an id: it is aborted if the transaction has no writes.
    fn of_commit_without_id(&self, error: Error, link: &NodeConnection) -> Error {
        let wrote = self.first_written.get().is_some() || !self.inner.options.commit_ids;
        let (node, awaited, cause) = (Some(link.node()), Awaited::Commit, Cause::Disconnected);
        match error {
            Error::Unknown(Unknown::Commit { wait, .. }) if !wrote => {
                Aborted::Unanswered(wait).into()
            }
            Error::Unknown(_) if !wrote => {
                Aborted::Unanswered(Wait { node, awaited, cause, waited: Duration::ZERO }).into()
            }
            error => error,
        }
    }

    /// Sends the buffered writes and the end, and waits for the answer.
    async fn send_end(
        &self,
        link: &Arc<NodeConnection>,
        ending: SessionEnd,
        until: Time,
    ) -> Result<()> {
        let outcome = link.with(&self.session, |session| {
            self.take_writes().for_each(|write| session.write(write));
            session.end(ending)
        });
        self.wait(link, outcome, until).await.map(drop)
    }

    /// `error`, which a body returned, if the body's reads are valid; otherwise the conflict.
    pub(crate) async fn confirm_failure(&self, error: Error) -> Error {
        let depends_on_reads = matches!(error, Error::Rejected(_) | Error::Unknown(_));
        match self.over.get() {
            Some(over @ (Error::Aborted(_) | Error::Unknown(_))) if depends_on_reads => {
                over.clone()
            }
            Some(_) => error,
            None if depends_on_reads && self.link.get().is_some() => {
                // The error may result from reads that no serializable execution has; `Confirm` validates them.
                lock(&self.writes).clear();
                self.end(SessionEnd::Confirm).await.err().unwrap_or(error)
            }
            None => error,
        }
    }

    fn check_write(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(table, key)?;
        check_value(table, key, value)?;
        let frame = self.inner.options.access.limits.frame_bytes_max;
        if key.len() + value.len() + FRAME_OVERHEAD > frame {
            let (key, bytes) = (KeyExcerpt::new(key), value.len());
            Err(Rejected::ValueTooLong { table, key, bytes, max: frame })?;
        }
        // A table that every shard has a copy of is written on all of them.
        let shard = self.name_key(table, key)?.unwrap_or_default();
        let _ = self.first_written.set(shard); // Only the first is kept.
        Ok(())
    }

    /// Notes that the transaction names a key. Returns its shard; `None` where all shards have a copy.
    ///
    /// # Errors
    /// [`Rejected::UnknownTable`].
    fn name_key(&self, table: TableId, key: &[u8]) -> Result<Option<ShardId>> {
        let home = self.inner.client_shared.view.home(table, key);
        let home = home.ok_or(Rejected::UnknownTable { table })?;
        self.name_shard(home);
        self.name_granule(table, key);
        Ok(home)
    }

    /// Notes that the transaction names a key of a shard.
    fn name_shard(&self, shard: Option<ShardId>) {
        if let Some(shard) = shard {
            let _ = self.first.set(shard); // Only the first is kept.
        }
    }

    /// Notes that the transaction names a key of a granule.
    fn name_granule(&self, table: TableId, key: &[u8]) {
        // Only the first is kept.
        self.first_granule.get_or_init(|| self.inner.client_shared.view.granule(table, key));
    }

    /// The granule of the first key that was named.
    fn granule(&self) -> Option<&GranuleName> {
        self.first_granule.get().and_then(Option::as_ref)
    }

    fn write(&self, table: TableId, key: Bytes, value: Option<Bytes>) -> Result<()> {
        self.check()?;
        // A later read has to see this write, and not the value that was read ahead.
        lock(&self.ahead).forget(table, &key);
        lock(&self.writes).add(table, key, value)
    }

    fn take_writes(&self) -> impl Iterator<Item = Operation> + use<> {
        let writes = std::mem::take(&mut *lock(&self.writes)).waiting;
        writes.into_iter().map(|((table, key), value)| Operation::Put { table, key, value })
    }

    fn check(&self) -> Result<()> {
        self.over.get().map_or(Ok(()), |over| Err(over.clone()))
    }

    async fn perform(&self, operation: Operation) -> Result<OperationResult> {
        self.check()?;
        let until = self.until();
        let link = self.link(until).await?;
        let reply = link.with(&self.session, |session| {
            self.take_writes().for_each(|write| session.write(write));
            let reply = session.perform(operation);
            lock(&self.ahead).send(session);
            reply
        });
        self.wait(&link, reply, until).await
    }

    /// The deadline of an operation that begins now.
    fn until(&self) -> Time {
        match self.timeout {
            OperationTimeout::Until(until) => until,
            OperationTimeout::Each(span) => self.inner.after(span),
        }
    }

    /// The connection to the coordinator, which is chosen by the first call.
    async fn link(&self, until: Time) -> Result<Arc<NodeConnection>> {
        self.link.get_or_try_init(|| self.choose_coordinator(until)).await.cloned()
    }

    /// Connects to a coordinator: a node that can be reached, and owns the granule of the first named key, is the nearest, or leads
    /// the key's shard, as the engine has it, if possible.
    async fn choose_coordinator(&self, until: Time) -> Result<Arc<NodeConnection>> {
        let inner = &self.inner;
        let began = inner.world().now();
        loop {
            let node = self.coordinator();
            let worker = WorkerId(inner.below(inner.client_shared.view.workers()) as u32);
            let place = WorkerPlace { node, worker };
            let cause = match timeout_at(inner.world(), until, inner.link(place)).await {
                Some(Ok(link)) => return Ok(link),
                Some(Err(cause)) => cause,
                None => Cause::Silent,
            };
            inner.client_shared.view.suspect(node);
            if let Some(error) = inner.client_shared.founded_again() {
                return Err(self.over(error.into()));
            }
            if inner.world().now() >= until {
                let (node, awaited) = (Some(node), Awaited::Connection);
                let cause = self.cause(cause);
                let wait = Wait { node, awaited, cause, waited: inner.world().now() - began };
                return Err(self.over(Aborted::Unanswered(wait).into()));
            }
            inner.refresh(until).await;
            inner.pause(inner.options.patience / 2, until).await;
        }
    }

    fn coordinator(&self) -> NodeId {
        let view = &self.inner.client_shared.view;
        if let Some(node) = self.granule().and_then(|granule| view.coordinator(granule)) {
            return node;
        }
        let nearest = view.nearest(self.first.get().copied());
        if !nearest.is_empty() {
            return nearest[self.inner.below(nearest.len())];
        }
        let leader = self.first.get().and_then(|shard| view.leader(*shard));
        leader.filter(|leader| !view.is_suspect(*leader)).unwrap_or_else(|| {
            let leaders = view.leaders();
            match leaders.len() {
                0 => view.nodes().first().copied().unwrap_or(NodeId(0)),
                count => leaders[self.inner.below(count)],
            }
        })
    }

    /// Waits for the reply to a step, and sends unanswered steps again.
    async fn wait(
        &self,
        link: &Arc<NodeConnection>,
        mut reply: oneshot::Receiver<StepReply>,
        until: Time,
    ) -> Result<OperationResult> {
        let (world, options) = (self.inner.world(), &self.inner.options);
        let began = world.now();
        let mut retransmission = Retransmission::new(options, until);
        loop {
            match retransmission.wait(world, &mut reply).await {
                Some(Ok(Ok(answer))) => return Ok(answer),
                Some(Ok(Err(fault))) => return Err(self.fault(fault, link, began)),
                // The session was rolled back; the cause is in `over`.
                Some(Err(_)) => return Err(self.check().err().unwrap_or_else(dropped)),
                None => {}
            }
            let now = world.now();
            let silent = now - link.received_at().max(began) >= options.silence_max;
            // A node that is cut off from the cluster still answers this client, but cannot finish the step.
            let is_lost = silent || self.inner.client_shared.view.is_dead(link.node());
            if (now >= until || is_lost)
                && let Some(error) = self.on_unanswered(link, began, now >= until)
            {
                return Err(error);
            }
            link.send_again(&self.session, &self.inner.client_shared);
            if retransmission.unanswered() > 0 {
                self.inner.ask_other_than(link.node());
            }
            retransmission.count();
        }
    }

    /// No reply arrived in time: rolls back, and returns the error. `None` while a commit without an id is outstanding and
    /// the deadline has not passed: then the transaction waits on.
    fn on_unanswered(&self, link: &NodeConnection, began: Time, is_late: bool) -> Option<Error> {
        let wait = |awaited| {
            let (node, waited) = (Some(link.node()), self.inner.world().now() - began);
            Wait { node, awaited, cause: self.cause(Cause::Silent), waited }
        };
        let committing = link.with(&self.session, |session| {
            if !session.is_committing() {
                session.roll_back();
                return None;
            }
            session.number()
        });
        let error = match committing {
            Some(_) if !is_late && !self.inner.options.commit_ids => return None,
            Some(session) => Unknown::Commit { session, wait: wait(Awaited::Commit) }.into(),
            None => Aborted::Unanswered(wait(Awaited::Operation)).into(),
        };
        self.inner.client_shared.view.suspect(link.node());
        Some(self.over(error))
    }

    /// The cause to report: `cause`, unless the first named shard is known to have no majority.
    fn cause(&self, cause: Cause) -> Cause {
        let is_out = |shard: &ShardId| self.inner.client_shared.view.has_no_majority(*shard);
        if self.first.get().is_some_and(is_out) { Cause::NoMajority } else { cause }
    }

    fn fault(&self, fault: StepError, link: &NodeConnection, began: Time) -> Error {
        let lost = |cause| {
            self.inner.client_shared.view.suspect(link.node());
            let (node, awaited) = (Some(link.node()), Awaited::Operation);
            Wait { node, awaited, cause, waited: self.inner.world().now() - began }
        };
        let error = match fault {
            StepError::Error(error @ Error::Rejected(_)) => {
                // A rejected put or delete ends the transaction; other rejected operations do not.
                let is_over = lock(&self.session).is_over();
                return if is_over { self.over(error) } else { error };
            }
            StepError::Error(error @ (Error::Aborted(_) | Error::Unknown(_))) => {
                self.inner.client_shared.view.learn_owner(self.granule(), &error);
                error
            }
            StepError::Disconnected(cause) => Aborted::Unanswered(lost(cause)).into(),
            StepError::CommitUnknown(session) => {
                lost(Cause::Disconnected);
                Unknown::Session { session }.into()
            }
        };
        self.over(error)
    }

    /// Ends the transaction, and returns the first error that ended it.
    fn over(&self, error: Error) -> Error {
        self.over.get_or_init(|| error).clone()
    }
}

/// The error of a step whose transaction was dropped.
fn dropped() -> Error {
    Aborted::UnknownSession { session: 0 }.into()
}

impl BufferedWrites {
    fn add(&mut self, table: TableId, key: Bytes, value: Option<Bytes>) -> Result<()> {
        let key = (table, key);
        let size =
            |key: &Bytes, value: &Option<Bytes>| key.len() + value.as_ref().map_or(0, Bytes::len);
        let before = self.waiting.get(&key).map_or(0, |before| size(&key.1, before));
        let bytes = self.bytes - before + size(&key.1, &value);
        if bytes > TRANSACTION_BYTES_MAX {
            Err(Rejected::TransactionBytes { bytes, max: TRANSACTION_BYTES_MAX })?;
        }
        if before == 0 && self.waiting.len() >= TRANSACTION_WRITES_MAX {
            Err(Rejected::TransactionWrites { max: TRANSACTION_WRITES_MAX })?;
        }
        self.bytes = bytes;
        self.waiting.insert(key, value);
        Ok(())
    }

    fn clear(&mut self) {
        *self = BufferedWrites::default();
    }
}

/// Checks that each bound of a scan is empty or a valid key.
fn check_bounds(table: TableId, scan: &Scan<'_>) -> Result<()> {
    let end = match scan.end {
        ScanEnd::Bound(bound) => bound,
        ScanEnd::Prefix(prefix) => Bound::Included(prefix),
    };
    for bound in [scan.start, end] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound
            && !key.is_empty()
        {
            check_key(table, key)?;
        }
    }
    Ok(())
}

impl shoal_types::Transaction for ClusterTransaction {
    async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        ClusterTransaction::get(self, table, key).await
    }
    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        ClusterTransaction::prefetch(self, keys);
    }
    async fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        ClusterTransaction::scan(self, table, scan).await
    }
    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        ClusterTransaction::put(self, table, key, value)
    }
    async fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        ClusterTransaction::insert(self, table, key, value).await
    }
    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        ClusterTransaction::delete(self, table, key)
    }
    async fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        ClusterTransaction::add(self, table, key, delta).await
    }
}

impl Drop for ClusterTransaction {
    fn drop(&mut self) {
        let Some(link) = self.link.get() else { return };
        link.with(&self.session, |session| {
            if !session.is_committing() {
                session.roll_back();
            }
        });
    }
}

impl fmt::Debug for ClusterTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = lock(&self.session).number();
        f.debug_struct("ClusterTransaction").field("session", &session).finish_non_exhaustive()
    }
}
