//! From a topology back to its text.

use super::cluster::{Node, Topology};
use super::distances::as_milliseconds;
use super::key;
use super::partitioning::Partitioning;
use super::tables::Table;
use shoal_types::{DatacenterId, NodeId, ShardId, Way};
use std::fmt::{self, Write};
use toml::Value;

impl Topology {
    /// The topology as a text that [`parse`](Topology::parse) reads back as the same.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        write_all(self, &mut text).expect("a string takes all that is written");
        text
    }
}

fn write_all(topology: &Topology, text: &mut String) -> fmt::Result {
    writeln!(text, "workers = {}", topology.workers())?;
    writeln!(text, "durability = {}", quoted(topology.durability().name()))?;
    for datacenter in topology.datacenters() {
        writeln!(text, "\n[[datacenter]]\nname = {}", quoted(&datacenter.name))?;
    }
    for way in topology.distances().ways() {
        write_way(topology, way, text)?;
    }
    for node in topology.nodes() {
        write_node(topology, node, text)?;
    }
    for shard in topology.shard_ids() {
        write_shard(topology, shard, text)?;
    }
    topology.tables().iter().try_for_each(|table| write_table(table, text))
}

/// A name as TOML has it.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Writes the distance of one direction, or of both if they are equal.
fn write_way(topology: &Topology, way: Way, text: &mut String) -> fmt::Result {
    let Way { from, to, distance } = way;
    let name = |id: DatacenterId| quoted(&topology.datacenters()[id.0 as usize].name);
    match topology.distances().way(to, from) == Some(distance) {
        // Written with the other one.
        true if from > to => return Ok(()),
        true => writeln!(text, "\n[[distance]]\nbetween = [{}, {}]", name(from), name(to))?,
        false => writeln!(text, "\n[[distance]]\nfrom = {}\nto = {}", name(from), name(to))?,
    }
    writeln!(text, "one_way_ms = {:?}", as_milliseconds(distance.delay))?;
    match distance.jitter.is_zero() {
        true => Ok(()),
        false => writeln!(text, "jitter_ms = {:?}", as_milliseconds(distance.jitter)),
    }
}

fn write_node(topology: &Topology, node: &Node, text: &mut String) -> fmt::Result {
    let datacenter = &topology.datacenters()[node.datacenter.0 as usize];
    writeln!(text, "\n[[node]]\nname = {}", quoted(&node.name))?;
    writeln!(text, "datacenter = {}", quoted(&datacenter.name))?;
    match &node.address {
        Some(address) => writeln!(text, "address = {}", quoted(address)),
        None if node.removed => writeln!(text, "removed = true"),
        None => Ok(()),
    }
}

fn write_shard(topology: &Topology, shard: ShardId, text: &mut String) -> fmt::Result {
    let name = |node: &NodeId| quoted(&topology.nodes()[node.0 as usize].name);
    let list = |nodes: &[NodeId]| nodes.iter().map(name).collect::<Vec<_>>().join(", ");
    writeln!(text, "\n[[shard]] # {}", shard.0)?;
    writeln!(text, "leader = {}", name(&topology.leader(shard)))?;
    writeln!(text, "voters = [{}]", list(topology.voters(shard)))?;
    match topology.learners(shard) {
        [] => Ok(()),
        learners => writeln!(text, "learners = [{}]", list(learners)),
    }
}

fn write_table(table: &Table, text: &mut String) -> fmt::Result {
    writeln!(text, "\n[[table]]\nname = {}", quoted(table.name()))?;
    match table.partitioning() {
        Partitioning::Hash { prefix_bytes } => {
            writeln!(text, "partitioning = \"hash\"\nprefix_bytes = {prefix_bytes}")
        }
        Partitioning::Range { splits } => {
            writeln!(text, "partitioning = \"range\"\nranges = [")?;
            for (from, shard) in splits {
                match **from {
                    [] => writeln!(text, "    {{ shard = {} }},", shard.0)?,
                    _ => {
                        let from = key::write(from);
                        writeln!(text, "    {{ from = {from}, shard = {} }},", shard.0)?;
                    }
                }
            }
            writeln!(text, "]")
        }
        Partitioning::Everywhere => writeln!(text, "partitioning = \"everywhere\""),
    }?;
    let definition = table.definition();
    if let Some(bytes) = definition.granule_bytes {
        writeln!(text, "granule_bytes = {bytes}")?;
    }
    match definition.family {
        Some(family) => writeln!(text, "family = {}", quoted(&family)),
        None => Ok(()),
    }
}
