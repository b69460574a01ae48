//! Durability: what the streams have decided becomes shard watermarks, and those travel (rule M4).
//!
//! A shard's watermark is the least durable safe clock of its streams; its leader knows it. Leaders tell
//! each other, and their followers, the whole vector. It only grows, so a message may be lost,
//! repeated or late; it is told again from time to time.

use super::led;
use super::options::Options;
use super::piece::Entry;
use super::shared::Shared;
use super::{Effects, Mako, Message, fits, followed};
use crate::engine::Effect;
use crate::observation::Observation;
use crate::replication::replay::replay;
use bytes::Bytes;
use types::{Clock, Epoch, NodeId, ShardId, Time, VectorWatermark};

/// Whom this worker tells of the watermark, and when.
pub(super) struct Gossip {
    /// Leaders of other shards, and the replicas of own ones. Nobody twice.
    peers: Vec<NodeId>,
    /// Those of them that are replicas of own shards only through us: they also hear what we heard.
    followers: Vec<NodeId>,
    /// An own shard came further since the leaders were told.
    pub(super) own_news: bool,
    /// Anything did since the followers were told.
    news: bool,
    told_at: Time,
    /// The highest floor of a stamp that this worker knows of.
    floor: Clock,
    /// The worker that tells it again if nothing happens.
    repeats: bool,
}

impl Gossip {
    pub(super) fn new(shared: &Shared) -> Gossip {
        let topology = &shared.setup.topology;
        let node = shared.node;
        let leaders = topology.shard_ids().map(|shard| topology.leader(shard));
        let own: Vec<ShardId> =
            topology.shard_ids().filter(|shard| topology.leader(*shard) == node).collect();
        let mut followers: Vec<NodeId> =
            own.iter().flat_map(|shard| topology.replicas(*shard)).collect();
        let mut peers: Vec<NodeId> = match own.is_empty() {
            // A node that leads nothing has nothing to tell.
            true => Vec::new(),
            false => leaders.chain(followers.iter().copied()).collect(),
        };
        for list in [&mut peers, &mut followers] {
            list.retain(|peer| *peer != node);
            list.sort_unstable();
            list.dedup();
        }
        Gossip {
            peers,
            followers,
            own_news: false,
            news: false,
            told_at: Time::ZERO,
            floor: Clock::ZERO,
            repeats: true,
        }
    }

    /// When there will be something to tell.
    pub(super) fn next_due(&self, options: &Options) -> Option<Time> {
        if self.peers.is_empty() {
            return None;
        }
        let after = match self.own_news || self.news {
            true => options.gossip_gap,
            false if self.repeats => options.gossip_again,
            false => return None,
        };
        Some(self.told_at + after)
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
    pub(super) fn durable(&mut self, shard: ShardId, length: u64, effects: &mut Effects) {
        let at = self.led_at(shard).expect("only led streams report this");
        let (safe, ends) = self.led[at].durable(length);
        let Some(safe) = safe else { return };
        let replica = self.shared.replica(shard).expect("led");
        let clock = replica.progress(self.desk.hub.place.worker, safe);
        assert!(
            clock <= safe,
            "M4: {shard} counts {clock}, and this stream is durable up to {safe}"
        );
        // What is durable is so for all epochs: a shard's clocks rise from one to the next.
        let raised =
            self.live.iter().fold(false, |news, live| live.watermark.raise(shard, clock) | news);
        if raised {
            effects.observe(|| Observation::Watermark { shard, clock });
            self.gossip.own_news = true;
            self.desk.nudge_others(effects);
        }
        self.ended(shard, ends, effects);
    }

    /// A leader says how far the shards are.
    pub(super) fn hear(
        &mut self,
        from: NodeId,
        watermark: &VectorWatermark,
        floor: Clock,
        effects: &mut Effects,
    ) {
        if !self.is_credible(from, watermark, floor) {
            self.desk.counters.dropped += 1;
            return;
        }
        let at = self.live(watermark.epoch()).expect("it is credible");
        if self.live[at].watermark.merge(watermark) {
            self.gossip.news = true;
            self.desk.nudge_others(effects);
        }
        if floor > Clock::ZERO {
            self.pass_floor(floor, effects);
        }
    }

    /// May `from` know that? Only leaders know how far shards are, their own and, from each other, the
    /// rest. Nobody knows more than we of a shard that we lead.
    fn is_credible(&self, from: NodeId, watermark: &VectorWatermark, floor: Clock) -> bool {
        let topology = &self.desk.hub.topology;
        let Some(at) = self.live(watermark.epoch()) else { return false };
        let known = &self.live[at].watermark;
        let ends = watermark.epoch() < self.desk.hub.epoch.get();
        fits::clock(floor)
            && topology.shard_ids().any(|shard| topology.leader(shard) == from)
            && topology.shard_ids().all(|shard| {
                let said = watermark.of(shard);
                let own = topology.leader(shard) == self.desk.hub.place.node;
                (fits::clock(said) || (ends && said == Clock::MAX))
                    && (!own || said <= known.of(shard))
            })
    }

    /// Moves the clocks of all own shards past a stamp's floor, since its transaction waits for them.
    pub(super) fn pass_floor(&mut self, floor: Clock, effects: &mut Effects) {
        let mut news = false;
        for replica in self.shared.replicas.iter().filter(|replica| replica.led) {
            replica.store.raise_clock(floor);
            news |= replica.want(floor);
        }
        if news {
            self.desk.nudge_others(effects);
        }
    }

    /// Proposes the batches and heartbeats whose time has come.
    pub(super) fn close_batches(&mut self, now: Time, effects: &mut Effects) {
        for at in 0..self.led.len() {
            let shard = self.led[at].lead.shard;
            let open = self.desk.hub.epoch.get();
            let replica = self.shared.replica(shard).expect("led");
            let options = &self.shared.setup.options;
            let Some(closed) = self.led[at].close(now, open, replica, options) else { continue };
            self.desk.counters.batches += 1;
            let led::Closed { entry, index, safe, ended, clocks } = closed;
            self.desk.counters.batch_bytes += entry.len() as u64;
            if let Some(greatest) = clocks.iter().max().copied()
                && replica.want(greatest)
            {
                self.desk.nudge_others(effects);
            }
            effects.observe(|| Observation::Appended { shard, index, ended, safe, clocks });
            effects.push(Effect::Propose { shard, entry });
        }
    }

    /// Tells others how far the shards are, if that is news and the last time is not too near.
    pub(super) fn tell_watermark(&mut self, now: Time, effects: &mut Effects) {
        if self.gossip.next_due(&self.shared.setup.options).is_none_or(|at| at > now) {
            return;
        }
        let gossip = &mut self.gossip;
        let foreign_only = gossip.news && !gossip.own_news;
        let peers = if foreign_only { &gossip.followers } else { &gossip.peers };
        let watermarks = self.desk.hub.watermarks.borrow();
        for to in peers {
            for watermark in watermarks.all_live() {
                let message = Message::Gossip { watermark: watermark.clone(), floor: gossip.floor };
                effects.push(Effect::Send { to: *to, message });
            }
        }
        (gossip.own_news, gossip.news, gossip.told_at) = (false, false, now);
    }

    /// The stream that this worker follows for `shard` has decided its next entry.
    pub(super) fn decided(&mut self, shard: ShardId, entry: Bytes, effects: &mut Effects) {
        let Some(followed) = self.followed.iter_mut().find(|followed| followed.shard == shard)
        else {
            // Its own entry, which the leader has in its store already.
            return;
        };
        // What is decided is the word of the shard's leader, who has it in its own store: to skip it
        // would part this replica from the others for good.
        let entry = Entry::decode(shard, entry)
            .unwrap_or_else(|error| panic!("a leader of {shard} proposed it: {error}"));
        let replica = self.shared.replica(shard).expect("followed");
        let options = &self.shared.setup.options;
        self.desk.counters.operations +=
            entry.pieces.iter().map(|p| p.writes.len() as u64).sum::<u64>();
        let watermarks = self.desk.hub.watermarks.borrow();
        followed.enter(entry, &watermarks, options, &mut |sessions, piece| {
            let (stamp, writes) = (&piece.stamp, &piece.writes);
            let observe = effects.observations.as_mut();
            replay(replica, sessions, stamp, writes, options.faults, observe);
        });
        followed::publish(followed, replica, self.desk.hub.place.worker);
    }

    /// Replays what the watermark covers by now.
    pub(super) fn replay_covered(&mut self, effects: &mut Effects) {
        let options = &self.shared.setup.options;
        let watermarks = self.desk.hub.watermarks.borrow();
        for followed in &mut self.followed {
            let replica = self.shared.replica(followed.shard).expect("followed");
            followed.advance(&watermarks, &mut |sessions, piece| {
                let (stamp, writes) = (&piece.stamp, &piece.writes);
                let observe = effects.observations.as_mut();
                replay(replica, sessions, stamp, writes, options.faults, observe);
            });
            followed::publish(followed, replica, self.desk.hub.place.worker);
        }
    }

    /// Replays what is left of an epoch that is settled.
    pub(super) fn replay_settled(&mut self, epoch: Epoch, effects: &mut Effects) {
        let options = &self.shared.setup.options;
        let watermarks = self.desk.hub.watermarks.borrow();
        for followed in &mut self.followed {
            let replica = self.shared.replica(followed.shard).expect("followed");
            followed.settle(epoch, &watermarks, &mut |sessions, piece| {
                let (stamp, writes) = (&piece.stamp, &piece.writes);
                let observe = effects.observations.as_mut();
                replay(replica, sessions, stamp, writes, options.faults, observe);
            });
            followed::publish(followed, replica, self.desk.hub.place.worker);
        }
    }
}
