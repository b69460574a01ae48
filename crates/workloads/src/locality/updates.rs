//! Updates: each transaction reads a row of 400 bytes and writes it anew. What a commit costs, and nothing else.
//!
//! Invariant: the numbers at the beginning of the rows add up to the committed transactions.

use super::homes::{HomeClient, Homes, key, number, row, visit_numbers};
use crate::rows;
use crate::tally::Tally;
use crate::workload::{Check, Done, Workload};
use shoal_types::{Database, Result, TableId, Transaction};

const KINDS: [&str; 1] = ["update"];

/// The length of a row.
const ROW_BYTES: usize = 400;

/// The benchmark's parameters and table.
#[derive(Debug)]
pub struct Updates {
    objects: TableId,
    homes: Homes,
    committed: Tally,
}

impl Updates {
    /// The benchmark over rows that are divided so.
    ///
    /// # Errors
    /// Those of making the table.
    ///
    /// # Panics
    /// If there is no home or no object, or the share is more than all.
    pub fn new<D: Database>(db: &D, homes: Homes) -> Result<Updates> {
        homes.check();
        Ok(Updates { objects: db.table("updates.objects")?, homes, committed: Tally::new() })
    }
}

impl Workload for Updates {
    type Client = HomeClient;

    fn name(&self) -> &'static str {
        "updates"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        self.homes.parameters("objects")
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn load_parts(&self) -> usize {
        self.homes.parts()
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        _seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let empty = |number| (key(number), row::<ROW_BYTES>(0));
        rows::load(db, self.objects, self.homes.part(part), empty, loaded).await
    }

    fn rows(&self) -> u64 {
        self.homes.all()
    }

    fn client(&self, number: usize, seed: u64) -> HomeClient {
        self.homes.client(number, seed)
    }

    async fn next<D: Database>(&self, db: &D, client: &mut HomeClient) -> Result<Done> {
        let home = self.homes.other_home(&mut client.random, client.home);
        let object = self.homes.object(&mut client.random, home).to_be_bytes();
        let mut runs = 0;
        let updated = db.transact(async |tx| {
            runs += 1;
            let before = number(tx.get_for_update(self.objects, &object).await?)?;
            let after: [u8; ROW_BYTES] = row(before + 1);
            tx.put(self.objects, &object, &after)
        });
        updated.await?;
        self.committed.add(client.number, 1);
        Ok(Done { kind: 0, retries: runs - 1, rolled_back: false })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let mut sum = 0;
        let rows = self.homes.all();
        let missing =
            visit_numbers(db, self.objects, rows, |_, updates| sum += updates as u64).await?;
        Ok(vec![
            Check::equal("updates: rows that are missing = 0", missing, 0),
            Check::equal("updates: updates of rows = committed", sum, self.committed.sum()),
        ])
    }
}
