//! The reliable commit: a transaction that its owner has committed locally is replicated to the readers of what it wrote,
//! pipelined (Zeus, EuroSys'21, §5).
//!
//! ```text
//!  coordinator (owner)            followers (readers)
//!     │ local commit, slot 7           │
//!     ├── ReplicationInv 7 ───────────►│ applies 7 once it has applied 6, or knows 6 to be validated
//!     │ local commit, slot 8           │
//!     ├── ReplicationInv 8 ───────────►│
//!     │◄───────────── ReplicationAck 7 ┤ acknowledges what it has applied, not what has arrived
//!     │ 7 is validated: replies        │
//!     ├── ReplicationVal 7 ───────────►│ its rows are valid, where their version is still that of slot 7
//! ```
//! A slot is validated when all its live followers have acknowledged and all earlier slots of the pipeline are validated
//! (rule Z6). So what is validated survives the coordinator, and anything that it depends on does too: a follower that has
//! applied a slot has applied all earlier slots of which it is a follower.
//!
//! | file | holds |
//! |---|---|
//! | `local.rs` | the local commit |
//! | `pipelines.rs` | the slots of this node's workers |
//! | `worker_turns.rs` | which worker of the node is next on a granule |
//! | `followed.rs` | what a follower does |
//! | `replays.rs`, `replayed_slots.rs` | slots of dead coordinators |
//! | `restore.rs` | pipelines after a restart |

mod followed;
mod local;
mod pipelines;
mod replayed_slots;
mod replays;
mod restore;
mod worker_turns;

/// How a slot comes back after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestoredSlot {
    /// As it was applied: its rows are not there, unless they are of a later moment.
    Applied,
    /// From a checkpoint: it is pending, and its rows come with their granules.
    Pending,
}

pub use followed::{Followed, FollowedPipelines};
pub use local::{CommitRefusal, LocalCommit, ReadCommit, ReadRow, ScannedGranule};
pub use pipelines::{Pipelines, Validated};
