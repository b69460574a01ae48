//! A place for bytes that stay where they are while more are added, so that they can be borrowed.

use bytes::Bytes;
use std::cell::{Cell, OnceCell};

/// Levels of 1, 2, 4 … places, each made when it is first needed and never moved.
#[derive(Debug, Default)]
pub struct Arena {
    levels: [OnceCell<Box<[OnceCell<Bytes>]>>; 24],
    kept: Cell<usize>,
}

impl Arena {
    /// Keeps `bytes` for as long as the arena lives.
    ///
    /// # Panics
    /// If 2²⁴ of them are kept already.
    pub fn keep(&self, bytes: Bytes) -> &[u8] {
        let number = self.kept.replace(self.kept.get() + 1) + 1;
        let level = number.ilog2() as usize;
        let places =
            self.levels[level].get_or_init(|| (0..1 << level).map(|_| OnceCell::new()).collect());
        places[number - (1 << level)].get_or_init(|| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays() {
        let arena = Arena::default();
        let kept: Vec<&[u8]> =
            (0..1000_u32).map(|number| arena.keep(Bytes::from(number.to_string()))).collect();
        for (number, bytes) in kept.into_iter().enumerate() {
            assert_eq!(bytes, number.to_string().as_bytes());
        }
    }
}
