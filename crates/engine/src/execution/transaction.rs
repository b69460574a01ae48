//! What a body works with.

use super::admission::AdmissionPermit;
use super::attempt::Attempt;
use super::limits::TURN;
use super::own_branches::{OwnBranch, OwnBranches};
use super::remote_branches::{RemoteBranches, ReplySlot};
use super::session_pool::StoreBranch;
use super::slot::ResultSlot;
use super::stage_times::StageMarks;
use super::transaction_trace::AttemptTrace;
use super::worker_context::{
    BodyEnd, DeclaredCall, DeclaredRow, EngineRequest, LocalSubmission, OperationSite, Submission,
    UnnotedReads, WorkerContext, recovering,
};
use crate::hot_keys::KeyUse;
use crate::operation::{ANSWER, Operation, OperationResult, OwnedScan};
use crate::transaction_id::TransactionId;
use bumpalo::Bump;
use bytes::Bytes;
use shoal_cluster::topology::{Home, Homes};
use shoal_types::limits::{check_key, check_value};
use shoal_types::procedure::Footprint;
use shoal_types::transaction::ScanEnd;
use shoal_types::{
    Aborted, Conflict, Epoch, Error, MaybeReady, Rejected, Result, Rows, Scan, ShardId, TableId,
};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound;
use std::rc::Rc;

/// A transaction at its coordinator; see [`shoal_types::Transaction`] for its operations.
///
/// Own shards are read and written in place. What other shards are asked is buffered: writes travel
/// with the next read of the same shard, or with the commit.
pub struct CoordinatorTransaction<'db> {
    worker_context: &'db WorkerContext,
    permit: &'db AdmissionPermit<'db>,
    id: TransactionId,
    epoch: Epoch,
    marks: StageMarks,
    /// What is shared with the engine, once there is something to share.
    remote_branches: OnceCell<Rc<RemoteBranches>>,
    own: OwnBranches,
    /// Reads of other shards that were asked for ahead.
    ahead: RefCell<BTreeMap<OwnedKey, ReplySlot>>,
    /// What came from other shards; lives as long as the transaction, like what is read in place.
    kept: Bump,
    /// How many there were so far.
    operations: Cell<u32>,
    /// How much it has done since it gave way to others.
    worked: Cell<usize>,
    /// An earlier attempt met a conflict: own shards are read only when what was asked ahead of others is here.
    is_again: bool,
    /// The transaction is another attempt, and something that was asked ahead may still be on its way.
    unsettled: Cell<bool>,
    /// It is a client's, which makes the next attempt at another node if it has to.
    may_move: Cell<bool>,
    /// The engine knows how it ended, or the shard that it was handed to will say.
    ended: bool,
}

type OwnedKey = (TableId, Box<[u8]>);

/// A transaction gives way to others at its next read once it has worked on so many bytes in one go, each operation counted
/// with [`OPERATION_BYTES`]. Less is fairer; more lets it be done without a pause, in which others may conflict with it.
const WORK_BYTES_MAX: usize = 1 << 20;

/// What an operation costs beside its bytes.
const OPERATION_BYTES: usize = 256;

/// Where an operation goes.
enum OperationTarget {
    /// A shard of this node, by its place in [`WorkerContext::own`].
    Own(usize),
    /// Another node's, or the engine's.
    Other(ShardId),
}

impl<'db> CoordinatorTransaction<'db> {
    /// Begins one, which has been admitted.
    pub(super) fn begin(
        worker_context: &'db WorkerContext,
        permit: &'db AdmissionPermit<'db>,
        is_again: bool,
    ) -> CoordinatorTransaction<'db> {
        let sequence = worker_context.sequences.borrow_mut().begin();
        let id = TransactionId {
            node: worker_context.place.node,
            worker: worker_context.place.worker,
            sequence,
        };
        CoordinatorTransaction {
            worker_context,
            permit,
            id,
            epoch: worker_context.epoch.get(),
            marks: worker_context.begin_stages(sequence),
            remote_branches: OnceCell::new(),
            own: OwnBranches::default(),
            ahead: RefCell::default(),
            kept: Bump::new(),
            operations: Cell::new(0),
            worked: Cell::new(0),
            is_again,
            unsettled: Cell::new(false),
            may_move: Cell::new(false),
            ended: false,
        }
    }

    /// Its name.
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// A client waits for it, which makes the next attempt at another node where an error says so. Has an effect before the
    /// first operation only.
    pub(super) fn let_move(&self) {
        self.may_move.set(true);
    }

    fn attempt(&self) -> Attempt {
        Attempt {
            id: self.id,
            epoch: self.epoch,
            marks: self.marks.clone(),
            may_move: self.may_move.get(),
            times: self.permit.times,
            outcome: Cell::new(None),
        }
    }

    /// What is shared with the engine, which is made when it is first needed.
    fn remote_branches(&self) -> &Rc<RemoteBranches> {
        let share = || RemoteBranches::new(self.attempt(), self.permit.share());
        self.remote_branches.get_or_init(share)
    }

    /// The error of all further operations, if they fail: only an engine that knows of the transaction has them fail.
    fn failure(&self) -> Option<Error> {
        self.remote_branches.get()?.failure()
    }

    /// What it has done so far.
    pub(super) fn done(&self) -> AttemptTrace {
        let own = self.own.iter().filter(|own| own.at < 64).fold(0, |bits, own| bits | 1 << own.at);
        AttemptTrace {
            id: self.id,
            remote_branches: self.remote_branches.get().cloned(),
            own,
            operations: self.operations.get(),
        }
    }

    /// One more operation.
    fn count(&self) {
        self.operations.set(self.operations.get().saturating_add(1));
        self.work(OPERATION_BYTES);
    }

    /// One more operation, on a key.
    fn count_use(&self, of: KeyUse, table: TableId, key: &[u8]) {
        self.count();
        let WorkerContext { hot_keys, now, .. } = self.worker_context;
        hot_keys.note(now.get(), of, table, key);
    }

    /// The transaction has worked on so many bytes.
    fn work(&self, bytes: usize) {
        self.worked.set(self.worked.get().saturating_add(bytes));
    }

    /// Lets others have their turn, if it has done much in one go: a step of the worker must not take long.
    async fn give_way(&self) {
        if self.worked.get() > WORK_BYTES_MAX {
            self.worked.set(0);
            self.worker_context.sleep(TURN).await;
        }
    }

    /// Ends it, and returns when its outcome may be revealed.
    ///
    /// # Errors
    /// What stopped it; nothing happened then.
    pub(super) async fn end(mut self, ending: BodyEnd) -> Result<()> {
        self.ended = true;
        let branches = std::mem::take(&mut self.own);
        let outcome = self.worker_context.outcomes.begin();
        let request = match self.takes_alone(branches) {
            Ok((own, branch)) => {
                let attempt = self.attempt();
                attempt.outcome.set(Some(outcome.of()));
                EngineRequest::CommitLocal(LocalSubmission { attempt, own, branch, ending })
            }
            Err(branches) => {
                let remote_branches = Rc::clone(self.remote_branches());
                remote_branches.outcome.set(Some(outcome.of()));
                EngineRequest::Commit(Submission { remote_branches, branches, ending })
            }
        };
        self.worker_context.ask(request);
        outcome.await
    }

    /// The one branch of a transaction that nothing else is known of, if the engine takes it so, and the place of its shard.
    fn takes_alone(
        &self,
        branches: OwnBranches,
    ) -> std::result::Result<(usize, StoreBranch), OwnBranches> {
        let is_short = |branch: &StoreBranch| self.worker_context.is_short(branch.size());
        let is_alone =
            self.worker_context.takes_local.get() && self.remote_branches.get().is_none();
        match is_alone && branches.only().is_some_and(is_short) {
            true => branches.into_only(),
            false => Err(branches),
        }
    }

    /// Has the engine execute a procedure by its footprint: then nothing else is done in this transaction. Returns the results
    /// of the shards. `None`: the procedure is to be run here.
    ///
    /// # Errors
    /// Those of the procedure and of its commit.
    pub(super) async fn execute_declared(
        &self,
        name: &str,
        arguments: &[u8],
        footprint: Footprint,
        request: Option<DeclaredRow>,
    ) -> Result<Option<Vec<Bytes>>> {
        let call = Rc::new(DeclaredCall {
            remote_branches: Rc::clone(self.remote_branches()),
            procedure: name.into(),
            arguments: Bytes::copy_from_slice(arguments),
            footprint,
            request,
            results: ResultSlot::default(),
        });
        self.worker_context.declare(&call);
        call.results.take().await
    }

    /// Returns when all that was read so far may be shown to a client.
    ///
    /// # Errors
    /// Where it never may, since the transaction cannot commit.
    pub(super) async fn reveal(&self) -> Result<()> {
        for own in self.own.iter() {
            while self.note_reads(own)? {
                self.worker_context.sleep(TURN).await;
            }
        }
        let slot = Rc::new(ResultSlot::default());
        self.worker_context.ask(EngineRequest::Reveal {
            remote_branches: Rc::clone(self.remote_branches()),
            slot: Rc::clone(&slot),
        });
        slot.take().await
    }

    /// Has the engine note its reads of an own shard, but for those that it has noted before, and for no more of them than
    /// a step may look at. Says whether there are more.
    fn note_reads(&self, own: &OwnBranch) -> Result<bool> {
        let Some(reads) = &self.worker_context.reads else { return Ok(false) };
        let (from, most) = (own.noted.get(), self.worker_context.step_reads_max());
        let unnoted = UnnotedReads { own: own.at, branch: &own.branch, from, most };
        let noted = reads.note(self.worker_context, self.remote_branches(), unnoted)?;
        own.noted.set(noted);
        self.worker_context.looked_at(noted - from);
        Ok(noted - from == most)
    }

    fn target(&self, shard: ShardId) -> Result<OperationTarget> {
        if self.worker_context.operations_at == OperationSite::Engine {
            return Ok(OperationTarget::Other(shard));
        }
        self.worker_context.check_in(shard)?;
        match self.worker_context.own(shard) {
            Some(own) => Ok(OperationTarget::Own(own)),
            None if self.worker_context.leaderships.leader(shard).node
                == self.worker_context.place.node =>
            {
                Err(recovering(shard))
            }
            None => Ok(OperationTarget::Other(shard)),
        }
    }

    /// The one shard to ask about a key.
    fn source(&self, table: TableId, key: &[u8]) -> Result<OperationTarget> {
        match self.worker_context.tables.home(table, key)? {
            Home::One(shard) => self.target(shard),
            Home::Everywhere => self.target(self.worker_context.nearest()),
        }
    }

    #[inline]
    fn branch(&self, own: usize) -> Result<&StoreBranch> {
        if let Some(remote_branches) = self.remote_branches.get() {
            remote_branches.check()?;
        }
        let WorkerContext { own: places, .. } = self.worker_context;
        self.own.get_or_begin(own, places.len(), || self.worker_context.begin(own))
    }

    /// Where what reads goes. In another attempt, what reads here waits before it does for what was asked ahead: it could
    /// change for as long as the others take to answer, and where many change it always does.
    async fn settled(
        &self,
        target: impl Fn() -> Result<OperationTarget>,
    ) -> Result<OperationTarget> {
        self.give_way().await;
        match target()? {
            OperationTarget::Own(_) if self.unsettled.get() => self.settle().await,
            target => return Ok(target),
        }
        // Another node may lead the shard by now.
        target()
    }

    /// Waits for what was asked ahead. What cannot succeed any more does not wait.
    async fn settle(&self) {
        while self.unsettled.get() && self.failure().is_none() {
            let ahead = self.ahead.borrow().values().find(|ticket| !ticket.is_filled()).cloned();
            match ahead {
                Some(ticket) => ticket.filled().await,
                None => self.unsettled.set(false),
            }
        }
    }

    /// The shard of this node, by its place, that does an operation within this call: the transaction has worked on so
    /// few bytes, with these, that it need not give way, and waits for nothing that was asked ahead.
    #[inline]
    fn at_once(&self, use_of: KeyUse, table: TableId, key: &[u8], bytes: usize) -> Option<usize> {
        if self.worked.get().saturating_add(bytes) > WORK_BYTES_MAX || self.unsettled.get() {
            return None;
        }
        let known = self.worker_context.local_routes.find(table, key);
        known.or_else(|| self.find_local(table, key, use_of))
    }

    /// The shard of this node, by its place, that does operations on a key; none where several have to write it. Notes it
    /// for keys that begin alike.
    fn find_local(&self, table: TableId, key: &[u8], use_of: KeyUse) -> Option<usize> {
        let shard = match self.worker_context.tables.home(table, key) {
            Ok(Home::One(shard)) => shard,
            Ok(Home::Everywhere) if use_of == KeyUse::Read => self.worker_context.nearest(),
            Ok(Home::Everywhere) | Err(_) => return None,
        };
        let Ok(OperationTarget::Own(own)) = self.target(shard) else { return None };
        self.worker_context.note_route(table, key, own);
        Some(own)
    }

    /// The table of this name.
    pub(crate) fn table(&self, name: &str) -> Result<TableId> {
        self.worker_context.table(name)
    }

    /// Reads, where that is done within this call; otherwise nothing has happened.
    #[inline]
    pub(crate) fn get_at_once(&self, table: TableId, key: &[u8]) -> Option<Result<Option<&[u8]>>> {
        let own = self.at_once(KeyUse::Read, table, key, OPERATION_BYTES)?;
        self.count_use(KeyUse::Read, table, key);
        Some(self.branch(own).and_then(|branch| branch.get(table, key)))
    }

    /// Inserts, where that is done within this call; otherwise nothing has happened.
    pub(crate) fn insert_at_once(
        &self,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> Option<Result<()>> {
        let bytes = key.len() + value.len();
        let own = self.at_once(KeyUse::Written, table, key, OPERATION_BYTES + bytes)?;
        self.count_use(KeyUse::Written, table, key);
        self.work(bytes);
        Some(self.branch(own).and_then(|branch| branch.insert(table, key, value)))
    }

    /// Adds, where that is done within this call; otherwise nothing has happened.
    pub(crate) fn add_at_once(
        &self,
        table: TableId,
        key: &[u8],
        delta: i64,
    ) -> Option<Result<i64>> {
        let own = self.at_once(KeyUse::Written, table, key, 0)?;
        self.count_use(KeyUse::Written, table, key);
        Some(self.branch(own).and_then(|branch| branch.add(table, key, delta)))
    }

    fn issue(&self, shard: ShardId, operation: Operation) -> Result<ReplySlot> {
        let epoch = self.epoch;
        if epoch < self.worker_context.epoch.get() {
            // It cannot commit any more, and the leader of the shard may be gone.
            Err(Aborted::from(Conflict::EpochNotOpen { epoch }))?;
        }
        let waits = operation.wants_answer();
        let remote_branches = self.remote_branches();
        let ticket = remote_branches.issue(
            shard,
            self.worker_context.leaderships.leader(shard),
            operation,
        )?;
        if waits || remote_branches.is_full() {
            self.worker_context.ask(EngineRequest::Send(Rc::clone(remote_branches)));
        }
        Ok(ticket)
    }

    fn keep(&self, bytes: &[u8]) -> &[u8] {
        self.kept.alloc_slice_copy(bytes)
    }

    /// Calls `write` for every copy of the key. Where one shard takes it and another does not, the transaction cannot
    /// commit any more: the copies would differ.
    fn each_home(
        &self,
        table: TableId,
        key: &[u8],
        mut write: impl FnMut(OperationTarget) -> Result<()>,
    ) -> Result<()> {
        match self.worker_context.tables.home(table, key)? {
            Home::One(shard) => write(self.target(shard)?),
            Home::Everywhere => {
                for shard in self.worker_context.topology.shard_ids() {
                    let written = self.target(shard).and_then(&mut write);
                    match &written {
                        // That it exists on one shard and not on another is something that was read: validation fails.
                        Ok(()) | Err(Error::Rejected(Rejected::KeyExists { .. })) => {}
                        Err(error) if shard > ShardId(0) => self.remote_branches().spoil(error),
                        Err(_) => {}
                    }
                    written?;
                }
                Ok(())
            }
        }
    }

    #[inline]
    fn put_or_delete_own(
        &self,
        own: usize,
        table: TableId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let branch = self.branch(own)?;
        match value {
            Some(value) => branch.put(table, key, value),
            None => branch.delete(table, key),
        }
    }

    fn put_or_delete(&self, table: TableId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.count_use(KeyUse::Written, table, key);
        self.work(key.len() + value.map_or(0, <[u8]>::len));
        if let Some(own) = self.worker_context.local_routes.find(table, key) {
            return self.put_or_delete_own(own, table, key, value);
        }
        check_key(table, key)?;
        check_value(table, key, value.unwrap_or_default())?;
        self.each_home(table, key, |target| match target {
            OperationTarget::Own(own) => self.put_or_delete_own(own, table, key, value),
            OperationTarget::Other(shard) => {
                // What was read ahead is not what a read would see now.
                self.ahead.borrow_mut().remove(&(table, key.into()));
                let key = Bytes::copy_from_slice(key);
                let value = value.map(Bytes::copy_from_slice);
                self.issue(shard, Operation::Put { table, key, value }).map(drop)
            }
        })
    }

    /// Asks one shard for its rows, page by page.
    async fn scan_shard<'t>(
        &'t self,
        table: TableId,
        shard: ShardId,
        scan: Scan<'_>,
    ) -> Result<Rows<'t>> {
        let (rows, is_cut) = self.scan_page(table, shard, scan).await?;
        self.scan_rest(table, shard, scan, rows, is_cut).await
    }

    /// Asks one shard for the first rows of a scan; also says whether there may be more.
    async fn scan_page<'t>(
        &'t self,
        table: TableId,
        shard: ShardId,
        scan: Scan<'_>,
    ) -> Result<(Rows<'t>, bool)> {
        match self.settled(|| self.target(shard)).await? {
            OperationTarget::Own(own) => {
                let page = scan.limit.min(ANSWER.rows);
                let rows = self.branch(own)?.scan(table, scan.limit(page))?;
                self.work(rows.len() * OPERATION_BYTES);
                let is_cut = rows.len() == page && page < scan.limit;
                Ok((rows, is_cut))
            }
            OperationTarget::Other(shard) => {
                let operation = Operation::Scan { table, range: OwnedScan::of(&scan) };
                self.rows(self.issue(shard, operation)?).await
            }
        }
    }

    /// Asks one shard for what is left of a scan after the first rows.
    async fn scan_rest<'t>(
        &'t self,
        table: TableId,
        shard: ShardId,
        scan: Scan<'_>,
        mut rows: Rows<'t>,
        mut is_cut: bool,
    ) -> Result<Rows<'t>> {
        while is_cut {
            let mut rest = scan.limit(scan.limit - rows.len());
            match rows.last() {
                None => {}
                Some((last, _)) if scan.reverse => {
                    rest.end = ScanEnd::Bound(Bound::Excluded(*last));
                }
                Some((last, _)) => rest.start = Bound::Excluded(*last),
            }
            let page;
            (page, is_cut) = self.scan_page(table, shard, rest).await?;
            rows.extend(page);
        }
        Ok(rows)
    }

    /// The rows that another shard brought; also says whether there may be more.
    async fn rows(&self, ticket: ReplySlot) -> Result<(Rows<'_>, bool)> {
        let (rows, is_cut) = match ticket.take().await? {
            OperationResult::Rows(rows) => (rows, false),
            OperationResult::Page(rows) => (rows, true),
            OperationResult::Later => (Vec::new(), true),
            OperationResult::Value(_) | OperationResult::Done => (Vec::new(), false),
        };
        let kept = rows.iter().map(|(key, value)| (self.keep(key), self.keep(value))).collect();
        self.work(rows.len() * OPERATION_BYTES);
        Ok((kept, is_cut))
    }

    /// Asks all of `shards` at once and merges what they have by key.
    async fn scan_mixed(
        &self,
        table: TableId,
        shards: &[ShardId],
        scan: Scan<'_>,
    ) -> Result<Rows<'_>> {
        let mut rows = Rows::new();
        let (mut own, mut tickets) = (Vec::new(), Vec::new());
        for shard in shards {
            match self.target(*shard)? {
                OperationTarget::Own(_) => own.push(*shard),
                OperationTarget::Other(shard) => {
                    let operation = Operation::Scan { table, range: OwnedScan::of(&scan) };
                    tickets.push((shard, self.issue(shard, operation)?));
                }
            }
        }
        for (shard, ticket) in tickets {
            let (first, is_cut) = self.rows(ticket).await?;
            rows.extend(self.scan_rest(table, shard, scan, first, is_cut).await?);
        }
        // Last, so that it does not change while the others are waited for.
        for shard in own {
            rows.extend(self.scan_shard(table, shard, scan).await?);
        }
        rows.sort_unstable_by(|(a, _), (b, _)| if scan.reverse { b.cmp(a) } else { a.cmp(b) });
        rows.truncate(scan.limit);
        Ok(rows)
    }

    /// Scans, where that is done within this call; otherwise nothing has happened.
    pub(crate) fn scan_at_once(&self, table: TableId, scan: &Scan<'_>) -> Option<Result<Rows<'_>>> {
        if self.worked.get() > WORK_BYTES_MAX || self.unsettled.get() || scan.limit > ANSWER.rows {
            return None;
        }
        let Ok(Homes::One(shard)) = self.worker_context.tables.homes(table, scan) else {
            return None;
        };
        let Ok(OperationTarget::Own(own)) = self.target(shard) else { return None };
        self.count();
        let rows = self.branch(own).and_then(|branch| branch.scan(table, *scan));
        self.work(rows.as_ref().map_or(0, Vec::len) * OPERATION_BYTES);
        Some(rows)
    }

    /// Reads, and waits for it.
    pub(crate) async fn get_later(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.count_use(KeyUse::Read, table, key);
        let shard = match self.settled(|| self.source(table, key)).await? {
            OperationTarget::Own(own) => return self.branch(own)?.get(table, key),
            OperationTarget::Other(shard) => shard,
        };
        check_key(table, key)?;
        let ahead = self.ahead.borrow_mut().remove(&(table, key.into()));
        let ticket = match ahead {
            Some(ticket) => ticket,
            None => {
                let key = Bytes::copy_from_slice(key);
                self.issue(shard, Operation::Get { table, key })?
            }
        };
        let mut answer = ticket.take().await?;
        while answer == OperationResult::Later {
            let key = Bytes::copy_from_slice(key);
            answer = self.issue(shard, Operation::Get { table, key })?.take().await?;
        }
        match answer {
            OperationResult::Value(value) => Ok(value.map(|value| self.keep(&value))),
            OperationResult::Rows(_)
            | OperationResult::Page(_)
            | OperationResult::Later
            | OperationResult::Done => Ok(None),
        }
    }

    /// The same for keys that may be of several shards.
    fn prefetch_each(&self, keys: &[(TableId, &[u8])]) {
        let mut own = vec![false; self.worker_context.own.len()];
        for (table, key) in keys {
            match self.source(*table, key) {
                Ok(OperationTarget::Own(at)) => own[at] = true,
                Ok(OperationTarget::Other(shard)) if check_key(*table, key).is_ok() => {
                    let place = (*table, Box::from(*key));
                    let key = Bytes::copy_from_slice(key);
                    let operation = Operation::Get { table: *table, key };
                    if !self.ahead.borrow().contains_key(&place)
                        && let Ok(ticket) = self.issue(shard, operation)
                    {
                        self.ahead.borrow_mut().insert(place, ticket);
                        self.unsettled.set(self.is_again);
                    }
                }
                Ok(OperationTarget::Other(_)) | Err(_) => {}
            }
        }
        // A branch is begun only where it has something to do. The store passes over what it has not.
        for at in (0..own.len()).filter(|at| own[*at]) {
            if let Ok(branch) = self.branch(at) {
                branch.prefetch(keys);
            }
        }
    }

    /// Scans, and waits for it.
    pub(crate) async fn scan_later(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        self.count();
        match self.worker_context.tables.homes(table, &scan)? {
            Homes::One(shard) => self.scan_shard(table, shard, scan).await,
            Homes::Everywhere => self.scan_shard(table, self.worker_context.nearest(), scan).await,
            Homes::Mixed(shards) => self.scan_mixed(table, &shards, scan).await,
            Homes::Ordered(mut shards) => {
                if scan.reverse {
                    shards.reverse();
                }
                let mut rows = Rows::new();
                for shard in shards {
                    let limit = scan.limit - rows.len();
                    if limit == 0 {
                        break;
                    }
                    rows.extend(self.scan_shard(table, shard, scan.limit(limit)).await?);
                }
                Ok(rows)
            }
        }
    }

    /// Inserts, and waits for it.
    pub(crate) async fn insert_later(
        &self,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.count_use(KeyUse::Written, table, key);
        check_key(table, key)?;
        check_value(table, key, value)?;
        self.work(key.len() + value.len());
        // It reads that there is nothing.
        self.settled(|| self.source(table, key)).await?;
        let mut tickets = Vec::new();
        self.each_home(table, key, |target| match target {
            OperationTarget::Own(own) => self.branch(own)?.insert(table, key, value),
            OperationTarget::Other(shard) => {
                self.ahead.borrow_mut().remove(&(table, key.into()));
                let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                tickets.push(self.issue(shard, Operation::Insert { table, key, value })?);
                Ok(())
            }
        })?;
        for ticket in tickets {
            ticket.take().await?;
        }
        Ok(())
    }

    /// Adds, and waits for it.
    pub(crate) async fn add_later(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        if let OperationTarget::Own(own) = self.settled(|| self.source(table, key)).await?
            && !matches!(self.worker_context.tables.home(table, key), Ok(Home::Everywhere))
        {
            self.count_use(KeyUse::Written, table, key);
            return self.branch(own)?.add(table, key, delta);
        }
        let sum =
            shoal_types::transaction::sum(table, key, self.get_later(table, key).await?, delta)?;
        self.put_or_delete(table, key, Some(&sum.to_le_bytes()))?;
        Ok(sum)
    }
}

impl shoal_types::Transaction for CoordinatorTransaction<'_> {
    #[inline]
    fn get(&self, table: TableId, key: &[u8]) -> impl Future<Output = Result<Option<&[u8]>>> {
        let result = self.get_at_once(table, key);
        MaybeReady::or_wait(result, || self.get_later(table, key))
    }

    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        let WorkerContext { local_routes, .. } = self.worker_context;
        let local = |(table, key): &(TableId, &[u8])| local_routes.find(*table, key);
        let Some(first) = keys.first().and_then(local) else { return self.prefetch_each(keys) };
        if !keys.iter().all(|key| local(key) == Some(first)) {
            return self.prefetch_each(keys);
        }
        // The store passes over what it has not.
        if let Ok(branch) = self.branch(first) {
            branch.prefetch(keys);
        }
    }

    #[inline]
    fn scan(&self, table: TableId, scan: Scan<'_>) -> impl Future<Output = Result<Rows<'_>>> {
        let result = self.scan_at_once(table, &scan);
        MaybeReady::or_wait(result, || self.scan_later(table, scan))
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_or_delete(table, key, Some(value))
    }

    #[inline]
    fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> impl Future<Output = Result<()>> {
        let result = self.insert_at_once(table, key, value);
        MaybeReady::or_wait(result, || self.insert_later(table, key, value))
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.put_or_delete(table, key, None)
    }

    #[inline]
    fn add(&self, table: TableId, key: &[u8], delta: i64) -> impl Future<Output = Result<i64>> {
        let result = self.add_at_once(table, key, delta);
        MaybeReady::or_wait(result, || self.add_later(table, key, delta))
    }
}

impl Drop for CoordinatorTransaction<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        match self.remote_branches.get() {
            Some(it) => self.worker_context.ask(EngineRequest::Abandon(Rc::clone(it))),
            // The engine knows nothing of it.
            None => self.worker_context.sequences.borrow_mut().finish(self.id.sequence),
        }
    }
}
