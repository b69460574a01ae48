//! What a demonstration leads to: tables, and plots of what happens over time.

use super::table::ResultTable;
use std::fmt;

/// The tables, plots and verdicts of a demonstration.
#[derive(Debug, Clone, Default)]
pub struct DemonstrationResults {
    /// For the terminal, and for the report.
    pub tables: Vec<ResultTable>,
    /// For the report.
    pub plots: Vec<ResultPlot>,
}

/// A plot.
#[derive(Debug, Clone)]
pub struct ResultPlot {
    /// What is shown.
    pub title: String,
    /// What has to be known to understand it.
    pub lead: String,
    /// The names of the series.
    pub names: Vec<String>,
    /// A line each.
    pub series: Vec<Vec<(f64, f64)>>,
    /// Where something happened, along the horizontal axis.
    pub marks: Vec<f64>,
    /// The unit of the horizontal axis.
    pub x: &'static str,
    /// The unit of the vertical axis.
    pub y: &'static str,
}

impl DemonstrationResults {
    /// Was every target met?
    pub fn holds(&self) -> bool {
        self.tables.iter().all(ResultTable::holds)
    }
}

impl fmt::Display for DemonstrationResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tables.iter().try_for_each(|table| writeln!(f, "{table}"))
    }
}
