//! How topologies are encoded: as their parts, in the order of their ids. A decoded topology is validated like one that
//! was read from a text.

use super::cluster::{Shard, Topology};
use super::draft::{DatacenterDraft, Draft, NodeDraft, ShardDraft, unplaced};
use super::{DATACENTERS_MAX, NAME_BYTES_MAX, NODES_MAX, REPLICAS_MAX, SHARDS_MAX};
use super::{Node, TableDefinition, validate};
use bytes::BytesMut;
use shoal_types::wire::{Coded, Input, Malformed};
use shoal_types::{DatacenterId, DistanceMatrix, Durability, NodeId, TableId, Way};

/// A node's name, datacenter and address.
type NodeForm = (String, (DatacenterId, Option<String>));

/// A table's id, name and definition.
type NumberedTable = (TableId, (String, TableDefinition));

/// The parts of a [`Topology`], in the order in which they are encoded.
#[derive(Coded)]
struct TopologyParts {
    workers: u32,
    durability: Durability,
    datacenters: Vec<String>,
    nodes: Vec<NodeForm>,
    shards: Vec<Shard>,
    tables: Vec<NumberedTable>,
    /// The id that the next table gets.
    next_table: TableId,
    ways: Vec<Way>,
    /// The nodes that were removed.
    removed: Vec<NodeId>,
}

impl From<&Topology> for TopologyParts {
    fn from(topology: &Topology) -> TopologyParts {
        let node = |Node { name, datacenter, address, .. }: &Node| {
            (name.clone(), (*datacenter, address.clone()))
        };
        let shard = |shard| Shard {
            leader: topology.leader(shard),
            voters: topology.voters(shard).to_vec(),
            learners: topology.learners(shard).to_vec(),
        };
        let datacenters = topology.datacenters().iter();
        let tables = topology.tables().iter();
        TopologyParts {
            workers: topology.workers(),
            durability: topology.durability(),
            datacenters: datacenters.map(|datacenter| datacenter.name.clone()).collect(),
            nodes: topology.nodes().iter().map(node).collect(),
            shards: topology.shard_ids().map(shard).collect(),
            tables: tables.map(|it| (it.id(), (it.name().to_owned(), it.definition()))).collect(),
            next_table: topology.tables().next(),
            ways: topology.distances().ways().collect(),
            removed: topology.nodes().iter().filter(|it| it.removed).map(|it| it.id).collect(),
        }
    }
}

impl TryFrom<TopologyParts> for Topology {
    type Error = &'static str;

    fn try_from(parts: TopologyParts) -> Result<Topology, &'static str> {
        let TopologyParts { workers, datacenters, nodes, shards, tables, .. } = parts;
        let TopologyParts { durability, next_table, ways, removed, .. } = parts;
        // Validation goes by names, which are repeated for that: so none may be long, nor needed often.
        let mut names = datacenters.iter().chain(nodes.iter().map(|(name, _)| name));
        let short = names.all(|name| name.len() <= NAME_BYTES_MAX);
        let few = datacenters.len() <= DATACENTERS_MAX
            && nodes.len() <= NODES_MAX
            && shards.len() <= SHARDS_MAX
            && shards.iter().all(|it| it.voters.len().max(it.learners.len()) <= REPLICAS_MAX);
        let are_nodes = removed.iter().all(|node| (node.0 as usize) < nodes.len());
        let is_possible = short && few && are_nodes && removed.is_sorted_by(|one, two| one < two);
        let draft = is_possible.then(|| draft(workers, datacenters, nodes, &shards)).flatten();
        let draft = draft.map(|mut draft| {
            removed.iter().for_each(|node| draft.nodes[node.0 as usize].removed = true);
            draft
        });
        draft
            .and_then(|draft| validate::cluster(draft).ok())
            .and_then(|topology| topology.with_numbered_tables(tables, next_table).ok())
            .and_then(|topology| topology.with_distances(&matrix(ways)?).ok())
            .map(|topology| topology.with_durability(durability))
            .ok_or("no topology")
    }
}

/// Not derived by `via`: `cluster.rs` would have to import this file, which imports it.
impl Coded for Topology {
    const BYTES_MIN: usize = TopologyParts::BYTES_MIN;

    fn put(&self, out: &mut BytesMut) {
        TopologyParts::from(self).put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Topology, Malformed> {
        TopologyParts::take(input)?.try_into().map_err(|what| input.wrong(what))
    }
}

/// The matrix of these ways; `None` where one stands there twice, or leads nowhere.
fn matrix(ways: Vec<Way>) -> Option<DistanceMatrix> {
    let mut matrix = DistanceMatrix::none();
    for way in ways {
        if way.from == way.to || matrix.set(way).is_some() {
            return None;
        }
    }
    Some(matrix)
}

/// The draft of a text with the same content; `None` where a number refers to nothing.
fn draft(
    workers: u32,
    datacenters: Vec<String>,
    nodes: Vec<NodeForm>,
    shards: &[Shard],
) -> Option<Draft> {
    let mut draft = Draft { workers: Some(unplaced(workers)), ..Draft::default() };
    let node_name = |node: &NodeId| nodes.get(node.0 as usize).map(|it| unplaced(it.0.clone()));
    for Shard { leader, voters, learners } in shards {
        draft.shards.push(ShardDraft {
            leader: node_name(leader)?,
            voters: unplaced(voters.iter().map(node_name).collect::<Option<_>>()?),
            learners: learners.iter().map(node_name).collect::<Option<_>>()?,
        });
    }
    for (name, (datacenter, address)) in nodes {
        draft.nodes.push(NodeDraft {
            name: unplaced(name),
            datacenter: unplaced(datacenters.get(datacenter.0 as usize)?.clone()),
            address: address.map(unplaced),
            removed: false,
        });
    }
    let named = |name| DatacenterDraft { name: unplaced(name) };
    draft.datacenters = datacenters.into_iter().map(named).collect();
    Some(draft)
}

#[cfg(test)]
mod tests {
    use super::super::Partitioning;
    use super::*;
    use shoal_types::distance::ONE_WAY_MAX;
    use shoal_types::wire::check::returns;
    use shoal_types::wire::{decode, encode};
    use shoal_types::{Distance, ShardId};
    use std::time::Duration;

    fn hash(prefix_bytes: usize) -> Partitioning {
        Partitioning::Hash { prefix_bytes }
    }

    /// Every kind of thing that a topology may have.
    fn rich() -> Topology {
        let splits = vec![(Box::default(), ShardId(1)), (Box::from(&b"m"[..]), ShardId(0))];
        let far = Distance { delay: Duration::from_nanos(25_000_001), jitter: Duration::ZERO };
        let mut distances = DistanceMatrix::uniform(far);
        distances.set(Way { from: DatacenterId(1), to: DatacenterId(0), distance: Distance::NONE });
        Topology::builder()
            .workers(2)
            .datacenter("a")
            .datacenter("b")
            .node_at("n", "b", "10.0.0.1:7000")
            .node("m", "a")
            .node_at("o", "a", "10.0.0.2:7000")
            .shard("n", ["m"], ["n"])
            .shard("n", ["n"], [])
            .table("hash", hash(2))
            .table("range", Partitioning::Range { splits })
            .table("all", Partitioning::Everywhere)
            .table("kin", TableDefinition::from(hash(2)).granule_bytes(2).family("hash"))
            .build()
            .expect("a valid topology")
            .with_distances(&distances)
            .expect("valid distances")
            .without_node(NodeId(2))
    }

    #[test]
    fn topologies_return() {
        returns(&rich());
        returns(&Topology::symmetric(3, 3, 3, 1, 4));
        let one = vec![(TableId(2), ("t".to_owned(), hash(0).into()))];
        let holes = Topology::symmetric(1, 1, 1, 0, 1).with_numbered_tables(one, TableId(5));
        returns(&holes.expect("ids ascend"));
        let back: Topology = decode(&encode(&rich())).expect("as it was");
        assert_eq!(back.table("range"), Some(TableId(1)));
        assert_eq!(back.to_toml(), rich().to_toml());
    }

    #[test]
    fn what_no_text_may_say_no_bytes_may_either() {
        type Tables = ((Vec<NumberedTable>, TableId), (Vec<Way>, Vec<NodeId>));
        type Parts = ((u32, (Durability, Vec<String>)), ((Vec<NodeForm>, Vec<Shard>), Tables));
        let bytes = encode(&rich());
        let refused = |spoil: fn(&mut Parts)| {
            let mut parts: Parts = decode(&bytes).expect("the same form");
            spoil(&mut parts);
            let error = decode::<Topology>(&encode(&parts)).expect_err("spoiled");
            assert_eq!(error.what, "no topology");
        };
        refused(|it| it.0.0 = 0);
        refused(|it| it.0.1.1.clear());
        refused(|it| it.0.1.1[1] = "a".to_owned());
        refused(|it| it.0.1.1[1] = "x".repeat(NAME_BYTES_MAX + 1));
        refused(|it| it.1.0.0[0].1.0 = DatacenterId(2));
        refused(|it| it.1.0.1[0].leader = NodeId(2));
        refused(|it| it.1.0.1[0].voters.push(NodeId(0)));
        refused(|it| it.1.0.1[0].learners.push(NodeId(u32::MAX)));
        refused(|it| it.1.0.1[0].learners = vec![NodeId(0); REPLICAS_MAX + 1]);
        refused(|it| it.1.1.0.0[1].1.1 = Partitioning::Range { splits: Vec::new() }.into());
        refused(|it| it.1.1.0.0[2].1.0 = "hash".to_owned());
        refused(|it| it.1.1.0.0[0].1.1 = hash(usize::MAX).into());
        refused(|it| it.1.1.0.0[0].1.1.granule_bytes = Some(1));
        refused(|it| it.1.1.0.0[3].1.1.family = Some("none".to_owned()));
        refused(|it| it.1.1.0.0[0].0 = TableId(1));
        refused(|it| it.1.1.0.1 = TableId(2));
        refused(|it| it.1.1.0.1 = TableId(u32::MAX));
        refused(|it| it.1.1.1.0[0].to = DatacenterId(2));
        refused(|it| it.1.1.1.0[0].to = DatacenterId(0));
        refused(|it| it.1.1.1.0[1] = it.1.1.1.0[0]);
        refused(|it| it.1.1.1.1[0] = NodeId(3));
        refused(|it| it.1.1.1.1[0] = NodeId(0));
        refused(|it| it.1.1.1.1.push(NodeId(1)));
        refused(|it| it.1.1.1.0[1].distance.jitter = ONE_WAY_MAX + Duration::from_nanos(1));
    }
}
