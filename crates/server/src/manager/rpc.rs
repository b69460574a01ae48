//! Requests and replies between manager inboxes, over the connections of the first workers.

use crate::envelope::{Envelope, RpcReply, RpcRequest};
use crate::worker_command::{HOST, WorkerCommand};
use bytes::Bytes;
use shoal_net::{SystemClock, UndeliveredCommand};
use shoal_raft::{Transport, Unreachable};
use shoal_types::wire::encode;
use shoal_types::{NodeId, Time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests without a reply yet.
#[derive(Debug)]
struct PendingCalls {
    number: u64,
    waiting: BTreeMap<u64, (NodeId, oneshot::Sender<RpcReply>)>,
}

/// Sends messages between managers over the connections of the node's first worker. Clones share the pending
/// requests.
#[derive(Debug, Clone)]
pub(super) struct Rpc {
    worker_hosts: shoal_net::Handle<WorkerCommand>,
    clock: SystemClock,
    asked: Arc<Mutex<PendingCalls>>,
}

impl Rpc {
    /// Requests are numbered from `first` on, which is drawn at random: replies to a former process of the
    /// node match none.
    pub(super) fn new(
        worker_hosts: shoal_net::Handle<WorkerCommand>,
        clock: SystemClock,
        first: u64,
    ) -> Rpc {
        let asked = PendingCalls { number: first, waiting: BTreeMap::new() };
        Rpc { worker_hosts, clock, asked: Arc::new(Mutex::new(asked)) }
    }

    /// Whether the node has ended.
    pub(super) fn is_stopped(&self) -> bool {
        self.worker_hosts.is_stopped()
    }

    /// The command may be dropped: it is repeated.
    pub(super) fn command(&self, command: WorkerCommand) {
        if let Err(UndeliveredCommand::Full(_)) = self.worker_hosts.command(HOST, command) {
            tracing::warn!("the first worker does not keep up with its manager");
        }
    }

    pub(super) fn send(&self, to: NodeId, envelope: &Envelope<NoMessages>) {
        self.command(WorkerCommand::Send { to, frame: encode(envelope) });
    }

    pub(super) fn answered(&self, from: NodeId, number: u64, answer: RpcReply) {
        let mut asked = self.asked();
        if asked.waiting.get(&number).is_some_and(|(of, _)| *of == from)
            && let Some((_, waiting)) = asked.waiting.remove(&number)
        {
            // The caller may have given up.
            let _ = waiting.send(answer);
        }
    }

    /// Asks the manager inbox of a node to host a manager, on disk if `on_disk`. `None` if it has not
    /// answered in this time.
    pub(super) async fn host(
        &self,
        node: NodeId,
        on_disk: bool,
        patience: Duration,
    ) -> Option<RpcReply> {
        let asked = self.ask(node, RpcRequest::Host { on_disk });
        tokio::time::timeout(patience, asked).await.ok()?.ok()
    }

    async fn ask(&self, to: NodeId, question: RpcRequest) -> Result<RpcReply, Unreachable> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut asked = self.asked();
            asked.number = asked.number.wrapping_add(1);
            let number = asked.number;
            asked.waiting.insert(number, (to, answer));
            number
        };
        let _forgets = ForgetOnDrop { rpc: self, number };
        self.send(to, &Envelope::Ask { number, question });
        answered.await.map_err(|_| Unreachable { to })
    }

    fn asked(&self) -> MutexGuard<'_, PendingCalls> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Rpc {
    async fn call(&self, to: NodeId, request: Bytes) -> Result<Bytes, Unreachable> {
        match self.ask(to, RpcRequest::Log(request)).await? {
            RpcReply::Log(response) => Ok(response),
            RpcReply::Hosts(_) | RpcReply::InMemory | RpcReply::CannotHost(_) => {
                Err(Unreachable { to })
            }
        }
    }

    fn now(&self) -> Time {
        self.clock.now()
    }
}

/// Removes a pending request when its caller gives up.
struct ForgetOnDrop<'a> {
    rpc: &'a Rpc,
    number: u64,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        self.rpc.asked().waiting.remove(&self.number);
    }
}

/// The message type of engines, of which managers send none. Its encoding is not derived: it has no variant that a tag
/// could stand for.
#[derive(Debug, Clone)]
pub(super) enum NoMessages {}

impl shoal_types::wire::Coded for NoMessages {
    const BYTES_MIN: usize = 1;

    fn put(&self, _: &mut shoal_types::wire::BytesMut) {
        match *self {}
    }

    fn take(
        input: &mut shoal_types::wire::Input<'_>,
    ) -> Result<NoMessages, shoal_types::wire::Malformed> {
        Err(input.wrong("a message of an engine from a manager"))
    }
}
