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
//! ahead of others. One on another shard goes into the transaction's `exchange.rs` and parks the body; the
//! engine sends what has gathered there, one batch for each shard at a time, and wakes the body with the
//! answers. So a worker keeps many transactions in flight, and operations that are awaited together travel
//! together.
//!
//! What futures and the engine share is the `hub.rs`; it belongs to one worker and needs no lock.
//!
//! Messages get lost and arrive twice. `outbox.rs` repeats requests until they are answered;
//! `branches.rs` is the participant's side, which acts on each request once.
//!
//! Read in this order: `hub.rs`, `exchange.rs`, `transaction.rs`, `local.rs`, `outbox.rs`,
//! `branches.rs`, `calls.rs`, `call_sessions.rs`, `request_rows.rs` and `interactive.rs` (clients from outside), `desk.rs`
//! (all of it together).

pub(crate) mod admission;
pub(crate) mod branches;
mod call_sessions;
pub(crate) mod calls;
pub(crate) mod desk;
pub(crate) mod exchange;
pub(crate) mod hub;
mod interactive;
mod local;
pub(crate) mod outbox;
pub(crate) mod request_rows;
pub(crate) mod rounds;
pub(crate) mod sequences;
pub(crate) mod sessions;
pub(crate) mod slot;
pub(crate) mod staged;
pub(crate) mod stages;
pub(crate) mod tasks;
pub(crate) mod timers;
mod trace;
mod transaction;

pub use hub::Limits;
pub use local::Local;
pub use transaction::Transaction;
