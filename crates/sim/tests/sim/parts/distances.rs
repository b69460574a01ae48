//! Distances between datacenters, from each of their sources.

use shoal_sim::SimulatedRegions;
use shoal_sim::distances::{DistanceSource, draw};
use shoal_types::Random;

const MS: u64 = 1_000_000;

#[test]
fn unequal_distances_differ_and_regions_give_their_own() {
    let (mut there_and_back, mut far_and_near) = (0, 0);
    for seed in 0..100 {
        let drawn = draw(&mut Random::new(seed), 3);
        let (unequal, _) = DistanceSource::Unequal(Random::new(seed)).delays(drawn.clone());
        let ways = |row: usize| (0..3).filter(move |to| *to != row).map(move |to| (row, to));
        let mut ns: Vec<u64> =
            (0..3).flat_map(ways).map(|(from, to)| unequal[from][to].base_ns).collect();
        there_and_back += u64::from(unequal[0][1].base_ns > 10 * unequal[1][0].base_ns);
        ns.sort_unstable();
        far_and_near += u64::from(ns[5] > 100 * ns[0]);
        assert_eq!(unequal[1][1], drawn.0[1][1]);

        let (tiga, round_trip_ns) = DistanceSource::Regions(SimulatedRegions::Tiga).delays(drawn);
        assert_eq!((tiga.len(), tiga[2][3].base_ns, round_trip_ns), (4, 150 * MS, 300 * MS));
    }
    assert!(there_and_back > 10 && far_and_near > 10, "{there_and_back} {far_and_near}");
}
