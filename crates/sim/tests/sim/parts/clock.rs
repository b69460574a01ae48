//! Clocks of nodes: timers fire when they are due, and no change sets a clock back.

use shoal_sim::clock::NodeClock;
use shoal_types::{Random, Time};

#[test]
fn a_timer_fires_at_the_first_instant_that_shows_its_time() {
    let mut random = Random::new(1);
    for round in 0..10_000 {
        let drift_max = if round % 2 == 0 { 1000 } else { 900_000 };
        let drift = random.range_inclusive(0, 2 * drift_max) as i64 - drift_max as i64;
        let mut clock = NodeClock::new(random.below(1_000_000_000), 0);
        let changed = Time(random.below(1_000_000_000));
        clock.turn(changed, drift);
        clock.jump(changed, random.below(1000));
        let bits = random.range_inclusive(10, 50);
        let local = Time(random.below(1 << bits));
        let at = clock.when(local);
        assert!(clock.local(at) >= local, "{clock:?} at {at} is not yet {local}");
        let is_first = at == changed || clock.local(Time(at.0 - 1)) < local;
        assert!(is_first, "{clock:?} {local} {at}");
    }
}

#[test]
fn a_change_never_sets_a_clock_back() {
    let mut clock = NodeClock::new(5, 1000);
    let before = clock.local(Time(1_000_000));
    clock.turn(Time(1_000_000), -1000);
    assert_eq!(clock.local(Time(1_000_000)), before);
    assert_eq!(clock.local(Time(2_000_000)).0 - before.0, 999_000);
    clock.jump(Time(2_000_000), 10);
    assert_eq!(clock.local(Time(2_000_000)).0 - before.0, 999_010);
}

#[test]
fn a_time_that_a_clock_never_shows_is_never_reached() {
    assert_eq!(NodeClock::new(5, 10).when(Time::MAX), Time::MAX);
    assert_eq!(NodeClock::new(5, 10).when(Time(3)), Time::ZERO);
    assert_eq!(NodeClock::TRUE.when(Time(77)), Time(77));
}
