//! M7: a leader is appointed only after the lease of the former one has ended, in true time; and once it
//! serves, no former one acts.
//!
//! The first check is the stricter one: a successor needs a while to learn of its appointment and to recover
//! the shard, and by then a lease that was given up too early has mostly ended.

use super::verdict::RuleVerdict;
use shoal_types::{Ballot, NodeId, ShardId, Time};
use std::collections::BTreeMap;

/// The newest ballot that serves each shard, or has served it.
#[derive(Debug, Default)]
pub struct Leases {
    served: BTreeMap<ShardId, Ballot>,
}

impl Leases {
    /// A leader has begun to serve.
    pub fn serves(&mut self, shard: ShardId, ballot: Ballot) {
        let served = self.served.entry(shard).or_default();
        *served = ballot.max(*served);
    }

    /// The managers have appointed a leader under `ballot`. `node` still takes itself for the leader under `former`, and
    /// its lease ends at `lease_end`, in true time.
    pub fn appointed(
        shard: ShardId,
        ballot: Ballot,
        node: NodeId,
        former: Ballot,
        lease_end: Time,
        now: Time,
    ) -> RuleVerdict {
        if former < ballot && now < lease_end {
            return Err(format!(
                "{ballot} is appointed to {shard}, and the lease of {node}, which leads it as {former}, \
                 lasts until {lease_end}"
            ));
        }
        Ok(())
    }

    /// A leader has acted under `ballot`.
    pub fn acted(&self, shard: ShardId, ballot: Ballot) -> RuleVerdict {
        match self.served.get(&shard) {
            Some(served) if *served > ballot => {
                Err(format!("{ballot} has acted for {shard}, which {served} serves by now"))
            }
            _ => Ok(()),
        }
    }
}
