//! A node's configuration, and its file.
//!
//! ```toml
//! cluster = "bank"                    # its name: others are refused
//! node = "s0v0"                       # which of the topology's nodes this is
//! topology = "topology.toml"          # the same on every node; paths begin where this file is
//! managers = ["s0v0", "s1v0", "s2v0"] # the nodes that have managers at first: 1, 3 or 5, the same on every node
//! data = "data"                       # a folder: for a manager's log, and for the identity of the cluster
//! secret = "secret"                   # a file that only its owner can read, of 16 random bytes or more
//!
//! client_secret = "client-secret"     # may be left out: then every client is admitted
//! engine = "mako"                     # or "two-phase-commit", "zeus", "tiga"
//! pin = true                          # workers to cores; otherwise false
//! chaos = true                        # clients may cut the node off; otherwise false
//! clock_error_ms = -100.0             # its clock is ahead by so much, here behind: for tests; otherwise 0
//! lose_unflushed = true               # what is not flushed is lost with the process, as without power: for tests
//! max_clock_offset_ms = 5             # with tiga: clocks differ by less, and leaders agree by them; the same on all nodes
//! slow_ms = 100                       # transactions that take longer are logged; otherwise 1000, and 0 for none
//! memory_mb = 8192                    # of keys, versions and index, for each copy of a shard; otherwise unlimited
//! memory_reserved_mb = 4096           # taken for each copy at the start; otherwise 0
//! http = "127.0.0.1:9100"             # health and metrics; may be left out: then there are none
//!
//! [distance]                          # emulated, where the topology says nothing of it; may be left out
//! round_trip_ms = 50
//! jitter_ms = 2
//!
//! [tls]                               # may be left out: then nothing is encrypted
//! certificates = "node.pem"
//! key = "node.key"
//! authorities = "ca.pem"
//! ```

use crate::planted::ServerPlantedBugs;
use serde::Deserialize;
use shoal_cluster::topology::{Topology, TopologyError, key_hash};
use shoal_engine::client::{REQUESTS_TABLE, requests_table};
use shoal_net::tls::{Certificate, NodeTls, TlsError, read_certificates};
use shoal_net::{CLUSTER_BYTES_MAX, ClockError, Secret, SecretError};
use shoal_registry::{EngineOptions, Protocol};
use shoal_types::{Distance, DistanceMatrix, NodeId};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Transactions that take longer are slow, if the file has no `slow_ms`: longer than any distance takes.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// A node's configuration. Start from [`NodeConfig::new`].
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The node that this process runs.
    pub node: NodeId,
    /// Nodes with their addresses, shards, tables. The same on every node.
    pub topology: Arc<Topology>,
    /// The nodes that have managers when the cluster is founded: 1, 3 or 5, the same on every node. Later it
    /// is where a node begins to look for managers. None: leaders never change, and no failure of a leader is
    /// survived.
    pub managers: Vec<NodeId>,
    /// The folder for a manager's log, and for the list of managers. `None`: in memory, for a node that runs
    /// once.
    pub data: Option<PathBuf>,
    /// The secret of the nodes.
    pub secret: Secret,
    /// The secret that clients have to know.
    pub client_secret: Secret,
    /// TLS, if it is on.
    pub tls: Option<NodeTls>,
    /// The distance between datacenters that the topology does not give.
    pub distance: Distance,
    /// Whether each worker is pinned to a core.
    pub pin: bool,
    /// The commit engine. Files name it; its options are for experiments. Their limits on memory and slow transactions are
    /// ignored.
    pub engine: EngineOptions,
    /// Whether clients may cut the node off from others: for tests.
    pub chaos: bool,
    /// How wrong its clock is made: for tests.
    pub clock_error: ClockError,
    /// How much longer flushes of its disk take than they do: for measurements.
    pub flush_delay: Duration,
    /// Whether what its logs have not flushed is lost with its process, as without power: for tests.
    pub loses_unflushed: bool,
    /// After so many flushes all of its logs' flushes fail: for tests.
    pub flushes_fail_after: Option<u32>,
    /// Bugs that tests plant.
    #[doc(hidden)]
    pub planted: ServerPlantedBugs,
    /// A transaction that takes longer is logged. `None`: none is.
    pub slow_after: Option<Duration>,
    /// Bytes of keys, versions and index that each of its copies of shards may hold.
    pub memory_bytes_max: usize,
    /// Bytes that it takes from the system for each copy at the start, so that no transaction waits for that.
    pub memory_bytes_reserved: usize,
    /// The address at which it serves its health and its metrics. It asks for no secret.
    pub http: Option<SocketAddr>,
}

/// What is wrong with a node's configuration: which file, which of its keys, and what to do.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file itself cannot be read.
    #[error("cannot read {path}: {error}; it has to be a node's configuration")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error that was met.
        error: io::Error,
    },
    /// The file is malformed.
    #[error("{path}: {what}")]
    Form {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong, where, and what to do.
        what: String,
    },
    /// The topology is wrong.
    #[error("{path}: {error}")]
    Topology {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong.
        error: Box<TopologyError>,
    },
    /// A key cannot have this value.
    #[error("{}: `{key}` {wrong}", .path.display())]
    Key {
        /// The file; for a configuration that is made without one, a description of it.
        path: PathBuf,
        /// The key of the configuration that is wrong.
        key: &'static str,
        /// What is wrong with its value.
        wrong: ValueError,
    },
}

/// What is wrong with the value of a key: follows the name of the key in a sentence.
#[derive(Debug, Error)]
pub enum ValueError {
    /// The configuration names a file that cannot be read.
    #[error("names {file}, which cannot be read: {error}; relative paths begin where this file is")]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The error that was met.
        error: io::Error,
    },
    /// The configuration names a node that is not in the topology.
    #[error("names '{name}', which is no node of the topology; its nodes are {known}")]
    UnknownNode {
        /// The name that is not in the topology.
        name: String,
        /// The nodes of the topology, or the first of them.
        known: String,
    },
    /// The configuration names a topology in which others cannot reach a node.
    #[error("names one in which '{0}' has no address; give it one, `address = \"HOST:PORT\"`")]
    NoAddress(String),
    /// The configuration names a node that was removed from the cluster.
    #[error("names '{0}', which was removed from the cluster; add a node under another name")]
    RemovedNode(String),
    /// The number of managers is invalid.
    #[error("names {0} nodes; name 1, 3 or 5 of them")]
    Managers(usize),
    /// A manager is named twice.
    #[error("names '{0}' twice; each node has one manager")]
    Twice(String),
    /// More memory is reserved than allowed.
    #[error("takes {reserved} MB of the {max} that memory_mb allows; take as much or less")]
    Reserved {
        /// The reserved memory.
        reserved: usize,
        /// The allowed memory.
        max: usize,
    },
    /// The configuration names a file that cannot be used as a secret.
    #[error("{0}")]
    Secret(#[from] SecretError),
    /// The configuration names a folder that cannot be read.
    #[error(
        "names {folder}, which is no folder that can be read: {error}; make it, on a disk that outlives the process"
    )]
    NoFolder {
        /// The path of the folder.
        folder: PathBuf,
        /// The error that was met.
        error: io::Error,
    },
    /// Neither a delay nor a jitter.
    #[error("is {0:?}; write milliseconds from 0 to {DISTANCE_MS_MAX}")]
    Distance(f64),
    /// A clock cannot be made so wrong.
    #[error("is {0:?}; write milliseconds, at most {CLOCK_ERROR_MS_MAX} ahead or behind")]
    ClockError(f64),
    /// The engine does not go by the difference of clocks, or not by so much.
    #[error(
        "is {0:?}; write milliseconds, above 0 and at most {MAX_CLOCK_OFFSET_MS_MAX}, where `engine` is tiga, and leave it out elsewhere"
    )]
    MaxClockOffset(f64),
    /// The name of the cluster is empty or too long.
    #[error("has {0} bytes; write 1 to {CLUSTER_BYTES_MAX}")]
    Name(usize),
    /// The name cannot be in a certificate.
    #[error("is '{0}', which no certificate can have; with TLS on, use the form of a host name")]
    TlsName(String),
    /// A file without a certificate.
    #[error("names {0}, in which there is no certificate; write them there, as PEM")]
    NoCertificate(PathBuf),
    /// Certificates and keys cannot be used.
    #[error("does not work: {0}; put PEM files there that belong together")]
    Tls(#[from] TlsError),
}

/// Longest round trip between two datacenters, in milliseconds.
const DISTANCE_MS_MAX: f64 = 60_000.0;

/// The most by which a clock is made wrong, in milliseconds: an hour.
const CLOCK_ERROR_MS_MAX: f64 = 3_600_000.0;

/// The most by which clocks may differ that order transactions: each waits for that.
const MAX_CLOCK_OFFSET_MS_MAX: f64 = 1_000.0;

/// Longest piece of a line in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 80;

/// Most nodes that an error names.
const KNOWN_MAX: usize = 10;

/// The configuration file as it is written, before it is checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    cluster: String,
    node: String,
    topology: PathBuf,
    #[serde(default)]
    managers: Vec<String>,
    data: Option<PathBuf>,
    secret: PathBuf,
    client_secret: Option<PathBuf>,
    #[serde(default)]
    engine: Protocol,
    #[serde(default)]
    pin: bool,
    #[serde(default)]
    chaos: bool,
    #[serde(default)]
    clock_error_ms: f64,
    #[serde(default)]
    lose_unflushed: bool,
    max_clock_offset_ms: Option<f64>,
    slow_ms: Option<u64>,
    memory_mb: Option<NonZeroU32>,
    #[serde(default)]
    memory_reserved_mb: u32,
    http: Option<SocketAddr>,
    distance: Option<DistanceTable>,
    tls: Option<TlsTable>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DistanceTable {
    round_trip_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    certificates: PathBuf,
    key: PathBuf,
    authorities: PathBuf,
}

impl NodeConfig {
    /// A node of a cluster that is called `shoal`, on one machine: no distance, no TLS, clients need no
    /// secret, nothing is kept on disk.
    ///
    /// # Errors
    /// If the parts do not fit together.
    pub fn new(
        topology: &Topology,
        node: NodeId,
        managers: Vec<NodeId>,
        secret: Secret,
    ) -> Result<NodeConfig, ConfigError> {
        let config = NodeConfig {
            cluster: "shoal".to_owned(),
            node,
            topology: with_requests(topology, Path::new("the topology"))?,
            managers,
            data: None,
            secret,
            client_secret: Secret::none(),
            tls: None,
            distance: Distance::default(),
            pin: false,
            engine: EngineOptions::default(),
            chaos: false,
            clock_error: ClockError::default(),
            flush_delay: Duration::ZERO,
            loses_unflushed: false,
            flushes_fail_after: None,
            planted: ServerPlantedBugs::default(),
            slow_after: Some(SLOW_AFTER),
            memory_bytes_max: usize::MAX,
            memory_bytes_reserved: 0,
            http: None,
        };
        config.check(Path::new("the configuration"))?;
        Ok(config)
    }

    /// Reads the file at `path`; see the module.
    ///
    /// # Errors
    /// The configuration is invalid; the error names the file, the key, and what to do.
    pub fn read(path: &Path) -> Result<NodeConfig, ConfigError> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| ConfigError::File { path: path.to_owned(), error })?;
        let form = |what| ConfigError::Form { path: path.to_owned(), what };
        let file: ConfigFile =
            toml::from_str(&text).map_err(|error| form(minded(&text, &error)))?;
        let manager_host = FileLocation { path, folder: path.parent().unwrap_or(Path::new(".")) };
        let topology = manager_host.topology(&file.topology)?;
        let managers =
            file.managers.iter().map(|name| manager_host.node(&topology, "managers", name));
        let distance = DistanceTable::default();
        let DistanceTable { round_trip_ms, jitter_ms } = file.distance.unwrap_or(distance);
        let config = NodeConfig {
            node: manager_host.node(&topology, "node", &file.node)?,
            managers: managers.collect::<Result<_, _>>()?,
            data: file.data.map(|data| manager_host.data(&data)).transpose()?,
            secret: manager_host.secret("secret", &file.secret)?,
            client_secret: match &file.client_secret {
                Some(secret) => manager_host.secret("client_secret", secret)?,
                None => Secret::none(),
            },
            tls: file.tls.map(|tls| manager_host.tls(&tls, &file.cluster)).transpose()?,
            distance: Distance {
                delay: manager_host.milliseconds("round_trip_ms", round_trip_ms)? / 2,
                jitter: manager_host.milliseconds("jitter_ms", jitter_ms)?,
            },
            topology: with_requests(&topology, &manager_host.folder.join(&file.topology))?,
            cluster: file.cluster,
            pin: file.pin,
            engine: manager_host.engine(file.engine, file.max_clock_offset_ms)?,
            chaos: file.chaos,
            clock_error: manager_host.clock_error(file.clock_error_ms)?,
            flush_delay: Duration::ZERO,
            loses_unflushed: file.lose_unflushed,
            flushes_fail_after: None,
            planted: ServerPlantedBugs::default(),
            slow_after: match file.slow_ms {
                None => Some(SLOW_AFTER),
                Some(0) => None,
                Some(ms) => Some(Duration::from_millis(ms)),
            },
            memory_bytes_max: file.memory_mb.map_or(usize::MAX, |mb| megabytes(mb.get())),
            memory_bytes_reserved: megabytes(file.memory_reserved_mb),
            http: file.http,
        };
        config.check(path)?;
        Ok(config)
    }

    /// The distances between datacenters.
    pub fn distances(&self) -> DistanceMatrix {
        self.topology.distances().clone().or(self.distance)
    }

    /// A digest of the engine, and of those of its options that have to be the same on all nodes.
    pub(crate) fn engine_digest(&self) -> u16 {
        let max_clock_offset = match &self.engine {
            EngineOptions::Tiga(options) => options.protocol.epsilon,
            EngineOptions::Mako(_) | EngineOptions::TwoPhaseCommit(_) | EngineOptions::Zeus(_) => {
                None
            }
        };
        let alike = format!("{} {max_clock_offset:?}", self.engine.protocol().name());
        // 0 would stand for none.
        (key_hash(alike.as_bytes()) as u16).max(1)
    }

    /// Settings that are legal and may not be intended: a sentence for each, to be logged when the node
    /// starts.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.data.is_none() && !self.managers.is_empty() {
            warnings.push(
                "there is no `data`: after a restart this node does not know which cluster it belongs to, nor who the \
                 managers are, and a manager's log is lost; name a folder that outlives the process"
                    .to_owned(),
            );
        }
        let address = self.topology.node(self.node).and_then(|node| node.address.as_deref());
        if self.clock_error != ClockError::default() {
            let ms = self.clock_error.0 as f64 / 1e6;
            warnings.push(format!(
                "its clock is made wrong by {ms} ms, which costs time where clocks order transactions; remove \
                 `clock_error_ms` unless that is what you want to see"
            ));
        }
        if self.loses_unflushed {
            warnings.push(
                "what its logs have not flushed is lost when its process is killed; remove `lose_unflushed` unless that is what \
                 you want to see"
                    .to_owned(),
            );
        }
        if let Some(address) = address.filter(|address| !is_loopback(address))
            && self.tls.is_none()
        {
            warnings.push(format!(
                "it listens at {address} without TLS: others on the network can read what is sent, and change it; add \
                 `[tls]`, or listen at 127.0.0.1"
            ));
        }
        warnings
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let wrong = |key, wrong| Err(ConfigError::Key { path: path.to_owned(), key, wrong });
        if self.cluster.is_empty() || self.cluster.len() > CLUSTER_BYTES_MAX {
            return wrong("cluster", ValueError::Name(self.cluster.len()));
        }
        if let Some(node) = self.topology.node(self.node).filter(|node| node.removed) {
            return wrong("node", ValueError::RemovedNode(node.name.clone()));
        }
        let lost = self.topology.members().find(|node| node.address.is_none());
        if let Some(node) = lost {
            return wrong("topology", ValueError::NoAddress(node.name.clone()));
        }
        for (at, manager) in self.managers.iter().enumerate() {
            if self.managers[..at].contains(manager) {
                let name = self.topology.node(*manager).map(|node| node.name.clone());
                return wrong("managers", ValueError::Twice(name.unwrap_or_default()));
            }
        }
        let (reserved, max) = (self.memory_bytes_reserved >> 20, self.memory_bytes_max >> 20);
        if reserved > max {
            return wrong("memory_reserved_mb", ValueError::Reserved { reserved, max });
        }
        match self.managers.len() {
            0 | 1 | 3 | 5 => Ok(()),
            count => wrong("managers", ValueError::Managers(count)),
        }
    }
}

/// Whether only this machine can reach that address. Of host names only `localhost` is known to be local.
fn is_loopback(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_canonical().is_loopback(),
        Err(_) => address.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
    }
}

/// So many units of 2^20 bytes.
fn megabytes(count: u32) -> usize {
    (count as usize) << 20
}

/// The folder of a file, for the paths in it.
struct FileLocation<'p> {
    path: &'p Path,
    folder: &'p Path,
}

impl FileLocation<'_> {
    fn wrong<T>(&self, key: &'static str, wrong: impl Into<ValueError>) -> Result<T, ConfigError> {
        Err(ConfigError::Key { path: self.path.to_owned(), key, wrong: wrong.into() })
    }

    fn bytes(&self, key: &'static str, file: &Path) -> Result<Vec<u8>, ConfigError> {
        fs::read(file).or_else(|error| {
            self.wrong(key, ValueError::Unreadable { file: file.to_owned(), error })
        })
    }

    fn topology(&self, file: &Path) -> Result<Topology, ConfigError> {
        let path = self.folder.join(file);
        let text = String::from_utf8(self.bytes("topology", &path)?).or_else(|error| {
            let (file, error) = (path.clone(), io::Error::other(error));
            self.wrong("topology", ValueError::Unreadable { file, error })
        })?;
        let wrong = |error| ConfigError::Topology { path, error: Box::new(error) };
        Topology::parse(&text).map_err(wrong)
    }

    fn node(
        &self,
        topology: &Topology,
        key: &'static str,
        name: &str,
    ) -> Result<NodeId, ConfigError> {
        let nodes = topology.nodes();
        if let Some(node) = nodes.iter().find(|node| node.name == name) {
            return Ok(node.id);
        }
        let mut known: Vec<&str> = nodes.iter().take(KNOWN_MAX).map(|node| &*node.name).collect();
        if nodes.len() > KNOWN_MAX {
            known.push("…");
        }
        let (name, known) = (name.to_owned(), known.join(", "));
        self.wrong(key, ValueError::UnknownNode { name, known })
    }

    fn secret(&self, key: &'static str, file: &Path) -> Result<Secret, ConfigError> {
        Secret::read(&self.folder.join(file)).or_else(|error| self.wrong(key, error))
    }

    fn data(&self, folder: &Path) -> Result<PathBuf, ConfigError> {
        let folder = self.folder.join(folder);
        match fs::read_dir(&folder) {
            Ok(_) => Ok(folder),
            Err(error) => self.wrong("data", ValueError::NoFolder { folder, error }),
        }
    }

    fn milliseconds(&self, key: &'static str, ms: f64) -> Result<Duration, ConfigError> {
        if !(0.0..=DISTANCE_MS_MAX).contains(&ms) {
            return self.wrong(key, ValueError::Distance(ms));
        }
        Ok(Duration::from_secs_f64(ms / 1000.0))
    }

    fn clock_error(&self, ms: f64) -> Result<ClockError, ConfigError> {
        match ms.abs() <= CLOCK_ERROR_MS_MAX {
            true => Ok(ClockError((ms * 1e6) as i64)),
            false => self.wrong("clock_error_ms", ValueError::ClockError(ms)),
        }
    }

    /// The options of an engine, with the difference of clocks by which it is to go.
    fn engine(
        &self,
        protocol: Protocol,
        max_clock_offset_ms: Option<f64>,
    ) -> Result<EngineOptions, ConfigError> {
        let mut engine = protocol.options();
        let Some(ms) = max_clock_offset_ms else { return Ok(engine) };
        match &mut engine {
            EngineOptions::Tiga(options) if ms > 0.0 && ms <= MAX_CLOCK_OFFSET_MS_MAX => {
                options.protocol.epsilon = Some(Duration::from_secs_f64(ms / 1e3));
                Ok(engine)
            }
            _ => self.wrong("max_clock_offset_ms", ValueError::MaxClockOffset(ms)),
        }
    }

    fn tls(&self, table: &TlsTable, cluster: &str) -> Result<NodeTls, ConfigError> {
        let place = |file: &Path| self.folder.join(file);
        let certificates = |key, file: &Path| {
            let file = place(file);
            let read = read_certificates(&file).or_else(|error| self.wrong(key, error))?;
            if read.is_empty() {
                self.wrong(key, ValueError::NoCertificate(file))
            } else {
                Ok(read)
            }
        };
        certificates("tls.certificates", &table.certificates)?;
        let identity = Certificate::read(&place(&table.certificates), &place(&table.key))
            .or_else(|error| self.wrong("tls.key", error))?;
        let authorities = certificates("tls.authorities", &table.authorities)?;
        NodeTls::new(&identity, &authorities, cluster).or_else(|error| match error {
            TlsError::Name(name) => self.wrong("cluster", ValueError::TlsName(name)),
            error => self.wrong("tls", error),
        })
    }
}

/// An error of the parser in `text`: the line, its contents, and what to do if the parser does not say so.
fn minded(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().replace('\n', ", ");
    let what = if what.starts_with("missing field") {
        format!("{what}; add it")
    } else if what.starts_with("duplicate key") {
        format!("{what}; keep one of them")
    } else {
        what
    };
    // A missing key has no line.
    let Some(span) = error.span().filter(|span| span.start > 0) else { return what };
    let before = text.get(..span.start).unwrap_or(text);
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    let number = before.matches('\n').count() + 1;
    let line = text[begin..].lines().next().unwrap_or_default().trim();
    let excerpt: String = line.chars().take(EXCERPT_CHARS_MAX).collect();
    format!("line {number}, `{excerpt}`: {what}")
}

/// The topology with the table of the outcomes of calls.
fn with_requests(topology: &Topology, path: &Path) -> Result<Arc<Topology>, ConfigError> {
    if topology.table(REQUESTS_TABLE).is_some() {
        return Ok(Arc::new(topology.clone()));
    }
    let tables = topology.tables().iter();
    let mut tables: Vec<_> =
        tables.map(|table| (table.name().to_owned(), table.definition())).collect();
    let (name, partitioning) = requests_table(topology.shards());
    tables.push((name.to_owned(), partitioning.into()));
    // There may be too many tables.
    let wrong = |error| ConfigError::Topology { path: path.to_owned(), error: Box::new(error) };
    topology.clone().with_tables(tables).map(Arc::new).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Reads a node's file with this in it.
    fn read(more: &str) -> Result<NodeConfig, ConfigError> {
        read_at("127.0.0.1:7000", more)
    }

    /// The same of a node that listens at this address.
    fn read_at(address: &str, more: &str) -> Result<NodeConfig, ConfigError> {
        let folder = tempfile::tempdir().expect("a folder");
        let topology = Topology::builder().workers(1).datacenter("here");
        let topology = topology.node_at("n0", "here", address).shard("n0", ["n0"], []);
        let topology = topology.build().expect("a topology").to_toml();
        let node = format!(
            "cluster = \"reef\"\nnode = \"n0\"\ntopology = \"topology.toml\"\nsecret = \"secret\"\n{more}"
        );
        for (name, text) in [("topology.toml", &*topology), ("node.toml", &node)] {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let bytes: Vec<u8> = (0..16_u8).map(|at| at.wrapping_mul(37) ^ 0xa5).collect();
        let secret = Secret::new(bytes);
        secret.write_hex(&folder.path().join("secret")).expect("written");
        fs::create_dir(folder.path().join("data")).expect("made");
        NodeConfig::read(&folder.path().join("node.toml"))
    }

    #[test]
    fn a_node_that_will_forget_its_cluster_is_warned_of() {
        let forgets = read("managers = [\"n0\"]\n").expect("a configuration").warnings();
        let [warning] = &forgets[..] else { panic!("{forgets:?}") };
        assert!(warning.contains("`data`") && warning.contains("restart"), "{warning}");
        for more in ["managers = [\"n0\"]\ndata = \"data\"\n", ""] {
            let config = read(more).expect("a configuration");
            assert_eq!(config.warnings(), [""; 0], "{more}: there is nothing to forget");
        }
    }

    #[test]
    fn a_node_that_others_reach_without_tls_is_warned_of() {
        for (address, is_told) in [
            ("127.0.0.1:7000", false),
            ("127.8.0.1:7000", false),
            ("[::1]:7000", false),
            ("localhost:7000", false),
            ("10.0.0.1:7000", true),
            ("0.0.0.0:7000", true),
            ("[::]:7000", true),
            ("node-a.example:7000", true),
        ] {
            let warnings = read_at(address, "").expect("a configuration").warnings();
            let told = warnings.iter().any(|it| it.contains(address) && it.contains("TLS"));
            assert_eq!(told, is_told, "{address}: {warnings:?}");
        }
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let config = read("").expect("a configuration");
        assert_eq!((config.http, config.slow_after), (None, Some(SLOW_AFTER)));
    }

    #[test]
    fn what_operators_want_to_see_is_read() {
        let config = read("http = \"127.0.0.1:9100\"\nslow_ms = 100\n").expect("a configuration");
        assert_eq!(config.http, Some(([127, 0, 0, 1], 9100).into()));
        assert_eq!(config.slow_after, Some(Duration::from_millis(100)));
        assert_eq!(read("slow_ms = 0\n").expect("a configuration").slow_after, None);
    }

    #[test]
    fn a_clock_that_is_made_wrong_is_warned_of() {
        let config = read("clock_error_ms = -10.5\n").expect("a configuration");
        assert_eq!(config.clock_error, ClockError(-10_500_000));
        let warnings = config.warnings();
        assert!(warnings.iter().any(|it| it.contains("-10.5 ms")), "{warnings:?}");
        let warnings = read("lose_unflushed = true\n").expect("a configuration").warnings();
        assert!(warnings.iter().any(|it| it.contains("lose_unflushed")), "{warnings:?}");
        for wrong in ["4e6", "nan", "-inf"] {
            let error = read(&format!("clock_error_ms = {wrong}\n")).expect_err("refused");
            assert!(error.to_string().contains("clock_error_ms"), "{error}");
        }
    }

    #[test]
    fn only_tiga_goes_by_the_difference_of_clocks() {
        let config = read("engine = \"tiga\"\nmax_clock_offset_ms = 2.5\n").expect("good");
        let EngineOptions::Tiga(options) = config.engine else { panic!("it is tiga") };
        assert_eq!(options.protocol.epsilon, Some(Duration::from_micros(2_500)));
        for wrong in [
            "max_clock_offset_ms = 2.5\n",
            "engine = \"tiga\"\nmax_clock_offset_ms = 0\n",
            "engine = \"tiga\"\nmax_clock_offset_ms = 1001\n",
        ] {
            let error = read(wrong).expect_err("refused").to_string();
            assert!(error.contains("max_clock_offset_ms"), "{error}");
        }
    }

    #[test]
    fn engines_and_what_they_need_to_have_in_common_are_digested() {
        let digest = |text: &str| read(text).expect("good").engine_digest();
        let tiga = |ms: &str| digest(&format!("engine = \"tiga\"\nmax_clock_offset_ms = {ms}\n"));
        let all = [
            digest(""),
            digest("engine = \"two-phase-commit\"\n"),
            digest("engine = \"zeus\"\n"),
            digest("engine = \"tiga\"\n"),
            tiga("5"),
            tiga("2.5"),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        assert_eq!(tiga("5"), tiga("5.0"));
        assert_eq!(digest("slow_ms = 3\n"), digest(""));
    }

    #[test]
    fn memory_is_counted_in_megabytes() {
        let memory = |text: &str| {
            let config = read(text).expect("a configuration");
            (config.memory_bytes_max, config.memory_bytes_reserved)
        };
        assert_eq!(memory(""), (usize::MAX, 0));
        assert_eq!(memory("memory_mb = 3\nmemory_reserved_mb = 2\n"), (3 << 20, 2 << 20));
        let error = read("memory_mb = 0\n").expect_err("it could hold nothing").to_string();
        assert!(error.contains("memory_mb"), "{error}");
    }

    #[test]
    fn what_nobody_knows_is_refused_by_name() {
        for (more, named) in
            [("htp = \"x\"\n", "htp"), ("http = \"here\"\n", "http"), ("slow_ms = -1\n", "slow_ms")]
        {
            let error = read(more).expect_err("refused").to_string();
            assert!(error.contains(named), "{more}: {error}");
        }
    }
}
