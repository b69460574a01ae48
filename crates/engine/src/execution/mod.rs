//! How a transaction runs until it asks to commit; the same for all engines.
//!
//! ```text
//!   body (async) ──► Transaction ──► own shards: the store, at once
//!                         │
//!                         └────────► other shards: remote branches ──► engine ──► participant
//!                                        ▲                                            │
//!                                        └─────────────── answers ────────────────────┘
//! ```
//! Bodies are futures: procedures, sessions of clients, tasks that live on the worker. The worker
//! polls them (`tasks.rs`), no runtime does. An operation on a shard that this worker's node leads is
//! a plain call into the store and ready at once; but after a conflict it first waits for what was asked
//! ahead of others. One on another shard goes into the transaction's `remote_branches.rs` and suspends the body; the
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
//! The files, bottom to top; each imports only those above it in this list (`crates/shoal/tests/tidy` refuses circles):
//!
//! | | |
//! |---|---|
//! | `limits.rs`, `slot.rs`, `timers.rs`, `due_queue.rs`, `tasks.rs`, `slot_pool.rs` | limits, a value that a future waits for, times, what is due, the futures themselves, places of values that are used again |
//! | `leaderships.rs` | the leader of each shard, and which of them this worker serves |
//! | `sequences.rs`, `session_pool.rs` | numbers of transactions; sessions of own stores |
//! | `request_retransmission.rs`, `participant_table.rs`, `deferred_requests.rs` | both ends of a request, and requests that wait for their shard |
//! | `admission.rs`, `stage_times.rs`, `attempt.rs`, `remote_branches.rs`, `coordinated_transactions.rs` | what is kept of a transaction beside its body |
//! | `worker_context.rs` | all of that, for the futures of one worker and its engine |
//! | `staged_certification.rs` | a branch that is locked and validated in as many steps as its size takes |
//! | `transaction_trace.rs`, `transaction.rs`, `procedure_run.rs`, `local_database.rs` | a transaction: what bodies work with, how a procedure is run in it, and how it is run until it is over |
//! | `call_sessions.rs`, `request_rows.rs`, `registrations.rs`, `interactive.rs`, `procedure_calls.rs`, `registered_call.rs` | clients from outside |
//! | `runtime.rs`, `task_driver.rs` | a worker: all of it together |
//!
//! To understand it, begin with `worker_context.rs`, `remote_branches.rs`, `transaction.rs` and `local_database.rs`.

pub mod admission;
pub mod attempt;
mod call_sessions;
pub mod coordinated_transactions;
pub mod deferred_requests;
pub mod due_queue;
mod interactive;
pub mod leaderships;
pub mod limits;
mod local_database;
mod local_routes;
pub mod own_branches;
pub mod participant_table;
mod procedure_calls;
mod procedure_run;
mod registered_call;
mod registrations;
pub mod remote_branches;
pub mod request_retransmission;
mod request_rows;
pub mod runtime;
pub mod sequences;
pub mod session_pool;
pub mod slot;
pub mod slot_pool;
pub mod stage_times;
pub mod staged_certification;
pub mod tables;
pub mod task_driver;
pub mod tasks;
mod timers;
mod transaction;
mod transaction_trace;
pub mod worker_context;

pub use limits::Limits;
pub use local_database::LocalDatabase;
pub use transaction::CoordinatorTransaction;
