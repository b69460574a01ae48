//! Arguments of simulations.

use crate::commands::shape::engine;
use crate::duration;
use clap::{Args, value_parser};
use shoal_server::Protocol;
use shoal_sim::planted::PLANTED;
use shoal_sim::{AnyPlantedBug, SimulatedEngine, SimulatedRegions};
use std::time::Duration;

/// What every simulation takes.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// The engine to simulate
    #[arg(long, default_value = Protocol::default().name(), value_parser = engine())]
    engine: Protocol,
    /// Threads, each running one seed at a time [default: one a core]
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Show no progress bar
    #[arg(long)]
    pub(super) no_progress: bool,
}

impl Common {
    pub(super) fn engine(&self) -> SimulatedEngine {
        SimulatedEngine::of(self.engine)
    }

    pub(super) fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(cores, usize::from)
    }
}

/// A bug and its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct BugChoice {
    pub(super) name: &'static str,
    pub(super) bug: AnyPlantedBug,
}

/// Bugs can be planted in this build, or the error says how to make one in which they can.
pub(super) fn plantable(is_built: bool) -> Result<(), String> {
    match is_built {
        true => Ok(()),
        false => Err("this build has no planted bugs; run one that has: \
                      cargo run --release --features shoal/planted -- sim --faults"
            .to_owned()),
    }
}

pub(super) fn fault(text: &str) -> Result<BugChoice, String> {
    plantable(PLANTED)?;
    let names = AnyPlantedBug::names();
    let found = names.iter().find(|name| **name == text);
    let choice = found.and_then(|name| Some(BugChoice { name, bug: AnyPlantedBug::named(name)? }));
    choice.ok_or_else(|| format!("there is no such bug; choose one of {}", names.join(", ")))
}

pub(super) fn regions(text: &str) -> Result<SimulatedRegions, String> {
    let named = SimulatedRegions::NAMED;
    let found = named.iter().find(|(name, _)| *name == text).map(|(_, regions)| *regions);
    found.ok_or_else(|| {
        format!(
            "there are no such regions; choose one of {}",
            named.map(|(name, _)| name).join(", ")
        )
    })
}

/// Minutes, with or without a unit.
pub(super) fn minutes(text: &str) -> Result<Duration, String> {
    let has_unit = text.ends_with(|c: char| c.is_alphabetic());
    duration::parse_positive(&if has_unit { text.to_owned() } else { format!("{text}m") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_planted_bugs_says_how_to_build_one_that_has_them() {
        let error = plantable(false).expect_err("there are none");
        assert!(error.contains("--features shoal/planted"), "{error}");
        plantable(PLANTED).expect("tests are built with them");
    }
}
