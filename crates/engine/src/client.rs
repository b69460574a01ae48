//! What clients ask and what they are told.
//!
//! A request may be lost, repeated or late like any message, and so may its reply. A procedure that
//! is called with a [`RequestId`] takes effect once, however often the call arrives; a client that got no
//! answer calls again with the same one. A request id is made of a session, which the leader of the call's shard has
//! granted, and a number, which the client counts. A session has one call under way at a time: the leader remembers the last
//! of each.
//!
//! All copies of a call have to reach the same worker, [`worker_of`] its session, of any node, which passes it on to
//! the leader; another one refuses it. Why it is then run once is argued in `execution/call_sessions.rs`.
//!
//! | a copy of a call finds | it is answered |
//! |---|---|
//! | its session known, and no copy of it before | when it has run |
//! | that it runs, or an earlier call of its session | not at all: the client asks again |
//! | that it has failed | with that error |
//! | that it has committed, or that its session is not known | as its row says: with its result; [`CallSessionOver`], so that it never runs; or [`Forgotten`] |
//! | that its row cannot be read now | [`Unsettled`]: the client asks again |
//!
//! A commit may have a request id, too. Its transaction reads the row of the session, and writes it: so it conflicts with
//! every other transaction that does. A client that has lost the answer has the row looked up ([`ClientRequest::Resolve`]),
//! in a transaction that writes it where the commit has not: of both one happens first, and is what is true for good. The
//! row lies on a shard that the transaction writes to anyway. The commit is refused where its row was dropped, or may be
//! lost, since it may have been told there that it never commits.
//!
//! An interactive transaction is named by the *registration* of the connection over which its client asks, which the worker
//! grants, and by `session`, a number that the client counts. A session begins once under a registration, and under one that
//! a worker has forgotten none begins. So a message that begins a transaction, writes and commits takes effect once,
//! however often and however late copies of it arrive; and what a client has read and what it commits are one
//! transaction. Why is argued in `execution/registrations.rs`.
//!
//! [`CallSessionOver`]: shoal_types::Aborted::CallSessionOver
//! [`Forgotten`]: shoal_types::Unknown::Forgotten
//! [`Unsettled`]: shoal_types::Unknown::Unsettled

use crate::operation::{Operation, OperationResult};
pub use crate::request_table::{
    COMMITTED, NEVER_COMMITS, REQUESTS_TABLE, read_request_row, request_key, request_row,
    requests_table,
};
use bytes::Bytes;
use shoal_cluster::manager::{Ask, Configuration, TableChange};
use shoal_cluster::topology::Topology;
use shoal_types::wire::{Coded, Short};
use shoal_types::{CallSession, Error, RequestId, ShardId, TableId, WorkerId};
use std::sync::Arc;

/// A client, as the node that it is connected to names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded, Short)]
pub struct ClientId(pub u64);

/// Which of a node's `workers` takes the calls of a session: the one that granted it.
pub fn worker_of(session: &CallSession, workers: u32) -> WorkerId {
    WorkerId(session.worker.0 % workers.max(1))
}

/// Steps of an interactive transaction that a client may have under way at once. One that is farther ahead is passed
/// over, and answers to steps farther back are forgotten.
pub const STEPS_AHEAD_MAX: usize = 64;

/// Bytes of the steps that wait for their turn, and of the answers that are remembered beside the last one. A step
/// that is one too many is passed over; a step whose answer is forgotten is answered like one of an unknown session.
pub const AHEAD_BYTES_MAX: usize = 1 << 20;

/// What a client asks of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
// Steps one by one had the tags from 1 to 3, and their replies 1 and 2: other releases may still send them.
pub enum ClientRequest {
    /// Grant a session for calls on a shard. The leader of `home` does; any other node passes it on to there. Each copy
    /// that arrives gets a session of its own; the client uses the first of which it hears.
    #[coded(tag = 4)]
    OpenCalls {
        /// Names this request to its client, drawn so that no other client names one of its own so.
        token: u64,
        /// The shard whose leader will run the calls: best one that they touch.
        #[coded(short)]
        home: ShardId,
    },
    /// Run a procedure as one transaction. The leader of the session's shard runs it and remembers the outcome; any
    /// other node passes it on to there, whole. Harmless if repeated.
    #[coded(tag = 0)]
    Call {
        /// Names the request; see the module.
        id: RequestId,
        /// The procedure's name.
        #[coded(short)]
        procedure: Box<str>,
        /// What it is called with.
        arguments: Bytes,
    },
    /// Register the connection over which this comes: interactive transactions begin under its registration. Harmless if
    /// repeated: while the worker knows the connection, the registration stays the same.
    #[coded(tag = 5)]
    Register,
    /// Steps of an interactive transaction, in their order; the step with number 0 begins it. A step is done once, however
    /// often it is asked for. Steps are done one after the other; those that come before their turn wait for it, up to
    /// [`STEPS_AHEAD_MAX`] and [`AHEAD_BYTES_MAX`]. A put or a delete that fails ends the transaction, so that a commit may
    /// travel with writes that are not answered.
    #[coded(tag = 6)]
    Steps {
        /// What the worker granted to the connection.
        registration: u64,
        /// The client's number for the transaction, greater than any it has used over this connection before.
        #[coded(short)]
        session: u64,
        /// The number of the first of these steps.
        #[coded(short)]
        number: u32,
        /// What to do.
        #[coded(short)]
        operations: Vec<Operation>,
        /// How to end after that, if this is the end: the last step of all.
        ending: Option<SessionEnd>,
    },
    /// What became of a transaction that was to [commit under an id](SessionEnd::CommitAs)? Where it has not committed, it
    /// never will after the answer. The leader of the session's shard answers; any other node passes it on to there.
    /// Harmless if repeated.
    #[coded(tag = 8)]
    Resolve {
        /// The id of the commit.
        id: RequestId,
    },
    /// Create or drop a table. Only the first worker of a node takes it, and has the managers told until they answer. Takes
    /// effect once, however often and by way of however many nodes it is asked for.
    #[coded(tag = 7)]
    ChangeTable {
        /// The number of the request, drawn so that no other client draws it.
        ask: Ask,
        /// The change that is asked for.
        change: TableChange,
    },
}

/// How an interactive transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum SessionEnd {
    /// Commit all writes of the transaction.
    #[coded(tag = 0)]
    Commit,
    /// Write nothing, but have what was read proved consistent and durable: for a client that is about
    /// to act on what it read by giving up.
    #[coded(tag = 1)]
    Confirm,
    /// Undo everything, all of it.
    #[coded(tag = 2)]
    Rollback,
    /// Commit all writes of the transaction, and in the same transaction the row that tells so under this id, which no other
    /// commit has. The session of the id is one for calls on a shard that the transaction writes to.
    #[coded(tag = 3)]
    CommitAs(RequestId),
}

impl SessionEnd {
    /// Is it a commit?
    pub fn commits(self) -> bool {
        matches!(self, SessionEnd::Commit | SessionEnd::CommitAs(_))
    }
}

/// What a client is told. Everything in it is durable.
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
        /// The worker's name for the connection, which it has granted to no other and never will.
        registration: u64,
    },
    /// To [`ClientRequest::Steps`]: what came of one of them, and that all puts and deletes before it are done. Told of
    /// each step that brings something, of the last step in each message, and of a step that fails. After an error
    /// other than one that a read or an insert itself brings (a key that exists, a limit) the transaction is over.
    #[coded(tag = 5)]
    Done {
        /// Which transaction.
        #[coded(short)]
        session: u64,
        /// Which of its steps.
        #[coded(short)]
        number: u32,
        /// What came of it.
        result: Result<OperationResult, Error>,
    },
    /// To [`ClientRequest::ChangeTable`]. All nodes that live have heard of the change, and the directory of the node that
    /// answers tells of it.
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
    /// The client, as the node that it is connected to names it; the reply goes there.
    #[coded(short)]
    pub from: ClientId,
    /// What the client asks for.
    pub request: ClientRequest,
}

/// An answer to a client, on its way from the engine to the client's connection.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct ReplyToClient {
    /// The client, as the node that it is connected to names it.
    #[coded(short)]
    pub to: ClientId,
    /// What it is told.
    pub reply: ClientReply,
}

/// What passes between the node that a client asked and the one that leads the shard it asked for. Like
/// any message it may be lost, repeated or late; the client asks again.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum Relay {
    /// The leader's node is to serve this.
    #[coded(tag = 0)]
    Request(RequestFromClient),
    /// The leader's answer.
    #[coded(tag = 1)]
    Reply(ReplyToClient),
}

/// What a client's frame to a worker says.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum FromClient {
    /// It asks the engine for something.
    #[coded(tag = 0)]
    Request(ClientRequest),
    /// It asks where everything is. Answered by [`ToClient::Directory`].
    #[coded(tag = 1)]
    Directory,
    /// It asks how the node is. Answered by [`ToClient::Status`].
    #[coded(tag = 2)]
    Status,
    /// The node is to be cut off from all others, or not any more. Only where its configuration allows it.
    /// Answered by [`ToClient::Isolated`].
    #[coded(tag = 3)]
    Isolate(bool),
}

/// What a worker's frame to a client says.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ToClient {
    /// The engine's answer.
    #[coded(tag = 0)]
    Reply(ClientReply),
    /// Where everything is.
    #[coded(tag = 1)]
    Directory(Directory),
    /// How the node is, as JSON.
    #[coded(tag = 2)]
    Status(Bytes),
    /// Whether the node is cut off from all others now, since it was told to be.
    #[coded(tag = 3)]
    Isolated(bool),
}

/// Where everything is, as far as one node knows.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Directory {
    /// Nodes and their addresses, shards, tables, and which keys are where.
    pub topology: Arc<Topology>,
    /// Who leads what. `None` while the node has not heard from the manager yet.
    pub configuration: Option<Arc<Configuration>>,
}
