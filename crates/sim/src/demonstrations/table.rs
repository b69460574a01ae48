//! What a demonstration found: lines with a verdict each.

use std::fmt;

/// Was a target met?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetVerdict {
    /// Nothing was promised.
    Shown,
    /// It was.
    Met,
    /// It was not.
    Missed,
}

impl TargetVerdict {
    /// Of a promise that is kept if `holds`.
    pub fn of(holds: bool) -> TargetVerdict {
        if holds { TargetVerdict::Met } else { TargetVerdict::Missed }
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            TargetVerdict::Shown => "",
            TargetVerdict::Met => "met",
            TargetVerdict::Missed => "MISSED",
        }
    }
}

/// A line of a [`ResultTable`].
#[derive(Debug, Clone)]
pub struct ResultLine {
    /// A cell for each head.
    pub cells: Vec<String>,
    /// What had to come out, if anything.
    pub target: String,
    /// Whether it did.
    pub verdict: TargetVerdict,
}

/// A table of results.
#[derive(Debug, Clone)]
pub struct ResultTable {
    /// What is shown.
    pub title: &'static str,
    /// What has to be known to understand it.
    pub notes: Vec<String>,
    /// What stands in the columns.
    pub heads: Vec<&'static str>,
    /// How many of the columns are words, which stand to the left.
    pub words: usize,
    /// The lines.
    pub lines: Vec<ResultLine>,
}

impl ResultTable {
    /// Was every target met?
    pub fn holds(&self) -> bool {
        self.lines.iter().all(|line| line.verdict != TargetVerdict::Missed)
    }

    /// What is to be shown, the heads first: with the targets and verdicts, if there is any.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let has_target = self.lines.iter().any(|line| !line.target.is_empty());
        let row = |cells: Vec<String>, target: &str, word: &str| {
            let judged = [target.to_owned(), word.to_owned()];
            cells.into_iter().chain(judged.into_iter().filter(|_| has_target)).collect()
        };
        let heads = self.heads.iter().map(|head| (*head).to_owned()).collect();
        let lines = self.lines.iter();
        let lines = lines.map(|line| row(line.cells.clone(), &line.target, line.verdict.word()));
        std::iter::once(row(heads, "target", "")).chain(lines).collect()
    }
}

impl fmt::Display for ResultTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.title)?;
        let rows = self.rows();
        let length = |text: &str| text.chars().count();
        let width = |column: usize| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        for (number, row) in rows.iter().enumerate() {
            let mut text = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let space = " ".repeat(width - length(cell));
                let is_word = column < self.words || column >= self.heads.len();
                text += &if is_word { cell.clone() + &space } else { space + cell };
                text += "  ";
            }
            writeln!(f, "{}", text.trim_end())?;
            if number == 0 {
                let all = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
                writeln!(f, "{}", "─".repeat(all))?;
            }
        }
        for note in &self.notes {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}
