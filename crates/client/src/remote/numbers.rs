//! The numbers under which calls are made.
//!
//! The cluster remembers the last request of each client number, so a number has one request under way at
//! a time: who calls often at once has many of them. A number whose call was given up without an answer is
//! never used again: a later request of it would take the place of the one whose fate is open, and nobody
//! could ask for that any more.

use super::lock;
use std::sync::Mutex;
use types::{Random, RequestId};

/// See the module.
#[derive(Debug)]
pub(super) struct Numbers {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    idle: Vec<Number>,
}

/// A client number of ours, and how many requests it has made. Dropped, it is gone for good.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Number {
    client: u64,
    count: u64,
}

impl Numbers {
    /// `random` must be seeded by what nobody else has.
    pub(super) fn new(random: Random) -> Numbers {
        Numbers { state: Mutex::new(State { random, idle: Vec::new() }) }
    }

    /// One that has no request under way.
    pub(super) fn take(&self) -> Number {
        let mut state = lock(&self.state);
        match state.idle.pop() {
            Some(number) => number,
            None => Number { client: state.random.next_u64(), count: 0 },
        }
    }

    /// The last request of `number` was answered.
    pub(super) fn give_back(&self, number: Number) {
        lock(&self.state).idle.push(number);
    }
}

impl Number {
    /// Its next request.
    pub(super) fn request(&mut self) -> RequestId {
        self.count += 1;
        RequestId(u128::from(self.client) << 64 | u128::from(self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Calls begin, are answered and are given up in any order.
        #[test]
        fn a_number_has_one_request_under_way_and_none_after_one_that_was_given_up(
            seed: u64, moves in prop::collection::vec((0..3_u8, any::<prop::sample::Index>()), 1..200)
        ) {
            let numbers = Numbers::new(Random::new(seed));
            let mut under_way: Vec<(Number, RequestId)> = Vec::new();
            let mut given_up = Vec::new();
            let mut last: BTreeMap<u64, u64> = BTreeMap::new();
            for (what, which) in moves {
                if what == 0 || under_way.is_empty() {
                    let mut number = numbers.take();
                    let id = number.request();
                    let (client, count) = ((id.0 >> 64) as u64, id.0 as u64);
                    prop_assert!(!given_up.contains(&client));
                    prop_assert!(under_way.iter().all(|(_, other)| (other.0 >> 64) as u64 != client));
                    prop_assert_eq!(last.insert(client, count).unwrap_or(0) + 1, count);
                    under_way.push((number, id));
                    continue;
                }
                let (number, id) = under_way.swap_remove(which.index(under_way.len()));
                if what == 1 {
                    numbers.give_back(number);
                } else {
                    given_up.push((id.0 >> 64) as u64);
                }
            }
        }
    }
}
