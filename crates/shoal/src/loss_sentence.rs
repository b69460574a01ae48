//! An accepted loss of a majority in a sentence.

use crate::terminal::listed;
use shoal_server::LossStatus;

/// An accepted loss, in a sentence for `shoal status`.
pub fn sentence(shard: u32, loss: &LossStatus, name: impl Fn(u32) -> String) -> String {
    let aside: Vec<String> = loss.aside.iter().map(|node| name(*node)).collect();
    let missing = loss.ends.iter().filter_map(|lost| {
        let (held, end) = (lost.held?, lost.end?);
        (end > held).then(|| match end {
            u64::MAX => {
                format!("what follows clock {held} of e{}, whose end they lack", lost.epoch)
            }
            end => format!("clocks {} to {end} of e{}", held + 1, lost.epoch),
        })
    });
    let missing: Vec<String> = missing.collect();
    let state = if loss.is_over { "was accepted" } else { "is being accepted" };
    format!(
        "the loss of S{shard}'s majority {state} ({}): set aside {}; missing {}",
        date(loss.at_s),
        listed(&aside),
        listed(&missing)
    )
}

/// A time in seconds since 1970 as `2026-11-23 14:30:00 UTC`.
fn date(at_s: u64) -> String {
    let (days, second) = (at_s / 86_400, at_s % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        (left, month) = (left - length, month + 1);
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_server::LostEndStatus;

    #[test]
    fn what_is_missing_is_said() {
        let lost = LostEndStatus { epoch: 3, known: 9, held: Some(7), end: Some(9) };
        let loss = LossStatus {
            at_s: 1_709_210_096,
            is_over: true,
            aside: vec![1, 2],
            ends: vec![
                lost.clone(),
                LostEndStatus { end: Some(7), ..lost.clone() },
                LostEndStatus { epoch: 4, end: Some(u64::MAX), ..lost },
            ],
        };
        assert_eq!(
            sentence(0, &loss, |node| format!("n{node}")),
            "the loss of S0's majority was accepted (2024-02-29 12:34:56 UTC): set aside n1, n2; missing clocks 8 to 9 \
             of e3, what follows clock 7 of e4, whose end they lack"
        );
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59:59 UTC");
    }
}
