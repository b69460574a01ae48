//! What encodings are written into.

/// Takes the bytes of an encoding, in order.
pub trait Sink {
    /// Appends `bytes` to the end of the key.
    fn put(&mut self, bytes: &[u8]);

    /// Appends `code` and the first `count` bytes of `word`. A sink with room for all nine may
    /// write them all: what lies beyond its end does not count.
    ///
    /// # Panics
    /// If `count` is above 8.
    #[inline]
    fn put_word(&mut self, code: u8, word: [u8; 8], count: usize) {
        self.put(&[code]);
        self.put(&word[..count]);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_word(&mut self, code: u8, word: [u8; 8], count: usize) {
        assert!(count <= 8, "a word has eight bytes");
        let length = self.len() + 1 + count;
        self.push(code);
        self.extend_from_slice(&word);
        self.truncate(length);
    }
}
