//! What a seed draws: a cluster that exists, and the same one each time.

use shoal_sim::distances::DistanceSource;
use shoal_sim::scenario::{Scenario, partitioning};
use shoal_types::Random;
use shoal_workloads::catalog::Catalog;

#[test]
fn every_scenario_has_a_cluster_that_fits() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let scenario = Scenario::draw(&mut random, DistanceSource::Drawn);
        let catalog = Catalog::new();
        for group in &scenario.groups {
            group.scenario_clients(&catalog).unwrap();
        }
        let shards = scenario.shape.shards;
        let tables = catalog.names().into_iter().map(|name| {
            let partitioning = partitioning(&mut random, &name, shards);
            (name, partitioning)
        });
        let topology = scenario.shape.topology(tables.collect());
        assert_eq!(topology.shards(), shards);
        assert!(!scenario.to_string().is_empty());
        let nodes = topology.nodes().len();
        assert_eq!(scenario.clocks(nodes, &mut random).len(), nodes);
    }
}

#[test]
fn a_seed_means_the_same_scenario() {
    let draw = |seed| Scenario::draw(&mut Random::new(seed), DistanceSource::Drawn).to_string();
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
}
