//! Clients of a bench that are in regions. Those of one region share a thread and its connections, as clients of a
//! coordinator do: so there may be many of them, and each begins its transactions on schedule without a thread of its own.

use crate::remote::{LOADERS_MAX, RemoteDatabase, connect};
use shoal_client::{Cluster, ClusterOptions};
use shoal_types::Database;
use shoal_workloads::bench::{BenchPlace, BenchRole, Work, block_on};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::thread;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};

/// Makes the work of a client on a thread that it shares.
pub(crate) type StartClient<D> = Box<dyn FnOnce(D) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The work of a client, to be made on a thread that it shares.
pub(crate) fn start_client<D: Database + 'static>(work: impl Work) -> StartClient<D> {
    Box::new(|db| Box::pin(work.run(db)))
}

/// Clients in several regions, which take turns. Data is loaded and judged from where the judge is.
pub struct RegionClients {
    judge: RemoteDatabase,
    regions: Vec<String>,
    /// The threads of the regions.
    threads: Vec<UnboundedSender<StartClient<Cluster>>>,
}

impl RegionClients {
    /// Clients in these regions, of the cluster that `judge` is connected to.
    ///
    /// # Errors
    /// A sentence, if one cannot connect.
    pub fn connect(
        judge: RemoteDatabase,
        options: &ClusterOptions,
        regions: &[String],
    ) -> Result<RegionClients, String> {
        let thread = |region: &String| {
            let options = ClusterOptions { region: Some(region.clone()), ..options.clone() };
            let mut runtime = Builder::new_current_thread();
            let (cluster, runtime) = connect(&mut runtime, judge.addresses(), options)?;
            let (start, started) = unbounded_channel();
            thread::spawn(move || run_clients(&cluster, &runtime, started));
            Ok(start)
        };
        let threads = regions.iter().map(thread).collect::<Result<_, String>>()?;
        Ok(RegionClients { judge, regions: regions.to_vec(), threads })
    }
}

/// Runs clients that share a thread, until their place is gone and all have ended.
pub(crate) fn run_clients<D: Database + 'static>(
    db: &D,
    runtime: &Runtime,
    mut started: UnboundedReceiver<StartClient<D>>,
) {
    let clients = LocalSet::new();
    clients.block_on(runtime, async {
        while let Some(start) = started.recv().await {
            spawn_local(start(db.clone()));
        }
    });
    runtime.block_on(clients);
}

impl fmt::Debug for RegionClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clients in {}", self.regions.join(", "))
    }
}

impl BenchPlace for RegionClients {
    type Database = RemoteDatabase;

    fn database(&self) -> &RemoteDatabase {
        &self.judge
    }

    fn thread_group(&self, client: usize) -> Option<usize> {
        Some(client % self.regions.len())
    }

    fn regions(&self) -> &[String] {
        &self.regions
    }

    fn loaders_max(&self) -> usize {
        LOADERS_MAX
    }

    fn spawn(&self, role: BenchRole, work: impl Work) {
        match role {
            BenchRole::Loader(_) => {
                let db = self.judge.clone();
                drop(thread::spawn(move || block_on(work.run(db))));
            }
            BenchRole::Client(number) => {
                // A thread that has panicked starts none, and one is missing.
                let _ = self.threads[number % self.threads.len()].send(start_client(work));
            }
        }
    }
}
