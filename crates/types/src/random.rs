//! The seeded random source.
//!
//! All randomness below the sockets comes from here, so that a run can be repeated from its seed.
//! The sequence is part of the contract: a seed in a bug report has to mean the same transactions
//! on every machine and in every later version. The tests pin it.

/// A small, fast, seeded generator. The same seed gives the same numbers on every machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

/// One step of SplitMix64 (Steele, Lea and Flood 2014): moves `state` on and returns its hash.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// Two generators of one seed draw the same numbers, in every build and on every machine.
    pub fn new(seed: u64) -> Random {
        let mut mix = seed;
        Random { state: std::array::from_fn(|_| split_mix(&mut mix)) }
    }

    /// The generator of stream `stream`, which shares no visible pattern with this one or with its
    /// other streams. It depends on where this generator stands, and does not move it: fork the
    /// streams of all clients from one untouched generator.
    ///
    /// ```
    /// # use shoal_types::Random;
    /// let root = Random::new(7);
    /// let (mut one, mut two) = (root.fork(1), root.fork(2));
    /// assert_ne!(one.next_u64(), two.next_u64());
    /// ```
    #[must_use]
    pub fn fork(&self, stream: u64) -> Random {
        let mut mix = stream;
        let hash = self.state.iter().fold(split_mix(&mut mix), |hash, word| {
            mix ^= word;
            hash.rotate_left(17) ^ split_mix(&mut mix)
        });
        Random::new(hash)
    }

    /// The next 64 random bits (xoshiro256++, Blackman and Vigna 2019).
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        result
    }

    /// A number in `0..bound`, each as likely as the other to within 2⁻⁶⁴ · bound.
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both of them possible.
    ///
    /// # Panics
    /// If `low` is above `high`.
    #[inline]
    pub fn range_inclusive(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "no number is from {low} to {high}");
        match (high - low).checked_add(1) {
            Some(count) => low + self.below(count),
            None => self.next_u64(),
        }
    }

    /// True `numerator` times out of `denominator`, on average.
    ///
    /// # Panics
    /// If `denominator` is 0.
    #[inline]
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// A number from 0 up to and without 1, in steps of 2⁻⁵³.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.next_u64() >> 11) as f64 * STEP
    }

    /// One of `items`, or `None` where there are none.
    #[inline]
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.below(items.len() as u64) as usize) }
    }

    /// Puts `items` into random order, each order as likely as another (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of xoshiro256++ from the state 1, 2, 3, 4, computed by its definition.
    #[test]
    fn the_generator_is_the_published_one() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let first = [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205];
        assert_eq!(first.map(|_| random.next_u64()), first);
    }

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut random = Random::new(42);
        let first = [15021278609987233951, 5881210131331364753, 18149643915985481100];
        assert_eq!(first.map(|_| random.next_u64()), first);
        assert_eq!([0; 8].map(|_| random.below(10)), [7, 7, 5, 1, 6, 2, 9, 5]);
        assert_eq!([0; 8].map(|_| random.range_inclusive(1, 6)), [6, 5, 1, 3, 4, 2, 1, 4]);
        assert_eq!([0; 4].map(|_| random.chance(1, 2)), [true, true, false, false]);
        assert_eq!([0; 4].map(|_| random.chance(1, 2)), [false, false, true, true]);
        assert_eq!(random.unit(), 0.9489386528431584);
        let mut items = [0, 1, 2, 3, 4, 5, 6, 7];
        random.shuffle(&mut items);
        assert_eq!(items, [7, 1, 5, 2, 3, 0, 6, 4]);
        assert_eq!(random.pick(&items), Some(&0));
        assert_eq!(Random::new(42).fork(0).next_u64(), 4329182034901050277);
        assert_eq!(Random::new(42).fork(1).next_u64(), 6498820525134001638);
    }

    #[test]
    fn ranges_reach_both_ends_and_nothing_else() {
        let mut random = Random::new(1);
        let mut seen = [0; 3];
        for _ in 0..300 {
            seen[(random.range_inclusive(5, 7) - 5) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (60..140).contains(count)), "{seen:?}");
        assert_eq!(random.range_inclusive(9, 9), 9);
        random.range_inclusive(0, u64::MAX);
        assert_eq!(random.pick::<u8>(&[]), None);
        assert!((0..100).all(|_| random.chance(1, 1) && !random.chance(0, 1)));
        assert!((0..1000).map(|_| random.unit()).all(|unit| (0.0..1.0).contains(&unit)));
    }

    #[test]
    fn shuffles_reach_every_order() {
        let mut random = Random::new(2);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..2400 {
            let mut items = [0, 1, 2, 3];
            random.shuffle(&mut items);
            *seen.entry(items).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 24);
        assert!(seen.values().all(|count| (60..150).contains(count)), "{seen:?}");
    }

    #[test]
    fn streams_differ_from_each_other_and_from_their_root() {
        let root = Random::new(3);
        let firsts = (0..1000).map(|stream| root.fork(stream).next_u64());
        let distinct =
            firsts.chain([root.clone().next_u64()]).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(distinct.len(), 1001);
        assert_eq!(root, Random::new(3), "forking moves nothing");
    }
}
