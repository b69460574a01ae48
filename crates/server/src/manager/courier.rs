//! Carries what desks say to each other by way of the first worker's connections.

use crate::envelope::{Answer, Envelope, Question};
use crate::seat::{Command, HOST};
use bytes::Bytes;
use net::{Clock, Unheard};
use raft::{Transport, Unreachable};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use types::wire::encode;
use types::{NodeId, Time};

/// Questions that wait for their answers.
#[derive(Debug)]
struct Asked {
    number: u64,
    waiting: BTreeMap<u64, (NodeId, oneshot::Sender<Answer>)>,
}

/// See the module. Its clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Courier {
    seats: net::Handle<Command>,
    clock: Clock,
    asked: Arc<Mutex<Asked>>,
}

impl Courier {
    /// Its questions are numbered from `first` on, drawn by chance: answers to a former life of the node fit none.
    pub(super) fn new(seats: net::Handle<Command>, clock: Clock, first: u64) -> Courier {
        let asked = Asked { number: first, waiting: BTreeMap::new() };
        Courier { seats, clock, asked: Arc::new(Mutex::new(asked)) }
    }

    /// Whether the node has ended.
    pub(super) fn is_stopped(&self) -> bool {
        self.seats.is_stopped()
    }

    /// It may get lost: that is said again.
    pub(super) fn command(&self, command: Command) {
        if let Err(Unheard::Full(_)) = self.seats.command(HOST, command) {
            tracing::warn!("the first worker does not keep up with its manager");
        }
    }

    pub(super) fn send(&self, to: NodeId, envelope: &Envelope<Nobody>) {
        self.command(Command::Send { to, frame: encode(envelope) });
    }

    pub(super) fn answered(&self, from: NodeId, number: u64, answer: Answer) {
        let mut asked = self.asked();
        if asked.waiting.get(&number).is_some_and(|(of, _)| *of == from)
            && let Some((_, waiting)) = asked.waiting.remove(&number)
        {
            // It may have given up.
            let _ = waiting.send(answer);
        }
    }

    /// Asks the desk of a node to host a manager, on disk if that is said. `None` if it has not answered after so long.
    pub(super) async fn host(
        &self,
        node: NodeId,
        on_disk: bool,
        patience: Duration,
    ) -> Option<Answer> {
        let asked = self.ask(node, Question::Host { on_disk });
        tokio::time::timeout(patience, asked).await.ok()?.ok()
    }

    async fn ask(&self, to: NodeId, question: Question) -> Result<Answer, Unreachable> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut asked = self.asked();
            asked.number = asked.number.wrapping_add(1);
            let number = asked.number;
            asked.waiting.insert(number, (to, answer));
            number
        };
        let _forgets = Forgets { courier: self, number };
        self.send(to, &Envelope::Ask { number, question });
        answered.await.map_err(|_| Unreachable { to })
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Courier {
    async fn call(&self, to: NodeId, request: Bytes) -> Result<Bytes, Unreachable> {
        match self.ask(to, Question::Log(request)).await? {
            Answer::Log(response) => Ok(response),
            Answer::Hosts(_) | Answer::InMemory | Answer::CannotHost(_) => Err(Unreachable { to }),
        }
    }

    fn now(&self) -> Time {
        self.clock.now()
    }
}

/// Those that gave up waiting are forgotten.
struct Forgets<'a> {
    courier: &'a Courier,
    number: u64,
}

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.courier.asked().waiting.remove(&self.number);
    }
}

/// Managers say nothing to engines.
#[derive(Debug, Clone)]
pub(super) enum Nobody {}

impl types::wire::Coded for Nobody {
    const BYTES_MIN: usize = 1;

    fn put(&self, _: &mut types::wire::BytesMut) {
        match *self {}
    }

    fn take(input: &mut types::wire::Input<'_>) -> Result<Nobody, types::wire::Malformed> {
        Err(input.wrong("managers say nothing to engines"))
    }
}
