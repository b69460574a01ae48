//! Heads: the eight bytes of a key that a node compares before it looks at the key itself.
//!
//! A head is big-endian and padded with zeros, so heads order as keys do, except that different
//! keys can share one; then the keys decide.

/// The bytes of `key` from `offset` on, as a head. An offset beyond the end gives 0.
#[inline(always)]
pub(crate) fn head_at(key: &[u8], offset: usize) -> u64 {
    match key.get(offset..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => short_head(key, offset),
    }
}

/// [`head_at`] where fewer than eight bytes are left, without a loop for keys of four bytes and up.
#[inline]
fn short_head(key: &[u8], offset: usize) -> u64 {
    let rest = key.len().saturating_sub(offset);
    if rest == 0 {
        return 0;
    }
    if let Some(last) = key.last_chunk::<8>() {
        return u64::from_be_bytes(*last) << (8 * (8 - rest));
    }
    let whole = match (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        // The two loads overlap in bytes that are equal, so "or" joins them.
        (Some(first), Some(last)) => {
            let high = u64::from(u32::from_be_bytes(*first)) << 32;
            high | u64::from(u32::from_be_bytes(*last)) << (8 * (8 - key.len()))
        }
        _ => key
            .iter()
            .enumerate()
            .fold(0, |whole, (i, byte)| whole | u64::from(*byte) << (56 - 8 * i)),
    };
    whole << (8 * offset)
}

/// The length of the common prefix of `a` and `b`, in bytes.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let least = a.len().min(b.len());
    for offset in (0..least).step_by(8) {
        // Padding is alike in both, or behind the end of the shorter.
        let differing = head_at(a, offset) ^ head_at(b, offset);
        if differing != 0 {
            return (offset + differing.leading_zeros() as usize / 8).min(least);
        }
    }
    least
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow_head(key: &[u8], offset: usize) -> u64 {
        let mut padded = [0; 8];
        for (slot, byte) in padded.iter_mut().zip(key.iter().skip(offset)) {
            *slot = *byte;
        }
        u64::from_be_bytes(padded)
    }

    proptest! {
        #[test]
        fn a_common_prefix_ends_where_bytes_differ(
            a in prop::collection::vec(0..2u8, 0..40),
            b in prop::collection::vec(0..2u8, 0..40),
            same in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let (a, b) = ([&same[..], &a].concat(), [&same[..], &b].concat());
            let expected = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(common_prefix(&a, &b), expected);
        }

        #[test]
        fn heads_are_the_padded_bytes(key in prop::collection::vec(any::<u8>(), 0..24), offset in 0..30usize) {
            prop_assert_eq!(head_at(&key, offset), slow_head(&key, offset));
        }
    }
}
