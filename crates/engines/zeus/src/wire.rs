//! Tests of the bytes that nodes send: they are read as they were written, and neither any bytes nor any messages make a
//! node panic.

use crate::granule::GranuleId;
use crate::message::{
    CarriedPart, CopiedRecord, DirectoryCopy, GranuleWrites, Inv, MessageBody, OwnershipAck,
    OwnershipRequest, PartRequest, ReplicationInv, ZeusMessage,
};
use crate::record::{OwnershipRecord, OwnershipTs, RequestKind, Requested};
use crate::rows::{CarriedRow, RowWrite};
use crate::version::{PipelineId, Slot, Version, WorkerPipeline};
use crate::view::{Directory, Member, View};
use crate::{GranuleLayout, Placement, ZeusNode, ZeusOptions};
use bytes::Bytes;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_types::wire::check::{returns, withstands};
use shoal_types::{Clock, Epoch, NodeId, ShardId, TableId, Time, WorkerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn short_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..9).prop_map(Bytes::from)
}

fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(number, less)| number >> less)
}

fn granule() -> impl Strategy<Value = GranuleId> {
    (any::<u32>(), short_bytes())
        .prop_map(|(family, prefix)| GranuleId { family: TableId(family), prefix })
}

fn o_ts() -> impl Strategy<Value = OwnershipTs> {
    (number(), any::<u32>(), any::<u32>()).prop_map(|(version, epoch, driver)| OwnershipTs {
        version,
        epoch: Epoch(epoch),
        driver: NodeId(driver),
    })
}

fn record() -> impl Strategy<Value = OwnershipRecord> {
    let readers = btree_set((0..9_u32).prop_map(NodeId), 0..4);
    (o_ts(), option::of(0..9_u32), readers).prop_map(|(o_ts, owner, readers)| {
        let owner = owner.map(NodeId).filter(|owner| !readers.contains(owner));
        OwnershipRecord { o_ts, owner, readers }
    })
}

fn member() -> impl Strategy<Value = Member> {
    any::<[u32; 2]>().prop_map(|[node, since]| Member { node: NodeId(node), since: Epoch(since) })
}

fn pipeline() -> impl Strategy<Value = PipelineId> {
    (member(), any::<u32>(), any::<u32>()).prop_map(|(coordinator, worker, number)| PipelineId {
        coordinator,
        of: WorkerPipeline { worker: WorkerId(worker), number },
    })
}

fn version() -> impl Strategy<Value = Version> {
    (number(), pipeline(), number()).prop_map(|(clock, pipeline, slot)| Version {
        clock: Clock(clock),
        pipeline,
        slot: Slot(slot),
    })
}

fn kind() -> impl Strategy<Value = RequestKind> {
    (0..4, any::<u32>()).prop_map(|(variant, reader)| match variant {
        0 => RequestKind::Own,
        1 => RequestKind::Read,
        2 => RequestKind::Leave,
        _ => RequestKind::Drop(NodeId(reader)),
    })
}

fn waited() -> impl Strategy<Value = Duration> {
    (0..1_000_000_u64).prop_map(Duration::from_micros)
}

fn inv() -> impl Strategy<Value = Inv> {
    let records = (record(), record(), 1..5_u64);
    let nodes =
        (btree_set((0..9_u32).prop_map(NodeId), 0..4), option::of(any::<u32>()), any::<u32>());
    (granule(), records, kind(), member(), number(), waited(), nodes).prop_map(
        |(granule, (mut record, mut replaced, more), kind, by, number, waited, nodes)| {
            replaced.o_ts.version /= 2;
            record.o_ts.version = replaced.o_ts.version + more;
            let (arbiters, source, answer_to) = nodes;
            Inv {
                granule,
                record,
                replaced,
                requested: Requested { kind, by },
                number,
                waited,
                arbiters,
                source: source.map(NodeId),
                answer_to: NodeId(answer_to),
            }
        },
    )
}

fn part() -> impl Strategy<Value = CarriedPart> {
    let row = (any::<u32>(), short_bytes(), version(), short_bytes()).prop_map(
        |(table, key, version, value)| CarriedRow { table: TableId(table), key, version, value },
    );
    (number(), vec(row, 0..3), any::<bool>()).prop_map(|(clock, rows, is_last)| {
        let is_last = is_last || rows.is_empty();
        CarriedPart { clock: Clock(clock), rows, is_last }
    })
}

fn part_request() -> impl Strategy<Value = PartRequest> {
    (granule(), o_ts(), any::<u32>(), short_bytes()).prop_map(|(granule, o_ts, table, key)| {
        PartRequest { granule, o_ts, after: (TableId(table), key) }
    })
}

fn writes() -> impl Strategy<Value = GranuleWrites> {
    let row = (any::<u32>(), short_bytes(), option::of(short_bytes()))
        .prop_map(|(table, key, value)| RowWrite { table: TableId(table), key, value });
    (granule(), vec(row, 0..3)).prop_map(|(granule, rows)| GranuleWrites { granule, rows })
}

fn ownership_body() -> impl Strategy<Value = MessageBody> {
    prop_oneof![
        (number(), granule(), kind(), o_ts(), waited()).prop_map(
            |(number, granule, kind, as_of, waited)| {
                MessageBody::Request(OwnershipRequest { number, granule, kind, as_of, waited })
            }
        ),
        (granule(), record(), any::<bool>()).prop_map(|(granule, record, is_pending)| {
            MessageBody::Nack { granule, record, is_pending }
        }),
        inv().prop_map(MessageBody::Inv),
        (inv(), option::of(part()))
            .prop_map(|(inv, rows)| MessageBody::Ack(OwnershipAck { inv, rows })),
        (granule(), record()).prop_map(|(granule, record)| MessageBody::Val { granule, record }),
        (granule(), o_ts()).prop_map(|(granule, o_ts)| MessageBody::Recruit { granule, o_ts }),
        part_request().prop_map(MessageBody::PartRequest),
        (part_request(), part()).prop_map(|(request, part)| MessageBody::Part { request, part }),
    ]
}

fn commit_body() -> impl Strategy<Value = MessageBody> {
    let followers = btree_set((0..9_u32).prop_map(NodeId), 0..4);
    let inv = (pipeline(), number(), any::<bool>(), followers, number(), vec(writes(), 0..3));
    let inv = inv.prop_map(|(pipeline, slot, previous_validated, followers, clock, writes)| {
        let (slot, clock) = (Slot(slot.max(1)), Clock(clock));
        ReplicationInv { pipeline, slot, previous_validated, followers, clock, writes }
    });
    prop_oneof![
        inv.prop_map(MessageBody::ReplicationInv),
        (pipeline(), number()).prop_map(|(pipeline, slot)| {
            MessageBody::ReplicationAck { pipeline, slot: Slot(slot) }
        }),
        (pipeline(), number()).prop_map(|(pipeline, slot)| {
            MessageBody::ReplicationVal { pipeline, slot: Slot(slot) }
        }),
    ]
}

fn recovery_body() -> impl Strategy<Value = MessageBody> {
    let record = (granule(), record(), any::<[bool; 2]>(), option::of(inv()));
    let record = record.prop_map(|(granule, record, [serves, is_acknowledged], pending)| {
        CopiedRecord { granule, record, serves, pending, is_acknowledged }
    });
    let copy = (any::<u32>(), option::of(granule()), any::<[bool; 3]>(), vec(record, 0..3));
    let copy = copy.prop_map(|(shard, after, [is_directory, is_rebuilt, is_last], records)| {
        DirectoryCopy { shard: ShardId(shard), after, is_directory, is_rebuilt, records, is_last }
    });
    prop_oneof![
        Just(MessageBody::Replayed),
        Just(MessageBody::ReplayedHeard),
        (any::<u32>(), option::of(granule())).prop_map(|(shard, after)| {
            MessageBody::CopyRequest { shard: ShardId(shard), after }
        }),
        copy.prop_map(MessageBody::Copy),
        any::<u32>().prop_map(|shard| MessageBody::CopyQuery { shard: ShardId(shard) }),
        any::<u32>().prop_map(|shard| MessageBody::CopyDone { shard: ShardId(shard) }),
    ]
}

fn body() -> impl Strategy<Value = MessageBody> {
    prop_oneof![ownership_body(), commit_body(), recovery_body()]
}

/// A message about a granule that there is, and most numbers small.
fn known_body() -> impl Strategy<Value = MessageBody> {
    body().prop_map(|mut body| {
        let known = |granule: &mut GranuleId| {
            granule.family = TableId(0);
            granule.prefix = Bytes::from_static(b"g");
        };
        let known_inv = |inv: &mut Inv| {
            known(&mut inv.granule);
            inv.requested.by = Member { node: NodeId(inv.answer_to.0 % 3), since: Epoch(1) };
            inv.answer_to = inv.requested.by.node;
        };
        match &mut body {
            MessageBody::Request(request) => known(&mut request.granule),
            MessageBody::Nack { granule, .. }
            | MessageBody::Val { granule, .. }
            | MessageBody::Recruit { granule, .. } => known(granule),
            MessageBody::PartRequest(request) | MessageBody::Part { request, .. } => {
                known(&mut request.granule);
            }
            MessageBody::Inv(inv) => known_inv(inv),
            MessageBody::Ack(ack) => known_inv(&mut ack.inv),
            MessageBody::ReplicationInv(inv) => {
                inv.writes.iter_mut().for_each(|writes| known(&mut writes.granule));
            }
            MessageBody::CopyRequest { shard, .. }
            | MessageBody::CopyQuery { shard }
            | MessageBody::CopyDone { shard } => *shard = ShardId(0),
            MessageBody::Copy(copy) => {
                copy.shard = ShardId(0);
                for record in &mut copy.records {
                    known(&mut record.granule);
                    record.pending.as_mut().into_iter().for_each(known_inv);
                }
            }
            MessageBody::ReplicationAck { .. }
            | MessageBody::ReplicationVal { .. }
            | MessageBody::Replayed
            | MessageBody::ReplayedHeard => {}
        }
        body
    })
}

/// A node of three that keep the directory of one shard.
fn node() -> ZeusNode {
    let topology = Topology::compact(1, 1, 3, 0, 1);
    let tables = [("t", Partitioning::Hash { prefix_bytes: 1 })];
    let topology = topology.with_tables(tables).expect("a valid topology");
    let layout = GranuleLayout::of(&topology);
    let placement = Placement { topology: Arc::new(topology), layout };
    let mut node = ZeusNode::new(NodeId(0), 1, placement, ZeusOptions::default(), 1);
    let nodes = [0, 1, 2].map(NodeId).to_vec();
    node.enter(
        Time(1),
        View {
            epoch: Epoch(1),
            members: nodes.iter().map(|node| (*node, Epoch(1))).collect(),
            directories: vec![Directory {
                leader: NodeId(0),
                nodes,
                added: BTreeMap::new(),
                is_first: true,
            }],
        },
    );
    node
}

fn message() -> impl Strategy<Value = ZeusMessage> {
    (any::<u32>(), body()).prop_map(|(epoch, body)| ZeusMessage { epoch: Epoch(epoch), body })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_return_as_they_were_sent(message in message()) {
        returns(&message);
    }

    /// Well-formed messages that no correct node sends, in any order, do not stop a node.
    #[test]
    fn no_messages_make_a_node_panic(bodies in vec((0..3_u32, known_body()), 0..40)) {
        let mut node = node();
        for (number, (from, body)) in (1..).zip(bodies) {
            let now = Time(number * 1_000_000);
            node.receive(now, NodeId(from), [ZeusMessage { epoch: Epoch(1), body }]);
            node.tick(now);
            node.take_effects();
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in vec(any::<u8>(), 0..200)) {
        withstands::<ZeusMessage>(&Bytes::from(bytes));
    }
}
