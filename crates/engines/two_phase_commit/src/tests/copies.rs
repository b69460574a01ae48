//! Copies of a shard for a replica that lacks what its streams have no more.

use super::*;
use shoal_replication::codec::WriteRef;
use shoal_store::{Change, CopyPart};
use shoal_types::wire::encode;

/// No connection takes a longer message by default.
const FRAME_BYTES_MAX: usize = 32 << 20;

const MIB: usize = 1 << 20;

/// A checkpoint has a transaction without an outcome that writes more than a frame takes. Its writes are in the chunks of the
/// copy, so each message is short, and the replica that takes them applies all of them when the outcome comes.
#[test]
fn what_is_prepared_and_longer_than_a_frame_comes_with_a_copy() {
    const KEYS: u8 = 40;
    assert!(usize::from(KEYS) * MIB > FRAME_BYTES_MAX);
    let followers = [(); 2].map(|()| {
        let options = TwoPhaseCommitOptions::default();
        let [mut hand] = Hand::with(Topology::compact(1, 2, 3, 0, 1), options);
        hand.configure(OTHER, 2);
        hand
    });
    let [mut sender, mut receiver] = followers;
    let transaction = TransactionId { node: OTHER, worker: WorkerId(0), sequence: 7 };
    let home = DecisionHome { shard: ShardId(1), leadership: FIRST_EPOCH };
    let mut batch = record::OpenRecords::new(TwoPhaseCommitOptions::default().part());
    let value = |key: u8| vec![key; MIB];
    batch.prepare(transaction, Clock(5), home, |write| {
        (0..KEYS).for_each(|key| write(WriteRef::row(T, &[key], &value(key))));
    });
    let mut entries = Vec::new();
    while batch.len() > 0 {
        entries.push(batch.close(Epoch(2), Clock(4)));
    }
    // A checkpoint is made from time to time, and is stable at the next entry.
    let heartbeats = (0..10).map(|_| batch.close(Epoch(2), Clock(4)));
    entries.extend(heartbeats);
    for (entry, index) in entries.into_iter().zip(0..) {
        sender.step(EngineEvent::Decided { shard: HERE, index, entry });
    }
    let mut said = sender.step(EngineEvent::SnapshotWanted { shard: HERE, to: OTHER });
    while sender.snapshot.is_none() {
        for chunk in said {
            let bytes = encode(&chunk).len();
            assert!(bytes < 2 * MIB, "a chunk of {bytes} bytes");
            for taken in receiver.hear(chunk) {
                sender.hear(taken);
            }
        }
        said = sender.step(EngineEvent::Timer);
    }
    let (length, state) = sender.snapshot.take().expect("seen above");
    assert!(state.len() < MIB, "a snapshot of {} bytes", state.len());
    assert!(receiver.worker.may_restore(HERE, OTHER, length, &state));
    receiver.step(EngineEvent::Restored { shard: HERE, state });
    batch.outcome(transaction, true);
    let entry = batch.close(Epoch(2), Clock(5));
    receiver.step(EngineEvent::Decided { shard: HERE, index: length, entry });
    while receiver.worker.streams[0].replay().is_blocked() {
        receiver.step(EngineEvent::Timer);
    }
    let mut session = receiver.worker.shared.replicas[0].store.session().expect("one more");
    for key in 0..KEYS {
        let found = session.begin().get(T, &[key]).expect("no lock is left").map(<[u8]>::to_vec);
        assert!(found == Some(value(key)), "{key} is not there");
    }
}

/// A replica has half a copy, and streams that are applied less far than that: it gives a copy itself. What the half has
/// deleted leaves no trace there, and goes at the receiver all the same. Returns what the receiver finds then.
fn copy_by_a_replica_with_half_a_copy(
    faults: PlantedBugs<TwoPhaseCommitPlantedBug>,
) -> Option<Vec<u8>> {
    const KEY: &[u8] = b"e";
    let snapshot_part = CopyPart { records_max: 1, bytes_max: 1 << 10 };
    let replicas = [(); 3].map(|()| {
        let options =
            TwoPhaseCommitOptions { snapshot_part, faults, ..TwoPhaseCommitOptions::default() };
        let [mut hand] = Hand::with(Topology::compact(1, 2, 3, 0, 1), options);
        hand.configure(OTHER, 2);
        hand
    });
    let [mut whole, mut half, mut receiver] = replicas;
    let id = |sequence| TransactionId { node: OTHER, worker: WorkerId(0), sequence };
    let mut batch = record::OpenRecords::new(TwoPhaseCommitOptions::default().part());
    let mut commit = |sequence, key, change, safe| {
        let clock = Clock(sequence);
        batch.commit(id(sequence), clock, &[], |write| write(WriteRef { table: T, key, change }));
        batch.close(Epoch(2), Clock(safe))
    };
    let row = Change::Row(&b"row"[..]);
    let mut entries =
        vec![commit(5, &b"a"[..], row, 5), commit(6, b"g", row, 6), commit(7, b"k", row, 7)];
    // Without an outcome, so that streams count as applied up to there only.
    let mut prepare = record::OpenRecords::new(TwoPhaseCommitOptions::default().part());
    let home = DecisionHome { shard: ShardId(1), leadership: FIRST_EPOCH };
    prepare.prepare(id(21), Clock(21), home, |write| write(WriteRef::row(T, b"b", b"row")));
    entries.push(prepare.close(Epoch(2), Clock(20)));
    entries.push(commit(30, KEY, row, 20));
    let written = entries.len();
    entries.push(commit(90, KEY, Change::Delete, 20));
    let mut heartbeat = record::OpenRecords::new(TwoPhaseCommitOptions::default().part());
    entries.extend([(); 10].map(|()| heartbeat.close(Epoch(2), Clock(20))));
    let decide = |hand: &mut Hand, entries: &[Bytes]| {
        for entry in entries {
            let index = hand.worker.streams[0].replay().length();
            hand.step(EngineEvent::Decided { shard: HERE, index, entry: entry.clone() });
        }
        assert!(!hand.worker.streams[0].replay().is_blocked());
    };
    // Parts go on until `until` holds for the receiver.
    let copy = |from: &mut Hand, to: &mut Hand, until: &dyn Fn(&Hand, &Hand) -> bool| {
        let mut sent = from.step(EngineEvent::SnapshotWanted { shard: HERE, to: OTHER });
        while !until(from, to) {
            for part in sent {
                to.hear(part).into_iter().for_each(|taken| drop(from.hear(taken)));
            }
            sent = from.step(EngineEvent::Timer);
        }
    };

    prepare.outcome(id(21), true);
    let outcome = prepare.close(Epoch(2), Clock(100));
    decide(&mut whole, &[entries.clone(), vec![outcome]].concat());
    let reached = |hand: &Hand| hand.worker.shared.replicas[0].reached();
    assert_eq!(reached(&whole), Clock(100));
    copy(&mut whole, &mut half, &|_, half| {
        half.worker.shared.replicas[0].floor().has(T, KEY, Clock(90))
    });
    let floor = half.worker.shared.replicas[0].floor().claims_above(Clock::ZERO);
    assert_eq!((floor.len(), floor[0].cut, floor[1].cut), (2, Clock(100), Clock::ZERO));

    decide(&mut half, &entries);
    assert_eq!(reached(&half), Clock(20));
    decide(&mut receiver, &entries[..written]);
    copy(&mut half, &mut receiver, &|half, _| half.snapshot.is_some());
    let (length, state) = half.snapshot.take().expect("seen above");
    assert!(length > written as u64, "it stands for the deletion: {length}");
    assert!(receiver.worker.may_restore(HERE, OTHER, length, &state));
    receiver.step(EngineEvent::Restored { shard: HERE, state });
    let mut session = receiver.worker.shared.replicas[0].store.session().expect("one more");
    let mut find = |key: &[u8]| {
        let transaction = session.begin();
        transaction.get(T, key).expect("no lock is left").map(<[u8]>::to_vec)
    };
    for key in [b"a", b"g", b"k"] {
        assert_eq!(find(key).as_deref(), Some(&b"row"[..]), "{key:?}");
    }
    find(KEY)
}

#[test]
fn half_a_copy_is_given_on_as_what_it_is() {
    assert_eq!(copy_by_a_replica_with_half_a_copy(PlantedBugs::NONE), None);
}

#[test]
fn a_copy_with_one_cut_brings_back_what_was_deleted() {
    let faults = PlantedBugs::only(TwoPhaseCommitPlantedBug::CopyWithOneCut);
    assert!(copy_by_a_replica_with_half_a_copy(faults).is_some());
}
