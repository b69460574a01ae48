//! Frames that the threads of a client write to its socket themselves.
//!
//! ```text
//!   Sender ──┬── nothing waits, nothing is unanswered ──► socket
//!            └── else ──► channel ──► writer ───────────► socket
//! ```
//! A client that waits for each answer sends one frame at a time. Through the writer's channel it would wake the thread
//! that drives the runtime only to have it write that frame. Where several requests are under way, the writer takes many
//! of them in one system call, so only the first frame after something was received is written here: as Nagle's
//! algorithm has it, but what waits does not wait for the answer.
//!
//! Invariant: a frame is written here only if the writer has written all that it was given; what the socket does not take
//! of it goes to the writer before any other frame.

use crate::frame::{FrameHeader, FrameKind};
use bytes::{Buf, Bytes, BytesMut};
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc::{self, error::SendError};
use zerocopy::IntoBytes;

/// What the writer is given.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// All of a frame, of which nothing was written.
    Frame(Bytes),
    /// The end of a frame whose beginning was written.
    Rest(Bytes),
}

/// The sending half of a plain socket, which the writer and the senders share.
#[derive(Debug)]
pub(crate) struct DirectWrites {
    socket: OwnedWriteHalf,
    state: Mutex<WriteState>,
}

#[derive(Debug, Default)]
struct WriteState {
    /// Something was given to the writer that may not be written yet.
    writer_is_busy: bool,
    /// A frame was written here, and nothing was received since.
    unanswered: bool,
}

impl DirectWrites {
    pub fn new(socket: OwnedWriteHalf) -> DirectWrites {
        DirectWrites { socket, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, WriteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was received.
    pub fn note_received(&self) {
        self.state().unanswered = false;
    }

    /// The writer has written what it took of what it was given.
    pub fn note_written(&self, given: &mpsc::Receiver<Unwritten>) {
        // It is given nothing while the state is locked.
        let mut state = self.state();
        state.writer_is_busy = !given.is_empty();
    }

    /// Says that nothing more will be sent.
    pub fn shut_down(&self) -> io::Result<()> {
        SockRef::from(self.socket.as_ref()).shutdown(Shutdown::Write)
    }

    /// Writes a frame, or gives it to the writer if there is room for it now.
    ///
    /// # Errors
    /// The frame, if the writer takes none now, or has ended.
    pub fn try_send(&self, frame: Bytes, writer: &mpsc::Sender<Unwritten>) -> Result<(), Bytes> {
        let Ok(room) = writer.try_reserve() else { return Err(frame) };
        let mut state = self.state();
        let may_write = !state.writer_is_busy && !state.unanswered;
        let left = if may_write { self.write(frame) } else { Some(Unwritten::Frame(frame)) };
        state.unanswered |= may_write;
        if let Some(left) = left {
            state.writer_is_busy = true;
            room.send(left);
        }
        Ok(())
    }

    /// Gives a frame to the writer, when there is room for it.
    ///
    /// # Errors
    /// If the writer has ended.
    pub async fn send(
        &self,
        frame: Bytes,
        writer: &mpsc::Sender<Unwritten>,
    ) -> Result<(), SendError<()>> {
        let room = writer.reserve().await?;
        let mut state = self.state();
        state.writer_is_busy = true;
        room.send(Unwritten::Frame(frame));
        Ok(())
    }

    /// Writes what the socket takes of a frame, and returns what it does not.
    fn write(&self, mut frame: Bytes) -> Option<Unwritten> {
        let header = FrameHeader::new(FrameKind::Data, frame.len());
        let header = header.as_bytes();
        let slices = [IoSlice::new(header), IoSlice::new(&frame)];
        // The writer meets the error again.
        let written = self.socket.try_write_vectored(&slices).unwrap_or(0);
        if written == 0 {
            return Some(Unwritten::Frame(frame));
        }
        let Some(of_payload) = written.checked_sub(header.len()) else {
            let mut rest = BytesMut::from(&header[written..]);
            rest.extend_from_slice(&frame);
            return Some(Unwritten::Rest(rest.freeze()));
        };
        frame.advance(of_payload);
        (!frame.is_empty()).then_some(Unwritten::Rest(frame))
    }

    /// Writes some of these bytes, when the socket takes some.
    pub async fn write_some(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match self.socket.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                written => return written,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameReader;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    /// Two ends of a connection.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.expect("connects"), far.expect("accepts").0)
    }

    #[tokio::test]
    async fn the_first_frame_after_an_answer_is_written_at_once_and_others_by_the_writer() {
        let (near, mut far) = pair().await;
        let (_read, write) = near.into_split();
        let direct = DirectWrites::new(write);
        let (writer, mut given) = mpsc::channel(2);
        let frame = |byte: u8| Bytes::from(vec![byte; 3]);
        assert_eq!(direct.try_send(frame(1), &writer), Ok(()));
        assert_eq!(direct.try_send(frame(2), &writer), Ok(()));
        direct.note_received();
        // One waits for the writer: the next may not overtake it.
        assert_eq!(direct.try_send(frame(3), &writer), Ok(()));
        assert_eq!(direct.try_send(frame(4), &writer), Err(frame(4)), "there is no room");
        for byte in [2, 3] {
            let Some(Unwritten::Frame(waiting)) = given.recv().await else { panic!("{byte}") };
            assert_eq!(waiting, frame(byte));
        }
        direct.note_written(&given);
        assert_eq!(direct.try_send(frame(5), &writer), Ok(()));
        direct.send(frame(6), &writer).await.expect("there is room");
        assert!(
            matches!(given.recv().await, Some(Unwritten::Frame(waiting)) if waiting == frame(6))
        );
        direct.shut_down().expect("it stands");
        let (mut bytes, mut reader) = (Vec::new(), FrameReader::new(100));
        far.read_to_end(&mut bytes).await.expect("its end");
        reader.extend(&bytes);
        let written: Vec<Bytes> = std::iter::from_fn(|| reader.next_frame().expect("frames"))
            .map(|it| it.payload)
            .collect();
        assert_eq!(written, [frame(1), frame(5)]);
    }

    #[tokio::test]
    async fn what_a_full_socket_does_not_take_of_a_frame_is_left_to_the_writer() {
        let (near, mut far) = pair().await;
        let (_read, write) = near.into_split();
        let direct = DirectWrites::new(write);
        let (writer, mut given) = mpsc::channel(2);
        let frame = Bytes::from(vec![7; 16 << 20]);
        assert_eq!(direct.try_send(frame.clone(), &writer), Ok(()));
        let Some(Unwritten::Rest(mut rest)) = given.recv().await else {
            panic!("it was all taken")
        };
        let write = async {
            while !rest.is_empty() {
                let slices = [IoSlice::new(&rest)];
                let written = direct.write_some(&slices).await.expect("it is read");
                rest.advance(written);
            }
        };
        let mut reader = FrameReader::new(frame.len());
        let read = async {
            loop {
                match reader.next_frame().expect("a frame") {
                    Some(read) => return read.payload,
                    None => far.read_buf(reader.room()).await.expect("more"),
                };
            }
        };
        let ((), read) = tokio::join!(write, read);
        assert!(read == frame, "it arrives whole");
    }
}
