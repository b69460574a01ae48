//! A worker's step: events go to the engine or to a stream, and what one of them wants of the other
//! is done on the spot.
//!
//! ```text
//!            ┌────────── propose ─────────┐
//!   event ─► engine                    streams ─► effects
//!            └◄── durable, decided ───────┘
//! ```
//! Worker k of a node leads stream k of every shard that the node leads, and holds stream k of every
//! shard of which the node has a replica. Messages go from worker k to worker k.
//!
//! Until epochs move, nobody leads a shard but the node that the topology names, under the first epoch.
//! A message that speaks of another ballot is none of ours: it is counted and dropped before the stream
//! sees it, or one word from anybody would depose a healthy leader.
//!
//! Invariant: a step leaves nothing for later. What an engine proposed is in its stream, and what a
//! stream decided has been told to the engine. And all happens in order: a stream of one voter decides
//! as soon as something is proposed, and the engine hears of it when all that it wanted before is done.

use consensus::stream::{self, Length, Members, MemoryStorage, Stream};
use consensus::topology::Topology;
use engines::client::{ClientId, Reply, Request};
use engines::engine::Setup;
use engines::{Engine, Observation};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use types::{Ballot, Clock, Epoch, NodeId, ShardId, Time, VectorWatermark, WorkerId};

/// The epoch under which the leaders that the topology names are appointed.
const FIRST_EPOCH: Epoch = Epoch(1);

/// A stream is cut when this many entries are in every replica; more would make cuts rarer.
const TRIM_ENTRIES: u64 = 256;

/// What workers of the same number say to each other.
#[derive(Debug, Clone)]
pub enum Message<M> {
    /// From engine to engine.
    Engine(M),
    /// Between the replicas of this worker's stream of a shard.
    Stream {
        /// Whose stream.
        shard: ShardId,
        /// What it says.
        message: stream::Message,
    },
}

/// What happens to a worker.
#[derive(Debug, Clone)]
pub enum Event<M> {
    /// The node has just started: the first event, once.
    Start,
    /// A message from the same worker of another node.
    Received {
        /// Its sender.
        from: NodeId,
        /// What it says.
        message: Message<M>,
    },
    /// A client asks for something.
    Client {
        /// Who.
        from: ClientId,
        /// What.
        request: Request,
    },
    /// An epoch is open for new work. Told to one worker of the node, or more.
    Epoch {
        /// Which.
        epoch: Epoch,
    },
    /// An epoch is settled. Told to one worker of the node, or more, and not always in order.
    Settled {
        /// Its final vector watermark.
        watermark: VectorWatermark,
    },
    /// A time has come that was asked for, or has not.
    Timer,
    /// Another worker of this node asks to look at what they share, or a task was spawned.
    Nudged,
}

/// What a worker wants done.
#[derive(Debug, Clone)]
pub enum Effect<M> {
    /// Send this to the same worker of another node.
    Send {
        /// The receiver; never the node itself.
        to: NodeId,
        /// What to say.
        message: Message<M>,
    },
    /// Answer a client.
    Reply {
        /// Who asked.
        to: ClientId,
        /// The answer.
        reply: Reply,
    },
    /// Report the end of a closed epoch on a shard that this node leads. Said once.
    Report {
        /// The shard.
        shard: ShardId,
        /// Which epoch.
        epoch: Epoch,
        /// The final shard watermark; [`Clock::MAX`] if nothing was left hanging.
        watermark: Clock,
    },
    /// Come back with [`Event::Timer`] at this time at the latest. The driver keeps one timer for each
    /// worker, the earliest; those for later are forgotten, and asked for again when it has gone off.
    Timer {
        /// When.
        at: Time,
    },
    /// Give another worker of this node [`Event::Nudged`]. Several may be made one.
    Nudge {
        /// Which.
        worker: WorkerId,
    },
}

/// What a step leaves, in order.
#[derive(Debug)]
pub struct Effects<M> {
    /// To be done.
    pub effects: Vec<Effect<M>>,
    /// Facts for a checker; `None` if nobody watches.
    pub observations: Option<Vec<Observation>>,
}

impl<M> Effects<M> {
    /// None yet, and nobody watches.
    pub fn new() -> Effects<M> {
        Effects { effects: Vec::new(), observations: None }
    }

    /// None yet, and somebody watches.
    pub fn observed() -> Effects<M> {
        Effects { effects: Vec::new(), observations: Some(Vec::new()) }
    }
}

impl<M> Default for Effects<M> {
    fn default() -> Effects<M> {
        Effects::new()
    }
}

/// One worker of a node.
pub struct Worker<E: Engine> {
    node: NodeId,
    engine: E,
    topology: Arc<Topology>,
    /// The streams of this worker's number, of every shard of which the node has a replica.
    streams: BTreeMap<ShardId, Held>,
    timer: Timer,
    /// What the engine is still to be told in this step.
    news: VecDeque<engines::Event<E::Message>>,
    /// Messages about streams that are not here.
    strays: u64,
    /// Messages about streams that no replica of ours says.
    bad_messages: u64,
}

/// When this worker was asked to come back.
#[derive(Debug, Default)]
struct Timer {
    engine: Option<Time>,
    /// What was asked for last; nobody is asked twice for the same.
    asked: Option<Time>,
}

/// A stream, and what the engine knows of it.
struct Held {
    stream: Stream,
    /// The entries that the engine was given.
    told: u64,
    timer: Option<Time>,
}

impl<E: Engine> Worker<E> {
    /// A worker of `node`, whose workers share `shared`. It draws all its chance from `seed`.
    pub fn new(
        worker: WorkerId,
        node: NodeId,
        setup: &Setup<E::Options>,
        shared: Arc<E::Shared>,
        seed: u64,
    ) -> Worker<E> {
        let topology = Arc::clone(&setup.topology);
        let held = |shard| {
            let members = Members {
                voters: topology.voters(shard).to_vec(),
                learners: topology.learners(shard).to_vec(),
            };
            let stream =
                Stream::new(node, members, setup.streams.clone(), MemoryStorage::default());
            (shard, Held { stream, told: 0, timer: None })
        };
        Worker {
            node,
            engine: E::new(worker, shared, seed),
            streams: topology.shards_of(node).map(held).collect(),
            timer: Timer::default(),
            news: VecDeque::new(),
            strays: 0,
            bad_messages: 0,
            topology,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, to spawn tasks on it.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// This worker's stream of `shard`, if the node has a replica of it.
    pub fn stream(&self, shard: ShardId) -> Option<&Stream> {
        Some(&self.streams.get(&shard)?.stream)
    }

    /// Messages about streams that are not here.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Messages about streams that no replica of ours says.
    pub fn bad_messages(&self) -> u64 {
        self.bad_messages
    }

    /// Takes one event. The same state and the same event make the same effects.
    pub fn step(&mut self, now: Time, event: Event<E::Message>, effects: &mut Effects<E::Message>) {
        match event {
            Event::Start => {
                let led: Vec<ShardId> = self.led().collect();
                for shard in led {
                    let ballot = self.appointed(shard);
                    self.stream_step(now, shard, stream::Event::Lead { ballot }, effects);
                }
            }
            Event::Received { from, message: Message::Engine(message) } => {
                self.engine_step(now, engines::Event::Received { from, message }, effects);
            }
            Event::Received { from, message: Message::Stream { shard, message } } => {
                if self.is_credible(from, shard, &message) {
                    let event = stream::Event::Received { from, message };
                    self.stream_step(now, shard, event, effects);
                }
            }
            Event::Client { from, request } => {
                self.engine_step(now, engines::Event::Client { from, request }, effects);
            }
            Event::Epoch { epoch } => {
                self.engine_step(now, engines::Event::Epoch { epoch }, effects);
            }
            Event::Settled { watermark } => {
                self.engine_step(now, engines::Event::Settled { watermark }, effects);
            }
            Event::Timer => self.on_timer(now, effects),
            Event::Nudged => self.engine_step(now, engines::Event::Nudged, effects),
        }
        while let Some(event) = self.news.pop_front() {
            self.engine_step(now, event, effects);
        }
        self.set_timer(now, effects);
    }

    fn led(&self) -> impl Iterator<Item = ShardId> {
        self.streams.keys().copied().filter(|shard| self.topology.leader(*shard) == self.node)
    }

    /// The only ballot that anybody was appointed under.
    fn appointed(&self, shard: ShardId) -> Ballot {
        Ballot { epoch: FIRST_EPOCH, node: self.topology.leader(shard) }
    }

    /// Is it a message of the stream's replicas, under its leader? Otherwise it is counted.
    fn is_credible(&mut self, from: NodeId, shard: ShardId, message: &stream::Message) -> bool {
        if !self.streams.contains_key(&shard) {
            self.strays += 1;
            return false;
        }
        let credible = message.ballot() == self.appointed(shard)
            && self.topology.replicas(shard).any(|replica| replica == from)
            && match message {
                // Somebody would have promised another ballot; and nobody has taken a snapshot.
                stream::Message::Rejected { .. } | stream::Message::Snapshot { .. } => false,
                stream::Message::Prepare { .. }
                | stream::Message::Promise { .. }
                | stream::Message::Fetch { .. }
                | stream::Message::Append { .. }
                | stream::Message::Accepted { .. }
                | stream::Message::Decide { .. } => true,
            };
        self.bad_messages += u64::from(!credible);
        credible
    }

    fn on_timer(&mut self, now: Time, effects: &mut Effects<E::Message>) {
        // Whichever it was that went off, those asked for later were dropped for it: ask again.
        self.timer.asked = None;
        let due =
            self.streams.iter_mut().filter(|(_, held)| held.timer.is_some_and(|at| at <= now));
        let due: Vec<ShardId> = due
            .map(|(shard, held)| {
                held.timer = None;
                *shard
            })
            .collect();
        for shard in due {
            self.stream_step(now, shard, stream::Event::Timer, effects);
        }
        if self.timer.engine.is_some_and(|at| at <= now) {
            self.timer.engine = None;
            self.engine_step(now, engines::Event::Timer, effects);
        }
    }

    fn set_timer(&mut self, now: Time, effects: &mut Effects<E::Message>) {
        let streams = self.streams.values().filter_map(|held| held.timer);
        let Some(at) = streams.chain(self.timer.engine).min() else { return };
        if self.timer.asked.is_none_or(|asked| at < asked || asked <= now) {
            self.timer.asked = Some(at);
            effects.effects.push(Effect::Timer { at });
        }
    }

    fn engine_step(
        &mut self,
        now: Time,
        event: engines::Event<E::Message>,
        effects: &mut Effects<E::Message>,
    ) {
        let mut wanted =
            engines::Effects { effects: Vec::new(), observations: effects.observations.take() };
        // What was asked for before stays due until a timer comes: a message does not put it off.
        if matches!(event, engines::Event::Timer) {
            self.timer.engine = None;
        }
        self.engine.step(now, event, &mut wanted);
        effects.observations = wanted.observations;
        for effect in wanted.effects {
            match effect {
                engines::Effect::Send { to, message } => {
                    assert!(to != self.node, "{to} has nothing to send to itself");
                    effects.effects.push(Effect::Send { to, message: Message::Engine(message) });
                }
                engines::Effect::Propose { shard, entry } => {
                    self.stream_step(now, shard, stream::Event::Propose { entry }, effects);
                }
                engines::Effect::Reply { to, reply } => {
                    effects.effects.push(Effect::Reply { to, reply });
                }
                engines::Effect::Timer { at } => {
                    let earlier = self.timer.engine.map_or(at, |before| before.min(at));
                    self.timer.engine = Some(earlier);
                }
                engines::Effect::Report { shard, epoch, watermark } => {
                    effects.effects.push(Effect::Report { shard, epoch, watermark });
                }
                engines::Effect::Nudge { worker } => effects.effects.push(Effect::Nudge { worker }),
            }
        }
    }

    fn stream_step(
        &mut self,
        now: Time,
        shard: ShardId,
        event: stream::Event,
        effects: &mut Effects<E::Message>,
    ) {
        let held = self.streams.get_mut(&shard).expect("messages of others are dropped before");
        let mut wanted = Vec::new();
        held.stream.step(now, event, &mut wanted);
        let news = &mut self.news;
        for effect in wanted {
            match effect {
                stream::Effect::Send { to, message } => {
                    let message = Message::Stream { shard, message };
                    effects.effects.push(Effect::Send { to, message });
                }
                stream::Effect::Leading { length, .. } => {
                    news.push_back(engines::Event::Leading { shard, length: length.0 });
                }
                stream::Effect::Decided { length } => {
                    held.decided(shard, length, news);
                }
                stream::Effect::Timer { at } => held.timer = Some(at),
                // Entries are cut once every replica has them: whoever asks for one again has said
                // what is not so, now or before.
                stream::Effect::SnapshotWanted { to: _ } => self.bad_messages += 1,
                stream::Effect::Deposed { by } => panic!("{shard} was taken over by {by}"),
                stream::Effect::Restored { .. } => panic!("{shard} has no snapshots yet"),
            }
        }
        let everywhere = held.stream.replicated_everywhere().0.min(held.told);
        if everywhere >= held.stream.start().0 + TRIM_ENTRIES {
            let trim = stream::Event::Trim { before: Length(everywhere) };
            self.stream_step(now, shard, trim, effects);
        }
    }
}

impl Held {
    /// Tells the engine what is decided: of a stream that is led how much, of one that is followed what.
    fn decided<M>(
        &mut self,
        shard: ShardId,
        length: Length,
        news: &mut VecDeque<engines::Event<M>>,
    ) {
        if self.stream.is_leading() {
            self.told = length.0;
            return news.push_back(engines::Event::Durable { shard, length: length.0 });
        }
        for index in self.told..length.0 {
            let entry = self.stream.entry(index).expect("decided, and not trimmed").clone();
            news.push_back(engines::Event::Decided { shard, index, entry });
        }
        self.told = length.0;
    }
}
