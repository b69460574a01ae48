//! Topologies without a text: for tests, benchmarks and simulations.

use super::cluster::Topology;
use super::draft::{DatacenterDraft, Draft, NodeDraft, ShardDraft, TablePlan, unplaced};
use super::error::TopologyError;
use super::granules::TableDefinition;
use super::validate;
use shoal_types::Durability;

/// Collects the parts of a topology, by name; they are validated together at the end.
///
/// ```
/// # use shoal_cluster::topology::{Partitioning, Topology};
/// let topology = Topology::builder()
///     .workers(2)
///     .datacenter("oregon")
///     .node("o1", "oregon")
///     .node_at("o2", "oregon", "10.0.0.2:7000")
///     .shard("o1", ["o1"], ["o2"])
///     .table("item", Partitioning::Everywhere)
///     .build()?;
/// assert_eq!(topology.nodes().len(), 2);
/// # Ok::<(), shoal_cluster::topology::TopologyError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    draft: Draft,
    tables: Vec<TablePlan>,
}

impl Topology {
    /// Makes a topology without a text. Its durability is that of clusters in memory, unless [`durability`](Builder::durability)
    /// says otherwise.
    pub fn builder() -> Builder {
        Builder::default().durability(Durability::Memory)
    }
}

impl Builder {
    /// Each node has so many workers.
    pub fn workers(mut self, workers: u32) -> Builder {
        self.draft.workers = Some(unplaced(workers));
        self
    }

    /// Replicas acknowledge what they have stored so durably.
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.draft.durability = Some(unplaced(durability.name().to_owned()));
        self
    }

    /// Datacenters are numbered in the order in which they are added.
    pub fn datacenter(mut self, name: impl Into<String>) -> Builder {
        self.draft.datacenters.push(DatacenterDraft { name: unplaced(name.into()) });
        self
    }

    /// Adds a node without an address.
    pub fn node(mut self, name: impl Into<String>, datacenter: impl Into<String>) -> Builder {
        let (name, datacenter) = (unplaced(name.into()), unplaced(datacenter.into()));
        self.draft.nodes.push(NodeDraft { name, datacenter, address: None, removed: false });
        self
    }

    /// Adds a node that listens at `address`.
    pub fn node_at(
        mut self,
        name: impl Into<String>,
        datacenter: impl Into<String>,
        address: impl Into<String>,
    ) -> Builder {
        let (name, datacenter) = (unplaced(name.into()), unplaced(datacenter.into()));
        let address = Some(unplaced(address.into()));
        self.draft.nodes.push(NodeDraft { name, datacenter, address, removed: false });
        self
    }

    /// Adds a shard, held by the nodes of these names.
    pub fn shard<N: Into<String>>(
        mut self,
        leader: impl Into<String>,
        voters: impl IntoIterator<Item = N>,
        learners: impl IntoIterator<Item = N>,
    ) -> Builder {
        let voters = unplaced(voters.into_iter().map(|name| unplaced(name.into())).collect());
        let learners = learners.into_iter().map(|name| unplaced(name.into())).collect();
        self.draft.shards.push(ShardDraft { leader: unplaced(leader.into()), voters, learners });
        self
    }

    /// Tables are numbered in the order in which they are added.
    pub fn table(
        mut self,
        name: impl Into<String>,
        definition: impl Into<TableDefinition>,
    ) -> Builder {
        self.tables.push(TablePlan::unplaced(name, definition));
        self
    }

    /// The topology.
    ///
    /// # Errors
    /// Where the parts do not fit together.
    pub fn build(self) -> Result<Topology, TopologyError> {
        validate::cluster(self.draft)
            .and_then(|topology| topology.with_plans(self.tables))
            .map_err(TopologyError::nowhere)
    }

    /// Datacenters `dc0`, `dc1` and so on.
    fn datacenters(self, count: u32) -> Builder {
        (0..count).fold(self, |builder, datacenter| builder.datacenter(format!("dc{datacenter}")))
    }
}

impl Topology {
    /// A cluster with a node for each replica of each shard, without tables. Replicas go round the
    /// datacenters, beginning with the first, and so do learners; all leaders are voters in the
    /// first. Node `s1v2` is the third voter of the second shard, `s1l0` its first learner.
    ///
    /// # Panics
    /// Where this is no cluster: a number but that of the learners is 0, the one of the voters is
    /// even, or one is above its limit.
    pub fn symmetric(
        datacenters: u32,
        shards: u32,
        voters: u32,
        learners: u32,
        workers: u32,
    ) -> Topology {
        let mut builder = Topology::builder().workers(workers).datacenters(datacenters);
        for shard in 0..shards {
            let names = |role: char, count: u32| {
                (0..count).map(move |replica| format!("s{shard}{role}{replica}"))
            };
            for role in [names('v', voters), names('l', learners)] {
                for (name, replica) in role.zip(0..) {
                    builder = builder.node(name, datacenter_of(replica, datacenters));
                }
            }
            let leader = format!("s{shard}v0");
            builder = builder.shard(leader, names('v', voters), names('l', learners));
        }
        built(builder)
    }

    /// The same with few nodes: each holds one replica of every shard. Node `v2` is the third voter
    /// of all shards, `l0` their first learner. The voters in the first datacenter take turns in
    /// leading.
    ///
    /// # Panics
    /// As [`symmetric`](Topology::symmetric).
    pub fn compact(
        datacenters: u32,
        shards: u32,
        voters: u32,
        learners: u32,
        workers: u32,
    ) -> Topology {
        let mut builder = Topology::builder().workers(workers).datacenters(datacenters);
        let names =
            |role: char, count: u32| (0..count).map(move |replica| format!("{role}{replica}"));
        for role in [names('v', voters), names('l', learners)] {
            for (name, replica) in role.zip(0..) {
                builder = builder.node(name, datacenter_of(replica, datacenters));
            }
        }
        // Voters 0, d, 2d … of those that go round d datacenters are in the first.
        let in_first = voters.div_ceil(datacenters.max(1)).max(1);
        for shard in 0..shards {
            let leader = format!("v{}", shard % in_first * datacenters);
            builder = builder.shard(leader, names('v', voters), names('l', learners));
        }
        built(builder)
    }
}

/// The name of the datacenter of a replica, going round.
fn datacenter_of(replica: u32, datacenters: u32) -> String {
    format!("dc{}", replica % datacenters.max(1))
}

fn built(builder: Builder) -> Topology {
    builder.build().unwrap_or_else(|error| panic!("no cluster has this shape: {error}"))
}
