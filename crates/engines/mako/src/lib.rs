//! `mako`: certify speculatively among the shard leaders, replicate in the background (Mako, OSDI'25,
//! §4; design §5).
//!
//! ```text
//! coordinator           participant on s1       participant on s2        streams
//!   execute ──Execute──►  read
//!   lock own ──Lock────►  lock, draw 7  ──────►   lock, draw 31
//!   validate ─Validate─►  check reads
//!   certified: stamp [s1 7] [s2 31] + what was read
//!   install own ─Install► install, append       install, append  ──────►  replicate
//!   …                                                                     s1 ≥ 7, s2 ≥ 31 durable
//!   the vector watermark covers the stamp: tell the client
//! ```
//! Nothing waits for replication but the client. A transaction on one shard is certified in one
//! function call; one whose shards are all this node's, too. One that touches a single shard of another
//! node is committed there with one message. Where only one shard is written, its lock and validation
//! share a message, since then all locks of the transaction are held.
//!
//! | file | holds | rules |
//! |---|---|---|
//! | `options.rs`, `message.rs`, `wire.rs`, `piece.rs` | configuration, messages and their forms, what is in the streams | |
//! | `observation.rs`, `planted_bugs.rs` | what a checker can see, bugs that can be planted | |
//! | `shared.rs` | what the workers of a node share | |
//! | `coordinator.rs` | from execution to certification | M1, M5 |
//! | `participant.rs` | branches of other nodes' transactions | M2 |
//! | `slices.rs`, `installing.rs` | what is too large for one step | M2, M3 |
//! | `plausibility.rs` | what messages may say; anything else is counted and dropped | |
//! | `leader_shard.rs` | a shard that is led: clocks in flight, batches, safe clocks | M2, M3 |
//! | `watermark.rs` | durability: shard watermarks, gossip | M4 |
//! | `epochs.rs`, `epoch_change.rs` | epochs open, close and are settled | M3, M8, M9 |
//! | `failure_detector.rs` | who holds up a shard and is gone | M3 |
//! | `undecided.rs` | versions that only a lost shard can decide | M12 |
//! | `unanswered.rs` | waits for other shards have a bound | M11 |
//! | `loss.rs` | a shard whose majority is lost for good | M9, M12 |
//! | `leadership.rs` | who leads a shard: taking over, recovering, leaving | M7, M9 |
//! | `stable_prefix.rs` | how much of a stream the store has for good, and the stream may lose | |
//! | `snapshot.rs` | how a replica gets what streams have no more | |
//! | `snapshot_chunk.rs` | a chunk of a copy, as it is sent | |
//! | `rollback_collection.rs` | what was rolled back leaves the stores | M9 |
//! | `sizes.rs` | how much each table holds | |
//! | `durability_wait.rs` | what waits for the watermark | M5 |
//! | `follower_replay.rs`, `replay_budget.rs` | a shard that is followed: replay | M6 |
//! | `watermarks.rs` | what a worker knows to be durable, and how epochs ended | M9, M12 |
//! | `dependencies.rs` | what reads add to a stamp | M1, M8 |
//! | `staged_certification.rs` | a branch on its way through certification | |
//!
//! Invariants are asserted where they are kept, under the names of design §5.

mod coordinator;
mod dependencies;
mod durability_wait;
mod epoch_change;
pub mod epoch_ends;
mod epochs;
mod failure_detector;
mod follower_replay;
mod installing;
mod leader_shard;
mod leadership;
mod loss;
pub mod message;
mod observation;
mod options;
mod participant;
mod piece;
mod planted_bugs;
mod plausibility;
mod replay_budget;
mod rollback_collection;
mod shared;
mod sizes;
mod slices;
mod snapshot;
mod snapshot_chunk;
mod stable_prefix;
mod staged_certification;
mod unanswered;
mod undecided;
mod watermark;
mod watermarks;
mod wire;

pub use message::MakoMessage;
pub use observation::MakoObservation;
pub use options::{FULL_SHARDS_MAX, MakoOptions, REMOTE_MAX, StampForm};
pub use planted_bugs::MakoPlantedBug;
pub use shared::MakoShared;

use bytes::Bytes;
use coordinator::Coordinator;
use dependencies::RevealedReads;
use epoch_change::LiveEpoch;
use epoch_ends::watermark_of;
use failure_detector::FailureDetector;
use follower_replay::FollowerReplay;
use leader_shard::LeaderShard;
use leadership::DeferredRequest;
use message::MakoReply;
use participant::MakoBranch;
use piece::StreamEntry;
use replay_budget::ReplayBudget;
use rollback_collection::RollbackCollection;
use shoal_cluster::manager::{Configuration, EpochEnd, HeardEpochs, Loss};
use shoal_engine::engine::{
    Engine, EngineCounters, EngineEffect, EngineEvent, Setup, ShardProgress, Task, WorkerPlace,
};
use shoal_engine::execution::LocalDatabase;
use shoal_engine::execution::participant_table::ParticipantTable;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::runtime::{Runtime, TURN};
use shoal_engine::execution::slot::ResultSlot;
use shoal_engine::execution::task_driver::TaskDriver;
use shoal_engine::execution::worker_context::{EngineRequest, WorkerContext, WorkerSetup};
use shoal_engine::replication::replica::ShardReplica;
use shoal_engine::slow::Slow;
use shoal_store::Store;
use shoal_types::{Epoch, NodeId, ShardId, Stamp, Time, WorkerId};
use slices::PausedCertification;
use snapshot::{SnapshotReceiver, SnapshotSender};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use watermark::Gossip;
use watermarks::Watermarks;

/// The epoch of a cluster whose configuration has never changed.
const FIRST_EPOCH: Epoch = Epoch(1);

type MakoEffects = shoal_engine::engine::EngineEffects<MakoMessage, MakoObservation>;

/// One worker of a node, speaking `mako`.
pub struct Mako {
    shared: Arc<MakoShared>,
    runtime: Runtime<MakoMessage>,
    coordinator: Coordinator,
    /// What this worker knows to be durable; shared with [`RevealedReads`], which the runtime asks.
    watermarks: Rc<RefCell<Watermarks>>,
    /// A reply that is still to come is `None`.
    branches: ParticipantTable<MakoBranch, Option<MakoReply>>,
    /// What goes on in another step, the first one first.
    paused: VecDeque<PausedCertification>,
    leader_shards: Vec<LeaderShard>,
    follower_replays: Vec<FollowerReplay>,
    /// How much of what they could replay they may in this step.
    replaying: ReplayBudget,
    gossip: Gossip,
    /// The epochs that are not settled, oldest first.
    live: Vec<LiveEpoch>,
    /// The version of the shared epochs that this worker has seen.
    epochs_seen: u64,
    /// Since which epoch this node leads each shard, by the configuration; as in `led`.
    leaderships: Vec<Option<Epoch>>,
    /// Losses of majorities that were accepted, of any shards.
    losses: BTreeMap<ShardId, Loss>,
    /// Until when this node may act as a leader.
    lease_end: Time,
    /// The nodes that this worker has not heard for a while.
    failure_detector: FailureDetector,
    /// Requests to shards that are being recovered.
    deferred: VecDeque<DeferredRequest>,
    /// No branch of this epoch, or of one before, is open.
    branches_ended: Epoch,
    /// FVWs of epochs up to this one the manager keeps no more.
    may_forget: Epoch,
    /// Passes over stores that look for what was rolled back.
    collections: Vec<RollbackCollection>,
    /// Copies of shards that this worker gives, and takes; one for each replica, or shard.
    snapshot_senders: Vec<SnapshotSender>,
    snapshot_receivers: Vec<SnapshotReceiver>,
    /// When the next part may be given.
    give_at: Time,
    /// No transaction has waited too long for the watermark before this.
    waiters_due: Time,
    /// No transaction that holds locks has waited too long for a silent leader before this.
    silent_due: Time,
    /// Of what was undecided something is decided, and not applied yet.
    undecided_left: bool,
}

/// A transaction that waits for the watermark.
struct CommitWaiter {
    remote_branches: Rc<RemoteBranches>,
    /// Since when; later by as much as it may wait longer than others.
    since: Time,
    /// Where it waits to show its client what it has read; `None` once it is certified.
    reveals: Option<Rc<ResultSlot<shoal_types::Result<()>>>>,
}

impl Engine for Mako {
    type Message = MakoMessage;
    type Options = MakoOptions;
    type Shared = MakoShared;
    type PlantedBug = MakoPlantedBug;
    type Observation = MakoObservation;

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
        let (topology, replicas) = (Arc::clone(&shared.setup.topology), &shared.replicas);
        let watermarks = Rc::new(RefCell::new(Watermarks::new(FIRST_EPOCH, shards, faults)));
        let reads = Rc::new(RevealedReads { watermarks: Rc::clone(&watermarks) });
        let worker_context = WorkerContext::new(WorkerSetup {
            place,
            topology,
            replicas,
            epoch: FIRST_EPOCH,
            limits,
            seed,
            reads: Some(reads),
            procedures: Arc::clone(&shared.setup.procedures),
        });
        (0..shared.replicas.len()).for_each(|at| worker_context.serve(at, false));
        let replicas = shared.replicas.iter();
        Mako {
            gossip: Gossip::new(&worker_context),
            runtime: Runtime::new(worker_context),
            coordinator: Coordinator::default(),
            watermarks,
            branches: ParticipantTable::default(),
            paused: VecDeque::new(),
            leader_shards: replicas
                .clone()
                .map(|replica| LeaderShard::new(replica.shard, FIRST_EPOCH))
                .collect(),
            follower_replays: replicas
                .map(|replica| FollowerReplay::new(replica, shards))
                .collect(),
            replaying: ReplayBudget::default(),
            live: vec![LiveEpoch::new(FIRST_EPOCH, shared.epochs.first(), shards)],
            epochs_seen: 0,
            leaderships: Vec::new(),
            losses: BTreeMap::new(),
            lease_end: Time::ZERO,
            failure_detector: FailureDetector::new(shared.setup.topology.nodes().len()),
            deferred: VecDeque::new(),
            branches_ended: Epoch(FIRST_EPOCH.0 - 1),
            may_forget: Epoch(0),
            collections: Vec::new(),
            snapshot_senders: Vec::new(),
            snapshot_receivers: Vec::new(),
            give_at: Time::ZERO,
            waiters_due: Time::MAX,
            silent_due: Time::MAX,
            undecided_left: false,
            shared,
        }
    }

    fn step(&mut self, now: Time, event: EngineEvent<MakoMessage>, effects: &mut MakoEffects) {
        self.runtime.begin_step(now, &event);
        self.replaying.begin(now, self.shared.setup.options.replay_bytes_max);
        self.failure_detector.awake(now, self.shared.setup.options.silent_after);
        if let EngineEvent::Received { from, .. } = event {
            let (led, worker_context) = (&self.leader_shards, &self.runtime.worker_context);
            // A node that leads nothing speaks when it pleases, and is given the more time for it.
            let waits = |since| {
                !worker_context.is_leader(from.node)
                    || led.iter().any(|led| led.lead.waits_for(from.node, since))
            };
            self.failure_detector.hear(
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
            EngineEvent::Durable { shard, length } => self.durable(shard, length, effects),
            EngineEvent::Decided { shard, index: _, entry } => self.decided(shard, entry, effects),
            EngineEvent::Settled { ends } => self.hear_settled(watermark_of(&ends), effects),
            EngineEvent::SnapshotWanted { shard, to } => self.begin_to_give(now, shard, to),
            EngineEvent::Restored { shard, state } => self.restored(shard, &state, effects),
            EngineEvent::Timer | EngineEvent::Nudged => {}
        }
        // Before recovery goes on, which waits for it: nothing else may wake this worker.
        self.replay_blocked(effects);
        self.recover_all(effects);
        if holds_lease {
            self.unpark(now, effects);
            self.expire(now, effects);
            self.go_on(effects);
            self.run(now, effects);
        }
        self.stabilize();
        self.give(now, effects);
        self.collection(now, effects);
        self.forget_finals();
        self.ask_to_close(now, effects);
        self.close_batches(now, effects);
        self.tell_watermark(now, effects);
        self.set_timer(now, effects);
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
        let durability_wait: usize = self.live.iter().map(|live| live.durability_wait.len()).sum();
        self.runtime.pending() + durability_wait + self.branches.len() + self.deferred.len()
    }

    fn pending(&self) -> usize {
        let led: usize = self.leader_shards.iter().map(LeaderShard::pending).sum();
        let followed: usize = self.follower_replays.iter().map(FollowerReplay::pending).sum();
        let snapshot_senders = self
            .snapshot_senders
            .iter()
            .filter(|snapshot_sender| !snapshot_sender.is_over())
            .count();
        let left = usize::from(self.undecided_left);
        self.held() + led + followed + self.collections.len() + snapshot_senders + left
    }

    fn counters(&self) -> EngineCounters {
        let (slow, replayed_bytes) =
            (self.runtime.worker_context.slows.count(), self.replaying.total());
        let (step_keys, step_keys_most) = self.runtime.worker_context.keys_worked();
        EngineCounters { slow, replayed_bytes, step_keys, step_keys_most, ..self.runtime.counters }
    }

    fn may_cut(&self, shard: ShardId) -> Option<u64> {
        Some(self.may_cut(shard))
    }

    fn may_restore(&self, shard: ShardId, from: NodeId, length: u64, state: &Bytes) -> bool {
        self.has_copy(shard, (from, length), state)
    }

    fn lacking(&self, shard: ShardId) -> Vec<(Epoch, EpochEnd, Option<EpochEnd>)> {
        self.lacking_ends(shard)
    }

    fn heard_epochs(&self, settled: Epoch) -> HeardEpochs {
        self.shared.epochs.heard(settled)
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

    fn progress(&self) -> Vec<ShardProgress> {
        let worker_context = &self.runtime.worker_context;
        let watermarks = self.watermarks.borrow();
        let of = |shard| ShardProgress {
            watermark: Some(watermarks.of(worker_context.epoch.get(), shard)),
            reached: self.shared.replica(shard).map(ShardReplica::reached),
        };
        worker_context.topology.shard_ids().map(of).collect()
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
                let waiter = CommitWaiter { remote_branches, since, reveals: Some(slot) };
                self.await_cover(home, stamp, waiter, effects);
            }
        }
    }

    /// Tells the clients of transactions that the watermark covers by now, and replays what it covers.
    fn release(&mut self, effects: &mut MakoEffects) {
        let (mut done, mut lost) = (Vec::new(), Vec::new());
        let (mut news, mut closed_news) = (false, false);
        for (at, live) in self.live.iter_mut().enumerate() {
            let mut watermarks = self.watermarks.borrow_mut();
            // Looked up before the clocks: those are then where these shards have ended.
            let seen = live.watermark.version();
            if seen == live.seen {
                continue;
            }
            let ended: Vec<ShardId> = live.watermark.ended().collect();
            let view = watermarks.live_mut(live.epoch()).expect("it is not settled");
            live.watermark.refresh(view);
            live.seen = seen;
            news = true;
            closed_news |= live.closed_at().is_some();
            live.durability_wait
                .advance(view, |own, stamp, waiter| done.push((own, stamp, waiter)));
            let end = |news, shard| watermarks.end(live.epoch(), shard) | news;
            if ended.into_iter().fold(false, end) {
                lost.push(at);
            }
        }
        for (own, stamp, waiter) in done {
            self.tell(own, stamp, &waiter, effects);
        }
        if news {
            self.replay_covered(effects);
        }
        let is_over = !lost.is_empty();
        for at in lost {
            self.give_up_lost(at, effects);
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
        now < self.lease_end || self.options().faults.has(MakoPlantedBug::ActWithoutLease)
    }

    fn receive(&mut self, from: NodeId, message: MakoMessage, effects: &mut MakoEffects) {
        match message {
            MakoMessage::Request { header, request } => self.serve(from, &header, request, effects),
            MakoMessage::Reply { transaction, shard, step, reply } => {
                let shards = self.runtime.worker_context.topology.shards();
                let fits = |asked: &MakoMessage| plausibility::reply(asked, &reply, shard, shards);
                if let Some(key) = self.runtime.answered(from, (transaction, shard, step), fits) {
                    self.replied(key, reply, effects);
                }
            }
            MakoMessage::Relay(relay) => self.runtime.relayed(from, relay),
            MakoMessage::Gossip { watermark, ended, floor } => {
                self.hear(from, (&watermark, &ended), floor, effects);
            }
            MakoMessage::Part(part) => self.take_part(from, part, effects),
            MakoMessage::PartTaken { shard, copy, reached } => {
                self.part_is_taken(from, (shard, copy), reached.as_ref());
            }
        }
    }

    /// Has `waiter` told as soon as the watermark covers `stamp`, kept by `own`.
    fn await_cover(
        &mut self,
        own: ShardId,
        stamp: Stamp,
        waiter: CommitWaiter,
        effects: &mut MakoEffects,
    ) {
        if self.rejects(own, stamp.as_ref()) {
            return self.tell_rolled_back(&stamp, &waiter, effects);
        }
        let Some(at) = self.live(stamp.epoch) else {
            return self.tell(own, stamp, &waiter, effects);
        };
        let until = waiter.since + self.runtime.worker_context.limits.shard_wait_max;
        let done = {
            let watermarks = self.watermarks.borrow();
            let watermark = watermarks.live(stamp.epoch).expect("it is not settled");
            self.live[at].durability_wait.push(watermark, own, stamp, waiter)
        };
        match done {
            Some((stamp, waiter)) => self.tell(own, stamp, &waiter, effects),
            None => self.waiters_due = self.waiters_due.min(until),
        }
    }

    /// The watermark covers `stamp`: what waited may be told (rule M5).
    fn tell(
        &mut self,
        own: ShardId,
        stamp: Stamp,
        waiter: &CommitWaiter,
        effects: &mut MakoEffects,
    ) {
        assert!(
            self.watermarks.borrow().covers(own, stamp.as_ref()),
            "M5: {} would reveal {stamp:?}",
            waiter.remote_branches.id
        );
        self.reveal(own, stamp, waiter, effects);
    }

    fn reveal(
        &mut self,
        own: ShardId,
        stamp: Stamp,
        waiter: &CommitWaiter,
        effects: &mut MakoEffects,
    ) {
        let transaction = waiter.remote_branches.id;
        effects.observe(|| MakoObservation::Told { transaction, own, stamp });
        match &waiter.reveals {
            None => self.runtime.commit(&waiter.remote_branches),
            Some(slot) => slot.fill(Ok(())),
        }
    }

    /// Asks to come back when there will be something to do.
    fn set_timer(&mut self, now: Time, effects: &mut MakoEffects) {
        let options = &self.shared.setup.options;
        let led = self.leader_shards.iter().filter_map(|led| {
            led.next_due(self.shared.replica(led.lead.shard).expect("led"), options)
        });
        let deferred = self.deferred.iter().map(|deferred| deferred.until).min();
        // Without a lease nothing runs; when there is one again, that wakes this worker.
        let runs = self.holds_lease(now);
        let others = [
            self.runtime.next_due().filter(|_| runs),
            self.next_expiry().filter(|_| runs),
            (!self.paused.is_empty()).then(|| now + TURN).filter(|_| runs),
            self.runtime.next_ending(),
            self.next_silence(now),
            self.next_stall(now),
            self.next_replay(now),
            self.gossip.next_due(&self.watermarks.borrow(), options),
            self.next_overdue(now),
            self.group_due(),
            self.next_sweep(),
            self.next_given(),
            deferred.filter(|_| runs),
        ];
        if let Some(at) = led.chain(others.into_iter().flatten()).min() {
            effects.push(EngineEffect::Timer { at: at.max(now) });
        }
    }
}
