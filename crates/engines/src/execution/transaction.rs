//! What a body works with.

use super::admission::Permit;
use super::desk::TURN;
use super::exchange::{Exchange, Ticket};
use super::hub::{Ask, Branch, Ending, Hub, Submission, recovering};
use super::slot::Slot;
use super::trace::Last;
use crate::dependencies::{self, Reads};
use crate::faults::Faults;
use crate::operation::{ANSWER, Answer, Operation, Range};
use crate::transaction_id::TransactionId;
use bumpalo::Bump;
use bytes::Bytes;
use consensus::topology::{Home, Homes};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use types::limits::{check_key, check_value};
use types::transaction::ScanEnd;
use types::{Aborted, Conflict, Error, Rejected, Result, Rows, Scan, ShardId, TableId};

/// A transaction at its coordinator; see [`types::Transaction`] for its operations.
///
/// Own shards are read and written in place. What other shards are asked is buffered: writes travel
/// with the next read of the same shard, or with the commit.
pub struct Transaction {
    hub: Rc<Hub>,
    exchange: Rc<Exchange>,
    /// Branches on the shards that this node leads, as in [`Hub::own`]; begun when first needed.
    own: Box<[OnceCell<Branch>]>,
    /// How many of their reads are in what the transaction depends on, since they were to be shown.
    revealed: Box<[Cell<usize>]>,
    /// Reads of other shards that were asked for ahead.
    ahead: RefCell<BTreeMap<OwnedKey, Ticket>>,
    /// What came from other shards; lives as long as the transaction, like what is read in place.
    kept: Bump,
    /// How many there were so far.
    operations: Cell<u32>,
    /// How much it has done since it gave way to others.
    worked: Cell<usize>,
    /// An earlier attempt met a conflict: own shards are read only when what was asked ahead of others is here.
    is_again: bool,
    /// It is another attempt, and something that was asked ahead may still be on its way.
    unsettled: Cell<bool>,
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
enum Target {
    /// A shard of this node, by its place in [`Hub::own`].
    Own(usize),
    /// Another node's.
    Other(ShardId),
}

impl Transaction {
    /// Begins one, which has been admitted.
    pub(super) fn begin(hub: &Rc<Hub>, permit: Rc<Permit>, is_again: bool) -> Transaction {
        let sequence = hub.sequences.borrow_mut().begin();
        let id = TransactionId { node: hub.place.node, worker: hub.place.worker, sequence };
        Transaction {
            exchange: Exchange::new(hub.now.get(), id, hub.epoch.get(), permit),
            own: hub.own.iter().map(|_| OnceCell::new()).collect(),
            revealed: hub.own.iter().map(|_| Cell::default()).collect(),
            ahead: RefCell::default(),
            kept: Bump::new(),
            operations: Cell::new(0),
            worked: Cell::new(0),
            is_again,
            unsettled: Cell::new(false),
            ended: false,
            hub: Rc::clone(hub),
        }
    }

    /// Its name.
    pub fn id(&self) -> TransactionId {
        self.exchange.id
    }

    /// What it has done so far.
    pub(super) fn done(&self) -> Last {
        let begun =
            self.own.iter().take(64).enumerate().filter(|(_, branch)| branch.get().is_some());
        let own = begun.fold(0, |own, (at, _)| own | 1 << at);
        Last { exchange: Rc::clone(&self.exchange), own, operations: self.operations.get() }
    }

    /// One more operation.
    fn count(&self) {
        self.operations.set(self.operations.get().saturating_add(1));
        self.work(OPERATION_BYTES);
    }

    /// It has worked on so many bytes.
    fn work(&self, bytes: usize) {
        self.worked.set(self.worked.get().saturating_add(bytes));
    }

    /// Lets others have their turn, if it has done much in one go: a step of the worker must not take long.
    async fn give_way(&self) {
        if self.worked.get() > WORK_BYTES_MAX {
            self.worked.set(0);
            self.hub.sleep(TURN).await;
        }
    }

    /// Ends it, and returns when its outcome may be told.
    ///
    /// # Errors
    /// What stopped it; nothing happened then.
    pub(super) async fn end(mut self, ending: Ending) -> Result<()> {
        self.ended = true;
        let own = std::mem::take(&mut self.own);
        let branches = own.into_iter().enumerate();
        let branches =
            branches.filter_map(|(at, branch)| Some((at, branch.into_inner()?))).collect();
        let exchange = Rc::clone(&self.exchange);
        self.hub.ask(Ask::Commit(Submission { exchange, branches, ending }));
        self.exchange.outcome.take().await
    }

    /// Returns when all that was read so far may be shown to a client (rule M5).
    ///
    /// # Errors
    /// Where it never may, since the transaction cannot commit.
    pub(super) async fn reveal(&self) -> Result<()> {
        for at in 0..self.own.len() {
            while self.depend_on_reads(at)? {
                self.hub.sleep(TURN).await;
            }
        }
        let slot = Rc::new(Slot::default());
        self.hub.ask(Ask::Reveal {
            exchange: Rc::clone(&self.exchange),
            stamp: self.exchange.dependencies(),
            slot: Rc::clone(&slot),
        });
        slot.take().await
    }

    /// Adds what its reads of an own shard depend on, but for those that were added before, and for no more of them than a
    /// step may look at. Says whether there are more.
    fn depend_on_reads(&self, at: usize) -> Result<bool> {
        let Some(branch) = self.own[at].get() else { return Ok(false) };
        let (shard, most) = (self.hub.own[at].shard, self.hub.step_reads_max());
        let watermarks = self.hub.watermarks.borrow();
        let (epoch, faults) = (self.exchange.epoch, Faults::NONE);
        let reads = Reads { shard, epoch, watermarks: &watermarks, full: false, faults };
        let from = self.revealed[at].get();
        let added = dependencies::of(branch, (from, most), &reads, &mut |_| {});
        let added = added.inspect_err(|_| {
            branch.discard_read(|stamp| watermarks.rejects(shard, stamp));
        })?;
        self.exchange.depend(self.hub.home(), added.stamp.seen_by(shard));
        self.revealed[at].set(added.reads);
        self.hub.looked_at(added.reads - from);
        Ok(added.reads - from == most)
    }

    fn target(&self, shard: ShardId) -> Result<Target> {
        self.hub.check_in(shard)?;
        match self.hub.own(shard) {
            Some(own) => Ok(Target::Own(own)),
            None if self.hub.leader(shard) == self.hub.place.node => Err(recovering(shard)),
            None => Ok(Target::Other(shard)),
        }
    }

    /// The one shard to ask about a key.
    fn source(&self, table: TableId, key: &[u8]) -> Result<Target> {
        match self.hub.topology.home(table, key) {
            None => Err(Rejected::UnknownTable { table }.into()),
            Some(Home::One(shard)) => self.target(shard),
            Some(Home::Everywhere) => self.target(self.hub.nearest()),
        }
    }

    fn branch(&self, own: usize) -> Result<&Branch> {
        if let Some(failure) = self.exchange.failure() {
            return Err(failure);
        }
        if self.own[own].get().is_none() {
            // It cannot be begun elsewhere meanwhile: it belongs to one worker.
            let _ = self.own[own].set(self.hub.begin(own)?);
        }
        Ok(self.own[own].get().expect("begun above"))
    }

    /// Where what reads goes. In another attempt, what reads here waits before it does for what was asked ahead: it could
    /// change for as long as the others take to answer, and where many change it always does.
    async fn settled(&self, target: impl Fn() -> Result<Target>) -> Result<Target> {
        self.give_way().await;
        match target()? {
            Target::Own(_) if self.unsettled.get() => self.settle().await,
            target => return Ok(target),
        }
        // Another node may lead the shard by now.
        target()
    }

    /// Waits for what was asked ahead. What cannot succeed any more does not wait.
    async fn settle(&self) {
        while self.unsettled.get() && self.exchange.failure().is_none() {
            let ahead = self.ahead.borrow().values().find(|ticket| !ticket.is_filled()).cloned();
            match ahead {
                Some(ticket) => ticket.filled().await,
                None => self.unsettled.set(false),
            }
        }
    }

    fn issue(&self, shard: ShardId, operation: Operation) -> Result<Ticket> {
        let epoch = self.exchange.epoch;
        if epoch < self.hub.epoch.get() {
            // It cannot commit any more, and the leader of the shard may be gone.
            Err(Aborted::from(Conflict::EpochNotOpen { epoch }))?;
        }
        let waits = operation.wants_answer();
        let ticket = self.exchange.issue(shard, self.hub.reign(shard), operation)?;
        if waits || self.exchange.is_full() {
            self.hub.ask(Ask::Send(Rc::clone(&self.exchange)));
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
        mut write: impl FnMut(Target) -> Result<()>,
    ) -> Result<()> {
        match self.hub.topology.home(table, key) {
            None => Err(Rejected::UnknownTable { table }.into()),
            Some(Home::One(shard)) => write(self.target(shard)?),
            Some(Home::Everywhere) => {
                for shard in self.hub.topology.shard_ids() {
                    let written = self.target(shard).and_then(&mut write);
                    match &written {
                        // That it exists on one shard and not on another is something that was read: validation fails.
                        Ok(()) | Err(Error::Rejected(Rejected::KeyExists { .. })) => {}
                        Err(error) if shard > ShardId(0) => self.exchange.spoil(error),
                        Err(_) => {}
                    }
                    written?;
                }
                Ok(())
            }
        }
    }

    fn put_or_delete(&self, table: TableId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.count();
        self.work(key.len() + value.map_or(0, <[u8]>::len));
        check_key(table, key)?;
        check_value(table, key, value.unwrap_or_default())?;
        self.each_home(table, key, |target| match (target, value) {
            (Target::Own(own), Some(value)) => self.branch(own)?.put(table, key, value),
            (Target::Own(own), None) => self.branch(own)?.delete(table, key),
            (Target::Other(shard), value) => {
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
        let first = self.scan_page(table, shard, scan).await?;
        self.scan_rest(table, shard, scan, first).await
    }

    /// Asks one shard for the first rows of a scan; also says whether there may be more.
    async fn scan_page<'t>(
        &'t self,
        table: TableId,
        shard: ShardId,
        scan: Scan<'_>,
    ) -> Result<(Rows<'t>, bool)> {
        match self.settled(|| self.target(shard)).await? {
            Target::Own(own) => {
                let page = scan.limit.min(ANSWER.rows);
                let rows = self.branch(own)?.scan(table, scan.limit(page))?;
                self.work(rows.len() * OPERATION_BYTES);
                let is_cut = rows.len() == page && page < scan.limit;
                Ok((rows, is_cut))
            }
            Target::Other(shard) => {
                let operation = Operation::Scan { table, range: Range::of(&scan) };
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
        (mut rows, mut is_cut): (Rows<'t>, bool),
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
    async fn rows(&self, ticket: Ticket) -> Result<(Rows<'_>, bool)> {
        let (rows, is_cut) = match ticket.take().await? {
            Answer::Rows(rows) => (rows, false),
            Answer::Page(rows) => (rows, true),
            Answer::Later => (Vec::new(), true),
            Answer::Value(_) | Answer::Done => (Vec::new(), false),
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
                Target::Own(_) => own.push(*shard),
                Target::Other(shard) => {
                    let operation = Operation::Scan { table, range: Range::of(&scan) };
                    tickets.push((shard, self.issue(shard, operation)?));
                }
            }
        }
        for (shard, ticket) in tickets {
            let first = self.rows(ticket).await?;
            rows.extend(self.scan_rest(table, shard, scan, first).await?);
        }
        // Last, so that it does not change while the others are waited for.
        for shard in own {
            rows.extend(self.scan_shard(table, shard, scan).await?);
        }
        rows.sort_unstable_by(|(a, _), (b, _)| if scan.reverse { b.cmp(a) } else { a.cmp(b) });
        rows.truncate(scan.limit);
        Ok(rows)
    }
}

impl types::Transaction for Transaction {
    async fn get(&self, table: TableId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.count();
        let shard = match self.settled(|| self.source(table, key)).await? {
            Target::Own(own) => return self.branch(own)?.get(table, key),
            Target::Other(shard) => shard,
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
        while answer == Answer::Later {
            let key = Bytes::copy_from_slice(key);
            answer = self.issue(shard, Operation::Get { table, key })?.take().await?;
        }
        match answer {
            Answer::Value(value) => Ok(value.map(|value| self.keep(&value))),
            Answer::Rows(_) | Answer::Page(_) | Answer::Later | Answer::Done => Ok(None),
        }
    }

    fn prefetch(&self, keys: &[(TableId, &[u8])]) {
        let mut own = vec![false; self.own.len()];
        for (table, key) in keys {
            match self.source(*table, key) {
                Ok(Target::Own(at)) => own[at] = true,
                Ok(Target::Other(shard)) if check_key(*table, key).is_ok() => {
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
                Ok(Target::Other(_)) | Err(_) => {}
            }
        }
        // A branch is begun only where it has something to do. The store passes over what it has not.
        for at in (0..own.len()).filter(|at| own[*at]) {
            if let Ok(branch) = self.branch(at) {
                branch.prefetch(keys);
            }
        }
    }

    async fn scan(&self, table: TableId, scan: Scan<'_>) -> Result<Rows<'_>> {
        self.count();
        match self.hub.topology.homes(table, &scan) {
            None => Err(Rejected::UnknownTable { table }.into()),
            Some(Homes::One(shard)) => self.scan_shard(table, shard, scan).await,
            Some(Homes::Everywhere) => self.scan_shard(table, self.hub.nearest(), scan).await,
            Some(Homes::Mixed(shards)) => self.scan_mixed(table, &shards, scan).await,
            Some(Homes::Ordered(mut shards)) => {
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

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_or_delete(table, key, Some(value))
    }

    async fn insert(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.count();
        check_key(table, key)?;
        check_value(table, key, value)?;
        self.work(key.len() + value.len());
        // It reads that there is nothing.
        self.settled(|| self.source(table, key)).await?;
        let mut tickets = Vec::new();
        self.each_home(table, key, |target| match target {
            Target::Own(own) => self.branch(own)?.insert(table, key, value),
            Target::Other(shard) => {
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

    fn delete(&self, table: TableId, key: &[u8]) -> Result<()> {
        self.put_or_delete(table, key, None)
    }

    async fn add(&self, table: TableId, key: &[u8], delta: i64) -> Result<i64> {
        if let Target::Own(own) = self.settled(|| self.source(table, key)).await?
            && !matches!(self.hub.topology.home(table, key), Some(Home::Everywhere))
        {
            self.count();
            return self.branch(own)?.add(table, key, delta);
        }
        let sum = types::transaction::sum(table, key, self.get(table, key).await?, delta)?;
        self.put(table, key, &sum.to_le_bytes())?;
        Ok(sum)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.ended {
            self.hub.ask(Ask::Abandon(Rc::clone(&self.exchange)));
        }
    }
}
