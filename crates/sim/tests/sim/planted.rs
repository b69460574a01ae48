//! Every planted bug is caught at its recorded seed, or else within its bound of seeds. `shoal sim --faults`
//! also reports by which rule, and includes bugs for which a build without optimisation is too slow. And every bug that can
//! be planted is in one of the lists.

use shoal_sim::planted::{self, BOUNDS, PlantedBugCase, SHOWN_BY_TESTS, UNCAUGHT, recorded};
use shoal_sim::{AnyPlantedBug, RunOptions, SimulatedEngine};
use std::path::Path;

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

#[test]
fn every_bug_is_planted_somewhere() {
    let listed: Vec<PlantedBugCase> =
        SimulatedEngine::all().flat_map(|engine| planted::all(engine.name)).collect();
    assert_eq!(listed.len(), BOUNDS.len(), "a bug is planted in an engine that is not listed");
    for (engine, name, _) in recorded() {
        assert!(
            planted::all(engine).iter().any(|planted| planted.name == name),
            "{name} is not there"
        );
    }
    for name in AnyPlantedBug::names() {
        let is_planted = listed.iter().any(|planted| planted.name == name);
        let is_shown = SHOWN_BY_TESTS.iter().any(|(shown, _)| *shown == name);
        let lists = [is_planted, is_shown, UNCAUGHT.contains(&name)];
        let count = lists.iter().filter(|is_listed| **is_listed).count();
        assert_eq!(count, 1, "{name} is in one of the three lists");
    }
    for name in UNCAUGHT.iter().chain(SHOWN_BY_TESTS.iter().map(|(shown, _)| shown)) {
        assert!(AnyPlantedBug::named(name).is_some(), "{name} is no bug");
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, file) in SHOWN_BY_TESTS {
        assert!(crates.join(file).is_file(), "{name}: there is no {file}");
    }
}
