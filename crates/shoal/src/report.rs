//! The status of a cluster, from the statuses of its nodes.

use crate::terminal::tables;
use crate::{ask, loss_sentence};
use serde::Serialize;
use shoal_bench::MeasuredCluster;
use shoal_cluster::topology::{Node, Topology};
use shoal_engine::latency::quantile_s;
use shoal_net::SystemClock;
use shoal_net::client::Access;
use shoal_server::{
    FollowerStatus, NodeStatus, ShardColumnStatus, ShardStatus, StageStatus, VersionsStatus,
};
use shoal_types::counted::{FLUSH_NS, FLUSHES};
use shoal_types::{Counted, CountedStage, NodeId, Time};
use shoal_workloads::report::words;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The status of each node of a cluster, or why there is none.
#[derive(Debug)]
pub struct StatusReport {
    pub topology: Topology,
    /// In the order of the topology's members.
    pub nodes: Vec<Result<NodeStatus, String>>,
    /// The skew of each node's clock from that of this machine, if it is known.
    pub skews: Vec<Option<ClockSkew>>,
}

/// By how much a clock is ahead of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ClockSkew {
    pub ahead_ns: i64,
    /// Give or take so much: half of what question and answer took.
    pub within_ns: u64,
}

impl ClockSkew {
    /// The skew of a clock that showed this time between these two times.
    fn between(asked: Time, told: Time, heard: Time) -> ClockSkew {
        let within_ns = (heard - asked).as_nanos() as u64 / 2;
        ClockSkew { ahead_ns: told.0.wrapping_sub(asked.0 + within_ns).cast_signed(), within_ns }
    }

    /// `+1.2 ± 0.1 ms`.
    fn words(self) -> String {
        let ClockSkew { ahead_ns, within_ns } = self;
        let ms = |ns: f64| ns / 1e6;
        format!("{:+.1} ± {:.1} ms", ms(ahead_ns as f64), ms(within_ns as f64))
    }
}

impl StatusReport {
    /// Asks every node, as clients of this access that know these addresses.
    ///
    /// # Errors
    /// A sentence, if no address answers.
    pub async fn gather(addresses: &[String], access: &Access) -> Result<StatusReport, String> {
        let topology = ask::topology(addresses, access).await?;
        let (mut nodes, mut skews) = (Vec::new(), Vec::new());
        let clock = SystemClock::new();
        for node in topology.members() {
            let unknown = || format!("{} has no address", node.name);
            let asked = clock.now();
            let status = match &node.address {
                Some(address) => ask::status(address, access, 0).await,
                None => Err(unknown()),
            };
            let heard = clock.now();
            let skew = |status: &NodeStatus| ClockSkew::between(asked, Time(status.time_ns), heard);
            skews.push(status.as_ref().ok().map(skew));
            nodes.push(status);
        }
        Ok(StatusReport { topology, nodes, skews })
    }

    /// The node that leads each shard, by its own status and under a lease.
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
        self.missing().is_none()
    }

    /// Why it [is not well](Self::is_well), in a sentence.
    pub fn missing(&self) -> Option<String> {
        if let Some(error) = self.nodes.iter().find_map(|node| node.as_ref().err()) {
            return Some(error.clone());
        }
        let leaders = self.leaders();
        let vacant = (0..self.topology.shards()).find(|shard| !leaders.contains_key(shard));
        self.outages().into_iter().next().or(vacant.map(|shard| format!("no node leads S{shard}")))
    }

    /// Why shards cannot be served, by the node that knows the latest configuration: a sentence for each.
    pub fn outages(&self) -> Vec<String> {
        let latest = self.nodes.iter().flatten().max_by_key(|node| node.revision);
        let shards = latest.into_iter().flat_map(|node| &node.shards);
        shards.filter_map(|shard| shard.outage.clone()).collect()
    }

    /// Losses of majorities that operators have accepted, by the node that knows the latest configuration: a sentence for each.
    pub fn losses(&self) -> Vec<String> {
        let latest = self.nodes.iter().flatten().max_by_key(|node| node.revision);
        let name = |node: u32| {
            let known = self.topology.node(NodeId(node));
            known.map_or_else(|| format!("n{node}"), |node| node.name.clone())
        };
        let shards = latest.into_iter().flat_map(|node| &node.shards);
        let lost = shards.filter_map(|shard| Some((shard.shard, shard.loss.as_ref()?)));
        lost.map(|(shard, loss)| loss_sentence::sentence(shard, loss, name)).collect()
    }

    /// The voters of a shard, by the node that knows the latest configuration.
    pub fn voters(&self, shard: u32) -> Vec<u32> {
        let latest = self.nodes.iter().flatten().max_by_key(|node| node.revision);
        let shards = latest.into_iter().flat_map(|node| &node.shards);
        shards.filter(|it| it.shard == shard).flat_map(|it| it.voters.clone()).collect()
    }

    /// The nodes that held a replica of a shard, and take none again before they have begun anew, by the node that knows the
    /// latest configuration.
    pub fn left(&self, shard: u32) -> Vec<u32> {
        let latest = self.nodes.iter().flatten().max_by_key(|node| node.revision);
        let shards = latest.into_iter().flat_map(|node| &node.shards);
        shards.filter(|it| it.shard == shard).flat_map(|it| it.left.clone()).collect()
    }

    /// The node whose manager leads, by the manager that knows most.
    pub fn managers_leader(&self) -> Option<u32> {
        let managers = self.nodes.iter().flatten().filter_map(|status| status.manager.as_ref());
        managers.filter(|it| it.votes).max_by_key(|it| it.entries)?.leader
    }

    /// Replicas that are empty and do not count, by the node that knows the latest configuration: a sentence for each.
    pub fn empty(&self) -> Vec<String> {
        let latest = self.nodes.iter().flatten().max_by_key(|node| node.revision);
        let name = |node: &u32| {
            let known = self.topology.node(NodeId(*node));
            known.map_or_else(|| format!("n{node}"), |node| node.name.clone())
        };
        let sentence = |shard: &ShardStatus, node: &u32| {
            format!(
                "the copy of S{} on {} is empty, and does not count yet",
                shard.shard,
                name(node)
            )
        };
        let shards = latest.into_iter().flat_map(|node| &node.shards);
        shards.flat_map(|shard| shard.empty.iter().map(|node| sentence(shard, node))).collect()
    }

    /// Nodes that use other versions of messages than the newest ones that any node uses: a sentence for each. While a
    /// cluster is upgraded, there are some.
    pub fn versions(&self) -> Vec<String> {
        let nodes = || self.nodes.iter().flatten();
        let behind = |what: &str, of: fn(&NodeStatus) -> VersionsStatus| {
            let newest = nodes().map(|node| of(node).newest).max().unwrap_or_default();
            let behind = nodes().filter(|node| of(node).newest < newest);
            let sentence = |node: &NodeStatus| {
                let VersionsStatus { oldest, newest: last } = of(node);
                format!(
                    "{} speaks versions {oldest} to {last} of the messages of {what}, others up to {newest}: upgrade it",
                    node.name
                )
            };
            behind.map(sentence).collect::<Vec<_>>()
        };
        let peers = behind("nodes", |node| node.peer_messages);
        peers.into_iter().chain(behind("clients", |node| node.client_messages)).collect()
    }

    /// What is missing of a cluster in which any node may fail next, in a sentence: it is well, and all nodes
    /// hold leases under one configuration, in which every replica votes.
    pub fn missing_of_whole(&self) -> Option<String> {
        let latest = self.nodes.iter().flatten().map(|node| node.revision).max();
        let of_node = |node: &NodeStatus| {
            let name = &node.name;
            if node.lease_ms == Some(0) {
                Some(format!("{name} has no lease"))
            } else if Some(node.revision) != latest {
                Some(format!("{name} does not know of the latest configuration"))
            } else if node.empty > 0 {
                Some(format!("{} replicas do not vote yet", node.empty))
            } else {
                None
            }
        };
        self.missing().or_else(|| self.nodes.iter().flatten().find_map(of_node))
    }

    /// The name of a node's datacenter.
    pub fn place(&self, node: &Node) -> String {
        self.topology.datacenters()[node.datacenter.0 as usize].name.clone()
    }

    /// Which cluster it is, tables of the nodes and of the shards.
    pub fn text(&self) -> String {
        let identities = self.nodes.iter().flatten().filter_map(|node| node.cluster.as_deref());
        let identities: BTreeSet<&str> = identities.collect();
        let head: String =
            identities.iter().map(|cluster| format!("cluster {cluster}\n")).collect();
        let tables = [
            Some(self.nodes_text()),
            self.disks_text(),
            self.engine_text(),
            Some(self.shards_text()),
        ];
        let tables: Vec<String> = tables.into_iter().flatten().collect();
        format!("{head}{}", tables.join("\n\n"))
    }

    /// The log and the checkpoints of each node's first worker, where the cluster has them.
    fn disks_text(&self) -> Option<String> {
        let heads =
            ["node", "log", "size", "flush p50", "p99", "longest", "checkpoint", "size", "free"];
        let disks =
            self.nodes.iter().flatten().filter_map(|node| Some((node, node.disk.as_ref()?)));
        let none = || "–".to_owned();
        let rows = disks.map(|(node, disk)| {
            let quantile = |part| quantile_s(&disk.flushes.counts, part);
            let flush = |part| quantile(part).map_or_else(none, words::seconds);
            let age = disk.checkpoint_age_ms.map(|ms| Duration::from_millis(ms).as_secs_f64());
            let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
            let is_full = if disk.is_full { "full, " } else { "" };
            vec![
                node.name.clone(),
                node.durability.clone(),
                mib(disk.log_bytes),
                flush(0.5),
                flush(0.99),
                words::seconds(disk.flush_max_ns as f64 / 1e9),
                age.map_or_else(none, |s| format!("{} ago", words::seconds(s))),
                age.map_or_else(none, |_| mib(disk.checkpoint_bytes)),
                disk.free_bytes.map_or_else(none, |bytes| format!("{is_full}{}", mib(bytes))),
            ]
        });
        let rows: Vec<Vec<String>> = rows.collect();
        (!rows.is_empty()).then(|| tables(&heads, rows.into_iter()))
    }

    /// What the engine reports for each node, if it does.
    fn engine_text(&self) -> Option<String> {
        let columns = &self.nodes.iter().flatten().next()?.node_columns;
        let heads = columns.iter().map(|column| &column.heading[..]);
        let heads: Vec<&str> = std::iter::once("node").chain(heads).collect();
        let row = |status: &NodeStatus| {
            let counts = columns.iter().map(|column| words::count(status.counter(&column.counter)));
            std::iter::once(status.name.clone()).chain(counts).collect::<Vec<String>>()
        };
        let rows = self.nodes.iter().flatten().map(row);
        (!columns.is_empty()).then(|| tables(&heads, rows))
    }

    /// The status of a node, if it answers.
    fn status(&self, node: u32) -> Option<&NodeStatus> {
        self.nodes.iter().flatten().find(|status| status.node == node)
    }

    fn shards_text(&self) -> String {
        let leaders = self.leaders();
        let rows = (0..self.topology.shards()).map(|shard| {
            let leader = leaders.get(&shard).and_then(|leader| self.status(*leader));
            self.shard_row(shard, leader)
        });
        let columns = self.shard_columns().iter().map(|column| &column.heading[..]);
        let heads = ["shard", "leader", "followers, entries behind", "memory"];
        tables(&heads.into_iter().chain(columns).collect::<Vec<&str>>(), rows)
    }

    /// What the engine reports of each shard, from any of its nodes.
    fn shard_columns(&self) -> &[ShardColumnStatus] {
        self.nodes.iter().flatten().next().map_or(&[], |status| &status.shard_columns)
    }

    /// A shard, from the status of its leader, and what its followers have applied.
    fn shard_row(&self, shard: u32, leader: Option<&NodeStatus>) -> Vec<String> {
        let none = || "–".to_owned();
        let name = |node: u32| {
            let node = self.topology.node(NodeId(node));
            node.map_or_else(none, |node| node.name.clone())
        };
        let Some(status) = leader else {
            let leader = "none".to_owned();
            let columns = self.shard_columns().iter().map(|_| none());
            return [format!("S{shard}"), leader, none(), none()]
                .into_iter()
                .chain(columns)
                .collect();
        };
        let empty = ShardStatus::default();
        let known = status.shards.iter().find(|it| it.shard == shard).unwrap_or(&empty);
        let streams = status.streams.iter().filter(|stream| stream.shard == shard);
        let followers: Vec<&FollowerStatus> =
            streams.flat_map(|stream| &stream.followers).collect();
        let behind = |other: &&FollowerStatus| format!("{} {}", name(other.node), other.behind);
        let listed = |words: Vec<String>| if words.is_empty() { none() } else { words.join(", ") };
        let own = |number: &str| {
            known.numbers.get(number).map_or_else(none, |value| words::count(*value))
        };
        let theirs = |number: &str| {
            let of = |other: &&FollowerStatus| {
                let shards = &self.status(other.node)?.shards;
                let value = shards.iter().find(|it| it.shard == shard)?.numbers.get(number)?;
                Some(format!("{} {}", name(other.node), words::count(*value)))
            };
            listed(followers.iter().filter_map(of).collect())
        };
        let columns = self.shard_columns().iter().map(|column| match column.of_followers {
            true => theirs(&column.number),
            false => own(&column.number),
        });
        let first = [
            format!("S{shard}"),
            status.name.clone(),
            listed(followers.iter().map(behind).collect()),
            known.memory_bytes.map_or_else(none, |bytes| format!("{} MiB", bytes >> 20)),
        ];
        first.into_iter().chain(columns).collect()
    }

    fn nodes_text(&self) -> String {
        let leaders = self.leaders();
        let farthest = |shard: u32| {
            let streams = self.nodes.iter().flatten().flat_map(|node| &node.streams);
            streams.filter(|stream| stream.shard == shard).map(|stream| stream.decided).max()
        };
        let known = self.topology.members().zip(&self.nodes).zip(&self.skews);
        let rows = known.map(|((node, status), skew)| -> Vec<String> {
            let place = self.place(node);
            let Ok(status) = status else {
                let none = || "–".to_owned();
                return vec![
                    node.name.clone(),
                    place,
                    "does not answer".to_owned(),
                    none(),
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
            vec![
                node.name.clone(),
                place,
                if leads.is_empty() { "follows".to_owned() } else { format!("leads {leads}") },
                format!("e{}", status.epoch),
                status.lease_ms.map_or_else(|| "for ever".to_owned(), |ms| format!("{ms} ms")),
                skew.map_or_else(|| "–".to_owned(), ClockSkew::words),
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
            "clock ahead",
            "entries behind",
            "open",
            "committed",
            "memory",
        ];
        tables(&heads, rows)
    }
}

/// The counters of a cluster, for a bench of it.
pub struct ClusterCounters {
    /// The addresses of nodes, one of which is asked for all others.
    pub addresses: Vec<String>,
    /// The secret and the authorities, if the cluster has them.
    pub access: Access,
}

/// The sums are empty if a worker does not answer.
impl MeasuredCluster for ClusterCounters {
    fn counted(&self, runtime: &Runtime) -> Counted {
        runtime.block_on(counted(&self.addresses, &self.access))
    }
}

/// The sums of the counters of all workers of a cluster; empty if one does not answer.
async fn counted(addresses: &[String], access: &Access) -> Counted {
    let Ok(topology) = ask::topology(addresses, access).await else { return Counted::default() };
    let mut told = Vec::new();
    for address in topology.members().filter_map(|node| node.address.as_deref()) {
        for worker in 0..topology.workers() {
            let Ok(status) = ask::status(address, access, worker).await else {
                return Counted::default();
            };
            told.push(status);
        }
    }
    sum(told)
}

/// The sums of these workers' counters, with their flushes and the time that these took.
pub fn sum(workers: impl IntoIterator<Item = NodeStatus>) -> Counted {
    let mut counted = Counted::default();
    for worker in workers {
        for (name, count) in worker.counters {
            let sum = counted.counts.entry(name).or_default();
            *sum = sum.wrapping_add(count);
        }
        if let Some(disk) = worker.disk {
            let mut add = |name: &str, count: u64| {
                let sum = counted.counts.entry(name.to_owned()).or_default();
                *sum = sum.wrapping_add(count);
            };
            add(FLUSHES, disk.flushes.counts.iter().sum());
            add(FLUSH_NS, disk.flushes.sum_ns);
        }
        let stages = worker.stages.into_iter();
        counted.stages =
            stages.map(|StageStatus { counter, label }| CountedStage { counter, label }).collect();
    }
    counted
}

/// The shards that a node leads, in words: `S0 S2`.
pub fn led_by(leaders: &BTreeMap<u32, u32>, node: NodeId) -> String {
    let led = leaders.iter().filter(|(_, leader)| **leader == node.0);
    let led: Vec<String> = led.map(|(shard, _)| format!("S{shard}")).collect();
    led.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::COLUMNS_MAX;
    use shoal_engine::latency::BUCKETS;
    use shoal_server::{DiskStatus, LatencyStatus, NodeColumnStatus, StreamStatus};

    fn node(number: u32, leading: bool) -> Result<NodeStatus, String> {
        let stream = StreamStatus { leading, ..StreamStatus::default() };
        Ok(NodeStatus {
            node: number,
            name: format!("n{number}"),
            revision: 5,
            lease_ms: Some(300),
            streams: vec![stream],
            ..NodeStatus::default()
        })
    }

    fn whole() -> StatusReport {
        let builder = Topology::builder().workers(1).datacenter("here");
        let builder = (0..3).fold(builder, |builder, node| {
            builder.node_at(format!("n{node}"), "here", format!("127.0.0.1:{}", 7000 + node))
        });
        let builder = builder.shard("n0", ["n0", "n1", "n2"], []);
        let topology = builder.build().expect("a topology");
        let nodes = vec![node(0, true), node(1, false), node(2, false)];
        StatusReport { topology, nodes, skews: vec![None; 3] }
    }

    #[test]
    fn it_fits_a_terminal() {
        let mut report = whole();
        for (number, node) in report.nodes.iter_mut().flatten().enumerate() {
            node.memory_bytes = 12_345 << 20;
            node.pending = 123_456;
            node.counters = vec![("committed".to_owned(), 123_456_789)];
            node.epoch = 12_345;
            let followers = (0..3).filter(|other| *other != number as u32);
            let follower = |node| FollowerStatus { node, behind: 12_345 };
            node.streams[0].followers = followers.map(follower).collect();
        }
        report.skews = vec![Some(ClockSkew { ahead_ns: -123_456_789, within_ns: 1_000_000 }); 3];
        let text = report.text();
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS_MAX, "too wide: {line}\n{text}");
        }
        assert!(text.contains("-123.5 ± 1.0 ms") && text.contains("12345 MiB"), "{text}");
    }

    #[test]
    fn nodes_with_disks_have_a_table_of_them() {
        let mut report = whole();
        assert!(!report.text().contains("checkpoint"));
        for node in report.nodes.iter_mut().flatten() {
            let mut counts = vec![0; BUCKETS];
            counts[5] = 1_000;
            let flushes = LatencyStatus { counts, ..LatencyStatus::default() };
            node.durability = "fsync".to_owned();
            node.disk = Some(DiskStatus {
                flushes,
                flush_max_ns: 12_300_000,
                log_bytes: 123 << 20,
                is_full: true,
                checkpoint_age_ms: Some(90_000),
                checkpoint_bytes: 45_678 << 20,
                free_bytes: Some(1_234_567 << 20),
            });
        }
        let text = report.text();
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS_MAX, "too wide: {line}\n{text}");
        }
        for word in ["fsync", "123 MiB", "12.3 ms", "45678 MiB", "full, 1234567 MiB", " ago"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn an_engine_may_have_a_table_of_nodes() {
        let mut report = whole();
        let column =
            NodeColumnStatus { counter: "moves".to_owned(), heading: "granules moved".to_owned() };
        for node in report.nodes.iter_mut().flatten() {
            assert!(node.node_columns.is_empty());
            node.node_columns = vec![column.clone()];
            node.counters = vec![("moves".to_owned(), 4_321)];
        }
        let text = report.text();
        let line = text.lines().find(|line| line.contains("4,321"));
        assert!(text.contains("granules moved") && line.is_some(), "{text}");
    }

    #[test]
    fn columns_of_shards_are_those_that_the_engine_declares() {
        let mut report = whole();
        assert!(!report.text().contains("not durable yet"));
        let column = |number: &str, heading: &str, of_followers| ShardColumnStatus {
            number: number.to_owned(),
            heading: heading.to_owned(),
            of_followers,
        };
        for (number, node) in report.nodes.iter_mut().flatten().enumerate() {
            node.shard_columns = vec![
                column("undurable", "not durable yet", false),
                column("unapplied", "clocks to apply", true),
            ];
            let numbers = [("undurable", 70), ("unapplied", 80 + number as u64)];
            let numbers = numbers.map(|(name, value)| (name.to_owned(), value)).into();
            node.shards = vec![ShardStatus { numbers, ..ShardStatus::default() }];
        }
        let leader = report.nodes[0].as_mut().expect("it answers");
        let follower = |node| FollowerStatus { node, behind: 5 };
        leader.leaders = vec![0];
        leader.shards[0].appointed = true;
        leader.lease_ms = Some(300);
        leader.streams[0].followers = vec![follower(1), follower(2)];
        let text = report.text();
        assert!(text.contains("not durable yet") && text.contains("n1 81, n2 82"), "{text}");
        assert_eq!(text.matches("70").count(), 1, "of the leader alone:\n{text}");
    }

    #[test]
    fn clocks_are_compared_with_the_middle_of_the_question() {
        let skew = ClockSkew::between(Time(1_000_000), Time(1_200_000), Time(3_000_000));
        assert_eq!(skew, ClockSkew { ahead_ns: -800_000, within_ns: 1_000_000 });
        assert_eq!(skew.words(), "-0.8 ± 1.0 ms");
        let ahead = ClockSkew::between(Time(1_000_000), Time(3_500_000), Time(1_000_000));
        assert_eq!((ahead.ahead_ns, ahead.words()), (2_500_000, "+2.5 ± 0.0 ms".to_owned()));
    }

    #[test]
    fn nodes_that_lag_behind_in_an_upgrade_are_named() {
        let mut report = whole();
        assert_eq!(report.versions(), Vec::<String>::new());
        let nodes = report.nodes.iter_mut().flatten();
        nodes.for_each(|node| node.peer_messages = VersionsStatus { oldest: 1, newest: 2 });
        let behind = report.nodes[1].as_mut().expect("it answers");
        behind.peer_messages.newest = 1;
        let name = behind.name.clone();
        let notes = report.versions();
        let expected = format!("{name} speaks versions 1 to 1 of the messages of nodes");
        assert!(notes.len() == 1 && notes[0].starts_with(&expected), "{notes:?}");
    }

    fn damaged(damage: impl FnOnce(&mut StatusReport)) -> (bool, Option<String>) {
        let mut report = whole();
        damage(&mut report);
        (report.is_well(), report.missing_of_whole())
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(damaged(|_| {}), (true, None));
        let gone = Err("n1 does not answer".to_owned());
        let (well, missing) = damaged(|report| report.nodes[1] = gone);
        assert_eq!((well, missing.as_deref()), (false, Some("n1 does not answer")));
        let (well, missing) = damaged(|report| report.nodes[0] = node(0, false));
        assert_eq!((well, missing.as_deref()), (false, Some("no node leads S0")));
        type Damage = fn(&mut NodeStatus);
        let damages: [(Damage, &str); 3] = [
            (|node| node.lease_ms = Some(0), "n2 has no lease"),
            (|node| node.revision = 4, "n2 does not know of the latest configuration"),
            (|node| node.empty = 1, "1 replicas do not vote yet"),
        ];
        for (damage, words) in damages {
            let (well, missing) =
                damaged(|report| damage(report.nodes[2].as_mut().expect("it answers")));
            assert_eq!((well, missing.as_deref()), (true, Some(words)));
        }
    }
}
