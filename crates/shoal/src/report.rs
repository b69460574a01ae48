//! How a cluster is, by what its nodes say.

use crate::ask;
use crate::terminal::table;
use consensus::topology::{Node, Topology};
use net::client::Access;
use server::{FollowerStatus, NodeStatus, ShardStatus};
use std::collections::BTreeMap;
use types::NodeId;
use workloads::report::words;

/// What each node of a cluster says of itself, or why it says nothing.
#[derive(Debug)]
pub struct Report {
    pub topology: Topology,
    pub nodes: Vec<Result<NodeStatus, String>>,
}

impl Report {
    /// Asks everybody, as clients of this access that know these addresses.
    ///
    /// # Errors
    /// A sentence, if nobody says where the nodes are.
    pub async fn gather(addresses: &[String], access: &Access) -> Result<Report, String> {
        let topology = ask::topology(addresses, access).await?;
        let mut nodes = Vec::new();
        for node in topology.nodes() {
            let unknown = || format!("{} has no address", node.name);
            nodes.push(match &node.address {
                Some(address) => ask::status(address, access, 0).await,
                None => Err(unknown()),
            });
        }
        Ok(Report { topology, nodes })
    }

    /// The node that leads each shard, by its own word and under a lease.
    pub fn leaders(&self) -> BTreeMap<u32, u32> {
        let told = self.nodes.iter().flatten().filter(|node| node.lease_ms != Some(0));
        told.flat_map(|node| {
            let leading = node.streams.iter().filter(|stream| stream.leading);
            leading.map(|stream| (stream.shard, node.node))
        })
        .collect()
    }

    /// Does every node answer, and is every shard led?
    pub fn is_well(&self) -> bool {
        let led = self.leaders().len() == self.topology.shards() as usize;
        led && self.nodes.iter().all(Result::is_ok)
    }

    /// The name of a node's datacenter.
    pub fn place(&self, node: &Node) -> String {
        self.topology.datacenters()[node.datacenter.0 as usize].name.clone()
    }

    /// A table of the nodes, and one of the shards.
    pub fn text(&self) -> String {
        format!("{}\n\n{}", self.nodes_text(), self.shards_text())
    }

    /// How a node is, if it says so.
    fn status(&self, node: u32) -> Option<&NodeStatus> {
        self.nodes.iter().flatten().find(|status| status.node == node)
    }

    fn shards_text(&self) -> String {
        let leaders = self.leaders();
        let rows = (0..self.topology.shards()).map(|shard| {
            let leader = leaders.get(&shard).and_then(|leader| self.status(*leader));
            self.shard_row(shard, leader)
        });
        let heads = [
            "shard",
            "leader",
            "watermark",
            "not durable yet",
            "followers, entries behind",
            "clocks to apply",
            "memory",
        ];
        table(heads, rows)
    }

    /// A shard, by what its leader says; and by what its followers say of what they have applied.
    fn shard_row(&self, shard: u32, leader: Option<&NodeStatus>) -> [String; 7] {
        let none = || "–".to_owned();
        let name = |node: u32| {
            let node = self.topology.node(NodeId(node));
            node.map_or_else(none, |node| node.name.clone())
        };
        let Some(status) = leader else {
            let nobody = "nobody".to_owned();
            return [format!("S{shard}"), nobody, none(), none(), none(), none(), none()];
        };
        let empty = ShardStatus::default();
        let known = status.shards.iter().find(|it| it.shard == shard).unwrap_or(&empty);
        let ahead = known.drawn.zip(known.watermark);
        let ahead = ahead.map(|(drawn, watermark)| drawn.saturating_sub(watermark));
        let streams = status.streams.iter().filter(|stream| stream.shard == shard);
        let followers: Vec<&FollowerStatus> =
            streams.flat_map(|stream| &stream.followers).collect();
        let behind = |other: &&FollowerStatus| format!("{} {}", name(other.node), other.behind);
        let applied = |other: &&FollowerStatus| {
            let shards = &self.status(other.node)?.shards;
            let reached = shards.iter().find(|it| it.shard == shard)?.reached?;
            let left = known.watermark?.saturating_sub(reached);
            Some(format!("{} {}", name(other.node), words::count(left)))
        };
        let listed = |words: Vec<String>| if words.is_empty() { none() } else { words.join(", ") };
        [
            format!("S{shard}"),
            status.name.clone(),
            known.watermark.map_or_else(none, words::count),
            ahead.map_or_else(none, words::count),
            listed(followers.iter().map(behind).collect()),
            listed(followers.iter().filter_map(applied).collect()),
            known.memory_bytes.map_or_else(none, |bytes| format!("{} MiB", bytes >> 20)),
        ]
    }

    fn nodes_text(&self) -> String {
        let leaders = self.leaders();
        let farthest = |shard: u32| {
            let streams = self.nodes.iter().flatten().flat_map(|node| &node.streams);
            streams.filter(|stream| stream.shard == shard).map(|stream| stream.decided).max()
        };
        let rows = self.topology.nodes().iter().zip(&self.nodes).map(|(node, status)| {
            let place = self.place(node);
            let Ok(status) = status else {
                let none = || "–".to_owned();
                return [
                    node.name.clone(),
                    place,
                    "does not answer".to_owned(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                ];
            };
            let leads = led_by(&leaders, node.id);
            let lag = status
                .streams
                .iter()
                .map(|stream| farthest(stream.shard).unwrap_or_default() - stream.decided);
            let count = |name: &str| {
                let found = status.counters.iter().find(|(counter, _)| counter == name);
                words::count(found.map_or(0, |(_, count)| *count))
            };
            [
                node.name.clone(),
                place,
                if leads.is_empty() { "follows".to_owned() } else { format!("leads {leads}") },
                format!("e{}", status.epoch),
                status.lease_ms.map_or_else(|| "for ever".to_owned(), |ms| format!("{ms} ms")),
                words::count(lag.sum()),
                words::count(status.pending as u64),
                count("committed"),
                format!("{} MiB", status.memory_bytes >> 20),
            ]
        });
        let heads = [
            "node",
            "datacenter",
            "role",
            "epoch",
            "lease",
            "entries behind",
            "open",
            "committed",
            "memory",
        ];
        table(heads, rows)
    }
}

/// The shards that a node leads, in words: `S0 S2`.
pub fn led_by(leaders: &BTreeMap<u32, u32>, node: NodeId) -> String {
    let led = leaders.iter().filter(|(_, leader)| **leader == node.0);
    let led: Vec<String> = led.map(|(shard, _)| format!("S{shard}")).collect();
    led.join(" ")
}
