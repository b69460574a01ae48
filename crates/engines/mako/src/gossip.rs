//! The nodes to which a worker sends the vector watermark, and when (rule M4).
//!
//! Leaders send it to each other, and to their followers, as soon as there is news and the last time is not too near; and from time
//! to time without news, since a message may have been lost. A node that leads nothing has only floors of stamps to send.
//!
//! Invariants: no node is sent it twice at a time, or by itself; where there is no news, the pause doubles [`QUIET_MAX`]
//! times and no more.

use super::options::MakoOptions;
use crate::watermarks::Watermarks;
use shoal_engine::execution::worker_context::WorkerContext;
use shoal_types::{Clock, NodeId, ShardId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The nodes to which this worker sends the watermark, and when.
pub(super) struct Gossip {
    /// Leaders of other shards, and the replicas of own ones. None twice.
    peers: Vec<NodeId>,
    /// Peers that are only replicas of own shards: they also learn what this worker has received.
    followers: Vec<NodeId>,
    /// Coordinators that lead nothing, and until when each receives it: no other node sends them for certain how far shards
    /// are that their transactions depend on. They receive it as followers do, and with the leaders.
    askers: BTreeMap<NodeId, Time>,
    /// An own shard came further since the last message to the leaders.
    own_news: bool,
    /// Any shard did since the last message to the followers.
    news: bool,
    /// The time of the last message to all, and of the last to the followers.
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
    /// The number of messages to all since the last that had news.
    quiet: u32,
    /// The number of epochs in the last message. Where many are closing, no more messages are sent than usual, or they would
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

    /// Recomputes the receivers: leaders have changed.
    pub(super) fn aim(&mut self, worker_context: &WorkerContext) {
        let (topology, node) = (&worker_context.topology, worker_context.place.node);
        let leaders = topology.shard_ids().map(|shard| worker_context.leader(shard));
        let own: Vec<ShardId> =
            topology.shard_ids().filter(|shard| worker_context.leader(*shard) == node).collect();
        let mut followers: Vec<NodeId> =
            own.iter().flat_map(|shard| worker_context.leaderships.holders(*shard)).collect();
        let mut peers: Vec<NodeId> = match own.is_empty() {
            // A node that leads nothing has only floors to send.
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

    /// The time at which there is something to send. A floor is sent again until every shard has passed it: a node that
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

    /// When the open group is to be closed, if groups stay open so long.
    pub(super) fn group_due(&self, every: Duration) -> Option<Time> {
        Some(self.group?.1 + every)
    }

    /// Closes the open group. Returns where it ends.
    pub(super) fn close_group(&mut self) -> Option<Clock> {
        self.group.take().map(|(end, _)| end)
    }

    /// An own shard has come further, or has ended an epoch.
    pub(super) fn comes_further(&mut self) {
        self.own_news = true;
    }

    /// The highest floor of a stamp that this worker knows of.
    pub(super) fn floor(&self) -> Clock {
        self.floor
    }

    /// Do others wait for what this worker coordinates?
    pub(super) fn is_awaited(&mut self, awaits_answers: bool) {
        self.awaited = self.leads && awaits_answers;
    }

    /// The receivers of the next message, if one is due, and whether those are all.
    pub(super) fn recipients(
        &mut self,
        now: Time,
        watermarks: &Watermarks,
        options: &MakoOptions,
    ) -> Option<(bool, Vec<NodeId>)> {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        // News of others does not put off a repetition to all: the last message may have been lost.
        let to_all = is_due(self.next_due_to_all(watermarks, options));
        if !to_all && !is_due(self.next_due(watermarks, options)) {
            return None;
        }
        self.askers.retain(|_, until| *until > now);
        let peers = if to_all { &self.peers } else { &self.followers };
        let askers = self.askers.keys().filter(|asker| !peers.contains(asker));
        Some((to_all, peers.iter().chain(askers).copied().collect()))
    }

    /// The followers, or all, were sent so many epochs.
    pub(super) fn tell(&mut self, to_all: bool, weight: u32, now: Time) {
        self.weight = weight;
        if to_all {
            self.quiet = if self.own_news { 0 } else { QUIET_MAX.min(self.quiet + 1) };
            (self.own_news, self.told_at) = (false, now);
        }
        (self.news, self.followers_told_at) = (false, now);
    }

    /// Asserts the invariants above, where this is the worker's own node.
    pub(super) fn assert_invariants(&self, node: NodeId) {
        assert!(!self.peers.contains(&node), "M4: {node} tells itself of the watermark");
        assert!(self.peers.is_sorted() && self.followers.is_sorted(), "M4: {:?}", self.peers);
        assert!(self.quiet <= QUIET_MAX && self.told_at <= self.followers_told_at);
    }

    /// Others have come further: a node that does not learn of it from its leader receives it from us.
    pub(super) fn receives_news(&mut self) {
        (self.news, self.quiet) = (true, 0);
    }

    /// Shards are further, as another worker of this node has learned: its askers are not those of this worker.
    pub(super) fn shares_news(&mut self) {
        if !self.askers.is_empty() {
            self.receives_news();
        }
    }

    /// A node that leads nothing has asked for something, and may depend on what it receives until then.
    pub(super) fn is_asked(&mut self, from: NodeId, until: Time) {
        if self.askers.insert(from, until).is_none() {
            // What it has missed counts as news.
            self.receives_news();
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
