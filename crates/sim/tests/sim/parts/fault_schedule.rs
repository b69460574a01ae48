//! Faults are drawn by their weights.

use shoal_sim::fault_schedule::{FaultSchedule, FaultTargets, FaultWeights, ScheduledFault};
use shoal_types::Random;

const EXTENT: FaultTargets =
    FaultTargets { nodes: 3, clients: 2, workers: 3, datacenters: 2, shards: 1, managers: 1 };

#[test]
fn only_what_has_a_weight_happens() {
    let weights = FaultWeights { cut: 3, ..FaultWeights::default() };
    let fault_schedule = FaultSchedule { longest_ns: 100, weights, ..FaultSchedule::default() };
    let mut random = Random::new(1);
    for _ in 0..1000 {
        let (scheduled_fault, lasts) = fault_schedule.draw(&mut random, EXTENT);
        assert!(
            matches!(
                scheduled_fault,
                ScheduledFault::Cut(0..=2, 0..=4) | ScheduledFault::Cut(0..=4, 0..=2)
            ) && (1..=100).contains(&lasts)
        );
    }
}

#[test]
fn nodes_crash_where_managers_see_to_it() {
    let weights = FaultWeights { crash: 1, ..FaultWeights::default() };
    let fault_schedule = FaultSchedule { longest_ns: 100, weights, ..FaultSchedule::default() };
    let mut random = Random::new(1);
    assert!(matches!(fault_schedule.draw(&mut random, EXTENT).0, ScheduledFault::Crash(0..=2)));
    let alone = FaultTargets { managers: 0, ..EXTENT };
    assert!(matches!(fault_schedule.draw(&mut random, alone).0, ScheduledFault::Stall(_)));
}
