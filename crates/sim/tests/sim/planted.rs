//! Every bug that can be planted is in one of the lists. That each is caught at its recorded seed, `shoal sim --faults` checks
//! (`./check sim`).

use shoal_sim::planted::{self, BOUNDS, PlantedBugCase, SHOWN_BY_TESTS, UNCAUGHT, recorded};
use shoal_sim::{AnyPlantedBug, SimulatedEngine};
use std::collections::BTreeSet;
use std::path::Path;

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

/// What *given* says of each bug in the documentation, behind which there may be where the search begins.
#[test]
fn the_documentation_has_the_bounds() {
    let text = include_str!("../../../../docs/simulation.md");
    let (_, table) = text.split_once("\n| engine | bug |").expect("the table of planted bugs");
    let mut engine = "";
    let mut documented = BTreeSet::new();
    for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [of, name, .., given] = cells[..] else { panic!("{row}") };
        engine = if of.is_empty() { engine } else { of.trim_matches('`') };
        let given = given.split(" from").next().expect("a number").replace(',', "");
        let given: u64 = given.parse().unwrap_or_else(|_| panic!("{row}"));
        documented.insert((engine, name.trim_matches('`'), given));
    }
    let bounds: BTreeSet<_> =
        BOUNDS.iter().map(|(engine, name, _, _, given)| (*engine, *name, *given)).collect();
    let differ: Vec<_> = documented.symmetric_difference(&bounds).collect();
    assert!(differ.is_empty(), "{differ:?}");
}
