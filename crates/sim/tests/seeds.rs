//! A fixed portion of seeds; `shoal_sim::run` takes any other.

use engines::mako::Mako;
use engines::two_phase_commit::TwoPhaseCommit;
use shoal_sim::{Orders, Subject, run};

fn seeds_keep_the_rules<E: Subject>() {
    for seed in 0..8 {
        let report =
            run::<E>(seed, Orders { trace_lines: 60, twice: seed % 4 == 0, ..Orders::default() });
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

#[test]
fn seeds_keep_the_rules_of_mako() {
    seeds_keep_the_rules::<Mako>();
}

#[test]
fn seeds_keep_the_rules_of_two_phase_commit() {
    seeds_keep_the_rules::<TwoPhaseCommit>();
}
