//! Workloads whose data has homes, after the experiments of Zeus (EuroSys'21, §8): a client works with the objects of its own
//! home, and a given share of its writing transactions takes an object of another one.
//!
//! | workload | objects | writes |
//! |---|---|---|
//! | [`SmallBank`] | accounts of two rows | 85 %, two of six types on two accounts |
//! | [`Tatp`] | subscribers of up to twelve rows | 20 % |
//! | [`Voter`] | voters and contestants | all |
//! | [`Handovers`] | users and base stations, rows of 400 bytes | all |
//!
//! No transaction and no check scans: an engine whose scans stay within a granule runs all of them. Keys begin with the
//! number of an object, four big-endian bytes. Tables are distributed key by key: an engine that moves rows brings them to
//! their home, and any other has most of them elsewhere.

mod handovers;
mod homes;
mod small_bank;
mod tatp;
mod voter;

pub use handovers::{HandoverShares, Handovers};
pub use homes::{HomeClient, Homes};
pub use small_bank::SmallBank;
pub use tatp::Tatp;
pub use voter::Voter;

use crate::placed::{Division, Placed};
use shoal_types::ShardId;

macro_rules! place_by_homes {
    ($($workload:ty),*) => {
        $(impl Placed for $workload {
            fn division(&self, _table: &str, _shards: u32) -> Division {
                Division::ByKey
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

place_by_homes!(SmallBank, Tatp, Voter, Handovers);
