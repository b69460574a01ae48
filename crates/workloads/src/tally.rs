//! Counts that many clients keep together without sharing a cache line.

use std::sync::atomic::{AtomicU64, Ordering};

/// A value alone on its cache lines; 128 bytes, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// A sum to which every client adds at its own place.
#[derive(Debug)]
pub struct Tally {
    places: [Padded<AtomicU64>; Tally::PLACES],
}

impl Tally {
    const PLACES: usize = 64;

    /// A tally in which nothing is counted.
    pub fn new() -> Tally {
        Tally { places: std::array::from_fn(|_| Padded::default()) }
    }

    /// Adds one for client number `client`.
    #[inline]
    pub fn count(&self, client: usize) {
        self.add(client, 1);
    }

    /// Adds so many for client number `client`, modulo 2^64.
    #[inline]
    pub fn add(&self, client: usize, count: u64) {
        self.places[client % Self::PLACES].0.fetch_add(count, Ordering::Relaxed);
    }

    /// The sum, modulo 2^64; exact once the clients have stopped.
    pub fn sum(&self) -> u64 {
        let places = self.places.iter().map(|place| place.0.load(Ordering::Relaxed));
        places.fold(0, u64::wrapping_add)
    }
}

impl Default for Tally {
    fn default() -> Tally {
        Tally::new()
    }
}
