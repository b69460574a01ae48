//! Waiting until a cluster serves, or is whole.

use super::{ClusterFolder, LocalNode};
use crate::clock::now;
use crate::report::StatusReport;
use shoal_net::client::Access;
use std::time::Duration;

/// Until every shard is served.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interval between two requests.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until every node answers and every shard is served.
///
/// # Errors
/// A sentence that says what is missing, after half a minute.
pub async fn wait_ready(addresses: &[String], access: &Access) -> Result<StatusReport, String> {
    let began = now();
    loop {
        let report = StatusReport::gather(addresses, access).await;
        if report.as_ref().is_ok_and(StatusReport::is_well) {
            return report;
        }
        if began.elapsed() > PATIENCE {
            let missing = |report: StatusReport| report.missing().unwrap_or_default();
            return Err(report.map_or_else(|error| error, missing));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until the cluster in `folder` [is whole](StatusReport::missing_of_whole). For each node of `killed`, whose
/// process was killed, another has to be in its place.
///
/// # Errors
/// A sentence that says what is missing after so long.
pub async fn wait_whole(
    folder: &ClusterFolder,
    killed: &[LocalNode],
    patience: Duration,
) -> Result<(), String> {
    let began = now();
    loop {
        let Some(missing) = missing(folder, killed).await? else { return Ok(()) };
        if began.elapsed() > patience {
            return Err(format!("the cluster is not whole after {patience:?}: {missing}"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn missing(folder: &ClusterFolder, killed: &[LocalNode]) -> Result<Option<String>, String> {
    let cluster = folder.read()?;
    let same = |node: &LocalNode| {
        killed.iter().any(|killed| killed.name == node.name && killed.process == node.process)
    };
    if let Some(node) = cluster.nodes.iter().find(|node| same(node)) {
        return Ok(Some(format!("{} was killed, and is not started again", node.name)));
    }
    let report = StatusReport::gather(&cluster.addresses(), &cluster.access).await;
    Ok(report.map_or_else(Some, |report| report.missing_of_whole()))
}
