//! A place for things that stay where they are while more are added, so that they can be borrowed: what a
//! transaction has read, which its body borrows.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More than a transaction may read, and than memory holds.
const LEVELS: usize = 40;

/// A growing list whose items never move. Any number of threads may add to it.
///
/// Levels of 1, 2, 4 … places, each made when it is first needed and never moved.
#[derive(Debug)]
pub struct Arena<T> {
    levels: [OnceLock<Box<[OnceLock<T>]>>; LEVELS],
    kept: AtomicUsize,
}

impl<T> Default for Arena<T> {
    fn default() -> Arena<T> {
        Arena { levels: [const { OnceLock::new() }; LEVELS], kept: AtomicUsize::new(0) }
    }
}

impl<T> Arena<T> {
    /// Keeps `thing` for as long as the arena lives.
    pub fn keep(&self, thing: T) -> &T {
        let number = self.kept.fetch_add(1, Ordering::Relaxed) + 1;
        let level = number.ilog2() as usize;
        let places =
            self.levels[level].get_or_init(|| (0..1 << level).map(|_| OnceLock::new()).collect());
        places[number - (1 << level)].get_or_init(|| thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays() {
        let arena = Arena::default();
        let kept: Vec<&String> = (0..1000).map(|number| arena.keep(number.to_string())).collect();
        for (number, text) in kept.into_iter().enumerate() {
            assert_eq!(*text, number.to_string());
        }
    }
}
