//! The progress bar, on standard error. It hides itself where that is no terminal.

use indicatif::{ProgressBar, ProgressStyle};
use workloads::bench::{Progress, Stage};
use workloads::report::words;

/// A bar that follows the stages of a bench.
pub struct Bar {
    bar: ProgressBar,
    runs: usize,
    shown: Option<(usize, Stage)>,
}

impl Bar {
    /// A bar for this many runs, or one that shows nothing.
    pub fn new(runs: usize, visible: bool) -> Bar {
        let bar = if visible { ProgressBar::new(1) } else { ProgressBar::hidden() };
        let template = "{prefix:>12} {bar:32.cyan/dim} {percent:>3} %  {msg}";
        // A template of our own that is wrong is shown by the first run on a terminal.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Bar { bar, runs, shown: None }
    }

    /// Shows where the bench stands.
    pub fn show(&mut self, progress: Progress) {
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
        self.bar.set_message(rate + &run);
        self.bar.set_length(progress.of.max(1));
        self.bar.set_position(progress.done.min(progress.of));
    }

    /// Clears the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
