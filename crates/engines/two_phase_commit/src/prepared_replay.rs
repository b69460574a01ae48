//! What this worker's stream of a shard says, up to where it is decided: what is prepared, what is decided, and what of it
//! is still to be applied (rules P5 and P7).
//!
//! A record is applied as soon as its stream has decided it. Streams of other workers are replayed
//! beside this one, so on one key the greatest clock wins, and a tombstone stays until nothing older
//! can arrive: until every worker has replayed its stream up to a safe clock beyond it.
//!
//! The same is kept where the node leads, whose own entries come here when they are durable, with nothing left to apply: so
//! a leader that is followed by another goes on as a follower, and one that takes over finds here what is in doubt.

use super::branch_writes::{BranchWrites, WritesToCome};
use super::message::DecisionHome;
use super::record::{CommitRecord, RecordEntry};
use shoal_engine::execution::session_pool::SessionPool;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::StreamWrite;
use shoal_replication::replica::ShardReplica;
use shoal_types::wire::Coded;
use shoal_types::{Clock, Epoch, ShardId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Of so many transactions that were aborted last it is remembered. That one of them is committed after all is never confirmed:
/// it would be a breach of rule P8, and pass unseen otherwise.
const ABORTED_MAX: usize = 256;

/// The decided part of a stream.
///
/// Invariants:
///
/// - P5: what is prepared without an outcome has a clock beyond the safe clock, and no other clock is kept.
/// - P10: a checkpoint stands for no more entries than have come, and a later one for no fewer.
pub(super) struct PreparedReplay {
    shard: ShardId,
    sessions: Rc<SessionPool>,
    /// What it says.
    state: StreamState,
    /// What it said when it was shorter: a snapshot may stand for it, since all that it has committed is in this node's store.
    stable: Checkpoint,
    /// What it said at some point after that, which is to follow.
    candidate: Option<Checkpoint>,
    /// What was prepared here and aborted last.
    aborted: VecDeque<TransactionId>,
    /// The clocks of what is prepared.
    clocks: BTreeSet<Clock>,
    /// What is committed and to be applied, in the order of the stream: another worker holds a lock.
    blocked: VecDeque<CommittedWrites>,
    /// What the node has committed as the leader and is about to install, by the entries that say so.
    installing: BTreeMap<TransactionId, u64>,
    /// The safe clock when nothing was left to be applied.
    applied: Clock,
}

/// What is to be applied of a transaction.
struct CommittedWrites {
    /// The entry that commits it.
    entry: u64,
    transaction: TransactionId,
    clock: Clock,
    /// The list that comes first is the last.
    lists: Vec<Arc<[StreamWrite]>>,
    /// So many writes of that list are applied.
    done: usize,
}

impl CommittedWrites {
    /// Has `apply` apply what it can. Returns whether that was all.
    fn advance(
        &mut self,
        sessions: &Rc<SessionPool>,
        apply: &mut impl FnMut(&Rc<SessionPool>, (TransactionId, Clock), &[StreamWrite]) -> usize,
    ) -> bool {
        while let Some(writes) = self.lists.last() {
            self.done += apply(sessions, (self.transaction, self.clock), &writes[self.done..]);
            if self.done < writes.len() {
                return false;
            }
            self.done = 0;
            self.lists.pop();
        }
        true
    }
}

/// What the entries of a stream say, beside what they have committed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Coded)]
pub(super) struct StreamState {
    /// How many entries have come.
    #[coded(short)]
    pub(super) length: u64,
    /// The leadership of the last entry.
    #[coded(short)]
    pub(super) leadership: Epoch,
    /// The safe clock of the last entry.
    #[coded(short)]
    pub(super) safe: Clock,
    /// The greatest clock of any record.
    #[coded(short)]
    pub(super) greatest: Clock,
    /// What is prepared, and has no outcome here.
    pub(super) prepared: BTreeMap<TransactionId, PreparedBranch>,
    /// What is decided here for several shards, with its participants, until all of these have it durable.
    pub(super) decided: BTreeMap<TransactionId, Vec<ShardId>>,
    /// The first writes of what is not prepared or committed yet.
    pub(super) parts: WritesToCome,
}

/// What a stream says up to some entry, and what was aborted last before it. Its encoding is without the writes of
/// transactions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Coded)]
pub(super) struct Checkpoint {
    pub(super) state: StreamState,
    pub(super) aborted: Vec<TransactionId>,
}

impl StreamState {
    /// Has the transaction no outcome here? Its writes, which are not all here if it is not prepared.
    fn writes_mut(&mut self, transaction: TransactionId) -> Option<&mut BranchWrites> {
        let prepared = self.prepared.get_mut(&transaction).map(|branch| &mut branch.writes);
        prepared.or_else(|| self.parts.get_mut(&transaction))
    }

    /// Has the transaction writes here, and no outcome?
    pub(super) fn is_to_come(&self, transaction: TransactionId) -> bool {
        self.prepared.contains_key(&transaction) || self.parts.contains_key(&transaction)
    }

    /// The writes of all transactions that have no outcome here.
    pub(super) fn writes_to_come(&self) -> WritesToCome {
        let prepared =
            self.prepared.iter().map(|(transaction, branch)| (transaction, &branch.writes));
        prepared
            .chain(&self.parts)
            .map(|(transaction, writes)| (*transaction, writes.clone()))
            .collect()
    }
}

/// A checkpoint is made after so many entries, and as many as it has transactions: so it costs little for each of them.
const CHECKPOINT_ENTRIES_MIN: u64 = 4;

/// A transaction that is prepared.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub(super) struct PreparedBranch {
    #[coded(short)]
    pub(super) clock: Clock,
    pub(super) home: DecisionHome,
    pub(super) writes: BranchWrites,
    /// The writes are in this node's store already.
    #[coded(skip)]
    pub(super) is_installed: bool,
}

impl PreparedReplay {
    pub(super) fn new(replica: &ShardReplica) -> PreparedReplay {
        PreparedReplay {
            shard: replica.shard,
            sessions: SessionPool::new(replica.store.clone(), usize::MAX),
            state: StreamState::default(),
            stable: Checkpoint::default(),
            candidate: None,
            aborted: VecDeque::with_capacity(ABORTED_MAX),
            clocks: BTreeSet::new(),
            blocked: VecDeque::new(),
            installing: BTreeMap::new(),
            applied: Clock::ZERO,
        }
    }

    /// Takes the next entry of the stream. What it commits is to be applied, but for what this node has `installed` as the
    /// leader that appended it.
    pub(super) fn enter(&mut self, entry: RecordEntry, installed: bool) {
        if entry.leadership != self.state.leadership {
            // The rest of them was never appended.
            self.state.parts.clear();
            self.state.leadership = entry.leadership;
        }
        for (transaction, record) in entry.records {
            match record {
                CommitRecord::Part { writes } => {
                    self.state.parts.entry(transaction).or_default().push(writes);
                }
                CommitRecord::Prepare { clock, home, writes } => {
                    let writes = self.whole(transaction, writes);
                    self.clocks.insert(clock);
                    self.state.greatest = self.state.greatest.max(clock);
                    let branch = PreparedBranch { clock, home, writes, is_installed: false };
                    let before = self.state.prepared.insert(transaction, branch);
                    assert!(before.is_none(), "{transaction} was prepared twice on {}", self.shard);
                }
                CommitRecord::Commit { clock, participants, writes } => {
                    let writes = self.whole(transaction, writes);
                    self.state.greatest = self.state.greatest.max(clock);
                    if !participants.is_empty() {
                        self.state.decided.insert(transaction, participants);
                    }
                    if installed && !writes.is_empty() {
                        self.installing.insert(transaction, self.state.length);
                    }
                    self.apply(transaction, clock, writes, installed);
                }
                CommitRecord::Committed => {
                    let PreparedBranch { clock, writes, is_installed, .. } = self.take(transaction);
                    self.apply(transaction, clock, writes, installed || is_installed);
                }
                CommitRecord::Aborted => {
                    self.take(transaction);
                    self.aborted.truncate(ABORTED_MAX - 1);
                    self.aborted.push_front(transaction);
                }
                CommitRecord::End => _ = self.state.decided.remove(&transaction),
            }
        }
        let PreparedReplay { shard, clocks, state, .. } = self;
        assert!(entry.safe >= state.safe, "P5: the safe clock of {shard} went back");
        assert!(
            clocks.first().is_none_or(|first| *first > entry.safe),
            "P5: {} is called safe on {shard}, and what became of it is not known",
            entry.safe
        );
        state.safe = entry.safe;
        state.length += 1;
    }

    fn apply(
        &mut self,
        transaction: TransactionId,
        clock: Clock,
        writes: BranchWrites,
        installed: bool,
    ) {
        if !installed && !writes.is_empty() {
            let (entry, mut lists) = (self.state.length, writes.into_lists());
            lists.reverse();
            self.blocked.push_back(CommittedWrites { entry, transaction, clock, lists, done: 0 });
        }
    }

    /// Sessions of the store, for what is replayed or in doubt.
    pub(super) fn sessions(&self) -> &Rc<SessionPool> {
        &self.sessions
    }

    /// How many entries have come.
    pub(super) fn length(&self) -> u64 {
        self.state.length
    }

    /// The safe clock of the last entry.
    pub(super) fn safe(&self) -> Clock {
        self.state.safe
    }

    /// The greatest clock of any record.
    pub(super) fn greatest(&self) -> Clock {
        self.state.greatest
    }

    /// What a snapshot may stand for: another replica needs this to go on behind it, beside the rows.
    pub(super) fn stable(&self) -> &Checkpoint {
        &self.stable
    }

    /// Makes a checkpoint from time to time, and takes it for stable when all that its entries have committed is in this
    /// node's store; or at once, where that is `ignored`.
    pub(super) fn stabilize(&mut self, ignored: bool) {
        if let Some(candidate) = &self.candidate {
            let length = candidate.state.length;
            if self.first_missing().is_some_and(|entry| entry < length) && !ignored {
                return;
            }
            self.stable = self.candidate.take().expect("seen above");
        }
        let transactions = (self.state.prepared.len() + self.state.decided.len()) as u64;
        let after = transactions.max(CHECKPOINT_ENTRIES_MIN);
        if self.state.length >= self.stable.state.length + after {
            let mut state = self.state.clone();
            // Writes that are installed here may not be so on another replica.
            state.prepared.values_mut().for_each(|branch| branch.is_installed = false);
            let aborted = self.aborted.iter().copied().collect();
            self.candidate = Some(Checkpoint { state, aborted });
        }
    }

    /// Goes on behind the entries for which this stands. What they have committed is in the store; `writes` are those of the
    /// transactions that have no outcome in them.
    ///
    /// # Panics
    /// If there are writes of another transaction.
    pub(super) fn restore(&mut self, mut checkpoint: Checkpoint, writes: WritesToCome) {
        for (transaction, writes) in writes {
            let its = checkpoint.state.writes_mut(transaction);
            *its.unwrap_or_else(|| {
                panic!("P10: {transaction} has an outcome, and writes to come")
            }) = writes;
        }
        self.stable = checkpoint;
        self.candidate = None;
        let Checkpoint { state, aborted } = &self.stable;
        self.clocks = state.prepared.values().map(|branch| branch.clock).collect();
        self.aborted = aborted.iter().copied().take(ABORTED_MAX).collect();
        self.blocked.clear();
        self.state = state.clone();
    }

    /// Has `apply` apply what it can, one list of writes after the other: it says how many of the writes it has applied. Returns
    /// how far all of the stream is applied.
    ///
    /// What is stuck holds up what is behind it. No circle of deltas that wait for bases in other streams is possible: a base
    /// is durable, with its outcome, before the delta is appended.
    pub(super) fn advance(
        &mut self,
        mut apply: impl FnMut(&Rc<SessionPool>, (TransactionId, Clock), &[StreamWrite]) -> usize,
    ) -> Clock {
        while let Some(committed) = self.blocked.front_mut() {
            if !committed.advance(&self.sessions, &mut apply) {
                break;
            }
            self.blocked.pop_front();
        }
        if self.blocked.is_empty() {
            self.applied = self.state.safe;
        }
        self.applied
    }

    /// Is something to be applied, or said to be?
    pub(super) fn is_due(&self) -> bool {
        self.is_blocked() || self.applied != self.state.safe
    }

    /// Is something still to be applied?
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// A transaction that was committed without being prepared is in this node's store, whose leader it is.
    pub(super) fn note_committed(&mut self, transaction: TransactionId) {
        self.installing.remove(&transaction);
    }

    /// Nothing is committed here that this node has still to install as the leader.
    pub(super) fn assert_installed(&self) {
        let (shard, installing) = (self.shard, &self.installing);
        assert!(
            installing.is_empty(),
            "P10: {shard} is left, and {installing:?} are not installed"
        );
    }

    /// The first entry with a commit that is not in this node's store.
    pub(super) fn first_missing(&self) -> Option<u64> {
        let blocked = self.blocked.front().map(|writes| writes.entry);
        blocked.into_iter().chain(self.installing.values().copied()).min()
    }

    /// The writes of a prepared transaction are in this node's store: it was their leader when the decision came. Where that
    /// is in no entry yet, another leader may have to find it out again, and nothing is to be applied here then: what has
    /// come in their place since may have been a tombstone, and be gone.
    pub(super) fn note_installed(&mut self, transaction: TransactionId) {
        let branch = self.state.prepared.get_mut(&transaction);
        let branch = branch.unwrap_or_else(|| panic!("{transaction} is decided, and not prepared"));
        branch.is_installed = true;
    }

    /// What is prepared here without an outcome.
    pub(super) fn prepared(&self) -> impl Iterator<Item = (TransactionId, &PreparedBranch)> {
        self.state.prepared.iter().map(|(transaction, branch)| (*transaction, branch))
    }

    /// What is decided here, durably, and not known to all that take part in it.
    pub(super) fn decided(&self) -> impl Iterator<Item = (TransactionId, &[ShardId])> {
        self.state.decided.iter().map(|(transaction, shards)| (*transaction, &shards[..]))
    }

    /// Can it be that a transaction which its home calls committed has that outcome durable here? Not where it is prepared, nor
    /// where it was aborted, as far back as that is remembered (rule P8).
    pub(super) fn may_be_committed(&self, transaction: TransactionId) -> bool {
        !self.state.prepared.contains_key(&transaction) && !self.aborted.contains(&transaction)
    }

    /// Is the transaction decided here, durably?
    pub(super) fn is_decided(&self, transaction: TransactionId) -> bool {
        self.state.decided.contains_key(&transaction)
    }

    /// The other shards that a transaction writes which is decided here, durably, while they have not acknowledged it.
    pub(super) fn participants(&self, transaction: TransactionId) -> Option<&[ShardId]> {
        self.state.decided.get(&transaction).map(|participants| &participants[..])
    }

    /// All writes of a transaction, of which these are the last.
    fn whole(&mut self, transaction: TransactionId, last: Vec<StreamWrite>) -> BranchWrites {
        let mut writes = self.state.parts.remove(&transaction).unwrap_or_default();
        writes.push(last);
        writes
    }

    fn take(&mut self, transaction: TransactionId) -> PreparedBranch {
        let prepared = self.state.prepared.remove(&transaction);
        let Some(branch) = prepared else {
            panic!("{transaction} was not prepared on {}", self.shard);
        };
        self.clocks.remove(&branch.clock);
        branch
    }

    /// Asserts the invariants above.
    pub(super) fn assert_invariants(&self) {
        let (shard, StreamState { length, safe, prepared, .. }) = (self.shard, &self.state);
        let stable = self.stable.state.length;
        let candidate = self.candidate.as_ref().map_or(stable, |it| it.state.length);
        assert!(
            stable <= candidate && candidate <= *length,
            "P10: {shard} has {length} entries, and checkpoints of {stable} and {candidate}"
        );
        assert_eq!(self.clocks.len(), prepared.len(), "P5: {shard} has other clocks prepared");
        assert!(
            self.clocks.first().is_none_or(|first| first > safe),
            "P5: {safe} is safe on {shard}, and {:?} are prepared",
            self.clocks
        );
        assert!(self.applied <= *safe, "P5: {shard} has applied more than is safe");
    }

    /// How many transactions wait for their outcome, or to be applied.
    pub(super) fn pending(&self) -> usize {
        self.state.prepared.len() + self.blocked.len()
    }

    /// How much is kept: what is prepared, what is decided, parts, and what is to be applied.
    pub(super) fn sizes(&self) -> [usize; 4] {
        [
            self.state.prepared.len(),
            self.state.decided.len(),
            self.state.parts.len(),
            self.blocked.len(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_cluster::topology::{Partitioning, Topology};
    use shoal_engine::execution::Limits;
    use shoal_store::Change;
    use shoal_types::{Epoch, NodeId, TableId, WorkerId};

    fn followed() -> PreparedReplay {
        let topology = Topology::symmetric(1, 1, 1, 0, 1)
            .with_tables([("t", Partitioning::Hash { prefix_bytes: 0 })])
            .expect("a valid topology");
        PreparedReplay::new(
            &ShardReplica::all(&topology, NodeId(0), Epoch(1), &Limits::default())[0],
        )
    }

    fn id(sequence: u64) -> TransactionId {
        TransactionId { node: NodeId(1), worker: WorkerId(0), sequence }
    }

    fn prepare(number: u64) -> (TransactionId, CommitRecord) {
        let write =
            StreamWrite { table: TableId(0), key: Bytes::from("key"), change: Change::Delete };
        let (clock, home) =
            (Clock(number), DecisionHome { shard: ShardId(0), leadership: Epoch(1) });
        (id(number), CommitRecord::Prepare { clock, home, writes: vec![write] })
    }

    fn enter(
        followed: &mut PreparedReplay,
        safe: u64,
        records: Vec<(TransactionId, CommitRecord)>,
    ) -> Vec<u64> {
        let mut applied = Vec::new();
        let entry = RecordEntry { leadership: Epoch(1), safe: Clock(safe), records };
        followed.enter(entry, false);
        followed.advance(|_, (_, clock), writes| {
            assert_eq!(writes.len(), 1);
            applied.push(clock.0);
            writes.len()
        });
        applied
    }

    #[test]
    fn what_is_prepared_waits_for_its_outcome() {
        let mut followed = followed();
        let prepared = vec![prepare(5), prepare(6), prepare(7)];
        assert_eq!(enter(&mut followed, 4, prepared), [0; 0]);
        assert_eq!(enter(&mut followed, 4, vec![(id(7), CommitRecord::Committed)]), [7]);
        assert_eq!(enter(&mut followed, 5, vec![(id(5), CommitRecord::Aborted)]), [0; 0]);
        assert_eq!((followed.applied, followed.pending()), (Clock(5), 1));
        assert_eq!(enter(&mut followed, 9, vec![(id(6), CommitRecord::Committed)]), [6]);
        assert_eq!((followed.applied, followed.pending()), (Clock(9), 0));
    }

    #[test]
    fn what_a_leader_installed_is_not_applied_again() {
        let mut followed = followed();
        assert_eq!(enter(&mut followed, 4, vec![prepare(5)]), [0; 0]);
        followed.note_installed(id(5));
        assert_eq!(followed.prepared().count(), 1, "another leader has to find out");
        assert_eq!(enter(&mut followed, 5, vec![(id(5), CommitRecord::Committed)]), [0; 0]);
        assert_eq!((followed.applied, followed.pending()), (Clock(5), 0));
    }

    #[test]
    fn what_is_blocked_holds_up_what_comes_after_it() {
        let mut followed = followed();
        let records = vec![prepare(5), (id(5), CommitRecord::Committed)];
        followed.enter(RecordEntry { leadership: Epoch(1), safe: Clock(5), records }, false);
        assert_eq!(followed.advance(|_, _, _| 0), Clock::ZERO);
        assert!(followed.is_blocked());
        assert_eq!(followed.advance(|_, _, writes| writes.len()), Clock(5));
        assert!(!followed.is_blocked());
    }

    #[test]
    fn a_snapshot_stands_for_what_is_in_the_store() {
        let mut followed = followed();
        enter(&mut followed, 4, vec![prepare(5), prepare(6)]);
        (0..3).for_each(|_| _ = enter(&mut followed, 4, Vec::new()));
        let records = vec![(id(5), CommitRecord::Committed)];
        followed.enter(RecordEntry { leadership: Epoch(1), safe: Clock(5), records }, false);
        followed.advance(|_, _, _| 0);
        followed.stabilize(false);
        followed.stabilize(false);
        assert_eq!(followed.stable(), &Checkpoint::default(), "a lock is in the way");
        followed.note_installed(id(6));
        enter(&mut followed, 6, vec![(id(6), CommitRecord::Committed)]);
        followed.stabilize(false);
        let stable = followed.stable().clone();
        assert_eq!(stable.state.length, 5);
        assert!(stable.state.prepared.contains_key(&id(6)), "its outcome comes as an entry");
        let mut other = self::followed();
        let writes = stable.state.writes_to_come();
        other.restore(stable, writes);
        assert_eq!(enter(&mut other, 6, vec![(id(6), CommitRecord::Committed)]), [6]);
        assert_eq!((other.length(), other.sizes()), (6, [0; 4]));
    }

    #[test]
    fn what_a_leader_has_still_to_install_is_not_stable() {
        let mut followed = followed();
        let (clock, participants) = (Clock(5), Vec::new());
        let write =
            StreamWrite { table: TableId(0), key: Bytes::from("key"), change: Change::Delete };
        let commit = CommitRecord::Commit { clock, participants, writes: vec![write] };
        let entry = |records| RecordEntry { leadership: Epoch(1), safe: Clock(4), records };
        followed.enter(entry(vec![(id(1), commit)]), true);
        (0..3).for_each(|_| followed.enter(entry(Vec::new()), true));
        followed.stabilize(false);
        followed.stabilize(false);
        assert_eq!((followed.stable().state.length, followed.first_missing()), (0, Some(0)));
        followed.note_committed(id(1));
        followed.assert_installed();
        followed.stabilize(false);
        assert_eq!(followed.stable().state.length, 4);
    }

    #[test]
    fn a_decision_is_kept_until_it_has_ended_and_parts_until_another_leads() {
        let mut followed = followed();
        let (clock, participants) = (Clock(5), vec![ShardId(1)]);
        let commit = CommitRecord::Commit { clock, participants, writes: Vec::new() };
        enter(&mut followed, 5, vec![(id(1), commit)]);
        assert!(followed.is_decided(id(1)));
        let part = CommitRecord::Part { writes: Vec::new() };
        enter(&mut followed, 5, vec![(id(1), CommitRecord::End), (id(2), part)]);
        assert_eq!((followed.decided().count(), followed.sizes()), (0, [0, 0, 1, 0]));
        let entry = RecordEntry { leadership: Epoch(2), safe: Clock(5), records: Vec::new() };
        followed.enter(entry, false);
        assert_eq!((followed.sizes(), followed.length()), ([0; 4], 3));
    }

    #[test]
    #[should_panic(expected = "P5")]
    fn what_is_prepared_is_above_the_safe_clock() {
        enter(&mut followed(), 5, vec![prepare(5)]);
    }
}
