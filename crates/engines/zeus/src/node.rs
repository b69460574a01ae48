//! A node's whole protocol: the parts, the events that reach them, and what holds between them.
//!
//! A state machine without I/O: each call takes the time, changes the state, and leaves effects. The driver sends them, calls
//! [`ZeusNode::tick`] at the time that [`ZeusNode::wakes_at`] names, and answers clients when [`ZeusNode::take_validated`]
//! says so.

use crate::commit::{
    CommitRefusal, FollowedPipelines, LocalCommit, Pipelines, ReadCommit, Validated,
};
use crate::granule::GranuleId;
use crate::message::{CopiedRecord, Inv, MessageBody, OwnershipAck, PartRequest, ZeusMessage};
use crate::options::{Effect, ZeusOptions};
use crate::ownership::{Ownership, Ticket, Want};
use crate::planted_bugs::ZeusPlantedBug;
use crate::read_only::Reader;
use crate::record::{Level, RequestKind};
use crate::recovery::{Barrier, DirectoryCopies};
use crate::redo::{Change, Redo};
use crate::rows::{ChangedRows, Rows};
use crate::scope::{Output, Placement, Scope};
use crate::version::Slot;
use crate::view::{Member, View};
use bytes::Bytes;
use shoal_types::{Epoch, NodeId, ShardId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node's part of the protocol.
#[derive(Debug)]
pub struct ZeusNode {
    node: NodeId,
    workers: u32,
    seed: u64,
    now: Time,
    options: ZeusOptions,
    placement: Placement,
    view: View,
    rows: Rows,
    ownership: Ownership,
    pipelines: Pipelines,
    followed: FollowedPipelines,
    barrier: Barrier,
    /// What had waited for the barrier of this epoch has gone on.
    went_past_barrier: bool,
    copies: DirectoryCopies,
    /// Until when the node's lease runs, on its clock.
    lease_end: Time,
    validated: Vec<Validated>,
    ready: Vec<Ticket>,
    output: Output,
    /// What the log on disk is to have of it.
    redo: Redo,
    /// The manager has admitted the process: before that, one that has restored what another had recorded does nothing.
    is_admitted: bool,
    /// The checkpoint that is restored, until the record comes that says where it began.
    awaited_checkpoint: Option<u64>,
    counters: NodeCounters,
}

/// How often things have happened at a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Messages of another epoch, which were dropped.
    pub foreign_epochs: u64,
    /// Messages that no correct node sends, which were dropped.
    pub bad_messages: u64,
    /// Slots of dead coordinators that were validated here.
    pub slots_replayed: u64,
    /// Directories that were copied from another node.
    pub directories_copied: u64,
    /// Directories that no node had, and that were rebuilt from what nodes know of their granules.
    pub directories_rebuilt: u64,
}

/// The node as its parts see it, beside the parts named first.
macro_rules! scope {
    ($node:ident) => {
        &mut Scope {
            node: $node.node,
            now: $node.now,
            options: &$node.options,
            placement: &$node.placement,
            view: &$node.view,
            has_passed_barrier: $node.barrier.is_passed(),
            copying: $node.copies.copying(),
            rebuilt: $node.copies.rebuilt(),
            rows: &mut $node.rows,
            redo: &mut $node.redo,
            output: &mut $node.output,
        }
    };
}

mod checkpoint;
mod restore;

impl ZeusNode {
    /// A node that has learned of no configuration, and is in none.
    #[must_use]
    pub fn new(
        node: NodeId,
        workers: u32,
        placement: Placement,
        options: ZeusOptions,
        seed: u64,
    ) -> ZeusNode {
        let redo = Redo::new(Arc::clone(&placement.topology), options.bugs);
        ZeusNode {
            node,
            workers,
            seed,
            now: Time::ZERO,
            options,
            placement,
            view: View::unknown(),
            rows: Rows::default(),
            ownership: Ownership::new(seed),
            pipelines: Pipelines::new(workers),
            followed: FollowedPipelines::default(),
            barrier: Barrier::default(),
            went_past_barrier: false,
            copies: DirectoryCopies::default(),
            lease_end: Time::ZERO,
            validated: Vec::new(),
            ready: Vec::new(),
            output: Output::default(),
            redo,
            is_admitted: true,
            awaited_checkpoint: None,
            counters: NodeCounters::default(),
        }
    }

    /// From now on its changes are recorded, for a log on disk: [`ZeusNode::take_redo`].
    pub fn record(&mut self) {
        self.redo.begin();
    }

    /// A new configuration. A node that was out, even without knowing it, forgets everything (rule Z10). An earlier one than
    /// is known is ignored.
    pub fn enter(&mut self, now: Time, view: View) {
        self.now = now;
        let is_live = view.is_live(self.node);
        if view.epoch > self.view.epoch {
            self.redo.end_part(&self.ownership, || Change::Entered(Arc::new(view.clone())));
            self.begin_epoch(view);
            self.redo.resume();
            if is_live {
                self.is_admitted = true;
                self.take_alone();
                self.repeat();
                self.finish();
            }
        } else if is_live {
            self.admit();
        }
    }

    /// What a new configuration changes by itself.
    fn begin_epoch(&mut self, view: View) {
        let now = self.now;
        let was_out = view.has_lost(self.node, &self.view);
        if was_out && !self.options.bugs.has(ZeusPlantedBug::KeepAfterRemoval) {
            self.forget();
        }
        let earlier = std::mem::replace(&mut self.view, view);
        let (node, view) = (self.node, self.view.clone());
        let is_dead = |other: NodeId| other != node && view.has_lost(other, &earlier);
        (self.barrier, self.went_past_barrier) = (Barrier::new(view.live()), false);
        let since = match self.options.bugs.has(ZeusPlantedBug::AddedWithoutCopy) {
            true => view.epoch,
            false => earlier.epoch,
        };
        let since = (!was_out).then_some(since);
        self.copies.enter_epoch(node, since, &view, now);
        if !view.is_live(node) {
            return;
        }
        self.pipelines.enter_epoch(view.epoch, now, is_dead);
        self.ownership.enter_epoch(scope!(self), is_dead);
        let scope: &Scope<'_> = scope!(self);
        self.followed.enter_epoch(scope, is_dead);
    }

    /// Takes the directories that no other live node could know.
    fn take_alone(&mut self) {
        let records =
            self.with_copies(|copies, scope, ownership| copies.take_alone(scope, ownership));
        self.ownership.take_copy(scope!(self), &self.pipelines, self.node, records);
    }

    /// Drops all that an earlier membership of the node knew.
    fn forget(&mut self) {
        let (node, placement) = (self.node, self.placement.clone());
        let empty = ZeusNode::new(node, self.workers, placement, self.options, self.seed);
        let (now, view) = (self.now, std::mem::replace(&mut self.view, View::unknown()));
        let (lease_end, counters) = (self.lease_end, self.counters);
        let (mut rows, redo) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.redo));
        rows.clear();
        let ZeusNode { is_admitted, awaited_checkpoint, .. } = *self;
        let kept = ZeusNode { now, view, lease_end, counters, rows, redo, ..empty };
        *self = ZeusNode { is_admitted, awaited_checkpoint, ..kept };
    }

    /// The node's lease runs until then, on its clock: without one it shows no rows.
    pub fn renew(&mut self, lease_end: Time) {
        self.lease_end = lease_end;
    }

    /// The tables have changed: their granules are placed so from now on. A table keeps its number and its division for ever.
    /// Those that are dropped stay placed; what the node has of their granules is freed once no slot of them is pending.
    pub fn place(&mut self, now: Time, placement: Placement) {
        self.now = now;
        let tables = Arc::clone(&placement.topology);
        if tables.tables() != self.placement.topology.tables() {
            self.redo.end_part(&self.ownership, || Change::Placed(tables));
            self.redo.resume();
        }
        self.set_placement(placement);
        self.ownership.note_dropped();
        self.ownership.free_dropped(scope!(self));
    }

    fn set_placement(&mut self, mut placement: Placement) {
        let dropped = self.placement.layout.dropped().count();
        placement.layout.keep_dropped(&self.placement.layout);
        self.placement = placement;
        let has_dropped = self.placement.layout.dropped().count() > dropped;
        self.redo.place(&self.placement.topology, has_dropped);
    }

    /// Where granules have their directories.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Whether a transaction that was born then may use the granule at this level, now.
    #[must_use]
    pub fn holds(&self, now: Time, granule: &GranuleId, level: Level, born: Time) -> bool {
        self.ownership.has(self.node, now, self.options.hold, granule, level, born)
    }

    /// From now on it is noted which granules change, for a checker.
    pub fn watch(&mut self) {
        self.rows.watch();
    }

    /// The granules that have changed since this was asked last, if that is noted.
    pub fn take_changed(&mut self) -> BTreeMap<GranuleId, ChangedRows> {
        self.rows.take_changed()
    }

    /// Messages of another node, in this order. Those of other epochs are dropped; what is not answered is sent again. What
    /// they make possible is done after the last.
    pub fn receive(
        &mut self,
        now: Time,
        from: NodeId,
        messages: impl IntoIterator<Item = ZeusMessage>,
    ) {
        self.now = now;
        let mut is_any = false;
        for message in messages {
            is_any |= self.receive_one(from, message);
        }
        if is_any {
            self.finish();
        }
    }

    /// Says whether the message is one to take.
    fn receive_one(&mut self, from: NodeId, message: ZeusMessage) -> bool {
        let is_old = message.epoch < self.view.epoch;
        let is_in = self.is_admitted && message.epoch == self.view.epoch
            || (is_old && self.options.bugs.has(ZeusPlantedBug::HearOldEpoch));
        if !is_in || !self.view.is_live(from) || !self.view.is_live(self.node) {
            self.counters.foreign_epochs += 1;
            return false;
        }
        if from == self.node || !self.is_plausible(&message.body) {
            self.counters.bad_messages += 1;
            return false;
        }
        self.take(from, message.body);
        // Before the next one: a driver is invalid once it has its own `Inv`, and would drive a second request besides.
        self.take_own();
        true
    }

    /// Whether the message names granules and shards that there are, and numbers that can have been reached.
    fn is_plausible(&self, body: &MessageBody) -> bool {
        let has_shard = |shard: ShardId| (shard.0 as usize) < self.view.directories.len();
        match body {
            MessageBody::Request(request) => {
                self.is_granule(&request.granule) && is_reached(request.as_of.version)
            }
            MessageBody::Nack { granule, record, .. } | MessageBody::Val { granule, record } => {
                self.is_granule(granule) && is_reached(record.o_ts.version)
            }
            MessageBody::Recruit { granule, o_ts } => {
                self.is_granule(granule) && is_reached(o_ts.version)
            }
            MessageBody::PartRequest(request) => self.is_plausible_part(request),
            MessageBody::Part { request, part } => {
                self.is_plausible_part(request) && is_reached(part.clock.0)
            }
            MessageBody::Inv(inv) => {
                self.is_plausible_inv(inv) && self.ownership.is_plausible_replaced(self.node, inv)
            }
            MessageBody::Ack(OwnershipAck { inv, rows }) => {
                let is_mine = self.view.member(self.node) == Some(inv.requested.by);
                let was_granted =
                    || self.ownership.was_granted(&inv.granule, inv.number, inv.record.o_ts);
                let was_made =
                    !is_mine || (self.ownership.has_requested(inv.number) && !was_granted());
                let has_clock = rows.as_ref().is_none_or(|rows| is_reached(rows.clock.0));
                self.is_plausible_inv(inv) && was_made && has_clock
            }
            MessageBody::ReplicationInv(inv) => {
                let mut writes = inv.writes.iter();
                writes.all(|writes| self.is_granule(&writes.granule))
                    && inv.pipeline.coordinator != self.as_coordinator()
                    && is_reached(inv.slot.0)
                    && is_reached(inv.clock.0)
            }
            MessageBody::ReplicationVal { pipeline, slot } => {
                pipeline.coordinator != self.as_coordinator() && is_reached(slot.0)
            }
            MessageBody::ReplicationAck { slot, .. } => is_reached(slot.0),
            MessageBody::CopyRequest { shard, .. }
            | MessageBody::CopyQuery { shard }
            | MessageBody::CopyDone { shard } => has_shard(*shard),
            MessageBody::Copy(copy) => {
                let mut records = copy.records.iter();
                has_shard(copy.shard)
                    && records.all(|CopiedRecord { granule, record, pending, .. }| {
                        let is_inv =
                            |inv: &Inv| self.is_plausible_inv(inv) && inv.granule == *granule;
                        // Of a table that was dropped before this node knew of it, nothing is kept.
                        let was_dropped = self.placement.layout.was_dropped(granule.family);
                        was_dropped
                            || self.is_granule(granule)
                                && self.placement.shard_of(granule) == copy.shard
                                && is_reached(record.o_ts.version)
                                && pending.as_ref().is_none_or(is_inv)
                    })
            }
            MessageBody::Replayed | MessageBody::ReplayedHeard => true,
        }
    }

    fn is_plausible_inv(&self, inv: &Inv) -> bool {
        self.is_granule(&inv.granule) && is_reached(inv.record.o_ts.version)
    }

    fn is_plausible_part(&self, request: &PartRequest) -> bool {
        self.is_granule(&request.granule) && is_reached(request.o_ts.version)
    }

    fn is_granule(&self, granule: &GranuleId) -> bool {
        self.placement.layout.is_granule(granule)
    }
}

/// Counters of records, slots and clocks begin with 0 and are counted up one by one.
fn is_reached(number: u64) -> bool {
    number < 1 << 62
}

impl ZeusNode {
    fn take(&mut self, from: NodeId, body: MessageBody) {
        let is_dropped = |granule: &GranuleId| self.placement.layout.is_dropped(granule.family);
        if body.granule().is_some_and(is_dropped) {
            // The sender learns of the drop, too: until then, it must not be given the granule as one that is new.
            return;
        }
        match body {
            MessageBody::Request(request) => {
                self.ownership.on_request(scope!(self), from, &request);
            }
            MessageBody::Nack { granule, record, is_pending } => {
                self.ownership.on_nack(scope!(self), &granule, record, is_pending);
            }
            MessageBody::Inv(inv) => {
                self.ownership.on_inv(scope!(self), &self.pipelines, from, inv);
            }
            MessageBody::Ack(ack) => self.ownership.on_ack(scope!(self), from, ack),
            MessageBody::PartRequest(request) => {
                self.ownership.on_part_request(scope!(self), from, request);
            }
            MessageBody::Part { request, part } => {
                self.ownership.on_part(scope!(self), from, &request, part);
            }
            MessageBody::Val { granule, record } => {
                self.ownership.on_val(scope!(self), &granule, record);
            }
            MessageBody::ReplicationInv(inv) => {
                self.followed.on_inv(scope!(self), &mut self.ownership, from, inv);
            }
            MessageBody::ReplicationAck { pipeline, slot } => {
                match pipeline.coordinator == self.as_coordinator() {
                    true => self.pipelines.on_ack(scope!(self), from, pipeline, slot),
                    false => self.followed.on_ack(scope!(self), from, pipeline, slot),
                }
            }
            MessageBody::ReplicationVal { pipeline, slot } => {
                self.followed.on_val(scope!(self), &mut self.ownership, pipeline, slot);
            }
            MessageBody::Replayed => self.barrier.on_replayed(scope!(self), from),
            MessageBody::ReplayedHeard => self.barrier.on_heard(from),
            MessageBody::CopyRequest { shard, after } => {
                let (copies, ownership) = (&self.copies, &self.ownership);
                copies.on_request(scope!(self), ownership, from, shard, after);
            }
            MessageBody::CopyQuery { shard } => self.copies.on_query(scope!(self), from, shard),
            MessageBody::CopyDone { shard } => self.copies.on_done(from, shard),
            MessageBody::Copy(copy) => {
                let records = self.with_copies(|copies, scope, ownership| {
                    copies.on_copy(scope, ownership, from, copy)
                });
                self.counters.directories_copied += u64::from(records.is_some());
                let records = records.unwrap_or_default();
                self.ownership.take_copy(scope!(self), &self.pipelines, from, records);
            }
            MessageBody::Recruit { granule, o_ts } => {
                self.ownership.on_recruit(scope!(self), &granule, o_ts);
            }
        }
    }

    fn with_copies<T>(
        &mut self,
        f: impl FnOnce(&mut DirectoryCopies, &mut Scope<'_>, &Ownership) -> T,
    ) -> T {
        let mut copies = std::mem::take(&mut self.copies);
        let rebuilt = copies.rebuilt().len();
        let made = f(&mut copies, scope!(self), &self.ownership);
        let rebuilt = copies.rebuilt().len().saturating_sub(rebuilt);
        self.counters.directories_rebuilt += rebuilt as u64;
        self.copies = copies;
        made
    }

    /// This node in its present membership; of no epoch while it is out.
    fn as_coordinator(&self) -> Member {
        let none = Member { node: self.node, since: Epoch(0) };
        self.view.member(self.node).unwrap_or(none)
    }

    /// Time has passed: what was not answered is sent again, and holds end. Spurious calls are legal.
    pub fn tick(&mut self, now: Time) {
        self.now = now;
        if !self.view.is_live(self.node) || !self.is_admitted {
            return;
        }
        self.repeat();
        self.ownership.tick(scope!(self), &self.pipelines);
        self.ownership.restore_degree(scope!(self));
        self.finish();
        let next = self.wakes_at();
        assert!(
            next.is_none_or(|at| at > now),
            "{} ticks at {now}, and is due at {next:?}",
            self.node
        );
    }

    /// Sends again what was not answered, beside what the ownership protocol does.
    fn repeat(&mut self) {
        self.pipelines.repeat(scope!(self));
        self.followed.repeat_replays(scope!(self));
        self.followed.remind(scope!(self));
        self.with_copies(|copies, scope, _| copies.repeat(scope));
    }

    /// Takes the messages of the node to itself, and what has become possible by it.
    fn finish(&mut self) {
        loop {
            self.take_own();
            let left = self.pipelines.validate(scope!(self), &mut self.validated);
            self.counters.slots_replayed +=
                self.followed.validate_replays(scope!(self), &mut self.ownership);
            if self.followed.replays() == 0 {
                self.barrier.notify(scope!(self));
            }
            self.ownership.settle(scope!(self), &self.pipelines, &left);
            if self.has_passed_barrier() && !std::mem::replace(&mut self.went_past_barrier, true) {
                self.ownership.pass_barrier(scope!(self), &self.pipelines);
            }
            if self.output.to_itself.is_empty() {
                break;
            }
        }
        self.ownership.free_dropped(scope!(self));
        let ready = self.ownership.take_ready(self.node, self.now, self.options.hold);
        self.ready.extend(ready);
    }

    /// Takes the messages of the node to itself.
    fn take_own(&mut self) {
        while let Some(body) = self.output.to_itself.pop_front() {
            self.take(self.node, body);
        }
    }

    /// Asks the nodes that are new to the directory of the shard whether they have copied it, until they have.
    pub fn ask_copied(
        &mut self,
        now: Time,
        shard: ShardId,
        nodes: impl IntoIterator<Item = NodeId>,
    ) {
        self.now = now;
        if self.view.is_live(self.node) {
            let new = nodes.into_iter().filter(|node| self.view.is_directory_node(shard, *node));
            new.for_each(|node| self.copies.ask_copied(shard, node, now));
        }
    }

    /// Whether the node has the directory of the shard, as far as that is known here, or has none to copy.
    #[must_use]
    pub fn has_copied(&self, shard: ShardId, node: NodeId) -> bool {
        let view = &self.view;
        let has_directory = (shard.0 as usize) < view.directories.len();
        match has_directory && view.is_directory_node(shard, node) {
            true if node == self.node => {
                self.redo.are_durable() && !self.copies.copying().contains(&shard)
            }
            true => self.copies.has_copied(shard, node),
            false => true,
        }
    }

    /// A transaction wants granules, all together; said again, it replaces what the transaction wanted. A node that is out
    /// of the configuration ignores it, since it forgets all wants when it comes in.
    pub fn want(&mut self, now: Time, ticket: Ticket, want: Want) {
        self.now = now;
        if !self.view.is_live(self.node) {
            return;
        }
        self.ownership.want(scope!(self), ticket, want);
        self.finish();
    }

    /// A transaction wants nothing any more.
    pub fn release(&mut self, now: Time, ticket: Ticket) {
        self.now = now;
        let Some(want) = self.ownership.release(ticket) else { return };
        self.ownership.settle(scope!(self), &self.pipelines, want.granules.keys());
        self.finish();
    }

    /// Whether the node has all that the transaction wants, now.
    #[must_use]
    pub fn has_all(&self, ticket: Ticket) -> bool {
        self.ownership.has_all(self.node, self.now, self.options.hold, ticket)
    }

    /// Asks the directory for a change of levels that no transaction wants: a reader leaves, or is dropped by the owner.
    pub fn request(&mut self, now: Time, granule: &GranuleId, kind: RequestKind) {
        self.now = now;
        if !self.view.is_live(self.node) {
            return;
        }
        self.ownership.request(scope!(self), granule, kind, now);
        self.finish();
    }

    /// Commits a transaction locally, and replicates it. It may be revealed once it is [validated](ZeusNode::take_validated).
    ///
    /// # Errors
    /// [`CommitRefusal`], if it cannot be committed now; nothing has happened.
    ///
    /// # Panics
    /// If it writes nothing, or there is no such worker.
    pub fn commit(&mut self, now: Time, commit: LocalCommit) -> Result<Slot, CommitRefusal> {
        self.now = now;
        let (worker, tag) = (commit.worker, commit.tag);
        let slot = self.pipelines.commit(scope!(self), &mut self.ownership, commit)?;
        if self.options.bugs.has(ZeusPlantedBug::ReplyAtLocalCommit) {
            self.validated.push(Validated { worker, slot, tag });
        }
        self.finish();
        Ok(slot)
    }

    /// Commits a transaction that writes nothing and has read rows which are committed locally only. It may be answered at once, or
    /// once its tag is [validated](ZeusNode::take_validated); until then nothing that it has read moves (rule Z4).
    ///
    /// # Errors
    /// [`CommitRefusal`], if it cannot be committed now; nothing has happened.
    ///
    /// # Panics
    /// If it writes something, or there is no such worker.
    pub fn commit_read(
        &mut self,
        now: Time,
        commit: &LocalCommit,
    ) -> Result<ReadCommit, CommitRefusal> {
        self.now = now;
        self.pipelines.commit_read(scope!(self), &self.ownership, commit)
    }

    /// The node's granules as a read-only transaction sees them at this time.
    #[must_use]
    pub fn reader(&self, now: Time) -> Reader<'_> {
        let bugs = self.options.bugs;
        let has_lease = now < self.lease_end && self.view.is_live(self.node)
            || bugs.has(ZeusPlantedBug::ReadWithoutLease);
        let (node, ownership, rows) = (self.node, &self.ownership, &self.rows);
        Reader { node, ownership, rows, has_lease, shows_own: false, bugs }
    }

    /// The transactions that were validated since this was asked last.
    pub fn take_validated(&mut self) -> Vec<Validated> {
        std::mem::take(&mut self.validated)
    }

    /// The transactions that have had all they want since this was asked last. One that has lost something again when it goes
    /// on has to say anew what it wants.
    pub fn take_ready(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.ready)
    }

    /// Whether a node's copy of a directory has ended since this was asked last, so that [`has_copied`](ZeusNode::has_copied)
    /// may say something else.
    pub fn take_copied(&mut self) -> bool {
        // What it says leaves the node, and so has to be durable.
        self.redo.are_durable() && self.copies.take_news()
    }

    /// The record of what has changed since this was asked last, for the log on disk, if anything has. What is left to be done is not
    /// to be done before the record is durable.
    pub fn take_redo(&mut self) -> Option<Bytes> {
        let directories = (self.copies.copying(), self.copies.rebuilt());
        self.redo.take(&self.ownership, self.barrier.state(), directories)
    }

    /// How many records were made, and how many of them are durable.
    #[must_use]
    pub fn records(&self) -> (u64, u64) {
        self.redo.counts()
    }

    /// So many more records are durable.
    ///
    /// # Panics
    /// If fewer were made.
    pub fn recorded(&mut self, now: Time, records: u64) {
        self.now = now;
        self.redo.recorded(records);
        if self.view.is_live(self.node) && self.is_admitted {
            self.finish();
        }
    }

    /// What is to be done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.output.effects)
    }

    /// When [`tick`](ZeusNode::tick) is to be called at the latest; `None` if only an event can change something.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Time> {
        if !self.view.is_live(self.node) || !self.is_admitted {
            return None;
        }
        let parts = [
            self.ownership.wakes_at(),
            self.pipelines.wakes_at(),
            self.followed.wakes_at(),
            self.barrier.wakes_at().filter(|_| self.followed.replays() == 0),
            self.copies.wakes_at(),
        ];
        parts.into_iter().flatten().min()
    }

    /// Whether all granules of a shard whose directory this node leads are known to have had their degree, in this epoch. Looks at some of
    /// them, and so may have to be asked again.
    pub fn is_whole(&mut self, now: Time, shard: ShardId) -> bool {
        self.now = now;
        self.is_admitted
            && self.view.is_live(self.node)
            && self.redo.are_durable()
            && self.ownership.is_whole(scope!(self), shard)
    }

    /// Whether all live nodes have replayed what they had applied of dead coordinators.
    #[must_use]
    pub fn has_passed_barrier(&self) -> bool {
        self.barrier.is_passed()
    }

    /// The node itself.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.node
    }

    /// The newest configuration that the node has received.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What the node knows of granules.
    #[must_use]
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// What its workers have committed and not validated.
    #[must_use]
    pub fn pipelines(&self) -> &Pipelines {
        &self.pipelines
    }

    /// What it follows.
    #[must_use]
    pub fn followed(&self) -> &FollowedPipelines {
        &self.followed
    }

    /// The rows of the granules that it holds.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Whether it is still copying a directory.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        !self.copies.copying().is_empty()
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> NodeCounters {
        self.counters
    }
}
