//! The statuses of all workers of a cluster at one time.

use crate::ask;
use shoal_cluster::topology::Topology;
use shoal_net::SystemClock;
use shoal_net::client::Access;
use shoal_server::NodeStatus;
use shoal_types::{NodeId, Time};
use std::collections::BTreeMap;
use tokio::task::JoinSet;

/// The statuses of all workers of a cluster.
#[derive(Debug, Clone)]
pub struct TopSample {
    /// When it was taken.
    pub at: Time,
    /// Nodes, shards and tables.
    pub topology: Topology,
    /// Of each worker that answers, by node and number.
    pub workers: BTreeMap<(NodeId, u32), NodeStatus>,
}

impl TopSample {
    /// Asks all workers at once.
    ///
    /// # Errors
    /// A sentence, if none of the addresses answers.
    pub async fn take(addresses: &[String], access: &Access) -> Result<TopSample, String> {
        let topology = ask::topology(addresses, access).await?;
        let mut asked = JoinSet::new();
        for node in topology.nodes() {
            let Some(address) = node.address.clone() else { continue };
            for worker in 0..topology.workers() {
                let (address, access, place) = (address.clone(), access.clone(), (node.id, worker));
                asked.spawn(async move { (place, ask::status(&address, &access, worker).await) });
            }
        }
        let mut workers = BTreeMap::new();
        while let Some(answer) = asked.join_next().await {
            // One that does not answer is missing.
            if let Ok((place, Ok(status))) = answer {
                workers.insert(place, status);
            }
        }
        Ok(TopSample { at: SystemClock::new().now(), topology, workers })
    }
}
