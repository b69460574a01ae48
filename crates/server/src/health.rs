//! Whether a node has what it needs to serve.

use crate::status::NodeStatus;

/// What is wrong with a node whose workers say this of themselves, if something is. `None` in the place of a
/// worker that says nothing.
pub(crate) fn trouble(workers: &[Option<NodeStatus>]) -> Option<String> {
    workers.iter().enumerate().find_map(|(worker, status)| match status {
        None => Some(format!("worker {worker} does not answer")),
        Some(status) => trouble_of(status),
    })
}

fn trouble_of(status: &NodeStatus) -> Option<String> {
    let NodeStatus { name, worker, .. } = status;
    if !status.admitted {
        return Some(format!("{name} is not admitted to the cluster yet"));
    }
    let led = status.shards.iter().find(|shard| shard.appointed)?;
    if status.lease_ms == Some(0) {
        return Some(format!("{name} leads S{}, and its lease has run out", led.shard));
    }
    let mut appointed = status.shards.iter().filter(|shard| shard.appointed);
    let recovers = appointed.find(|shard| {
        let stream = status.streams.iter().find(|stream| stream.shard == shard.shard);
        !stream.is_some_and(|stream| stream.leading)
    })?;
    Some(format!("{name} is to lead S{}, and worker {worker} is not ready to", recovers.shard))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{ShardStatus, StreamStatus};

    fn leader(appointed: bool, leading: bool, lease_ms: Option<u64>) -> NodeStatus {
        NodeStatus {
            name: "n0".to_owned(),
            admitted: true,
            lease_ms,
            shards: vec![ShardStatus { appointed, ..ShardStatus::default() }],
            streams: vec![StreamStatus { leading, ..StreamStatus::default() }],
            ..NodeStatus::default()
        }
    }

    #[track_caller]
    fn says(status: Option<NodeStatus>, expected: Option<&str>) {
        assert_eq!(trouble(&[Some(leader(true, true, None)), status]).as_deref(), expected);
    }

    #[test]
    fn a_node_is_well_if_it_has_what_its_offices_take() {
        says(Some(leader(true, true, Some(7))), None);
        says(Some(leader(false, false, Some(0))), None);
        says(None, Some("worker 1 does not answer"));
        let stranger = NodeStatus { admitted: false, ..leader(false, false, None) };
        says(Some(stranger), Some("n0 is not admitted to the cluster yet"));
        says(Some(leader(true, true, Some(0))), Some("n0 leads S0, and its lease has run out"));
        let unready = "n0 is to lead S0, and worker 0 is not ready to";
        says(Some(leader(true, false, Some(7))), Some(unready));
    }
}
