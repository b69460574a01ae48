//! A profile of this process while a bench measures, by `perf` where that works.

use shoal_workloads::bench::{BenchProgress, Stage};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Samples a second of each processor.
const HERTZ: &str = "997";

/// The functions that are shown.
const SHOWN: usize = 20;

/// Records a profile of the first measured run.
pub struct Profiler {
    file: PathBuf,
    span: Duration,
    recorder: Option<Child>,
}

impl Profiler {
    /// A profile of a measurement that takes so long, in a new file.
    ///
    /// # Errors
    /// A sentence, where there is no `perf` on this machine or it may not be used.
    pub fn new(file: &Path, span: Duration) -> Result<Profiler, String> {
        let mut trial = perf();
        trial.args(["record", "-e", "cpu-clock", "-o", "/dev/null", "--", "true"]);
        match trial.stdout(Stdio::null()).stderr(Stdio::piped()).output() {
            Ok(output) if output.status.success() => {
                Ok(Profiler { file: file.to_owned(), span, recorder: None })
            }
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                let why = why.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason");
                Err(format!(
                    "--profile: perf cannot record here: {why}; sysctl kernel.perf_event_paranoid=1 may help"
                ))
            }
            Err(error) => Err(format!(
                "--profile: perf cannot be started ({error}): install it, or leave out --profile"
            )),
        }
    }

    /// Begins to record when the measurement begins.
    ///
    /// # Errors
    /// A sentence, where that fails.
    pub fn follow(&mut self, progress: BenchProgress) -> Result<(), String> {
        if self.recorder.is_some() || progress.stage != Stage::Measuring {
            return Ok(());
        }
        let mut record = perf();
        record.args(["record", "-e", "cpu-clock", "-F", HERTZ, "-g", "-o"]).arg(&self.file);
        record.args(["-p", &std::process::id().to_string(), "--", "sleep"]);
        record.arg(self.span.as_secs_f64().to_string());
        let recorder = record.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.recorder = Some(recorder.map_err(|error| format!("--profile: perf: {error}"))?);
        Ok(())
    }

    /// The functions that took most of the time, as a table in text, and where all of the profile is.
    ///
    /// # Errors
    /// A sentence, where nothing was recorded.
    pub fn finish(self) -> Result<String, String> {
        let Profiler { file, recorder, .. } = self;
        let status = recorder.map(|mut recorder| recorder.wait());
        if !matches!(status, Some(Ok(status)) if status.success()) {
            return Err(format!("--profile: perf recorded nothing in {}", file.display()));
        }
        let mut report = perf();
        report.args([
            "report",
            "--stdio",
            "--no-children",
            "-g",
            "none",
            "--sort",
            "comm,symbol",
            "-i",
        ]);
        let output = report.arg(&file).stderr(Stdio::null()).output();
        let output = output.map_err(|error| format!("--profile: perf: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(format!(
            "where the time went, by thread and function (all of it: perf report -i {})\n{}",
            file.display(),
            shown(&text)
        ))
    }
}

fn perf() -> Command {
    Command::new("perf")
}

/// The first lines of a report that are of functions, without the blanks behind them.
fn shown(report: &str) -> String {
    let lines = report.lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.take(SHOWN).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_functions_only() {
        let report =
            "# Samples: 4\n#\n\n    12.00%  n0-w0  [.] find   \n     3.00%  n0-w0  [k] send\n";
        assert_eq!(shown(report), "    12.00%  n0-w0  [.] find\n     3.00%  n0-w0  [k] send\n");
    }
}
