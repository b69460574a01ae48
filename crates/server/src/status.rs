//! How a node is, as one of its workers sees it.

use crate::seat::Seat;
use bytes::Bytes;
use engines::Engine;
use engines::engine::Counters;
use serde::{Deserialize, Serialize};
use types::Time;

/// How a worker of a node is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node's number.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// Which worker says so.
    pub worker: u32,
    /// How many workers it has.
    pub workers: u32,
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
}

/// A stream, as one of its replicas sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamStatus {
    /// Its shard.
    pub shard: u32,
    /// Whether this node leads it.
    pub leading: bool,
    /// Entries that this replica has.
    pub accepted: u64,
    /// Entries that it knows to be decided.
    pub decided: u64,
}

/// How a worker is, as JSON.
pub(crate) fn of<E: Engine>(seat: &Seat<E>, now: Time) -> Bytes {
    let status = status(seat, now);
    serde_json::to_vec(&status).expect("numbers and names").into()
}

fn status<E: Engine>(seat: &Seat<E>, now: Time) -> NodeStatus {
    let topology = &seat.directory.topology;
    let worker = &seat.worker;
    let stream = |shard| {
        let stream = worker.stream(shard)?;
        Some(StreamStatus {
            shard: shard.0,
            leading: stream.is_leading(),
            accepted: stream.accepted().0,
            decided: stream.decided().0,
        })
    };
    let configuration = worker.configuration();
    let leaders = configuration.iter().flat_map(|it| &it.shards).map(|shard| shard.leader.0);
    let lease_end = worker.lease_end();
    NodeStatus {
        node: seat.node.0,
        name: topology.node(seat.node).map(|node| node.name.clone()).unwrap_or_default(),
        worker: seat.worker_id.0,
        workers: topology.workers(),
        revision: configuration.map_or(0, |it| it.revision.0),
        epoch: configuration.map_or(0, |it| it.epoch.0),
        settled: configuration.map_or(0, |it| it.settled.0),
        lease_ms: (lease_end < Time::MAX).then(|| (lease_end - now).as_millis() as u64),
        leaders: leaders.collect(),
        empty: configuration.iter().flat_map(|it| &it.shards).map(|it| it.empty.len()).sum(),
        streams: topology.shards_of(seat.node).filter_map(stream).collect(),
        pending: worker.engine().pending(),
        memory_bytes: seat.memory_bytes(),
        counters: named(&worker.engine().counters()),
        malformed: seat.malformed + worker.strays() + worker.bad_messages(),
    }
}

fn named(counters: &Counters) -> Vec<(String, u64)> {
    let Counters {
        certified,
        committed,
        wrote,
        cross_shard,
        rolled_back,
        discarded,
        conflicts,
        resent,
        dropped,
        operations,
        stamps,
        stamp_entries,
        batches,
        batch_bytes,
    } = *counters;
    let all = [
        ("certified", certified),
        ("committed", committed),
        ("wrote", wrote),
        ("cross_shard", cross_shard),
        ("rolled_back", rolled_back),
        ("discarded", discarded),
        ("conflicts", conflicts),
        ("resent", resent),
        ("dropped", dropped),
        ("operations", operations),
        ("stamps", stamps),
        ("stamp_entries", stamp_entries),
        ("batches", batches),
        ("batch_bytes", batch_bytes),
    ];
    all.map(|(name, count)| (name.to_owned(), count)).into()
}
