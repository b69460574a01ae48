//! Durations on the command line: `500ms`, `10s`, `1.5m`, `1h`.

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
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" => return Err("a unit is missing: write 10s, 500ms, 2m or 1h".into()),
        unit => return Err(format!("'{unit}' is no unit of time: write ms, s, m or h")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let milliseconds = |text| parse(text).map(|duration| duration.as_millis());
        assert_eq!(milliseconds("500ms"), Ok(500));
        assert_eq!(milliseconds("10s"), Ok(10_000));
        assert_eq!(milliseconds("1.5 m"), Ok(90_000));
        assert_eq!(milliseconds("1h"), Ok(3_600_000));
        assert_eq!(milliseconds("0s"), Ok(0));
        for wrong in ["", "10", "s", "1..5s", "-1s", "10 parsecs", "1000h", "é"] {
            assert!(parse(wrong).is_err(), "{wrong} was accepted");
        }
        assert!(parse_positive("0s").is_err());
    }
}
