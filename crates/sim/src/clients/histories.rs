//! Clients that record what they read and write, for the checker of strict serializability.

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

/// The name of these clients in the results of a run.
pub const NAME: &str = "histories";

/// Clients whose operations are recorded, for the checker to judge.
#[derive(Debug)]
pub struct Histories {
    generator: Generator,
}

impl Histories {
    /// The tables and parameters of `clients` clients.
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
    context: ClientContext,
) {
    let client = histories.generator.client(number as u64, seed);
    let mut record = Record { client: Some(client), ledger: context.ledger.clone() };
    let mut pauses = ClientPolicy::new(seed, number, &context);
    let time = Rc::clone(&context.time);
    let clock = move || time.get().0;
    while pauses.next(&db).await {
        let began = context.time.get();
        let Some(client) = &mut record.client else { return };
        match client.next(&db, &clock).await {
            Ok(()) => context.ledger.done((NAME, 0), began, context.time.get(), false),
            Err(error) => context.ledger.failed(NAME, context.time.get(), &error),
        }
    }
}

/// What a client has recorded. It is handed in when the client has finished, or dies within a transaction,
/// whose outcome is then unknown.
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

    fn resident(
        self: Rc<Self>,
        db: LocalDatabase,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task {
        task(&context.clone(), NAME, perform(self, db, number, seed, context))
    }

    fn outside(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task {
        task(&context.clone(), NAME, perform(self, db, number, seed, context))
    }

    fn check(self: Rc<Self>, _db: LocalDatabase, context: ClientContext) -> Task {
        task(&context.clone(), NAME, async move {
            let at = context.time.get();
            match History::merge(context.ledger.take_recorders()) {
                Err(error) => {
                    context.ledger.report_error(at, format!("the history is malformed: {error}"));
                }
                Ok(history) => {
                    let report = check(&history);
                    let fault = match report.verdict {
                        Verdict::Consistent => return,
                        Verdict::Undecided => "the checker could not decide the history",
                        Verdict::Violated => "the history has anomalies",
                    };
                    context.ledger.report_error(at, format!("{fault}:\n{report}"));
                }
            }
        })
    }
}
