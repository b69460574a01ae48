//! `shoal explore`: models of protocols, searched for states that break their rules.

use super::{CommandError, CommandOutcome, print};
use crate::progress::ExploreBar;
use crate::terminal::table;
use clap::{Args, value_parser};
use shoal_explore::{
    Exploration, PROTOCOLS, Protocol, ScenarioInfo, ScenarioSize, SearchBounds, SearchMethod,
    Switch, WalkBounds,
};
use shoal_workloads::report::words;
use std::fmt::Write;

/// Search models of the protocols for states that break their rules
///
/// A model says what can happen in a protocol: messages arrive, are lost or repeated, nodes crash. The
/// search visits every state of each scenario, the near ones first, or follows random actions, until a
/// rule is broken, and then prints the actions that led there. Scenarios with too many states are
/// searched with --random only. Without a protocol, the protocols are listed with their rules.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal explore                                      the protocols, their scenarios and rules
  shoal explore zeus                                 every state of all scenarios within the bounds
  shoal explore zeus --scenario move-read --without wait-for-reads
  shoal explore zeus --scenario random --random --seeds 100000

Exit codes: 0 no rule is broken, 1 a rule is broken, 2 the command line is wrong")]
pub struct Explore {
    /// The protocol whose models are searched; without one, the protocols are listed
    protocol: Option<String>,
    /// One scenario instead of all
    #[arg(long, value_name = "NAME", requires = "protocol")]
    scenario: Option<String>,
    /// Switch a rule of the protocol off
    #[arg(long, value_name = "RULE", requires = "protocol")]
    without: Vec<String>,
    /// Follow random actions instead of visiting every state
    #[arg(long, requires = "protocol")]
    random: bool,
    /// With --random: so many walks for each scenario, a seed each
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "random")]
    #[arg(value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    seeds: u64,
    /// With --random: the first seed
    #[arg(long, value_name = "N", default_value_t = 0, requires = "random")]
    #[arg(value_parser = value_parser!(u64).range(0..=1_000_000_000_000))]
    first: u64,
    /// Visit no more states than this in each scenario: a million takes some 100 MiB
    #[arg(long, value_name = "N", default_value_t = 1_000_000, conflicts_with = "random")]
    #[arg(value_parser = value_parser!(u64).range(1..=4_000_000_000))]
    states_max: u64,
    /// Show no progress bar
    #[arg(long)]
    no_progress: bool,
}

impl Explore {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let Some(name) = &self.protocol else {
            return print(&list()).map(|()| CommandOutcome::Holds);
        };
        let protocol = protocol(name)?;
        let without = self.without.iter().map(|name| switch(protocol, name));
        let without = without.collect::<Result<Vec<&Switch>, CommandError>>()?;
        let scenarios = self.scenarios(protocol)?;
        let method = match self.random {
            true => SearchMethod::RandomWalks(WalkBounds {
                first_seed: self.first,
                walks: self.seeds,
                ..WalkBounds::default()
            }),
            false => SearchMethod::Exhaustive(SearchBounds {
                states_max: self.states_max,
                ..SearchBounds::default()
            }),
        };
        let of = if self.random { self.seeds } else { self.states_max };
        let bar = ExploreBar::new(of, self.random, !self.no_progress);
        let mut found = Vec::new();
        for scenario in scenarios {
            bar.begin(scenario.name);
            let mut progress = |progress| bar.show(progress);
            found.push((scenario, (protocol.explore)(scenario, &without, method, &mut progress)));
        }
        bar.finish();
        print(&report(&found, self.random))?;
        let is_broken = found.iter().any(|(_, found)| found.counterexample.is_some());
        Ok(if is_broken { CommandOutcome::Fails } else { CommandOutcome::Holds })
    }

    /// The requested scenario, or all that can be searched in this way.
    fn scenarios(
        &self,
        protocol: &'static Protocol,
    ) -> Result<Vec<&'static ScenarioInfo>, CommandError> {
        let Some(name) = &self.scenario else {
            let all = protocol.scenarios.iter();
            let fits =
                |scenario: &&ScenarioInfo| self.random || scenario.size != ScenarioSize::Unbounded;
            return Ok(all.filter(fits).collect());
        };
        let known = protocol.scenarios.iter().map(|scenario| scenario.name);
        let scenario = protocol.scenario(name);
        let scenario = scenario.ok_or_else(|| unknown("scenario", name, protocol.name, known))?;
        Ok(vec![scenario])
    }
}

fn protocol(name: &str) -> Result<&'static Protocol, CommandError> {
    let known = PROTOCOLS.iter().map(|protocol| protocol.name);
    let found = PROTOCOLS.iter().find(|protocol| protocol.name == name);
    found.copied().ok_or_else(|| unknown("protocol", name, "the explorer", known))
}

fn switch(protocol: &'static Protocol, name: &str) -> Result<&'static Switch, CommandError> {
    let known = protocol.switches.iter().map(|switch| switch.name);
    protocol.switch(name).ok_or_else(|| unknown("rule", name, protocol.name, known))
}

/// The error that this name is unknown, and the names that are known.
fn unknown<'a>(
    what: &str,
    name: &str,
    of: &str,
    known: impl Iterator<Item = &'a str>,
) -> CommandError {
    let known: Vec<&str> = known.collect();
    CommandError::Usage(format!("{of} has no {what} {name}; it has: {}", known.join(", ")))
}

/// All protocols, with scenarios and rules.
fn list() -> String {
    let mut text = String::new();
    for protocol in PROTOCOLS {
        _ = writeln!(text, "{}: {}\n\nscenarios:", protocol.name, protocol.about);
        for scenario in protocol.scenarios {
            let size = match scenario.size {
                ScenarioSize::Small => "",
                ScenarioSize::Large => " (large)",
                ScenarioSize::Unbounded => " (random walks only)",
            };
            _ = writeln!(text, "  {:24} {}{size}", scenario.name, scenario.about);
        }
        _ = writeln!(text, "\nrules, and what happens without each:");
        for switch in protocol.switches {
            _ = writeln!(text, "  {:24} {}: {}", switch.name, switch.rule, switch.without);
        }
        text.push('\n');
    }
    text
}

/// A table of the scenarios, and each counterexample in words.
fn report(found: &[(&ScenarioInfo, Exploration)], is_random: bool) -> String {
    let rows = found.iter().map(|(scenario, found)| {
        let verdict = match (&found.counterexample, found.is_complete || is_random) {
            (Some(counterexample), _) => counterexample.violation.rule,
            (None, true) => "holds",
            (None, false) => "bound reached",
        };
        [
            scenario.name.to_owned(),
            words::count(found.states),
            words::count(found.transitions),
            words::count(found.depth as u64),
            verdict.to_owned(),
        ]
    });
    let mut text = table(["scenario", "states", "transitions", "depth", "verdict"], rows) + "\n";
    for (scenario, found) in found {
        let Some(counterexample) = &found.counterexample else { continue };
        _ = writeln!(text, "\n{}: {}\n", scenario.name, counterexample.violation);
        for (number, action) in counterexample.actions.iter().enumerate() {
            _ = writeln!(text, "{:4}. {action}", number + 1);
        }
    }
    text
}
