//! Tables of results: lines with a verdict each.

use std::fmt;

/// Whether a target was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetVerdict {
    /// The row has no target, and is shown for comparison.
    Shown,
    /// The measured value is within its target.
    Met,
    /// The measured value is beyond its target; the command fails then.
    Missed,
}

impl TargetVerdict {
    /// The verdict of a target that is met if `holds`.
    pub fn of(holds: bool) -> TargetVerdict {
        if holds { TargetVerdict::Met } else { TargetVerdict::Missed }
    }

    /// The verdict as a word of the table.
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
    /// The cells, one for each head.
    pub cells: Vec<String>,
    /// The target in words; empty if there is none.
    pub target: String,
    /// Whether the target was met.
    pub verdict: TargetVerdict,
}

/// A table of measured values, each with its target.
#[derive(Debug, Clone)]
pub struct ResultTable {
    /// The heading above the table.
    pub title: &'static str,
    /// The explanations below the title.
    pub notes: Vec<String>,
    /// The heads of the columns.
    pub heads: Vec<&'static str>,
    /// The number of leading columns that hold words and are aligned to the left.
    pub words: usize,
    /// The lines of the table.
    pub lines: Vec<ResultLine>,
}

impl ResultTable {
    /// Whether every target was met.
    pub fn holds(&self) -> bool {
        self.lines.iter().all(|line| line.verdict != TargetVerdict::Missed)
    }

    /// The rows to print, the heads first, with targets and verdicts if any line has one.
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
