//! Write skew: of each pair of rows, which live on two shards, one has to be there.
//!
//! A transaction that takes a row away has read that the other one is there, and writes nothing but its own, without
//! having read it. So of two transactions that take both away at once, each is right by what it read,
//! and nothing but the validation of those reads after all locks are held keeps them apart.

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

/// Clients like to begin at multiples of this.
const BEAT_NS: u64 = 2_000_000;

/// Name of the clients.
const NAME: &str = "skew";

/// Clients that would show write skew, if validation let it pass.
#[derive(Debug)]
pub struct Skew {
    table: TableId,
    pairs: u8,
}

impl Skew {
    /// So many pairs.
    ///
    /// # Errors
    /// Those of opening the table.
    pub fn new<D: Database>(db: &D, pairs: u8) -> Result<Skew> {
        Ok(Skew { table: db.table(NAME)?, pairs })
    }

    /// Puts back what is missing of a pair. Says whether one of the two was there.
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

    /// Takes a row away if the other one of its pair is there.
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
        stage: ClientContext,
    ) {
        let mut random = Random::new(seed).fork(number as u64);
        let mut pauses = ClientPolicy::new(seed, number, &stage);
        while pauses.next(&db).await {
            let pair = random.below(self.pairs.into()) as u8;
            if random.chance(1, 2) {
                // At the same time as others who do so: what is to be kept apart has to meet.
                let late = stage.time.get().0 % BEAT_NS;
                db.pause(Duration::from_nanos(BEAT_NS - late)).await;
            }
            let began = stage.time.get();
            let done = match random.chance(1, 2) {
                true => self.restore(&db, pair).await,
                false => self.take(&db, random.below(2) as u8, pair).await.map(|()| true),
            };
            match done {
                Ok(found) => {
                    stage.ledger.done((NAME, 0), began, stage.time.get(), false);
                    self.judge(pair, found, &stage);
                }
                Err(error) => stage.ledger.failed(NAME, stage.time.get(), &error),
            }
        }
    }

    fn judge(&self, pair: u8, found: bool, stage: &ClientContext) {
        if !found {
            let what = format!("{NAME}: both rows of pair {pair} were taken away");
            stage.ledger.complain(stage.time.get(), what);
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
        stage: ClientContext,
    ) -> Task {
        task(&stage.clone(), NAME, async move {
            let db = RetryingDatabase::new(db);
            for pair in 0..self.pairs {
                if let Err(error) = self.restore(&db, pair).await {
                    stage.ledger.not_loaded(NAME, pair.into(), stage.time.get(), &error);
                }
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
        task(&stage.clone(), NAME, self.perform(db, number, seed, stage))
    }

    fn outside(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        stage: ClientContext,
    ) -> Task {
        task(&stage.clone(), NAME, self.perform(db, number, seed, stage))
    }

    fn check(self: Rc<Self>, db: LocalDatabase, stage: ClientContext) -> Task {
        task(&stage.clone(), NAME, async move {
            for pair in 0..self.pairs {
                match self.restore(&db, pair).await {
                    Ok(found) => self.judge(pair, found, &stage),
                    // There is no room to restore it, and so it is not judged.
                    Err(Error::Rejected(Rejected::MemoryFull { .. })) => {}
                    Err(error) => {
                        let what = format!("{NAME}: the check failed: {error}");
                        stage.ledger.complain(stage.time.get(), what);
                    }
                }
            }
        })
    }
}
