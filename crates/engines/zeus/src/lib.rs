//! Engine `zeus`: objects move to the node that uses them, transactions commit there as on one machine, and are replicated
//! in the background (Zeus, EuroSys'21; where this page and the paper differ, this page holds).
//!
//! ```text
//!   transaction      missing granules        local commit           replication              reply
//!       │ wants ──────► ownership protocol ──► all levels held ──► slot of a pipeline ──► all followers have applied it
//!       └───────────────── a granule that is here already: nothing to wait for
//! ```
//! Read in this order:
//!
//! | file | holds |
//! |---|---|
//! | `granule.rs`, `granule_map.rs` | granules, the unit of ownership, and a map of them |
//! | `view.rs` | members and epochs |
//! | `record.rs`, `version.rs` | ownership records; pipelines, slots and versions |
//! | `message.rs`, `show.rs` | what nodes say to each other, and how traces show it |
//! | `rows.rs` | rows, and which of them are validated |
//! | `ownership/` | the ownership protocol |
//! | `commit/` | the reliable commit |
//! | `read_only.rs` | read-only transactions |
//! | `recovery/` | the barrier, and copies of the directory |
//! | `redo/` | what a node records in its log on disk |
//! | `node.rs` | a node: all of them together |
//! | `engine/` | the engine around it: transactions of clients |
//!
//! The rules, and where each is asserted, are in `docs/zeus.md`. All of it is a state machine without I/O.

pub mod commit;
mod engine;
pub mod granule;
mod granule_map;
pub mod message;
pub mod node;
pub mod options;
pub mod ownership;
mod planted_bugs;
pub mod read_only;
pub mod record;
mod recovery;
mod redo;
pub mod rows;
mod scope;
mod show;
pub mod version;
pub mod view;
#[cfg(test)]
mod wire;

pub use commit::{CommitRefusal, LocalCommit, ReadCommit, ReadRow, ScannedGranule, Validated};
pub use engine::{
    ShownRow, TransactionFact, Zeus, ZeusCounters, ZeusEngineMessage, ZeusEngineOptions,
    ZeusObservation, ZeusShared,
};
pub use granule::{GranuleId, GranuleLayout};
pub use message::{MessageBody, ZeusMessage};
pub use node::ZeusNode;
pub use options::{Effect, ZeusOptions};
pub use ownership::{Ticket, Want};
pub use planted_bugs::ZeusPlantedBug;
pub use read_only::{ReadOutcome, ReadSet, Reader};
pub use record::{Level, OwnershipRecord, OwnershipTs, RequestKind};
pub use scope::Placement;
pub use view::{Directory, Member, View};
