//! A connection that stands: what its task and its loop share, and the task.
//!
//! The loop queues frames during a turn and wakes the task when the turn ends; the task writes all of them
//! at once. The task reads what there is and puts it into the loop's inbox, up to a bound; then it reads
//! on when the loop has taken that.
//!
//! Invariant: of one connection no more waits in the inbox than `unread_frames_max` and
//! `unread_bytes_max`, and one frame.

use crate::config::Limits;
use crate::frame::{Frame, FrameReader, Kind};
use crate::handshake::{broken, ended};
use crate::hub::{Arrival, Hub};
use crate::outbox::ClientId;
use crate::queue::{OutQueue, SLICES_MAX};
use crate::reason::CloseReason;
use crate::stream::Stream;
use bytes::{Bytes, BytesMut};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncReadExt, AsyncWrite};
use types::{ClusterId, NodeId};

/// Whose connection it is. Peers have two, one each way: a node only sends on that which it dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A peer that dialed us.
    PeerIn(NodeId),
    /// A peer that we dialed.
    PeerOut(NodeId),
    /// A client.
    Client(ClientId),
    /// A client that may change the cluster.
    Operator(ClientId),
}

/// How a connection is to end.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// When all that is queued is written.
    Drained(CloseReason),
    /// All that is queued.
    Now(CloseReason),
}

/// What the loop and a connection's task share.
#[derive(Debug)]
pub(crate) struct Channel {
    pub origin: Origin,
    /// Which cluster this node told the other end that it belongs to.
    told: Option<ClusterId>,
    queue: RefCell<OutQueue>,
    ending: Cell<Option<Ending>>,
    unread_frames: Cell<usize>,
    unread_bytes: Cell<usize>,
    /// The task waits for the loop to take what was read.
    is_paused: Cell<bool>,
    /// The loop has queued something in this turn.
    is_dirty: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Channel {
    pub fn new(origin: Origin, told: Option<ClusterId>) -> Rc<Channel> {
        Rc::new(Channel {
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
    pub fn is_told(&self, hub: &Hub) -> bool {
        self.told == hub.config.identity.get()
    }

    /// Queues a frame. The first of a turn also notes that this channel has to be woken.
    pub fn push(self: &Rc<Self>, hub: &Hub, kind: Kind, payload: Bytes) {
        self.queue.borrow_mut().push(kind, payload);
        self.note_pushed(hub);
    }

    /// Queues what is for a peer; ahead of all that waits, if it is urgent.
    pub fn push_to_peer(self: &Rc<Self>, hub: &Hub, payload: Bytes, is_urgent: bool) {
        match is_urgent {
            true => self.queue.borrow_mut().push_urgent(&payload),
            false => self.queue.borrow_mut().push_sliced(payload),
        }
        self.note_pushed(hub);
    }

    fn note_pushed(self: &Rc<Self>, hub: &Hub) {
        hub.counters.frames_out.add(1);
        if !self.is_dirty.replace(true) {
            hub.dirty.borrow_mut().push(Rc::clone(self));
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
        self.ending.set(Some(Ending::Now(reason)));
        self.wake();
    }

    /// Writes what is queued first. Does not change the mind of one that ends already.
    pub fn close_drained(&self, reason: CloseReason) {
        if !self.is_ending() {
            self.ending.set(Some(Ending::Drained(reason)));
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
    fn may_read(&self, limits: &Limits) -> bool {
        let is_behind = matches!(self.origin, Origin::Client(_) | Origin::Operator(_))
            && self.queued_bytes() >= limits.client_queue_bytes;
        !is_behind
            && self.unread_frames.get() < limits.unread_frames_max
            && self.unread_bytes.get() < limits.unread_bytes_max
    }
}

/// A connection's task.
#[derive(Debug)]
pub(crate) struct Pump {
    stream: Stream,
    reader: FrameReader,
    channel: Rc<Channel>,
    /// The parts that have come of what is not whole yet.
    parts: BytesMut,
    /// TLS may hold back what it was given.
    must_flush: bool,
}

impl Pump {
    pub fn new(stream: Stream, mut reader: FrameReader, channel: Rc<Channel>, hub: &Hub) -> Pump {
        reader.allow(hub.config.limits.frame_bytes_max);
        Pump { stream, reader, channel, parts: BytesMut::new(), must_flush: false }
    }

    /// Moves frames until the connection ends, and says why it did.
    pub async fn run(mut self, hub: &Hub) -> CloseReason {
        poll_fn(|cx| self.poll(cx, hub)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, hub: &Hub) -> Poll<CloseReason> {
        self.channel.remember(cx.waker());
        if let Some(Ending::Now(reason)) = self.channel.ending.get() {
            return Poll::Ready(reason);
        }
        let written = self.write(cx, hub);
        if let Poll::Ready(Err(reason)) = written {
            return Poll::Ready(reason);
        }
        match self.channel.ending.get() {
            Some(Ending::Now(reason)) => Poll::Ready(reason),
            Some(Ending::Drained(reason)) => written.map(|_| reason),
            None => self.read(cx, hub),
        }
    }

    /// Ready when nothing is left to be written.
    fn write(&mut self, cx: &mut Context<'_>, hub: &Hub) -> Poll<Result<(), CloseReason>> {
        let mut queue = self.channel.queue.borrow_mut();
        let mut stream = Pin::new(&mut self.stream);
        while !queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = queue.slices(&mut slices);
            let written = ready!(stream.as_mut().poll_write_vectored(cx, &slices[..count]));
            let Ok(bytes @ 1..) = written else { return Poll::Ready(Err(CloseReason::Vanished)) };
            queue.advance(bytes);
            self.must_flush = true;
            hub.counters.writes.add(1);
            hub.counters.bytes_out.add(bytes as u64);
        }
        if self.must_flush {
            ready!(stream.poll_flush(cx)).map_err(|_| CloseReason::Vanished)?;
            self.must_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the connection is over.
    fn read(&mut self, cx: &mut Context<'_>, hub: &Hub) -> Poll<CloseReason> {
        loop {
            while self.channel.may_read(&hub.config.limits) {
                match self.reader.next_frame() {
                    Ok(Some(frame)) => {
                        if let Err(reason) = self.deliver(frame, hub) {
                            return Poll::Ready(reason);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(error.into()),
                }
            }
            if !self.channel.may_read(&hub.config.limits) {
                self.channel.is_paused.set(true);
                return Poll::Pending;
            }
            let buffer = self.reader.room();
            let room = buffer.capacity() - buffer.len();
            let read = ready!(pin!(self.stream.read_buf(buffer)).poll(cx));
            hub.counters.reads.add(1);
            match read {
                Ok(0) => return Poll::Ready(ended(&self.reader)),
                Ok(count) => {
                    self.reader.note_read(count, room);
                    hub.counters.bytes_in.add(count as u64);
                }
                Err(error) => return Poll::Ready(broken(&error)),
            }
        }
    }

    fn deliver(&mut self, frame: Frame, hub: &Hub) -> Result<(), CloseReason> {
        match (frame.kind, self.channel.origin) {
            (Kind::Part, Origin::PeerIn(_)) => self.join(&frame.payload, hub),
            (Kind::Data, Origin::PeerIn(_)) if !self.parts.is_empty() => {
                self.join(&frame.payload, hub)?;
                let whole = std::mem::take(&mut self.parts).freeze();
                self.arrive(whole, hub);
                Ok(())
            }
            (Kind::Data, Origin::PeerIn(_) | Origin::Client(_) | Origin::Operator(_))
            | (Kind::Urgent, Origin::PeerIn(_)) => {
                self.arrive(frame.payload, hub);
                Ok(())
            }
            (Kind::Bye, _) => Err(CloseReason::Left),
            // Frames are sent only on what this end has dialed; the handshake is over.
            (Kind::Data, Origin::PeerOut(_))
            | (
                Kind::Part | Kind::Urgent,
                Origin::PeerOut(_) | Origin::Client(_) | Origin::Operator(_),
            )
            | (
                Kind::Hello | Kind::Challenge | Kind::Proof | Kind::Welcome | Kind::Refused,
                Origin::PeerIn(_) | Origin::PeerOut(_) | Origin::Client(_) | Origin::Operator(_),
            ) => Err(CloseReason::Unexpected),
        }
    }

    /// Puts a part behind those that have come. All of them are no longer than a frame may be.
    fn join(&mut self, part: &[u8], hub: &Hub) -> Result<(), CloseReason> {
        if self.parts.len() + part.len() > hub.config.limits.frame_bytes_max {
            return Err(CloseReason::TooLong);
        }
        self.parts.extend_from_slice(part);
        Ok(())
    }

    fn arrive(&self, payload: Bytes, hub: &Hub) {
        let channel = &self.channel;
        channel.unread_frames.set(channel.unread_frames.get() + 1);
        channel.unread_bytes.set(channel.unread_bytes.get() + payload.len());
        hub.counters.frames_in.add(1);
        hub.arrive(Arrival::Frame(Rc::clone(channel), payload));
    }
}
