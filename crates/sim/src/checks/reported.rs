//! M5: no client receives what is not durable; and a client learns that a transaction was rolled back with
//! its epoch only if it was.

use super::durable::Durable;
use super::transactions::SeenAttempt;
use super::verdict::RuleVerdict;
use shoal_engine::TransactionId;
use shoal_types::{ShardId, Stamp};

/// Judges an answer that reveals what `stamp`, kept by `own`, covers. The versions that the transaction is
/// known to have read count as well: the stamp that the engine reports may cover too little.
pub fn check(
    id: TransactionId,
    own: ShardId,
    stamp: &Stamp,
    seen: &SeenAttempt,
    durable: &Durable,
) -> RuleVerdict {
    if seen.reported_outcome && seen.reported_rolled_back {
        return Err(format!(
            "a client was told that {id} has committed, and that it was rolled back"
        ));
    }
    let violation = |what: &str, (shard, clock)| {
        let up_to = durable.of(shard);
        Err(format!(
            "a client was told of {id}, {what} depends on {shard} up to {clock}, while it is \
             durable up to {up_to} only"
        ))
    };
    if let Some(missing) = durable.missing(own, stamp) {
        return violation("which", missing);
    }
    if let Some(certified) = &seen.certified
        && let Some(missing) = durable.missing(certified.own, &certified.stamp)
    {
        return violation("whose stamp", missing);
    }
    // Certified or not: the reply reveals what the transaction has read.
    for read in &seen.reads {
        if let Some(missing) = durable.missing(read.shard, &read.stamp) {
            return violation("which read what", missing);
        }
    }
    Ok(())
}

/// Judges that a client learns that a transaction was rolled back with its epoch: the epoch has ended
/// without it, and no client was answered otherwise.
pub fn rolled_back(id: TransactionId, seen: &SeenAttempt, durable: &Durable) -> RuleVerdict {
    if seen.reported_outcome {
        return Err(format!(
            "a client was told that {id} has committed, and that it was rolled back"
        ));
    }
    let Some(certified) = &seen.certified else { return Ok(()) };
    if durable.is_rolled_back(certified.own, &certified.stamp) {
        return Ok(());
    }
    let epoch = certified.stamp.epoch;
    let why = match durable.last(epoch) {
        None => "and no shard has ended that before it",
        Some(_) => "whose FVW covers it",
    };
    Err(format!("a client was told that {id} was rolled back with {epoch}, {why}"))
}
