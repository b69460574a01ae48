//! The trace keeps the last lines, and long ones are cut.

use shoal_sim::trace::{EventTrace, LINE_BYTES_MAX};
use shoal_types::Time;

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
