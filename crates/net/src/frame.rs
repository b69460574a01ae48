//! Frames: what a stream of bytes is cut into.
//!
//! ```text
//! frame: | length u32 | kind u8 | 0 | receiver u16 | payload, `length` bytes |     numbers are little-endian
//! ```
//! A connection leads to one worker of a node. `receiver` is 0 for frames that are for that worker: all frames but some
//! of those between nodes. Otherwise it is one more than the number of the worker that the frame is to be passed to.
//!
//! The reader returns each payload as a part of the buffer it was read into, without copying: a core that keeps a small
//! payload for long keeps the whole buffer, and should copy it.
//!
//! Invariant: what the reader allocates is bounded by what has arrived, twice over and a chunk, whichever
//! length was announced. Nothing that arrives makes it panic.

use bytes::{Buf, Bytes, BytesMut};
use shoal_types::WorkerId;
use std::fmt;
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What stands before each payload.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FrameHeader {
    length: U32,
    kind: u8,
    zero: u8,
    receiver: U16,
}

/// The length of a header in bytes.
pub const HEADER_BYTES: usize = size_of::<FrameHeader>();

/// The least and the most that is read at once, in bytes. What a connection reads says where between.
const CHUNK_MIN: usize = 4 << 10;
const CHUNK_MAX: usize = 256 << 10;

impl FrameHeader {
    /// # Panics
    /// If the payload's length does not fit into 32 bits: no limit allows that.
    pub fn new(kind: FrameKind, length: usize) -> FrameHeader {
        let length = u32::try_from(length).expect("limits on frames are below 4 GiB");
        let (length, receiver) = (U32::new(length), U16::ZERO);
        FrameHeader { length, kind: kind as u8, zero: 0, receiver }
    }

    /// The same for a frame that is to be passed to another worker than the one the connection leads to.
    ///
    /// # Panics
    /// If there can be no such worker.
    pub fn passed_to(self, receiver: WorkerId) -> FrameHeader {
        let receiver = u16::try_from(receiver.0 + 1).expect("a node has at most 1024 workers");
        FrameHeader { receiver: U16::new(receiver), ..self }
    }
}

/// What a frame is. Only [`FrameKind::Data`], [`FrameKind::Part`] and [`FrameKind::Bye`] pass once a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// From the dialer: its identity, and the node that it wants.
    Hello = 1,
    /// From the acceptor: its identity, and the challenge.
    Challenge = 2,
    /// From the dialer: its proof.
    Proof = 3,
    /// From the acceptor: its proof. The connection is established.
    Welcome = 4,
    /// From the acceptor: the reason for which it refuses.
    Refused = 5,
    /// A message for the core.
    Data = 6,
    /// The last frame to a client: why it is closed, in words.
    Bye = 7,
    /// The beginning of a message for the core, between nodes: the rest is in further parts and in the next
    /// [`FrameKind::Data`]. Whole [`FrameKind::Urgent`] frames may come between.
    Part = 8,
    /// A message for the core, between nodes, that was sent ahead of others.
    Urgent = 9,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        [
            FrameKind::Hello,
            FrameKind::Challenge,
            FrameKind::Proof,
            FrameKind::Welcome,
            FrameKind::Refused,
            FrameKind::Data,
            FrameKind::Bye,
            FrameKind::Part,
            FrameKind::Urgent,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// One frame that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The kind of the frame.
    pub kind: FrameKind,
    /// The worker that it is to be passed to, where that is not the one the connection leads to. There may be no such
    /// worker.
    pub receiver: Option<WorkerId>,
    /// The bytes after the header.
    pub payload: Bytes,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Longer than allowed.
    #[error("a frame of {length} bytes, where {max} are allowed")]
    TooLong {
        /// The length in its header.
        length: u32,
        /// The longest allowed length.
        max: usize,
    },
    /// The bytes are not the header of a frame.
    #[error("no header of a frame: kind {kind}")]
    Malformed {
        /// The byte in place of the kind.
        kind: u8,
    },
}

/// Cuts what arrives into frames.
pub struct FrameReader {
    buffer: BytesMut,
    payload_bytes_max: usize,
    may_pass_on: bool,
    chunk: usize,
}

impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameReader({} bytes, at most {})", self.buffer.len(), self.payload_bytes_max)
    }
}

impl FrameReader {
    /// A reader without any bytes, which refuses longer payloads than that.
    pub fn new(payload_bytes_max: usize) -> FrameReader {
        let (buffer, may_pass_on) = (BytesMut::new(), false);
        FrameReader { buffer, payload_bytes_max, may_pass_on, chunk: CHUNK_MIN }
    }

    /// From now on refuses payloads longer than that instead.
    pub fn allow(&mut self, payload_bytes_max: usize) {
        self.payload_bytes_max = payload_bytes_max;
    }

    /// From now on accepts frames for other workers, too: those of an established connection of a node.
    /// Before that, and from clients, they are malformed.
    pub fn allow_receivers(&mut self) {
        self.may_pass_on = true;
    }

    /// Whether it ends between frames.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The buffer, with room behind what it holds; append what arrives. Grows with what has arrived, not
    /// with what was announced.
    pub fn room(&mut self) -> &mut BytesMut {
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare < self.chunk / 4 {
            self.buffer.reserve(self.chunk.max(self.buffer.len()));
        }
        &mut self.buffer
    }

    /// Records a read of `count` bytes into a room of `room`: a busy connection reads more at once.
    pub fn note_read(&mut self, count: usize, room: usize) {
        if count >= room {
            self.chunk = (self.chunk * 2).min(CHUNK_MAX);
        } else if count < self.chunk / 16 {
            self.chunk = (self.chunk / 2).max(CHUNK_MIN);
        }
    }

    /// Appends bytes that were received.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if all of it was received. After an error there are no more frames.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Ok((header, rest)) = FrameHeader::ref_from_prefix(&self.buffer) else {
            return Ok(None);
        };
        let receiver = header.receiver.get().checked_sub(1).map(|it| WorkerId(it.into()));
        let is_plain = header.zero == 0 && (receiver.is_none() || self.may_pass_on);
        let kind = FrameKind::from_byte(header.kind).filter(|_| is_plain);
        let Some(kind) = kind else { return Err(FrameError::Malformed { kind: header.kind }) };
        let length = header.length.get() as usize;
        if length > self.payload_bytes_max {
            let length = header.length.get();
            return Err(FrameError::TooLong { length, max: self.payload_bytes_max });
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.buffer.advance(HEADER_BYTES);
        Ok(Some(Frame { kind, receiver, payload: self.buffer.split_to(length).freeze() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn encoded(payload: &[u8]) -> Vec<u8> {
        [FrameHeader::new(FrameKind::Data, payload.len()).as_bytes(), payload].concat()
    }

    fn drain(reader: &mut FrameReader) -> Vec<Bytes> {
        std::iter::from_fn(|| reader.next_frame().expect("frames"))
            .map(|frame| frame.payload)
            .collect()
    }

    #[test]
    fn a_header_is_as_documented() {
        let bytes = encoded(b"abc");
        assert_eq!(bytes, [3, 0, 0, 0, 6, 0, 0, 0, b'a', b'b', b'c']);
        let passed = FrameHeader::new(FrameKind::Data, 1).passed_to(WorkerId(0x102));
        assert_eq!(passed.as_bytes(), [1, 0, 0, 0, 6, 0, 3, 1]);
    }

    #[test]
    fn a_receiver_stands_in_the_frames_of_nodes_alone() {
        let header = FrameHeader::new(FrameKind::Data, 1).passed_to(WorkerId(0));
        let mut reader = FrameReader::new(100);
        reader.extend(&[header.as_bytes(), b"x"].concat());
        assert_eq!(reader.next_frame(), Err(FrameError::Malformed { kind: 6 }));
        reader.allow_receivers();
        let frame = reader.next_frame().expect("a frame").expect("all of it");
        assert_eq!((frame.receiver, &frame.payload[..]), (Some(WorkerId(0)), &b"x"[..]));
    }

    #[test]
    fn what_is_no_header_is_refused_before_its_payload_comes() {
        let cases: [(&[u8], FrameError); 5] = [
            (&[0, 0, 0, 0, 99, 0, 0, 0], FrameError::Malformed { kind: 99 }),
            (&[0, 0, 0, 0, 0, 0, 0, 0], FrameError::Malformed { kind: 0 }),
            (&[1, 0, 0, 0, 6, 0, 1, 0], FrameError::Malformed { kind: 6 }),
            (&[1, 0, 0, 0, 6, 1, 0, 0], FrameError::Malformed { kind: 6 }),
            (&[101, 0, 0, 0, 6, 0, 0, 0], FrameError::TooLong { length: 101, max: 100 }),
        ];
        for (bytes, error) in cases {
            let mut reader = FrameReader::new(100);
            reader.extend(bytes);
            assert_eq!(reader.next_frame(), Err(error));
        }
    }

    #[test]
    fn an_announcement_allocates_nothing() {
        let mut reader = FrameReader::new(1 << 30);
        reader.extend(FrameHeader::new(FrameKind::Data, 1 << 30).as_bytes());
        assert_eq!(reader.next_frame(), Ok(None));
        assert!(reader.room().capacity() <= 4 * CHUNK_MIN, "{}", reader.buffer.capacity());
        let mut arrived = HEADER_BYTES;
        while arrived < 1 << 20 {
            let room = reader.room().capacity() - reader.buffer.len();
            reader.extend(&vec![0; room]);
            reader.note_read(room, room);
            arrived += room;
            assert_eq!(reader.next_frame(), Ok(None));
            let allocated = reader.room().capacity();
            assert!(allocated <= 2 * arrived + 2 * CHUNK_MAX, "{allocated} for {arrived}");
        }
    }

    #[test]
    fn payloads_are_parts_of_the_buffer() {
        let mut reader = FrameReader::new(100);
        reader.extend(&[encoded(b"one"), encoded(b"two")].concat());
        let start = reader.buffer.as_ptr() as usize;
        let payloads = drain(&mut reader);
        assert_eq!(payloads[0].as_ptr() as usize, start + HEADER_BYTES);
        assert_eq!(payloads[1].as_ptr() as usize, start + 2 * HEADER_BYTES + 3);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            payloads in vec(vec(any::<u8>(), 0..200), 0..20),
            cuts in vec(1_usize..64, 1..40),
        ) {
            let stream: Vec<u8> = payloads.iter().flat_map(|payload| encoded(payload)).collect();
            let mut reader = FrameReader::new(200);
            let mut found = Vec::new();
            let (mut rest, mut cuts) = (&stream[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().expect("a cycle")));
                reader.room();
                reader.extend(now);
                found.extend(drain(&mut reader));
                rest = later;
            }
            prop_assert!(reader.is_empty());
            prop_assert_eq!(found, payloads);
        }

        #[test]
        fn garbage_never_panics(garbage in vec(vec(any::<u8>(), 0..100), 0..20)) {
            let mut reader = FrameReader::new(64);
            'stream: for piece in garbage {
                reader.extend(&piece);
                loop {
                    match reader.next_frame() {
                        Ok(Some(frame)) => prop_assert!(frame.payload.len() <= 64),
                        Ok(None) => break,
                        Err(_) => break 'stream,
                    }
                }
            }
        }

        #[test]
        fn frames_with_damage_never_panic(
            payloads in vec(vec(any::<u8>(), 0..50), 1..10),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut stream: Vec<u8> = payloads.iter().flat_map(|payload| encoded(payload)).collect();
            let at = at.index(stream.len());
            stream[at] = byte;
            let mut reader = FrameReader::new(64);
            reader.extend(&stream);
            while let Ok(Some(frame)) = reader.next_frame() {
                prop_assert!(frame.payload.len() <= 64);
            }
        }
    }
}
