//! The link to one peer: a connection that is dialed again whenever it ends, and the frames on it.
//!
//! A node only sends on connections it has dialed, so that there is nothing to agree on: between two
//! workers there are two, one each way.
//!
//! Frames to a peer may be lost, and are counted then: protocols retransmit. While there is no connection they are
//! dropped at once, so that a peer does not receive old messages later.

use crate::config::PeerConfig;
use crate::connection::ConnectionTask;
use crate::connection_queue::{ConnectionOrigin, ConnectionQueue, PeerDelivery, PeerFrame};
use crate::dial::{DialedConnection, Dialer};
use crate::distance::{DelayedPath, LinkFaults};
use crate::frame::HEADER_BYTES;
use crate::handshake::{DialOutcome, DialingEnd, HandshakeError};
use crate::loop_state::{LoopArrival, LoopState};
use crate::reason::{CloseReason, DropReason};
use crate::tls::NodeTls;
use shoal_types::{ClusterId, Random, Time};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::timeout;

/// The link to one peer.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub peer: PeerConfig,
    way: RefCell<DelayedPath>,
    /// The connection, while it is established.
    channel: RefCell<Option<Rc<ConnectionQueue>>>,
    /// Frames that are delayed.
    held: RefCell<VecDeque<DelayedFrame>>,
    held_bytes: Cell<usize>,
    redial: Notify,
    task: RefCell<Option<AbortHandle>>,
}

/// A frame that is delayed.
#[derive(Debug)]
struct DelayedFrame {
    /// When it is released.
    at: Time,
    peer_frame: PeerFrame,
}

impl PeerLink {
    /// Begins to dial `peer`.
    pub fn start(loop_state: &Rc<LoopState>, peer: PeerConfig) -> Rc<PeerLink> {
        let config = &loop_state.config;
        let distance = config.distances.between(config.datacenter, peer.datacenter);
        let link = Rc::new(PeerLink {
            way: RefCell::new(DelayedPath::new(distance, peer.node, &loop_state.random)),
            peer,
            channel: RefCell::default(),
            held: RefCell::default(),
            held_bytes: Cell::new(0),
            redial: Notify::new(),
            task: RefCell::default(),
        });
        let task = spawn_local(keep(Rc::clone(loop_state), Rc::clone(&link)));
        *link.task.borrow_mut() = Some(task.abort_handle());
        link
    }

    /// Sends a frame, or delays it as the distance demands. An urgent one is never refused, however much is
    /// queued.
    pub fn send(&self, loop_state: &LoopState, now: Time, peer_frame: PeerFrame) {
        let channel = self.channel.borrow();
        let Some(channel) = &*channel else {
            return loop_state.note_drop(DropReason::NotConnected, 1);
        };
        if !channel.is_told(loop_state.config.identity.get()) {
            channel.close(CloseReason::Identified);
            return loop_state.note_drop(DropReason::Unidentified, 1);
        }
        let mut way = self.way.borrow_mut();
        if way.link_faults.cut_to {
            return loop_state.note_drop(DropReason::Cut, 1);
        }
        let (limits, mut held) = (&loop_state.config.limits, self.held.borrow_mut());
        let own_bytes = HEADER_BYTES + peer_frame.payload.len();
        let bytes = self.held_bytes.get() + channel.queued_bytes() + own_bytes;
        let frames = held.len() + channel.queued_frames() + 1;
        let is_full = bytes > limits.peer_queue_bytes_max || frames > limits.peer_queue_frames_max;
        if is_full && peer_frame.delivery != PeerDelivery::Urgent {
            return loop_state.note_drop(DropReason::QueueFull, 1);
        }
        match way.release(now) {
            None if held.is_empty() => loop_state.queue_to_peer(channel, peer_frame),
            release => {
                self.held_bytes.set(self.held_bytes.get() + own_bytes);
                held.push_back(DelayedFrame { at: release.unwrap_or(now), peer_frame });
            }
        }
    }

    /// When the first delayed frame is released.
    pub fn due(&self) -> Option<Time> {
        self.held.borrow().front().map(|held| held.at)
    }

    /// Sends the delayed frames that are due.
    pub fn release(&self, loop_state: &LoopState, now: Time) {
        let (channel, mut held) = (self.channel.borrow(), self.held.borrow_mut());
        while held.front().is_some_and(|held| held.at <= now) {
            let peer_frame = held.pop_front().expect("there is a front").peer_frame;
            let own_bytes = HEADER_BYTES + peer_frame.payload.len();
            self.held_bytes.set(self.held_bytes.get() - own_bytes);
            let channel = channel.as_ref().expect("nothing is held without a connection");
            loop_state.queue_to_peer(channel, peer_frame);
        }
    }

    /// Whether frames from this peer are dropped.
    pub fn is_cut_from(&self) -> bool {
        self.way.borrow().link_faults.cut_from
    }

    /// Changes the faults of the link.
    pub fn set_link_faults(&self, loop_state: &LoopState, link_faults: LinkFaults) {
        self.way.borrow_mut().link_faults = link_faults;
        if link_faults.cut_to {
            self.drop_held(loop_state, DropReason::Cut);
        }
    }

    /// Dials at once if it waits to do so: the peer is up.
    pub fn redial(&self) {
        if self.channel.borrow().is_none() {
            self.redial.notify_one();
        }
    }

    /// Ends the link.
    pub fn end(&self, loop_state: &LoopState) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
        self.down(loop_state, CloseReason::Removed);
    }

    fn up(&self, loop_state: &LoopState, channel: &Rc<ConnectionQueue>, outcome: &DialOutcome) {
        let (instance, version) = (outcome.host.instance, outcome.version);
        *self.channel.borrow_mut() = Some(Rc::clone(channel));
        loop_state.arrive(LoopArrival::PeerUp { node: self.peer.node, instance, version });
        tracing::info!(node = %loop_state.host.node, worker = %loop_state.host.worker, peer = %self.peer.node, instance, %version, "connected");
    }

    fn down(&self, loop_state: &LoopState, reason: CloseReason) {
        let Some(channel) = self.channel.borrow_mut().take() else { return };
        loop_state.note_drop(DropReason::Lost, channel.queued_frames());
        self.drop_held(loop_state, DropReason::Lost);
        loop_state.arrive(LoopArrival::PeerDown(self.peer.node));
        loop_state.note_close(reason, &self.peer.node.to_string(), &self.peer.address);
    }

    fn drop_held(&self, loop_state: &LoopState, reason: DropReason) {
        let mut held = self.held.borrow_mut();
        loop_state.note_drop(reason, held.len());
        held.clear();
        self.held_bytes.set(0);
    }
}

/// Dials, serves the connection, and dials again, for ever.
async fn keep(loop_state: Rc<LoopState>, link: Rc<PeerLink>) {
    let (limits, peer) = (&loop_state.config.limits, &link.peer);
    // Distinct from the source of the path's jitter.
    let mut random = loop_state.random.fork(u64::from(peer.node.0) | 1 << 32);
    let mut pause = limits.redial_min;
    let (mut is_first, mut is_refused) = (true, false);
    loop {
        let told = loop_state.config.identity.get();
        match dial(&loop_state, peer, told).await {
            Ok(DialedConnection { stream, reader, outcome }) => {
                pause = limits.redial_min;
                loop_state.counters.connects.add(1);
                loop_state.counters.reconnects.add(u64::from(!std::mem::take(&mut is_first)));
                let channel = ConnectionQueue::new(ConnectionOrigin::PeerOut(peer.node), told);
                link.up(&loop_state, &channel, &outcome);
                let reason = ConnectionTask::new(stream, reader, channel, &loop_state)
                    .run(&loop_state)
                    .await;
                link.down(&loop_state, reason);
            }
            Err(failure) => {
                if failure == HandshakeError::There(CloseReason::RemovedNode) && !is_refused {
                    is_refused = true;
                    tracing::error!(
                        node = %loop_state.host.node, peer = %peer.node,
                        "this node was removed from its cluster, and no other node of that connects to it: stop its process"
                    );
                }
                let other_end = format!("{} ({failure})", peer.node);
                loop_state.note_close(failure.reason(), &other_end, &peer.address);
            }
        }
        // Ends early if the peer connects to this node, and so is up.
        let _ = timeout(jittered(pause, &mut random), link.redial.notified()).await;
        pause = (pause * 2).min(limits.redial_max);
    }
}

/// Between a half and the whole pause, so that nodes that lost the same peer do not all dial at once.
fn jittered(pause: Duration, random: &mut Random) -> Duration {
    pause.mul_f64(0.5 + random.unit() / 2.0)
}

async fn dial(
    loop_state: &LoopState,
    peer: &PeerConfig,
    told: Option<ClusterId>,
) -> Result<DialedConnection, HandshakeError> {
    let (config, host) = (&loop_state.config, &loop_state.host);
    let dialing = Dialer {
        cluster: &config.cluster,
        identity: told,
        engine_digest: config.engine_digest,
        versions: config.peer_versions,
        secret: &config.secret,
        tls: config.tls.as_ref().map(NodeTls::dialing),
        limits: &config.limits,
        caller: DialingEnd::Peer { node: host.node, worker: host.worker, instance: host.instance },
        worker: Some(host.worker),
        wanted: Some(peer.node),
    };
    dialing.dial(&peer.address).await
}
