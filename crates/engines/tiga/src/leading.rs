//! What only a leader has: what it has released, promised and received, and how far its recovery is.

use crate::answer::Answer;
use crate::message::{Envelope, Read};
use crate::record::{Record, Refusal, TentativeList};
use crate::repetition::Repetition;
use crate::stamp::{ArrivalTimes, Stamp};
use crate::undecided_votes::UndecidedVotes;
use shoal_engine::TransactionId;
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How far a leader is.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Adopts the log, and collects lists.
    Preparing {
        /// The length of the log, once it is prepared.
        length: Option<u64>,
        /// What voters have voted for.
        lists: BTreeMap<NodeId, TentativeList>,
        /// When those that are missing are asked for.
        repetition: Repetition,
    },
    /// Has a start record, and asks the other shards once that is decided.
    Asking {
        /// The place of the start record.
        start: u64,
        /// What other shards have answered.
        answers: BTreeMap<ShardId, Answer>,
        /// When those that are missing are asked again.
        repetition: Repetition,
    },
    /// Has a final record.
    Serving,
}

impl Phase {
    pub(crate) fn preparing(repetition: Repetition) -> Phase {
        Phase::Preparing { length: None, lists: BTreeMap::new(), repetition }
    }
}

/// Reads of a coordinator that wait until what they read is decided.
#[derive(Debug)]
pub(crate) struct DeferredReads {
    pub(crate) reads: Vec<Read>,
    /// When they are dropped, on the local clock.
    pub(crate) until: Time,
}

/// A refusal that is not decided.
#[derive(Debug, Default)]
pub(crate) struct Refusing {
    /// When the transaction was sent, and when it arrived.
    pub(crate) times: ArrivalTimes,
    /// Participants that wait for it.
    pub(crate) asking: BTreeSet<ShardId>,
}

/// What only a leader has.
#[derive(Debug)]
pub struct Leading {
    pub(crate) ballot: Ballot,
    /// The epoch in which its leadership began, over all appointments.
    pub(crate) since: Epoch,
    pub(crate) phase: Phase,
    /// Released in this step, and not yet in an entry.
    pub(crate) batch: Vec<Arc<Record>>,
    /// About the bytes of that.
    pub(crate) batch_bytes: usize,
    /// Where votes are on disk: those that are sent when that entry is durable.
    pub(crate) votes: Vec<Envelope>,
    /// The last seal that was announced, and when the next is due on the local clock.
    pub(crate) seal: Time,
    pub(crate) seal_at: Time,
    /// Something was appended since the last seal.
    pub(crate) needs_seal: bool,
    /// Transactions that all participants have decided, for the next entry.
    pub(crate) settled: Vec<TransactionId>,
    /// What other shards have said of transactions that are not decided here.
    pub(crate) settled_early: BTreeMap<TransactionId, BTreeSet<ShardId>>,
    /// Transactions whose certificates rest on what is not decided.
    pub(crate) unstable: BTreeSet<TransactionId>,
    /// Transactions that wait until there is room for more that is not decided.
    pub(crate) without_room: BTreeSet<Stamp>,
    /// How many answers to other shards it has made.
    pub(crate) answers: u64,
    /// By the coordinator and the number that it has given them.
    pub(crate) reads: BTreeMap<(NodeId, u64), DeferredReads>,
    /// What its recovery has imported or kept, and it has not released: it may be committed, so reads wait for it.
    pub(crate) inherited: BTreeSet<TransactionId>,
    /// Transactions that are refused, by an entry that is not decided: they are not accepted any more.
    pub(crate) refusing: BTreeMap<TransactionId, Refusing>,
    /// Of these, those for the next entry.
    pub(crate) refusals: Vec<Refusal>,
    /// When what is not answered is sent again, on the local clock.
    pub(crate) repeat_at: Time,
    /// What it has released and voted for, and is not decided.
    pub(crate) undecided_votes: UndecidedVotes,
    /// Delays of proposals from the leaders of other shards, in nanoseconds and with the difference of the clocks.
    pub(crate) distances: BTreeMap<ShardId, i64>,
}

impl Leading {
    pub(crate) fn new(ballot: Ballot, since: Epoch, now: Time, repetition: Repetition) -> Leading {
        Leading {
            ballot,
            since,
            phase: Phase::preparing(repetition),
            batch: Vec::new(),
            batch_bytes: 0,
            votes: Vec::new(),
            seal: Time::ZERO,
            seal_at: now,
            needs_seal: true,
            settled: Vec::new(),
            settled_early: BTreeMap::new(),
            unstable: BTreeSet::new(),
            without_room: BTreeSet::new(),
            answers: 0,
            reads: BTreeMap::new(),
            inherited: BTreeSet::new(),
            refusing: BTreeMap::new(),
            refusals: Vec::new(),
            repeat_at: now,
            undecided_votes: UndecidedVotes::default(),
            distances: BTreeMap::new(),
        }
    }

    /// A proposal of another leader was so long on its way.
    pub(crate) fn note_distance(&mut self, shard: ShardId, delay_ns: i64) {
        let distance = self.distances.entry(shard).or_insert(delay_ns);
        *distance = distance.saturating_add(delay_ns.saturating_sub(*distance) / 8);
    }
}
