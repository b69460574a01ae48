//! M4: a shard watermark counts only entries that a majority of the voters has accepted.
//!
//! What is durable is computed here from two facts: what each voter's stream has accepted, and which
//! safe clock each entry carries. A stream is durable up to the safe clock of the last entry that a
//! majority has; a shard up to the least of its streams. Nobody in the cluster may believe more.

use consensus::topology::Topology;
use std::collections::VecDeque;
use types::{Clock, Epoch, NodeId, ShardId, Stamp, WorkerId};

/// What is durable; see the module.
#[derive(Debug)]
pub struct Durable {
    workers: usize,
    streams: Vec<StreamState>,
    shards: Vec<Clock>,
}

#[derive(Debug, Clone)]
struct StreamState {
    /// Voters, and how many entries each has accepted.
    accepted: Vec<(NodeId, u64)>,
    /// How many a majority has.
    majority: u64,
    /// Entries beyond that, the safe clocks they carry, and the epochs that end with them.
    ahead: VecDeque<(u64, Clock, Option<Epoch>)>,
    safe: Clock,
    /// The last epoch that has ended.
    ended: Epoch,
}

impl Durable {
    /// Nothing is durable yet.
    pub fn new(topology: &Topology) -> Durable {
        let workers = topology.workers() as usize;
        let state = |shard: ShardId| StreamState {
            accepted: topology.voters(shard).iter().map(|voter| (*voter, 0)).collect(),
            majority: 0,
            ahead: VecDeque::new(),
            safe: Clock::ZERO,
            ended: Epoch(0),
        };
        let streams = topology.shard_ids().flat_map(|shard| vec![state(shard); workers]);
        let shards = vec![Clock::ZERO; topology.shards() as usize];
        Durable { workers, streams: streams.collect(), shards }
    }

    fn stream(&mut self, shard: ShardId, worker: WorkerId) -> &mut StreamState {
        &mut self.streams[shard.0 as usize * self.workers + worker.0 as usize]
    }

    /// A replica has accepted so many entries; only voters count.
    pub fn accepted(&mut self, shard: ShardId, worker: WorkerId, node: NodeId, length: u64) {
        let stream = self.stream(shard, worker);
        let voter = stream.accepted.iter_mut().find(|(voter, _)| *voter == node);
        let Some((_, accepted)) = voter.filter(|(_, accepted)| *accepted != length) else { return };
        *accepted = length;
        let mut lengths: Vec<u64> = stream.accepted.iter().map(|(_, length)| *length).collect();
        lengths.sort_unstable();
        // So many or more are held by this one and all after it: a majority.
        let majority = lengths[(lengths.len() - 1) / 2];
        if majority > stream.majority {
            stream.majority = majority;
            self.advance(shard, worker);
        }
    }

    /// The leader of the stream has appended an entry.
    pub fn appended(
        &mut self,
        shard: ShardId,
        worker: WorkerId,
        index: u64,
        (safe, ended): (Clock, Option<Epoch>),
    ) {
        self.stream(shard, worker).ahead.push_back((index, safe, ended));
        self.advance(shard, worker);
    }

    fn advance(&mut self, shard: ShardId, worker: WorkerId) {
        let stream = self.stream(shard, worker);
        let before = stream.safe;
        while let Some((index, safe, ended)) = stream.ahead.front()
            && *index < stream.majority
        {
            stream.safe = stream.safe.max(*safe);
            stream.ended = stream.ended.max(ended.unwrap_or_default());
            stream.ahead.pop_front();
        }
        if stream.safe > before {
            let first = shard.0 as usize * self.workers;
            let streams = self.streams[first..first + self.workers].iter();
            self.shards[shard.0 as usize] =
                streams.map(|stream| stream.safe).min().unwrap_or(Clock::ZERO);
        }
    }

    /// How many entries of a stream a majority of the voters has accepted.
    pub fn majority(&self, shard: ShardId, worker: WorkerId) -> u64 {
        self.streams[shard.0 as usize * self.workers + worker.0 as usize].majority
    }

    /// How far a shard is durable.
    pub fn of(&self, shard: ShardId) -> Clock {
        self.shards[shard.0 as usize]
    }

    /// How far a shard is durable for what belongs to `epoch`: once all its streams have ended that,
    /// wholly.
    pub fn of_epoch(&self, shard: ShardId, epoch: Epoch) -> Clock {
        let first = shard.0 as usize * self.workers;
        let streams = self.streams[first..first + self.workers].iter();
        match streams.map(|stream| stream.ended).min() {
            Some(ended) if ended >= epoch => Clock::MAX,
            _ => self.of(shard),
        }
    }

    /// All shards.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shards.len() as u32).map(ShardId)
    }

    /// The first shard that is not durable up to the stamp, kept by `own`, and its entry there.
    pub fn missing(&self, own: ShardId, stamp: &Stamp) -> Option<(ShardId, Clock)> {
        let view = stamp.seen_by(own);
        self.shards()
            .map(|shard| (shard, view.entry(shard)))
            .find(|(shard, clock)| *clock > self.of_epoch(*shard, stamp.epoch))
    }

    /// A node takes the shard for durable up to `clock`.
    pub fn check(&self, shard: ShardId, clock: Clock) -> super::Verdict {
        let durable = self.of(shard);
        if clock <= durable {
            return Ok(());
        }
        Err(format!(
            "the watermark of {shard} is {clock} here, but a majority of its voters has accepted \
             its streams up to {durable} only"
        ))
    }
}
