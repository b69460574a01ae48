//! The state of all shards.
//!
//! Messages are not kept one by one. What a process has sent is a fact that stays, and a receiver may use it at any later
//! time, repeatedly, or never: so every delay, repetition and loss is tried. The log of a ballot, for example, stands once in
//! [`Ballot`], and a replica holds a prefix of it. Nor are there clocks: a clock may be at any time, so a
//! timestamp is always, and never yet, over, and only the order of timestamps matters.

use super::scenario::{REPLICAS, SHARDS_MAX};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// The place of a ballot among those of its shard; the first leader's is 0.
pub(super) type BallotNumber = u8;
/// One ballot of each shard.
pub(super) type Ballots = [BallotNumber; SHARDS_MAX];
/// What was read on each shard, as hashes.
pub(super) type Reads = [u64; SHARDS_MAX];
/// What stands in front of a transaction on each shard, as bits.
pub(super) type Named = [u8; SHARDS_MAX];
/// Timestamp and transaction: the order in which conflicting transactions are released.
pub(super) type Stamp = (u8, u8);

/// An entry of a log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Entry {
    pub id: u8,
    pub t: u8,
    /// The digest of the entries before it, as the protocol's rules compute it.
    pub digest: u64,
    /// What the digest should cover: known to the checker only.
    pub history: u64,
    /// Of this shard, and of the other participants where the shape is `Whole`.
    pub reads: Reads,
    /// Of all participants, under which it was released.
    pub ballots: Ballots,
    /// What the participants have named with `Ready`.
    pub named: Named,
}

impl Entry {
    pub(super) fn stamp(&self) -> Stamp {
        (self.t, self.id)
    }
}

/// What a replica has released or voted for, and not synced.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tentative {
    pub id: u8,
    pub t: u8,
    pub digest: u64,
    pub history: u64,
    /// The transactions its digest rests on.
    pub predecessors: u8,
    /// A vote is final, and so is its digest.
    pub is_voted: bool,
    /// The transaction stands in the record of a recovery, so one list is enough for the next one.
    pub is_recorded: bool,
}

impl Tentative {
    pub(super) fn stamp(&self) -> Stamp {
        (self.t, self.id)
    }
}

/// A vote of a follower, or of a detective leader before it appends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Vote {
    pub ballot: BallotNumber,
    pub id: u8,
    pub t: u8,
    pub digest: u64,
    pub history: u64,
}

/// How a transaction came into a leader's queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    /// From a coordinator or with a `Propose`.
    Accepted,
    /// A candidate that the recovery kept.
    Kept,
    /// Agreed by other shards, and taken from what they said in a recovery.
    Imported { reads: Reads, ballots: Ballots, named: Named },
}

/// A transaction in a leader's queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Queued {
    pub t: u8,
    pub id: u8,
    /// The greatest timestamp that the leader has promised: nothing conflicting below it is accepted.
    pub promised: Option<u8>,
    pub origin: Origin,
}

impl Queued {
    pub(super) fn stamp(&self) -> Stamp {
        (self.t, self.id)
    }

    pub(super) fn is_imported(&self) -> bool {
        matches!(self.origin, Origin::Imported { .. })
    }
}

/// A transaction of several shards, as a shard names it to a recovering one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Item {
    pub id: u8,
    pub t: u8,
    pub is_agreed: bool,
    pub reads: Reads,
    pub ballots: Ballots,
    pub named: Named,
}

/// The answer of another shard's leader.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Answer {
    pub ballot: BallotNumber,
    pub items: Vec<Item>,
}

impl Leader {
    pub(super) fn takes_from(&self, shard: usize) -> bool {
        self.unanswered >> shard & 1 == 0
    }
}

/// How far a leader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum LeaderPhase {
    /// Collects the lists of f + 1 voters.
    Preparing,
    /// Has a start record; asks the other shards once a majority has it.
    Recovering,
    /// Has a final record, and accepts transactions.
    Serving,
}

/// What only a leader has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Leader {
    pub phase: LeaderPhase,
    /// The ballots of all shards that are current, as far as it knows.
    pub known: Ballots,
    /// The answers of other shards to its recovery, by shard.
    pub answers: [Option<Answer>; SHARDS_MAX],
    pub queue: Vec<Queued>,
    /// Shards, as bits, without whose answers it has ended its recovery: it takes no `Propose` or `Ready` of theirs.
    pub unanswered: u8,
}

/// Which record of a ballot a replica has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Record {
    Start,
    Final,
}

/// A voter of a shard: its log, its votes, and its leadership while it has one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Replica {
    pub is_alive: bool,
    pub promised: BallotNumber,
    /// Ballot and record under which its log and its tentative list stand.
    pub accepted: (BallotNumber, Record),
    /// The replica holds so many entries of the log of the accepted ballot.
    pub length: u8,
    pub tentative: Vec<Tentative>,
    /// So many entries of each ballot's log it has ever reported as synced, as a follower.
    pub synced: Vec<u8>,
    pub votes: BTreeSet<Vote>,
    pub leader: Option<Leader>,
    /// Not since it restarted, until it accepts a record: its promise is worth nothing.
    pub has_memory: bool,
    /// Transactions that never reach it from a coordinator, unless it leads.
    pub lost: u8,
}

/// What a promise gives to the new leader.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Promise {
    pub accepted: (BallotNumber, Record),
    pub length: u8,
    pub tentative: Vec<Tentative>,
}

/// What is known of a ballot: all that its leader has sent to its shard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Ballot {
    /// Until the start record is made.
    pub promises: Vec<Promise>,
    /// The adopted log, and what was appended since.
    pub log: Vec<Entry>,
    pub adopted: u8,
    /// The candidates of the start record.
    pub start: Option<Vec<Tentative>>,
    /// The kept entries of the final record.
    pub finished: Option<Vec<Tentative>>,
    /// Votes of a detective leader before it appends, with the ballots under which it voted and its reads.
    pub early: BTreeSet<(Vote, Ballots, Reads)>,
}

/// The replicas of a shard, and the ballots under which they were led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    pub ballots: Vec<Ballot>,
    pub replicas: [Replica; REPLICAS],
    pub appointments_left: u8,
    pub crashes_left: u8,
    pub restarts_left: u8,
}

impl Shard {
    /// The ballot of the last appointment.
    pub(super) fn latest(&self) -> BallotNumber {
        (self.ballots.len() - 1) as BallotNumber
    }

    /// The place of the replica that was appointed last, if it is alive.
    pub(super) fn leader(&self) -> Option<usize> {
        let latest = self.latest();
        let leads = |replica: &Replica| {
            replica.is_alive && replica.leader.is_some() && replica.promised == latest
        };
        self.replicas.iter().position(leads)
    }

    /// The log that a replica holds.
    pub(super) fn log_of(&self, replica: usize) -> &[Entry] {
        let replica = &self.replicas[replica];
        &self.ballots[replica.accepted.0 as usize].log[..replica.length as usize]
    }
}

/// `Propose`, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Propose {
    pub id: u8,
    pub shard: u8,
    pub ballot: BallotNumber,
    pub t: u8,
}

/// `Ready`, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ready {
    pub id: u8,
    pub shard: u8,
    pub t: u8,
    /// The sender's own, and those of the leaders it is addressed to.
    pub ballots: Ballots,
    /// What the sender's shard read, where the shape is `Whole`.
    pub reads: u64,
    /// What stands in front of it in the sender's log and conflicts with it, as bits.
    pub in_front: u8,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub(super) shards: Vec<Shard>,
    pub(super) proposes: BTreeSet<Propose>,
    pub(super) readies: BTreeSet<Ready>,
    /// The transactions that were committed when each one began, for those that have.
    pub(super) committed_before: Vec<Option<u8>>,
    /// For transactions that only read, at one leader: what they have read, as bits.
    pub(super) read_behind: Vec<u8>,
    /// Committed ones, as far as a coordinator can know.
    pub(super) committed: u8,
    /// Actions so far, up to the scenario's `quiet_actions`.
    pub(super) actions: u16,
}

impl Hash for State {
    /// Two states that differ only in the numbers of replicas are searched once.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for shard in &self.shards {
            shard.ballots.hash(hasher);
            shard.appointments_left.hash(hasher);
            shard.crashes_left.hash(hasher);
            shard.restarts_left.hash(hasher);
            let mut replicas: Vec<&Replica> = shard.replicas.iter().collect();
            replicas.sort();
            replicas.hash(hasher);
        }
        self.proposes.hash(hasher);
        self.readies.hash(hasher);
        self.committed_before.hash(hasher);
        self.read_behind.hash(hasher);
        self.committed.hash(hasher);
        self.actions.hash(hasher);
    }
}
