//! The beginning of a key, as errors show it.

use crate::wire::{Coded, Input, Malformed, Short};
use bytes::BytesMut;
use std::fmt;

/// The beginning of a key, for messages. Copied without allocating.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyExcerpt {
    bytes: [u8; KeyExcerpt::BYTES_MAX],
    /// Length of the whole key, which may be longer than what is kept.
    length: u16,
}

impl KeyExcerpt {
    /// How much of a key is kept.
    pub const BYTES_MAX: usize = 38;

    /// Keeps the first [`Self::BYTES_MAX`] bytes of `key`.
    pub fn new(key: &[u8]) -> KeyExcerpt {
        let mut bytes = [0; Self::BYTES_MAX];
        let kept = key.len().min(Self::BYTES_MAX);
        bytes[..kept].copy_from_slice(&key[..kept]);
        KeyExcerpt { bytes, length: u16::try_from(key.len()).unwrap_or(u16::MAX) }
    }

    /// Whether the key is longer than what is kept.
    pub fn is_cut(&self) -> bool {
        usize::from(self.length) > Self::BYTES_MAX
    }

    /// The beginning of the key, and all of a key of [`Self::BYTES_MAX`] bytes or fewer.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(Self::BYTES_MAX)]
    }
}

impl fmt::Display for KeyExcerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.is_cut() { "…" } else { "" };
        write!(f, "'{}{more}'", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for KeyExcerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The length of the whole key, and the bytes that are kept. Not derived: the first determines how many of the second follow.
impl Coded for KeyExcerpt {
    const BYTES_MIN: usize = 1;

    fn put(&self, out: &mut BytesMut) {
        self.length.put_short(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(input: &mut Input<'_>) -> Result<KeyExcerpt, Malformed> {
        let length = u16::take_short(input)?;
        let kept = input.slice(usize::from(length).min(KeyExcerpt::BYTES_MAX))?;
        Ok(KeyExcerpt { length, ..KeyExcerpt::new(kept) })
    }
}
