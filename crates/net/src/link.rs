//! The way to one peer: a connection that is dialed again whenever it ends, and what is on it.
//!
//! A node only sends on connections it has dialed, so that there is nothing to agree on: between two
//! workers there are two, one each way.
//!
//! Frames to a peer may get lost, and are counted when they do: protocols repeat. While there is no
//! connection they are dropped at once, so that a peer does not hear what was said long ago.

use crate::config::Peer;
use crate::connection::{Channel, Origin, Pump};
use crate::dial::{Dialing, Reached};
use crate::distance::{Way, Weather};
use crate::frame::HEADER_BYTES;
use crate::handshake::{Caller, Failure};
use crate::hub::{Arrival, Hub};
use crate::reason::{CloseReason, DropReason};
use crate::tls::NodeTls;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::timeout;
use types::{ClusterId, Random, Time};

/// The way to one peer.
#[derive(Debug)]
pub(crate) struct Link {
    pub peer: Peer,
    way: RefCell<Way>,
    /// The connection, while it stands.
    channel: RefCell<Option<Rc<Channel>>>,
    /// Frames on the emulated part of the way.
    held: RefCell<VecDeque<Held>>,
    held_bytes: Cell<usize>,
    redial: Notify,
    task: RefCell<Option<AbortHandle>>,
}

/// A frame on the emulated part of the way.
#[derive(Debug)]
struct Held {
    /// When it has passed it.
    at: Time,
    frame: Bytes,
    is_urgent: bool,
}

impl Link {
    /// Begins to dial `peer`.
    pub fn start(hub: &Rc<Hub>, peer: Peer) -> Rc<Link> {
        let config = &hub.config;
        let distance = config.distances.between(config.datacenter, peer.datacenter);
        let link = Rc::new(Link {
            way: RefCell::new(Way::new(distance, peer.node, &hub.random)),
            peer,
            channel: RefCell::default(),
            held: RefCell::default(),
            held_bytes: Cell::new(0),
            redial: Notify::new(),
            task: RefCell::default(),
        });
        let task = spawn_local(keep(Rc::clone(hub), Rc::clone(&link)));
        *link.task.borrow_mut() = Some(task.abort_handle());
        link
    }

    /// Sends a frame, or holds it for as long as the distance demands. One that is urgent finds room, however much is
    /// on its way.
    pub fn send(&self, hub: &Hub, now: Time, frame: Bytes, is_urgent: bool) {
        let channel = self.channel.borrow();
        let Some(channel) = &*channel else { return hub.note_drop(DropReason::NotConnected, 1) };
        if !channel.is_told(hub) {
            channel.close(CloseReason::Identified);
            return hub.note_drop(DropReason::Unidentified, 1);
        }
        let mut way = self.way.borrow_mut();
        if way.weather.cut_to {
            return hub.note_drop(DropReason::Cut, 1);
        }
        let (limits, mut held) = (&hub.config.limits, self.held.borrow_mut());
        let bytes = self.held_bytes.get() + channel.queued_bytes() + HEADER_BYTES + frame.len();
        let frames = held.len() + channel.queued_frames() + 1;
        let is_full = bytes > limits.peer_queue_bytes_max || frames > limits.peer_queue_frames_max;
        if is_full && !is_urgent {
            return hub.note_drop(DropReason::QueueFull, 1);
        }
        match way.release(now) {
            None if held.is_empty() => channel.push_to_peer(hub, frame, is_urgent),
            release => {
                self.held_bytes.set(self.held_bytes.get() + HEADER_BYTES + frame.len());
                held.push_back(Held { at: release.unwrap_or(now), frame, is_urgent });
            }
        }
    }

    /// When the first frame that is held may go.
    pub fn due(&self) -> Option<Time> {
        self.held.borrow().front().map(|held| held.at)
    }

    /// Lets go what has been held long enough.
    pub fn release(&self, hub: &Hub, now: Time) {
        let (channel, mut held) = (self.channel.borrow(), self.held.borrow_mut());
        while held.front().is_some_and(|held| held.at <= now) {
            let Held { frame, is_urgent, .. } = held.pop_front().expect("there is a front");
            self.held_bytes.set(self.held_bytes.get() - HEADER_BYTES - frame.len());
            let channel = channel.as_ref().expect("nothing is held without a connection");
            channel.push_to_peer(hub, frame, is_urgent);
        }
    }

    /// Whether frames from this peer are dropped.
    pub fn is_cut_from(&self) -> bool {
        self.way.borrow().weather.cut_from
    }

    /// Changes what can be changed while all runs.
    pub fn set_weather(&self, hub: &Hub, weather: Weather) {
        self.way.borrow_mut().weather = weather;
        if weather.cut_to {
            self.drop_held(hub, DropReason::Cut);
        }
    }

    /// Dials at once, if it is waiting to: the peer is there.
    pub fn redial(&self) {
        if self.channel.borrow().is_none() {
            self.redial.notify_one();
        }
    }

    /// Ends for good.
    pub fn end(&self, hub: &Hub) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
        self.down(hub, CloseReason::Removed);
    }

    fn up(&self, hub: &Hub, channel: &Rc<Channel>, life: u64) {
        *self.channel.borrow_mut() = Some(Rc::clone(channel));
        hub.arrive(Arrival::PeerUp(self.peer.node, life));
        tracing::info!(node = %hub.host.node, worker = %hub.host.worker, peer = %self.peer.node, life, "connected");
    }

    fn down(&self, hub: &Hub, reason: CloseReason) {
        let Some(channel) = self.channel.borrow_mut().take() else { return };
        hub.note_drop(DropReason::Lost, channel.queued_frames());
        self.drop_held(hub, DropReason::Lost);
        hub.arrive(Arrival::PeerDown(self.peer.node));
        hub.note_close(reason, &self.peer.node.to_string(), &self.peer.address);
    }

    fn drop_held(&self, hub: &Hub, reason: DropReason) {
        let mut held = self.held.borrow_mut();
        hub.note_drop(reason, held.len());
        held.clear();
        self.held_bytes.set(0);
    }
}

/// Dials, serves the connection, and dials again, for ever.
async fn keep(hub: Rc<Hub>, link: Rc<Link>) {
    let (limits, peer) = (&hub.config.limits, &link.peer);
    // Distinct from what the way draws from.
    let mut random = hub.random.fork(u64::from(peer.node.0) | 1 << 32);
    let mut pause = limits.redial_min;
    let mut is_first = true;
    loop {
        let told = hub.config.identity.get();
        match dial(&hub, peer, told).await {
            Ok(Reached { stream, reader, host, identity: _ }) => {
                pause = limits.redial_min;
                hub.counters.connects.add(1);
                hub.counters.reconnects.add(u64::from(!std::mem::take(&mut is_first)));
                let channel = Channel::new(Origin::PeerOut(peer.node), told);
                link.up(&hub, &channel, host.life);
                let reason = Pump::new(stream, reader, channel, &hub).run(&hub).await;
                link.down(&hub, reason);
            }
            Err(failure) => {
                let whom = format!("{} ({failure})", peer.node);
                hub.note_close(failure.reason(), &whom, &peer.address);
            }
        }
        // Ends early if the peer comes to us, and so is there.
        let _ = timeout(jittered(pause, &mut random), link.redial.notified()).await;
        pause = (pause * 2).min(limits.redial_max);
    }
}

/// Between a half and the whole of it, so that those who lost the same peer do not all come back at once.
fn jittered(pause: Duration, random: &mut Random) -> Duration {
    pause.mul_f64(0.5 + random.unit() / 2.0)
}

async fn dial(hub: &Hub, peer: &Peer, told: Option<ClusterId>) -> Result<Reached, Failure> {
    let (config, host) = (&hub.config, &hub.host);
    let dialing = Dialing {
        cluster: &config.cluster,
        identity: told,
        secret: &config.secret,
        tls: config.tls.as_ref().map(NodeTls::dialing),
        limits: &config.limits,
        caller: Caller::Peer { node: host.node, worker: host.worker, life: host.life },
        worker: Some(host.worker),
        wanted: Some(peer.node),
    };
    dialing.dial(&peer.address).await
}
