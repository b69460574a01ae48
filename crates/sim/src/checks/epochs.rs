//! M8: a transaction reads no version of a later epoch, and one of an earlier epoch only if it is
//! durable.

use super::durable::Durable;
use super::transactions::Seen;
use engines::TransactionId;

/// Judges a transaction that has just been certified.
pub fn check(id: TransactionId, seen: &Seen, durable: &Durable) -> super::Verdict {
    let Some(certified) = &seen.certified else { return Ok(()) };
    let epoch = certified.stamp.epoch;
    for read in &seen.reads {
        if read.stamp.epoch > epoch {
            return Err(format!(
                "{id} of {epoch} read a version of {} on {}",
                read.stamp.epoch, read.shard
            ));
        }
        if read.stamp.epoch < epoch
            && let Some((shard, clock)) = durable.missing(read.shard, &read.stamp)
        {
            return Err(format!(
                "{id} of {epoch} read a version of {} on {}, which depends on {shard} up to \
                 {clock}, and that is not durable",
                read.stamp.epoch, read.shard
            ));
        }
    }
    Ok(())
}
