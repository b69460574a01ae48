//! A replica of the configuration manager, on a thread of its own: its log writes to disk and waits for it.
//!
//! ```text
//!   seat of the first worker ── letters ──► manager ◄── exchange ──► raft ── asks ──► courier
//!             ▲                                │                                        │
//!             └────────────── commands: told, send ◄───────────────────────────────────┘
//! ```
//! Messages between managers go over the connections of the first workers.

use crate::envelope::Envelope;
use crate::seat::{Command, HOST};
use bytes::Bytes;
use consensus::manager::{
    Applied, Effect, Event, Machine, Mailbox, Manager, Options, ToManager, ToNode,
};
use consensus::topology::Topology;
use net::{Clock, Unheard};
use raft::{DiskStorage, MemoryStorage, Replica, Storage, Transport, Unreachable};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use types::wire::encode;
use types::{NodeId, Time};

/// Most letters that wait for a manager: heartbeats of many nodes. More get lost, and are said again.
const LETTERS_MAX: usize = 1 << 14;

/// What comes to a manager from its node.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A node says something.
    FromNode { from: NodeId, message: ToManager },
    /// The log of another manager asks something.
    Ask { from: NodeId, number: u64, request: Bytes },
    /// And answers.
    Answer { from: NodeId, number: u64, response: Bytes },
}

/// The way to the manager of this process.
#[derive(Debug, Clone)]
pub(crate) struct Mail(mpsc::Sender<Letter>);

impl Mail {
    /// A way, and its end.
    pub(crate) fn new() -> (Mail, mpsc::Receiver<Letter>) {
        let (letters, received) = mpsc::channel(LETTERS_MAX);
        (Mail(letters), received)
    }

    /// Leaves a letter. It gets lost if too many wait, or if the manager has ended.
    pub(crate) fn post(&self, letter: Letter) {
        if self.0.try_send(letter).is_err() {
            tracing::debug!("a letter to the manager got lost");
        }
    }
}

/// A manager to be started.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) node: NodeId,
    pub(crate) managers: Arc<[NodeId]>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) options: Options,
    pub(crate) log: raft::Options,
    /// Where its log is kept. `None` for memory, for a life that has no other after it.
    pub(crate) file: Option<PathBuf>,
}

/// Starts a manager. It ends when nobody can write to it any more, which is when its node has ended.
pub(crate) fn start(
    plan: Plan,
    letters: mpsc::Receiver<Letter>,
    seats: net::Handle<Command>,
) -> io::Result<thread::JoinHandle<()>> {
    let name = format!("{}-manager", plan.node);
    let storage = plan.file.as_deref().map(DiskStorage::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    thread::Builder::new().name(name).spawn(move || {
        let stops = StopsSeats(seats.clone());
        runtime.block_on(async {
            match storage {
                Some(storage) => run(plan, storage, letters, seats).await,
                None => run(plan, MemoryStorage::new(), letters, seats).await,
            }
        });
        drop(stops);
    })
}

/// A node that is to have a manager, and has none, is no use to the cluster.
struct StopsSeats(net::Handle<Command>);

impl Drop for StopsSeats {
    fn drop(&mut self) {
        self.0.stop();
    }
}

async fn run(
    plan: Plan,
    storage: impl Storage,
    mut letters: mpsc::Receiver<Letter>,
    seats: net::Handle<Command>,
) {
    let node = plan.node;
    let courier = Courier { seats: seats.clone(), asked: Arc::default() };
    let started = raft::start(node, &plan.log, storage, courier.clone()).await;
    let (replica, log) = match started {
        Ok(started) => started,
        Err(error) => return tracing::error!(%node, %error, "the manager does not start"),
    };
    let members: BTreeSet<NodeId> = plan.managers.iter().copied().collect();
    if let Err(error) = log.initialise(&members).await {
        return tracing::error!(%node, %error, "the manager does not start");
    }
    let machine = Machine::new(plan.topology, plan.options);
    let manager = Manager::new(Mailbox::default(), machine);
    let mut site =
        Site { node, manager, replica, courier, log, clock: Clock::new(), timer: None, seats };
    if let Err(error) = site.work(&mut letters).await {
        tracing::error!(%node, %error, "the manager has stopped");
    }
    site.log.stop().await;
}

/// A manager that runs.
struct Site {
    node: NodeId,
    manager: Manager<Mailbox>,
    replica: Replica,
    log: raft::Handle,
    courier: Courier,
    clock: Clock,
    timer: Option<Time>,
    seats: net::Handle<Command>,
}

impl Site {
    /// Works until the node has ended.
    async fn work(&mut self, letters: &mut mpsc::Receiver<Letter>) -> Result<(), raft::Stopped> {
        self.step(Event::Timer)?;
        loop {
            let left = self.timer.map(|at| at - self.clock.now());
            tokio::select! {
                letter = letters.recv() => match letter {
                    Some(letter) => self.read(letter)?,
                    None => return Ok(()),
                },
                () = self.replica.news() => self.exchange()?,
                () = sleep(left) => self.step(Event::Timer)?,
            }
            if self.seats.is_stopped() {
                return Ok(());
            }
        }
    }

    fn read(&mut self, letter: Letter) -> Result<(), raft::Stopped> {
        match letter {
            Letter::FromNode { from, message } => self.step(Event::Received { from, message }),
            Letter::Ask { from, number, request } => {
                let (log, courier) = (self.log.clone(), self.courier.clone());
                tokio::spawn(async move {
                    match log.serve(&request).await {
                        Ok(response) => {
                            courier.send(from, &Envelope::Answer { number, response });
                        }
                        Err(error) => tracing::warn!(%from, %error, "a manager is not answered"),
                    }
                });
                Ok(())
            }
            Letter::Answer { from, number, response } => {
                self.courier.answered(from, number, response);
                Ok(())
            }
        }
    }

    fn step(&mut self, event: Event) -> Result<(), raft::Stopped> {
        self.take(event);
        self.exchange()
    }

    /// Gives the log what the manager proposes, and the manager what the log has for it.
    fn exchange(&mut self) -> Result<(), raft::Stopped> {
        while self.replica.exchange(self.manager.log_mut())? {
            self.take(Event::Log);
        }
        Ok(())
    }

    fn take(&mut self, event: Event) {
        let mut effects = Vec::new();
        if event == Event::Timer {
            self.timer = None;
        }
        self.manager.step(self.clock.now(), event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.tell(to, message),
                Effect::Answer { ask, result } => {
                    tracing::info!(node = %self.node, ?ask, ?result, "a change was asked for");
                }
                Effect::Applied(applied @ Applied::Renewed { .. }) => {
                    tracing::trace!(node = %self.node, ?applied, "the manager");
                }
                Effect::Applied(applied) => {
                    tracing::info!(node = %self.node, ?applied, "the manager");
                }
                Effect::Timer { at } => self.timer = Some(at),
            }
        }
    }

    fn tell(&self, to: NodeId, message: ToNode) {
        if to == self.node {
            self.courier.command(Command::Told(message));
        } else {
            self.courier.send(to, &Envelope::ToNode(message));
        }
    }
}

/// Waits so long; for ever if there is nothing to wait for.
async fn sleep(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

/// Questions that wait for their answers.
#[derive(Debug, Default)]
struct Asked {
    number: u64,
    waiting: BTreeMap<u64, (NodeId, oneshot::Sender<Bytes>)>,
}

/// Carries what managers say by way of the first worker's connections.
#[derive(Debug, Clone)]
struct Courier {
    seats: net::Handle<Command>,
    asked: Arc<Mutex<Asked>>,
}

impl Courier {
    /// It may get lost: that is said again.
    fn command(&self, command: Command) {
        if let Err(Unheard::Full(_)) = self.seats.command(HOST, command) {
            tracing::warn!("the first worker does not keep up with its manager");
        }
    }

    fn send(&self, to: NodeId, envelope: &Envelope<Nobody>) {
        self.command(Command::Send { to, frame: encode(envelope) });
    }

    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, from: NodeId, number: u64, response: Bytes) {
        let mut asked = self.asked();
        if asked.waiting.get(&number).is_some_and(|(of, _)| *of == from)
            && let Some((_, waiting)) = asked.waiting.remove(&number)
        {
            // It may have given up.
            let _ = waiting.send(response);
        }
    }
}

impl Transport for Courier {
    async fn call(&self, to: NodeId, request: Bytes) -> Result<Bytes, Unreachable> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut asked = self.asked();
            asked.number += 1;
            let number = asked.number;
            asked.waiting.insert(number, (to, answer));
            number
        };
        let _forgets = Forgets { courier: self, number };
        self.send(to, &Envelope::Ask { number, request });
        answered.await.map_err(|_| Unreachable { to })
    }
}

/// Whoever gives up waiting is forgotten.
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
enum Nobody {}

impl types::wire::Coded for Nobody {
    const BYTES_MIN: usize = 1;

    fn put(&self, _: &mut types::wire::BytesMut) {
        match *self {}
    }

    fn take(input: &mut types::wire::Input<'_>) -> Result<Nobody, types::wire::Malformed> {
        Err(input.wrong("managers say nothing to engines"))
    }
}
