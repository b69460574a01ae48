//! P7, of an engine whose new leaders append an entry of their own before they serve: of each stream of the shard, an entry
//! of the leader is accepted by a majority of the voters when the shard is served. Otherwise what a former leadership has
//! proposed could still be decided, and a later leader would find it.

use super::durable::Durable;
use super::verdict::RuleVerdict;
use shoal_types::{Ballot, NodeId, ShardId, WorkerId};
use std::collections::BTreeMap;

/// The first entry of each node that leads a stream.
#[derive(Debug, Default)]
pub struct Seals {
    /// The newest ballot under which each stream was prepared.
    newest: BTreeMap<(ShardId, WorkerId), Ballot>,
    /// Kept when another leads: a node that has not learned of its successor may come to serve, and acts no more.
    first: BTreeMap<(ShardId, WorkerId, NodeId), u64>,
}

impl Seals {
    /// A stream is prepared under a ballot. What its node appended before another led is no entry of this leadership.
    pub fn led(&mut self, shard: ShardId, worker: WorkerId, ballot: Ballot) {
        let newest = self.newest.entry((shard, worker)).or_insert(ballot);
        if newest.node != ballot.node && *newest < ballot {
            self.first.remove(&(shard, worker, ballot.node));
        }
        *newest = ballot.max(*newest);
    }

    /// A leader has appended an entry to a stream.
    pub fn appended(&mut self, shard: ShardId, worker: WorkerId, ballot: Ballot, index: u64) {
        // Where it is prepared again, what it appended before may be lost.
        let first = self.first.entry((shard, worker, ballot.node)).or_insert(index);
        *first = index.min(*first);
    }

    /// Judges that a node serves a shard.
    pub fn serves(&self, shard: ShardId, ballot: Ballot, durable: &Durable) -> RuleVerdict {
        for worker in durable.workers() {
            match self.first.get(&(shard, worker, ballot.node)) {
                Some(first) if *first < durable.decided(shard, worker) => {}
                Some(first) => {
                    return Err(format!(
                        "{} serves {shard}, and no majority has accepted entry {first} of stream {worker}, its first",
                        ballot.node
                    ));
                }
                None => {
                    return Err(format!(
                        "{} serves {shard}, and has appended nothing to stream {worker}",
                        ballot.node
                    ));
                }
            }
        }
        Ok(())
    }
}
