//! The workhorse: clients that record what they see, for the judge of strict serializability.

use super::ledger::Ledger;
use super::outside::OutsideClient;
use super::scenario_clients::{
    ClientContext, ClientPolicy, PausingDatabase, ScenarioClients, task,
};
use shoal_engine::LocalDatabase;
use shoal_engine::engine::Task;
use shoal_types::{Database, Result};
use shoal_workloads::history::generator::{Client, Generator, Parameters};
use shoal_workloads::history::{History, Verdict, check};
use std::rc::Rc;

/// Name of the clients.
pub const NAME: &str = "histories";

/// See the module.
#[derive(Debug)]
pub struct Histories {
    generator: Generator,
}

impl Histories {
    /// Histories of so many clients.
    ///
    /// # Errors
    /// Those of opening the tables.
    pub fn new<D: Database>(db: &D, parameters: Parameters, clients: u64) -> Result<Histories> {
        Ok(Histories { generator: Generator::new(db, parameters, clients)? })
    }
}

async fn perform<D: PausingDatabase>(
    histories: Rc<Histories>,
    db: D,
    number: usize,
    seed: u64,
    stage: ClientContext,
) {
    let client = histories.generator.client(number as u64, seed);
    let mut record = Record { client: Some(client), ledger: stage.ledger.clone() };
    let mut pauses = ClientPolicy::new(seed, number, &stage);
    let time = Rc::clone(&stage.time);
    let clock = move || time.get().0;
    while pauses.next(&db).await {
        let began = stage.time.get();
        let Some(client) = &mut record.client else { return };
        match client.next(&db, &clock).await {
            Ok(()) => stage.ledger.done((NAME, 0), began, stage.time.get(), false),
            Err(error) => stage.ledger.failed(NAME, stage.time.get(), &error),
        }
    }
}

/// What a client has recorded: handed in when it is done, or when it dies in the midst of something, which
/// then may have happened or not.
struct Record {
    client: Option<Client>,
    ledger: Ledger,
}

impl Drop for Record {
    fn drop(&mut self) {
        let recorders = self.client.take().map(Client::into_recorder);
        recorders.into_iter().for_each(|recorder| self.ledger.hand_in(recorder));
    }
}

impl ScenarioClients for Histories {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parts(&self) -> usize {
        0
    }

    fn load(
        self: Rc<Self>,
        _db: LocalDatabase,
        _part: usize,
        _seed: u64,
        stage: ClientContext,
    ) -> Task {
        task(&stage, NAME, async {})
    }

    fn resident(
        self: Rc<Self>,
        db: LocalDatabase,
        number: usize,
        seed: u64,
        stage: ClientContext,
    ) -> Task {
        task(&stage.clone(), NAME, perform(self, db, number, seed, stage))
    }

    fn outside(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        stage: ClientContext,
    ) -> Task {
        task(&stage.clone(), NAME, perform(self, db, number, seed, stage))
    }

    fn check(self: Rc<Self>, _db: LocalDatabase, stage: ClientContext) -> Task {
        task(&stage.clone(), NAME, async move {
            let at = stage.time.get();
            match History::merge(stage.ledger.take_recorders()) {
                Err(error) => stage.ledger.complain(at, format!("the history is none: {error}")),
                Ok(history) => {
                    let report = check(&history);
                    let fault = match report.verdict {
                        Verdict::Consistent => return,
                        Verdict::Undecided => "the history is not shown to be right",
                        Verdict::Violated => "the history has anomalies",
                    };
                    stage.ledger.complain(at, format!("{fault}:\n{report}"));
                }
            }
        })
    }
}
