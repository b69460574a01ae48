//! What waits for a socket: frames, laid out so that one system call takes many.
//!
//! ```text
//! segments: [small small small header][large payload][header small …]   one slice of a write each
//! ```
//! Small payloads are copied behind each other; large ones are slices of their own and never copied.

use crate::frame::{HEADER_BYTES, Header, Kind};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use zerocopy::IntoBytes;

/// From this many bytes on a payload is not copied.
const LARGE_BYTES: usize = 4 << 10;

/// How long a segment of small frames grows, in bytes.
const SEGMENT_BYTES: usize = 64 << 10;

/// Most slices in one write.
pub const SLICES_MAX: usize = 64;

/// A part of the queue that is contiguous, and how many frames end in it.
struct Segment {
    bytes: Bytes,
    frames: usize,
}

/// Frames on their way to one socket. Bytes and frames are known at any time; a frame counts until the
/// segment with its last byte is written.
pub struct OutQueue {
    sealed: VecDeque<Segment>,
    open: BytesMut,
    open_frames: usize,
    /// How much to allocate for the next open segment.
    chunk: usize,
    bytes: usize,
    frames: usize,
}

impl fmt::Debug for OutQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutQueue({} frames, {} bytes)", self.frames, self.bytes)
    }
}

impl OutQueue {
    pub fn new() -> OutQueue {
        OutQueue {
            sealed: VecDeque::new(),
            open: BytesMut::new(),
            open_frames: 0,
            chunk: 1 << 10,
            bytes: 0,
            frames: 0,
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn frames(&self) -> usize {
        self.frames
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn push(&mut self, kind: Kind, payload: Bytes) {
        let is_large = payload.len() >= LARGE_BYTES;
        let copied = HEADER_BYTES + if is_large { 0 } else { payload.len() };
        if self.open.capacity() - self.open.len() < copied {
            if self.open.len() + copied > SEGMENT_BYTES {
                self.seal();
            }
            self.open.reserve(self.chunk.max(copied));
        }
        self.open.put_slice(Header::new(kind, payload.len()).as_bytes());
        self.bytes += HEADER_BYTES + payload.len();
        self.frames += 1;
        if is_large {
            self.seal();
            self.sealed.push_back(Segment { bytes: payload, frames: 1 });
        } else {
            self.open.put_slice(&payload);
            self.open_frames += 1;
        }
    }

    /// Ends the open segment, if there is something in it.
    fn seal(&mut self) {
        if self.open.is_empty() {
            return;
        }
        if self.open.len() > self.chunk / 2 {
            self.chunk = (self.chunk * 2).min(SEGMENT_BYTES);
        }
        let frames = std::mem::take(&mut self.open_frames);
        self.sealed.push_back(Segment { bytes: self.open.split().freeze(), frames });
    }

    /// What comes next, as slices for one write. Says how many there are.
    pub fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        self.seal();
        let mut count = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.sealed) {
            *slice = IoSlice::new(&segment.bytes);
            count += 1;
        }
        count
    }

    /// So many bytes were taken.
    ///
    /// # Panics
    /// If that is more than there were.
    pub fn advance(&mut self, mut taken: usize) {
        self.bytes = self.bytes.checked_sub(taken).expect("a socket takes what there is");
        while taken > 0 {
            let front = self.sealed.front_mut().expect("bytes are in segments");
            if front.bytes.len() > taken {
                front.bytes.advance(taken);
                return;
            }
            taken -= front.bytes.len();
            self.frames -= front.frames;
            self.sealed.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameReader;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn small_frames_share_a_slice_and_large_ones_have_their_own() {
        let mut queue = OutQueue::new();
        let large = Bytes::from(vec![7; LARGE_BYTES]);
        for payload in [Bytes::from_static(b"a"), Bytes::from_static(b"b"), large.clone()] {
            queue.push(Kind::Data, payload);
        }
        queue.push(Kind::Data, Bytes::from_static(b"c"));
        assert_eq!((queue.frames(), queue.bytes()), (4, 4 * HEADER_BYTES + 3 + LARGE_BYTES));
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        assert_eq!(queue.slices(&mut slices), 3);
        assert_eq!(slices[0].len(), 3 * HEADER_BYTES + 2);
        assert_eq!(slices[1].as_ptr(), large.as_ptr(), "not copied");
        assert_eq!(slices[2].len(), HEADER_BYTES + 1);
        queue.advance(3 * HEADER_BYTES + 2 + 5);
        assert_eq!(queue.frames(), 2);
        queue.advance(queue.bytes());
        assert_eq!((queue.frames(), queue.is_empty()), (0, true));
    }

    proptest! {
        #[test]
        fn what_is_pushed_arrives_whatever_each_write_takes(
            sizes in vec(prop_oneof![0_usize..100, 4000_usize..9000], 1..40),
            takes in vec(1_usize..20_000, 1..20),
        ) {
            let mut queue = OutQueue::new();
            let mut reader = FrameReader::new(10_000);
            let mut takes = takes.iter().cycle();
            let mut found = Vec::new();
            for (number, size) in sizes.iter().enumerate() {
                queue.push(Kind::Data, Bytes::from(vec![number as u8; *size]));
                // Writes between pushes, and all of them after the last.
                while !queue.is_empty() && (number % 3 == 0 || number + 1 == sizes.len()) {
                    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                    let count = queue.slices(&mut slices);
                    let all: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                    let take = all.len().min(*takes.next().expect("a cycle"));
                    reader.extend(&all[..take]);
                    queue.advance(take);
                    while let Some(frame) = reader.next_frame().expect("frames") {
                        found.push((frame.payload.first().copied(), frame.payload.len()));
                    }
                }
            }
            let sent: Vec<_> = sizes
                .iter()
                .enumerate()
                .map(|(number, size)| ((*size > 0).then_some(number as u8), *size))
                .collect();
            prop_assert_eq!(found, sent);
            prop_assert_eq!(queue.frames(), 0);
        }
    }
}
