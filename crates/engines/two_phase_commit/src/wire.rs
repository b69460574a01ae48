//! Tests of the bytes that workers send: they stay as they are, and any bytes are read without a panic.

use super::message::{
    ChunkContents, DecisionHome, Participant, SnapshotChunk, SnapshotRow, SnapshotWrite,
    TwoPhaseCommitMessage, TwoPhaseCommitReply, TwoPhaseCommitRequest,
};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::operation::OperationResult;
use shoal_engine::transaction_id::TransactionId;
use shoal_engine::wire::strategies::{answered, error, header, number, operation, relay};
use shoal_replication::codec::StreamWrite;
use shoal_store::Change;
use shoal_types::wire::check::{returns, withstands};
use shoal_types::wire::encode;
use shoal_types::{Clock, Epoch, NodeId, ShardId, TableId, WorkerId};

fn place(number: u32) -> DecisionHome {
    DecisionHome { shard: ShardId(number), leadership: Epoch(number / 2) }
}

fn request() -> impl Strategy<Value = TwoPhaseCommitRequest> {
    let parts = (0..8, vec(operation(), 0..4), any::<bool>(), any::<u32>());
    parts.prop_map(|(variant, operations, install, home)| match variant {
        0 => TwoPhaseCommitRequest::Execute { operations },
        1 => TwoPhaseCommitRequest::Lock { operations },
        2 => TwoPhaseCommitRequest::Prepare { operations, home: place(home) },
        3 => TwoPhaseCommitRequest::Validate,
        4 => TwoPhaseCommitRequest::OnePhase { operations, install },
        5 => TwoPhaseCommitRequest::Commit,
        6 => TwoPhaseCommitRequest::DecideLast { participants: vec![ShardId(home)] },
        _ => TwoPhaseCommitRequest::Abort,
    })
}

fn reply() -> impl Strategy<Value = TwoPhaseCommitReply> {
    let clock = proptest::option::of(number().prop_map(Clock));
    let parts = (0..6, vec(answered(), 0..4), clock, error());
    parts.prop_map(|(variant, answers, clock, error)| match (variant, clock) {
        (0, _) => TwoPhaseCommitReply::Executed { answers },
        (1, Some(clock)) => TwoPhaseCommitReply::Locked { clock },
        (2, _) => TwoPhaseCommitReply::Validated,
        (3, _) => TwoPhaseCommitReply::Refused { error },
        (4, _) => TwoPhaseCommitReply::Resolved,
        (_, clock) => TwoPhaseCommitReply::Committed { clock },
    })
}

fn message() -> impl Strategy<Value = TwoPhaseCommitMessage> {
    prop_oneof![
        (header(), request())
            .prop_map(|(header, request)| TwoPhaseCommitMessage::Request { header, request }),
        (header(), reply()).prop_map(|(BranchHeader { transaction, shard, step, .. }, reply)| {
            TwoPhaseCommitMessage::Reply { transaction, shard, step, reply }
        }),
        relay().prop_map(TwoPhaseCommitMessage::Relay),
        (header(), any::<u32>(), 0..4).prop_map(|(header, number, variant)| {
            let BranchHeader { transaction, shard, leadership, .. } = header;
            let (home, participant) = (place(number), Participant { shard, leadership });
            match variant {
                0 => TwoPhaseCommitMessage::Inquiry { transaction, home, participant },
                1 => {
                    let home = home.shard;
                    TwoPhaseCommitMessage::Acknowledgement { transaction, home, shard }
                }
                _ => TwoPhaseCommitMessage::Decision {
                    transaction,
                    home: home.shard,
                    participant,
                    committed: variant == 2,
                },
            }
        }),
        (header(), vec(number(), 0..3)).prop_map(|(header, numbers)| {
            let BranchHeader { shard, .. } = header;
            let place = |number: u64| (TableId(number as u32), Bytes::from(vec![1]));
            let reached = numbers.first().map(|number| place(*number));
            TwoPhaseCommitMessage::ChunkTaken { shard, copy: 7, reached }
        }),
        (header(), vec(number(), 0..3)).prop_map(|(header, numbers)| {
            let (shard, key, value) = (header.shard, Bytes::from("k"), Some(Bytes::from("v")));
            let row = |number: &u64| {
                let (table, clock) = (TableId(*number as u32), Clock(*number));
                SnapshotRow { table, clock, key: key.clone(), value: value.clone() }
            };
            let (rows, from) = (numbers.iter().map(row).collect(), (TableId(0), Bytes::new()));
            let transaction = header.transaction;
            let write = |number: &u64| {
                let (table, key) = (TableId(*number as u32), Bytes::from("k"));
                let change = Change::Delete;
                SnapshotWrite { transaction, write: StreamWrite { table, key, change } }
            };
            let (cut, writes) = (Clock(9), numbers.iter().map(write).collect());
            let contents = ChunkContents { rows, writes };
            let (copy, until) = (7, None);
            let chunk = SnapshotChunk { shard, copy, cut, from, until, contents };
            TwoPhaseCommitMessage::Chunk(chunk)
        }),
    ]
}

proptest! {
    #[test]
    fn messages_return(message in message()) {
        returns(&message);
    }

    #[test]
    fn any_bytes_are_withstood(
        variant in 0..9_u8,
        mut bytes in vec(any::<u8>(), 1..80),
    ) {
        bytes[0] = variant;
        withstands::<TwoPhaseCommitMessage>(&bytes.into());
    }
}

/// Workers of other releases send and decode these bytes.
#[test]
fn forms_stay_as_they_are() {
    let transaction = TransactionId { node: NodeId(1), worker: WorkerId(2), sequence: 3 };
    let shard = ShardId(4);
    let (epoch, leadership) = (Epoch(6), Epoch(1));
    let header = BranchHeader { transaction, shard, step: 5, oldest: 2, epoch, leadership };
    let form = [0, 1, 2, 3, 4, 5, 2, 6, 1];
    let operations = Vec::new();
    for (request, rest) in [
        (TwoPhaseCommitRequest::Execute { operations: operations.clone() }, &[0, 0][..]),
        (TwoPhaseCommitRequest::Lock { operations: operations.clone() }, &[1, 0]),
        (
            TwoPhaseCommitRequest::Prepare { operations: operations.clone(), home: place(7) },
            &[2, 0, 7, 3],
        ),
        (TwoPhaseCommitRequest::Validate, &[3]),
        (TwoPhaseCommitRequest::OnePhase { operations, install: true }, &[4, 0, 1]),
        (TwoPhaseCommitRequest::Commit, &[5]),
        (TwoPhaseCommitRequest::Abort, &[6]),
        (
            TwoPhaseCommitRequest::DecideLast { participants: vec![ShardId(2), ShardId(300)] },
            &[7, 2, 2, 0, 0, 0, 44, 1, 0, 0],
        ),
    ] {
        let message = TwoPhaseCommitMessage::Request { header, request };
        assert_eq!(encode(&message)[..], [&form[..], rest].concat());
    }
    let form = [1, 1, 2, 3, 4, 5];
    for (reply, rest) in [
        (
            TwoPhaseCommitReply::Executed { answers: vec![Ok(OperationResult::Done)] },
            &[0, 1, 0, 2][..],
        ),
        (TwoPhaseCommitReply::Locked { clock: Clock(300) }, &[1, 0xac, 2]),
        (TwoPhaseCommitReply::Validated, &[2]),
        (TwoPhaseCommitReply::Committed { clock: None }, &[3, 0]),
        (TwoPhaseCommitReply::Committed { clock: Some(Clock(9)) }, &[3, 1, 9]),
        (TwoPhaseCommitReply::Resolved, &[4]),
    ] {
        let message = TwoPhaseCommitMessage::Reply { transaction, shard, step: 5, reply };
        assert_eq!(encode(&message)[..], [&form[..], rest].concat());
    }
    let (home, participant) = (place(7), Participant { shard, leadership: Epoch(6) });
    let form = [1, 2, 3];
    for (message, first, rest) in [
        (TwoPhaseCommitMessage::Inquiry { transaction, home, participant }, 3, &[7, 3, 4, 6][..]),
        (
            TwoPhaseCommitMessage::Decision {
                transaction,
                home: ShardId(7),
                participant,
                committed: true,
            },
            4,
            &[7, 4, 6, 1],
        ),
        (
            TwoPhaseCommitMessage::Acknowledgement { transaction, home: ShardId(7), shard },
            5,
            &[7, 4],
        ),
    ] {
        assert_eq!(encode(&message)[..], [&[first], &form[..], rest].concat());
    }
}
