//! Write skew: of each pair of rows, which are on two shards, at least one has to exist.
//!
//! A transaction that deletes one row has read that the other exists, and writes only the row that it
//! deletes, without having read it. So of two concurrent transactions that delete one row each, both are
//! correct by what they read; only the validation of those reads after all locks are held keeps one from
//! committing.

use super::outside::OutsideClient;
use super::retrying_database::RetryingDatabase;
use super::scenario_clients::{
    ClientContext, ClientPolicy, PausingDatabase, ScenarioClients, task,
};
use shoal_engine::LocalDatabase;
use shoal_engine::engine::Task;
use shoal_types::{Database, Error, Random, Rejected, Result, TableId, Transaction};
use std::rc::Rc;
use std::time::Duration;

/// Transactions begin at multiples of this, so that they conflict.
const START_INTERVAL_NS: u64 = 2_000_000;

/// Name of this group of clients.
const NAME: &str = "skew";

/// Clients that would show write skew if validation missed it.
#[derive(Debug)]
pub struct Skew {
    table: TableId,
    pairs: u8,
}

impl Skew {
    /// Clients of `pairs` pairs.
    ///
    /// # Errors
    /// Those of opening the table.
    pub fn new<D: Database>(db: &D, pairs: u8) -> Result<Skew> {
        Ok(Skew { table: db.table(NAME)?, pairs })
    }

    /// Inserts the missing rows of a pair. Returns whether at least one of the two existed.
    async fn restore<D: Database>(&self, db: &D, pair: u8) -> Result<bool> {
        db.transact(async |tx| {
            let mut found = false;
            for side in [0, 1] {
                match tx.get(self.table, &[side, pair]).await? {
                    Some(_) => found = true,
                    None => tx.put(self.table, &[side, pair], b"here")?,
                }
            }
            Ok(found)
        })
        .await
    }

    /// Deletes a row if the other one of its pair exists.
    async fn take<D: Database>(&self, db: &D, side: u8, pair: u8) -> Result<()> {
        db.transact(async |tx| {
            if tx.get(self.table, &[1 - side, pair]).await?.is_some() {
                tx.delete(self.table, &[side, pair])?;
            }
            Ok(())
        })
        .await
    }

    async fn perform<D: PausingDatabase>(
        self: Rc<Self>,
        db: D,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) {
        let mut random = Random::new(seed).fork(number as u64);
        let mut pauses = ClientPolicy::new(seed, number, &context);
        while pauses.next(&db).await {
            let pair = random.below(self.pairs.into()) as u8;
            if random.chance(1, 2) {
                // Clients begin at the same instant: only concurrent transactions can show write skew.
                let late = context.time.get().0 % START_INTERVAL_NS;
                db.pause(Duration::from_nanos(START_INTERVAL_NS - late)).await;
            }
            let began = context.time.get();
            let done = match random.chance(1, 2) {
                true => self.restore(&db, pair).await,
                false => self.take(&db, random.below(2) as u8, pair).await.map(|()| true),
            };
            match done {
                Ok(found) => {
                    context.ledger.done((NAME, 0), began, context.time.get(), false);
                    self.judge(pair, found, &context);
                }
                Err(error) => context.ledger.failed(NAME, context.time.get(), &error),
            }
        }
    }

    fn judge(&self, pair: u8, found: bool, context: &ClientContext) {
        if !found {
            let what = format!("{NAME}: both rows of pair {pair} were taken away");
            context.ledger.report_error(context.time.get(), what);
        }
    }
}

impl ScenarioClients for Skew {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parts(&self) -> usize {
        1
    }

    fn load(
        self: Rc<Self>,
        db: LocalDatabase,
        _part: usize,
        _seed: u64,
        context: ClientContext,
    ) -> Task {
        task(&context.clone(), NAME, async move {
            let db = RetryingDatabase::new(db);
            for pair in 0..self.pairs {
                if let Err(error) = self.restore(&db, pair).await {
                    context.ledger.not_loaded(NAME, pair.into(), context.time.get(), &error);
                }
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
        task(&context.clone(), NAME, self.perform(db, number, seed, context))
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
            let db = RetryingDatabase::new(db);
            for pair in 0..self.pairs {
                match self.restore(&db, pair).await {
                    Ok(found) => self.judge(pair, found, &context),
                    // There is no room to restore the pair, so it is not judged.
                    Err(Error::Rejected(
                        Rejected::MemoryFull { .. } | Rejected::DiskFull { .. },
                    )) => {}
                    Err(error) => {
                        let what = format!("{NAME}: the check failed: {error}");
                        context.ledger.report_error(context.time.get(), what);
                    }
                }
            }
        })
    }
}
