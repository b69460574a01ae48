//! Digests: what a transaction rests on, in 128 bits (rule T4), and the names of what it locks, in 64.
//!
//! A digest covers the id, the timestamp and the arguments of a transaction, and the digest of the last writer of each key
//! that it reads. So it covers predecessors of predecessors. What stands for a range is the sum of the digests of all that
//! wrote within it: writers of different keys of a range have no order among each other.

use shoal_types::TableId;
use shoal_types::wire::Coded;
use std::fmt;

/// What a transaction rests on. Equal digests stand for equal histories.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest of something that no writer has written.
    pub const NONE: Digest = Digest(0);

    /// The sum that stands for a range in which one more has written.
    #[must_use]
    pub fn plus(self, other: Digest) -> Digest {
        Digest(self.0.wrapping_add(other.0))
    }

    /// The sum without one of its writers.
    #[must_use]
    pub fn minus(self, other: Digest) -> Digest {
        Digest(self.0.wrapping_sub(other.0))
    }

    /// The name of the version of a row that the transaction with this digest has written.
    #[must_use]
    pub fn version(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 as u32)
    }
}

/// Makes a digest of words and bytes.
#[derive(Debug, Clone, Copy)]
pub struct Digester {
    one: u64,
    other: u64,
}

const KEYS: [u64; 4] =
    [0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB, 0xD6E8_FEB8_6659_FD93];

/// The halves of a product, folded.
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl Digester {
    /// Begins with a number that says what is digested.
    #[must_use]
    pub fn new(kind: u64) -> Digester {
        let mut digester = Digester { one: KEYS[0], other: KEYS[2] };
        digester.word(kind);
        digester
    }

    /// Adds a word.
    pub fn word(&mut self, word: u64) {
        let one = fold(self.one ^ word ^ KEYS[1], KEYS[3] ^ self.other.rotate_left(23) | 1);
        let other = fold(self.other ^ word.rotate_left(32) ^ KEYS[0], KEYS[2] ^ self.one | 1);
        (self.one, self.other) = (one.wrapping_add(word), other ^ word);
    }

    /// Adds bytes and their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    /// Adds a digest.
    pub fn digest(&mut self, Digest(digest): Digest) {
        self.word(digest as u64);
        self.word((digest >> 64) as u64);
    }

    /// The digest of all that was added.
    #[must_use]
    pub fn finish(mut self) -> Digest {
        self.word(KEYS[1]);
        self.word(KEYS[3]);
        Digest(u128::from(self.one) << 64 | u128::from(self.other))
    }
}

/// What can be locked. Two that have the same number conflict needlessly, and nothing worse.
pub type Resource = u64;

const TABLE: u64 = 1;
const GRANULE: u64 = 2;
const KEY: u64 = 3;

/// A whole table, on one shard.
#[must_use]
pub fn table_resource(table: TableId) -> Resource {
    let mut digester = Digester::new(TABLE);
    digester.word(table.0.into());
    digester.finish().version()
}

/// The keys of a table that begin with a prefix of the table's granules.
#[must_use]
pub fn granule_resource(table: TableId, prefix: &[u8]) -> Resource {
    resource(GRANULE, table, prefix)
}

/// The granule of a range, or the whole table.
#[must_use]
pub fn range_resource(table: TableId, granule: Option<&[u8]>) -> Resource {
    match granule {
        Some(prefix) => granule_resource(table, prefix),
        None => table_resource(table),
    }
}

/// One row of a table, present or absent.
#[must_use]
pub fn key_resource(table: TableId, key: &[u8]) -> Resource {
    resource(KEY, table, key)
}

fn resource(kind: u64, table: TableId, bytes: &[u8]) -> Resource {
    let mut digester = Digester::new(kind);
    digester.word(table.0.into());
    digester.bytes(bytes);
    digester.finish().version()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn different_inputs_have_different_digests() {
        let mut seen = BTreeSet::new();
        for table in 0..8 {
            for key in 0..4096_u16 {
                assert!(seen.insert(key_resource(TableId(table), &key.to_be_bytes())));
                assert!(seen.insert(granule_resource(TableId(table), &key.to_be_bytes())));
            }
            assert!(seen.insert(table_resource(TableId(table))));
        }
        let order = |words: [u64; 2]| {
            let mut digester = Digester::new(0);
            words.into_iter().for_each(|word| digester.word(word));
            digester.finish()
        };
        assert_ne!(order([1, 2]), order([2, 1]));
        let (one, other) = (order([1, 2]), order([2, 1]));
        assert_eq!(one.plus(other).minus(one), other);
    }
}
