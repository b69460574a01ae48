//! Copies of a shard for a replica that lacks what its streams have no more.

use super::*;
use shoal_replication::codec::WriteRef;
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
