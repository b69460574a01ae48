//! Durability: what the streams have decided becomes shard watermarks, and those travel (rule M4).
//!
//! A shard's watermark is the least durable safe clock of its streams; its leader knows it. Leaders send it to
//! each other, and their followers, the whole vector. It only grows, so a message may be lost,
//! repeated or late; it is sent again from time to time.

use crate::leader_shard;
use crate::live_epochs::LiveEpoch;
use crate::observation::MakoObservation;
use crate::options::StampForm;
use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects, MakoMessage, plausibility};
use shoal_engine::engine::EngineEffect;
use shoal_types::{Clock, Epoch, NodeId, ShardId, Time, VectorWatermark};

/// A floor is not further ahead of what is known than so many clocks: more than a shard draws in days, or than
/// groups of transactions take in many minutes; and so little that a node that lies cannot use them up.
const FLOOR_AHEAD_MAX: u64 = 1 << 40;

impl Mako {
    /// The stream that this worker leads for `shard` has that many decided entries.
    pub(crate) fn durable(&mut self, shard: ShardId, length: u64, effects: &mut MakoEffects) {
        let at = self.place_of(shard).expect("a stream that is held");
        let settled = self.watermarks.borrow().settled();
        let said = self.leader_shards[at].durable(self.runtime.worker_context.now.get(), length);
        self.runtime.count_transit(self.leader_shards[at].lead.transit.take());
        let Some(safe) = said.last().map(|said| said.safe) else { return };
        let ends: Vec<_> = said.iter().flat_map(|said| said.ends.clone()).collect();
        said.into_iter().for_each(|said| self.follower_replays.note(at, said, settled));
        let replica = self.shared.replica(shard).expect("held");
        // A new leader may still have to replay entries that are older than those that it has.
        let applied = self.follower_replays.of(at).applied();
        let clock = replica.progress(self.runtime.worker_context.place.worker, applied);
        assert!(
            clock <= safe,
            "M4: {shard} counts {clock}, and this stream is durable up to {safe}"
        );
        // What is durable is so for all epochs, as far as they go: a shard's clocks rise from one to the
        // next. How far those before this leadership go, other workers may still have to say.
        // And where another worker follows a successor already, what it has come to is that one's.
        let leadership = self.leader_shards[at].led_since();
        let leadership = leadership.filter(|since| !replica.is_over(*since));
        let own = |live: &&LiveEpoch| leadership.is_some_and(|since| live.epoch() >= since);
        let own = self.epochs.iter().filter(own);
        let raise = |news, live: &LiveEpoch| live.watermark().raise_led(shard, clock) | news;
        if own.fold(false, raise) {
            effects.observe(|| MakoObservation::Watermark { shard, clock });
            self.gossip.comes_further();
            self.runtime.nudge_others(effects);
        }
        let ballot = self.leader_shards[at].ballot();
        if !self.options().faults.has(MakoPlantedBug::ReportBeforeDurable) {
            for (epoch, clock) in ends {
                self.ended(shard, ballot, epoch, clock, effects);
            }
        }
    }

    /// A leader says how far the shards are.
    pub(crate) fn on_gossip(
        &mut self,
        from: NodeId,
        watermark: &VectorWatermark,
        ended: &[ShardId],
        floor: Clock,
        effects: &mut MakoEffects,
    ) {
        // A coordinator has floors to send, whether it leads a shard or not.
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
            self.gossip.receives_news();
            self.runtime.nudge_others(effects);
        }
    }

    /// May `from` know that? Only leaders know how far shards are, their own and, from each other, the
    /// rest; of an epoch that is closed, also the nodes that have led before. No other knows more than this node of a shard that
    /// this process was appointed to, but those that knew it from a predecessor, which may be a former process of the node.
    fn is_credible(&self, from: NodeId, watermark: &VectorWatermark, ended: &[ShardId]) -> bool {
        let worker_context = &self.runtime.worker_context;
        let Some(live) = self.epochs.get(watermark.epoch()) else { return false };
        let known = live.watermark();
        let ends = watermark.epoch() < worker_context.epoch.get();
        (ends || worker_context.leaderships.is_leader(from))
            && worker_context.topology.shard_ids().all(|shard| {
                let said = watermark.of(shard);
                let since = worker_context.leaderships.appointed_since(shard);
                let own = since.is_some_and(|since| watermark.epoch() >= since);
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
    pub(crate) fn pass_floor(&mut self, floor: Clock, effects: &mut MakoEffects) {
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
    pub(crate) fn close_group(&mut self, effects: &mut MakoEffects) {
        if let Some(end) = self.gossip.close_group() {
            self.gossip.raise_floor(end);
            self.pass_floor(end, effects);
        }
    }

    /// When the open group is to be closed.
    pub(crate) fn group_due(&self) -> Option<Time> {
        let StampForm::Group { every } = self.options().stamps else { return None };
        self.gossip.group_due(every)
    }

    /// Proposes the batches, heartbeats and ends of epochs whose time has come, on the streams that this worker leads.
    pub(crate) fn close_batches(&mut self, now: Time, overdue: Epoch, effects: &mut MakoEffects) {
        for number in 0.. {
            let Some(at) = self.leader_shards.leading_place(number) else { return };
            self.close_batch(now, at, overdue, effects);
        }
    }

    /// Proposes an entry.
    pub(crate) fn propose(
        &mut self,
        at: usize,
        closed: leader_shard::ClosedBatch,
        effects: &mut MakoEffects,
    ) {
        let (shard, ballot) = (self.leader_shards[at].lead.shard, self.leader_shards[at].ballot());
        let leader_shard::ClosedBatch { entry, index, safe, ends, clocks } = closed;
        self.runtime.count_batch(entry.len());
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
            for (epoch, clock) in ends.clone() {
                self.ended(shard, ballot, epoch, clock, effects);
            }
        }
        effects.observe(|| MakoObservation::Appended { shard, ballot, index, ends, safe, clocks });
        effects.push(EngineEffect::Propose { shard, entry });
    }

    /// Sends others the watermark, if it is news and the last time is not too near.
    pub(crate) fn tell_watermark(&mut self, now: Time, effects: &mut MakoEffects) {
        self.gossip.is_awaited(self.runtime.awaits_answers());
        let watermarks = self.watermarks.borrow();
        let (gossip, options) = (&mut self.gossip, &self.shared.setup.options);
        let Some((to_all, peers)) = gossip.recipients(now, &watermarks, options) else { return };
        let mut weight = 0;
        for live in self.epochs.iter_mut().filter_map(|live| live.has_news().then_some(live)) {
            weight += 1;
            let watermark = watermarks.live(live.epoch()).expect("it is not settled");
            let ended: Vec<ShardId> = watermarks.ended_in(live.epoch()).collect();
            for to in &peers {
                let (watermark, ended) = (watermark.clone(), ended.clone());
                let message = MakoMessage::Gossip { watermark, ended, floor: gossip.floor() };
                effects.push(EngineEffect::Send { to: self.runtime.peer(*to), message });
            }
            if to_all {
                live.tell();
            }
        }
        gossip.tell(to_all, weight, now);
    }
}
