//! Golden files: the output of a test is kept in the tree, and the test fails when its output differs.
//!
//! `GOLDEN=refresh cargo test -p CRATE` writes the kept files anew, all of them; read the difference before you commit it.
//! There are three shapes. A *script* is a text file of commands, a line of dashes, and the trace that the commands make:
//! [`check_scripts`] runs a folder of them. A *conversation* is messages as they were sent, byte for byte, by a build that
//! supported some version of them: [`check_conversations`] checks that a build which supports that version still
//! reads and writes the same bytes. Any other kept text is compared by [`Comparison`].

mod conversation;

pub use conversation::{RecordedMessage, check_conversations};

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{env, fs};

/// The line between a script and its trace.
const DIVIDER: &str = "---\n";

/// The commands of a script, which may have its trace behind them.
pub fn commands_of(script: &str) -> &str {
    script.split_once(DIVIDER).map_or(script, |(commands, _)| commands)
}

/// Whether kept files are to be written anew: `GOLDEN=refresh` is set.
pub fn is_refreshing() -> bool {
    env::var("GOLDEN").is_ok_and(|value| value == "refresh")
}

/// The words of a command: those with `=`, and the others.
#[derive(Debug)]
pub struct Words<'a> {
    /// The words without `=`, in order.
    pub plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    /// Splits a line at blanks; a word with `=` is a named one.
    pub fn of(line: &'a str) -> Words<'a> {
        let named = line.split_whitespace().filter_map(|word| word.split_once('='));
        let plain = line.split_whitespace().filter(|word| !word.contains('='));
        Words { plain: plain.collect(), named: named.collect() }
    }

    /// Whether `word` is one of the plain words.
    pub fn has(&self, word: &str) -> bool {
        self.plain.contains(&word)
    }

    /// The plain word at this place, as a number.
    ///
    /// # Panics
    /// Where it is missing, or no number.
    pub fn number<T: FromStr>(&self, place: usize) -> T {
        let word = self.plain.get(place).unwrap_or_else(|| panic!("word {place} is missing"));
        word.parse().unwrap_or_else(|_| panic!("not a number: {word}"))
    }

    /// All plain words that are numbers.
    pub fn numbers<T: FromStr>(&self) -> Vec<T> {
        self.plain.iter().filter_map(|word| word.parse().ok()).collect()
    }

    /// The text after `name=`, if that word is there.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.named.get(name).copied()
    }

    /// The number behind `name=`, if it is there.
    ///
    /// # Panics
    /// Where it is no number.
    pub fn named<T: FromStr>(&self, name: &str) -> Option<T> {
        let word = self.named.get(name)?;
        Some(word.parse().unwrap_or_else(|_| panic!("not a number: {word}")))
    }
}

/// Runs a script line by line, and returns its trace: each command after `> `, and below it what `command` adds. Empty lines
/// and those that begin with `#` are for readers.
pub fn trace_of(commands: &str, mut command: impl FnMut(&str, &mut Vec<String>)) -> String {
    let mut trace = String::new();
    for line in commands.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        writeln!(trace, "> {line}").expect("a string takes all");
        let mut lines = Vec::new();
        command(line, &mut lines);
        for line in lines {
            writeln!(trace, "{line}").expect("a string takes all");
        }
    }
    trace
}

/// Runs all scripts of a folder, of which there are `least` or more, and compares their traces with those that are kept.
///
/// # Panics
/// Where a trace differs, with the first line that does; and where there are fewer scripts.
pub fn check_scripts(folder: &Path, least: usize, mut run: impl FnMut(&Path, &str) -> String) {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("no {}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(paths.len() >= least, "only {} scripts in {}", paths.len(), folder.display());
    let mut comparison = Comparison::default();
    for path in paths {
        let text = fs::read_to_string(&path).expect("a readable script");
        let commands = commands_of(&text);
        let trace = run(&path, commands);
        comparison.check(&path, &format!("{}\n{DIVIDER}{trace}", commands.trim_end()));
    }
    comparison.finish("the trace differs");
}

/// Compares texts with those that are kept, or writes them.
#[derive(Debug, Default)]
pub struct Comparison {
    complaints: Vec<String>,
}

impl Comparison {
    /// Compares one.
    ///
    /// # Panics
    /// Where it is to be written, and cannot be.
    pub fn check(&mut self, path: &Path, text: &str) {
        let kept = fs::read_to_string(path).unwrap_or_default();
        if kept == text {
            return;
        }
        if is_refreshing() {
            return fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        let (kept, got): (Vec<_>, Vec<_>) = (kept.lines().collect(), text.lines().collect());
        let same = kept.iter().zip(&got).take_while(|(kept, got)| kept == got).count();
        let line = |lines: &[&str]| lines.get(same).map_or("nothing", |line| *line).to_owned();
        self.complaints.push(format!(
            "{}: line {}:\n  kept {}\n  got  {}",
            path.display(),
            same + 1,
            line(&kept),
            line(&got)
        ));
    }

    /// All have been compared.
    ///
    /// # Panics
    /// Where one differs: with `what`, and each first line that does.
    pub fn finish(self, what: &str) {
        let complaints = self.complaints;
        assert!(
            complaints.is_empty(),
            "{what}; if that is meant, write it anew with GOLDEN=refresh, and read the difference:\n{}\n",
            complaints.join("\n")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    fn say(commands: &str) -> String {
        trace_of(commands, |line, lines| lines.push(format!("said {line}")))
    }

    #[test]
    fn a_trace_has_each_command_and_what_it_makes() {
        assert_eq!(say("# for readers\n\n  a b=1\n"), "> a b=1\nsaid a b=1\n");
    }

    #[test]
    fn words_are_taken_by_place_and_by_name() {
        let words = Words::of("move 3 to=4 fast by=hand 5");
        assert_eq!((words.number::<u32>(1), words.named::<u64>("to")), (3, Some(4)));
        assert_eq!((words.numbers::<u32>(), words.text("by")), (vec![3, 5], Some("hand")));
        assert!(words.has("fast") && !words.has("slow") && words.named::<u32>("at").is_none());
    }

    #[test]
    fn a_trace_that_differs_is_told_with_its_line() {
        if is_refreshing() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("1.txt");
        let check = || check_scripts(folder.path(), 1, |_, commands| say(commands));
        fs::write(&path, "a\n---\n> a\nsaid a\n").expect("a file");
        check();
        fs::write(&path, "a\n---\n> a\nsaid b\n").expect("a file");
        let cause = catch_unwind(check).expect_err("it differs");
        let text = cause.downcast_ref::<String>().expect("a text");
        assert!(text.contains("line 4") && text.contains("kept said b"), "{text}");
        assert!(catch_unwind(|| check_scripts(folder.path(), 2, |_, _| String::new())).is_err());
    }
}
