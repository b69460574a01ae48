//! P4: for an engine that installs only what is durable: a version's record is accepted by a majority of
//! the voters before the version is installed or applied, or a client is told.
//!
//! A record is the entry of a stream that carries the version's clock: what prepares the transaction
//! on that shard, or commits it.

use super::durable::Durable;
use super::transactions::SeenAttempt;
use shoal_engine::TransactionId;
use shoal_types::{Clock, ShardId, WorkerId};
use std::collections::BTreeMap;

/// Where the record of each clock is.
#[derive(Debug, Default)]
pub struct Records {
    entries: BTreeMap<(ShardId, WorkerId, Clock), u64>,
}

impl Records {
    /// An entry with these clocks was appended.
    pub fn appended(&mut self, shard: ShardId, worker: WorkerId, index: u64, clocks: &[Clock]) {
        self.entries.extend(clocks.iter().map(|clock| ((shard, worker, *clock), index)));
    }

    /// Judges that a version is installed by its leader, or applied by a follower.
    pub fn visible(
        &self,
        shard: ShardId,
        worker: WorkerId,
        clock: Clock,
        durable: &Durable,
    ) -> super::RuleVerdict {
        let complain =
            |why| Err(format!("a version of {shard} with clock {clock} is visible, and {why}"));
        match self.entries.get(&(shard, worker, clock)) {
            None => complain("there is no record of it".to_owned()),
            Some(index) if *index >= durable.decided(shard, worker) => {
                complain(format!("no majority has accepted entry {index}, its record"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Judges that a client is told of a transaction.
    pub fn told(
        &self,
        id: TransactionId,
        seen: &SeenAttempt,
        durable: &Durable,
    ) -> super::RuleVerdict {
        let writes = seen.certified.iter().flat_map(|certified| &certified.writes);
        for (shard, clock) in writes {
            self.visible(*shard, id.worker, *clock, durable)
                .map_err(|what| format!("somebody was told of {id}: {what}"))?;
        }
        Ok(())
    }
}
