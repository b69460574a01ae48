//! The hash by which a transaction finds its own writes and recent reads, keyed, so that clients that do
//! not know the seed cannot choose keys that collide.
//!
//! It is pair-multiply-shift (Thorup, *High Speed Hashing for Integers and Strings*, 2015, §3.5): the
//! words of a key, split in halves, go each with two random words into a sum of products, and the upper
//! half of the sum is strongly universal: two different keys of any choice have equal upper halves with
//! a probability of 2⁻³² over the seeds. The table and the length are a word of their own, so padding
//! with zeros makes no keys equal. The products do not wait for each other, as the steps of a hash that
//! mixes word by word do.

use crate::key::head_at;
use shoal_types::limits::KEY_BYTES_MAX;
use shoal_types::{Random, TableId};

/// Random words: two for table and length, and two for each eight bytes of the longest key.
pub(crate) struct HashKeys {
    words: Box<[[u64; 2]]>,
}

impl HashKeys {
    /// Draws one pair of words for each eight bytes that a key can have.
    pub(crate) fn new(seed: u64) -> HashKeys {
        let mut random = Random::new(seed);
        let words = (0..=KEY_BYTES_MAX.div_ceil(8)).map(|_| [random.next_u64(), random.next_u64()]);
        HashKeys { words: words.collect() }
    }

    /// The hash of a key; the same key in another table has another. Only the upper half is spread
    /// well.
    #[inline]
    pub(crate) fn hash(&self, table: TableId, key: &[u8]) -> u64 {
        let ([first], words) = self.words.split_at(1) else {
            unreachable!("there is a first word")
        };
        let mut sum = product(*first, u64::from(table.0) << 32 | key.len() as u64);
        for (pair, offset) in words.iter().zip((0..key.len()).step_by(8)) {
            sum = sum.wrapping_add(product(*pair, head_at(key, offset)));
        }
        sum
    }
}

#[inline]
fn product([one, two]: [u64; 2], word: u64) -> u64 {
    one.wrapping_add(word >> 32).wrapping_mul(two.wrapping_add(word & 0xffff_ffff))
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn tables_lengths_and_bytes_all_count() {
        let keys = HashKeys::new(7);
        let mut hashes = BTreeSet::new();
        for table in 0..4 {
            for length in 1..=KEY_BYTES_MAX {
                assert!(
                    hashes.insert(keys.hash(TableId(table), &[0; KEY_BYTES_MAX][..length]) >> 32)
                );
            }
        }
        assert_ne!(keys.hash(TableId(0), b"a"), HashKeys::new(8).hash(TableId(0), b"a"));
    }
}
