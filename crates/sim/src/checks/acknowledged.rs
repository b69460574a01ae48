//! What was told as committed is there: each of its writes was installed. That the installed versions
//! are what every replica holds in the end, or newer ones, is for `replicas.rs` to say.

use super::transactions::Transactions;

/// See the module.
pub struct Acknowledged;

impl Acknowledged {
    /// Judges all transactions, when all is quiet.
    pub fn check(transactions: &Transactions) -> super::Verdict {
        for (id, seen) in transactions.all() {
            let Some(certified) = &seen.certified else { continue };
            let missing = certified.writes.iter().find(|write| !seen.installed.contains(write));
            if let Some((shard, clock)) = missing {
                let how = if seen.told { "told as committed" } else { "certified" };
                return Err(format!("{id} was {how}, and never installed {clock} on {shard}"));
            }
        }
        Ok(())
    }
}
