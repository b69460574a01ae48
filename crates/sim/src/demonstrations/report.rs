//! A page of what was shown: the tables of the terminal, and the plots that do not fit there.

use super::{Exhibition, Plot, Table};
use workloads::report::plot;
use workloads::report::sheet::Sheet;

/// The page of some exhibitions.
pub fn html(exhibitions: &[Exhibition], seed: u64) -> String {
    let mut sheet = Sheet::new("What the engines show", &format!("in virtual time, seed {seed}"));
    let holds = exhibitions.iter().all(Exhibition::holds);
    let words = if holds { "every target was met" } else { "a target was missed" };
    sheet.verdict = Some((words.to_owned(), holds));
    sheet.foot =
        "Distances and processors are made up; the code is the real one. The same seed shows the same."
            .to_owned();
    for exhibition in exhibitions {
        exhibition.plots.iter().for_each(|plot| add_plot(&mut sheet, plot));
        exhibition.tables.iter().for_each(|table| add_table(&mut sheet, table));
    }
    sheet.html()
}

fn add_plot(sheet: &mut Sheet, plot: &Plot) {
    let Plot { title, lead, names, series, marks, x, y } = plot;
    sheet.plot(title, lead, names, &plot::lines(series, marks, (x, y)));
}

fn add_table(sheet: &mut Sheet, table: &Table) {
    let heads: Vec<&str> = table.heads.iter().copied().chain(["target", ""]).collect();
    let rows: Vec<Vec<String>> = table
        .lines
        .iter()
        .map(|line| {
            let verdict = line.verdict.word().to_owned();
            line.cells.iter().cloned().chain([line.target.clone(), verdict]).collect()
        })
        .collect();
    sheet.table(table.title, &table.notes.join(" "), &heads, &rows);
}
