//! What the tasks of one loop share: all run on one thread, so nothing here is locked.

use crate::clock::SystemClock;
use crate::config::NetworkConfig;
use crate::connection_queue::{ConnectionQueue, PeerFrame};
use crate::counters::LoopCounters;
use crate::frame::FrameKind;
use crate::handshake::AcceptingEnd;
use crate::log::LogLimit;
use crate::outbox::ConnectedClient;
use crate::reason::{CloseReason, DropReason};
use bytes::Bytes;
use shoal_types::wire::MessageVersion;
use shoal_types::{NodeId, Random, Time, WorkerId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// What has arrived and waits for the core.
#[derive(Debug)]
pub(crate) enum LoopArrival {
    Frame {
        channel: Rc<ConnectionQueue>,
        /// The worker of this node that it is for, if the other end named one.
        receiver: Option<WorkerId>,
        payload: Bytes,
        /// When it was read.
        arrived: Time,
    },
    PeerUp {
        node: NodeId,
        instance: u64,
        version: MessageVersion,
    },
    PeerDown(NodeId),
    ClientGone(ConnectedClient),
}

/// One loop's clock, its inbox and its counters.
#[derive(Debug)]
pub(crate) struct LoopState {
    pub host: AcceptingEnd,
    pub config: Arc<NetworkConfig>,
    pub clock: SystemClock,
    pub counters: Arc<LoopCounters>,
    /// The source of jitter and pauses; forked, never advanced.
    pub random: Random,
    pub inbox: RefCell<VecDeque<LoopArrival>>,
    /// Another thread has left something.
    pub has_mail: Cell<bool>,
    /// Connections with frames to write when the turn ends.
    pub dirty: RefCell<Vec<Rc<ConnectionQueue>>>,
    log: RefCell<LogLimit>,
    waker: RefCell<Option<Waker>>,
}

impl LoopState {
    pub fn new(
        config: &Arc<NetworkConfig>,
        worker: WorkerId,
        clock: SystemClock,
        counters: &Arc<LoopCounters>,
    ) -> Rc<LoopState> {
        Rc::new(LoopState {
            host: AcceptingEnd { node: config.node, worker, instance: config.instance },
            config: Arc::clone(config),
            clock,
            counters: Arc::clone(counters),
            random: Random::new(config.seed).fork(u64::from(worker.0)),
            inbox: RefCell::default(),
            has_mail: Cell::new(false),
            dirty: RefCell::default(),
            log: RefCell::new(LogLimit::new(config.limits.log_lines_max)),
            waker: RefCell::new(None),
        })
    }

    /// Adds an arrival for the core.
    pub fn arrive(&self, arrival: LoopArrival) {
        self.inbox.borrow_mut().push_back(arrival);
        self.wake();
    }

    /// Makes the loop take a turn.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The task to wake for a turn.
    pub fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// Counts the end of a connection, and logs it if it is unusual.
    pub fn note_close(&self, reason: CloseReason, other_end: &str, address: &str) {
        self.counters.close(reason);
        let is_usual = matches!(
            reason,
            CloseReason::Left
                | CloseReason::Asked
                | CloseReason::Unreachable
                | CloseReason::NotListening
                | CloseReason::Removed
                | CloseReason::Identified
        );
        if is_usual {
            tracing::debug!(node = %self.host.node, worker = %self.host.worker, %reason, other_end, address, "closed");
        } else if let Some(left_out) = self.log.borrow_mut().allow(self.clock.now()) {
            tracing::warn!(node = %self.host.node, worker = %self.host.worker, %reason, other_end, address, left_out, "closed");
        }
    }

    /// Counts frames that were dropped.
    pub fn note_drop(&self, reason: DropReason, frames: usize) {
        self.counters.drop_frames(reason, frames);
    }

    /// Queues a frame on a connection, which is written when the turn ends.
    pub fn queue(&self, channel: &Rc<ConnectionQueue>, kind: FrameKind, payload: Bytes) {
        channel.push(kind, payload);
        self.note_queued(channel);
    }

    /// Queues a frame for a peer; ahead of all that are queued, if it is urgent.
    pub fn queue_to_peer(&self, channel: &Rc<ConnectionQueue>, peer_frame: PeerFrame) {
        channel.push_to_peer(peer_frame);
        self.note_queued(channel);
    }

    fn note_queued(&self, channel: &Rc<ConnectionQueue>) {
        self.counters.frames_out.add(1);
        if channel.mark_dirty() {
            self.dirty.borrow_mut().push(Rc::clone(channel));
        }
    }
}
