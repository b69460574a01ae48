//! The engine: a worker that runs clients' transactions on the protocol.
//!
//! ```text
//!   procedure with a footprint, in pieces ──► one transaction of the protocol, executed by the leaders
//!   body ── reads ──► leaders, decided rows ── writes buffered ──► `certify`: one transaction of the protocol
//! ```
//! A node has one worker. Any node coordinates. Rows are in the ledgers of the protocol, not in stores. Where nodes have logs on
//! disk, votes and tentative lists are there, too (`vote_log.rs` of the protocol); elsewhere a process that has ended has lost them,
//! and comes back as a replica without memory.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs`, `message.rs`, `metrics.rs` | configuration, messages, what is measured |
//! | `transaction.rs` | operations of an interactive transaction, and its certificate |
//! | `coordinator.rs` | a transaction from its first operation until its outcome is reported |
//! | `declared.rs` | procedures that are executed by their footprints |
//! | `membership.rs` | configurations, ends of epochs |
//! | `snapshots.rs`, `snapshot.rs` | snapshots between replicas |
//! | `checkpoint.rs` | snapshots in checkpoints of the node, and what waits until it is durable |

mod checkpoint;
mod coordinator;
mod declared;
mod membership;
mod message;
mod metrics;
mod options;
mod snapshot;
mod snapshots;
mod transaction;

pub use message::TigaEngineMessage;
pub use metrics::TigaCounters;
pub use options::TigaEngineOptions;

use crate::execute::Library;
use crate::message::Envelope;
use crate::node::{Now, TigaNode};
use crate::observation::TigaObservation;
use crate::replica::Replica;
use bytes::Bytes;
use metrics::{NODE_COLUMNS, SHARD_METRICS, STAGES};
use shoal_cluster::manager::{Configuration, KnownEpochs, LeaderCandidates};
use shoal_engine::client::ClientRouting;
use shoal_engine::engine::{
    Engine, EngineEffect, EngineEffects, EngineEvent, EngineRecords, OF_NODE, Setup, Task,
};
use shoal_engine::epoch_reports::EpochReports;
use shoal_engine::execution::LocalDatabase;
use shoal_engine::execution::runtime::Runtime;
use shoal_engine::execution::task_driver::TaskDriver;
use shoal_engine::execution::worker_context::{
    EngineRequest, OperationSite, WorkerContext, WorkerSetup,
};
use shoal_engine::metrics::{
    CommitStage, EngineCounters, NodeColumn, RuntimeCounters, ShardMetric,
};
use shoal_engine::slow::Slow;
use shoal_store::Store;
use shoal_types::transaction_clock::{EventTimes, TransactionTime};
use shoal_types::{Ballot, Epoch, NodeId, Result, ShardId, Time, WorkerId, WorkerPlace};
use snapshots::Snapshots;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use transaction::{OpenCall, OpenTransaction, PendingRead};

type TigaEffects = EngineEffects<TigaEngineMessage, TigaObservation>;

/// The epoch in which a cluster begins.
const FIRST_EPOCH: Epoch = Epoch(1);

/// What the workers of a node share. There is one worker.
#[derive(Debug)]
pub struct TigaShared {
    node: NodeId,
    setup: Setup<TigaEngineOptions>,
    /// Has no rows, and says whether the log on disk has room.
    room: Arc<Store>,
}

impl TigaShared {
    /// Whether the node's log on disk has room. What a node without room begins would wait for it at the shards that it leads.
    ///
    /// # Errors
    /// `Rejected::DiskFull`.
    fn check_room(&self) -> Result<()> {
        let is_on_disk = self.setup.topology.durability().is_on_disk();
        if is_on_disk { self.room.check_logs() } else { Ok(()) }
    }
}

/// The worker of a node.
pub struct Tiga {
    shared: Arc<TigaShared>,
    node: TigaNode,
    runtime: Runtime<TigaEngineMessage>,
    /// The transactions of this worker that have asked for something and whose outcomes are not reported, by their numbers.
    transactions: BTreeMap<u64, OpenTransaction>,
    /// The procedures that are executed by their footprints.
    calls: BTreeMap<u64, OpenCall>,
    /// The reads that are not answered.
    reads: BTreeMap<u64, PendingRead>,
    next_read: u64,
    /// When reads are looked at that are not answered.
    reads_due: Time,
    configuration: Option<Arc<Configuration>>,
    lease_end: Time,
    times: EventTimes,
    snapshots: Snapshots,
    /// What waits until records of a shard are durable, one for each record.
    unrecorded: BTreeMap<ShardId, VecDeque<Vec<Envelope>>>,
    /// The shards whose streams this worker leads.
    led: BTreeMap<ShardId, Ballot>,
    /// The shards that were said to be served.
    serving: BTreeMap<ShardId, Ballot>,
    /// What was reported to the manager of epochs that are closed and not settled.
    reported: EpochReports,
}

impl Engine for Tiga {
    type Message = TigaEngineMessage;
    type Options = TigaEngineOptions;
    type Shared = TigaShared;
    type Observation = TigaObservation;
    type PlantedBug = crate::TigaPlantedBug;
    type Counters = TigaCounters;

    const CLIENT_ROUTING: ClientRouting = ClientRouting::Nearest;
    const LEADER_CANDIDATES: LeaderCandidates = LeaderCandidates::VotersOnly;
    const WORKERS_MAX: Option<u32> = Some(1);
    const RECEIVES_ACCEPTED: bool = true;
    const RECORDS: EngineRecords = EngineRecords::OfStreams;
    const USES_TRANSACTION_CLOCK: bool = true;
    const STAGES: &'static [CommitStage] = STAGES;
    const SHARD_METRICS: &'static [ShardMetric] = SHARD_METRICS;
    const NODE_COLUMNS: &'static [NodeColumn] = NODE_COLUMNS;

    fn share(setup: &Setup<TigaEngineOptions>, node: NodeId) -> Arc<TigaShared> {
        let workers = setup.topology.workers();
        assert!(workers == 1, "tiga runs one worker on a node, and the topology has {workers}");
        setup.options.limits.check();
        setup.options.protocol.check();
        let room = Arc::new(Store::new(shoal_store::Options::default()));
        Arc::new(TigaShared { node, setup: setup.clone(), room })
    }

    /// Rows are in no store.
    fn store(shared: &TigaShared, shard: ShardId) -> Option<&Arc<Store>> {
        (shard == OF_NODE).then_some(&shared.room)
    }

    fn new(worker: WorkerId, shared: Arc<TigaShared>, seed: u64) -> Tiga {
        let worker_context = WorkerContext::new(WorkerSetup {
            place: WorkerPlace { node: shared.node, worker },
            topology: Arc::clone(&shared.setup.topology),
            stores: Vec::new(),
            operations_at: OperationSite::Engine,
            epoch: FIRST_EPOCH,
            limits: shared.setup.options.limits.clone(),
            seed,
            // What is read is decided, and so may be shown.
            reads: None,
            procedures: Arc::clone(&shared.setup.procedures),
        });
        worker_context.takes_declared.set(true);
        let mut node = TigaNode::new(shared.node, shared.setup.options.protocol);
        node.observe(false);
        if shared.setup.topology.durability().is_on_disk() {
            node.keep_on_disk();
        }
        let time = TransactionTime { time: Time::ZERO, error_bound: None };
        Tiga {
            node,
            runtime: Runtime::new(worker_context),
            transactions: BTreeMap::new(),
            calls: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_read: 0,
            reads_due: Time::ZERO,
            configuration: None,
            lease_end: Time::ZERO,
            times: EventTimes { now: time, arrived: time },
            snapshots: Snapshots::default(),
            unrecorded: BTreeMap::new(),
            led: BTreeMap::new(),
            serving: BTreeMap::new(),
            reported: EpochReports::default(),
            shared,
        }
    }

    fn step(
        &mut self,
        now: Time,
        event: EngineEvent<TigaEngineMessage>,
        effects: &mut TigaEffects,
    ) {
        self.runtime.begin_step(now, &event);
        if effects.observations.is_some() {
            self.node.observe(true);
        }
        match event {
            EngineEvent::Received { from, message: TigaEngineMessage::Protocol(message) } => {
                self.with_node(effects, |node, now, library| {
                    node.receive(now, library, from.node, message);
                });
            }
            EngineEvent::Received { from, message: TigaEngineMessage::Relay(relay) } => {
                match self.runtime.is_peer(from) && self.holds_lease(now) {
                    true => self.runtime.relayed(from.node, relay),
                    false => self.runtime.counters.dropped += 1,
                }
            }
            EngineEvent::Received { from, message: TigaEngineMessage::SnapshotPart(part) } => {
                self.take_part(now, from.node, part, effects);
            }
            EngineEvent::Received {
                from,
                message: TigaEngineMessage::SnapshotPartTaken { shard, copy, reached },
            } => self.part_is_taken(now, from.node, shard, copy, reached.as_ref()),
            EngineEvent::SnapshotWanted { shard, to } => self.begin_to_give(now, shard, to),
            EngineEvent::Restored { shard, state } => self.restore(shard, &state, effects),
            EngineEvent::CheckpointWanted { shard } => self.begin_checkpoint(now, shard, effects),
            EngineEvent::CheckpointWritten { shard: _ } => self.checkpoint_written(effects),
            EngineEvent::CheckpointRead { shard, part } => self.read_checkpoint(shard, &part),
            EngineEvent::Recorded { shard, records } => self.recorded(shard, records, effects),
            EngineEvent::Client(request) if self.holds_lease(now) => self.runtime.request(request),
            // The client asks again, here or elsewhere.
            EngineEvent::Client(_) => self.runtime.counters.dropped += 1,
            EngineEvent::Configured { configuration, incarnation } => {
                self.configured(configuration, incarnation, effects);
            }
            event => self.log_event(&event, effects),
        }
        let is_due = self.node.next_due(self.now()).is_some_and(|at| at <= now);
        if is_due {
            self.with_node(effects, |node, now, library| node.tick(now, library));
        }
        self.give(now, effects);
        self.give_checkpoint(now, effects);
        self.look_at_reads(effects);
        if self.holds_lease(now) {
            self.run(now, effects);
        }
        self.set_timer(now, effects);
    }

    fn set_times(&mut self, times: EventTimes) {
        self.times = times;
    }

    fn local(&self) -> LocalDatabase {
        LocalDatabase::new(&self.runtime.worker_context)
    }

    fn spawn(&mut self, task: Task) {
        self.runtime.tasks.spawn(task);
    }

    fn renew(&mut self, lease_end: Time) {
        self.lease_end = lease_end;
    }

    fn may_lead(&self) -> bool {
        self.shared.setup.options.protocol.is_accurate(self.times.now.error_bound)
    }

    fn pending(&self) -> usize {
        self.held() + self.node.replicas().map(|replica| replica.waiting().0).sum::<usize>()
    }

    fn held(&self) -> usize {
        self.runtime.pending() + self.transactions.len() + self.calls.len()
    }

    fn counters(&self) -> EngineCounters<TigaCounters> {
        self.runtime.counted(TigaCounters::of_node(&self.node, self.times.now.error_bound))
    }

    fn runtime_counters(&self) -> RuntimeCounters {
        self.runtime.counted(()).runtime
    }

    fn shard_values(&self, shard: ShardId) -> Vec<Option<u64>> {
        metrics::shard_values(&self.node, shard)
    }

    /// A voter that has lost its memory, or was added, counts where a crash leaves it once the recovery that followed is
    /// decided: its lists show nothing of what was voted for before.
    fn has_caught_up(&self, shard: ShardId, _: NodeId) -> bool {
        self.has_recovered(shard)
    }

    fn known_epochs(&self, _: Epoch) -> KnownEpochs {
        let open = self.configuration.as_ref().map_or(Epoch(0), |it| it.epoch);
        KnownEpochs { open, ..KnownEpochs::default() }
    }

    fn may_cut(&self, shard: ShardId) -> Option<u64> {
        Some(self.cuttable(shard))
    }

    fn may_restore(&self, shard: ShardId, from: NodeId, length: u64, state: &Bytes) -> bool {
        self.has_copy(shard, from, length, state)
    }

    fn take_slow(&mut self) -> Vec<Slow> {
        self.runtime.worker_context.slows.take()
    }

    fn sizes(&self) -> Vec<(&'static str, usize)> {
        let own = [
            ("transactions", self.transactions.len()),
            ("procedures in pieces", self.calls.len()),
            ("reads without an answer", self.reads.len()),
            ("reports of epochs", self.reported.len()),
            ("transactions that are voted for", self.node.coordinator().open()),
            ("copies that are given", self.snapshots.sizes()[0]),
            ("copies that are taken", self.snapshots.sizes()[1]),
            ("records that are not durable", self.unrecorded.values().map(VecDeque::len).sum()),
        ];
        self.runtime.sizes().into_iter().chain(own).chain(self.node.sizes()).collect()
    }
}

impl TaskDriver for Tiga {
    type Message = TigaEngineMessage;
    type Observation = TigaObservation;

    fn runtime(&mut self) -> &mut Runtime<TigaEngineMessage> {
        &mut self.runtime
    }

    fn answer(&mut self, ask: EngineRequest, effects: &mut TigaEffects) {
        match ask {
            EngineRequest::Send(remote_branches) => self.perform(&remote_branches, effects),
            EngineRequest::Commit(submission) => self.submit(submission, effects),
            EngineRequest::CommitLocal(_) => unreachable!("this engine does not ask for it"),
            EngineRequest::Abandon(remote_branches) => self.forget(remote_branches.id.sequence),
            // Only decided rows are read (rule T11).
            EngineRequest::Reveal { remote_branches: _, slot } => slot.fill(Ok(())),
        }
    }

    fn release(&mut self, effects: &mut TigaEffects) {
        while let Some(call) = self.runtime.worker_context.next_declared() {
            self.begin_call(&call, effects);
        }
        self.tell_ended();
    }
}

impl Tiga {
    fn now(&self) -> Now {
        let local = self.runtime.worker_context.now.get();
        let EventTimes { now, arrived } = self.times;
        let (has_lease, is_accurate) = (self.holds_lease(local), self.may_lead());
        Now { local, clock: now.time, arrived: arrived.time, has_lease, is_accurate }
    }

    /// Clients and other shards are answered only under a lease.
    fn holds_lease(&self, now: Time) -> bool {
        now < self.lease_end
    }

    /// What the logs of shards say.
    fn log_event(&mut self, event: &EngineEvent<TigaEngineMessage>, effects: &mut TigaEffects) {
        self.with_node(effects, |node, now, library| match event {
            EngineEvent::Leading { shard, ballot, length } => {
                node.prepared(now, library, *shard, *ballot, *length);
            }
            EngineEvent::Deposed { shard, by } => node.promised(now, library, *shard, *by),
            EngineEvent::Promised { shard, ballot } => {
                node.promised(now, library, *shard, *ballot);
            }
            EngineEvent::Accepted { shard, ballot, length, entries } => {
                node.accepted(now, library, *shard, *ballot, *length, entries);
            }
            EngineEvent::Durable { shard, length } => {
                node.durable(now, library, *shard, *length);
            }
            EngineEvent::Decided { shard, index, entry } => {
                node.decided(now, library, *shard, *index, entry);
            }
            EngineEvent::RecordsRead { shard, records } => {
                node.records_read(now, library, *shard, records);
            }
            EngineEvent::SnapshotWanted { .. }
            | EngineEvent::Restored { .. }
            | EngineEvent::CheckpointWanted { .. }
            | EngineEvent::CheckpointWritten { .. }
            | EngineEvent::CheckpointRead { .. }
            | EngineEvent::Recorded { .. }
            | EngineEvent::Settled { .. }
            | EngineEvent::Received { .. }
            | EngineEvent::Client(_)
            | EngineEvent::Configured { .. }
            | EngineEvent::Timer
            | EngineEvent::Nudged => {}
        });
        match event {
            EngineEvent::Leading { shard, ballot, .. } => {
                self.led.insert(*shard, *ballot);
                self.report(effects);
            }
            EngineEvent::Deposed { shard, .. } => drop(self.led.remove(shard)),
            EngineEvent::Durable { shard, .. } if self.has_recovered(*shard) => {
                effects.push(EngineEffect::CaughtUp { shard: *shard });
            }
            _ => {}
        }
    }

    /// Whether this node leads the shard, and its recovery is over and decided.
    fn has_recovered(&self, shard: ShardId) -> bool {
        self.node.replica(shard).is_some_and(Replica::has_recovered)
    }

    /// Has the node do something; what it leaves is sent and appended.
    fn with_node<T>(
        &mut self,
        effects: &mut TigaEffects,
        act: impl FnOnce(&mut TigaNode, Now, &Library<'_>) -> T,
    ) -> T {
        let now = self.now();
        let tables = self.runtime.worker_context.known_tables();
        let library = Library { procedures: &self.shared.setup.procedures, tables: &tables };
        let result = act(&mut self.node, now, &library);
        let output = self.node.take_output();
        let place = self.runtime.worker_context.place;
        for Envelope { to, message } in output.sends {
            let to = WorkerPlace { node: to, ..place };
            let message = TigaEngineMessage::Protocol(message);
            effects.push(EngineEffect::Send { to, message });
        }
        for (shard, entry) in output.proposals {
            self.runtime.count_batch(entry.len());
            effects.push(EngineEffect::Propose { shard, entry });
        }
        self.record(output.records, effects);
        if let Some(observations) = &mut effects.observations {
            observations.extend(output.observations.into_iter().flatten());
        }
        self.show_served(effects);
        self.take_answers(effects);
        result
    }

    /// Shows the shards that are served from now on.
    fn show_served(&mut self, effects: &mut TigaEffects) {
        for replica in self.node.replicas() {
            let shard = replica.shard();
            let Some(ballot) = replica.serves() else { continue };
            if self.serving.insert(shard, ballot) != Some(ballot) {
                effects.observe(|| TigaObservation::Serves { shard, ballot });
            }
        }
    }

    /// Asks to come back when there will be something to do.
    fn set_timer(&mut self, now: Time, effects: &mut TigaEffects) {
        let runs = self.holds_lease(now);
        let reads = (!self.reads.is_empty()).then_some(self.reads_due);
        let due = [
            self.node.next_due(self.now()),
            reads,
            self.snapshots_due(),
            self.snapshots.checkpoint.next_due(),
            self.runtime.next_due().filter(|_| runs),
        ];
        if let Some(at) = due.into_iter().flatten().min() {
            effects.push(EngineEffect::Timer { at: at.max(now) });
        }
    }
}
