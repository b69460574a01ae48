//! Forms: values as bytes, for what nodes, managers and clients say to each other, and for what is kept
//! of it on disks.
//!
//! ```text
//! number   as many bytes as its type has, the lowest first
//! short    of seven bits a byte, the lowest first; all bytes but the last have their highest bit
//! bool     0 | 1
//! Option   0 | 1 value
//! enum     number of the variant, one byte | its fields
//! struct   its fields
//! Vec, BTreeMap, String, Box   count u32 | elements
//! Bytes    count short | bytes
//! ```
//! A field of an often sent message is declared `#[coded(short)]`: a number then takes as many bytes as it
//! needs, and a list as many for its count. How structs and enums are encoded is derived from their
//! declarations; `shoal-wire-derive` lists the attributes.
//!
//! What is read was written by another process, which may err or lie. So it always holds:
//!
//! - Each value has one form. Bytes that would be another one of it are [`Malformed`].
//! - Reading never panics, and recurses only as deep as the type does, which never holds itself.
//! - A count is held against the bytes that are there before anything is allocated, and an element in
//!   memory has at most [`GROWTH_MAX`] times the bytes of its form. That is checked when it is compiled.
//! - The number of a variant is never given away again, since logs and other releases keep it.
//!
//! Bytes are taken as slices of the frame they came in: nothing is copied, and the frame stays as long
//! as one of them does.
//!
//! ```
//! use bytes::Bytes;
//! use shoal_types::ShardId;
//! use shoal_types::wire::{Coded, Short, decode, encode};
//!
//! #[derive(Debug, PartialEq, Coded, Short)]
//! struct Page(u32);
//!
//! #[derive(Debug, PartialEq, Coded)]
//! struct Book {
//!     title: Bytes,
//!     #[coded(short)]
//!     pages: Vec<Page>,
//! }
//!
//! #[derive(Debug, PartialEq, Coded)]
//! enum Loan {
//!     #[coded(tag = 0)]
//!     Ask {
//!         shard: ShardId,
//!         #[coded(short)]
//!         count: u64,
//!     },
//!     #[coded(tag = 1)]
//!     Lend(Book),
//!     #[coded(tag = 2)]
//!     Refuse,
//! }
//!
//! assert_eq!(&encode(&Loan::Ask { shard: ShardId(7), count: 300 })[..], [0, 7, 0, 0, 0, 0xac, 2]);
//! let lent = Loan::Lend(Book { title: "Odes".into(), pages: vec![Page(3)] });
//! assert_eq!(decode::<Loan>(&encode(&lent))?, lent);
//! assert!(decode::<Loan>(&Bytes::from_static(&[3])).is_err());
//! # Ok::<(), shoal_types::wire::Malformed>(())
//! ```
//!
//! Read in this order: this page, `basic.rs` (what the language and its library have), `short.rs`,
//! `version.rs` (which versions of messages two ends use), and for tests `check.rs`.

mod basic;
pub mod check;
mod short;
#[cfg(test)]
mod tests;
mod version;

pub use shoal_wire_derive::{Coded, Short};
pub use short::{Short, short_elements};
pub use version::{CLIENT_MESSAGES, MessageVersion, MessageVersions, PEER_MESSAGES};

use bytes::Bytes;
// Derived code finds it here, in crates that do not depend on `bytes` themselves.
#[doc(hidden)]
pub use bytes::BytesMut;
use thiserror::Error;

/// How many times the bytes of its form an element of a list may have in memory.
pub const GROWTH_MAX: usize = 64;

/// Malformed bytes, which only a faulty or hostile peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("malformed bytes: {what} at byte {at}")]
pub struct Malformed {
    /// The rule that the bytes break, in words.
    pub what: &'static str,
    /// The byte at which it stands.
    pub at: usize,
}

/// What has a form in bytes.
pub trait Coded: Sized {
    /// No value takes fewer bytes.
    const BYTES_MIN: usize;

    /// Appends the value's bytes, as [`Coded::take`] reads them.
    fn put(&self, out: &mut BytesMut);

    /// Takes a value from the front.
    ///
    /// # Errors
    /// [`Malformed`] if there is none.
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed>;
}

/// The bytes of a value.
pub fn encode(value: &impl Coded) -> Bytes {
    let mut out = BytesMut::new();
    value.put(&mut out);
    out.freeze()
}

/// The value that a frame is, all of it.
///
/// # Errors
/// [`Malformed`] if it is none.
pub fn decode<T: Coded>(frame: &Bytes) -> Result<T, Malformed> {
    let mut input = Input::new(frame);
    let value = T::take(&mut input)?;
    input.end()?;
    Ok(value)
}

/// Bytes that are being read.
#[derive(Debug)]
pub struct Input<'b> {
    bytes: &'b [u8],
    at: usize,
    /// Whose the bytes are, if they are shared.
    frame: Option<&'b Bytes>,
}

impl<'b> Input<'b> {
    /// From a frame. Several values may be in it; what is [`Bytes`] in them stays there.
    #[must_use]
    pub fn new(frame: &'b Bytes) -> Input<'b> {
        Input { bytes: frame, at: 0, frame: Some(frame) }
    }

    /// From bytes that are only borrowed: what is [`Bytes`] in them is copied.
    #[must_use]
    pub fn borrowed(bytes: &'b [u8]) -> Input<'b> {
        Input { bytes, at: 0, frame: None }
    }

    /// How many bytes are not taken yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// An error at the byte to be taken next.
    #[must_use]
    #[cold]
    pub fn wrong(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// [`Malformed`] if something does.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.left() > 0 { Err(self.wrong("bytes after the end")) } else { Ok(()) }
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`Malformed`] if there is none.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.wrong("the end"))?;
        self.at += 1;
        Ok(byte)
    }

    /// The next bytes.
    ///
    /// # Errors
    /// [`Malformed`] if there are fewer.
    #[inline]
    pub fn slice(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..count).ok_or_else(|| self.wrong("the end"))?;
        self.at += count;
        Ok(taken)
    }

    /// The next bytes, shared with the frame.
    ///
    /// # Errors
    /// [`Malformed`] if there are fewer.
    pub fn shared(&mut self, count: usize) -> Result<Bytes, Malformed> {
        let begin = self.at;
        let taken = self.slice(count)?;
        Ok(match self.frame {
            Some(frame) => frame.slice(begin..self.at),
            None => Bytes::copy_from_slice(taken),
        })
    }

    /// How many elements follow, each of so many bytes at least.
    ///
    /// # Errors
    /// [`Malformed`] if there cannot be so many.
    pub fn count(&mut self, bytes_min: usize) -> Result<usize, Malformed> {
        let count = u32::take(self)?;
        self.fitting(count, bytes_min)
    }

    /// The same, of a short form.
    ///
    /// # Errors
    /// [`Malformed`] if there cannot be so many.
    #[inline]
    pub fn short_count(&mut self, bytes_min: usize) -> Result<usize, Malformed> {
        let count = u32::take_short(self)?;
        self.fitting(count, bytes_min)
    }

    #[inline]
    fn fitting(&self, count: u32, bytes_min: usize) -> Result<usize, Malformed> {
        let count = count as usize;
        if count.saturating_mul(bytes_min) > self.left() {
            return Err(self.wrong("a length"));
        }
        Ok(count)
    }

    /// So many elements, which fit. No more is allocated ahead than there are bytes; what is pushed beyond
    /// has been read.
    ///
    /// # Errors
    /// [`Malformed`] if one of them is.
    pub fn elements<T: Coded>(&mut self, count: usize) -> Result<Vec<T>, Malformed> {
        const {
            assert!(T::BYTES_MIN > 0, "a count of nothing is held against nothing");
            assert!(size_of::<T>() <= GROWTH_MAX * T::BYTES_MIN, "too big for so few bytes");
        }
        let mut elements = Vec::with_capacity(ahead(count, self.left(), size_of::<T>()));
        for _ in 0..count {
            elements.push(T::take(self)?);
        }
        Ok(elements)
    }
}

/// For how many of `count` elements of some size in memory there is room made before they are read.
fn ahead(count: usize, left: usize, size: usize) -> usize {
    count.min((left / size.max(1)).max(4))
}

/// The least of some numbers, for the derived [`Coded::BYTES_MIN`] of an enum.
#[doc(hidden)]
#[must_use]
pub const fn least(numbers: &[usize]) -> usize {
    let (mut least, mut place) = (usize::MAX, 0);
    while place < numbers.len() {
        if numbers[place] < least {
            least = numbers[place];
        }
        place += 1;
    }
    least
}

/// How many elements follow, as [`Input::count`] reads it.
///
/// # Panics
/// If there are 4 Gi: all that is sent is limited far below.
pub fn put_count(count: usize, out: &mut BytesMut) {
    u32::try_from(count).expect("lengths are limited far below 4 Gi").put(out);
}

/// How many elements follow, as [`Input::short_count`] reads it.
///
/// # Panics
/// See [`put_count`].
#[inline]
pub fn put_short_count(count: usize, out: &mut BytesMut) {
    u32::try_from(count).expect("lengths are limited far below 4 Gi").put_short(out);
}
