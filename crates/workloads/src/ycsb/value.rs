//! The values of YCSB's rows: the key, a counter, filler, and a seal over both.

use crate::rows;
use shoal_types::Result;

/// Shortest value: key, counter and seal.
pub const VALUE_BYTES_MIN: usize = 24;

/// The counter of `value`, if it is a whole value of `key`, of any length.
#[inline]
pub(super) fn checked_counter(key: [u8; 8], value: &[u8]) -> Result<u64> {
    if value.len() < VALUE_BYTES_MIN || value[..8] != key {
        return Err(rows::corrupt("a key with the value of another"));
    }
    let word = |at: usize| {
        u64::from_le_bytes(value[at..at + 8].try_into().expect("a word has eight bytes"))
    };
    let counter = word(8);
    if word(value.len() - 8) != u64::from_le_bytes(key) ^ counter {
        return Err(rows::corrupt("a value that was never written as a whole"));
    }
    Ok(counter)
}

/// Makes `value` the value of `key` with this counter.
#[inline]
pub(super) fn address(value: &mut [u8], key: [u8; 8], counter: u64) {
    let seal = u64::from_le_bytes(key) ^ counter;
    let end = value.len() - 8;
    value[..8].copy_from_slice(&key);
    value[8..16].copy_from_slice(&counter.to_le_bytes());
    value[end..].copy_from_slice(&seal.to_le_bytes());
}
