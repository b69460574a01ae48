//! What was told as committed is there: each of its writes was installed. That the installed versions
//! are what every replica holds in the end, or newer ones, is for `replicas.rs` to say.

use super::transactions::Transactions;
use types::{Clock, ShardId};

/// See the module.
pub struct Acknowledged;

impl Acknowledged {
    /// Judges all transactions, when all is quiet.
    pub fn check(transactions: &Transactions) -> super::Verdict {
        for (id, seen) in transactions.all() {
            let Some(certified) = &seen.certified else { continue };
            // A branch of blind deletes may find nothing to delete, and then it installs no version. Nor does
            // it draw a clock if it certifies on behalf of its coordinator, which takes it for a write.
            let is_there = |(shard, clock): &(ShardId, Clock)| {
                let drawn = seen.drawn.iter().find(|it| (it.0, it.1) == (*shard, *clock));
                drawn.is_none_or(|(.., installed)| *installed)
                    || seen.installed.iter().any(|it| (it.0, it.1.clock) == (*shard, *clock))
            };
            let missing = certified.writes.iter().find(|write| !is_there(write));
            if let Some((shard, clock)) = missing {
                let how = if seen.told { "told as committed" } else { "certified" };
                return Err(format!("{id} was {how}, and never installed {clock} on {shard}"));
            }
        }
        Ok(())
    }
}
