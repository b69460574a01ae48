//! `shoal sim --faults`: every planted bug, and who catches it.

use super::search::{Search, Tally};
use super::{Common, Trouble, Verdict, print};
use crate::duration::span;
use crate::progress::SeedsBar;
use crate::terminal::table;
use ::sim::Orders;
use ::sim::planted::{self, Planted};
use clap::Args;
use workloads::report::words;

/// Plant every bug in turn, and see each caught within the seeds it is given
///
/// A checker that has never caught anything proves nothing, and neither does a failure of something else
/// than the rules that are to catch the bug.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shoal sim --faults

Exit codes: 0 every bug was caught, 1 one was not, 2 the command line is wrong")]
pub struct Faults {
    /// The first seed for each [default: 0, and for what few seeds catch one that does]
    #[arg(long)]
    first: Option<u64>,
    #[command(flatten)]
    common: Common,
}

impl Faults {
    pub(super) fn run(&self) -> Result<Verdict, Trouble> {
        let engine = self.common.engine.name;
        let bugs = planted::all(engine);
        print(&format!("{engine}, {} planted bugs\n\n", bugs.len()))?;
        let found: Vec<(Planted, Tally)> =
            bugs.into_iter().map(|planted| (planted, self.search(planted))).collect();
        let rows = found.iter().map(|(planted, tally)| row(planted, tally));
        print(&table(
            ["planted bug", "rule", "caught by", "at seed", "needed", "given", "time"],
            rows,
        ))?;
        let missed = found.iter().filter(|(_, tally)| tally.first_failure.is_none()).count();
        print(&match missed {
            0 => "\n\nevery bug was caught\n".to_owned(),
            missed => format!("\n\n{missed} of {} bugs were not caught\n", found.len()),
        })?;
        Ok(if missed == 0 { Verdict::Holds } else { Verdict::Fails })
    }

    fn search(&self, planted: Planted) -> Tally {
        let bar = SeedsBar::new(planted.within, None, !self.common.no_progress);
        let first = self.first.unwrap_or(planted.first);
        let mut search = Search {
            run: self.common.engine.run,
            orders: Orders { bug: Some(planted.bug), ..Orders::default() },
            first,
            count: planted.within.min(u64::MAX - first),
            time: None,
            twice_every: 0,
            jobs: self.common.jobs(),
            keep_going: false,
        };
        let mut all = Tally::default();
        loop {
            let tally =
                search.run(&mut |tally, _| bar.show(tally.seeds, tally.elapsed, tally.failures));
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
        bar.finish();
        all
    }
}

fn row(planted: &Planted, tally: &Tally) -> [String; 7] {
    let (by, seed, needed) = match tally.first_failure {
        Some((number, seed, rule)) => (rule.to_owned(), seed.to_string(), words::count(number + 1)),
        None => {
            ("NOT CAUGHT".to_owned(), "–".to_owned(), format!("> {}", words::count(tally.seeds)))
        }
    };
    let (name, rule) = (planted.name.to_owned(), planted.rule.to_owned());
    [name, rule, by, seed, needed, words::count(planted.within), span(tally.elapsed)]
}
