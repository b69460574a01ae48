//! A run: one seed from beginning to end.
//!
//! ```text
//! load ─► run clients under faults ─► heal ─► finish what was begun ─► quiet ─► judge
//! ```
//! *Finish*: after the healing, every transaction that was begun has to end within [`PATIENCE`]. *Quiet*: the
//! replicas catch up. *Judge*: replicas are equal, acknowledged transactions are there, workloads find their
//! data consistent, and the history is strictly serializable.

use crate::checks::replicas;
use crate::clients::outside::OutsideClient;
use crate::clients::process::{ClientProcess, ProcessEnvironment};
use crate::clients::tables::CreatedTables;
use crate::clients::{ClientContext, Ledger, calls, histories};
use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::distances::{DistanceSource, SimulatedRegions};
use crate::fault_schedule::DiskTroubles;
use crate::managers::EpochChanges;
use crate::metrics::Metrics;
use crate::panics;
use crate::scenario::{
    ClientGroup, ClientWork, HomeWorkload, SPARE_CLIENTS, Scenario, ScenarioWork,
};
use crate::seed_ranges::{
    ACCEPTED_LOSS_SEEDS, BAD_DISKS_FROM, COMMIT_IDS_FROM, COORDINATORS_FROM, DISK_SEEDS,
    FULL_DISKS_FROM, FULL_SEEDS, HOMES_SEEDS, NODES_FROM, OLDER_DISKS_FROM, REPLACEMENTS_FROM,
    TABLES_FROM, UNEQUAL_FROM, UNREADABLE_DISKS_FROM,
};
use crate::simulation::{Simulation, SimulationWorld};
use crate::subject::{self, AnyPlantedBug, StreamCuts, Subject};
use crate::violation::Violation;
use shoal_client::ClusterOptions;
use shoal_cluster::topology::Topology;
use shoal_engine::client::Directory;
use shoal_engine::engine::Setup;
use shoal_engine::{Procedures, WorkerPlace};
use shoal_types::{Durability, NodeId, Random, ShardId, Time, WorkerId};
use shoal_wal::DiskPlantedBugs;
use shoal_workloads::catalog::Catalog;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Once all faults are healed, every transaction that was begun ends within this time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The most transactions of one client.
const TRANSACTIONS_MAX: u32 = 500;

/// The most attempts at a transaction of a client outside.
const ATTEMPTS_MAX: u32 = 30;

/// Where nodes fail, the longest time after which clients outside repeat a request: all their attempts at a
/// node that never restarts have to fit into [`PATIENCE`].
const ASK_AFTER_MAX: Duration = Duration::from_millis(1500);

/// Of seeds that may have one, one in so many has a node without replicas.
const COORDINATOR_ONE_IN: u64 = 4;

/// Of seeds that may have one, one in so many has full stores.
const FULL_ONE_IN: u64 = 2;

/// Of seeds that may have them, one in so many has clients that create and drop tables.
const TABLES_ONE_IN: u64 = 2;

/// Of seeds that may have them, one in so many has request ids of commits.
const COMMIT_IDS_ONE_IN: u64 = 2;

/// Of restarts in the following ones, so many of a hundred find a disk that was damaged.
const DAMAGED_PERCENT: u32 = 20;

/// How often, while clients run, the run checks whether nodes have restarted.
const RESTART_CHECKS: u64 = 40;

/// A replica that was far behind catches up within this time: a narrow window over a long distance takes
/// minutes for the loaded data.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(600);

/// Of seeds that may have them, one in so many has very unequal distances.
const UNEQUAL_ONE_IN: u64 = 4;

/// Of the seeds in which most crashes lose the node's memory, one in so many has a shard that loses a
/// majority of its voters.
const LOST_ONE_IN: u64 = 5;

/// Where a shard is lost, the deadline of requests of clients outside: the default of the shipped client.
const DEADLINE: Duration = Duration::from_secs(10);

/// The longest virtual time that loading may take.
const LOAD_PATIENCE: Duration = Duration::from_secs(120);

/// What a run is given besides its scenario.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions {
    /// The bug to plant, if any.
    pub bug: Option<AnyPlantedBug>,
    /// Whether no node fails, even if the seed has failures.
    pub calm: bool,
    /// Distances that replace those of the seed.
    pub regions: Option<SimulatedRegions>,
    /// The number of trace lines to keep of a run that failed.
    pub trace_lines: usize,
    /// Whether the digest covers every word of every message, and the seed is run twice to compare digests.
    pub twice: bool,
}

/// The result of a run.
#[derive(Debug)]
pub struct RunReport {
    /// The seed that was run.
    pub seed: u64,
    /// What was drawn for the run, in a line for its report.
    pub scenario: String,
    /// The counters of the run.
    pub metrics: Metrics,
    /// How often each rare path was reached.
    pub coverage: Coverage,
    /// The digest of all that happened.
    pub digest: Digest,
    /// The first violation, if any.
    pub failure: Option<RunFailure>,
}

/// Why a run failed, with what led to it.
#[derive(Debug)]
pub struct RunFailure {
    /// The rule that was broken, and how.
    pub violation: Violation,
    /// The last events before the failure.
    pub trace: Vec<String>,
}

/// Runs a seed. A failed run is repeated to record its last events.
pub fn run<E: Subject>(seed: u64, options: RunOptions) -> RunReport {
    let mut report = run_once::<E>(seed, options, 0);
    if options.twice && report.failure.is_none() {
        let again = run_once::<E>(seed, options, 0);
        if again.digest != report.digest {
            let what = format!("two runs differ: {} and {}", report.digest, again.digest);
            let violation = Violation::new("repeatability", Time::MAX, what);
            report.failure = Some(RunFailure { violation, trace: Vec::new() });
        }
    } else if report.failure.is_some() && options.trace_lines > 0 {
        let again = run_once::<E>(seed, options, options.trace_lines);
        if again.failure.is_some() {
            report.failure = again.failure;
        }
    }
    report
}

fn run_once<E: Subject>(seed: u64, options: RunOptions, trace_lines: usize) -> RunReport {
    let (scenario, mut prepared) = match PreparedRun::<E>::build(seed, options) {
        Ok(built) => built,
        Err(error) => panic!("seed {seed} makes no cluster: {error}"),
    };
    if trace_lines > 0 {
        prepared.simulation.keep_trace(trace_lines);
    }
    if options.twice {
        prepared.simulation.be_thorough();
    }
    // After a panic the cluster is not dropped, since dropping it may panic again.
    let mut prepared = ManuallyDrop::new(prepared);
    let (scenario_work, panicked) = match panics::note(|| {
        catch_unwind(AssertUnwindSafe(|| prepared.run_phases(&scenario)))
    }) {
        (Ok(verdict), _) => (verdict, false),
        (Err(_), what) => (Err(Violation::new("assertion", prepared.simulation.now(), what)), true),
    };
    let mut metrics = prepared.simulation.metrics();
    let asked_again = metrics.outcomes.asked_again;
    metrics.outcomes = prepared.context.ledger.outcomes();
    metrics.outcomes.asked_again = asked_again;
    let mut coverage = prepared.simulation.coverage();
    coverage.take_metrics(&metrics);
    let trace = prepared.simulation.take_trace();
    let report = RunReport {
        seed,
        scenario: scenario.to_string(),
        metrics,
        coverage,
        digest: prepared.simulation.digest(),
        failure: scenario_work.err().map(|violation| RunFailure { violation, trace }),
    };
    if !panicked {
        drop(ManuallyDrop::into_inner(prepared));
    }
    report
}

/// A cluster and its groups of clients before the run.
struct PreparedRun<E: Subject> {
    simulation: Simulation<E>,
    all_scenario_clients: Vec<ScenarioWork>,
    context: ClientContext,
    random: Random,
    /// Whether replicas are replaced.
    replaces: bool,
}

impl<E: Subject> PreparedRun<E> {
    fn build(seed: u64, options: RunOptions) -> shoal_types::Result<(Scenario, PreparedRun<E>)> {
        let root = Random::new(seed);
        let mut random = root.fork(10);
        let mut apart = root.fork(15);
        let source = match options.regions {
            Some(regions) => DistanceSource::Regions(regions),
            None if seed >= UNEQUAL_FROM && apart.chance(1, UNEQUAL_ONE_IN) => {
                DistanceSource::Unequal(apart)
            }
            None => DistanceSource::Drawn,
        };
        let mut scenario = Scenario::draw(&mut random, source);
        if options.calm {
            scenario.calm();
        }
        let fails = scenario.failures.fails;
        scenario.fault_schedule.forgets =
            fails && scenario.shape.voters > 1 && root.fork(13).chance(5, 6);
        if ACCEPTED_LOSS_SEEDS.contains(&seed) && fails {
            scenario.keep_on_disks(&mut root.fork(23));
            if E::PROTOCOL.info().accepts_losses {
                scenario.lose_until_accepted(&mut root.fork(24));
            }
        }
        if DISK_SEEDS.contains(&seed) && fails {
            scenario.keep_on_disks(&mut root.fork(23));
            let is_bad = seed >= BAD_DISKS_FROM;
            scenario.fault_schedule.disks = DiskTroubles {
                full_within_ns: if seed >= FULL_DISKS_FROM { scenario.span_ns } else { 0 },
                fail_within_ns: if is_bad { scenario.span_ns } else { 0 },
                damaged_percent: if is_bad { DAMAGED_PERCENT } else { 0 },
                put_back_percent: if seed >= OLDER_DISKS_FROM { DAMAGED_PERCENT } else { 0 },
                unreadable_percent: if seed >= UNREADABLE_DISKS_FROM { DAMAGED_PERCENT } else { 0 },
            };
        }
        let mut lot = root.fork(14);
        if E::PROTOCOL.info().accepts_losses
            && scenario.fault_schedule.forgets
            && lot.chance(1, LOST_ONE_IN)
        {
            scenario.lose(&mut lot);
        }
        let may_have = seed >= COORDINATORS_FROM;
        if may_have && root.fork(15).chance(1, COORDINATOR_ONE_IN) {
            scenario.shape.coordinators = 1;
        }
        let mut lot = root.fork(17);
        if seed >= TABLES_FROM && lot.chance(1, TABLES_ONE_IN) {
            let outsiders = lot.range_inclusive(1, 4) as usize;
            let work = ClientWork::Tables(CreatedTables::Hashed);
            scenario.groups.push(ClientGroup { work, residents: 0, outsiders });
        }
        let mut lot = root.fork(18);
        if seed >= REPLACEMENTS_FROM && scenario.loss.is_none() {
            scenario.shape.coordinators = lot.range_inclusive(1, 2) as u32;
            scenario.replacements_every_ns = scenario.span_ns / lot.range_inclusive(2, 12);
        }
        let mut lot = root.fork(20);
        if seed >= NODES_FROM && scenario.replacements_every_ns > 0 {
            let datacenters = u64::from(scenario.shape.datacenters);
            let latecomers = 0..lot.range_inclusive(1, 3);
            scenario.latecomers = latecomers.map(|_| lot.below(datacenters) as usize).collect();
            scenario.node_changes_every_ns = scenario.span_ns / lot.range_inclusive(3, 20);
        }
        if HOMES_SEEDS.contains(&seed) {
            let group = HomeWorkload::draw_group(&mut root.fork(22), &scenario);
            scenario.groups.push(group);
        }
        scenario.commit_ids = seed >= COMMIT_IDS_FROM && root.fork(19).chance(1, COMMIT_IDS_ONE_IN);
        E::fit(&mut scenario, &mut root.fork(20));
        let catalog = Catalog::new();
        let all_scenario_clients =
            scenario.groups.iter().map(|group| group.scenario_clients(&catalog));
        let all_scenario_clients =
            all_scenario_clients.collect::<shoal_types::Result<Vec<ScenarioWork>>>()?;
        let shards = scenario.shape.shards;
        let tables = catalog.names().into_iter().map(|name| {
            let definition = E::definition(&scenario, &mut random, &name, shards);
            (name, definition)
        });
        let tables: Vec<_> = tables.chain(E::tables(shards)).collect();
        let mut topology = scenario.shape.topology(tables);
        if scenario.disks {
            topology = Arc::new(Topology::clone(&topology).with_durability(Durability::Fsync));
        }
        for calls in
            all_scenario_clients.iter().filter_map(|scenario_work| scenario_work.calls.as_ref())
        {
            calls.settle(&topology);
        }
        let round_trip = Duration::from_nanos(scenario.round_trip_ns);
        let mut engine_options = E::draw(&mut random, round_trip);
        E::fit_options(&mut engine_options, &scenario);
        let mut room = root.fork(16);
        if FULL_SEEDS.contains(&seed) && room.chance(1, FULL_ONE_IN) {
            E::limits(&mut engine_options).memory_bytes_max = subject::little_memory(&mut room);
        }
        let cuts = match fails {
            true if scenario.fault_schedule.forgets || scenario.disks => StreamCuts::Early,
            true => StreamCuts::Never,
            false => StreamCuts::Everywhere,
        };
        let mut streams = subject::streams(&mut random, round_trip, cuts);
        if scenario.shape.voters == 1 {
            // A step decides the entries that it appends: trimming would remove them before the checkers have
            // seen them.
            streams.trim_entries = u64::MAX;
        }
        let procedures = Procedures::new().with(calls::PROCEDURE, calls::increment);
        let procedures = Arc::new(shoal_workloads::procedures::register(procedures));
        let nodes = topology.nodes().len() + scenario.latecomers.len();
        let datacenters = topology.datacenters().len() as u64;
        let clients = (0..scenario.outsiders()).map(|_| random.below(datacenters) as usize);
        let mut world = SimulationWorld {
            clients: clients.collect(),
            clocks: scenario.clocks(nodes, &mut random),
            latecomers: scenario.latecomers.clone(),
            delays: scenario.delays.clone(),
            cpu: scenario.cpu,
            persistence_ns: scenario.persistence_ns,
            disks: scenario.disks.then(DiskPlantedBugs::default),
            is_judged: true,
            managers: Some(scenario.failures.managed(&mut random)),
        };
        if let Some(managers) = &mut world.managers {
            managers.options.membership_epochs = E::MEMBERSHIP_EPOCHS;
        }
        let mut setup = Setup { topology, procedures, streams, options: engine_options };
        if let Some(bug) = options.bug {
            subject::plant::<E>(&mut setup, &mut world, bug);
        }
        let mut simulation = Simulation::new(&setup, world, root.fork(11).next_u64());
        if scenario.fault_schedule.wild_clocks {
            simulation.expect_wild_clocks();
        }
        if let Some(difference) = scenario.clocks_within {
            simulation.keep_clocks_within(difference);
        }
        let context = ClientContext {
            ledger: Ledger::new(),
            stop: Rc::default(),
            time: simulation.true_time(),
            pause_ns_max: scenario.pause_ns_max,
            transactions_max: TRANSACTIONS_MAX,
        };
        let (random, replaces) = (root.fork(12), scenario.replacements_every_ns > 0);
        let prepared = PreparedRun { simulation, all_scenario_clients, context, random, replaces };
        Ok((scenario, prepared))
    }

    /// A random worker of a node that leads a shard which is not lost.
    fn leader_place(&mut self) -> WorkerPlace {
        let topology = Arc::clone(self.simulation.topology());
        let lost = self.simulation.lost();
        let shards: Vec<ShardId> =
            topology.shard_ids().filter(|shard| Some(*shard) != lost).collect();
        let shard = *self.random.pick(&shards).expect("one is not lost");
        let worker = WorkerId(self.random.below(topology.workers().into()) as u32);
        WorkerPlace { node: self.simulation.leader(shard), worker }
    }

    /// The worker of a new client: at half of them, of a node that leads nothing.
    fn client_place(&mut self) -> WorkerPlace {
        let place = self.leader_place();
        let topology = self.simulation.topology();
        let leaders: Vec<NodeId> =
            topology.shard_ids().map(|shard| self.simulation.leader(shard)).collect();
        let nodes = topology.nodes().iter().map(|node| node.id);
        let others: Vec<NodeId> = nodes.filter(|node| !leaders.contains(node)).collect();
        match self.random.pick(&others) {
            Some(node) if self.random.chance(1, 2) => WorkerPlace { node: *node, ..place },
            _ => place,
        }
    }

    /// The clients' time under faults, then the end of all faults, and then the checks of what is left.
    fn run_phases(&mut self, scenario: &Scenario) -> Result<(), Violation> {
        self.load()?;
        self.start_clients(scenario);
        self.simulation.set_fault_schedule(scenario.fault_schedule);
        self.simulation.copy_late(scenario.late_copies_percent);
        self.simulation.break_connections(scenario.broken_percent);
        self.simulation.set_changes(scenario.changes);
        self.simulation.set_replacements(scenario.replacements_every_ns);
        self.simulation.set_node_changes(scenario.node_changes_every_ns);
        self.scenario_clients(scenario)?;
        self.context.stop.set(true);
        self.simulation.heal();
        self.simulation.set_changes(EpochChanges::default());
        self.simulation.set_replacements(0);
        self.simulation.set_node_changes(0);
        self.finish()?;
        self.simulation.deliver_late();
        self.finish()?;
        // A node that was cut off during the faults may be declared dead after them, which ends an epoch.
        if scenario.failures.fails {
            self.simulation.run_until(self.simulation.now() + 2 * self.simulation.lease())?;
            self.finish()?;
        }
        self.settle()?;
        self.catch_up(scenario)?;
        self.judge()
    }

    /// Lets clients run under faults for a while. Nodes that restart get new clients.
    fn scenario_clients(&mut self, scenario: &Scenario) -> Result<(), Violation> {
        let began = self.simulation.now();
        if let Some(loss) = scenario.loss {
            self.simulation.plan_loss(loss);
        }
        let nodes = self.simulation.node_count();
        let mut instances: Vec<u32> =
            (0..nodes).map(|id| self.simulation.instance(NodeId(id))).collect();
        let mut spares = vec![0; scenario.groups.len()];
        for look in 1..=RESTART_CHECKS {
            self.simulation.run_until(Time(began.0 + scenario.span_ns * look / RESTART_CHECKS))?;
            for node in (0..nodes).map(NodeId) {
                let instance = self.simulation.instance(node);
                let is_new =
                    std::mem::replace(&mut instances[node.0 as usize], instance) != instance;
                if is_new && self.simulation.is_up(node) {
                    self.replace_clients(scenario, node, &mut spares);
                }
            }
        }
        Ok(())
    }

    /// Starts a client of each group on a restarted node, while spares are left.
    fn replace_clients(&mut self, scenario: &Scenario, node: NodeId, spares: &mut [usize]) {
        let seed = self.random.next_u64();
        let all_scenario_clients = self.all_scenario_clients.clone();
        for ((group, scenario_work), spare) in
            scenario.groups.iter().zip(all_scenario_clients).zip(spares)
        {
            if group.residents == 0 || *spare == SPARE_CLIENTS {
                continue;
            }
            let number = group.residents + group.outsiders + *spare;
            *spare += 1;
            let worker =
                WorkerId(self.random.below(self.simulation.topology().workers().into()) as u32);
            let place = WorkerPlace { node, worker };
            let db = self.simulation.local(place);
            let task = Rc::clone(&scenario_work.scenario_clients).resident(
                db,
                number,
                seed,
                self.context.clone(),
            );
            self.simulation.spawn(place, task);
        }
    }

    fn load(&mut self) -> Result<(), Violation> {
        let led = |simulation: &Simulation<E>| simulation.is_led();
        if !self.simulation.run_while_not(LOAD_PATIENCE, led)? {
            let what = "not every stream has a leader";
            return Err(Violation::new("load", self.simulation.now(), what));
        }
        let seed = self.random.next_u64();
        for scenario_work in self.all_scenario_clients.clone() {
            for part in 0..scenario_work.scenario_clients.parts() {
                let place = self.leader_place();
                let db = self.simulation.local(place);
                let task = Rc::clone(&scenario_work.scenario_clients).load(
                    db,
                    part,
                    seed,
                    self.context.clone(),
                );
                self.simulation.spawn(place, task);
                // One part after the other, since the limits on open transactions may be tight.
                self.wait("load", LOAD_PATIENCE)?;
            }
        }
        Ok(())
    }

    /// Spawns the clients of each group, on workers and outside.
    fn start_clients(&mut self, scenario: &Scenario) {
        let seed = self.random.next_u64();
        let fails = scenario.failures.fails;
        let patience = Duration::from_nanos(scenario.patience_ns);
        let patience = if fails { patience.min(ASK_AFTER_MAX) } else { patience };
        let options = ClusterOptions::default();
        let options = ClusterOptions {
            patience,
            silence_max: options.silence_max.max(patience),
            attempts_max: ATTEMPTS_MAX,
            deadline: scenario.loss.map_or(Duration::MAX, |_| DEADLINE),
            commit_ids: scenario.commit_ids,
            ..options
        };
        let topology = Arc::clone(self.simulation.topology());
        let routing = E::CLIENT_ROUTING;
        let directory = Directory { topology, configuration: None, routing };
        let mut outsiders = 0;
        for (group, scenario_work) in scenario.groups.iter().zip(self.all_scenario_clients.clone())
        {
            for number in 0..group.residents {
                let place = self.client_place();
                let db = self.simulation.local(place);
                let scenario_clients = Rc::clone(&scenario_work.scenario_clients);
                let task = scenario_clients.resident(db, number, seed, self.context.clone());
                self.simulation.spawn(place, task);
            }
            for number in group.residents..group.residents + group.outsiders {
                outsiders += 1;
                let (environment, random) =
                    (ProcessEnvironment::new(), self.random.fork(outsiders));
                let db = OutsideClient::new(
                    environment.clone(),
                    options.clone(),
                    directory.clone(),
                    random,
                );
                let scenario_clients = Rc::clone(&scenario_work.scenario_clients);
                let task = scenario_clients.outside(db, number, seed, self.context.clone());
                self.simulation.admit(ClientProcess::new(environment, task));
            }
        }
    }

    /// Waits until all tasks have ended and no transaction is open.
    fn wait(&mut self, rule: &'static str, patience: Duration) -> Result<(), Violation> {
        let ledger = self.context.ledger.clone();
        let is_done = move |simulation: &Simulation<E>| {
            ledger.first_error().is_some() || ledger.open_tasks() == 0 && simulation.held() == 0
        };
        let done = self.simulation.run_while_not(patience, is_done)?;
        self.check_client_errors()?;
        if done {
            return Ok(());
        }
        let (tasks, pending) = (self.context.ledger.open_tasks(), self.simulation.held());
        let places = self.simulation.pending_places();
        let sizes = |(what, size): &(&str, usize)| format!("{what}: {size}");
        let place = |(at, kept): &(WorkerPlace, Vec<_>)| {
            format!("{at} ({})", kept.iter().map(sizes).collect::<Vec<_>>().join(", "))
        };
        let places = places.iter().map(place).collect::<Vec<_>>().join(", ");
        let what = format!(
            "after {patience:?} without faults {tasks} clients are still at work and {pending} \
             transactions under way: {places}"
        );
        Err(Violation::new(rule, self.simulation.now(), what))
    }

    /// Waits until every shard is served and every task has ended.
    fn finish(&mut self) -> Result<(), Violation> {
        let led = self.simulation.run_while_not(PATIENCE, Simulation::is_led)?;
        if !led {
            let shard = self.simulation.not_led();
            let assignment = shard.and_then(|shard| self.simulation.configuration()?.shard(shard));
            let what = format!(
                "after {PATIENCE:?} without faults a shard has no leader that serves: {shard:?}, {assignment:?}"
            );
            return Err(Violation::new("liveness", self.simulation.now(), what));
        }
        self.wait("liveness", PATIENCE)
    }

    /// Waits until every closed epoch is settled.
    fn settle(&mut self) -> Result<(), Violation> {
        match self.simulation.run_while_not(PATIENCE, Simulation::is_settled)? {
            true => {
                self.simulation.end_without_lost();
                Ok(())
            }
            false => {
                let what =
                    format!("after {PATIENCE:?} without faults an epoch is closed and not settled");
                Err(Violation::new("liveness", self.simulation.now(), what))
            }
        }
    }

    /// Checks whether a client recorded a violation. Where clocks exceeded their bounds and a former leader
    /// acted, it may have served old versions: then such violations prove nothing.
    fn check_client_errors(&self) -> Result<(), Violation> {
        if self.simulation.checks().is_some_and(|checks| checks.two_leaders() > 0) {
            return Ok(());
        }
        match self.context.ledger.first_error() {
            None => Ok(()),
            Some((at, what)) => Err(Violation::new("client", at, what)),
        }
    }

    /// Waits until the replicas have caught up.
    fn catch_up(&mut self, scenario: &Scenario) -> Result<(), Violation> {
        let mut pause =
            Duration::from_nanos(4 * scenario.round_trip_ns) + Duration::from_millis(200);
        let end = self.simulation.now() + CATCH_UP_PATIENCE;
        loop {
            self.simulation.run_until(self.simulation.now() + pause)?;
            let Err((rule, what)) = self.compare() else {
                // Workers collect garbage on their own, and such a transaction may be open (two_phase_commit
                // 420).
                return self.wait("liveness", PATIENCE);
            };
            if self.simulation.now() >= end {
                return Err(Violation::new(rule, self.simulation.now(), what));
            }
            // A replica that was cut off for long may lack thousands of entries.
            pause *= 2;
        }
    }

    /// Whether replicas have the same, and what the engine has comes to when nothing is under way.
    fn compare(&self) -> Result<(), (&'static str, String)> {
        let Some(checks) = self.simulation.checks() else { return Ok(()) };
        checks.agree()?;
        if !E::PROTOCOL.info().replicates_shards {
            return Ok(());
        }
        let store = |node: NodeId, shard| self.simulation.store(node, shard);
        let holders = |shard| self.simulation.holders(shard);
        let gone = |node| self.simulation.is_gone(node);
        let (installed, lost) = (checks.installed(), self.simulation.lost());
        let rolled_back = |shard, stamp: &shoal_types::Stamp| checks.is_rolled_back(shard, stamp);
        let topology = self.simulation.truth_topology();
        if self.replaces && !self.simulation.are_replicas_full() {
            return Err(("replicas", "a replica has no copy of its shard yet".to_owned()));
        }
        let verdict =
            replicas::check(&topology, installed, lost, holders, store, gone, rolled_back);
        verdict.map_err(|what| ("replicas", what))
    }

    fn judge(&mut self) -> Result<(), Violation> {
        if let Some(checks) = self.simulation.checks() {
            checks.finish(self.simulation.now())?;
        }
        let is_lost = self.simulation.lost().is_some();
        // Keys of a lost shard cannot be read: only groups whose data is judged without them are judged.
        let judged = |scenario_work: &ScenarioWork| {
            !is_lost || scenario_work.scenario_clients.name() == histories::NAME
        };
        for scenario_work in self.all_scenario_clients.clone().into_iter().filter(judged) {
            let place = self.leader_place();
            let db = self.simulation.local(place);
            let task = Rc::clone(&scenario_work.scenario_clients).check(db, self.context.clone());
            self.simulation.spawn(place, task);
            self.wait("check", LOAD_PATIENCE)?;
        }
        Ok(())
    }
}
