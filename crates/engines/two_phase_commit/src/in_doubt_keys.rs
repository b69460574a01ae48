//! The keys of a shard that prepared transactions of a former leadership write, while a node takes the shard over.
//!
//! A leader releases locks when it hears of a decision, and the outcome in its stream may be lost. Another worker's stream
//! may have a transaction by then that has locked the same key after that. So of the transactions that are in doubt, several
//! may have written one key, of which the former leader had resolved all but the one with the greatest clock. The new one
//! takes locks in the order of clocks: a transaction gets its own when none with a lesser clock is in doubt on any of
//! its keys. All workers say what they have first. The shard is served when all of them have all these locks (rule P7).

use super::branch_writes::BranchWrites;
use bytes::Bytes;
use shoal_types::{Clock, Epoch, TableId};
use std::collections::{BTreeMap, BTreeSet};
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
    /// How many workers have said what they have.
    registered: u32,
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

    /// One more worker takes over its stream under this leadership, and has found these transactions in doubt.
    pub(super) fn register<'a>(
        &self,
        leadership: Epoch,
        in_doubt: impl Iterator<Item = (Clock, &'a BranchWrites)>,
    ) {
        let Some(mut state) = self.state(leadership) else { return };
        state.registered += 1;
        for (clock, writes) in in_doubt {
            for write in writes.iter() {
                state.keys.entry((write.table, write.key.clone())).or_default().insert(clock);
            }
        }
    }

    /// Have all workers said what they have?
    pub(super) fn is_complete(&self, leadership: Epoch) -> bool {
        self.state(leadership).is_some_and(|state| state.registered == self.workers)
    }

    /// Is no transaction with a lesser clock in doubt on any of these keys?
    pub(super) fn is_first(&self, leadership: Epoch, clock: Clock, writes: &BranchWrites) -> bool {
        let Some(state) = self.state(leadership) else { return false };
        writes.iter().all(|write| {
            let clocks = state.keys.get(&(write.table, write.key.clone()));
            clocks.and_then(BTreeSet::first).is_none_or(|first| *first >= clock)
        })
    }

    /// The transaction with this clock is resolved.
    pub(super) fn resolve(&self, leadership: Epoch, clock: Clock, writes: &BranchWrites) {
        let Some(mut state) = self.state(leadership) else { return };
        for write in writes.iter() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_engine::replication::codec::StreamWrite;

    fn writes(keys: &[&'static str]) -> BranchWrites {
        let write = |key: &&'static str| StreamWrite {
            table: TableId(0),
            key: Bytes::from(*key),
            value: None,
        };
        let mut writes = BranchWrites::default();
        writes.push(keys.iter().map(write).collect());
        writes
    }

    #[test]
    fn of_those_on_one_key_the_first_comes_first() {
        let keys = InDoubtKeys::new(2);
        let [a, b, both] = [&["a"][..], &["b"], &["a", "b"]].map(writes);
        keys.register(Epoch(3), [(Clock(9), &both)].into_iter());
        assert!(!keys.is_complete(Epoch(3)));
        keys.register(Epoch(3), [(Clock(5), &a)].into_iter());
        assert!(keys.is_complete(Epoch(3)));
        assert!(keys.is_first(Epoch(3), Clock(5), &a) && !keys.is_first(Epoch(3), Clock(9), &both));
        assert!(keys.is_first(Epoch(3), Clock(9), &b));
        keys.resolve(Epoch(3), Clock(5), &a);
        assert!(keys.is_first(Epoch(3), Clock(9), &both));
    }

    #[test]
    fn a_later_leadership_begins_with_nothing() {
        let (keys, a) = (InDoubtKeys::new(1), writes(&["a"]));
        keys.register(Epoch(3), [(Clock(9), &a)].into_iter());
        assert!(!keys.is_complete(Epoch(4)));
        keys.register(Epoch(3), std::iter::empty());
        assert!(!keys.is_complete(Epoch(3)), "it is over");
        keys.register(Epoch(4), std::iter::empty());
        assert!(keys.is_complete(Epoch(4)) && keys.is_first(Epoch(4), Clock(10), &a));
    }
}
