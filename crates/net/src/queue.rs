//! The queue of a socket: frames, laid out so that one system call writes many.
//!
//! ```text
//! segments: [small small small header][large payload][header small …]   one slice of a write each
//! ```
//! Small payloads are copied behind each other; large ones are slices of their own and never copied.
//!
//! Between nodes a large payload is cut into frames of at most [`SLICE_BYTES`]. An urgent frame goes ahead of all that
//! waits, and at the next boundary of frames: so it waits for one slice at most, however much is queued.

use crate::frame::{FrameHeader, FrameKind, HEADER_BYTES};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use shoal_types::WorkerId;
use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use zerocopy::IntoBytes;

/// From this many bytes on a payload is not copied.
const LARGE_BYTES: usize = 4 << 10;

/// How long a segment of small frames grows, in bytes.
const SEGMENT_BYTES: usize = 64 << 10;

/// Longest frame between nodes, in bytes: the most that an urgent frame waits for. Larger ones cost fewer
/// headers.
pub const SLICE_BYTES: usize = 256 << 10;

/// Most slices in one write.
pub const SLICES_MAX: usize = 64;

/// A part of the queue that is contiguous, and how many frames end in it.
struct Segment {
    bytes: Bytes,
    frames: usize,
    /// Whether its last byte is the last of a frame. Otherwise it ends with the header of the next segment.
    ends_frame: bool,
    is_urgent: bool,
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
    /// The last byte that was written is the last of a frame.
    at_boundary: bool,
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
            at_boundary: true,
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

    pub fn push(&mut self, kind: FrameKind, payload: Bytes) {
        self.push_with(FrameHeader::new(kind, payload.len()), payload);
    }

    /// Adds the end of a frame whose beginning was written.
    pub fn push_rest(&mut self, bytes: Bytes) {
        self.seal(true);
        self.bytes += bytes.len();
        self.frames += 1;
        let (frames, ends_frame, is_urgent) = (1, true, false);
        self.sealed.push_back(Segment { bytes, frames, ends_frame, is_urgent });
    }

    fn push_with(&mut self, header: FrameHeader, payload: Bytes) {
        let is_large = payload.len() >= LARGE_BYTES;
        let copied = HEADER_BYTES + if is_large { 0 } else { payload.len() };
        if self.open.capacity() - self.open.len() < copied {
            if self.open.len() + copied > SEGMENT_BYTES {
                self.seal(true);
            }
            self.open.reserve(self.chunk.max(copied));
        }
        self.open.put_slice(header.as_bytes());
        self.bytes += HEADER_BYTES + payload.len();
        self.frames += 1;
        if is_large {
            self.seal(false);
            let (frames, ends_frame, is_urgent) = (1, true, false);
            self.sealed.push_back(Segment { bytes: payload, frames, ends_frame, is_urgent });
        } else {
            self.open.put_slice(&payload);
            self.open_frames += 1;
        }
    }

    /// Adds a message for a node, in frames of at most [`SLICE_BYTES`]. If it is to be passed on, the last of
    /// them names the worker.
    pub fn push_sliced(&mut self, receiver: Option<WorkerId>, mut payload: Bytes) {
        while payload.len() > SLICE_BYTES {
            self.push(FrameKind::Part, payload.split_to(SLICE_BYTES));
        }
        let header = FrameHeader::new(FrameKind::Data, payload.len());
        self.push_with(receiver.map_or(header, |it| header.passed_to(it)), payload);
    }

    /// Adds a frame ahead of all others, after earlier urgent ones.
    pub fn push_urgent(&mut self, payload: &[u8]) {
        self.seal(true);
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + payload.len());
        bytes.put_slice(FrameHeader::new(FrameKind::Urgent, payload.len()).as_bytes());
        bytes.put_slice(payload);
        let mut at = 0;
        let mut at_boundary = self.at_boundary;
        while let Some(segment) = self.sealed.get(at)
            && (!at_boundary || segment.is_urgent)
        {
            at_boundary = segment.ends_frame;
            at += 1;
        }
        self.bytes += bytes.len();
        self.frames += 1;
        let (frames, ends_frame, is_urgent) = (1, true, true);
        self.sealed.insert(at, Segment { bytes: bytes.freeze(), frames, ends_frame, is_urgent });
    }

    /// Ends the open segment, if there is something in it.
    fn seal(&mut self, ends_frame: bool) {
        if self.open.is_empty() {
            return;
        }
        if self.open.len() > self.chunk / 2 {
            self.chunk = (self.chunk * 2).min(SEGMENT_BYTES);
        }
        let frames = std::mem::take(&mut self.open_frames);
        let bytes = self.open.split().freeze();
        self.sealed.push_back(Segment { bytes, frames, ends_frame, is_urgent: false });
    }

    /// The next bytes, as slices for one write. Returns the number of slices.
    pub fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        self.seal(true);
        let mut count = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.sealed) {
            *slice = IoSlice::new(&segment.bytes);
            count += 1;
        }
        count
    }

    /// So many bytes were written.
    ///
    /// # Panics
    /// If there were fewer.
    pub fn advance(&mut self, mut taken: usize) {
        self.bytes = self.bytes.checked_sub(taken).expect("a socket writes no more than there is");
        while taken > 0 {
            let front = self.sealed.front_mut().expect("bytes are in segments");
            if front.bytes.len() > taken {
                front.bytes.advance(taken);
                self.at_boundary = false;
                return;
            }
            taken -= front.bytes.len();
            self.frames -= front.frames;
            self.at_boundary = front.ends_frame;
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
            queue.push(FrameKind::Data, payload);
        }
        queue.push(FrameKind::Data, Bytes::from_static(b"c"));
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

    /// Reads what a queue writes, whole frames of parts joined.
    fn read_all(
        queue: &mut OutQueue,
        reader: &mut FrameReader,
        takes: usize,
    ) -> Vec<(FrameKind, usize)> {
        let mut found = Vec::new();
        while !queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = queue.slices(&mut slices);
            let first: Vec<u8> =
                slices[..count].iter().flat_map(|slice| slice.to_vec()).take(takes).collect();
            reader.room();
            reader.extend(&first);
            queue.advance(first.len());
            while let Some(frame) = reader.next_frame().expect("frames") {
                found.push((frame.kind, frame.payload.len()));
            }
            if found.len() == 1 {
                break;
            }
        }
        found
    }

    #[test]
    fn an_urgent_frame_waits_for_one_slice_whatever_is_queued() {
        let (mut queue, mut reader) = (OutQueue::new(), FrameReader::new(1 << 20));
        queue.push_sliced(None, Bytes::from(vec![1; 3 * SLICE_BYTES]));
        queue.push_sliced(None, Bytes::from_static(b"small"));
        // A slice and some of the next are on their way.
        assert_eq!(
            read_all(&mut queue, &mut reader, SLICE_BYTES + 100),
            [(FrameKind::Part, SLICE_BYTES)]
        );
        queue.push_urgent(b"one");
        queue.push_urgent(b"three");
        let rest = read_all(&mut queue, &mut reader, usize::MAX);
        let slice = (FrameKind::Part, SLICE_BYTES);
        let wanted = [
            slice,
            (FrameKind::Urgent, 3),
            (FrameKind::Urgent, 5),
            (FrameKind::Data, SLICE_BYTES),
            (FrameKind::Data, 5),
        ];
        assert_eq!(rest, wanted);
        assert_eq!((queue.bytes(), queue.frames()), (0, 0));
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
                queue.push(FrameKind::Data, Bytes::from(vec![number as u8; *size]));
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
