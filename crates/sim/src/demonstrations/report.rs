//! An HTML page of results: the tables of the terminal, and the plots, which the terminal does not show.

use super::results::{DemonstrationResults, ResultPlot};
use super::table::{ResultTable, TargetVerdict};
use shoal_workloads::report::plot::{self, AxisUnits};
use shoal_workloads::report::sheet::Sheet;

/// The page of these results, which the demonstrations found with `seed`.
pub fn html(all_results: &[DemonstrationResults], seed: u64) -> String {
    let lead = format!("in virtual time, seed {seed}");
    page("What the engines show", &lead, all_results, FOOT)
}

/// The note at the bottom of every page of results in virtual time.
pub const FOOT: &str =
    "Distances and processors are made up; the code is the real one. The same seed shows the same.";

/// A page of tables and plots, with a note at its top and one at its bottom.
pub fn page(title: &str, lead: &str, all_results: &[DemonstrationResults], foot: &str) -> String {
    let mut sheet = Sheet::new(title, lead);
    sheet.verdict = verdict(all_results).map(|(words, holds)| (words.to_owned(), holds));
    foot.clone_into(&mut sheet.foot);
    for results in all_results {
        results.plots.iter().for_each(|plot| add_plot(&mut sheet, plot));
        results.tables.iter().for_each(|table| add_table(&mut sheet, table));
    }
    sheet.html()
}

/// Whether every target was met, in words and as a flag; `None` where there is no target.
pub fn verdict(all_results: &[DemonstrationResults]) -> Option<(&'static str, bool)> {
    let lines = || all_results.iter().flat_map(|it| &it.tables).flat_map(|table| &table.lines);
    let holds = all_results.iter().all(DemonstrationResults::holds);
    let words = if holds { "every target was met" } else { "a target was missed" };
    lines().any(|line| line.verdict != TargetVerdict::Shown).then_some((words, holds))
}

fn add_plot(sheet: &mut Sheet, plot: &ResultPlot) {
    let ResultPlot { title, lead, names, series, marks, .. } = plot;
    let units = AxisUnits { x: plot.x, y: plot.y };
    sheet.plot(title, lead, names, &plot::lines(series, marks, units));
}

fn add_table(sheet: &mut Sheet, table: &ResultTable) {
    let rows = table.rows();
    let heads: Vec<&str> = rows[0].iter().map(String::as_str).collect();
    sheet.table(table.title, &table.notes.join(" "), &heads, &rows[1..]);
}
