//! P4, for an engine that installs only what is durable: a version's record is accepted by a majority of the
//! voters before the version is installed or applied, and before a client receives it.
//!
//! A record is the entry of a stream that carries the version's clock: what prepares the transaction
//! on that shard, or commits it.

use super::durable::Durable;
use super::transactions::SeenAttempt;
use super::verdict::RuleVerdict;
use shoal_engine::TransactionId;
use shoal_types::{Clock, ShardId, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// The stream entry that is the record of each clock.
#[derive(Debug, Default)]
pub struct Records {
    entries: BTreeMap<(ShardId, WorkerId, Clock), u64>,
    /// The workers that have appended any.
    workers: BTreeSet<WorkerId>,
}

impl Records {
    /// An entry with these clocks was appended.
    pub fn appended(&mut self, shard: ShardId, worker: WorkerId, index: u64, clocks: &[Clock]) {
        self.workers.insert(worker);
        self.entries.extend(clocks.iter().map(|clock| ((shard, worker, *clock), index)));
    }

    /// Judges that a version is installed by its leader, or applied by a follower.
    pub fn visible(
        &self,
        shard: ShardId,
        worker: WorkerId,
        clock: Clock,
        durable: &Durable,
    ) -> RuleVerdict {
        let violation =
            |why| Err(format!("a version of {shard} with clock {clock} is visible, and {why}"));
        match self.entries.get(&(shard, worker, clock)) {
            None => violation("there is no record of it".to_owned()),
            Some(index) if *index >= durable.decided(shard, worker) => {
                violation(format!("no majority has accepted entry {index}, its record"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Judges that a row comes with a copy, which any worker's stream can have brought to its sender.
    pub fn copied(&self, shard: ShardId, clock: Clock, durable: &Durable) -> RuleVerdict {
        let mut verdicts =
            self.workers.iter().map(|worker| self.visible(shard, *worker, clock, durable));
        match verdicts.any(|verdict| verdict.is_ok()) {
            true => Ok(()),
            false => {
                Err(format!("a copy of {shard} has clock {clock}, whose record is not durable"))
            }
        }
    }

    /// Judges that a client receives the outcome of a transaction.
    pub fn reported(
        &self,
        id: TransactionId,
        seen: &SeenAttempt,
        durable: &Durable,
    ) -> RuleVerdict {
        let writes = seen.certified.iter().flat_map(|certified| &certified.writes);
        for (shard, clock) in writes {
            self.visible(*shard, id.worker, *clock, durable)
                .map_err(|what| format!("a client was told of {id}: {what}"))?;
        }
        Ok(())
    }
}
