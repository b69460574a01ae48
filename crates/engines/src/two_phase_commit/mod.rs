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
//!   it is durable: tell the client, install own
//!            ──Commit──►   install, release      install, release  ─────► outcomes
//! ```
//! What saves time: prepares travel and are replicated in parallel, and beside the validation. The
//! coordinator's own writes on its home shard need no prepare record; they are part of the decision.
//! A transaction that writes one shard only needs neither: once all is valid, one commit record is all
//! (*one phase*). One that touches only one shard, and that another node's, is handed to it whole. One
//! that writes nothing is over when it is validated. With the decision durable, locks go at once;
//! the outcome in a participant's own stream only tells its followers. A coordinator keeps its
//! decision until the participants have that, and keeps nothing of what it gives up: *presumed abort*
//! (Mohan, Lindsay and Obermarck, TODS 1986).
//!
//! # Rules
//!
//! - **P1** Validation begins when all locks of the transaction are held, everywhere. So it takes effect
//!   at one instant: between its last lock and its first validation.
//! - **P2** A clock is drawn under the locks. So on one key, install order and clock order agree.
//! - **P3** The decision is appended when all that was read is valid, and all that was prepared on other
//!   shards is durable.
//! - **P4** Nothing is installed or told before the decision on it is durable.
//! - **P5** The safe clock in a stream is below every clock of which the stream does not say what became
//!   of it. Followers keep tombstones until all streams of the shard have passed them.
//!
//! Each is asserted where it is kept.
//!
//! | file | holds | rules |
//! |---|---|---|
//! | `options.rs`, `message.rs`, `wire.rs`, `record.rs` | configuration, messages and their forms, what is in the streams | |
//! | `shared.rs` | what the workers of a node share | |
//! | `coordinator.rs` | from execution to the outcome | P1, P3, P4 |
//! | `participant.rs` | branches of other nodes' transactions | P2, P4 |
//! | `leader_log.rs` | a shard that is led: clocks in flight, batches, who waits for them | P2, P5 |
//! | `prepared_replay.rs` | a shard that is followed: what is prepared, replay | P5 |

mod coordinator;
mod leader_log;
pub mod message;
mod options;
mod participant;
mod prepared_replay;
mod record;
mod shared;
#[cfg(test)]
mod tests;
mod wire;

pub use message::TwoPhaseCommitMessage;
pub use options::TwoPhaseCommitOptions;
pub use shared::TwoPhaseCommitShared;

use crate::engine::{
    Engine, EngineCounters, EngineEffect, EngineEvent, Setup, ShardProgress, Task, WorkerPlace,
};
use crate::execution::LocalDatabase;
use crate::execution::participant_table::ParticipantTable;
use crate::execution::runtime::Runtime;
use crate::execution::task_driver::TaskDriver;
use crate::execution::worker_context::{EngineRequest, WorkerContext};
use crate::observation::Observation;
use crate::replication::replay::replay;
use crate::replication::replica::ShardReplica;
use crate::slow::Slow;
use bytes::Bytes;
use coordinator::Coordinator;
use leader_log::{LeaderLog, RecordWaiter};
use message::TwoPhaseCommitReply;
use participant::TwoPhaseCommitBranch;
use prepared_replay::PreparedReplay;
use record::RecordEntry;
use shoal_store::Store;
use shoal_types::{Ballot, Clock, Epoch, NodeId, ShardId, Stamp, Time, WorkerId};
use std::rc::Rc;
use std::sync::Arc;

/// The epoch of a cluster whose configuration has never changed.
const FIRST_EPOCH: Epoch = Epoch(1);

type TwoPhaseCommitEffects = crate::engine::EngineEffects<TwoPhaseCommitMessage>;

/// One worker of a node, speaking two-phase commit.
pub struct TwoPhaseCommit {
    shared: Arc<TwoPhaseCommitShared>,
    runtime: Runtime<TwoPhaseCommitMessage>,
    coordinator: Coordinator,
    /// A reply that is still to come is `None`.
    branches: ParticipantTable<TwoPhaseCommitBranch, Option<TwoPhaseCommitReply>>,
    leader_logs: Vec<LeaderLog>,
    prepared_replays: Vec<PreparedReplay>,
    /// When other workers were last told that clocks have moved.
    nudged_at: Time,
}

impl Engine for TwoPhaseCommit {
    type Message = TwoPhaseCommitMessage;
    type Options = TwoPhaseCommitOptions;
    type Shared = TwoPhaseCommitShared;

    fn share(setup: &Setup<TwoPhaseCommitOptions>, node: NodeId) -> Arc<TwoPhaseCommitShared> {
        setup.options.check();
        Arc::new(TwoPhaseCommitShared::new(setup, node, FIRST_EPOCH))
    }

    fn store(shared: &TwoPhaseCommitShared, shard: ShardId) -> Option<&Arc<Store>> {
        Some(&shared.replica(shard)?.store)
    }

    fn new(worker: WorkerId, shared: Arc<TwoPhaseCommitShared>, seed: u64) -> TwoPhaseCommit {
        let options = &shared.setup.options;
        let led = shared.replicas.iter().filter(|replica| replica.led);
        let (limits, faults) = (options.limits.clone(), options.faults);
        let place = WorkerPlace { node: shared.node, worker };
        let (topology, replicas) = (Arc::clone(&shared.setup.topology), &shared.replicas);
        let worker_context =
            WorkerContext::new(place, topology, replicas, shared.epoch, limits, faults, seed);
        let followed = shared.replicas.iter().filter(|replica| !replica.led);
        TwoPhaseCommit {
            runtime: Runtime::new(worker_context, &shared.setup.procedures),
            coordinator: Coordinator::default(),
            branches: ParticipantTable::new(),
            leader_logs: led.map(|replica| LeaderLog::new(replica.shard)).collect(),
            prepared_replays: followed.map(PreparedReplay::new).collect(),
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
        match event {
            EngineEvent::Received { from, message } => self.receive(from, message, effects),
            EngineEvent::Client { from, request } => self.runtime.request(from, request),
            EngineEvent::Leading { shard, ballot: _, length } => self.lead(shard, length),
            EngineEvent::Durable { shard, length } => self.durable(shard, length, effects),
            EngineEvent::Decided { shard, index: _, entry } => self.decided(shard, entry, effects),
            EngineEvent::Deposed { shard, by } => {
                panic!("{by} leads {shard}: this engine has no recovery")
            }
            EngineEvent::Promised { .. } => {}
            // No leader of its streams ever changes, so it stays in the epoch in which it began.
            EngineEvent::Configured { configuration: _, incarnation } => {
                self.runtime.worker_context.incarnation.set(incarnation);
            }
            EngineEvent::Settled { .. } => {}
            EngineEvent::SnapshotWanted { shard, .. } | EngineEvent::Restored { shard, .. } => {
                panic!("a snapshot of {shard}: this engine has none")
            }
            EngineEvent::Timer | EngineEvent::Nudged => {}
        }
        self.run(now, effects);
        self.close_batches(now, effects);
        self.set_timer(now, effects);
    }

    fn local(&self) -> LocalDatabase {
        LocalDatabase::new(&self.runtime.worker_context)
    }

    fn spawn(&mut self, task: Task) {
        self.runtime.tasks.spawn(task);
    }

    /// Where no leader ever changes, no node needs a lease.
    fn renew(&mut self, _lease_end: Time) {}

    fn pending(&self) -> usize {
        let led: usize = self.leader_logs.iter().map(LeaderLog::pending).sum();
        let followed: usize = self.prepared_replays.iter().map(PreparedReplay::pending).sum();
        self.runtime.pending() + self.branches.len() + led + followed
    }

    fn counters(&self) -> EngineCounters {
        EngineCounters { slow: self.runtime.worker_context.slows.count(), ..self.runtime.counters }
    }

    fn describe_entry(_: ShardId, entry: &Bytes) -> String {
        let entry = RecordEntry::decode(entry.clone());
        entry.map_or_else(|error| error.to_string(), |entry| entry.to_string())
    }

    fn take_slow(&mut self) -> Vec<Slow> {
        self.runtime.worker_context.slows.take()
    }

    fn progress(&self) -> Vec<ShardProgress> {
        let followed = |shard| {
            let replica = self.shared.replica(shard).filter(|replica| !replica.led);
            replica.map(ShardReplica::reached)
        };
        let of = |shard| ShardProgress { watermark: None, reached: followed(shard) };
        self.runtime.worker_context.topology.shard_ids().map(of).collect()
    }
}

impl TaskDriver for TwoPhaseCommit {
    type Message = TwoPhaseCommitMessage;

    fn runtime(&mut self) -> &mut Runtime<TwoPhaseCommitMessage> {
        &mut self.runtime
    }

    fn answer(&mut self, ask: EngineRequest, effects: &mut TwoPhaseCommitEffects) {
        match ask {
            EngineRequest::Send(remote_branches) => self.send_batches(&remote_branches, effects),
            EngineRequest::Commit(submission) => self.submit(submission, effects),
            EngineRequest::Abandon(remote_branches) => self.abandon(&remote_branches, effects),
            EngineRequest::Reveal { remote_branches, stamp, slot } => {
                // What is installed is committed (rule P4), so all that can be read may be shown.
                let (transaction, own) = (remote_branches.id, self.runtime.worker_context.home());
                effects.observe(|| Observation::Told { transaction, own, stamp });
                slot.fill(Ok(()));
            }
        }
    }
}

impl TwoPhaseCommit {
    fn options(&self) -> &TwoPhaseCommitOptions {
        &self.shared.setup.options
    }

    fn led_at(&self, shard: ShardId) -> Option<usize> {
        self.leader_logs.iter().position(|led| led.lead.shard == shard)
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
                let fits = |asked: &TwoPhaseCommitMessage| message::answers(asked, &reply);
                if let Some(key) = self.runtime.answered(from, (transaction, shard, step), fits) {
                    self.replied(key, reply, effects);
                }
            }
            TwoPhaseCommitMessage::Relay(relay) => self.runtime.relayed(from, relay),
        }
    }

    /// This worker's stream of `shard` is prepared.
    fn lead(&mut self, shard: ShardId, length: u64) {
        let at = self.led_at(shard).expect("the node leads the shards that the topology says");
        self.leader_logs[at].lead.begin(length, Clock::ZERO);
        self.runtime
            .worker_context
            .admission
            .serve(self.leader_logs.iter().all(|led| led.lead.is_leading()));
    }

    /// The stream that this worker leads for `shard` has that many decided entries.
    fn durable(&mut self, shard: ShardId, length: u64, effects: &mut TwoPhaseCommitEffects) {
        let at = self.led_at(shard).expect("only led streams report this");
        let waiters = self.leader_logs[at].durable(self.runtime.worker_context.now.get(), length);
        self.runtime.counters.stages += self.leader_logs[at].lead.transit.take();
        for waiter in waiters {
            match waiter {
                RecordWaiter::Branch(transaction) => {
                    self.branch_is_durable(at, transaction, effects);
                }
                RecordWaiter::Prepared(sequence) => self.own_is_prepared(sequence, effects),
                RecordWaiter::Decided(sequence) => self.is_decided(sequence, effects),
            }
        }
    }

    /// The stream that this worker follows for `shard` has decided its next entry.
    fn decided(&mut self, shard: ShardId, entry: Bytes, effects: &mut TwoPhaseCommitEffects) {
        let Some(followed) =
            self.prepared_replays.iter_mut().find(|followed| followed.shard == shard)
        else {
            // Its own entry, which the leader has in its store already.
            return;
        };
        // What is decided is the word of the shard's leader, who has it in its own store: to skip it
        // would part this replica from the others for good.
        let entry = RecordEntry::decode(entry)
            .unwrap_or_else(|error| panic!("a leader of {shard} proposed it: {error}"));
        let replica = self.shared.replica(shard).expect("followed");
        let faults = self.shared.setup.options.faults;
        let (epoch, operations) = (entry.epoch, &mut self.runtime.counters.operations);
        let sessions = Rc::clone(&followed.sessions);
        followed.enter(entry, |clock, writes| {
            if writes.is_empty() {
                return;
            }
            *operations += writes.len() as u64;
            let stamp = Stamp::local(epoch, clock);
            // Only replay holds locks here.
            let observations = &mut effects.observations;
            while !replay(replica, &sessions, &stamp, &writes, faults, observations.as_mut()) {}
        });
        replica.progress(self.runtime.worker_context.place.worker, followed.applied());
    }

    /// Proposes the batches and heartbeats whose time has come.
    fn close_batches(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        for at in 0..self.leader_logs.len() {
            let (shard, epoch) =
                (self.leader_logs[at].lead.shard, self.runtime.worker_context.epoch.get());
            let replica = self.shared.replica(shard).expect("led");
            let options = &self.shared.setup.options;
            let Some(closed) = self.leader_logs[at].close(now, epoch, replica, options) else {
                continue;
            };
            self.runtime.counters.batches += 1;
            let leader_log::ClosedRecords { entry, index, safe, clocks, is_heartbeat } = closed;
            self.runtime.counters.batch_bytes += entry.len() as u64;
            if is_heartbeat || now >= self.nudged_at + options.heartbeat {
                self.nudged_at = now;
                self.runtime.nudge_others(effects);
            }
            effects.observe(|| Observation::Appended {
                shard,
                ballot: Ballot::default(),
                index,
                ends: Vec::new(),
                safe,
                clocks,
            });
            effects.push(EngineEffect::Propose { shard, entry });
        }
    }

    /// Asks to come back when there will be something to do.
    fn set_timer(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        let options = &self.shared.setup.options;
        let led = self.leader_logs.iter().filter_map(|led| {
            led.next_due(self.shared.replica(led.lead.shard).expect("led"), options)
        });
        if let Some(at) = led.chain(self.runtime.next_due()).chain(self.runtime.next_ending()).min()
        {
            effects.push(EngineEffect::Timer { at: at.max(now) });
        }
    }
}
