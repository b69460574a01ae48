//! Nodes that fail, and come back without what they had.

use crate::cluster::Cluster;
use shoal_server::Protocol;
use shoal_types::{NodeId, ShardId};

/// What counters of all shards stand at.
async fn counts(cluster: &Cluster, client: u64, via: NodeId) -> Vec<i64> {
    let mut client = cluster.client(client);
    let mut counts = Vec::new();
    for key in 0..10_u8 {
        let home = ShardId(u32::from(key) % 2);
        let count = client.call(via, home, "count", &[key]).await.expect("counted");
        counts.push(i64::from_le_bytes(count[..].try_into().expect("a number")) - 1);
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_leader_is_replaced_and_comes_back_as_a_follower() {
    replace_a_dead_leader(Protocol::Mako).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_leader_is_replaced_in_two_phase_commit() {
    replace_a_dead_leader(Protocol::TwoPhaseCommit).await;
}

async fn replace_a_dead_leader(protocol: Protocol) {
    let mut cluster = Cluster::start(2, 1, protocol);
    let mut client = cluster.client(1);
    for _ in 0..5 {
        client.call(NodeId(0), ShardId(1), "count_ten", &[]).await.expect("counted");
    }
    let dead = NodeId(3);
    cluster.kill(dead);
    let mut client = cluster.client(2);
    for _ in 0..5 {
        client.call(NodeId(0), ShardId(1), "count_ten", &[]).await.expect("counted");
    }
    assert_eq!(counts(&cluster, 3, NodeId(1)).await, [10; 10]);
    let leader = cluster.status_of(NodeId(0)).await.leaders[1];
    assert!(leader == 4 || leader == 5, "n{leader} has no replica of the shard");
    cluster.restart(dead);
    let wanted = cluster.status_of(NodeId(leader)).await.streams[0].decided;
    let caught_up = |status: &shoal_server::NodeStatus| {
        let stream = status.streams.first();
        stream.is_some_and(|stream| stream.decided >= wanted && !stream.leading)
    };
    cluster.until("it catches up", dead, caught_up).await;
    assert_eq!(counts(&cluster, 4, dead).await, [11; 10]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_shard_after_the_other_loses_its_leader() {
    lose_one_leader_after_the_other(Protocol::Mako).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_shard_after_the_other_loses_its_leader_in_two_phase_commit() {
    lose_one_leader_after_the_other(Protocol::TwoPhaseCommit).await;
}

async fn lose_one_leader_after_the_other(protocol: Protocol) {
    let mut cluster = Cluster::start(2, 1, protocol);
    for round in 0..2_u64 {
        for shard in 0..2_u32 {
            let status = cluster.status(NodeId(1)).await.or(cluster.status(NodeId(4)).await);
            let known = status.expect("one of them is up").leaders;
            let leader = NodeId(known.get(shard as usize).copied().unwrap_or(shard * 3));
            // The managers' log is in memory here: a node that has one must not come back.
            let spared = leader.0 < 3;
            if !spared {
                cluster.kill(leader);
            }
            let mut client = cluster.client(10 + round * 2 + u64::from(shard));
            let via = NodeId((leader.0 + 1) % 6);
            client.call(via, ShardId(shard), "count_ten", &[]).await.expect("counted");
            if !spared {
                cluster.restart(leader);
                // Until it votes again, no other replica may fail.
                let votes = |status: &shoal_server::NodeStatus| {
                    status.empty == 0 && status.streams[0].decided > 0
                };
                cluster.until("it votes again", leader, votes).await;
            }
        }
    }
    assert_eq!(counts(&cluster, 3, NodeId(0)).await, [4; 10]);
}
