//! Values of what engines have in common, drawn for property tests: of the forms here, and of engines' messages.

use crate::client::{
    ClientId, ClientReply, ClientRequest, Relay, ReplyToClient, RequestFromClient, SessionEnd,
};
use crate::execution::participant_table::BranchHeader;
use crate::operation::{Operation, OperationResult, OwnedScan, RangeEnd};
use crate::transaction_id::TransactionId;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use shoal_types::{
    Aborted, CallSession, Conflict, Epoch, Error, KeyExcerpt, NodeId, RequestId, Result, ShardId,
    TableId, Unknown, WorkerId,
};
use std::ops::Bound;

fn short_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..12).prop_map(Bytes::from)
}

/// Numbers of all lengths.
pub fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(number, less)| number >> less)
}

fn bound() -> impl Strategy<Value = Bound<Bytes>> {
    (0..3, short_bytes()).prop_map(|(variant, key)| match variant {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    })
}

fn range() -> impl Strategy<Value = OwnedScan> {
    let end =
        prop_oneof![bound().prop_map(RangeEnd::Bound), short_bytes().prop_map(RangeEnd::Prefix),];
    (bound(), end, any::<bool>(), number()).prop_map(|(start, end, reverse, limit)| OwnedScan {
        start,
        end,
        reverse,
        limit,
    })
}

/// Operations of transactions.
pub fn operation() -> impl Strategy<Value = Operation> {
    let value = proptest::option::of(short_bytes());
    let parts = (0..5, any::<u32>(), short_bytes(), value, range());
    parts.prop_map(|(variant, table, key, value, range)| {
        let table = TableId(table);
        match (variant, value) {
            (0, _) => Operation::Get { table, key },
            (1, _) => Operation::Scan { table, range },
            (2, Some(value)) => Operation::Insert { table, key, value },
            (_, value) => Operation::Put { table, key, value },
        }
    })
}

fn answer() -> impl Strategy<Value = OperationResult> {
    prop_oneof![
        proptest::option::of(short_bytes()).prop_map(OperationResult::Value),
        vec((short_bytes(), short_bytes()), 0..5).prop_map(OperationResult::Rows),
        vec((short_bytes(), short_bytes()), 0..5).prop_map(OperationResult::Page),
        Just(OperationResult::Later),
        Just(OperationResult::Done),
    ]
}

/// Errors, a few of each kind; `types` tests all of them.
pub fn error() -> impl Strategy<Value = Error> {
    (0..4, any::<u32>(), number(), short_bytes()).prop_map(|(variant, small, great, key)| {
        match variant {
            0 => {
                let (table, key) = (TableId(small), KeyExcerpt::new(&key));
                Aborted::from(Conflict::ReadChanged { table, key }).into()
            }
            1 => Aborted::UnknownSession { session: great }.into(),
            2 => Error::reject(format!("{small} is too little")),
            _ => {
                let session = CallSession { serial: great, ..CallSession::default() };
                Unknown::NoAnswer { request: RequestId { session, number: great } }.into()
            }
        }
    })
}

/// What an operation can have for an answer.
pub fn answered() -> impl Strategy<Value = Result<OperationResult>> {
    prop_oneof![3 => answer().prop_map(Ok), 1 => error().prop_map(Err)]
}

/// How a request to a branch begins.
pub fn header() -> impl Strategy<Value = BranchHeader> {
    let parts = (any::<[u32; 6]>(), number(), number());
    parts.prop_map(|([node, worker, shard, step, epoch, leadership], sequence, oldest)| {
        BranchHeader {
            transaction: TransactionId { node: NodeId(node), worker: WorkerId(worker), sequence },
            shard: ShardId(shard),
            step,
            oldest,
            epoch: Epoch(epoch),
            leadership: Epoch(leadership),
        }
    })
}

fn request_id() -> impl Strategy<Value = RequestId> {
    (any::<[u32; 4]>(), number(), number()).prop_map(|(parts, serial, number)| {
        let [home, since, incarnation, worker] = parts;
        let (home, since, worker) = (ShardId(home), Epoch(since), WorkerId(worker));
        RequestId { session: CallSession { home, since, incarnation, worker, serial }, number }
    })
}

fn request() -> impl Strategy<Value = ClientRequest> {
    let ending = prop_oneof![
        Just(SessionEnd::Commit),
        Just(SessionEnd::Confirm),
        Just(SessionEnd::Rollback),
        request_id().prop_map(SessionEnd::CommitAs),
        (request_id(), ".{0,9}", short_bytes()).prop_map(|(id, procedure, arguments)| {
            SessionEnd::Call { id, procedure: procedure.into(), arguments }
        }),
    ];
    let call = (request_id(), ".{0,9}", short_bytes());
    let steps = (vec(operation(), 0..4), prop::option::of(ending));
    let parts = (0..5, number(), any::<u32>(), call, steps);
    parts.prop_map(|(variant, session, number, call, (operations, ending))| match variant {
        0 => {
            let (id, procedure, arguments) = call;
            ClientRequest::Call { id, procedure: procedure.into(), arguments }
        }
        1 => ClientRequest::OpenCalls { token: session, home: ShardId(number) },
        2 => ClientRequest::Register,
        3 => ClientRequest::Resolve { id: call.0 },
        _ => {
            let registration = session.rotate_left(7);
            ClientRequest::Steps { registration, session, number, operations, ending }
        }
    })
}

fn reply() -> impl Strategy<Value = ClientReply> {
    let parts = (0..4, request_id(), number(), any::<u32>(), short_bytes(), answered());
    parts.prop_map(|(variant, id, session, number, bytes, answered)| match variant {
        0 => ClientReply::Called { id, result: answered.map(|_| bytes) },
        1 => ClientReply::Registered { registration: session },
        2 => ClientReply::CallsOpened { token: session, result: answered.map(|_| id.session) },
        _ => ClientReply::Done { session, number, result: answered },
    })
}

/// What a node passes on between a client and the node that serves it.
pub fn relay() -> impl Strategy<Value = Relay> {
    prop_oneof![
        (number(), request()).prop_map(|(from, request)| Relay::Request(RequestFromClient {
            from: ClientId(from),
            request
        })),
        (number(), reply())
            .prop_map(|(to, reply)| Relay::Reply(ReplyToClient { to: ClientId(to), reply })),
    ]
}
