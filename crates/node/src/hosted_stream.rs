//! A stream of a worker, the part of it that the engine has received, and the snapshots that replicas were sent.

use bytes::Bytes;
use shoal_cluster::manager::Incarnation;
use shoal_log::{LogLength, MemoryStorage, Stream, StreamMembers, StreamStorage};
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A stream, and the part of it that the engine has received.
pub(super) struct HostedStream {
    pub(super) stream: Stream,
    /// Its place in the order in which the worker has begun streams: another stream of the same shard has another number.
    pub(super) number: u64,
    pub(super) timer: Option<Time>,
    /// The number of entries that the engine has received.
    pub(super) delivered: u64,
    /// The ballot of another node under which entries are accepted, and the number of them that the engine was received.
    accepted: (Ballot, u64),
    /// How many entries the engine has proposed.
    pub(super) proposed: u64,
    /// Records of the engine, and how many entries it had proposed before each.
    engine_records: VecDeque<(u64, EngineRecord)>,
    /// While this node leads: where the engine's own entries begin. The engine receives those before them.
    pub(super) own_from: Option<u64>,
    /// The appointment of the last configuration, if it is this node's; the stream may still be under an earlier ballot.
    pub(super) appointment: Option<Appointment>,
    /// The incarnation of each replica when its last message arrived.
    pub(super) incarnations: BTreeMap<NodeId, Incarnation>,
    /// Replicas that were sent a snapshot and lack entries after it.
    receivers: BTreeMap<NodeId, SnapshotTarget>,
}

/// A record of the engine beside the stream.
#[derive(Debug)]
pub(super) struct EngineRecord {
    pub(super) record: Bytes,
    /// Those before it do not count any more.
    pub(super) is_first: bool,
}

/// An appointment of this node to lead a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Appointment {
    pub(super) ballot: Ballot,
    /// The epoch in which the leadership began: of an earlier appointment, if no other node was appointed between.
    pub(super) since: Epoch,
}

/// A replica that was sent a snapshot.
struct SnapshotTarget {
    /// The number of entries that it has, or that the snapshot stands for.
    has: u64,
    /// When that number last grew.
    moved_at: Time,
}

/// The longest time for which a stream keeps entries for a receiver that makes no progress.
const RECEIVER_PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes that a stream keeps for a receiver, as a multiple of what it keeps for any other replica.
const RECEIVER_RETAINS: u64 = 16;

impl HostedStream {
    /// A stream on `node`, with what is left of a former process. The `members` are those of the configuration, or before there
    /// is one, of the topology.
    pub(super) fn new(
        members: StreamMembers,
        options: shoal_log::StreamOptions,
        node: NodeId,
        storage: MemoryStorage,
        number: u64,
    ) -> HostedStream {
        let stream = Stream::new(node, members, options, storage);
        HostedStream {
            stream,
            number,
            timer: None,
            delivered: 0,
            accepted: (Ballot::default(), 0),
            proposed: 0,
            engine_records: VecDeque::new(),
            own_from: None,
            appointment: None,
            incarnations: BTreeMap::new(),
            receivers: BTreeMap::new(),
        }
    }

    /// Is this node appointed under that ballot?
    pub(super) fn is_appointed(&self, ballot: Ballot) -> bool {
        self.appointment.is_some_and(|appointment| appointment.ballot == ballot)
    }

    /// The engine has a record, which is to stand behind the entries that it has proposed.
    pub(super) fn push_record(&mut self, record: EngineRecord) {
        self.engine_records.push_back((self.proposed, record));
    }

    /// The next record of the engine, once the entries before it are appended, or dropped.
    pub(super) fn next_record(&mut self) -> Option<EngineRecord> {
        let appended = self.proposed - self.stream.queued() as u64;
        let is_due = self.engine_records.front().is_some_and(|(before, _)| *before <= appended);
        is_due.then(|| self.engine_records.pop_front()).flatten().map(|(_, record)| record)
    }

    /// How many records of the engine wait for entries before them.
    pub(super) fn waiting_records(&self) -> usize {
        self.engine_records.len()
    }

    /// Notes that a replica is sent a snapshot which stands for `length` entries.
    pub(super) fn give(&mut self, now: Time, to: NodeId, length: u64) {
        self.receivers.insert(to, SnapshotTarget { has: length, moved_at: now });
    }

    /// The number of entries that may be truncated because of replicas with a new snapshot: if the entries after it were
    /// truncated, they would need another one.
    pub(super) fn receivers_have(&mut self, now: Time, retain_bytes: u64) -> u64 {
        if self.receivers.is_empty() {
            return u64::MAX;
        }
        let near = self.stream.storage().log().tail(retain_bytes / 2).0;
        let acknowledged: BTreeMap<NodeId, LogLength> = self.stream.acknowledged().collect();
        self.receivers.retain(|node, receiver| {
            let has = acknowledged.get(node).map_or(0, |has| has.0);
            if has > receiver.has {
                *receiver = SnapshotTarget { has, moved_at: now };
            }
            receiver.has < near && now < receiver.moved_at + RECEIVER_PATIENCE
        });
        let least = self.receivers.values().map(|receiver| receiver.has).min().unwrap_or(u64::MAX);
        least.max(self.stream.storage().log().tail(RECEIVER_RETAINS * retain_bytes).0)
    }

    /// The event of entries that were accepted on `node` under the ballot of another, if there are more than the engine has
    /// received. What is accepted and not persisted does not count.
    pub(super) fn accepted<M>(
        &mut self,
        shard: ShardId,
        node: NodeId,
        news: &mut VecDeque<shoal_engine::EngineEvent<M>>,
    ) {
        let ballot = self.stream.ballot();
        if ballot.node == node || self.stream.accepted_ballot() != ballot {
            return;
        }
        let length = self.stream.persisted().0;
        let received = Some(self.accepted).filter(|(before, _)| *before == ballot);
        let received = received.map_or(0, |(_, length)| length);
        if length <= received {
            return;
        }
        self.push_accepted(shard, ballot, received, length, news);
    }

    /// The event of the entries that former processes have stored behind what the engine has received, under the ballot of their
    /// acceptance.
    pub(super) fn stored<M>(
        &mut self,
        shard: ShardId,
        news: &mut VecDeque<shoal_engine::EngineEvent<M>>,
    ) {
        let (ballot, length) = (self.stream.accepted_ballot(), self.stream.persisted().0);
        if length > self.delivered {
            self.push_accepted(shard, ballot, self.delivered, length, news);
        }
    }

    fn push_accepted<M>(
        &mut self,
        shard: ShardId,
        ballot: Ballot,
        received: u64,
        length: u64,
        news: &mut VecDeque<shoal_engine::EngineEvent<M>>,
    ) {
        let first = received.max(self.delivered).max(self.stream.start().0);
        let entry = |index| self.stream.entry(index).expect("accepted, and not trimmed").clone();
        let entries = (first..length).map(entry).collect();
        self.accepted = (ballot, length);
        news.push_back(shoal_engine::EngineEvent::Accepted { shard, ballot, length, entries });
    }

    /// The events of decided entries: the number of own ones, the content of others.
    pub(super) fn decided<M>(
        &mut self,
        shard: ShardId,
        length: LogLength,
        news: &mut VecDeque<shoal_engine::EngineEvent<M>>,
    ) {
        let own_from = self.own_from.unwrap_or(u64::MAX);
        for index in self.delivered..length.0.min(own_from) {
            let entry = self.stream.entry(index).expect("decided, and not trimmed").clone();
            news.push_back(shoal_engine::EngineEvent::Decided { shard, index, entry });
        }
        self.delivered = length.0;
        if length.0 > own_from {
            news.push_back(shoal_engine::EngineEvent::Durable { shard, length: length.0 });
        }
    }
}
