//! Loaders and clients of a bench within the leaders of a cluster of this process: what is measured is the database,
//! and not the way to it.

use crate::cluster::OwnCluster;
use crate::remote::RemoteDatabase;
use shoal_engine::LocalDatabase;
use shoal_engine::engine::Task;
use shoal_types::{ShardId, WorkerId};
use shoal_workloads::bench::{BenchPlace, BenchRole, Work, block_on};
use shoal_workloads::placed::{Placed, in_turns};
use std::fmt;
use std::sync::Arc;
use std::thread;

/// Loaders on a worker: while one waits for its chunk to be durable, others load.
const LOADERS: usize = 4;

/// Clients of a benchmark that run as tasks on the leaders of a cluster of this process. They take turns on the workers of the leader of their
/// shard.
pub struct InsideClients {
    remote: RemoteDatabase,
    cluster: Arc<dyn OwnCluster>,
    /// The number of workers of each leader.
    workers: u32,
    client_shard: Box<dyn Fn(usize) -> ShardId>,
    client_worker: Box<dyn Fn(usize) -> u32>,
    part_shard: Box<dyn Fn(usize) -> ShardId>,
}

impl fmt::Debug for InsideClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clients inside {} leaders", self.shards())
    }
}

impl InsideClients {
    /// The clients of `workload` within this cluster, whose nodes have so many workers. `remote` judges
    /// the data.
    pub fn new(
        cluster: Arc<dyn OwnCluster>,
        remote: RemoteDatabase,
        workers: u32,
        workload: Arc<impl Placed>,
    ) -> InsideClients {
        let shards = cluster.shards();
        let placed = Arc::clone(&workload);
        let client_shard = Box::new(move |client| placed.client_shard(client, shards));
        let placed = Arc::clone(&workload);
        let client_worker = Box::new(move |client| placed.client_worker(client, shards, workers));
        let part_shard = Box::new(move |part| workload.part_shard(part, shards));
        InsideClients { remote, cluster, workers, client_shard, client_worker, part_shard }
    }

    fn shards(&self) -> usize {
        self.cluster.shards() as usize
    }
}

impl BenchPlace for InsideClients {
    type Database = RemoteDatabase;

    fn database(&self) -> &RemoteDatabase {
        &self.remote
    }

    fn thread_group(&self, client: usize) -> Option<usize> {
        let shard = (self.client_shard)(client).0 as usize;
        Some(shard * self.workers as usize + (self.client_worker)(client) as usize)
    }

    /// Few loaders on each worker, for what is on its shard: a chunk of each is one step, and a node whose
    /// step takes longer than its lease leads nothing.
    fn shares(&self, parts: usize, _clients: usize) -> Vec<Vec<usize>> {
        let (shards, loaders) = (self.shards(), self.workers as usize * LOADERS);
        let mut shares = vec![Vec::new(); shards * loaders];
        let mut turns = vec![0; shards];
        for part in 0..parts {
            let shard = (self.part_shard)(part).0 as usize;
            shares[shard + shards * (turns[shard] % loaders)].push(part);
            turns[shard] += 1;
        }
        shares
    }

    fn spawn(&self, role: BenchRole, work: impl Work) {
        let (worker, shard) = match role {
            BenchRole::Client(number) => {
                ((self.client_worker)(number), (self.client_shard)(number))
            }
            BenchRole::Loader(_) if !self.cluster.has_leaders() => {
                let db = self.remote.clone();
                drop(thread::spawn(move || block_on(work.run(db))));
                return;
            }
            BenchRole::Loader(number) => {
                let shards = self.cluster.shards();
                let shard = ShardId((number % self.shards()) as u32);
                (in_turns(number, shards, self.workers), shard)
            }
        };
        let worker = WorkerId(worker);
        let task = Box::new(move |local: &LocalDatabase| Box::pin(work.run(local.clone())) as Task);
        self.cluster.spawn(shard, worker, task);
    }
}
