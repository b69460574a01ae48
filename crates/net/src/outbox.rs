//! The inputs of a core, and its outputs.

use bytes::{Bytes, BytesMut};
use shoal_types::wire::MessageVersion;
use shoal_types::{NodeId, Time, WorkerId, WorkerPlace};
use std::fmt;

/// A client of one node: one connection of it. The number is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectedClient(pub u64);

impl fmt::Display for ConnectedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// Something that happens to a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreInput<C> {
    /// The loop begins: the first input, once.
    Started,
    /// From another worker, of another node or of this one. Those of one sender come in the order in which it sent them;
    /// of two connections of a peer, all of the earlier comes first. Some may be lost.
    FromPeer {
        /// Its sender.
        from: WorkerPlace,
        /// A part of the buffer it was read into: keeping it keeps the whole buffer.
        frame: Bytes,
        /// When it was read from the socket, or passed on by a worker of this node. It may have waited since.
        arrived: Time,
    },
    /// From an authenticated client.
    FromClient {
        /// Its sender.
        client: ConnectedClient,
        /// The message.
        frame: Bytes,
        /// When it was read from the socket. It may have waited since.
        arrived: Time,
    },
    /// From a client that knows the secret of peers: it may change the cluster, and nothing else.
    FromOperator {
        /// Its sender.
        client: ConnectedClient,
        /// The message.
        frame: Bytes,
    },
    /// Frames to that peer can arrive from now on. Alternates with `PeerDown`.
    PeerUp {
        /// The peer.
        node: NodeId,
        /// The number of its process.
        instance: u64,
        /// The version of messages that it uses with this node.
        version: MessageVersion,
    },
    /// Frames in flight to that peer may be lost, and later ones are dropped.
    PeerDown {
        /// The peer.
        node: NodeId,
    },
    /// The client has disconnected: once for each, also for those that never sent anything.
    ClientGone {
        /// The client whose connection has closed.
        client: ConnectedClient,
    },
    /// The timer fired.
    Timer,
    /// Another worker has changed state that they share. Several nudges may be merged.
    Nudged,
    /// A command of another thread of this process; in the order of each sender.
    Command(C),
}

/// Something that the loop does for a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreOutput {
    /// Send a frame to the same worker of that node.
    ToPeer(NodeId, Bytes),
    /// The same, ahead of what is queued.
    ToPeerUrgent(NodeId, Bytes),
    /// Send a frame to that worker, of another node or of this one.
    ToWorker(WorkerPlace, Bytes),
    /// Send a frame to that client.
    ToClient(ConnectedClient, Bytes),
    /// Give that worker [`CoreInput::Nudged`].
    Nudge(WorkerId),
    /// Send that client what is queued for it, and why it is closed; then close it.
    CloseClient(ConnectedClient, String),
    /// End all loops of this node.
    Stop,
}

/// Collects the outputs of a core in one turn. They are performed when the turn ends.
#[derive(Debug, Default)]
pub struct Outbox {
    outputs: Vec<CoreOutput>,
    timer: Option<Time>,
    scratch: BytesMut,
}

/// How much is allocated at once for frames that are encoded here.
const SCRATCH_BYTES: usize = 64 << 10;

/// Longest reason that is sent to a closed client, in bytes.
const FAREWELL_BYTES_MAX: usize = 256;

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Sends `frame` to the same worker of `node`. It may get lost: when there is no connection, or too
    /// much is on its way. Not to the node itself.
    pub fn to_peer(&mut self, node: NodeId, frame: Bytes) {
        self.outputs.push(CoreOutput::ToPeer(node, frame));
    }

    /// Sends `frame` to any other worker, of another node or of this one. It may get lost: as for
    /// [`to_peer`](Outbox::to_peer), or because too much waits for that worker on its node.
    ///
    /// # Panics
    /// The loop does, if `to` is this worker itself.
    pub fn to_worker(&mut self, to: WorkerPlace, frame: Bytes) {
        self.outputs.push(CoreOutput::ToWorker(to, frame));
    }

    /// Sends `frame` to the same worker of `node`, for what must not wait behind large frames, such as leases. It overtakes
    /// what was sent before, and
    /// should be short. Of urgent frames to one node, none overtakes another.
    pub fn to_peer_urgent(&mut self, node: NodeId, frame: Bytes) {
        self.outputs.push(CoreOutput::ToPeerUrgent(node, frame));
    }

    /// Sends `frame` to `client`. It arrives, or the connection ends.
    pub fn to_client(&mut self, client: ConnectedClient, frame: Bytes) {
        self.outputs.push(CoreOutput::ToClient(client, frame));
    }

    /// A frame of what `write` appends; many of them share an allocation.
    pub fn encode(&mut self, write: impl FnOnce(&mut BytesMut)) -> Bytes {
        if self.scratch.capacity() < SCRATCH_BYTES / 16 {
            self.scratch.reserve(SCRATCH_BYTES);
        }
        write(&mut self.scratch);
        self.scratch.split().freeze()
    }

    /// Sets the timer, which fires with [`CoreInput::Timer`]. There is one timer, with the earliest time that
    /// was set; after it has fired it has to be set again.
    pub fn timer(&mut self, at: Time) {
        self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
    }

    /// Gives `worker` of this node [`CoreInput::Nudged`]. It may be this one.
    pub fn nudge(&mut self, worker: WorkerId) {
        self.outputs.push(CoreOutput::Nudge(worker));
    }

    /// Closes `client` after all frames to it are written. The reason is sent with that; its first 256 bytes
    /// count.
    pub fn close_client(&mut self, client: ConnectedClient, reason: impl Into<String>) {
        let mut reason = reason.into();
        reason.truncate(reason.floor_char_boundary(FAREWELL_BYTES_MAX));
        self.outputs.push(CoreOutput::CloseClient(client, reason));
    }

    /// Ends all loops of this node after this turn: its process is over.
    pub fn stop(&mut self) {
        self.outputs.push(CoreOutput::Stop);
    }

    /// Takes the outputs in their order.
    pub fn drain(&mut self) -> impl Iterator<Item = CoreOutput> + '_ {
        self.outputs.drain(..)
    }

    /// Takes the time of the timer, if it was set.
    pub fn take_timer(&mut self) -> Option<Time> {
        self.timer.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;

    #[test]
    fn an_outbox_keeps_the_order_and_the_earliest_time() {
        let mut out = Outbox::new();
        let (one, two) = (out.encode(|to| to.put_u8(1)), out.encode(|to| to.put_u8(2)));
        assert_eq!((&one[..], &two[..]), (&[1][..], &[2][..]));
        out.to_peer(NodeId(1), one.clone());
        out.to_client(ConnectedClient(2), two.clone());
        out.timer(Time(7));
        out.timer(Time(5));
        out.close_client(ConnectedClient(2), "ü".repeat(200));
        let outputs: Vec<_> = out.drain().collect();
        assert_eq!(outputs[0], CoreOutput::ToPeer(NodeId(1), one));
        assert_eq!(outputs[1], CoreOutput::ToClient(ConnectedClient(2), two));
        assert_eq!(outputs[2], CoreOutput::CloseClient(ConnectedClient(2), "ü".repeat(128)));
        assert_eq!((out.take_timer(), out.take_timer()), (Some(Time(5)), None));
    }
}
