//! A group of clients: a workload in a form that any client can run, on a worker or outside.

use super::ledger::Ledger;
use super::outside::OutsideClient;
use super::retrying_database::RetryingDatabase;
use shoal_engine::LocalDatabase;
use shoal_engine::engine::Task;
use shoal_types::{Database, Random, Time};
use shoal_workloads::workload::Workload;
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// The state that all clients of a run share.
#[derive(Debug, Clone)]
pub struct ClientContext {
    /// Where clients record outcomes and errors.
    pub ledger: Ledger,
    /// When set, clients finish their transaction and begin no other.
    pub stop: Rc<Cell<bool>>,
    /// The true time of the simulation, for the times of histories.
    pub time: Rc<Cell<Time>>,
    /// The longest pause between two transactions of a client, in nanoseconds.
    pub pause_ns_max: u64,
    /// The most transactions of one client: in a cluster without distances each would run millions.
    pub transactions_max: u32,
}

/// A database whose clients can pause.
pub trait PausingDatabase: Database {
    /// Returns after `span` of virtual time.
    fn pause(&self, span: Duration) -> impl Future<Output = ()>;
}

impl PausingDatabase for LocalDatabase {
    async fn pause(&self, span: Duration) {
        self.sleep(span).await;
    }
}

impl PausingDatabase for OutsideClient {
    async fn pause(&self, span: Duration) {
        self.sleep(span).await;
    }
}

/// A group of clients of a run: what they do, and what must hold of their data. Every task that it makes is
/// counted in the ledger from its beginning to its end. By default a group has no data, no clients on workers and no check.
pub trait ScenarioClients {
    /// The group's name, as in reports.
    fn name(&self) -> &'static str;

    /// The number of parts in which the group's data is loaded.
    fn parts(&self) -> usize {
        0
    }

    /// Loads part `part` of the data.
    fn load(
        self: Rc<Self>,
        db: LocalDatabase,
        part: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task {
        let _ = (db, part, seed);
        task(&context, self.name(), async {})
    }

    /// A client on a worker. Numbers count over all clients of the group.
    fn resident(
        self: Rc<Self>,
        db: LocalDatabase,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task {
        let _ = (db, number, seed);
        task(&context, self.name(), async {})
    }

    /// A client outside of the cluster.
    fn outside(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task;

    /// Judges the data once the cluster is quiet.
    fn check(self: Rc<Self>, db: LocalDatabase, context: ClientContext) -> Task {
        let _ = db;
        task(&context, self.name(), async {})
    }
}

/// Groups whose data can be judged without knowing the outcome of every transaction.
const COUNT_NOTHING: [&str; 1] = ["tokens"];

/// Makes a task that the ledger counts. It does nothing where the group's data found no room.
pub(super) fn task(
    context: &ClientContext,
    scenario_clients: &'static str,
    body: impl Future<Output = ()> + 'static,
) -> Task {
    let (ledger, work) = (context.ledger.clone(), context.ledger.begin(scenario_clients));
    Box::pin(async move {
        if !ledger.lacks_data(scenario_clients) {
            body.await;
        }
        work.done();
    })
}

/// Pauses a client between transactions, and limits their number. A pause is never zero: a transaction that
/// needs no message takes no virtual time, and a client without pauses would never let the time advance.
pub(super) struct ClientPolicy {
    random: Random,
    longest_ns: u64,
    left: u32,
    stop: Rc<Cell<bool>>,
}

impl ClientPolicy {
    pub(super) fn new(seed: u64, number: usize, context: &ClientContext) -> ClientPolicy {
        let random = Random::new(seed).fork(1 << 32 | number as u64);
        let stop = Rc::clone(&context.stop);
        let longest_ns = context.pause_ns_max.max(1000);
        ClientPolicy { random, longest_ns, left: context.transactions_max, stop }
    }

    /// Pauses, and returns whether the client runs another transaction.
    pub(super) async fn next(&mut self, db: &impl PausingDatabase) -> bool {
        if self.left == 0 || self.stop.get() {
            return false;
        }
        self.left -= 1;
        let nanos = self.random.range_inclusive(1, self.longest_ns);
        db.pause(Duration::from_nanos(nanos)).await;
        !self.stop.get()
    }
}

async fn perform<W: Workload, D: PausingDatabase>(
    workload: Rc<W>,
    db: D,
    number: usize,
    seed: u64,
    context: ClientContext,
) {
    let mut client = workload.client(number, seed);
    let mut pauses = ClientPolicy::new(seed, number, &context);
    while pauses.next(&db).await {
        let began = context.time.get();
        match workload.next(&db, &mut client).await {
            Ok(done) => {
                let kind = (workload.name(), done.kind);
                context.ledger.done(kind, began, context.time.get(), done.rolled_back);
            }
            Err(error) => context.ledger.failed(workload.name(), context.time.get(), &error),
        }
    }
}

/// Any workload can be run by a group of clients.
impl<W: Workload + 'static> ScenarioClients for W {
    fn name(&self) -> &'static str {
        Workload::name(self)
    }

    fn parts(&self) -> usize {
        self.load_parts()
    }

    fn load(
        self: Rc<Self>,
        db: LocalDatabase,
        part: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task {
        task(&context.clone(), ScenarioClients::name(&*self), async move {
            let db = RetryingDatabase::new(db);
            if let Err(error) = Workload::load(&*self, &db, part, seed, &mut |_| {}).await {
                let (name, error) = (ScenarioClients::name(&*self), db.reason(error));
                context.ledger.not_loaded(name, part, context.time.get(), &error);
            }
        })
    }

    fn resident(
        self: Rc<Self>,
        db: LocalDatabase,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task {
        task(
            &context.clone(),
            ScenarioClients::name(&*self),
            perform(self, db, number, seed, context),
        )
    }

    fn outside(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task {
        task(
            &context.clone(),
            ScenarioClients::name(&*self),
            perform(self, db, number, seed, context),
        )
    }

    fn check(self: Rc<Self>, db: LocalDatabase, context: ClientContext) -> Task {
        task(&context.clone(), ScenarioClients::name(&*self), async move {
            // Where an outcome is unknown, the clients' counts may differ from what took effect.
            let name = ScenarioClients::name(&*self);
            if context.ledger.is_uncertain(name) && !COUNT_NOTHING.contains(&name) {
                return;
            }
            let at = context.time.get();
            match Workload::check(&*self, &RetryingDatabase::new(db)).await {
                Ok(checks) => {
                    for check in checks {
                        if let Err(what) = check.verdict {
                            context.ledger.report_error(at, format!("{}: {what}", check.name));
                        }
                    }
                }
                Err(error) => {
                    let what =
                        format!("{}: the check failed: {error}", ScenarioClients::name(&*self));
                    context.ledger.report_error(at, what);
                }
            }
        })
    }
}
