//! Order-preserving tuple encoding: tuples become byte strings that compare as the tuples do.
//!
//! ```
//! use shoal_types::tuple;
//! let key = tuple::encode((7_u32, 3_u8, "smith"));
//! assert!(*key < *tuple::encode((7_u32, 3_u8, "smithers")));
//! assert_eq!(tuple::decode::<(u32, u8, String)>(&key), Ok((7, 3, "smith".to_owned())));
//! ```
//!
//! # Format
//!
//! ```text
//! key      = element*
//! element  = null | boolean | integer | float | text | bytes | nested
//! null     = 02
//! boolean  = 03 | 04                       false, true
//! integer  = (20 - n) byte{n}              n = 1..16: below zero, the low n bytes of its two's
//!                                          complement; n as small as keeps it
//!          | (20 + v)                      0 <= v <= 7f: the code is the number
//!          | (9f + n) byte{n}              n = 1..16: above 7f; n as small as holds it
//! float    = b0 byte{4} | b1 byte{8}       f32, f64: the bits of a negative number inverted,
//!                                          of any other with the sign bit set
//! text     = c0 escaped* 00                UTF-8
//! bytes    = c1 escaped* 00
//! escaped  = 01 01 | 01 02 | 02..ff        for 00, for 01, for itself
//! nested   = d0 element* 00
//! ```
//!
//! Numbers are hexadecimal, multi-byte numbers big-endian. A worked example, `(1, 300, -2, "a")`:
//!
//! ```text
//! 21        1
//! a1 01 2c  300 in two bytes
//! 1f fe     -2 in one byte
//! c0 61 00  "a"
//! ```
//!
//! # Invariants
//!
//! - *Order.* Encodings compare as tuples do, element by element, and a tuple sorts right before
//!   its extensions. Between types: null, booleans, integers, f32, f64, text, bytes, nested tuples.
//!   All integer types share one order; floats have that of `total_cmp`.
//! - *Prefixes.* No element's encoding begins another's. So the keys that begin with the bytes of a
//!   tuple are exactly the encodings of that tuple and its extensions: a prefix scan is a scan of
//!   a tuple's children, and [`prefix_end`] bounds them from above.
//! - *One form.* Each tuple has one encoding, and decoding refuses every other byte string.
//!
//! Encoding a small integer stores one byte; a greater one takes a leading-zeros count and one store
//! of eight bytes, of which as many stay as are needed. A key of up to
//! [`KeyBuffer::INLINE_BYTES`] bytes is built without the heap.

mod buffer;
mod code;
mod decode;
mod encode;
mod sink;
mod value;

pub use buffer::KeyBuffer;
pub use decode::{Decode, DecodeError, DecodeTuple, Decoder, Problem};
pub use encode::{Element, Tuple};
pub use sink::Sink;
pub use value::Value;

/// The key that `tuple` is encoded as: it compares with other keys as the tuples compare.
#[inline]
pub fn encode(tuple: impl Tuple) -> KeyBuffer {
    let mut key = KeyBuffer::new();
    tuple.encode_elements(&mut key);
    key
}

/// Appends the key of `tuple` to `sink`, which may already hold the elements before it.
#[inline]
pub fn encode_into(sink: &mut impl Sink, tuple: impl Tuple) {
    tuple.encode_elements(sink);
}

/// The exclusive end of all keys that begin with `tuple`: above each of them, below every tuple
/// key that comes later.
///
/// ```
/// use shoal_types::{Scan, tuple};
/// let (start, end) = (tuple::encode((7_u32,)), tuple::prefix_end((7_u32,)));
/// assert!((&*start..&*end).contains(&&*tuple::encode((7_u32, "x"))));
/// assert!(!(&*start..&*end).contains(&&*tuple::encode((8_u32,))));
/// Scan::range(&*start..&*end).reverse().limit(1); // the last of them
/// ```
#[inline]
pub fn prefix_end(tuple: impl Tuple) -> KeyBuffer {
    let mut key = encode(tuple);
    key.put(&[code::ABOVE_ALL]);
    key
}

/// The tuple whose key is `key`.
///
/// # Errors
/// Where `key` is not the encoding of a tuple of these types; never panics.
pub fn decode<'a, T: DecodeTuple<'a>>(key: &'a [u8]) -> Result<T, DecodeError> {
    let mut decoder = Decoder::new(key);
    let tuple = T::decode_elements(&mut decoder)?;
    decoder.finish()?;
    Ok(tuple)
}

#[cfg(test)]
mod tests;
