//! The members of a stream, and its limits and timeouts.

use shoal_types::{NodeId, planted};
use std::time::Duration;

/// The replicas of a stream. The leader need not be one of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamMembers {
    /// Replicas that accept entries and vote: a majority of them decides.
    pub voters: Vec<NodeId>,
    /// Replicas that accept entries and do not vote.
    pub learners: Vec<NodeId>,
    /// Whether a leader prepares at all voters instead of a majority: where the voters are the survivors of a
    /// larger group, a decided entry may be held by a single one of them.
    pub all_promise: bool,
}

impl StreamMembers {
    /// All replicas, voters first.
    pub fn all(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.voters.iter().chain(&self.learners).copied()
    }

    /// Whether `count` voters are a majority of them.
    #[must_use]
    pub fn is_majority(&self, count: usize) -> bool {
        count > self.voters.len() / 2
    }

    /// Whether a leader with the promises of `count` voters knows all that was decided.
    #[must_use]
    pub fn prepares(&self, count: usize) -> bool {
        if self.all_promise { count == self.voters.len() } else { self.is_majority(count) }
    }

    /// Whether the voters are the same nodes.
    pub(super) fn has_voters_of(&self, other: &StreamMembers) -> bool {
        let votes = |node: &NodeId| other.voters.contains(node);
        self.voters.len() == other.voters.len() && self.voters.iter().all(votes)
    }

    /// The same replicas, of which those vote that voted before: a planted bug.
    pub(super) fn with_voters_of(self, former: &StreamMembers) -> StreamMembers {
        let voters = former.voters.clone();
        let learners = self.all().filter(|node| !voters.contains(node)).collect();
        StreamMembers { voters, learners, ..self }
    }

    pub(super) fn check(&self) {
        assert!(!self.voters.is_empty(), "there are no voters: {self:?}");
        let mut all: Vec<_> = self.all().collect();
        all.sort_unstable();
        all.dedup();
        let named = self.voters.len() + self.learners.len();
        assert_eq!(all.len(), named, "a replica has one role: {self:?}");
    }
}

/// The limits and timeouts of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamOptions {
    /// Entries in flight: appended and not yet decided, and for each replica sent and not yet
    /// received. More hides longer round trips and costs memory. Default 4096.
    pub window_entries: u64,
    /// The same in bytes: the most that is sent to a replica in one step, and that is in flight to a slow
    /// one, where it delays what is sent next. One entry may always be in flight, however large. Default 16
    /// MiB.
    pub window_bytes: u64,
    /// The window of a replica that receives a full one within `retry_after` doubles, up to this many bytes:
    /// a leader that writes much, far from its replicas, has as much in flight in a round trip. Default 64
    /// MiB.
    pub window_bytes_max: u64,
    /// Bytes of entries in one message; a single larger entry is sent alone. Smaller messages interleave
    /// better with others. Default 1 MiB.
    pub message_bytes_max: u64,
    /// Time without an answer after which a replica is asked again. Must exceed the round trip, or everything
    /// is sent twice; a longer time makes recovery from loss slower. Default 200 ms.
    pub retry_after: Duration,
    /// The owner trims the sequence when this many entries are in every replica: more make trims rarer.
    /// Default 256.
    pub trim_entries: u64,
    /// The owner also trims entries that some replica lacks if the sequence exceeds this many bytes: a
    /// replica that comes back late receives a snapshot. Less saves memory while a replica is away. Default
    /// 64 MiB.
    pub retain_bytes: u64,
    /// Bytes of entries that may wait to become durable: with more, a replica takes none from its leader, and a leader appends
    /// none, until its disk has caught up. Bounds the memory that a slow or full disk takes. Must exceed what is written while a
    /// snapshot becomes durable, or a replica that came back late needs another one then. Default 1 GiB.
    pub unpersisted_bytes_max: u64,
    /// Planted bugs, for tests of the checkers. Default none.
    pub faults: StreamPlantedBugs,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions {
            window_entries: 4096,
            window_bytes: 16 << 20,
            window_bytes_max: 64 << 20,
            message_bytes_max: 1 << 20,
            retry_after: Duration::from_millis(200),
            trim_entries: 256,
            retain_bytes: 64 << 20,
            unpersisted_bytes_max: 1 << 30,
            faults: StreamPlantedBugs::default(),
        }
    }
}

impl StreamOptions {
    pub(super) fn check(&self) {
        assert!(self.window_entries > 0, "a window of no entries stays shut: {self:?}");
        assert!(self.window_bytes <= self.window_bytes_max, "a window that would shrink: {self:?}");
        assert!(self.unpersisted_bytes_max > 0, "a disk that never catches up: {self:?}");
        assert!(self.retry_after > Duration::ZERO, "retries need a pause between them: {self:?}");
    }
}

planted! {
    /// Bugs planted on purpose: each must be caught by a check.
    pub struct StreamPlantedBugs {
        /// The leader counts what a learner accepted as a vote (breaks the majority rule).
        pub count_learner: bool,
        /// A replica promises a ballot and does not store the promise.
        pub forget_promise: bool,
        /// A new leader adopts the shortest sequence of the lowest ballot among the promises.
        pub adopt_shortest: bool,
        /// A new leader adopts the longest sequence among the promises, of any ballot.
        pub adopt_longest: bool,
        /// A new leader keeps its own undecided entries in front of a sequence of another ballot.
        pub adopt_onto_own: bool,
        /// A replica moves to a ballot before it has all that the leader of the ballot began with.
        pub join_early: bool,
        /// A replica takes its own undecided entries, of another ballot, for those of the leader.
        pub keep_undecided: bool,
        /// A replica without memory votes.
        pub vote_while_empty: bool,
        /// A leader takes what a replica acknowledged in a former process for what it has.
        pub keep_former_acks: bool,
        /// A replica without memory is reported as caught up as soon as anything was sent to it.
        pub caught_up_early: bool,
        /// Voters that were replaced go on to vote, and those in their place do not.
        pub keep_former_voters: bool,
        /// A replica acknowledges entries that its storage does not have yet, and counts them.
        pub acknowledge_unpersisted: bool,
        /// A replica answers a leader that prepares before its promise is durable.
        pub promise_unpersisted: bool,
        /// A snapshot from a peer counts as durable before a checkpoint has its rows.
        pub count_snapshot_early: bool,
        /// A leader prepares at a majority where all voters have to promise.
        pub prepare_at_majority: bool,
    }
}
