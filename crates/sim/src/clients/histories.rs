//! The workhorse: clients that record what they see, for the judge of strict serializability.

use super::outside::Outside;
use super::play::{Pauses, Pausing, Play, Stage, task};
use engines::Local;
use engines::engine::Task;
use std::rc::Rc;
use types::{Database, Result};
use workloads::history::generator::{Generator, Parameters};
use workloads::history::{History, check};

/// Name of the play.
const NAME: &str = "histories";

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

async fn perform<D: Pausing>(
    histories: Rc<Histories>,
    db: D,
    number: usize,
    seed: u64,
    stage: Stage,
) {
    let mut client = histories.generator.client(number as u64, seed);
    let mut pauses = Pauses::new(seed, number, &stage);
    let time = Rc::clone(&stage.time);
    let clock = move || time.get().0;
    while pauses.next(&db).await {
        let began = stage.time.get();
        match client.next(&db, &clock).await {
            Ok(()) => stage.ledger.done((NAME, 0), began, stage.time.get(), false),
            Err(error) => stage.ledger.failed(NAME, stage.time.get(), &error),
        }
    }
    stage.ledger.hand_in(client.into_recorder());
}

impl Play for Histories {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parts(&self) -> usize {
        0
    }

    fn load(self: Rc<Self>, _db: Local, _part: usize, _seed: u64, stage: Stage) -> Task {
        task(&stage, async {})
    }

    fn resident(self: Rc<Self>, db: Local, number: usize, seed: u64, stage: Stage) -> Task {
        task(&stage.clone(), perform(self, db, number, seed, stage))
    }

    fn outside(self: Rc<Self>, db: Outside, number: usize, seed: u64, stage: Stage) -> Task {
        task(&stage.clone(), perform(self, db, number, seed, stage))
    }

    fn check(self: Rc<Self>, _db: Local, stage: Stage) -> Task {
        task(&stage.clone(), async move {
            let at = stage.time.get();
            match History::merge(stage.ledger.take_recorders()) {
                Err(error) => stage.ledger.complain(at, format!("the history is none: {error}")),
                Ok(history) => {
                    let report = check(&history);
                    if !report.is_clean() {
                        stage.ledger.complain(at, format!("the history has anomalies:\n{report}"));
                    }
                }
            }
        })
    }
}
