//! A participant's branches: each request is acted on once, however often and late it arrives.
//!
//! A coordinator numbers the requests to a branch from 1 and sends the next one when it has the answer
//! to the last. So of an open branch it is enough to keep the last step and its reply. When a branch
//! is over, its last reply stays, since the coordinator may still ask for it; it goes once the
//! coordinator says, with any later request, that no transaction up to that one is open any more.
//! What arrives later still is a repetition of something that was answered, and is dropped.

use crate::transaction_id::TransactionId;
use shoal_types::wire::Coded;
use shoal_types::{Epoch, NodeId, ShardId, WorkerId, WorkerPlace};
use std::collections::BTreeMap;

/// What every request to a branch begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct BranchHeader {
    /// Whose branch.
    pub transaction: TransactionId,
    /// The shard of the branch.
    #[coded(short)]
    pub shard: ShardId,
    /// Which request of this branch; from 1.
    #[coded(short)]
    pub step: u32,
    /// No transaction of this coordinator with a lower sequence is open.
    #[coded(short)]
    pub oldest: u64,
    /// The transaction's epoch.
    #[coded(short)]
    pub epoch: Epoch,
    /// The epoch in which the leadership began of the leader that is asked: it may have ended since, and what
    /// it did its successor does not know.
    #[coded(short)]
    pub leadership: Epoch,
}

impl BranchHeader {
    /// Whether it can come from there: only the coordinator of a transaction sends messages about its branches, and only to
    /// other nodes.
    pub(crate) fn is_of(&self, from: WorkerPlace) -> bool {
        let in_turn = self.step > 0 && self.step < STEP_ENDED;
        self.transaction.coordinator() == from
            && self.oldest <= self.transaction.sequence
            && in_turn
    }
}

/// What a request turns out to be when it arrives.
#[derive(Debug)]
pub enum RequestArrival<R> {
    /// Next in turn: act on it.
    Act,
    /// A repetition of the last one: this was the reply.
    Repeated(R),
    /// The branch is over, with another request.
    Over,
    /// The branch was ended with its epoch, without a request.
    Ended,
    /// Too late, or out of turn: drop it.
    Stale,
}

/// No request has this number.
const STEP_ENDED: u32 = u32::MAX;

/// The branches of one worker. `C` is what an open one holds, `R` a reply.
#[derive(Debug)]
pub struct ParticipantTable<C, R> {
    open: BTreeMap<(TransactionId, ShardId), OpenBranch<C, R>>,
    coordinators: BTreeMap<(NodeId, WorkerId), CoordinatorBranches<R>>,
}

#[derive(Debug)]
struct OpenBranch<C, R> {
    epoch: Epoch,
    context: C,
    step: u32,
    reply: R,
}

#[derive(Debug)]
struct CoordinatorBranches<R> {
    oldest: u64,
    /// Branches that are over: their last step and its reply.
    over: BTreeMap<(u64, ShardId), (u32, R)>,
}

impl<R> Default for CoordinatorBranches<R> {
    fn default() -> Self {
        CoordinatorBranches { oldest: 0, over: BTreeMap::new() }
    }
}

impl<C, R> Default for ParticipantTable<C, R> {
    fn default() -> Self {
        ParticipantTable { open: BTreeMap::new(), coordinators: BTreeMap::new() }
    }
}

impl<C, R: Clone> ParticipantTable<C, R> {
    /// Says what to do with a request. One that `ends` the branch need not be the next in turn.
    pub fn arrive(&mut self, header: &BranchHeader, ends: bool) -> RequestArrival<R> {
        let id = header.transaction;
        let coordinator = self.coordinators.entry((id.node, id.worker)).or_default();
        if header.oldest > coordinator.oldest {
            coordinator.oldest = header.oldest;
            coordinator.over = coordinator.over.split_off(&(header.oldest, ShardId(0)));
        }
        if id.sequence < coordinator.oldest {
            return RequestArrival::Stale;
        }
        if let Some((step, reply)) = coordinator.over.get(&(id.sequence, header.shard)) {
            return match header.step == *step || *step == STEP_ENDED {
                true if *step == STEP_ENDED => RequestArrival::Ended,
                true => RequestArrival::Repeated(reply.clone()),
                false if ends => RequestArrival::Over,
                false => RequestArrival::Stale,
            };
        }
        let last = self.open.get(&(id, header.shard));
        let last_step = last.map_or(0, |open| open.step);
        match last {
            // A transaction has one epoch.
            Some(open) if header.epoch != open.epoch => RequestArrival::Stale,
            Some(open) if header.step == open.step => RequestArrival::Repeated(open.reply.clone()),
            _ if header.step == last_step + 1 || (ends && header.step > last_step) => {
                RequestArrival::Act
            }
            _ => RequestArrival::Stale,
        }
    }

    /// What the branch holds, to be acted on; it is kept or closed again in the same step.
    pub fn take(&mut self, header: &BranchHeader) -> Option<C> {
        Some(self.open.remove(&(header.transaction, header.shard))?.context)
    }

    /// What the branch holds, if it is open.
    pub fn context(&self, transaction: TransactionId, shard: ShardId) -> Option<&C> {
        Some(&self.open.get(&(transaction, shard))?.context)
    }

    /// The same, to be changed.
    pub fn context_mut(&mut self, transaction: TransactionId, shard: ShardId) -> Option<&mut C> {
        Some(&mut self.open.get_mut(&(transaction, shard))?.context)
    }

    /// All open branches: whose they are, on which shard, and what they hold.
    pub fn open(&self) -> impl Iterator<Item = (TransactionId, ShardId, &C)> {
        self.open.iter().map(|((transaction, shard), open)| (*transaction, *shard, &open.context))
    }

    /// The branch stays open, and this was the reply.
    pub fn keep(&mut self, header: &BranchHeader, context: C, reply: R) {
        let open = OpenBranch { epoch: header.epoch, context, step: header.step, reply };
        self.open.insert((header.transaction, header.shard), open);
    }

    /// The branch is over, and this was the reply.
    pub fn close(&mut self, header: &BranchHeader, reply: R) {
        let id = header.transaction;
        let coordinator = self.coordinators.entry((id.node, id.worker)).or_default();
        coordinator.over.insert((id.sequence, header.shard), (header.step, reply));
    }

    /// Ends the branches of `shard` that belong to `last` or to an epoch before, and gives what they hold.
    /// What is still asked of them finds them over.
    pub fn end_epochs(
        &mut self,
        shard: ShardId,
        last: Epoch,
        ended: &R,
    ) -> Vec<(TransactionId, C)> {
        self.end(shard, ended, |_, epoch, _| epoch <= last)
    }

    /// The same for branches of which that holds: whose they are, in which epoch, and what they hold.
    pub fn end(
        &mut self,
        shard: ShardId,
        ended: &R,
        ends: impl Fn(TransactionId, Epoch, &C) -> bool,
    ) -> Vec<(TransactionId, C)> {
        let over = self.open.extract_if(.., |(id, its), open| {
            *its == shard && ends(*id, open.epoch, &open.context)
        });
        let mut contexts = Vec::new();
        for ((id, shard), open) in over {
            let coordinator = self.coordinators.entry((id.node, id.worker)).or_default();
            coordinator.over.insert((id.sequence, shard), (STEP_ENDED, ended.clone()));
            contexts.push((id, open.context));
        }
        contexts
    }

    /// The same for one branch, if it is open: gives what it holds.
    pub fn end_branch(
        &mut self,
        transaction: TransactionId,
        shard: ShardId,
        ended: &R,
    ) -> Option<C> {
        let open = self.open.remove(&(transaction, shard))?;
        let coordinator = (transaction.node, transaction.worker);
        let over = &mut self.coordinators.entry(coordinator).or_default().over;
        over.insert((transaction.sequence, shard), (STEP_ENDED, ended.clone()));
        Some(open.context)
    }

    /// A transaction is over on `shard`, where it has no branch: what is still asked of it finds it over, like a branch that
    /// was ended.
    ///
    /// # Panics
    /// If it has an open branch there.
    pub fn refuse(&mut self, transaction: TransactionId, shard: ShardId, ended: &R) {
        let open = self.open.contains_key(&(transaction, shard));
        assert!(!open, "{transaction} is called over on {shard}, and has a branch there");
        let (node, worker) = (transaction.node, transaction.worker);
        let coordinator = self.coordinators.entry((node, worker)).or_default();
        if transaction.sequence >= coordinator.oldest {
            let key = (transaction.sequence, shard);
            coordinator.over.entry(key).or_insert_with(|| (STEP_ENDED, ended.clone()));
        }
    }

    /// How many coordinators are known, and of how many branches that are over the last reply is kept.
    pub fn sizes(&self) -> [usize; 2] {
        let over = self.coordinators.values().map(|coordinator| coordinator.over.len());
        [self.coordinators.len(), over.sum()]
    }

    /// How many are open.
    #[expect(
        clippy::len_without_is_empty,
        reason = "it is counted, and nothing asks whether it is empty"
    )]
    pub fn len(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sequence: u64, step: u32, oldest: u64) -> BranchHeader {
        let transaction = TransactionId { node: NodeId(1), worker: WorkerId(0), sequence };
        let (epoch, leadership) = (Epoch(1), Epoch(1));
        BranchHeader { transaction, shard: ShardId(0), step, oldest, epoch, leadership }
    }

    fn acts(arrival: &RequestArrival<&str>) -> bool {
        matches!(arrival, RequestArrival::Act)
    }

    #[test]
    fn each_request_acts_once() {
        let mut branches = ParticipantTable::<u32, &str>::default();
        assert!(acts(&branches.arrive(&header(5, 1, 0), false)));
        branches.keep(&header(5, 1, 0), 7, "one");
        assert!(matches!(
            branches.arrive(&header(5, 1, 0), false),
            RequestArrival::Repeated("one")
        ));
        assert!(matches!(branches.arrive(&header(5, 3, 0), false), RequestArrival::Stale));
        assert!(acts(&branches.arrive(&header(5, 2, 0), false)));
        assert_eq!(branches.take(&header(5, 2, 0)), Some(7));
        branches.close(&header(5, 2, 0), "two");
        assert!(matches!(branches.arrive(&header(5, 1, 0), false), RequestArrival::Stale));
        assert!(matches!(
            branches.arrive(&header(5, 2, 0), false),
            RequestArrival::Repeated("two")
        ));
        assert!(matches!(branches.arrive(&header(5, 3, 0), true), RequestArrival::Over));
    }

    #[test]
    fn what_is_refused_before_it_comes_finds_itself_over() {
        let mut branches = ParticipantTable::<u32, &str>::default();
        let [first, second] = [5, 6].map(|sequence| header(sequence, 1, 0));
        assert!(acts(&branches.arrive(&second, false)));
        branches.close(&second, "done");
        for of in [first, second] {
            branches.refuse(of.transaction, of.shard, &"over");
        }
        assert!(matches!(branches.arrive(&first, false), RequestArrival::Ended));
        assert!(matches!(branches.arrive(&second, false), RequestArrival::Repeated("done")));
        assert_eq!(branches.sizes(), [1, 2]);
        assert!(acts(&branches.arrive(&header(9, 1, 8), false)));
        branches.refuse(first.transaction, first.shard, &"over");
        assert_eq!(branches.sizes(), [1, 0], "its coordinator speaks of it no more");
    }

    #[test]
    fn an_end_that_overtakes_shuts_the_door() {
        let mut branches = ParticipantTable::<u32, &str>::default();
        assert!(acts(&branches.arrive(&header(5, 4, 0), true)));
        branches.close(&header(5, 4, 0), "over");
        assert!(matches!(branches.arrive(&header(5, 1, 0), false), RequestArrival::Stale));
        // The coordinator is done with it, and what is forgotten stays shut.
        assert!(acts(&branches.arrive(&header(9, 1, 8), false)));
        assert!(matches!(branches.arrive(&header(5, 1, 0), false), RequestArrival::Stale));
    }
}
