//! Voter: telephone votes for the contestants of a show (H-Store). Each vote writes the row of the voter, which has a limited
//! number of votes, and that of the contestant.
//!
//! A client's voters and contestants are those of its home; for a remote vote the contestant is another home's.
//!
//! Invariant: the votes that contestants got, those that voters gave, and those that were committed are as many.

use super::homes::{HomeClient, Homes, key, number, part_of, visit_numbers};
use crate::rows;
use crate::tally::Tally;
use crate::workload::{Check, Done, Workload};
use shoal_types::{Database, Result, TableId, Transaction};

const KINDS: [&str; 1] = ["vote"];

/// How many contestants there are; where there are more homes, as many as homes.
const CONTESTANTS: u32 = 20;

/// The most votes of one voter.
const VOTES_MAX: i64 = 1_000;

/// The benchmark's parameters and tables.
#[derive(Debug)]
pub struct Voter {
    voters: TableId,
    contestants: TableId,
    homes: Homes,
    committed: Tally,
}

impl Voter {
    /// The benchmark over voters that are divided so.
    ///
    /// # Errors
    /// Those of making the tables.
    ///
    /// # Panics
    /// If there is no home or no voter, or the share is more than all.
    pub fn new<D: Database>(db: &D, homes: Homes) -> Result<Voter> {
        homes.check();
        let (voters, contestants) = (db.table("voter.voters")?, db.table("voter.contestants")?);
        Ok(Voter { voters, contestants, homes, committed: Tally::new() })
    }

    fn contestants(&self) -> u32 {
        CONTESTANTS.max(self.homes.homes)
    }

    /// A contestant of a home: those whose number, modulo the homes, is that.
    fn contestant(&self, client: &mut HomeClient, home: u32) -> u32 {
        let of_home = (self.contestants() - home).div_ceil(self.homes.homes);
        home + client.random.below(of_home.into()) as u32 * self.homes.homes
    }
}

impl Workload for Voter {
    type Client = HomeClient;

    fn name(&self) -> &'static str {
        "voter"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let contestants = ("contestants", self.contestants().to_string());
        self.homes.parameters("voters").into_iter().chain([contestants]).collect()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn load_parts(&self) -> usize {
        rows::parts(self.homes.all())
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        _seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let row = |number| (key(number), 0_i64.to_le_bytes());
        if part == 0 {
            rows::load(db, self.contestants, 0..self.contestants().into(), row, loaded).await?;
        }
        rows::load(db, self.voters, part_of(&self.homes, part), row, loaded).await
    }

    fn rows(&self) -> u64 {
        self.homes.all() + u64::from(self.contestants())
    }

    fn client(&self, number: usize, seed: u64) -> HomeClient {
        self.homes.client(number, seed)
    }

    async fn next<D: Database>(&self, db: &D, client: &mut HomeClient) -> Result<Done> {
        let voter = self.homes.object(&mut client.random, client.home).to_be_bytes();
        let home = self.homes.other_home(&mut client.random, client.home);
        let contestant = self.contestant(client, home).to_be_bytes();
        let mut runs = 0;
        let is_counted = db.transact(async |tx| {
            runs += 1;
            tx.prefetch(&[(self.voters, &voter[..]), (self.contestants, &contestant[..])]);
            let given = number(tx.get_for_update(self.voters, &voter).await?)?;
            if given >= VOTES_MAX {
                return Ok(false);
            }
            tx.put(self.voters, &voter, &(given + 1).to_le_bytes())?;
            tx.add(self.contestants, &contestant, 1).await?;
            Ok(true)
        });
        let is_counted = is_counted.await?;
        self.committed.add(client.number, is_counted.into());
        Ok(Done { kind: 0, retries: runs - 1, rolled_back: !is_counted })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (mut missing, mut sums) = (0, [0_u64; 2]);
        let tables =
            [(self.voters, self.homes.all()), (self.contestants, u64::from(self.contestants()))];
        for ((table, rows), sum) in tables.into_iter().zip(&mut sums) {
            missing += visit_numbers(db, table, rows, |_, votes| *sum += votes as u64).await?;
        }
        let [given, got] = sums;
        Ok(vec![
            Check::equal("voter: rows that are missing = 0", missing, 0),
            Check::equal("voter: votes given = committed", given, self.committed.sum()),
            Check::equal("voter: votes got = votes given", got, given),
        ])
    }
}
