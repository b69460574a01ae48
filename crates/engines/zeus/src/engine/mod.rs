//! The engine: a worker that runs transactions on the node's own granules.
//!
//! ```text
//!   body ── operations ──► granules here? ── yes ──► done on the node's rows, answered
//!                               └── no: wanted; the transaction waits until they have come
//!   commit ── all owned ──► local commit ──► followers have applied it ──► answered
//! ```
//! The node's part of the protocol, [`ZeusNode`](crate::ZeusNode), is shared by the workers of a node behind a lock; any of
//! them steps it, and it names the transactions that can go on (`shared.rs`). Rows are in the node's own map, not in a store.
//! A worker runs transactions while the node is a member and holds its lease, whether or not it has a replica of anything.
//! Streams of shards stay empty: their leaders only order requests and end epochs.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs`, `message.rs`, `metrics.rs` | configuration, messages, what is measured |
//! | `observation.rs`, `transaction_fact.rs` | what a checker sees: granules, and what becomes of transactions |
//! | `shared.rs` | what the workers of a node share |
//! | `transaction.rs` | operations of a transaction, on the node's rows |
//! | `write_prediction.rs` | which reads are expected to be followed by writes |
//! | `move_pace.rs` | which granules move so often that transactions go to them |
//! | `coordinator.rs` | a transaction from its first operation until it is answered |
//! | `membership.rs` | configurations, ends of epochs |
//! | `checkpoint.rs`, `node_checkpoint.rs` | the log on disk: restarts and checkpoints |

mod checkpoint;
mod coordinator;
mod membership;
mod message;
mod metrics;
mod move_pace;
mod node_checkpoint;
mod observation;
mod options;
mod shared;
mod transaction;
mod transaction_fact;
mod write_prediction;

pub use message::ZeusEngineMessage;
pub use metrics::ZeusCounters;
pub use observation::{ShownRow, ZeusObservation};
pub use options::ZeusEngineOptions;
pub use shared::ZeusShared;
pub use transaction_fact::TransactionFact;

use crate::view::Member;
use metrics::{MoveRate, NODE_COLUMNS, SHARD_METRICS, STAGES};
use node_checkpoint::{NodeCheckpoint, empty_checkpoint};
use shared::{NodeOutput, SharedNode};
use shoal_cluster::manager::{Configuration, KnownEpochs};
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
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time, WorkerId, WorkerPlace};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use transaction::ZeusTransaction;
use write_prediction::WritePrediction;

type ZeusEffects = EngineEffects<ZeusEngineMessage, ZeusObservation>;

/// So many messages are taken while other workers wait for the node.
const TAKEN_TOGETHER_MAX: usize = 16;

/// The epoch in which a cluster begins.
const FIRST_EPOCH: Epoch = Epoch(1);

/// One worker of a node.
pub struct Zeus {
    shared: Arc<ZeusShared>,
    runtime: Runtime<ZeusEngineMessage>,
    /// The transactions of this worker that have asked for something and are not answered, by their numbers.
    /// In boxes: they come and go in each step.
    transactions: BTreeMap<u64, Box<ZeusTransaction>>,
    /// Of them those that are looked at in each step: they wait for something that no event shows.
    watched: BTreeSet<u64>,
    /// Which reads are expected to be followed by writes.
    prediction: Rc<WritePrediction>,
    /// As which member of the configuration the transactions run; `None` while the node is out.
    member: Option<Member>,
    configuration: Option<Arc<Configuration>>,
    lease_end: Time,
    /// The shards whose streams this worker leads.
    led: BTreeMap<ShardId, Ballot>,
    /// What the manager received about epochs that are closed and not settled.
    reported: EpochReports,
    counters: ZeusCounters,
    /// How often granules move to the node; the first worker reports.
    move_rate: MoveRate,
    /// When waits are looked at for those that have lasted too long.
    waits_due: Time,
    /// The node's part of a checkpoint; the first worker gives it.
    checkpoint: NodeCheckpoint,
    /// When it is looked at next whether the granules of shards have their degree.
    whole_due: Time,
}

impl Engine for Zeus {
    type Message = ZeusEngineMessage;
    type Options = ZeusEngineOptions;
    type Shared = ZeusShared;
    type Observation = ZeusObservation;
    type PlantedBug = crate::ZeusPlantedBug;
    type Counters = ZeusCounters;

    const MEMBERSHIP_EPOCHS: bool = true;
    const RECORDS: EngineRecords = EngineRecords::OfNode;
    const CLIENT_ROUTING: ClientRouting = ClientRouting::Owners;
    const STAGES: &'static [CommitStage] = STAGES;
    const SHARD_METRICS: &'static [ShardMetric] = SHARD_METRICS;
    const NODE_COLUMNS: &'static [NodeColumn] = NODE_COLUMNS;

    fn fit_distance(options: &mut ZeusEngineOptions, round_trip: Duration) {
        options.fit_distance(round_trip);
    }

    fn share(setup: &Setup<ZeusEngineOptions>, node: NodeId) -> Arc<ZeusShared> {
        setup.options.limits.check();
        Arc::new(ZeusShared::new(setup, node))
    }

    /// Rows are in no store.
    fn store(shared: &ZeusShared, shard: ShardId) -> Option<&Arc<Store>> {
        (shard == OF_NODE).then_some(&shared.room)
    }

    fn new(worker: WorkerId, shared: Arc<ZeusShared>, seed: u64) -> Zeus {
        let place = WorkerPlace { node: shared.node, worker };
        let worker_context = WorkerContext::new(WorkerSetup {
            place,
            topology: Arc::clone(&shared.setup.topology),
            stores: Vec::new(),
            operations_at: OperationSite::Engine,
            epoch: FIRST_EPOCH,
            limits: shared.setup.options.limits.clone(),
            seed,
            // What is read is validated, and so may be shown.
            reads: None,
            procedures: Arc::clone(&shared.setup.procedures),
        });
        Zeus {
            runtime: Runtime::new(worker_context),
            transactions: BTreeMap::new(),
            watched: BTreeSet::new(),
            prediction: Rc::default(),
            member: None,
            configuration: None,
            lease_end: Time::ZERO,
            led: BTreeMap::new(),
            reported: EpochReports::default(),
            counters: ZeusCounters::default(),
            move_rate: MoveRate::NONE,
            waits_due: Time::ZERO,
            checkpoint: NodeCheckpoint::default(),
            whole_due: Time::ZERO,
            shared,
        }
    }

    fn step(
        &mut self,
        now: Time,
        event: EngineEvent<ZeusEngineMessage>,
        effects: &mut ZeusEffects,
    ) {
        self.runtime.begin_step(now, &event);
        let is_watched = effects.observations.is_some();
        let lease_end = self.lease_end;
        self.with_node(effects, |node| {
            if is_watched {
                node.node.watch();
            }
            node.node.renew(lease_end);
        });
        match event {
            EngineEvent::Received { from, message: ZeusEngineMessage::Protocol(messages) } => {
                // A few at a time, so that other workers do not wait for the node behind all of them.
                let mut messages = messages.into_iter();
                while messages.len() > 0 {
                    let some = messages.by_ref().take(TAKEN_TOGETHER_MAX);
                    self.with_node(effects, |node| node.node.receive(now, from.node, some));
                }
            }
            EngineEvent::Received { from, message: ZeusEngineMessage::Relay(relay) } => {
                match self.runtime.is_peer(from) && self.holds_lease(now) {
                    true => self.runtime.relayed(from.node, relay),
                    false => self.runtime.counters.dropped += 1,
                }
            }
            EngineEvent::Client(request) if self.holds_lease(now) => self.runtime.request(request),
            // The client asks again, here or elsewhere.
            EngineEvent::Client(_) => self.runtime.counters.dropped += 1,
            EngineEvent::Configured { configuration, incarnation } => {
                self.configured(now, configuration, incarnation, effects);
            }
            EngineEvent::Leading { shard, ballot, length: _ } => {
                self.led.insert(shard, ballot);
                effects.observe(|| ZeusObservation::Serves { shard, ballot });
                self.report(effects);
            }
            EngineEvent::Deposed { shard, by: _ } => drop(self.led.remove(&shard)),
            EngineEvent::Recorded { records, .. } => {
                self.with_node(effects, |shared| shared.node.recorded(now, records));
            }
            EngineEvent::CheckpointRead { part, .. } => {
                self.with_node(effects, |shared| shared.node.restore_checkpoint(now, &part));
            }
            EngineEvent::RecordsRead { records, .. } => self.restore(now, &records, effects),
            EngineEvent::CheckpointWanted { shard: OF_NODE } => {
                self.begin_checkpoint(now, effects);
            }
            EngineEvent::CheckpointWanted { shard } => effects.push(empty_checkpoint(shard)),
            EngineEvent::CheckpointWritten { .. } => self.checkpoint_written(effects),
            // Nothing is in streams, and nothing depends on the ends of epochs.
            EngineEvent::Promised { .. }
            | EngineEvent::Accepted { .. }
            | EngineEvent::Durable { .. }
            | EngineEvent::Decided { .. }
            | EngineEvent::Settled { .. }
            | EngineEvent::SnapshotWanted { .. }
            | EngineEvent::Restored { .. }
            | EngineEvent::Timer
            | EngineEvent::Nudged => {}
        }
        let validations = self.with_node(effects, |node| {
            if node.node.wakes_at().is_some_and(|at| at <= now) {
                node.node.tick(now);
            }
            node.node.rows().validations()
        });
        self.give_checkpoint(now, effects);
        self.report_whole(now, effects);
        self.look_at_watched(effects);
        if self.holds_lease(now) {
            self.run(now, effects);
        } else {
            self.hear(effects);
        }
        self.set_timer(now, validations, effects);
        message::join(&mut effects.effects);
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

    fn pending(&self) -> usize {
        self.held() + self.shared.lock().node.pipelines().pending()
    }

    fn held(&self) -> usize {
        self.runtime.pending() + self.transactions.len()
    }

    fn counters(&self) -> EngineCounters<ZeusCounters> {
        let own = match self.runtime.worker_context.place.worker {
            WorkerId(0) => {
                let own = self.counters.of_node(&self.shared.lock());
                ZeusCounters { moves_a_second: self.move_rate.a_second(), ..own }
            }
            _ => self.counters,
        };
        self.runtime.counted(own)
    }

    fn runtime_counters(&self) -> RuntimeCounters {
        self.runtime.counted(()).runtime
    }

    fn shard_values(&self, _: ShardId) -> Vec<Option<u64>> {
        Vec::new()
    }

    fn known_epochs(&self, _: Epoch) -> KnownEpochs {
        let open = self.configuration.as_ref().map_or(Epoch(0), |it| it.epoch);
        let open = open.max(self.shared.lock().node.view().epoch);
        KnownEpochs { open, ..KnownEpochs::default() }
    }

    /// A voter has the directory.
    fn has_caught_up(&self, shard: ShardId, replica: NodeId) -> bool {
        self.shared.lock().node.has_copied(shard, replica)
    }

    /// Streams have no entries.
    fn may_cut(&self, _: ShardId) -> Option<u64> {
        Some(0)
    }

    fn sizes(&self) -> Vec<(&'static str, usize)> {
        let shared = self.shared.lock();
        let node = &shared.node;
        let own = [
            ("transactions", self.transactions.len()),
            ("transactions that are watched", self.watched.len()),
            ("reports of epochs", self.reported.len()),
            ("granules known", node.ownership().holdings().count()),
            ("granules that are open", node.ownership().open()),
            ("acknowledgements of granules", node.ownership().collected()),
            ("granules given up in this epoch", node.ownership().forgotten()),
            ("wants", node.ownership().wants().len()),
            ("pipelines followed", node.followed().iter().count()),
        ];
        self.runtime.sizes().into_iter().chain(own).collect()
    }

    fn take_slow(&mut self) -> Vec<Slow> {
        self.runtime.worker_context.slows.take()
    }
}

impl TaskDriver for Zeus {
    type Message = ZeusEngineMessage;
    type Observation = ZeusObservation;

    fn runtime(&mut self) -> &mut Runtime<ZeusEngineMessage> {
        &mut self.runtime
    }

    fn answer(&mut self, ask: EngineRequest, effects: &mut ZeusEffects) {
        match ask {
            EngineRequest::Send(remote_branches) => self.perform(&remote_branches, effects),
            EngineRequest::Commit(submission) => self.submit(submission, effects),
            EngineRequest::CommitLocal(_) => unreachable!("this engine does not ask for it"),
            EngineRequest::Abandon(remote_branches) => {
                self.forget(remote_branches.id.sequence, effects);
            }
            EngineRequest::Reveal { remote_branches, slot } => {
                self.reveal(remote_branches.id.sequence, slot, effects);
            }
        }
    }

    fn release(&mut self, effects: &mut ZeusEffects) {
        self.hear(effects);
    }
}

impl Zeus {
    fn now(&self) -> Time {
        self.runtime.worker_context.now.get()
    }

    /// Rows are shown, and clients served, only under a lease.
    fn holds_lease(&self, now: Time) -> bool {
        now < self.lease_end
    }

    /// Has the node do something; what it leaves is sent, and workers whose transactions can go on are woken.
    fn with_node<T>(
        &self,
        effects: &mut ZeusEffects,
        step: impl FnOnce(&mut SharedNode) -> T,
    ) -> T {
        let place = self.runtime.worker_context.place;
        let mut shared = self.shared.lock();
        let result = step(&mut shared);
        let output = shared.take_output(place.worker);
        if let Some(observations) = &mut effects.observations {
            observation::show(&mut shared, observations);
        }
        drop(shared);
        let NodeOutput { effects: wanted, woken, records } = output;
        for record in records {
            effects.push(EngineEffect::Record { shard: OF_NODE, record, is_first: false });
        }
        for (worker, crate::options::Effect::Send { to, message }) in wanted {
            let to = WorkerPlace { node: to, worker };
            let message = ZeusEngineMessage::Protocol(vec![message]);
            effects.push(EngineEffect::Send { to, message });
        }
        for worker in woken.into_iter().filter(|worker| *worker != place.worker) {
            effects.push(EngineEffect::Nudge { worker });
        }
        result
    }

    /// Asks to come back when there will be something to do; at once, where another worker has validated rows since this one began
    /// to look at `validations`, and did not know that it waits.
    fn set_timer(&mut self, now: Time, validations: u64, effects: &mut ZeusEffects) {
        let mut shared = self.shared.lock();
        let worker = self.runtime.worker_context.place.worker;
        let was_watching = shared.set_watching(worker, !self.watched.is_empty());
        let has_missed = !self.watched.is_empty()
            && !was_watching
            && shared.node.rows().validations() != validations;
        let node = shared.node.wakes_at();
        self.move_rate.advance(now, shared.node.ownership().counters().moves);
        drop(shared);
        let runs = self.holds_lease(now);
        let watched = self.watched.iter().filter_map(|number| self.transactions.get(number));
        let pending = watched.filter_map(|it| it.pending_until);
        let waits = (!self.transactions.is_empty()).then_some(self.waits_due);
        let missed = has_missed.then_some(now);
        let log = [self.checkpoint.due(), self.reports_whole().then_some(self.whole_due)];
        let due = [node, waits, missed, self.runtime.next_due().filter(|_| runs)];
        let due = due.into_iter().chain(log);
        if let Some(at) = due.flatten().chain(pending).min() {
            effects.push(EngineEffect::Timer { at: at.max(now) });
        }
    }
}
