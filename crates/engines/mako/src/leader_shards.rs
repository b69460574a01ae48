//! The shards, as a worker of a node leads them, recovers them, or does neither (rules M2, M3 and M7).
//!
//! Invariants:
//!
//! - The shards whose streams this worker appends to are those that a step visits: [`LeaderShards::leading`].
//! - A shard that the node was appointed to and does not serve is looked at in each step: [`LeaderShards::is_recovering`].

use super::leader_shard::LeaderShard;
use super::mako_replica::MakoReplica;
use shoal_types::{Clock, Epoch, ShardId, Time};
use std::ops::{Index, IndexMut};

/// All of them, in the order of the node's places.
pub(super) struct LeaderShards {
    shards: Vec<LeaderShard>,
    /// The places of those whose streams are prepared and closed up to the leadership, in order.
    leading: Vec<usize>,
    /// The node was appointed to one that it does not serve.
    is_recovering: bool,
    /// Until when this node may act as a leader.
    lease_end: Time,
}

impl LeaderShards {
    /// None is led.
    pub(super) fn new(replicas: &[MakoReplica], first: Epoch) -> LeaderShards {
        LeaderShards {
            shards: replicas.iter().map(|replica| LeaderShard::new(replica.shard, first)).collect(),
            leading: Vec::new(),
            is_recovering: false,
            lease_end: Time::ZERO,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    /// All of them, in the order of the node's places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LeaderShard> {
        self.shards.iter()
    }

    /// The same, to change each.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LeaderShard> {
        self.shards.iter_mut()
    }

    /// The place of a shard.
    pub(super) fn place_of(&self, shard: ShardId) -> Option<usize> {
        self.shards.iter().position(|led| led.lead.shard == shard)
    }

    /// The shards to whose streams this worker appends, with their places.
    pub(super) fn leading(&self) -> impl Iterator<Item = (usize, &LeaderShard)> {
        self.leading.iter().map(|at| (*at, &self.shards[*at]))
    }

    /// The place of one of them, by its number among them.
    pub(super) fn leading_place(&self, number: usize) -> Option<usize> {
        self.leading.get(number).copied()
    }

    /// Is there one that the node was appointed to and does not serve, as far as it was looked up?
    pub(super) fn is_recovering(&self) -> bool {
        self.is_recovering
    }

    /// Looks that up, after something was done about it.
    pub(super) fn look_up_recovering(&mut self) {
        self.is_recovering = self.shards.iter().any(LeaderShard::is_recovering);
    }

    /// This worker may append to the stream of the shard at this place: see [`LeaderShard::begin`].
    pub(super) fn begin(&mut self, at: usize, length: u64, safe: Clock, over: (Epoch, Epoch)) {
        let (ended, finals) = over;
        self.shards[at].begin(length, safe, ended, finals);
        self.leading.push(at);
        self.leading.sort_unstable();
    }

    /// The shard at this place is led no more: see [`LeaderShard::resign`].
    pub(super) fn resign(&mut self, at: usize) {
        self.shards[at].resign();
        self.leading.retain(|other| *other != at);
        self.look_up_recovering();
    }

    /// Until when this node may act as a leader.
    pub(super) fn lease_end(&self) -> Time {
        self.lease_end
    }

    /// The node holds its lease until then.
    pub(super) fn renew(&mut self, lease_end: Time) {
        self.lease_end = lease_end;
    }

    /// Asserts the invariants above.
    pub(super) fn assert_invariants(&self) {
        self.shards.iter().for_each(LeaderShard::assert_invariants);
        let leading = (0..self.shards.len()).filter(|at| self.shards[*at].lead.is_leading());
        assert!(
            leading.eq(self.leading.iter().copied()),
            "M3: {:?} are led, not these",
            self.leading
        );
        let is_recovering = self.shards.iter().any(LeaderShard::is_recovering);
        assert!(
            self.is_recovering || !is_recovering,
            "M9: a shard is recovered, and not looked at"
        );
    }
}

impl Index<usize> for LeaderShards {
    type Output = LeaderShard;

    fn index(&self, at: usize) -> &LeaderShard {
        &self.shards[at]
    }
}

impl IndexMut<usize> for LeaderShards {
    fn index_mut(&mut self, at: usize) -> &mut LeaderShard {
        &mut self.shards[at]
    }
}
