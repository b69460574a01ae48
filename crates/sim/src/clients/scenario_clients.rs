//! A group of clients: a workload in a form that any client can run, of any type.

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

/// What all clients of a run share.
#[derive(Debug, Clone)]
pub struct ClientContext {
    /// What they write down.
    pub ledger: Ledger,
    /// They finish what they do and begin nothing new.
    pub stop: Rc<Cell<bool>>,
    /// The true time.
    pub time: Rc<Cell<Time>>,
    /// They pause between two transactions, up to so long.
    pub pause_ns_max: u64,
    /// Each of them does at most so many: a cluster without distances would do millions.
    pub transactions_max: u32,
}

/// A database whose clients can wait.
pub trait PausingDatabase: Database {
    /// Returns after this span of virtual time.
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

/// The clients of a run: what they do, and what must hold of it. Every task it makes has begun in the ledger and ends
/// there.
pub trait ScenarioClients {
    /// Its name.
    fn name(&self) -> &'static str;

    /// In how many parts its data is loaded.
    fn parts(&self) -> usize;

    /// Loads a part.
    fn load(
        self: Rc<Self>,
        db: LocalDatabase,
        part: usize,
        seed: u64,
        stage: ClientContext,
    ) -> Task;

    /// A client on a worker. Numbers count over all clients of the clients.
    fn resident(
        self: Rc<Self>,
        db: LocalDatabase,
        number: usize,
        seed: u64,
        stage: ClientContext,
    ) -> Task;

    /// A client outside.
    fn outside(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        stage: ClientContext,
    ) -> Task;

    /// Judges the data when all is quiet.
    fn check(self: Rc<Self>, db: LocalDatabase, stage: ClientContext) -> Task;
}

/// Plays whose data tells by itself whether it is in order, independent of what clients were told.
const COUNT_NOTHING: [&str; 1] = ["tokens"];

/// Makes a task that the ledger knows of. It does nothing where the clients is left out.
pub(super) fn task(
    stage: &ClientContext,
    scenario_clients: &'static str,
    body: impl Future<Output = ()> + 'static,
) -> Task {
    let (ledger, work) = (stage.ledger.clone(), stage.ledger.begin(scenario_clients));
    Box::pin(async move {
        if !ledger.is_left_out(scenario_clients) {
            body.await;
        }
        work.done();
    })
}

/// The pauses of a client. They are never nothing: a transaction that needs no message takes no time,
/// and a client that took none would go on for ever.
pub(super) struct ClientPolicy {
    random: Random,
    longest_ns: u64,
    left: u32,
    stop: Rc<Cell<bool>>,
}

impl ClientPolicy {
    pub(super) fn new(seed: u64, number: usize, stage: &ClientContext) -> ClientPolicy {
        let random = Random::new(seed).fork(1 << 32 | number as u64);
        let stop = Rc::clone(&stage.stop);
        let longest_ns = stage.pause_ns_max.max(1000);
        ClientPolicy { random, longest_ns, left: stage.transactions_max, stop }
    }

    /// Pauses. Says whether there is to be another transaction.
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
    stage: ClientContext,
) {
    let mut client = workload.client(number, seed);
    let mut pauses = ClientPolicy::new(seed, number, &stage);
    while pauses.next(&db).await {
        let began = stage.time.get();
        match workload.next(&db, &mut client).await {
            Ok(done) => {
                let kind = (workload.name(), done.kind);
                stage.ledger.done(kind, began, stage.time.get(), done.rolled_back);
            }
            Err(error) => stage.ledger.failed(workload.name(), stage.time.get(), &error),
        }
    }
}

/// Any workload is a group of clients.
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
        stage: ClientContext,
    ) -> Task {
        task(&stage.clone(), ScenarioClients::name(&*self), async move {
            let db = RetryingDatabase::new(db);
            if let Err(error) = Workload::load(&*self, &db, part, seed, &mut |_| {}).await {
                let name = ScenarioClients::name(&*self);
                stage.ledger.not_loaded(name, part, stage.time.get(), &error);
            }
        })
    }

    fn resident(
        self: Rc<Self>,
        db: LocalDatabase,
        number: usize,
        seed: u64,
        stage: ClientContext,
    ) -> Task {
        task(&stage.clone(), ScenarioClients::name(&*self), perform(self, db, number, seed, stage))
    }

    fn outside(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        stage: ClientContext,
    ) -> Task {
        task(&stage.clone(), ScenarioClients::name(&*self), perform(self, db, number, seed, stage))
    }

    fn check(self: Rc<Self>, db: LocalDatabase, stage: ClientContext) -> Task {
        task(&stage.clone(), ScenarioClients::name(&*self), async move {
            // Where an outcome stayed open, what the clients counted is not what they did.
            let name = ScenarioClients::name(&*self);
            if stage.ledger.is_uncertain(name) && !COUNT_NOTHING.contains(&name) {
                return;
            }
            let at = stage.time.get();
            match Workload::check(&*self, &db).await {
                Ok(checks) => {
                    for check in checks {
                        if let Err(what) = check.verdict {
                            stage.ledger.complain(at, format!("{}: {what}", check.name));
                        }
                    }
                }
                Err(error) => {
                    let what =
                        format!("{}: the check failed: {error}", ScenarioClients::name(&*self));
                    stage.ledger.complain(at, what);
                }
            }
        })
    }
}
