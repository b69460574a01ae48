//! Loaders and clients of a bench within the leaders of a cluster of this process: what is measured is the database,
//! and not the way to it.

use crate::local::InProcess;
use crate::remote::Remote;
use net::Handle;
use server::Command;
use std::fmt;
use std::sync::Arc;
use types::{ShardId, WorkerId};
use workloads::bench::{Place, Who, Work};
use workloads::placed::Placed;

/// See the module. They take turns on the workers of the leader of their shard.
pub struct Inside {
    remote: Remote,
    /// The leader of each shard.
    leaders: Vec<Handle<Command>>,
    workers: u32,
    shard_of: Box<dyn Fn(Who) -> ShardId>,
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clients inside {} leaders", self.leaders.len())
    }
}

impl Inside {
    /// The clients of `workload` within this cluster, whose nodes have so many workers. `remote` judges
    /// the data.
    pub fn new(
        cluster: &InProcess,
        remote: Remote,
        workers: u32,
        workload: Arc<impl Placed>,
    ) -> Inside {
        let leaders: Vec<_> =
            (0..cluster.shards()).map(|shard| cluster.leader(ShardId(shard)).clone()).collect();
        let shards = cluster.shards();
        let shard_of = Box::new(move |who| match who {
            Who::Client(number) => workload.client_shard(number, shards),
            Who::Loader(part) => workload.part_shard(part, shards),
        });
        Inside { remote, leaders, workers, shard_of }
    }

    /// Neighbouring numbers are on different shards, or else on different workers.
    fn worker(&self, number: usize) -> usize {
        number / self.leaders.len() % self.workers as usize
    }
}

impl Place for Inside {
    type Database = Remote;

    fn database(&self) -> &Remote {
        &self.remote
    }

    fn crew(&self, client: usize) -> Option<usize> {
        let shard = (self.shard_of)(Who::Client(client)).0 as usize;
        Some(shard * self.workers as usize + self.worker(client))
    }

    /// One for each part: where that is.
    fn loaders(&self, parts: usize, _clients: usize) -> usize {
        parts
    }

    fn spawn(&self, who: Who, work: impl Work) {
        let (Who::Client(number) | Who::Loader(number)) = who;
        let worker = WorkerId(self.worker(number) as u32);
        let leader = &self.leaders[(self.shard_of)(who).0 as usize];
        let make = Command::Spawn(Box::new(move |local| Box::pin(work.run(local.clone()))));
        // A node that has ended takes none, and somebody is missed.
        let _ = leader.command(worker, make);
    }
}
