//! What a bench needs of a cluster, beside its clients.

use shoal_cluster::topology::{Partitioning, TableDefinition};
use shoal_engine::LocalDatabase;
use shoal_engine::engine::Task;
use shoal_types::{Counted, ShardId, WorkerId};
use shoal_workloads::placed::{Division, family, granule_bytes};
use tokio::runtime::Runtime;

/// A cluster whose counters can be read.
pub trait MeasuredCluster: Send + Sync {
    /// The sums of the counters of all workers that report them. Blocks; a request waits in `runtime`.
    fn counted(&self, runtime: &Runtime) -> Counted;
}

/// Makes a task on the thread of a worker.
pub type MakeTask = Box<dyn FnOnce(&LocalDatabase) -> Task + Send>;

/// A cluster of this process. It ends when it is dropped.
pub trait OwnCluster: MeasuredCluster {
    /// The addresses of its nodes, for clients.
    fn addresses(&self) -> &[String];

    /// The number of its shards.
    fn shards(&self) -> u32;

    /// Whether tasks run at leaders. Else data is loaded from outside, so that it is at the leaders at the beginning.
    fn has_leaders(&self) -> bool;

    /// Stops, as in a crash, the node that led the shard when the cluster was ready, where it is in this process.
    fn stop_leader(&self, shard: ShardId);

    /// Runs a task on this worker of the node that led the shard when the cluster was ready, or of the one node that is in
    /// this process. A node that has ended takes no tasks, and drops it.
    fn spawn(&self, shard: ShardId, worker: WorkerId, task: MakeTask);
}

/// With what a cluster creates the table of this name, which a workload wants distributed like this.
pub fn table_definition(name: &str, division: Division) -> TableDefinition {
    let partitioning = match division {
        Division::Everywhere => Partitioning::Everywhere,
        Division::Ranges(first) => Partitioning::ranges(first),
        Division::ByPrefix(prefix_bytes) => Partitioning::Hash { prefix_bytes },
        Division::ByKey => Partitioning::Hash { prefix_bytes: 0 },
    };
    let family = family(name).map(str::to_owned);
    TableDefinition { partitioning, granule_bytes: granule_bytes(name), family }
}
