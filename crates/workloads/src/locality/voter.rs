//! Voter: telephone votes for the contestants of a show (H-Store). Each vote writes the row of the voter, which has a limited
//! number of votes, and that of the contestant.
//!
//! A client's voters and contestants are those of its home; for a remote vote the contestant is another home's.
//!
//! Some clients may take voters to their home instead ([`VoterMoves`]): a transaction writes a row of its client and reads
//! several voters of another home. An engine in which a transaction that writes has to own what it reads then moves these.
//! Nothing else is done with such voters.
//!
//! Invariant: the votes that contestants got, those that voters gave, and those that were committed are as many.

use super::homes::{HomeClient, Homes, key, number, visit_numbers};
use crate::rows;
use crate::tally::Tally;
use crate::workload::{Check, Done, Workload};
use shoal_types::{Database, Error, Rejected, Result, TableId, Transaction};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

const KINDS: [&str; 2] = ["vote", "move"];
const VOTE: usize = 0;
const MOVE: usize = 1;

/// How many contestants there are; where there are more homes, as many as homes.
const CONTESTANTS: u32 = 20;

/// The most votes of one voter.
const VOTES_MAX: i64 = 1_000;

/// Clients that take voters from one home to another, and the voters that they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoterMoves {
    /// The first clients of each home, so many, take voters; all others vote.
    pub clients: u32,
    /// The number of voters that are taken, of all homes together, beside those that vote.
    pub voters: u32,
    /// The number of them that a transaction takes.
    pub together: u32,
    /// Whether the transaction is rolled back once it has read them: then it takes no longer than their move.
    pub rolls_back: bool,
}

/// Why a transaction that has taken voters is rolled back.
const TAKEN: &str = "the voters have been taken";

/// The benchmark's parameters and tables.
#[derive(Debug)]
pub struct Voter {
    voters: TableId,
    contestants: TableId,
    homes: Homes,
    committed: Tally,
    moves: Option<MovingVoters>,
}

/// The voters that move, in groups that move together.
#[derive(Debug)]
struct MovingVoters {
    moves: VoterMoves,
    /// For each home the groups that it has and that no client takes at present, the first to come first.
    groups: Mutex<Vec<VecDeque<u32>>>,
}

impl MovingVoters {
    fn groups(&self) -> MutexGuard<'_, Vec<VecDeque<u32>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A group for a client of this home to take: one of the next home, or else of another. Where there is one home, all
    /// groups are loaded elsewhere, and each is taken once.
    fn take(&self, home: u32) -> Option<u32> {
        let mut groups = self.groups();
        let (before, from) = groups.split_at_mut(home as usize + 1);
        from.iter_mut().chain(before).find_map(VecDeque::pop_front)
    }

    /// The group has come to the home.
    fn put_back(&self, group: u32, home: u32) {
        let mut groups = self.groups();
        if groups.len() > 1 {
            groups[home as usize].push_back(group);
        }
    }
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
        Ok(Voter { voters, contestants, homes, committed: Tally::new(), moves: None })
    }

    /// The same, with voters that are taken from one home to another.
    ///
    /// # Panics
    /// If there is not one group of them for each client that takes them.
    #[must_use]
    pub fn moving(self, moves: VoterMoves) -> Voter {
        let VoterMoves { clients, voters, together, rolls_back: _ } = moves;
        let homes = self.homes.homes;
        let all = voters.checked_div(together).unwrap_or(0);
        assert!(all >= clients * homes, "{moves:?} of {homes} homes");
        let of_home = |home| (0..all).filter(|group| group % homes == home).collect();
        let groups = Mutex::new((0..homes).map(of_home).collect());
        Voter { moves: Some(MovingVoters { moves, groups }), ..self }
    }

    /// All voters, those that move behind the others.
    fn all_voters(&self) -> u64 {
        self.homes.all() + self.moving_voters()
    }

    /// Those that move.
    fn moving_voters(&self) -> u64 {
        self.moves.as_ref().map_or(0, |it| it.moves.voters.into())
    }

    /// Whether the client takes voters instead of voting.
    pub(super) fn takes(&self, number: usize) -> bool {
        let of_home = number / self.homes.homes as usize;
        self.moves.as_ref().is_some_and(|it| of_home < it.moves.clients as usize)
    }

    /// Whether some clients may take voters.
    pub(super) fn has_moves(&self) -> bool {
        self.moves.is_some()
    }

    /// Takes a group of voters to the client's home.
    async fn take<D: Database>(&self, db: &D, client: &HomeClient) -> Result<Done> {
        let moving = self.moves.as_ref().expect("the client takes voters");
        let group = moving.take(client.home).ok_or_else(|| {
            Error::reject("all voters have been taken once: measure for a shorter time")
        })?;
        let first = self.homes.all() + u64::from(group * moving.moves.together);
        let voters = first..first + u64::from(moving.moves.together);
        // The client's row stands behind those of the contestants.
        let own = (self.contestants() + client.number as u32).to_be_bytes();
        let mut runs = 0;
        let taken = db.transact(async |tx| {
            runs += 1;
            tx.put(self.contestants, &own, &i64::from(group).to_le_bytes())?;
            self.read_all(tx, voters.clone()).await?;
            if moving.moves.rolls_back { Err(Error::reject(TAKEN)) } else { Ok(()) }
        });
        let taken = taken.await;
        moving.put_back(group, client.home);
        let rolled_back = match taken {
            Err(Error::Rejected(Rejected::Procedure { reason })) if *reason == *TAKEN => true,
            taken => taken.map(|()| false)?,
        };
        Ok(Done { kind: MOVE, retries: runs - 1, rolled_back })
    }

    async fn read_all<X: Transaction>(&self, tx: &X, voters: Range<u64>) -> Result<()> {
        let keys: Vec<[u8; 4]> = voters.map(key).collect();
        let places: Vec<(TableId, &[u8])> =
            keys.iter().map(|key| (self.voters, &key[..])).collect();
        tx.prefetch(&places);
        for (voters, key) in places {
            number(tx.get(voters, key).await?)?;
        }
        Ok(())
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
        let moves = self.moves.iter().flat_map(|it| {
            let VoterMoves { clients, voters, together, rolls_back: _ } = it.moves;
            [
                ("voters that move", voters.to_string()),
                ("voters that move together", together.to_string()),
                ("clients of a home that take voters", clients.to_string()),
            ]
        });
        self.homes.parameters("voters").into_iter().chain([contestants]).chain(moves).collect()
    }

    fn kinds(&self) -> &'static [&'static str] {
        if self.moves.is_some() { &KINDS } else { &KINDS[..=VOTE] }
    }

    fn load_parts(&self) -> usize {
        self.homes.parts() + rows::parts(self.moving_voters())
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        _seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let row = |number| (key(number), 0_i64.to_le_bytes());
        if let Some(home) = self.homes.begins_home(part) {
            let homes = self.homes.homes as usize;
            for contestant in (home..self.contestants()).step_by(homes).map(u64::from) {
                rows::load(db, self.contestants, contestant..contestant + 1, row, loaded).await?;
            }
        }
        let voters = match part.checked_sub(self.homes.parts()) {
            None => self.homes.part(part),
            Some(part) => {
                let Range { start, end } = rows::part_of(self.moving_voters(), part);
                self.homes.all() + start..self.homes.all() + end
            }
        };
        rows::load(db, self.voters, voters, row, loaded).await
    }

    fn rows(&self) -> u64 {
        self.all_voters() + u64::from(self.contestants())
    }

    fn client(&self, number: usize, seed: u64) -> HomeClient {
        self.homes.client(number, seed)
    }

    async fn next<D: Database>(&self, db: &D, client: &mut HomeClient) -> Result<Done> {
        if self.takes(client.number) {
            return self.take(db, client).await;
        }
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
        Ok(Done { kind: VOTE, retries: runs - 1, rolled_back: !is_counted })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (mut missing, mut sums) = (0, [0_u64; 2]);
        let tables =
            [(self.voters, self.all_voters()), (self.contestants, u64::from(self.contestants()))];
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
