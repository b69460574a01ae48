//! The task of an established connection.
//!
//! The loop queues frames during a turn and wakes the task when the turn ends; the task writes all of them
//! at once. The task reads what there is and puts it into the loop's inbox, up to a bound; then it reads
//! on when the loop has taken that.
//!
//! Invariant: at most `unread_frames_max` frames, `unread_bytes_max` bytes, and one frame more of a connection wait in
//! the inbox.

use crate::connection_queue::{ConnectionEnd, ConnectionOrigin, ConnectionQueue};
use crate::frame::{Frame, FrameKind, FrameReader};
use crate::handshake::{broken, ended};
use crate::loop_state::{LoopArrival, LoopState};
use crate::queue::SLICES_MAX;
use crate::reason::CloseReason;
use crate::stream::SocketStream;
use bytes::{Bytes, BytesMut};
use shoal_types::{Time, WorkerId};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncReadExt, AsyncWrite};

/// A connection's task.
#[derive(Debug)]
pub(crate) struct ConnectionTask {
    stream: SocketStream,
    reader: FrameReader,
    channel: Rc<ConnectionQueue>,
    /// The received parts of a frame that is not complete.
    parts: BytesMut,
    /// When bytes were read last: frames of one read arrived together.
    arrived: Time,
    /// TLS may have buffered bytes that were written.
    must_flush: bool,
}

impl ConnectionTask {
    pub fn new(
        stream: SocketStream,
        mut reader: FrameReader,
        channel: Rc<ConnectionQueue>,
        loop_state: &LoopState,
    ) -> ConnectionTask {
        reader.allow(loop_state.config.limits.frame_bytes_max);
        if matches!(channel.origin, ConnectionOrigin::PeerIn(_)) {
            reader.allow_receivers();
        }
        // Frames that were received with the handshake count as arriving now.
        let arrived = loop_state.clock.now();
        let parts = BytesMut::new();
        ConnectionTask { stream, reader, channel, parts, arrived, must_flush: false }
    }

    /// Moves frames until the connection ends, and returns why it did.
    pub async fn run(mut self, loop_state: &LoopState) -> CloseReason {
        poll_fn(|cx| self.poll(cx, loop_state)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, loop_state: &LoopState) -> Poll<CloseReason> {
        self.channel.remember(cx.waker());
        if let Some(ConnectionEnd::Now(reason)) = self.channel.ending() {
            return Poll::Ready(reason);
        }
        let written = self.write(cx, loop_state);
        if let Poll::Ready(Err(reason)) = written {
            return Poll::Ready(reason);
        }
        match self.channel.ending() {
            Some(ConnectionEnd::Now(reason)) => Poll::Ready(reason),
            Some(ConnectionEnd::Drained(reason)) => written.map(|_| reason),
            None => self.read(cx, loop_state),
        }
    }

    /// Ready when nothing is left to be written.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        loop_state: &LoopState,
    ) -> Poll<Result<(), CloseReason>> {
        let mut queue = self.channel.queue.borrow_mut();
        let mut stream = Pin::new(&mut self.stream);
        while !queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = queue.slices(&mut slices);
            let written = ready!(stream.as_mut().poll_write_vectored(cx, &slices[..count]));
            let Ok(bytes @ 1..) = written else { return Poll::Ready(Err(CloseReason::Vanished)) };
            queue.advance(bytes);
            self.must_flush = true;
            loop_state.counters.writes.add(1);
            loop_state.counters.bytes_out.add(bytes as u64);
        }
        if self.must_flush {
            ready!(stream.poll_flush(cx)).map_err(|_| CloseReason::Vanished)?;
            self.must_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the connection is over.
    fn read(&mut self, cx: &mut Context<'_>, loop_state: &LoopState) -> Poll<CloseReason> {
        loop {
            while self.channel.may_read(&loop_state.config.limits) {
                match self.reader.next_frame() {
                    Ok(Some(frame)) => {
                        if let Err(reason) = self.deliver(frame, loop_state) {
                            return Poll::Ready(reason);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(error.into()),
                }
            }
            if !self.channel.may_read(&loop_state.config.limits) {
                self.channel.pause();
                return Poll::Pending;
            }
            let buffer = self.reader.room();
            let room = buffer.capacity() - buffer.len();
            let read = ready!(pin!(self.stream.read_buf(buffer)).poll(cx));
            loop_state.counters.reads.add(1);
            match read {
                Ok(0) => return Poll::Ready(ended(&self.reader)),
                Ok(count) => {
                    self.arrived = loop_state.clock.now();
                    self.reader.note_read(count, room);
                    loop_state.counters.bytes_in.add(count as u64);
                }
                Err(error) => return Poll::Ready(broken(&error, &self.reader)),
            }
        }
    }

    fn deliver(&mut self, frame: Frame, loop_state: &LoopState) -> Result<(), CloseReason> {
        match (frame.kind, self.channel.origin) {
            // The last part names the worker that all of them are for.
            (FrameKind::Part, ConnectionOrigin::PeerIn(_)) if frame.receiver.is_some() => {
                Err(CloseReason::Malformed)
            }
            (FrameKind::Part, ConnectionOrigin::PeerIn(_)) => self.join(&frame.payload, loop_state),
            (FrameKind::Data, ConnectionOrigin::PeerIn(_)) if !self.parts.is_empty() => {
                self.join(&frame.payload, loop_state)?;
                let whole = std::mem::take(&mut self.parts).freeze();
                self.arrive(whole, frame.receiver, loop_state);
                Ok(())
            }
            (
                FrameKind::Data,
                ConnectionOrigin::PeerIn(_)
                | ConnectionOrigin::Client(_)
                | ConnectionOrigin::Operator(_),
            )
            | (FrameKind::Urgent, ConnectionOrigin::PeerIn(_)) => {
                self.arrive(frame.payload, frame.receiver, loop_state);
                Ok(())
            }
            (FrameKind::Bye, _) => Err(CloseReason::Left),
            // Frames are sent only on what this end has dialed; the handshake is over.
            (FrameKind::Data, ConnectionOrigin::PeerOut(_))
            | (
                FrameKind::Part | FrameKind::Urgent,
                ConnectionOrigin::PeerOut(_)
                | ConnectionOrigin::Client(_)
                | ConnectionOrigin::Operator(_),
            )
            | (
                FrameKind::Hello
                | FrameKind::Challenge
                | FrameKind::Proof
                | FrameKind::Welcome
                | FrameKind::Refused,
                ConnectionOrigin::PeerIn(_)
                | ConnectionOrigin::PeerOut(_)
                | ConnectionOrigin::Client(_)
                | ConnectionOrigin::Operator(_),
            ) => Err(CloseReason::Unexpected),
        }
    }

    /// Appends a part to those received before. Together they are no longer than a frame may be.
    fn join(&mut self, part: &[u8], loop_state: &LoopState) -> Result<(), CloseReason> {
        if self.parts.len() + part.len() > loop_state.config.limits.frame_bytes_max {
            return Err(CloseReason::TooLong);
        }
        self.parts.extend_from_slice(part);
        Ok(())
    }

    fn arrive(&self, payload: Bytes, receiver: Option<WorkerId>, loop_state: &LoopState) {
        let channel = &self.channel;
        channel.read(payload.len());
        loop_state.counters.frames_in.add(1);
        let (channel, arrived) = (Rc::clone(channel), self.arrived);
        loop_state.arrive(LoopArrival::Frame { channel, receiver, payload, arrived });
    }
}
