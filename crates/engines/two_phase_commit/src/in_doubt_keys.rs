//! The keys of a shard that prepared transactions of a former leadership write, while a node takes the shard over.
//!
//! A leader releases locks when it receives a decision, and the outcome in its stream may be lost. Another worker's stream
//! may have a transaction by then that has locked the same key after that. So of the transactions that are in doubt, several
//! may have written one key, of which the former leader had resolved all but the one with the greatest clock. The new one
//! takes locks in the order of clocks: a transaction gets its own when none with a lesser clock is in doubt on any of
//! its keys. All workers register the keys of what they have first, in slices. The shard is served when all of them have all
//! these locks (rule P7).

use super::branch_writes::{BranchPlace, BranchWrites};
use bytes::Bytes;
use shoal_replication::codec::StreamWrite;
use shoal_types::{Clock, Epoch, TableId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shared by the workers of a node, for one shard.
#[derive(Debug)]
pub(super) struct InDoubtKeys {
    workers: u32,
    state: Mutex<InDoubtState>,
}

#[derive(Debug, Default)]
struct InDoubtState {
    /// The leadership that takes over.
    leadership: Epoch,
    /// The number of workers that have registered all keys of what they have.
    registered: u32,
    /// How many slices of keys have been resolved.
    resolved: u64,
    /// A worker has laid this leadership down: it takes no more locks.
    is_over: bool,
    keys: BTreeMap<(TableId, Bytes), BTreeSet<Clock>>,
}

impl InDoubtKeys {
    pub(super) fn new(workers: u32) -> InDoubtKeys {
        InDoubtKeys { workers, state: Mutex::default() }
    }

    /// The state of a leadership; `None` where a later one has begun.
    fn state(&self, leadership: Epoch) -> Option<MutexGuard<'_, InDoubtState>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.leadership < leadership {
            *state = InDoubtState { leadership, ..InDoubtState::default() };
        }
        (state.leadership == leadership).then_some(state)
    }

    /// The state of a leadership that is not over.
    fn open_state(&self, leadership: Epoch) -> Option<MutexGuard<'_, InDoubtState>> {
        self.state(leadership).filter(|state| !state.is_over)
    }

    /// A worker lays the leadership down: its keys are dropped, and no turn comes any more.
    pub(super) fn end(&self, leadership: Epoch) {
        if let Some(mut state) = self.state(leadership) {
            state.is_over = true;
            state.keys = BTreeMap::new();
        }
    }

    /// A transaction with this clock is in doubt on these keys.
    pub(super) fn register(&self, leadership: Epoch, clock: Clock, writes: &[StreamWrite]) {
        let Some(mut state) = self.open_state(leadership) else { return };
        for write in writes {
            state.keys.entry((write.table, write.key.clone())).or_default().insert(clock);
        }
    }

    /// One more worker has registered all that is in doubt in its stream.
    pub(super) fn complete(&self, leadership: Epoch) {
        if let Some(mut state) = self.state(leadership) {
            state.registered += 1;
            assert!(state.registered <= self.workers, "P7: a worker registers twice: {state:?}");
        }
    }

    /// Whether all workers have registered what they have.
    pub(super) fn is_complete(&self, leadership: Epoch) -> bool {
        self.state(leadership).is_some_and(|state| state.registered == self.workers)
    }

    /// How many slices of keys have been resolved. While that is the same, no turn comes that has not come.
    pub(super) fn resolved(&self, leadership: Epoch) -> u64 {
        self.state(leadership).map_or(0, |state| state.resolved)
    }

    /// Moves the place behind the keys of the transaction with this clock on which none with a lesser clock is in doubt, by
    /// `left` keys at most; a key where it is not first counts, too. Says whether these were the last of its keys: it is its turn. Once all workers have registered
    /// what they have, the turn on a key does not pass.
    pub(super) fn follow_turn(
        &self,
        leadership: Epoch,
        clock: Clock,
        writes: &BranchWrites,
        place: &mut BranchPlace,
        left: &mut usize,
    ) -> bool {
        let Some(state) = self.open_state(leadership) else { return false };
        let is_first = |write: &&StreamWrite| {
            let clocks = state.keys.get(&(write.table, write.key.clone()));
            clocks.and_then(BTreeSet::first).is_none_or(|first| *first >= clock)
        };
        while *left > 0 {
            let mut until = *place;
            let Some(slice) = writes.next_from(&mut until, *left) else { return true };
            let free = slice.iter().take_while(is_first).count();
            *left -= slice.len().min(free + 1);
            if free < slice.len() {
                writes.next_from(place, free);
                return false;
            }
            *place = until;
        }
        false
    }

    /// The transaction with this clock is resolved on these keys.
    pub(super) fn resolve(&self, leadership: Epoch, clock: Clock, writes: &[StreamWrite]) {
        let Some(mut state) = self.open_state(leadership) else { return };
        state.resolved += 1;
        for write in writes {
            let place = (write.table, write.key.clone());
            if let Some(clocks) = state.keys.get_mut(&place) {
                clocks.remove(&clock);
                if clocks.is_empty() {
                    state.keys.remove(&place);
                }
            }
        }
    }
}

/// What a worker has still to do with the keys of what is in doubt in its stream of a shard.
#[derive(Debug, Default)]
pub(super) struct OwnInDoubtKeys {
    /// What it has found in doubt and not registered.
    to_register: KeyQueue,
    /// Whether all of that is registered.
    is_registered: bool,
    /// What is resolved, and in the way of other transactions on its keys.
    to_resolve: KeyQueue,
}

impl OwnInDoubtKeys {
    /// A leadership begins, and has found these in doubt.
    pub(super) fn begin(&mut self, found: VecDeque<(Clock, BranchWrites)>) {
        *self = OwnInDoubtKeys::default();
        self.to_register.branches = found;
    }

    /// Registers the next keys of what was found, `left` at most. Says whether these were the last.
    ///
    /// # Panics
    /// If all are registered: the workers of a node count each other.
    pub(super) fn register(
        &mut self,
        keys: &InDoubtKeys,
        leadership: Epoch,
        left: &mut usize,
    ) -> bool {
        assert!(!self.is_registered, "P7: the keys of a leadership are registered twice");
        self.to_register.go_on(left, |clock, writes| keys.register(leadership, clock, writes));
        self.is_registered = self.to_register.is_empty();
        if self.is_registered {
            keys.complete(leadership);
        }
        self.is_registered
    }

    /// Whether all that was found is registered.
    pub(super) fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// A branch with this clock is resolved: its keys are to be taken out.
    pub(super) fn end(&mut self, clock: Clock, writes: BranchWrites) {
        if !writes.is_empty() {
            self.to_resolve.branches.push_back((clock, writes));
        }
    }

    /// Takes out the keys of what is resolved, `left` at most.
    pub(super) fn resolve(&mut self, keys: &InDoubtKeys, leadership: Epoch, left: &mut usize) {
        self.to_resolve.go_on(left, |clock, writes| keys.resolve(leadership, clock, writes));
    }

    /// Whether keys are to be taken out.
    pub(super) fn has_resolved(&self) -> bool {
        !self.to_resolve.is_empty()
    }

    /// The number of branches that are not done.
    pub(super) fn len(&self) -> usize {
        self.to_register.len() + self.to_resolve.len()
    }
}

/// The branches of one worker whose keys are still to be registered, or to be resolved, in slices.
#[derive(Debug, Default)]
struct KeyQueue {
    branches: VecDeque<(Clock, BranchWrites)>,
    /// The keys of the first branch before this place are done.
    place: BranchPlace,
}

impl KeyQueue {
    /// Whether all is done.
    fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// The number of branches that are not done.
    fn len(&self) -> usize {
        self.branches.len()
    }

    /// Handles the next keys, `left` at most; a branch counts as one key more.
    fn go_on(&mut self, left: &mut usize, mut handle: impl FnMut(Clock, &[StreamWrite])) {
        while *left > 0
            && let Some((clock, writes)) = self.branches.front()
        {
            match writes.next_from(&mut self.place, *left) {
                Some(slice) => {
                    handle(*clock, slice);
                    *left -= slice.len();
                }
                None => {
                    self.branches.pop_front();
                    self.place = BranchPlace::default();
                    *left -= 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_store::Change;

    fn writes(keys: &[&'static str]) -> Vec<StreamWrite> {
        let write = |key: &&'static str| StreamWrite {
            table: TableId(0),
            key: Bytes::from(*key),
            change: Change::Delete,
        };
        keys.iter().map(write).collect()
    }

    fn branch(keys: &[&'static str]) -> BranchWrites {
        let mut branch = BranchWrites::default();
        branch.push(writes(keys));
        branch
    }

    /// Whether it is the turn of a transaction, and on how many more of its keys.
    fn turn(
        keys: &InDoubtKeys,
        leadership: u32,
        clock: u64,
        writes: &BranchWrites,
        place: &mut BranchPlace,
    ) -> (bool, usize) {
        let mut left = 10;
        let is_turn = keys.follow_turn(Epoch(leadership), Clock(clock), writes, place, &mut left);
        (is_turn, 10 - left)
    }

    #[test]
    fn of_those_on_one_key_the_first_comes_first() {
        let keys = InDoubtKeys::new(2);
        keys.register(Epoch(3), Clock(9), &writes(&["b", "a"]));
        keys.complete(Epoch(3));
        assert!(!keys.is_complete(Epoch(3)));
        keys.register(Epoch(3), Clock(5), &writes(&["a"]));
        keys.complete(Epoch(3));
        assert!(keys.is_complete(Epoch(3)));
        let (first, second) = (branch(&["a"]), branch(&["b", "a"]));
        assert_eq!(turn(&keys, 3, 5, &first, &mut BranchPlace::default()), (true, 1));
        let mut place = BranchPlace::default();
        assert_eq!(turn(&keys, 3, 9, &second, &mut place), (false, 2));
        assert_eq!(turn(&keys, 3, 9, &second, &mut place), (false, 1), "it waits");
        keys.resolve(Epoch(3), Clock(5), &writes(&["a"]));
        assert_eq!(turn(&keys, 3, 9, &second, &mut place), (true, 1));
    }

    #[test]
    fn a_turn_is_followed_in_slices() {
        let keys = InDoubtKeys::new(1);
        let (both, mut place) = (branch(&["a", "b"]), BranchPlace::default());
        for (left, is_turn) in [(1, false), (1, false), (1, true)] {
            let come = keys.follow_turn(Epoch(3), Clock(9), &both, &mut place, &mut { left });
            assert_eq!(come, is_turn);
        }
    }

    #[test]
    fn a_later_leadership_begins_with_nothing() {
        let keys = InDoubtKeys::new(1);
        keys.register(Epoch(3), Clock(9), &writes(&["a"]));
        assert!(!keys.is_complete(Epoch(4)));
        keys.complete(Epoch(3));
        assert!(!keys.is_complete(Epoch(3)), "it is over");
        keys.complete(Epoch(4));
        assert!(keys.is_complete(Epoch(4)));
        let place = &mut BranchPlace::default();
        assert_eq!(turn(&keys, 4, 10, &branch(&["a"]), place), (true, 1));
    }

    #[test]
    fn a_leadership_that_is_over_keeps_no_keys_and_gives_no_turn() {
        let keys = InDoubtKeys::new(1);
        keys.register(Epoch(3), Clock(9), &writes(&["a"]));
        keys.complete(Epoch(3));
        keys.end(Epoch(2));
        let (own, place) = (branch(&["a"]), &mut BranchPlace::default());
        assert_eq!(turn(&keys, 3, 9, &own, place), (true, 1), "another one is over");
        keys.end(Epoch(3));
        keys.register(Epoch(3), Clock(10), &writes(&["b"]));
        let place = &mut BranchPlace::default();
        assert_eq!(turn(&keys, 3, 9, &own, place), (false, 0));
        assert!(keys.state.lock().expect("no test fails with it").keys.is_empty());
        assert!(keys.is_complete(Epoch(3)), "that was so, and stays so");
    }

    #[test]
    fn keys_are_handled_in_slices() {
        let mut queue = KeyQueue::default();
        for (clock, keys) in [(5, &["a", "b", "c"][..]), (6, &[]), (7, &["d"])] {
            queue.branches.push_back((Clock(clock), branch(keys)));
        }
        let mut slices = Vec::new();
        while !queue.is_empty() {
            let mut slice = Vec::new();
            queue.go_on(&mut 2, |clock, writes| {
                let keys = writes.iter().map(|it| (clock.0, it.key.clone()));
                slice.extend(keys);
            });
            slices.push(slice);
        }
        let keys = |slice: &[(u64, &'static str)]| -> Vec<(u64, Bytes)> {
            slice.iter().map(|(clock, key)| (*clock, Bytes::from(*key))).collect()
        };
        let expected: [&[(u64, &str)]; 4] = [&[(5, "a"), (5, "b")], &[(5, "c")], &[(7, "d")], &[]];
        assert_eq!(slices, expected.map(keys));
    }
}
