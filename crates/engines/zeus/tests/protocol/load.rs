//! Hundreds of granules at once, at nodes that take their messages more slowly than they send again what is not answered: a
//! transaction that writes all of them, as one of a load does, ends, and takes a bounded number of messages for each granule;
//! and a node that corrects the degree of all of them keeps no node busy.

use crate::cluster::{Cluster, Delivery, T};
use bytes::Bytes;
use shoal_types::{NodeId, WorkerId};
use shoal_zeus::message::GranuleWrites;
use shoal_zeus::rows::RowWrite;
use shoal_zeus::{GranuleId, Level, LocalCommit, Ticket, Want, ZeusOptions};
use std::time::Duration;

const GRANULES: u8 = 160;

/// A node takes a message in this time: all that the load sends takes far longer than the waits before something is sent
/// again.
const MESSAGE: Duration = Duration::from_micros(40);

/// A request, two invalidations, three acknowledgements and two validations, of which some are sent again.
const MESSAGES_PER_GRANULE: usize = 12;

fn granule(number: u8) -> GranuleId {
    GranuleId { family: T, prefix: Bytes::copy_from_slice(&[number]) }
}

/// So many messages may be under way while degrees are corrected. A node takes them within 4 ms.
const UNDER_WAY_MAX: usize = 100;

/// The node that loads.
const LOADER: NodeId = NodeId(1);

/// A cluster in which the loader wants all granules.
fn wanting(nodes: u32) -> Cluster {
    let mut cluster = Cluster::new(nodes, 1, ZeusOptions::default());
    (0..nodes).for_each(|node| cluster.hear(NodeId(node)));
    cluster.settle();
    let born = cluster.clock_of(LOADER);
    let granules = (0..GRANULES).map(|number| (granule(number), Level::Owner)).collect();
    cluster.step(LOADER, |node, now| node.want(now, Ticket(1), Want { granules, born }));
    cluster
}

/// Time passes in which a node takes a message.
fn deliver_one(cluster: &mut Cluster) -> usize {
    cluster.wait(MESSAGE);
    let taken = cluster.deliveries.len().min(1);
    let first: Vec<Delivery> = cluster.deliveries.drain(..taken).collect();
    first.into_iter().for_each(|delivery| cluster.deliver(delivery));
    taken
}

/// The loader writes a row of each granule, and wants nothing any more.
fn commit(cluster: &mut Cluster) {
    let writes = (0..GRANULES).map(|number| {
        let key = Bytes::copy_from_slice(&[number, 1]);
        let row = RowWrite { table: T, key: key.clone(), value: Some(key) };
        GranuleWrites { granule: granule(number), rows: vec![row] }
    });
    let commit = LocalCommit {
        worker: WorkerId(0),
        born: cluster.clock_of(LOADER),
        tag: 1,
        reads: Vec::new(),
        scans: Vec::new(),
        writes: writes.collect(),
    };
    let slot = cluster.step(LOADER, |node, now| node.commit(now, commit));
    slot.expect("it is up").expect("it owns all that it writes");
    cluster.step(LOADER, |node, now| node.release(now, Ticket(1)));
    cluster.settle();
    assert_eq!(cluster.validated.len(), 1);
}

#[test]
fn a_load_of_many_granules_ends() {
    let mut cluster = wanting(3);
    let mut messages = 0;
    while !cluster.up(LOADER).expect("it is up").has_all(Ticket(1)) {
        messages += deliver_one(&mut cluster);
        assert!(messages < MESSAGES_PER_GRANULE * usize::from(GRANULES), "{messages} messages");
    }
    commit(&mut cluster);
    assert_eq!(cluster.violation, None);
}

#[test]
fn a_death_that_leaves_many_granules_with_one_reader_floods_no_node() {
    let mut cluster = wanting(4);
    cluster.settle();
    commit(&mut cluster);
    cluster.crash(NodeId(2));
    cluster.begin_epoch(&[NodeId(2)], &[]);
    [0, 1, 3].into_iter().for_each(|node| cluster.hear(NodeId(node)));
    cluster.settle();
    let lacking = |cluster: &Cluster| {
        let loader = cluster.up(LOADER).expect("it is up");
        loader.ownership().holdings().filter(|(_, it)| it.record.readers.len() < 2).count()
    };
    assert_eq!(lacking(&cluster), usize::from(GRANULES));
    let (mut messages, mut most) = (0, 0);
    while lacking(&cluster) > 0 {
        messages += deliver_one(&mut cluster);
        most = most.max(cluster.deliveries.len());
        assert!(messages < 4 * MESSAGES_PER_GRANULE * usize::from(GRANULES), "{messages} messages");
    }
    assert!(most <= UNDER_WAY_MAX, "{most} messages were under way");
    assert_eq!(cluster.violation, None);
}
