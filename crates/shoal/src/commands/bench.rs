//! `shoal bench`: runs a workload and measures it.

use super::shape::{Shape, engine};
use super::target::Credentials;
use super::{CommandError, CommandOutcome, print, reserve, write};
use crate::local::ClusterPlan;
use crate::profile::Profiler;
use crate::progress::Bar;
use crate::report::ClusterCounters;
use crate::trial::{self, Trial, client_options};
use crate::{duration, procedures, size, terminal};
use clap::{Args, Subcommand, ValueEnum, value_parser};
use shoal_bench::{
    BenchLoad, HomesLoad, IncrementsLoad, MicroLoad, OutsideClients, RemoteDatabase, TpccLoad,
    YcsbLoad,
};
use shoal_client::{ClusterOptions, Embedded, Options};
use shoal_server::Protocol;
use shoal_types::{Durability, NodeId};
use shoal_workloads::bench::{BenchProgress, BenchSettings, Measurement, machine};
use shoal_workloads::increments::Increments;
use shoal_workloads::locality::HandoverShares;
use shoal_workloads::micro::Micro;
use shoal_workloads::report::{self, comparison};
use shoal_workloads::tpcc::Scale;
use shoal_workloads::ycsb::{self, Distribution, Letter};
use shoal_workloads::zipf::Zipf;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a warehouse takes when loaded.
const WAREHOUSE_BYTES: usize = 130 << 20;
/// What a worker's new orders and payments add, at a generous rate.
const GROWTH_BYTES_PER_S: f64 = 70e6;

/// Clients of a cluster: while one waits for an answer others work.
const CLIENTS: u16 = 16;

/// A client outside has a thread to itself.
const THREADS_MAX: u16 = 1024;

/// Clients within each leader, where nothing else has them wait but its distance to the others.
const CLIENTS_INSIDE: u32 = 64;

/// Run a workload and measure it: on an embedded database, or on a cluster
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal bench tpcc
  shoal bench ycsb-c --workers 1 --duration 10s --runs 5
  shoal bench micro --rate 100000 --html micro.html
  shoal bench ycsb-a --local --wan 50ms --engines mako,two-phase-commit --keys 10000
  shoal bench tpcc --local --inside --shards 1 --replicas 3
  shoal bench ycsb-a --disk /tmp/bench --workers 64
  shoal bench micro --local --regions tiga --region hong-kong
  shoal bench micro --connect 127.0.0.1:7000 --workers 16
  shoal bench micro --connect 10.0.0.1:7000 --client-secret client-secret --authorities ca.pem
  shoal bench tpcc --local --call

Exit codes: 0 measured and all checks hold, 1 a check failed, 2 the command line is wrong")]
pub struct Bench {
    #[command(subcommand)]
    workload: WorkloadCommand,
}

#[derive(Debug, Subcommand)]
enum WorkloadCommand {
    /// TPC-C: order entry, five transaction types (revision 5.11, standard mix, no think time)
    #[command(after_help = "Example:\n  shoal bench tpcc --workers 2 --html tpcc.html")]
    Tpcc(TpccArgs),
    /// Four keys a transaction: half read them, half read and write them back
    #[command(after_help = "Example:\n  shoal bench micro --keys 1000000 --runs 3")]
    Micro(MicroArgs),
    /// Three increments a transaction, on three different shards; the more skewed, the more conflicts
    #[command(
        after_help = "Example:\n  shoal bench increments --local --call --engines tiga --regions tiga --distribution zipfian:0.99"
    )]
    Increments(IncrementsArgs),
    /// YCSB A: 50 % read, 50 % update
    #[command(after_help = "Example:\n  shoal bench ycsb-a --distribution zipfian:0.8")]
    YcsbA(YcsbArgs),
    /// YCSB B: 95 % read, 5 % update
    #[command(after_help = "Example:\n  shoal bench ycsb-b --value-bytes 1000")]
    YcsbB(YcsbArgs),
    /// YCSB C: only reads
    #[command(after_help = "Example:\n  shoal bench ycsb-c --workers 1 --runs 5")]
    YcsbC(YcsbArgs),
    /// YCSB D: 95 % read of the latest rows, 5 % insert
    #[command(after_help = "Example:\n  shoal bench ycsb-d --keys 100000")]
    YcsbD(YcsbArgs),
    /// YCSB E: 95 % scan of up to 100 rows, 5 % insert
    #[command(after_help = "Example:\n  shoal bench ycsb-e --distribution uniform")]
    YcsbE(YcsbArgs),
    /// YCSB F: 50 % read, 50 % read-modify-write
    #[command(after_help = "Example:\n  shoal bench ycsb-f --rate 200000 --html f.html")]
    YcsbF(YcsbArgs),
    /// SmallBank: accounts of two balances, 85 % writes
    #[command(
        after_help = "Example:\n  shoal bench small-bank --local --inside --remote 1.2 --engines mako,zeus"
    )]
    SmallBank(HomesArgs),
    /// TATP: the subscribers of a mobile network, seven types, 20 % writes
    #[command(after_help = "Example:\n  shoal bench tatp --local --inside --remote 10")]
    Tatp(HomesArgs),
    /// Voter: each vote writes a voter and a contestant
    #[command(after_help = "Example:\n  shoal bench voter --local --inside")]
    Voter(HomesArgs),
    /// Rows of 400 bytes, of which each transaction updates one
    #[command(after_help = "Example:\n  shoal bench updates --local --inside --engines zeus")]
    Updates(HomesArgs),
    /// Handovers: users and base stations of a mobile network, rows of 400 bytes, all writes
    #[command(
        after_help = "Example:\n  shoal bench handovers --local --inside --handovers 5 --remote 6.2"
    )]
    Handovers(HandoversArgs),
}

#[derive(Debug, Args)]
struct TpccArgs {
    /// Warehouses, the unit of scale [default: one a worker]
    #[arg(long, value_parser = value_parser!(u16).range(1..))]
    warehouses: Option<u16>,
    /// The home warehouse of a client's transactions: its own, or any, drawn for each transaction
    #[arg(long, value_enum, default_value_t = HomeWarehouse::Own)]
    home_warehouse: HomeWarehouse,
    /// With --call, run payments by name and order-statuses step by step all the same, as in the evaluation of Tiga
    #[arg(long, requires = "call")]
    interactive_multi_shot: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HomeWarehouse {
    /// Each client has one
    Own,
    /// Drawn anew, so that few clients use as much data as many
    Any,
}

#[derive(Debug, Args)]
struct MicroArgs {
    /// Keys to draw from
    #[arg(long, default_value_t = Micro::KEYS, value_parser = value_parser!(u32).range(1..))]
    keys: u32,
    /// Of a hundred transactions on a cluster that `--local` starts, how many touch two shards
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = value_parser!(u32).range(0..=100))]
    cross_shard: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct IncrementsArgs {
    /// Keys to draw from, on all shards together
    #[arg(long, default_value_t = Increments::KEYS, value_parser = value_parser!(u32).range(1..))]
    keys: u32,
    /// Which keys of a shard are hot: uniform, zipfian, or zipfian:SKEW
    #[arg(long, default_value = "zipfian:0.5", value_parser = distribution)]
    distribution: Distribution,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct YcsbArgs {
    /// Rows to begin with
    #[arg(long, default_value_t = ycsb::KEYS, value_parser = value_parser!(u32).range(1..))]
    keys: u32,
    /// Size of a value, in bytes
    #[arg(long, default_value_t = ycsb::VALUE_BYTES, value_parser = value_bytes)]
    value_bytes: usize,
    /// Which rows are hot: uniform, zipfian, or zipfian:SKEW
    #[arg(long, default_value = "zipfian", value_parser = distribution)]
    distribution: Distribution,
    #[command(flatten)]
    common: Common,
}

/// Of workloads whose data has homes: the shards, or one where the database is not a cluster of this process.
#[derive(Debug, Args)]
struct HomesArgs {
    /// Accounts, subscribers, voters or users of each home
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    objects: u32,
    /// Of a hundred writing transactions, how many take an object of another home
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = share_ppm)]
    remote: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct HandoversArgs {
    /// Base stations of each home
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..=10_000))]
    stations: u32,
    /// Of a hundred transactions, how many are of handovers; those that leave their home are --remote of them
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = share_ppm)]
    handovers: u32,
    #[command(flatten)]
    homes: HomesArgs,
}

/// What every workload takes.
#[derive(Debug, Args)]
struct Common {
    /// Clients, each running one transaction at a time: threads, or tasks of leaders with --inside
    /// [default: one a core, 16 for a cluster, 64 for each leader]
    #[arg(long, value_parser = value_parser!(u16).range(1..=16384))]
    workers: Option<u16>,
    /// Threads that the clients of an embedded database share, so that many of them may wait for the disk [default: each has one of
    /// its own]
    #[arg(long, conflicts_with_all = ["local", "connect"], value_parser = value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Time of the measurement: 500ms, 10s, 2m
    #[arg(long, default_value = "20s", value_parser = duration::parse_positive)]
    duration: Duration,
    /// Time before it that does not count
    #[arg(long, default_value = "3s", value_parser = duration::parse)]
    warm_up: Duration,
    /// Transactions a second to begin, on schedule [default: as many as the workers can]
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// Where all randomness comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often to run, each time on a fresh database; the medians are shown
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Memory to take from the system before the run, for all copies together, so that growing costs no transaction
    /// time: 0, 500MB, 4GB [default: for TPC-C what it may grow to, else 0; at most a quarter of what is free]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    reserve: Option<usize>,
    /// Write the measurement to this file as JSON; of several engines a list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots to this file; of several engines side by side
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Run on a cluster in this process, a fresh one for each run
    #[arg(long, conflicts_with = "connect")]
    local: bool,
    /// Have the clients live in the leaders, each with its data, instead of across sockets
    #[arg(long, requires = "local", conflicts_with = "rate")]
    inside: bool,
    /// Call transactions by name, each in one message, instead of running them step by step from the client
    #[arg(long)]
    call: bool,
    /// Run on the cluster at these addresses, which has none of the workload's data yet; tables that it lacks are created
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    connect: Vec<String>,
    /// Drop the workload's tables first, with all their rows, and create them anew
    #[arg(long, requires = "connect")]
    reload: bool,
    #[command(flatten)]
    credentials: Credentials,
    #[command(flatten)]
    shape: Shape,
    /// The regions in which the clients are, in turn: their frames take as long to each node as the distances say, and
    /// those of a region share its connections [default: near every node]
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "inside")]
    region: Vec<String>,
    /// Workers of each node of the cluster
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    node_workers: u32,
    /// The commit protocols of clusters, one after another
    #[arg(long, value_delimiter = ',', default_value = Protocol::default().name(), value_parser = engine())]
    engines: Vec<Protocol>,
    /// Keep the embedded database, or the nodes' logs, on disk, in a new folder within this one for each run; more `--workers`
    /// than cores share flushes. The folder of a cluster is removed after its run
    #[arg(long, value_name = "DIR", conflicts_with = "connect")]
    disk: Option<PathBuf>,
    /// When the replicas of a cluster in this process acknowledge what they store: memory, async, fsync
    #[arg(long, requires = "local", default_value = "memory")]
    durability: Durability,
    /// How much longer each flush of such a cluster takes than it does: 500us, 1ms
    #[arg(long, value_name = "TIME", requires = "local", default_value = "0s", value_parser = duration::parse)]
    flush_delay: Duration,
    /// The number of the one node whose flushes take longer; 0 leads the first shard [default: those of all nodes do]
    #[arg(long, value_name = "NODE", requires = "flush_delay")]
    flush_delay_at: Option<u32>,
    /// Record where the time of this process goes while the first run measures, with perf, in this file, and show the most
    /// of it
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Do not check the data after the run
    #[arg(long)]
    no_check: bool,
    /// Show no progress bar
    #[arg(long)]
    no_progress: bool,
}

fn value_bytes(text: &str) -> Result<usize, String> {
    let range = ycsb::VALUE_BYTES_MIN..=shoal_types::limits::VALUE_BYTES_MAX;
    text.parse().ok().filter(|bytes| range.contains(bytes)).ok_or_else(|| {
        format!("a whole number from {} to {} is expected", range.start(), range.end())
    })
}

fn distribution(text: &str) -> Result<Distribution, String> {
    match text.split_once(':') {
        None if text == "uniform" => Ok(Distribution::Uniform),
        None if text == "zipfian" => Ok(Distribution::Zipfian(Zipf::YCSB_THETA)),
        Some(("zipfian", skew)) => {
            let skew = skew.parse().ok().filter(|skew| *skew > 0.0 && *skew <= Zipf::THETA_MAX);
            skew.map(Distribution::Zipfian).ok_or_else(|| {
                format!("the skew is a number above 0 and at most {}", Zipf::THETA_MAX)
            })
        }
        _ => Err("uniform, zipfian or zipfian:SKEW is expected".into()),
    }
}

/// A share in percent, as a number of millionths.
fn share_ppm(text: &str) -> Result<u32, String> {
    let share = text.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    share
        .map(|percent| (percent * 10_000.0).round() as u32)
        .ok_or_else(|| "a number from 0 to 100 is expected".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let range = 0.001..=1e9;
    text.parse().ok().filter(|rate| range.contains(rate)).ok_or_else(|| {
        "a number of transactions a second is expected, from 0.001 to 1000000000".to_owned()
    })
}

/// The bytes of memory to take beforehand for all data of TPC-C, which so many threads change.
fn tpcc_bytes(warehouses: u16, threads: u16, common: &Common) -> usize {
    let growth = f64::from(threads) * GROWTH_BYTES_PER_S;
    let seconds = (common.warm_up + common.duration).as_secs_f64();
    usize::from(warehouses) * WAREHOUSE_BYTES + (growth * seconds) as usize
}

impl TpccArgs {
    fn load(&self) -> Result<BenchLoad, CommandError> {
        let (warehouses, shards) = (self.warehouses(), self.common.shape.shards());
        if self.common.local && u32::from(warehouses) < shards {
            return Err(CommandError::Usage(format!(
                "--warehouses: {shards} at least, one a shard"
            )));
        }
        let (scale, calls) = (Scale::specification(warehouses), self.common.call);
        let any_home = self.home_warehouse == HomeWarehouse::Any;
        if any_home && self.common.inside && shards > 1 {
            let why = "--home-warehouse any: clients inside leaders have the warehouses of their shard; leave out --inside";
            return Err(CommandError::Usage(why.into()));
        }
        Ok(BenchLoad::TpcC(TpccLoad {
            scale,
            new_orders_only: false,
            any_home,
            calls,
            interactive_multi_shot: self.interactive_multi_shot,
        }))
    }

    /// On a cluster there are more clients than cores, and what a client does not have for itself is for all.
    fn warehouses(&self) -> u16 {
        let default = match self.common.is_embedded() {
            true => self.common.workers(),
            false => u16::try_from(self.common.shape.shards()).unwrap_or(u16::MAX),
        };
        self.warehouses.unwrap_or(default)
    }
}

impl MicroArgs {
    fn load(&self) -> BenchLoad {
        BenchLoad::Micro(MicroLoad {
            keys_of_shard: self.common.keys_of_shard(self.keys),
            cross_percent: self.cross_shard,
            all_write: false,
            calls: self.common.call,
        })
    }
}

impl IncrementsArgs {
    fn load(&self) -> BenchLoad {
        let IncrementsArgs { keys, distribution, ref common } = *self;
        let keys_of_shard = common.keys_of_shard(keys);
        BenchLoad::Increments(IncrementsLoad { keys_of_shard, distribution, calls: common.call })
    }
}

impl YcsbArgs {
    fn load(&self, letter: Letter) -> BenchLoad {
        let YcsbArgs { keys, value_bytes, distribution, ref common } = *self;
        BenchLoad::Ycsb(YcsbLoad { letter, keys, value_bytes, distribution, calls: common.call })
    }
}

impl HomesArgs {
    fn load(&self) -> Result<HomesLoad, CommandError> {
        if self.common.call {
            return Err(CommandError::Usage("--call: the workload has no procedures".into()));
        }
        Ok(HomesLoad { objects: self.objects, remote_ppm: self.remote })
    }
}

impl Bench {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let ycsb = |args: &YcsbArgs, letter| args.common.run(&args.load(letter));
        let homes = |args: &HomesArgs, load: fn(HomesLoad) -> BenchLoad| {
            args.common.run(&load(args.load()?))
        };
        match &self.workload {
            WorkloadCommand::Tpcc(args) => args.common.run(&args.load()?),
            WorkloadCommand::Micro(args) => args.common.run(&args.load()),
            WorkloadCommand::Increments(args) => args.common.run(&args.load()),
            WorkloadCommand::YcsbA(args) => ycsb(args, Letter::A),
            WorkloadCommand::YcsbB(args) => ycsb(args, Letter::B),
            WorkloadCommand::YcsbC(args) => ycsb(args, Letter::C),
            WorkloadCommand::YcsbD(args) => ycsb(args, Letter::D),
            WorkloadCommand::YcsbE(args) => ycsb(args, Letter::E),
            WorkloadCommand::YcsbF(args) => ycsb(args, Letter::F),
            WorkloadCommand::SmallBank(args) => homes(args, BenchLoad::SmallBank),
            WorkloadCommand::Tatp(args) => homes(args, BenchLoad::Tatp),
            WorkloadCommand::Voter(args) => homes(args, |load| BenchLoad::Voter(load, None)),
            WorkloadCommand::Updates(args) => homes(args, BenchLoad::Updates),
            WorkloadCommand::Handovers(HandoversArgs { stations, handovers, homes }) => {
                let shares = HandoverShares { stations: *stations, handovers_ppm: *handovers };
                homes.common.run(&BenchLoad::Handovers(homes.load()?, shares))
            }
        }
    }
}

/// Threads that run at a time.
fn cores() -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(cores).unwrap_or(u16::MAX)
}

impl Common {
    /// Measures a workload on the database of the command line.
    fn run(&self, load: &BenchLoad) -> Result<CommandOutcome, CommandError> {
        for path in self.json.iter().chain(&self.html) {
            reserve(path)?;
        }
        let have_threads = !self.inside && self.region.is_empty() && self.threads.is_none();
        if have_threads && self.workers() > THREADS_MAX {
            let most = format!(
                "--workers: {THREADS_MAX} threads at most, more only --inside, --region or --threads"
            );
            return Err(CommandError::Usage(most));
        }
        if !self.region.is_empty() && self.is_embedded() {
            let where_to = "--region: an embedded database is in none; add --local or --connect";
            return Err(CommandError::Usage(where_to.into()));
        }
        if self.connect.is_empty() && self.credentials.are_given() {
            let what_for = "--cluster, --client-secret and --authorities let clients into the cluster at --connect; add \
                            its address";
            return Err(CommandError::Usage(what_for.into()));
        }
        if self.local {
            if self.durability.is_on_disk() != self.disk.is_some() {
                let both = "--durability async or fsync and --disk go together: one says when nodes acknowledge, the other where \
                            their logs are";
                return Err(CommandError::Usage(both.into()));
            }
            return self.run_local(load);
        }
        if !self.connect.is_empty() {
            return self.run_connected(load);
        }
        let memory_bytes_reserved = self.reserved(load, self.workers(), 1);
        let target = self.disk.as_ref().map_or("embedded", |_| "embedded, on disk");
        let mut runs = 0;
        let measured = self.measure(load, target, memory_bytes_reserved, |bench| {
            bench.embedded(self.threads.map(usize::from), &mut || {
                let options = Options { memory_bytes_reserved, ..Options::default() };
                runs += 1;
                let db = self.embedded(options, runs)?;
                Ok(if self.call { db.with_procedures(procedures::known()) } else { db })
            })
        })?;
        let durability = self.disk.as_ref().map_or(Durability::Memory, |_| Durability::Fsync);
        self.report(&trial::with_durability(measured, &durability.to_string()))
    }

    /// A database of this process, for the run of this number.
    fn embedded(&self, options: Options, run: u16) -> Result<Embedded, String> {
        let Some(disk) = &self.disk else { return Ok(Embedded::with_options(options)) };
        let path = disk.join(format!("run-{run}"));
        if path.exists() {
            return Err(format!("{} exists: name a folder without former runs", path.display()));
        }
        Embedded::open(&path, options).map_err(|error| error.to_string())
    }

    /// Bytes to take from the system beforehand, for so many copies of the data, which so many threads change.
    fn reserved(&self, load: &BenchLoad, threads: u16, copies: u32) -> usize {
        let whole = match load {
            BenchLoad::TpcC(tpcc) => tpcc_bytes(tpcc.scale.warehouses, threads, self),
            _ => 0,
        };
        let free = machine::available_bytes().map_or(0, |bytes| bytes as usize);
        self.reserve.unwrap_or_else(|| (whole * copies as usize).min(free / 4))
    }

    /// Of so many keys, those of each shard that a workload knows of.
    fn keys_of_shard(&self, keys: u32) -> u32 {
        keys.div_ceil(if self.local { self.shape.shards() } else { 1 })
    }

    fn is_embedded(&self) -> bool {
        !self.local && self.connect.is_empty()
    }

    /// On clusters of this process, each of another protocol.
    fn run_local(&self, load: &BenchLoad) -> Result<CommandOutcome, CommandError> {
        let mut measured = Vec::new();
        for engine in &self.engines {
            let mut plan = self.shape.plan(self.node_workers, *engine)?;
            let nodes = plan.nodes();
            if self.flush_delay_at.is_some_and(|node| node >= nodes) {
                let which = format!("--flush-delay-at: a node from 0 to {}", nodes - 1);
                return Err(CommandError::Usage(which));
            }
            plan = ClusterPlan {
                durability: self.durability,
                disk: self.disk.clone(),
                flush_delay: self.flush_delay,
                flush_delay_at: self.flush_delay_at.map(NodeId),
                ..plan
            };
            let reserved = self.reserved(load, self.workers().min(cores()), plan.replicas);
            plan.memory_bytes_reserved = reserved / plan.nodes() as usize;
            let trial = Trial {
                plan,
                only_here: None,
                inside: self.inside,
                regions: self.region.clone(),
                leader_stops: None,
                settings: self.settings(reserved),
            };
            let measurement = self.watched(|watch| trial.measure(load, watch))?;
            if self.engines.len() == 1 {
                return self.report(&measurement);
            }
            print(&terminal::text(&measurement))?;
            measured.push(measurement);
        }
        self.write_files(|| report::json_list(&measured), || comparison::html(&measured))?;
        print(&terminal::side_by_side(&measured))?;
        Ok(verdict(measured.iter().all(Measurement::passed)))
    }

    /// On a cluster that runs already.
    fn run_connected(&self, load: &BenchLoad) -> Result<CommandOutcome, CommandError> {
        if self.runs > 1 {
            return Err(CommandError::Usage("each run needs a fresh database: --runs 1".into()));
        }
        let access = self.credentials.access()?;
        let options = &ClusterOptions { access, ..client_options() };
        let outside = OutsideClients { options, regions: &self.region };
        let (addresses, access) = (self.connect.clone(), options.access.clone());
        let counters = Arc::new(ClusterCounters { addresses, access });
        let mut facts = None;
        let measured = self.measure(load, "cluster", 0, |bench| {
            bench.connected(outside, &mut || {
                let (options, counters) = (options.clone(), counters.clone());
                let db = RemoteDatabase::connect(&self.connect, options, counters)?;
                facts = Some((db.regions(), db.durability()));
                Ok(if self.reload { db.emptied() } else { db })
            })
        })?;
        let (regions, durability) = facts.expect("it was measured on a cluster");
        self.report(&trial::told(measured, &regions, &self.region, &durability.to_string()))
    }

    /// Has `measure` make a measurement of `target`, and shows its progress.
    fn measure(
        &self,
        load: &BenchLoad,
        target: &str,
        reserved: usize,
        measure: impl FnOnce(shoal_bench::Bench<'_>) -> Result<Measurement, String>,
    ) -> Result<Measurement, CommandError> {
        let settings = &self.settings(reserved);
        self.watched(|progress| measure(shoal_bench::Bench { load, settings, target, progress }))
    }

    /// Has `measure` make a measurement, shows its progress, and profiles it where that was asked for.
    fn watched(
        &self,
        measure: impl FnOnce(&mut dyn FnMut(BenchProgress)) -> Result<Measurement, String>,
    ) -> Result<Measurement, CommandError> {
        let profiler = self.profile.as_ref().map(|file| Profiler::new(file, self.duration));
        let mut profiler = profiler.transpose().map_err(CommandError::Usage)?;
        let (mut bar, mut refused) = (self.bar(), None);
        let measured = measure(&mut |at| {
            bar.show(at);
            let followed = profiler.as_mut().map_or(Ok(()), |profiler| profiler.follow(at));
            refused = refused.take().or(followed.err());
        });
        bar.finish();
        let measured = measured.map_err(CommandError::Database)?;
        if let Some(profiler) = profiler {
            let profile = match refused {
                Some(refused) => Err(refused),
                None => profiler.finish(),
            };
            print(&format!("{}\n", profile.map_err(CommandError::Usage)?))?;
        }
        Ok(measured)
    }

    fn bar(&self) -> Bar {
        Bar::new(usize::from(self.runs), !self.no_progress)
    }

    fn workers(&self) -> u16 {
        let default = || match self.is_embedded() {
            true => cores(),
            false if self.inside => {
                u16::try_from(CLIENTS_INSIDE * self.shape.shards()).unwrap_or(u16::MAX)
            }
            false => CLIENTS,
        };
        self.workers.unwrap_or_else(default)
    }

    fn settings(&self, reserved: usize) -> BenchSettings {
        BenchSettings {
            workers: usize::from(self.workers()),
            warm_up: self.warm_up,
            duration: self.duration,
            rate_per_s: self.rate,
            seed: self.seed,
            runs: usize::from(self.runs),
            check: !self.no_check,
            reserved_bytes: reserved as u64,
        }
    }

    fn report(&self, measurement: &Measurement) -> Result<CommandOutcome, CommandError> {
        // Files first: the terminal may be closed before all is printed.
        self.write_files(|| report::json(measurement), || report::html(measurement))?;
        print(&terminal::text(measurement))?;
        Ok(verdict(measurement.passed()))
    }

    /// Writes the requested files.
    fn write_files(
        &self,
        json: impl FnOnce() -> String,
        html: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        if let Some(path) = &self.json {
            write(path, &json())?;
        }
        if let Some(path) = &self.html {
            write(path, &html())?;
        }
        Ok(())
    }
}

fn verdict(holds: bool) -> CommandOutcome {
    if holds { CommandOutcome::Holds } else { CommandOutcome::Fails }
}
