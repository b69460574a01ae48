//! `two_phase_commit`: the classic baseline. Every step is replicated before the next one counts, so a
//! lock is held for as long as that takes, and every read returns committed data.
//!
//! ```text
//! coordinator            participant on s1       participant on s2        streams
//!   execute ──Execute──►   read
//!   lock own ─Prepare──►   lock, draw 7  ──────►   lock, draw 31  ──────► prepare records
//!   all are locked
//!   validate ─Validate─►   check reads                                    …
//!            ◄─Validated─  once the prepare record is durable
//!   all are prepared and valid: the decision  ──────────────────────────► decision
//!   it is durable: answer the client, install own
//!            ──Commit──►   install, release      install, release  ─────► outcomes
//!            ◄─Resolved──  once the outcome is durable
//!   all have it: the decision may be forgotten  ────────────────────────► end
//! ```
//! What saves time: prepares travel and are replicated in parallel, and beside the validation. The
//! coordinator's own writes on its home shard need no prepare record; they are part of the decision.
//! A transaction that writes one shard only needs neither: once all is valid, one commit record is all
//! (*one phase*). One that touches only one shard, and that another node's, is handed to it whole. One
//! that writes nothing is over when it is validated. Where the coordinator's node serves no shard, one participant keeps the
//! decision, as the *last agent* (`steps/last_agent.rs`): any node coordinates. With the decision durable, locks go at once;
//! the outcome in a participant's own stream is only for its followers and a new leader. A coordinator keeps its
//! decision until the participants have that, and keeps nothing of what it gives up: *presumed abort*
//! (Mohan, Lindsay and Obermarck, TODS 1986).
//!
//! # When a leader fails
//!
//! ```text
//!   s1's leader dies                    s1's new leader                     leader of the home shard
//!   prepared T in its stream ─────────► stream prepared, all replayed,
//!                                       an entry of its own durable
//!                                       T has no outcome: lock it again
//!                                       ──────────── Inquiry ─────────────► decided? It says so.
//!                                       ◄─────────── Decision ───────────── Can never be? Aborted.
//!                                       install or drop, outcome durable    Else it says nothing yet.
//!                                       ────────── Acknowledgement ───────► all have it: end
//! ```
//! Shards are consensus groups, so 2PC does not block where a node fails, as Gray and Lamport have it (*Consensus on
//! transaction commit*, TODS 2006): it waits until the shard has another leader, which finds in the stream what its
//! predecessor had promised. The *home* of a transaction is a shard that its coordinator leads, or that of the last agent; the
//! leadership under which it is to be decided there is in every prepare record. A leadership is named by its shard and the
//! epoch in which it began.
//! No transaction survives its coordinator undecided, and none that is decided depends on it:
//!
//! - Not decided, and home has another leader: once an entry of that leader is durable it can be decided no more, and every
//!   participant that asks is answered *aborted* (P8, argued in `steps/decisions.rs`).
//! - Decided: the new leader of the home shard finds the decision in its stream, with the participants, and sends it to them
//!   until they have it (P9). What the home shard writes itself is part of the decision, and is applied where that is.
//! - A participant has another leader: what is prepared and has no outcome is locked before the shard is served (P7), and
//!   is asked for. Where several such have written one key, the former leader had resolved all but the last of them
//!   (`in_doubt_keys.rs`).
//! - What a participant has neither prepared nor committed is undone with its leader, and the coordinator gives the transaction
//!   up as soon as its node has the configuration with the new leadership. Where that shard was to decide alone, the outcome is *unknown*.
//! - The decision is on its way when home has another leader: the client receives *unknown*, and what the coordinator's node
//!   has prepared on other shards is in doubt like any other branch.
//! - The coordinator is gone, and home has the same leader as before: that is the last agent. Participants ask it, and are
//!   answered *aborted* once its branch is over without a decision.
//!
//! Waits have a bound: what is asked of a shard without a leader ends after [`Limits::shard_wait_max`] with an error, and so
//! does saying that a transaction is given up. A participant undoes what is not prepared when its coordinator has asked nothing
//! for longer than one at work can wait. What is prepared stays locked as long as its home shard has no leader; everything
//! else goes on.
//!
//! Replicas that lose their memory get a copy of the store, and what their streams hold beyond it (`steps/snapshot.rs`): so streams
//! are cut when they have grown beyond what is kept for replicas that are away.
//!
//! Epochs mean nothing here but names of leaderships. Clocks of a shard grow through all of them, since a new leader draws
//! none that its streams have, so versions are ordered by clocks alone and all carry the same epoch. What counts is what is
//! decided in the streams, and nothing is ever rolled back with an epoch: of a closed one a shard reports that nothing was
//! left hanging, as soon as a leader serves it that knows of the next epoch.
//!
//! # Rules
//!
//! - **P1** Validation begins when all locks of the transaction are held, everywhere. So it takes effect
//!   at one instant: between its last lock and its first validation.
//! - **P2** A clock is drawn under the locks. So on one key, install order and clock order agree.
//! - **P3** The decision is appended when all that was read is valid, and all that was prepared on other
//!   shards is durable.
//! - **P4** Nothing is installed, and no client is answered, before the decision on it is durable.
//! - **P5** The safe clock in a stream is below every clock of which the stream does not say what became
//!   of it. Replicas keep tombstones until all streams of the shard have passed them.
//! - **P6** A node reads, locks, draws clocks and validates as a leader only while it holds its lease, and only for requests
//!   that were meant for its present leadership.
//! - **P7** A shard is served when all streams of it are replayed as far as they were inherited, each has an entry of the
//!   new leadership that is durable, and all that is prepared there without an outcome holds its locks.
//! - **P8** A decision is appended only by the leadership that the prepare records name. *Aborted* is answered only if no
//!   decision can appear any more, which a later leadership knows when an entry of its own is durable; no two answers differ.
//! - **P9** A decision is kept, and sent again, until every participant has its outcome durable.
//! - **P10** A snapshot has all that the entries have committed for which it stands, deletes beyond its cut included, or what
//!   came in its place, and what they have prepared or decided and not ended. So a replica that begins with it ends where the others are.
//!
//! Each is asserted where it is kept. [`TwoPhaseCommit`] is the parts of a worker's state, and a step that lets each have what
//! the event brings; then, what is due (`steps/due.rs`). A part keeps its fields to itself, says when there is something for
//! it to do, and asserts its invariants after each step. What a worker does with them is in `steps/`, a file for each
//! responsibility.
//!
//! | file | holds | rules |
//! |---|---|---|
//! | `options.rs`, `message.rs`, `wire.rs`, `record.rs` | configuration, messages and their forms, what is in the streams | |
//! | `observation.rs`, `planted_bugs.rs` | what a checker can see, bugs that can be planted | |
//! | `metrics.rs` | what is counted, stages of a commit, numbers of each shard | |
//! | `shared.rs` | what the workers of a node share | |
//! | `commit_progress.rs` | a transaction that commits, at its coordinator | P1, P3 |
//! | `branch.rs`, `branches.rs` | a branch at its participant; all of them, and when they are due | |
//! | `sliced_work.rs` | what is too large for one step | P4 |
//! | `shard_streams.rs`, `shard_stream.rs` | all streams of a worker, and which of them a step visits; one stream with all that follows | P7, P8 |
//! | `leader_log.rs`, `leader_state.rs` | a stream that is led: clocks in flight, batches, what waits for them; how far the leadership is | P2, P5, P7 |
//! | `prepared_replay.rs` | what a stream says: what is prepared and decided, replay, checkpoints | P5, P10 |
//! | `in_doubt_branch.rs`, `in_doubt_keys.rs` | prepared branches without a coordinator, and the order of their locks | P7 |
//! | `open_decisions.rs` | decisions that are not acknowledged | P9 |
//! | `branch_writes.rs` | writes of a branch, and their way in a copy | P10 |
//!
//! [`Limits::shard_wait_max`]: shoal_engine::execution::Limits::shard_wait_max

mod branch;
mod branch_writes;
mod branches;
mod commit_progress;
mod in_doubt_branch;
mod in_doubt_keys;
mod leader_log;
mod leader_state;
pub mod message;
mod metrics;
mod observation;
mod open_decisions;
mod options;
mod planted_bugs;
mod prepared_replay;
mod record;
mod shard_stream;
mod shard_streams;
mod shared;
mod sliced_work;
mod steps;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire;

pub use message::TwoPhaseCommitMessage;
pub use metrics::TwoPhaseCommitCounters;
pub use observation::TwoPhaseCommitObservation;
pub use options::TwoPhaseCommitOptions;
pub use planted_bugs::TwoPhaseCommitPlantedBug;
pub use shared::TwoPhaseCommitShared;

use branch::BranchTimeouts;
use branch_writes::{CopiedWrites, CopyContext};
use branches::Branches;
use bytes::Bytes;
use commit_progress::Coordinator;
use leader_log::{DurableRecords, RecordWaiter};
use message::{SnapshotChunk, TwoPhaseCommitRequest};
use record::{DeltaBases, RecordEntry};
use shard_stream::ShardStream;
use shard_streams::ShardStreams;
use shared::FIRST_EPOCH;
use shoal_cluster::manager::{Configuration, KnownEpochs};
use shoal_engine::engine::{Engine, EngineEvent, Setup, Task, WorkerPlace};
use shoal_engine::epoch_reports::EpochReports;
use shoal_engine::execution::LocalDatabase;
use shoal_engine::execution::deferred_requests::DeferredRequests;
use shoal_engine::execution::runtime::{RequestName, Runtime};
use shoal_engine::execution::task_driver::TaskDriver;
use shoal_engine::execution::worker_context::{
    EngineRequest, OperationSite, WorkerContext, WorkerSetup,
};
use shoal_engine::metrics::{CommitStage, EngineCounters, ShardMetric};
use shoal_engine::slow::Slow;
use shoal_replication::checkpoint_copy::CheckpointCopy;
use shoal_replication::replay_budget::ReplayBudget;
use shoal_replication::snapshot_transfer::{SnapshotReceivers, SnapshotSenders};
use shoal_store::Store;
use shoal_types::{Clock, Epoch, NodeId, ShardId, Time, WorkerId};
use sliced_work::{KeyBudget, SlicedWork};
use std::sync::Arc;
use std::time::Duration;

/// What is blocked by another worker of the node is tried again after this.
const BLOCKED_FOR: Duration = Duration::from_micros(100);

type TwoPhaseCommitEffects =
    shoal_engine::engine::EngineEffects<TwoPhaseCommitMessage, TwoPhaseCommitObservation>;

/// One worker of a node, which runs two-phase commit.
pub struct TwoPhaseCommit {
    shared: Arc<TwoPhaseCommitShared>,
    runtime: Runtime<TwoPhaseCommitMessage>,
    counters: TwoPhaseCommitCounters,
    coordinator: Coordinator,
    branches: Branches,
    /// Requests to shards that are being recovered.
    deferred: DeferredRequests<TwoPhaseCommitRequest>,
    streams: ShardStreams,
    configuration: Option<Arc<Configuration>>,
    /// Until when this node may act as a leader.
    lease_end: Time,
    /// The reports to the manager of epochs that are closed and not settled.
    reported: EpochReports,
    /// Copies of shards that this worker gives, and takes.
    senders: SnapshotSenders<CopyContext>,
    checkpoint_copy: CheckpointCopy<CopyContext>,
    receivers: SnapshotReceivers<SnapshotChunk>,
    /// What copies have brought of transactions without an outcome.
    copied_writes: CopiedWrites,
    /// What is locked, validated or installed in slices.
    sliced: SlicedWork,
    /// How much may still be replayed in this step.
    budget: ReplayBudget,
    /// How many keys of branches in doubt may still be handled in this step.
    in_doubt_budget: KeyBudget,
    /// When other workers were last notified that clocks have moved.
    nudged_at: Time,
}

impl Engine for TwoPhaseCommit {
    type Message = TwoPhaseCommitMessage;
    type Options = TwoPhaseCommitOptions;
    type Shared = TwoPhaseCommitShared;
    type PlantedBug = TwoPhaseCommitPlantedBug;
    type Observation = TwoPhaseCommitObservation;
    type Counters = TwoPhaseCommitCounters;

    const STAGES: &'static [CommitStage] = metrics::STAGES;
    const SHARD_METRICS: &'static [ShardMetric] = metrics::SHARD_METRICS;

    fn share(setup: &Setup<TwoPhaseCommitOptions>, node: NodeId) -> Arc<TwoPhaseCommitShared> {
        setup.options.check();
        Arc::new(TwoPhaseCommitShared::new(setup, node, FIRST_EPOCH))
    }

    fn store(shared: &TwoPhaseCommitShared, shard: ShardId) -> Option<&Arc<Store>> {
        Some(&shared.replica(shard)?.store)
    }

    fn new(worker: WorkerId, shared: Arc<TwoPhaseCommitShared>, seed: u64) -> TwoPhaseCommit {
        let options = &shared.setup.options;
        let limits = options.limits.clone();
        let place = WorkerPlace { node: shared.node, worker };
        let topology = Arc::clone(&shared.setup.topology);
        let stores = shared.replicas.iter();
        let stores = stores.map(|replica| (replica.shard, Arc::clone(&replica.store))).collect();
        let worker_context = WorkerContext::new(WorkerSetup {
            place,
            topology,
            stores,
            operations_at: OperationSite::Leader,
            epoch: FIRST_EPOCH,
            limits,
            seed,
            // What is installed is committed (rule P4), so all that can be read may be shown.
            reads: None,
            procedures: Arc::clone(&shared.setup.procedures),
        });
        TwoPhaseCommit {
            runtime: Runtime::new(worker_context),
            counters: TwoPhaseCommitCounters::default(),
            coordinator: Coordinator::default(),
            branches: Branches::new(BranchTimeouts::new(options)),
            deferred: DeferredRequests::default(),
            streams: ShardStreams::new(&shared.replicas, options.part()),
            configuration: None,
            lease_end: Time::ZERO,
            reported: EpochReports::default(),
            senders: SnapshotSenders::default(),
            checkpoint_copy: CheckpointCopy::default(),
            receivers: SnapshotReceivers::default(),
            copied_writes: CopiedWrites::default(),
            sliced: SlicedWork::default(),
            budget: ReplayBudget::default(),
            in_doubt_budget: KeyBudget::default(),
            nudged_at: Time::ZERO,
            shared,
        }
    }

    fn step(
        &mut self,
        now: Time,
        event: EngineEvent<TwoPhaseCommitMessage>,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        self.runtime.begin_step(now, &event);
        self.budget.begin(now, self.options().replay_bytes_max);
        self.in_doubt_budget.begin(now, self.shared.setup.options.limits.step_keys_max);
        let holds_lease = self.holds_lease(now);
        match event {
            EngineEvent::Received { from, message }
                if self.runtime.is_peer(from) && (holds_lease || message.is_fact()) =>
            {
                self.receive(from.node, message, effects);
            }
            EngineEvent::Client(request) if holds_lease => self.runtime.request(request),
            // The client asks again, here or elsewhere.
            EngineEvent::Received { .. } | EngineEvent::Client(_) => {
                self.runtime.counters.dropped += 1;
            }
            EngineEvent::Configured { configuration, incarnation } => {
                self.configured(configuration, incarnation, effects);
            }
            EngineEvent::Leading { shard, ballot, length } => {
                self.lead(shard, ballot, length, effects);
            }
            EngineEvent::Durable { shard, length } => self.durable(shard, length, effects),
            EngineEvent::Decided { shard, index: _, entry } => self.decided(shard, entry),
            EngineEvent::Deposed { shard, by: _ } => {
                let at = self.streams.place_of(shard).expect("a stream that is held");
                self.step_down(at, effects);
            }
            // Nothing here depends on which leader a follower has promised, on what it has accepted that is not decided, or
            // on the ends of epochs.
            EngineEvent::Promised { .. }
            | EngineEvent::Accepted { .. }
            | EngineEvent::Settled { .. } => {}
            EngineEvent::SnapshotWanted { shard, to } => self.begin_to_give(now, shard, to),
            EngineEvent::CheckpointWanted { shard } => self.begin_checkpoint(now, shard),
            EngineEvent::CheckpointWritten { shard: _ } => self.checkpoint_written(effects),
            EngineEvent::CheckpointRead { shard: _, part } => self.read_checkpoint(&part, effects),
            EngineEvent::Restored { shard, state } => self.restored(shard, &state, effects),
            // It records nothing beside its streams.
            EngineEvent::Recorded { .. }
            | EngineEvent::RecordsRead { .. }
            | EngineEvent::Timer
            | EngineEvent::Nudged => {}
        }
        self.go_on_where_due(now, holds_lease, effects);
        self.assert_invariants();
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

    fn held(&self) -> usize {
        let in_doubt: usize = self.streams.iter().map(|stream| stream.in_doubt().len()).sum();
        let sliced = self.sliced();
        self.runtime.pending() + self.branches.len() + self.deferred.len() + in_doubt + sliced
    }

    fn pending(&self) -> usize {
        let streams: usize = self.streams.iter().map(ShardStream::pending).sum();
        let [_, given] = self.senders.sizes();
        self.held() + streams + given
    }

    fn may_cut(&self, shard: ShardId) -> Option<u64> {
        Some(self.cuttable(shard))
    }

    fn may_restore(&self, shard: ShardId, from: NodeId, length: u64, state: &Bytes) -> bool {
        self.has_copy(shard, from, length, state)
    }

    fn known_epochs(&self, _settled: Epoch) -> KnownEpochs {
        let open = self.configuration.as_ref().map_or(Epoch(0), |it| it.epoch);
        KnownEpochs { open, ..KnownEpochs::default() }
    }

    fn sizes(&self) -> Vec<(&'static str, usize)> {
        self.table_sizes()
    }

    fn counters(&self) -> EngineCounters<TwoPhaseCommitCounters> {
        let mut counted = self.runtime.counted(self.counters);
        counted.runtime.replayed_bytes = self.budget.total();
        counted
    }

    fn shard_values(&self, shard: ShardId) -> Vec<Option<u64>> {
        let is_held = self.runtime.worker_context.leaderships.holds(shard);
        let replica = self.shared.replica(shard).filter(|_| is_held);
        let leads = self.streams.led_at(shard).is_some();
        let drawn = replica.filter(|_| leads).map(|replica| replica.store.clock().0);
        vec![replica.map(|replica| replica.reached().0), drawn]
    }

    fn describe_entry(_: ShardId, entry: &Bytes) -> String {
        let entry = RecordEntry::decode(entry.clone());
        entry.map_or_else(|error| error.to_string(), |entry| entry.to_string())
    }

    fn take_slow(&mut self) -> Vec<Slow> {
        self.runtime.worker_context.slows.take()
    }
}

impl TaskDriver for TwoPhaseCommit {
    type Message = TwoPhaseCommitMessage;
    type Observation = TwoPhaseCommitObservation;

    fn runtime(&mut self) -> &mut Runtime<TwoPhaseCommitMessage> {
        &mut self.runtime
    }

    fn answer(&mut self, request: EngineRequest, effects: &mut TwoPhaseCommitEffects) {
        match request {
            EngineRequest::Send(remote_branches) => self.send_batches(&remote_branches, effects),
            EngineRequest::Commit(submission) => self.submit(submission, effects),
            EngineRequest::CommitLocal(_) => unreachable!("this engine does not ask for it"),
            EngineRequest::Abandon(remote_branches) => self.abandon(&remote_branches, effects),
            EngineRequest::Reveal { remote_branches, slot } => {
                // What is installed is committed (rule P4), so all that can be read may be shown.
                let transaction = remote_branches.id;
                effects
                    .observe(|| TwoPhaseCommitObservation::Acknowledged { transaction, shards: 0 });
                slot.fill(Ok(()));
            }
        }
    }
}

impl TwoPhaseCommit {
    fn options(&self) -> &TwoPhaseCommitOptions {
        &self.shared.setup.options
    }

    /// Which versions of a shard deltas may have as their bases.
    fn delta_bases(&self, at: usize) -> DeltaBases {
        let TwoPhaseCommitOptions { limits, faults, .. } = self.options();
        let durable = match faults.has(TwoPhaseCommitPlantedBug::PatchUndurable) {
            true => Clock(u64::MAX),
            false => self.shared.replicas[at].reached(),
        };
        DeltaBases { deltas: limits.deltas, durable }
    }

    /// Does the node lead the shard, as far as this one knows?
    fn is_leader(&self, node: NodeId, shard: ShardId) -> bool {
        self.has_shard(shard) && self.runtime.worker_context.leader(shard) == node
    }

    /// Is there such a shard?
    fn has_shard(&self, shard: ShardId) -> bool {
        shard.0 < self.runtime.worker_context.topology.shards()
    }

    /// May this node act as a leader (rule P6)?
    fn holds_lease(&self, now: Time) -> bool {
        now < self.lease_end || self.options().faults.has(TwoPhaseCommitPlantedBug::ActWithoutLease)
    }

    fn receive(
        &mut self,
        from: NodeId,
        message: TwoPhaseCommitMessage,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        match message {
            TwoPhaseCommitMessage::Request { header, request } => {
                self.serve(from, &header, request, effects);
            }
            TwoPhaseCommitMessage::Reply { transaction, shard, step, reply } => {
                let fits = |request: &TwoPhaseCommitMessage| message::answers(request, &reply);
                if let Some(key) =
                    self.runtime.answered(from, &RequestName { transaction, shard, step }, fits)
                {
                    self.replied(key, reply, effects);
                }
            }
            TwoPhaseCommitMessage::Relay(relay) => self.runtime.relayed(from, relay),
            TwoPhaseCommitMessage::Inquiry { transaction, home, participant } => {
                self.answer_inquiry(from, transaction, home, participant, effects);
            }
            TwoPhaseCommitMessage::Decision { transaction, home, participant, committed }
                if self.is_leader(from, home) =>
            {
                self.receive_decision(transaction, home, participant, committed, effects);
            }
            TwoPhaseCommitMessage::Acknowledgement { transaction, home: _, shard }
                if self.is_leader(from, shard) =>
            {
                self.acknowledged(transaction, shard);
            }
            TwoPhaseCommitMessage::Chunk(part) => self.take_part(from, part, effects),
            TwoPhaseCommitMessage::ChunkTaken { shard, copy, reached } => {
                self.part_is_taken(from, shard, copy, reached.as_ref());
            }
            // The sender leads no more, or this node has not received the configuration in which it leads. The sender
            // repeats the message.
            TwoPhaseCommitMessage::Decision { .. }
            | TwoPhaseCommitMessage::Acknowledgement { .. } => self.runtime.counters.dropped += 1,
        }
    }

    /// The stream that this worker leads for `shard` has that many decided entries.
    fn durable(&mut self, shard: ShardId, length: u64, effects: &mut TwoPhaseCommitEffects) {
        let at = self.streams.led_at(shard).expect("only led streams report this");
        let now = self.runtime.worker_context.now.get();
        let (durable, transit) = self.streams[at].durable(now, length);
        self.runtime.count_transit(transit);
        for DurableRecords { entry, waiters } in durable {
            self.streams[at].enter(decode(shard, entry), true);
            for waiter in waiters {
                match waiter {
                    RecordWaiter::Branch(transaction) => {
                        self.branch_is_durable(at, transaction, effects);
                    }
                    RecordWaiter::Prepared(sequence) => self.own_is_prepared(sequence, effects),
                    RecordWaiter::Decided(sequence) => self.is_decided(sequence, effects),
                    RecordWaiter::Outcome(transaction, home) => {
                        self.acknowledge(transaction, home, shard, effects);
                    }
                }
            }
        }
        self.stabilize(at);
    }

    /// A stream has decided its next entry, which another leader had appended.
    fn decided(&mut self, shard: ShardId, entry: Bytes) {
        let at = self.streams.place_of(shard).expect("a stream that is held");
        self.streams[at].enter(decode(shard, entry), false);
        self.stabilize(at);
    }
}

/// Takes an entry apart. What is decided is in the store of the leader that proposed it: to skip it would part this replica
/// from the others for good.
///
/// # Panics
/// If it is malformed.
fn decode(shard: ShardId, entry: Bytes) -> RecordEntry {
    RecordEntry::decode(entry)
        .unwrap_or_else(|error| panic!("a leader of {shard} proposed it: {error}"))
}
