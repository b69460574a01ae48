//! What a node knows of the shards: their voters and leaders, by the configuration, and the greatest ballots that it
//! knows.

use shoal_types::{Ballot, NodeId, ShardId};

/// A shard, as a configuration has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShardView {
    /// The nodes that vote.
    pub voters: Vec<NodeId>,
    /// The voters that have their memory.
    pub full: Vec<NodeId>,
    /// The node that leads.
    pub leader: NodeId,
    /// The leader's ballot.
    pub ballot: Ballot,
}

/// How many replicas each path needs, of `n` voters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quorums {
    /// Lists that a recovery takes: a majority.
    pub majority: usize,
    /// Equal votes that commit on the fast path: all but half of those that may fail.
    pub fast: usize,
}

impl Quorums {
    /// Of `voters` voters.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn of(voters: usize) -> Quorums {
        assert!(voters > 0, "a shard has a voter");
        let (majority, faults) = (voters / 2 + 1, (voters - 1) / 2);
        Quorums { majority, fast: voters - faults / 2 }
    }

    /// In so many of these lists stands what was committed on the fast path by votes of `voters` voters.
    #[must_use]
    pub fn candidate(voters: usize, lists: usize) -> usize {
        (Quorums::of(voters.max(1)).fast + lists).saturating_sub(voters).max(1)
    }

    /// With so many lists, at least, of two candidates that exclude each other one stands in too few, and no fast quorum is
    /// left among the voters that gave none.
    #[must_use]
    pub fn lists_min(voters: usize) -> usize {
        2 * (voters - Quorums::of(voters).fast) + 1
    }
}

/// All shards, as a node knows them.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// This node.
    pub me: NodeId,
    /// The shards, by their numbers.
    pub shards: Vec<ShardView>,
    known: Vec<Ballot>,
}

impl View {
    /// A node that knows no configuration yet.
    #[must_use]
    pub fn new(me: NodeId) -> View {
        View { me, shards: Vec::new(), known: Vec::new() }
    }

    /// Takes over a configuration.
    pub fn configure(&mut self, shards: Vec<ShardView>) {
        self.known.resize(shards.len(), Ballot::default());
        for (known, shard) in self.known.iter_mut().zip(&shards) {
            *known = shard.ballot.max(*known);
        }
        self.shards = shards;
    }

    /// A shard, if there is one.
    #[must_use]
    pub fn shard(&self, shard: ShardId) -> Option<&ShardView> {
        self.shards.get(shard.0 as usize)
    }

    /// The greatest ballot of a shard that the node knows (rule T20).
    #[must_use]
    pub fn known(&self, shard: ShardId) -> Ballot {
        self.known.get(shard.0 as usize).copied().unwrap_or_default()
    }

    /// The node has learned of a ballot. Returns whether it is the greatest.
    pub fn hear(&mut self, shard: ShardId, ballot: Ballot) -> bool {
        let Some(known) = self.known.get_mut(shard.0 as usize) else { return false };
        *known = ballot.max(*known);
        *known == ballot
    }

    /// Where the leader of a shard is, by the greatest ballot that the node knows.
    #[must_use]
    pub fn leader(&self, shard: ShardId) -> Option<NodeId> {
        let known = self.known(shard);
        (known != Ballot::default()).then_some(known.node)
    }

    /// Whether the node votes on a shard, as far as the configuration says.
    #[must_use]
    pub fn votes(&self, shard: ShardId) -> bool {
        self.shard(shard).is_some_and(|view| view.full.contains(&self.me))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorums_are_those_of_the_paper_and_candidates_are_unique() {
        let of = |voters| {
            let Quorums { majority, fast } = Quorums::of(voters);
            (majority, fast, Quorums::candidate(voters, majority))
        };
        assert_eq!([1, 3, 5, 7].map(of), [(1, 1, 1), (2, 3, 2), (3, 4, 2), (4, 6, 3)]);
        for voters in 1..12 {
            let Quorums { majority, fast } = Quorums::of(voters);
            let least = Quorums::lists_min(voters);
            assert!(fast >= majority && least <= majority);
            for lists in least..=voters {
                let candidate = Quorums::candidate(voters, lists);
                assert!(2 * candidate > lists, "two that exclude each other");
                assert_eq!(fast + lists - voters, candidate, "what is committed is one");
                assert!(voters - lists < fast, "the others commit nothing");
            }
            // A voter is added or leaves: a majority of the fewer is enough.
            let fewer = Quorums::of(voters).majority;
            assert!(fewer >= Quorums::lists_min(voters + 1));
        }
    }
}
