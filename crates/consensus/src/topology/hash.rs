//! The hash that places keys on shards.
//!
//! # Stable for ever
//!
//! Where a key lives follows from this hash and the number of shards, and data lies where it once
//! put it. It must therefore never change, on any machine; the tests pin it.
//!
//! # Definition
//!
//! The key's first words of eight bytes, big-endian, are mixed one after the other into a seed that
//! begins as the length; the rest, one to eight bytes, is added to it as a big-endian number; the
//! sum times 2⁶⁴/φ is the hash. A key's shard is hash · shards / 2⁶⁴, rounded down.
//!
//! The last step is Fibonacci hashing (Knuth, The Art of Computer Programming, vol. 3, §6.4): keys
//! that count up in their last bytes, as ids and warehouses do, are spread more evenly than chance
//! would spread them. With twelve warehouses on three shards, chance is a poor friend.
//!
//! It is fast, not secret: somebody who chooses keys can choose a shard.

use types::ShardId;

/// 2⁶⁴ divided by the golden ratio, odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// An odd number without a pattern (that of Steele, Lea and Flood's SplitMix64).
const ODD: u64 = 0xbf58_476d_1ce4_e5b9;

/// Sends every bit of `word` to every part of the result; no two words to the same.
#[inline]
fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(ODD);
    word ^ (word >> 29)
}

/// The hash of a key, or of the part of it that decides.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    let (mut seed, mut rest) = (key.len() as u64, key);
    while rest.len() > 8
        && let Some((word, after)) = rest.split_first_chunk()
    {
        seed = mixed(seed ^ u64::from_be_bytes(*word));
        rest = after;
    }
    let last = rest.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    seed.wrapping_add(last).wrapping_mul(GOLDEN)
}

/// The shard of `shards` that the hash of `key` chooses.
#[inline]
pub(super) fn shard_of(key: &[u8], shards: u32) -> ShardId {
    ShardId(((u128::from(key_hash(key)) * u128::from(shards)) >> 64) as u32)
}
