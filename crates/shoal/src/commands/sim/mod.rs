//! `shoal sim`: whole clusters in virtual time, from seeds.
//!
//! | file | holds |
//! |---|---|
//! | `arguments.rs` | arguments that several of these commands take |
//! | `search.rs` | seeds, one after another, on all threads |
//! | `summary.rs` | what was found, in words and tables |
//! | `faults.rs` | `--faults`: every planted bug, and the rule that catches it |
//! | `show.rs` | `show`: how fast the engines are |

mod arguments;
mod faults;
mod search;
mod show;
mod summary;

use super::{CommandError, CommandOutcome, print};
use crate::progress::SeedsBar;
use arguments::{BugChoice, Common, fault, minutes, regions};
use clap::{Args, Subcommand, value_parser};
use search::{SearchTally, SeedSearch};
use shoal_sim::{RunOptions, SimulatedEngine, SimulatedRegions};
use std::time::Duration;

/// The default number of seeds.
const SEEDS: u64 = 100;

/// Simulate whole clusters, one for each seed, and judge every rule
///
/// A seed stands for a cluster, its network, its clocks, what goes wrong, its clients and what they do.
/// It decides everything, so that all it finds can be found again. docs/simulation.md describes what is
/// simulated and how a failure is read.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  shoal sim                                       a hundred seeds, new ones each time
  shoal sim --seed 42                             one seed, run twice and compared
  shoal sim --seeds 1000 --first 0 --keep-going   all that fail among these
  shoal sim --minutes 30                          as many as fit
  shoal sim --regions tiga                        in the four regions of the evaluation of Tiga
  shoal sim --fault count-learner --seeds 500     how soon is a planted bug caught?
  shoal sim --faults                              all planted bugs
  shoal sim show                                  how fast the engines are

Exit codes: 0 every rule was kept (or the planted bug caught), 1 a rule was broken (or the bug not
caught, or with --reach a coverage point not reached), 2 the command line is wrong"
)]
pub struct Sim {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    seeds: Seeds,
}

/// What else can be simulated.
#[derive(Debug, Subcommand)]
enum Other {
    #[command(long_flag = "faults")]
    Faults(faults::FaultsCommand),
    Show(show::Show),
}

#[derive(Debug, Args)]
struct Seeds {
    /// Run this seed only
    #[arg(long, conflicts_with_all = ["seeds", "first", "minutes"])]
    seed: Option<u64>,
    /// Run so many seeds [default: 100, or what fits into --minutes]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed; the others follow it [default: drawn, and printed]
    #[arg(long)]
    first: Option<u64>,
    /// Begin no seed after so long
    #[arg(long, value_parser = minutes)]
    minutes: Option<Duration>,
    /// Plant this bug, and see it caught
    #[arg(long, value_name = "NAME", value_parser = fault)]
    fault: Option<BugChoice>,
    /// Lines of trace to print of a run that failed
    #[arg(long, value_name = "LINES", default_value_t = 40, value_parser = value_parser!(u32).range(..=1_000_000))]
    trace: u32,
    /// Run the first seed and each EVERY-th after it twice, and compare; 0 for none
    #[arg(long, value_name = "EVERY", default_value_t = 20)]
    twice: u64,
    /// Fail, too, if a coverage point was never reached: so many seeds should reach all
    #[arg(long)]
    reach: bool,
    /// Let no node fail, also where seeds have failures
    #[arg(long)]
    calm: bool,
    /// Take these distances, and as many datacenters, instead of the seed's: three (50 ms there and back), tiga
    #[arg(long, value_name = "NAME", value_parser = regions)]
    regions: Option<SimulatedRegions>,
    /// Go on after a failure
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    common: Common,
}

impl Sim {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        match &self.other {
            Some(Other::Faults(faults)) => faults.run(),
            Some(Other::Show(show)) => show.run(),
            None => self.seeds.run(),
        }
    }
}

impl Seeds {
    fn run(&self) -> Result<CommandOutcome, CommandError> {
        let SimulatedEngine { name: engine, bugs, .. } = self.common.engine();
        if let Some(fault) = self.fault
            && !fault.bug.is_in(&bugs())
        {
            let what = format!("{engine} has no bug {}; choose another --engine", fault.name);
            return Err(CommandError::Usage(what));
        }
        let first = self.seed.or(self.first).unwrap_or_else(search::somewhere);
        let count = match (self.seed, self.seeds, self.minutes) {
            (Some(_), _, _) => 1,
            (None, Some(seeds), _) => seeds,
            (None, None, Some(_)) => u64::MAX - first,
            (None, None, None) => SEEDS,
        };
        let count = count.min(u64::MAX - first).max(1);
        let search = SeedSearch {
            run: self.common.engine().run,
            orders: RunOptions {
                bug: self.fault.map(|planted| planted.bug),
                trace_lines: self.trace as usize,
                calm: self.calm,
                regions: self.regions,
                twice: false,
            },
            first,
            count,
            time: self.minutes,
            twice_every: self.twice,
            jobs: self.common.jobs(),
            keep_going: self.keep_going,
        };
        // First of all, so that nothing that happens later takes it away.
        print(&summary::opening(self.common.engine().name, self.fault, &search))?;
        let bar = SeedsBar::new(count, self.minutes, !self.common.no_progress);
        let mut printed = Ok(());
        let tally = search.run(&mut |tally, failed| {
            if let Some(report) = failed
                && printed.is_ok()
            {
                let text = summary::failure(&self.again(report.seed), report);
                printed = bar.aside(|| print(&text));
            }
            bar.show(tally.seeds, tally.elapsed, tally.failures);
        });
        bar.finish();
        printed?;
        self.conclude(first, &tally)
    }

    /// The command that shows a seed again.
    fn again(&self, seed: u64) -> String {
        let mut command = format!("shoal sim --engine {} --seed {seed}", self.common.engine().name);
        if let Some(BugChoice { name, .. }) = self.fault {
            command += &format!(" --fault {name}");
        }
        let regions = SimulatedRegions::NAMED.iter().find(|(_, it)| Some(*it) == self.regions);
        if let Some((name, _)) = regions {
            command += &format!(" --regions {name}");
        }
        if self.calm {
            command += " --calm";
        }
        command + &format!(" --trace {}", self.trace)
    }

    fn conclude(&self, first: u64, tally: &SearchTally) -> Result<CommandOutcome, CommandError> {
        print(&summary::tables(self.common.engine(), first, tally))?;
        print(&summary::verdict(self.common.engine().name, self.fault, first, tally))?;
        let unreached = summary::unreached(self.common.engine(), first, tally);
        if self.reach && !unreached.is_empty() {
            print(&format!("never reached: {}\n", unreached.join(", ")))?;
            return Ok(CommandOutcome::Fails);
        }
        // A planted bug is there to be caught.
        let as_expected = (tally.failures > 0) == self.fault.is_some();
        Ok(if as_expected { CommandOutcome::Holds } else { CommandOutcome::Fails })
    }
}
