//! Fuzz target: histories. Any bytes are refused with their line, or judged.

use shoal_workloads::history::{Bounds, History, Verdict, check_within};

/// A history of a few lines takes no more.
const BOUNDS: Bounds = Bounds { search_steps: 200_000, pruning_steps: 200_000 };

#[test]
fn any_bytes_are_a_history_that_is_judged_or_an_error_with_its_line() {
    shoal_fuzz::fuzz!("history", |bytes: &[u8]| match History::read(bytes) {
        Ok(history) => {
            let report = check_within(&history, BOUNDS);
            assert_eq!(report.verdict == Verdict::Violated, !report.found.is_empty(), "{report}");
            let mut text = Vec::new();
            history.write(&mut text).expect("memory takes everything");
            let again = History::read(text.as_slice()).expect("what was written");
            assert_eq!(check_within(&again, BOUNDS), report);
        }
        Err(error) => assert!(error.to_string().starts_with("line "), "{error}"),
    });
}
