//! The transactions that wait at a replica, by their stamps: a follower releases what is due and has nothing conflicting in
//! front of it; a leader agrees with others first.

use crate::locks::{Lock, LockIndex};
use crate::message::Message;
use crate::part_reads::PartReads;
use crate::record::Record;
use crate::repetition::Repetition;
use crate::stamp::{ArrivalTimes, Stamp};
use crate::transaction::{History, Work};
use shoal_engine::TransactionId;
use shoal_types::{Ballot, Error, ShardId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How a transaction came into a queue.
#[derive(Debug, Clone)]
pub enum Origin {
    /// From its coordinator, or from a leader that has accepted it.
    Accepted,
    /// A candidate that a recovery kept.
    Kept,
    /// Agreed by other shards: this is the record of one of them.
    Imported(Arc<Record>),
}

/// The content of a `Ready`, of this leader or of another.
#[derive(Debug, Clone, PartialEq)]
pub struct Readiness {
    /// The timestamp on which all agree.
    pub t: Time,
    /// The ballots of all participants.
    pub ballots: Vec<Ballot>,
    /// What is read on that shard, or whether what is certified there is so.
    pub contribution: Result<PartReads, Error>,
    /// What stands in front of it on that shard, conflicts with it, and is not decided (rule T23).
    pub in_front: Vec<Stamp>,
}

impl Readiness {
    /// Whether it is for this timestamp, under these ballots.
    pub(crate) fn is_of(&self, t: Time, ballots: &[Ballot]) -> bool {
        self.t == t && self.ballots == ballots
    }
}

/// What a leader has voted for before the participants have agreed (§3.8 of the paper).
#[derive(Debug, Clone)]
pub struct OptimisticVote {
    /// What is appended if they agree on its timestamp and its ballots are still current.
    pub record: Arc<Record>,
    /// What it rests on here.
    pub history: History,
}

/// A transaction that waits.
#[derive(Debug)]
pub struct Waiting {
    /// What it does.
    pub work: Work,
    /// How it came here.
    pub origin: Origin,
    /// When it was sent, and when it arrived, for its vote.
    pub times: ArrivalTimes,
    /// The proposals of other participants, with the ballots under which they were made.
    pub proposals: BTreeMap<ShardId, (Ballot, Time)>,
    /// What other participants have said of readiness.
    pub readies: BTreeMap<ShardId, Readiness>,
    /// What was said of readiness here.
    pub own: Option<Readiness>,
    /// For what this leader has voted.
    pub voted: Option<OptimisticVote>,
    /// When the other participants are asked again; `None` before they are asked.
    pub repetition: Option<Repetition>,
    is_due: bool,
    /// When it is due on the transaction clock: at its timestamp, or later where it was postponed.
    due: Time,
}

impl Waiting {
    /// A transaction that has just come.
    #[must_use]
    pub fn new(work: Work, origin: Origin, times: ArrivalTimes) -> Waiting {
        Waiting {
            work,
            origin,
            times,
            proposals: BTreeMap::new(),
            readies: BTreeMap::new(),
            own: None,
            voted: None,
            repetition: None,
            is_due: false,
            due: Time::ZERO,
        }
    }

    fn voted_bytes(&self) -> usize {
        self.voted.as_ref().map_or(0, |voted| self.work.bytes + voted.history.bytes())
    }

    /// Whether another participant has proposed at most `t`, under its current ballot.
    pub(crate) fn is_proposed(&self, shard: ShardId, current: Ballot, t: Time) -> bool {
        let proposal = self.proposals.get(&shard);
        proposal.is_some_and(|(ballot, proposed)| *ballot == current && *proposed <= t)
    }

    /// Whether the participants have to agree before it is released here.
    #[must_use]
    pub fn needs_agreement(&self) -> bool {
        self.work.transaction.is_multi() && !matches!(self.origin, Origin::Imported(_))
    }
}

/// The transactions that wait at a replica.
#[derive(Debug, Default)]
pub struct Queue {
    entries: BTreeMap<Stamp, Waiting>,
    stamps: BTreeMap<TransactionId, Stamp>,
    locks: LockIndex,
    /// What is not due, and when it is on the transaction clock.
    not_due: BTreeSet<(Time, Stamp)>,
    /// In the order in which they came, and until when each waits at most on the local clock.
    held: VecDeque<(Time, Stamp)>,
    /// To be looked at: something has changed for them.
    changed: VecDeque<TransactionId>,
    /// What all that wait take in messages, in bytes.
    bytes: usize,
    /// Of those that this leader has voted for, as they would stand in a list.
    voted_bytes: usize,
}

impl Queue {
    /// Adds a transaction at a timestamp. It is due at that time on the transaction clock, or at `until` on the local one: a
    /// clock that is far behind holds up nothing for longer.
    ///
    /// # Panics
    /// If it is there.
    pub fn insert(&mut self, until: Time, t: Time, waiting: Waiting) {
        let stamp = Stamp { t, id: waiting.work.id() };
        assert!(self.stamps.insert(stamp.id, stamp).is_none(), "{stamp:?} waits twice");
        self.locks.add(stamp, &waiting.work.locks);
        self.bytes += waiting.work.bytes;
        self.voted_bytes += waiting.voted_bytes();
        self.not_due.insert((t, stamp));
        self.held.push_back((until, stamp));
        self.entries.insert(stamp, Waiting { is_due: false, due: t, ..waiting });
    }

    /// Takes a transaction out. What waited for it is to be looked at.
    pub fn remove(&mut self, id: TransactionId) -> Option<Waiting> {
        let stamp = self.stamps.remove(&id)?;
        let waiting = self.entries.remove(&stamp).expect("has a stamp");
        self.locks.remove(stamp, &waiting.work.locks);
        self.bytes -= waiting.work.bytes;
        self.voted_bytes -= waiting.voted_bytes();
        self.not_due.remove(&(waiting.due, stamp));
        let heads = self.locks.heads(&waiting.work.locks);
        self.changed.extend(heads.into_iter().map(|stamp| stamp.id));
        Some(waiting)
    }

    /// Has a transaction that is due wait until a later time on the transaction clock. It stays where it is.
    pub fn postpone(&mut self, id: TransactionId, until: Time) {
        let Some((stamp, waiting)) = self.get_mut(id).filter(|(_, waiting)| waiting.is_due) else {
            return;
        };
        (waiting.is_due, waiting.due) = (false, until);
        self.not_due.insert((until, stamp));
    }

    /// Moves a transaction to a later timestamp.
    pub fn reposition(&mut self, until: Time, id: TransactionId, t: Time) {
        if let Some(waiting) = self.remove(id) {
            self.insert(until, t, waiting);
        }
    }

    /// The transaction of this name.
    #[must_use]
    pub fn get(&self, id: TransactionId) -> Option<(Stamp, &Waiting)> {
        let stamp = *self.stamps.get(&id)?;
        Some((stamp, &self.entries[&stamp]))
    }

    /// The transaction of this name, to change it.
    pub fn get_mut(&mut self, id: TransactionId) -> Option<(Stamp, &mut Waiting)> {
        let stamp = *self.stamps.get(&id)?;
        Some((stamp, self.entries.get_mut(&stamp)?))
    }

    /// Has the transaction looked at again.
    pub fn look_at(&mut self, id: TransactionId) {
        self.changed.push_back(id);
    }

    /// The transaction clock has come to `clock`, and the local one to `now`: what is due is to be looked at.
    pub fn advance(&mut self, clock: Time, now: Time) {
        while let Some((_, stamp)) = self.not_due.first().copied().filter(|(at, _)| *at <= clock) {
            self.become_due(stamp);
        }
        while let Some((_, stamp)) =
            self.held.front().copied().filter(|(at, stamp)| *at <= now || !self.is_held(stamp))
        {
            self.held.pop_front();
            self.become_due(stamp);
        }
    }

    fn is_held(&self, stamp: &Stamp) -> bool {
        self.entries.get(stamp).is_some_and(|waiting| !waiting.is_due)
    }

    fn become_due(&mut self, stamp: Stamp) {
        let Some(waiting) = self.entries.get_mut(&stamp).filter(|waiting| !waiting.is_due) else {
            return;
        };
        waiting.is_due = true;
        self.not_due.remove(&(waiting.due, stamp));
        self.changed.push_back(stamp.id);
    }

    /// The next one that is to be looked at.
    pub fn next_changed(&mut self) -> Option<TransactionId> {
        self.changed.pop_front()
    }

    /// Where a transaction stands, if it is due and nothing that conflicts stands in front of it.
    #[must_use]
    pub fn is_head(&self, id: TransactionId) -> Option<Stamp> {
        let (stamp, waiting) = self.get(id)?;
        let is_head = waiting.is_due && !self.locks.has_before(stamp, &waiting.work.locks);
        is_head.then_some(stamp)
    }

    /// Conflicting ones with smaller stamps.
    #[must_use]
    pub fn before(&self, stamp: Stamp, work: &Work) -> Vec<Stamp> {
        self.locks.before(stamp, &work.locks).collect()
    }

    /// Those that conflict with these locks; some may come twice.
    pub fn rivals<'a>(&'a self, locks: &'a [Lock]) -> impl Iterator<Item = &'a Waiting> + 'a {
        self.locks.rivals(locks).map(|stamp| &self.entries[&stamp])
    }

    /// When the next one is due, on the transaction clock.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        self.not_due.first().map(|(at, _)| *at)
    }

    /// When the next one is due for having waited, on the local clock.
    #[must_use]
    pub fn next_held(&self) -> Option<Time> {
        self.held.front().map(|(at, _)| *at)
    }

    /// The least timestamp that waits.
    #[must_use]
    pub fn least(&self) -> Option<Time> {
        self.entries.first_key_value().map(|(stamp, _)| stamp.t)
    }

    /// All that wait, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Stamp, &Waiting)> {
        self.entries.iter().map(|(stamp, waiting)| (*stamp, waiting))
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        *self = Queue::default();
    }

    /// The bytes of all that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of those that this leader has voted for, as they would stand in a list.
    #[must_use]
    pub fn voted_bytes(&self) -> usize {
        self.voted_bytes
    }

    /// This leader has voted for a transaction.
    pub(crate) fn vote(&mut self, id: TransactionId, voted: OptimisticVote) {
        let Some(stamp) = self.stamps.get(&id) else { return };
        let waiting = self.entries.get_mut(stamp).expect("has a stamp");
        self.voted_bytes -= waiting.voted_bytes();
        waiting.voted = Some(voted);
        self.voted_bytes += waiting.voted_bytes();
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Messages about transactions that have not come yet.
#[derive(Debug, Default)]
pub struct Early {
    messages: BTreeMap<TransactionId, (Time, Vec<Message>)>,
}

/// So many messages about one transaction are kept.
const EARLY_EACH: usize = 16;

/// About so many transactions messages are kept.
const EARLY_ALL: usize = 1 << 14;

impl Early {
    /// Keeps a message until its transaction comes. Too many are dropped: they are repeated.
    pub fn keep(&mut self, now: Time, id: TransactionId, message: Message) {
        let is_full = self.messages.len() >= EARLY_ALL;
        if is_full && !self.messages.contains_key(&id) {
            return;
        }
        let (_, messages) = self.messages.entry(id).or_insert((now, Vec::new()));
        if messages.len() < EARLY_EACH {
            messages.push(message);
        }
    }

    /// Takes what was kept about a transaction.
    pub fn take(&mut self, id: TransactionId) -> Vec<Message> {
        self.messages.remove(&id).map(|(_, messages)| messages).unwrap_or_default()
    }

    /// Drops what came before this time, on the local clock.
    pub fn expire(&mut self, before: Time) {
        self.messages.retain(|_, (since, _)| *since >= before);
    }

    /// How many transactions it has messages about.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}
