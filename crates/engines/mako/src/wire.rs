//! Tests of the bytes that workers send: they stay as they are, and any bytes are read without a panic. A
//! request that carries little has some fifteen bytes.

use super::message::{MakoMessage, MakoReply, MakoRequest};
use crate::message::{ChunkContents, ChunkRow, SnapshotChunk, UndecidedRow};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::operation::{Operation, OperationResult};
use shoal_engine::transaction_id::TransactionId;
use shoal_engine::wire::strategies::{answered, error, header, number, operation, relay};
use shoal_store::Change;
use shoal_types::wire::check::{returns, withstands};
use shoal_types::wire::encode;
use shoal_types::{
    Clock, Epoch, Error, NodeId, ShardId, Stamp, TableId, VectorWatermark, WorkerId,
};

fn stamp() -> impl Strategy<Value = Stamp> {
    let entries = vec((any::<u32>(), number()), 0..4);
    (any::<u32>(), number(), entries).prop_map(|(epoch, clock, entries)| {
        let mut stamp = Stamp::local(Epoch(epoch), Clock(clock));
        for (shard, clock) in entries {
            stamp.push(ShardId(0), ShardId(shard), Clock(clock));
        }
        stamp
    })
}

fn request() -> impl Strategy<Value = MakoRequest> {
    let parts = (0..6, vec(operation(), 0..4), any::<bool>(), stamp());
    parts.prop_map(|(variant, operations, flag, stamp)| match variant {
        0 => MakoRequest::Execute { operations },
        1 => MakoRequest::Lock { operations, validate: flag },
        2 => MakoRequest::Validate { last: flag },
        3 => MakoRequest::Commit { operations, install: flag },
        4 => MakoRequest::Install { stamp },
        _ => MakoRequest::Abort,
    })
}

fn reply() -> impl Strategy<Value = MakoReply> {
    let parts = (0..6, vec(answered(), 0..4), number(), stamp(), error());
    parts.prop_map(|(variant, answers, clock, stamp, error)| match variant {
        0 => MakoReply::Executed { answers, dependencies: stamp },
        1 => MakoReply::Locked { clock: Clock(clock), dependencies: stamp },
        2 => MakoReply::Validated,
        3 => MakoReply::Certified { stamp },
        4 => MakoReply::Resolved,
        _ => MakoReply::Refused { error },
    })
}

fn watermark() -> impl Strategy<Value = VectorWatermark> {
    (any::<u32>(), vec(number(), 0..5)).prop_map(|(epoch, clocks)| {
        let mut watermark = VectorWatermark::new(Epoch(epoch), clocks.len());
        for (shard, clock) in (0..).map(ShardId).zip(clocks) {
            watermark.raise(shard, Clock(clock));
        }
        watermark
    })
}

fn gossip() -> impl Strategy<Value = MakoMessage> {
    let parts = (watermark(), vec(any::<u32>(), 0..3), number());
    parts.prop_map(|(watermark, ended, floor)| {
        let ended = ended.into_iter().map(ShardId).collect();
        MakoMessage::Gossip { watermark, ended, floor: Clock(floor) }
    })
}

fn place() -> impl Strategy<Value = (TableId, Bytes)> {
    let parts = (any::<u32>(), vec(any::<u8>(), 0..4));
    parts.prop_map(|(table, key)| (TableId(table), key.into()))
}

fn part() -> impl Strategy<Value = MakoMessage> {
    let row = (place(), any::<u32>(), number(), vec(any::<u8>(), 0..9));
    let row = row.prop_map(|((table, key), epoch, clock, value)| ChunkRow {
        table,
        epoch: Epoch(epoch),
        clock: Clock(clock),
        key,
        value: value.into(),
    });
    let numbers = (any::<u32>(), number(), number());
    let watermarks = vec(watermark(), 0..2);
    let ranges = (place(), proptest::option::of(place()));
    let value = proptest::option::of(vec(any::<u8>(), 0..9));
    let undecided = (place(), any::<u32>(), number(), value);
    let undecided = undecided.prop_map(|((table, key), epoch, clock, value)| UndecidedRow {
        table,
        key,
        change: Change::of(value.map(Bytes::from)),
        stamp: Stamp::local(Epoch(epoch), Clock(clock)),
    });
    let rows = (vec(row, 0..3), vec(undecided, 0..3));
    let parts = (numbers, ranges, any::<u32>(), watermarks, rows);
    parts.prop_map(|((shard, copy, cut), (from, until), settled, watermarks, rows)| {
        let (shard, cut, settled) = (ShardId(shard), Clock(cut), Epoch(settled));
        let (rows, undecided) = rows;
        MakoMessage::Chunk(SnapshotChunk {
            shard,
            copy,
            cut,
            from,
            until,
            contents: ChunkContents {
                settled,
                forgotten: Epoch(settled.0 / 2),
                watermarks,
                rows,
                undecided,
            },
        })
    })
}

fn message() -> impl Strategy<Value = MakoMessage> {
    prop_oneof![
        (header(), request())
            .prop_map(|(header, request)| MakoMessage::Request { header, request }),
        (header(), reply()).prop_map(|(BranchHeader { transaction, shard, step, .. }, reply)| {
            MakoMessage::Reply { transaction, shard, step, reply }
        }),
        relay().prop_map(MakoMessage::Relay),
        gossip(),
        part(),
        (any::<u32>(), number(), proptest::option::of(place())).prop_map(
            |(shard, copy, reached)| {
                MakoMessage::ChunkTaken { shard: ShardId(shard), copy, reached }
            }
        ),
    ]
}

proptest! {
    #[test]
    fn messages_return(message in message()) {
        returns(&message);
    }

    #[test]
    fn any_bytes_are_withstood(
        variant in 0..7_u8,
        mut bytes in vec(any::<u8>(), 1..80),
    ) {
        bytes[0] = variant;
        withstands::<MakoMessage>(&bytes.into());
    }
}

/// Workers of other releases send and decode these bytes.
#[test]
fn forms_stay_as_they_are() {
    let transaction = TransactionId { node: NodeId(1), worker: WorkerId(2), sequence: 300 };
    let shard = ShardId(3);
    let (epoch, leadership) = (Epoch(4), Epoch(1));
    let header = BranchHeader { transaction, shard, step: 2, oldest: 299, epoch, leadership };
    let form = [0, 1, 2, 0xac, 2, 3, 2, 0xab, 2, 4, 1];
    let mut stamp = Stamp::local(epoch, Clock(9));
    stamp.push(shard, ShardId(0), Clock(7));
    let operations = vec![Operation::Get { table: TableId(1), key: "k".into() }];
    for (request, rest) in [
        (MakoRequest::Execute { operations: operations.clone() }, &[0, 1, 0, 1, 1, b'k'][..]),
        (MakoRequest::Lock { operations: Vec::new(), validate: true }, &[1, 0, 1]),
        (MakoRequest::Validate { last: false }, &[2, 0]),
        (MakoRequest::Commit { operations: Vec::new(), install: true }, &[3, 0, 1]),
        (MakoRequest::Install { stamp: stamp.clone() }, &[4, 4, 9, 1, 0, 7]),
        (MakoRequest::Abort, &[5]),
    ] {
        let message = MakoMessage::Request { header, request };
        assert_eq!(encode(&message)[..], [&form[..], rest].concat());
    }
    let form = [1, 1, 2, 0xac, 2, 3, 2];
    let answers = vec![Ok(OperationResult::Value(Some("v".into()))), Ok(OperationResult::Done)];
    for (reply, rest) in [
        (
            MakoReply::Executed { answers, dependencies: stamp.clone() },
            &[0, 2, 0, 0, 1, 1, b'v', 0, 2, 4, 9, 1, 0, 7][..],
        ),
        (
            MakoReply::Locked { clock: Clock(10), dependencies: stamp.clone() },
            &[1, 10, 4, 9, 1, 0, 7],
        ),
        (MakoReply::Validated, &[2]),
        (MakoReply::Certified { stamp }, &[3, 4, 9, 1, 0, 7]),
        (MakoReply::Resolved, &[4]),
        (MakoReply::Refused { error: Error::reject("") }, &[5, 1, 16, 0]),
    ] {
        let message = MakoMessage::Reply { transaction, shard, step: 2, reply };
        assert_eq!(encode(&message)[..], [&form[..], rest].concat());
    }
    let watermark = VectorWatermark::whole(epoch, 1);
    let gossip = MakoMessage::Gossip { watermark, ended: vec![shard], floor: Clock(5) };
    let whole = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let form = [&[3, 4, 1][..], &whole, &[1, 3, 0, 0, 0, 5]].concat();
    assert_eq!(encode(&gossip)[..], form);
    let (table, cut) = (TableId(1), Clock(8));
    let (key, value) = ("k".into(), "v".into());
    let rows = vec![ChunkRow { table, epoch, clock: Clock(7), key, value }];
    let (from, until) = ((table, "".into()), Some((table, "l".into())));
    let watermarks = vec![VectorWatermark::new(epoch, 1)];
    let (key, mut stamp) = ("k".into(), Stamp::local(epoch, Clock(9)));
    stamp.push(shard, ShardId(0), Clock(7));
    let undecided = vec![UndecidedRow { table, key, change: Change::Delete, stamp }];
    let (settled, forgotten) = (Epoch(3), Epoch(2));
    let part = SnapshotChunk {
        shard,
        copy: 6,
        cut,
        from,
        until,
        contents: ChunkContents { settled, forgotten, watermarks, rows, undecided },
    };
    let form = [4, 3, 6, 0, 0, 0, 0, 0, 0, 0, 8, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, b'l'];
    let form = [&form[..], &[3, 2, 1, 0, 0, 0, 4, 1, 0]].concat();
    let rows = [1, 0, 0, 0, 1, 4, 7, 1, b'k', 1, b'v'];
    let rows = [&rows[..], &[1, 0, 0, 0, 1, 1, b'k', 0, 4, 9, 1, 0, 7]].concat();
    assert_eq!(encode(&MakoMessage::Chunk(part))[..], [&form[..], &rows].concat());
    let taken = MakoMessage::ChunkTaken { shard, copy: 6, reached: None };
    assert_eq!(encode(&taken)[..], [5, 3, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
}
