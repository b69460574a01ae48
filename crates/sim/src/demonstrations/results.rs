//! The results of a demonstration: tables, and plots over time.

use super::table::ResultTable;
use std::fmt;

/// The tables, plots and verdicts of a demonstration.
#[derive(Debug, Clone, Default)]
pub struct DemonstrationResults {
    /// Tables for the terminal and the report.
    pub tables: Vec<ResultTable>,
    /// Plots for the report; the terminal shows none.
    pub plots: Vec<ResultPlot>,
}

/// A plot of one or more series.
#[derive(Debug, Clone)]
pub struct ResultPlot {
    /// The heading above the plot.
    pub title: String,
    /// The explanation above the plot.
    pub lead: String,
    /// The names of the series.
    pub names: Vec<String>,
    /// The points of each series.
    pub series: Vec<Vec<(f64, f64)>>,
    /// Events, by their positions on the horizontal axis.
    pub marks: Vec<f64>,
    /// The unit of the horizontal axis.
    pub x: &'static str,
    /// The unit of the vertical axis.
    pub y: &'static str,
}

impl DemonstrationResults {
    /// Whether every target was met.
    pub fn holds(&self) -> bool {
        self.tables.iter().all(ResultTable::holds)
    }
}

impl fmt::Display for DemonstrationResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tables.iter().try_for_each(|table| writeln!(f, "{table}"))
    }
}
