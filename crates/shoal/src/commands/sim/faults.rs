//! `shoal sim --faults`: every planted bug, and which rule catches it.

use super::arguments::{Common, plantable};
use super::search::{SearchTally, SeedSearch};
use crate::commands::{CommandError, CommandOutcome, print};
use crate::duration::span;
use crate::progress::SeedsBar;
use crate::terminal::table;
use clap::Args;
use shoal_sim::RunOptions;
use shoal_sim::planted::{self, PLANTED, PlantedBugCase};
use shoal_workloads::report::words;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Plant every bug in turn, and see each caught
///
/// Each bug is run at the seed that is recorded for it; where that does not catch it any more, and with --search, the
/// seeds that it is given are searched. A checker that has never caught anything proves nothing, and neither does a
/// failure of something else than the rules that are to catch the bug.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal sim --faults                        at the recorded seeds
  shoal sim --faults --search               by search, as if nothing were recorded
  shoal sim --faults --search --record crates/sim/src/caught.txt

Exit codes: 0 every bug was caught, 1 one was not, 2 the command line is wrong")]
pub struct FaultsCommand {
    /// Search for seeds that catch the bugs, and use no recorded ones
    #[arg(long)]
    search: bool,
    /// The first seed of each search; a later one, where those before do not have what a bug needs
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Write the seeds that caught the bugs of this engine into this file, which keeps the lines of others
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// A bug, and how it was looked for.
struct BugSearch {
    planted: PlantedBugCase,
    tally: SearchTally,
    /// The recorded seed caught it.
    as_recorded: bool,
}

/// Seeds to look through: `count` of them from `first` on.
#[derive(Debug, Clone, Copy)]
struct SeedRange {
    first: u64,
    count: u64,
}

impl FaultsCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        plantable(PLANTED).map_err(CommandError::Usage)?;
        let engine = self.common.engine().name;
        let bugs = planted::all(engine);
        print(&format!("{engine}, {} planted bugs\n\n", bugs.len()))?;
        let found: Vec<BugSearch> = match self.search {
            true => bugs.into_iter().map(|planted| self.searched(planted)).collect(),
            false => self.recorded(&bugs),
        };
        let rows = found.iter().map(row);
        print(&table(
            ["planted bug", "rule", "caught by", "at seed", "needed", "given", "time"],
            rows,
        ))?;
        let missed = found.iter().filter(|found| found.tally.first_failure.is_none()).count();
        print(&match missed {
            0 => "\n\nevery bug was caught\n".to_owned(),
            missed => format!("\n\n{missed} of {} bugs were not caught\n", found.len()),
        })?;
        let stale = found.iter().filter(|found| !found.as_recorded);
        let stale: Vec<&str> = stale.map(|found| found.planted.name).collect();
        if !self.search && !stale.is_empty() {
            print(&format!(
                "not caught at the recorded seed: {}. To record others:\n\n  \
                 shoal sim --faults --search --engine {engine} --record crates/sim/src/caught.txt\n",
                stale.join(", ")
            ))?;
        }
        if let Some(file) = &self.record {
            record(file, &found).map_err(|error| CommandError::file("write", file, error))?;
        }
        Ok(if missed == 0 { CommandOutcome::Holds } else { CommandOutcome::Fails })
    }

    /// Each bug at its recorded seed; all threads take bugs.
    fn recorded(&self, bugs: &[PlantedBugCase]) -> Vec<BugSearch> {
        let bar = SeedsBar::new(bugs.len() as u64, None, !self.common.no_progress);
        let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let began = crate::clock::now();
        thread::scope(|scope| {
            for _ in 0..self.common.jobs() {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(planted) = bugs.get(at) else { break };
                        let one = self.at_recorded(*planted);
                        let mut all = found.lock().expect("no holder of the lock panics");
                        all.insert(at, one);
                        bar.show(all.len() as u64, crate::clock::now() - began, 0);
                    }
                });
            }
        });
        bar.finish();
        found.into_inner().expect("no holder of the lock panics").into_values().collect()
    }

    fn at_recorded(&self, planted: PlantedBugCase) -> BugSearch {
        let mut all = SearchTally::default();
        if let Some(seed) = planted.seed {
            self.look(&planted, SeedRange { first: seed, count: 1 }, 1, &mut all, &mut |_| {});
            if all.first_failure.is_some() {
                return BugSearch { planted, tally: all, as_recorded: true };
            }
        }
        let seeds = SeedRange { first: self.first.max(planted.first), count: planted.within };
        self.look(&planted, seeds, 1, &mut all, &mut |_| {});
        BugSearch { planted, tally: all, as_recorded: false }
    }

    fn searched(&self, planted: PlantedBugCase) -> BugSearch {
        let bar = SeedsBar::new(planted.within, None, !self.common.no_progress);
        let mut all = SearchTally::default();
        let mut show = |tally: &SearchTally| bar.show(tally.seeds, tally.elapsed, tally.failures);
        let seeds = SeedRange { first: self.first.max(planted.first), count: planted.within };
        self.look(&planted, seeds, self.common.jobs(), &mut all, &mut show);
        bar.finish();
        BugSearch { planted, tally: all, as_recorded: false }
    }

    /// Looks through so many seeds for the first that catches the bug, and adds what was found to `all`.
    fn look(
        &self,
        planted: &PlantedBugCase,
        seeds: SeedRange,
        jobs: usize,
        all: &mut SearchTally,
        show: &mut dyn FnMut(&SearchTally),
    ) {
        let SeedRange { first, count } = seeds;
        let mut search = SeedSearch {
            run: self.common.engine().run,
            orders: RunOptions { bug: Some(planted.bug), ..RunOptions::default() },
            first,
            count: count.min(u64::MAX - first),
            time: None,
            twice_every: 0,
            jobs,
            keep_going: false,
        };
        loop {
            let tally = search.run(&mut |tally, _| show(tally));
            all.elapsed += tally.elapsed;
            let Some((number, seed, rule)) = tally.first_failure else {
                all.seeds += tally.seeds;
                break;
            };
            all.seeds += number + 1;
            if planted.is_caught_by(rule) {
                all.first_failure = Some((all.seeds - 1, seed, rule));
                break;
            }
            // Something else failed, which proves nothing of this rule's checker.
            search.first += number + 1;
            search.count -= number + 1;
        }
    }
}

/// Writes the seeds that caught bugs into a file of recorded seeds, in order, in the place of those it had.
fn record(file: &Path, found: &[BugSearch]) -> std::io::Result<()> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    for line in text.lines() {
        if let Some((bug, seed)) = line.rsplit_once(' ') {
            lines.insert(bug.to_owned(), seed.to_owned());
        }
    }
    for BugSearch { planted, tally, .. } in found {
        if let Some((_, seed, _)) = tally.first_failure {
            lines.insert(format!("{} {}", planted.engine, planted.name), seed.to_string());
        }
    }
    let text: String = lines.iter().map(|(bug, seed)| format!("{bug} {seed}\n")).collect();
    std::fs::write(file, text)
}

fn row(found: &BugSearch) -> [String; 7] {
    let BugSearch { planted, tally, .. } = found;
    let (by, seed, needed) = match tally.first_failure {
        Some((number, seed, rule)) => (rule.to_owned(), seed.to_string(), words::count(number + 1)),
        None => {
            ("NOT CAUGHT".to_owned(), "–".to_owned(), format!("> {}", words::count(tally.seeds)))
        }
    };
    let (name, rule) = (planted.name.to_owned(), planted.rule.to_owned());
    [name, rule, by, seed, needed, words::count(planted.within), span(tally.elapsed)]
}
