//! Lines of a log, no more of them in a second than allowed: an end that connects a thousand times a second
//! gets a thousand counts and ten lines.

use shoal_types::Time;
use std::time::Duration;

/// Decides whether one more line is allowed.
#[derive(Debug)]
pub(crate) struct LogLimit {
    lines_max: u32,
    /// The start of the current second, and its lines.
    began: Time,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    pub fn new(lines_max: u32) -> LogLimit {
        LogLimit { lines_max, began: Time::ZERO, lines: 0, left_out: 0 }
    }

    /// `Some` if a line is allowed, with how many were left out since the last.
    pub fn allow(&mut self, now: Time) -> Option<u64> {
        if now - self.began >= Duration::from_secs(1) {
            (self.began, self.lines) = (now, 0);
        }
        if self.lines >= self.lines_max {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_lines_and_the_next_says_what_was_left_out() {
        let mut limit = LogLimit::new(2);
        let at = |ms: u64| Time(10_000_000_000 + ms * 1_000_000);
        let allowed: Vec<_> = (0..5).map(|ms| limit.allow(at(ms))).collect();
        assert_eq!(allowed, [Some(0), Some(0), None, None, None]);
        assert_eq!(limit.allow(at(1000)), Some(3));
        assert_eq!(limit.allow(at(1001)), Some(0));
    }
}
