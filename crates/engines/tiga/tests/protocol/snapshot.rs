//! Snapshots: a replica that has lost its memory, or entries that were cut, goes on where another one is (rule T22).

use super::cluster::{CLIENT, Cluster, HEADROOM, submit};
use bytes::Bytes;
use shoal_engine::PlantedBugs;
use shoal_store::{CopyPart, WalkPlace};
use shoal_tiga::TigaPlantedBug;
use shoal_tiga::ledger::Ledger;
use shoal_tiga::observation::Path;
use shoal_tiga::snapshot::{PartContents, SnapshotInProgress, head_part, is_of_head};
use shoal_types::{NodeId, ShardId};

const LEADER: NodeId = NodeId(0);
const FOLLOWER: NodeId = NodeId(2);
const SMALL: CopyPart = CopyPart { records_max: 1, bytes_max: 1 };
const LARGE: CopyPart = CopyPart { records_max: usize::MAX, bytes_max: usize::MAX };

fn ledger(cluster: &mut Cluster) -> &mut Ledger {
    cluster.node_mut(LEADER).replica_mut(ShardId(0)).expect("has it").ledger_mut()
}

/// The leader's snapshot, with `between` after each part but the last.
fn snapshot(
    cluster: &mut Cluster,
    part: CopyPart,
    bugs: PlantedBugs<TigaPlantedBug>,
    mut between: impl FnMut(&mut Cluster),
) -> Vec<PartContents> {
    ledger(cluster).begin_copy(1);
    let (mut parts, mut from) = (Vec::new(), WalkPlace::default());
    while !is_of_head(&from) {
        let (contents, next) = ledger(cluster).copy_part(&from, part);
        parts.push(contents);
        from = next;
        between(cluster);
    }
    let head: Bytes = ledger(cluster).head(1, bugs);
    let mut next = Some(from);
    while let Some(from) = next {
        let (contents, after) = head_part(&head, &from, part);
        parts.push(contents);
        next = after;
    }
    ledger(cluster).end_copies(|copy| copy == 1);
    parts
}

fn made_of(parts: Vec<PartContents>) -> Ledger {
    let mut snapshot = SnapshotInProgress::default();
    parts.into_iter().for_each(|part| snapshot.take(part));
    snapshot.ledger(ShardId(0)).expect("a snapshot")
}

/// A cluster with rows, with transactions that are not settled, and others above the seal.
fn used() -> Cluster {
    let mut cluster = Cluster::new();
    for key in 1..20 {
        cluster.increment(&[key, 101]);
    }
    cluster.settle();
    cluster.increment(&[1, 102]);
    cluster.increment(&[2, 3]);
    step(&mut cluster);
    cluster
}

/// A moment, in which all goes on.
fn step(cluster: &mut Cluster) {
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    cluster.sync(0, NodeId(1));
    cluster.decide(0);
}

/// Whether a snapshot whose rows change while it is taken is the leader's state when it is whole.
fn is_of_one_time(bugs: PlantedBugs<TigaPlantedBug>) -> bool {
    let mut cluster = used();
    let mut key = 0;
    let parts = snapshot(&mut cluster, SMALL, bugs, |cluster| {
        key = key % 19 + 1;
        cluster.increment(&[key]);
        step(cluster);
    });
    assert!(parts.len() > 20, "{} parts", parts.len());
    let now = snapshot(&mut cluster, LARGE, PlantedBugs::NONE, |_| ());
    let mut made = made_of(parts);
    std::mem::swap(ledger(&mut cluster), &mut made);
    let copied = snapshot(&mut cluster, LARGE, PlantedBugs::NONE, |_| ());
    copied == now
}

#[test]
fn a_snapshot_is_the_state_at_one_length() {
    assert!(is_of_one_time(PlantedBugs::NONE));
    assert!(!is_of_one_time(PlantedBugs::only(TigaPlantedBug::SnapshotWithoutChanges)));
    assert!(!is_of_one_time(PlantedBugs::only(TigaPlantedBug::SnapshotWithoutRecords)));
}

#[test]
fn a_replica_votes_as_others_do_behind_a_snapshot() {
    let mut cluster = used();
    let parts = snapshot(&mut cluster, SMALL, PlantedBugs::NONE, |_| ());
    cluster.restore(0, FOLLOWER, made_of(parts));
    assert_eq!(cluster.value(FOLLOWER, 5), Some(1));
    let id = cluster.increment(&[1, 5]);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    let path = cluster.path(id);
    assert_eq!(path, Some(Path::Fast), "all three have voted alike");
    cluster.settle();
    assert_eq!((cluster.value(FOLLOWER, 1), cluster.value(FOLLOWER, 5)), (Some(3), Some(2)));
}

/// What stands in the log up to the snapshot is not voted for again. How often it is.
#[test]
fn what_a_snapshot_has_is_not_voted_for_again() {
    let votes = |bugs| {
        let mut cluster = used();
        let known = cluster.incrementing(&[7]);
        let t = cluster.time() + HEADROOM;
        cluster.repeat(CLIENT, LEADER, submit(t, &known));
        step(&mut cluster);
        cluster.pass(HEADROOM);
        step(&mut cluster);
        let parts = snapshot(&mut cluster, SMALL, bugs, |_| ());
        cluster.restore(0, FOLLOWER, made_of(parts));
        let given = |cluster: &Cluster| {
            let replica = cluster.node(FOLLOWER).replica(ShardId(0)).expect("has it");
            replica.counters().votes
        };
        let before = given(&cluster);
        cluster.repeat(CLIENT, FOLLOWER, submit(t, &known));
        cluster.deliver(|_, to, _| to == FOLLOWER);
        given(&cluster) - before
    };
    assert_eq!(votes(PlantedBugs::NONE), 0);
    assert_eq!(votes(PlantedBugs::only(TigaPlantedBug::SnapshotWithoutRecords)), 1);
}
