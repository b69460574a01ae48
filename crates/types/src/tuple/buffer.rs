//! The key that a tuple is encoded into: a buffer on the stack, where the key is short.

use super::encode::Tuple;
use super::sink::Sink;
use std::fmt;
use std::ops::Deref;

/// A key under construction or done. Dereferences to its bytes. Up to
/// [`INLINE_BYTES`](KeyBuffer::INLINE_BYTES) it lives where the value lives, beyond on the heap.
///
/// Invariant: `heap` is empty, and the key is the first `length` bytes of `inline`; or it is not,
/// and holds the whole key.
#[derive(Clone)]
pub struct KeyBuffer {
    inline: [u8; KeyBuffer::INLINE_BYTES],
    length: usize,
    heap: Vec<u8>,
}

impl KeyBuffer {
    /// Longest key that needs no heap.
    pub const INLINE_BYTES: usize = 64;

    /// The empty key, which is a prefix of all and which no table accepts.
    #[inline]
    pub fn new() -> KeyBuffer {
        KeyBuffer { inline: [0; Self::INLINE_BYTES], length: 0, heap: Vec::new() }
    }

    /// Makes this the key of `tuple`, and returns it. The fastest way to make many keys: nothing is
    /// moved, and the heap's memory, if a key ever needed any, is used again.
    #[inline]
    pub fn encode(&mut self, tuple: impl Tuple) -> &[u8] {
        self.clear();
        tuple.encode_elements(self);
        self
    }

    /// Begins another key, keeping the heap's memory if there is any.
    #[inline]
    pub fn clear(&mut self) {
        self.length = 0;
        self.heap.clear();
    }

    /// A word too near the inline end for the store of all nine bytes, or beyond it.
    #[cold]
    #[inline(never)]
    fn put_word_late(&mut self, code: u8, word: [u8; 8], count: usize) {
        self.put(&[code]);
        self.put(&word[..count]);
    }

    #[cold]
    #[inline(never)]
    fn put_on_heap(&mut self, bytes: &[u8]) {
        if self.heap.is_empty() {
            self.heap.extend_from_slice(&self.inline[..self.length]);
        }
        self.heap.extend_from_slice(bytes);
        // No inline write fits any more, so that all that follows comes here as well.
        self.length = Self::INLINE_BYTES;
    }
}

impl Sink for KeyBuffer {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        match self.inline.get_mut(self.length..end) {
            Some(free) if self.heap.is_empty() => {
                free.copy_from_slice(bytes);
                self.length = end;
            }
            _ if bytes.is_empty() => {}
            _ => self.put_on_heap(bytes),
        }
    }

    #[inline]
    fn put_word(&mut self, code: u8, word: [u8; 8], count: usize) {
        assert!(count <= 8, "a word has eight bytes");
        // A spilled buffer has no room inline, so this also asks whether the key is on the heap.
        if let Some(free) = self.inline.get_mut(self.length..self.length + 9) {
            free[0] = code;
            free[1..].copy_from_slice(&word);
            self.length += 1 + count;
        } else {
            self.put_word_late(code, word, count);
        }
    }
}

impl Default for KeyBuffer {
    fn default() -> KeyBuffer {
        KeyBuffer::new()
    }
}

impl Deref for KeyBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.heap.is_empty() { &self.inline[..self.length] } else { &self.heap }
    }
}

impl AsRef<[u8]> for KeyBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for KeyBuffer {
    fn eq(&self, other: &KeyBuffer) -> bool {
        **self == **other
    }
}

impl Eq for KeyBuffer {}

impl fmt::Debug for KeyBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_every_way_over_the_inline_end() {
        for before in 0..=KeyBuffer::INLINE_BYTES + 2 {
            for count in 0..=8 {
                let (mut buffer, mut plain) = (KeyBuffer::new(), Vec::new());
                for sink in [&mut buffer as &mut dyn Sink, &mut plain] {
                    sink.put(&vec![7; before]);
                    sink.put_word(9, *b"12345678", count);
                    sink.put(&[]);
                    sink.put(b"end");
                }
                assert_eq!(*buffer, *plain, "{before} bytes, then {count} of a word");
            }
        }
    }

    #[test]
    fn clearing_begins_anew_on_either_side_of_the_end() {
        let mut buffer = KeyBuffer::new();
        for length in [0, 3, 64, 65, 2, 4096, 0, 1] {
            buffer.clear();
            buffer.put(&vec![1; length]);
            assert_eq!(*buffer, vec![1; length]);
        }
    }
}
