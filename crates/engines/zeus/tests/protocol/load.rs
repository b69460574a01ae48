//! A transaction that writes hundreds of new granules, as one of a load does: it ends, and takes a bounded number of messages
//! for each granule, even if nodes take their messages more slowly than they send again what is not answered.

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

#[test]
fn a_load_of_many_granules_ends() {
    let mut cluster = Cluster::new(3, 1, ZeusOptions::default());
    (0..3).for_each(|node| cluster.hear(NodeId(node)));
    cluster.settle();
    let (node, born) = (NodeId(1), cluster.clock_of(NodeId(1)));
    let granules = (0..GRANULES).map(|number| (granule(number), Level::Owner)).collect();
    cluster.step(node, |node, now| node.want(now, Ticket(1), Want { granules, born }));
    let mut messages = 0;
    while !cluster.up(node).expect("it is up").has_all(Ticket(1)) {
        cluster.wait(MESSAGE);
        let taken = cluster.deliveries.len().min(1);
        let first: Vec<Delivery> = cluster.deliveries.drain(..taken).collect();
        messages += first.len();
        first.into_iter().for_each(|delivery| cluster.deliver(delivery));
        assert!(messages < MESSAGES_PER_GRANULE * usize::from(GRANULES), "{messages} messages");
    }
    let writes = (0..GRANULES).map(|number| {
        let key = Bytes::copy_from_slice(&[number, 1]);
        let row = RowWrite { table: T, key: key.clone(), value: Some(key) };
        GranuleWrites { granule: granule(number), rows: vec![row] }
    });
    let commit = LocalCommit {
        worker: WorkerId(0),
        born,
        tag: 1,
        reads: Vec::new(),
        scans: Vec::new(),
        writes: writes.collect(),
    };
    let slot = cluster.step(node, |node, now| node.commit(now, commit));
    slot.expect("it is up").expect("it owns all that it writes");
    cluster.settle();
    assert_eq!(cluster.validated.len(), 1);
    assert_eq!(cluster.violation, None);
}
