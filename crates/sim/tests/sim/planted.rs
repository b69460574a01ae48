//! Every planted bug is caught at its recorded seed, or else within its bound of seeds. `shoal sim --faults`
//! also reports by which rule, and includes bugs for which a build without optimisation is too slow.

use shoal_sim::planted::{self, PlantedBugCase};
use shoal_sim::{RunOptions, SimulatedEngine};

#[test]
fn every_planted_bug_is_caught() {
    for SimulatedEngine { name: engine, run, .. } in SimulatedEngine::all() {
        let quick = planted::all(engine).into_iter().filter(|planted| planted.within <= 100);
        for planted in quick {
            let PlantedBugCase { name, bug, seed, within, caught_by, .. } = planted;
            let options = RunOptions { bug: Some(bug), trace_lines: 0, ..RunOptions::default() };
            let caught = |seed| {
                let failure = run(seed, options).failure;
                failure.is_some_and(|failure| planted.is_caught_by(failure.violation.rule))
            };
            let missed =
                format!("{engine}: {name} is not caught by {caught_by:?} in {within} seeds");
            assert!(seed.into_iter().chain(0..within).any(caught), "{missed}");
        }
    }
}
