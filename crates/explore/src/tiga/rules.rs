//! The rules of the protocol that can be switched off, each by its name in the design.

/// A rule of the protocol. Without it, the model follows the published protocol or an earlier draft of the design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Hole 1: a digest covers the digests of the last writers of what is read. Without: per key, the exclusive or of the
    /// identities and timestamps of all predecessors (appendix D).
    ChainedDigests,
    /// Hole 2: equal digests decide what is a candidate. Without: a candidate also needs a timestamp above the last
    /// synced one (§4, step 3b).
    DigestsDecide,
    /// Hole 3, T8: what a recovery imports or keeps stands behind the adopted log. Without: everything that any list or
    /// shard knows is sorted by timestamp (Algorithm 5).
    ImportsBehind,
    /// Hole 4, T5: a follower votes only when all multi-shard predecessors are synced there.
    VoteOverSynced,
    /// Hole 5: `Propose` is sent on acceptance. Without: at the head of the queue (Algorithm 2).
    ProposeOnAcceptance,
    /// E1, T19: nothing is kept, or stays tentative, behind a greater synced conflict.
    E1,
    /// E2, T16: fast commits of several shards name the same ballots.
    E2,
    /// E3, T18: a leader sends reads only when they are stable, and nothing is kept that would write in front of an
    /// imported transaction what it read. Only for transactions of shape `Whole`.
    E3,
    /// E4, T17: a start record is accepted by a majority before its leader asks or answers other shards.
    E4,
    /// E5, T17: no voter votes under a ballot before it has accepted the final record.
    E5,
    /// E9, T20: answering a recovery of a ballot makes that ballot current at once.
    E9,
    /// E11: what a leader has voted for, but not appended, is in its tentative list.
    E11,
    /// T1: a follower accepts no transaction below a conflicting one that it has released.
    T1,
    /// T2: `Ready` binds: nothing conflicting below its timestamp is accepted.
    T2Promise,
    /// T2: a transaction of several shards is released only when all participants are ready.
    T2Wait,
    /// T4: fast means S votes. Without: f + 1.
    T4,
    /// T6: stable means at a majority. Without: at the leader.
    T6,
    /// T7: tentative lists are given to the new leader.
    T7,
    /// T9: a voter that has promised a ballot votes under no lower one.
    T9,
    /// T11: a leader answers no reads while it is ready for something that writes what they read.
    T11,
    /// T23: a `Ready` names what stands in front of its transaction, and a recovery keeps nothing else in front of it.
    T23,
    /// A voter that returns without its tentative list forces a new ballot of the leader. Without: it joins the latest one.
    RestartBallot,
    /// Proposed, only where a recovery may end without the answer of another shard: a transaction is committed only when
    /// every conflicting predecessor of several shards is.
    CommitOverCommitted,
}

impl Rule {
    /// All rules, in the order of the design.
    pub const ALL: [Rule; 23] = [
        Rule::ChainedDigests,
        Rule::DigestsDecide,
        Rule::ImportsBehind,
        Rule::VoteOverSynced,
        Rule::ProposeOnAcceptance,
        Rule::E1,
        Rule::E2,
        Rule::E3,
        Rule::E4,
        Rule::E5,
        Rule::E9,
        Rule::E11,
        Rule::T1,
        Rule::T2Promise,
        Rule::T2Wait,
        Rule::T4,
        Rule::T6,
        Rule::T7,
        Rule::T9,
        Rule::T11,
        Rule::T23,
        Rule::RestartBallot,
        Rule::CommitOverCommitted,
    ];

    /// The name by which a command switches the rule off.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::ChainedDigests => "chained-digests",
            Rule::DigestsDecide => "digests-decide",
            Rule::ImportsBehind => "imports-behind",
            Rule::VoteOverSynced => "vote-over-synced",
            Rule::ProposeOnAcceptance => "propose-on-acceptance",
            Rule::E1 => "e1",
            Rule::E2 => "e2",
            Rule::E3 => "e3",
            Rule::E4 => "e4",
            Rule::E5 => "e5",
            Rule::E9 => "e9",
            Rule::E11 => "e11",
            Rule::T1 => "t1",
            Rule::T2Promise => "t2-promise",
            Rule::T2Wait => "t2-wait",
            Rule::T4 => "t4",
            Rule::T6 => "t6",
            Rule::T7 => "t7",
            Rule::T9 => "t9",
            Rule::T11 => "t11",
            Rule::T23 => "t23",
            Rule::RestartBallot => "restart-ballot",
            Rule::CommitOverCommitted => "commit-over-committed",
        }
    }
}
