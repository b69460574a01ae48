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
//! It is fast, not secret: a client that chooses keys can choose a shard.

use shoal_types::ShardId;

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

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::tuple;

    #[test]
    fn the_hash_of_a_key_never_changes() {
        let keys: [&[u8]; 6] =
            [b"", b"a", b"\0\x07", b"12345678", b"123456789", b"user000000000042"];
        assert_eq!(
            keys.map(key_hash),
            [
                0,
                10465407871100354570,
                10372713005361028285,
                9256007068168849472,
                1671225919433617090,
                17182394699974524313
            ]
        );
    }

    /// The fewest and the most of these keys that one of `shards` gets.
    fn spread(shards: u32, keys: &[Vec<u8>]) -> (usize, usize) {
        let mut counts = vec![0; shards as usize];
        for key in keys {
            counts[shard_of(key, shards).0 as usize] += 1;
        }
        (counts.iter().copied().min().unwrap_or(0), counts.iter().copied().max().unwrap_or(0))
    }

    /// `count` numbers in each form that keys have them in, from `first` on by steps.
    fn forms(first: u32, step: u32, count: u32) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        let keys = |form: fn(u32) -> Vec<u8>| -> Vec<Vec<u8>> {
            (0..count).map(|place| form(first + place * step)).collect()
        };
        vec![
            ("two bytes", keys(|number| (number as u16).to_be_bytes().to_vec())),
            ("four bytes", keys(|number| number.to_be_bytes().to_vec())),
            ("eight bytes", keys(|number| u64::from(number).to_be_bytes().to_vec())),
            ("tuple", keys(|number| tuple::encode((number,)).to_vec())),
            ("pair", keys(|number| tuple::encode((3, number)).to_vec())),
            ("with a byte after", keys(|number| [&number.to_be_bytes()[..], &[9]].concat())),
            ("little-endian", keys(|number| u64::from(number).to_le_bytes().to_vec())),
            ("before eight", keys(|number| [&number.to_be_bytes()[..], &[0; 8]].concat())),
            ("digits", keys(|number| number.to_string().into_bytes())),
            ("user", keys(|number| format!("user{number:012}").into_bytes())),
        ]
    }

    #[test]
    fn numbers_in_a_row_spread_more_evenly_than_by_chance() {
        for shards in 1..=16 {
            for (form, keys) in forms(1, 1, shards * 8).drain(..5) {
                let (least, most) = spread(shards, &keys);
                assert!(least >= 6 && most <= 10, "{form}: {least} to {most} on {shards} shards");
            }
        }
    }

    #[test]
    fn keys_of_every_form_and_step_spread() {
        for shards in [2, 3, 4, 7, 10, 16] {
            for step in [1, 2, 3, 5, 8, 10, 16, 21, 55, 64, 100, 144, 256, 1000, 1024] {
                let count = 1 << 12;
                for (form, keys) in forms(0, step, count) {
                    if form == "two bytes" && step > 10 {
                        continue;
                    }
                    let (least, most) = spread(shards, &keys);
                    let mean = (count / shards) as usize;
                    assert!(
                        least > mean * 3 / 4 && most < mean * 5 / 4,
                        "{form} by {step}: {least} to {most} on {shards} shards"
                    );
                }
            }
        }
    }

    #[test]
    fn random_keys_spread_and_every_bit_counts() {
        let mut random = shoal_types::Random::new(5);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for place in 0..16_000 {
            keys.push((0..place % 32 + 4).map(|_| random.next_u64() as u8).collect());
        }
        let (least, most) = spread(16, &keys);
        assert!(least > 850 && most < 1150, "{least} to {most}");
        for key in &keys {
            let mut other = key.clone();
            other[random.below(key.len() as u64) as usize] ^= 1 << random.below(8);
            assert_ne!(key_hash(key), key_hash(&other), "{key:?} {other:?}");
        }
    }
}
