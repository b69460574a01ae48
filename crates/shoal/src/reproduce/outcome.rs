//! The results of an experiment.

use super::experiment::{About, Chart, Experiment};
use super::run::MeasuredRun;
use super::view;
use serde::Serialize;
use shoal_sim::demonstrations::{DemonstrationResults, report};
use shoal_workloads::bench::Measurement;
use shoal_workloads::report::page;
use std::fmt::Write;

/// The version of what is written as JSON; it grows when a field changes its meaning or goes.
const FORMAT: u32 = 1;

/// The result of one experiment, with the numbers of the paper beside it.
#[derive(Debug)]
pub struct ExperimentOutcome {
    about: About,
    results: DemonstrationResults,
    seed: u64,
    /// What has to be known of all numbers.
    foot: String,
    /// What was measured, if anything was.
    measured: Option<(Experiment, Vec<MeasuredRun>)>,
}

/// A run, as it is written.
#[derive(Debug, Serialize)]
struct WrittenRun<'a> {
    words: &'a str,
    clients: usize,
    measurement: Option<&'a Measurement>,
    error: Option<&'a str>,
}

/// A table, as it is written: what is shown.
#[derive(Debug, Serialize)]
struct WrittenTable<'a> {
    title: &'a str,
    notes: &'a [String],
    /// The first are the heads.
    rows: Vec<Vec<String>>,
}

/// A plot, as it is written.
#[derive(Debug, Serialize)]
struct WrittenPlot<'a> {
    title: &'a str,
    x_unit: &'a str,
    y_unit: &'a str,
    names: &'a [String],
    series: &'a [Vec<(f64, f64)>],
}

/// All of it, as it is written.
#[derive(Debug, Serialize)]
struct Written<'a> {
    format: u32,
    #[serde(flatten)]
    about: &'a About,
    seed: u64,
    charts: &'a [Chart],
    runs: Vec<WrittenRun<'a>>,
    tables: Vec<WrittenTable<'a>>,
    plots: Vec<WrittenPlot<'a>>,
}

impl ExperimentOutcome {
    /// Of an experiment of which this was measured, for each run.
    pub fn measured(
        experiment: Experiment,
        measured: Vec<MeasuredRun>,
        seed: u64,
    ) -> ExperimentOutcome {
        let mut foot =
            "Numbers of ours compare with each other, those of the paper with each other; between \
                        both compare what is relative."
                .to_owned();
        for warning in warnings(&experiment, &measured) {
            _ = write!(foot, " Warning: {warning}");
        }
        ExperimentOutcome {
            about: experiment.about.clone(),
            results: view::results(&experiment, &measured),
            seed,
            foot,
            measured: Some((experiment, measured)),
        }
    }

    /// Of a demonstration in virtual time.
    pub fn shown(about: About, results: DemonstrationResults, seed: u64) -> ExperimentOutcome {
        let foot = report::FOOT.to_owned();
        ExperimentOutcome { about, results, seed, foot, measured: None }
    }

    /// The number of failed runs.
    pub fn failures(&self) -> usize {
        let measured = self.measured.iter().flat_map(|(_, measured)| measured);
        measured.filter(|measured| measured.is_err()).count()
    }

    /// For a terminal, but for what has been said before it began.
    pub fn text(&self) -> String {
        let mut text = self.results.to_string();
        if let Some((experiment, measured)) = &self.measured {
            for warning in warnings(experiment, measured) {
                _ = writeln!(text, "warning: {warning}");
            }
        }
        if let Some((words, _)) = report::verdict(std::slice::from_ref(&self.results)) {
            _ = writeln!(text, "{words}");
        }
        text
    }

    /// A page with the same, and with plots.
    pub fn html(&self) -> String {
        let About { title, paper, scaled, .. } = &self.about;
        let lead = format!("The paper: {paper} Scaled: {} Seed {}.", scaled.join(" "), self.seed);
        report::page(title, &lead, std::slice::from_ref(&self.results), &self.foot)
    }

    /// Everything, ending in a newline.
    pub fn json(&self) -> String {
        let (charts, runs) = match &self.measured {
            None => (&[][..], Vec::new()),
            Some((experiment, measured)) => {
                let runs = experiment.runs.iter().zip(measured).map(|(run, measured)| WrittenRun {
                    words: &run.words,
                    clients: run.clients,
                    measurement: measured.as_ref().ok(),
                    error: measured.as_ref().err().map(String::as_str),
                });
                (&experiment.charts[..], runs.collect())
            }
        };
        let tables = self.results.tables.iter().map(|table| WrittenTable {
            title: table.title,
            notes: &table.notes,
            rows: table.rows(),
        });
        let plots = self.results.plots.iter().map(|plot| WrittenPlot {
            title: &plot.title,
            x_unit: plot.x,
            y_unit: plot.y,
            names: &plot.names,
            series: &plot.series,
        });
        let written = Written {
            format: FORMAT,
            about: &self.about,
            seed: self.seed,
            charts,
            runs,
            tables: tables.collect(),
            plots: plots.collect(),
        };
        let text = serde_json::to_string_pretty(&written);
        text.expect("only text keys and finite numbers") + "\n"
    }
}

/// What has to be known before any number is believed, a sentence each.
fn warnings(experiment: &Experiment, measured: &[MeasuredRun]) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    for (run, measured) in experiment.runs.iter().zip(measured) {
        let of_run = |warning: &String| format!("{}: {warning}", run.words);
        let news = match measured {
            Err(error) => vec![of_run(error)],
            Ok(measurement) => {
                let mut all = page::warnings(measurement);
                // How it was built comes first, and is the same for all runs.
                let first_own = usize::from(measurement.build.profile == "debug");
                all.iter_mut().skip(first_own).for_each(|warning| *warning = of_run(warning));
                all
            }
        };
        warnings.extend(news.into_iter().filter(|it| !warnings.contains(it)).collect::<Vec<_>>());
    }
    warnings
}
