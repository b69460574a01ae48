//! A workload on a cluster of this process that is divided as the workload wishes: what `shoal bench --local`
//! and `shoal reproduce` measure.

use crate::inside::InsideClients;
use crate::local::{ClusterPlan, InProcessCluster};
use crate::remote::{ConnectedClients, RemoteDatabase};
use shoal_client::ClusterOptions;
use shoal_cluster::topology::{Partitioning, Regions};
use shoal_sim::catalog::Catalog;
use shoal_types::{Database, Error};
use shoal_workloads::bench::measurement::Parameter;
use shoal_workloads::bench::{self, BenchPlace, BenchProgress, BenchSettings, Build, Measurement};
use shoal_workloads::placed::{Division, Placed};
use shoal_workloads::workload::Workload;
use std::sync::Arc;
use std::time::Duration;

/// What a transaction may take on a cluster. A bench gives up on none that will end.
const DEADLINE: Duration = Duration::from_secs(60);

/// A workload that can be set up on a cluster of any number of shards.
pub trait Placeable {
    /// The workload, set up on a database.
    type Placed: Placed;

    /// Sets it up on `db`, a cluster of so many shards.
    ///
    /// # Errors
    /// Those of the database, and where so many shards are too many.
    fn place<D: Database>(&self, db: &D, shards: u32) -> shoal_types::Result<Self::Placed>;
}

/// A benchmark of one workload on one local cluster.
#[derive(Debug)]
pub struct Trial {
    /// The cluster that is started for the trial.
    pub plan: ClusterPlan,
    /// Whether clients live in the leaders, instead of across sockets.
    pub inside: bool,
    /// The region in which clients outside are; `None`: near every node.
    pub region: Option<String>,
    /// How it is run.
    pub settings: BenchSettings,
}

/// A cluster, a client of it, and the workload for both.
type Started<W> = (Arc<InProcessCluster>, RemoteDatabase, Arc<W>);

impl Trial {
    /// What it runs on, in words.
    pub fn words(&self) -> String {
        let inside = if self.inside { ", clients inside" } else { "" };
        self.plan.words() + inside
    }

    /// Measures the workload, each time on a fresh cluster.
    ///
    /// # Errors
    /// A sentence that says what went wrong.
    pub fn measure<A: Placeable>(
        &self,
        asked: &A,
        progress: &mut dyn FnMut(BenchProgress),
    ) -> Result<Measurement, String> {
        let plan = divided(self.plan.clone(), asked)?;
        let (words, region) = (self.words(), self.region.as_deref());
        let measured = if self.inside {
            let make = || {
                let (own, db, workload) = start(&plan, region, asked)?;
                Ok((InsideClients::new(&own, db, plan.workers, Arc::clone(&workload)), workload))
            };
            measure(&self.settings, &words, make, progress)
        } else {
            let make = || {
                let (_, db, workload) = start(&plan, region, asked)?;
                let (options, clients) = (client_options(region), self.settings.workers);
                Ok((ConnectedClients::connect(db, &options, clients)?, workload))
            };
            measure(&self.settings, &words, make, progress)
        };
        Ok(told(measured?, &plan.regions, region))
    }
}

/// The measurement, with the distances among its parameters, and where its clients were.
pub fn told(mut measured: Measurement, regions: &Regions, region: Option<&str>) -> Measurement {
    let distances = regions.to_string();
    let facts = [
        ("distances one way", Some(distances).filter(|distances| !distances.is_empty())),
        ("clients in", region.map(str::to_owned)),
    ];
    let facts =
        facts.into_iter().filter_map(|(name, value)| Some(Parameter { name, value: value? }));
    measured.parameters.extend(facts);
    measured
}

/// How clients of benches are: in this region, if any.
pub fn client_options(region: Option<&str>) -> ClusterOptions {
    let region = region.map(str::to_owned);
    ClusterOptions { deadline: DEADLINE, region, ..ClusterOptions::default() }
}

/// The plan, with the workload's tables divided as it wishes.
fn divided<A: Placeable>(mut plan: ClusterPlan, asked: &A) -> Result<ClusterPlan, String> {
    let sketch = Catalog::new();
    let workload = asked.place(&sketch, plan.shards).map_err(|error| error.to_string())?;
    for name in sketch.names() {
        let known = plan.tables.iter_mut().find(|(table, _)| *table == *name);
        let (_, partitioning) = known.expect("a local cluster knows the workloads' tables");
        *partitioning = match workload.division(&name, plan.shards) {
            Division::Everywhere => Partitioning::Everywhere,
            Division::ByKey => Partitioning::Hash { prefix_bytes: 0 },
            Division::Ranges(first) => Partitioning::ranges(first),
        };
    }
    Ok(plan)
}

fn start<A: Placeable>(
    plan: &ClusterPlan,
    region: Option<&str>,
    asked: &A,
) -> Result<Started<A::Placed>, String> {
    let own = Arc::new(InProcessCluster::start(plan)?);
    let addresses = own.addresses().to_vec();
    let options = client_options(region);
    let db = RemoteDatabase::connect(&addresses, options, Some(Arc::clone(&own)))?;
    let workload = asked.place(&db, plan.shards).map_err(|error| error.to_string())?;
    Ok((own, db, Arc::new(workload)))
}

/// Measures what `make` sets up on `target`.
///
/// # Errors
/// A sentence that says what went wrong.
pub fn measure<P: BenchPlace, W: Workload + 'static>(
    settings: &BenchSettings,
    target: &str,
    mut make: impl FnMut() -> Result<(P, Arc<W>), String>,
    progress: &mut dyn FnMut(BenchProgress),
) -> Result<Measurement, String> {
    // A database's error says whether a transaction took effect, and there is none yet.
    let mut not_made = None;
    let make = || {
        make().map_err(|why| {
            not_made = Some(why);
            Error::reject("there is nothing to measure")
        })
    };
    let measured = bench::run(settings, build(target), make, progress);
    measured.map_err(|failure| not_made.unwrap_or_else(|| failure.to_string()))
}

/// How this program was built.
fn build(target: &str) -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION"),
        profile: if cfg!(debug_assertions) { "debug" } else { "optimized" },
        allocator: if cfg!(feature = "mimalloc") { "mimalloc" } else { "the system's" },
        target: target.to_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_workloads::bench::Threads;
    use shoal_workloads::micro::Micro;
    use shoal_workloads::model::Model;

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
        let why = "cannot connect to the cluster: a:1: cannot connect";
        let make = || Err::<(Threads<Model>, Arc<Micro>), String>(why.to_owned());
        let failed = measure(&settings, "nowhere", make, &mut |_| ());
        assert_eq!(failed.expect_err("nothing to measure"), why);
    }
}
