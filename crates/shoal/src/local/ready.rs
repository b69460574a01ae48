//! Waiting until a cluster serves.

use crate::clock::now;
use crate::report::Report;
use net::client::Access;
use std::time::Duration;

/// Until every shard is served.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is asked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until every node answers and every shard is served.
///
/// # Errors
/// A sentence that says what is missing, after half a minute.
pub async fn wait_ready(addresses: &[String]) -> Result<Report, String> {
    let access = Access::open("shoal");
    let began = now();
    loop {
        let report = Report::gather(addresses, &access).await;
        if report.as_ref().is_ok_and(Report::is_well) {
            return report;
        }
        if began.elapsed() > PATIENCE {
            let missing = |_| "not every shard is served".to_owned();
            return Err(report.map_or_else(|error| error, missing));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
