//! What the registry has of a protocol: its rules and its scenarios.
//!
//! A protocol fits in with a [`Protocol`] in a static item of its module and a line in [`PROTOCOLS`](crate::PROTOCOLS). What
//! it explores is given by its function [`Explore`], which builds the model of a scenario and hands it to [`search`].

use crate::exhaustive::{SearchBounds, exhaustive};
use crate::model::{Model, SearchResult, Violation};
use crate::random_walk::{WalkBounds, random_walk};
use std::fmt::Display;

/// A protocol that is explored.
#[derive(Debug)]
pub struct Protocol {
    /// The name on the command line.
    pub name: &'static str,
    /// What of the protocol is modelled, in one line.
    pub about: &'static str,
    /// The rules that can be switched off.
    pub switches: &'static [Switch],
    /// The scenarios that can be explored, in the order in which they are listed.
    pub scenarios: &'static [ScenarioInfo],
    /// Runs the search of one of `scenarios`.
    pub explore: Explore,
}

/// Explores the scenario, which is one of the protocol's, without these rules, which are its own, too.
pub type Explore = fn(
    scenario: &'static ScenarioInfo,
    without: &[&'static Switch],
    method: SearchMethod,
    progress: &mut dyn FnMut(SearchProgress),
) -> Exploration;

/// A rule that can be switched off.
#[derive(Debug, PartialEq, Eq)]
pub struct Switch {
    /// The name on the command line.
    pub name: &'static str,
    /// The rule of the protocol's design that it belongs to, such as `Z4`.
    pub rule: &'static str,
    /// What happens without it, in one line.
    pub without: &'static str,
    /// The scenario that shows that the rule is needed.
    pub scenario: &'static str,
    /// How it is shown there.
    pub found_by: FoundBy,
}

/// How the lack of a rule is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// By a search of all states.
    Exhaustive,
    /// By random walks: so many from seed 0 suffice.
    RandomWalks(u64),
    /// No search has shown it within its bounds.
    Nothing,
}

/// What can be explored of a protocol: its processes, what they do, and what may go wrong meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub struct ScenarioInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// What happens in it, in one line.
    pub about: &'static str,
    /// How much there is to search.
    pub size: ScenarioSize,
}

/// How much there is to search in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScenarioSize {
    /// All states are visited within seconds, in tests too.
    Small,
    /// All states are visited by the command.
    Large,
    /// There are too many states: random walks only.
    Unbounded,
}

/// How a scenario is explored.
#[derive(Debug, Clone, Copy)]
pub enum SearchMethod {
    /// All states within these bounds.
    Exhaustive(SearchBounds),
    /// Walks from the initial state, each drawn from a seed of its own.
    RandomWalks(WalkBounds),
}

/// How far a search is.
#[derive(Debug, Clone, Copy)]
pub struct SearchProgress {
    /// So many states were visited; with random walks, so many walks are over.
    pub done: u64,
    /// Actions from the initial state; 0 with random walks.
    pub depth: usize,
}

/// What was found in a scenario: a search result whose actions are words.
pub type Exploration = SearchResult<String>;

/// Explores `model` by `method`. Actions that led to a violation are put into words.
pub fn search<M: Model>(
    model: &M,
    method: SearchMethod,
    progress: &mut dyn FnMut(SearchProgress),
) -> Exploration
where
    M::Action: Display,
{
    let found = match method {
        SearchMethod::Exhaustive(bounds) => {
            exhaustive(model, bounds, |done, depth| progress(SearchProgress { done, depth }))
        }
        SearchMethod::RandomWalks(bounds) => {
            random_walk(model, bounds, |done| progress(SearchProgress { done, depth: 0 }))
        }
    };
    found.in_words()
}

impl Protocol {
    /// The scenario with this name.
    pub fn scenario(&self, name: &str) -> Option<&'static ScenarioInfo> {
        self.scenarios.iter().find(|scenario| scenario.name == name)
    }

    /// The switch with this name.
    pub fn switch(&self, name: &str) -> Option<&'static Switch> {
        self.switches.iter().find(|switch| switch.name == name)
    }

    /// What is found without the rule of `switch` in the scenario that it names.
    ///
    /// # Panics
    /// If the switch names no scenario of this protocol.
    pub fn violation_without(&'static self, switch: &'static Switch) -> Option<Violation> {
        let scenario = self.scenario(switch.scenario);
        let scenario = scenario.unwrap_or_else(|| panic!("{}: no such scenario", switch.scenario));
        let method = match switch.found_by {
            FoundBy::Exhaustive => SearchMethod::Exhaustive(SearchBounds::default()),
            FoundBy::RandomWalks(walks) => {
                SearchMethod::RandomWalks(WalkBounds { walks, ..WalkBounds::default() })
            }
            FoundBy::Nothing => return None,
        };
        let found = (self.explore)(scenario, &[switch], method, &mut |_| {});
        found.counterexample.map(|found| found.violation)
    }
}
