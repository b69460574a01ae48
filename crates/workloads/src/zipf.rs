//! Zipfian numbers: rank r is drawn with a probability proportional to 1 / r^theta.
//!
//! Which ranks are hot is the distribution of YCSB's core workloads (Cooper et al., SoCC'10, after
//! Gray et al., SIGMOD'94). They are drawn by rejection-inversion (Hörmann and Derflinger, ACM
//! TOMACS 1996): exact for every n, no sum over n to prepare, and one power a draw, since 98 of
//! 100 draws are accepted without computing the density.
//!
//! Invariants: a rank is below n; [`Scrambled`] is a bijection of the ranks.

use shoal_types::Random;

/// Draws ranks in `0..n`, rank 0 the most likely.
#[derive(Debug, Clone)]
pub struct Zipf {
    n: u64,
    theta: f64,
    /// The area under the density's continuous hull is drawn from `low..high`, scaled by
    /// (1 - theta) so that its inverse is a bare power.
    low: f64,
    high: f64,
    /// 1 / (1 - theta): what inverts the area.
    exponent: f64,
    /// The same where it is a whole number, which makes the power a few multiplications.
    whole_exponent: Option<i32>,
    /// A draw at most this far below its rank lies under the hull's inner part.
    accept: f64,
}

impl Zipf {
    /// The skew of YCSB's core workloads.
    pub const YCSB_THETA: f64 = 0.99;

    /// The greatest skew accepted: nearer to 1 the hull's inverse loses its digits.
    pub const THETA_MAX: f64 = 0.999;

    /// Ranks in `0..n` with skew `theta`.
    ///
    /// # Panics
    /// If `n` is 0, or `theta` is not above 0 and at most [`Zipf::THETA_MAX`].
    pub fn new(n: u64, theta: f64) -> Zipf {
        assert!(n > 0, "no rank is below 0");
        assert!(theta > 0.0 && theta <= Self::THETA_MAX, "theta {theta} is out of range");
        let flat = 1.0 - theta;
        let area = |x: f64| x.powf(flat);
        let density = |x: f64| flat * x.powf(-theta);
        let exponent = 1.0 / flat;
        let whole = exponent.round();
        Zipf {
            n,
            theta,
            exponent,
            whole_exponent: ((exponent - whole).abs() < 1e-9).then_some(whole as i32),
            low: area(1.5) - density(1.0),
            high: area(n as f64 + 0.5),
            accept: 2.0 - (area(2.5) - density(2.0)).powf(1.0 / flat),
        }
    }

    /// The next rank.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let flat = 1.0 - self.theta;
        loop {
            let area = self.low + random.unit() * (self.high - self.low);
            let x = match self.whole_exponent {
                Some(exponent) => area.powi(exponent),
                None => area.powf(self.exponent),
            };
            let rank = (x + 0.5).floor().clamp(1.0, self.n as f64);
            if rank - x <= self.accept
                || area >= (rank + 0.5).powf(flat) - flat * rank.powf(-self.theta)
            {
                return rank as u64 - 1;
            }
        }
    }
}

/// A [`Zipf`] whose hot ranks lie anywhere in `0..n`, so that what is hot was not also loaded
/// together. A permutation, unlike YCSB's hash, lets no two ranks meet.
#[derive(Debug, Clone)]
pub struct Scrambled {
    zipf: Zipf,
    multiplier: u64,
    /// The number floor((2^64 - 1) / n): dividing by n is multiplying with it.
    reciprocal: u64,
}

/// Primes near 2^32 / golden ratio. No n of 32 bits is a multiple of both.
const MULTIPLIERS: [u64; 2] = [2_654_435_761, 2_654_435_789];

impl Scrambled {
    /// The scrambled ranks of `zipf`.
    ///
    /// # Panics
    /// If `zipf` has 2^32 ranks or more.
    pub fn new(zipf: Zipf) -> Scrambled {
        assert!(zipf.n <= u64::from(u32::MAX), "a scrambled Zipf has less than 2^32 ranks");
        let first_fits = !zipf.n.is_multiple_of(MULTIPLIERS[0]);
        let multiplier = if first_fits { MULTIPLIERS[0] } else { MULTIPLIERS[1] };
        Scrambled { multiplier, reciprocal: u64::MAX / zipf.n, zipf }
    }

    /// The next number.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        self.place(self.zipf.draw(random))
    }

    /// Where a rank lies; one past the rank, so that the hottest is not always number 0.
    #[inline]
    fn place(&self, rank: u64) -> u64 {
        let product = (rank + 1) * self.multiplier;
        let quotient = ((u128::from(product) * u128::from(self.reciprocal)) >> 64) as u64;
        // At most one too small, since the product is below 0.62 · 2^64.
        let rest = product - quotient * self.zipf.n;
        if rest < self.zipf.n { rest } else { rest - self.zipf.n }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws from `0..n` and compares each rank's share with its probability, within five
    /// standard deviations.
    fn agrees_with_the_definition(n: u64, theta: f64) {
        const DRAWS: u64 = 400_000;
        let zipf = Zipf::new(n, theta);
        let mut random = Random::new(n);
        let mut seen = vec![0u64; n as usize];
        for _ in 0..DRAWS {
            seen[zipf.draw(&mut random) as usize] += 1;
        }
        let weight = |rank: usize| ((rank + 1) as f64).powf(-theta);
        let sum: f64 = (0..seen.len()).map(weight).sum();
        for (rank, &seen) in seen.iter().enumerate() {
            let share = weight(rank) / sum;
            let expected = share * DRAWS as f64;
            let deviation = (expected * (1.0 - share)).sqrt();
            assert!(
                (seen as f64 - expected).abs() <= 5.0 * deviation + 1.0,
                "n {n} theta {theta} rank {rank}: {seen} draws, {expected} expected"
            );
        }
    }

    #[test]
    fn shares_are_those_of_the_definition() {
        for n in [1, 2, 3, 10, 1000] {
            agrees_with_the_definition(n, Zipf::YCSB_THETA);
        }
        agrees_with_the_definition(50, 0.5);
        agrees_with_the_definition(50, 0.01);
        agrees_with_the_definition(50, Zipf::THETA_MAX);
    }

    #[test]
    fn scrambling_is_a_permutation() {
        for n in [1, 2, 7, 1000, 65_536, 1_000_000] {
            let scrambled = Scrambled::new(Zipf::new(n, Zipf::YCSB_THETA));
            let mut met = vec![false; n as usize];
            for rank in 0..n {
                let place = scrambled.place(rank) as usize;
                assert!(!std::mem::replace(&mut met[place], true), "two ranks at {place} of {n}");
            }
        }
        let divisible = Scrambled::new(Zipf::new(MULTIPLIERS[0], Zipf::YCSB_THETA));
        assert_ne!(divisible.place(0), divisible.place(1));
        for n in (1 << 31..=u64::from(u32::MAX)).step_by(99_999_989) {
            let scrambled = Scrambled::new(Zipf::new(n, 0.5));
            let product = n * scrambled.multiplier;
            assert_eq!(scrambled.place(n - 1), product % n, "n {n}");
            assert_eq!(scrambled.place(n / 3), (n / 3 + 1) * scrambled.multiplier % n, "n {n}");
        }
    }

    #[test]
    fn the_seed_decides() {
        let zipf = Scrambled::new(Zipf::new(1_000_000, Zipf::YCSB_THETA));
        let draws = |seed| {
            let mut random = Random::new(seed);
            std::iter::repeat_with(|| zipf.draw(&mut random)).take(100).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }
}
