//! M1: a stamp covers the stamps of every version read, present or absent, that is not durable.

use super::durable::Durable;
use super::transactions::Seen;
use engines::TransactionId;

/// Judges a transaction that has just been certified.
pub fn check(id: TransactionId, seen: &Seen, durable: &Durable) -> super::Verdict {
    let Some(certified) = &seen.certified else { return Ok(()) };
    let stamp = certified.stamp.seen_by(certified.own);
    for read in &seen.reads {
        if read.stamp.epoch != certified.stamp.epoch {
            continue; // M8 speaks of those.
        }
        let version = read.stamp.seen_by(read.shard);
        for shard in durable.shards() {
            let needed = version.entry(shard);
            if needed > durable.of(shard) && stamp.entry(shard) < needed {
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
    Ok(())
}
