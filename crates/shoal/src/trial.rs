//! A workload on a cluster of this process that is divided as the workload wishes: what `shoal bench --local`
//! and `shoal reproduce` measure.

use crate::local::{ClusterPlan, InProcessCluster, SplitCluster};
use shoal_bench::{Bench, BenchLoad, ClusterRuns, OutsideClients, OwnCluster, table_definition};
use shoal_client::ClusterOptions;
use shoal_cluster::topology::Regions;
use shoal_types::ShardId;
use shoal_workloads::bench::measurement::Parameter;
use shoal_workloads::bench::{BenchProgress, BenchSettings, Measurement, Stage};
use shoal_workloads::placed::Division;
use std::cell::RefCell;
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
    /// The regions in which clients outside are, in turn; none: near every node.
    pub regions: Vec<String>,
    /// The shard whose leader is stopped, and when, after the measurement has begun; it does not come back.
    pub leader_stops: Option<(ShardId, Duration)>,
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
        let words = self.words();
        let running = RefCell::new(None);
        let start = || {
            let cluster: Arc<dyn OwnCluster> = match self.only_here {
                None => Arc::new(InProcessCluster::start(&plan)?),
                Some(here) => Arc::new(SplitCluster::start(&plan, here)?),
            };
            running.replace(Some(Arc::downgrade(&cluster)));
            Ok(cluster)
        };
        let mut progress = |at: BenchProgress| {
            if self.is_stop(at)
                && let Some(cluster) = running.take().and_then(|cluster| cluster.upgrade())
                && let Some((shard, _)) = self.leader_stops
            {
                cluster.stop_leader(shard);
            }
            progress(at);
        };
        let runs = ClusterRuns {
            shards: plan.shards,
            workers: plan.workers,
            inside: self.inside,
            clients: OutsideClients { options: &client_options(), regions: &self.regions },
            start: &start,
        };
        let bench =
            Bench { load, settings: &self.settings, target: &words, progress: &mut progress };
        Ok(told(bench.on_cluster(&runs)?, &plan.regions, &self.regions, &plan.durability_words()))
    }

    /// Whether a leader is due to be stopped, or was.
    fn is_stop(&self, at: BenchProgress) -> bool {
        let measured = Duration::from_millis(at.done);
        at.stage == Stage::Measuring
            && self.leader_stops.is_some_and(|(_, after)| measured >= after)
    }
}

/// The measurement, with the distances among its parameters, where its clients were, and when replicas acknowledge.
pub fn told(
    mut measured: Measurement,
    regions: &Regions,
    clients_in: &[String],
    durability: &str,
) -> Measurement {
    let facts = [("distances one way", regions.to_string()), ("clients in", clients_in.join(", "))];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    let facts = facts.map(|(name, value)| Parameter { name, value });
    measured.parameters.extend(facts);
    with_durability(measured, durability)
}

/// The measurement, with the durability among its parameters.
pub fn with_durability(mut measured: Measurement, durability: &str) -> Measurement {
    let value = durability.to_owned();
    measured.parameters.push(Parameter { name: "durability", value });
    measured
}

/// How clients of benches are, where nothing is known of their regions.
pub fn client_options() -> ClusterOptions {
    ClusterOptions { deadline: DEADLINE, ..ClusterOptions::default() }
}

/// The plan, with the workload's tables, divided as it wishes.
fn divided(plan: ClusterPlan, load: &BenchLoad) -> Result<ClusterPlan, String> {
    let divisions = load.divisions(plan.shards)?;
    let with_table = |plan: ClusterPlan, (name, division): (String, Division)| {
        plan.with_table(&name, table_definition(&name, division))
    };
    Ok(divisions.into_iter().fold(plan, with_table))
}
