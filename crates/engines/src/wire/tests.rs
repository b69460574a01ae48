//! What clients say returns. The strategies are for the engines' messages, too.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use shoal_cluster::manager::{ManagerOptions, StateMachine};
use shoal_types::wire::check::{returns, withstands};
use shoal_types::wire::{decode, encode};
use shoal_types::{
    Aborted, CallSession, Clock, Conflict, Error, KeyExcerpt, RequestId, Result, Stamp, TableId,
    Unknown,
};

fn short_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..12).prop_map(Bytes::from)
}

/// Numbers of all lengths.
pub(crate) fn number() -> impl Strategy<Value = u64> {
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

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
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

/// A few of each kind; `types` tests all of them.
pub(crate) fn error() -> impl Strategy<Value = Error> {
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

pub(crate) fn answered() -> impl Strategy<Value = Result<OperationResult>> {
    prop_oneof![3 => answer().prop_map(Ok), 1 => error().prop_map(Err)]
}

pub(crate) fn stamp() -> impl Strategy<Value = Stamp> {
    let entries = vec((any::<u32>(), number()), 0..4);
    (any::<u32>(), number(), entries).prop_map(|(epoch, clock, entries)| {
        let mut stamp = Stamp::local(Epoch(epoch), Clock(clock));
        for (shard, clock) in entries {
            stamp.push(ShardId(0), ShardId(shard), Clock(clock));
        }
        stamp
    })
}

pub(crate) fn header() -> impl Strategy<Value = BranchHeader> {
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
    let ending =
        prop::sample::select(vec![SessionEnd::Commit, SessionEnd::Confirm, SessionEnd::Rollback]);
    let call = (request_id(), ".{0,9}", short_bytes());
    let steps = (vec(operation(), 0..4), prop::option::of(ending));
    let parts = (0..4, number(), any::<u32>(), call, steps);
    parts.prop_map(|(variant, session, number, call, (operations, ending))| match variant {
        0 => {
            let (id, procedure, arguments) = call;
            ClientRequest::Call { id, procedure: procedure.into(), arguments }
        }
        1 => ClientRequest::OpenCalls { token: session, home: ShardId(number) },
        2 => ClientRequest::Register,
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

pub(crate) fn relay() -> impl Strategy<Value = Relay> {
    prop_oneof![
        (number(), request())
            .prop_map(|(from, request)| Relay::Request { from: ClientId(from), request }),
        (number(), reply()).prop_map(|(to, reply)| Relay::Reply { to: ClientId(to), reply }),
    ]
}

proptest! {
    #[test]
    fn what_clients_hear_and_say_returns(relay in relay(), header in header()) {
        returns(&relay);
        match &relay {
            Relay::Request { request, .. } => returns(&FromClient::Request(request.clone())),
            Relay::Reply { reply, .. } => returns(&ToClient::Reply(reply.clone())),
        }
        returns(&header);
    }

    #[test]
    fn any_bytes_are_withstood(bytes in vec(any::<u8>(), 0..60)) {
        let bytes = bytes.into();
        withstands::<Relay>(&bytes);
        withstands::<ClientRequest>(&bytes);
        withstands::<ClientReply>(&bytes);
        withstands::<Vec<Operation>>(&bytes);
        withstands::<FromClient>(&bytes);
        withstands::<ToClient>(&bytes);
    }
}

#[test]
fn where_everything_is_returns() {
    let topology = Arc::new(Topology::symmetric(2, 3, 3, 1, 2));
    let machine = StateMachine::new(Arc::clone(&topology), ManagerOptions::default());
    for configuration in [None, Some(Arc::clone(machine.configuration()))] {
        let topology = Arc::clone(&topology);
        returns(&ToClient::Directory(Directory { topology, configuration }));
    }
    assert_eq!(encode(&FromClient::Directory)[..], [1]);
    assert_eq!(encode(&FromClient::Status)[..], [2]);
    assert_eq!(encode(&ToClient::Status("{}".into()))[..], [2, 2, b'{', b'}']);
}

/// Clients of other releases say and understand these.
#[test]
fn forms_stay_as_they_are() {
    let (home, since, worker) = (ShardId(1), Epoch(2), WorkerId(4));
    let session = CallSession { home, since, incarnation: 3, worker, serial: 5 };
    let call = ClientRequest::Call {
        id: RequestId { session, number: 6 },
        procedure: "pay".into(),
        arguments: "x".into(),
    };
    assert_eq!(encode(&call)[..], [0, 1, 2, 3, 4, 5, 6, 3, b'p', b'a', b'y', 1, b'x']);
    let opened = ClientReply::CallsOpened { token: 7, result: Ok(session) };
    assert_eq!(encode(&opened)[..], [3, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]);
    let (table, key) = (TableId(5), Bytes::from("k"));
    let range = OwnedScan {
        start: Bound::Included(key.clone()),
        end: RangeEnd::Prefix(key.clone()),
        reverse: true,
        limit: 300,
    };
    for (operation, form) in [
        (Operation::Get { table, key: key.clone() }, &[0, 5, 1, b'k'][..]),
        (Operation::Scan { table, range }, &[1, 5, 0, 1, b'k', 1, 1, b'k', 1, 0xac, 2]),
        (Operation::Put { table, key: key.clone(), value: None }, &[2, 5, 1, b'k', 0]),
        (Operation::Insert { table, key, value: "v".into() }, &[3, 5, 1, b'k', 1, b'v']),
    ] {
        let operations = vec![operation.clone(), operation];
        let steps = |operations, ending| {
            let (registration, session, number) = (3, 1, 2);
            ClientRequest::Steps { registration, session, number, operations, ending }
        };
        let names = [&[6][..], &3_u64.to_le_bytes(), &[1, 2]].concat();
        let both = [&names[..], &[2], form, form, &[0]].concat();
        assert_eq!(encode(&steps(operations, None))[..], both);
        let end = [&names[..], &[0, 1, 1]].concat();
        assert_eq!(encode(&steps(Vec::new(), Some(SessionEnd::Confirm)))[..], end);
    }
    let rows = OperationResult::Rows(vec![("a".into(), Bytes::new())]);
    let done = ClientReply::Done { session: 1, number: 2, result: Ok(rows) };
    assert_eq!(encode(&done)[..], [5, 1, 2, 0, 1, 1, 1, b'a', 0]);
    let failed = ClientReply::Done { session: 1, number: 2, result: Err(Error::reject("no")) };
    assert_eq!(encode(&failed)[..], [5, 1, 2, 1, 1, 16, 2, b'n', b'o']);
    assert_eq!(encode(&ClientRequest::Register)[..], [5]);
    let registered = encode(&ClientReply::Registered { registration: 3 });
    assert_eq!(registered[..], [&[4][..], &3_u64.to_le_bytes()].concat());
    // Steps one by one, of earlier releases.
    for former in [&[1, 1][..], &[2, 1, 0, 2, 0, 5, 1, b'k'], &[3, 1, 0, 2, 0]] {
        assert!(decode::<ClientRequest>(&Bytes::copy_from_slice(former)).is_err());
    }
}

#[test]
fn the_limits_that_refuse_here_have_names_there() {
    for limit in ["open_max", "queue_max", "sessions_max"] {
        returns(&Error::from(Aborted::Overloaded { open: 1, limit, max: 1 }));
    }
}

#[test]
fn values_stay_in_their_frame() {
    let operation = Operation::Insert { table: TableId(1), key: "k".into(), value: "vw".into() };
    let frame = encode(&operation);
    let Ok(Operation::Insert { value, .. }) = decode(&frame) else { panic!("no insert") };
    assert_eq!(value.as_ptr(), frame[frame.len() - 2..].as_ptr());
}
