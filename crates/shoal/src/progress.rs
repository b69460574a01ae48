//! The progress bars, on standard error. They hide themselves where that is no terminal.

use indicatif::{ProgressBar, ProgressStyle};
use shoal_explore::SearchProgress;
use shoal_sim::demonstrations::{self, ProgressWatcher};
use shoal_workloads::bench::{BenchProgress, Stage};
use shoal_workloads::report::words;
use std::rc::Rc;
use std::time::Duration;

/// A bar in our style, or one that shows nothing.
fn styled(visible: bool) -> ProgressBar {
    let bar = if visible { ProgressBar::new(1) } else { ProgressBar::hidden() };
    let template = "{prefix:>12} {bar:32.cyan/dim} {percent:>3} %  {msg}";
    // A template of our own that is wrong is shown by the first run on a terminal.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}

/// A bar that follows the stages of a bench.
pub struct Bar {
    bar: ProgressBar,
    runs: usize,
    shown: Option<(usize, Stage)>,
    /// Of several benches the one it follows.
    of_several: String,
}

impl Bar {
    /// A bar for this many runs, or one that shows nothing.
    pub fn new(runs: usize, visible: bool) -> Bar {
        Bar { bar: styled(visible), runs, shown: None, of_several: String::new() }
    }

    /// From now on it follows another bench: that number, from 0, of so many, in words.
    pub fn next(&mut self, number: usize, of: usize, words: &str) {
        self.shown = None;
        self.of_several = format!("  {} of {of}: {words}", number + 1);
    }

    /// Shows the progress of a bench.
    pub fn show(&mut self, progress: BenchProgress) {
        if self.shown != Some((progress.run, progress.stage)) {
            self.shown = Some((progress.run, progress.stage));
            self.bar.reset();
            self.bar.set_prefix(match progress.stage {
                Stage::Preparing => "preparing",
                Stage::Loading => "loading",
                Stage::WarmingUp => "warming up",
                Stage::Measuring => "measuring",
                Stage::Checking => "checking",
            });
        }
        let rate = match progress.stage {
            Stage::Preparing => "taking memory from the system".into(),
            Stage::Loading => format!("{} rows/s", words::rate(progress.per_s)),
            Stage::WarmingUp | Stage::Measuring => format!("{} /s", words::rate(progress.per_s)),
            Stage::Checking => format!("about {} rows", words::count(progress.of)),
        };
        let run = match self.runs {
            1 => String::new(),
            runs => format!("  run {} of {runs}", progress.run + 1),
        };
        self.bar.set_message(rate + &run + &self.of_several);
        self.bar.set_length(progress.of.max(1));
        self.bar.set_position(progress.done.min(progress.of));
    }

    /// Clears the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A bar that follows a simulation from seed to seed.
pub struct SeedsBar {
    bar: ProgressBar,
    seeds: u64,
    time: Option<Duration>,
}

impl SeedsBar {
    /// A bar for so many seeds, or for as many as fit into `time`.
    pub fn new(seeds: u64, time: Option<Duration>, visible: bool) -> SeedsBar {
        let bar = styled(visible);
        bar.set_prefix("simulating");
        bar.set_message("the first seeds");
        SeedsBar { bar, seeds, time }
    }

    /// Shows the progress: after so many seeds and so much time, with so many failures.
    pub fn show(&self, seeds: u64, elapsed: Duration, failures: u64) {
        let by_seeds = seeds as f64 / self.seeds as f64;
        let by_time = self.time.map_or(0.0, |time| elapsed.as_secs_f64() / time.as_secs_f64());
        let part = by_seeds.max(by_time).min(1.0);
        self.bar.set_length(1000);
        self.bar.set_position((part * 1000.0) as u64);
        let failed = if failures == 0 { String::new() } else { format!(", {failures} failed") };
        self.bar.set_message(format!("{} seeds{failed}", words::count(seeds)));
    }

    /// Writes something else meanwhile.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Clears the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A bar that follows demonstrations.
#[derive(Clone)]
pub struct ShowBar(ProgressBar);

impl ShowBar {
    /// One that is at the beginning, or one that shows nothing.
    pub fn new(visible: bool) -> ShowBar {
        let bar = styled(visible);
        bar.set_prefix("showing");
        bar.set_length(1000);
        ShowBar(bar)
    }

    /// Receives the progress of a demonstration, and shows it.
    pub fn watcher(&self) -> ProgressWatcher {
        let bar = self.0.clone();
        Rc::new(move |at: demonstrations::DemonstrationProgress| {
            bar.set_message(at.what);
            bar.set_position((at.done * 1000.0) as u64);
        })
    }

    /// Writes something else meanwhile.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }

    /// Clears the line.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// A bar that follows rounds.
pub struct RoundsBar(ProgressBar);

impl RoundsBar {
    /// A bar for so many rounds.
    pub fn new(rounds: u32, visible: bool) -> RoundsBar {
        let bar = styled(visible);
        bar.set_prefix("failing");
        bar.set_length(rounds.into());
        bar.set_message("the first round");
        RoundsBar(bar)
    }

    /// Shows that so many rounds are over, with so much wrong, of which the last was this.
    pub fn show(&self, rounds: u32, wrong: u64, last: &str) {
        let wrong = if wrong == 0 { String::new() } else { format!(", {wrong} WRONG") };
        self.0.set_position(rounds.into());
        self.0.set_message(format!("{rounds} rounds{wrong}, last: {last}"));
    }

    /// Writes something else meanwhile.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }

    /// Clears the line.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// A bar that follows a search through the states of a model.
pub struct ExploreBar {
    bar: ProgressBar,
    is_random: bool,
}

impl ExploreBar {
    /// A bar for so many states at most, or for so many random walks.
    pub fn new(of: u64, is_random: bool, visible: bool) -> ExploreBar {
        let bar = styled(visible);
        bar.set_prefix("exploring");
        bar.set_length(of);
        ExploreBar { bar, is_random }
    }

    /// The next scenario begins.
    pub fn begin(&self, scenario: &'static str) {
        self.bar.set_position(0);
        self.bar.set_message(scenario);
    }

    /// Shows how far the search is.
    pub fn show(&self, progress: SearchProgress) {
        self.bar.set_position(progress.done);
        if !self.is_random {
            self.bar.set_prefix(format!("depth {}", progress.depth));
        }
    }

    /// Clears the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
