//! The messages between clients and workers.
//!
//! A request may be lost, repeated or late like any message, and so may its reply. A procedure that
//! is called with a [`RequestId`] takes effect once, however often the call arrives; a client without an answer sends the
//! call again with the same id. A request id consists of a session, which the leader of the call's shard has granted, and
//! a number that the client counts. A session has one call in progress at a time: the leader keeps the last of each.
//!
//! All copies of a call have to reach the same worker, [`worker_of`] its session, of any node, which forwards it to the
//! leader; other workers refuse it. `execution/call_sessions.rs` argues why it is executed once.
//!
//! | state when a copy of a call arrives | answer |
//! |---|---|
//! | the session is known, and no copy of the call arrived before | the result, once the call has been executed |
//! | the call is being executed, or an earlier call of the session is | none: the client sends it again |
//! | the call has failed | its error |
//! | the call has committed, or the session is not known | by its row: the result; [`CallSessionOver`], and the call is never executed; or [`Forgotten`] |
//! | the row cannot be read now | [`Unsettled`]: the client sends it again |
//!
//! A commit may have a request id, too. Its transaction reads the row of the session and writes it, so it conflicts with
//! every other transaction that does. A client that has lost the reply requests the outcome ([`ClientRequest::Resolve`]): a
//! transaction looks the row up, and if the commit has not written it, writes that it never commits. One of the two
//! transactions is first, and its outcome is final. The row is on a shard that the transaction writes to anyway. The commit is
//! refused if its row was dropped or may be lost: the row may have said that it never commits.
//!
//! Where clients go to the [nearest](ClientRouting::Nearest) node, a call is such a commit, too: the only step of an interactive
//! transaction ([`SessionEnd::Call`]), which the node that receives it coordinates. Its row has the result.
//!
//! An interactive transaction is identified by the *registration* that the worker has granted to the client's connection, and
//! by `session`, a number that the client counts. A session begins once under a registration, and none begins under a
//! registration that the worker has dropped. So a message that begins a transaction, writes and commits takes effect once,
//! however often and however late copies of it arrive; and all reads and the commit of a session belong to one
//! transaction. `execution/registrations.rs` has the argument.
//!
//! [`CallSessionOver`]: shoal_types::Aborted::CallSessionOver
//! [`Forgotten`]: shoal_types::Unknown::Forgotten
//! [`Unsettled`]: shoal_types::Unknown::Unsettled

use crate::operation::{Operation, OperationResult};
pub use crate::request_table::{
    COMMITTED, NEVER_COMMITS, REQUESTS_TABLE, read_request_row, request_key, request_row,
    requests_table, returned_row,
};
use bytes::Bytes;
use shoal_cluster::manager::{Ask, Configuration, TableChange};
use shoal_cluster::topology::Topology;
use shoal_types::wire::{Coded, Short};
use shoal_types::{CallSession, Error, RequestId, ShardId, TableId, WorkerId};
use std::sync::Arc;

/// A client's id at the node that it is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded, Short)]
pub struct ClientId(pub u64);

/// The worker, of a node with `workers` workers, that executes the calls of a session: the one that granted it.
pub fn worker_of(session: &CallSession, workers: u32) -> WorkerId {
    WorkerId(session.worker.0 % workers.max(1))
}

/// The most steps of an interactive transaction that a client may have outstanding. A step that is farther ahead is
/// ignored, and answers to steps farther back are dropped. More saves round trips where a transaction writes many rows; each
/// step that waits takes some hundred bytes beside its own.
pub const STEPS_AHEAD_MAX: usize = 1024;

/// The most bytes of the steps that wait for their turn, and of the answers that are kept beside the last one. A step that
/// exceeds them is ignored; a repeated step whose answer was dropped is answered like one of an unknown session.
pub const AHEAD_BYTES_MAX: usize = 1 << 20;

/// A request of a client to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
// Steps one by one had the tags from 1 to 3, and their replies 1 and 2: other releases may still send them.
pub enum ClientRequest {
    /// Grant a session for calls on a shard. The leader of `home` does; any other node forwards the request. Each copy that
    /// arrives gets a session of its own; the client uses the first that it receives.
    #[coded(tag = 4)]
    OpenCalls {
        /// The id of this request, drawn so that no other client draws the same.
        token: u64,
        /// The shard whose leader executes the calls, preferably one that they access.
        #[coded(short)]
        home: ShardId,
    },
    /// Execute a procedure as one transaction. The leader of the session's shard executes it and keeps the outcome; any other
    /// node forwards the request. Repeats are harmless.
    #[coded(tag = 0)]
    Call {
        /// The session, and the number of the call in it.
        id: RequestId,
        /// The procedure's name.
        #[coded(short)]
        procedure: Box<str>,
        /// The arguments of the procedure.
        arguments: Bytes,
    },
    /// Register the connection: interactive transactions begin under its registration. Repeats are harmless: while the worker
    /// knows the connection, the registration stays the same.
    #[coded(tag = 5)]
    Register,
    /// Steps of an interactive transaction, in their order; the step with number 0 begins it. A step is executed once,
    /// however often it arrives. Steps are executed one after the other; those that arrive before their turn are kept, up
    /// to [`STEPS_AHEAD_MAX`] and [`AHEAD_BYTES_MAX`]. A put or a delete that fails ends the transaction, so that a commit
    /// may be sent with writes that are not answered.
    #[coded(tag = 6)]
    Steps {
        /// The registration that the worker granted to the connection.
        registration: u64,
        /// The client's number for the transaction, greater than any it has used over this connection before.
        #[coded(short)]
        session: u64,
        /// The number of the first of these steps.
        #[coded(short)]
        number: u32,
        /// The operations, a step each.
        #[coded(short)]
        operations: Vec<Operation>,
        /// The last step of the transaction, if this message has it.
        ending: Option<SessionEnd>,
    },
    /// Request the outcome of a transaction that was to [commit under an id](SessionEnd::CommitAs). If it has not committed,
    /// it never will after the answer. The leader of the session's shard answers; other nodes relay the request.
    /// Idempotent.
    #[coded(tag = 8)]
    Resolve {
        /// The id of the commit.
        id: RequestId,
    },
    /// Create or drop a table. Only the first worker of a node accepts it, and repeats it to the managers until they answer.
    /// Takes effect once, however often and over however many nodes it is sent.
    #[coded(tag = 7)]
    ChangeTable {
        /// The number of the request, drawn so that no other client draws it.
        ask: Ask,
        /// The change that is asked for.
        change: TableChange,
    },
}

/// How an interactive transaction ends.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum SessionEnd {
    /// Commit all writes of the transaction.
    #[coded(tag = 0)]
    Commit,
    /// Write nothing, and prove that what was read is consistent and durable: for a transaction that ends without a commit
    /// because of what it read.
    #[coded(tag = 1)]
    Confirm,
    /// Discard all writes.
    #[coded(tag = 2)]
    Rollback,
    /// Commit all writes of the transaction, and in the same transaction the row that records it under this id, which no other
    /// commit has. The session of the id is one for calls on a shard that the transaction writes to.
    #[coded(tag = 3)]
    CommitAs(RequestId),
    /// Execute a procedure, commit, and record the result under this id, all in one transaction, of which this is the only step.
    /// The node that receives it coordinates. As for [`CommitAs`](SessionEnd::CommitAs), no other request has the id, and the
    /// row decides. Answered with the result, as a value.
    #[coded(tag = 4)]
    Call {
        /// The session, of a shard that the procedure accesses, and the number of the call in it.
        id: RequestId,
        /// The procedure's name.
        #[coded(short)]
        procedure: Box<str>,
        /// The arguments of the procedure.
        arguments: Bytes,
    },
}

impl SessionEnd {
    /// Is it a commit?
    pub fn commits(&self) -> bool {
        matches!(self, SessionEnd::Commit | SessionEnd::CommitAs(_) | SessionEnd::Call { .. })
    }
}

/// A reply to a client. It contains only durable state.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ClientReply {
    /// To [`ClientRequest::OpenCalls`].
    #[coded(tag = 3)]
    CallsOpened {
        /// The token of the request.
        token: u64,
        /// The session; or why there is none now.
        result: Result<CallSession, Error>,
    },
    /// To [`ClientRequest::Call`], and to [`ClientRequest::Resolve`]: then [`COMMITTED`], or
    /// [`CallSessionOver`](shoal_types::Aborted::CallSessionOver).
    #[coded(tag = 0)]
    Called {
        /// The id of the request.
        id: RequestId,
        /// What the procedure returned.
        result: Result<Bytes, Error>,
    },
    /// To [`ClientRequest::Register`].
    #[coded(tag = 4)]
    Registered {
        /// The registration, which the worker has granted to no other connection and never will.
        registration: u64,
    },
    /// To [`ClientRequest::Steps`]: the result of one step; all puts and deletes before it have succeeded. Sent for each step
    /// with a result of its own, for the last step of each message, and for a step that fails. After an error the
    /// transaction is over, unless a read or an insert itself was rejected (a key that exists, a limit).
    #[coded(tag = 5)]
    Done {
        /// The transaction.
        #[coded(short)]
        session: u64,
        /// The number of the step.
        #[coded(short)]
        number: u32,
        /// The result of the step.
        result: Result<OperationResult, Error>,
    },
    /// To [`ClientRequest::ChangeTable`]. All live nodes have the change, and the directory of the node that answers contains
    /// it.
    #[coded(tag = 6)]
    TableChanged {
        /// The number of the request.
        ask: Ask,
        /// The table that was created, that was there, or that was dropped; or why not.
        result: Result<TableId, Error>,
    },
}

/// A request of a client, on its way from the client's connection to the engine that serves it.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct RequestFromClient {
    /// The client's id at the node that it is connected to, to which the reply is sent.
    #[coded(short)]
    pub from: ClientId,
    /// The request of the client.
    pub request: ClientRequest,
}

/// An answer to a client, on its way from the engine to the client's connection.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct ReplyToClient {
    /// The client's id at the node that it is connected to.
    #[coded(short)]
    pub to: ClientId,
    /// The reply to the client's request.
    pub reply: ClientReply,
}

/// A message between the node that received a client's request and the leader that serves it. It may be lost, repeated or
/// late; the client sends its request again.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum Relay {
    /// A request that the leader has to serve.
    #[coded(tag = 0)]
    Request(RequestFromClient),
    /// The leader's answer.
    #[coded(tag = 1)]
    Reply(ReplyToClient),
}

/// A frame from a client to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum FromClient {
    /// A request to the engine.
    #[coded(tag = 0)]
    Request(ClientRequest),
    /// A request for the topology and the configuration. Answered by [`ToClient::Directory`].
    #[coded(tag = 1)]
    Directory,
    /// A request for the status of the node. Answered by [`ToClient::Status`].
    #[coded(tag = 2)]
    Status,
    /// Cut the node off from all others, or end that. Refused unless the node's configuration allows it. Answered by
    /// [`ToClient::Isolated`].
    #[coded(tag = 3)]
    Isolate(bool),
}

/// A frame from a worker to a client.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ToClient {
    /// The engine's answer.
    #[coded(tag = 0)]
    Reply(ClientReply),
    /// The topology and the configuration.
    #[coded(tag = 1)]
    Directory(Directory),
    /// The status of the node, as JSON.
    #[coded(tag = 2)]
    Status(Bytes),
    /// Whether the node is cut off from all others by a request.
    #[coded(tag = 3)]
    Isolated(bool),
}

/// How clients choose the node that coordinates a transaction, or executes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum ClientRouting {
    /// The leader of the shard of the first key that it names.
    #[coded(tag = 0)]
    Leaders,
    /// The owner of the granule of the first key that it names, as far as the client knows it; otherwise a node that the
    /// granule's name selects: granules move to the node that uses them, so this one is the owner from then on.
    #[coded(tag = 1)]
    Owners,
    /// The nearest node, also one that leads nothing; of several the leader of the shard of the first key, if it is among them.
    #[coded(tag = 2)]
    Nearest,
}

/// The topology and the configuration that one node knows.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Directory {
    /// Nodes and their addresses, shards, tables, and the shard map.
    pub topology: Arc<Topology>,
    /// The leaders of shards. `None` until the node has received a configuration from the manager.
    pub configuration: Option<Arc<Configuration>>,
    /// Where clients send transactions: the choice of the cluster's engine.
    pub routing: ClientRouting,
}
