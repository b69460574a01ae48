//! Sizes on the command line: `0`, `64KB`, `500MB`, `4GB`. A unit is a power of 1024 bytes.

/// Parses a whole number and its unit.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse(text: &str) -> Result<usize, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    let shift = match unit.trim() {
        "KB" => 10,
        "MB" => 20,
        "GB" => 30,
        "" if number == "0" => 0,
        "" => return Err("a unit is missing: write 500MB or 4GB".into()),
        unit => return Err(format!("'{unit}' is no unit of memory: write KB, MB or GB")),
    };
    let number: usize = number
        .parse()
        .map_err(|_| "a whole number and a unit are expected, as in 4GB".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more than this machine can address".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("64KB"), Ok(64 << 10));
        assert_eq!(parse("500 MB"), Ok(500 << 20));
        assert_eq!(parse("4GB"), Ok(4 << 30));
        for wrong in ["", "GB", "4", "4TB", "-1GB", "1.5GB", "99999999999999GB"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
