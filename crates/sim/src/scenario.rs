//! A scenario: everything that is drawn from the seed before a run begins. That is the shape of the cluster,
//! the distances, clocks and faults, the clients and their work, and the engine's configuration.

use crate::clients::ScenarioClients;
use crate::clients::calls::Calls;
use crate::clients::histories::Histories;
use crate::clients::skew::Skew;
use crate::clients::tables::{CreatedTables, Tables};
use crate::clients::tokens::Tokens;
use crate::clock::NodeClock;
use crate::cpu::Cpu;
use crate::distances::{self, DistanceSource};
use crate::draw::one_of;
use crate::failures::FailurePlan;
use crate::fault_schedule::{DiskTroubles, FaultSchedule, FaultWeights};
use crate::majority_loss::MajorityLoss;
use crate::managers::EpochChanges;
use crate::network::{Delay, Troubles};
use shoal_cluster::topology::{Partitioning, TableDefinition, Topology};
use shoal_types::{Database, DatacenterId, Random, Result, ShardId};
use shoal_workloads::history::generator::Parameters;
use shoal_workloads::locality::{HandoverShares, Handovers, Homes, SmallBank, Tatp, Voter};
use shoal_workloads::micro::Micro;
use shoal_workloads::tpcc::{Scale, TpcC};
use shoal_workloads::ycsb::{Distribution, Letter, VALUE_BYTES_MIN, Ycsb};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Where nodes fail, the number of clients of each group that replace those that died with a node.
pub const SPARE_CLIENTS: usize = 6;

/// How many nodes, shards, workers and datacenters a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterShape {
    /// How many datacenters there are.
    pub datacenters: u32,
    /// How many shards there are.
    pub shards: u32,
    /// How many voters each shard has.
    pub voters: u32,
    /// How many learners each shard has.
    pub learners: u32,
    /// How many workers each node has.
    pub workers: u32,
    /// Whether a node has a replica of every shard; otherwise each replica has its own node.
    pub compact: bool,
    /// How many nodes without replicas coordinate transactions.
    pub coordinators: u32,
}

/// The work of a group of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientWork {
    /// Transactions whose history is checked.
    Histories(OperationMix),
    /// Tokens that move between slots.
    Tokens,
    /// The micro-benchmark.
    Micro {
        /// Over so many keys.
        keys: u32,
        /// Whether its clients call procedures.
        calls: bool,
    },
    /// One of the workloads of YCSB.
    Ycsb(Letter),
    /// All five transactions of TPC-C, in its mix.
    TpcC {
        /// With so many warehouses.
        warehouses: u16,
        /// Whether its clients call procedures.
        calls: bool,
    },
    /// A workload whose data has homes.
    Homes(HomeWorkload, Homes),
    /// Procedures that are called by name, from clients outside.
    Calls,
    /// Write skew on this many pairs of rows.
    Skew(u8),
    /// Tables that are created, used and dropped, by clients outside.
    Tables(CreatedTables),
}

/// Where the round trip is longer, chunks of copies and windows of streams are not tiny, and workloads whose data has homes have
/// few objects: each of these costs round trips.
pub(crate) const FAR_ROUND_TRIP: Duration = Duration::from_millis(50);

/// The workloads whose data has homes. Their loads write hundreds of rows in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HomeWorkload {
    /// Accounts of two balances.
    SmallBank,
    /// Subscribers of a mobile network.
    Tatp,
    /// Voters and contestants.
    Voter,
    /// Users and base stations of a mobile network.
    Handovers,
}

/// The operations of the clients whose history is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationMix {
    /// The number of lists, and of registers, of a generation.
    pub keys: u32,
    /// The most operations of a transaction.
    pub operations_max: u32,
    /// Percentage of operations that read.
    pub reads_percent: u32,
    /// Percentage of operations that scan.
    pub scans_percent: u32,
}

/// A group of clients with the same work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientGroup {
    /// What all clients of the group do.
    pub work: ClientWork,
    /// The number of clients on workers.
    pub residents: usize,
    /// The number of clients outside.
    pub outsiders: usize,
}

/// Everything that is drawn from a seed before a run begins.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The shape of the cluster.
    pub shape: ClusterShape,
    /// Delays between datacenters: a row for each that messages come from.
    pub delays: Vec<Vec<Delay>>,
    /// About the longest round trip, in nanoseconds.
    pub round_trip_ns: u64,
    /// The greatest difference between the nodes' clocks at the start, in nanoseconds.
    pub skew_ns_max: u64,
    /// The greatest drift of the nodes' clocks, either way.
    pub drift_ppm_max: i64,
    /// The prices of the workers' actions; where they are not zero, busy workers queue events.
    pub cpu: Cpu,
    /// The longest time until a stream's promises and entries are durable, in nanoseconds; 0 if they are
    /// durable at once.
    pub persistence_ns: u64,
    /// Whether streams are recorded on virtual disks, which keep them over crashes of all nodes.
    pub disks: bool,
    /// The faults of the run.
    pub fault_schedule: FaultSchedule,
    /// How often epochs change, in an engine that follows them.
    pub changes: EpochChanges,
    /// The managers for such an engine, and whether nodes fail.
    pub failures: FailurePlan,
    /// The clients of the run, in groups of the same work.
    pub groups: Vec<ClientGroup>,
    /// How long the clients run, in nanoseconds.
    pub span_ns: u64,
    /// The longest pause of a client between two transactions, in nanoseconds.
    pub pause_ns_max: u64,
    /// The time after which clients outside repeat a request, in nanoseconds.
    pub patience_ns: u64,
    /// Percentage of requests of clients outside of which a copy arrives very late.
    pub late_copies_percent: u32,
    /// Percentage of lost messages of clients outside that break their connection; the others are sent again.
    pub broken_percent: u32,
    /// Whether commits of clients outside have request ids, by which the clients find out what became of them.
    pub commit_ids: bool,
    /// By how much the transaction clocks of two nodes differ at most, where that is so.
    pub clocks_within: Option<Duration>,
    /// The shard that loses a majority of its voters, if one does.
    pub loss: Option<MajorityLoss>,
    /// The mean time between two replacements of replicas in nanoseconds; 0 for never.
    pub replacements_every_ns: u64,
    /// The datacenters of nodes that can be added while clients run.
    pub latecomers: Vec<usize>,
    /// The mean time between two additions or removals of nodes in nanoseconds; 0 for never.
    pub node_changes_every_ns: u64,
}

impl Scenario {
    /// Draws a scenario, with distances from `source`.
    pub fn draw(random: &mut Random, source: DistanceSource) -> Scenario {
        let mut shape = ClusterShape::draw(random);
        let drawn = distances::draw(random, shape.datacenters as usize);
        let (delays, round_trip_ns) = source.delays(drawn);
        shape.datacenters = delays.len() as u32;
        let span_ns = (round_trip_ns * random.range_inclusive(40, 250)).clamp(150 * MS, 6000 * MS);
        let groups = draw_groups(random);
        let drift_ppm_max = one_of(random, &[0, 20, 200, 1000]);
        let failures = FailurePlan::draw(random, shape.datacenters, round_trip_ns, drift_ppm_max);
        let span_ns = failures.span_ns(span_ns);
        let mut fault_schedule = fault_schedule(random, span_ns, round_trip_ns);
        failures.add_faults(&mut fault_schedule, random, span_ns);
        let cpu = cpu(random);
        // A client that repeats a request before an answer can arrive keeps a busy worker from answering at
        // all.
        let slowest_answer_ns = 64 * cpu.message.as_nanos() as u64;
        Scenario {
            cpu,
            persistence_ns: one_of(random, &[0, 0, 20_000, round_trip_ns, 10 * MS]),
            disks: false,
            changes: changes(random, span_ns),
            failures,
            fault_schedule,
            skew_ns_max: one_of(random, &[0, MS, 100 * MS, 5000 * MS]),
            drift_ppm_max,
            pause_ns_max: one_of(random, &[2_000, 100_000, MS, span_ns / 250]),
            patience_ns: (round_trip_ns * random.range_inclusive(2, 20)).max(slowest_answer_ns),
            late_copies_percent: one_of(&mut random.fork(1), &[0, 2, 20, 100]),
            broken_percent: one_of(&mut random.fork(2), &[0, 0, 2, 20]),
            commit_ids: false,
            clocks_within: None,
            loss: None,
            replacements_every_ns: 0,
            latecomers: Vec::new(),
            node_changes_every_ns: 0,
            shape,
            delays,
            round_trip_ns,
            groups,
            span_ns,
        }
    }

    /// Lets no node fail, even if failures were drawn.
    pub fn calm(&mut self) {
        self.failures.calm();
        self.fault_schedule = FaultSchedule {
            weights: FaultWeights {
                crash: 0,
                datacenter: 0,
                pause: 0,
                part: 0,
                clock: 0,
                elect: 0,
                outage: 0,
                manager: 0,
                forget: 0,
                diverge: 0,
                ..self.fault_schedule.weights
            },
            lost_percent: 0,
            struck_percent: 0,
            gone_percent: 0,
            interrupted_ppm: 0,
            wild_clocks: false,
            ..self.fault_schedule
        };
    }

    /// Records streams on disks, which crashes leave: at times all nodes lose power at once.
    pub fn keep_on_disks(&mut self, random: &mut Random) {
        self.disks = true;
        self.persistence_ns = self.persistence_ns.max(20_000);
        self.fault_schedule.forgets = false;
        self.fault_schedule.weights.power = one_of(random, &[1, 2, 8]);
        let every_ns = self.span_ns / random.range_inclusive(3, 20);
        self.fault_schedule.every_ns = match self.fault_schedule.every_ns {
            0 => every_ns,
            drawn => drawn.min(every_ns),
        };
    }

    /// Adds the loss of a majority of a shard's voters; the other shards get nodes of their own.
    pub fn lose(&mut self, random: &mut Random) {
        self.shape.shards = self.shape.shards.max(2);
        self.shape.compact = false;
        // Long enough for leases to run out and for the following epochs to end.
        self.span_ns = self.span_ns.max(20 * self.failures.options.lease.as_nanos() as u64);
        self.loss = Some(MajorityLoss::draw(random, self.shape.shards, self.span_ns));
    }

    /// Adds the loss of a majority of a shard's voters that is accepted. One voter survives, and no learner that may have less.
    pub fn lose_until_accepted(&mut self, random: &mut Random) {
        self.lose(random);
        (self.shape.voters, self.shape.learners) = (3, 0);
        self.loss = Some(MajorityLoss::draw_accepted(random, self.shape.shards, self.span_ns));
    }

    /// A clock for each node.
    pub fn clocks(&self, nodes: usize, random: &mut Random) -> Vec<NodeClock> {
        let draw = |_| {
            let drift = random.below(2 * self.drift_ppm_max as u64 + 1) as i64 - self.drift_ppm_max;
            NodeClock::new(random.below(self.skew_ns_max + 1), drift)
        };
        (0..nodes).map(draw).collect()
    }

    /// The number of clients outside, all groups together.
    pub fn outsiders(&self) -> usize {
        self.groups.iter().map(|group| group.outsiders).sum()
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterShape { datacenters, shards, voters, learners, workers, compact, coordinators } =
            self.shape;
        let compact = if compact { ", compact" } else { "" };
        write!(f, "{shards} shards × {voters} voters + {learners} learners, {workers} workers, ")?;
        write!(
            f,
            "{datacenters} datacenters{compact}; round trip {} µs; ",
            self.round_trip_ns / 1000
        )?;
        if coordinators > 0 {
            write!(f, "{coordinators} coordinators without replicas; ")?;
        }
        if self.changes != EpochChanges::default() {
            write!(f, "an epoch every {} µs; ", self.changes.every_ns / 1000)?;
        }
        if self.cpu != Cpu::FREE {
            write!(f, "a message costs {} µs; ", self.cpu.message.as_micros())?;
        }
        if self.persistence_ns > 0 {
            let on = if self.disks { "on disk" } else { "durable" };
            write!(f, "{on} within {} µs; ", self.persistence_ns / 1000)?;
            let DiskTroubles { full_within_ns, fail_within_ns, .. } = self.fault_schedule.disks;
            for (within_ns, how) in [(full_within_ns, "full at times"), (fail_within_ns, "bad")] {
                if within_ns > 0 {
                    write!(f, "disks are {how}; ")?;
                }
            }
        }
        let FaultSchedule { troubles, every_ns, .. } = self.fault_schedule;
        let Troubles { loss_ppm, duplicate_ppm, reorder_ppm, tail_ppm } = troubles;
        write!(f, "ppm lost {loss_ppm}, twice {duplicate_ppm}, reordered {reorder_ppm}, ")?;
        write!(f, "late {tail_ppm}; a fault every {} µs; ", every_ns / 1000)?;
        if self.failures.fails {
            let FailurePlan { datacenters, options, .. } = &self.failures;
            let FaultSchedule { weights, lost_percent, struck_percent, wild_clocks, .. } =
                self.fault_schedule;
            let FaultSchedule { gone_percent, interrupted_ppm, .. } = self.fault_schedule;
            let lease = options.lease.as_micros();
            write!(f, "{} managers, lease {lease} µs, {weights:?}, ", datacenters.len())?;
            write!(f, "memory lost {lost_percent} %, struck {struck_percent} %, ")?;
            write!(f, "gone {gone_percent} %, steps interrupted {interrupted_ppm} ppm; ")?;
            if wild_clocks {
                write!(f, "clocks beyond their bounds, so that leases need not hold; ")?;
            }
        }
        if let Some(difference) = self.clocks_within {
            write!(f, "transaction clocks within {} µs; ", difference.as_micros())?;
        }
        if let Some(MajorityLoss { shard, after_ns, fate }) = self.loss {
            let after_ms = after_ns / MS;
            write!(f, "after {after_ms} ms a majority of {shard} is {fate:?}; ")?;
        }
        if self.replacements_every_ns > 0 {
            write!(f, "a replacement every {} µs; ", self.replacements_every_ns / 1000)?;
        }
        if self.node_changes_every_ns > 0 {
            let (every_us, more) = (self.node_changes_every_ns / 1000, self.latecomers.len());
            write!(f, "nodes added, up to {more}, or removed every {every_us} µs; ")?;
        }
        write!(f, "late copies {} %; ", self.late_copies_percent)?;
        write!(f, "connections broken by {} % of losses; ", self.broken_percent)?;
        for ClientGroup { work, residents, outsiders } in &self.groups {
            write!(f, "{work:?} {residents}+{outsiders}; ")?;
        }
        write!(f, "for {} ms", self.span_ns / MS)
    }
}

impl ClusterShape {
    fn draw(random: &mut Random) -> ClusterShape {
        let voters = one_of(random, &[1, 3, 3, 3, 5]);
        ClusterShape {
            datacenters: random.range_inclusive(1, 3) as u32,
            shards: one_of(random, &[1, 2, 2, 3, 3, 4]),
            voters,
            learners: one_of(random, &[0, 0, 1, 2]),
            workers: one_of(random, &[1, 1, 2, 2, 3]),
            compact: random.chance(1, 2),
            coordinators: 0,
        }
    }

    /// A topology of this shape, with these tables.
    ///
    /// # Panics
    /// If there is no such topology.
    pub fn topology<D: Into<TableDefinition>>(&self, tables: Vec<(String, D)>) -> Arc<Topology> {
        let ClusterShape { datacenters, shards, voters, learners, workers, compact, .. } = *self;
        let topology = if compact {
            Topology::compact(datacenters, shards, voters, learners, workers)
        } else {
            Topology::symmetric(datacenters, shards, voters, learners, workers)
        };
        let topology = (0..self.coordinators).fold(topology, |topology, number| {
            topology.with_node(format!("c{number}"), DatacenterId(number % datacenters))
        });
        let topology = topology.with_tables(tables);
        Arc::new(topology.unwrap_or_else(|error| panic!("no cluster has these tables: {error}")))
    }
}

fn changes(random: &mut Random, span_ns: u64) -> EpochChanges {
    if random.chance(1, 2) {
        return EpochChanges::default();
    }
    EpochChanges { every_ns: span_ns / random.range_inclusive(2, 30) }
}

fn cpu(random: &mut Random) -> Cpu {
    match random.below(6) {
        0 => Cpu::MEASURED.with_bytes(),
        1 => Cpu::MEASURED.with_bytes().slower(10),
        2 => Cpu::MEASURED.with_bytes().slower(30),
        _ => Cpu::FREE,
    }
}

fn fault_schedule(random: &mut Random, span_ns: u64, round_trip_ns: u64) -> FaultSchedule {
    if random.chance(1, 10) {
        return FaultSchedule::default();
    }
    let troubles = Troubles {
        loss_ppm: one_of(random, &[0, 0, 1_000, 20_000, 100_000]),
        duplicate_ppm: one_of(random, &[0, 0, 1_000, 20_000, 100_000]),
        reorder_ppm: one_of(random, &[0, 0, 10_000, 200_000, 1_000_000]),
        tail_ppm: one_of(random, &[0, 1_000, 10_000, 50_000]),
    };
    let weights = FaultWeights {
        clog: random.below(4) as u32,
        cut: random.below(4) as u32,
        failure_detector: random.below(3) as u32,
        stall: random.below(4) as u32,
        ..FaultWeights::default()
    };
    let is_calm = random.chance(1, 3) || weights == FaultWeights::default();
    let every_ns = if is_calm { 0 } else { span_ns / random.range_inclusive(3, 40) };
    let longest_ns = round_trip_ns * random.range_inclusive(1, 40);
    let longest_ns = longest_ns.min(span_ns);
    let interleaved_percent = one_of(random, &[0, 10, 50]);
    FaultSchedule {
        troubles,
        every_ns,
        longest_ns,
        weights,
        interleaved_percent,
        ..FaultSchedule::default()
    }
}

fn draw_groups(random: &mut Random) -> Vec<ClientGroup> {
    let mix = OperationMix {
        keys: random.range_inclusive(1, 6) as u32,
        operations_max: random.range_inclusive(1, 6) as u32,
        reads_percent: random.range_inclusive(20, 70) as u32,
        scans_percent: random.range_inclusive(0, 15) as u32,
    };
    let mut parts = Vec::new();
    // Nearly always clients whose history is checked; the other groups for the paths that only they reach.
    if random.chance(9, 10) {
        parts.push(ClientWork::Histories(mix));
    }
    if random.chance(1, 2) {
        parts.push(ClientWork::Tokens);
    }
    if random.chance(1, 3) {
        parts.push(ClientWork::Calls);
    }
    if random.chance(1, 3) {
        parts.push(ClientWork::Skew(random.range_inclusive(1, 2) as u8));
    }
    if random.chance(1, 5) {
        parts.push(ClientWork::Micro { keys: random.range_inclusive(4, 100) as u32, calls: false });
    }
    if random.chance(1, 4) {
        // A client that only reads goes on where writes are impossible: at a leader that is cut off.
        let letters = [Letter::A, Letter::B, Letter::C, Letter::C, Letter::D, Letter::E, Letter::F];
        parts.push(ClientWork::Ycsb(one_of(random, &letters)));
    }
    if random.chance(1, 8) || parts.is_empty() {
        let warehouses = random.range_inclusive(1, 2) as u16;
        parts.push(ClientWork::TpcC { warehouses, calls: false });
    }
    let clients = |work| {
        let (residents, outsiders) = (random.range_inclusive(1, 6), random.below(4));
        let (residents, outsiders) = match work {
            ClientWork::Calls => (0, 1 + outsiders),
            ClientWork::Histories(_) => (residents, outsiders),
            ClientWork::Skew(_) => (1 + residents, outsiders / 3),
            ClientWork::Tables(_) => (0, 1 + outsiders),
            ClientWork::Tokens
            | ClientWork::Micro { .. }
            | ClientWork::Ycsb(_)
            | ClientWork::TpcC { .. }
            | ClientWork::Homes(..) => (residents.div_ceil(2), outsiders / 2),
        };
        ClientGroup { work, residents: residents as usize, outsiders: outsiders as usize }
    };
    parts.into_iter().map(clients).collect()
}

impl ClientGroup {
    /// A group of clients with this work, on `db`.
    ///
    /// # Errors
    /// Those of opening its tables.
    pub fn scenario_clients<D: Database>(&self, db: &D) -> Result<ScenarioWork> {
        let clients = (self.residents + self.outsiders + SPARE_CLIENTS) as u64;
        Ok(match self.work {
            ClientWork::Histories(mix) => {
                let parameters = Parameters {
                    lists: mix.keys,
                    registers: mix.keys,
                    operations_max: mix.operations_max,
                    reads_percent: mix.reads_percent,
                    scans_percent: mix.scans_percent,
                    ..Parameters::default()
                };
                ScenarioWork::other(Histories::new(db, parameters, clients)?)
            }
            ClientWork::Skew(pairs) => ScenarioWork::other(Skew::new(db, pairs)?),
            ClientWork::Tokens => ScenarioWork::other(Tokens::new(db, 5, 12)?),
            ClientWork::Tables(created) => ScenarioWork::other(Tables::new(created)),
            ClientWork::Micro { keys, calls } => {
                let micro = Micro::new(db, keys)?;
                ScenarioWork::other(if calls { micro.calling() } else { micro })
            }
            ClientWork::Ycsb(letter) => {
                let uniform = Distribution::Uniform;
                ScenarioWork::other(Ycsb::new(db, letter, 40, VALUE_BYTES_MIN, uniform)?)
            }
            ClientWork::TpcC { warehouses, calls } => {
                let scale = Scale { items: 20, customers: 6, undelivered: 3, warehouses };
                let tpcc = TpcC::new(db, scale)?;
                ScenarioWork::other(if calls { tpcc.calling() } else { tpcc })
            }
            ClientWork::Homes(workload, homes) => workload.scenario_work(db, homes)?,
            ClientWork::Calls => {
                let calls = Rc::new(Calls::new(db, 6)?);
                let scenario_clients: Rc<dyn ScenarioClients> =
                    Rc::clone(&calls) as Rc<dyn ScenarioClients>;
                ScenarioWork { scenario_clients, calls: Some(calls) }
            }
        })
    }
}

impl HomeWorkload {
    /// A group of clients of one of them for this scenario, with the numbers of its homes and objects, and the share of its
    /// remote writes.
    pub fn draw_group(random: &mut Random, scenario: &Scenario) -> ClientGroup {
        let all = [
            HomeWorkload::SmallBank,
            HomeWorkload::Tatp,
            HomeWorkload::Voter,
            HomeWorkload::Handovers,
        ];
        // To read all of thousands of rows in the end would take minutes.
        let is_far = Duration::from_nanos(scenario.round_trip_ns) > FAR_ROUND_TRIP;
        let objects_max = if is_far { 12 } else { u32::MAX };
        let workload = one_of(random, &all);
        let homes = Homes {
            homes: random.range_inclusive(1, 3) as u32,
            // A user whose transaction's outcome is not known is not used again.
            objects: match workload {
                HomeWorkload::Handovers => 300,
                _ => one_of(random, &[4, 12, 100, 300]).min(objects_max),
            },
            remote_ppm: one_of(random, &[0, 50_000, 300_000, 1_000_000]),
        };
        let (residents, outsiders) = (random.range_inclusive(1, 4), random.below(3));
        ClientGroup {
            work: ClientWork::Homes(workload, homes),
            residents: residents as usize,
            outsiders: outsiders as usize,
        }
    }

    fn scenario_work<D: Database>(self, db: &D, homes: Homes) -> Result<ScenarioWork> {
        Ok(match self {
            HomeWorkload::SmallBank => ScenarioWork::other(SmallBank::new(db, homes)?),
            HomeWorkload::Tatp => ScenarioWork::other(Tatp::new(db, homes)?),
            HomeWorkload::Voter => ScenarioWork::other(Voter::new(db, homes)?),
            HomeWorkload::Handovers => {
                let shares = HandoverShares { stations: 4, handovers_ppm: 200_000 };
                ScenarioWork::other(Handovers::new(db, homes, shares)?)
            }
        })
    }
}

/// A group of clients, and the same group as [`Calls`] if it has to be given the topology.
#[derive(Clone)]
pub struct ScenarioWork {
    /// The clients' work, with the state that they share.
    pub scenario_clients: Rc<dyn ScenarioClients>,
    /// The same group, if its clients call procedures.
    pub calls: Option<Rc<Calls>>,
}

impl ScenarioWork {
    fn other(scenario_clients: impl ScenarioClients + 'static) -> ScenarioWork {
        ScenarioWork { scenario_clients: Rc::new(scenario_clients), calls: None }
    }
}

/// Draws the partitioning of a table.
pub fn partitioning(random: &mut Random, table: &str, shards: u32) -> Partitioning {
    // Small and never written: a table of which every shard has a copy is made for this case.
    if table == "tpcc.item" && random.chance(1, 2) || random.chance(1, 30) {
        return Partitioning::Everywhere;
    }
    if table == "skew" {
        let firsts = [Box::default(), Box::from([1])];
        let first = random.below(shards.into()) as u32;
        let splits = firsts.into_iter().zip([first, (first + 1) % shards].map(ShardId));
        return Partitioning::Range { splits: splits.collect() };
    }
    if random.chance(2, 3) {
        return Partitioning::Hash { prefix_bytes: random.below(5) as usize };
    }
    let mut firsts: Vec<Vec<u8>> = (0..random.below(4)).map(|_| first_key(random, table)).collect();
    firsts.push(Vec::new());
    firsts.sort_unstable();
    firsts.dedup();
    let splits = firsts.into_iter().map(|first| {
        let shard = ShardId(random.below(shards.into()) as u32);
        (first.into_boxed_slice(), shard)
    });
    Partitioning::Range { splits: splits.collect() }
}

/// Draws a key at which a range may begin: mostly one between the table's keys.
fn first_key(random: &mut Random, table: &str) -> Vec<u8> {
    let byte = |random: &mut Random, below: u64| random.below(below) as u8;
    let letter = match table {
        "history-lists" => 'l',
        "history-registers" => 'r',
        "tokens" => return vec![0, 1 + byte(random, 12)],
        "counters" => return vec![1 + byte(random, 6)],
        "micro" => return vec![0, 0, 0, 1 + byte(random, 100)],
        "ycsb" => return vec![1 + byte(random, 255)],
        _ => return vec![0, 1 + byte(random, 2), byte(random, 12)],
    };
    format!("{letter}{:05}-{:04}", random.below(8), random.below(6)).into_bytes()
}
