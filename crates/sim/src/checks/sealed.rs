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

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::topology::Topology;
    use shoal_types::{Epoch, WorkerPlace};

    const S: ShardId = ShardId(0);
    const W: WorkerId = WorkerId(0);

    fn on(node: u32) -> WorkerPlace {
        WorkerPlace { node: NodeId(node), worker: W }
    }

    fn ballot(epoch: u32, node: u32) -> Ballot {
        Ballot { epoch: Epoch(epoch), node: NodeId(node) }
    }

    #[test]
    fn a_leader_serves_once_an_entry_of_its_own_is_durable() {
        let mut durable = Durable::new(&Topology::symmetric(1, 1, 3, 0, 1));
        let mut seals = Seals::default();
        let (first, second) = (ballot(1, 0), ballot(2, 1));
        assert!(seals.serves(S, first, &durable).is_err(), "it has appended nothing");
        seals.led(S, W, first);
        seals.appended(S, W, first, 0);
        assert!(seals.serves(S, first, &durable).is_err(), "no majority has it");
        for node in [0, 1] {
            durable.accepted(S, on(node), first, 1).expect("as many as there were");
        }
        assert_eq!(seals.serves(S, first, &durable), Ok(()));
        seals.led(S, W, second);
        assert!(seals.serves(S, second, &durable).is_err(), "the durable entry is another's");
        seals.appended(S, W, second, 1);
        seals.appended(S, W, first, 1);
        for node in [1, 2] {
            durable.accepted(S, on(node), second, 2).expect("as many as there were");
        }
        let verdict = seals.serves(S, second, &durable);
        assert_eq!(verdict, Ok(()), "the former leader did not know of this one");
        assert_eq!(seals.serves(S, first, &durable), Ok(()), "it had an entry of its own");
    }
}
