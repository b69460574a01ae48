//! How a transaction runs until it asks to commit; the same for all engines.
//!
//! ```text
//!   body (async) ──► Transaction ──► own shards: the store, at once
//!                         │
//!                         └────────► other shards: Exchange ──► engine ──► participant
//!                                        ▲                                     │
//!                                        └──────────── answers ────────────────┘
//! ```
//! Bodies are futures: procedures, sessions of clients, tasks that live on the worker. The worker
//! polls them (`tasks.rs`), no runtime does. An operation on a shard that this worker's node leads is
//! a plain call into the store and ready at once; but after a conflict it first waits for what was asked
//! ahead of others. One on another shard goes into the transaction's `remote_branches.rs` and parks the body; the
//! engine sends what has gathered there, one batch for each shard at a time, and wakes the body with the
//! answers. So a worker keeps many transactions in flight, and operations that are awaited together travel
//! together.
//!
//! What futures and the engine share is the `worker_context.rs`; it belongs to one worker and needs no lock.
//!
//! Messages get lost and arrive twice. `request_retransmission.rs` repeats requests until they are answered;
//! `participant_table.rs` is the participant's side, which acts on each request once; `deferred_requests.rs` keeps those that
//! come before their shard is served.
//!
//! Read in this order: `worker_context.rs`, `remote_branches.rs`, `transaction.rs`, `local_database.rs`, `request_retransmission.rs`,
//! `participant_table.rs`, `procedure_calls.rs`, `call_sessions.rs`, `request_rows.rs`, `registrations.rs` and `interactive.rs` (clients from
//! outside), `runtime.rs` (all of it together).

pub mod admission;
mod call_sessions;
pub mod deferred_requests;
mod interactive;
mod local_database;
pub mod participant_table;
mod procedure_calls;
mod registrations;
pub mod remote_branches;
pub mod request_retransmission;
pub(crate) mod request_rows;
pub mod runtime;
pub mod sequences;
pub mod session_pool;
pub mod slot;
pub mod stage_times;
pub mod task_driver;
pub mod tasks;
mod timers;
mod transaction;
mod transaction_trace;
pub mod worker_context;

pub use local_database::LocalDatabase;
pub use transaction::CoordinatorTransaction;
pub use worker_context::Limits;
