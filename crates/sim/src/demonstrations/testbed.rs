//! The cluster of a demonstration: three datacenters, shards with three voters each, all leaders in the first
//! datacenter, and a workload whose clients run on the leaders.

use super::latency_recorder::{Classify, LatencyRecorder, Times};
use super::watched::{ShardSet, Watched};
use crate::clock::NodeClock;
use crate::cpu::Cpu;
use crate::managers::ManagersPlan;
use crate::metrics::Engines;
use crate::network::Delay;
use crate::simulation::{Simulation, SimulationWorld};
use crate::subject::Subject;
use shoal_cluster::topology::{Partitioning, TableDefinition, Topology};
use shoal_engine::engine::{Engine, Setup, Task};
use shoal_engine::execution::Limits;
use shoal_engine::{Procedures, WorkerPlace};
use shoal_types::{Random, ShardId, Time, WorkerId};
use shoal_workloads::catalog::Catalog;
use shoal_workloads::placed::{Division, Placed, family, granule_bytes};
use shoal_workloads::workload::Workload;
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The number of datacenters, and of voters of each shard.
const DATACENTERS: u32 = 3;

/// The number of shards, where the demonstration does not vary it.
pub(super) const SHARDS: u32 = 3;

/// Round trip within a datacenter.
pub(super) const NEAR: Duration = Duration::from_micros(100);

/// Limit on the virtual time of loading, and of finishing.
const PATIENCE: Duration = Duration::from_secs(600);

/// An engine that the demonstrations can run.
pub trait Shown: Subject {
    /// The numbers of open transactions of a worker among which the one with the most throughput is searched;
    /// the usual number first.
    const OPEN_MAX: &'static [usize];

    /// The forms in which the engine can keep stamps; empty where a version keeps one clock.
    const STAMP_FORMS: &'static [EngineForm<Self>];

    /// The longest pause after a conflict, for a round trip of `far` between replicas.
    fn pause_max(_far: Duration) -> Duration {
        Limits::default().pause_max
    }

    /// The engine's usual configuration with these limits.
    fn with_limits(limits: Limits) -> Self::Options;
}

/// A way to configure an engine: its name, and the configuration with given limits.
pub type EngineForm<E> = (&'static str, fn(Limits) -> <E as Engine>::Options);

/// The result of a demonstration's step; the error describes what went wrong.
pub type RunResult<T> = std::result::Result<T, String>;

/// The settings of a testbed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    /// The seed of all random draws.
    pub seed: u64,
    /// How many shards there are.
    pub shards: u32,
    /// How many learners each shard has.
    pub learners: u32,
    /// The round trip between two datacenters.
    pub far: Duration,
    /// How many workers each node has.
    pub workers: u32,
    /// The prices of the workers' actions.
    pub cpu: Cpu,
    /// The most transactions that a worker may have open.
    pub open_max: usize,
}

/// How clients begin their transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrivalPace {
    /// After a pause of at most this long.
    Thinking(Duration),
    /// At once, as soon as the worker admits another transaction.
    Eager,
}

/// A simulated cluster that runs a workload, for one experiment.
pub(super) struct Testbed<E: Shown, W: Placed> {
    setting: Setting,
    pub(super) simulation: Simulation<E>,
    pub(super) workload: Rc<W>,
    pub(super) recorder: LatencyRecorder,
    pub(super) stop: Rc<Cell<bool>>,
    /// When the period began, what had been counted then, and how long leaders had worked.
    mark: (Time, Engines, Duration),
    /// Reports the progress of the demonstration.
    tick: Box<dyn FnMut(f64)>,
}

/// What was counted in one period.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PeriodCounts {
    pub certified_per_s: f64,
    pub committed_per_s: f64,
    /// The part of certified transactions that wrote several shards.
    pub cross_part: f64,
    /// The part of certified and writing transactions that wrote several shards.
    pub wrote_cross_part: f64,
    /// The mean number of entries for other shards in a stamp that is kept with versions.
    pub stamp_remotes: f64,
    /// Bytes in the streams for each transaction that wrote.
    pub bytes_each: f64,
    /// The part of all attempts that met a conflict.
    pub abort_part: f64,
    /// The part of the time in which the leaders' processors were busy.
    pub busy_part: f64,
}

/// The delays of messages between `datacenters`.
fn delays(datacenters: u32, far: Duration) -> Vec<Vec<Delay>> {
    let delay = |from, to| {
        let round_trip = if from == to { NEAR } else { far.max(NEAR) };
        Delay { base_ns: round_trip.as_nanos() as u64 / 2, jitter_ns: 0 }
    };
    (0..datacenters).map(|from| (0..datacenters).map(|to| delay(from, to)).collect()).collect()
}

/// The usual limits, with retries until a transaction succeeds: none is refused.
pub(super) fn limits<E: Shown>(setting: &Setting) -> Limits {
    let open_max = setting.open_max;
    Limits {
        open_max,
        queue_max: 1 << 20,
        queue_wait_max: PATIENCE,
        attempts_max: u32::MAX,
        attempts_span_max: PATIENCE,
        pause_max: E::pause_max(setting.far),
        // An engine that holds locks until a remote replica has answered holds a session as long.
        sessions_max: 2 * setting.shards as usize * open_max,
        ..Limits::default()
    }
}

impl<E: Shown, W: Placed> Testbed<E, W> {
    /// A cluster with the data of the workload that `make` makes.
    pub(super) fn new(
        setting: Setting,
        make: impl FnOnce(&Catalog) -> shoal_types::Result<W>,
        classify: Classify,
        tick: Box<dyn FnMut(f64)>,
    ) -> RunResult<Testbed<E, W>> {
        Testbed::with_options(setting, E::with_limits(limits::<E>(&setting)), make, classify, tick)
    }

    /// The same with these options of the engine.
    pub(super) fn with_options(
        setting: Setting,
        options: E::Options,
        make: impl FnOnce(&Catalog) -> shoal_types::Result<W>,
        classify: Classify,
        tick: Box<dyn FnMut(f64)>,
    ) -> RunResult<Testbed<E, W>> {
        Testbed::managed(setting, options, None, make, classify, tick)
    }

    /// The same with configuration managers.
    pub(super) fn managed(
        setting: Setting,
        options: E::Options,
        managers: Option<ManagersPlan>,
        make: impl FnOnce(&Catalog) -> shoal_types::Result<W>,
        classify: Classify,
        tick: Box<dyn FnMut(f64)>,
    ) -> RunResult<Testbed<E, W>> {
        let Setting { seed, shards, learners, far, workers, cpu, .. } = setting;
        let catalog = Catalog::new();
        let workload = Rc::new(make(&catalog).map_err(|error| error.to_string())?);
        let tables = catalog.names().into_iter().map(|name| {
            let partitioning = match workload.division(&name, shards) {
                Division::Everywhere => Partitioning::Everywhere,
                Division::ByPrefix(prefix_bytes) => Partitioning::Hash { prefix_bytes },
                Division::ByKey => Partitioning::Hash { prefix_bytes: 0 },
                Division::Ranges(first) => Partitioning::ranges(first),
            };
            let (granule_bytes, family) = (granule_bytes(&name), family(&name).map(str::to_owned));
            (name, TableDefinition { partitioning, granule_bytes, family })
        });
        let topology = Topology::symmetric(DATACENTERS, shards, DATACENTERS, learners, workers)
            .with_tables(tables.chain(E::tables(shards)).collect::<Vec<_>>())
            .map_err(|error| error.to_string())?;
        let streams = shoal_log::StreamOptions::default();
        let (topology, procedures) = (Arc::new(topology), Arc::new(Procedures::new()));
        let clocks = vec![NodeClock::TRUE; topology.nodes().len()];
        let setup = Setup { topology, procedures, streams, options };
        let delays = delays(DATACENTERS, far);
        let world = SimulationWorld {
            latecomers: Vec::new(),
            clocks,
            delays,
            clients: Vec::new(),
            cpu,
            persistence_ns: 0,
            disks: None,
            is_judged: false,
            managers,
        };
        let mut testbed = Testbed {
            setting,
            simulation: Simulation::new(&setup, world, seed),
            workload,
            recorder: LatencyRecorder::new(classify),
            stop: Rc::default(),
            mark: (Time::ZERO, Engines::default(), Duration::ZERO),
            tick,
        };
        testbed.load()?;
        Ok(testbed)
    }

    fn load(&mut self) -> RunResult<()> {
        let led = self.simulation.run_while_not(PATIENCE, Simulation::is_led);
        if !led.map_err(|violation| violation.to_string())? {
            return Err("not every stream has a leader".into());
        }
        for part in 0..self.workload.load_parts() {
            let place = self.place(self.workload.part_shard(part, self.setting.shards), part);
            let (db, workload, recorder) =
                (self.watched(place), Rc::clone(&self.workload), self.recorder.clone());
            let seed = self.setting.seed;
            self.spawn(place, async move {
                if let Err(error) = workload.load(&db, part, seed, &mut |_| {}).await {
                    recorder.report_error(format!("part {part} was not loaded: {error}"));
                }
            });
        }
        self.wait(PATIENCE)
    }

    /// The place of worker `number` of the leader of `shard`.
    pub(super) fn place(&self, shard: ShardId, number: usize) -> WorkerPlace {
        let worker = WorkerId(number as u32 % self.setting.workers);
        WorkerPlace { node: self.simulation.leader(shard), worker }
    }

    pub(super) fn watched(&self, place: WorkerPlace) -> Watched {
        let (db, time) = (self.simulation.local(place), self.simulation.true_time());
        let topology = self.simulation.topology();
        let mut led = ShardSet::default();
        let shards = topology.shard_ids();
        shards.filter(|it| self.simulation.leader(*it) == place.node).for_each(|it| led.add(it));
        Watched::new(db, led, topology, time)
    }

    pub(super) fn spawn(&mut self, place: WorkerPlace, body: impl Future<Output = ()> + 'static) {
        let work = self.recorder.begin();
        let task: Task = Box::pin(async move {
            let _work = work;
            body.await;
        });
        self.simulation.spawn(place, task);
    }

    /// Starts `clients` clients, each on a worker of its home shard's leader.
    pub(super) fn admit(&mut self, clients: usize, pace: ArrivalPace) {
        let mut next_worker = vec![0; self.setting.shards as usize];
        for number in 0..clients {
            let shard = self.workload.client_shard(number, self.setting.shards);
            let turn = &mut next_worker[shard.0 as usize];
            *turn += 1;
            let place = self.place(shard, *turn);
            let client = TestbedClient {
                db: self.watched(place),
                number,
                seed: self.setting.seed,
                pace,
                stop: Rc::clone(&self.stop),
                recorder: self.recorder.clone(),
            };
            let workload = Rc::clone(&self.workload);
            self.spawn(place, client.live(workload));
        }
    }

    /// How long the leaders' workers have worked in total, and how many workers they have.
    fn worked(&self) -> (Duration, u32) {
        let Setting { shards, workers, .. } = self.setting;
        let places = (0..shards * workers)
            .map(|at| self.place(ShardId(at % shards), (at / shards) as usize));
        let worked = places.map(|place| self.simulation.worked(place)).sum();
        (worked, shards * workers)
    }

    /// The name of the workload that the clients run, for tables.
    pub(super) fn name(&self) -> &'static str {
        Workload::name(&*self.workload)
    }

    /// Makes the leader of a shard, or its followers, slower than they could be: 100 is full speed.
    pub(super) fn slow_down(
        &mut self,
        shard: ShardId,
        leader: bool,
        followers: bool,
        percent: u64,
    ) {
        let topology = Arc::clone(self.simulation.topology());
        for node in topology.replicas(shard) {
            if (node == topology.leader(shard) && leader)
                || (node != topology.leader(shard) && followers)
            {
                self.simulation.slow_down(node, percent);
            }
        }
    }

    /// Lets `span` of virtual time pass.
    pub(super) fn run(&mut self, span: Duration) -> RunResult<()> {
        const SLICES: u32 = 50;
        let began = self.simulation.now();
        for slice in 1..=SLICES {
            let until = began + span * slice / SLICES;
            self.simulation.run_until(until).map_err(|violation| violation.to_string())?;
            (self.tick)(f64::from(slice) / f64::from(SLICES));
            self.recorder.first_error().map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Begins the next period; returns what was counted in the last one.
    pub(super) fn turn(&mut self) -> PeriodCounts {
        self.recorder.turn(self.simulation.now());
        let (now, after) = (self.simulation.now(), self.simulation.metrics().engines);
        let (worked, workers) = self.worked();
        let mark = (now, after.clone(), worked);
        let (began, before, worked_before) = std::mem::replace(&mut self.mark, mark);
        let seconds = (now - began).as_secs_f64();
        let part = |of: u64, all: u64| of as f64 / all.max(1) as f64;
        let more = |name| after.get(name) - before.get(name);
        let [certified, wrote, cross_shard, stamps, conflicts] =
            ["certified", "wrote", "cross_shard", "stamps", "conflicts"].map(more);
        let remotes = more("stamp_entries") - stamps;
        PeriodCounts {
            certified_per_s: certified as f64 / seconds,
            committed_per_s: more("committed") as f64 / seconds,
            cross_part: part(cross_shard, certified),
            wrote_cross_part: part(cross_shard, wrote),
            stamp_remotes: part(remotes, stamps),
            bytes_each: part(more("batch_bytes"), wrote),
            abort_part: part(conflicts, certified + conflicts),
            busy_part: (worked - worked_before).as_secs_f64() / seconds / f64::from(workers),
        }
    }

    /// The latencies of a class of transactions that began in this period.
    pub(super) fn times(&self, period: usize, class: usize) -> Times {
        self.recorder.times(period, class)
    }

    /// Waits until every client has finished its transaction, and judges the data.
    pub(super) fn finish(&mut self) -> RunResult<()> {
        self.stop.set(true);
        self.wait(PATIENCE)?;
        let place = self.place(ShardId(0), 0);
        let (db, workload, recorder) =
            (self.watched(place), Rc::clone(&self.workload), self.recorder.clone());
        self.spawn(place, async move {
            match workload.check(&db).await {
                Err(error) => recorder.report_error(format!("the check failed: {error}")),
                Ok(checks) => {
                    for check in checks {
                        if let Err(what) = check.verdict {
                            recorder.report_error(format!("{}: {what}", check.name));
                        }
                    }
                }
            }
        });
        self.wait(PATIENCE)
    }

    /// Waits until every client has ended.
    pub(super) fn wait(&mut self, patience: Duration) -> RunResult<()> {
        let recorder = self.recorder.clone();
        let is_done = move |simulation: &Simulation<E>| {
            recorder.first_error().is_some()
                || recorder.running_clients() == 0 && simulation.pending() == 0
        };
        let end = self.simulation.now() + patience;
        while !is_done(&self.simulation) {
            if self.simulation.now() >= end {
                let (left, open) = (self.recorder.running_clients(), self.simulation.pending());
                return Err(format!(
                    "after {patience:?}, {left} clients are still at work and {open} things pending"
                ));
            }
            let until = self.simulation.now() + Duration::from_millis(2);
            self.simulation.run_until(until).map_err(|violation| violation.to_string())?;
        }
        self.recorder.first_error().map_or(Ok(()), Err)
    }
}

/// A client on a worker.
struct TestbedClient {
    db: Watched,
    number: usize,
    seed: u64,
    pace: ArrivalPace,
    stop: Rc<Cell<bool>>,
    recorder: LatencyRecorder,
}

impl TestbedClient {
    async fn live<W: Workload>(self, workload: Rc<W>) {
        let TestbedClient { db, number, seed, pace, stop, recorder } = self;
        let mut client = workload.client(number, seed);
        let mut random = Random::new(seed).fork(1 << 32 | number as u64);
        while !stop.get() {
            let longest = match pace {
                ArrivalPace::Thinking(longest) => longest,
                // A transaction that needs no message takes no virtual time: without a pause the client would
                // never end its step.
                ArrivalPace::Eager => Duration::from_nanos(1000),
            };
            let nanos = random.range_inclusive(1, longest.as_nanos() as u64);
            db.local().sleep(Duration::from_nanos(nanos)).await;
            match workload.next(&db, &mut client).await {
                Ok(_) => recorder.done(db.began(), db.touched(), db.took()),
                // Limits let every client in and every attempt repeat, so any error is unexpected.
                Err(error) => recorder.report_error(error.to_string()),
            }
        }
    }
}
