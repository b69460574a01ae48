//! The status of a node, as one of its workers sees it.

use crate::manager::InputSender;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_cluster::manager::{Configuration, EpochEnd, Loss, LossStage, LostEnd, Outage};
use shoal_cluster::topology::Topology;
use shoal_engine::Engine;
use shoal_engine::declarations::{
    counted, hot_keys, outcome_latencies, shard_metrics, stage_latencies,
};
use shoal_engine::hot_keys::{HotKey, REPORTED_MAX};
use shoal_engine::latency::LatencyHistogram;
use shoal_engine::metrics::{CommitStage, NodeColumn, ShardColumn};
use shoal_net::SharedClusterId;
use shoal_node::Worker;
use shoal_store::Store;
use shoal_types::wire::{CLIENT_MESSAGES, MessageVersion, MessageVersions, PEER_MESSAGES};
use shoal_types::{Epoch, NodeId, ShardId, TableId, Time, WorkerId};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The status of a node's worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node's number.
    pub node: u32,
    /// The name of the node in the topology.
    pub name: String,
    /// The identity of the cluster, drawn when it was founded. `None` until the node has joined it, and without managers.
    #[serde(default)]
    pub cluster: Option<String>,
    /// The time of the status, by the node's clock: nanoseconds since 1970.
    #[serde(default)]
    pub time_ns: u64,
    /// The number of the worker.
    pub worker: u32,
    /// The number of workers.
    pub workers: u32,
    /// Whether the manager has admitted this process of the node.
    pub admitted: bool,
    /// The revision of the configuration that it follows; 0 if it has none yet.
    pub revision: u64,
    /// The epoch that is open, by that configuration.
    pub epoch: u32,
    /// The last epoch whose final vector watermark is known.
    pub settled: u32,
    /// The time left of the lease, in milliseconds. `None` where leaders never change.
    pub lease_ms: Option<u64>,
    /// The leader of each shard.
    pub leaders: Vec<u32>,
    /// The number of replicas, of all shards, that have lost their memory and do not vote yet.
    pub empty: usize,
    /// All shards of the cluster.
    pub shards: Vec<ShardStatus>,
    /// The streams of this worker's number.
    pub streams: Vec<StreamStatus>,
    /// Transactions in progress on this worker.
    pub pending: usize,
    /// Bytes that the node's copies of shards take.
    pub memory_bytes: usize,
    /// The counters of the engine, by name.
    pub counters: Vec<(String, u64)>,
    /// How long transactions took from when they were asked for, for each outcome.
    #[serde(default)]
    pub outcome_latencies: Vec<LatencyStatus>,
    /// How long those that wrote and committed were in each stage.
    #[serde(default)]
    pub stage_latencies: Vec<LatencyStatus>,
    /// Which of the counters are times of a commit's stages, in order.
    #[serde(default)]
    pub stages: Vec<StageStatus>,
    /// Which numbers of a shard a table of shards shows.
    #[serde(default)]
    pub shard_columns: Vec<ShardColumnStatus>,
    /// Which of the counters a table of nodes shows.
    #[serde(default)]
    pub node_columns: Vec<NodeColumnStatus>,
    /// The keys that transactions used most in the last half to whole minute, by sampling: read, written, conflicted.
    #[serde(default)]
    pub hot_keys: Vec<HotKeysStatus>,
    /// Malformed frames of peers and clients, and messages of peers that no replica of a shard sends.
    pub malformed: u64,
    /// Messages of peers that came before this process could take them, of former processes, and of nodes that follow other
    /// managers.
    #[serde(default)]
    pub strays: u64,
    /// Messages with entries that streams here have not taken, since the disk was too far behind.
    #[serde(default)]
    pub refused_appends: u64,
    /// The nodes that have managers, as far as this node knows. None where leaders never change.
    #[serde(default)]
    pub managers: Vec<u32>,
    /// The version of that list; 0 for the one of its file.
    #[serde(default)]
    pub managers_version: u64,
    /// The manager that the node hosts, if any. Only the first worker knows.
    #[serde(default)]
    pub manager: Option<ManagerStatus>,
    /// The versions of messages that it uses with nodes.
    #[serde(default)]
    pub peer_messages: VersionsStatus,
    /// The versions of messages that it uses with clients.
    #[serde(default)]
    pub client_messages: VersionsStatus,
    /// The nodes that this worker reaches.
    #[serde(default)]
    pub peers: Vec<PeerStatus>,
    /// When what is written counts as accepted: `memory`, `async` or `fsync`.
    #[serde(default)]
    pub durability: String,
    /// The worker's disk, where the cluster's durability has one.
    #[serde(default)]
    pub disk: Option<DiskStatus>,
}

/// The log and the checkpoints of a worker on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// How long flushes of the log took, since the process began.
    pub flushes: LatencyStatus,
    /// The longest of them, in nanoseconds.
    pub flush_max_ns: u64,
    /// Bytes of the log's files that are in use.
    pub log_bytes: u64,
    /// There is no room for a further segment: what comes is not acknowledged.
    pub is_full: bool,
    /// How long ago the last checkpoint was written, in milliseconds. `None` before the first one.
    pub checkpoint_age_ms: Option<u64>,
    /// Its length in bytes.
    pub checkpoint_bytes: u64,
    /// Bytes that are free on the disk. `None` where the system does not say.
    pub free_bytes: Option<u64>,
}

impl NodeStatus {
    /// The counter of the engine with this name; 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(counter, _)| counter == name).map_or(0, |(_, count)| *count)
    }

    /// The reasons for conflicts, in words, and how often there was a conflict for each.
    pub fn conflicts(&self) -> impl Iterator<Item = (String, u64)> {
        self.counters.iter().filter_map(|(name, count)| {
            Some((name.strip_prefix("conflicts_")?.replace('_', " "), *count))
        })
    }
}

/// Keys that are used most in one way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKeysStatus {
    /// `read`, `written` or `conflicted`.
    pub what: String,
    /// The most used first.
    pub keys: Vec<HotKeyStatus>,
}

/// A key that is used much.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKeyStatus {
    /// The id of its table.
    pub table: u32,
    /// The key, or the beginning of a long one.
    pub key: Vec<u8>,
    /// Whether it is only the beginning.
    pub is_cut: bool,
    /// About how often it was used, and hardly less.
    pub uses: u64,
}

impl HotKeyStatus {
    /// The name of its table, or the id where the topology does not have it.
    pub fn table_name(&self, topology: &Topology) -> String {
        let table = TableId(self.table);
        let known = topology.tables().get(table);
        known.map_or_else(|| table.to_string(), |known| known.name().to_owned())
    }
}

impl HotKeysStatus {
    /// The most used keys of all these workers together.
    pub fn of<'s>(workers: impl IntoIterator<Item = &'s NodeStatus>) -> Vec<HotKeysStatus> {
        /// A table, a key, and whether that is only the beginning of one.
        type UsedKey<'k> = (u32, &'k [u8], bool);
        let mut sums: BTreeMap<&str, BTreeMap<UsedKey<'_>, u64>> = BTreeMap::new();
        for of_kind in workers.into_iter().flat_map(|status| &status.hot_keys) {
            let uses = sums.entry(&of_kind.what).or_default();
            for key in &of_kind.keys {
                *uses.entry((key.table, &key.key, key.is_cut)).or_default() += key.uses;
            }
        }
        let status = |((table, key, is_cut), uses): (UsedKey<'_>, u64)| HotKeyStatus {
            table,
            key: key.to_vec(),
            is_cut,
            uses,
        };
        let kinds = sums.into_iter().map(|(what, uses)| {
            let mut uses: Vec<_> = uses.into_iter().collect();
            uses.sort_by_key(|(_, uses)| Reverse(*uses));
            let keys = uses.into_iter().take(REPORTED_MAX).map(status).collect();
            HotKeysStatus { what: what.to_owned(), keys }
        });
        kinds.collect()
    }
}

impl From<(&'static str, Vec<HotKey>)> for HotKeysStatus {
    fn from((what, keys): (&'static str, Vec<HotKey>)) -> HotKeysStatus {
        let key = |HotKey { table, key, uses }: HotKey| HotKeyStatus {
            table: table.0,
            key: key.as_bytes().to_vec(),
            is_cut: key.is_cut(),
            uses,
        };
        HotKeysStatus { what: what.to_owned(), keys: keys.into_iter().map(key).collect() }
    }
}

/// A histogram of times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// The outcome, or the stage.
    pub name: String,
    /// How many times are in each bucket, and not in those before it: [`LatencyHistogram::bounds_ns`].
    pub counts: Vec<u64>,
    /// All of them added up, in nanoseconds.
    pub sum_ns: u64,
}

impl From<(&'static str, LatencyHistogram)> for LatencyStatus {
    fn from((name, histogram): (&'static str, LatencyHistogram)) -> LatencyStatus {
        let LatencyHistogram { counts, sum_ns } = histogram;
        LatencyStatus { name: name.to_owned(), counts: counts.to_vec(), sum_ns }
    }
}

/// A stage of a commit, whose time the engine counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStatus {
    /// The name of the counter.
    pub counter: String,
    /// What reports call the stage.
    pub label: String,
}

/// A number that the engine reports of shards, as a column of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardColumnStatus {
    /// The name in [`ShardStatus::numbers`].
    pub number: String,
    /// The heading of the column.
    pub heading: String,
    /// Each follower has one to show; otherwise the leader has.
    pub of_followers: bool,
}

/// A counter that the engine has shown for each node, as a column of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeColumnStatus {
    /// The name in [`NodeStatus::counters`].
    pub counter: String,
    /// The heading of the column.
    pub heading: String,
}

/// Versions of messages that a node supports: all from the oldest to the newest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsStatus {
    /// The oldest version; 0 from a node that does not report it.
    pub oldest: u16,
    /// The newest version.
    pub newest: u16,
}

impl From<MessageVersions> for VersionsStatus {
    fn from(versions: MessageVersions) -> VersionsStatus {
        VersionsStatus { oldest: versions.oldest().0, newest: versions.newest().0 }
    }
}

/// A node that a worker reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The number of the node in the topology.
    pub node: u32,
    /// The version of messages that the two use.
    pub version: u16,
}

/// A manager, as its node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerStatus {
    /// The volume of the log.
    pub volume: u32,
    /// Whether that volume votes, by the latest list that is known here. If not, it is a learner, or its node
    /// has lost the volume that votes.
    pub votes: bool,
    /// The node whose manager leads, as far as is known here.
    pub leader: Option<u32>,
    /// Entries that it has.
    pub entries: u64,
    /// Entries that it knows to be committed.
    pub committed: u64,
}

/// A shard, as a worker knows it. Clocks are those of the shard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStatus {
    /// The number of the shard in the topology.
    pub shard: u32,
    /// Whether the configuration makes this process of the node its leader.
    pub appointed: bool,
    /// The nodes whose voting replicas make up its majorities, by the configuration.
    #[serde(default)]
    pub voters: Vec<u32>,
    /// The nodes whose replicas do not vote, by the configuration.
    #[serde(default)]
    pub learners: Vec<u32>,
    /// The nodes whose replicas are empty: they have lost their memory, and do not vote until they have
    /// caught up.
    #[serde(default)]
    pub empty: Vec<u32>,
    /// The nodes that held a replica, and take none again before they have begun anew, by the configuration.
    #[serde(default)]
    pub left: Vec<u32>,
    /// The voter that was added in the place of another one, which has yet to leave, by the configuration.
    #[serde(default)]
    pub added: Option<AddedVoterStatus>,
    /// Why it cannot be served, in a sentence, by the configuration.
    #[serde(default)]
    pub outage: Option<String>,
    /// The loss of its majority that was accepted last.
    #[serde(default)]
    pub loss: Option<LossStatus>,
    /// What is known here of epochs whose end the shard has not reported.
    #[serde(default)]
    pub lacking: Vec<LackingStatus>,
    /// What the engine reports of it, by name.
    #[serde(default)]
    pub numbers: BTreeMap<String, u64>,
    /// Bytes of this node's copy, if it has one.
    pub memory_bytes: Option<usize>,
}

/// A voter that is taking the place of another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedVoterStatus {
    /// The node whose replica was added.
    pub node: u32,
    /// The node whose replica it replaces.
    pub in_place_of: u32,
}

/// A loss of a shard's majority that was accepted. Clocks are those of the shard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossStatus {
    /// When, in seconds since 1970, on the clock of the operator's machine that accepted it.
    pub at_s: u64,
    /// Whether it is over.
    pub is_over: bool,
    /// The nodes whose replicas were set aside.
    pub aside: Vec<u32>,
    /// The ends of the epochs whose end was lost.
    pub ends: Vec<LostEndStatus>,
}

/// How an epoch ended whose end was lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostEndStatus {
    /// The epoch whose end was lost.
    pub epoch: u32,
    /// The clock up to which live nodes knew it to be durable.
    pub known: u64,
    /// The clock up to which the survivors hold the epoch, once that is known.
    pub held: Option<u64>,
    /// The clock at which the epoch ended. What the shard wrote between `held` and this is missing.
    pub end: Option<u64>,
}

/// What a worker knows of an epoch whose end a shard has not reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LackingStatus {
    /// The epoch; the open one is the last.
    pub epoch: u32,
    /// The clock up to which the shard is known to be durable in it.
    pub durable: u64,
    /// The clock up to which this worker's stream has it, if the node has a copy.
    pub held: Option<u64>,
}

/// A stream, as one of its replicas sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamStatus {
    /// The number of the shard that is replicated.
    pub shard: u32,
    /// Whether this node leads it.
    pub leading: bool,
    /// Entries that this replica has.
    pub accepted: u64,
    /// Entries that it knows to be decided.
    pub decided: u64,
    /// Entries that it keeps in memory.
    pub held: u64,
    /// The other replicas, where this node leads.
    pub followers: Vec<FollowerStatus>,
}

impl StreamStatus {
    /// Entries that the follower which is farthest behind has not acknowledged; 0 where this node does not lead.
    pub fn behind(&self) -> u64 {
        self.followers.iter().map(|follower| follower.behind).max().unwrap_or_default()
    }
}

/// A replica of a stream, as its leader sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowerStatus {
    /// The number of the node that holds the replica.
    pub node: u32,
    /// Entries of the leader that it has not acknowledged.
    pub behind: u64,
}

/// The inputs of a worker's status.
pub(crate) struct StatusSource<'a, E: Engine> {
    pub(crate) node: NodeId,
    pub(crate) worker_id: WorkerId,
    pub(crate) worker: &'a Worker<E>,
    pub(crate) topology: &'a Topology,
    /// The identity of the cluster, as soon as the node knows it. `None` without managers.
    pub(crate) identity: Option<&'a SharedClusterId>,
    /// The queue of the manager inbox, on the worker that exchanges messages with managers.
    pub(crate) manager_inputs: Option<&'a InputSender>,
    /// The node's copies of shards.
    pub(crate) stores: &'a [(ShardId, Arc<Store>)],
    /// The nodes that this worker reaches, and the version of messages that it uses with each.
    pub(crate) peers: &'a BTreeMap<NodeId, MessageVersion>,
    /// Malformed frames.
    pub(crate) malformed: u64,
    /// What the worker's disk has measured.
    pub(crate) disk: Option<DiskStatus>,
}

/// The status of a worker as JSON.
pub(crate) fn json<E: Engine>(source: &StatusSource<'_, E>, now: Time) -> Bytes {
    serde_json::to_vec(&of(source, now)).expect("numbers and names").into()
}

/// The status of a worker.
pub(crate) fn of<E: Engine>(source: &StatusSource<'_, E>, now: Time) -> NodeStatus {
    let topology = source.topology;
    let worker = source.worker;
    let configuration = worker.configuration();
    let leaders = configuration.iter().flat_map(|it| &it.shards).map(|shard| shard.leader.0);
    let lease_end = worker.lease_end();
    let (managers_version, managers) =
        source.manager_inputs.map(InputSender::managers).unwrap_or_default();
    NodeStatus {
        node: source.node.0,
        name: topology.node(source.node).map(|node| node.name.clone()).unwrap_or_default(),
        cluster: source.identity.and_then(SharedClusterId::get).map(|cluster| cluster.to_string()),
        time_ns: now.0,
        worker: source.worker_id.0,
        workers: topology.workers(),
        admitted: worker.is_admitted(),
        revision: configuration.map_or(0, |it| it.revision.0),
        epoch: configuration.map_or(0, |it| it.epoch.0),
        settled: configuration.map_or(0, |it| it.settled.0),
        lease_ms: (lease_end < Time::MAX).then(|| (lease_end - now).as_millis() as u64),
        leaders: leaders.collect(),
        empty: configuration.iter().flat_map(|it| &it.shards).map(|it| it.empty.len()).sum(),
        shards: shards(source),
        streams: topology.shard_ids().filter_map(|shard| stream(source, shard)).collect(),
        pending: worker.engine().pending(),
        memory_bytes: source.stores.iter().map(|(_, store)| store.memory_bytes()).sum(),
        counters: counted(worker.engine())
            .map(|(metric, count)| (metric.name.to_owned(), count))
            .collect(),
        outcome_latencies: outcome_latencies(worker.engine()).map(LatencyStatus::from).collect(),
        stage_latencies: stage_latencies(worker.engine()).map(LatencyStatus::from).collect(),
        stages: stages::<E>(),
        hot_keys: hot_keys(worker.engine()).map(HotKeysStatus::from).collect(),
        shard_columns: shard_columns::<E>(),
        node_columns: node_columns::<E>(),
        malformed: source.malformed + worker.bad_messages(),
        strays: worker.strays(),
        refused_appends: worker.refused_appends(),
        managers: managers.iter().map(|node| node.0).collect(),
        managers_version,
        manager: source.manager_inputs.and_then(manager),
        peer_messages: PEER_MESSAGES.into(),
        client_messages: CLIENT_MESSAGES.into(),
        peers: source
            .peers
            .iter()
            .map(|(node, version)| PeerStatus { node: node.0, version: version.0 })
            .collect(),
        durability: topology.durability().to_string(),
        disk: source.disk.clone(),
    }
}

fn manager(manager_inputs: &InputSender) -> Option<ManagerStatus> {
    let (me, status, votes) = manager_inputs.hosted()?;
    let leader = status.leader.map(|node| node.0);
    let shoal_raft::RaftStatus { entries, committed, .. } = status;
    Some(ManagerStatus { volume: me.volume.0, votes, leader, entries, committed })
}

fn shards<E: Engine>(source: &StatusSource<'_, E>) -> Vec<ShardStatus> {
    let of = |shard: ShardId| {
        let store = source.stores.iter().find(|(held, _)| *held == shard).map(|(_, store)| store);
        let appointed = source.worker.is_appointed(shard);
        let configuration = source.worker.configuration();
        let assignment = configuration.and_then(|all| all.shard(shard));
        let numbers = |nodes: &mut dyn Iterator<Item = NodeId>| nodes.map(|node| node.0).collect();
        let voters = assignment.map(|it| numbers(&mut it.voters.iter().copied()));
        let learners = assignment.map(|it| numbers(&mut it.learners.iter().copied()));
        let empty = assignment.map(|it| numbers(&mut it.empty.keys().copied()));
        let left = assignment.map(|it| numbers(&mut it.left.iter().copied()));
        let is_held = match assignment {
            Some(assignment) => assignment.holds(source.node),
            None => source.topology.replicas(shard).any(|node| node == source.node),
        };
        ShardStatus {
            shard: shard.0,
            appointed,
            voters: voters.unwrap_or_default(),
            learners: learners.unwrap_or_default(),
            empty: empty.unwrap_or_default(),
            left: left.unwrap_or_default(),
            added: assignment.and_then(|it| it.added).map(|added| AddedVoterStatus {
                node: added.node.0,
                in_place_of: added.in_place_of.0,
            }),
            outage: configuration.and_then(|all| outage(all, shard)),
            loss: assignment.and_then(|it| it.loss.as_ref()).map(loss),
            lacking: lacking(source, shard),
            numbers: shard_metrics(source.worker.engine(), shard)
                .map(|(metric, value)| (metric.name.to_owned(), value))
                .collect(),
            memory_bytes: store.filter(|_| is_held).map(|store| store.memory_bytes()),
        }
    };
    source.topology.shard_ids().map(of).collect()
}

fn loss(loss: &Loss) -> LossStatus {
    let end = |(epoch, lost): (&Epoch, &LostEnd)| LostEndStatus {
        epoch: epoch.0,
        known: number(&lost.known),
        held: lost.held.as_ref().map(number),
        end: lost.end.as_ref().map(number),
    };
    LossStatus {
        at_s: loss.at_s,
        is_over: loss.stage == LossStage::Over,
        aside: loss.void.keys().map(|node| node.0).collect(),
        ends: loss.ends.iter().map(end).collect(),
    }
}

/// What this worker knows of epochs that the shard has not ended, as far as the configuration shows.
fn lacking<E: Engine>(source: &StatusSource<'_, E>, shard: ShardId) -> Vec<LackingStatus> {
    let known = source.worker.engine().lacking(shard).into_iter();
    let status = |(epoch, durable, held): (Epoch, EpochEnd, Option<EpochEnd>)| LackingStatus {
        epoch: epoch.0,
        durable: number(&durable),
        held: held.as_ref().map(number),
    };
    known.map(status).collect()
}

/// The clock of an epoch's end, for engines whose ends are clocks; 0 for others.
fn number(end: &EpochEnd) -> u64 {
    end.number().unwrap_or_default()
}

/// Why a shard cannot be served, and what ends that, in a sentence.
pub(crate) fn outage(configuration: &Configuration, shard: ShardId) -> Option<String> {
    let name = |node: &NodeId| {
        let known = configuration.topology.node(*node);
        known.map_or_else(|| node.to_string(), |node| node.name.clone())
    };
    let names = |nodes: &[NodeId]| nodes.iter().map(name).collect::<Vec<String>>().join(", ");
    let outage = configuration.outage(shard)?;
    let shard = format!("S{}", shard.0);
    Some(match outage {
        Outage::Appointing => format!("{shard} has no leader; one is being appointed"),
        Outage::Waiting { missing } => {
            format!("{shard} has no majority: it waits for {}, with what it has", names(&missing))
        }
        Outage::Lost { empty, survivors } if survivors.is_empty() => {
            format!("{shard} is lost: every replica began anew, empty ({})", names(&empty))
        }
        Outage::Lost { empty, survivors } => format!(
            "{shard} has lost its majority: {} began anew, empty; only {} has what is left",
            names(&empty),
            names(&survivors)
        ),
    })
}

fn stream<E: Engine>(source: &StatusSource<'_, E>, shard: ShardId) -> Option<StreamStatus> {
    let stream = source.worker.stream(shard)?;
    let accepted = stream.accepted();
    let followers = stream.acknowledged().map(|(node, acknowledged)| FollowerStatus {
        node: node.0,
        behind: accepted.beyond(acknowledged),
    });
    Some(StreamStatus {
        shard: shard.0,
        leading: stream.is_leading(),
        accepted: accepted.0,
        decided: stream.decided().0,
        held: accepted.beyond(stream.start()),
        followers: followers.collect(),
    })
}

fn stages<E: Engine>() -> Vec<StageStatus> {
    let status = |stage: &CommitStage| StageStatus {
        counter: stage.name.to_owned(),
        label: stage.label.to_owned(),
    };
    E::STAGES.iter().map(status).collect()
}

fn node_columns<E: Engine>() -> Vec<NodeColumnStatus> {
    let status = |column: &NodeColumn| NodeColumnStatus {
        counter: column.counter.to_owned(),
        heading: column.heading.to_owned(),
    };
    E::NODE_COLUMNS.iter().map(status).collect()
}

fn shard_columns<E: Engine>() -> Vec<ShardColumnStatus> {
    let columns = E::SHARD_METRICS.iter().filter_map(|metric| Some((metric.name, metric.column?)));
    let status = |(name, column): (&str, ShardColumn)| {
        let (heading, of_followers) = match column {
            ShardColumn::Leader(heading) => (heading, false),
            ShardColumn::Followers(heading) => (heading, true),
        };
        ShardColumnStatus { number: name.to_owned(), heading: heading.to_owned(), of_followers }
    };
    columns.map(status).collect()
}
