//! Workloads whose data has homes, after the experiments of Zeus (EuroSys'21, §8): a client works with the objects of its own
//! home, and a given share of its writing transactions takes an object of another one.
//!
//! | workload | objects | writes |
//! |---|---|---|
//! | [`SmallBank`] | accounts of two rows | 85 %, two of six types on two accounts |
//! | [`Tatp`] | subscribers of up to twelve rows | 20 % |
//! | [`Voter`] | voters and contestants | all |
//! | [`Handovers`] | users and base stations, rows of 400 bytes | all |
//! | [`Updates`] | rows of 400 bytes | all, one row each |
//!
//! No transaction and no check scans: an engine whose scans stay within a granule runs all of them. Keys begin with the
//! number of an object, four big-endian bytes. Tables are distributed object by object: an engine that moves rows brings them to
//! their home, and any other has most of them elsewhere.

mod handovers;
mod homes;
mod small_bank;
mod tatp;
mod updates;
mod voter;

pub use handovers::{HandoverShares, Handovers};
pub use homes::{HomeClient, Homes};
pub use small_bank::SmallBank;
pub use tatp::Tatp;
pub use updates::Updates;
pub use voter::{Voter, VoterMoves};

use crate::placed::{Division, Placed, in_turns, unplaced_division};
use shoal_types::ShardId;

macro_rules! place_by_homes {
    ($($workload:ty $({ $($own:item)* })?),*) => {
        $(impl Placed for $workload {
            $($($own)*)?

            fn division(&self, table: &str, _shards: u32) -> Division {
                unplaced_division(table)
            }

            fn part_shard(&self, part: usize, shards: u32) -> ShardId {
                ShardId((part % shards as usize) as u32)
            }

            fn client_shard(&self, number: usize, shards: u32) -> ShardId {
                ShardId((number % shards as usize) as u32)
            }
        })*
    };
}

place_by_homes!(
    SmallBank,
    Tatp,
    Handovers,
    Updates,
    Voter {
        /// Clients that take voters are on the last worker, and no other client is there.
        fn client_worker(&self, number: usize, shards: u32, workers: u32) -> u32 {
            match self.has_moves() {
                true if self.takes(number) => workers - 1,
                true => in_turns(number, shards, (workers - 1).max(1)),
                false => in_turns(number, shards, workers),
            }
        }
    }
);
