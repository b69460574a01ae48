//! The connections of one loop: to its peers, from them, and from clients; and which are admitted.

use crate::connection_queue::{ConnectionOrigin, ConnectionQueue};
use crate::handshake::{AdmissionPolicy, DialingEnd};
use crate::loop_state::{LoopArrival, LoopState};
use crate::outbox::ConnectedClient;
use crate::peer_link::PeerLink;
use crate::reason::{CloseReason, DropReason};
use shoal_types::{ClusterId, NodeId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::rc::Rc;
use tokio::task::{AbortHandle, spawn_local};

/// A connection that a peer has dialed, and the number of the peer's process.
#[derive(Debug)]
struct IncomingPeer {
    instance: u64,
    channel: Rc<ConnectionQueue>,
}

/// One loop's connections. They share its state.
#[derive(Debug)]
pub(crate) struct LoopConnections {
    pub loop_state: Rc<LoopState>,
    pub links: RefCell<BTreeMap<NodeId, Rc<PeerLink>>>,
    pub clients: RefCell<BTreeMap<ConnectedClient, Rc<ConnectionQueue>>>,
    incoming: RefCell<BTreeMap<NodeId, IncomingPeer>>,
    /// Nodes that were removed from the cluster; their connections are refused with that reason.
    removed: RefCell<BTreeSet<NodeId>>,
    unauthenticated: RefCell<VecDeque<(u64, AbortHandle)>>,
    unauthenticated_seen: Cell<u64>,
    clients_seen: Cell<u64>,
}

impl LoopConnections {
    pub fn new(loop_state: Rc<LoopState>) -> Rc<LoopConnections> {
        Rc::new(LoopConnections {
            loop_state,
            links: RefCell::default(),
            clients: RefCell::default(),
            incoming: RefCell::default(),
            removed: RefCell::default(),
            unauthenticated: RefCell::default(),
            unauthenticated_seen: Cell::new(0),
            clients_seen: Cell::new(0),
        })
    }

    /// Runs the task that authenticates a connection. If there are too many, the oldest is aborted: ends that
    /// know the secret are quick.
    pub fn authenticate<F: Future<Output = ()> + 'static>(&self, task: impl FnOnce(u64) -> F) {
        let number = self.unauthenticated_seen.get();
        self.unauthenticated_seen.set(number + 1);
        let handle = spawn_local(task(number)).abort_handle();
        let mut unauthenticated = self.unauthenticated.borrow_mut();
        unauthenticated.push_back((number, handle));
        if unauthenticated.len() > self.loop_state.config.limits.unauthenticated_max
            && let Some((_, oldest)) = unauthenticated.pop_front()
        {
            oldest.abort();
            self.loop_state.note_close(CloseReason::TooManyUnauthenticated, "unauthenticated", "");
        }
    }

    /// The connection with this number is not unauthenticated any more.
    pub fn finish_authentication(&self, number: u64) {
        self.unauthenticated.borrow_mut().retain(|(other, _)| *other != number);
    }

    /// A peer has connected: its former connection is closed, and it is dialed if it was not reached. `None`
    /// if a later process of the peer is connected already.
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
        self.loop_state.counters.admitted.add(1);
        if let Some(link) = self.links.borrow().get(&node) {
            link.redial();
        }
        Some(channel)
    }

    /// A client or an operator has connected.
    pub fn enter_client(
        &self,
        origin: impl FnOnce(ConnectedClient) -> ConnectionOrigin,
        told: Option<ClusterId>,
    ) -> Rc<ConnectionQueue> {
        let number = self.clients_seen.get();
        self.clients_seen.set(number + 1);
        let client = ConnectedClient(u64::from(self.loop_state.host.worker.0) << 48 | number);
        let channel = ConnectionQueue::new(origin(client), told);
        self.clients.borrow_mut().insert(client, Rc::clone(&channel));
        self.loop_state.counters.admitted.add(1);
        channel
    }

    /// An accepted connection has ended.
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
                self.loop_state.counters.clients_gone.add(1);
                self.loop_state.arrive(LoopArrival::ClientGone(client));
            }
            ConnectionOrigin::PeerOut(node) => {
                unreachable!("{node} was dialed, not accepted")
            }
        }
        self.loop_state.note_drop(DropReason::Lost, channel.queued_frames());
    }

    /// A node is a peer from now on, over this link.
    pub fn set_peer(&self, node: NodeId, link: Rc<PeerLink>) {
        self.removed.borrow_mut().remove(&node);
        self.links.borrow_mut().insert(node, link);
    }

    /// A node was removed from the cluster.
    pub fn remove_peer(&self, node: NodeId) {
        self.removed.borrow_mut().insert(node);
        self.forget_peer(node);
    }

    /// The connections to a node end.
    pub fn forget_peer(&self, node: NodeId) {
        if let Some(known) = self.incoming.borrow().get(&node) {
            known.channel.close(CloseReason::Removed);
        }
        let link = self.links.borrow_mut().remove(&node);
        if let Some(link) = link {
            link.end(&self.loop_state);
        }
    }
}

impl AdmissionPolicy for LoopConnections {
    fn knows(&self, caller: &DialingEnd) -> Result<(), CloseReason> {
        match caller {
            DialingEnd::Peer { node, .. } if self.removed.borrow().contains(node) => {
                Err(CloseReason::RemovedNode)
            }
            DialingEnd::Peer { node, .. } if !self.links.borrow().contains_key(node) => {
                Err(CloseReason::UnknownNode)
            }
            DialingEnd::Peer { .. } | DialingEnd::Client | DialingEnd::Operator => Ok(()),
        }
    }

    /// A former process is refused only while a later one is connected: if processes are numbered wrongly, no
    /// node is locked out for good.
    fn admits(&self, caller: &DialingEnd) -> Result<(), CloseReason> {
        match caller {
            DialingEnd::Peer { node, instance, .. } => {
                let known = self.incoming.borrow().get(node).map(|known| known.instance);
                if known.is_some_and(|known| known > *instance) {
                    return Err(CloseReason::FormerProcess);
                }
            }
            DialingEnd::Client => {
                if self.clients.borrow().len() >= self.loop_state.config.limits.clients_max {
                    return Err(CloseReason::TooManyClients);
                }
            }
            // However many clients there are: the operator may have to act on that.
            DialingEnd::Operator => {}
        }
        Ok(())
    }
}
