//! The forms of what workers say to each other.

use super::message::{TwoPhaseCommitMessage, TwoPhaseCommitReply, TwoPhaseCommitRequest};
use shoal_types::coded_enum;

coded_enum!(TwoPhaseCommitMessage {
    0 => Request { header, request },
    1 => Reply { transaction, shard as short, step as short, reply },
    2 => Relay(relay),
});

coded_enum!(TwoPhaseCommitRequest {
    0 => Execute { operations as short },
    1 => Lock { operations as short },
    2 => Prepare { operations as short, home as short },
    3 => Validate,
    4 => OnePhase { operations as short, install },
    5 => Commit,
    6 => Abort,
});

coded_enum!(TwoPhaseCommitReply {
    0 => Executed { answers as short },
    1 => Locked { clock as short },
    2 => Validated,
    3 => Committed { clock as short },
    4 => Resolved,
    5 => Refused { error },
});

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use shoal_engine::execution::participant_table::BranchHeader;
    use shoal_engine::operation::OperationResult;
    use shoal_engine::transaction_id::TransactionId;
    use shoal_engine::wire::strategies::{answered, error, header, number, operation, relay};
    use shoal_types::wire::check::{returns, withstands};
    use shoal_types::wire::encode;
    use shoal_types::{Clock, Epoch, NodeId, ShardId, WorkerId};

    fn request() -> impl Strategy<Value = TwoPhaseCommitRequest> {
        let parts = (0..7, vec(operation(), 0..4), any::<bool>(), any::<u32>());
        parts.prop_map(|(variant, operations, install, home)| match variant {
            0 => TwoPhaseCommitRequest::Execute { operations },
            1 => TwoPhaseCommitRequest::Lock { operations },
            2 => TwoPhaseCommitRequest::Prepare { operations, home: ShardId(home) },
            3 => TwoPhaseCommitRequest::Validate,
            4 => TwoPhaseCommitRequest::OnePhase { operations, install },
            5 => TwoPhaseCommitRequest::Commit,
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
            (header(), reply()).prop_map(
                |(BranchHeader { transaction, shard, step, .. }, reply)| {
                    TwoPhaseCommitMessage::Reply { transaction, shard, step, reply }
                }
            ),
            relay().prop_map(TwoPhaseCommitMessage::Relay),
        ]
    }

    proptest! {
        #[test]
        fn messages_return(message in message()) {
            returns(&message);
        }

        #[test]
        fn any_bytes_are_withstood(
            variant in 0..4_u8,
            mut bytes in vec(any::<u8>(), 1..80),
        ) {
            bytes[0] = variant;
            withstands::<TwoPhaseCommitMessage>(&bytes.into());
        }
    }

    /// Workers of other releases say and understand these.
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
                TwoPhaseCommitRequest::Prepare { operations: operations.clone(), home: ShardId(7) },
                &[2, 0, 7],
            ),
            (TwoPhaseCommitRequest::Validate, &[3]),
            (TwoPhaseCommitRequest::OnePhase { operations, install: true }, &[4, 0, 1]),
            (TwoPhaseCommitRequest::Commit, &[5]),
            (TwoPhaseCommitRequest::Abort, &[6]),
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
    }
}
