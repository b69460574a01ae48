//! A worker's loop: one thread, one core, all connections of that worker.
//!
//! ```text
//! sockets ─► tasks of connections ─► inbox ─► turn: step, step, step … ─► tasks of connections ─► sockets
//!            read all there is                bounded in frames and time    write once each
//! ```
//! All of it runs on one thread, so nothing is handed from thread to thread between a socket and the core.
//! A turn gives the core what has arrived, a bounded number of frames; what the core wants sent is
//! queued, and when the turn is over each connection writes what was queued for it in one system call.
//! When nothing happens, nothing runs.
//!
//! The core is built on its thread and never leaves it.

use crate::clock::SystemClock;
use crate::config::{NetworkConfig, NetworkConfigError};
use crate::connection_queue::{ConnectionOrigin, ConnectionQueue, PeerDelivery, PeerFrame};
use crate::counters::LoopCounters;
use crate::frame::FrameKind;
use crate::listener;
use crate::loop_connections::LoopConnections;
use crate::loop_state::{LoopArrival, LoopState};
use crate::loop_timer::LoopTimer;
use crate::mailbox::{HandedOverConnections, Handle, HandleShared, LoopMailbox, NetworkControl};
use crate::outbox::{ConnectedClient, CoreInput, CoreOutput, Outbox};
use crate::passed_frames::PassedFrame;
use crate::peer_link::PeerLink;
use crate::reason::{CloseReason, DropReason};
use bytes::Bytes;
use crossbeam_utils::CachePadded;
use shoal_types::{NodeId, Time, WorkerId, WorkerPlace};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;

/// What a loop drives: a state machine that does no I/O itself.
pub trait Core: 'static {
    /// The commands that other threads of the process may send.
    type Command: Send + 'static;

    /// Handles one input, and leaves in `out` what is to be sent because of it.
    fn step(&mut self, now: Time, input: CoreInput<Self::Command>, out: &mut Outbox);

    /// A turn in which something happened ends: the last call in which `out` is sent with the rest.
    fn end_turn(&mut self, now: Time, out: &mut Outbox) {
        let _ = (now, out);
    }
}

/// While the loop is busy, sockets are polled after so many tasks have run: a few turns. Fewer would cost a
/// system call each time, more would make idle connections wait for busy ones.
const TASKS_BETWEEN_POLLS: u32 = 8;

/// What is due within this time is waited for by spinning: to set the timer, to sleep and to be woken takes
/// longer.
const SPIN: Duration = Duration::from_micros(20);

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error("configuration: {0}")]
    Config(#[from] NetworkConfigError),
    /// The system refuses something.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A worker's core panicked, and the node has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("worker {0} panicked")]
pub struct Panicked(pub WorkerId);

/// A node's loops, each on its thread. They end when this is dropped.
#[derive(Debug)]
pub struct Network<M> {
    handle: Handle<M>,
    address: SocketAddr,
    threads: Vec<thread::JoinHandle<()>>,
}

/// Binds a listening socket, so that the address is known before the node starts.
pub fn listen(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
    // The standard library sets `SO_REUSEADDR`: a restarted process can bind its address at once.
    TcpListener::bind(address)
}

impl<M: Send + 'static> Network<M> {
    /// Starts the loops of a node. `build` makes each worker's core, on that worker's thread.
    pub fn start<C: Core<Command = M>>(
        config: NetworkConfig,
        listener: TcpListener,
        build: impl Fn(WorkerId, &Handle<M>) -> C + Send + Sync + 'static,
    ) -> Result<Network<M>, StartError> {
        config.validate()?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let (config, build) = (Arc::new(config), Arc::new(build));
        let workers = config.worker_ids();
        let mailbox = |_| CachePadded::new(LoopMailbox::new(&config.limits));
        let handle = Handle(Arc::new(HandleShared {
            mailboxes: workers.map(mailbox).collect(),
            counters: config.worker_ids().map(|_| Arc::new(LoopCounters::new())).collect(),
            clock: SystemClock::new(),
        }));
        let mut network = Network { handle: handle.clone(), address, threads: Vec::new() };
        let (started, starts) = mpsc::channel();
        let mut listener = Some(listener);
        for worker in config.worker_ids() {
            let (config, build) = (Arc::clone(&config), Arc::clone(&build));
            let (handle, started, listener) = (handle.clone(), started.clone(), listener.take());
            let name = format!("{}-{worker}", config.node);
            let run = move || {
                let guard = StopAllOnDrop(handle.clone());
                pin(&config, worker);
                let build = |handle: &Handle<M>| build(worker, handle);
                let ended = run(&config, worker, &handle, listener, build, &started);
                if let Err(error) = ended {
                    // Nothing waits for it any more once all have started.
                    let _ = started.send(Err(error));
                }
                drop(guard);
            };
            network.threads.push(thread::Builder::new().name(name).spawn(run)?);
        }
        drop(started);
        for _ in config.worker_ids() {
            let lost = || io::Error::other("a worker panicked as it started");
            starts.recv().unwrap_or_else(|_| Err(lost()))?;
        }
        Ok(network)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The handle that commands go through, from any thread.
    pub fn handle(&self) -> &Handle<M> {
        &self.handle
    }

    /// Waits until the loops have ended: because they were stopped, or one panicked, which ends the others.
    pub fn join(mut self) -> Result<(), Panicked> {
        self.wait()
    }
}

impl<M> Network<M> {
    fn wait(&mut self) -> Result<(), Panicked> {
        let mut panicked = None;
        for (worker, thread) in self.threads.drain(..).enumerate() {
            if thread.join().is_err() {
                panicked = panicked.or(Some(WorkerId(worker as u32)));
            }
        }
        panicked.map_or(Ok(()), |worker| Err(Panicked(worker)))
    }
}

impl<M> Drop for Network<M> {
    fn drop(&mut self) {
        self.handle.stop();
        // A panic was reported by its own thread.
        let _ = self.wait();
    }
}

/// A node does not run without one of its workers.
struct StopAllOnDrop<M>(Handle<M>);

impl<M> Drop for StopAllOnDrop<M> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Gives a worker a core of its own, if that is wanted and there is one.
fn pin(config: &NetworkConfig, worker: WorkerId) {
    if !config.pin {
        return;
    }
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let core = cores.get(worker.0 as usize);
    if !core.is_some_and(|core| core_affinity::set_for_current(*core)) {
        tracing::warn!(node = %config.node, %worker, "not pinned to a core");
    }
}

/// Runs a worker's loop until it is stopped.
fn run<C: Core>(
    config: &Arc<NetworkConfig>,
    worker: WorkerId,
    handle: &Handle<C::Command>,
    listener: Option<TcpListener>,
    build: impl FnOnce(&Handle<C::Command>) -> C,
    started: &mpsc::Sender<io::Result<()>>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .event_interval(TASKS_BETWEEN_POLLS)
        .build_local(LocalOptions::default())?;
    let counters = &handle.0.counters[worker.0 as usize];
    let loop_state = LoopState::new(config, worker, handle.0.clock, counters);
    let connections = LoopConnections::new(Rc::clone(&loop_state));
    let ended = runtime.block_on(async {
        if let Some(listener) = listener {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let handed_over =
                handle.0.mailboxes.iter().map(|mailbox| Arc::clone(&mailbox.handed_over));
            let handed_over: Vec<Arc<HandedOverConnections>> = handed_over.collect();
            spawn_local(listener::listen(Rc::clone(&connections), listener, handed_over.into()));
        }
        let loop_timer = LoopTimer::new(loop_state.clock)?;
        let mut turner = EventLoop {
            core: build(handle),
            loop_state,
            connections,
            handle,
            out: Outbox::new(),
            passed: VecDeque::new(),
            timer: None,
            loop_timer,
        };
        turner.start();
        // Nothing waits for it if another worker has failed to start.
        let _ = started.send(Ok(()));
        let loop_waker = Arc::clone(&handle.mailbox(worker).loop_waker);
        let mail = Rc::clone(&turner.loop_state);
        spawn_local(async move {
            loop {
                loop_waker.notified().await;
                mail.has_mail.set(true);
                mail.wake();
            }
        });
        poll_fn(|cx| turner.poll(cx)).await
    });
    // Not waiting for the name of a peer to be looked up.
    runtime.shutdown_background();
    ended
}

/// A worker's loop.
struct EventLoop<'a, C: Core> {
    core: C,
    loop_state: Rc<LoopState>,
    connections: Rc<LoopConnections>,
    handle: &'a Handle<C::Command>,
    out: Outbox,
    /// What was taken of the frames that other workers passed on, and the core has not been given.
    passed: VecDeque<PassedFrame>,
    /// When the core wants to be woken.
    timer: Option<Time>,
    loop_timer: LoopTimer,
}

impl<C: Core> EventLoop<'_, C> {
    fn start(&mut self) {
        for peer in &self.loop_state.config.peers {
            let link = PeerLink::start(&self.loop_state, peer.clone());
            self.connections.links.borrow_mut().insert(peer.node, link);
        }
        self.step(CoreInput::Started);
        self.end_turn();
        // Inputs may have been left before the waker was registered.
        self.loop_state.has_mail.set(true);
    }

    /// One turn, and the next if there is more to do.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.loop_state.remember(cx.waker());
        while let Poll::Ready(gone) = self.loop_timer.poll(cx) {
            gone?;
            self.loop_state.counters.timer_fires.add(1);
        }
        let began = self.loop_state.clock.now();
        let mut is_busy = self.take_mail();
        if self.handle.mailbox(self.loop_state.host.worker).is_over() {
            return Poll::Ready(Ok(()));
        }
        is_busy |= self.take_due(began);
        is_busy |= self.take_passed(began);
        is_busy |= self.take_inbox(began);
        if is_busy {
            self.loop_state.counters.turns.add(1);
            self.end_turn();
        }
        self.loop_state.dirty.borrow_mut().drain(..).for_each(|channel| channel.flush());
        if self.loop_state.has_mail.get() || !self.loop_state.inbox.borrow().is_empty() {
            cx.waker().wake_by_ref();
        }
        let due = self.connections.links.borrow().values().filter_map(|link| link.due()).min();
        match self.timer.into_iter().chain(due).min() {
            // Often in the past: the core asked for it at the beginning of the turn.
            Some(next) if next <= self.loop_state.clock.now() + SPIN => cx.waker().wake_by_ref(),
            Some(next) => self.loop_timer.set(next)?,
            None => {}
        }
        Poll::Pending
    }

    fn step(&mut self, input: CoreInput<C::Command>) {
        self.core.step(self.loop_state.clock.now(), input, &mut self.out);
    }

    /// Handles what other threads have left.
    fn take_mail(&mut self) -> bool {
        if !self.loop_state.has_mail.replace(false) {
            return false;
        }
        let handle = self.handle;
        let mailbox = handle.mailbox(self.loop_state.host.worker);
        for control in mailbox.take_controls() {
            self.control(control);
        }
        for accepted_connection in mailbox.handed_over.take() {
            let Ok(socket) = tokio::net::TcpStream::from_std(accepted_connection.socket) else {
                continue;
            };
            let connections = Rc::clone(&self.connections);
            let receive = |number| {
                listener::receive(
                    connections,
                    number,
                    socket,
                    accepted_connection.preamble,
                    accepted_connection.address,
                )
            };
            self.connections.authenticate(receive);
        }
        let (commands, has_more) =
            mailbox.take_commands(self.loop_state.config.limits.turn_frames_max);
        let mut is_busy = !commands.is_empty();
        commands.into_iter().for_each(|command| self.step(CoreInput::Command(command)));
        if has_more {
            self.loop_state.has_mail.set(true);
        }
        if mailbox.take_nudge() {
            is_busy = true;
            self.step(CoreInput::Nudged);
        }
        if self.passed.is_empty() {
            self.passed = mailbox.passed.take(self.loop_state.config.limits.turn_frames_max);
        }
        is_busy
    }

    /// Handles frames that other workers passed on, as many as one turn may take.
    fn take_passed(&mut self, began: Time) -> bool {
        let is_busy = !self.passed.is_empty();
        while let Some(PassedFrame { from, payload, arrived }) = self.passed.pop_front() {
            let now = self.loop_state.clock.now();
            let input = CoreInput::FromPeer { from, frame: payload, arrived };
            self.core.step(now, input, &mut self.out);
            if now - began > self.loop_state.config.limits.turn_max {
                break;
            }
        }
        let mailbox = self.handle.mailbox(self.loop_state.host.worker);
        if !self.passed.is_empty() || mailbox.passed.has_some() {
            self.loop_state.has_mail.set(true);
        }
        is_busy
    }

    fn control(&mut self, control: NetworkControl) {
        let (loop_state, connections) = (&self.loop_state, &self.connections);
        match control {
            NetworkControl::SetPeer(peer) => {
                let known =
                    connections.links.borrow().get(&peer.node).map(|link| link.peer.clone());
                if peer.node == loop_state.host.node || known.as_ref() == Some(&peer) {
                    return;
                }
                connections.forget_peer(peer.node);
                let link = PeerLink::start(loop_state, peer.clone());
                connections.set_peer(peer.node, link);
            }
            NetworkControl::RemovePeer(node) => connections.remove_peer(node),
            NetworkControl::SetLinkFaults(node, link_faults) => {
                let links = connections.links.borrow();
                let meant = |link: &&Rc<PeerLink>| node.is_none_or(|node| link.peer.node == node);
                links
                    .values()
                    .filter(meant)
                    .for_each(|link| link.set_link_faults(loop_state, link_faults));
            }
        }
    }

    /// Handles what is due: delayed frames whose time has come, and the core's timer.
    fn take_due(&mut self, now: Time) -> bool {
        self.connections
            .links
            .borrow()
            .values()
            .for_each(|link| link.release(&self.loop_state, now));
        if self.timer.is_none_or(|timer| timer > now) {
            return false;
        }
        self.timer = None;
        self.step(CoreInput::Timer);
        true
    }

    /// Handles what has arrived, as much as one turn may take.
    fn take_inbox(&mut self, began: Time) -> bool {
        let limits = &Arc::clone(&self.loop_state.config).limits;
        for taken in 0..limits.turn_frames_max {
            let arrival = self.loop_state.inbox.borrow_mut().pop_front();
            let Some(arrival) = arrival else { return taken > 0 };
            let now = self.loop_state.clock.now();
            if let Some(input) = self.input(arrival) {
                self.core.step(now, input, &mut self.out);
            }
            if now - began > limits.turn_max {
                return true;
            }
        }
        true
    }

    /// The core's input for an arrival.
    fn input(&self, arrival: LoopArrival) -> Option<CoreInput<C::Command>> {
        match arrival {
            LoopArrival::PeerUp { node, instance, version } => {
                Some(CoreInput::PeerUp { node, instance, version })
            }
            LoopArrival::PeerDown(node) => Some(CoreInput::PeerDown { node }),
            LoopArrival::ClientGone(client) => Some(CoreInput::ClientGone { client }),
            LoopArrival::Frame { channel, receiver, payload, arrived } => {
                self.read_input(&channel, receiver, payload, arrived)
            }
        }
    }

    /// The core's input for a frame that was read; none if the frame is dropped or is for another worker.
    fn read_input(
        &self,
        channel: &ConnectionQueue,
        receiver: Option<WorkerId>,
        frame: Bytes,
        arrived: Time,
    ) -> Option<CoreInput<C::Command>> {
        channel.taken(frame.len());
        if !channel.is_told(self.loop_state.config.identity.get()) {
            channel.close(CloseReason::Identified);
            self.loop_state.note_drop(DropReason::Unidentified, 1);
            return None;
        }
        match channel.origin {
            ConnectionOrigin::PeerIn(node) => {
                let links = self.connections.links.borrow();
                if links.get(&node).is_some_and(|link| link.is_cut_from()) {
                    self.loop_state.note_drop(DropReason::Cut, 1);
                    return None;
                }
                let own = self.loop_state.host.worker;
                let from = WorkerPlace { node, worker: own };
                if let Some(receiver) = receiver.filter(|receiver| *receiver != own) {
                    pass(
                        &self.loop_state,
                        self.handle,
                        receiver,
                        PassedFrame { from, payload: frame, arrived },
                    );
                    return None;
                }
                Some(CoreInput::FromPeer { from, frame, arrived })
            }
            // Frames of a closed client are dropped.
            ConnectionOrigin::Client(client) => {
                let input = CoreInput::FromClient { client, frame, arrived };
                (!channel.is_ending()).then_some(input)
            }
            ConnectionOrigin::Operator(client) => {
                (!channel.is_ending()).then_some(CoreInput::FromOperator { client, frame })
            }
            ConnectionOrigin::PeerOut(node) => unreachable!("{node} was dialed, and is not read"),
        }
    }

    /// Performs what the core left in its outbox in this turn.
    fn end_turn(&mut self) {
        let now = self.loop_state.clock.now();
        self.core.end_turn(now, &mut self.out);
        let (loop_state, connections) = (&self.loop_state, &self.connections);
        for output in self.out.drain() {
            match output {
                CoreOutput::ToPeer(node, payload) => {
                    let delivery = PeerDelivery::InOrder(None);
                    to_peer(connections, now, node, PeerFrame { payload, delivery });
                }
                CoreOutput::ToPeerUrgent(node, payload) => {
                    let delivery = PeerDelivery::Urgent;
                    to_peer(connections, now, node, PeerFrame { payload, delivery });
                }
                CoreOutput::ToWorker(to, payload) => {
                    to_worker(connections, self.handle, now, to, payload);
                }
                CoreOutput::ToClient(client, frame) => to_client(connections, client, frame),
                CoreOutput::Nudge(worker) => self.handle.nudge(worker),
                CoreOutput::CloseClient(client, reason) => {
                    let channel = connections.clients.borrow().get(&client).map(Rc::clone);
                    if let Some(channel) = channel.filter(|channel| !channel.is_ending()) {
                        loop_state.queue(&channel, FrameKind::Bye, reason.into());
                        channel.close_drained(CloseReason::Asked);
                    }
                }
                CoreOutput::Stop => self.handle.stop(),
            }
        }
        let asked = self.out.take_timer();
        self.timer = self.timer.into_iter().chain(asked).min();
    }
}

/// Whether a frame may be that long. The other end would close the connection.
fn fits(loop_state: &LoopState, frame: &Bytes) -> bool {
    let fits = frame.len() <= loop_state.config.limits.frame_bytes_max;
    if !fits {
        loop_state.note_drop(DropReason::TooLong, 1);
        tracing::error!(node = %loop_state.host.node, bytes = frame.len(), "a frame is too long to be sent");
    }
    fits
}

fn to_peer(connections: &LoopConnections, now: Time, node: NodeId, peer_frame: PeerFrame) {
    let loop_state = &connections.loop_state;
    let links = connections.links.borrow();
    let Some(link) = links.get(&node) else {
        return loop_state.note_drop(DropReason::UnknownPeer, 1);
    };
    if fits(loop_state, &peer_frame.payload) {
        link.send(loop_state, now, peer_frame);
    }
}

/// Sends a frame to another worker: over the connection of this worker's number, or within the node.
fn to_worker<M>(
    connections: &LoopConnections,
    handle: &Handle<M>,
    now: Time,
    to: WorkerPlace,
    payload: Bytes,
) {
    let loop_state = &connections.loop_state;
    let host = &loop_state.host;
    let from = WorkerPlace { node: host.node, worker: host.worker };
    assert!(to != from, "{to} has nothing to send to itself");
    if to.worker.0 >= loop_state.config.workers.into() {
        return loop_state.note_drop(DropReason::UnknownWorker, 1);
    }
    if to.node == from.node {
        if fits(loop_state, &payload) {
            pass(loop_state, handle, to.worker, PassedFrame { from, payload, arrived: now });
        }
        return;
    }
    let delivery = PeerDelivery::InOrder((to.worker != from.worker).then_some(to.worker));
    to_peer(connections, now, to.node, PeerFrame { payload, delivery });
}

/// Passes a frame to another worker of this node, where it may be lost.
fn pass<M>(loop_state: &LoopState, handle: &Handle<M>, receiver: WorkerId, frame: PassedFrame) {
    let mailbox = handle.0.mailboxes.get(receiver.0 as usize);
    let reason = match mailbox.map(|mailbox| mailbox.pass(frame)) {
        Some(true) => return,
        Some(false) => DropReason::MailboxFull,
        None => DropReason::UnknownWorker,
    };
    loop_state.note_drop(reason, 1);
}

fn to_client(connections: &LoopConnections, client: ConnectedClient, frame: Bytes) {
    let loop_state = &connections.loop_state;
    let clients = connections.clients.borrow();
    let Some(channel) = clients.get(&client).filter(|channel| !channel.is_ending()) else {
        return loop_state.note_drop(DropReason::UnknownClient, 1);
    };
    if !fits(loop_state, &frame) {
        // The client waits for this frame: a connection never stays open without an answer.
        return channel.close(CloseReason::TooLong);
    }
    loop_state.queue(channel, FrameKind::Data, frame);
    if channel.queued_bytes() > loop_state.config.limits.client_queue_bytes_max {
        channel.close(CloseReason::FellBehind);
    }
}
