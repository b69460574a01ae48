//! What the loop and the task of a connection share: the frames that wait to be written, and how it is to end.

use crate::config::NetworkLimits;
use crate::frame::FrameKind;
use crate::outbox::ConnectedClient;
use crate::queue::OutQueue;
use crate::reason::CloseReason;
use bytes::Bytes;
use shoal_types::{ClusterId, NodeId, WorkerId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// The other end of a connection. Peers have two connections, one for each direction: a node only sends on
/// the one that it dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionOrigin {
    /// A peer that dialed this node.
    PeerIn(NodeId),
    /// A peer that this node dialed.
    PeerOut(NodeId),
    /// A client that dialed this node.
    Client(ConnectedClient),
    /// A client that may change the cluster.
    Operator(ConnectedClient),
}

/// A frame for a peer, and how it is delivered.
#[derive(Debug)]
pub(crate) struct PeerFrame {
    pub payload: Bytes,
    pub delivery: PeerDelivery,
}

/// How a frame is delivered to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerDelivery {
    /// After what was sent before; to this worker, if not to the one that the connection leads to.
    InOrder(Option<WorkerId>),
    /// Before what is queued, to the worker that the connection leads to.
    Urgent,
}

/// How a connection is to end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConnectionEnd {
    /// After all queued frames are written.
    Drained(CloseReason),
    /// At once; queued frames are dropped.
    Now(CloseReason),
}

/// What the loop and a connection's task share.
#[derive(Debug)]
pub(crate) struct ConnectionQueue {
    pub origin: ConnectionOrigin,
    /// The identity of the cluster that this node sent in the handshake.
    told: Option<ClusterId>,
    /// What waits to be written.
    pub queue: RefCell<OutQueue>,
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

    /// How the connection is to end, if it is.
    pub fn ending(&self) -> Option<ConnectionEnd> {
        self.ending.get()
    }

    /// Whether it is about to end: then nothing more is read, and frames that were read are dropped.
    pub fn is_ending(&self) -> bool {
        self.ending.get().is_some()
    }

    /// Whether the identity that was sent in the handshake is this one, which the node knows now.
    pub fn is_told(&self, identity: Option<ClusterId>) -> bool {
        self.told == identity
    }

    /// Queues a frame.
    pub fn push(&self, kind: FrameKind, payload: Bytes) {
        self.queue.borrow_mut().push(kind, payload);
    }

    /// Queues a frame for a peer; ahead of all that are queued, if it is urgent.
    pub fn push_to_peer(&self, peer_frame: PeerFrame) {
        let PeerFrame { payload, delivery } = peer_frame;
        match delivery {
            PeerDelivery::Urgent => self.queue.borrow_mut().push_urgent(&payload),
            PeerDelivery::InOrder(receiver) => {
                self.queue.borrow_mut().push_sliced(receiver, payload);
            }
        }
    }

    /// Marks that something was queued in this turn. Returns whether it is the first.
    pub fn mark_dirty(&self) -> bool {
        !self.is_dirty.replace(true)
    }

    /// The turn is over: the task writes what was queued in it.
    pub fn flush(&self) {
        self.is_dirty.set(false);
        self.wake();
    }

    /// The task has read a frame of so many bytes, which waits for the loop.
    pub fn read(&self, bytes: usize) {
        self.unread_frames.set(self.unread_frames.get() + 1);
        self.unread_bytes.set(self.unread_bytes.get() + bytes);
    }

    /// The task waits until the loop has taken what was read.
    pub fn pause(&self) {
        self.is_paused.set(true);
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

    /// Closes it after all queued frames are written; no effect if it is about to end already.
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

    /// The task to wake.
    pub fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// Whether another frame may be read from the socket. Nothing is read from a client that does not read
    /// its replies.
    pub fn may_read(&self, limits: &NetworkLimits) -> bool {
        let is_behind =
            matches!(self.origin, ConnectionOrigin::Client(_) | ConnectionOrigin::Operator(_))
                && self.queued_bytes() >= limits.client_queue_bytes;
        !is_behind
            && self.unread_frames.get() < limits.unread_frames_max
            && self.unread_bytes.get() < limits.unread_bytes_max
    }
}
