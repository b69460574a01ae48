//! `mako`: certify speculatively among the shard leaders, replicate in the background (Mako, OSDI'25, §4).
//!
//! ```text
//! coordinator           participant on s1       participant on s2        streams
//!   execute ──Execute──►  read
//!   lock own ──Lock────►  lock, draw 7  ──────►   lock, draw 31
//!   validate ─Validate─►  check reads
//!   certified: stamp [s1 7] [s2 31] + what was read
//!   install own ─Install► install, append       install, append  ──────►  replicate
//!   …                                                                     s1 ≥ 7, s2 ≥ 31 durable
//!   the vector watermark covers the stamp: answer the client
//! ```
//! Nothing waits for replication but the client. A transaction on one shard is certified in one
//! function call; one whose shards are all this node's, too. One that touches a single shard of another
//! node is committed there with one message. Where only one shard is written, its lock and validation
//! share a message, since then all locks of the transaction are held.
//!
//! The state of a worker, and what is shared, each with what keeps its invariants:
//!
//! | file | holds | rules |
//! |---|---|---|
//! | `options.rs`, `message.rs`, `wire.rs`, `piece.rs` | configuration, messages and their forms, what is in the streams | |
//! | `observation.rs`, `planted_bugs.rs` | what a checker can see, bugs that can be planted | |
//! | `metrics.rs` | what is counted, stages of a commit, numbers of each shard | |
//! | `shared.rs`, `mako_replica.rs` | what the workers of a node share: of all epochs, and of each copy of a shard | |
//! | `certification.rs` | transactions that are certified | M1 |
//! | `branch.rs` | branches of other nodes' transactions | M2 |
//! | `installing.rs` | what is installed in slices | M2, M3 |
//! | `plausibility.rs` | what messages may say; anything else is counted and dropped | |
//! | `leader_shard.rs`, `leader_shards.rs`, `leader_state.rs` | a shard that is led: clocks in flight, batches, safe clocks; all of them; how far a leadership is | M2, M3 |
//! | `shared_watermark.rs`, `watermarks.rs` | what is durable, and how epochs ended: to the node, to a worker | M4, M9, M12 |
//! | `gossip.rs` | which nodes receive watermarks, and when | M4 |
//! | `epochs.rs`, `live_epochs.rs`, `epoch_ends.rs` | epochs that are open or closed: of the node, of a worker; the form of their ends | M3, M8, M9 |
//! | `failure_detector.rs` | which nodes are silent | M3 |
//! | `undecided_versions.rs`, `shared_undecided.rs` | versions that only a lost shard can decide, and what becomes of them on a node | M12 |
//! | `losses.rs` | shards whose majority is lost for good | M9, M12 |
//! | `stable_prefix.rs` | how much of a stream the store has for good, and the stream may lose | |
//! | `snapshot_chunk.rs` | a chunk of a copy, as it is sent | M10 |
//! | `rollback_collections.rs` | passes over stores that look for what was rolled back | M9 |
//! | `durability_wait.rs`, `commit_waits.rs` | what waits for the watermark, and the transactions that do | M5, M11 |
//! | `follower_replay.rs`, `follower_replays.rs` | a shard that is followed, and all of them | M6 |
//! | `clock_counts.rs`, `covered_pieces.rs`, `piece_replay.rs` | what waits to be replayed, its clocks, and replay | M6 |
//! | `dependencies.rs` | what reads add to a stamp | M1, M8 |
//!
//! What a worker does with them is in `steps/`, a file for each responsibility.
//!
//! [`Mako`] is these parts and a step that lets each have what the event brings; then, what is due (`steps/due.rs`). A part keeps its
//! fields to itself, says when there is something for it to do, and asserts its invariants after each step. The invariants of the
//! protocol are asserted where they are kept, under their names in `ARCHITECTURE.md`.

mod branch;
mod certification;
mod clock_counts;
mod commit_waits;
mod covered_pieces;
mod dependencies;
mod durability_wait;
pub mod epoch_ends;
mod epochs;
mod failure_detector;
mod follower_replay;
mod follower_replays;
mod gossip;
mod installing;
mod leader_shard;
mod leader_shards;
mod leader_state;
mod live_epochs;
mod losses;
mod mako_replica;
pub mod message;
mod metrics;
mod observation;
mod options;
mod piece;
mod piece_replay;
mod planted_bugs;
mod plausibility;
mod rollback_collections;
mod shared;
mod shared_undecided;
mod shared_watermark;
mod snapshot_chunk;
mod stable_prefix;
mod steps;
mod undecided_versions;
mod watermarks;
#[cfg(test)]
mod wire;

pub use message::MakoMessage;
pub use metrics::MakoCounters;
pub use observation::MakoObservation;
pub use options::{FULL_SHARDS_MAX, MakoOptions, REMOTE_MAX, StampForm};
pub use planted_bugs::MakoPlantedBug;
pub use shared::MakoShared;

use branch::{MakoBranch, PausedCertification};
use bytes::Bytes;
use certification::Coordinator;
use commit_waits::{CommitWaiter, CommitWaits, WaitingAttempt};
use dependencies::RevealedReads;
use epoch_ends::watermark_of;
use failure_detector::FailureDetector;
use follower_replays::FollowerReplays;
use gossip::Gossip;
use leader_shard::LeaderShard;
use leader_shards::LeaderShards;
use live_epochs::LiveEpochs;
use losses::Losses;
use message::{MakoReply, MakoRequest};
use piece::StreamEntry;
use rollback_collections::RollbackCollections;
use shoal_cluster::manager::{Configuration, EpochEnd, KnownEpochs};
use shoal_engine::engine::{Engine, EngineEvent, Setup, Task, WorkerPlace};
use shoal_engine::execution::LocalDatabase;
use shoal_engine::execution::deferred_requests::DeferredRequests;
use shoal_engine::execution::participant_table::ParticipantTable;
use shoal_engine::execution::runtime::{RequestName, Runtime};
use shoal_engine::execution::task_driver::TaskDriver;
use shoal_engine::execution::worker_context::{
    EngineRequest, OperationSite, WorkerContext, WorkerSetup,
};
use shoal_engine::metrics::{CommitStage, EngineCounters, ShardMetric};
use shoal_engine::slow::Slow;
use shoal_replication::checkpoint_copy::CheckpointCopy;
use shoal_replication::snapshot_transfer::{SnapshotReceivers, SnapshotSenders};
use shoal_store::Store;
use shoal_types::{Epoch, NodeId, ShardId, Time, WorkerId};
use snapshot_chunk::{SnapshotChunk, SnapshotScope};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use watermarks::Watermarks;

/// The epoch of a cluster whose configuration has never changed.
const FIRST_EPOCH: Epoch = Epoch(1);

type MakoEffects = shoal_engine::engine::EngineEffects<MakoMessage, MakoObservation>;

/// One worker of a node, speaking `mako`.
pub struct Mako {
    shared: Arc<MakoShared>,
    runtime: Runtime<MakoMessage>,
    counters: MakoCounters,
    coordinator: Coordinator,
    /// What this worker knows to be durable; shared with [`RevealedReads`], which the runtime asks.
    watermarks: Rc<RefCell<Watermarks>>,
    /// A reply that is still to come is `None`.
    branches: ParticipantTable<MakoBranch, Option<MakoReply>>,
    /// What goes on in another step, the first one first.
    paused: VecDeque<PausedCertification>,
    leader_shards: LeaderShards,
    follower_replays: FollowerReplays,
    gossip: Gossip,
    /// The epochs that are not settled.
    epochs: LiveEpochs,
    /// The transactions that wait for the watermark.
    waits: CommitWaits,
    /// Losses of majorities that were accepted, of any shards.
    losses: Losses,
    /// The nodes from which no message has arrived for a while.
    failure_detector: FailureDetector,
    /// Requests to shards that are being recovered.
    deferred: DeferredRequests<MakoRequest>,
    /// Passes over stores that look for what was rolled back.
    collections: RollbackCollections,
    /// Copies of shards that this worker gives, and takes; one for each replica, or shard.
    snapshot_senders: SnapshotSenders<SnapshotScope>,
    checkpoint_copy: CheckpointCopy<SnapshotScope>,
    snapshot_receivers: SnapshotReceivers<SnapshotChunk>,
}

impl Engine for Mako {
    type Message = MakoMessage;
    type Options = MakoOptions;
    type Shared = MakoShared;
    type PlantedBug = MakoPlantedBug;
    type Observation = MakoObservation;
    type Counters = MakoCounters;

    const STAGES: &'static [CommitStage] = metrics::STAGES;
    const SHARD_METRICS: &'static [ShardMetric] = metrics::SHARD_METRICS;

    fn share(setup: &Setup<MakoOptions>, node: NodeId) -> Arc<MakoShared> {
        setup.options.check(setup.topology.shards());
        Arc::new(MakoShared::new(setup, node, FIRST_EPOCH))
    }

    fn store(shared: &MakoShared, shard: ShardId) -> Option<&Arc<Store>> {
        Some(&shared.replica(shard)?.store)
    }

    fn new(worker: WorkerId, shared: Arc<MakoShared>, seed: u64) -> Mako {
        let options = &shared.setup.options;
        let shards = shared.setup.topology.shards() as usize;
        let (limits, faults) = (options.limits.clone(), options.faults);
        let place = WorkerPlace { node: shared.node, worker };
        let topology = Arc::clone(&shared.setup.topology);
        let stores = shared.replicas.iter();
        let stores = stores.map(|replica| (replica.shard, Arc::clone(&replica.store))).collect();
        let watermarks = Rc::new(RefCell::new(Watermarks::new(FIRST_EPOCH, shards, faults)));
        let reads = Rc::new(RevealedReads { watermarks: Rc::clone(&watermarks) });
        let worker_context = WorkerContext::new(WorkerSetup {
            place,
            topology,
            stores,
            operations_at: OperationSite::Leader,
            epoch: FIRST_EPOCH,
            limits,
            seed,
            reads: Some(reads),
            procedures: Arc::clone(&shared.setup.procedures),
        });
        worker_context.takes_local.set(true);
        Mako {
            gossip: Gossip::new(&worker_context),
            runtime: Runtime::new(worker_context),
            counters: MakoCounters::default(),
            coordinator: Coordinator::default(),
            watermarks,
            branches: ParticipantTable::default(),
            paused: VecDeque::new(),
            leader_shards: LeaderShards::new(&shared.replicas, FIRST_EPOCH),
            follower_replays: FollowerReplays::new(&shared, shards),
            epochs: LiveEpochs::new(FIRST_EPOCH, shared.epochs.first()),
            waits: CommitWaits::new(FIRST_EPOCH, shards),
            losses: Losses::default(),
            failure_detector: FailureDetector::new(shared.setup.topology.nodes().len()),
            deferred: DeferredRequests::default(),
            collections: RollbackCollections::default(),
            snapshot_senders: SnapshotSenders::default(),
            checkpoint_copy: CheckpointCopy::default(),
            snapshot_receivers: SnapshotReceivers::default(),
            shared,
        }
    }

    fn step(&mut self, now: Time, event: EngineEvent<MakoMessage>, effects: &mut MakoEffects) {
        self.runtime.begin_step(now, &event);
        self.follower_replays.begin_step(now, self.shared.setup.options.replay_bytes_max);
        self.failure_detector.awake(now, self.shared.setup.options.silent_after);
        if let EngineEvent::Received { from, .. } = event {
            let (led, worker_context) = (&self.leader_shards, &self.runtime.worker_context);
            // A node that leads nothing sends at no fixed times, and is given the more time for it.
            let waits = |since| {
                !worker_context.leaderships.is_leader(from.node)
                    || led.leading().any(|(_, led)| led.lead.waits_for(from.node, since))
            };
            self.failure_detector.on_message(
                from.node,
                now,
                self.shared.setup.options.silent_after,
                waits,
            );
        }
        self.follow_epochs(effects);
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
                self.configured(&configuration, incarnation, effects);
            }
            EngineEvent::Leading { shard, ballot, length } => {
                self.lead(shard, ballot, length, effects);
            }
            EngineEvent::Deposed { shard, by: _ } => self.deposed(shard, effects),
            EngineEvent::Promised { shard, ballot } => self.promised(shard, ballot),
            // Followers replay what is decided.
            EngineEvent::Accepted { .. } => {}
            EngineEvent::Durable { shard, length } => self.durable(shard, length, effects),
            EngineEvent::Decided { shard, index: _, entry } => self.decided(shard, entry, effects),
            EngineEvent::Settled { ends } => self.learn_settled(watermark_of(&ends), effects),
            EngineEvent::SnapshotWanted { shard, to } => self.begin_to_give(now, shard, to),
            EngineEvent::Restored { shard, state } => self.restored(shard, &state, effects),
            EngineEvent::CheckpointWanted { shard } => self.begin_checkpoint(now, shard),
            EngineEvent::CheckpointWritten { shard: _ } => self.checkpoint_written(effects),
            EngineEvent::CheckpointRead { shard: _, part } => self.read_checkpoint(&part, effects),
            // It records nothing beside its streams.
            EngineEvent::Recorded { .. }
            | EngineEvent::RecordsRead { .. }
            | EngineEvent::Timer
            | EngineEvent::Nudged => {}
        }
        self.go_on_where_due(now, holds_lease, effects);
        self.set_timer(now, effects);
        self.assert_invariants();
    }

    fn local(&self) -> LocalDatabase {
        LocalDatabase::new(&self.runtime.worker_context)
    }

    fn spawn(&mut self, task: Task) {
        self.runtime.tasks.spawn(task);
    }

    fn renew(&mut self, lease_end: Time) {
        self.leader_shards.renew(lease_end);
    }

    fn held(&self) -> usize {
        self.runtime.pending() + self.waits.len() + self.branches.len() + self.deferred.len()
    }

    fn pending(&self) -> usize {
        let led: usize = self.leader_shards.iter().map(LeaderShard::pending).sum();
        let [_, snapshot_senders] = self.snapshot_senders.sizes();
        self.held()
            + led
            + self.follower_replays.pending()
            + self.collections.len()
            + snapshot_senders
    }

    fn counters(&self) -> EngineCounters<MakoCounters> {
        let mut counted = self.runtime.counted(self.counters);
        counted.runtime.replayed_bytes = self.follower_replays.bytes();
        counted
    }

    fn shard_values(&self, shard: ShardId) -> Vec<Option<u64>> {
        self.shard_numbers(shard).into()
    }

    fn may_cut(&self, shard: ShardId) -> Option<u64> {
        Some(self.may_cut(shard))
    }

    fn may_restore(&self, shard: ShardId, from: NodeId, length: u64, state: &Bytes) -> bool {
        self.has_copy(shard, from, length, state)
    }

    fn lacking(&self, shard: ShardId) -> Vec<(Epoch, EpochEnd, Option<EpochEnd>)> {
        self.lacking_ends(shard)
    }

    fn known_epochs(&self, settled: Epoch) -> KnownEpochs {
        self.shared.epochs.known(settled)
    }

    fn exceeds(&self, configuration: &Configuration) -> Option<ShardId> {
        self.exceeds_loss(configuration)
    }

    fn describe_entry(shard: ShardId, entry: &Bytes) -> String {
        let entry = StreamEntry::decode(shard, entry.clone());
        entry.map_or_else(|error| error.to_string(), |entry| entry.to_string())
    }

    fn take_slow(&mut self) -> Vec<Slow> {
        self.runtime.worker_context.slows.take()
    }

    fn sizes(&self) -> Vec<(&'static str, usize)> {
        self.table_sizes()
    }
}

impl TaskDriver for Mako {
    type Message = MakoMessage;
    type Observation = MakoObservation;

    fn runtime(&mut self) -> &mut Runtime<MakoMessage> {
        &mut self.runtime
    }

    fn answer(&mut self, ask: EngineRequest, effects: &mut MakoEffects) {
        match ask {
            EngineRequest::Send(remote_branches) => self.send_batches(&remote_branches, effects),
            EngineRequest::Commit(submission) => self.submit(submission, effects),
            EngineRequest::CommitLocal(submission) => self.submit_local(submission, effects),
            EngineRequest::Abandon(remote_branches) => self.abandon(&remote_branches, effects),
            EngineRequest::Reveal { slot, .. }
                if self.options().faults.has(MakoPlantedBug::RevealAtOnce) =>
            {
                slot.fill(Ok(()));
            }
            EngineRequest::Reveal { remote_branches, slot } => {
                let stamp = dependencies::known(&remote_branches);
                let home = self.runtime.worker_context.home();
                let since = self.runtime.worker_context.now.get();
                let attempt = WaitingAttempt::Shared(remote_branches);
                let waiter = CommitWaiter { attempt, since, reveals: Some(slot) };
                self.await_cover(home, stamp, waiter, effects);
            }
        }
    }

    /// Answers the clients of transactions that the watermark covers by now, and replays what it covers.
    fn release(&mut self, effects: &mut MakoEffects) {
        let (mut done, mut lost) = (Vec::new(), Vec::new());
        let (mut news, mut closed_news) = (false, false);
        for live in self.epochs.iter_mut() {
            // Looked up before the clocks: those are then where these shards have ended.
            if !live.has_changed() {
                continue;
            }
            let (epoch, shared) = (live.epoch(), live.watermark());
            let mut watermarks = self.watermarks.borrow_mut();
            let ended: Vec<ShardId> = shared.ended().collect();
            let view = watermarks.live_mut(epoch).expect("it is not settled");
            shared.refresh(view);
            news = true;
            closed_news |= live.is_closed();
            self.waits.advance(view, |own, stamp, waiter| done.push((own, stamp, waiter)));
            let end = |news, shard| watermarks.end(epoch, shard) | news;
            if ended.into_iter().fold(false, end) {
                lost.push(epoch);
            }
        }
        for (own, stamp, waiter) in done {
            self.tell(own, stamp, &waiter, effects);
        }
        if news {
            self.gossip.shares_news();
            self.replay_covered(effects);
        }
        let is_over = !lost.is_empty();
        for epoch in lost {
            self.give_up_lost(epoch, effects);
        }
        if is_over || closed_news {
            self.decide_undecided(effects);
        }
    }
}

impl Mako {
    fn options(&self) -> &MakoOptions {
        &self.shared.setup.options
    }

    /// May this node act as a leader (rule M7)?
    fn holds_lease(&self, now: Time) -> bool {
        now < self.leader_shards.lease_end()
            || self.options().faults.has(MakoPlantedBug::ActWithoutLease)
    }

    fn receive(&mut self, from: NodeId, message: MakoMessage, effects: &mut MakoEffects) {
        match message {
            MakoMessage::Request { header, request } => self.serve(from, &header, request, effects),
            MakoMessage::Reply { transaction, shard, step, reply } => {
                let shards = self.runtime.worker_context.topology.shards();
                let fits = |asked: &MakoMessage| plausibility::reply(asked, &reply, shard, shards);
                if let Some(key) =
                    self.runtime.answered(from, &RequestName { transaction, shard, step }, fits)
                {
                    self.replied(key, reply, effects);
                }
            }
            MakoMessage::Relay(relay) => self.runtime.relayed(from, relay),
            MakoMessage::Gossip { watermark, ended, floor } => {
                self.on_gossip(from, &watermark, &ended, floor, effects);
            }
            MakoMessage::Chunk(part) => self.take_part(from, part, effects),
            MakoMessage::ChunkTaken { shard, copy, reached } => {
                self.part_is_taken(from, shard, copy, reached.as_ref());
            }
        }
    }
}
