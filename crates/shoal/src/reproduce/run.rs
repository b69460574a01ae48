//! One run of an experiment.

use crate::local::ClusterPlan;
use crate::trial::{self, Placeable, Trial};
use shoal_client::{Embedded, Options};
use shoal_types::Database;
use shoal_workloads::bench::{BenchProgress, BenchSettings, Measurement, Threads};
use shoal_workloads::locality::{HandoverShares, Handovers, Homes, SmallBank, Tatp};
use shoal_workloads::placed::PlacedMicro;
use shoal_workloads::tpcc::{Kind, Scale, TpcC};
use std::marker::PhantomData;
use std::sync::Arc;
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

impl Budget {
    /// About how long one run takes.
    pub fn each(&self) -> Duration {
        SETUP + self.warm_up + self.duration
    }
}

/// One run of a workload on a local cluster, for an experiment.
#[derive(Debug)]
pub struct ExperimentRun {
    /// What it is, in few words.
    pub words: String,
    pub load: ExperimentLoad,
    pub on: On,
    /// Tasks of leaders, or threads of an embedded database.
    pub clients: usize,
}

/// The result of a run: a measurement, or a sentence that describes the error.
pub type MeasuredRun = Result<Measurement, String>;

/// The workload of an experiment.
#[derive(Debug, Clone, Copy)]
pub enum ExperimentLoad {
    Micro(ExperimentMicro),
    TpcC(NewOrders),
    SmallBank(Homes),
    Tatp(Homes),
    Handovers(HandoversOf),
}

/// The parameters of the handovers benchmark in an experiment.
#[derive(Debug, Clone, Copy)]
pub struct HandoversOf {
    pub homes: Homes,
    pub shares: HandoverShares,
}

/// A workload over objects that are divided so.
#[derive(Debug)]
struct OverHomes<W>(Homes, PhantomData<W>);

/// The parameters of the micro-benchmark in an experiment.
#[derive(Debug, Clone, Copy)]
pub struct ExperimentMicro {
    pub keys_of_shard: u32,
    /// Of a hundred transactions, so many have one of their four keys on another shard.
    pub cross_percent: u32,
    /// Every transaction writes, not every second one.
    pub all_write: bool,
}

/// The parameters of TPC-C's new-order transactions in an experiment.
#[derive(Debug, Clone, Copy)]
pub struct NewOrders {
    pub scale: Scale,
    /// There is nothing but new orders.
    pub only_new: bool,
}

/// Where it runs.
#[derive(Debug)]
pub enum On {
    Embedded,
    /// A cluster of this process, with the clients in its leaders.
    Cluster(Box<ClusterPlan>),
}

impl Placeable for ExperimentMicro {
    type Placed = PlacedMicro;

    fn place<D: Database>(&self, db: &D, shards: u32) -> shoal_types::Result<PlacedMicro> {
        let micro = PlacedMicro::new(db, shards, self.keys_of_shard, self.cross_percent)?;
        Ok(if self.all_write { micro.writing() } else { micro })
    }
}

impl Placeable for NewOrders {
    type Placed = TpcC;

    fn place<D: Database>(&self, db: &D, _shards: u32) -> shoal_types::Result<TpcC> {
        let tpcc = TpcC::new(db, self.scale)?;
        Ok(if self.only_new { tpcc.of_kind(Kind::NewOrder) } else { tpcc })
    }
}

impl Placeable for OverHomes<SmallBank> {
    type Placed = SmallBank;

    fn place<D: Database>(&self, db: &D, _shards: u32) -> shoal_types::Result<SmallBank> {
        SmallBank::new(db, self.0)
    }
}

impl Placeable for OverHomes<Tatp> {
    type Placed = Tatp;

    fn place<D: Database>(&self, db: &D, _shards: u32) -> shoal_types::Result<Tatp> {
        Tatp::new(db, self.0)
    }
}

impl Placeable for HandoversOf {
    type Placed = Handovers;

    fn place<D: Database>(&self, db: &D, _shards: u32) -> shoal_types::Result<Handovers> {
        Handovers::new(db, self.homes, self.shares)
    }
}

impl ExperimentRun {
    /// One on a cluster.
    pub fn on(plan: ClusterPlan, load: ExperimentLoad, clients: usize) -> ExperimentRun {
        ExperimentRun { words: plan.words(), load, on: On::Cluster(Box::new(plan)), clients }
    }

    /// With other words.
    pub fn called(self, words: impl Into<String>) -> ExperimentRun {
        ExperimentRun { words: words.into(), ..self }
    }

    /// On how many shards.
    pub fn shards(&self) -> u32 {
        match &self.on {
            On::Embedded => 1,
            On::Cluster(plan) => plan.shards,
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
        match self.load {
            ExperimentLoad::Micro(micro) => self.measure_load(&micro, budget, progress),
            ExperimentLoad::TpcC(orders) => self.measure_load(&orders, budget, progress),
            ExperimentLoad::SmallBank(homes) => {
                let load = OverHomes::<SmallBank>(homes, PhantomData);
                self.measure_load(&load, budget, progress)
            }
            ExperimentLoad::Tatp(homes) => {
                let load = OverHomes::<Tatp>(homes, PhantomData);
                self.measure_load(&load, budget, progress)
            }
            ExperimentLoad::Handovers(handovers) => self.measure_load(&handovers, budget, progress),
        }
    }

    fn measure_load<A: Placeable>(
        &self,
        load: &A,
        budget: &Budget,
        progress: &mut dyn FnMut(BenchProgress),
    ) -> Result<Measurement, String> {
        let settings = BenchSettings {
            workers: self.clients,
            warm_up: budget.warm_up,
            duration: budget.duration,
            rate_per_s: None,
            seed: budget.seed,
            runs: budget.times.into(),
            // That is what `shoal bench` is for.
            check: false,
            reserved_bytes: 0,
        };
        match &self.on {
            On::Cluster(plan) => {
                let plan = plan.as_ref().clone();
                Trial { plan, inside: true, region: None, settings }.measure(load, progress)
            }
            On::Embedded => {
                let make = || {
                    let db = Embedded::with_options(Options::default());
                    let workload = load.place(&db, 1).map_err(|error| error.to_string())?;
                    Ok((Threads(db), Arc::new(workload)))
                };
                trial::measure(&settings, "embedded", make, progress)
            }
        }
    }
}
