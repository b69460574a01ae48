//! M5: no client is told of what is not durable; and a client that is told that a transaction was rolled back
//! with its epoch is told the truth.

use super::durable::Durable;
use super::transactions::SeenAttempt;
use shoal_engine::TransactionId;
use shoal_types::{ShardId, Stamp};

/// Judges an answer that reveals what `stamp`, kept by `own`, covers. What is known of the transaction
/// itself counts as well: the engine's word for what it reveals may be too little.
pub fn check(
    id: TransactionId,
    own: ShardId,
    stamp: &Stamp,
    seen: &SeenAttempt,
    durable: &Durable,
) -> super::RuleVerdict {
    if seen.told_outcome && seen.told_rolled_back {
        return Err(format!(
            "somebody was told that {id} has committed, and that it was rolled back"
        ));
    }
    let complain = |what: &str, (shard, clock)| {
        let up_to = durable.of(shard);
        Err(format!(
            "somebody was told of {id}, {what} depends on {shard} up to {clock}, while it is \
             durable up to {up_to} only"
        ))
    };
    if let Some(missing) = durable.missing(own, stamp) {
        return complain("which", missing);
    }
    if let Some(certified) = &seen.certified
        && let Some(missing) = durable.missing(certified.own, &certified.stamp)
    {
        return complain("whose stamp", missing);
    }
    // Certified or not: who is told of what a transaction read goes by it.
    for read in &seen.reads {
        if let Some(missing) = durable.missing(read.shard, &read.stamp) {
            return complain("which read what", missing);
        }
    }
    Ok(())
}

/// Judges that a client is told that a transaction was rolled back with its epoch: that has ended, without
/// it, and no client was told otherwise.
pub fn rolled_back(id: TransactionId, seen: &SeenAttempt, durable: &Durable) -> super::RuleVerdict {
    if seen.told_outcome {
        return Err(format!(
            "somebody was told that {id} has committed, and that it was rolled back"
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
    Err(format!("somebody was told that {id} was rolled back with {epoch}, {why}"))
}
