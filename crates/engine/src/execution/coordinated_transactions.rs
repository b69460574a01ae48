//! The transactions that a worker coordinates and that have requests to other nodes or waits, by their numbers.
//!
//! ```text
//!            begin                   commit                    end
//!   ──► executing: the body runs ──────► committing: the engine's state ──► ended
//!            │ no answer: its body fails        │ no answer: the engine aborts it
//! ```
//! Invariant: a number stands for one transaction, which is kept once.

use super::remote_branches::RemoteBranches;
use super::request_retransmission::BranchKey;
use shoal_types::{Aborted, Conflict, Error, ShardId, Unknown};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

/// The engine's state of a transaction whose body has ended.
pub trait CommitState {
    /// The branches on shards of other nodes.
    fn remote_branches(&self) -> &Rc<RemoteBranches>;

    /// Whether the participant of this shard may have committed the transaction, and its answer is lost.
    fn may_be_committed(&self, shard: ShardId) -> bool;
}

#[derive(Debug)]
enum CoordinatedTransaction<C> {
    Executing(Rc<RemoteBranches>),
    Committing(C),
}

/// The transactions of a worker that have requests to other nodes or waits.
#[derive(Debug)]
pub struct CoordinatedTransactions<C> {
    by_sequence: BTreeMap<u64, CoordinatedTransaction<C>>,
}

impl<C> Default for CoordinatedTransactions<C> {
    fn default() -> CoordinatedTransactions<C> {
        CoordinatedTransactions { by_sequence: BTreeMap::new() }
    }
}

impl<C: CommitState> CoordinatedTransactions<C> {
    /// The number of transactions.
    #[expect(
        clippy::len_without_is_empty,
        reason = "it is counted, and nothing asks whether it is empty"
    )]
    pub fn len(&self) -> usize {
        self.by_sequence.len()
    }

    /// Adds a transaction whose body has sent a request to another node.
    pub fn execute(&mut self, remote_branches: &Rc<RemoteBranches>) {
        let executing = || CoordinatedTransaction::Executing(Rc::clone(remote_branches));
        self.by_sequence.entry(remote_branches.id.sequence).or_insert_with(executing);
    }

    /// Adds a transaction whose commit waits, or moves it to that state.
    pub fn keep(&mut self, commit: C) {
        let sequence = commit.remote_branches().id.sequence;
        let before = self.by_sequence.insert(sequence, CoordinatedTransaction::Committing(commit));
        let waits = matches!(before, Some(CoordinatedTransaction::Committing(_)));
        assert!(!waits, "{sequence} waits twice");
    }

    /// Removes a transaction that waits for nothing any more.
    pub fn remove(&mut self, sequence: u64) {
        self.by_sequence.remove(&sequence);
    }

    /// The branches of a transaction.
    pub fn remote_branches(&self, sequence: u64) -> Option<&Rc<RemoteBranches>> {
        Some(match self.by_sequence.get(&sequence)? {
            CoordinatedTransaction::Executing(remote_branches) => remote_branches,
            CoordinatedTransaction::Committing(commit) => commit.remote_branches(),
        })
    }

    /// The state of a transaction whose body has ended.
    pub fn commit(&self, sequence: u64) -> Option<&C> {
        match self.by_sequence.get(&sequence)? {
            CoordinatedTransaction::Executing(_) => None,
            CoordinatedTransaction::Committing(commit) => Some(commit),
        }
    }

    /// The states of all transactions whose bodies have ended, in the order of their numbers.
    pub fn commits_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.by_sequence.values_mut().filter_map(|transaction| match transaction {
            CoordinatedTransaction::Executing(_) => None,
            CoordinatedTransaction::Committing(commit) => Some(commit),
        })
    }

    /// Removes a transaction whose body has ended; one whose body runs stays.
    pub fn take_commit(&mut self, sequence: u64) -> Option<C> {
        self.take_commit_if(sequence, |_| true)
    }

    /// Removes a transaction whose body has ended, if `holds` returns true for it.
    pub fn take_commit_if(&mut self, sequence: u64, goes: impl FnOnce(&C) -> bool) -> Option<C> {
        let Entry::Occupied(found) = self.by_sequence.entry(sequence) else { return None };
        match found.get() {
            CoordinatedTransaction::Committing(commit) if goes(commit) => match found.remove() {
                CoordinatedTransaction::Committing(commit) => Some(commit),
                CoordinatedTransaction::Executing(_) => None,
            },
            CoordinatedTransaction::Committing(_) | CoordinatedTransaction::Executing(_) => None,
        }
    }

    /// Removes all transactions whose bodies have ended and for which `holds` returns true, in the order of their numbers.
    pub fn take_commits(&mut self, goes: impl Fn(&C) -> bool) -> Vec<C> {
        let taken = self.by_sequence.extract_if(.., |_, transaction| match transaction {
            CoordinatedTransaction::Executing(_) => false,
            CoordinatedTransaction::Committing(commit) => goes(commit),
        });
        let commits = taken.filter_map(|(_, transaction)| match transaction {
            CoordinatedTransaction::Executing(_) => None,
            CoordinatedTransaction::Committing(commit) => Some(commit),
        });
        commits.collect()
    }

    /// The participant of `shard` is gone: running bodies with a branch there fail.
    pub fn lose_executing(&self, shard: ShardId, error: &Error) {
        for transaction in self.by_sequence.values() {
            if let CoordinatedTransaction::Executing(remote_branches) = transaction {
                remote_branches.lose(shard, error);
            }
        }
    }

    /// A participant does not answer a request. A running body fails; a transaction whose body has ended is removed, to be
    /// ended with this error.
    pub fn give_up_on(&mut self, (sequence, shard): BranchKey) -> Option<(C, Error)> {
        let error: Error = Aborted::from(Conflict::NoAnswer { shard }).into();
        if let Some(CoordinatedTransaction::Executing(remote_branches)) =
            self.by_sequence.get(&sequence)
        {
            // The body drops it.
            remote_branches.time_out(shard, &error);
        }
        let commit = self.take_commit(sequence)?;
        let error = unless_committed(&commit, shard, error);
        Some((commit, error))
    }
}

/// The error of a transaction whose participant of `shard` is gone or does not answer: `error`, unless that participant may
/// have committed the transaction, and its answer is lost.
pub fn unless_committed(commit: &impl CommitState, shard: ShardId, error: Error) -> Error {
    match commit.may_be_committed(shard) {
        true => Unknown::Participant { shard }.into(),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::admission::SharedPermit;
    use crate::execution::attempt::Attempt;
    use crate::execution::leaderships::ShardLeader;
    use crate::operation::Operation;
    use crate::transaction_id::TransactionId;
    use bytes::Bytes;
    use shoal_types::{Epoch, NodeId, TableId, Time, WorkerId};

    const SHARD: ShardId = ShardId(1);

    struct Commit {
        remote_branches: Rc<RemoteBranches>,
        is_delegated: bool,
    }

    impl CommitState for Commit {
        fn remote_branches(&self) -> &Rc<RemoteBranches> {
            &self.remote_branches
        }

        fn may_be_committed(&self, _: ShardId) -> bool {
            self.is_delegated
        }
    }

    /// A transaction that has asked the other shard for a row.
    fn asking(sequence: u64) -> Rc<RemoteBranches> {
        let id = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence };
        let attempt = Attempt::begun(id, Epoch(1), Time::ZERO);
        let remote_branches = RemoteBranches::new(attempt, SharedPermit::alone());
        let leader = ShardLeader { node: NodeId(1), since: Epoch(1) };
        let get = Operation::Get { table: TableId(0), key: Bytes::from_static(b"k") };
        remote_branches.issue(SHARD, leader, get).expect("within the limits");
        remote_branches
    }

    #[test]
    fn a_body_is_told_and_goes_on_and_a_commit_ends() {
        let mut all = CoordinatedTransactions::<Commit>::default();
        let (runs, done, delegated) = (asking(1), asking(2), asking(3));
        all.execute(&runs);
        all.execute(&runs);
        all.keep(Commit { remote_branches: done, is_delegated: false });
        all.keep(Commit { remote_branches: delegated, is_delegated: true });
        assert_eq!(all.len(), 3);
        assert!(all.give_up_on((1, SHARD)).is_none());
        assert!(runs.failure().is_some() && all.remote_branches(1).is_some());
        let (_, error) = all.give_up_on((2, SHARD)).expect("its body is done");
        assert_eq!(error, Aborted::from(Conflict::NoAnswer { shard: SHARD }).into());
        let (_, error) = all.give_up_on((3, SHARD)).expect("its body is done");
        assert_eq!(error, Unknown::Participant { shard: SHARD }.into());
        assert!(all.give_up_on((3, SHARD)).is_none());
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn what_is_taken_out_is_what_was_asked_for() {
        let mut all = CoordinatedTransactions::<Commit>::default();
        all.execute(&asking(1));
        for sequence in [2, 3, 4] {
            all.keep(Commit { remote_branches: asking(sequence), is_delegated: sequence == 3 });
        }
        assert!(all.take_commit(1).is_none() && all.take_commit(9).is_none());
        assert!(all.take_commit_if(3, |commit| !commit.is_delegated).is_none());
        assert!(all.commit(1).is_none() && all.commit(3).is_some());
        let done: Vec<u64> = all.commits_mut().map(|it| it.remote_branches.id.sequence).collect();
        assert_eq!(done, [2, 3, 4]);
        let taken = all.take_commits(|commit| !commit.is_delegated);
        let taken: Vec<u64> = taken.iter().map(|it| it.remote_branches.id.sequence).collect();
        assert_eq!(taken, [2, 4]);
        all.remove(1);
        assert!(all.take_commit(3).is_some());
        assert_eq!(all.len(), 0);
    }

    #[test]
    #[should_panic(expected = "1 waits twice")]
    fn a_transaction_is_kept_once() {
        let mut all = CoordinatedTransactions::<Commit>::default();
        for _ in 0..2 {
            all.keep(Commit { remote_branches: asking(1), is_delegated: false });
        }
    }
}
