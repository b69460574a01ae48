//! M9: every node and manager that learns the FVW of an epoch learns the same one; it covers nothing that is
//! not durable, and everything that a client received or a follower applied.

use super::durable::Durable;
use super::verdict::RuleVerdict;
use shoal_types::{Clock, Epoch, ShardId, Stamp, VectorWatermark};
use std::collections::BTreeMap;

/// For each epoch, the greatest clocks that a client or follower took for durable.
#[derive(Debug, Default)]
pub struct Finals {
    taken: BTreeMap<(Epoch, ShardId), Clock>,
}

impl Finals {
    /// A client received a version with this stamp, or a follower has applied it.
    pub fn taken(&mut self, own: ShardId, stamp: &Stamp, durable: &Durable) {
        let view = stamp.seen_by(own);
        for shard in durable.shards() {
            let clock = view.entry(shard);
            if clock > Clock::ZERO {
                let taken = self.taken.entry((stamp.epoch, shard)).or_default();
                *taken = clock.max(*taken);
            }
        }
    }

    /// A leader reports how an epoch ended on its shard.
    pub fn reported(
        shard: ShardId,
        epoch: Epoch,
        watermark: Clock,
        durable: &Durable,
    ) -> RuleVerdict {
        let accepted = durable.accepted_of_epoch(shard, epoch);
        if watermark <= accepted {
            return Ok(());
        }
        Err(format!(
            "{epoch} is reported to end at {watermark} on {shard}, of which a majority of the voters has \
             accepted {accepted} only"
        ))
    }

    /// A manager or a node reports the FVW of an epoch.
    pub fn settled(&self, last: &VectorWatermark, durable: &mut Durable) -> RuleVerdict {
        let epoch = last.epoch();
        if let Some(before) = durable.last(epoch) {
            if before == last {
                return Ok(());
            }
            return Err(format!("the FVW of {epoch} is {last:?} here, and was {before:?}"));
        }
        for shard in durable.shards() {
            let (clock, accepted) = (last.of(shard), durable.accepted_of_epoch(shard, epoch));
            if clock > accepted {
                return Err(format!(
                    "the FVW of {epoch} has {clock} for {shard}, of which a majority of the voters has \
                     accepted {accepted} only"
                ));
            }
            if let Some(ended) = durable.ended(shard, epoch).filter(|ended| *ended != clock) {
                return Err(format!(
                    "the FVW of {epoch} has {clock} for {shard}, whose streams have ended it at {ended}"
                ));
            }
            let taken = self.taken.get(&(epoch, shard)).copied().unwrap_or_default();
            if clock < taken {
                return Err(format!(
                    "the FVW of {epoch} has {clock} for {shard}, and what depends on {taken} was taken \
                     for durable"
                ));
            }
        }
        durable.settle(last);
        Ok(())
    }
}
