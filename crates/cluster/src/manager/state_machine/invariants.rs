//! What holds of the state machine after every command.

use super::StateMachine;
use crate::manager::configuration::Assignment;
use crate::manager::epoch_end::FinalEnds;
use crate::manager::ids::Term;
use shoal_types::NodeId;

impl StateMachine {
    pub(super) fn assert_invariants(&self) {
        if let Some(fault) = self.fault() {
            panic!("{fault}: {self:?}");
        }
    }

    /// The first invariant that does not hold, if there is one.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let first = self.closing.keys().next().copied().unwrap_or(self.epoch);
        let last = self.closing.keys().next_back().copied();
        let early = |last: &FinalEnds| {
            last.epoch() >= self.epoch || self.closing.contains_key(&last.epoch())
        };
        let rules = [
            (self.cluster.is_some() || self.term == Term(0), "not founded"),
            (
                self.settled.0.checked_add(1) == Some(first.0),
                "final ends: the first that is not settled",
            ),
            (last.is_none_or(|last| last < self.epoch), "closed an open epoch"),
            (!self.finals.iter().any(|(_, last)| early(last)), "final ends are too early"),
            (
                self.forgotten <= self.settled,
                "final ends: an epoch was forgotten before its ends were final",
            ),
            (
                self.finals.iter().all(|(_, it)| it.epoch() > self.forgotten),
                "final ends are too late",
            ),
            (self.finals.is_sorted_by_key(|(_, last)| last.epoch()), "final ends are unsorted"),
            (
                self.nodes.iter().all(|it| !it.alive || it.since <= self.epoch),
                "a member since the future",
            ),
        ];
        let removed = self.topology.nodes().iter().filter(|node| node.removed).map(|node| node.id);
        let is_over = |node: NodeId| {
            let held = self.shards.iter().any(|shard| shard.assignment.holds(node));
            !held && !self.is_alive(node)
        };
        let rules = rules.into_iter().chain([(removed.into_iter().all(is_over), "was removed")]);
        let of_shards = self.shards.iter().flat_map(|shard| {
            let Assignment { leader, ballot, voters, learners, empty, .. } = &shard.assignment;
            let voting_since = &shard.assignment.voting_since;
            [
                (ballot.epoch <= self.epoch, "appointed in the future"),
                (ballot.node == *leader, "the ballot of another"),
                (shard.assignment.holds(*leader), "leads without a replica"),
                (!voters.iter().any(|node| learners.contains(node)), "two roles"),
                (voting_since.keys().all(|node| voters.contains(node)), "votes without a vote"),
                (voting_since.values().all(|since| *since <= self.epoch), "votes in the future"),
                (empty.keys().all(|node| shard.assignment.holds(*node)), "strays"),
                (
                    !shard.assignment.left.iter().any(|node| shard.assignment.holds(*node)),
                    "is back",
                ),
                (
                    shard.assignment.added.as_ref().is_none_or(|added| {
                        let both = [added.node, added.in_place_of];
                        both.iter().all(|node| voters.contains(node)) && shard.replacement.is_none()
                    }),
                    "one of two voters is missing",
                ),
                (shard.ready.iter().all(|node| empty.contains_key(node)), "full"),
            ]
        });
        rules.chain(of_shards).find(|(holds, _)| !holds).map(|(_, fault)| fault)
    }
}
