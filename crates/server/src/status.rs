//! How a node is, as one of its workers sees it.

use crate::manager::InputSender;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_cluster::manager::{Configuration, EpochEnd, Loss, LossStage, LostEnd, Outage};
use shoal_cluster::topology::Topology;
use shoal_engine::Engine;
use shoal_engine::engine::{EngineCounters, ShardProgress};
use shoal_net::SharedClusterId;
use shoal_node::Worker;
use shoal_store::Store;
use shoal_types::wire::{CLIENT_MESSAGES, MessageVersion, MessageVersions, PEER_MESSAGES};
use shoal_types::{Epoch, NodeId, ShardId, Time, WorkerId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a worker of a node is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node's number.
    pub node: u32,
    /// The name of the node in the topology.
    pub name: String,
    /// The identity of the cluster, drawn when it was founded. `None` until the node has joined it, and without managers.
    #[serde(default)]
    pub cluster: Option<String>,
    /// When it says so, by its clock: nanoseconds since 1970.
    #[serde(default)]
    pub time_ns: u64,
    /// Which worker says so.
    pub worker: u32,
    /// How many workers it has.
    pub workers: u32,
    /// The manager has admitted this process of the node.
    pub admitted: bool,
    /// The revision of the configuration that it follows; 0 if it has none yet.
    pub revision: u64,
    /// The epoch that is open, by that configuration.
    pub epoch: u32,
    /// The last epoch whose final vector watermark is known.
    pub settled: u32,
    /// How much of the lease is left, in milliseconds. `None` where leaders never change.
    pub lease_ms: Option<u64>,
    /// The leader of each shard.
    pub leaders: Vec<u32>,
    /// Replicas that have lost their memory and do not vote yet, of all shards.
    pub empty: usize,
    /// All shards of the cluster.
    pub shards: Vec<ShardStatus>,
    /// The streams of this worker's number.
    pub streams: Vec<StreamStatus>,
    /// Transactions under way on this worker.
    pub pending: usize,
    /// Bytes that the node's copies of shards take.
    pub memory_bytes: usize,
    /// What the engine has counted, by name.
    pub counters: Vec<(String, u64)>,
    /// Frames of peers and clients that made no sense.
    pub malformed: u64,
    /// The nodes that have managers, as far as it knows. None where leaders never change.
    #[serde(default)]
    pub managers: Vec<u32>,
    /// Which list of them that is; 0 for that of its file.
    #[serde(default)]
    pub managers_version: u64,
    /// Its own manager, if it hosts one. Only the first worker knows.
    #[serde(default)]
    pub manager: Option<ManagerStatus>,
    /// The versions of messages that it speaks to nodes.
    #[serde(default)]
    pub peer_messages: VersionsStatus,
    /// The versions of messages that it speaks to clients.
    #[serde(default)]
    pub client_messages: VersionsStatus,
    /// The nodes that this worker reaches.
    #[serde(default)]
    pub peers: Vec<PeerStatus>,
}

/// Versions of messages that a node speaks: all from the oldest to the newest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsStatus {
    /// The oldest; 0 from a node that does not say.
    pub oldest: u16,
    /// The newest version of messages that is spoken.
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
    /// The version of messages that the two speak.
    pub version: u16,
}

/// A manager, as its node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerStatus {
    /// Which volume of the log it has.
    pub volume: u32,
    /// Whether that volume votes, by the latest list that is known here. If not, it learns, or its node has lost the
    /// volume that does.
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
    /// The configuration makes this node its leader, in this process.
    pub appointed: bool,
    /// The nodes whose voting replicas make up its majorities, by the configuration.
    #[serde(default)]
    pub voters: Vec<u32>,
    /// The nodes whose replicas are empty: they have lost their memory, and do not count until they have caught up.
    #[serde(default)]
    pub empty: Vec<u32>,
    /// Why it cannot be served, in a sentence, by the configuration.
    #[serde(default)]
    pub outage: Option<String>,
    /// The loss of its majority that was accepted last.
    #[serde(default)]
    pub loss: Option<LossStatus>,
    /// What is known here of epochs whose end it has not said.
    #[serde(default)]
    pub lacking: Vec<LackingStatus>,
    /// Up to where it is known here to be durable, in the epoch that is open. `None` where the protocol has
    /// no watermarks.
    pub watermark: Option<u64>,
    /// How far this node's copy is: what of it is durable where the node leads, what it has applied where it
    /// follows. `None` without a copy, or where the protocol does not keep that.
    pub reached: Option<u64>,
    /// The greatest clock that was drawn here, where the node leads. It is ahead of the watermark by what is
    /// certified and not durable yet.
    pub drawn: Option<u64>,
    /// Bytes of this node's copy, if it has one.
    pub memory_bytes: Option<usize>,
}

/// A loss of a shard's majority that was accepted. Clocks are those of the shard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossStatus {
    /// When, in seconds since 1970, on the clock of the operator who accepted it.
    pub at_s: u64,
    /// Nothing of it is open any more.
    pub is_over: bool,
    /// The nodes whose replicas were set aside.
    pub aside: Vec<u32>,
    /// How the epochs ended whose end was lost.
    pub ends: Vec<LostEndStatus>,
}

/// How an epoch ended whose end was lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostEndStatus {
    /// The epoch whose end was lost.
    pub epoch: u32,
    /// Live nodes knew it to be durable so far.
    pub known: u64,
    /// The clock up to which the survivors hold the epoch, once that is known.
    pub held: Option<u64>,
    /// The clock at which the epoch ended. What the shard wrote between `held` and this is missing.
    pub end: Option<u64>,
}

/// What a worker knows of an epoch whose end a shard has not said yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LackingStatus {
    /// Which epoch; the open one is the last.
    pub epoch: u32,
    /// The shard is known to be durable so far in it.
    pub durable: u64,
    /// This worker's stream has it so far, where the node has a copy.
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

/// A replica of a stream, as its leader sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowerStatus {
    /// The number of the node that holds the replica.
    pub node: u32,
    /// Entries of the leader that it has not acknowledged.
    pub behind: u64,
}

/// What the status of a worker is made of.
pub(crate) struct StatusSource<'a, E: Engine> {
    pub(crate) node: NodeId,
    pub(crate) worker_id: WorkerId,
    pub(crate) worker: &'a Worker<E>,
    pub(crate) topology: &'a Topology,
    /// Which cluster the node belongs to, as soon as it knows. `None` without managers.
    pub(crate) identity: Option<&'a SharedClusterId>,
    /// Where this worker talks with managers.
    pub(crate) manager_inputs: Option<&'a InputSender>,
    /// The node's copies of shards.
    pub(crate) stores: &'a [(ShardId, Arc<Store>)],
    /// The nodes that this worker reaches, and the version of messages that it speaks with each.
    pub(crate) peers: &'a BTreeMap<NodeId, MessageVersion>,
    /// Frames that made no sense.
    pub(crate) malformed: u64,
}

/// How a worker is, as JSON.
pub(crate) fn json<E: Engine>(source: &StatusSource<'_, E>, now: Time) -> Bytes {
    serde_json::to_vec(&of(source, now)).expect("numbers and names").into()
}

/// How a worker is.
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
        streams: topology
            .shards_of(source.node)
            .filter_map(|shard| stream(source, shard))
            .collect(),
        pending: worker.engine().pending(),
        memory_bytes: source.stores.iter().map(|(_, store)| store.memory_bytes()).sum(),
        counters: named(&worker.engine().counters()),
        malformed: source.malformed + worker.strays() + worker.bad_messages(),
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
    }
}

fn manager(manager_inputs: &InputSender) -> Option<ManagerStatus> {
    let (me, status, votes) = manager_inputs.hosted()?;
    let leader = status.leader.map(|node| node.0);
    let shoal_raft::RaftStatus { entries, committed, .. } = status;
    Some(ManagerStatus { volume: me.volume.0, votes, leader, entries, committed })
}

fn shards<E: Engine>(source: &StatusSource<'_, E>) -> Vec<ShardStatus> {
    let of = |(shard, progress): (ShardId, ShardProgress)| {
        let store = source.stores.iter().find(|(held, _)| *held == shard).map(|(_, store)| store);
        let appointed = source.worker.is_appointed(shard);
        let configuration = source.worker.configuration();
        let assignment = configuration.and_then(|all| all.shard(shard));
        let numbers = |nodes: &mut dyn Iterator<Item = NodeId>| nodes.map(|node| node.0).collect();
        let voters = assignment.map(|it| numbers(&mut it.voters.iter().copied()));
        let empty = assignment.map(|it| numbers(&mut it.empty.keys().copied()));
        ShardStatus {
            shard: shard.0,
            appointed,
            voters: voters.unwrap_or_default(),
            empty: empty.unwrap_or_default(),
            outage: configuration.and_then(|all| outage(all, shard)),
            loss: assignment.and_then(|it| it.loss.as_ref()).map(loss),
            lacking: lacking(source, shard),
            watermark: progress.watermark.map(|clock| clock.0),
            reached: progress.reached.map(|clock| clock.0),
            drawn: store.filter(|_| appointed).map(|store| store.clock().0),
            memory_bytes: store.map(|store| store.memory_bytes()),
        }
    };
    (0..).map(ShardId).zip(source.worker.engine().progress()).map(of).collect()
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

/// What this worker knows of epochs that the shard has not ended, as far as the configuration tells.
fn lacking<E: Engine>(source: &StatusSource<'_, E>, shard: ShardId) -> Vec<LackingStatus> {
    let known = source.worker.engine().lacking(shard).into_iter();
    let status = |(epoch, durable, held): (Epoch, EpochEnd, Option<EpochEnd>)| LackingStatus {
        epoch: epoch.0,
        durable: number(&durable),
        held: held.as_ref().map(number),
    };
    known.map(status).collect()
}

/// How far an epoch goes that ends so, for engines that count; 0 for others.
fn number(end: &EpochEnd) -> u64 {
    end.number().unwrap_or_default()
}

/// Why a shard cannot be served, in a sentence that says what ends that.
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
        Outage::Waiting { missing } => format!(
            "{shard} has no majority: it waits for {}, with what it has in memory",
            names(&missing)
        ),
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

pub(crate) fn named(counters: &EngineCounters) -> Vec<(String, u64)> {
    let EngineCounters {
        certified,
        committed,
        wrote,
        cross_shard,
        rolled_back,
        discarded,
        conflicts,
        slow,
        resent,
        dropped,
        operations,
        stamps,
        stamp_entries,
        step_keys,
        step_keys_most,
        batches,
        batch_bytes,
        replayed_bytes,
        stages,
    } = *counters;
    let all = [
        ("certified", certified),
        ("committed", committed),
        ("wrote", wrote),
        ("cross_shard", cross_shard),
        ("rolled_back", rolled_back),
        ("discarded", discarded),
        ("conflicts", conflicts),
        ("slow", slow),
        ("resent", resent),
        ("dropped", dropped),
        ("operations", operations),
        ("stamps", stamps),
        ("stamp_entries", stamp_entries),
        ("step_keys", step_keys),
        ("step_keys_most", step_keys_most),
        ("batches", batches),
        ("batch_bytes", batch_bytes),
        ("replayed_bytes", replayed_bytes),
    ];
    let all = all.into_iter().chain(stages.named());
    all.map(|(name, count)| (name.to_owned(), count)).collect()
}
