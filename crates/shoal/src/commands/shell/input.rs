//! Lines of a terminal, with history and completion, or of a pipe.
//!
//! They are read on a thread of their own: the session's connections, and its open transaction, live while a line is
//! typed.

use super::completion::completions;
use super::line::vocabulary;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::{env, thread};
use tokio::sync::mpsc;

/// Lines that the history keeps.
const HISTORY_MAX: usize = 10_000;

/// What was typed.
pub enum Entry {
    Line(String),
    /// The user has given up this line.
    Discarded,
    /// There is no more.
    End,
    /// Nothing can be read, in a sentence.
    Broken(String),
}

/// A line that is asked for.
struct Wanted {
    prompt: &'static str,
    tables: Vec<String>,
}

/// The thread that reads lines.
pub struct Input {
    wanted: mpsc::Sender<Wanted>,
    entries: mpsc::Receiver<Entry>,
}

impl Input {
    /// Begins to read standard input.
    ///
    /// # Errors
    /// If the system has no thread for it, or the terminal cannot be used.
    pub fn start(is_terminal: bool) -> io::Result<Input> {
        let mut lines = match is_terminal {
            true => Lines::terminal().map_err(io::Error::other)?,
            false => Lines::Pipe,
        };
        let (wanted, mut wants) = mpsc::channel::<Wanted>(1);
        let (enter, entries) = mpsc::channel(1);
        thread::Builder::new().name("input".to_owned()).spawn(move || {
            while let Some(wanted) = wants.blocking_recv() {
                if enter.blocking_send(lines.next(wanted)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Input { wanted, entries })
    }

    /// The next line. A terminal shows the prompt, and completes these tables.
    pub async fn next(&mut self, prompt: &'static str, tables: Vec<String>) -> Entry {
        // Both ends of the thread are gone only if it has panicked.
        let _ = self.wanted.send(Wanted { prompt, tables }).await;
        self.entries.recv().await.unwrap_or(Entry::End)
    }
}

enum Lines {
    Terminal { editor: Box<Editor<Completing, FileHistory>>, history: Option<PathBuf> },
    Pipe,
}

impl Lines {
    fn terminal() -> rustyline::Result<Lines> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .history_ignore_space(true)
            .max_history_size(HISTORY_MAX)?
            .build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Completing { vocabulary: vocabulary(), tables: Vec::new() }));
        let history = env::home_dir().map(|home| home.join(".shoal_history"));
        if let Some(path) = &history {
            // There is none at first.
            let _ = editor.load_history(path);
        }
        Ok(Lines::Terminal { editor: Box::new(editor), history })
    }

    fn next(&mut self, wanted: Wanted) -> Entry {
        let (editor, history) = match self {
            Lines::Terminal { editor, history } => (editor, history),
            Lines::Pipe => return piped(),
        };
        if let Some(helper) = editor.helper_mut() {
            helper.tables = wanted.tables;
        }
        match editor.readline(wanted.prompt) {
            Ok(line) => {
                // A line that cannot be remembered is run all the same.
                let is_new = editor.add_history_entry(&*line).unwrap_or(false);
                if let (true, Some(path)) = (is_new, history) {
                    let _ = editor.append_history(path);
                }
                Entry::Line(line)
            }
            Err(ReadlineError::Interrupted) => Entry::Discarded,
            Err(ReadlineError::Eof) => Entry::End,
            Err(error) => Entry::Broken(format!("cannot read from the terminal: {error}")),
        }
    }
}

fn piped() -> Entry {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) => Entry::End,
        Ok(_) => Entry::Line(line),
        Err(error) => Entry::Broken(format!("cannot read standard input: {error}")),
    }
}

/// Completes words.
struct Completing {
    vocabulary: Vec<(String, Vec<String>)>,
    tables: Vec<String>,
}

impl Completer for Completing {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(completions(&line[..at], &self.vocabulary, &self.tables))
    }
}

impl Hinter for Completing {
    type Hint = String;
}

impl Highlighter for Completing {}
impl Validator for Completing {}
impl Helper for Completing {}
