//! M7: once a shard's next leader serves, no former one acts.

use std::collections::BTreeMap;
use types::{Ballot, ShardId};

/// Who serves what.
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

    /// A leader has acted.
    pub fn acted(&self, shard: ShardId, ballot: Ballot) -> super::Verdict {
        match self.served.get(&shard) {
            Some(served) if *served > ballot => {
                Err(format!("{ballot} has acted for {shard}, which {served} serves by now"))
            }
            _ => Ok(()),
        }
    }
}
