//! Procedures called from outside, over a network that loses and repeats: each takes effect once.
//!
//! A call adds one to a few counters, on any shards. At the end, however many messages were lost and repeated,
//! every counter has the number of calls that were answered with success.

use super::ledger::Ledger;
use super::outside::OutsideClient;
use super::retrying_database::RetryingDatabase;
use super::scenario_clients::{ClientContext, ClientPolicy, ScenarioClients, task};
use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_engine::LocalDatabase;
use shoal_engine::engine::Task;
use shoal_types::{
    Database, Error, ProcedureTransaction, Random, Result, ShardId, TableId, Transaction, Unknown,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Name of this group of clients.
const NAME: &str = "calls";

/// Name of the procedure that the clients call.
pub const PROCEDURE: &str = "increment";

/// Counters that one call increments, at most.
const COUNTERS_MAX: u64 = 3;

/// One call in so many has a deadline so short that its outcome may stay unknown: then the client repeats the
/// call.
const HASTY_ONE_IN: u64 = 8;

/// Clients that call procedures, some of them again, and count what took effect.
#[derive(Debug)]
pub struct Calls {
    table: TableId,
    counters: u8,
    /// For each counter, the calls that were answered with success, and those whose outcome stayed unknown.
    expected: RefCell<Vec<(u64, u64)>>,
    topology: RefCell<Option<Arc<Topology>>>,
}

/// Increments counters. The arguments are the table, as four little-endian bytes, and a byte for each
/// counter.
///
/// # Errors
/// Those of the transaction, and a rejection if the arguments are malformed.
pub async fn increment(tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
    let Some((table, counters)) = arguments.split_first_chunk::<4>() else {
        return Err(Error::reject("an increment names its table"));
    };
    let table = TableId(u32::from_le_bytes(*table));
    for counter in counters {
        tx.add(table, &[*counter], 1).await?;
    }
    Ok(Bytes::copy_from_slice(counters))
}

impl Calls {
    /// Clients that increment `counters` counters.
    ///
    /// # Errors
    /// Those of opening the table.
    pub fn new<D: Database>(db: &D, counters: u8) -> Result<Calls> {
        let expected = RefCell::new(vec![(0, 0); counters.into()]);
        let topology = RefCell::new(None);
        Ok(Calls { table: db.table("counters")?, counters, expected, topology })
    }

    /// Gives the clients the topology, from which they choose the workers that they call.
    pub fn settle(&self, topology: &Arc<Topology>) {
        *self.topology.borrow_mut() = Some(Arc::clone(topology));
    }

    fn draw(&self, random: &mut Random) -> Vec<u8> {
        let mut counters: Vec<u8> = (0..self.counters).collect();
        random.shuffle(&mut counters);
        counters.truncate(random.range_inclusive(1, COUNTERS_MAX) as usize);
        counters
    }

    /// Calls once, and repeats the call where its outcome is unknown.
    async fn call(
        &self,
        db: &OutsideClient,
        random: &mut Random,
        ledger: &Ledger,
        home: ShardId,
        arguments: Bytes,
    ) -> Result<Bytes> {
        let is_hasty = random.chance(1, HASTY_ONE_IN);
        let hastiness = 1 + random.below(8 * db.options().patience.as_nanos() as u64);
        let cluster = match is_hasty {
            true => db.cluster().with_deadline(Duration::from_nanos(hastiness)),
            false => db.cluster().clone(),
        };
        match cluster.call(home, PROCEDURE, arguments.clone()).await {
            Err(Error::Unknown(Unknown::Call { request, .. })) => {
                ledger.calls_again();
                db.cluster().call_again(request, PROCEDURE, arguments).await
            }
            result => result,
        }
    }

    async fn perform(
        self: Rc<Self>,
        mut db: OutsideClient,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) {
        let mut random = Random::new(seed).fork(number as u64);
        let mut pauses = ClientPolicy::new(seed, number, &context);
        let topology = self.topology.borrow().clone().expect("settled before the first call");
        while pauses.next(&db).await {
            let counters = self.draw(&mut random);
            let home = ShardId(random.below(topology.shards().into()) as u32);
            // Starts sessions that are never used again, so that there are more than any worker keeps.
            if random.chance(1, 4) {
                db.begin_anew();
            }
            let arguments = [&self.table.0.to_le_bytes()[..], &counters].concat();
            let began = context.time.get();
            let called = self.call(&db, &mut random, &context.ledger, home, arguments.into());
            match called.await {
                Ok(echo) => {
                    context.ledger.done((NAME, 0), began, context.time.get(), false);
                    if *echo != *counters {
                        let what = format!("{NAME}: a call of {counters:?} returned {echo:?}");
                        context.ledger.report_error(context.time.get(), what);
                    }
                    for counter in counters {
                        self.expected.borrow_mut()[usize::from(counter)].0 += 1;
                    }
                }
                Err(error) => {
                    context.ledger.failed(NAME, context.time.get(), &error);
                    if let Error::Unknown(_) = error {
                        for counter in counters {
                            self.expected.borrow_mut()[usize::from(counter)].1 += 1;
                        }
                    }
                }
            }
        }
    }

    async fn judge(&self, db: &impl Database) -> Result<std::result::Result<(), String>> {
        let found = db
            .transact(async |tx| {
                let mut found = Vec::new();
                for counter in 0..self.counters {
                    let value = tx.get(self.table, &[counter]).await?;
                    let value = value.and_then(|value| value.try_into().ok());
                    found.push(value.map_or(0, u64::from_le_bytes));
                }
                Ok(found)
            })
            .await?;
        let expected = self.expected.borrow();
        let fits =
            |(found, (sure, open)): (&u64, &(u64, u64))| (*sure..=sure + open).contains(found);
        Ok(if found.len() == expected.len() && found.iter().zip(&*expected).all(fits) {
            Ok(())
        } else {
            Err(format!(
                "the counters stand at {found:?}, but the calls add up to {expected:?}, \
                 those first that succeeded, then those of unknown outcome"
            ))
        })
    }
}

/// Only clients outside call procedures.
impl ScenarioClients for Calls {
    fn name(&self) -> &'static str {
        NAME
    }

    fn outside(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task {
        task(&context.clone(), NAME, self.perform(db, number, seed, context))
    }

    fn check(self: Rc<Self>, db: LocalDatabase, context: ClientContext) -> Task {
        task(&context.clone(), NAME, async move {
            let verdict = match self.judge(&RetryingDatabase::new(db)).await {
                Ok(verdict) => verdict,
                Err(error) => Err(format!("the check failed: {error}")),
            };
            if let Err(what) = verdict {
                context.ledger.report_error(context.time.get(), format!("exactly once: {what}"));
            }
        })
    }
}
