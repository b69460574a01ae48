//! A page of what was shown: the tables of the terminal, and the plots that do not fit there.

use super::{Exhibition, Plot, Table, Verdict};
use workloads::report::plot;
use workloads::report::sheet::Sheet;

/// The page of some exhibitions.
pub fn html(exhibitions: &[Exhibition], seed: u64) -> String {
    let lead = format!("in virtual time, seed {seed}");
    page("What the engines show", &lead, exhibitions, FOOT)
}

/// What is to be known of all that is shown in virtual time.
pub const FOOT: &str =
    "Distances and processors are made up; the code is the real one. The same seed shows the same.";

/// A page of tables and plots, with what has to be known of them at its top and at its bottom.
pub fn page(title: &str, lead: &str, exhibitions: &[Exhibition], foot: &str) -> String {
    let mut sheet = Sheet::new(title, lead);
    sheet.verdict = verdict(exhibitions).map(|(words, holds)| (words.to_owned(), holds));
    foot.clone_into(&mut sheet.foot);
    for exhibition in exhibitions {
        exhibition.plots.iter().for_each(|plot| add_plot(&mut sheet, plot));
        exhibition.tables.iter().for_each(|table| add_table(&mut sheet, table));
    }
    sheet.html()
}

/// Whether every target was met, in words and as such; `None` where there is none.
pub fn verdict(exhibitions: &[Exhibition]) -> Option<(&'static str, bool)> {
    let lines = || exhibitions.iter().flat_map(|it| &it.tables).flat_map(|table| &table.lines);
    let holds = exhibitions.iter().all(Exhibition::holds);
    let words = if holds { "every target was met" } else { "a target was missed" };
    lines().any(|line| line.verdict != Verdict::Shown).then_some((words, holds))
}

fn add_plot(sheet: &mut Sheet, plot: &Plot) {
    let Plot { title, lead, names, series, marks, x, y } = plot;
    sheet.plot(title, lead, names, &plot::lines(series, marks, (x, y)));
}

fn add_table(sheet: &mut Sheet, table: &Table) {
    let rows = table.rows();
    let heads: Vec<&str> = rows[0].iter().map(String::as_str).collect();
    sheet.table(table.title, &table.notes.join(" "), &heads, &rows[1..]);
}
