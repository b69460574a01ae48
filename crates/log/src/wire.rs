//! Tests of the bytes that leaders and replicas send: they stay as they are, and any bytes are read without a panic.

use super::{LogLength, StreamMessage};
use bytes::Bytes;
use proptest::prelude::*;
use shoal_types::wire::check::{returns, withstands};
use shoal_types::wire::{decode, encode};
use shoal_types::{Ballot, Epoch, NodeId};

fn message() -> impl Strategy<Value = StreamMessage> {
    let length = (any::<u64>(), 0..64).prop_map(|(number, less)| LogLength(number >> less));
    let lengths = [length.clone(), length.clone(), length.clone(), length.clone(), length];
    let entry = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
    let entries = prop::collection::vec(entry, 0..5);
    let parts = (0..8, any::<[u32; 4]>(), lengths, entries, any::<bool>());
    parts.prop_map(|(variant, [epoch, node, other_epoch, other], lengths, entries, votes)| {
        let ballot = Ballot { epoch: Epoch(epoch), node: NodeId(node) };
        let accepted_ballot = Ballot { epoch: Epoch(other_epoch), node: NodeId(other) };
        let [accepted, decided, from, until, LogLength(round)] = lengths;
        match variant {
            0 => StreamMessage::Prepare { ballot, accepted_ballot, accepted, decided },
            1 => StreamMessage::Promise {
                ballot,
                accepted_ballot,
                accepted,
                decided,
                from,
                entries,
                votes,
            },
            2 => StreamMessage::Fetch { ballot, accepted_ballot, from, messages: round },
            3 => StreamMessage::Append {
                ballot,
                adopted: accepted_ballot,
                base: accepted,
                prev: from,
                entries,
                decided,
                everywhere: until,
                round,
            },
            4 => StreamMessage::Accepted {
                ballot,
                length: accepted,
                next: from,
                until,
                decided,
                round,
                votes,
            },
            5 => StreamMessage::Decide { ballot, decided, everywhere: until },
            6 => {
                let state = entries.concat().into();
                StreamMessage::Snapshot { ballot, length: accepted, state }
            }
            _ => StreamMessage::Rejected { ballot, promised: accepted_ballot },
        }
    })
}

proptest! {
    #[test]
    fn messages_return(message in message()) {
        returns(&message);
    }

    #[test]
    fn any_bytes_are_withstood(
        variant in 0..9_u8,
        mut bytes in prop::collection::vec(any::<u8>(), 1..60),
    ) {
        bytes[0] = variant;
        withstands::<StreamMessage>(&bytes.into());
    }
}

fn append(entries: Vec<Bytes>) -> StreamMessage {
    let ballot = Ballot { epoch: Epoch(2), node: NodeId(1) };
    StreamMessage::Append {
        ballot,
        adopted: Ballot { epoch: Epoch(1), node: NodeId(0) },
        base: LogLength(3),
        prev: LogLength(300),
        entries,
        decided: LogLength(299),
        everywhere: LogLength(5),
        round: 0,
    }
}

#[test]
fn forms_stay_as_they_are() {
    let form = [3, 2, 1, 1, 0, 3, 0xac, 2, 0xab, 2, 5, 0, 1, 2, b'a', b'b'];
    assert_eq!(&encode(&append(vec!["ab".into()]))[..], form);
    let ballot = Ballot { epoch: Epoch(2), node: NodeId(1) };
    let [length, next, until, decided] = [4, 5, 6, 3].map(LogLength);
    let accepted =
        StreamMessage::Accepted { ballot, length, next, until, decided, round: 7, votes: true };
    assert_eq!(&encode(&accepted)[..], [4, 2, 1, 4, 5, 6, 3, 7, 1]);
    let rejected = StreamMessage::Rejected { ballot, promised: ballot };
    assert_eq!(&encode(&rejected)[..], [7, 2, 1, 2, 1]);
}

#[test]
fn entries_stay_in_their_frame() {
    let frame = encode(&append(vec!["alice".into(), "bob".into()]));
    let Ok(StreamMessage::Append { entries, .. }) = decode(&frame) else { panic!("no append") };
    assert_eq!(entries[1].as_ptr(), frame[frame.len() - 3..].as_ptr());
}
