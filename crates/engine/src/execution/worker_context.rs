//! What the futures of a worker and its engine share.

use super::admission::Admission;
use super::remote_branches::RemoteBranches;
use super::sequences::Sequences;
use super::session_pool::{PooledSession, SessionPool};
use super::slot::ResultSlot;
use crate::client::{Relay, ReplyToClient};
use crate::engine::WorkerPlace;
use crate::planted_bugs::{PlantedBug, PlantedBugs};
use crate::procedure::Procedures;
use crate::replication::replica::ShardReplica;
use crate::slow::Slows;
use shoal_cluster::manager::{Configuration, Incarnation};
use shoal_cluster::topology::Topology;
use shoal_store::Size;
use shoal_types::{
    Aborted, CallSession, Conflict, Epoch, Error, NodeId, Random, Rejected, Result, ShardId,
    TableId, Time,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How execution behaves, the same for all engines. Part of every engine's options.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Transactions that a worker may have running, or certified and not committed. Beyond it new work
    /// waits. More cost memory; fewer let the worker idle while replication is on its way: at 100 000
    /// transactions a second and 100 ms, 10 000 are under way. Default 65 536.
    pub open_max: usize,
    /// Transactions that a worker lets begin at once. What has reached it meanwhile has its turn before
    /// the next: answers that hold up others do not queue behind new work, and an overloaded leader
    /// does not start more than it can finish. Default 4.
    pub begins_max: usize,
    /// Transactions that may wait for room. Beyond it they are refused at once. Default 65 536.
    pub queue_max: usize,
    /// How long a transaction waits for room before it is refused. Default 1 s.
    pub queue_wait_max: Duration,
    /// How often a transaction that meets conflicts is run. Default 1000.
    pub attempts_max: u32,
    /// So long after it came, a transaction that meets a conflict is not run again. Longer outlasts longer
    /// contention; but a client that asked and has stopped waiting is never told that nothing happened. Default
    /// 7 s, below the 10 s that clients wait by default, with room for the last attempt.
    pub attempts_span_max: Duration,
    /// The first pause after a conflict is drawn below this; it doubles with every attempt.
    /// Default 50 µs.
    pub pause: Duration,
    /// The longest pause, which is reached after as many conflicts as show that others hold what is wanted for long: vain
    /// attempts would keep the worker from what they wait for. Conflicts that show nothing of the kind, while a shard is
    /// recovered or an epoch ends, do not count here, and after them no pause is longer than 10 ms. Default 100 ms.
    pub pause_max: Duration,
    /// How long a request to another worker waits for an answer before it is sent again; after that twice
    /// as long each time, up to 16 times: a node that does not answer may have too much to do. Default 250 ms,
    /// above the round trip between any two datacenters.
    pub retry_after: Duration,
    /// How long a transaction waits for another shard: for an answer to one request, and, once it is certified, until
    /// the shards that it depends on are durable; 40 ms longer for each `step_keys_max` of the keys that it writes. Then
    /// it ends with an error that names the shard. Longer outlasts longer failovers; together with [`attempts_span_max`](Limits::attempts_span_max) it stays below the 10 s that
    /// clients wait by default. Default 2.5 s.
    pub shard_wait_max: Duration,
    /// An interactive transaction whose client is silent for so long is given up. Default 10 s.
    pub session_idle_max: Duration,
    /// An interactive transaction that is open for so long is given up: memory that it may look at
    /// cannot be freed. Default 30 s.
    pub session_open_max: Duration,
    /// Connections without an open interactive transaction that a worker keeps registered, with the last answer to each.
    /// One more, and the one without for longest has to register again, which takes a round trip; a transaction that it
    /// asked to begin and to commit in one message then ends as unknown. Default 16 384, more than a worker has clients.
    pub answers_remembered: usize,
    /// Sessions of clients that call procedures, which a worker keeps for each shard that its node leads; a client has as
    /// many as it makes calls on the shard at once. One more, and the oldest is over: its client has to ask for another,
    /// which takes a round trip. More cost memory, about 200 bytes each with its row, and what its last call returned.
    /// Default 32 768.
    pub call_sessions_max: usize,
    /// How long at least the result of a call is kept when its session is over, for a client that was not told; twice as
    /// long at most. Of `call_sessions_max` sessions that are over at least, of any age, no results are dropped
    /// before; of more, the oldest are. Longer lets clients ask for longer what has become of a call, and costs
    /// memory where many come and go. Default 10 min.
    pub call_rows_kept: Duration,
    /// Store sessions, and so transactions executing or being certified, that a replica allows. Default
    /// 4096.
    pub sessions_max: usize,
    /// A step locks, installs and rolls back no more keys than so, for one transaction, and validates no more than sixteen
    /// times as many reads: what is left of a larger one is for the next steps, and others have their turn in
    /// between. More costs fewer steps, which last longer. Default 4096.
    pub step_keys_max: usize,
    /// Bytes of keys, versions and index that a replica may hold. Default: no limit.
    pub memory_bytes_max: usize,
    /// Bytes that a replica takes from the system at once, so that growing to that size costs no transaction the time
    /// in which the system finds and clears a page. More is taken as needed. Default 0.
    pub memory_bytes_reserved: usize,
    /// Keys the hash by which transactions find their own writes: clients who know it can choose keys that
    /// collide, and make a transaction slow. A node draws one at random. Default 0.
    pub hash_seed: u64,
    /// A transaction that takes longer at its coordinator is counted, and said by
    /// [`Engine::take_slow`](crate::Engine::take_slow). `None`: none is. Default `None`.
    pub slow_after: Option<Duration>,
    /// Bugs planted in what all engines share. Default: none.
    pub faults: PlantedBugs,
}

impl Limits {
    /// Checks them.
    ///
    /// # Panics
    /// If one is out of its range; says which.
    pub fn check(&self) {
        at_least_one([
            ("open_max", self.open_max),
            ("begins_max", self.begins_max),
            ("queue_max", self.queue_max),
            ("attempts_max", self.attempts_max as usize),
            ("call_sessions_max", self.call_sessions_max),
            ("sessions_max", self.sessions_max),
            ("step_keys_max", self.step_keys_max),
            ("memory_bytes_max", self.memory_bytes_max),
        ]);
        not_zero([
            ("retry_after", self.retry_after),
            ("queue_wait_max", self.queue_wait_max),
            ("shard_wait_max", self.shard_wait_max),
            ("call_rows_kept", self.call_rows_kept),
        ]);
    }
}

/// Checks options that count something.
///
/// # Panics
/// If one is 0; says which.
pub fn at_least_one<const N: usize>(options: [(&str, usize); N]) {
    for (name, value) in options {
        assert!(value > 0, "the option {name} is 0; it is 1 at least");
    }
}

/// Checks options that say how long.
///
/// # Panics
/// If one is 0; says which.
pub fn not_zero<const N: usize>(options: [(&str, Duration); N]) {
    for (name, value) in options {
        assert!(!value.is_zero(), "the option {name} is 0; it is 1 ns at least");
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            open_max: 1 << 16,
            begins_max: 4,
            queue_max: 1 << 16,
            queue_wait_max: Duration::from_secs(1),
            attempts_max: 1000,
            attempts_span_max: Duration::from_secs(7),
            pause: Duration::from_micros(50),
            pause_max: Duration::from_millis(100),
            retry_after: Duration::from_millis(250),
            shard_wait_max: Duration::from_millis(2500),
            session_idle_max: Duration::from_secs(10),
            session_open_max: Duration::from_secs(30),
            answers_remembered: 1 << 14,
            call_sessions_max: 1 << 15,
            call_rows_kept: Duration::from_secs(600),
            sessions_max: 4096,
            step_keys_max: 1 << 12,
            memory_bytes_max: usize::MAX,
            memory_bytes_reserved: 0,
            hash_seed: 0,
            slow_after: None,
            faults: PlantedBugs::NONE,
        }
    }
}

/// State that the futures of a worker share with its engine. Belongs to one worker.
pub struct WorkerContext {
    /// Where this worker is.
    pub place: WorkerPlace,
    /// Nodes, shards and tables.
    pub topology: Arc<Topology>,
    /// The procedures that clients can call by name.
    pub(crate) procedures: Arc<Procedures>,
    /// The shards of which this node has a replica; first those that it leads at first.
    pub own: Vec<LocalShard>,
    /// Who leads each shard, and in which epoch its leadership began.
    leaders: RefCell<Vec<(NodeId, Epoch)>>,
    /// Which nodes hold each shard.
    holders: RefCell<Vec<Vec<NodeId>>>,
    /// The outcomes of calls in sessions of these shards from before these epochs are lost, where no row tells them.
    calls_lost_before: RefCell<BTreeMap<ShardId, Epoch>>,
    /// The shards that take no part in the epoch of the configuration.
    out: RefCell<BTreeSet<ShardId>>,
    /// The epoch of the configuration that says so.
    pub configured: Cell<Epoch>,
    /// The incarnation of this node, by the configuration; 0 until there is one.
    pub incarnation: Cell<Incarnation>,
    /// How transactions run.
    pub limits: Limits,
    /// How many transactions may begin, and which wait for it.
    pub admission: Rc<Admission>,
    /// Transactions that took long.
    pub slows: Slows,
    /// The numbers of this worker's transactions.
    pub sequences: RefCell<Sequences>,
    /// This worker's source of randomness.
    pub random: RefCell<Random>,
    /// The time of the step that is under way.
    pub now: Cell<Time>,
    /// How many keys the step that is under way has locked, validated, installed or rolled back, and the longest did.
    step_keys: Cell<(u64, u64)>,
    /// How many all steps have.
    keys: Cell<u64>,
    /// The epoch that is open for new work.
    pub epoch: Cell<Epoch>,
    /// What the engine notes of reads before they are shown.
    pub reads: Option<Rc<dyn ReadsToReveal>>,
    asks: RefCell<VecDeque<EngineRequest>>,
    local_commands: RefCell<VecDeque<LocalCommand>>,
}

/// What a worker's context is made of.
pub struct WorkerSetup<'a> {
    /// Where the worker is.
    pub place: WorkerPlace,
    /// Nodes, shards and tables.
    pub topology: Arc<Topology>,
    /// The procedures that clients can call by name.
    pub procedures: Arc<Procedures>,
    /// The copies of shards that its node has.
    pub replicas: &'a [ShardReplica],
    /// The epoch in which it begins.
    pub epoch: Epoch,
    /// How transactions run.
    pub limits: Limits,
    /// What the worker draws its randomness from.
    pub seed: u64,
    /// What the engine notes of reads before they are shown; `None` where all that can be read is committed.
    pub reads: Option<Rc<dyn ReadsToReveal>>,
}

/// What an engine does with reads of own shards before an open transaction shows them to its client.
pub trait ReadsToReveal {
    /// Notes what the next `most` reads of a branch depend on, after the first `from`. `branch` is on the own shard at that
    /// place in [`WorkerContext::own`]. Returns the place of the read after the last of these.
    ///
    /// # Errors
    /// Where they may never be shown, since the transaction cannot commit.
    fn note(
        &self,
        worker_context: &WorkerContext,
        transaction: &RemoteBranches,
        branch: (usize, &StoreBranch),
        reads: (usize, usize),
    ) -> Result<usize>;
}

/// A shard takes no longer than this for a slice of a transaction, with all that it does in between.
const SLICE_WAIT: Duration = Duration::from_millis(40);

/// To validate so many reads takes about as long as to lock a key that is new.
const READS_PER_KEY: usize = 16;

/// A shard of which this node has a replica.
pub struct LocalShard {
    /// The shard.
    pub shard: ShardId,
    /// Sessions of its store.
    pub sessions: Rc<SessionPool>,
    /// It serves the shard as its leader.
    pub serves: Cell<bool>,
}

/// The leadership of a shard by this process, without interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The epoch in which it began.
    pub since: Epoch,
    /// The incarnation of this node.
    pub incarnation: Incarnation,
}

impl Leadership {
    /// No process has led the shard before.
    pub fn is_first(&self) -> bool {
        self.since <= Epoch(1) && self.incarnation <= Incarnation(1)
    }
}

/// A transaction on a shard's store.
pub type StoreBranch = shoal_store::Transaction<PooledSession>;

/// What a future wants of the engine.
pub enum EngineRequest {
    /// Operations have gathered in this exchange.
    Send(Rc<RemoteBranches>),
    /// Certify and commit the transaction.
    Commit(Submission),
    /// A transaction ended without asking to: tell its participants.
    Abandon(Rc<RemoteBranches>),
    /// Fill the slot once all that an open transaction has read may be revealed, or never will be. Its reads of own shards
    /// are noted.
    Reveal {
        /// Who asks.
        remote_branches: Rc<RemoteBranches>,
        /// What to fill; with an error where it never may.
        slot: Rc<ResultSlot<Result<()>>>,
    },
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
    /// Its branches on shards of other nodes.
    pub remote_branches: Rc<RemoteBranches>,
    /// Its branches on shards that this node serves, by their place in [`WorkerContext::own`].
    pub branches: Vec<(usize, StoreBranch)>,
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
    /// What a worker's futures share.
    pub fn new(setup: WorkerSetup<'_>) -> Rc<WorkerContext> {
        let WorkerSetup { place, topology, replicas, epoch, limits, seed, reads, procedures } =
            setup;
        let own = replicas.iter().map(|replica| {
            let sessions = SessionPool::new(Arc::clone(&replica.store), limits.step_keys_max);
            LocalShard { shard: replica.shard, sessions, serves: Cell::new(replica.led) }
        });
        let first = |shard| (topology.leader(shard), epoch);
        let leaders = topology.shard_ids().map(first).collect();
        let holders = topology.shard_ids().map(|shard| topology.replicas(shard).collect());
        let holders = RefCell::new(holders.collect());
        Rc::new(WorkerContext {
            place,
            own: own.collect(),
            leaders: RefCell::new(leaders),
            holders,
            calls_lost_before: RefCell::default(),
            out: RefCell::default(),
            configured: Cell::new(epoch),
            incarnation: Cell::default(),
            admission: Admission::new(&limits, place.node),
            slows: Slows::new(limits.slow_after),
            sequences: RefCell::default(),
            random: RefCell::new(Random::new(seed)),
            now: Cell::default(),
            step_keys: Cell::default(),
            keys: Cell::default(),
            epoch: Cell::new(epoch),
            reads,
            asks: RefCell::default(),
            local_commands: RefCell::default(),
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
        let table = self.topology.table(name);
        Ok(table.ok_or_else(|| Rejected::UnknownTableName { name: name.into() })?)
    }

    /// Asks the engine for something; it answers within this step, or later.
    pub fn ask(&self, ask: EngineRequest) {
        self.asks.borrow_mut().push_back(ask);
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
    pub fn own(&self, shard: ShardId) -> Option<usize> {
        self.own.iter().position(|own| own.shard == shard && own.serves.get())
    }

    /// From now on, or no longer, this node serves the shard at this place.
    pub fn serve(&self, at: usize, serves: bool) {
        self.own[at].serves.set(serves);
        self.admission.serve(self.own.iter().any(|own| own.serves.get()));
    }

    /// Who leads a shard, as far as this worker knows; perhaps this node, and it recovers it.
    pub fn leader(&self, shard: ShardId) -> NodeId {
        self.leadership(shard).0
    }

    /// Who leads a shard, and in which epoch its leadership began: what was said before that, the leader cannot
    /// know.
    pub fn leadership(&self, shard: ShardId) -> (NodeId, Epoch) {
        self.leaders.borrow()[shard.0 as usize]
    }

    /// The leadership of this node over a shard, if it leads the shard; it may have to recover it first.
    pub(crate) fn own_leadership(&self, shard: ShardId) -> Option<Leadership> {
        let (leader, since) = self.leadership(shard);
        let incarnation = self.incarnation.get();
        let leads = leader == self.place.node && incarnation > Incarnation(0);
        leads.then_some(Leadership { since, incarnation })
    }

    /// Checks that this node serves a shard, in that leadership.
    ///
    /// # Errors
    /// [`Aborted::NotServing`] where the leadership has ended; a conflict while the node recovers the shard.
    pub(crate) fn check_leadership(&self, shard: ShardId, leadership: Leadership) -> Result<()> {
        if self.own_leadership(shard) != Some(leadership) {
            Err(Aborted::NotServing { node: self.place.node })?;
        }
        self.own(shard).map(drop).ok_or_else(|| recovering(shard))
    }

    /// Is the node a leader, as far as this worker knows?
    pub fn is_leader(&self, node: NodeId) -> bool {
        self.leaders.borrow().iter().any(|(leader, ..)| *leader == node)
    }

    /// Is it for `sender_node` to give `receiver` a copy of a shard? A leader gives to others, and they to one who is about to
    /// lead.
    pub fn gives(&self, shard: ShardId, sender_node: NodeId, receiver: NodeId) -> bool {
        let leader = self.leader(shard);
        let holds = || self.holders.borrow()[shard.0 as usize].contains(&sender_node);
        leader == sender_node || (leader == receiver && holds())
    }

    /// Does an absent row prove nothing about the calls of a session, since the rows of its time may be lost with a majority
    /// of its shard?
    pub(crate) fn are_calls_lost(&self, session: &CallSession) -> bool {
        let before = self.calls_lost_before.borrow().get(&session.home).copied();
        before.is_some_and(|before| session.since < before)
    }

    /// Is the node without a replica of any shard, as far as this worker knows? It may coordinate transactions all the
    /// same.
    pub fn holds_nothing(&self, node: NodeId) -> bool {
        self.holders.borrow().iter().all(|holders| !holders.contains(&node))
    }

    /// Which nodes hold a shard, as far as this worker knows.
    pub fn holders(&self, shard: ShardId) -> Vec<NodeId> {
        self.holders.borrow()[shard.0 as usize].clone()
    }

    /// Takes over who leads. Returns the shards in which another leadership has begun.
    pub fn follow(&self, configuration: &Configuration) -> Vec<ShardId> {
        self.configured.set(configuration.epoch);
        let shards = (0..).map(ShardId).zip(&configuration.shards);
        let out = shards.filter(|(_, assignment)| assignment.out.is_some());
        *self.out.borrow_mut() = out.map(|(shard, _)| shard).collect();
        let held = configuration.shards.iter().map(|assignment| assignment.holders().collect());
        *self.holders.borrow_mut() = held.collect();
        let lost = (0..).map(ShardId).zip(&configuration.shards);
        let lost = lost.filter_map(|(id, shard)| Some((id, shard.loss.as_ref()?.calls_before)));
        *self.calls_lost_before.borrow_mut() = lost.collect();
        let mut leaders = self.leaders.borrow_mut();
        let shards = (0..).map(ShardId).zip(leaders.iter_mut()).zip(&configuration.shards);
        let moved = shards.filter_map(|((shard, leader), assignment)| {
            let now = (assignment.leader, assignment.since);
            (std::mem::replace(leader, now) != now).then_some(shard)
        });
        moved.collect()
    }

    /// Does the shard take part in the open epoch (rule M12)? A worker that has heard of the epoch, and not yet of
    /// its configuration, does not know.
    pub fn takes_part(&self, shard: ShardId) -> bool {
        self.configured.get() >= self.epoch.get() && !self.out.borrow().contains(&shard)
    }

    /// May a transaction of the open epoch need the shard?
    ///
    /// # Errors
    /// [`Aborted::ShardOut`] where it takes no part.
    pub(crate) fn check_in(&self, shard: ShardId) -> Result<()> {
        match self.out.borrow().contains(&shard)
            && !self.limits.faults.has(PlantedBug::ServeWhileOut)
        {
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
    pub(crate) fn nearest(&self) -> ShardId {
        self.own.iter().find(|own| own.serves.get()).map_or(self.home(), |own| own.shard)
    }

    /// The home shard of this worker's transactions: the first of which the node has a replica, which it led at first if
    /// it led any.
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

    /// How many transactions are dropped, and not rolled back as a whole.
    pub fn ending(&self) -> usize {
        self.own.iter().map(|own| own.sessions.ending()).sum()
    }

    /// This step has locked, validated, installed or rolled back as many keys more.
    pub fn worked(&self, keys: usize) {
        let (now, most) = (self.step_keys.get().0 + keys as u64, self.step_keys.get().1);
        self.step_keys.set((now, most.max(now)));
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

    /// A step begins.
    pub fn begin_step(&self, now: Time) {
        self.now.set(now);
        self.step_keys.set((0, self.step_keys.get().1));
    }

    /// How many keys were locked, validated, installed or rolled back; and by the longest step.
    pub fn keys_worked(&self) -> (u64, u64) {
        (self.keys.get(), self.step_keys.get().1)
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
