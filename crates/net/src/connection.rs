//! A connection that stands: what its task and its loop share, and the task.
//!
//! The loop queues frames during a turn and wakes the task when the turn ends; the task writes all of them
//! at once. The task reads what there is and puts it into the loop's inbox, up to a bound; then it reads
//! on when the loop has taken that.
//!
//! Invariant: of one connection no more waits in the inbox than `unread_frames_max` and
//! `unread_bytes_max`, and one frame.

use crate::config::NetworkLimits;
use crate::frame::{Frame, FrameKind, FrameReader};
use crate::handshake::{broken, ended};
use crate::loop_state::{LoopArrival, LoopState};
use crate::outbox::ConnectedClient;
use crate::queue::{OutQueue, SLICES_MAX};
use crate::reason::CloseReason;
use crate::stream::SocketStream;
use bytes::{Bytes, BytesMut};
use shoal_types::{ClusterId, NodeId, Time, WorkerId};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncReadExt, AsyncWrite};

/// Whose connection it is. Peers have two, one each way: a node only sends on that which it dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionOrigin {
    /// A peer that dialed us.
    PeerIn(NodeId),
    /// A peer that we dialed.
    PeerOut(NodeId),
    /// A client that has dialled this node.
    Client(ConnectedClient),
    /// A client that may change the cluster.
    Operator(ConnectedClient),
}

/// What is sent to a peer.
#[derive(Debug)]
pub(crate) struct PeerFrame {
    pub payload: Bytes,
    pub delivery: PeerDelivery,
}

/// How a frame is delivered to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerDelivery {
    /// Behind what was sent before; to this worker, if not to the one that the connection leads to.
    InOrder(Option<WorkerId>),
    /// Ahead of what waits, to the worker that the connection leads to.
    Urgent,
}

/// How a connection is to end.
#[derive(Debug, Clone, Copy)]
enum ConnectionEnd {
    /// When all that is queued is written.
    Drained(CloseReason),
    /// All that is queued.
    Now(CloseReason),
}

/// What the loop and a connection's task share.
#[derive(Debug)]
pub(crate) struct ConnectionQueue {
    pub origin: ConnectionOrigin,
    /// Which cluster this node told the other end that it belongs to.
    told: Option<ClusterId>,
    queue: RefCell<OutQueue>,
    ending: Cell<Option<ConnectionEnd>>,
    unread_frames: Cell<usize>,
    unread_bytes: Cell<usize>,
    /// The task waits for the loop to take what was read.
    is_paused: Cell<bool>,
    /// The loop has queued something in this turn.
    is_dirty: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl ConnectionQueue {
    pub fn new(origin: ConnectionOrigin, told: Option<ClusterId>) -> Rc<ConnectionQueue> {
        Rc::new(ConnectionQueue {
            origin,
            told,
            queue: RefCell::new(OutQueue::new()),
            ending: Cell::new(None),
            unread_frames: Cell::new(0),
            unread_bytes: Cell::new(0),
            is_paused: Cell::new(false),
            is_dirty: Cell::new(false),
            waker: RefCell::new(None),
        })
    }

    pub fn queued_bytes(&self) -> usize {
        self.queue.borrow().bytes()
    }

    pub fn queued_frames(&self) -> usize {
        self.queue.borrow().frames()
    }

    /// Whether it is about to end: nothing more is read from it, and nothing it said counts.
    pub fn is_ending(&self) -> bool {
        self.ending.get().is_some()
    }

    /// Whether its handshake told the other end which cluster this node belongs to, as it does now.
    pub fn is_told(&self, loop_state: &LoopState) -> bool {
        self.told == loop_state.config.identity.get()
    }

    /// Queues a frame. The first of a turn also notes that this channel has to be woken.
    pub fn push(self: &Rc<Self>, loop_state: &LoopState, kind: FrameKind, payload: Bytes) {
        self.queue.borrow_mut().push(kind, payload);
        self.note_pushed(loop_state);
    }

    /// Queues what is for a peer; ahead of all that waits, if it is urgent.
    pub fn push_to_peer(self: &Rc<Self>, loop_state: &LoopState, peer_frame: PeerFrame) {
        let PeerFrame { payload, delivery } = peer_frame;
        match delivery {
            PeerDelivery::Urgent => self.queue.borrow_mut().push_urgent(&payload),
            PeerDelivery::InOrder(receiver) => {
                self.queue.borrow_mut().push_sliced(receiver, payload);
            }
        }
        self.note_pushed(loop_state);
    }

    fn note_pushed(self: &Rc<Self>, loop_state: &LoopState) {
        loop_state.counters.frames_out.add(1);
        if !self.is_dirty.replace(true) {
            loop_state.dirty.borrow_mut().push(Rc::clone(self));
        }
    }

    /// The turn is over: the task writes what was queued in it.
    pub fn flush(&self) {
        self.is_dirty.set(false);
        self.wake();
    }

    /// The loop has taken a frame of so many bytes.
    pub fn taken(&self, bytes: usize) {
        self.unread_frames.set(self.unread_frames.get() - 1);
        self.unread_bytes.set(self.unread_bytes.get() - bytes);
        if self.unread_frames.get() == 0 && self.is_paused.replace(false) {
            self.wake();
        }
    }

    pub fn close(&self, reason: CloseReason) {
        self.ending.set(Some(ConnectionEnd::Now(reason)));
        self.wake();
    }

    /// Writes what is queued first. Does not change the mind of one that ends already.
    pub fn close_drained(&self, reason: CloseReason) {
        if !self.is_ending() {
            self.ending.set(Some(ConnectionEnd::Drained(reason)));
        }
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// Whether another frame may be taken from the socket. A client that does not read what it asked for
    /// is not heard until it does.
    fn may_read(&self, limits: &NetworkLimits) -> bool {
        let is_behind =
            matches!(self.origin, ConnectionOrigin::Client(_) | ConnectionOrigin::Operator(_))
                && self.queued_bytes() >= limits.client_queue_bytes;
        !is_behind
            && self.unread_frames.get() < limits.unread_frames_max
            && self.unread_bytes.get() < limits.unread_bytes_max
    }
}

/// A connection's task.
#[derive(Debug)]
pub(crate) struct ConnectionTask {
    stream: SocketStream,
    reader: FrameReader,
    channel: Rc<ConnectionQueue>,
    /// The parts that have come of what is not whole yet.
    parts: BytesMut,
    /// When the reader was given bytes last: frames of one read arrived together.
    arrived: Time,
    /// TLS may hold back what it was given.
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
        // What came with the handshake arrives now.
        let arrived = loop_state.clock.now();
        let parts = BytesMut::new();
        ConnectionTask { stream, reader, channel, parts, arrived, must_flush: false }
    }

    /// Moves frames until the connection ends, and says why it did.
    pub async fn run(mut self, loop_state: &LoopState) -> CloseReason {
        poll_fn(|cx| self.poll(cx, loop_state)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, loop_state: &LoopState) -> Poll<CloseReason> {
        self.channel.remember(cx.waker());
        if let Some(ConnectionEnd::Now(reason)) = self.channel.ending.get() {
            return Poll::Ready(reason);
        }
        let written = self.write(cx, loop_state);
        if let Poll::Ready(Err(reason)) = written {
            return Poll::Ready(reason);
        }
        match self.channel.ending.get() {
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
                self.channel.is_paused.set(true);
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
                Err(error) => return Poll::Ready(broken(&error)),
            }
        }
    }

    fn deliver(&mut self, frame: Frame, loop_state: &LoopState) -> Result<(), CloseReason> {
        match (frame.kind, self.channel.origin) {
            // The last part says for which worker all of them are.
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

    /// Puts a part behind those that have come. All of them are no longer than a frame may be.
    fn join(&mut self, part: &[u8], loop_state: &LoopState) -> Result<(), CloseReason> {
        if self.parts.len() + part.len() > loop_state.config.limits.frame_bytes_max {
            return Err(CloseReason::TooLong);
        }
        self.parts.extend_from_slice(part);
        Ok(())
    }

    fn arrive(&self, payload: Bytes, receiver: Option<WorkerId>, loop_state: &LoopState) {
        let channel = &self.channel;
        channel.unread_frames.set(channel.unread_frames.get() + 1);
        channel.unread_bytes.set(channel.unread_bytes.get() + payload.len());
        loop_state.counters.frames_in.add(1);
        let (channel, arrived) = (Rc::clone(channel), self.arrived);
        loop_state.arrive(LoopArrival::Frame { channel, receiver, payload, arrived });
    }
}
