//! What a local cluster is to be: its topology and the configuration of its nodes.

use super::folder::Security;
use ring::rand::{SecureRandom, SystemRandom};
use shoal_cluster::topology::{Partitioning, Regions, TableDefinition, Topology, TopologyError};
use shoal_net::ClockError;
use shoal_server::EngineOptions;
use shoal_types::{Distance, Durability, NodeId};
use shoal_workloads::report::words;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

/// The table that a local cluster begins with, divided by the hash of whole keys, so that a first `shoal put` has one.
const FIRST_TABLE: &str = "kv";

/// The secret of the nodes, drawn anew.
///
/// # Errors
/// If the system has no chance to give.
pub fn secret() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    let none = |_| io::Error::other("the system has no chance to give");
    SystemRandom::new().fill(&mut secret).map_err(none)?;
    Ok(secret)
}

/// A cluster that is about to be made.
#[derive(Debug, Clone)]
pub struct ClusterPlan {
    /// How many shards.
    pub shards: u32,
    /// Voters of each shard. They go round the regions, beginning with the first.
    pub replicas: u32,
    /// Over so many datacenters the leaders are spread, in turn; 1: all are in the first. At most as many as
    /// there are replicas.
    pub leader_datacenters: u32,
    /// Whether nodes hold replicas of several shards: each node leads one, and holds others that its next neighbours lead. Else
    /// each replica has a node of its own.
    pub shares_nodes: bool,
    /// The regions of nodes beside these, which have no replica and coordinate for the clients near them, where the engine has
    /// clients go to the nearest node.
    pub coordinators_in: Vec<String>,
    /// Workers of each node.
    pub workers: u32,
    /// When replicas acknowledge what they store.
    pub durability: Durability,
    /// Where nodes on threads of one process have their folders, if their durability needs them.
    pub disk: Option<PathBuf>,
    /// How much longer flushes of such nodes take than they do.
    pub flush_delay: Duration,
    /// The one node whose flushes take longer; `None`: all of them do.
    pub flush_delay_at: Option<NodeId>,
    /// Whether what the logs of nodes have not flushed is lost with their processes.
    pub loses_unflushed: bool,
    /// The datacenters, and the emulated distances between them.
    pub regions: Regions,
    /// The commit engine. Files of nodes do not contain its options: only clusters of this process have them.
    pub engine: EngineOptions,
    /// Bytes that each copy of a shard takes from the system at the start. Clusters of processes take none.
    pub memory_bytes_reserved: usize,
    /// How wrong the clocks of nodes are made, in their order; those beyond are right.
    pub clock_errors: Vec<ClockError>,
    /// The tables, and how each is divided.
    pub tables: Vec<(String, TableDefinition)>,
}

impl ClusterPlan {
    /// A cluster of the default engine with so many shards of so many replicas, each in a datacenter of its own without any distance
    /// between them, with one table.
    pub fn new(shards: u32, replicas: u32) -> ClusterPlan {
        ClusterPlan {
            shards,
            replicas,
            leader_datacenters: 1,
            shares_nodes: false,
            coordinators_in: Vec::new(),
            workers: 1,
            durability: Durability::Memory,
            disk: None,
            flush_delay: Duration::ZERO,
            flush_delay_at: None,
            loses_unflushed: false,
            regions: Regions::uniform(replicas, Distance::NONE),
            engine: EngineOptions::default(),
            memory_bytes_reserved: 0,
            clock_errors: Vec::new(),
            tables: vec![(FIRST_TABLE.to_owned(), Partitioning::Hash { prefix_bytes: 0 }.into())],
        }
    }

    /// The same, with so long a round trip between any two datacenters.
    #[must_use]
    pub fn with_round_trip(self, round_trip: Duration) -> ClusterPlan {
        let regions = Regions::uniform(self.replicas, Distance::of_round_trip(round_trip));
        ClusterPlan { regions, ..self }
    }

    /// The engine, as results show it.
    pub fn engine_name(&self) -> &'static str {
        self.engine.protocol().name()
    }

    /// In words: `mako, 3 shards of 3 replicas, 50 ms, memory`, with the longest round trip.
    pub fn words(&self) -> String {
        let ClusterPlan { shards, replicas, regions, .. } = self;
        let mut round_trips: Vec<Duration> = regions.round_trips().collect();
        round_trips.sort_unstable();
        let ms = |time: &Duration| time.as_secs_f64() * 1000.0;
        let far = match &round_trips[..] {
            [] | [.., Duration::ZERO] => String::new(),
            [least, .., most] if least != most => format!(", {} to {} ms", ms(least), ms(most)),
            [.., most] => format!(", {} ms", ms(most)),
        };
        let spread = match self.leader_datacenters {
            1 => String::new(),
            places => format!(", leaders in {places} datacenters"),
        };
        let durability = self.durability_words();
        let several =
            |count: u32, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (shards, replicas) = (several(*shards, "shard"), several(*replicas, "replica"));
        format!("{}, {shards} of {replicas}{far}{spread}, {durability}", self.engine_name())
    }

    /// The durability in words: `fsync`, or `fsync, each flush 1.00 ms longer`, or `fsync, each flush of n2 1.00 ms longer`.
    pub fn durability_words(&self) -> String {
        match self.flush_delay {
            Duration::ZERO => self.durability.to_string(),
            delay => {
                let longer = words::seconds(delay.as_secs_f64());
                let of = self.flush_delay_at.map_or_else(String::new, |node| format!(" of {node}"));
                format!("{}, each flush{of} {longer} longer", self.durability)
            }
        }
    }

    /// How much longer the flushes of this node take than they do.
    pub fn flush_delay_of(&self, node: NodeId) -> Duration {
        let is_slow = self.flush_delay_at.is_none_or(|slow| slow == node);
        if is_slow { self.flush_delay } else { Duration::ZERO }
    }

    /// The same with this table, also where it has another of this name.
    #[must_use]
    pub fn with_table(mut self, name: &str, definition: impl Into<TableDefinition>) -> ClusterPlan {
        self.tables.retain(|(known, _)| known != name);
        self.tables.push((name.to_owned(), definition.into()));
        self
    }

    /// A range of keys for each shard, as long as the others if the first byte is as likely one as another.
    pub fn even_ranges(&self) -> Partitioning {
        let first = |shard: u32| match shard {
            0 => Vec::new(),
            shard => vec![(shard * 256 / self.shards) as u8],
        };
        Partitioning::ranges((0..self.shards).map(first))
    }

    /// How many nodes it has.
    pub fn nodes(&self) -> u32 {
        self.nodes_with_replicas() + self.coordinators_in.len() as u32
    }

    fn nodes_with_replicas(&self) -> u32 {
        match self.shares_nodes {
            true => self.shards.max(self.replicas),
            false => self.shards * self.replicas,
        }
    }

    /// How wrong the clock of the node of this number is made.
    pub fn clock_error(&self, node: NodeId) -> ClockError {
        self.clock_errors.get(node.0 as usize).copied().unwrap_or_default()
    }

    /// The name of a replica's node.
    fn node(&self, shard: u32, replica: u32) -> String {
        match self.shares_nodes {
            true => format!("n{}", (shard + replica) % self.nodes_with_replicas()),
            false => format!("s{shard}v{replica}"),
        }
    }

    /// The names of all nodes, each with its region.
    fn places(&self) -> Vec<(String, &str)> {
        let mut places: Vec<(String, &str)> = match self.shares_nodes {
            true => {
                let nodes = 0..self.nodes_with_replicas();
                nodes.map(|node| (format!("n{node}"), self.region(node))).collect()
            }
            false => {
                let replicas = |shard| (0..self.replicas).map(move |replica| (shard, replica));
                let all = (0..self.shards).flat_map(replicas);
                let place = |(shard, replica)| (self.node(shard, replica), self.region(replica));
                all.map(place).collect()
            }
        };
        let coordinators = (0..).zip(&self.coordinators_in);
        places.extend(coordinators.map(|(at, region): (u32, _)| (format!("c{at}"), &**region)));
        places
    }

    /// Where a replica is, among the regions.
    fn region(&self, replica: u32) -> &str {
        let names = self.regions.names();
        &names[replica as usize % names.len()]
    }

    /// The topology, whose nodes listen at these addresses.
    ///
    /// # Errors
    /// Where there cannot be such a cluster.
    ///
    /// # Panics
    /// If there are too few addresses.
    pub fn topology(&self, addresses: &[String]) -> Result<Topology, TopologyError> {
        let mut builder = Topology::builder().workers(self.workers).durability(self.durability);
        for region in self.regions.names() {
            builder = builder.datacenter(region);
        }
        assert!(addresses.len() >= self.nodes() as usize, "an address for each node");
        for ((name, region), address) in self.places().into_iter().zip(addresses) {
            builder = builder.node_at(name, region, address);
        }
        for shard in 0..self.shards {
            let voters: Vec<String> = (0..self.replicas).map(|it| self.node(shard, it)).collect();
            let regions = self.regions.names().len() as u32;
            let places = self.leader_datacenters.clamp(1, self.replicas.min(regions));
            let leader = voters[(shard % places) as usize].clone();
            builder = builder.shard(leader, voters, []);
        }
        let tables = self.tables.iter().cloned();
        tables
            .fold(builder, |builder, (name, definition)| builder.table(name, definition))
            .build()?
            .with_distances(self.regions.distances())
    }

    /// The nodes that have managers: those of the first shard, up to five, an odd number of them.
    pub fn managers(&self) -> Vec<String> {
        let count = match self.replicas {
            1 | 2 => 1,
            3 | 4 => 3,
            _ => 5,
        };
        (0..count).map(|replica| self.node(0, replica)).collect()
    }

    /// The file of a node, which serves its health and metrics at `http`, if that is given.
    pub fn node_file(&self, node: &str, http: Option<&str>, security: Security) -> String {
        let managers = self.managers();
        let engine = self.engine_name();
        let http = http.map(|at| format!("http = \"{at}\"\n")).unwrap_or_default();
        let client_secret = match security.client_secret {
            true => "client_secret = \"../client-secret\"\n",
            false => "",
        };
        let unflushed = if self.loses_unflushed { "lose_unflushed = true\n" } else { "" };
        let tls = match security.tls {
            true => {
                "[tls]\ncertificates = \"node.pem\"\nkey = \"node.key\"\nauthorities = \"../ca.pem\"\n"
            }
            false => "",
        };
        format!(
            "cluster = \"shoal\"\nnode = \"{node}\"\ntopology = \"../topology.toml\"\n\
             managers = {managers:?}\ndata = \".\"\nsecret = \"../secret\"\nengine = \"{engine}\"\nchaos = true\n{unflushed}\
             {http}{client_secret}{tls}"
        )
    }

    /// A socket on loopback for each node, and its address: while they are held no other process has their ports. These
    /// are consecutive, beginning with `first`; any that are free, if that is 0.
    ///
    /// # Errors
    /// If another process has one of them, or the system has none.
    pub fn listen(&self, first: u16) -> io::Result<(Vec<TcpListener>, Vec<String>)> {
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for node in 0..self.nodes() {
            let port = u32::from(first) + if first == 0 { 0 } else { node };
            let port = u16::try_from(port)
                .map_err(|_| io::Error::other("there are no ports beyond 65535"))?;
            let listener = TcpListener::bind(("127.0.0.1", port))
                .map_err(|error| io::Error::new(error.kind(), format!("port {port}: {error}")))?;
            addresses.push(listener.local_addr()?.to_string());
            listeners.push(listener);
        }
        Ok((listeners, addresses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::topology::Home;
    use shoal_types::ShardId;

    fn addresses(plan: &ClusterPlan) -> Vec<String> {
        (0..plan.nodes()).map(|port| format!("localhost:{port}")).collect()
    }

    #[test]
    fn replicas_go_round_the_regions_which_are_as_far_as_planned() {
        let plan = ClusterPlan { regions: Regions::tiga(), ..ClusterPlan::new(2, 3) };
        assert_eq!(plan.words(), "mako, 2 shards of 3 replicas, 120 to 300 ms, memory");
        let topology = plan.topology(&addresses(&plan)).expect("a topology");
        assert_eq!(topology.distances(), Regions::tiga().distances());
        let place = |node: &shoal_cluster::topology::Node| node.datacenter.0;
        let places: Vec<u32> = topology.nodes().iter().map(place).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2], "no replica is in Hong Kong");

        let plan = ClusterPlan::new(1, 3).with_round_trip(Duration::from_millis(50));
        assert_eq!(plan.words(), "mako, 1 shard of 3 replicas, 50 ms, memory");
        let topology = plan.topology(&addresses(&plan)).expect("a topology");
        assert_eq!(topology.distances().round_trip_max(3), Duration::from_millis(50));
        assert_eq!(ClusterPlan::new(1, 1).words(), "mako, 1 shard of 1 replica, memory");
    }

    #[test]
    fn coordinators_are_nodes_of_their_own_without_replicas() {
        let regions = Regions::tiga();
        let coordinators_in = vec!["hong-kong".to_owned()];
        let plan = ClusterPlan { regions, coordinators_in, ..ClusterPlan::new(1, 3) };
        let topology = plan.topology(&addresses(&plan)).expect("a topology");
        let last = topology.nodes().last().expect("a node");
        assert_eq!((plan.nodes(), &*last.name, last.datacenter.0), (4, "c0", 3));
        assert!(topology.shard_ids().all(|shard| topology.leader(shard) != last.id));
    }

    #[test]
    fn nodes_that_hold_several_shards_lead_one_each() {
        let plan = ClusterPlan { shares_nodes: true, ..ClusterPlan::new(6, 3) };
        let topology = plan.topology(&addresses(&plan)).expect("a topology");
        assert_eq!(topology.nodes().len(), 6);
        for shard in topology.shard_ids() {
            let voters: Vec<u32> = topology.voters(shard).iter().map(|node| node.0).collect();
            assert_eq!(voters, [0, 1, 2].map(|next| (shard.0 + next) % 6));
            assert_eq!(topology.leader(shard).0, shard.0);
        }
        assert_eq!(plan.managers(), ["n0", "n1", "n2"]);
    }

    #[test]
    fn a_table_that_is_asked_for_takes_the_place_of_one_of_its_name() {
        let plan = ClusterPlan::new(3, 1);
        let ranges = plan.even_ranges();
        let plan = plan.with_table("kv", ranges);
        let topology = plan.topology(&addresses(&plan)).expect("a topology");
        let kv = topology.table("kv").expect("it is there");
        for (key, shard) in [(&b""[..], 0), (b"T", 0), (b"U", 1), (b"\xa9", 1), (b"\xaa", 2)] {
            let home = topology.home(kv, key);
            assert_eq!(home, Some(Home::One(ShardId(shard))), "{key:?}");
        }
    }

    #[test]
    fn ports_follow_one_another_or_are_any() {
        let plan = ClusterPlan::new(1, 3);
        let (held, addresses) = plan.listen(0).expect("free ports");
        let port = held[0].local_addr().expect("bound").port();
        let refused = plan.listen(port).expect_err("the first is held");
        assert!(refused.to_string().starts_with(&format!("port {port}: ")), "{refused}");
        assert_eq!(addresses.len(), 3);
        let beyond = plan.listen(u16::MAX).expect_err("there is one port left at most");
        assert!(beyond.to_string().contains("6553"), "{beyond}");
    }
}
