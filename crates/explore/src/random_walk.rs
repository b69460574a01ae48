//! Random walks through a model: for bounds too large to be searched.

use super::model::{Counterexample, Model, SearchResult};
use shoal_types::Random;

/// How far random walks go.
#[derive(Debug, Clone, Copy)]
pub struct WalkBounds {
    /// The seed of the first walk; each seed is one walk.
    pub first_seed: u64,
    /// How many seeds are walked, from `first_seed` on.
    pub walks: u64,
    /// Give up a walk after so many actions.
    pub depth_max: usize,
}

impl Default for WalkBounds {
    fn default() -> WalkBounds {
        WalkBounds { first_seed: 0, walks: 10_000, depth_max: 1000 }
    }
}

/// Follows random actions of `model` until none is left or the walk is long enough, for each seed, until a rule is broken.
/// `progress` receives the number of walks after each.
pub fn random_walk<M: Model>(
    model: &M,
    bounds: WalkBounds,
    mut progress: impl FnMut(u64),
) -> SearchResult<M::Action> {
    let mut result = SearchResult::new();
    for walk in 0..bounds.walks {
        let mut random = Random::new(bounds.first_seed + walk);
        result.counterexample = walk_once(model, &mut random, bounds.depth_max, &mut result);
        progress(walk + 1);
        if result.counterexample.is_some() {
            break;
        }
    }
    result
}

fn walk_once<M: Model>(
    model: &M,
    random: &mut Random,
    depth_max: usize,
    result: &mut SearchResult<M::Action>,
) -> Option<Counterexample<M::Action>> {
    let (mut state, mut walked, mut actions) = (model.initial(), Vec::new(), Vec::new());
    while walked.len() < depth_max {
        result.states += 1;
        result.depth = result.depth.max(walked.len());
        actions.clear();
        model.actions(&state, &mut actions);
        if actions.is_empty() {
            result.ends += 1;
            let violation = model.check_end(&state).err()?;
            return Some(Counterexample { violation, actions: walked });
        }
        let action = actions.swap_remove(random.below(actions.len() as u64) as usize);
        result.transitions += 1;
        walked.push(action.clone());
        match model.apply(&state, &action) {
            Ok(after) => state = after,
            Err(violation) => return Some(Counterexample { violation, actions: walked }),
        }
    }
    None
}
