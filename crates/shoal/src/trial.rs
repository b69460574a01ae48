//! A workload on a cluster of this process that is divided as the workload wishes: what `shoal bench --local`
//! and `shoal reproduce` measure.

use crate::local::{ClusterPlan, InProcessCluster, SplitCluster};
use shoal_bench::{Bench, BenchLoad, ClusterRuns, OwnCluster, table_definition};
use shoal_client::ClusterOptions;
use shoal_cluster::topology::Regions;
use shoal_workloads::bench::measurement::Parameter;
use shoal_workloads::bench::{BenchProgress, BenchSettings, Measurement};
use shoal_workloads::placed::Division;
use std::sync::Arc;
use std::time::Duration;

/// What a transaction may take on a cluster. A bench gives up on none that will end.
const DEADLINE: Duration = Duration::from_secs(60);

/// A benchmark of one workload on one local cluster.
#[derive(Debug)]
pub struct Trial {
    /// The cluster that is started for the trial.
    pub plan: ClusterPlan,
    /// The number of the one node that is in this process, where the others are in processes of their own.
    pub only_here: Option<usize>,
    /// Whether clients live in the leaders, or in the one node of this process, instead of across sockets.
    pub inside: bool,
    /// The region in which clients outside are; `None`: near every node.
    pub region: Option<String>,
    /// How it is run.
    pub settings: BenchSettings,
}

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
    pub fn measure(
        &self,
        load: &BenchLoad,
        progress: &mut dyn FnMut(BenchProgress),
    ) -> Result<Measurement, String> {
        let plan = divided(self.plan.clone(), load)?;
        let (words, region) = (self.words(), self.region.as_deref());
        let start = || -> Result<Arc<dyn OwnCluster>, String> {
            Ok(match self.only_here {
                None => Arc::new(InProcessCluster::start(&plan)?),
                Some(here) => Arc::new(SplitCluster::start(&plan, here)?),
            })
        };
        let runs = ClusterRuns {
            shards: plan.shards,
            workers: plan.workers,
            inside: self.inside,
            clients: &client_options(region),
            start: &start,
        };
        let bench = Bench { load, settings: &self.settings, target: &words, progress };
        Ok(told(bench.on_cluster(&runs)?, &plan.regions, region))
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

/// The plan, with the workload's tables, divided as it wishes.
fn divided(plan: ClusterPlan, load: &BenchLoad) -> Result<ClusterPlan, String> {
    let divisions = load.divisions(plan.shards)?;
    let with_table = |plan: ClusterPlan, (name, division): (String, Division)| {
        plan.with_table(&name, table_definition(&name, division))
    };
    Ok(divisions.into_iter().fold(plan, with_table))
}
