//! What the tasks of one loop share: all on one thread, so nothing here is locked.

use crate::clock::SystemClock;
use crate::config::NetworkConfig;
use crate::connection::{ConnectionOrigin, ConnectionQueue};
use crate::counters::LoopCounters;
use crate::handshake::{AcceptingEnd, AdmissionPolicy, DialingEnd};
use crate::log::LogLimit;
use crate::outbox::ConnectedClient;
use crate::peer_link::PeerLink;
use crate::reason::{CloseReason, DropReason};
use bytes::Bytes;
use shoal_types::wire::MessageVersion;
use shoal_types::{ClusterId, NodeId, Random, Time, WorkerId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use tokio::task::{AbortHandle, spawn_local};

/// What waits for the core.
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

/// The connection that a peer has dialed, and in which of its processes.
#[derive(Debug)]
struct IncomingPeer {
    instance: u64,
    channel: Rc<ConnectionQueue>,
}

/// One loop's connections, its inbox and its counters.
#[derive(Debug)]
pub(crate) struct LoopState {
    pub host: AcceptingEnd,
    pub config: Arc<NetworkConfig>,
    pub clock: SystemClock,
    pub counters: Arc<LoopCounters>,
    /// What jitter and pauses are drawn from; forked, never moved.
    pub random: Random,
    pub inbox: RefCell<VecDeque<LoopArrival>>,
    /// Something came from another thread.
    pub has_mail: Cell<bool>,
    /// What has something to write when the turn ends.
    pub dirty: RefCell<Vec<Rc<ConnectionQueue>>>,
    pub links: RefCell<BTreeMap<NodeId, Rc<PeerLink>>>,
    pub clients: RefCell<BTreeMap<ConnectedClient, Rc<ConnectionQueue>>>,
    incoming: RefCell<BTreeMap<NodeId, IncomingPeer>>,
    strangers: RefCell<VecDeque<(u64, AbortHandle)>>,
    strangers_seen: Cell<u64>,
    clients_seen: Cell<u64>,
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
            links: RefCell::default(),
            clients: RefCell::default(),
            incoming: RefCell::default(),
            strangers: RefCell::default(),
            strangers_seen: Cell::new(0),
            clients_seen: Cell::new(0),
            log: RefCell::new(LogLimit::new(config.limits.log_lines_max)),
            waker: RefCell::new(None),
        })
    }

    /// Puts something before the core.
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

    /// Looks after a connection that has not proved anything yet. If there are too many, the one that
    /// took longest goes: those who know the secret are quick.
    pub fn meet<F: Future<Output = ()> + 'static>(&self, task: impl FnOnce(u64) -> F) {
        let number = self.strangers_seen.get();
        self.strangers_seen.set(number + 1);
        let handle = spawn_local(task(number)).abort_handle();
        let mut strangers = self.strangers.borrow_mut();
        strangers.push_back((number, handle));
        if strangers.len() > self.config.limits.strangers_max
            && let Some((_, oldest)) = strangers.pop_front()
        {
            oldest.abort();
            self.note_close(CloseReason::Crowded, "a stranger", "");
        }
    }

    /// That one is a stranger no more.
    pub fn met(&self, number: u64) {
        self.strangers.borrow_mut().retain(|(other, _)| *other != number);
    }

    /// Counts the end of a connection, and logs it if it is worth a line.
    pub fn note_close(&self, reason: CloseReason, whom: &str, address: &str) {
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
            tracing::debug!(node = %self.host.node, worker = %self.host.worker, %reason, whom, address, "closed");
        } else if let Some(left_out) = self.log.borrow_mut().allow(self.clock.now()) {
            tracing::warn!(node = %self.host.node, worker = %self.host.worker, %reason, whom, address, left_out, "closed");
        }
    }

    /// Counts frames that go nowhere.
    pub fn note_drop(&self, reason: DropReason, frames: usize) {
        self.counters.drop_frames(reason, frames);
    }

    /// A peer came in: its former connection goes, and we dial it if we have not reached it.
    /// `None` if a later process of it was quicker.
    pub fn enter_peer(
        &self,
        node: NodeId,
        instance: u64,
        told: Option<ClusterId>,
    ) -> Option<Rc<ConnectionQueue>> {
        let mut incoming = self.incoming.borrow_mut();
        if let Some(known) = incoming.get(&node) {
            if known.instance > instance {
                return None;
            }
            known.channel.close(CloseReason::Superseded);
        }
        let channel = ConnectionQueue::new(ConnectionOrigin::PeerIn(node), told);
        incoming.insert(node, IncomingPeer { instance, channel: Rc::clone(&channel) });
        self.counters.admitted.add(1);
        if let Some(link) = self.links.borrow().get(&node) {
            link.redial();
        }
        Some(channel)
    }

    /// A client came in, or an operator.
    pub fn enter_client(
        &self,
        origin: impl FnOnce(ConnectedClient) -> ConnectionOrigin,
        told: Option<ClusterId>,
    ) -> Rc<ConnectionQueue> {
        let number = self.clients_seen.get();
        self.clients_seen.set(number + 1);
        let client = ConnectedClient(u64::from(self.host.worker.0) << 48 | number);
        let channel = ConnectionQueue::new(origin(client), told);
        self.clients.borrow_mut().insert(client, Rc::clone(&channel));
        self.counters.admitted.add(1);
        channel
    }

    /// A connection that came in is over.
    pub fn leave(&self, channel: &Rc<ConnectionQueue>) {
        match channel.origin {
            ConnectionOrigin::PeerIn(node) => {
                let mut incoming = self.incoming.borrow_mut();
                if incoming.get(&node).is_some_and(|known| Rc::ptr_eq(&known.channel, channel)) {
                    incoming.remove(&node);
                }
            }
            ConnectionOrigin::Client(client) | ConnectionOrigin::Operator(client) => {
                self.clients.borrow_mut().remove(&client);
                self.counters.clients_gone.add(1);
                self.arrive(LoopArrival::ClientGone(client));
            }
            ConnectionOrigin::PeerOut(node) => {
                unreachable!("{node} was dialed, and did not come in")
            }
        }
        self.note_drop(DropReason::Lost, channel.queued_frames());
    }

    /// A node is a peer no more.
    pub fn forget_peer(&self, node: NodeId) {
        if let Some(known) = self.incoming.borrow().get(&node) {
            known.channel.close(CloseReason::Removed);
        }
        let link = self.links.borrow_mut().remove(&node);
        if let Some(link) = link {
            link.end(self);
        }
    }
}

impl AdmissionPolicy for LoopState {
    fn knows(&self, caller: &DialingEnd) -> Result<(), CloseReason> {
        match caller {
            DialingEnd::Peer { node, .. } if !self.links.borrow().contains_key(node) => {
                Err(CloseReason::UnknownNode)
            }
            DialingEnd::Peer { .. } | DialingEnd::Client | DialingEnd::Operator => Ok(()),
        }
    }

    /// A former process is refused only while a later one is connected: should lives be counted wrongly,
    /// no node is locked out for good.
    fn admits(&self, caller: &DialingEnd) -> Result<(), CloseReason> {
        match caller {
            DialingEnd::Peer { node, instance, .. } => {
                let known = self.incoming.borrow().get(node).map(|known| known.instance);
                if known.is_some_and(|known| known > *instance) {
                    return Err(CloseReason::StaleLife);
                }
            }
            DialingEnd::Client => {
                if self.clients.borrow().len() >= self.config.limits.clients_max {
                    return Err(CloseReason::TooManyClients);
                }
            }
            // However many clients there are: it may be about them.
            DialingEnd::Operator => {}
        }
        Ok(())
    }
}
