//! What clients say returns.

use super::strategies::{header, relay};
use crate::client::{
    ClientReply, ClientRequest, ClientRouting, Directory, FromClient, Relay, ReplyToClient,
    RequestFromClient, SessionEnd, ToClient,
};
use crate::operation::{Operation, OperationResult, OwnedScan, RangeEnd};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use shoal_cluster::manager::{ManagerOptions, StateMachine};
use shoal_cluster::topology::Topology;
use shoal_types::wire::check::{returns, withstands};
use shoal_types::wire::{decode, encode};
use shoal_types::{Aborted, CallSession, Error, RequestId, TableId};
use shoal_types::{Epoch, ShardId, WorkerId};
use std::ops::Bound;
use std::sync::Arc;

proptest! {
    #[test]
    fn what_clients_hear_and_say_returns(relay in relay(), header in header()) {
        returns(&relay);
        match &relay {
            Relay::Request(RequestFromClient { request, .. }) => returns(&FromClient::Request(request.clone())),
            Relay::Reply(ReplyToClient { reply, .. }) => returns(&ToClient::Reply(reply.clone())),
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
        returns(&ToClient::Directory(Directory {
            topology,
            configuration,
            routing: ClientRouting::Owners,
        }));
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
