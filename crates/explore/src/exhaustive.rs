//! Breadth-first search of all states of a model.
//!
//! A visited state is remembered by a hash of 128 bits. Two states with one hash would hide the second; among a billion
//! states the chance of that is below 10⁻²⁰. Only the states at the edge of the search are kept whole. The way to a
//! state is found through its predecessors, each kept as a number and the place of its action.

use super::model::{Counterexample, Model, SearchResult, Violation};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Where a search ends that has found nothing.
#[derive(Debug, Clone, Copy)]
pub struct SearchBounds {
    /// Visit no more states than this: each takes some 60 bytes.
    pub states_max: u64,
    /// Go no farther than so many actions from the initial state.
    pub depth_max: usize,
}

impl Default for SearchBounds {
    /// Ten million states at any depth: less than a gigabyte.
    fn default() -> SearchBounds {
        SearchBounds { states_max: 10_000_000, depth_max: usize::MAX }
    }
}

/// How a state was reached.
#[derive(Debug, Clone, Copy)]
struct Reached {
    /// The number of the state before.
    from: u32,
    /// The place of the action among those that were possible there.
    action: u32,
}

/// Visits every state of `model` within `bounds`, the near ones first, until a rule is broken. `progress` receives the
/// number of states and the depth after each thousandth state.
///
/// # Panics
/// If the bounds allow more than 2³² states.
pub fn exhaustive<M: Model>(
    model: &M,
    bounds: SearchBounds,
    mut progress: impl FnMut(u64, usize),
) -> SearchResult<M::Action> {
    assert!(bounds.states_max <= u64::from(u32::MAX), "states are numbered in 32 bits");
    let mut result = SearchResult::new();
    let mut search = Search { model, visited: HashSet::new(), reached: Vec::new() };
    let initial = model.initial();
    search.visited.insert(fingerprint(&initial));
    search.reached.push(Reached { from: 0, action: 0 });
    let mut edge = vec![(0, initial)];
    let mut actions = Vec::new();
    while !edge.is_empty() {
        if result.depth >= bounds.depth_max {
            return result;
        }
        let mut next = Vec::new();
        for (number, state) in edge.drain(..) {
            result.states += 1;
            if result.states.is_multiple_of(1000) {
                progress(result.states, result.depth);
            }
            actions.clear();
            model.actions(&state, &mut actions);
            if actions.is_empty() {
                result.ends += 1;
                if let Err(violation) = model.check_end(&state) {
                    result.counterexample = search.counterexample(number, None, violation);
                    return result;
                }
            }
            for (at, action) in actions.iter().enumerate() {
                result.transitions += 1;
                match model.apply(&state, action) {
                    Err(violation) => {
                        result.counterexample =
                            search.counterexample(number, Some(action), violation);
                        return result;
                    }
                    Ok(after) => {
                        if let Some(number) = search.visit(&after, number, at) {
                            next.push((number, after));
                        }
                    }
                }
            }
            if search.reached.len() as u64 > bounds.states_max {
                return result;
            }
        }
        result.depth += usize::from(!next.is_empty());
        edge = next;
    }
    result.is_complete = true;
    result
}

struct Search<'a, M> {
    model: &'a M,
    visited: HashSet<u128>,
    /// By the number of the state.
    reached: Vec<Reached>,
}

impl<M: Model> Search<'_, M> {
    /// The number of a state that was not visited before.
    fn visit(&mut self, state: &M::State, from: u32, action: usize) -> Option<u32> {
        let is_new = self.visited.insert(fingerprint(state));
        is_new.then(|| {
            let number = self.reached.len() as u32;
            self.reached.push(Reached { from, action: action as u32 });
            number
        })
    }

    /// How the state with this number breaks a rule, or `last`, which is an action in it.
    fn counterexample(
        &self,
        number: u32,
        last: Option<&M::Action>,
        violation: Violation,
    ) -> Option<Counterexample<M::Action>> {
        let mut actions = self.way_to(number);
        actions.extend(last.cloned());
        Some(Counterexample { violation, actions })
    }

    /// The actions that lead from the initial state to this one.
    fn way_to(&self, number: u32) -> Vec<M::Action> {
        let mut places = Vec::new();
        let mut at = number;
        while at != 0 {
            let reached = self.reached[at as usize];
            places.push(reached.action as usize);
            at = reached.from;
        }
        let mut state = self.model.initial();
        let mut way = Vec::new();
        for place in places.into_iter().rev() {
            let mut actions = Vec::new();
            self.model.actions(&state, &mut actions);
            let action = actions.swap_remove(place);
            let after = self.model.apply(&state, &action);
            state = after.unwrap_or_else(|violation| panic!("was not broken before: {violation}"));
            way.push(action);
        }
        way
    }
}

/// 128 bits of a state: two hashes with different beginnings.
fn fingerprint(state: &impl Hash) -> u128 {
    let of = |begin: u64| {
        let mut hasher = DefaultHasher::new();
        begin.hash(&mut hasher);
        state.hash(&mut hasher);
        hasher.finish()
    };
    u128::from(of(1)) << 64 | u128::from(of(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters that are raised to a bound; a rule says that they never add up to `refused`.
    struct Counters {
        bound: u8,
        refused: u8,
    }

    impl Model for Counters {
        type State = [u8; 2];
        type Action = usize;

        fn initial(&self) -> [u8; 2] {
            [0, 0]
        }

        fn actions(&self, state: &[u8; 2], actions: &mut Vec<usize>) {
            actions.extend((0..2).filter(|at| state[*at] < self.bound));
        }

        fn apply(&self, state: &[u8; 2], action: &usize) -> Result<[u8; 2], Violation> {
            let mut after = *state;
            after[*action] += 1;
            if after[0] + after[1] == self.refused {
                return Err(Violation { rule: "sum", what: format!("{after:?}") });
            }
            Ok(after)
        }

        fn check_end(&self, state: &[u8; 2]) -> Result<(), Violation> {
            assert_eq!(*state, [self.bound; 2]);
            Ok(())
        }
    }

    #[test]
    fn every_state_is_visited_once() {
        let result =
            exhaustive(&Counters { bound: 9, refused: 200 }, SearchBounds::default(), |_, _| {});
        assert_eq!((result.states, result.ends, result.depth), (100, 1, 18));
        assert!(result.is_complete && result.counterexample.is_none());
    }

    #[test]
    fn the_counterexample_is_a_shortest_one() {
        let result =
            exhaustive(&Counters { bound: 9, refused: 5 }, SearchBounds::default(), |_, _| {});
        let found = result.counterexample.expect("five is reached");
        assert_eq!((found.violation.rule, found.actions.len()), ("sum", 5));
    }

    #[test]
    fn a_search_that_reaches_its_bound_says_that_it_is_not_complete() {
        let model = Counters { bound: 9, refused: 200 };
        for bounds in [
            SearchBounds { states_max: 10, ..SearchBounds::default() },
            SearchBounds { depth_max: 3, ..SearchBounds::default() },
        ] {
            let result = exhaustive(&model, bounds, |_, _| {});
            assert!(!result.is_complete && result.counterexample.is_none(), "{bounds:?}");
        }
    }
}
