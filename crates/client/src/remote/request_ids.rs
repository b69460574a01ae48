//! The sessions under which calls are made and transactions commit, and the numbers of both.
//!
//! The leader of a shard keeps the outcome of the last call of each session that it has granted, so a session has one
//! call in progress at a time: a client that makes several calls at once has several sessions. A session whose call was
//! given up without an answer is never used again: a later call of it would replace the outcome of the open one, which
//! could not be determined any more. The same holds for commits. A session is used for calls and for commits in turn: what became
//! of one request is known before the next.

use super::lock;
use shoal_types::{Aborted, CallSession, Error, RequestId, Result, ShardId};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The call sessions that leaders have granted this client.
#[derive(Debug, Default)]
pub(super) struct RequestIds {
    idle: Mutex<BTreeMap<ShardId, Vec<CallSessionUse>>>,
}

/// A session that was granted, and the number of its calls. A dropped session is never used again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallSessionUse {
    session: CallSession,
    calls: u64,
}

impl RequestIds {
    /// A session for calls on a shard without a call in progress, if there is one.
    pub(super) fn take(&self, home: ShardId) -> Option<CallSessionUse> {
        lock(&self.idle).get_mut(&home)?.pop()
    }

    /// What became of the last request of `number` is known, unless `result` says otherwise. Nor is a session used again
    /// that is over.
    pub(super) fn give_back_if_known<T>(&self, number: CallSessionUse, result: &Result<T>) {
        let is_lost = matches!(
            result,
            Err(Error::Unknown(_) | Error::Aborted(Aborted::CallSessionOver { .. }))
        );
        if !is_lost {
            self.give_back(number);
        }
    }

    /// The last request of `number` was answered.
    fn give_back(&self, number: CallSessionUse) {
        lock(&self.idle).entry(number.session.home).or_default().push(number);
    }
}

impl CallSessionUse {
    /// The use of a session that was just granted.
    pub(super) fn new(session: CallSession) -> CallSessionUse {
        CallSessionUse { session, calls: 0 }
    }

    /// The id of its next call.
    pub(super) fn request(&mut self) -> RequestId {
        self.calls += 1;
        RequestId { session: self.session, number: self.calls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Calls begin, are answered and are given up in any order.
        #[test]
        fn a_session_has_one_call_under_way_and_none_after_one_that_was_given_up(
            moves in prop::collection::vec((0..3_u8, 0..2_u32, any::<prop::sample::Index>()), 1..200)
        ) {
            let numbers = RequestIds::default();
            let mut granted = 0;
            let mut under_way: Vec<(CallSessionUse, RequestId)> = Vec::new();
            let mut given_up = Vec::new();
            let mut last: BTreeMap<CallSession, u64> = BTreeMap::new();
            for (what, home, which) in moves {
                if what == 0 || under_way.is_empty() {
                    let home = ShardId(home);
                    let mut number = numbers.take(home).unwrap_or_else(|| {
                        granted += 1;
                        CallSessionUse::new(CallSession { home, serial: granted, ..CallSession::default() })
                    });
                    let id = number.request();
                    prop_assert_eq!(id.session.home, home);
                    prop_assert!(!given_up.contains(&id.session));
                    prop_assert!(under_way.iter().all(|(_, other)| other.session != id.session));
                    prop_assert_eq!(last.insert(id.session, id.number).unwrap_or(0) + 1, id.number);
                    under_way.push((number, id));
                    continue;
                }
                let (number, id) = under_way.swap_remove(which.index(under_way.len()));
                if what == 1 {
                    numbers.give_back(number);
                } else {
                    given_up.push(id.session);
                }
            }
        }
    }
}
