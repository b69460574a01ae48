//! The forms of what workers say to each other.

use super::message::{Message, Reply, Request};
use types::coded_enum;

coded_enum!(Message {
    0 => Request { header, request },
    1 => Reply { transaction, shard as short, step as short, reply },
    2 => Relay(relay),
});

coded_enum!(Request {
    0 => Execute { operations as short },
    1 => Lock { operations as short },
    2 => Prepare { operations as short, home as short },
    3 => Validate,
    4 => OnePhase { operations as short, install },
    5 => Commit,
    6 => Abort,
});

coded_enum!(Reply {
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
    use crate::execution::branches::Header;
    use crate::operation::Answer;
    use crate::transaction_id::TransactionId;
    use crate::wire::tests::{answered, error, header, number, operation, relay};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use types::wire::check::{returns, withstands};
    use types::wire::encode;
    use types::{Clock, Epoch, NodeId, ShardId, WorkerId};

    fn request() -> impl Strategy<Value = Request> {
        let parts = (0..7, vec(operation(), 0..4), any::<bool>(), any::<u32>());
        parts.prop_map(|(variant, operations, install, home)| match variant {
            0 => Request::Execute { operations },
            1 => Request::Lock { operations },
            2 => Request::Prepare { operations, home: ShardId(home) },
            3 => Request::Validate,
            4 => Request::OnePhase { operations, install },
            5 => Request::Commit,
            _ => Request::Abort,
        })
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let clock = proptest::option::of(number().prop_map(Clock));
        let parts = (0..6, vec(answered(), 0..4), clock, error());
        parts.prop_map(|(variant, answers, clock, error)| match (variant, clock) {
            (0, _) => Reply::Executed { answers },
            (1, Some(clock)) => Reply::Locked { clock },
            (2, _) => Reply::Validated,
            (3, _) => Reply::Refused { error },
            (4, _) => Reply::Resolved,
            (_, clock) => Reply::Committed { clock },
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            (header(), request())
                .prop_map(|(header, request)| Message::Request { header, request }),
            (header(), reply()).prop_map(|(Header { transaction, shard, step, .. }, reply)| {
                Message::Reply { transaction, shard, step, reply }
            }),
            relay().prop_map(Message::Relay),
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
            withstands::<Message>(&bytes.into());
        }
    }

    /// Workers of other releases say and understand these.
    #[test]
    fn forms_stay_as_they_are() {
        let transaction = TransactionId { node: NodeId(1), worker: WorkerId(2), sequence: 3 };
        let shard = ShardId(4);
        let (epoch, reign) = (Epoch(6), Epoch(1));
        let header = Header { transaction, shard, step: 5, oldest: 2, epoch, reign };
        let form = [0, 1, 2, 3, 4, 5, 2, 6, 1];
        let operations = Vec::new();
        for (request, rest) in [
            (Request::Execute { operations: operations.clone() }, &[0, 0][..]),
            (Request::Lock { operations: operations.clone() }, &[1, 0]),
            (Request::Prepare { operations: operations.clone(), home: ShardId(7) }, &[2, 0, 7]),
            (Request::Validate, &[3]),
            (Request::OnePhase { operations, install: true }, &[4, 0, 1]),
            (Request::Commit, &[5]),
            (Request::Abort, &[6]),
        ] {
            let message = Message::Request { header, request };
            assert_eq!(encode(&message)[..], [&form[..], rest].concat());
        }
        let form = [1, 1, 2, 3, 4, 5];
        for (reply, rest) in [
            (Reply::Executed { answers: vec![Ok(Answer::Done)] }, &[0, 1, 0, 2][..]),
            (Reply::Locked { clock: Clock(300) }, &[1, 0xac, 2]),
            (Reply::Validated, &[2]),
            (Reply::Committed { clock: None }, &[3, 0]),
            (Reply::Committed { clock: Some(Clock(9)) }, &[3, 1, 9]),
            (Reply::Resolved, &[4]),
        ] {
            let message = Message::Reply { transaction, shard, step: 5, reply };
            assert_eq!(encode(&message)[..], [&form[..], rest].concat());
        }
    }
}
