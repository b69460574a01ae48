//! The forms of what workers say to each other: a request that carries little has some fifteen bytes.

use super::message::{Message, Reply, Request};
use types::coded_enum;

coded_enum!(Message {
    0 => Request { header, request },
    1 => Reply { transaction, shard as short, step as short, reply },
    2 => Relay(relay),
    3 => Gossip { watermark, ended as short, floor as short },
    4 => Part(part),
    5 => PartTaken { shard as short, copy, reached },
});

coded_enum!(Request {
    0 => Execute { operations as short },
    1 => Lock { operations as short, validate },
    2 => Validate { last },
    3 => Commit { operations as short, install },
    4 => Install { stamp },
    5 => Abort,
});

coded_enum!(Reply {
    0 => Executed { answers as short, dependencies },
    1 => Locked { clock as short, dependencies },
    2 => Validated,
    3 => Certified { stamp },
    4 => Resolved,
    5 => Refused { error },
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::branches::Header;
    use crate::mako::message::{Part, Row, UndecidedRow};
    use crate::operation::{Answer, Operation};
    use crate::transaction_id::TransactionId;
    use crate::wire::tests::{answered, error, header, number, operation, relay, stamp};
    use bytes::Bytes;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use types::wire::check::{returns, withstands};
    use types::wire::encode;
    use types::{Clock, Epoch, Error, NodeId, ShardId, Stamp, TableId, VectorWatermark, WorkerId};

    fn request() -> impl Strategy<Value = Request> {
        let parts = (0..6, vec(operation(), 0..4), any::<bool>(), stamp());
        parts.prop_map(|(variant, operations, flag, stamp)| match variant {
            0 => Request::Execute { operations },
            1 => Request::Lock { operations, validate: flag },
            2 => Request::Validate { last: flag },
            3 => Request::Commit { operations, install: flag },
            4 => Request::Install { stamp },
            _ => Request::Abort,
        })
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let parts = (0..6, vec(answered(), 0..4), number(), stamp(), error());
        parts.prop_map(|(variant, answers, clock, stamp, error)| match variant {
            0 => Reply::Executed { answers, dependencies: stamp },
            1 => Reply::Locked { clock: Clock(clock), dependencies: stamp },
            2 => Reply::Validated,
            3 => Reply::Certified { stamp },
            4 => Reply::Resolved,
            _ => Reply::Refused { error },
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

    fn gossip() -> impl Strategy<Value = Message> {
        let parts = (watermark(), vec(any::<u32>(), 0..3), number());
        parts.prop_map(|(watermark, ended, floor)| {
            let ended = ended.into_iter().map(ShardId).collect();
            Message::Gossip { watermark, ended, floor: Clock(floor) }
        })
    }

    fn place() -> impl Strategy<Value = (TableId, Bytes)> {
        let parts = (any::<u32>(), vec(any::<u8>(), 0..4));
        parts.prop_map(|(table, key)| (TableId(table), key.into()))
    }

    fn part() -> impl Strategy<Value = Message> {
        let place =
            || (any::<u32>(), vec(any::<u8>(), 0..4)).prop_map(|(t, k)| (TableId(t), k.into()));
        let row = (place(), any::<u32>(), number(), vec(any::<u8>(), 0..9));
        let row = row.prop_map(|((table, key), epoch, clock, value)| Row {
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
            value: value.map(Bytes::from),
            stamp: Stamp::local(Epoch(epoch), Clock(clock)),
        });
        let rows = (vec(row, 0..3), vec(undecided, 0..3));
        let parts = (numbers, ranges, any::<u32>(), watermarks, rows);
        parts.prop_map(|((shard, copy, cut), (from, until), settled, watermarks, rows)| {
            let (shard, cut, settled) = (ShardId(shard), Clock(cut), Epoch(settled));
            let (rows, undecided) = rows;
            Message::Part(Part {
                shard,
                copy,
                cut,
                from,
                until,
                settled,
                forgotten: Epoch(settled.0 / 2),
                watermarks,
                rows,
                undecided,
            })
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
            gossip(),
            part(),
            (any::<u32>(), number(), proptest::option::of(place())).prop_map(
                |(shard, copy, reached)| {
                    Message::PartTaken { shard: ShardId(shard), copy, reached }
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
            withstands::<Message>(&bytes.into());
        }
    }

    /// Workers of other releases say and understand these.
    #[test]
    fn forms_stay_as_they_are() {
        let transaction = TransactionId { node: NodeId(1), worker: WorkerId(2), sequence: 300 };
        let shard = ShardId(3);
        let (epoch, reign) = (Epoch(4), Epoch(1));
        let header = Header { transaction, shard, step: 2, oldest: 299, epoch, reign };
        let form = [0, 1, 2, 0xac, 2, 3, 2, 0xab, 2, 4, 1];
        let mut stamp = Stamp::local(epoch, Clock(9));
        stamp.push(shard, ShardId(0), Clock(7));
        let operations = vec![Operation::Get { table: TableId(1), key: "k".into() }];
        for (request, rest) in [
            (Request::Execute { operations: operations.clone() }, &[0, 1, 0, 1, 1, b'k'][..]),
            (Request::Lock { operations: Vec::new(), validate: true }, &[1, 0, 1]),
            (Request::Validate { last: false }, &[2, 0]),
            (Request::Commit { operations: Vec::new(), install: true }, &[3, 0, 1]),
            (Request::Install { stamp: stamp.clone() }, &[4, 4, 9, 1, 0, 7]),
            (Request::Abort, &[5]),
        ] {
            let message = Message::Request { header, request };
            assert_eq!(encode(&message)[..], [&form[..], rest].concat());
        }
        let form = [1, 1, 2, 0xac, 2, 3, 2];
        let answers = vec![Ok(Answer::Value(Some("v".into()))), Ok(Answer::Done)];
        for (reply, rest) in [
            (
                Reply::Executed { answers, dependencies: stamp.clone() },
                &[0, 2, 0, 0, 1, 1, b'v', 0, 2, 4, 9, 1, 0, 7][..],
            ),
            (
                Reply::Locked { clock: Clock(10), dependencies: stamp.clone() },
                &[1, 10, 4, 9, 1, 0, 7],
            ),
            (Reply::Validated, &[2]),
            (Reply::Certified { stamp }, &[3, 4, 9, 1, 0, 7]),
            (Reply::Resolved, &[4]),
            (Reply::Refused { error: Error::reject("") }, &[5, 1, 16, 0]),
        ] {
            let message = Message::Reply { transaction, shard, step: 2, reply };
            assert_eq!(encode(&message)[..], [&form[..], rest].concat());
        }
        let watermark = VectorWatermark::whole(epoch, 1);
        let gossip = Message::Gossip { watermark, ended: vec![shard], floor: Clock(5) };
        let whole = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let form = [&[3, 4, 1][..], &whole, &[1, 3, 0, 0, 0, 5]].concat();
        assert_eq!(encode(&gossip)[..], form);
        let (table, cut) = (TableId(1), Clock(8));
        let (key, value) = ("k".into(), "v".into());
        let rows = vec![Row { table, epoch, clock: Clock(7), key, value }];
        let (from, until) = ((table, "".into()), Some((table, "l".into())));
        let watermarks = vec![VectorWatermark::new(epoch, 1)];
        let (key, mut stamp) = ("k".into(), Stamp::local(epoch, Clock(9)));
        stamp.push(shard, ShardId(0), Clock(7));
        let undecided = vec![UndecidedRow { table, key, value: None, stamp }];
        let (settled, forgotten) = (Epoch(3), Epoch(2));
        let part = Part {
            shard,
            copy: 6,
            cut,
            from,
            until,
            settled,
            forgotten,
            watermarks,
            rows,
            undecided,
        };
        let form = [4, 3, 6, 0, 0, 0, 0, 0, 0, 0, 8, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, b'l'];
        let form = [&form[..], &[3, 2, 1, 0, 0, 0, 4, 1, 0]].concat();
        let rows = [1, 0, 0, 0, 1, 4, 7, 1, b'k', 1, b'v'];
        let rows = [&rows[..], &[1, 0, 0, 0, 1, 1, b'k', 0, 4, 9, 1, 0, 7]].concat();
        assert_eq!(encode(&Message::Part(part))[..], [&form[..], &rows].concat());
        let taken = Message::PartTaken { shard, copy: 6, reached: None };
        assert_eq!(encode(&taken)[..], [5, 3, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
