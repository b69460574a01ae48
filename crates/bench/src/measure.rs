//! A workload, measured on a database of each kind.

use crate::cluster::OwnCluster;
use crate::inside::InsideClients;
use crate::load::{BenchLoad, Load, with_load};
use crate::regions::RegionClients;
use crate::remote::{ConnectedClients, RemoteDatabase};
use crate::threads::ThreadClients;
use shoal_client::{ClusterOptions, Embedded};
use shoal_types::Error;
use shoal_workloads::bench::{
    self, BenchPlace, BenchProgress, BenchSettings, Build, Measurement, Threads,
};
use shoal_workloads::catalog::Catalog;
use shoal_workloads::placed::{Division, Placed};
use shoal_workloads::workload::Workload;
use std::fmt;
use std::sync::Arc;

/// How this program was built, to measure `target`.
pub fn build(target: &str) -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION"),
        profile: if cfg!(debug_assertions) { "debug" } else { "optimized" },
        allocator: if cfg!(feature = "mimalloc") { "mimalloc" } else { "the system's" },
        target: target.to_owned().into(),
    }
}

/// A measurement of a workload that is to be made.
pub struct Bench<'a> {
    /// The workload.
    pub load: &'a BenchLoad,
    /// How it is run.
    pub settings: &'a BenchSettings,
    /// The database in words.
    pub target: &'a str,
    /// Called as the measurement goes on.
    pub progress: &'a mut dyn FnMut(BenchProgress),
}

/// Clusters of this process, one for each run.
pub struct ClusterRuns<'a> {
    /// The number of their shards.
    pub shards: u32,
    /// The number of workers of each node.
    pub workers: u32,
    /// Whether clients are tasks of the leaders, instead of outside of the cluster.
    pub inside: bool,
    /// Clients outside.
    pub clients: OutsideClients<'a>,
    /// Starts one, whose tables are divided as [`BenchLoad::divisions`] says.
    pub start: &'a dyn Fn() -> Result<Arc<dyn OwnCluster>, String>,
}

/// Clients outside of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct OutsideClients<'a> {
    /// The options of clients, and of the one that judges the data.
    pub options: &'a ClusterOptions,
    /// The regions in which they are, in turn: clients of one region share its connections. Where there are none, each
    /// client has a thread and connections of its own, and is near every node.
    pub regions: &'a [String],
}

impl fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bench { load, settings, target, .. } = self;
        write!(f, "{load:?} on {target}, {settings:?}")
    }
}

impl fmt::Debug for ClusterRuns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shards, clients inside: {}", self.shards, self.inside)
    }
}

impl BenchLoad {
    /// The tables of the workload, and how each has to be divided among so many shards.
    ///
    /// # Errors
    /// A sentence that says what the workload refuses.
    pub fn divisions(&self, shards: u32) -> Result<Vec<(String, Division)>, String> {
        with_load!(self, load => divisions(load, shards))
    }
}

impl Bench<'_> {
    /// Measures embedded databases, which `make` makes, one for each run. The clients share so many threads; `None`: each has one
    /// to itself.
    ///
    /// # Errors
    /// A sentence that says what went wrong.
    pub fn embedded(
        self,
        threads: Option<usize>,
        make: &mut dyn FnMut() -> Result<Embedded, String>,
    ) -> Result<Measurement, String> {
        with_load!(self.load, load => embedded(load, self, threads, make))
    }

    /// Measures the cluster that `connect` connects to, by these clients.
    ///
    /// # Errors
    /// A sentence that says what went wrong. Tables of the workload that have rows are refused.
    pub fn connected(
        self,
        outside: OutsideClients<'_>,
        connect: &mut dyn FnMut() -> Result<RemoteDatabase, String>,
    ) -> Result<Measurement, String> {
        with_load!(self.load, load => connected(load, self, outside, connect))
    }

    /// Measures clusters of this process.
    ///
    /// # Errors
    /// A sentence that says what went wrong.
    pub fn on_cluster(self, runs: &ClusterRuns<'_>) -> Result<Measurement, String> {
        with_load!(self.load, load => on_cluster(load, self, runs))
    }

    /// Measures the databases that `start` connects to, by these clients.
    fn by_outside<W: Workload + 'static>(
        self,
        outside: OutsideClients<'_>,
        mut start: impl FnMut() -> Result<(RemoteDatabase, Arc<W>), String>,
    ) -> Result<Measurement, String> {
        let OutsideClients { options, regions } = outside;
        let clients = self.settings.workers;
        if regions.is_empty() {
            return self.run(|| {
                let (db, workload) = start()?;
                Ok((ConnectedClients::connect(db, options, clients)?, workload))
            });
        }
        self.run(|| {
            let (db, workload) = start()?;
            Ok((RegionClients::connect(db, options, regions)?, workload))
        })
    }

    /// Measures what `make` sets up.
    fn run<P: BenchPlace, W: Workload + 'static>(
        self,
        mut make: impl FnMut() -> Result<(P, Arc<W>), String>,
    ) -> Result<Measurement, String> {
        // A database's error says whether a transaction took effect, and there is none yet.
        let mut not_made = None;
        let make = || {
            make().map_err(|why| {
                not_made = Some(why);
                Error::reject("there is nothing to measure")
            })
        };
        let measured = bench::run(self.settings, build(self.target), make, self.progress);
        measured.map_err(|failure| not_made.unwrap_or_else(|| failure.to_string()))
    }
}

fn divisions(load: &impl Load, shards: u32) -> Result<Vec<(String, Division)>, String> {
    let catalog = Catalog::new();
    let workload = load.placed(&catalog, shards).map_err(|error| error.to_string())?;
    let divided = catalog.names().into_iter().map(|name| {
        let division = workload.division(&name, shards);
        (name, division)
    });
    Ok(divided.collect())
}

fn embedded(
    load: &impl Load,
    bench: Bench<'_>,
    threads: Option<usize>,
    make: &mut dyn FnMut() -> Result<Embedded, String>,
) -> Result<Measurement, String> {
    let mut start = || {
        let db = make()?;
        let workload = load.whole(&db).map_err(|error| error.to_string())?;
        Ok::<_, String>((db, Arc::new(workload)))
    };
    match threads {
        None => bench.run(|| start().map(|(db, workload)| (Threads(db), workload))),
        Some(threads) => bench.run(|| {
            let (db, workload) = start()?;
            Ok((ThreadClients::new(db, threads)?, workload))
        }),
    }
}

fn connected(
    load: &impl Load,
    bench: Bench<'_>,
    outside: OutsideClients<'_>,
    connect: &mut dyn FnMut() -> Result<RemoteDatabase, String>,
) -> Result<Measurement, String> {
    let start = || {
        let db = connect()?;
        let workload = load.whole(&db).map_err(|error| error.to_string())?;
        if let Some(table) = db.table_with_rows().map_err(|error| error.to_string())? {
            return Err(format!(
                "table {table:?} has rows already, of an earlier run perhaps: --reload drops the workload's tables first"
            ));
        }
        Ok((db, Arc::new(workload)))
    };
    bench.by_outside(outside, start)
}

fn on_cluster<L: Load>(
    load: &L,
    bench: Bench<'_>,
    runs: &ClusterRuns<'_>,
) -> Result<Measurement, String> {
    let start = || {
        let own = (runs.start)()?;
        let options = runs.clients.options.clone();
        let db = RemoteDatabase::connect(own.addresses(), options, own.clone())?;
        let workload = load.placed(&db, runs.shards).map_err(|error| error.to_string())?;
        Ok::<_, String>((own, db, Arc::new(workload)))
    };
    if runs.inside {
        return bench.run(|| {
            let (own, db, workload) = start()?;
            Ok((InsideClients::new(own, db, runs.workers, Arc::clone(&workload)), workload))
        });
    }
    bench.by_outside(runs.clients, || start().map(|(_, db, workload)| (db, workload)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::MicroLoad;
    use std::time::Duration;

    #[test]
    fn what_cannot_be_set_up_is_no_transaction_that_was_rejected() {
        let settings = BenchSettings {
            workers: 1,
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(1),
            rate_per_s: None,
            seed: 1,
            runs: 1,
            check: false,
            reserved_bytes: 0,
        };
        let micro =
            MicroLoad { keys_of_shard: 1, cross_percent: 0, all_write: false, calls: false };
        let bench = Bench {
            load: &BenchLoad::Micro(micro),
            settings: &settings,
            target: "nowhere",
            progress: &mut |_| (),
        };
        let why = "cannot connect to the cluster: a:1: cannot connect";
        let failed = bench.embedded(None, &mut || Err(why.to_owned()));
        assert_eq!(failed.expect_err("nothing to measure"), why);
    }
}
