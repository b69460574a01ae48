//! The digest of a run: everything that was delivered and observed, in order, in one number. Two runs of one
//! seed have the same digest, unless something other than the seed decided an event.
//!
//! Each word is mixed in by a multiplication and a rotation, which is fast and depends on the order.
//! Collisions by accident are improbable; the digest gives no protection from an attacker that searches for
//! one.

use std::fmt;

/// A checksum of everything that happened in a run, to compare two runs of one seed. Text can be written into it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// The digest of an empty run.
    pub fn new() -> Digest {
        Digest(0x517c_c1b7_2722_0a95)
    }

    /// Mixes in a word; the order of words counts.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x2545_f491_4f6c_dd1d);
        self.0 ^= self.0 >> 29;
    }

    /// Mixes in words, in order.
    #[inline]
    pub fn words<const N: usize>(&mut self, words: [u64; N]) {
        words.into_iter().for_each(|word| self.word(word));
    }

    /// Adds bytes and their number.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    /// The digest as a number.
    pub fn value(self) -> u64 {
        self.0
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
