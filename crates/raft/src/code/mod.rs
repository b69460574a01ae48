//! The encodings of the Raft library's types, for the wire and the disk: votes, entries and the requests of Raft. They are
//! not derived: these types and the trait [`Coded`] both belong to other crates, and their fields need checks that the
//! library relies on. The content of entries is encoded in `shoal-cluster`, and the rules are those of
//! [`shoal_types::wire`].

mod message;
#[cfg(test)]
mod tests;

pub use message::{RaftRequest, RaftResponse};

use bytes::{Bytes, BytesMut};
use shoal_types::wire::{Coded, Input, Malformed};

/// A type of another crate with an encoding of this one.
pub trait Foreign: Sized {
    /// Appends the value's bytes, as [`Foreign::take`] reads them.
    fn put(&self, out: &mut BytesMut);

    /// Takes a value from the front.
    ///
    /// # Errors
    /// [`Malformed`] if there is none.
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed>;
}

/// Coded as [`Coded`] codes an `Option`.
impl<T: Foreign> Foreign for Option<T> {
    fn put(&self, out: &mut BytesMut) {
        Coded::put(&self.is_some(), out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Option<T>, Malformed> {
        Ok(if <bool as Coded>::take(input)? { Some(T::take(input)?) } else { None })
    }
}

/// The bytes of a value.
pub fn encode(value: &impl Foreign) -> Bytes {
    let mut out = BytesMut::new();
    value.put(&mut out);
    out.freeze()
}

/// The value that these bytes are, all of them.
///
/// # Errors
/// [`Malformed`] if they are none.
pub fn decode<T: Foreign>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut input = Input::borrowed(bytes);
    let value = T::take(&mut input)?;
    input.end()?;
    Ok(value)
}
