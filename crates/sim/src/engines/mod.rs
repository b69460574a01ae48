//! The engines of the registry, as the simulator runs them. Each has a file here for its options and bugs, one in `observed/` for
//! its observations, and one in `checks/` for its rules; no other file of the simulator depends on an engine, except the
//! demonstrations.

mod mako;
mod tiga;
mod two_phase_commit;
mod zeus;

use crate::coverage::{BEYOND_SEEDS, ON_DISKS};
use crate::run::{RunOptions, RunReport, run};
use crate::seed_ranges::ALL_ON_DISKS;
use crate::subject::{AnyPlantedBug, Subject};
use shoal_registry::Protocol;

/// A function that runs a seed.
pub type Runner = fn(u64, RunOptions) -> RunReport;

/// An engine as the command line simulates it.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedEngine {
    /// The engine's name.
    pub name: &'static str,
    /// Runs a seed on the engine.
    pub run: Runner,
    /// The names of the bugs that can be planted in this engine only.
    pub bugs: fn() -> Vec<&'static str>,
    /// Coverage points that its seeds are not required to reach: [`Subject::NOT_REACHED`].
    pub not_reached: &'static [&'static [&'static str]],
    /// Counters of rare paths of its own: [`Subject::PATHS`].
    paths: &'static [&'static str],
}

impl SimulatedEngine {
    /// The simulation of an engine of the registry.
    pub fn of(protocol: Protocol) -> SimulatedEngine {
        match protocol {
            Protocol::Mako => SimulatedEngine::with::<shoal_mako::Mako>(),
            Protocol::TwoPhaseCommit => {
                SimulatedEngine::with::<shoal_two_phase_commit::TwoPhaseCommit>()
            }
            Protocol::Zeus => SimulatedEngine::with::<shoal_zeus::Zeus>(),
            Protocol::Tiga => SimulatedEngine::with::<shoal_tiga::Tiga>(),
        }
    }

    /// Whether its seeds from this one on are required to reach a coverage point of the simulator.
    pub fn is_to_reach(&self, point: &str, first: u64) -> bool {
        let on_disks = ON_DISKS.iter().find(|(other, _)| *other == point);
        let is_possible = match on_disks {
            Some((_, seeds)) => seeds.contains(&first),
            None => !ALL_ON_DISKS.contains(&first),
        };
        is_possible
            && !self.not_reached.iter().any(|points| points.contains(&point))
            && !BEYOND_SEEDS.contains(&point)
    }

    /// The counters of rare paths of its own that its seeds from this one on are required to reach: [`Subject::PATHS`].
    pub fn paths(&self, first: u64) -> &'static [&'static str] {
        if ALL_ON_DISKS.contains(&first) { &[] } else { self.paths }
    }

    /// All engines, in the order of the registry.
    pub fn all() -> impl Iterator<Item = SimulatedEngine> {
        Protocol::ALL.iter().copied().map(SimulatedEngine::of)
    }

    fn with<E: Subject>() -> SimulatedEngine {
        let bugs = || E::BUGS.iter().map(|(name, _)| *name).collect();
        SimulatedEngine {
            name: E::PROTOCOL.name(),
            run: run::<E>,
            bugs,
            not_reached: E::NOT_REACHED,
            paths: E::PATHS,
        }
    }
}

impl AnyPlantedBug {
    /// The bug of this name, in the shared runtime or in some engine.
    pub fn named(name: &str) -> Option<AnyPlantedBug> {
        let shared = AnyPlantedBug::NAMED.iter().find(|(other, _)| *other == name);
        let mut own = SimulatedEngine::all().flat_map(|engine| (engine.bugs)());
        shared.map(|(_, bug)| *bug).or_else(|| own.find(|own| *own == name).map(AnyPlantedBug::Own))
    }

    /// The names of all bugs, each once.
    pub fn names() -> Vec<&'static str> {
        let own = SimulatedEngine::all().flat_map(|engine| (engine.bugs)());
        let mut names: Vec<_> =
            AnyPlantedBug::NAMED.iter().map(|(name, _)| *name).chain(own).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
