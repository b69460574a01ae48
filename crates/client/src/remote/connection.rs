//! A connection to one worker of a node, and the tasks that wait for its messages.
//!
//! ```text
//!   sessions, calls ──► Outgoing ──► the node ──► Incoming ──┬─► sessions, by number
//!                                                           ├─► answers of calls, by request
//!                                                           └─► directory
//! ```
//! Sessions belong to their connection, by which the node identifies the client: they end with it. The name of a
//! session consists of the registration that the worker has granted to the connection, and a number. Numbers are
//! assigned and sent under one lock, in their order, since a worker begins only few sessions with lower numbers than it
//! has seen. If the worker does not know a session, it may have dropped the registration: then the connection registers
//! again.
//!
//! A worker may ignore a request, as one without a lease does. So the connection requests its registration again once a
//! session has waited for it in vain: when its transaction sends again, or when it ends before that, because of its
//! deadline or since the node does not answer.

use super::client_shared::ClientShared;
use super::environment::{EnvironmentConnection, Incoming, Outgoing};
use super::lock;
use super::session::{AfterReply, ClientSession, SessionName};
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
    book: Mutex<OpenSessions>,
    /// Why it has ended, if it has.
    ended: watch::Sender<Option<Cause>>,
    /// When something came last.
    heard_at: Mutex<Time>,
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
    /// Sessions without a name, which wait for the registration.
    unnamed: Vec<SharedSession>,
}

/// Whether the worker knows the connection.
#[derive(Debug, Clone, Copy)]
enum Registration {
    /// It was not requested, or the worker has dropped it.
    None,
    /// The registration was requested, and not granted yet.
    Asked,
    /// It was granted under this number.
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
            book: Mutex::new(OpenSessions {
                outgoing: None,
                registration: Registration::None,
                last_number: 0,
                sessions: BTreeMap::new(),
                unnamed: Vec::new(),
            }),
            ended: watch::Sender::new(None),
            heard_at: Mutex::new(now),
            probed_at: Mutex::new(now),
        });
        // Messages that arrive at once wait until the sending half is there.
        let mut book = lock(&link.book);
        let receiver = ConnectionReceiver {
            link: Arc::clone(&link),
            client_shared: Arc::clone(client_shared),
        };
        book.outgoing = Some(carrier.start(Arc::new(receiver)));
        drop(book);
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

    /// When something came last.
    pub(super) fn heard_at(&self) -> Time {
        *lock(&self.heard_at)
    }

    /// Sends a message that belongs to no session.
    pub(super) fn send(&self, what: FromClient) {
        lock(&self.book).send(what);
    }

    /// Acts on a session, and sends what can be sent then.
    pub(super) fn with<T>(
        &self,
        session: &SharedSession,
        act: impl FnOnce(&mut ClientSession) -> T,
    ) -> T {
        self.act(session, |session, _| act(session))
    }

    /// Sends again what may have been lost, and probes the node.
    pub(super) fn ask_again(&self, session: &SharedSession, client_shared: &ClientShared) {
        lock(&self.book).doubt_registration();
        self.act(session, ClientSession::send_again);
        self.probe(client_shared);
    }

    /// Requests the directory, which any node sends at once, if nothing was received for a while.
    fn probe(&self, client_shared: &ClientShared) {
        let now = client_shared.world.now();
        let mut probed_at = lock(&self.probed_at);
        if now - self.heard_at().max(*probed_at) >= PROBE_AFTER {
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
        let mut book = lock(&self.book);
        let mut steps = lock(session);
        let result = act(&mut steps, &mut out);
        if book.outgoing.is_none() {
            let cause = self.ended.borrow().unwrap_or(Cause::Disconnected);
            steps.lose(cause);
            return result;
        }
        book.send_all(session, &mut steps, out);
        result
    }

    /// Ends it, and all its sessions. Messages that were queued before are still sent.
    pub(super) fn end(&self, cause: Cause) {
        let sessions = {
            let mut book = lock(&self.book);
            if book.outgoing.take().is_none() {
                return;
            }
            self.ended.send_replace(Some(cause));
            let unnamed = std::mem::take(&mut book.unnamed);
            std::mem::take(&mut book.sessions).into_values().chain(unnamed)
        };
        sessions.for_each(|session| lock(&session).lose(cause));
    }

    /// A message has arrived.
    ///
    /// # Errors
    /// If it is malformed.
    fn take(
        &self,
        said: ToClient,
        client_shared: &ClientShared,
    ) -> std::result::Result<(), MalformedReply> {
        *lock(&self.heard_at) = client_shared.world.now();
        match said {
            ToClient::Directory(directory) => {
                if !client_shared.hear_directory(self.place.node, directory) {
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
                lock(&self.book).registered(registration);
            }
            ToClient::Reply(ClientReply::Done { session, number, result }) => {
                let is_unknown = matches!(
                    result,
                    Err(Error::Aborted(Aborted::UnknownSession { .. })
                        | Error::Unknown(Unknown::Session { .. }))
                );
                if is_unknown {
                    lock(&self.book).forget_registration();
                }
                return self.replied(session, |it| it.done(number, result));
            }
        }
        Ok(())
    }

    /// A reply to a session. Replies to ended sessions are ignored.
    fn replied(
        &self,
        number: u64,
        reply: impl FnOnce(&mut ClientSession) -> AfterReply,
    ) -> std::result::Result<(), MalformedReply> {
        let mut book = lock(&self.book);
        let Some(session) = book.sessions.get(&number).cloned() else { return Ok(()) };
        let mut steps = lock(&session);
        match reply(&mut steps) {
            AfterReply::Open => {}
            AfterReply::Over => {
                book.sessions.remove(&number);
                return Ok(());
            }
            AfterReply::Anew => {
                book.sessions.remove(&number);
                steps.restart();
            }
            AfterReply::Nonsense => return Err(MalformedReply),
        }
        book.send_all(&session, &mut steps, Vec::new());
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
        self.registration = Registration::Asked;
        self.send(FromClient::Request(ClientRequest::Register));
    }

    /// The request for the registration may be lost: the next session that needs a name sends it again.
    fn doubt_registration(&mut self) {
        if let Registration::Asked = self.registration {
            self.registration = Registration::None;
        }
    }

    /// A session that is over needs no name any more. If it waited for one, that was in vain.
    fn give_up_name(&mut self, session: &SharedSession) {
        let place = self.unnamed.iter().position(|waiting| Arc::ptr_eq(waiting, session));
        if let Some(place) = place {
            self.unnamed.remove(place);
            self.doubt_registration();
        }
    }

    /// The worker has registered the connection: the sessions that wait for it are sent. Repeated requests
    /// are harmless.
    fn registered(&mut self, registration: u64) {
        self.registration = Registration::Granted(registration);
        for session in std::mem::take(&mut self.unnamed) {
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

    /// Gives a session its name, or makes it wait for the registration.
    fn name(&mut self, session: &SharedSession, steps: &mut ClientSession) {
        if let Registration::Granted(registration) = self.registration {
            self.last_number += 1;
            steps.name(SessionName { registration, number: self.last_number });
            self.sessions.insert(self.last_number, Arc::clone(session));
            return;
        }
        if !self.unnamed.iter().any(|waiting| Arc::ptr_eq(waiting, session)) {
            self.unnamed.push(Arc::clone(session));
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
        if steps.wants_name() {
            self.name(session, steps);
        }
        steps.send(&mut out);
        out.into_iter().for_each(|request| self.send(FromClient::Request(request)));
        if steps.is_over() {
            match steps.number() {
                Some(number) => drop(self.sessions.remove(&number)),
                None => self.give_up_name(session),
            }
        }
    }
}

/// Takes what comes over a connection, for as long as that lasts.
#[derive(Debug)]
struct ConnectionReceiver {
    link: Arc<NodeConnection>,
    client_shared: Arc<ClientShared>,
}

impl Incoming for ConnectionReceiver {
    fn receive(&self, said: ToClient) {
        if self.link.take(said, &self.client_shared).is_err() {
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
