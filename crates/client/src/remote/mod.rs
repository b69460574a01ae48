//! A cluster, as its clients see it: the same interface as the embedded database, over sockets.
//!
//! ```text
//!   transactions ──► sessions ─┐                       ┌─ link to worker 0 of n0
//!                              ├──► one link for each ─┼─ link to worker 1 of n0
//!   calls ──► numbers ─────────┘    (node, worker)     └─ link to worker 0 of n3
//!                 ▲                                         │
//!                 └──────── directory ◄──── what they say ──┘
//! ```
//! An interactive transaction runs at one worker of the leader of the first key it names (of the owner of its granule, where
//! granules move to the node that uses them), and ends with the connection to there. A call is asked for, by way of any node, until it is answered: it takes effect
//! once. The leaders are learned from the nodes themselves, and anew whenever one of them does not
//! answer, is gone, or says that another leads.
//!
//! | file | holds |
//! |---|---|
//! | `cluster.rs` | [`Cluster`]: what a connected [`Db`](crate::Db) holds |
//! | `options.rs`, `error.rs` | what it allows; why it could not connect |
//! | `transaction.rs` | [`ClusterTransaction`]: operations, buffered writes, the end |
//! | `load.rs` | many rows, in many transactions at once |
//! | `read_ahead.rs` | reads that were announced, which travel together |
//! | `attempts.rs` | how a transaction is run again |
//! | `blocking.rs`, `client_thread.rs` | clients with a thread of their own, for callers that wait on theirs |
//! | `session.rs` | the steps of a transaction that are not answered: no socket in it |
//! | `call.rs`, `answers.rs`, `request_ids.rs` | calls, the tasks that wait for their answers, their sessions and numbers |
//! | `connection.rs`, `connection_pool.rs`, `dial.rs` | a connection and what waits for messages over it; all of them; making them on demand |
//! | `tables.rs` | creating and dropping tables |
//! | `directory.rs`, `refresh.rs` | the leaders and their addresses; asking for them |
//! | `granule_routes.rs` | which node coordinates, where granules move to the node that uses them |
//! | `region.rs` | where the client is, and the emulated distance to each node |
//! | `cluster_identity.rs` | which cluster the client belongs to, and which nodes do not |
//! | `client_shared.rs`, `shared.rs` | what connections share; what all of these share |
//! | `environment.rs`, `sockets.rs` | what the client needs of its surroundings; tokio and sockets, which give it on machines. The simulator gives the same |
//! | `timers.rs` | the deadlines of all waits, on machines |
//!
//! What always holds:
//!
//! - Nothing waits without a deadline. An operation that gives up says for what it waited, for which node and why it was in
//!   vain.
//! - What is aborted has not happened, and is run again; what is unknown is never run again.
//! - Nothing is asked of a node that belongs to another founding of the cluster than the client.
//! - Frames of nodes that make no sense end the connection, and are counted.

mod answers;
mod attempts;
mod blocking;
mod call;
mod client_shared;
mod client_thread;
mod cluster;
mod cluster_identity;
mod connection;
mod connection_pool;
mod dial;
mod directory;
pub mod environment;
mod error;
mod granule_routes;
mod load;
mod options;
mod read_ahead;
mod refresh;
mod region;
mod request_ids;
mod retransmission;
mod session;
mod shared;
mod sockets;
mod tables;
mod timers;
mod transaction;

pub(crate) use attempts::Attempts;
pub(crate) use blocking::{WaitingTransaction, connect as connect_blocking};
pub use cluster::Cluster;
pub use error::{ConnectError, OptionsError};
pub use options::ClusterOptions;
pub use transaction::ClusterTransaction;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a mutex holds here is whole whenever it is not locked, panics or not.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
