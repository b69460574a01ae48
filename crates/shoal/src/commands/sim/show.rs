//! `shoal sim show`: what the engines promise of speed, and of failures, in virtual time.

use crate::commands::{CommandError, CommandOutcome, print, reserve, write};
use crate::progress::ShowBar;
use clap::{Args, ValueEnum};
use shoal_sim::demonstrations::{
    Demonstration, DemonstrationOptions, DemonstrationResults, Size, report,
};
use std::path::{Path, PathBuf};

/// Show how fast the engines are, and what a failure looks like: distances and processors are made up, the code is the real one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal sim show latency
  shoal sim show failure --report failure.html
  shoal sim show rollback --small
  shoal sim show all

docs/performance.md tells what is shown, and what it means.

Exit codes: 0 every target was met, 1 one was missed, 2 the command line is wrong")]
pub struct Show {
    /// What to show
    #[arg(value_enum, default_value_t = What::All)]
    what: What,
    /// Where all chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Slow processors and few clients: over in less than a minute
    #[arg(long)]
    small: bool,
    /// Write tables and plots into this file, one HTML page [default, where there are plots:
    /// shoal-failure.html, shoal-rollback.html or shoal-all.html]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    no_progress: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// How long a commit takes where there is little to do
    Latency,
    /// How throughput depends on the distance between datacenters
    Distance,
    /// Which clients a shard that becomes slow delays
    SlowShard,
    /// How large stamps are that keep everything, and those that keep what matters
    Stamps,
    /// What the failure of a shard does to it and to the others
    Failure,
    /// How much is rolled back when a shard fails
    Rollback,
    /// All of them
    All,
}

impl What {
    fn demonstrations(self) -> Vec<Demonstration> {
        match self {
            What::Latency => vec![Demonstration::Latency],
            What::Distance => vec![Demonstration::Distance],
            What::SlowShard => vec![Demonstration::SlowShard],
            What::Stamps => vec![Demonstration::Stamps],
            What::Failure => vec![Demonstration::Failure],
            What::Rollback => vec![Demonstration::Rollback],
            What::All => Demonstration::ALL.to_vec(),
        }
    }

    /// Where its report goes if the command line does not say where; `None` if it has no plots.
    fn report(self) -> Option<&'static Path> {
        match self {
            What::Latency | What::Distance | What::SlowShard | What::Stamps => None,
            What::Failure => Some(Path::new("shoal-failure.html")),
            What::Rollback => Some(Path::new("shoal-rollback.html")),
            What::All => Some(Path::new("shoal-all.html")),
        }
    }
}

impl Show {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let bar = ShowBar::new(!self.no_progress);
        let orders = DemonstrationOptions {
            seed: self.seed,
            size: if self.small { Size::Small } else { Size::Full },
            watcher: bar.watcher(),
        };
        let path = self.report.as_deref().or(self.what.report());
        path.map_or(Ok(()), reserve)?;
        let mut all_results = Vec::new();
        for demonstration in self.what.demonstrations() {
            let results = demonstration.show(&orders).map_err(CommandError::Database)?;
            bar.aside(|| print(&results.to_string()))?;
            all_results.push(results);
        }
        bar.finish();
        if let Some(path) = path {
            write(path, &report::html(&all_results, self.seed))?;
            print(&format!("the report is {}\n", path.display()))?;
        }
        let holds = all_results.iter().all(DemonstrationResults::holds);
        print(if holds { "every target was met\n" } else { "a target was MISSED\n" })?;
        Ok(if holds { CommandOutcome::Holds } else { CommandOutcome::Fails })
    }
}
