//! What an experiment is: data.

use super::run::{Budget, ExperimentRun};
use crate::duration::span;
use serde::Serialize;
use std::time::Duration;

pub use super::quantity::{CommitPath, LeaderStop, Percentile, Quantity};

/// What has to be known of an experiment, before and after it.
#[derive(Debug, Clone, Serialize)]
pub struct About {
    /// The name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the paper did, and what it says came out.
    pub paper: &'static str,
    /// How it was scaled, a sentence each.
    pub scaled: Vec<String>,
}

/// An experiment that is measured.
#[derive(Debug, Serialize)]
pub struct Experiment {
    #[serde(flatten)]
    pub about: About,
    /// What is run, in this order.
    #[serde(skip)]
    pub runs: Vec<ExperimentRun>,
    /// Where their results stand.
    pub charts: Vec<Chart>,
}

/// The number of a run among those of its experiment.
pub type RunNumber = usize;

/// One more run of an experiment that is being made up.
pub fn add(runs: &mut Vec<ExperimentRun>, run: ExperimentRun) -> RunNumber {
    runs.push(run);
    runs.len() - 1
}

/// A table, and the plots of what stands in it.
#[derive(Debug, Serialize)]
pub struct Chart {
    pub title: &'static str,
    /// The quantity that differs from row to row.
    pub axis: &'static str,
    /// The unit of `axis`.
    pub unit: &'static str,
    /// What is shown of each run.
    pub quantities: Vec<Quantity>,
    pub plots: Plots,
    pub curves: Vec<Curve>,
    /// What has to be known to read it.
    pub notes: Vec<String>,
}

/// What plots of a chart show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plots {
    /// Each quantity along the axis.
    AlongAxis,
    /// The same, and the throughput of each row over the time of its first run.
    AlongAxisAndTime,
    /// Each quantity along the axis; and of each `group` of curves, it is said where the first one's throughput falls below that of the
    /// others.
    AlongAxisAndBreakEven {
        /// How many curves, one behind the other, are compared.
        group: usize,
    },
    /// Each row along its percentiles.
    Percentiles,
    /// The throughput and the mean latency of each row over the time of its first run.
    OverTime,
}

/// A line of a plot: rows that are compared with each other.
#[derive(Debug, Serialize)]
pub struct Curve {
    pub name: String,
    /// The row to which the others are compared, in what is ours as in what is the paper's.
    pub base: usize,
    pub rows: Vec<ExperimentRow>,
}

/// One place on a curve.
#[derive(Debug, Serialize)]
pub struct ExperimentRow {
    pub label: String,
    /// Where it is along the axis.
    pub x: f64,
    /// What was run here; what the paper has and we have not has none.
    pub run: Option<RunNumber>,
    /// The region whose clients it is about, where it is about those of one.
    pub region: Option<&'static str>,
    /// What the paper says of it.
    pub published: Vec<Published>,
    /// The part of the base's throughput, or of another quantity, that has to be kept, where something was promised.
    pub kept_min: Option<(Quantity, f64)>,
    /// The least that a quantity may be, where something was promised.
    pub least: Vec<(Quantity, f64)>,
    /// The most that a quantity may be, where something was promised.
    pub most: Vec<(Quantity, f64)>,
}

/// A number of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Published {
    pub quantity: Quantity,
    pub number: PublishedNumber,
}

/// How the paper says it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublishedNumber {
    /// As it was measured.
    Absolute(f64),
    /// Compared with the base.
    Relative(f64),
}

impl Experiment {
    /// What is going to happen, and about how long it takes if each run takes so long.
    pub fn opening(&self, budget: &Budget) -> String {
        let opening = self.about.opening();
        let (count, times) = (self.runs.len(), budget.times);
        let again = if times > 1 { format!(", each {times} times") } else { String::new() };
        let each: Duration = self.runs.iter().map(|run| run.time(budget)).sum();
        let all = span(each * times.into());
        format!("{opening}{count} runs{again}: about {all}, and longer where much is loaded\n\n")
    }
}

impl About {
    /// The title, the paper's experiment and how ours is scaled.
    pub fn opening(&self) -> String {
        let scaled = self.scaled.join(" ");
        format!("{}\n\nThe paper: {}\nScaled: {scaled}\n\n", self.title, self.paper)
    }
}

impl ExperimentRow {
    /// One at a number along the axis.
    pub fn at(x: u32) -> ExperimentRow {
        ExperimentRow::named(x, x.to_string())
    }

    /// One that has a name.
    pub fn named(x: u32, label: impl Into<String>) -> ExperimentRow {
        let (label, x) = (label.into(), f64::from(x));
        ExperimentRow {
            label,
            x,
            run: None,
            region: None,
            published: Vec::new(),
            kept_min: None,
            least: Vec::new(),
            most: Vec::new(),
        }
    }

    /// Of the clients in this region.
    pub fn of_region(self, region: &'static str) -> ExperimentRow {
        ExperimentRow { region: Some(region), ..self }
    }

    /// With this run.
    pub fn run(self, run: RunNumber) -> ExperimentRow {
        ExperimentRow { run: Some(run), ..self }
    }

    /// With what the paper has published of it, if there is anything, as it was measured.
    pub fn measured_there(self, quantity: Quantity, papers: &[(u32, f64)]) -> ExperimentRow {
        let here = self.x;
        let found = papers.iter().find(|(x, _)| f64::from(*x) == here);
        found.into_iter().fold(self, |row, (_, value)| {
            row.published(quantity, PublishedNumber::Absolute(*value))
        })
    }

    /// Is there anything to be shown?
    pub fn is_there(&self) -> bool {
        self.run.is_some() || !self.published.is_empty()
    }

    /// With a number that the paper has published.
    pub fn published(mut self, quantity: Quantity, number: PublishedNumber) -> ExperimentRow {
        self.published.push(Published { quantity, number });
        self
    }
}
