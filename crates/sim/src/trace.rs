//! The last events of a run, in words.
//!
//! A run that is not traced formats nothing. One that failed is run again from the same seed, with the trace.

use shoal_types::Time;
use std::collections::VecDeque;
use std::fmt::{self, Write};

/// The longest line kept, in bytes, before the mark of a cut; messages may hold whole batches.
pub const LINE_BYTES_MAX: usize = 400;

/// The last lines of the trace.
#[derive(Debug)]
pub struct EventTrace {
    lines: VecDeque<String>,
    lines_max: usize,
}

impl EventTrace {
    /// Keeps the last `lines_max` lines.
    pub fn new(lines_max: usize) -> EventTrace {
        EventTrace { lines: VecDeque::new(), lines_max }
    }

    /// Adds a line for an event at `now`.
    pub fn note(&mut self, now: Time, what: fmt::Arguments<'_>) {
        if self.lines_max == 0 {
            return;
        }
        // The memory of the oldest line is reused.
        let mut line = if self.lines.len() == self.lines_max {
            self.lines.pop_front().unwrap_or_default()
        } else {
            String::new()
        };
        line.clear();
        // Writing into a line fails only when the line is full.
        _ = write!(ShortLine(&mut line), "{now:>18}  {what}");
        self.lines.push_back(line);
    }

    /// The lines, the oldest first.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}

/// A writer that fails once the line has its maximum length.
struct ShortLine<'a>(&'a mut String);

impl Write for ShortLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES_MAX.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.0.push_str(&text[..end]);
        self.0.push('…');
        Err(fmt::Error)
    }
}
