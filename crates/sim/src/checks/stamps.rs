//! M1: a stamp covers the stamps of every version read, present or absent, that is not durable; and every
//! version that a transaction installs, on any shard, carries the whole stamp with which the transaction was
//! certified. The second allows the first to be judged by the versions that are read, and M5 and M6 by the
//! stamps that replicas keep: a version without its writer's other shards would hide them from all three.

use super::durable::Durable;
use super::transactions::SeenAttempt;
use super::verdict::RuleVerdict;
use shoal_engine::TransactionId;
use shoal_types::{ShardId, Stamp};

/// Judges a transaction that has just been certified.
pub fn check(id: TransactionId, seen: &SeenAttempt, durable: &Durable) -> RuleVerdict {
    let Some(certified) = &seen.certified else { return Ok(()) };
    let stamp = certified.stamp.seen_by(certified.own);
    for read in &seen.reads {
        if read.stamp.epoch != certified.stamp.epoch {
            continue; // M8 judges reads of later epochs.
        }
        let version = read.stamp.seen_by(read.shard);
        for shard in durable.shards() {
            let needed = version.entry(shard);
            let is_durable = needed <= durable.of_epoch(shard, read.stamp.epoch);
            if !is_durable && stamp.entry(shard) < needed {
                let what = if read.tombstone { "a tombstone" } else { "a version" };
                return Err(format!(
                    "{id} read {what} on {} that depends on {shard} up to {needed}, which is not \
                     durable, but its stamp says {}",
                    read.shard,
                    stamp.entry(shard)
                ));
            }
        }
    }
    for (shard, clock) in &certified.writes {
        if stamp.entry(*shard) < *clock {
            return Err(format!("{id} drew {clock} on {shard}, which its stamp does not cover"));
        }
    }
    let mut installed = seen.installed.iter();
    installed.try_for_each(|(shard, stamp)| carries(id, seen, *shard, stamp, durable))
}

/// Judges a version's stamp, as `shard` keeps it, by the stamp with which its writer was certified, if it was
/// already: a participant that certifies on behalf of its coordinator does so earlier.
pub fn carries(
    id: TransactionId,
    writer: &SeenAttempt,
    shard: ShardId,
    stamp: &Stamp,
    durable: &Durable,
) -> RuleVerdict {
    let Some(certified) = &writer.certified else { return Ok(()) };
    if stamp.epoch != certified.stamp.epoch {
        return Err(format!("{id} of {} wrote as of {}", certified.stamp.epoch, stamp.epoch));
    }
    let (whole, kept) = (certified.stamp.seen_by(certified.own), stamp.seen_by(shard));
    for other in durable.shards() {
        let needed = whole.entry(other);
        let is_durable = needed <= durable.of_epoch(other, stamp.epoch);
        if !is_durable && kept.entry(other) < needed {
            return Err(format!(
                "a version of {shard} that {id} wrote says that it depends on {other} up to {}, but \
                 {id} was certified as depending on it up to {needed}, which is not durable",
                kept.entry(other)
            ));
        }
    }
    Ok(())
}
