//! Durations on the command line, `500ms`, `10s`, `1.5m`, `1h`, and in words.

use shoal_workloads::report::words;
use std::time::Duration;

/// Longest duration accepted: a week.
const SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;

/// Parses a number and its unit.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits =
        text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit.trim() {
        "us" | "µs" => 0.000_001,
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" => return Err("a unit is missing: write 10s, 500ms, 2m or 1h".into()),
        unit => return Err(format!("'{unit}' is no unit of time: write us, ms, s, m or h")),
    };
    let number: f64 =
        number.parse().map_err(|_| "a number and a unit are expected, as in 10s".to_owned())?;
    let seconds = number * unit_s;
    if seconds > SECONDS_MAX {
        return Err("a week is the longest duration accepted".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// [`parse`] for durations in which something has to happen.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("it has to be longer than nothing".into()),
        duration => Ok(duration),
    }
}

/// `12.3 s`, `4.5 min`, `6.7 h`.
pub fn span(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 7200.0 => format!("{:.1} h", seconds / 3600.0),
        seconds if seconds >= 120.0 => format!("{:.1} min", seconds / 60.0),
        seconds => words::seconds(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let milliseconds = |text| parse(text).map(|duration| duration.as_millis());
        assert_eq!(milliseconds("500ms"), Ok(500));
        assert_eq!(milliseconds("10s"), Ok(10_000));
        assert_eq!(parse("150us"), Ok(Duration::from_micros(150)));
        assert_eq!(milliseconds("1.5 m"), Ok(90_000));
        assert_eq!(milliseconds("1h"), Ok(3_600_000));
        assert_eq!(milliseconds("0s"), Ok(0));
        for wrong in ["", "10", "s", "1..5s", "-1s", "10 parsecs", "1000h", "é"] {
            assert!(parse(wrong).is_err(), "{wrong} was accepted");
        }
        assert!(parse_positive("0s").is_err());
    }

    #[test]
    fn spans_have_the_unit_that_fits() {
        let spans = [500, 90_000, 150_000, 7_200_000].map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(spans.join(", "), "500 ms, 90.0 s, 2.5 min, 2.0 h");
    }
}
