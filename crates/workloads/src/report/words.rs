//! Numbers in words that people compare at a glance: three digits and a unit.

/// A number with commas between thousands, as in `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate as a whole number: `81,234`.
pub fn rate(per_s: f64) -> String {
    count(per_s.round() as u64)
}

/// `950 ns`, `1.23 µs`, `45.6 ms`, `7.89 s`.
pub fn latency(nanoseconds: u64) -> String {
    scaled(nanoseconds as f64, 1000.0, &["ns", "µs", "ms", "s"])
}

/// `1.50 s`, `90.0 s`.
pub fn seconds(seconds: f64) -> String {
    if seconds > 0.0 && seconds < 1.0 {
        latency((seconds * 1e9) as u64)
    } else {
        digits(seconds) + " s"
    }
}

/// `512 B`, `1.50 KiB`, `23.4 GiB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// `0.12 %` for 0.0012.
pub fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        0.0 => "0 %".into(),
        p if p < 0.01 => "< 0.01 %".into(),
        p if p < 10.0 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    }
}

/// `1.23 ×`, `0.018 ×`: how many times as much.
pub fn times(ratio: f64) -> String {
    let decimals = if ratio < 0.0995 { 3 } else { 2 };
    format!("{ratio:.decimals$} ×")
}

/// `90 %`, `99.9 %`: what lies below a quantile, given by its nines.
pub fn quantile(nines: f64) -> String {
    let part = 100.0 * (1.0 - 10f64.powf(-nines));
    let decimals = (nines - 2.0).ceil().max(0.0) as usize;
    format!("{part:.decimals$} %")
}

/// Three digits of a number: `1.23`, `12.3`, `123`.
fn digits(number: f64) -> String {
    let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.decimals$}")
}

/// The number in the greatest unit of which there is at least one.
fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let (mut number, mut at) = (number, 0);
    while number >= step && at + 1 < units.len() {
        number /= step;
        at += 1;
    }
    if at == 0 {
        format!("{number} {}", units[0])
    } else {
        format!("{} {}", digits(number), units[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_compare() {
        assert_eq!(
            [count(0), count(999), count(1000), count(1_234_567)].join(" "),
            "0 999 1,000 1,234,567"
        );
        assert_eq!(rate(81_234.4), "81,234");
        assert_eq!(
            [times(0.0182), times(0.1), times(3.8125)].join(", "),
            "0.018 ×, 0.10 ×, 3.81 ×"
        );
        assert_eq!(
            [latency(950), latency(1234), latency(45_600_000)].join(", "),
            "950 ns, 1.23 µs, 45.6 ms"
        );
        assert_eq!([latency(9_999), latency(5_000_000_000_000)].join(", "), "10.0 µs, 5000 s");
        assert_eq!(
            [seconds(0.0), seconds(0.25), seconds(600.0)].join(", "),
            "0.00 s, 250 ms, 600 s"
        );
        assert_eq!(
            [bytes(512), bytes(1536), bytes(25 << 30)].join(", "),
            "512 B, 1.50 KiB, 25.0 GiB"
        );
        assert_eq!(
            [percent(0.0), percent(0.00001), percent(0.0123), percent(0.45)].join(", "),
            "0 %, < 0.01 %, 1.23 %, 45.0 %"
        );
        assert_eq!(
            [quantile(std::f64::consts::LOG10_2), quantile(1.0), quantile(3.0), quantile(5.0)]
                .join(", "),
            "50 %, 90 %, 99.9 %, 99.999 %"
        );
    }
}
