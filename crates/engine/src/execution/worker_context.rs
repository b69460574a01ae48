//! What the futures of a worker and its engine share.

use super::admission::Admission;
use super::attempt::Attempt;
use super::leaderships::{Leadership, Leaderships};
use super::limits::{Limits, TURN};
use super::local_routes::LocalRoutes;
use super::own_branches::OwnBranches;
use super::remote_branches::RemoteBranches;
use super::sequences::Sequences;
use super::session_pool::{SessionPool, StoreBranch};
use super::slot::ResultSlot;
use super::slot_pool::SlotPool;
use super::stage_times::{StageMarks, TIMED_EVERY};
use super::tables::KnownTables;
use super::tasks::LocalWakeups;
use crate::client::{Relay, ReplyToClient};
use crate::hot_keys::HotKeys;
use crate::latency::Latencies;
use crate::planted_bugs::PlantedBug;
use crate::slow::Slows;
use bytes::Bytes;
use shoal_cluster::manager::{Configuration, Incarnation};
use shoal_cluster::topology::{Home, Homes, TableMap, Topology};
use shoal_store::{Size, Store};
use shoal_types::procedure::{Footprint, Procedures};
use shoal_types::{
    Aborted, Conflict, Epoch, Error, NodeId, Random, Rejected, RequestId, Result, Scan, ShardId,
    TableId, Time, WorkerPlace,
};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// State that the futures of a worker share with its engine. Belongs to one worker.
pub struct WorkerContext {
    /// Where this worker is.
    pub place: WorkerPlace,
    /// The shards, and the nodes and tables with which this process began.
    pub topology: Arc<Topology>,
    /// How many nodes there are, or were, by the last configuration.
    nodes: Cell<usize>,
    /// The tables that this worker serves, and those that were dropped.
    pub(crate) tables: KnownTables,
    /// The procedures that clients can call by name.
    pub(crate) procedures: Arc<Procedures>,
    /// All shards; first those that this node leads at first, then the others of which it has a replica at first.
    pub own: Vec<LocalShard>,
    /// Where operations are done.
    pub(crate) operations_at: OperationSite,
    /// Which of the own shards does the operations on keys that begin alike.
    pub(crate) local_routes: LocalRoutes,
    /// The leader of each shard, and which of them this worker serves.
    pub leaderships: Leaderships,
    /// How transactions run.
    pub limits: Limits,
    /// How many transactions may begin, and which wait for it.
    pub admission: Rc<Admission>,
    /// Transactions that took long.
    pub slows: Slows,
    /// How long all of them took.
    pub latencies: RefCell<Latencies>,
    /// The keys that they use most.
    pub hot_keys: HotKeys,
    /// The numbers of this worker's transactions.
    pub sequences: RefCell<Sequences>,
    /// This worker's source of randomness.
    pub random: RefCell<Random>,
    /// The time of the step that is under way.
    pub now: Cell<Time>,
    /// What times stages within a step, where the host gives it.
    stage_clock: OnceCell<Box<dyn Fn() -> Time>>,
    /// How many keys the step that is under way has locked, validated, installed or rolled back.
    step_keys: Cell<u64>,
    /// How many the longest step has.
    step_keys_most: Cell<u64>,
    /// How many all steps have.
    keys: Cell<u64>,
    /// The epoch that is open for new work.
    pub epoch: Cell<Epoch>,
    /// What the engine notes of reads before they are shown.
    pub reads: Option<Rc<dyn ReadsToReveal>>,
    /// Whether the engine executes procedures that declare what they touch, instead of the coordinator.
    pub takes_declared: Cell<bool>,
    /// Whether the engine takes transactions on one own shard as [`LocalSubmission`].
    pub takes_local: Cell<bool>,
    /// Where transactions whose bodies are done wait for their outcomes.
    pub(crate) outcomes: SlotPool<Result<()>>,
    pub(crate) wakeups: Rc<LocalWakeups>,
    declared: RefCell<VecDeque<Rc<DeclaredCall>>>,
    asks: RefCell<VecDeque<EngineRequest>>,
    local_commands: RefCell<VecDeque<LocalCommand>>,
}

/// What a worker's context is made of.
pub struct WorkerSetup {
    /// Where the worker is.
    pub place: WorkerPlace,
    /// Nodes, shards and tables.
    pub topology: Arc<Topology>,
    /// The procedures that clients can call by name.
    pub procedures: Arc<Procedures>,
    /// The stores of all shards on its node, in the order of [`WorkerContext::own`].
    pub stores: Vec<(ShardId, Arc<Store>)>,
    /// Where operations are done.
    pub operations_at: OperationSite,
    /// The epoch in which it begins.
    pub epoch: Epoch,
    /// How transactions run.
    pub limits: Limits,
    /// What the worker draws its randomness from.
    pub seed: u64,
    /// What the engine notes of reads before they are shown; `None` where all that can be read is committed.
    pub reads: Option<Rc<dyn ReadsToReveal>>,
}

/// Where the operations of transactions are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationSite {
    /// At the leader of the shard: in its store, or by requests to it.
    Leader,
    /// At the engine of the worker that runs the transaction, which answers them when it can: on any node.
    Engine,
}

/// What an engine does with reads of own shards before an open transaction shows them to its client.
pub trait ReadsToReveal {
    /// Notes what some reads of a branch depend on. Returns the place of the read after the last of these.
    ///
    /// # Errors
    /// Where they may never be shown, since the transaction cannot commit.
    fn note(
        &self,
        worker_context: &WorkerContext,
        transaction: &RemoteBranches,
        reads: UnnotedReads<'_>,
    ) -> Result<usize>;
}

/// Reads of a branch on an own shard that are about to be shown.
pub struct UnnotedReads<'a> {
    /// The place of the shard in [`WorkerContext::own`].
    pub own: usize,
    /// The branch that reads.
    pub branch: &'a StoreBranch,
    /// So many of its reads were noted before.
    pub from: usize,
    /// No more of them than so many are to be noted.
    pub most: usize,
}

/// A shard takes no longer than this for a slice of a transaction, with all that it does in between.
const SLICE_WAIT: Duration = Duration::from_millis(40);

/// To validate so many reads takes about as long as to lock a key that is new.
const READS_PER_KEY: usize = 16;

/// A shard, and the place for a copy of it on this node.
pub struct LocalShard {
    /// The shard that is kept.
    pub shard: ShardId,
    /// Sessions of its store.
    pub sessions: Rc<SessionPool>,
}

/// What a configuration changes for a worker.
#[derive(Debug)]
pub struct ConfigurationNews {
    /// The shards in which another leadership has begun.
    pub moved: Vec<ShardId>,
    /// The places of shards of which the node has a replica, and had none.
    pub given: Vec<usize>,
    /// The places of shards of which the node has no replica, and had one, or may have had one in a former process.
    pub taken: Vec<usize>,
}

/// What a future wants of the engine.
pub enum EngineRequest {
    /// Operations for other shards have gathered.
    Send(Rc<RemoteBranches>),
    /// Certify and commit the transaction.
    Commit(Submission),
    /// The same for one that touches one own shard, of an engine that [takes](WorkerContext::takes_local) it so.
    CommitLocal(LocalSubmission),
    /// A transaction ended without asking to: notify its participants.
    Abandon(Rc<RemoteBranches>),
    /// Fill the slot once all that an open transaction has read may be revealed, or never will be. Its reads of own shards
    /// are noted.
    Reveal {
        /// The sender of the request.
        remote_branches: Rc<RemoteBranches>,
        /// What to fill; with an error where it never may.
        slot: Rc<ResultSlot<Result<()>>>,
    },
}

/// A procedure that the engine is asked to execute by its footprint.
#[derive(Debug)]
pub struct DeclaredCall {
    /// The transaction that waits for it, and does nothing else.
    pub remote_branches: Rc<RemoteBranches>,
    /// The name under which the procedure is registered.
    pub procedure: Box<str>,
    /// What it is called with.
    pub arguments: Bytes,
    /// What it declares.
    pub footprint: Footprint,
    /// The row in which its result is left, in the same transaction.
    pub request: Option<DeclaredRow>,
    /// What to fill: with the results of the shards that took part, in their order; or with nothing, where the engine does
    /// not execute it, and nothing has happened.
    pub results: ResultSlot<Result<Option<Vec<Bytes>>>>,
}

/// The row of a call in the table of requests.
#[derive(Debug, Clone)]
pub struct DeclaredRow {
    /// The call.
    pub id: RequestId,
    /// The table of requests.
    pub table: TableId,
    /// The key of the call's session.
    pub key: Bytes,
    /// The key of the mark up to which rows were dropped, where the rows decide whether the call may take effect; `None` where
    /// the leader that executes it remembers what has begun.
    pub mark: Option<Bytes>,
}

/// What a future wants that is the same for all engines.
pub(crate) enum LocalCommand {
    /// Fill the slot at this time.
    Sleep {
        /// The time at which to fill the slot.
        until: Time,
        /// What to fill.
        slot: Rc<ResultSlot<()>>,
    },
    /// Answer a client.
    Reply(ReplyToClient),
    /// Pass something on between a client and the node that serves it.
    Relay {
        /// The other node.
        to: NodeId,
        /// What to pass on.
        relay: Relay,
    },
}

/// A transaction whose body is done.
pub struct Submission {
    /// The branches on shards of other nodes.
    pub remote_branches: Rc<RemoteBranches>,
    /// The branches on shards that this node serves.
    pub branches: OwnBranches,
    /// What is to become of it.
    pub ending: BodyEnd,
}

/// A transaction whose body is done, and which touches one shard that this node serves: so little of it that a step can
/// certify it.
pub struct LocalSubmission {
    /// What is kept of the transaction until it is answered.
    pub attempt: Attempt,
    /// The place of the shard in [`WorkerContext::own`].
    pub own: usize,
    /// The branch on it.
    pub branch: StoreBranch,
    /// What is to become of it.
    pub ending: BodyEnd,
}

/// The error of what needs a shard that its new leader does not serve yet.
pub fn recovering(shard: ShardId) -> Error {
    Aborted::from(Conflict::Recovering { shard }).into()
}

/// What to do with a transaction whose body is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// Commit it.
    Commit,
    /// Write nothing, but prove what it read.
    Confirm,
}

impl WorkerContext {
    /// What a worker's futures share. No shard is served yet.
    pub fn new(setup: WorkerSetup) -> Rc<WorkerContext> {
        let WorkerSetup {
            place,
            topology,
            stores,
            operations_at,
            epoch,
            limits,
            seed,
            reads,
            procedures,
        } = setup;
        let own = stores.into_iter().map(|(shard, store)| LocalShard {
            shard,
            sessions: SessionPool::new(store, limits.step_keys_max),
        });
        let own: Vec<LocalShard> = own.collect();
        let shards: Vec<ShardId> = own.iter().map(|own| own.shard).collect();
        let leaderships = Leaderships::new(place.node, &topology, epoch, &shards);
        let tables = KnownTables::new(Arc::clone(topology.tables()), limits.faults);
        let wakeups = Rc::<LocalWakeups>::default();
        Rc::new(WorkerContext {
            place,
            own,
            operations_at,
            local_routes: LocalRoutes::default(),
            leaderships,
            admission: Admission::new(&limits, place.node, &wakeups),
            slows: Slows::new(limits.slow_after),
            latencies: RefCell::default(),
            hot_keys: HotKeys::new(seed),
            sequences: RefCell::default(),
            random: RefCell::new(Random::new(seed)),
            now: Cell::default(),
            stage_clock: OnceCell::new(),
            step_keys: Cell::default(),
            step_keys_most: Cell::default(),
            keys: Cell::default(),
            epoch: Cell::new(epoch),
            reads,
            takes_declared: Cell::new(false),
            takes_local: Cell::new(false),
            outcomes: SlotPool::new(&wakeups, limits.faults),
            wakeups,
            declared: RefCell::default(),
            asks: RefCell::default(),
            local_commands: RefCell::default(),
            tables,
            nodes: Cell::new(topology.nodes().len()),
            topology,
            procedures,
            limits,
        })
    }

    /// The table of this name.
    ///
    /// # Errors
    /// [`Rejected::UnknownTableName`].
    pub(crate) fn table(&self, name: &str) -> Result<TableId> {
        let table = self.tables.named(name);
        Ok(table.ok_or_else(|| Rejected::UnknownTableName { name: name.into() })?)
    }

    /// Asks the engine for something; it answers within this step, or later.
    pub fn ask(&self, ask: EngineRequest) {
        self.asks.borrow_mut().push_back(ask);
    }

    /// Asks the engine to execute a procedure.
    pub(crate) fn declare(&self, call: &Rc<DeclaredCall>) {
        self.declared.borrow_mut().push_back(Rc::clone(call));
    }

    /// The procedure that the engine was asked first to execute.
    pub fn next_declared(&self) -> Option<Rc<DeclaredCall>> {
        self.declared.borrow_mut().pop_front()
    }

    /// The shard or shards of a key.
    ///
    /// # Errors
    /// Where this worker does not know the table.
    pub fn home_of(&self, table: TableId, key: &[u8]) -> Result<Home> {
        self.tables.home(table, key)
    }

    /// The shards that have rows of a scan.
    ///
    /// # Errors
    /// Where this worker does not know the table.
    pub fn homes_of(&self, table: TableId, scan: &Scan<'_>) -> Result<Homes> {
        self.tables.homes(table, scan)
    }

    /// The shard at this place does the operations on a key: notes it for the keys of which that is known by how they begin.
    pub(super) fn note_route(&self, table: TableId, key: &[u8], own: usize) {
        if let Some(prefix_bytes) = self.tables.deciding_prefix(table) {
            self.local_routes.note(table, key, prefix_bytes, own);
        }
    }

    /// The tables that this worker knows.
    pub fn known_tables(&self) -> Arc<TableMap> {
        self.tables.map()
    }

    /// What was asked first.
    pub(crate) fn next_ask(&self) -> Option<EngineRequest> {
        self.asks.borrow_mut().pop_front()
    }

    /// Has the runtime do something, within this step.
    pub(crate) fn local_command(&self, local_command: LocalCommand) {
        self.local_commands.borrow_mut().push_back(local_command);
    }

    /// What is to be done first.
    pub(crate) fn next_local_command(&self) -> Option<LocalCommand> {
        self.local_commands.borrow_mut().pop_front()
    }

    /// The place of a shard that this node serves.
    #[inline]
    pub fn own(&self, shard: ShardId) -> Option<usize> {
        self.leaderships.served(shard)
    }

    /// From now on, or no longer, this node serves the shard at this place.
    pub fn serve(&self, at: usize, serves: bool) {
        self.leaderships.serve(self.own[at].shard, serves);
        self.local_routes.forget();
        self.admission.serve(self.leaderships.coordinates());
    }

    /// Takes over the leaders, and which process of this node is meant.
    pub fn configured(
        &self,
        configuration: &Configuration,
        incarnation: Incarnation,
    ) -> ConfigurationNews {
        let is_first = self.leaderships.incarnation() == Incarnation::default();
        if is_first {
            self.sequences.borrow_mut().begin_instance(incarnation);
        }
        let held = |own: &LocalShard| self.leaderships.holds(own.shard);
        let before: Vec<bool> = self.own.iter().map(held).collect();
        let moved = self.leaderships.follow(configuration, incarnation);
        if self.leaderships.coordinates() {
            self.admission.serve(true);
        }
        let places = self.own.iter().zip(before).enumerate();
        let mut news = ConfigurationNews { moved, given: Vec::new(), taken: Vec::new() };
        for (at, (own, was_held)) in places {
            match (held(own), was_held) {
                (true, true) if !is_first => {}
                (true, _) => news.given.push(at),
                // At first, the streams of a former process may have brought something of it.
                (false, true) => news.taken.push(at),
                (false, false) if is_first => news.taken.push(at),
                (false, false) => {}
            }
        }
        let stores = self.own.iter().enumerate().filter(|(_, own)| held(own));
        let stores = stores.map(|(at, own)| (at, own.sessions.store(), news.given.contains(&at)));
        self.tables.follow(configuration.topology.tables(), stores);
        self.nodes.set(self.nodes.get().max(configuration.nodes.len()));
        self.local_routes.forget();
        news
    }

    /// Whether the cluster has, or had, a node of this number, as far as this worker knows.
    pub fn is_node(&self, node: NodeId) -> bool {
        (node.0 as usize) < self.nodes.get()
    }

    /// The node has no replica of the shard at this place any more, and no worker of it uses one: its rows go.
    pub fn release(&self, at: usize) {
        self.tables.release(at, self.own[at].sessions.store());
    }

    /// The leader of a shard, as far as this worker knows; perhaps this node, and it recovers it.
    pub fn leader(&self, shard: ShardId) -> NodeId {
        self.leaderships.leader(shard).node
    }

    /// Checks that this node serves a shard, in that leadership.
    ///
    /// # Errors
    /// [`Aborted::NotServing`] where the leadership has ended; a conflict while the node recovers the shard.
    pub(crate) fn check_leadership(&self, shard: ShardId, leadership: Leadership) -> Result<()> {
        if self.leaderships.own_leadership(shard) != Some(leadership) {
            Err(Aborted::NotServing { node: self.place.node })?;
        }
        if self.operations_at == OperationSite::Engine {
            return Ok(());
        }
        self.own(shard).map(drop).ok_or_else(|| recovering(shard))
    }

    /// Does the shard take part in the open epoch? A worker that has learned of the epoch, and not yet of
    /// its configuration, does not know.
    pub fn takes_part(&self, shard: ShardId) -> bool {
        self.leaderships.configured() >= self.epoch.get() && !self.leaderships.is_out(shard)
    }

    /// May a transaction of the open epoch need the shard?
    ///
    /// # Errors
    /// [`Aborted::ShardOut`] where it takes no part.
    pub(crate) fn check_in(&self, shard: ShardId) -> Result<()> {
        match self.leaderships.is_out(shard) && !self.limits.faults.has(PlantedBug::ServeWhileOut) {
            true => Err(Aborted::ShardOut { shard }.into()),
            false => Ok(()),
        }
    }

    /// May the shard's leader draw clocks in the open epoch?
    ///
    /// # Errors
    /// [`Aborted::ShardOut`] where it takes no part, [`Conflict::Recovering`] where that is not known.
    pub fn check_takes_part(&self, shard: ShardId) -> Result<()> {
        self.check_in(shard)?;
        match self.takes_part(shard) || self.limits.faults.has(PlantedBug::ServeWhileOut) {
            true => Ok(()),
            false => Err(recovering(shard)),
        }
    }

    /// A shard that this node serves, or if there is none, its home shard.
    pub fn nearest(&self) -> ShardId {
        let served = self.own.iter().find(|own| self.own(own.shard).is_some());
        served.map_or(self.home(), |own| own.shard)
    }

    /// The home shard of this worker's transactions: the first of which the node had a replica at first, which it led if it
    /// led any; the first of all where it had none.
    pub fn home(&self) -> ShardId {
        self.own.first().map_or(ShardId(0), |own| own.shard)
    }

    /// Begins a branch on an own shard.
    pub fn begin(&self, own: usize) -> Result<StoreBranch> {
        Ok(shoal_store::Transaction::on(self.own[own].sessions.take()?))
    }

    /// Can a transaction of this size be locked, validated and installed in one step?
    pub fn is_short(&self, size: Size) -> bool {
        size.writes <= self.limits.step_keys_max && size.reads <= self.step_reads_max()
    }

    /// How much longer than others a transaction that writes so many keys may wait for the shards that it writes: they
    /// lock and install it in slices.
    pub fn extra_wait(&self, keys: usize) -> Duration {
        SLICE_WAIT * (keys / self.limits.step_keys_max) as u32
    }

    /// How many reads a step validates for one transaction.
    pub fn step_reads_max(&self) -> usize {
        self.limits.step_keys_max.saturating_mul(READS_PER_KEY)
    }

    /// Goes on with rolling back what was dropped, on each own shard by one slice.
    pub(crate) fn end_some(&self) {
        for own in &self.own {
            if own.sessions.end_some() {
                self.worked(self.limits.step_keys_max);
            }
        }
    }

    /// Goes on with freeing the rows of dropped tables, by one slice.
    pub(crate) fn free_some(&self) {
        if self.tables.free_some(|at| self.own[at].sessions.take().ok()) {
            self.worked(self.limits.step_keys_max);
        }
    }

    /// How many transactions are dropped, and not rolled back as a whole, and of how many tables that are dropped rows are
    /// to be freed.
    pub fn ending(&self) -> usize {
        let sessions: usize = self.own.iter().map(|own| own.sessions.ending()).sum();
        sessions + self.tables.freeing()
    }

    /// After how long there will be more of that to do.
    pub(crate) fn next_ending(&self) -> Option<Duration> {
        let is_dropping = self.own.iter().any(|own| own.sessions.ending() > 0);
        if is_dropping { Some(TURN) } else { self.tables.next_slice() }
    }

    /// This step has locked, validated, installed or rolled back as many keys more.
    pub fn worked(&self, keys: usize) {
        let now = self.step_keys.get() + keys as u64;
        self.step_keys.set(now);
        self.step_keys_most.set(self.step_keys_most.get().max(now));
        self.keys.set(self.keys.get() + keys as u64);
    }

    /// This step locks and validates a transaction of that size.
    #[inline]
    pub fn certify(&self, size: Size) {
        self.worked(size.writes + size.reads / READS_PER_KEY);
    }

    /// This step has gathered or validated as many reads more.
    pub fn looked_at(&self, reads: usize) {
        self.worked(reads / READS_PER_KEY);
    }

    /// Notes the time of the step that begins, and that it has handled no key yet.
    pub fn begin_step(&self, now: Time) {
        self.now.set(now);
        self.step_keys.set(0);
    }

    /// The marks of an attempt that begins.
    pub(super) fn begin_stages(&self, sequence: u64) -> StageMarks {
        match self.stage_clock.get() {
            None => StageMarks::begin(self.now.get(), true),
            Some(clock) if sequence.is_multiple_of(TIMED_EVERY) => StageMarks::begin(clock(), true),
            Some(_) => StageMarks::begin(self.now.get(), false),
        }
    }

    /// The time at which a transaction comes from one stage to the next: that of the step, or, where there is a clock for
    /// it, within the step.
    pub(super) fn stage_time(&self, marks: &StageMarks) -> Time {
        match self.stage_clock.get() {
            Some(clock) if marks.is_timed => clock(),
            _ => self.now.get(),
        }
    }

    /// The body of a transaction is done.
    pub fn submit(&self, marks: &StageMarks) {
        marks.submit(self.stage_time(marks));
    }

    /// A transaction is through the engine's stage of this number.
    pub fn end_stage(&self, marks: &StageMarks, stage: usize) {
        marks.end_stage(stage, self.stage_time(marks));
    }

    /// From now on, stages are timed by this clock, which shows the same time as the steps do.
    pub(super) fn set_stage_clock(&self, clock: Box<dyn Fn() -> Time>) {
        // The first stays: there is one host.
        let _ = self.stage_clock.set(clock);
    }

    /// How many keys were locked, validated, installed or rolled back; and by the longest step.
    pub fn keys_worked(&self) -> (u64, u64) {
        (self.keys.get(), self.step_keys_most.get())
    }

    /// Pauses the future that waits for it, in this worker's time.
    pub(crate) async fn sleep(&self, span: Duration) {
        let slot = Rc::new(ResultSlot::default());
        self.local_command(LocalCommand::Sleep {
            until: self.now.get() + span,
            slot: Rc::clone(&slot),
        });
        slot.take().await;
    }
}
