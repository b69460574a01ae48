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
//! | `led.rs` | a shard that is led: clocks in flight, batches, who waits for them | P2, P5 |
//! | `followed.rs` | a shard that is followed: what is prepared, replay | P5 |

mod coordinator;
mod followed;
mod led;
pub mod message;
mod options;
mod participant;
mod record;
mod shared;
#[cfg(test)]
mod tests;
mod wire;

pub use message::Message;
pub use options::Options;
pub use shared::Shared;

use crate::engine::{Counters, Effect, Engine, Event, Place, Progress, Setup, Task};
use crate::execution::Local;
use crate::execution::branches::Branches;
use crate::execution::desk::Desk;
use crate::execution::hub::{Ask, Hub};
use crate::execution::rounds::Clerk;
use crate::observation::Observation;
use crate::replication::replay::replay;
use crate::replication::replica::Replica;
use crate::slow::Slow;
use bytes::Bytes;
use coordinator::Coordinator;
use followed::Followed;
use led::{Led, Waiter};
use message::Reply;
use participant::Context;
use record::Entry;
use std::rc::Rc;
use std::sync::Arc;
use store::Store;
use types::{Ballot, Clock, Epoch, NodeId, ShardId, Stamp, Time, WorkerId};

/// The epoch of a cluster whose configuration has never changed.
const FIRST_EPOCH: Epoch = Epoch(1);

type Effects = crate::engine::Effects<Message>;

/// One worker of a node, speaking two-phase commit.
pub struct TwoPhaseCommit {
    shared: Arc<Shared>,
    desk: Desk<Message>,
    coordinator: Coordinator,
    /// A reply that is still to come is `None`.
    branches: Branches<Context, Option<Reply>>,
    led: Vec<Led>,
    followed: Vec<Followed>,
    /// When other workers were last told that clocks have moved.
    nudged_at: Time,
}

impl Engine for TwoPhaseCommit {
    type Message = Message;
    type Options = Options;
    type Shared = Shared;

    fn share(setup: &Setup<Options>, node: NodeId) -> Arc<Shared> {
        setup.options.check();
        Arc::new(Shared::new(setup, node, FIRST_EPOCH))
    }

    fn store(shared: &Shared, shard: ShardId) -> Option<&Arc<Store>> {
        Some(&shared.replica(shard)?.store)
    }

    fn new(worker: WorkerId, shared: Arc<Shared>, seed: u64) -> TwoPhaseCommit {
        let options = &shared.setup.options;
        let led = shared.replicas.iter().filter(|replica| replica.led);
        let (limits, faults) = (options.limits.clone(), options.faults);
        let place = Place { node: shared.node, worker };
        let (topology, replicas) = (Arc::clone(&shared.setup.topology), &shared.replicas);
        let hub = Hub::new(place, topology, replicas, shared.epoch, limits, faults, seed);
        let followed = shared.replicas.iter().filter(|replica| !replica.led);
        TwoPhaseCommit {
            desk: Desk::new(hub, &shared.setup.procedures),
            coordinator: Coordinator::default(),
            branches: Branches::new(),
            led: led.map(|replica| Led::new(replica.shard)).collect(),
            followed: followed.map(Followed::new).collect(),
            nudged_at: Time::ZERO,
            shared,
        }
    }

    fn step(&mut self, now: Time, event: Event<Message>, effects: &mut Effects) {
        self.desk.begin_step(now, &event);
        match event {
            Event::Received { from, message } => self.receive(from, message, effects),
            Event::Client { from, request } => self.desk.request(from, request),
            Event::Leading { shard, ballot: _, length } => self.lead(shard, length),
            Event::Durable { shard, length } => self.durable(shard, length, effects),
            Event::Decided { shard, index: _, entry } => self.decided(shard, entry, effects),
            Event::Deposed { shard, by } => {
                panic!("{by} leads {shard}: this engine has no recovery")
            }
            Event::Promised { .. } => {}
            // No leader of its streams ever changes, so it stays in the epoch in which it began.
            Event::Configured { configuration: _, incarnation } => {
                self.desk.hub.incarnation.set(incarnation);
            }
            Event::Settled { .. } => {}
            Event::SnapshotWanted { shard, .. } | Event::Restored { shard, .. } => {
                panic!("a snapshot of {shard}: this engine has none")
            }
            Event::Timer | Event::Nudged => {}
        }
        self.run(now, effects);
        self.close_batches(now, effects);
        self.set_timer(now, effects);
    }

    fn local(&self) -> Local {
        Local::new(&self.desk.hub)
    }

    fn spawn(&mut self, task: Task) {
        self.desk.tasks.spawn(task);
    }

    /// Where no leader ever changes, no node needs a lease.
    fn renew(&mut self, _lease_end: Time) {}

    fn pending(&self) -> usize {
        let led: usize = self.led.iter().map(Led::pending).sum();
        let followed: usize = self.followed.iter().map(Followed::pending).sum();
        self.desk.pending() + self.branches.len() + led + followed
    }

    fn counters(&self) -> Counters {
        Counters { slow: self.desk.hub.slows.count(), ..self.desk.counters }
    }

    fn take_slow(&mut self) -> Vec<Slow> {
        self.desk.hub.slows.take()
    }

    fn progress(&self) -> Vec<Progress> {
        let followed = |shard| {
            let replica = self.shared.replica(shard).filter(|replica| !replica.led);
            replica.map(Replica::reached)
        };
        let of = |shard| Progress { watermark: None, reached: followed(shard) };
        self.desk.hub.topology.shard_ids().map(of).collect()
    }
}

impl Clerk for TwoPhaseCommit {
    type Message = Message;

    fn desk(&mut self) -> &mut Desk<Message> {
        &mut self.desk
    }

    fn answer(&mut self, ask: Ask, effects: &mut Effects) {
        match ask {
            Ask::Send(exchange) => self.send_batches(&exchange, effects),
            Ask::Commit(submission) => self.submit(submission, effects),
            Ask::Abandon(exchange) => self.abandon(&exchange, effects),
            Ask::Reveal { exchange, stamp, slot } => {
                // What is installed is committed (rule P4), so all that can be read may be shown.
                let (transaction, own) = (exchange.id, self.desk.hub.home());
                effects.observe(|| Observation::Told { transaction, own, stamp });
                slot.fill(Ok(()));
            }
        }
    }
}

impl TwoPhaseCommit {
    fn options(&self) -> &Options {
        &self.shared.setup.options
    }

    fn led_at(&self, shard: ShardId) -> Option<usize> {
        self.led.iter().position(|led| led.lead.shard == shard)
    }

    fn receive(&mut self, from: NodeId, message: Message, effects: &mut Effects) {
        match message {
            Message::Request { header, request } => self.serve(from, &header, request, effects),
            Message::Reply { transaction, shard, step, reply } => {
                let fits = |asked: &Message| message::answers(asked, &reply);
                if let Some(key) = self.desk.answered(from, (transaction, shard, step), fits) {
                    self.replied(key, reply, effects);
                }
            }
            Message::Relay(relay) => self.desk.relayed(from, relay),
        }
    }

    /// This worker's stream of `shard` is prepared.
    fn lead(&mut self, shard: ShardId, length: u64) {
        let at = self.led_at(shard).expect("the node leads the shards that the topology says");
        self.led[at].lead.begin(length, Clock::ZERO);
        self.desk.hub.admission.serve(self.led.iter().all(|led| led.lead.is_leading()));
    }

    /// The stream that this worker leads for `shard` has that many decided entries.
    fn durable(&mut self, shard: ShardId, length: u64, effects: &mut Effects) {
        let at = self.led_at(shard).expect("only led streams report this");
        let waiters = self.led[at].durable(self.desk.hub.now.get(), length);
        self.desk.counters.stages += self.led[at].lead.transit.take();
        for waiter in waiters {
            match waiter {
                Waiter::Branch(transaction) => self.branch_is_durable(at, transaction, effects),
                Waiter::Prepared(sequence) => self.own_is_prepared(sequence, effects),
                Waiter::Decided(sequence) => self.is_decided(sequence, effects),
            }
        }
    }

    /// The stream that this worker follows for `shard` has decided its next entry.
    fn decided(&mut self, shard: ShardId, entry: Bytes, effects: &mut Effects) {
        let Some(followed) = self.followed.iter_mut().find(|followed| followed.shard == shard)
        else {
            // Its own entry, which the leader has in its store already.
            return;
        };
        // What is decided is the word of the shard's leader, who has it in its own store: to skip it
        // would part this replica from the others for good.
        let entry = Entry::decode(entry)
            .unwrap_or_else(|error| panic!("a leader of {shard} proposed it: {error}"));
        let replica = self.shared.replica(shard).expect("followed");
        let faults = self.shared.setup.options.faults;
        let (epoch, operations) = (entry.epoch, &mut self.desk.counters.operations);
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
        replica.progress(self.desk.hub.place.worker, followed.applied());
    }

    /// Proposes the batches and heartbeats whose time has come.
    fn close_batches(&mut self, now: Time, effects: &mut Effects) {
        for at in 0..self.led.len() {
            let (shard, epoch) = (self.led[at].lead.shard, self.desk.hub.epoch.get());
            let replica = self.shared.replica(shard).expect("led");
            let options = &self.shared.setup.options;
            let Some(closed) = self.led[at].close(now, epoch, replica, options) else { continue };
            self.desk.counters.batches += 1;
            let led::Closed { entry, index, safe, clocks, is_heartbeat } = closed;
            self.desk.counters.batch_bytes += entry.len() as u64;
            if is_heartbeat || now >= self.nudged_at + options.heartbeat {
                self.nudged_at = now;
                self.desk.nudge_others(effects);
            }
            effects.observe(|| Observation::Appended {
                shard,
                ballot: Ballot::default(),
                index,
                ends: Vec::new(),
                safe,
                clocks,
            });
            effects.push(Effect::Propose { shard, entry });
        }
    }

    /// Asks to come back when there will be something to do.
    fn set_timer(&mut self, now: Time, effects: &mut Effects) {
        let options = &self.shared.setup.options;
        let led = self.led.iter().filter_map(|led| {
            led.next_due(self.shared.replica(led.lead.shard).expect("led"), options)
        });
        if let Some(at) = led.chain(self.desk.next_due()).chain(self.desk.next_ending()).min() {
            effects.push(Effect::Timer { at: at.max(now) });
        }
    }
}
