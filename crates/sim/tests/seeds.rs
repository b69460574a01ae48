//! A fixed portion of seeds; `shoal_sim::run` takes any other.

use engines::mako::Mako;
use shoal_sim::{Orders, run};

fn orders(twice: bool) -> Orders {
    Orders { bug: None, trace_lines: 60, twice }
}

#[test]
fn seeds_keep_the_rules_of_mako() {
    for seed in 0..8 {
        let report = run::<Mako>(seed, orders(seed % 4 == 0));
        if let Some(failure) = report.failure {
            panic!(
                "seed {seed} ({}): {}\n{}",
                report.scenario,
                failure.violation,
                failure.trace.join("\n")
            );
        }
    }
}
