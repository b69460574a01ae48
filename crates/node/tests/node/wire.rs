//! Tests of the bytes that workers send: they stay as they are, and any bytes are read without a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_cluster::manager::{Generation, Incarnation};
use shoal_node::WorkerMessage;
use shoal_types::wire::check::withstands;
use shoal_types::wire::{decode, encode};
use shoal_types::{Ballot, Epoch, NodeId, ShardId};

fn rejected() -> WorkerMessage<shoal_mako::MakoMessage> {
    let ballot = Ballot { epoch: Epoch(2), node: NodeId(1) };
    let message = shoal_log::StreamMessage::Rejected { ballot, promised: ballot };
    WorkerMessage::Stream { shard: ShardId(3), incarnation: Incarnation(4), message }
}

#[test]
fn forms_stay_as_they_are() {
    let bytes = encode(&rejected());
    assert_eq!(bytes[..], [1, 3, 4, 7, 2, 1, 2, 1]);
    let back: WorkerMessage<shoal_mako::MakoMessage> = decode(&bytes).expect("as it was");
    assert_eq!(format!("{back:?}"), format!("{:?}", rejected()));
    assert!(decode::<WorkerMessage<shoal_mako::MakoMessage>>(&bytes.slice(1..)).is_err());
    let engine = WorkerMessage::Engine { generation: Generation(4), message: 5_u8 };
    assert_eq!(encode(&engine)[..], [0, 4, 5]);
}

proptest! {
    #[test]
    fn any_bytes_are_withstood(variant in 0..3_u8, mut bytes in vec(any::<u8>(), 1..80)) {
        bytes[0] = variant;
        let bytes = bytes.into();
        withstands::<WorkerMessage<shoal_mako::MakoMessage>>(&bytes);
        withstands::<WorkerMessage<shoal_two_phase_commit::TwoPhaseCommitMessage>>(&bytes);
    }
}
