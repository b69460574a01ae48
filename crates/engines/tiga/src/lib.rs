//! Engine `tiga`: a coordinator gives each transaction a timestamp a little in the future, replicas release conflicting ones
//! in the order of timestamps, and what a fast quorum has released alike is committed after one wide-area round trip (Tiga,
//! SOSP'25; where this page and the paper differ, this page holds).
//!
//! ```text
//!  coordinator              leader of shard 0        followers              leader of shard 1
//!      │ t = now + delays          │                      │                        │
//!      ├── Submit(T, t) ──────────►├─────── Propose(t), Ready(t) ─────────────────►│
//!      ├── Submit(T, t) ───────────┼─────────────────────►│ released at t          │
//!      │◄──────────────── Vote ────┤ executed, appended   │                        │
//!      │◄──────────────── Vote ────┼──────────────────────┤                        │
//!      │ equal votes: committed    ├── log ──────────────►│ synced                 │
//! ```
//! Read in this order:
//!
//! | file | holds |
//! |---|---|
//! | `stamp.rs`, `transaction.rs`, `locks.rs`, `digest.rs` | what a transaction touches, what conflicts, and what it rests on |
//! | `record.rs`, `rows.rs`, `ledger.rs` | the log, and the state that follows from it |
//! | `part_reads.rs`, `message.rs`, `view.rs`, `step.rs`, `options.rs` | what nodes say and know |
//! | `coordinator.rs`, `delays.rs` | timestamps, and counting votes |
//! | `replica.rs`, `queue.rs`, `tentative.rs` | acceptance, release and votes |
//! | `leading.rs`, `leader.rs`, `clock_agreement.rs`, `exchange.rs`, `execute.rs`, `reads.rs` | agreement, execution, reads |
//! | `recovery.rs`, `refusal.rs` | a new leader; what a shard never takes |
//! | `vote_log.rs` | votes on disk |
//! | `snapshot.rs` | the state that stands for entries which the log has no more |
//! | `node.rs`, `observation.rs` | a node: all of them together; what a checker sees of it |
//! | `engine/` | the engine around it: transactions of clients |
//!
//! The rules, and where each is asserted, are in `docs/tiga.md`. All of it is a state machine without I/O.

mod answer;
mod clock_agreement;
pub mod coordinator;
pub mod delays;
pub mod digest;
mod engine;
pub mod exchange;
pub mod execute;
pub mod leader;
pub mod leading;
pub mod ledger;
pub mod locks;
pub mod message;
mod metrics;
pub mod node;
pub mod observation;
mod optimistic;
pub mod options;
pub mod part_reads;
mod planted_bugs;
mod promise;
pub mod queue;
mod reads;
pub mod record;
mod recovery;
mod refusal;
mod repetition;
pub mod replica;
pub mod rows;
mod settled_call;
pub mod snapshot;
pub mod stamp;
pub mod step;
pub mod tentative;
pub mod transaction;
mod undecided_votes;
pub mod view;
mod vote_log;

pub use engine::{Tiga, TigaCounters, TigaEngineMessage, TigaEngineOptions};
pub use metrics::{CoordinatorCounters, ReplicaCounters};
pub use node::{Appointment, Now, TigaNode};
pub use observation::TigaObservation;
pub use options::TigaOptions;
pub use planted_bugs::TigaPlantedBug;
