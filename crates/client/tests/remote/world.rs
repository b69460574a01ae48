//! Surroundings that a test makes: what the client does about nodes that cannot be reached as sockets would have it.

use shoal_client::environment::{
    ClientEnvironment, ConnectFailure, EnvironmentConnection, EnvironmentFuture,
};
use shoal_client::{Cause, Cluster, ClusterId, ClusterOptions, NodeId, ShardId};
use shoal_cluster::topology::Topology;
use shoal_engine::WorkerPlace;
use shoal_engine::client::{ClientRouting, Directory};
use shoal_types::{Aborted, Awaited, Error, Random, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A client that waits more often in ten seconds does nothing but that.
const WAITS_MAX: usize = 10_000;

/// No node can be reached, for this reason.
#[derive(Debug)]
struct Unreachable {
    cause: Cause,
    began: Instant,
    waits: AtomicUsize,
}

impl ClientEnvironment for Unreachable {
    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn sleep_until(&self, at: Time) -> EnvironmentFuture<()> {
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        assert!(waits < WAITS_MAX, "the client asks again and again at {}", self.now());
        Box::pin(tokio::time::sleep_until(self.began + Duration::from_nanos(at.0)))
    }

    fn spawn(&self, task: EnvironmentFuture<()>) {
        tokio::spawn(task);
    }

    fn connect(
        &self,
        _: WorkerPlace,
        _: Option<Arc<str>>,
        _: Option<ClusterId>,
    ) -> EnvironmentFuture<Result<EnvironmentConnection, ConnectFailure>> {
        let unreached = ConnectFailure { cause: self.cause, found: None };
        Box::pin(std::future::ready(Err(unreached)))
    }

    fn visit(
        &self,
        _: Arc<str>,
        _: Option<ClusterId>,
    ) -> EnvironmentFuture<Option<(NodeId, Option<ClusterId>, Directory)>> {
        Box::pin(std::future::ready(None))
    }
}

async fn calls_in_vain(cause: Cause) {
    let world = Unreachable { cause, began: Instant::now(), waits: AtomicUsize::new(0) };
    let topology = Arc::new(Topology::compact(1, 3, 3, 0, 1));
    let heard = Directory { topology, configuration: None, routing: ClientRouting::Leaders };
    let options = ClusterOptions::default();
    let deadline = options.deadline;
    let cluster = Cluster::in_world(Arc::new(world), options, heard, Random::new(1));
    let error = cluster.call(ShardId(0), "restock", "screws").await.expect_err("no node is there");
    let Error::Aborted(Aborted::Unanswered(wait)) = error else { panic!("{error}") };
    assert_eq!((wait.awaited, wait.cause), (Awaited::CallSession, cause));
    assert!(wait.waited >= deadline, "{wait:?}");
}

/// A node that does not answer the handshake fails with the cause that a late answer has as well.
#[tokio::test(start_paused = true)]
async fn a_call_pauses_where_no_node_answers_the_handshake() {
    calls_in_vain(Cause::Silent).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_pauses_where_no_node_listens() {
    calls_in_vain(Cause::NotListening).await;
}
