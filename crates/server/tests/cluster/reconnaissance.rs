//! Procedures that declare nothing: where many want the same row, an attempt that has conflicted is followed by one that is ordered
//! by what it touched, and meets no conflict.

use crate::cluster::Cluster;
use shoal_server::Protocol;
use shoal_types::{NodeId, ShardId};
use tokio::runtime::Handle;

const CALLS: u64 = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_declares_nothing_conflicts_once_at_most() {
    let cluster = Cluster::start(1, 1, Protocol::Tiga);
    let (runtime, cluster) = (Handle::current(), &cluster);
    std::thread::scope(|threads| {
        for number in 1..=CALLS {
            let call = async move {
                cluster.client(number).call(NodeId(0), ShardId(0), "count", &[1]).await
            };
            let runtime = &runtime;
            threads.spawn(move || runtime.block_on(call).expect("it is counted"));
        }
    });
    let count = cluster.client(CALLS + 1).call(NodeId(0), ShardId(0), "count", &[1]).await;
    assert_eq!(count.as_deref(), Ok(&(CALLS as i64 + 1).to_le_bytes()[..]));
    let status = cluster.status_of(NodeId(0)).await;
    let conflicts: u64 = status.conflicts().map(|(_, count)| count).sum();
    assert!(conflicts <= CALLS, "{conflicts} conflicts of {CALLS} calls");
}
