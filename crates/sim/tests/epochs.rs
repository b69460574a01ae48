//! Epochs open, close and are settled while clients go on.

use shoal_sim::run::{Orders, run};
use shoal_sim::subject::Subject;

#[test]
fn seeds() {
    let first: u64 = std::env::var("FIRST").map_or(0, |v| v.parse().unwrap());
    let count: u64 = std::env::var("COUNT").map_or(20, |v| v.parse().unwrap());
    let mut settled = 0;
    for seed in first..first + count {
        let orders = Orders { trace_lines: 60, ..Orders::default() };
        let report = run::<engines::mako::Mako>(seed, orders);
        settled += report.probes.settled;
        if let Some(failure) = report.failure {
            println!(
                "seed {seed} {:?}\n{}\n{}",
                failure.violation,
                report.scenario,
                failure.trace.join("\n")
            );
            panic!("seed {seed}");
        }
    }
    println!("{} settled {settled}", engines::mako::Mako::NAME);
}
