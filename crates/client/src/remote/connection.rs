//! A connection to one worker of a node, and the tasks that wait for its messages.
//!
//! ```text
//!   sessions, calls ──► Outgoing ──► the node ──► Incoming ──┬─► sessions, by number
//!                                                           ├─► answers of calls, by request
//!                                                           └─► directory
//! ```
//! Sessions belong to their connection, by which the node identifies the client: they end with it. The id of a
//! session consists of the registration that the worker has granted to the connection, and a number. Numbers are
//! assigned and sent under one lock, in their order, since a worker begins only few sessions with lower numbers than it
//! has seen. If the worker does not know a session, it may have dropped the registration: then the connection registers
//! again.
//!
//! A worker may ignore a request, as one without a lease does. So the connection requests its registration again once a
//! session has waited for it for too long: when its transaction sends again, or when it ends before that, because of its
//! deadline or since the node does not answer.

use super::client_shared::ClientShared;
use super::environment::{EnvironmentConnection, Incoming, Outgoing};
use super::lock;
use super::session::{AfterReply, ClientSession, SessionId};
use shoal_engine::WorkerPlace;
use shoal_engine::client::{ClientReply, ClientRequest, FromClient, ToClient};
use shoal_types::{Aborted, Cause, Error, NodeId, Time, Unknown};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// A node that has sent nothing for so long is probed.
const PROBE_AFTER: Duration = Duration::from_millis(50);

/// A session that its transaction and its connection share.
pub(super) type SharedSession = Arc<Mutex<ClientSession>>;

/// A connection to one worker of a node, and the transactions that are open on it.
#[derive(Debug)]
pub(super) struct NodeConnection {
    place: WorkerPlace,
    open: Mutex<OpenSessions>,
    /// Why it has ended, if it has.
    ended: watch::Sender<Option<Cause>>,
    /// When the last message arrived.
    received_at: Mutex<Time>,
    /// When the node was probed last.
    probed_at: Mutex<Time>,
}

#[derive(Debug)]
struct OpenSessions {
    /// The sending half; `None` after the end.
    outgoing: Option<Box<dyn Outgoing>>,
    registration: Registration,
    /// The greatest number that was assigned.
    last_number: u64,
    sessions: BTreeMap<u64, SharedSession>,
    /// Sessions without an id, which wait for the registration.
    without_id: Vec<SharedSession>,
}

/// Whether the worker knows the connection.
#[derive(Debug, Clone, Copy)]
enum Registration {
    /// The registration was not requested, or the worker has dropped it.
    None,
    /// The registration was requested, and not granted yet.
    Requested,
    /// The registration was granted under this number.
    Granted(u64),
}

impl NodeConnection {
    /// Starts a connection.
    pub(super) fn start(
        connection: EnvironmentConnection,
        client_shared: &Arc<ClientShared>,
    ) -> Arc<NodeConnection> {
        let EnvironmentConnection { node, worker, identity: _, carrier } = connection;
        let now = client_shared.world.now();
        let link = Arc::new(NodeConnection {
            place: WorkerPlace { node, worker },
            open: Mutex::new(OpenSessions {
                outgoing: None,
                registration: Registration::None,
                last_number: 0,
                sessions: BTreeMap::new(),
                without_id: Vec::new(),
            }),
            ended: watch::Sender::new(None),
            received_at: Mutex::new(now),
            probed_at: Mutex::new(now),
        });
        // Messages that arrive at once wait until the sending half is there.
        let mut open = lock(&link.open);
        let receiver = ConnectionReceiver {
            link: Arc::clone(&link),
            client_shared: Arc::clone(client_shared),
        };
        open.outgoing = Some(carrier.start(Arc::new(receiver)));
        drop(open);
        link
    }

    /// The node at the other end.
    pub(super) fn node(&self) -> NodeId {
        self.place.node
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) -> Cause {
        let mut ended = self.ended.subscribe();
        let cause = ended.wait_for(Option::is_some).await.expect("we hold the sender");
        cause.expect("waited for")
    }

    /// When the last message arrived.
    pub(super) fn received_at(&self) -> Time {
        *lock(&self.received_at)
    }

    /// Sends a message that belongs to no session.
    pub(super) fn send(&self, what: FromClient) {
        lock(&self.open).send(what);
    }

    /// Changes a session, and sends the steps that can be sent then.
    pub(super) fn with<T>(
        &self,
        session: &SharedSession,
        act: impl FnOnce(&mut ClientSession) -> T,
    ) -> T {
        self.act(session, |session, _| act(session))
    }

    /// Sends unanswered steps again, and probes the node.
    pub(super) fn send_again(&self, session: &SharedSession, client_shared: &ClientShared) {
        lock(&self.open).reset_requested_registration();
        self.act(session, ClientSession::send_again);
        self.probe(client_shared);
    }

    /// Requests the directory, which any node sends at once, if nothing was received for a while.
    fn probe(&self, client_shared: &ClientShared) {
        let now = client_shared.world.now();
        let mut probed_at = lock(&self.probed_at);
        if now - self.received_at().max(*probed_at) >= PROBE_AFTER {
            *probed_at = now;
            self.send(FromClient::Directory);
        }
    }

    fn act<T>(
        &self,
        session: &SharedSession,
        act: impl FnOnce(&mut ClientSession, &mut Vec<ClientRequest>) -> T,
    ) -> T {
        let mut out = Vec::new();
        let mut open = lock(&self.open);
        let mut steps = lock(session);
        let result = act(&mut steps, &mut out);
        if open.outgoing.is_none() {
            let cause = self.ended.borrow().unwrap_or(Cause::Disconnected);
            steps.on_disconnect(cause);
            return result;
        }
        open.send_all(session, &mut steps, out);
        result
    }

    /// Ends the connection and all its sessions. Messages that were queued before are still sent.
    pub(super) fn end(&self, cause: Cause) {
        let sessions = {
            let mut open = lock(&self.open);
            if open.outgoing.take().is_none() {
                return;
            }
            self.ended.send_replace(Some(cause));
            let without_id = std::mem::take(&mut open.without_id);
            std::mem::take(&mut open.sessions).into_values().chain(without_id)
        };
        sessions.for_each(|session| lock(&session).on_disconnect(cause));
    }

    /// Handles a message that has arrived.
    ///
    /// # Errors
    /// If it is malformed.
    fn on_message(
        &self,
        message: ToClient,
        client_shared: &ClientShared,
    ) -> std::result::Result<(), MalformedReply> {
        *lock(&self.received_at) = client_shared.world.now();
        match message {
            ToClient::Directory(directory) => {
                if !client_shared.on_directory(self.place.node, directory) {
                    self.end(Cause::FoundedAgain);
                }
            }
            // This client does not request it.
            ToClient::Status(_) | ToClient::Isolated(_) => {}
            ToClient::Reply(ClientReply::Called { id, result }) => {
                client_shared.answers.deliver(id, result);
            }
            ToClient::Reply(ClientReply::CallsOpened { token, result }) => {
                client_shared.opened.deliver(token, result);
            }
            ToClient::Reply(ClientReply::TableChanged { ask, result }) => {
                client_shared.tables.deliver(ask, result);
            }
            ToClient::Reply(ClientReply::Registered { registration }) => {
                lock(&self.open).on_registered(registration);
            }
            ToClient::Reply(ClientReply::Done { session, number, result }) => {
                let is_unknown = matches!(
                    result,
                    Err(Error::Aborted(Aborted::UnknownSession { .. })
                        | Error::Unknown(Unknown::Session { .. }))
                );
                if is_unknown {
                    lock(&self.open).forget_registration();
                }
                return self.on_session_reply(session, |it| it.on_reply(number, result));
            }
        }
        Ok(())
    }

    /// Passes a reply to its session. Replies to ended sessions are ignored.
    fn on_session_reply(
        &self,
        number: u64,
        reply: impl FnOnce(&mut ClientSession) -> AfterReply,
    ) -> std::result::Result<(), MalformedReply> {
        let mut open = lock(&self.open);
        let Some(session) = open.sessions.get(&number).cloned() else { return Ok(()) };
        let mut steps = lock(&session);
        match reply(&mut steps) {
            AfterReply::Open => {}
            AfterReply::Over => {
                open.sessions.remove(&number);
                return Ok(());
            }
            AfterReply::NotBegun => {
                open.sessions.remove(&number);
                steps.restart();
            }
            AfterReply::Malformed => return Err(MalformedReply),
        }
        open.send_all(&session, &mut steps, Vec::new());
        Ok(())
    }
}

impl OpenSessions {
    fn send(&self, what: FromClient) {
        if let Some(outgoing) = &self.outgoing {
            outgoing.send(what);
        }
    }

    /// Requests the registration.
    fn register(&mut self) {
        self.registration = Registration::Requested;
        self.send(FromClient::Request(ClientRequest::Register));
    }

    /// The request for the registration may be lost: the next session that needs an id sends it again.
    fn reset_requested_registration(&mut self) {
        if let Registration::Requested = self.registration {
            self.registration = Registration::None;
        }
    }

    /// A session that is over needs no id. If it waited for one, the request for the registration may be lost.
    fn remove_waiting(&mut self, session: &SharedSession) {
        let place = self.without_id.iter().position(|waiting| Arc::ptr_eq(waiting, session));
        if let Some(place) = place {
            self.without_id.remove(place);
            self.reset_requested_registration();
        }
    }

    /// The worker has registered the connection: sends the sessions that wait for it. Repeated requests are harmless.
    fn on_registered(&mut self, registration: u64) {
        self.registration = Registration::Granted(registration);
        for session in std::mem::take(&mut self.without_id) {
            let mut steps = lock(&session);
            self.send_all(&session, &mut steps, Vec::new());
        }
    }

    /// The worker may have dropped the registration.
    fn forget_registration(&mut self) {
        if let Registration::Granted(_) = self.registration {
            self.registration = Registration::None;
        }
    }

    /// Assigns an id to a session, or has the session wait for the registration.
    fn assign_id(&mut self, session: &SharedSession, steps: &mut ClientSession) {
        if let Registration::Granted(registration) = self.registration {
            self.last_number += 1;
            steps.assign_id(SessionId { registration, number: self.last_number });
            self.sessions.insert(self.last_number, Arc::clone(session));
            return;
        }
        if !self.without_id.iter().any(|waiting| Arc::ptr_eq(waiting, session)) {
            self.without_id.push(Arc::clone(session));
        }
        if let Registration::None = self.registration {
            self.register();
        }
    }

    /// Sends `out`, and all that the session can send after it.
    fn send_all(
        &mut self,
        session: &SharedSession,
        steps: &mut ClientSession,
        mut out: Vec<ClientRequest>,
    ) {
        if steps.needs_id() {
            self.assign_id(session, steps);
        }
        steps.send(&mut out);
        out.into_iter().for_each(|request| self.send(FromClient::Request(request)));
        if steps.is_over() {
            match steps.number() {
                Some(number) => drop(self.sessions.remove(&number)),
                None => self.remove_waiting(session),
            }
        }
    }
}

/// Receives the messages of a connection until it ends.
#[derive(Debug)]
struct ConnectionReceiver {
    link: Arc<NodeConnection>,
    client_shared: Arc<ClientShared>,
}

impl Incoming for ConnectionReceiver {
    fn receive(&self, message: ToClient) {
        if self.link.on_message(message, &self.client_shared).is_err() {
            self.malformed();
        }
    }

    fn malformed(&self) {
        self.client_shared.count_malformed();
        self.link.end(Cause::Malformed);
    }

    fn lose(&self) {
        self.link.end(Cause::Disconnected);
    }

    fn has_ended(&self) -> bool {
        self.link.has_ended()
    }

    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.link.ended().await;
        })
    }
}

/// A malformed message.
#[derive(Debug)]
struct MalformedReply;

#[cfg(test)]
mod tests;
