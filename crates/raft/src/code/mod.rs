//! The forms of what is the library's: votes, entries and the two requests of Raft, for the wire and the
//! disk. The library is foreign here, and so is [`Coded`]; hence a trait between them. What is in the
//! entries has its form in `shoal-cluster`, and the rules of all forms are those of [`shoal_types::wire`].

mod message;
#[cfg(test)]
mod tests;

pub use message::{RaftRequest, RaftResponse};

use bytes::{Bytes, BytesMut};
use shoal_types::wire::{Coded, Input, Malformed};

/// What has a form in bytes, and is not ours to say so of.
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
