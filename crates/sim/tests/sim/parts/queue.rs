//! The queue of future events: by time, with ties drawn from the seed, and without new memory in steady state.

use shoal_sim::queue::EventQueue;
use shoal_types::{Random, Time};

fn order(seed: u64, times: &[u64]) -> Vec<usize> {
    let mut queue = EventQueue::new(Random::new(seed));
    for (number, at) in times.iter().enumerate() {
        queue.push(Time(*at), number);
    }
    std::iter::from_fn(|| queue.pop()).map(|(_, number)| number).collect()
}

#[test]
fn items_come_by_time() {
    assert_eq!(order(1, &[30, 10, 20, 5]), [3, 1, 2, 0]);
}

#[test]
fn ties_are_drawn_from_the_seed() {
    let ties = [7; 6];
    assert_eq!(order(1, &ties), order(1, &ties));
    assert!((2..10).any(|seed| order(seed, &ties) != order(1, &ties)));
}

#[test]
fn slots_are_used_again() {
    let mut queue = EventQueue::new(Random::new(1));
    for round in 0..100 {
        queue.push(Time(round), round);
        queue.push(Time(round), round);
        assert_eq!((queue.pop().map(|(at, _)| at), queue.len()), (Some(Time(round)), 1));
        queue.pop();
    }
    assert!(queue.is_empty());
    assert_eq!(queue.slots(), 2);
}
