//! A connection to one worker of a node, and who waits for what comes over it.
//!
//! ```text
//!   sessions, calls ──► frames ──► writer ──► socket ──► reader ──┬─► sessions, by number
//!                                                                ├─► answers of calls, by request
//!                                                                └─► directory
//! ```
//! Sessions belong to their connection: the node knows its client by it. So when it ends, they end. Numbers
//! of sessions are given and sent under one lock, since a node takes the beginning of a session only
//! while it has heard of none with a greater number.
//!
//! Frames that wait to be sent are not bounded here but by what is under way: a session or a call has a
//! bounded number of them.

use super::lock;
use super::session::{Next, Session};
use super::shared::Desk;
use bytes::Bytes;
use engines::Place;
use engines::client::{FromClient, Reply, Request, ToClient};
use net::client::{Connection, Receiver, SendError, Sender};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use types::wire::{decode, encode};
use types::{Cause, NodeId};

/// A node that was silent for so long is asked whether it is there.
const PROBE_AFTER: Duration = Duration::from_millis(50);

/// A session that its transaction and its connection share.
pub(super) type Shared = Arc<Mutex<Session>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    place: Place,
    book: Mutex<Book>,
    /// Why it has ended, if it has.
    ended: watch::Sender<Option<Cause>>,
    /// When something came last.
    heard_at: Mutex<Instant>,
    /// When it was asked last whether anybody is there.
    probed_at: Mutex<Instant>,
}

#[derive(Debug)]
struct Book {
    /// Frames to send; none any more, when it has ended.
    frames: Option<mpsc::UnboundedSender<Bytes>>,
    sessions: BTreeMap<u64, Shared>,
}

impl Link {
    /// Takes a connection, and moves its frames on two tasks.
    pub(super) fn start(connection: Connection, desk: &Arc<Desk>) -> Arc<Link> {
        let Connection { node, worker, life: _, identity: _, sender, receiver } = connection;
        let (frames, outgoing) = mpsc::unbounded_channel();
        let link = Arc::new(Link {
            place: Place { node, worker },
            book: Mutex::new(Book { frames: Some(frames), sessions: BTreeMap::new() }),
            ended: watch::Sender::new(None),
            heard_at: Mutex::new(Instant::now()),
            probed_at: Mutex::new(Instant::now()),
        });
        tokio::spawn(write(sender, outgoing, Arc::clone(&link)));
        tokio::spawn(read(receiver, Arc::clone(&link), Arc::clone(desk)));
        link
    }

    /// The node at the other end.
    pub(super) fn node(&self) -> NodeId {
        self.place.node
    }

    /// Has it ended?
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
    pub(super) fn heard_at(&self) -> Instant {
        *lock(&self.heard_at)
    }

    /// Sends something that belongs to no session.
    pub(super) fn send(&self, what: &FromClient) {
        lock(&self.book).send(what);
    }

    /// Does something with a session, and sends what can be sent then.
    pub(super) fn with<T>(
        &self,
        session: &Shared,
        desk: &Desk,
        act: impl FnOnce(&mut Session) -> T,
    ) -> T {
        self.act(session, desk, |session, _| act(session))
    }

    /// Asks once more for what may not have been heard, and whether anybody is there.
    pub(super) fn ask_again(&self, session: &Shared, desk: &Desk) {
        self.act(session, desk, Session::send_again);
        self.probe();
    }

    /// Asks for what any node answers at once, if nothing has come for a while.
    fn probe(&self) {
        let now = Instant::now();
        let mut probed_at = lock(&self.probed_at);
        if now - self.heard_at().max(*probed_at) >= PROBE_AFTER {
            *probed_at = now;
            self.send(&FromClient::Directory);
        }
    }

    fn act<T>(
        &self,
        session: &Shared,
        desk: &Desk,
        act: impl FnOnce(&mut Session, &mut Vec<Request>) -> T,
    ) -> T {
        let mut out = Vec::new();
        let mut book = lock(&self.book);
        let mut steps = lock(session);
        let result = act(&mut steps, &mut out);
        if book.frames.is_none() {
            let cause = self.ended.borrow().unwrap_or(Cause::Disconnected);
            steps.lose(cause);
            return result;
        }
        book.send_all(session, &mut steps, desk, out);
        result
    }

    /// Ends it, and all sessions over it. What was sent before leaves still.
    pub(super) fn end(&self, cause: Cause) {
        let sessions = {
            let mut book = lock(&self.book);
            if book.frames.take().is_none() {
                return;
            }
            self.ended.send_replace(Some(cause));
            std::mem::take(&mut book.sessions)
        };
        sessions.into_values().for_each(|session| lock(&session).lose(cause));
    }

    /// A frame has come.
    ///
    /// # Errors
    /// Where it makes no sense.
    fn take(&self, frame: &Bytes, desk: &Desk) -> std::result::Result<(), Nonsense> {
        *lock(&self.heard_at) = Instant::now();
        let said: ToClient = decode(frame).map_err(|_| Nonsense)?;
        match said {
            ToClient::Directory(directory) => {
                if !desk.hear_directory(self.place.node, directory) {
                    self.end(Cause::FoundedAgain);
                }
            }
            // This client has not asked for it.
            ToClient::Status(_) | ToClient::Isolated(_) => {}
            ToClient::Reply(Reply::Called { id, result }) => desk.answers.deliver(id, result),
            ToClient::Reply(Reply::CallsOpened { token, result }) => {
                desk.opened.deliver(token, result);
            }
            ToClient::Reply(Reply::Began { session, result }) => {
                return self.replied(session, desk, |session| session.began(result));
            }
            ToClient::Reply(Reply::Done { session, number, result }) => {
                return self.replied(session, desk, |session| session.done(number, result));
            }
        }
        Ok(())
    }

    /// A reply to a session. One that is over needs none any more.
    fn replied(
        &self,
        number: u64,
        desk: &Desk,
        reply: impl FnOnce(&mut Session) -> Next,
    ) -> std::result::Result<(), Nonsense> {
        let mut book = lock(&self.book);
        let Some(session) = book.sessions.get(&number).cloned() else { return Ok(()) };
        let mut steps = lock(&session);
        match reply(&mut steps) {
            Next::Open => {}
            Next::Over => {
                book.sessions.remove(&number);
                return Ok(());
            }
            Next::Anew => {
                book.sessions.remove(&number);
                steps.restart();
            }
            Next::Nonsense => return Err(Nonsense),
        }
        book.send_all(&session, &mut steps, desk, Vec::new());
        Ok(())
    }
}

impl Book {
    fn send(&self, what: &FromClient) {
        if let Some(frames) = &self.frames {
            // If the writer has gone, the reader will say why.
            let _ = frames.send(encode(what));
        }
    }

    /// Sends `out`, and all that the session can send after it.
    fn send_all(
        &mut self,
        session: &Shared,
        steps: &mut Session,
        desk: &Desk,
        mut out: Vec<Request>,
    ) {
        if steps.wants_number() {
            let number = desk.next_session();
            steps.name(number);
            self.sessions.insert(number, Arc::clone(session));
        }
        steps.send(&mut out);
        out.into_iter().for_each(|request| self.send(&FromClient::Request(request)));
        if steps.is_over()
            && let Some(number) = steps.number()
        {
            self.sessions.remove(&number);
        }
    }
}

/// Of a frame.
#[derive(Debug)]
struct Nonsense;

/// Sends frames until there are no more, or the connection has ended.
async fn write(sender: Sender, mut frames: mpsc::UnboundedReceiver<Bytes>, link: Arc<Link>) {
    while let Some(frame) = frames.recv().await {
        match sender.send(frame).await {
            Ok(()) => {}
            // The reader says why.
            Err(SendError::Ended) => return,
            Err(SendError::TooLong(bytes)) => {
                link.end(Cause::Disconnected);
                panic!("a frame of {bytes} bytes was to be sent, and nobody had refused it");
            }
        }
    }
}

/// Takes frames until the connection ends.
async fn read(mut receiver: Receiver, link: Arc<Link>, desk: Arc<Desk>) {
    let cause = loop {
        let received = tokio::select! {
            biased;
            received = receiver.receive() => received,
            // Ended on our side: when the receiver goes, so does the connection.
            _ = link.ended() => return,
        };
        let Ok(frame) = received else { break Cause::Disconnected };
        if let Err(Nonsense) = link.take(&frame, &desk) {
            desk.count_malformed();
            break Cause::Malformed;
        }
    };
    link.end(cause);
}
