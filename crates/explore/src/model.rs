//! What a model is, and what a search finds.

use std::fmt;
use std::hash::Hash;

/// A protocol as a transition system with finitely many states.
pub trait Model {
    /// Everything that decides what can happen next: processes, messages under way, and what a checker has to remember.
    /// Equal states have equal futures, so a state keeps its collections in an order that does not depend on its history.
    type State: Clone + Eq + Hash;

    /// One thing that can happen: a message is delivered, lost or repeated, a process begins something or crashes.
    type Action: Clone + fmt::Debug;

    /// The state in which every run begins.
    fn initial(&self) -> Self::State;

    /// Adds every action that is possible in `state` to `actions`, always in the same order. None, where the run ends.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// The state after `action`, which is one of those that are possible in `state`.
    ///
    /// # Errors
    /// The rule that this action breaks.
    fn apply(&self, state: &Self::State, action: &Self::Action) -> Result<Self::State, Violation>;

    /// Judges a state in which nothing more can happen: what had to be answered, decided or freed is.
    ///
    /// # Errors
    /// The rule that it breaks.
    fn check_end(&self, state: &Self::State) -> Result<(), Violation>;
}

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule, by its name in the protocol's design.
    pub rule: &'static str,
    /// The node, transaction or value that broke the rule, in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// How a rule was broken.
#[derive(Debug, Clone)]
pub struct Counterexample<A> {
    /// The rule, and what broke it.
    pub violation: Violation,
    /// The actions from the initial state that led there, the last of which broke the rule or left nothing to do.
    pub actions: Vec<A>,
}

/// What a search did and found.
#[derive(Debug, Clone)]
pub struct SearchResult<A> {
    /// Different states that were visited; of random walks, states with repetitions.
    pub states: u64,
    /// Actions that were applied, also those that led to a state visited before.
    pub transitions: u64,
    /// States in which nothing more could happen.
    pub ends: u64,
    /// The most actions from the initial state to a visited one.
    pub depth: usize,
    /// Every state within the model's bounds was visited, unless a rule was broken.
    pub is_complete: bool,
    /// The first rule that was found broken.
    pub counterexample: Option<Counterexample<A>>,
}

impl<A> SearchResult<A> {
    pub(crate) fn new() -> SearchResult<A> {
        SearchResult {
            states: 0,
            transitions: 0,
            ends: 0,
            depth: 0,
            is_complete: false,
            counterexample: None,
        }
    }

    /// The same with actions in words.
    pub(crate) fn in_words(self) -> SearchResult<String>
    where
        A: fmt::Display,
    {
        SearchResult {
            states: self.states,
            transitions: self.transitions,
            ends: self.ends,
            depth: self.depth,
            is_complete: self.is_complete,
            counterexample: self.counterexample.map(|found| Counterexample {
                violation: found.violation,
                actions: found.actions.iter().map(A::to_string).collect(),
            }),
        }
    }
}
