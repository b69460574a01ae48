//! What must hold of every form, for the tests of all crates that have some.

use super::{Coded, decode, encode};
use bytes::Bytes;
use std::fmt::Debug;

/// Most places of a value at which it is cut and twisted.
const PLACES_MAX: usize = 400;

/// There and back is the same; cut, or with more at its end, it is nothing; and twisted, it is nothing or
/// something else that has this form.
///
/// # Panics
/// If not.
pub fn returns<T: Coded + Debug + PartialEq>(value: &T) {
    let bytes = encode(value);
    assert!(bytes.len() >= T::BYTES_MIN, "{} bytes: {value:?}", bytes.len());
    assert_eq!(decode::<T>(&bytes).as_ref(), Ok(value));
    let longer = Bytes::from([&bytes[..], &[0]].concat());
    assert!(decode::<T>(&longer).is_err(), "with a byte more: {value:?}");
    for place in (0..bytes.len()).step_by(bytes.len() / PLACES_MAX + 1) {
        assert!(decode::<T>(&bytes.slice(..place)).is_err(), "cut to {place}: {value:?}");
        for twist in [0x01, 0x02, 0x80, 0xff] {
            let mut twisted = bytes.to_vec();
            twisted[place] ^= twist;
            withstands::<T>(&twisted.into());
        }
    }
}

/// Reading any bytes does not panic, and what they are taken for has no other form.
///
/// # Panics
/// If it does, or has.
pub fn withstands<T: Coded>(bytes: &Bytes) {
    if let Ok(value) = decode::<T>(bytes) {
        assert_eq!(encode(&value), bytes, "two forms of one {}", std::any::type_name::<T>());
    }
}
