//! Whether a node is able to serve.

use crate::status::NodeStatus;

/// The first problem of a node with these statuses of its workers, if there is one. `None` in the place of a
/// worker that does not answer.
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
    let held: Vec<_> = status.shards.iter().filter(|shard| shard.memory_bytes.is_some()).collect();
    if let Some(outage) = held.iter().find_map(|shard| shard.outage.clone()) {
        return Some(outage);
    }
    if let Some(shard) = held.iter().find(|shard| shard.empty.contains(&status.node)) {
        return Some(format!(
            "{name} began anew, and its copy of S{} is empty: it does not count until it has caught up",
            shard.shard
        ));
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
    fn a_node_is_not_well_while_a_shard_of_its_own_is_out_or_its_copy_is_empty() {
        let held = |shard: ShardStatus| NodeStatus {
            shards: vec![ShardStatus { memory_bytes: Some(1), ..shard }],
            ..leader(false, false, Some(7))
        };
        let empty = ShardStatus { empty: vec![0], ..ShardStatus::default() };
        let why =
            "n0 began anew, and its copy of S0 is empty: it does not count until it has caught up";
        says(Some(held(empty.clone())), Some(why));
        says(Some(held(ShardStatus { empty: vec![1], ..ShardStatus::default() })), None);
        let outage = Some("S0 is lost".to_owned());
        says(Some(held(ShardStatus { outage: outage.clone(), ..empty })), outage.as_deref());
        // The shard of other nodes.
        let elsewhere = ShardStatus { outage, ..ShardStatus::default() };
        let node = NodeStatus { shards: vec![elsewhere], ..leader(false, false, Some(7)) };
        says(Some(node), None);
    }

    #[test]
    fn a_node_is_well_if_it_has_what_it_needs_for_its_shards() {
        says(Some(leader(true, true, Some(7))), None);
        says(Some(leader(false, false, Some(0))), None);
        says(None, Some("worker 1 does not answer"));
        let first_peer = NodeStatus { admitted: false, ..leader(false, false, None) };
        says(Some(first_peer), Some("n0 is not admitted to the cluster yet"));
        says(Some(leader(true, true, Some(0))), Some("n0 leads S0, and its lease has run out"));
        let unready = "n0 is to lead S0, and worker 0 is not ready to";
        says(Some(leader(true, false, Some(7))), Some(unready));
    }
}
