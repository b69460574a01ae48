//! Every planted bug is caught within the seeds it is given; `shoal sim --faults` tells by whom, and
//! takes on those, too, for which a build without optimisation is too slow.

use shoal_sim::planted::{self, Planted};
use shoal_sim::{ENGINES, Orders};

#[test]
fn every_planted_bug_is_caught() {
    for (engine, run) in ENGINES {
        let quick = planted::all(engine).into_iter().filter(|planted| planted.within <= 100);
        for Planted { name, bug, within, .. } in quick {
            let orders = Orders { bug: Some(bug), trace_lines: 0, twice: false };
            let caught = (0..within).any(|seed| run(seed, orders).failure.is_some());
            assert!(caught, "{engine}: {name} was not caught by any of {within} seeds");
        }
    }
}
