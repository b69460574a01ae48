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
            let is_there = |(shard, clock): &(ShardId, Clock)| {
                seen.installed
                    .iter()
                    .any(|(kept_by, stamp)| (kept_by, &stamp.clock) == (shard, clock))
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
