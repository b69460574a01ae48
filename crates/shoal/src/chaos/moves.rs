//! A replica that moves to another node while something fails.

use crate::nodes::NodeChange;
use crate::operator::{ChangeError, Operator};
use crate::report::StatusReport;
use shoal_net::client::Access;
use shoal_types::{Random, ShardId};
use std::time::Duration;

/// The longest pause between the beginning of a round and that of its replacement, in milliseconds: some begin before the failure
/// is noticed, some after another node has taken over.
const PAUSE_MS_MAX: u64 = 3000;

/// Moves replicas, one in each round.
#[derive(Debug)]
pub struct ReplicaMoves {
    /// Where nodes are.
    pub addresses: Vec<String>,
    /// What lets clients in.
    pub access: Access,
    /// What lets operators in.
    pub operator: Access,
    /// A replacement that takes longer is an error.
    pub within: Duration,
}

/// A replica that is to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMove {
    shard: ShardId,
    outgoing: String,
    incoming: String,
    after: Duration,
    number: u64,
}

impl ReplicaMoves {
    /// Draws a replica, of any shard and in any role, and a node that has none of it; none, if every node holds every shard.
    ///
    /// # Errors
    /// A sentence, if no node answers.
    pub async fn draw(&self, random: &mut Random) -> Result<Option<PlannedMove>, String> {
        let report = StatusReport::gather(&self.addresses, &self.access).await?;
        Ok(plan(&report, random))
    }

    /// Moves the replica, and waits until the new one has its role. Returns false if that was refused, as where the node had held
    /// a replica of the shard before, in the same process.
    ///
    /// # Errors
    /// A sentence, if it is not done in time.
    pub async fn carry_out(&self, planned: &PlannedMove) -> Result<bool, String> {
        tokio::time::sleep(planned.after).await;
        let change = NodeChange {
            operator: Operator {
                addresses: self.addresses.clone(),
                access: self.access.clone(),
                operator: self.operator.clone(),
                within: self.within,
            },
            outgoing: planned.outgoing.clone(),
            incoming: Some(planned.incoming.clone()),
            shard: Some(planned.shard),
            number: planned.number,
        };
        match change.run(|_| {}).await {
            Ok(end) => Ok(end.has_moved()),
            Err(ChangeError::Refused(_) | ChangeError::Cannot(_)) => Ok(false),
            Err(error) => {
                let PlannedMove { shard, outgoing, incoming, .. } = planned;
                Err(format!("S{} from {outgoing} to {incoming}: {error}", shard.0))
            }
        }
    }
}

fn plan(report: &StatusReport, random: &mut Random) -> Option<PlannedMove> {
    let shard = ShardId(random.below(report.topology.shards().into()) as u32);
    let voters = report.voters(shard.0);
    let others = report.topology.members().filter(|node| !voters.contains(&node.id.0));
    let others: Vec<&str> = others.map(|node| &*node.name).collect();
    let holders = report.topology.members().filter(|node| voters.contains(&node.id.0));
    let holders: Vec<&str> = holders.map(|node| &*node.name).collect();
    Some(PlannedMove {
        shard,
        outgoing: (*random.pick(&holders)?).to_owned(),
        incoming: (*random.pick(&others)?).to_owned(),
        after: Duration::from_millis(random.below(PAUSE_MS_MAX)),
        number: random.next_u64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::topology::Topology;
    use shoal_server::{NodeStatus, ShardStatus};

    #[test]
    fn a_replica_goes_to_a_node_that_has_none() {
        let topology = Topology::symmetric(1, 2, 3, 0, 1);
        let shards = (0..2).map(|shard| ShardStatus {
            shard,
            voters: vec![3 * shard, 3 * shard + 1, 3 * shard + 2],
            ..ShardStatus::default()
        });
        let status = NodeStatus { shards: shards.collect(), ..NodeStatus::default() };
        let report = StatusReport { topology, nodes: vec![Ok(status)], skews: vec![None] };
        for seed in 0..50 {
            let planned = plan(&report, &mut Random::new(seed)).expect("there are other nodes");
            let own = format!("s{}v", planned.shard.0);
            assert!(planned.outgoing.starts_with(&own), "{planned:?}");
            assert!(!planned.incoming.starts_with(&own), "{planned:?}");
        }
        let topology = Topology::compact(1, 1, 3, 0, 1);
        let report = StatusReport { topology, ..report };
        assert_eq!(plan(&report, &mut Random::new(1)), None);
    }
}
