//! Which connections the HTTP service keeps: so many in all, and so many of one peer.
//!
//! A peer that opens more closes its own oldest. So a peer that never asks, or never reads, takes no place from others,
//! however many connections it opens; and one of it that does ask is answered.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Connections of one peer at once. More would let fewer peers fill all places.
pub const OF_PEER_MAX: usize = 4;

/// What is at the other end: an address, and with IPv6 the whole network of 64 bits, all of which is one machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer(IpAddr);

impl Peer {
    /// The peer with this address.
    pub fn of(address: IpAddr) -> Peer {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                Peer(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
            address @ IpAddr::V4(_) => Peer(address),
        }
    }
}

/// The open connections, by peer.
#[derive(Debug, Clone, Default)]
pub struct Connections(Arc<Mutex<OpenConnections>>);

#[derive(Debug, Default)]
struct OpenConnections {
    last: u64,
    peers: BTreeMap<Peer, VecDeque<(u64, oneshot::Sender<()>)>>,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    connections: Connections,
    peer: Peer,
    number: u64,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts another connection of `peer`. It is to be closed when the receiver is notified, or its sender is gone: the peer
    /// has opened more than it may.
    pub fn enter(&self, peer: Peer) -> (CountedConnection, oneshot::Receiver<()>) {
        let (closes, closed) = oneshot::channel();
        let mut open = self.lock();
        open.last += 1;
        let number = open.last;
        let of_peer = open.peers.entry(peer).or_default();
        if of_peer.len() >= OF_PEER_MAX {
            // Its end sees that the sender is gone.
            of_peer.pop_front();
        }
        of_peer.push_back((number, closes));
        (CountedConnection { connections: self.clone(), peer, number }, closed)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        if let Some(of_peer) = open.peers.get_mut(&self.peer) {
            of_peer.retain(|(number, _)| *number != self.number);
            if of_peer.is_empty() {
                open.peers.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    fn peer(address: &str) -> Peer {
        Peer::of(address.parse().expect("an address"))
    }

    #[test]
    fn a_peer_that_opens_more_than_it_may_closes_its_own_oldest() {
        let connections = Connections::default();
        let (first_peer, other) = (peer("10.0.0.1"), peer("10.0.0.2"));
        let (_place, mut of_other) = connections.enter(other);
        let mut opened: Vec<_> = (0..20).map(|_| connections.enter(first_peer)).collect();
        for (at, (_, closed)) in opened.iter_mut().enumerate() {
            let expected = match at < 20 - OF_PEER_MAX {
                true => TryRecvError::Closed,
                false => TryRecvError::Empty,
            };
            assert_eq!(closed.try_recv(), Err(expected), "connection {at}");
        }
        assert_eq!(of_other.try_recv(), Err(TryRecvError::Empty), "that of another peer stays");
        // What has ended makes room again.
        opened.truncate(18);
        let (_place, mut closed) = connections.enter(first_peer);
        assert_eq!(opened[17].1.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(closed.try_recv(), Err(TryRecvError::Empty));
        drop(opened);
        assert_eq!(connections.lock().peers[&first_peer].len(), 1);
    }

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    }
}
