//! The process of a client outside, as the shipped client sees it: a [`ClientEnvironment`](ClientWorld) of virtual time, of tasks
//! on one thread, and of connections whose messages are values.
//!
//! ```text
//!   Simulation ── run(now), receive, lose ──► ClientProcess ──► tasks of the client ──► environment
//!        ▲                                                                                   │
//!        └─────────────── ProcessOutput: dial, send, close; wake_at ◄────────────────────────┘
//! ```
//! Invariant: what a process does depends only on the calls of the simulation. Woken tasks run in the order of
//! their numbers, not in that in which they were woken, which `tokio::sync::watch` draws at random.

use shoal_client::environment::{
    ClientEnvironment as ClientWorld, ConnectFailure, EnvironmentConnection, EnvironmentFuture,
    Incoming, MessageCarrier, Outgoing,
};
use shoal_engine::WorkerPlace;
use shoal_engine::client::{Directory, FromClient, ToClient};
use shoal_engine::engine::Task;
use shoal_types::{Cause, ClusterId, NodeId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::sync::oneshot;

/// A node that has not accepted the connection after this time is given up, as it is over sockets.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(3);

/// The number of a client's main task; tasks that the client spawns have greater numbers.
const MAIN: u64 = 0;

/// Identifies a connection of one process.
pub type ConnectionNumber = u32;

/// What a process asks the simulation to do.
#[derive(Debug)]
pub enum ProcessOutput {
    /// Connect to this worker; the process has chosen the connection's number.
    Dial(ConnectionNumber, WorkerPlace),
    /// Send this message over a connection.
    Send(ConnectionNumber, FromClient),
    /// End a connection of this process, whether or not it was established.
    Close(ConnectionNumber),
}

/// A node's answer to a dial: the worker that accepted it, or why it failed.
pub type ConnectAnswer = Result<WorkerPlace, Cause>;

/// A simulated process that runs the shipped client.
pub struct ClientProcess {
    environment: ProcessEnvironment,
    main: Option<Task>,
    tasks: BTreeMap<u64, EnvironmentFuture<()>>,
    wakers: BTreeMap<u64, Waker>,
    next_task: u64,
}

/// The client's environment in its process: time, timers, tasks and connections.
#[derive(Debug, Clone, Default)]
pub struct ProcessEnvironment(Arc<ProcessShared>);

#[derive(Debug, Default)]
struct ProcessShared {
    state: Mutex<ProcessState>,
    woken: Arc<WokenTasks>,
}

#[derive(Default)]
struct ProcessState {
    now: Time,
    timers: BTreeMap<(Time, u64), Waker>,
    timers_made: u64,
    spawned: Vec<EnvironmentFuture<()>>,
    dials: BTreeMap<ConnectionNumber, oneshot::Sender<ConnectAnswer>>,
    dialed: ConnectionNumber,
    connections: BTreeMap<ConnectionNumber, Arc<dyn Incoming>>,
    wanted: VecDeque<ProcessOutput>,
}

/// The numbers of the tasks that have been woken.
#[derive(Debug, Default)]
struct WokenTasks(Mutex<BTreeSet<u64>>);

struct TaskWaker {
    task: u64,
    woken: Arc<WokenTasks>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.woken.0).insert(self.task);
    }
}

/// Locks the state. The lock is never poisoned, since no task panics while it holds it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for ProcessState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("now", &self.now).finish_non_exhaustive()
    }
}

impl ClientProcess {
    /// A process that runs `main`, whose client uses `environment` as its environment.
    pub fn new(environment: ProcessEnvironment, main: Task) -> ClientProcess {
        lock(&environment.0.woken.0).insert(MAIN);
        let (tasks, wakers) = (BTreeMap::new(), BTreeMap::new());
        ClientProcess { environment, main: Some(main), tasks, wakers, next_task: MAIN + 1 }
    }

    /// Runs all woken tasks at `now`.
    pub fn run(&mut self, now: Time) {
        self.environment.0.pass_to(now);
        loop {
            let spawned = std::mem::take(&mut lock(&self.environment.0.state).spawned);
            for task in spawned {
                self.tasks.insert(self.next_task, task);
                lock(&self.environment.0.woken.0).insert(self.next_task);
                self.next_task += 1;
            }
            let Some(task) = lock(&self.environment.0.woken.0).pop_first() else { return };
            self.poll(task);
        }
    }

    fn poll(&mut self, task: u64) {
        let woken = &self.environment.0.woken;
        let waker = self
            .wakers
            .entry(task)
            .or_insert_with(|| Waker::from(Arc::new(TaskWaker { task, woken: Arc::clone(woken) })));
        let mut context = Context::from_waker(waker);
        let is_done = if task == MAIN {
            let done = |main: &mut Task| main.as_mut().poll(&mut context).is_ready();
            self.main.as_mut().is_some_and(done)
        } else {
            // A task that has finished may still be woken.
            let done =
                |task: &mut EnvironmentFuture<()>| task.as_mut().poll(&mut context).is_ready();
            self.tasks.get_mut(&task).is_some_and(done)
        };
        if is_done {
            self.main.take_if(|_| task == MAIN);
            self.tasks.remove(&task);
            self.wakers.remove(&task);
        }
    }

    /// The next thing that the process asks for.
    pub fn wanted(&self) -> Option<ProcessOutput> {
        lock(&self.environment.0.state).wanted.pop_front()
    }

    /// When the process has to run again, even if no message arrives.
    pub fn wake_at(&self) -> Time {
        let state = lock(&self.environment.0.state);
        state.timers.first_key_value().map_or(Time::MAX, |((at, _), _)| *at)
    }

    /// A node has answered a dial. If the client has stopped waiting, the connection is closed.
    pub fn dialed(&self, number: ConnectionNumber, answer: ConnectAnswer) {
        let mut state = lock(&self.environment.0.state);
        let dial = state.dials.remove(&number);
        let is_up = answer.is_ok();
        let taken = dial.is_some_and(|dial| dial.send(answer).is_ok());
        if is_up && !taken {
            state.wanted.push_back(ProcessOutput::Close(number));
        }
    }

    /// A message has arrived over a connection.
    pub fn receive(&self, now: Time, number: ConnectionNumber, said: ToClient) {
        self.environment.0.pass_to(now);
        let incoming = lock(&self.environment.0.state).connections.get(&number).cloned();
        if let Some(incoming) = incoming {
            incoming.receive(said);
        }
    }

    /// A connection has ended at the other end, or in the network.
    pub fn lose(&self, now: Time, number: ConnectionNumber) {
        self.environment.0.pass_to(now);
        let (incoming, dial) = {
            let mut state = lock(&self.environment.0.state);
            (state.connections.remove(&number), state.dials.remove(&number))
        };
        if let Some(dial) = dial {
            // The client may have stopped waiting.
            let _ = dial.send(Err(Cause::Unreachable));
        }
        if let Some(incoming) = incoming {
            incoming.lose();
        }
    }
}

impl ProcessShared {
    /// Advances the time to `now`, and wakes the tasks whose timers are due.
    fn pass_to(&self, now: Time) {
        let mut due = Vec::new();
        let mut state = lock(&self.state);
        state.now = now;
        while let Some(timer) = state.timers.first_entry()
            && timer.key().0 <= now
        {
            due.push(timer.remove());
        }
        drop(state);
        due.into_iter().for_each(Waker::wake);
    }
}

impl ProcessEnvironment {
    /// The environment of a client before its first step.
    pub fn new() -> ProcessEnvironment {
        ProcessEnvironment::default()
    }

    /// Returns after `span` of virtual time.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }
}

impl ClientWorld for ProcessEnvironment {
    fn now(&self) -> Time {
        lock(&self.0.state).now
    }

    fn sleep_until(&self, at: Time) -> EnvironmentFuture<()> {
        let mut timer = ProcessTimer { shared: Arc::clone(&self.0), at, key: None };
        Box::pin(poll_fn(move |context| timer.poll(context)))
    }

    fn spawn(&self, task: EnvironmentFuture<()>) {
        lock(&self.0.state).spawned.push(task);
    }

    fn connect(
        &self,
        place: WorkerPlace,
        _address: Option<Arc<str>>,
        _identity: Option<ClusterId>,
    ) -> EnvironmentFuture<Result<EnvironmentConnection, ConnectFailure>> {
        let (tell, answer) = oneshot::channel();
        let number = {
            let mut state = lock(&self.0.state);
            state.dialed += 1;
            let number = state.dialed;
            state.dials.insert(number, tell);
            state.wanted.push_back(ProcessOutput::Dial(number, place));
            number
        };
        let late = self.sleep_until(self.now() + HANDSHAKE_MAX);
        let shared = Arc::downgrade(&self.0);
        Box::pin(async move {
            let answer = tokio::select! {
                biased;
                answer = answer => answer.unwrap_or(Err(Cause::Unreachable)),
                () = late => Err(Cause::Silent),
            };
            let WorkerPlace { node, worker } =
                answer.map_err(|cause| ConnectFailure { cause, found: None })?;
            let carrier = Box::new(ProcessConnection { shared, number });
            Ok(EnvironmentConnection { node, worker, identity: None, carrier })
        })
    }

    /// A client in a simulation is given the cluster's topology when it starts, and no addresses.
    fn visit(
        &self,
        _address: Arc<str>,
        _identity: Option<ClusterId>,
    ) -> EnvironmentFuture<Option<(NodeId, Option<ClusterId>, Directory)>> {
        Box::pin(std::future::ready(None))
    }
}

/// A future that is ready at a point in virtual time.
struct ProcessTimer {
    shared: Arc<ProcessShared>,
    at: Time,
    key: Option<u64>,
}

impl ProcessTimer {
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.shared.state);
        if state.now >= self.at {
            return Poll::Ready(());
        }
        let key = *self.key.get_or_insert_with(|| {
            state.timers_made += 1;
            state.timers_made
        });
        state.timers.insert((self.at, key), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for ProcessTimer {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            lock(&self.shared.state).timers.remove(&(self.at, key));
        }
    }
}

/// A connection, as the client holds it. The process owns the incoming messages, so this does not own the
/// process.
#[derive(Debug, Clone)]
struct ProcessConnection {
    shared: Weak<ProcessShared>,
    number: ConnectionNumber,
}

impl MessageCarrier for ProcessConnection {
    fn start(self: Box<Self>, incoming: Arc<dyn Incoming>) -> Box<dyn Outgoing> {
        let ProcessConnection { shared, number } = *self;
        if let Some(shared) = shared.upgrade() {
            lock(&shared.state).connections.insert(number, incoming);
        }
        Box::new(ProcessSender { shared, number })
    }
}

/// The client's end of a connection, over which it sends.
#[derive(Debug)]
struct ProcessSender {
    shared: Weak<ProcessShared>,
    number: ConnectionNumber,
}

impl Outgoing for ProcessSender {
    fn send(&self, what: FromClient) {
        if let Some(shared) = self.shared.upgrade() {
            lock(&shared.state).wanted.push_back(ProcessOutput::Send(self.number, what));
        }
    }
}

impl Drop for ProcessSender {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let incoming = {
            let mut state = lock(&shared.state);
            state.wanted.push_back(ProcessOutput::Close(self.number));
            state.connections.remove(&self.number)
        };
        // The sender may hold the last reference to the link, whose drop locks the state: so it is dropped
        // outside the lock.
        drop(incoming);
    }
}
