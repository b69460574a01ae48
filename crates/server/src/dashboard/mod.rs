//! The page that a node shows to operators: its cluster, and the last ten minutes of its own work.
//!
//! The page is read only and complete in itself: its text, style and script are part of the program, and its policy lets it
//! load nothing from elsewhere. The script asks for [`DashboardView`] again and again and draws it.

mod history;
mod hot_keys;

pub(crate) use history::{History, SAMPLE_EVERY};

use crate::process::ProcessUsage;
use crate::status::{NodeStatus, ShardColumnStatus, ShardStatus};
use history::{EpochChange, Sample};
use hot_keys::{HotKeyView, hot_keys};
use serde::Serialize;
use shoal_cluster::topology::Topology;
use shoal_engine::latency::Outcome;

/// The text of the page, which loads the other two.
pub(crate) const PAGE: &str = include_str!("dashboard.html");

/// The look of the page.
pub(crate) const STYLE: &str = include_str!("dashboard.css");

/// What draws it.
pub(crate) const SCRIPT: &str = include_str!("dashboard.js");

/// Browsers load nothing for the page from anywhere else, and run nothing that is not in its files.
pub(crate) const POLICY: &str = "default-src 'self'";

/// What the page shows, as JSON.
#[derive(Debug, Serialize)]
struct DashboardView<'a> {
    version: &'static str,
    /// Worker threads that answer, of how many.
    answering: usize,
    workers: usize,
    /// What the first worker that answers knows of node and cluster.
    node: Option<NodeView<'a>>,
    nodes: Vec<PlaceView<'a>>,
    open_transactions: usize,
    resident_bytes: Option<u64>,
    cpu_seconds: f64,
    /// The names of the outcomes in each sample, in order.
    outcomes: [&'static str; Outcome::ALL.len()],
    samples: Vec<&'a Sample>,
    epochs: Vec<&'a EpochChange>,
    hot_keys: Vec<HotKeyView>,
}

/// The node that shows the page.
#[derive(Debug, Serialize)]
struct NodeView<'a> {
    node: u32,
    name: &'a str,
    cluster: Option<&'a str>,
    time_ns: u64,
    admitted: bool,
    epoch: u32,
    settled: u32,
    lease_ms: Option<u64>,
    memory_bytes: usize,
    leaders: &'a [u32],
    shards: &'a [ShardStatus],
    shard_columns: &'a [ShardColumnStatus],
    /// Of the shards that it leads: what the farthest follower of any stream lacks.
    behind: Vec<BehindView>,
}

/// How far the followers of a shard are behind its leader.
#[derive(Debug, Serialize)]
struct BehindView {
    shard: u32,
    entries: u64,
}

/// A node of the cluster.
#[derive(Debug, Serialize)]
struct PlaceView<'a> {
    node: u32,
    name: &'a str,
    datacenter: &'a str,
    address: Option<&'a str>,
}

/// What the page shows of these statuses of the node's workers and of its past.
pub(crate) fn json(
    statuses: &[Option<NodeStatus>],
    history: &History,
    topology: &Topology,
) -> String {
    let known: Vec<&NodeStatus> = statuses.iter().flatten().collect();
    let usage = ProcessUsage::now();
    let datacenters = topology.datacenters();
    let nodes = topology.nodes().iter().map(|node| PlaceView {
        node: node.id.0,
        name: &node.name,
        datacenter: datacenters.get(node.datacenter.0 as usize).map_or("", |it| it.name.as_str()),
        address: node.address.as_deref(),
    });
    let view = DashboardView {
        version: env!("CARGO_PKG_VERSION"),
        answering: known.len(),
        workers: statuses.len(),
        node: known.first().map(|status| node(status, &known)),
        nodes: nodes.collect(),
        open_transactions: known.iter().map(|status| status.pending).sum(),
        resident_bytes: usage.resident_bytes,
        cpu_seconds: usage.cpu_seconds,
        outcomes: Outcome::ALL.map(Outcome::name),
        samples: history.samples().collect(),
        epochs: history.epochs().collect(),
        hot_keys: hot_keys(&known, topology),
    };
    serde_json::to_string(&view).expect("numbers and names")
}

fn node<'a>(status: &'a NodeStatus, workers: &[&NodeStatus]) -> NodeView<'a> {
    let led = workers.iter().flat_map(|it| &it.streams).filter(|stream| stream.leading);
    let mut behind: Vec<BehindView> = Vec::new();
    for stream in led {
        let entries = stream.behind();
        match behind.iter_mut().find(|it| it.shard == stream.shard) {
            Some(shard) => shard.entries = shard.entries.max(entries),
            None => behind.push(BehindView { shard: stream.shard, entries }),
        }
    }
    NodeView {
        node: status.node,
        name: &status.name,
        cluster: status.cluster.as_deref(),
        time_ns: status.time_ns,
        admitted: status.admitted,
        epoch: status.epoch,
        settled: status.settled,
        lease_ms: status.lease_ms,
        memory_bytes: status.memory_bytes,
        leaders: &status.leaders,
        shards: &status.shards,
        shard_columns: &status.shard_columns,
        behind,
    }
}
