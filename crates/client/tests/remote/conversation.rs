//! What clients and nodes say to each other, in every version that this build uses, keeps its form
//! (`tests/conversations/`).

use bytes::Bytes;
use shoal_cluster::manager::{Ask, ManagerOptions, StateMachine, TableChange};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::{
    ClientReply, ClientRequest, ClientRouting, Directory, FromClient, SessionEnd, ToClient,
};
use shoal_engine::operation::{Operation, OperationResult, OwnedScan};
use shoal_golden::{RecordedMessage, check_conversations};
use shoal_types::wire::{CLIENT_MESSAGES, Malformed, decode, encode};
use shoal_types::{
    Aborted, CallSession, Conflict, Error, KeyExcerpt, Rejected, RequestId, Scan, ShardId, TableId,
    Unknown,
};
use std::path::Path;
use std::sync::Arc;

/// A message of either side.
enum Said {
    Client(FromClient),
    Node(ToClient),
}

fn directory() -> Directory {
    let tables = [("t", Partitioning::Hash { prefix_bytes: 2 })];
    let topology = Arc::new(Topology::symmetric(1, 1, 3, 1, 2).with_tables(tables).expect("valid"));
    let machine = StateMachine::new(Arc::clone(&topology), ManagerOptions::default());
    let configuration = Some(Arc::clone(machine.configuration()));
    Directory { topology, configuration, routing: ClientRouting::Leaders }
}

/// A client finds its way, calls a procedure, runs a transaction, and receives errors.
fn conversation() -> Vec<Said> {
    let ask = |request| Said::Client(FromClient::Request(request));
    let tell = |reply| Said::Node(ToClient::Reply(reply));
    let (key, value) = (Bytes::from_static(b"alice"), Bytes::from_static(b"10"));
    let table = TableId(3);
    let session = CallSession { serial: 17, ..CallSession::default() };
    let id = RequestId { session, number: 5 };
    let steps = |number, operations, ending| {
        ask(ClientRequest::Steps { registration: 4, session: 9, number, operations, ending })
    };
    let step = |number, operation| steps(number, vec![operation], None);
    let done = |number, result| tell(ClientReply::Done { session: 9, number, result });
    let end = |number, ending| steps(number, Vec::new(), Some(ending));
    let rows = vec![(key.clone(), value.clone())];
    let locked = Aborted::from(Conflict::Locked { table, key: KeyExcerpt::new(b"alice") });
    let exists = Rejected::KeyExists { table, key: KeyExcerpt::new(b"alice") };
    let partitioning = Partitioning::Hash { prefix_bytes: 0 };
    let create = TableChange::Create { name: "new".to_owned(), definition: partitioning.into() };
    let dropped = Rejected::TableDropped { table };
    vec![
        Said::Client(FromClient::Directory),
        Said::Node(ToClient::Directory(directory())),
        ask(ClientRequest::OpenCalls { token: 8, home: ShardId(1) }),
        tell(ClientReply::CallsOpened { token: 8, result: Ok(session) }),
        ask(ClientRequest::Call { id, procedure: "pay".into(), arguments: value.clone() }),
        tell(ClientReply::Called { id, result: Ok(value.clone()) }),
        tell(ClientReply::Called { id, result: Err(Unknown::Forgotten { request: id }.into()) }),
        ask(ClientRequest::Register),
        tell(ClientReply::Registered { registration: 4 }),
        step(0, Operation::Get { table, key: key.clone() }),
        done(0, Ok(OperationResult::Value(Some(value.clone())))),
        step(1, Operation::Scan { table, range: OwnedScan::of(&Scan::prefix(b"al").limit(3)) }),
        done(1, Ok(OperationResult::Rows(rows.clone()))),
        done(1, Ok(OperationResult::Page(rows))),
        step(2, Operation::Put { table, key: key.clone(), value: Some(value.clone()) }),
        step(3, Operation::Put { table, key: key.clone(), value: None }),
        done(3, Ok(OperationResult::Done)),
        step(4, Operation::Insert { table, key, value }),
        done(4, Err(Error::from(exists))),
        done(5, Ok(OperationResult::Later)),
        end(6, SessionEnd::Commit),
        end(6, SessionEnd::Confirm),
        end(6, SessionEnd::Rollback),
        end(6, SessionEnd::CommitAs(id)),
        ask(ClientRequest::Resolve { id }),
        done(6, Err(Error::from(locked))),
        ask(ClientRequest::ChangeTable { ask: Ask(11), change: create }),
        tell(ClientReply::TableChanged { ask: Ask(11), result: Ok(table) }),
        ask(ClientRequest::ChangeTable { ask: Ask(12), change: TableChange::Drop { table } }),
        tell(ClientReply::TableChanged { ask: Ask(12), result: Err(dropped.into()) }),
        Said::Client(FromClient::Status),
        Said::Node(ToClient::Status(Bytes::from_static(b"{}"))),
        Said::Client(FromClient::Isolate(true)),
        Said::Node(ToClient::Isolated(true)),
    ]
}

/// The text has the sender and the variants; of a directory, which is long, no more.
fn recorded(said: &Said) -> RecordedMessage {
    let (ends, message, bytes) = match said {
        Said::Client(message) => ("client → node", format!("{message:?}"), encode(message)),
        Said::Node(ToClient::Directory(directory)) => {
            let message = ToClient::Directory(directory.clone());
            ("node → client", "Directory".to_owned(), encode(&message))
        }
        Said::Node(message) => ("node → client", format!("{message:?}"), encode(message)),
    };
    RecordedMessage { text: format!("{ends} {message}"), bytes: bytes.to_vec() }
}

fn again(kept: &RecordedMessage) -> Result<RecordedMessage, Malformed> {
    let bytes = kept.bytes.clone().into();
    Ok(recorded(&match kept.text.starts_with("client") {
        true => Said::Client(decode(&bytes)?),
        false => Said::Node(decode(&bytes)?),
    }))
}

#[test]
fn the_conversation_of_clients_and_nodes_keeps_its_form() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations");
    let versions = CLIENT_MESSAGES.oldest().0..=CLIENT_MESSAGES.newest().0;
    let record = || conversation().iter().map(recorded).collect();
    check_conversations(&folder, "client", versions, record, |kept| {
        again(kept).map_err(|malformed| malformed.to_string())
    });
}
