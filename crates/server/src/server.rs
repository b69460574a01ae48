//! A node, from its start to its end.

use crate::config::NodeConfig;
use crate::disks::{DisksError, DisksOwner, OpenedDisks, OpenedWorker};
use crate::end_reason::EndReason;
use crate::http::Http;
use crate::manager::{self, InputSender};
use crate::worker_command::{HOST, WorkerCommand};
use crate::worker_disk::WorkerDisk;
use crate::worker_host::WorkerHost;
use ring::rand::{SecureRandom, SystemRandom};
use shoal_cluster::manager::{LearnerLeads, ManagerClient, ManagerOptions, ProcessInstance};
use shoal_cluster::topology::Topology;
use shoal_engine::declarations::Declarations;
use shoal_engine::engine::{self, OF_NODE, Setup};
use shoal_engine::execution::Limits;
use shoal_engine::{Engine, Procedures, WorkerPlace};
use shoal_net::{Handle, Network, NodeTransactionClock, Panicked, PeerConfig, SharedClusterId};
use shoal_node::{Membership, RecoveredWorker, Worker, WorkerOrigin};
use shoal_registry::{EngineVisitor, RegisteredEngine};
use shoal_types::{ClusterId, Durability, NodeId, Random, WorkerId};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

impl ServerStartError {
    /// See [`DisksError::may_pass`].
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            ServerStartError::Disks(error) => error.may_pass(),
            ServerStartError::System { error, .. } => {
                matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum ServerStartError {
    /// The network cannot start.
    #[error("{0}")]
    Network(#[from] shoal_net::StartError),
    /// The topology has a learner lead, and the engine has only voters lead.
    #[error("{0}")]
    Leader(#[from] LearnerLeads),
    /// The engine does not run as many workers on a node.
    #[error(
        "{engine} runs {max} worker on a node at most, and the topology has workers = {workers}"
    )]
    Workers {
        /// The name of the engine.
        engine: &'static str,
        /// How many workers the topology gives each node.
        workers: u32,
        /// The most that the engine runs.
        max: u32,
    },
    /// The logs in the node's folder cannot be used.
    #[error("{0}")]
    Disks(#[from] DisksError),
    /// The cluster's durability needs a folder.
    #[error(
        "durability = \"{durability}\" needs a folder on disk: write data = \"data\" into the node's file"
    )]
    NoFolder {
        /// What the topology asks for.
        durability: Durability,
    },
    /// A process that goes on with what disks have needs another ballot, or epoch, than the one before: managers give them.
    #[error(
        "{engine} with durability = \"{durability}\" needs managers: name some in the node's file, or write durability = \"memory\" into the topology"
    )]
    NoManagers {
        /// The name of the engine.
        engine: &'static str,
        /// What the topology asks for.
        durability: Durability,
    },
    /// The system refuses something.
    #[error("cannot {what}: {error}")]
    System {
        /// What the server asked of the system.
        what: String,
        /// The error that was met.
        error: io::Error,
    },
}

/// Why a node has ended without being stopped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerEnd {
    /// A worker panicked: an invariant is broken.
    #[error("{0}")]
    Panicked(#[from] Panicked),
    /// The manager panicked.
    #[error("the manager panicked")]
    Manager,
    /// The node cannot go on, and has logged why: its disk fails, or it has to begin anew without memory. Start it again.
    #[error("{0}: start the node again")]
    Failed(String),
}

/// A node that runs. It ends when this is dropped: its logs on disk in order, all else as in a crash.
#[derive(Debug)]
pub struct Server {
    network: Network<WorkerCommand>,
    manager: Option<JoinHandle<()>>,
    http: Option<Http>,
    end_reason: EndReason,
}

impl Server {
    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.network.address()
    }

    /// The address at which it serves its health and its metrics, if it does.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Http::address)
    }

    /// The handle of its workers.
    pub fn handle(&self) -> &Handle<WorkerCommand> {
        self.network.handle()
    }

    /// Stops it: its logs on disk in order, all else as in a crash.
    pub fn stop(&self) {
        self.network.handle().stop();
    }

    /// Starts the node of this configuration, with these procedures. It listens at the address in the
    /// topology, or at `listener`, for callers that let the system choose a port.
    ///
    /// # Errors
    /// If an address, a thread or a file is not available, or the configuration is invalid.
    pub fn start(
        config: &NodeConfig,
        procedures: Arc<Procedures>,
        listener: Option<TcpListener>,
    ) -> Result<Server, ServerStartError> {
        config.engine.clone().visit(StartNode { config, procedures, listener })
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If it ended because a thread panicked.
    pub fn join(self) -> Result<(), ServerEnd> {
        let workers = self.network.join();
        let manager = self.manager.map_or(Ok(()), JoinHandle::join);
        self.http.into_iter().for_each(Http::join);
        workers?;
        manager.map_err(|_| ServerEnd::Manager)?;
        let reason = self.end_reason.get();
        reason.map_or(Ok(()), |reason| Err(ServerEnd::Failed(reason.to_owned())))
    }
}

/// Starts a node with the engine that is chosen at run time.
struct StartNode<'config> {
    config: &'config NodeConfig,
    procedures: Arc<Procedures>,
    listener: Option<TcpListener>,
}

impl EngineVisitor for StartNode<'_> {
    type Output = Result<Server, ServerStartError>;

    fn visit<E: RegisteredEngine>(self, mut options: E::Options) -> Self::Output {
        limit(E::limits(&mut options), self.config)?;
        start::<E>(self.config, options, self.procedures, self.listener)
    }
}

/// Starts a node that runs the engine `E` with these options.
fn start<E: RegisteredEngine>(
    config: &NodeConfig,
    mut options: E::Options,
    procedures: Arc<Procedures>,
    listener: Option<TcpListener>,
) -> Result<Server, ServerStartError> {
    let NodeConfig { node, topology, .. } = config;
    E::LEADER_CANDIDATES.check(topology)?;
    if let Some(max) = E::WORKERS_MAX.filter(|max| topology.workers() > *max) {
        let (engine, workers) = (E::PROTOCOL.name(), topology.workers());
        return Err(ServerStartError::Workers { engine, workers, max });
    }
    let round_trip = config.distances().round_trip_max(topology.datacenters().len() as u32);
    E::fit_distance(&mut options, round_trip);
    let setup =
        Setup { topology: Arc::clone(topology), procedures, streams: streams(round_trip), options };
    let listener = listener.map_or_else(|| listen(topology, *node), Ok)?;
    let http = config.http.map(|address| listen_at(&address.to_string())).transpose()?;
    let mut random = Random::new(chance()?);
    let cluster = manager::cluster_of(config.data.as_deref());
    let system =
        |error| ServerStartError::System { what: "read the identity of the cluster".into(), error };
    let cluster = cluster.map_err(system)?.filter(|_| !config.managers.is_empty());
    let identity = SharedClusterId::of(cluster);
    let accepts_losses = E::PROTOCOL.info().accepts_losses;
    let managed = ManagerOptions { accepts_losses, ..manager_options::<E>(topology, round_trip) };
    let has_managers = !config.managers.is_empty();
    let volume = random.next_u64();
    let process = ProcessInstance(random.next_u64());
    let durability = topology.durability();
    if durability.is_on_disk() && !has_managers {
        return Err(ServerStartError::NoManagers { engine: E::PROTOCOL.name(), durability });
    }
    let disks = open_disks(config, cluster, process, volume)?;
    // The streams of a former process were stored in memory.
    let is_lost = disks.as_ref().is_none_or(|disks| disks.is_lost);
    let (manager_inputs, inbox) = InputSender::new(config.managers.clone(), managed.lease);
    let manager_inputs = has_managers.then_some(manager_inputs);
    let manager_client = has_managers.then(|| {
        let named = disks.as_ref().map(OpenedDisks::named).unwrap_or_default();
        ManagerClient::new(*node, process, is_lost, managed.clone()).of(cluster).with_disks(named)
    });
    let manager_client = Mutex::new(manager_client);
    let membership = match has_managers {
        true => Membership::new(topology.workers()),
        false => Membership::fixed(topology),
    };
    let shared = E::share(&setup, *node);
    let seeds = random.fork(1);
    let here = *node;
    let may_isolate = config.chaos;
    let joins = has_managers.then(|| identity.clone());
    let (transaction_clock, clock_error) = (OnceLock::new(), config.clock_error);
    let opened = disks.into_iter().flat_map(|disks| disks.workers);
    let opened: BTreeMap<WorkerId, OpenedWorker> = (0..).map(WorkerId).zip(opened).collect();
    let opened = Mutex::new(opened);
    let data = config.data.clone();
    let end_reason = EndReason::default();
    let reason = end_reason.clone();
    let build = move |worker: WorkerId, worker_hosts: &Handle<WorkerCommand>| {
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
        let (disk, recovered, begins_with) = match opened {
            Some(OpenedWorker { disk, recovered, begins_with, .. }) => {
                (Some(disk), recovered, begins_with)
            }
            None => (None, RecoveredWorker::default(), None),
        };
        let mut manager_client = manager_client.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = WorkerOrigin {
            membership: Arc::clone(&membership),
            manager_client: (worker == HOST).then(|| manager_client.take()).flatten(),
            recovered,
            new_storage: match disk {
                Some(_) => shoal_log::MemoryStorage::recorded,
                None => shoal_log::MemoryStorage::new,
            },
            seed: seeds.fork(worker.0.into()).next_u64(),
        };
        let core = Worker::<E>::new(worker, here, &setup, Arc::clone(&shared), origin);
        let manager_inputs = manager_inputs.clone().filter(|_| worker == HOST);
        let stores = setup.topology.shard_ids();
        let store = |shard| Some((shard, Arc::clone(E::store(&shared, shard)?)));
        let stores: Vec<_> = stores.filter_map(store).collect();
        let written = stores.iter().map(|(_, store)| store);
        let written = written.chain(E::store(&shared, OF_NODE)).cloned().collect();
        let mut worker_host = WorkerHost::new(
            WorkerPlace { node: here, worker },
            core,
            manager_inputs,
            Arc::clone(&setup.topology),
            worker_hosts.clone(),
            stores,
        );
        worker_host.time_stages(worker_hosts.clock());
        worker_host.transaction_clock = E::USES_TRANSACTION_CLOCK.then(|| {
            let clock = || NodeTransactionClock::new(worker_hosts.clock(), clock_error);
            transaction_clock.get_or_init(clock).clone()
        });
        worker_host.begins_with = begins_with;
        worker_host.data = disk.as_ref().and_then(|_| data.clone());
        worker_host.end_reason = reason.clone();
        worker_host.disk = disk.map(|disk| {
            let place = WorkerPlace { node: here, worker };
            let (hosts, reason) = (worker_hosts.clone(), reason.clone());
            let started = WorkerDisk::start(place, disk, written, hosts, reason);
            started.expect("the system has threads for the logs of workers")
        });
        worker_host.identity = joins.clone();
        worker_host.may_isolate = may_isolate;
        worker_host
    };
    let network = Network::start(network_config(config, identity), listener, build)?;
    let manager = has_managers.then(|| {
        let plan = manager::ManagerPlan {
            node: *node,
            topology: Arc::clone(topology),
            options: managed,
            log: log_options(round_trip),
            data: config.data.clone(),
            random: random.fork(2),
        };
        let system = |error| ServerStartError::System { what: "start the manager".into(), error };
        let hosts = network.handle().clone();
        manager::start(plan, inbox, hosts, end_reason.clone()).map_err(system)
    });
    let manager = manager.transpose()?;
    let serve = |listener| {
        let system = |error| ServerStartError::System { what: "serve metrics".into(), error };
        let (name, worker_hosts) = (format!("{node}-http"), network.handle().clone());
        let declarations = Declarations::of::<E>();
        Http::start(name, listener, worker_hosts, Arc::clone(topology), declarations)
            .map_err(system)
    };
    let http = http.map(serve).transpose()?;
    Ok(Server { network, manager, http, end_reason })
}

/// Opens the logs of the node's workers, where the cluster's durability has logs on disk.
fn open_disks(
    config: &NodeConfig,
    cluster: Option<ClusterId>,
    process: ProcessInstance,
    new_volume: u64,
) -> Result<Option<OpenedDisks>, ServerStartError> {
    let durability = config.topology.durability();
    if !durability.is_on_disk() {
        return Ok(None);
    }
    let Some(data) = &config.data else { return Err(ServerStartError::NoFolder { durability }) };
    let (node, workers) = (config.node, config.topology.workers());
    let NodeConfig { flush_delay, loses_unflushed, flushes_fail_after, planted, .. } = *config;
    let owner = DisksOwner {
        cluster,
        node,
        workers,
        durability,
        process,
        flush_delay,
        loses_unflushed,
        flushes_fail_after,
        planted,
    };
    Ok(Some(OpenedDisks::open(data, owner, new_volume)?))
}

/// Applies a node's configuration to its engine's limits, with a seed that clients cannot know.
fn limit(limits: &mut Limits, config: &NodeConfig) -> Result<(), ServerStartError> {
    limits.slow_after = config.slow_after;
    limits.memory_bytes_max = config.memory_bytes_max;
    limits.memory_bytes_reserved = config.memory_bytes_reserved;
    limits.hash_seed = chance()?;
    Ok(())
}

fn listen(topology: &Topology, node: NodeId) -> Result<TcpListener, ServerStartError> {
    let address = topology.node(node).and_then(|node| node.address.as_deref());
    listen_at(address.expect("configurations are checked"))
}

fn listen_at(address: &str) -> Result<TcpListener, ServerStartError> {
    shoal_net::listen(address)
        .map_err(|error| ServerStartError::System { what: format!("listen at {address}"), error })
}

/// A cryptographically random number.
fn chance() -> Result<u64, ServerStartError> {
    let mut bytes = [0; 8];
    let none = |_| {
        let error = io::Error::other("the system has no randomness");
        ServerStartError::System { what: "draw a random number".into(), error }
    };
    SystemRandom::new().fill(&mut bytes).map_err(none)?;
    Ok(u64::from_le_bytes(bytes))
}

fn network_config(config: &NodeConfig, identity: SharedClusterId) -> shoal_net::NetworkConfig {
    let NodeConfig { node, topology, .. } = config;
    let others = topology.members().filter(|other| other.id != *node);
    let peers = others.map(|other| PeerConfig {
        node: other.id,
        address: other.address.clone().expect("configurations are checked"),
        datacenter: other.datacenter,
    });
    let mut network = shoal_net::NetworkConfig::new(&config.cluster, *node, config.secret.clone());
    network.identity = identity;
    network.engine_digest = config.engine_digest();
    network.peers = peers.collect();
    // If the wall clock is set back, the node is refused until the clock has caught up.
    network.instance = shoal_net::SystemClock::new().now().0;
    network.workers = u16::try_from(topology.workers()).expect("topologies are checked");
    network.pin = config.pin;
    network.datacenter = topology.node(*node).map(|node| node.datacenter).unwrap_or_default();
    network.client_secret = config.client_secret.clone();
    network.tls = config.tls.clone();
    network.distances = config.distances();
    network
}

/// The options of streams over such a distance.
fn streams(round_trip: Duration) -> shoal_log::StreamOptions {
    let options = shoal_log::StreamOptions::default();
    shoal_log::StreamOptions { retry_after: options.retry_after.max(3 * round_trip), ..options }
}

/// The options of managers over such a distance. A lease counts from the sending of a heartbeat, and the grant comes after a round trip
/// to the manager that leads, one from there to the others, and some ticks: so a lease has to be longer than all of these, or it is over
/// most of the time where the manager is far away.
fn manager_options<E: Engine>(topology: &Topology, round_trip: Duration) -> ManagerOptions {
    let options = engine::manager_options::<E>(topology, ManagerOptions::default());
    ManagerOptions {
        lease: options.lease.max(2 * round_trip + options.lease / 2),
        retry_after: options.retry_after.max(3 * round_trip),
        ..options
    }
}

/// Elections time out later than the leader's heartbeats arrive.
fn log_options(round_trip: Duration) -> shoal_raft::RaftOptions {
    let options = shoal_raft::RaftOptions::default();
    let heartbeat = options.heartbeat.max(2 * round_trip);
    let election_min = options.election_min.max(2 * heartbeat);
    shoal_raft::RaftOptions {
        heartbeat,
        election_min,
        election_max: options.election_max.max(2 * election_min),
        ..options
    }
}
