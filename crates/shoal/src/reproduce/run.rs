//! One run of an experiment.

use crate::local::ClusterPlan;
use crate::trial::Trial;
use shoal_bench::{Bench, BenchLoad};
use shoal_client::{Embedded, Options};
use shoal_types::ShardId;
use shoal_workloads::bench::{BenchProgress, BenchSettings, Measurement};
use shoal_workloads::locality::VoterMoves;
use std::time::Duration;

/// What starting a cluster and loading it takes, about.
const SETUP: Duration = Duration::from_secs(3);

/// How much time each run gets.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub warm_up: Duration,
    pub duration: Duration,
    /// How often each is run; the medians count.
    pub times: u16,
    /// Where all chance comes from.
    pub seed: u64,
}

/// One run of a workload on a local cluster, for an experiment.
#[derive(Debug)]
pub struct ExperimentRun {
    /// What it is, in few words.
    pub words: String,
    pub load: BenchLoad,
    pub on: On,
    /// Tasks of leaders, or threads of an embedded database.
    pub clients: usize,
}

/// The result of a run: a measurement, or a sentence that describes the error.
pub type MeasuredRun = Result<Measurement, String>;

/// Where it runs.
#[derive(Debug)]
pub enum On {
    Embedded,
    /// A cluster of this process, with the clients in its leaders.
    Cluster(Box<ClusterPlan>),
    /// A cluster of this process, with clients in each of its regions.
    Regions(Box<ClusterPlan>, RegionLoad),
    /// A cluster of which only the node of this number is in this process, with the clients, and the others in processes of
    /// their own.
    Apart(Box<ClusterPlan>, usize),
}

/// What clients in regions do.
#[derive(Debug, Clone, Copy, Default)]
pub struct RegionLoad {
    /// Transactions that begin a second, all clients together; none: as many as they can.
    pub rate_per_s: Option<f64>,
    /// The shard whose leader is stopped, where one is: after a third of the measurement, which takes three times as long.
    pub leader_stops: Option<ShardId>,
}

/// The most voters that are taken a second from a node that is not in this process; each is taken once.
const TAKEN_PER_S: f64 = 20_000.0;

impl ExperimentRun {
    /// One on a cluster.
    pub fn on(plan: ClusterPlan, load: BenchLoad, clients: usize) -> ExperimentRun {
        ExperimentRun { words: plan.words(), load, on: On::Cluster(Box::new(plan)), clients }
    }

    /// One on a cluster of processes, with the clients inside the node of this number.
    pub fn apart(plan: ClusterPlan, here: usize, load: BenchLoad, clients: usize) -> ExperimentRun {
        ExperimentRun { words: plan.words(), load, on: On::Apart(Box::new(plan), here), clients }
    }

    /// One on a cluster, with clients in each of its regions.
    pub fn in_regions(
        plan: ClusterPlan,
        load: BenchLoad,
        clients: usize,
        region_load: RegionLoad,
    ) -> ExperimentRun {
        let words = plan.words();
        ExperimentRun { words, load, on: On::Regions(Box::new(plan), region_load), clients }
    }

    /// With other words.
    pub fn called(self, words: impl Into<String>) -> ExperimentRun {
        ExperimentRun { words: words.into(), ..self }
    }

    /// On how many shards.
    pub fn shards(&self) -> u32 {
        match &self.on {
            On::Embedded => 1,
            On::Cluster(plan) | On::Apart(plan, _) | On::Regions(plan, _) => plan.shards,
        }
    }

    /// About how long it takes.
    pub fn time(&self, budget: &Budget) -> Duration {
        SETUP + budget.warm_up + self.measured(budget)
    }

    /// How long it is measured.
    fn measured(&self, budget: &Budget) -> Duration {
        match &self.on {
            On::Regions(_, RegionLoad { leader_stops: Some(_), .. }) => budget.duration * 3,
            On::Embedded | On::Cluster(_) | On::Regions(..) | On::Apart(..) => budget.duration,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// A sentence that says what went wrong.
    pub fn measure(
        &self,
        budget: &Budget,
        progress: &mut dyn FnMut(BenchProgress),
    ) -> Result<Measurement, String> {
        let settings = BenchSettings {
            workers: self.clients,
            warm_up: budget.warm_up,
            duration: self.measured(budget),
            rate_per_s: None,
            seed: budget.seed,
            runs: budget.times.into(),
            // That is what `shoal bench` is for.
            check: false,
            reserved_bytes: 0,
        };
        let inside = |plan: &ClusterPlan, settings| Trial {
            plan: plan.clone(),
            only_here: None,
            inside: true,
            regions: Vec::new(),
            leader_stops: None,
            settings,
        };
        match &self.on {
            On::Cluster(plan) => inside(plan, settings).measure(&self.load, progress),
            On::Apart(plan, here) => {
                let load = lasting(self.load, budget.warm_up + budget.duration);
                let trial = Trial { only_here: Some(*here), ..inside(plan, settings) };
                trial.measure(&load, progress)
            }
            On::Regions(plan, RegionLoad { rate_per_s, leader_stops }) => {
                let settings = BenchSettings { rate_per_s: *rate_per_s, ..settings };
                let trial = Trial {
                    inside: false,
                    regions: plan.regions.names().to_vec(),
                    leader_stops: leader_stops.map(|shard| (shard, budget.duration)),
                    ..inside(plan, settings)
                };
                trial.measure(&self.load, progress)
            }
            On::Embedded => {
                let (load, settings) = (&self.load, &settings);
                let bench = Bench { load, settings, target: "embedded", progress };
                bench.embedded(None, &mut || Ok(Embedded::with_options(Options::default())))
            }
        }
    }
}

/// The workload, with as many voters that move as can be taken in this time, each once.
fn lasting(load: BenchLoad, time: Duration) -> BenchLoad {
    match load {
        BenchLoad::Voter(homes, Some(moves)) => {
            let voters = (time.as_secs_f64() * TAKEN_PER_S).ceil() as u32;
            BenchLoad::Voter(homes, Some(VoterMoves { voters, ..moves }))
        }
        load => load,
    }
}
