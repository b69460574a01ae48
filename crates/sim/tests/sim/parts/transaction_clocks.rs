//! The transaction clocks of nodes, over system clocks that are wrong in every way.

use shoal_sim::transaction_clocks::{BEGINNING_NS, EventInstant, TransactionClocks};
use shoal_types::transaction_clock::EventTimes;
use shoal_types::{NodeId, Random, Time};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Times of a node that takes an event every millisecond, on a local clock that is true.
fn times_of(seed: u64, clocks: &mut TransactionClocks) -> Vec<(Time, EventTimes)> {
    let node = NodeId((seed % 3) as u32);
    let event = |turn: u64| {
        let now = Time(turn * MS);
        let instant = EventInstant {
            node,
            instance: 1,
            now,
            local: now,
            arrived: Time(now.0.saturating_sub(1000)),
        };
        (Time(BEGINNING_NS + now.0), clocks.times(instant))
    };
    (0..2000).map(event).collect()
}

#[test]
fn clocks_go_forward_repeat_from_their_seed_and_are_wrong_in_every_way() {
    let (mut wrong, mut unknown, mut lies, mut steps) = (0, 0, 0, 0);
    for seed in 0..200 {
        let mut clocks = TransactionClocks::draw(3, Random::new(seed));
        let times = times_of(seed, &mut clocks);
        let mut again = TransactionClocks::draw(3, Random::new(seed));
        assert_eq!(times, times_of(seed, &mut again));
        for pair in times.windows(2) {
            let ([before, after], gone) = ([pair[0].1, pair[1].1], pair[1].0 - pair[0].0);
            assert!(before.now.time <= after.now.time, "seed {seed}: {pair:?}");
            assert!(after.arrived.time <= after.now.time, "seed {seed}: {pair:?}");
            steps += u32::from(after.now.time - before.now.time > 2 * gone);
        }
        let honest = clocks.errors().lies_percent == 0;
        for (truth, EventTimes { now, .. }) in times {
            wrong +=
                u32::from(now.time.max(truth) - now.time.min(truth) > Duration::from_nanos(MS));
            let Some((earliest, latest)) = now.interval() else {
                unknown += 1;
                continue;
            };
            let contains = earliest <= truth && truth <= latest;
            assert!(contains || !honest, "seed {seed}: {earliest} {truth} {latest}");
            lies += u32::from(!contains);
        }
    }
    assert!(
        wrong > 1000 && unknown > 1000 && lies > 1000 && steps > 10,
        "{wrong} {unknown} {lies} {steps}"
    );
}

#[test]
fn a_new_process_begins_with_what_the_system_shows() {
    let mut clocks = TransactionClocks::draw(1, Random::new(4));
    let mut event = |instance, now: u64| {
        let now = Time(now);
        let node = NodeId(0);
        clocks.times(EventInstant { node, instance, now, local: now, arrived: now }).now.time
    };
    let (first, later) = (event(1, 0), event(1, 50 * MS));
    assert!(later > first);
    // The local clock of another process may show anything.
    event(2, 60 * MS);
}
