//! Epochs open, close and are settled while clients go on.

use shoal_sim::run::{Orders, run};
use shoal_sim::subject::Subject;

#[test]
fn seeds() {
    let first: u64 = std::env::var("FIRST").map_or(0, |v| v.parse().unwrap());
    let count: u64 = std::env::var("COUNT").map_or(20, |v| v.parse().unwrap());
    let mut settled = 0;
    for seed in first..first + count {
        let calm = std::env::var("CALM").is_ok();
        let bug = std::env::var("BUG")
            .ok()
            .filter(|name| !name.is_empty())
            .map(|name| shoal_sim::Bug::named(&name).unwrap());
        let orders = Orders {
            bug,
            trace_lines: std::env::var("TRACE").map_or(60, |v| v.parse().unwrap()),
            calm,
            ..Orders::default()
        };
        let report = run::<engines::mako::Mako>(seed, orders);
        settled += report.probes.settled;
        println!(
            "seed {seed} crashes {} {:?}",
            report.metrics.work.crashes,
            report
                .probes
                .all()
                .filter(|(name, _)| name.starts_with("second"))
                .map(|(_, n)| n)
                .collect::<Vec<_>>()
        );
        if let (Some(failure), true) = (&report.failure, std::env::var("KEEP").is_ok()) {
            let crashes = report.metrics.work.crashes;
            println!("seed {seed} crashes {crashes} {:?}", failure.violation);
            continue;
        }
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
