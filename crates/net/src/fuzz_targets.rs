//! Fuzz targets: frames and handshakes.
//!
//! A handshake's input is what one side receives. Its first byte says which side, and how the rest is cut.

use crate::frame::{Frame, FrameError, FrameReader};
use crate::handshake::tests::{feed_acceptor, feed_dialer};

const PAYLOAD_BYTES_MAX: usize = 512;

/// All frames, and the error that ended them, of a stream that arrives in pieces of so many bytes.
fn frames(bytes: &[u8], piece_bytes: usize) -> (Vec<Frame>, Option<FrameError>, bool) {
    let mut reader = FrameReader::new(PAYLOAD_BYTES_MAX);
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        reader.room().extend_from_slice(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error), reader.is_empty()),
            }
        }
    }
    (frames, None, reader.is_empty())
}

#[test]
fn any_bytes_are_cut_into_the_same_frames_however_they_arrive() {
    shoal_fuzz::fuzz!("frames", |bytes: &[u8]| {
        let (whole, error, _) = frames(bytes, usize::MAX);
        assert!(whole.iter().all(|frame| frame.payload.len() <= PAYLOAD_BYTES_MAX), "{whole:?}");
        for piece_bytes in [1, 7, 64] {
            let (pieces, also, _) = frames(bytes, piece_bytes);
            assert_eq!((&pieces, also), (&whole, error), "in pieces of {piece_bytes}");
        }
    });
}

#[test]
fn no_bytes_pass_for_a_proof() {
    shoal_fuzz::fuzz!("handshake", |bytes: &[u8]| {
        let Some((&first, received)) = bytes.split_first() else { return };
        let piece_bytes = 1 + usize::from(first >> 1);
        if first & 1 == 0 {
            feed_acceptor(received, piece_bytes);
        } else {
            feed_dialer(received, piece_bytes);
        }
    });
}
