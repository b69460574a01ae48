//! What a worker reports to its engine of the entries that it accepts under another node: a follower of one stream, which
//! receives the messages of its leaders by hand, and an engine that records its events.

mod worker_log;

use super::{
    Membership, RecoveredWorker, Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage,
    WorkerOrigin,
};
use bytes::Bytes;
use shoal_cluster::manager::{Configuration, Incarnation, ManagerOptions, StateMachine};
use shoal_cluster::topology::Topology;
use shoal_engine::engine::{Setup, Task};
use shoal_engine::metrics::{CommitStage, EngineCounters, RuntimeCounters, ShardMetric};
use shoal_engine::{
    Engine, EngineEffects, EngineEvent, LocalDatabase, PlantedBug, Procedures, WorkerPlace,
};
use shoal_log::{
    LogLength, MemoryStorage, StreamMessage, StreamOptions, StreamRecord, StreamStorage,
};
use shoal_store::Store;
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time, WorkerId};
use shoal_wal::Record;
use std::collections::BTreeMap;
use std::sync::Arc;

const SHARD: ShardId = ShardId(0);
const FOLLOWER: NodeId = NodeId(1);

/// An engine whose observations are the events of its streams.
struct Recorder<const RECEIVES_ACCEPTED: bool>;

impl<const RECEIVES_ACCEPTED: bool> Engine for Recorder<RECEIVES_ACCEPTED> {
    type Message = u64;
    type Options = ();
    type Shared = ();
    type Observation = String;
    type PlantedBug = PlantedBug;

    const RECEIVES_ACCEPTED: bool = RECEIVES_ACCEPTED;

    fn share(_setup: &Setup<()>, _node: NodeId) -> Arc<()> {
        Arc::new(())
    }

    fn store(_shared: &(), _shard: ShardId) -> Option<&Arc<Store>> {
        None
    }

    fn new(_worker: WorkerId, _shared: Arc<()>, _seed: u64) -> Self {
        Recorder
    }

    fn step(
        &mut self,
        _now: Time,
        event: EngineEvent<u64>,
        effects: &mut EngineEffects<u64, String>,
    ) {
        let text = |entry: &Bytes| String::from_utf8_lossy(entry).into_owned();
        let seen = match event {
            EngineEvent::Promised { ballot, .. } => format!("promised {ballot}"),
            EngineEvent::Accepted { ballot, length, entries, .. } => {
                let entries: Vec<String> = entries.iter().map(text).collect();
                format!("accepted {ballot} {length} [{}]", entries.join(" "))
            }
            EngineEvent::Decided { index, entry, .. } => {
                format!("decided {index} {}", text(&entry))
            }
            EngineEvent::Restored { state, .. } => format!("restored {}", text(&state)),
            EngineEvent::Leading { length, .. } => format!("leads from {length}"),
            EngineEvent::Deposed { by, .. } => format!("deposed by {by}"),
            EngineEvent::Durable { length, .. } => format!("durable {length}"),
            EngineEvent::SnapshotWanted { to, .. } => format!("{to} wants a snapshot"),
            EngineEvent::CheckpointRead { part, .. } => format!("read {}", text(&part)),
            EngineEvent::CheckpointWanted { shard } => format!("checkpoint of {shard}"),
            EngineEvent::CheckpointWritten { shard } => format!("written of {shard}"),
            EngineEvent::Recorded { records, .. } => format!("recorded {records}"),
            EngineEvent::RecordsRead { records, .. } if !records.is_empty() => {
                let records: Vec<String> = records.iter().map(text).collect();
                format!("records [{}]", records.join(" "))
            }
            EngineEvent::Received { .. }
            | EngineEvent::RecordsRead { .. }
            | EngineEvent::Client(_)
            | EngineEvent::Configured { .. }
            | EngineEvent::Settled { .. }
            | EngineEvent::Timer
            | EngineEvent::Nudged => return,
        };
        effects.observe(|| seen);
    }

    fn local(&self) -> LocalDatabase {
        panic!("this engine has no data")
    }

    fn spawn(&mut self, _task: Task) {
        panic!("this engine runs no tasks")
    }

    fn renew(&mut self, _lease_end: Time) {}

    fn pending(&self) -> usize {
        0
    }

    type Counters = RuntimeCounters;

    const STAGES: &'static [CommitStage] = &[];
    const SHARD_METRICS: &'static [ShardMetric] = &[];

    fn counters(&self) -> EngineCounters<RuntimeCounters> {
        EngineCounters::default()
    }

    fn shard_values(&self, _shard: ShardId) -> Vec<Option<u64>> {
        Vec::new()
    }

    fn may_restore(&self, _shard: ShardId, _from: NodeId, _length: u64, _state: &Bytes) -> bool {
        true
    }
}

/// Node 1, a follower of a shard that the nodes 0 to 2 hold.
struct Follower<const RECEIVES_ACCEPTED: bool> {
    worker: Worker<Recorder<RECEIVES_ACCEPTED>>,
    membership: Arc<Membership>,
    configuration: Configuration,
}

fn setup() -> Setup<()> {
    Setup {
        topology: Arc::new(Topology::symmetric(1, 1, 3, 0, 1)),
        procedures: Arc::new(Procedures::new()),
        streams: StreamOptions::default(),
        options: (),
    }
}

fn ballot(epoch: u32, node: u32) -> Ballot {
    Ballot { epoch: Epoch(epoch), node: NodeId(node) }
}

fn bytes(entries: &[&'static str]) -> Vec<Bytes> {
    entries.iter().map(|entry| Bytes::from_static(entry.as_bytes())).collect()
}

impl<const RECEIVES_ACCEPTED: bool> Follower<RECEIVES_ACCEPTED> {
    /// The follower with what a former process has stored; later changes are durable when [`Follower::persist`] says so.
    fn new(storage: MemoryStorage) -> Self {
        let setup = setup();
        let machine = StateMachine::new(Arc::clone(&setup.topology), ManagerOptions::default());
        let mut configuration = Configuration::clone(machine.configuration());
        configuration.nodes.iter_mut().for_each(|node| node.incarnation = Incarnation(1));
        let membership = Membership::new(1);
        let origin = WorkerOrigin {
            membership: Arc::clone(&membership),
            manager_client: None,
            recovered: RecoveredWorker::of(BTreeMap::from([(SHARD, storage)])),
            new_storage: MemoryStorage::late,
            seed: 1,
        };
        let worker = Worker::new(WorkerId(0), FOLLOWER, &setup, Arc::new(()), origin);
        Follower { worker, membership, configuration }
    }

    /// The events of streams in a step.
    fn step(&mut self, event: WorkerEvent<u64>) -> Vec<String> {
        let mut effects = WorkerEffects::observed();
        self.worker.step(Time(1), event, &mut effects);
        effects.observations.unwrap_or_default()
    }

    /// The configuration appoints this node.
    fn appoint(&mut self, ballot: Ballot) -> Vec<String> {
        self.prepare_appointment(ballot);
        self.step(WorkerEvent::Nudged)
    }

    /// The same; this worker has not looked at it.
    fn prepare_appointment(&mut self, ballot: Ballot) {
        let assignment = &mut self.configuration.shards[0];
        (assignment.leader, assignment.ballot, assignment.since) =
            (ballot.node, ballot, ballot.epoch);
        self.configuration.epoch = ballot.epoch;
        self.configuration.revision.0 += 1;
        self.membership.publish(&Arc::new(self.configuration.clone()), Incarnation(1));
    }

    fn receive(&mut self, message: StreamMessage) -> Vec<String> {
        self.step(received(message.ballot().node, message))
    }

    /// The leader appends entries after `prev` to a sequence of which it has adopted `base` entries.
    fn append(
        &mut self,
        ballot: Ballot,
        base: u64,
        prev: u64,
        decided: u64,
        entries: &[&'static str],
    ) -> Vec<String> {
        self.receive(StreamMessage::Append {
            ballot,
            adopted: Ballot::default(),
            base: LogLength(base),
            prev: LogLength(prev),
            decided: LogLength(decided),
            everywhere: LogLength::ZERO,
            round: 0,
            entries: bytes(entries),
        })
    }

    fn persist(&mut self) -> Vec<String> {
        self.step(WorkerEvent::Persisted { changes: usize::MAX })
    }

    /// What is acknowledged to the leader in a step, and written into the log on disk.
    fn effects(&mut self, event: WorkerEvent<u64>) -> (Vec<StreamMessage>, Vec<Record>) {
        let mut effects = WorkerEffects::new();
        self.worker.step(Time(1), event, &mut effects);
        let (mut sent, mut written) = (Vec::new(), Vec::new());
        for effect in effects.effects {
            match effect {
                WorkerEffect::Send { message: WorkerMessage::Stream { message, .. }, .. } => {
                    sent.push(message);
                }
                WorkerEffect::Write { records } => written.extend(records),
                other => panic!("{other:?}"),
            }
        }
        (sent, written)
    }
}

/// A message of the shard's stream arrives from `node`.
fn received(node: NodeId, message: StreamMessage) -> WorkerEvent<u64> {
    let from = WorkerPlace { node, worker: WorkerId(0) };
    let message = WorkerMessage::Stream { shard: SHARD, incarnation: Incarnation(1), message };
    WorkerEvent::Received { from, message }
}

fn append_of(ballot: Ballot, prev: u64, entries: &[&'static str]) -> WorkerEvent<u64> {
    let message = StreamMessage::Append {
        ballot,
        adopted: Ballot::default(),
        base: LogLength(0),
        prev: LogLength(prev),
        decided: LogLength(0),
        everywhere: LogLength::ZERO,
        round: 0,
        entries: bytes(entries),
    };
    received(ballot.node, message)
}

/// How many entries these messages acknowledge.
fn acknowledged(messages: &[StreamMessage]) -> Vec<u64> {
    let length = |message: &StreamMessage| match message {
        StreamMessage::Accepted { length, .. } => length.0,
        other => panic!("{other:?}"),
    };
    messages.iter().map(length).collect()
}

#[test]
fn what_the_log_on_disk_does_not_have_is_not_acknowledged() {
    let mut follower = follower(MemoryStorage::recorded());
    let first = ballot(1, 0);
    let (sent, mut log) = follower.effects(append_of(first, 0, &["a", "b"]));
    assert_eq!(acknowledged(&sent), [0; 0]);
    // The promise, and the move to the ballot with both entries. That the stream begins is recorded already.
    assert_eq!(log.len(), 2);
    let (sent, more) = follower.effects(append_of(first, 2, &["c"]));
    assert_eq!((acknowledged(&sent), more.len()), (vec![], 1));
    log.extend(more);
    let (sent, more) = follower.effects(WorkerEvent::Recorded { records: 2 });
    assert_eq!((sent, more), (vec![], vec![]), "only the promise is durable");
    let (sent, _) = follower.effects(WorkerEvent::Recorded { records: 1 });
    assert_eq!(acknowledged(&sent), [2]);
    let (sent, _) = follower.effects(WorkerEvent::Recorded { records: 1 });
    assert_eq!(acknowledged(&sent), [3]);
    // The next process begins with what the log has.
    let mut storage = MemoryStorage::recorded();
    for Record { kind, shard, payload } in log {
        assert_eq!((kind, shard), (StreamRecord::KIND, SHARD));
        let record = StreamRecord::decode(&payload).expect("a record");
        storage.replay(record).expect("in order");
    }
    assert_eq!((storage.promised(), storage.log().length()), (first, LogLength(3)));
    let mut next = Follower::<true>::new(storage);
    assert_eq!(next.step(WorkerEvent::Start), ["promised e1.n0", "accepted e1.n0 3 [a b c]"]);
    assert_eq!(next.effects(WorkerEvent::Nudged), (vec![], vec![]), "nothing is recorded twice");
}

#[test]
fn what_a_stream_recorded_that_has_ended_counts_for_no_later_one() {
    let mut follower = follower(MemoryStorage::recorded());
    follower.worker.new_storage = MemoryStorage::recorded;
    let first = ballot(1, 0);
    let (_, former) = follower.effects(append_of(first, 0, &["a"]));
    let voters = follower.configuration.shards[0].voters.clone();
    follower.configuration.shards[0].voters.retain(|voter| *voter != FOLLOWER);
    assert_eq!(follower.appoint(first), [""; 0]);
    assert!(follower.worker.stream(SHARD).is_none(), "it holds no replica any more");
    follower.configuration.shards[0].voters = voters;
    assert_eq!(follower.appoint(first), [""; 0]);
    let (_, later) = follower.effects(append_of(first, 0, &["a"]));
    // And that each begins.
    let (former, later) = (former.len() as u64 + 1, later.len() as u64 + 1);
    let (sent, _) = follower.effects(WorkerEvent::Recorded { records: former });
    assert_eq!(acknowledged(&sent), [0; 0], "these are the records of the replica before");
    let (sent, _) = follower.effects(WorkerEvent::Recorded { records: later });
    assert_eq!(acknowledged(&sent), [1]);
}

/// The follower of node 0, appointed in epoch 1.
fn follower(storage: MemoryStorage) -> Follower<true> {
    let mut follower = Follower::new(storage);
    assert_eq!(follower.step(WorkerEvent::Start), [""; 0]);
    assert_eq!(follower.appoint(ballot(1, 0)), [""; 0]);
    follower
}

#[test]
fn entries_are_told_once_as_accepted_and_then_as_decided() {
    let mut follower = follower(MemoryStorage::new());
    let first = ballot(1, 0);
    let told = follower.append(first, 0, 0, 0, &["a", "b"]);
    assert_eq!(told, ["promised e1.n0", "accepted e1.n0 2 [a b]"]);
    // A repeat, and an entry that overtook the one before.
    assert_eq!(follower.append(first, 0, 0, 0, &["a", "b"]), [""; 0]);
    assert_eq!(follower.append(first, 0, 3, 0, &["d"]), [""; 0]);
    // One event for all, before what is decided in the same step.
    let told = follower.append(first, 0, 2, 3, &["c"]);
    assert_eq!(told, ["accepted e1.n0 4 [c d]", "decided 0 a", "decided 1 b", "decided 2 c"]);
}

#[test]
fn what_is_not_persisted_is_not_told() {
    let mut follower = follower(MemoryStorage::late());
    let first = ballot(1, 0);
    assert_eq!(follower.append(first, 0, 0, 0, &["a", "b"]), ["promised e1.n0"]);
    assert_eq!(follower.persist(), ["accepted e1.n0 2 [a b]"]);
    // A majority of others has it: decided before it is persisted here, and not given twice.
    assert_eq!(
        follower.append(first, 0, 2, 3, &["c", "d"]),
        ["decided 0 a", "decided 1 b", "decided 2 c"]
    );
    assert_eq!(follower.persist(), ["accepted e1.n0 4 [d]"]);
}

/// The next leader has adopted another sequence, which replaces what was accepted and not decided.
#[test]
fn entries_come_again_under_another_ballot() {
    let mut follower = follower(MemoryStorage::new());
    follower.append(ballot(1, 0), 0, 0, 1, &["a", "b", "c"]);
    assert_eq!(follower.appoint(ballot(2, 2)), [""; 0]);
    let second = ballot(2, 2);
    // Of the two entries that it has adopted, one has not come.
    assert_eq!(follower.append(second, 3, 1, 1, &["x"]), ["promised e2.n2"]);
    assert_eq!(follower.append(second, 3, 2, 1, &["y", "z"]), ["accepted e2.n2 4 [x y z]"]);
    assert_eq!(
        follower.append(second, 3, 4, 4, &[]),
        ["decided 1 x", "decided 2 y", "decided 3 z"]
    );
}

/// Node 2 promises a ballot of node 1, with the two entries that both have accepted.
fn promise_of_two(own: Ballot) -> WorkerEvent<u64> {
    let promise = StreamMessage::Promise {
        ballot: own,
        accepted_ballot: ballot(1, 0),
        accepted: LogLength(2),
        decided: LogLength(1),
        from: LogLength(2),
        entries: Vec::new(),
        votes: true,
    };
    received(NodeId(2), promise)
}

/// A leader receives nothing of what it accepts itself; when it follows again, it is.
#[test]
fn a_former_leader_follows() {
    let mut follower = follower(MemoryStorage::new());
    follower.append(ballot(1, 0), 0, 0, 1, &["a", "b"]);
    assert_eq!(follower.appoint(ballot(2, 1)), [""; 0]);
    assert_eq!(follower.step(promise_of_two(ballot(2, 1))), ["leads from 2"]);
    let told = follower.appoint(ballot(3, 0));
    assert_eq!(told, [""; 0]);
    let told = follower.append(ballot(3, 0), 2, 1, 1, &["b"]);
    assert_eq!(told, ["promised e3.n0", "deposed by e3.n0", "accepted e3.n0 2 [b]"]);
}

/// A stream that gets its majority after another node was appointed leads nothing: what is decided later is another's.
#[test]
fn a_stream_that_is_prepared_too_late_leads_nothing() {
    let mut follower = follower(MemoryStorage::new());
    follower.append(ballot(1, 0), 0, 0, 1, &["a", "b"]);
    follower.appoint(ballot(2, 1));
    follower.appoint(ballot(3, 0));
    assert_eq!(follower.step(promise_of_two(ballot(2, 1))), [""; 0]);
    let told = follower.append(ballot(3, 0), 2, 1, 3, &["b", "c"]);
    let accepted = ["promised e3.n0", "deposed by e3.n0", "accepted e3.n0 3 [b c]"];
    assert_eq!(told[..3], accepted);
    assert_eq!(told[3..], ["decided 1 b", "decided 2 c"]);
}

/// A snapshot that goes beyond what was accepted brings all of its entries.
#[test]
fn entries_of_a_snapshot_are_not_given() {
    let mut follower = follower(MemoryStorage::new());
    let first = ballot(1, 0);
    follower.append(first, 0, 0, 0, &["a"]);
    follower.append(first, 0, 5, 0, &["f", "g"]);
    let told = follower.receive(StreamMessage::Snapshot {
        ballot: first,
        length: LogLength(5),
        state: Bytes::from_static(b"state"),
    });
    assert_eq!(told, ["restored state", "accepted e1.n0 7 [f g]"]);
}

/// A process that has its storage begins with what the former one has accepted.
#[test]
fn a_process_begins_with_what_the_former_one_accepted() {
    let mut former = follower(MemoryStorage::new());
    former.append(ballot(1, 0), 0, 0, 1, &["a", "b", "c"]);
    let storage = former.worker.into_storages().remove(&SHARD).expect("its stream");
    let mut follower = Follower::<true>::new(storage);
    assert_eq!(
        follower.step(WorkerEvent::Start),
        ["promised e1.n0", "decided 0 a", "accepted e1.n0 3 [b c]"]
    );
}

/// The configuration may be known already, where it never changes. What is stored comes before it all the same.
#[test]
fn a_process_follows_no_configuration_before_it_has_begun() {
    let mut former = follower(MemoryStorage::new());
    former.append(ballot(1, 0), 0, 0, 1, &["a", "b"]);
    let storage = former.worker.into_storages().remove(&SHARD).expect("its stream");
    let mut follower = Follower::<true>::new(storage);
    follower.prepare_appointment(ballot(2, FOLLOWER.0));
    let (shard, part) = (SHARD, Bytes::from_static(b"part"));
    assert_eq!(follower.step(WorkerEvent::CheckpointRead { shard, part }), ["read part"]);
    let begins = follower.step(WorkerEvent::Start);
    assert_eq!(begins[..3], ["promised e1.n0", "decided 0 a", "accepted e1.n0 2 [b]"]);
    let stream = follower.worker.stream(SHARD).expect("its stream");
    assert_eq!(stream.ballot(), ballot(2, FOLLOWER.0), "it prepares to lead");
}

#[test]
fn an_engine_that_does_not_ask_is_told_nothing() {
    let mut follower = Follower::<false>::new(MemoryStorage::new());
    follower.step(WorkerEvent::Start);
    follower.appoint(ballot(1, 0));
    assert_eq!(
        follower.append(ballot(1, 0), 0, 0, 1, &["a", "b"]),
        ["promised e1.n0", "decided 0 a"]
    );
}
