//! P8, for an engine with two phases: a transaction has one outcome. No shard calls one aborted that another has installed.
//!
//! What is installed is committed, since its decision is durable (P4). That a prepared branch is aborted is judged when
//! its leader appends so, whether or not that entry is ever decided: no leader may come to think so.

use shoal_engine::TransactionId;
use shoal_types::ShardId;
use std::collections::{BTreeMap, BTreeSet};

/// The outcomes that shards have come to.
#[derive(Debug, Default)]
pub struct Outcomes {
    installed: BTreeSet<TransactionId>,
    gave_up: BTreeMap<TransactionId, ShardId>,
}

impl Outcomes {
    /// Judges that a version of a transaction is installed.
    pub fn installed(&mut self, transaction: TransactionId) -> super::RuleVerdict {
        self.installed.insert(transaction);
        self.judge(transaction)
    }

    /// Judges that a leader takes a prepared transaction for aborted.
    pub fn gave_up(&mut self, transaction: TransactionId, shard: ShardId) -> super::RuleVerdict {
        self.gave_up.insert(transaction, shard);
        self.judge(transaction)
    }

    fn judge(&self, transaction: TransactionId) -> super::RuleVerdict {
        match self.gave_up.get(&transaction) {
            Some(shard) if self.installed.contains(&transaction) => {
                Err(format!("{transaction} is installed, and {shard} takes it for aborted"))
            }
            Some(_) | None => Ok(()),
        }
    }
}
