//! `shoal reproduce`: experiments of the papers, scaled down, beside the papers' numbers.

use super::{CommandError, CommandOutcome, print, reserve, write};
use crate::duration;
use crate::progress::{Bar, ShowBar};
use crate::reproduce::{Budget, ExperimentOutcome, Measured, about_failure, show_failure};
use clap::{Args, Subcommand, value_parser};
use shoal_sim::demonstrations::{DemonstrationOptions, Size};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Run a scaled-down experiment of the papers on Mako, Zeus and Tiga, and see the result beside the paper's numbers
///
/// Each says how it was scaled. Clients and all replicas share the cores of this machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal reproduce mako-fig9
  shoal reproduce mako-fig6 --duration 10s --runs 3
  shoal reproduce mako-fig13 --small
  shoal reproduce tiga-table1 --duration 3s
  shoal reproduce table-factor --json factors.json --html factors.html

docs/performance.md tells what came out on our machine.

Exit codes: 0 done, also where a target is missed; 1 the database failed; 2 the command line is wrong")]
pub struct Reproduce {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Throughput over the number of shards: TPC-C and the micro-benchmark
    #[command(after_help = "Example:\n  shoal reproduce mako-fig6 --duration 10s")]
    MakoFig6(MeasuredArgs),
    /// Batch size against throughput and latency
    #[command(after_help = "Example:\n  shoal reproduce mako-fig7 --html batches.html")]
    MakoFig7(MeasuredArgs),
    /// Latency under light load, in percentiles
    #[command(after_help = "Example:\n  shoal reproduce mako-fig8 --duration 20s")]
    MakoFig8(MeasuredArgs),
    /// Throughput over the share of transactions that leave their shard
    #[command(after_help = "Example:\n  shoal reproduce mako-fig9 --runs 3")]
    MakoFig9(MeasuredArgs),
    /// Throughput and aborts over the number of clients, with leaders far from each other
    #[command(after_help = "Example:\n  shoal reproduce mako-fig11 --json clients.json")]
    MakoFig11(MeasuredArgs),
    /// Throughput over the number of shards, for each form of stamps
    #[command(after_help = "Example:\n  shoal reproduce mako-fig12 --duration 2s")]
    MakoFig12(MeasuredArgs),
    /// A shard that fails, and what healthy ones notice: in virtual time
    #[command(after_help = "Example:\n  shoal reproduce mako-fig13 --small")]
    MakoFig13(ShownArgs),
    /// What each part of the system costs
    #[command(after_help = "Example:\n  shoal reproduce table-factor --runs 5")]
    TableFactor(MeasuredArgs),
    /// Handovers of a mobile network, beside the same with none that leaves its node
    #[command(after_help = "Example:\n  shoal reproduce zeus-fig7 --runs 3")]
    ZeusFig7(MeasuredArgs),
    /// SmallBank over the share of remote writes, beside engines whose objects stay
    #[command(after_help = "Example:\n  shoal reproduce zeus-fig8 --duration 3s")]
    ZeusFig8(MeasuredArgs),
    /// TATP over the share of remote writes, beside engines whose objects stay
    #[command(after_help = "Example:\n  shoal reproduce zeus-fig9 --html tatp.html")]
    ZeusFig9(MeasuredArgs),
    /// Objects that move in bulk, by themselves
    #[command(after_help = "Example:\n  shoal reproduce zeus-fig10 --runs 3")]
    ZeusFig10(MeasuredArgs),
    /// Objects that move in bulk, beside transactions that move nothing
    #[command(after_help = "Example:\n  shoal reproduce zeus-fig11 --duration 10s")]
    ZeusFig11(MeasuredArgs),
    /// How long a move takes, between processes; and what a commit costs that moves nothing
    #[command(after_help = "Example:\n  shoal reproduce zeus-fig12 --html latency.html")]
    ZeusFig12(MeasuredArgs),
    /// The most throughput, of the increments and of TPC-C
    #[command(after_help = "Example:\n  shoal reproduce tiga-table1 --duration 3s")]
    TigaTable1(MeasuredArgs),
    /// The same with leaders in three regions
    #[command(after_help = "Example:\n  shoal reproduce tiga-table2 --duration 3s")]
    TigaTable2(MeasuredArgs),
    /// Throughput and errors of clocks: the paper's numbers, not measured here
    #[command(after_help = "Example:\n  shoal reproduce tiga-table3")]
    TigaTable3(MeasuredArgs),
    /// Increments over rates, as clients in the leaders' region see it
    #[command(after_help = "Example:\n  shoal reproduce tiga-fig7 --html rates.html")]
    TigaFig7(MeasuredArgs),
    /// Increments over rates, as clients in a region without replicas see it
    #[command(after_help = "Example:\n  shoal reproduce tiga-fig8 --runs 3")]
    TigaFig8(MeasuredArgs),
    /// Increments over skews
    #[command(after_help = "Example:\n  shoal reproduce tiga-fig9 --duration 3s")]
    TigaFig9(MeasuredArgs),
    /// TPC-C over rates
    #[command(after_help = "Example:\n  shoal reproduce tiga-fig10 --json tpcc.json")]
    TigaFig10(MeasuredArgs),
    /// A leader that stops, and what clients notice
    #[command(after_help = "Example:\n  shoal reproduce tiga-fig11 --duration 4s")]
    TigaFig11(MeasuredArgs),
    /// Increments over skews, with leaders in one region and in three
    #[command(after_help = "Example:\n  shoal reproduce tiga-fig12 --html skews.html")]
    TigaFig12(MeasuredArgs),
    /// By how much timestamps are ahead
    #[command(after_help = "Example:\n  shoal reproduce tiga-fig13 --runs 3")]
    TigaFig13(MeasuredArgs),
    /// Latency by clock: what the paper says, not measured here
    #[command(after_help = "Example:\n  shoal reproduce tiga-fig14")]
    TigaFig14(MeasuredArgs),
}

/// What every experiment takes that is measured.
#[derive(Debug, Args)]
struct MeasuredArgs {
    /// Time of each measurement: 500ms, 10s, 2m
    #[arg(long, default_value = "5s", value_parser = duration::parse_positive)]
    duration: Duration,
    /// Time before each that does not count
    #[arg(long, default_value = "1s", value_parser = duration::parse)]
    warm_up: Duration,
    /// How often to measure each, every time on a fresh database; the medians are shown
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..=1000))]
    runs: u16,
    #[command(flatten)]
    common: Common,
}

/// What one takes that is shown in virtual time.
#[derive(Debug, Args)]
struct ShownArgs {
    /// Slow processors and few clients: over in less than a minute
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// Where all chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write everything to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write tables and plots into this file, one HTML page [default: shoal-NAME.html]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    no_progress: bool,
}

impl Reproduce {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let (what, args) = match &self.what {
            What::MakoFig6(args) => (Measured::Figure6, args),
            What::MakoFig7(args) => (Measured::Figure7, args),
            What::MakoFig8(args) => (Measured::Figure8, args),
            What::MakoFig9(args) => (Measured::Figure9, args),
            What::MakoFig11(args) => (Measured::Figure11, args),
            What::MakoFig12(args) => (Measured::Figure12, args),
            What::MakoFig13(args) => return args.run(),
            What::TableFactor(args) => (Measured::Factors, args),
            What::ZeusFig7(args) => (Measured::Handovers, args),
            What::ZeusFig8(args) => (Measured::SmallBank, args),
            What::ZeusFig9(args) => (Measured::Tatp, args),
            What::ZeusFig10(args) => (Measured::BulkMoves, args),
            What::ZeusFig11(args) => (Measured::MovesBesideVotes, args),
            What::ZeusFig12(args) => (Measured::MoveLatency, args),
            What::TigaTable1(args) => (Measured::TigaTable1, args),
            What::TigaTable2(args) => (Measured::TigaTable2, args),
            What::TigaTable3(args) => (Measured::TigaTable3, args),
            What::TigaFig7(args) => (Measured::TigaFigure7, args),
            What::TigaFig8(args) => (Measured::TigaFigure8, args),
            What::TigaFig9(args) => (Measured::TigaFigure9, args),
            What::TigaFig10(args) => (Measured::TigaFigure10, args),
            What::TigaFig11(args) => (Measured::TigaFigure11, args),
            What::TigaFig12(args) => (Measured::TigaFigure12, args),
            What::TigaFig13(args) => (Measured::TigaFigure13, args),
            What::TigaFig14(args) => (Measured::TigaFigure14, args),
        };
        args.run(what)
    }
}

impl MeasuredArgs {
    fn run(&self, what: Measured) -> Result<CommandOutcome, CommandError> {
        let experiment = what.experiment();
        let page = self.common.reserve(experiment.about.name)?;
        let budget = Budget {
            warm_up: self.warm_up,
            duration: self.duration,
            times: self.runs,
            seed: self.common.seed,
        };
        print(&experiment.opening(&budget))?;
        let mut bar = Bar::new(self.runs.into(), !self.common.no_progress);
        let mut measured = Vec::new();
        for (number, run) in experiment.runs.iter().enumerate() {
            bar.next(number, experiment.runs.len(), &run.words);
            measured.push(run.measure(&budget, &mut |at| bar.show(at)));
        }
        bar.finish();
        let outcome = ExperimentOutcome::measured(experiment, measured, self.common.seed);
        self.common.report(&outcome, &page)
    }
}

impl ShownArgs {
    fn run(&self) -> Result<CommandOutcome, CommandError> {
        let (about, seed) = (about_failure(), self.common.seed);
        let page = self.common.reserve(about.name)?;
        print(&about.opening())?;
        let bar = ShowBar::new(!self.common.no_progress);
        let size = if self.small { Size::Small } else { Size::Full };
        let shown = show_failure(&DemonstrationOptions { seed, size, watcher: bar.watcher() });
        bar.finish();
        let outcome = ExperimentOutcome::shown(about, shown.map_err(CommandError::Database)?, seed);
        self.common.report(&outcome, &page)
    }
}

impl Common {
    /// Makes sure that results can be written, and returns the path of the page.
    fn reserve(&self, name: &str) -> Result<PathBuf, CommandError> {
        let page = self.html.clone().unwrap_or_else(|| format!("shoal-{name}.html").into());
        self.json.iter().chain([&page]).try_for_each(|path| reserve(path))?;
        Ok(page)
    }

    /// A missed target is a valid result; a failed run is none.
    fn report(
        &self,
        outcome: &ExperimentOutcome,
        page: &Path,
    ) -> Result<CommandOutcome, CommandError> {
        // Files first: the terminal may be closed before all is printed.
        if let Some(path) = &self.json {
            write(path, &outcome.json())?;
        }
        write(page, &outcome.html())?;
        print(&outcome.text())?;
        print(&format!("the report is {}\n", page.display()))?;
        match outcome.failures() {
            0 => Ok(CommandOutcome::Holds),
            failures => {
                Err(CommandError::Database(format!("{failures} runs came to nothing; see above")))
            }
        }
    }
}
