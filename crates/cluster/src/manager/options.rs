//! The manager's timeouts, and its assumptions about clocks.

use super::configuration::Assignment;
use crate::topology::Topology;
use shoal_types::{NodeId, ShardId, planted};
use std::time::Duration;
use thiserror::Error;

/// Parts in a million.
const MILLION: u128 = 1_000_000;

/// The options have to be the same on every node and every manager of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerOptions {
    /// How long a node may act on one granted heartbeat. Longer survives slower networks and longer
    /// outages of the manager; a dead leader is replaced that much later. Default 600 ms.
    pub lease: Duration,
    /// How much faster or slower than true time a clock may run, in parts per million. If one
    /// exceeds it, two leaders may hold leases at one time. Default 1000; oscillators stay below 200.
    pub drift_ppm: u32,
    /// A node sends a heartbeat this often, at multiples of it on its clock. Several have to fit into a lease. Default
    /// 75 ms.
    pub heartbeat_every: Duration,
    /// A node from which no heartbeat arrived for this long, though its lease runs, is appointed only if no
    /// other can be. A few heartbeats. Default 225 ms.
    pub suspect_after: Duration,
    /// The interval of ticks, with which the manager records heartbeats and declares nodes dead. Default 50
    /// ms.
    pub tick_every: Duration,
    /// Time without an answer after which a proposal, a request or a message is repeated. Must exceed the
    /// round trip. Default 300 ms.
    pub retry_after: Duration,
    /// The most final ends kept that do not cover all of their epochs; beyond that, the oldest is dropped that all
    /// live nodes have received. A node that has not received a dropped one has to begin without memory. Each
    /// costs 8 bytes a shard in every configuration. Default 1024.
    pub finals_max: usize,
    /// Whether an operator may accept the loss of a shard's majority: the engine then has to report what it
    /// knows. Default true.
    pub accepts_losses: bool,
    /// Whether each death and each return of a node begins an epoch, also of nodes that lead nothing: the engine orders
    /// messages by memberships. Default false.
    pub membership_epochs: bool,
    /// Whether a process of a node has the memory of the one before it, if its disks have: their logs are on disk. Default false.
    pub keeps_memory: bool,
    /// Which replicas of a shard may lead it: the engine's choice. A learner that led before only voters might hands over
    /// as soon as a voter can lead. Default [`LeaderCandidates::LearnersFirst`].
    pub leader_candidates: LeaderCandidates,
    /// Planted bugs, for tests of the checkers. Default none.
    pub faults: ManagerPlantedBugs,
}

impl Default for ManagerOptions {
    fn default() -> ManagerOptions {
        ManagerOptions {
            lease: Duration::from_millis(600),
            drift_ppm: 1000,
            heartbeat_every: Duration::from_millis(75),
            suspect_after: Duration::from_millis(225),
            tick_every: Duration::from_millis(50),
            retry_after: Duration::from_millis(300),
            finals_max: 1024,
            accepts_losses: true,
            membership_epochs: false,
            keeps_memory: false,
            leader_candidates: LeaderCandidates::LearnersFirst,
            faults: ManagerPlantedBugs::default(),
        }
    }
}

impl ManagerOptions {
    pub(super) fn check(&self) {
        assert!(u128::from(self.drift_ppm) < MILLION, "a clock that may stand still: {self:?}");
        assert!(
            self.heartbeat_every > Duration::ZERO,
            "heartbeats need a pause between them: {self:?}"
        );
        assert!(self.tick_every > Duration::ZERO, "ticks need a pause between them: {self:?}");
        assert!(self.retry_after > Duration::ZERO, "retries need a pause between them: {self:?}");
        assert!(self.heartbeat_every < self.lease_at_node(), "no lease is renewed: {self:?}");
    }

    /// The lease on a node's clock, from the sending of the heartbeat: never more than
    /// [`lease`](ManagerOptions::lease) of true time.
    #[must_use]
    pub fn lease_at_node(&self) -> Duration {
        nanoseconds(self.lease.as_nanos() * (MILLION - u128::from(self.drift_ppm)) / MILLION)
    }

    /// The lease on the manager's clock, from the arrival of the heartbeat: never less than
    /// [`lease`](ManagerOptions::lease) of true time.
    #[must_use]
    pub fn lease_at_manager(&self) -> Duration {
        let long = self.lease.as_nanos() * (MILLION + u128::from(self.drift_ppm));
        nanoseconds(long.div_ceil(MILLION))
    }
}

/// Which replicas of a shard may lead it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaderCandidates {
    /// Voters and learners. A learner in the datacenter of the dead leader is preferred: it keeps the leaders together.
    LearnersFirst,
    /// Voters: the engine's protocol needs the leader's vote, or does not bring learners all that a leader has.
    VotersOnly,
}

impl LeaderCandidates {
    /// Whether the topology names first leaders that may lead.
    ///
    /// # Errors
    /// The first shard whose leader is a learner, where only voters may lead.
    pub fn check(self, topology: &Topology) -> Result<(), LearnerLeads> {
        let mut led = topology.shard_ids().map(|shard| (shard, topology.leader(shard)));
        let is_excluded = |(shard, node): &(ShardId, NodeId)| match self {
            LeaderCandidates::LearnersFirst => false,
            LeaderCandidates::VotersOnly => !topology.voters(*shard).contains(node),
        };
        led.find(is_excluded).map_or(Ok(()), |(shard, node)| Err(LearnerLeads { shard, node }))
    }

    /// Whether a node may lead the shard, as a voter or a learner of it.
    pub(super) fn may_lead(self, assignment: &Assignment, node: NodeId) -> bool {
        match self {
            LeaderCandidates::LearnersFirst => assignment.holds(node),
            LeaderCandidates::VotersOnly => assignment.voters.contains(&node),
        }
    }
}

/// The topology has a learner lead a shard, and the engine has only voters lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "{node} is a learner of {shard} and leads it in the topology; this engine needs a voter to lead, so name one"
)]
pub struct LearnerLeads {
    /// The shard that it would lead.
    pub shard: ShardId,
    /// The leader that the topology names.
    pub node: NodeId,
}

fn nanoseconds(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

planted! {
    /// Bugs planted on purpose: each must be caught by a check.
    pub struct ManagerPlantedBugs {
        /// A node takes an older image of its disks for its memory.
        pub believe_older_disks: bool,
        /// A node asks to be admitted while its workers read what its disks have.
        pub join_before_begun: bool,
        /// A forced end ignores what live nodes know of the shard.
        pub force_below_known: bool,
        /// Where a loss is accepted, the former voters stay voters.
        pub count_void_voters: bool,
        /// A leader counts as dead after half of its lease (breaks the lease rule).
        pub appoint_early: bool,
        /// A leader counts as dead one [`tick`](ManagerOptions::tick_every) before its lease has run out
        /// (breaks the lease rule). Its successor mostly learns of its appointment later, and so the two rarely act
        /// at the same time.
        pub appoint_hasty: bool,
        /// A manager grants leases before it knows whether it still leads (breaks the lease rule).
        pub grant_unconfirmed: bool,
        /// A manager renews leases that have run out, and does not wait until the log records it (breaks the
        /// lease rule).
        pub renew_lapsed: bool,
        /// A new process of a node is admitted without the time of the former one's last heartbeat (breaks
        /// the lease rule).
        pub forget_former_instance: bool,
        /// A node counts its lease from the arrival of the grant (breaks the lease rule).
        pub lease_from_reply: bool,
        /// The manager compares times with those of managers before it (breaks the lease rule).
        pub trust_former_clocks: bool,
        /// A new manager begins leases at the time of its `Take`, read before that was applied (breaks
        /// the lease rule).
        pub rebase_at_take: bool,
        /// A node counts a grant whose configuration it does not have (breaks the lease rule).
        pub grant_without_configuration: bool,
        /// A node that restarted continues the leaderships of its former process.
        pub keep_leadership: bool,
        /// An appointment erases the ends that the shard has reported (breaks the rule of final ends).
        pub erase_ends: bool,
        /// A shard that is out counts as ended in the epochs before, too (breaks the rule of final ends).
        pub out_ends_former: bool,
        /// A report changes ends that are final already (breaks the rule of final ends).
        pub late_report_overwrites: bool,
        /// Any node reports for any shard.
        pub deposed_reports: bool,
        /// A node accepts messages of managers before whose generation it has pledged to another (breaks the
        /// lease rule).
        pub serve_former_managers: bool,
        /// Replicas that lost their memory are appointed like others.
        pub appoint_empty: bool,
        /// Nodes are declared dead also where no other copy is left of what they have.
        pub depart_with_copies: bool,
        /// Learners are appointed where only voters may lead.
        pub appoint_learner: bool,
        /// A voter that is replaced leaves before the added one has caught up (breaks the majority rule).
        pub leave_early: bool,
        /// A process of a node that was removed is admitted.
        pub admit_removed: bool,
        /// A request that has created a table creates another one when it is repeated after that was dropped.
        pub create_again: bool,
        /// Changes of tables are answered before all nodes have learned of them.
        pub answer_untold: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with the slowest clock ends its lease before a manager with the fastest counts it as ended.
    #[test]
    fn leases_are_shortened_and_lengthened_by_the_drift() {
        for (lease_ns, drift_ppm) in
            [(600_000_000, 1000), (1, 0), (7, 333_333), (999_999_999, 999_999)]
        {
            let lease = Duration::from_nanos(lease_ns);
            let options = ManagerOptions { lease, drift_ppm, ..ManagerOptions::default() };
            let drift = u128::from(drift_ppm);
            let slowest = options.lease_at_node().as_nanos() * MILLION;
            assert!(slowest <= lease.as_nanos() * (MILLION - drift));
            let fastest = options.lease_at_manager().as_nanos() * MILLION;
            assert!(fastest >= lease.as_nanos() * (MILLION + drift));
        }
    }
}
