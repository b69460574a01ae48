//! Rates and states of a cluster, from two samples.

use super::sample::TopSample;
use crate::literal::{Form, show};
use serde::Serialize;
use shoal_engine::latency::{BUCKETS, quantile_s};
use shoal_server::{HotKeyStatus, HotKeysStatus, NodeStatus, StreamStatus};
use shoal_types::NodeId;
use std::collections::BTreeMap;

/// What is known of a cluster between two samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The time between the samples.
    pub seconds: f64,
    /// Transactions that committed, a second.
    pub committed_per_s: f64,
    /// How long half of them took at most, in seconds; none where none has committed.
    pub latency_p50_s: Option<f64>,
    /// How long 99 of a hundred took at most.
    pub latency_p99_s: Option<f64>,
    /// Transactions that ended, a second, by outcome.
    pub outcomes_per_s: BTreeMap<String, f64>,
    /// Attempts that met a conflict, a second, by reason.
    pub conflicts_per_s: BTreeMap<String, f64>,
    /// The epoch that is open.
    pub epoch: u32,
    /// The last epoch whose end is final.
    pub settled: u32,
    /// By their order in the topology, also those that do not answer.
    pub nodes: Vec<NodeFigures>,
    /// By their numbers, also those without a leader.
    pub shards: Vec<ShardFigures>,
    /// The keys that were used most in the last minute, by what is done to them.
    pub hot_keys: BTreeMap<String, Vec<HotKeyFigures>>,
}

/// What a node does, by what its workers report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeFigures {
    /// The name in the topology.
    pub name: String,
    /// The name of its datacenter.
    pub datacenter: String,
    /// Whether all of its workers answer.
    pub answers: bool,
    /// The shards that it leads.
    pub leads: Vec<u32>,
    /// The epoch that it follows.
    pub epoch: u32,
    /// The time left of its lease; none where leaders never change.
    pub lease_ms: Option<u64>,
    /// Transactions that it coordinated and that committed, a second.
    pub committed_per_s: f64,
    /// Transactions in progress.
    pub open: u64,
    /// Bytes that its copies of shards take.
    pub memory_bytes: u64,
}

/// The leader of a shard, and how far behind its parts are.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ShardFigures {
    /// Its number.
    pub shard: u32,
    /// The name of the node that leads it.
    pub leader: Option<String>,
    /// Entries that the follower that is farthest behind has not acknowledged.
    pub behind: u64,
    /// Bytes of the leader's copy.
    pub memory_bytes: u64,
    /// What the engine reports of it, by its heading: with mako, the watermark and what is not durable yet.
    pub numbers: BTreeMap<String, u64>,
}

/// A key that is used much.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HotKeyFigures {
    /// The name of its table.
    pub table: String,
    /// The key as a literal, or its beginning.
    pub key: String,
    /// About how often it was used.
    pub uses: u64,
}

impl Figures {
    /// What happened from one sample to the next.
    pub fn between(before: &TopSample, now: &TopSample) -> Figures {
        let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
        let change = Change { before, now, seconds };
        let committed = change.histogram("committed");
        let latest = now.workers.values().max_by_key(|status| status.revision);
        Figures {
            seconds,
            committed_per_s: change.rate(|_| true, "committed"),
            latency_p50_s: quantile_s(&committed, 0.5),
            latency_p99_s: quantile_s(&committed, 0.99),
            outcomes_per_s: change.outcomes(),
            conflicts_per_s: change.conflicts(),
            epoch: latest.map_or(0, |status| status.epoch),
            settled: latest.map_or(0, |status| status.settled),
            nodes: now.topology.nodes().iter().map(|node| change.node(node.id)).collect(),
            shards: now.topology.shard_ids().map(|shard| change.shard(shard.0)).collect(),
            hot_keys: hot_keys(now),
        }
    }

    /// Transactions in progress on all nodes.
    pub fn open(&self) -> u64 {
        self.nodes.iter().map(|node| node.open).sum()
    }
}

/// Two samples.
struct Change<'s> {
    before: &'s TopSample,
    now: &'s TopSample,
    seconds: f64,
}

/// By how much a number that only grows has grown. A worker that was started anew began at 0.
fn growth(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

impl Change<'_> {
    /// Each worker that is in both samples.
    fn workers(&self) -> impl Iterator<Item = (NodeId, &NodeStatus, &NodeStatus)> {
        self.now
            .workers
            .iter()
            .filter_map(|(place, now)| Some((place.0, self.before.workers.get(place)?, now)))
    }

    /// How fast a counter grows on some nodes, a second.
    fn rate(&self, of: impl Fn(NodeId) -> bool, name: &str) -> f64 {
        let workers = self.workers().filter(|(node, ..)| of(*node));
        let growths =
            workers.map(|(_, before, now)| growth(before.counter(name), now.counter(name)));
        growths.sum::<u64>() as f64 / self.seconds
    }

    /// How long transactions took that ended like this.
    fn histogram(&self, outcome: &str) -> [u64; BUCKETS] {
        let mut sum = [0; BUCKETS];
        for (_, before, now) in self.workers() {
            for now in now.outcome_latencies.iter().filter(|it| it.name == outcome) {
                let before = before.outcome_latencies.iter().find(|it| it.name == outcome);
                for (at, (sum, count)) in sum.iter_mut().zip(&now.counts).enumerate() {
                    let before = before.and_then(|it| it.counts.get(at)).copied().unwrap_or(0);
                    *sum += growth(before, *count);
                }
            }
        }
        sum
    }

    fn outcomes(&self) -> BTreeMap<String, f64> {
        let latencies = self.now.workers.values().flat_map(|status| &status.outcome_latencies);
        let names: Vec<&String> = latencies.map(|latency| &latency.name).collect();
        let rate = |name: &str| self.histogram(name).iter().sum::<u64>() as f64 / self.seconds;
        names.into_iter().map(|name| (name.clone(), rate(name))).collect()
    }

    fn conflicts(&self) -> BTreeMap<String, f64> {
        let mut rates = BTreeMap::new();
        for (_, before, now) in self.workers() {
            let before: BTreeMap<String, u64> = before.conflicts().collect();
            for (reason, count) in now.conflicts() {
                let grown = growth(before.get(&reason).copied().unwrap_or_default(), count);
                *rates.entry(reason).or_default() += grown as f64 / self.seconds;
            }
        }
        rates
    }

    fn node(&self, id: NodeId) -> NodeFigures {
        let topology = &self.now.topology;
        let node = topology.node(id).expect("it is of this topology");
        let of_node: Vec<&NodeStatus> =
            self.now.workers.range((id, 0)..=(id, u32::MAX)).map(|(_, status)| status).collect();
        let first = of_node.first();
        NodeFigures {
            name: node.name.clone(),
            datacenter: topology.datacenters()[node.datacenter.0 as usize].name.clone(),
            answers: of_node.len() == topology.workers() as usize,
            leads: first.map(|status| led(status)).unwrap_or_default(),
            epoch: first.map_or(0, |status| status.epoch),
            lease_ms: first.and_then(|status| status.lease_ms),
            committed_per_s: self.rate(|it| it == id, "committed"),
            open: of_node.iter().map(|status| status.pending as u64).sum(),
            memory_bytes: first.map_or(0, |status| status.memory_bytes as u64),
        }
    }

    fn shard(&self, shard: u32) -> ShardFigures {
        let statuses = self.now.workers.iter().filter(|((_, worker), _)| *worker == 0);
        let leader = statuses.map(|(_, status)| status).find(|status| led(status).contains(&shard));
        let Some(status) = leader else { return ShardFigures { shard, ..ShardFigures::default() } };
        let streams = status.streams.iter().filter(|stream| stream.shard == shard);
        let known = status.shards.iter().find(|it| it.shard == shard);
        let number = |name: &str| known.and_then(|known| known.numbers.get(name)).copied();
        let columns = status.shard_columns.iter().filter(|column| !column.of_followers);
        ShardFigures {
            shard,
            leader: Some(status.name.clone()),
            behind: streams.map(StreamStatus::behind).max().unwrap_or(0),
            memory_bytes: known.and_then(|it| it.memory_bytes).unwrap_or(0) as u64,
            numbers: columns
                .filter_map(|column| Some((column.heading.clone(), number(&column.number)?)))
                .collect(),
        }
    }
}

/// The shards that a node leads, under a lease.
fn led(status: &NodeStatus) -> Vec<u32> {
    let has_lease = status.lease_ms != Some(0);
    let leading = status.streams.iter().filter(|stream| stream.leading && has_lease);
    leading.map(|stream| stream.shard).collect()
}

/// The most used keys of all workers.
fn hot_keys(sample: &TopSample) -> BTreeMap<String, Vec<HotKeyFigures>> {
    let figures = |key: HotKeyStatus| HotKeyFigures {
        table: key.table_name(&sample.topology),
        key: show(&key.key, Form::Auto) + if key.is_cut { "…" } else { "" },
        uses: key.uses,
    };
    let kinds = HotKeysStatus::of(sample.workers.values()).into_iter();
    kinds.map(|kind| (kind.what, kind.keys.into_iter().map(figures).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::topology::Topology;
    use shoal_engine::latency::LatencyHistogram;
    use shoal_server::{FollowerStatus, LatencyStatus, ShardColumnStatus, ShardStatus};
    use shoal_types::Time;
    use std::time::Duration;

    fn sample(at: Time, committed: u64) -> TopSample {
        let topology = Topology::builder().workers(1).datacenter("here");
        let topology = topology.node_at("n0", "here", "a:1").node_at("n1", "here", "a:2");
        let topology = topology.shard("n0", ["n0"], ["n1"]).build().expect("a topology");
        let mut counts = vec![0; BUCKETS];
        (counts[3], counts[7]) = (committed * 9 / 10, committed / 10);
        let latency = LatencyStatus { name: "committed".to_owned(), counts, sum_ns: 0 };
        let keys = [(b"alice".to_vec(), 70), (b"bob".to_vec(), 90)];
        let key = |(key, uses)| HotKeyStatus { table: 5, key, is_cut: false, uses };
        let hot = HotKeysStatus { what: "read".to_owned(), keys: keys.map(key).to_vec() };
        let followers = vec![FollowerStatus { node: 1, behind: 4 }];
        let status = NodeStatus {
            name: "n0".to_owned(),
            epoch: 3,
            settled: 2,
            lease_ms: Some(300),
            pending: 6,
            counters: vec![
                ("committed".to_owned(), committed),
                ("conflicts_read_changed".to_owned(), committed / 100),
            ],
            outcome_latencies: vec![latency],
            streams: vec![StreamStatus { leading: true, followers, ..StreamStatus::default() }],
            shards: vec![ShardStatus {
                numbers: [("undurable".to_owned(), 8)].into(),
                memory_bytes: Some(1 << 20),
                ..ShardStatus::default()
            }],
            shard_columns: vec![ShardColumnStatus {
                number: "undurable".to_owned(),
                heading: "not durable yet".to_owned(),
                of_followers: false,
            }],
            hot_keys: vec![hot],
            ..NodeStatus::default()
        };
        TopSample { at, topology, workers: [((NodeId(0), 0), status)].into() }
    }

    #[test]
    fn rates_are_those_between_two_samples() {
        let now = Time(1_000_000_000);
        let (before, after) = (sample(now, 10_000), sample(now + Duration::from_secs(2), 30_000));
        let figures = Figures::between(&before, &after);
        assert_eq!((figures.seconds, figures.committed_per_s), (2.0, 10_000.0));
        assert_eq!(figures.conflicts_per_s, [("read changed".to_owned(), 100.0)].into());
        assert_eq!(figures.outcomes_per_s, [("committed".to_owned(), 10_000.0)].into());
        let bounds: Vec<f64> =
            LatencyHistogram::bounds_ns().map(|bound| bound as f64 / 1e9).collect();
        let within = |quantile: Option<f64>, bucket: usize| {
            quantile.is_some_and(|it| bounds[bucket - 1] < it && it <= bounds[bucket])
        };
        assert!(within(figures.latency_p50_s, 3) && within(figures.latency_p99_s, 7));
        assert_eq!((figures.epoch, figures.settled, figures.open()), (3, 2, 6));
        let [first, second] = &figures.nodes[..] else { panic!("{figures:?}") };
        assert_eq!((first.answers, &first.leads[..], second.answers), (true, &[0][..], false));
        let shard = &figures.shards[0];
        assert_eq!((shard.leader.as_deref(), shard.behind), (Some("n0"), 4));
        assert_eq!(shard.numbers, [("not durable yet".to_owned(), 8)].into());
        let hot: Vec<_> =
            figures.hot_keys["read"].iter().map(|it| (&it.key[..], it.uses)).collect();
        assert_eq!(hot, [("\"bob\"", 90), ("\"alice\"", 70)]);
    }

    #[test]
    fn a_worker_that_was_started_anew_counts_from_nothing() {
        let now = Time(1_000_000_000);
        let (before, after) = (sample(now, 10_000), sample(now + Duration::from_secs(1), 3000));
        assert_eq!(Figures::between(&before, &after).committed_per_s, 3000.0);
        let idle = Figures::between(&before, &sample(now + Duration::from_secs(1), 10_000));
        assert_eq!((idle.committed_per_s, idle.latency_p50_s), (0.0, None));
    }
}
