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
//! | `shared.rs` | what the workers of a node share | |
//! | `coordinator.rs` | from execution to certification | M1, M5 |
//! | `participant.rs` | branches of other nodes' transactions | M2 |
//! | `slices.rs`, `installing.rs` | what is too large for one step | M2, M3 |
//! | `fits.rs` | what messages may say; anything else is counted and dropped | |
//! | `led.rs` | a shard that is led: clocks in flight, batches, safe clocks | M2, M3 |
//! | `watermark.rs` | durability: shard watermarks, gossip | M4 |
//! | `epochs.rs`, `closing.rs` | epochs open, close and are settled | M3, M8, M9 |
//! | `silence.rs` | who holds up a shard and is gone | M3 |
//! | `undecided.rs` | versions that only a lost shard can decide | M12 |
//! | `unanswered.rs` | waits for other shards have a bound | M11 |
//! | `loss.rs` | a shard whose majority is lost for good | M9, M12 |
//! | `offices.rs` | who leads a shard: taking over, recovering, leaving | M7, M9 |
//! | `absorbed.rs` | how much of a stream the store has for good, and the stream may lose | |
//! | `snapshot.rs` | how a replica gets what streams have no more | |
//! | `part.rs` | a part of a copy, as it is sent | |
//! | `sweep.rs` | what was rolled back leaves the stores | M9 |
//! | `sizes.rs` | how much each table holds | |
//! | `awaiting.rs` | what waits for the watermark | M5 |
//! | `followed.rs` | a shard that is followed: replay | M6 |
//! | `../dependencies.rs` | what reads add to a stamp | M1, M8 |
//!
//! Invariants are asserted where they are kept, under the names of design §5.

mod absorbed;
mod awaiting;
mod closing;
mod coordinator;
mod epochs;
mod fits;
mod followed;
mod installing;
mod led;
mod loss;
pub mod message;
mod offices;
mod options;
mod part;
mod participant;
mod piece;
mod replaying;
mod shared;
mod silence;
mod sizes;
mod slices;
mod snapshot;
mod sweep;
mod unanswered;
mod undecided;
mod watermark;
mod wire;

pub use message::Message;
pub use options::{FULL_SHARDS_MAX, Options, REMOTE_MAX, StampForm};
pub use shared::Shared;

use crate::engine::{Counters, Effect, Engine, Event, Place, Progress, Setup, Task};
use crate::execution::Local;
use crate::execution::branches::Branches;
use crate::execution::desk::{Desk, TURN};
use crate::execution::exchange::Exchange;
use crate::execution::hub::{Ask, Hub};
use crate::execution::rounds::Clerk;
use crate::execution::slot::Slot;
use crate::faults::Fault;
use crate::observation::Observation;
use crate::replication::replica::Replica;
use crate::slow::Slow;
use bytes::Bytes;
use closing::Live;
use consensus::manager::{Configuration, HeardEpochs, Loss};
use coordinator::Coordinator;
use followed::Followed;
use led::Led;
use message::Reply;
use offices::Parked;
use participant::Context;
use replaying::Budget;
use silence::Silence;
use slices::Paused;
use snapshot::{Giving, Taking};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use store::Store;
use sweep::Sweep;
use types::{Clock, Epoch, NodeId, ShardId, Stamp, Time, WorkerId};
use watermark::Gossip;

/// The epoch of a cluster whose configuration has never changed.
const FIRST_EPOCH: Epoch = Epoch(1);

type Effects = crate::engine::Effects<Message>;

/// One worker of a node, speaking `mako`.
pub struct Mako {
    shared: Arc<Shared>,
    desk: Desk<Message>,
    coordinator: Coordinator,
    /// A reply that is still to come is `None`.
    branches: Branches<Context, Option<Reply>>,
    /// What goes on in another step, the first one first.
    paused: VecDeque<Paused>,
    led: Vec<Led>,
    followed: Vec<Followed>,
    /// How much of what they could replay they may in this step.
    replaying: Budget,
    gossip: Gossip,
    /// The epochs that are not settled, oldest first.
    live: Vec<Live>,
    /// The version of the shared epochs that this worker has seen.
    epochs_seen: u64,
    /// Since which epoch this node leads each shard, by the configuration; as in `led`.
    reigns: Vec<Option<Epoch>>,
    /// Losses of majorities that were accepted, of any shards.
    losses: BTreeMap<ShardId, Loss>,
    /// Until when this node may act as a leader.
    lease_end: Time,
    /// The nodes that this worker has not heard for a while.
    silence: Silence,
    /// Requests to shards that are being recovered.
    parked: VecDeque<Parked>,
    /// No branch of this epoch, or of one before, is open.
    branches_ended: Epoch,
    /// FVWs of epochs up to this one the manager keeps no more.
    may_forget: Epoch,
    /// Passes over stores that look for what was rolled back.
    sweeps: Vec<Sweep>,
    /// Copies of shards that this worker gives, and takes; one for each replica, or shard.
    givings: Vec<Giving>,
    takings: Vec<Taking>,
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
struct Waiter {
    exchange: Rc<Exchange>,
    /// Since when; later by as much as it may wait longer than others.
    since: Time,
    /// Where it waits to show its client what it has read; `None` once it is certified.
    reveals: Option<Rc<Slot<types::Result<()>>>>,
}

impl Engine for Mako {
    type Message = Message;
    type Options = Options;
    type Shared = Shared;

    fn share(setup: &Setup<Options>, node: NodeId) -> Arc<Shared> {
        setup.options.check(setup.topology.shards());
        Arc::new(Shared::new(setup, node, FIRST_EPOCH))
    }

    fn store(shared: &Shared, shard: ShardId) -> Option<&Arc<Store>> {
        Some(&shared.replica(shard)?.store)
    }

    fn new(worker: WorkerId, shared: Arc<Shared>, seed: u64) -> Mako {
        let options = &shared.setup.options;
        let shards = shared.setup.topology.shards() as usize;
        let (limits, faults) = (options.limits.clone(), options.faults);
        let place = Place { node: shared.node, worker };
        let (topology, replicas) = (Arc::clone(&shared.setup.topology), &shared.replicas);
        let hub = Hub::new(place, topology, replicas, FIRST_EPOCH, limits, faults, seed);
        (0..shared.replicas.len()).for_each(|at| hub.serve(at, false));
        let replicas = shared.replicas.iter();
        Mako {
            gossip: Gossip::new(&hub),
            desk: Desk::new(hub, &shared.setup.procedures),
            coordinator: Coordinator::default(),
            branches: Branches::new(),
            paused: VecDeque::new(),
            led: replicas.clone().map(|replica| Led::new(replica.shard, FIRST_EPOCH)).collect(),
            followed: replicas.map(|replica| Followed::new(replica, shards)).collect(),
            replaying: Budget::default(),
            live: vec![Live::new(FIRST_EPOCH, shared.epochs.first(), shards)],
            epochs_seen: 0,
            reigns: Vec::new(),
            losses: BTreeMap::new(),
            lease_end: Time::ZERO,
            silence: Silence::new(shared.setup.topology.nodes().len()),
            parked: VecDeque::new(),
            branches_ended: Epoch(FIRST_EPOCH.0 - 1),
            may_forget: Epoch(0),
            sweeps: Vec::new(),
            givings: Vec::new(),
            takings: Vec::new(),
            give_at: Time::ZERO,
            waiters_due: Time::MAX,
            silent_due: Time::MAX,
            undecided_left: false,
            shared,
        }
    }

    fn step(&mut self, now: Time, event: Event<Message>, effects: &mut Effects) {
        self.desk.begin_step(now, &event);
        self.replaying.begin(now, self.shared.setup.options.replay_bytes_max);
        self.silence.awake(now, self.shared.setup.options.silent_after);
        if let Event::Received { from, .. } = event {
            let (led, hub) = (&self.led, &self.desk.hub);
            // A node that leads nothing speaks when it pleases, and is given the more time for it.
            let waits = |since| {
                !hub.is_leader(from) || led.iter().any(|led| led.lead.waits_for(from, since))
            };
            self.silence.hear(from, now, self.shared.setup.options.silent_after, waits);
        }
        self.follow_epochs(effects);
        let holds_lease = self.holds_lease(now);
        match event {
            Event::Received { from, message } if holds_lease || message.is_fact() => {
                self.receive(from, message, effects);
            }
            Event::Client { from, request } if holds_lease => self.desk.request(from, request),
            // The client asks again, here or elsewhere.
            Event::Received { .. } | Event::Client { .. } => self.desk.counters.dropped += 1,
            Event::Configured { configuration, incarnation } => {
                self.configured(&configuration, incarnation, effects);
            }
            Event::Leading { shard, ballot, length } => self.lead(shard, ballot, length, effects),
            Event::Deposed { shard, by: _ } => self.deposed(shard, effects),
            Event::Promised { shard, ballot } => self.promised(shard, ballot),
            Event::Durable { shard, length } => self.durable(shard, length, effects),
            Event::Decided { shard, index: _, entry } => self.decided(shard, entry, effects),
            Event::Settled { watermark } => self.hear_settled(watermark, effects),
            Event::SnapshotWanted { shard, to } => self.begin_to_give(now, shard, to),
            Event::Restored { shard, state } => self.restored(shard, &state, effects),
            Event::Timer | Event::Nudged => {}
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
        self.absorb();
        self.give(now, effects);
        self.sweep(now, effects);
        self.forget_finals();
        self.ask_to_close(now, effects);
        self.close_batches(now, effects);
        self.tell_watermark(now, effects);
        self.set_timer(now, effects);
    }

    fn local(&self) -> Local {
        Local::new(&self.desk.hub)
    }

    fn spawn(&mut self, task: Task) {
        self.desk.tasks.spawn(task);
    }

    fn renew(&mut self, lease_end: Time) {
        self.lease_end = lease_end;
    }

    fn held(&self) -> usize {
        let awaiting: usize = self.live.iter().map(|live| live.awaiting.len()).sum();
        self.desk.pending() + awaiting + self.branches.len() + self.parked.len()
    }

    fn pending(&self) -> usize {
        let led: usize = self.led.iter().map(Led::pending).sum();
        let followed: usize = self.followed.iter().map(Followed::pending).sum();
        let givings = self.givings.iter().filter(|giving| !giving.is_over()).count();
        let left = usize::from(self.undecided_left);
        self.held() + led + followed + self.sweeps.len() + givings + left
    }

    fn counters(&self) -> Counters {
        let (slow, replayed_bytes) = (self.desk.hub.slows.count(), self.replaying.total());
        let (step_keys, step_keys_most) = self.desk.hub.keys_worked();
        Counters { slow, replayed_bytes, step_keys, step_keys_most, ..self.desk.counters }
    }

    fn may_cut(&self, shard: ShardId) -> Option<u64> {
        Some(self.may_cut(shard))
    }

    fn may_restore(&self, shard: ShardId, from: NodeId, length: u64, state: &Bytes) -> bool {
        self.has_copy(shard, (from, length), state)
    }

    fn lacking(&self, shard: ShardId) -> Vec<(Epoch, Clock, Option<Clock>)> {
        self.lacking_ends(shard)
    }

    fn heard_epochs(&self, settled: Epoch) -> HeardEpochs {
        self.shared.epochs.heard(settled)
    }

    fn exceeds(&self, configuration: &Configuration) -> Option<ShardId> {
        self.exceeds_loss(configuration)
    }

    fn take_slow(&mut self) -> Vec<Slow> {
        self.desk.hub.slows.take()
    }

    fn sizes(&self) -> Vec<(&'static str, usize)> {
        self.table_sizes()
    }

    fn progress(&self) -> Vec<Progress> {
        let hub = &self.desk.hub;
        let watermarks = hub.watermarks.borrow();
        let of = |shard| Progress {
            watermark: Some(watermarks.of(hub.epoch.get(), shard)),
            reached: self.shared.replica(shard).map(Replica::reached),
        };
        hub.topology.shard_ids().map(of).collect()
    }
}

impl Clerk for Mako {
    type Message = Message;

    fn desk(&mut self) -> &mut Desk<Message> {
        &mut self.desk
    }

    fn answer(&mut self, ask: Ask, effects: &mut Effects) {
        match ask {
            Ask::Send(exchange) => self.send_batches(&exchange, effects),
            Ask::Commit(submission) => self.submit(submission, effects),
            Ask::Abandon(exchange) => self.abandon(&exchange, effects),
            Ask::Reveal { slot, .. } if self.options().faults.has(Fault::RevealAtOnce) => {
                slot.fill(Ok(()));
            }
            Ask::Reveal { exchange, stamp, slot } => {
                let home = self.desk.hub.home();
                let since = self.desk.hub.now.get();
                let waiter = Waiter { exchange, since, reveals: Some(slot) };
                self.await_cover(home, stamp, waiter, effects);
            }
        }
    }

    /// Tells the clients of transactions that the watermark covers by now, and replays what it covers.
    fn release(&mut self, effects: &mut Effects) {
        let (mut done, mut lost) = (Vec::new(), Vec::new());
        let (mut news, mut closed_news) = (false, false);
        for (at, live) in self.live.iter_mut().enumerate() {
            let mut watermarks = self.desk.hub.watermarks.borrow_mut();
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
            live.awaiting.advance(view, |own, stamp, waiter| done.push((own, stamp, waiter)));
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
    fn options(&self) -> &Options {
        &self.shared.setup.options
    }

    /// May this node act as a leader (rule M7)?
    fn holds_lease(&self, now: Time) -> bool {
        now < self.lease_end || self.options().faults.has(Fault::ActWithoutLease)
    }

    fn receive(&mut self, from: NodeId, message: Message, effects: &mut Effects) {
        match message {
            Message::Request { header, request } => self.serve(from, &header, request, effects),
            Message::Reply { transaction, shard, step, reply } => {
                let shards = self.desk.hub.topology.shards();
                let fits = |asked: &Message| fits::reply(asked, &reply, shard, shards);
                if let Some(key) = self.desk.answered(from, (transaction, shard, step), fits) {
                    self.replied(key, reply, effects);
                }
            }
            Message::Relay(relay) => self.desk.relayed(from, relay),
            Message::Gossip { watermark, ended, floor } => {
                self.hear(from, (&watermark, &ended), floor, effects);
            }
            Message::Part(part) => self.take_part(from, part, effects),
            Message::PartTaken { shard, copy, reached } => {
                self.part_is_taken(from, (shard, copy), reached.as_ref());
            }
        }
    }

    /// Has `waiter` told as soon as the watermark covers `stamp`, kept by `own`.
    fn await_cover(&mut self, own: ShardId, stamp: Stamp, waiter: Waiter, effects: &mut Effects) {
        if self.rejects(own, stamp.as_ref()) {
            return self.tell_rolled_back(&stamp, &waiter, effects);
        }
        let Some(at) = self.live(stamp.epoch) else {
            return self.tell(own, stamp, &waiter, effects);
        };
        let until = waiter.since + self.desk.hub.limits.shard_wait_max;
        let done = {
            let watermarks = self.desk.hub.watermarks.borrow();
            let watermark = watermarks.live(stamp.epoch).expect("it is not settled");
            self.live[at].awaiting.push(watermark, own, stamp, waiter)
        };
        match done {
            Some((stamp, waiter)) => self.tell(own, stamp, &waiter, effects),
            None => self.waiters_due = self.waiters_due.min(until),
        }
    }

    /// The watermark covers `stamp`: what waited may be told (rule M5).
    fn tell(&mut self, own: ShardId, stamp: Stamp, waiter: &Waiter, effects: &mut Effects) {
        assert!(
            self.desk.hub.watermarks.borrow().covers(own, stamp.as_ref()),
            "M5: {} would reveal {stamp:?}",
            waiter.exchange.id
        );
        self.reveal(own, stamp, waiter, effects);
    }

    fn reveal(&mut self, own: ShardId, stamp: Stamp, waiter: &Waiter, effects: &mut Effects) {
        let transaction = waiter.exchange.id;
        effects.observe(|| Observation::Told { transaction, own, stamp });
        match &waiter.reveals {
            None => self.desk.commit(&waiter.exchange),
            Some(slot) => slot.fill(Ok(())),
        }
    }

    /// Asks to come back when there will be something to do.
    fn set_timer(&mut self, now: Time, effects: &mut Effects) {
        let options = &self.shared.setup.options;
        let led = self.led.iter().filter_map(|led| {
            led.next_due(self.shared.replica(led.lead.shard).expect("led"), options)
        });
        let parked = self.parked.iter().map(|parked| parked.until).min();
        // Without a lease nothing runs; when there is one again, that wakes this worker.
        let runs = self.holds_lease(now);
        let others = [
            self.desk.next_due().filter(|_| runs),
            self.next_expiry().filter(|_| runs),
            (!self.paused.is_empty()).then(|| now + TURN).filter(|_| runs),
            self.desk.next_ending(),
            self.next_silence(now),
            self.next_stall(now),
            self.next_replay(now),
            self.gossip.next_due(&self.desk.hub.watermarks.borrow(), options),
            self.next_overdue(now),
            self.group_due(),
            self.next_sweep(),
            self.next_given(),
            parked.filter(|_| runs),
        ];
        if let Some(at) = led.chain(others.into_iter().flatten()).min() {
            effects.push(Effect::Timer { at: at.max(now) });
        }
    }
}
