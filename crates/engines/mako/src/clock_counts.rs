//! Clocks of what is under way, in which the least is found at once.

use shoal_types::Clock;
use std::collections::VecDeque;

/// So few that are of nothing any more may stay.
const KEPT_MIN: usize = 64;

/// Clocks, each as often as there are pieces of it: a transaction may come in parts. Mostly they come in order, and go in
/// order.
///
/// Invariants: they are in order, and the first is of something.
#[derive(Default)]
pub(super) struct ClockCounts {
    /// Those in between may be of nothing any more.
    counts: VecDeque<(Clock, usize)>,
    /// How many are of something.
    live: usize,
}

impl ClockCounts {
    /// One more of this clock.
    pub(super) fn insert(&mut self, clock: Clock) {
        let place = match self.counts.back() {
            Some((last, _)) if *last >= clock => self.place(clock),
            _ => Err(self.counts.len()),
        };
        match place {
            Ok(at) => {
                self.live += usize::from(self.counts[at].1 == 0);
                self.counts[at].1 += 1;
            }
            Err(at) => {
                self.live += 1;
                self.counts.insert(at, (clock, 1));
            }
        }
    }

    /// One less.
    pub(super) fn remove(&mut self, clock: Clock) {
        let at = self.place(clock).expect("what waited is counted");
        let count = &mut self.counts[at].1;
        *count = count.checked_sub(1).expect("what waited is counted");
        self.live -= usize::from(*count == 0);
        while self.counts.front().is_some_and(|(_, count)| *count == 0) {
            self.counts.pop_front();
        }
        if self.counts.len() > KEPT_MIN + 2 * self.live {
            self.counts.retain(|(_, count)| *count > 0);
        }
    }

    /// The least.
    pub(super) fn first(&self) -> Option<Clock> {
        self.counts.front().map(|(clock, _)| *clock)
    }

    fn place(&self, clock: Clock) -> Result<usize, usize> {
        self.counts.binary_search_by_key(&clock, |(clock, _)| *clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::Random;
    use std::collections::BTreeMap;

    #[test]
    fn the_least_is_that_of_a_map() {
        let (mut counts, mut model) = (ClockCounts::default(), BTreeMap::<Clock, usize>::new());
        let mut random = Random::new(3);
        for round in 0..20_000u64 {
            if random.below(2) == 0 || model.is_empty() {
                let clock = Clock(round + random.below(20));
                counts.insert(clock);
                *model.entry(clock).or_default() += 1;
            } else {
                let at = random.below(model.len().min(200) as u64) as usize;
                let clock = *model.keys().nth(at).expect("it has so many");
                counts.remove(clock);
                let left = model.get_mut(&clock).expect("it is there");
                *left -= 1;
                if *left == 0 {
                    model.remove(&clock);
                }
            }
            assert_eq!(counts.first(), model.first_key_value().map(|(clock, _)| *clock));
            assert!(counts.live == model.len() && counts.counts.len() <= 64 + 2 * model.len());
        }
    }
}
