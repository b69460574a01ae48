//! A run: one seed from beginning to end.
//!
//! ```text
//! load ─► play, while things go wrong ─► heal ─► finish what was begun ─► quiet ─► judge
//! ```
//! *Finish*: after the healing, everything that was begun has to end within [`PATIENCE`]. *Quiet*: the
//! replicas catch up. *Judge*: replicas are equal, acknowledgements were kept, workloads find their data
//! in order, the history is strictly serializable.

use crate::catalog::Catalog;
use crate::checks::replicas;
use crate::clients::outside::OutsideClient;
use crate::clients::process::{ClientProcess, ProcessEnvironment};
use crate::clients::{ClientContext, Ledger, calls, histories};
use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::distances::{DistanceSource, SimulatedRegions};
use crate::managers::EpochChanges;
use crate::metrics::Metrics;
use crate::panics;
use crate::scenario::{Scenario, ScenarioWork, partitioning};
use crate::simulation::{Simulation, SimulationWorld};
use crate::subject::{self, AnyPlantedBug, StreamCuts, Subject};
use crate::violation::Violation;
use shoal_client::ClusterOptions;
use shoal_engine::client::Directory;
use shoal_engine::engine::Setup;
use shoal_engine::{Procedures, WorkerPlace};
use shoal_types::{NodeId, Random, ShardId, Time, WorkerId};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Once nothing goes wrong any more, everything that was begun ends within this.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Each client does at most so many transactions.
const TRANSACTIONS_MAX: u32 = 500;

/// A transaction of a client outside is run so often at most.
const ATTEMPTS_MAX: u32 = 30;

/// Where nodes fail, clients outside ask again after so long at most: all their asks of a node that never comes back have to
/// fit into [`PATIENCE`].
const ASK_AFTER_MAX: Duration = Duration::from_millis(1500);

/// Where nodes fail, so many residents of each play come after others have died.
pub const SPARES: usize = 6;

/// Of the seeds from here on, in one of so many of an engine for which that is possible a node without replicas coordinates
/// transactions, and hosts half of the residents. Seeds below are recorded for what they found, and stay as they are.
const COORDINATORS_FROM: u64 = 10_000_000;
const COORDINATOR_ONE_IN: u64 = 4;

/// While clients play, it is looked so often whether nodes have come back.
const LOOKS: u64 = 40;

/// A replica that was far behind catches up within this: a narrow window over a long distance takes
/// minutes for what was loaded.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(600);

/// From this seed on, in one of so many distances are very unequal. Seeds below mean what they meant before there were such.
const UNEQUAL_FROM_SEED: u64 = 1 << 24;
const UNEQUAL_ONE_IN: u64 = 4;

/// Of the seeds in which most crashes take the node's memory, in one of so many a shard loses a majority of its voters.
const LOST_ONE_IN: u64 = 5;

/// Where a shard is lost, clients outside wait so long for what they ask for, as the shipped client does.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long loading may take.
const LOAD_PATIENCE: Duration = Duration::from_secs(120);

/// How a seed is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions {
    /// A planted bug.
    pub bug: Option<AnyPlantedBug>,
    /// No node fails, also where the seed has failures.
    pub calm: bool,
    /// Other distances than those of the seed.
    pub regions: Option<SimulatedRegions>,
    /// Lines of trace to keep of a run that failed.
    pub trace_lines: usize,
    /// Every word of every message counts for the digest, and the seed is run twice.
    pub twice: bool,
}

/// How a run went.
#[derive(Debug)]
pub struct RunReport {
    /// Its seed.
    pub seed: u64,
    /// Its scenario, in words.
    pub scenario: String,
    /// What was counted.
    pub metrics: Metrics,
    /// Which rare paths were reached.
    pub coverage: Coverage,
    /// All that happened, in one number.
    pub digest: Digest,
    /// What was broken, if anything.
    pub failure: Option<RunFailure>,
}

/// A run that failed.
#[derive(Debug)]
pub struct RunFailure {
    /// What was broken.
    pub violation: Violation,
    /// The last events.
    pub trace: Vec<String>,
}

/// Runs a seed. A run that fails is run again to see its last events.
pub fn run<E: Subject>(seed: u64, orders: RunOptions) -> RunReport {
    let mut report = run_once::<E>(seed, orders, 0);
    if orders.twice && report.failure.is_none() {
        let again = run_once::<E>(seed, orders, 0);
        if again.digest != report.digest {
            let what = format!("two runs differ: {} and {}", report.digest, again.digest);
            let violation = Violation::new("repeatability", Time::MAX, what);
            report.failure = Some(RunFailure { violation, trace: Vec::new() });
        }
    } else if report.failure.is_some() && orders.trace_lines > 0 {
        let again = run_once::<E>(seed, orders, orders.trace_lines);
        if again.failure.is_some() {
            report.failure = again.failure;
        }
    }
    report
}

fn run_once<E: Subject>(seed: u64, orders: RunOptions, trace_lines: usize) -> RunReport {
    let (scenario, mut stand) = match PreparedRun::<E>::build(seed, orders) {
        Ok(built) => built,
        Err(error) => panic!("seed {seed} makes no cluster: {error}"),
    };
    if trace_lines > 0 {
        stand.simulation.keep_trace(trace_lines);
    }
    if orders.twice {
        stand.simulation.be_thorough();
    }
    // What panicked may panic again when it is dropped, so then it is not.
    let mut stand = ManuallyDrop::new(stand);
    let (scenario_work, panicked) = match panics::note(|| {
        catch_unwind(AssertUnwindSafe(|| stand.perform(&scenario)))
    }) {
        (Ok(verdict), _) => (verdict, false),
        (Err(_), what) => (Err(Violation::new("assertion", stand.simulation.now(), what)), true),
    };
    let mut metrics = stand.simulation.metrics();
    let asked_again = metrics.outcomes.asked_again;
    metrics.outcomes = stand.stage.ledger.outcomes();
    metrics.outcomes.asked_again = asked_again;
    let mut coverage = stand.simulation.coverage();
    coverage.take_metrics(&metrics);
    let trace = stand.simulation.take_trace();
    let report = RunReport {
        seed,
        scenario: scenario.to_string(),
        metrics,
        coverage,
        digest: stand.simulation.digest(),
        failure: scenario_work.err().map(|violation| RunFailure { violation, trace }),
    };
    if !panicked {
        drop(ManuallyDrop::into_inner(stand));
    }
    report
}

/// A cluster with its groups of clients, ready to begin.
struct PreparedRun<E: Subject> {
    simulation: Simulation<E>,
    all_scenario_clients: Vec<ScenarioWork>,
    stage: ClientContext,
    random: Random,
}

impl<E: Subject> PreparedRun<E> {
    fn build(seed: u64, orders: RunOptions) -> shoal_types::Result<(Scenario, PreparedRun<E>)> {
        let root = Random::new(seed);
        let mut random = root.fork(10);
        let mut apart = root.fork(15);
        let source = match orders.regions {
            Some(regions) => DistanceSource::Regions(regions),
            None if seed >= UNEQUAL_FROM_SEED && apart.chance(1, UNEQUAL_ONE_IN) => {
                DistanceSource::Unequal(apart)
            }
            None => DistanceSource::Drawn,
        };
        let mut scenario = Scenario::draw(&mut random, source);
        if orders.calm {
            scenario.calm();
        }
        let fails = scenario.failures.fails;
        scenario.fault_schedule.forgets =
            fails && scenario.shape.voters > 1 && root.fork(13).chance(5, 6);
        let mut lot = root.fork(14);
        if E::OUTLIVES_MAJORITIES && scenario.fault_schedule.forgets && lot.chance(1, LOST_ONE_IN) {
            scenario.lose(&mut lot);
        }
        let may_have = E::COORDINATES_ANYWHERE && seed >= COORDINATORS_FROM;
        if may_have && root.fork(15).chance(1, COORDINATOR_ONE_IN) {
            scenario.shape.coordinators = 1;
        }
        let catalog = Catalog::new();
        let all_scenario_clients = scenario.cast.iter().map(|cast| cast.scenario_clients(&catalog));
        let all_scenario_clients =
            all_scenario_clients.collect::<shoal_types::Result<Vec<ScenarioWork>>>()?;
        let shards = scenario.shape.shards;
        let tables = catalog.names().into_iter().map(|name| {
            let partitioning = partitioning(&mut random, &name, shards);
            (name, partitioning)
        });
        let tables: Vec<_> = tables.chain(E::tables(shards)).collect();
        let topology = scenario.shape.topology(tables);
        for calls in
            all_scenario_clients.iter().filter_map(|scenario_work| scenario_work.calls.as_ref())
        {
            calls.settle(&topology);
        }
        let round_trip = Duration::from_nanos(scenario.round_trip_ns);
        let options = E::draw(&mut random, round_trip);
        let cuts = match fails {
            true if scenario.fault_schedule.forgets => StreamCuts::Early,
            true => StreamCuts::Never,
            false => StreamCuts::Everywhere,
        };
        let mut streams = subject::streams(&mut random, round_trip, cuts);
        if scenario.shape.voters == 1 {
            // A step decides what it appends, and would cut what checkers have not seen.
            streams.trim_entries = u64::MAX;
        }
        let procedures = Arc::new(Procedures::new().with(calls::PROCEDURE, calls::increment));
        let nodes = topology.nodes().len();
        let datacenters = topology.datacenters().len() as u64;
        let clients = (0..scenario.outsiders()).map(|_| random.below(datacenters) as usize);
        let mut world = SimulationWorld {
            clients: clients.collect(),
            clocks: scenario.clocks(nodes, &mut random),
            delays: scenario.delays.clone(),
            cpu: scenario.cpu,
            persistence_ns: scenario.persistence_ns,
            is_judged: true,
            managers: Some(scenario.failures.managed(&mut random)),
        };
        let mut setup = Setup { topology, procedures, streams, options };
        if let Some(bug) = orders.bug {
            subject::plant::<E>(&mut setup, &mut world.managers, bug);
        }
        let mut simulation = Simulation::new(&setup, world, root.fork(11).next_u64());
        if scenario.fault_schedule.wild_clocks {
            simulation.expect_wild_clocks();
        }
        let stage = ClientContext {
            ledger: Ledger::new(),
            stop: Rc::default(),
            time: simulation.true_time(),
            pause_ns_max: scenario.pause_ns_max,
            transactions_max: TRANSACTIONS_MAX,
        };
        Ok((
            scenario,
            PreparedRun { simulation, all_scenario_clients, stage, random: root.fork(12) },
        ))
    }

    /// Some worker of a node that leads a shard which is not lost.
    fn somewhere(&mut self) -> WorkerPlace {
        let topology = Arc::clone(self.simulation.topology());
        let lost = self.simulation.lost();
        let shards: Vec<ShardId> =
            topology.shard_ids().filter(|shard| Some(*shard) != lost).collect();
        let shard = *self.random.pick(&shards).expect("one is not lost");
        let worker = WorkerId(self.random.below(topology.workers().into()) as u32);
        WorkerPlace { node: self.simulation.leader(shard), worker }
    }

    /// Where a resident lives.
    fn residence(&mut self) -> WorkerPlace {
        let place = self.somewhere();
        let topology = self.simulation.topology();
        let coordinator =
            topology.nodes().iter().find(|node| topology.shards_of(node.id).len() == 0);
        match coordinator.map(|node| node.id) {
            Some(node) if self.random.chance(1, 2) => WorkerPlace { node, ..place },
            _ => place,
        }
    }

    /// All phases.
    fn perform(&mut self, scenario: &Scenario) -> Result<(), Violation> {
        self.load()?;
        self.enter(scenario);
        self.simulation.set_fault_schedule(scenario.fault_schedule);
        self.simulation.copy_late(scenario.late_copies_percent);
        self.simulation.break_connections(scenario.broken_percent);
        self.simulation.set_changes(scenario.changes);
        self.scenario_clients(scenario)?;
        self.stage.stop.set(true);
        self.simulation.heal();
        self.simulation.set_changes(EpochChanges::default());
        self.finish()?;
        self.simulation.deliver_late();
        self.finish()?;
        // A node that was not heard while things went wrong may be replaced after that, and epochs end with it.
        if scenario.failures.fails {
            self.simulation.run_until(self.simulation.now() + 2 * self.simulation.lease())?;
            self.finish()?;
        }
        self.settle()?;
        self.become_quiet(scenario)?;
        self.judge()
    }

    /// Things happen, for a while. To nodes that come back new residents come, too.
    fn scenario_clients(&mut self, scenario: &Scenario) -> Result<(), Violation> {
        let began = self.simulation.now();
        if let Some(loss) = scenario.loss {
            self.simulation.plan_loss(loss);
        }
        let nodes = self.simulation.topology().nodes().len() as u32;
        let mut instances: Vec<u32> =
            (0..nodes).map(|id| self.simulation.instance(NodeId(id))).collect();
        let mut spares = vec![0; scenario.cast.len()];
        for look in 1..=LOOKS {
            self.simulation.run_until(Time(began.0 + scenario.span_ns * look / LOOKS))?;
            for node in (0..nodes).map(NodeId) {
                let instance = self.simulation.instance(node);
                let is_new =
                    std::mem::replace(&mut instances[node.0 as usize], instance) != instance;
                if is_new && self.simulation.is_up(node) {
                    self.come_back(scenario, node, &mut spares);
                }
            }
        }
        Ok(())
    }

    /// A resident of each play comes to a node, if there is one left.
    fn come_back(&mut self, scenario: &Scenario, node: NodeId, spares: &mut [usize]) {
        let seed = self.random.next_u64();
        let all_scenario_clients = self.all_scenario_clients.clone();
        for ((cast, scenario_work), spare) in
            scenario.cast.iter().zip(all_scenario_clients).zip(spares)
        {
            if cast.residents == 0 || *spare == SPARES {
                continue;
            }
            let number = cast.residents + cast.outsiders + *spare;
            *spare += 1;
            let worker =
                WorkerId(self.random.below(self.simulation.topology().workers().into()) as u32);
            let place = WorkerPlace { node, worker };
            let db = self.simulation.local(place);
            let task = Rc::clone(&scenario_work.scenario_clients).resident(
                db,
                number,
                seed,
                self.stage.clone(),
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
                let place = self.somewhere();
                let db = self.simulation.local(place);
                let task = Rc::clone(&scenario_work.scenario_clients).load(
                    db,
                    part,
                    seed,
                    self.stage.clone(),
                );
                self.simulation.spawn(place, task);
                // One after the other: limits on what is open may be tight.
                self.wait("load", LOAD_PATIENCE)?;
            }
        }
        Ok(())
    }

    /// The clients come.
    fn enter(&mut self, scenario: &Scenario) {
        let seed = self.random.next_u64();
        let fails = scenario.failures.fails;
        let patience = Duration::from_nanos(scenario.patience_ns);
        let options = ClusterOptions {
            patience: if fails { patience.min(ASK_AFTER_MAX) } else { patience },
            attempts_max: ATTEMPTS_MAX,
            deadline: scenario.loss.map_or(Duration::MAX, |_| DEADLINE),
            ..ClusterOptions::default()
        };
        let topology = Arc::clone(self.simulation.topology());
        let heard = Directory { topology, configuration: None };
        let mut outsiders = 0;
        for (cast, scenario_work) in scenario.cast.iter().zip(self.all_scenario_clients.clone()) {
            for number in 0..cast.residents {
                let place = self.residence();
                let db = self.simulation.local(place);
                let scenario_clients = Rc::clone(&scenario_work.scenario_clients);
                let task = scenario_clients.resident(db, number, seed, self.stage.clone());
                self.simulation.spawn(place, task);
            }
            for number in cast.residents..cast.residents + cast.outsiders {
                outsiders += 1;
                let (around, random) = (ProcessEnvironment::new(), self.random.fork(outsiders));
                let db = OutsideClient::new(around.clone(), options.clone(), heard.clone(), random);
                let scenario_clients = Rc::clone(&scenario_work.scenario_clients);
                let task = scenario_clients.outside(db, number, seed, self.stage.clone());
                self.simulation.admit(ClientProcess::new(around, task));
            }
        }
    }

    /// Waits until all tasks have ended and nothing is under way.
    fn wait(&mut self, rule: &'static str, patience: Duration) -> Result<(), Violation> {
        let ledger = self.stage.ledger.clone();
        let is_done = move |simulation: &Simulation<E>| {
            ledger.complaint().is_some() || ledger.at_work() == 0 && simulation.held() == 0
        };
        let done = self.simulation.run_while_not(patience, is_done)?;
        self.listen()?;
        if done {
            return Ok(());
        }
        let (tasks, pending) = (self.stage.ledger.at_work(), self.simulation.held());
        let places = self.simulation.pending_places();
        let places: Vec<_> = places.iter().map(|(at, count)| format!("{count} at {at}")).collect();
        let places = places.join(", ");
        let what = format!(
            "after {patience:?} without faults {tasks} clients are still at work and {pending} \
             transactions under way: {places}"
        );
        Err(Violation::new(rule, self.simulation.now(), what))
    }

    /// Every shard is served, and everything that was begun has ended.
    fn finish(&mut self) -> Result<(), Violation> {
        let led = self.simulation.run_while_not(PATIENCE, Simulation::is_led)?;
        if !led {
            let what =
                format!("after {PATIENCE:?} without faults a shard has no leader that serves");
            return Err(Violation::new("liveness", self.simulation.now(), what));
        }
        self.wait("liveness", PATIENCE)
    }

    /// Every epoch that has closed is settled.
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

    /// Did a client complain? Where clocks kept no bound and two have led, one of them may have shown what
    /// was old: then complaints prove nothing.
    fn listen(&self) -> Result<(), Violation> {
        if self.simulation.checks().is_some_and(|checks| checks.two_leaders() > 0) {
            return Ok(());
        }
        match self.stage.ledger.complaint() {
            None => Ok(()),
            Some((at, what)) => Err(Violation::new("client", at, what)),
        }
    }

    /// The replicas catch up.
    fn become_quiet(&mut self, scenario: &Scenario) -> Result<(), Violation> {
        let mut pause =
            Duration::from_nanos(4 * scenario.round_trip_ns) + Duration::from_millis(200);
        let end = self.simulation.now() + CATCH_UP_PATIENCE;
        loop {
            self.simulation.run_until(self.simulation.now() + pause)?;
            let Err(what) = self.compare() else {
                // Workers tidy up by themselves, and such a transaction may just be under way (two_phase_commit 420).
                return self.wait("liveness", PATIENCE);
            };
            if self.simulation.now() >= end {
                return Err(Violation::new("replicas", self.simulation.now(), what));
            }
            // A replica that was cut off for long may have thousands of entries to catch up with.
            pause *= 2;
        }
    }

    fn compare(&self) -> Result<(), String> {
        let Some(checks) = self.simulation.checks() else { return Ok(()) };
        let store = |node: NodeId, shard| self.simulation.store(node, shard);
        let leader = |shard| self.simulation.leader(shard);
        let gone = |node| self.simulation.is_gone(node);
        let installed = (checks.installed(), self.simulation.lost());
        let rolled_back = |shard, stamp: &shoal_types::Stamp| checks.is_rolled_back(shard, stamp);
        let topology = self.simulation.topology();
        replicas::check(topology, installed, leader, store, gone, rolled_back)
    }

    fn judge(&mut self) -> Result<(), Violation> {
        if let Some(checks) = self.simulation.checks() {
            checks.finish(self.simulation.now())?;
        }
        let is_lost = self.simulation.lost().is_some();
        // Where a shard is lost, nothing can be read that is on it: only histories tell by themselves.
        let judged = |scenario_work: &ScenarioWork| {
            !is_lost || scenario_work.scenario_clients.name() == histories::NAME
        };
        for scenario_work in self.all_scenario_clients.clone().into_iter().filter(judged) {
            let place = self.somewhere();
            let db = self.simulation.local(place);
            let task = Rc::clone(&scenario_work.scenario_clients).check(db, self.stage.clone());
            self.simulation.spawn(place, task);
            self.wait("check", LOAD_PATIENCE)?;
        }
        Ok(())
    }
}
