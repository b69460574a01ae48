//! Durability: what the streams have decided becomes shard watermarks, and those travel (rule M4).
//!
//! A shard's watermark is the least durable safe clock of its streams; its leader knows it. Leaders tell
//! each other, and their followers, the whole vector. It only grows, so a message may be lost,
//! repeated or late; it is told again from time to time.

use super::leader_shard;
use super::live_epochs::LiveEpoch;
use super::options::{MakoOptions, StampForm};
use super::{Mako, MakoEffects, MakoMessage, plausibility};
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use crate::watermarks::Watermarks;
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::worker_context::WorkerContext;
use shoal_types::{Clock, Epoch, NodeId, ShardId, Time, VectorWatermark};
use std::collections::BTreeMap;

/// A floor is not further ahead of what is known than so many clocks: more than a shard draws in days, or than
/// groups of transactions take in many minutes; and so little that a node that lies cannot use them up.
const FLOOR_AHEAD_MAX: u64 = 1 << 40;

/// The nodes that this worker tells of the watermark, and when.
pub(super) struct Gossip {
    /// Leaders of other shards, and the replicas of own ones. None twice.
    peers: Vec<NodeId>,
    /// Those of them that are replicas of own shards only through us: they also hear what we heard.
    followers: Vec<NodeId>,
    /// Coordinators without a replica, and until when each is told: they hear from no other node how far shards are that
    /// their transactions depend on. They are told as followers are, and with the leaders.
    askers: BTreeMap<NodeId, Time>,
    /// An own shard came further since the leaders were told.
    pub(super) own_news: bool,
    /// Anything did since the followers were told.
    news: bool,
    /// When all were told, and when the followers were.
    told_at: Time,
    followers_told_at: Time,
    /// The highest floor of a stamp that this worker knows of.
    floor: Clock,
    /// The end of the open group, and since when this worker has something in it.
    group: Option<(Clock, Time)>,
    /// This node leads a shard.
    leads: bool,
    /// Others wait for what this worker coordinates: they take it for gone if it is silent.
    awaited: bool,
    /// How often all were told, since there was news, that there is none.
    quiet: u32,
    /// Of so many epochs they were told last. Where many are closing, there is no more talk than usual, or talk would
    /// keep them from being settled.
    weight: u32,
}

/// So often the pause doubles, where there is no news: an idle node says little.
const QUIET_MAX: u32 = 4;

impl Gossip {
    pub(super) fn new(worker_context: &WorkerContext) -> Gossip {
        let mut gossip = Gossip {
            peers: Vec::new(),
            followers: Vec::new(),
            askers: BTreeMap::new(),
            own_news: false,
            news: false,
            told_at: Time::ZERO,
            followers_told_at: Time::ZERO,
            floor: Clock::ZERO,
            group: None,
            leads: false,
            awaited: false,
            quiet: 0,
            weight: 1,
        };
        gossip.aim(worker_context);
        gossip
    }

    /// Finds out which nodes to tell: leaders have changed.
    pub(super) fn aim(&mut self, worker_context: &WorkerContext) {
        let (topology, node) = (&worker_context.topology, worker_context.place.node);
        let leaders = topology.shard_ids().map(|shard| worker_context.leader(shard));
        let own: Vec<ShardId> =
            topology.shard_ids().filter(|shard| worker_context.leader(*shard) == node).collect();
        let mut followers: Vec<NodeId> =
            own.iter().flat_map(|shard| worker_context.holders(*shard)).collect();
        let mut peers: Vec<NodeId> = match own.is_empty() {
            // A node that leads nothing has only floors to tell.
            true => leaders.collect(),
            false => leaders.chain(followers.iter().copied()).collect(),
        };
        for list in [&mut peers, &mut followers] {
            list.retain(|peer| *peer != node);
            list.sort_unstable();
            list.dedup();
        }
        self.leads = !own.is_empty();
        self.quiet = 0;
        (self.peers, self.followers) = (peers, followers);
    }

    /// When there will be something to tell. A floor is told again until every shard has passed it: a node that
    /// waits for that has no other message.
    pub(super) fn next_due(&self, watermarks: &Watermarks, options: &MakoOptions) -> Option<Time> {
        let all = self.next_due_to_all(watermarks, options);
        let followers = (self.news && !(self.followers.is_empty() && self.askers.is_empty()))
            .then(|| self.followers_told_at.max(self.told_at) + self.weight * options.gossip_gap);
        all.into_iter().chain(followers).min()
    }

    fn next_due_to_all(&self, watermarks: &Watermarks, options: &MakoOptions) -> Option<Time> {
        let passed = || {
            let open = watermarks.all_live().last();
            open.is_none_or(|open| open.of(ShardId::EVERY) >= self.floor)
        };
        let after = match self.own_news {
            _ if self.peers.is_empty() && self.askers.is_empty() => return None,
            true => options.gossip_gap,
            false if self.awaited || !passed() => options.gossip_again,
            false if self.leads => options.gossip_again * (1 << self.quiet),
            false => return None,
        };
        Some(self.told_at + self.weight * after)
    }

    /// Something of the group that ends there is about.
    pub(super) fn open_group(&mut self, end: Clock, now: Time) {
        if self.group.is_none_or(|(other, _)| other < end) {
            self.group = Some((end, now));
        }
    }

    /// Others have come further: who does not hear of it from its leader hears it from us.
    pub(super) fn hears(&mut self) {
        (self.news, self.quiet) = (true, 0);
    }

    /// A node without a replica has asked for something, and may depend on what it is told until then.
    pub(super) fn is_asked(&mut self, from: NodeId, until: Time) {
        if self.askers.insert(from, until).is_none() {
            // What it has missed counts as news.
            self.hears();
        }
    }

    /// A stamp with this floor is about.
    pub(super) fn raise_floor(&mut self, floor: Clock) {
        if floor > self.floor {
            self.floor = floor;
            self.own_news = true;
        }
    }
}

impl Mako {
    /// The stream that this worker leads for `shard` has that many decided entries.
    pub(super) fn durable(&mut self, shard: ShardId, length: u64, effects: &mut MakoEffects) {
        let at = self.place_of(shard).expect("a stream that is held");
        let settled = self.watermarks.borrow().settled();
        let said = self.leader_shards[at].durable(self.runtime.worker_context.now.get(), length);
        self.runtime.counters.stages += self.leader_shards[at].lead.transit.take();
        let Some(safe) = said.last().map(|said| said.safe) else { return };
        let ends: Vec<_> = said.iter().flat_map(|said| said.ends.clone()).collect();
        said.into_iter().for_each(|said| self.follower_replays.note(at, said, settled));
        let replica = self.shared.replica(shard).expect("held");
        // What a new leader has not replayed yet may be older than what it has.
        let applied = self.follower_replays.of(at).applied();
        let clock = replica.progress(self.runtime.worker_context.place.worker, applied);
        assert!(
            clock <= safe,
            "M4: {shard} counts {clock}, and this stream is durable up to {safe}"
        );
        // What is durable is so for all epochs, as far as they go: a shard's clocks rise from one to the
        // next. How far those before this leadership go, other workers may still have to say.
        // And where another worker follows a successor already, what it has come to is that one's.
        let leadership =
            self.leader_shards[at].leader_state.as_ref().map(|leader_state| leader_state.since);
        let leadership = leadership.filter(|since| !replica.is_over(*since));
        let own = |live: &&LiveEpoch| leadership.is_some_and(|since| live.epoch() >= since);
        let own = self.epochs.iter().filter(own);
        let raise = |news, live: &LiveEpoch| live.watermark().raise_led(shard, clock) | news;
        if own.fold(false, raise) {
            effects.observe(|| MakoObservation::Watermark { shard, clock });
            self.gossip.own_news = true;
            self.runtime.nudge_others(effects);
        }
        let ballot = self.leader_shards[at].ballot();
        if !self.options().faults.has(MakoPlantedBug::ReportBeforeDurable) {
            for end in ends {
                self.ended((shard, ballot), end, effects);
            }
        }
    }

    /// A leader says how far the shards are.
    pub(super) fn hear(
        &mut self,
        from: NodeId,
        (watermark, ended): (&VectorWatermark, &[ShardId]),
        floor: Clock,
        effects: &mut MakoEffects,
    ) {
        // A coordinator has floors to tell, whether it leads a shard or not.
        let plausible = floor <= self.floor_max();
        if floor > Clock::ZERO && plausible {
            self.pass_floor(floor, effects);
        }
        if !plausible || !self.is_credible(from, watermark, ended) {
            self.runtime.counters.dropped += 1;
            return;
        }
        let live = self.epochs.get(watermark.epoch()).expect("it is credible").watermark();
        let came_further = live.merge(watermark);
        // After the clocks: they are where those shards have ended.
        let have_ended = ended.iter().fold(false, |news, shard| live.end(*shard) | news);
        if came_further || have_ended {
            self.gossip.hears();
            self.runtime.nudge_others(effects);
        }
    }

    /// May `from` know that? Only leaders know how far shards are, their own and, from each other, the
    /// rest; of an epoch that is closed, also who has led before. No other knows more than this node of a shard that
    /// we lead, but those who knew it from our predecessor.
    fn is_credible(&self, from: NodeId, watermark: &VectorWatermark, ended: &[ShardId]) -> bool {
        let worker_context = &self.runtime.worker_context;
        let Some(live) = self.epochs.get(watermark.epoch()) else { return false };
        let known = live.watermark();
        let ends = watermark.epoch() < worker_context.epoch.get();
        (ends || worker_context.is_leader(from))
            && worker_context.topology.shard_ids().all(|shard| {
                let said = watermark.of(shard);
                let (leader, since) = worker_context.leadership(shard);
                let own = leader == worker_context.place.node && watermark.epoch() >= since;
                // Where a shard is out, nothing of it is to come.
                (plausibility::clock(said) || said <= known.of(shard) || (ends && said == Clock::MAX))
                    && (!own || said <= known.of(shard))
                    && (!known.has_ended(shard) || said <= known.of(shard))
            })
            // A shard that is out has ended the open epoch, too, as the configuration says.
            && ended.iter().all(|shard| {
                (ends || known.has_ended(*shard)) && watermark.of(*shard) >= known.of(*shard)
            })
    }

    /// No honest floor is above: some shard has drawn it, and what is known of the shards lags behind by what
    /// is in flight. What comes too early is said again.
    fn floor_max(&self) -> Clock {
        let watermarks = self.watermarks.borrow();
        let live = watermarks.all_live().flat_map(|watermark| {
            let shards = self.runtime.worker_context.topology.shard_ids();
            shards.map(|shard| watermark.of(shard)).filter(|clock| *clock < Clock::MAX)
        });
        let own = self.shared.replicas.iter().map(|replica| replica.store.clock());
        let known = live.chain(own).max().unwrap_or_default();
        Clock((known.0 + FLOOR_AHEAD_MAX).min(plausibility::CLOCK_MAX.0))
    }

    /// Moves the clocks of all own shards past a stamp's floor, since its transaction waits for them.
    pub(super) fn pass_floor(&mut self, floor: Clock, effects: &mut MakoEffects) {
        let mut news = false;
        for (_, led) in self.leader_shards.leading() {
            let replica = self.shared.replica(led.lead.shard).expect("held");
            replica.store.raise_clock(floor);
            news |= replica.want(floor);
        }
        if news {
            self.runtime.nudge_others(effects);
        }
    }

    /// Closes the open group, whose time has come: all shards' clocks move past its end.
    pub(super) fn close_group(&mut self, effects: &mut MakoEffects) {
        if let Some((end, _)) = self.gossip.group.take() {
            self.gossip.raise_floor(end);
            self.pass_floor(end, effects);
        }
    }

    /// When the open group is to be closed.
    pub(super) fn group_due(&self) -> Option<Time> {
        let StampForm::Group { every } = self.options().stamps else { return None };
        Some(self.gossip.group?.1 + every)
    }

    /// Proposes the batches, heartbeats and ends of epochs whose time has come, on the streams that this worker leads.
    pub(super) fn close_batches(&mut self, now: Time, overdue: Epoch, effects: &mut MakoEffects) {
        for number in 0.. {
            let Some(at) = self.leader_shards.leading_place(number) else { return };
            self.close_batch(now, at, overdue, effects);
        }
    }

    /// Proposes an entry.
    pub(super) fn propose(
        &mut self,
        at: usize,
        closed: leader_shard::ClosedBatch,
        effects: &mut MakoEffects,
    ) {
        let (shard, ballot) = (self.leader_shards[at].lead.shard, self.leader_shards[at].ballot());
        let leader_shard::ClosedBatch { entry, index, safe, ends, clocks } = closed;
        self.runtime.counters.batches += 1;
        self.runtime.counters.batch_bytes += entry.len() as u64;
        let replica = self.shared.replica(shard).expect("held");
        if let Some(greatest) = clocks.iter().max().copied()
            && replica.want(greatest)
        {
            self.runtime.nudge_others(effects);
        }
        for (epoch, clock) in &ends {
            if let Some(live) = self.epochs.get(*epoch) {
                live.watermark().cap(shard, *clock);
            }
        }
        if self.options().faults.has(MakoPlantedBug::ReportBeforeDurable) {
            for end in ends.clone() {
                self.ended((shard, ballot), end, effects);
            }
        }
        effects.observe(|| MakoObservation::Appended { shard, ballot, index, ends, safe, clocks });
        effects.push(EngineEffect::Propose { shard, entry });
    }

    /// Tells others how far the shards are, if that is news and the last time is not too near.
    pub(super) fn tell_watermark(&mut self, now: Time, effects: &mut MakoEffects) {
        self.gossip.awaited = self.gossip.leads && self.runtime.awaits_answers();
        let watermarks = self.watermarks.borrow();
        let (gossip, options) = (&mut self.gossip, &self.shared.setup.options);
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        // News of others do not put off what all are told again: the last time may have been lost.
        let to_all = is_due(gossip.next_due_to_all(&watermarks, options));
        if !to_all && !is_due(gossip.next_due(&watermarks, options)) {
            return;
        }
        gossip.askers.retain(|_, until| *until > now);
        let peers = if to_all { &gossip.peers } else { &gossip.followers };
        let askers = gossip.askers.keys().filter(|asker| !peers.contains(asker));
        let peers: Vec<NodeId> = peers.iter().chain(askers).copied().collect();
        let mut weight = 0;
        for live in self.epochs.iter_mut().filter_map(|live| live.has_news().then_some(live)) {
            weight += 1;
            let watermark = watermarks.live(live.epoch()).expect("it is not settled");
            let ended: Vec<ShardId> = watermarks.ended_in(live.epoch()).collect();
            for to in &peers {
                let (watermark, ended) = (watermark.clone(), ended.clone());
                let message = MakoMessage::Gossip { watermark, ended, floor: gossip.floor };
                effects.push(EngineEffect::Send { to: *to, message });
            }
            if to_all {
                live.tell();
            }
        }
        gossip.weight = weight;
        if to_all {
            gossip.quiet = if gossip.own_news { 0 } else { QUIET_MAX.min(gossip.quiet + 1) };
            (gossip.own_news, gossip.told_at) = (false, now);
        }
        (gossip.news, gossip.followers_told_at) = (false, now);
    }
}
