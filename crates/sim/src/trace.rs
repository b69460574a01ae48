//! The last events of a run, in words.
//!
//! A run that is not watched formats nothing. One that failed is run again, from the same seed, and then
//! it is watched.

use shoal_types::Time;
use std::collections::VecDeque;
use std::fmt::{self, Write};

/// Longest line kept; messages may hold whole batches.
const LINE_BYTES_MAX: usize = 400;

/// The last lines; see the module.
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

    /// Notes what happens at `now`.
    pub fn note(&mut self, now: Time, what: fmt::Arguments<'_>) {
        if self.lines_max == 0 {
            return;
        }
        // The oldest line's room is used again.
        let mut line = if self.lines.len() == self.lines_max {
            self.lines.pop_front().unwrap_or_default()
        } else {
            String::new()
        };
        line.clear();
        // Writing into a line never fails but where it is full.
        _ = write!(ShortLine(&mut line), "{now:>18}  {what}");
        self.lines.push_back(line);
    }

    /// The lines, the oldest first.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}

/// Stops where a line is long enough.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_cut() {
        let mut trace = EventTrace::new(2);
        for number in 0..5 {
            trace.note(Time(number), format_args!("event {number}"));
        }
        trace.note(Time(9), format_args!("{}", "é".repeat(1000)));
        let lines = trace.into_lines();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].trim(), "0.000004 ms  event 4");
        assert!(lines[1].len() <= LINE_BYTES_MAX + 3 && lines[1].ends_with('…'));
    }
}
