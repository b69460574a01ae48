//! At the end of a run: every covered transaction is installed on all its shards, and no other was
//! acknowledged.
//!
//! The FVW of a settled epoch covers a transaction or not: on all its shards alike, by the stamp of every
//! piece and by that of the whole. A covered transaction was installed on each of them; one that is not
//! covered was acknowledged to no client. Of the open epoch, every certified transaction is installed once
//! the cluster is quiet. That every replica holds the installed versions in the end, or newer ones, is
//! checked by `replicas.rs`.

use super::durable::Durable;
use super::transactions::{SeenAttempt, Transactions};
use super::verdict::RuleVerdict;
use shoal_engine::TransactionId;
use shoal_types::{Clock, ShardId, Stamp};

/// The check of atomicity and of acknowledged transactions at the end of a run.
pub struct Acknowledged;

impl Acknowledged {
    /// Judges all transactions once the cluster is quiet. Where a shard is `lost` for good, a transaction
    /// that depends on it counts only if a client was answered.
    pub fn check(
        transactions: &Transactions,
        durable: &Durable,
        lost: Option<ShardId>,
    ) -> RuleVerdict {
        for (id, seen) in transactions.all() {
            let is_open = |(shard, stamp): (ShardId, &Stamp)| {
                lost.is_some_and(|lost| durable.is_open(shard, stamp, lost))
            };
            let certified = seen.certified.as_ref().map(|it| (it.own, &it.stamp));
            let pieces = seen.installed.iter().map(|(shard, stamp)| (*shard, stamp));
            let may_miss =
                !seen.reported_outcome && certified.into_iter().chain(pieces).any(is_open);
            if is_covered(*id, seen, durable)? == Some(true) && !may_miss {
                is_there(*id, seen)?;
            }
        }
        Ok(())
    }

    /// The same for an engine that installs only what is decided: a transaction that was installed on one
    /// shard, or acknowledged, was installed on all its shards.
    pub fn check_installed(transactions: &Transactions) -> RuleVerdict {
        let mut counts = transactions.all().filter(|(_, seen)| {
            let is_installed = seen.drawn.iter().any(|(.., installed)| *installed);
            seen.reported_outcome || is_installed || !seen.installed.is_empty()
        });
        counts.try_for_each(|(id, seen)| is_there(*id, seen))
    }
}

/// Whether the transaction counts: all its stamps have to agree. `None` if it was not seen to be certified.
fn is_covered(
    id: TransactionId,
    seen: &SeenAttempt,
    durable: &Durable,
) -> Result<Option<bool>, String> {
    let whole = seen.certified.as_ref().map(|certified| {
        let back = durable.is_rolled_back(certified.own, &certified.stamp);
        (certified.own, !back)
    });
    let pieces = seen.installed.iter().map(|(shard, stamp)| {
        let back = durable.is_rolled_back(*shard, stamp);
        (*shard, !back)
    });
    let mut all = whole.into_iter().chain(pieces);
    let Some((first, covered)) = all.next() else { return Ok(None) };
    if let Some((other, _)) = all.find(|(_, other)| *other != covered) {
        return Err(format!(
            "{id} is torn: by its stamp on {first} it is {}, and by that on {other} it is not",
            if covered { "covered" } else { "rolled back" }
        ));
    }
    if seen.reported_outcome && !covered {
        return Err(format!("{id} was reported as committed, and was rolled back with its epoch"));
    }
    Ok(Some(covered))
}

/// Checks that the transaction was installed on every shard that it writes.
fn is_there(id: TransactionId, seen: &SeenAttempt) -> RuleVerdict {
    let Some(certified) = &seen.certified else { return Ok(()) };
    // A branch of blind deletes may find nothing to delete, and then it installs no version. Nor does
    // it draw a clock if it certifies on behalf of its coordinator, which takes it for a write.
    let is_there = |(shard, clock): &(ShardId, Clock)| {
        let drawn = seen.drawn.iter().find(|it| (it.0, it.1) == (*shard, *clock));
        drawn.is_none_or(|(.., installed)| *installed)
            || seen.installed.iter().any(|it| (it.0, it.1.clock) == (*shard, *clock))
            || seen.followed.contains(&(*shard, *clock))
    };
    let missing = certified.writes.iter().find(|write| !is_there(write));
    if let Some((shard, clock)) = missing {
        let how = if seen.reported { "reported as committed" } else { "certified" };
        return Err(format!("{id} was {how}, and never installed {clock} on {shard}"));
    }
    Ok(())
}
