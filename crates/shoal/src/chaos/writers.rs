//! Writers that count what is acknowledged: each adds to a key of its own, over and over, and knows what has
//! to be there in the end.
//!
//! Every addition is a call, which takes effect once however often it is sent. What it returns says how many
//! have been done; so a lost one is seen even before the end.

use super::tally::{ShardTally, Tally};
use crate::clock::now;
use crate::procedures::{ADD, add_arguments};
use shoal_client::{Cluster, Error};
use shoal_types::{ShardId, TableId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Writers of each shard.
const WRITERS: usize = 4;

/// The time after which a call's outcome is reported as unknown.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether a shard is served.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Writers at work.
pub struct Writers {
    cluster: Cluster,
    table: TableId,
    shards: u32,
    began: Instant,
    writers_shared: Arc<WritersShared>,
    lanes: JoinSet<WriterState>,
}

/// What all of them share.
struct WritersShared {
    /// Set when the writers are to end.
    stop: AtomicBool,
    /// How many writes of each shard were acknowledged.
    acknowledged: Vec<AtomicU64>,
    /// How long each pauses after a write.
    pause: Duration,
}

/// What one of them has done.
struct WriterState {
    shard: ShardId,
    key: Vec<u8>,
    acknowledged: Vec<Duration>,
    unknown: u64,
    wrong: Vec<String>,
}

impl Writers {
    /// Starts them, on every shard of the cluster; each pauses for so long after a write. `run` is a number
    /// that no other run on this cluster has.
    ///
    /// # Errors
    /// If the table for them cannot be created.
    pub fn start(cluster: &Cluster, run: u32, pause: Duration) -> Result<Writers, Error> {
        let cluster = cluster.with_deadline(PATIENCE);
        let table = cluster.table("chaos.writes")?;
        let began = now();
        let shards = cluster.topology().shards();
        let writers_shared = Arc::new(WritersShared {
            stop: AtomicBool::new(false),
            acknowledged: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            pause,
        });
        let mut lanes = JoinSet::new();
        let mut missing = vec![WRITERS; shards as usize];
        for number in 0_u64.. {
            if missing.iter().all(|missing| *missing == 0) {
                break;
            }
            let key = format!("{run}-{number}").into_bytes();
            let shard = cluster.home(table, &key)?;
            let Some(left) = missing[shard.0 as usize].checked_sub(1) else { continue };
            missing[shard.0 as usize] = left;
            lanes.spawn(write(
                cluster.clone(),
                table,
                shard,
                key,
                began,
                Arc::clone(&writers_shared),
            ));
        }
        Ok(Writers { cluster, table, shards, began, writers_shared, lanes })
    }

    /// How long they are at work.
    pub fn elapsed(&self) -> Duration {
        now() - self.began
    }

    /// Waits until a write to each shard was acknowledged that has begun since now.
    ///
    /// # Errors
    /// A sentence that says which shard has none after so long.
    pub async fn until_served(&self, patience: Duration) -> Result<(), String> {
        let count =
            || self.writers_shared.acknowledged.iter().map(|count| count.load(Ordering::Relaxed));
        // Of so many of as many writers and one, one has written twice.
        let wanted: Vec<u64> = count().map(|count| count + WRITERS as u64 + 1).collect();
        let asked = now();
        while let Some(shard) = count().zip(&wanted).position(|(count, wanted)| count < *wanted) {
            if asked.elapsed() > patience {
                return Err(format!("S{shard} acknowledges no write for {patience:?}"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Ends them, and looks what is there.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn finish(mut self, struck: Duration) -> Result<Tally, Error> {
        self.writers_shared.stop.store(true, Ordering::Relaxed);
        let ended = self.elapsed();
        let mut shards: Vec<ShardTally> = (0..self.shards).map(ShardTally::new).collect();
        let mut wrong = Vec::new();
        while let Some(lane) = self.lanes.join_next().await {
            let lane = lane.expect("writers do not panic");
            let key = &lane.key;
            let found = self.cluster.transact(async |tx| tx.add(self.table, key, 0).await).await?;
            let count = lane.acknowledged.len() as u64;
            let found = found.unsigned_abs();
            let tally = &mut shards[lane.shard.0 as usize];
            tally.lost += count.saturating_sub(found);
            tally.extra += found.saturating_sub(count + lane.unknown);
            tally.unknown += lane.unknown;
            tally.acknowledged.extend(lane.acknowledged);
            wrong.extend(lane.wrong);
        }
        shards.iter_mut().for_each(|tally| tally.acknowledged.sort_unstable());
        Ok(Tally { shards, struck, ended, wrong })
    }
}

async fn write(
    cluster: Cluster,
    table: TableId,
    shard: ShardId,
    key: Vec<u8>,
    began: Instant,
    writers_shared: Arc<WritersShared>,
) -> WriterState {
    let arguments = add_arguments(table, 1, &key);
    let mut lane =
        WriterState { shard, key, acknowledged: Vec::new(), unknown: 0, wrong: Vec::new() };
    while !writers_shared.stop.load(Ordering::Relaxed) {
        match cluster.call(shard, ADD, arguments.clone()).await {
            Ok(sum) => {
                lane.acknowledged.push(now() - began);
                let least = lane.acknowledged.len() as i64;
                let sum = <[u8; 8]>::try_from(&sum[..]).map_or(-1, i64::from_le_bytes);
                if !(least..=least + lane.unknown as i64).contains(&sum) {
                    lane.wrong.push(format!("{shard}: the sum is {sum} after {least} additions"));
                }
                writers_shared.acknowledged[shard.0 as usize].fetch_add(1, Ordering::Relaxed);
                if !writers_shared.pause.is_zero() {
                    tokio::time::sleep(writers_shared.pause).await;
                }
            }
            Err(Error::Unknown(_)) => lane.unknown += 1,
            // It has not happened; again, then.
            Err(Error::Aborted(_)) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(error @ Error::Rejected(_)) => {
                lane.wrong.push(format!("{shard}: {error}"));
                break;
            }
        }
    }
    lane
}
