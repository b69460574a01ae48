//! Bytes for the wire and the disk, by hand: little-endian numbers, lengths before what has a length,
//! one byte for which variant it is. Each value has one form.
//!
//! What is read was written by somebody else: every length is held against the bytes that are there
//! before anything is allocated, and what makes no sense is [`Malformed`], never a panic.

mod command;
mod message;
#[cfg(test)]
mod tests;

pub use message::{Request, Response};

use bytes::Bytes;
use thiserror::Error;

/// Bytes that no correct replica writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("malformed bytes: {what} at byte {at}")]
pub struct Malformed {
    /// What is wrong.
    pub what: &'static str,
    /// Where.
    pub at: usize,
}

/// What has a form in bytes.
pub trait Coded: Sized {
    /// No value takes fewer bytes.
    const BYTES_MIN: usize;

    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes a value from the front.
    ///
    /// # Errors
    /// [`Malformed`] if there is none.
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed>;
}

/// The bytes of a value.
pub fn encode(value: &impl Coded) -> Bytes {
    let mut out = Vec::new();
    value.put(&mut out);
    out.into()
}

/// The value that these bytes are, all of them.
///
/// # Errors
/// [`Malformed`] if they are none.
pub fn decode<T: Coded>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut input = Input { bytes, at: 0 };
    let value = T::take(&mut input)?;
    if input.left() > 0 {
        return Err(input.wrong("bytes after the end"));
    }
    Ok(value)
}

/// Bytes that are being read.
#[derive(Debug)]
pub struct Input<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Input<'b> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn wrong(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    fn slice(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        if count > self.left() {
            return Err(self.wrong("the end"));
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    /// How many elements follow, each of so many bytes at least.
    fn count(&mut self, bytes_min: usize) -> Result<usize, Malformed> {
        let count = u32::take(self)? as usize;
        if count.saturating_mul(bytes_min) > self.left() {
            return Err(self.wrong("a length"));
        }
        Ok(count)
    }
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    u32::try_from(count).expect("lengths are limited far below 4 Gi").put(out);
}

macro_rules! coded_number {
    ($($number:ty),*) => {$(
        impl Coded for $number {
            const BYTES_MIN: usize = size_of::<$number>();

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(input: &mut Input<'_>) -> Result<$number, Malformed> {
                let bytes = input.slice(size_of::<$number>())?;
                Ok(<$number>::from_le_bytes(bytes.try_into().expect("as many as asked for")))
            }
        }
    )*};
}
coded_number!(u8, u32, u64);

impl Coded for bool {
    const BYTES_MIN: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<bool, Malformed> {
        match u8::take(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(input.wrong("neither yes nor no")),
        }
    }
}

impl<T: Coded> Coded for Option<T> {
    const BYTES_MIN: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Option<T>, Malformed> {
        Ok(if bool::take(input)? { Some(T::take(input)?) } else { None })
    }
}

impl<T: Coded> Coded for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(input: &mut Input<'_>) -> Result<Vec<T>, Malformed> {
        let count = input.count(T::BYTES_MIN)?;
        (0..count).map(|_| T::take(input)).collect()
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    const BYTES_MIN: usize = A::BYTES_MIN + B::BYTES_MIN;

    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<(A, B), Malformed> {
        Ok((A::take(input)?, B::take(input)?))
    }
}

/// Bytes, where `Vec<u8>` would go one by one.
impl Coded for Box<[u8]> {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        out.extend_from_slice(self);
    }

    fn take(input: &mut Input<'_>) -> Result<Box<[u8]>, Malformed> {
        let count = input.count(1)?;
        Ok(input.slice(count)?.into())
    }
}

impl Coded for String {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(input: &mut Input<'_>) -> Result<String, Malformed> {
        let count = input.count(1)?;
        let text = std::str::from_utf8(input.slice(count)?);
        text.map(str::to_owned).map_err(|_| input.wrong("text that is no UTF-8"))
    }
}
