//! What is too large to be committed.

use crate::cluster::{Cluster, T, granule};
use bytes::Bytes;
use shoal_types::{NodeId, Time, WorkerId};
use shoal_zeus::granule::GRANULE_BYTES_MAX;
use shoal_zeus::message::GranuleWrites;
use shoal_zeus::rows::RowWrite;
use shoal_zeus::version::Slot;
use shoal_zeus::{CommitRefusal, Level, LocalCommit, Ticket, Want, ZeusOptions};

const OWNER: NodeId = NodeId(0);

/// A cluster in which one node owns these granules.
fn owning(names: &[String]) -> Cluster {
    let mut cluster = Cluster::new(3, 1, ZeusOptions::default());
    (0..3).for_each(|node| cluster.hear(NodeId(node)));
    cluster.settle();
    let granules = names.iter().map(|name| (granule(name), Level::Owner)).collect();
    let want = Want { granules, born: Time(1) };
    cluster.step(OWNER, |node, now| node.want(now, Ticket(1), want));
    cluster.settle();
    cluster
}

/// Writes values of so many bytes, or deletes: each row of the granule that its key begins with.
fn commit(cluster: &mut Cluster, rows: &[(String, Option<usize>)]) -> Result<Slot, CommitRefusal> {
    let writes = rows.iter().map(|(key, bytes)| {
        let (table, key) = (T, Bytes::copy_from_slice(key.as_bytes()));
        let value = bytes.map(|bytes| Bytes::from(vec![0; bytes]));
        let name = String::from_utf8(key[..1].to_vec()).expect("a name");
        GranuleWrites { granule: granule(&name), rows: vec![RowWrite { table, key, value }] }
    });
    let commit = LocalCommit {
        worker: WorkerId(0),
        born: Time(1),
        tag: 1,
        reads: Vec::new(),
        scans: Vec::new(),
        writes: writes.collect(),
    };
    let done = cluster.step(OWNER, |node, now| node.commit(now, commit)).expect("it is up");
    cluster.settle();
    done
}

/// Only growth beyond the limit is refused: a full granule can be rewritten and emptied.
#[test]
fn a_full_granule_takes_what_does_not_grow() {
    let mut cluster = owning(&["a".to_owned()]);
    let row = |key: &str, bytes| [(key.to_owned(), bytes)];
    let full = Err(CommitRefusal::GranuleFull(granule("a")));
    let fits = GRANULE_BYTES_MAX - "a/x".len();
    assert_eq!(commit(&mut cluster, &row("a/x", Some(fits + 1))), full);
    assert_eq!(commit(&mut cluster, &row("a/x", Some(fits))), Ok(Slot(1)));
    assert_eq!(commit(&mut cluster, &row("a/y", Some(0))), full);
    assert_eq!(commit(&mut cluster, &row("a/x", Some(fits + 1))), full);
    assert_eq!(commit(&mut cluster, &row("a/x", Some(fits))), Ok(Slot(2)), "it does not grow");
    assert_eq!(commit(&mut cluster, &row("a/y", None)), Ok(Slot(3)), "no row has that key");
    assert_eq!(commit(&mut cluster, &row("a/x", Some(fits - 3))), Ok(Slot(4)));
    assert_eq!(commit(&mut cluster, &row("a/y", Some(0))), Ok(Slot(5)));
    assert_eq!(commit(&mut cluster, &row("a/x", None)), Ok(Slot(6)));
    assert_eq!(commit(&mut cluster, &row("a/z", Some(fits - 3))), Ok(Slot(7)));
    assert_eq!(cluster.violation, None);
}

/// Nodes learn of a drop one after the other: what the first ones have forgotten is not given to the others as something new.
#[test]
fn what_is_dropped_is_freed() {
    let mut cluster = owning(&["a".to_owned(), "b".to_owned()]);
    let row = |key: &str| [(key.to_owned(), Some(8))];
    assert_eq!(commit(&mut cluster, &row("a/x")), Ok(Slot(1)));
    cluster.drop_table(NodeId(1));
    cluster.drop_table(OWNER);
    let names = ["a", "b", "c"].map(|name| (granule(name), Level::Owner));
    let want = Want { granules: names.into_iter().collect(), born: Time(2) };
    cluster.step(NodeId(2), |node, now| node.want(now, Ticket(2), want));
    cluster.settle();
    assert!(!cluster.up(NodeId(2)).expect("it is up").has_all(Ticket(2)));
    cluster.step(NodeId(2), |node, now| node.release(now, Ticket(2)));
    cluster.drop_table(NodeId(2));
    for node in (0..3).map(NodeId) {
        let up = cluster.up(node).expect("it is up");
        assert_eq!(up.ownership().holdings().count(), 0, "{node}");
        assert!(up.rows().granule(&granule("a")).is_none(), "{node}");
    }
    assert_eq!(cluster.violation, None);
}

/// A slot that no frame can carry would never be acknowledged, and hold up all later slots of its worker.
#[test]
fn a_slot_larger_than_a_frame_is_refused() {
    let names: Vec<String> = (b'0'..b'0' + 40).map(|name| char::from(name).to_string()).collect();
    let mut cluster = owning(&names);
    let rows = |count: usize| {
        let rows = names[..count].iter().map(|name| (format!("{name}/x"), Some(1_000_000)));
        rows.collect::<Vec<_>>()
    };
    let refused = commit(&mut cluster, &rows(17));
    assert!(
        matches!(refused, Err(CommitRefusal::TooManyBytes(bytes)) if bytes > 17_000_000),
        "{refused:?}"
    );
    assert_eq!(commit(&mut cluster, &rows(16)), Ok(Slot(1)));
    assert_eq!(cluster.violation, None);
}
