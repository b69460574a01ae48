//! The words every part of Shoal shares.
//!
//! Read in this order: [`id`] names things, [`clock`] and [`stamp`] order them, and so does real time where an engine
//! goes by it ([`transaction_clock`]); [`mod@tuple`] makes keys, [`transaction`] says what a database and a transaction can
//! do, [`bulk_load`] how many rows are written at once, [`counted`] what it counts, [`procedure`] what is called by name, [`error`] says what can go wrong, [`wait`] what was waited for in vain,
//! [`distance`] how far datacenters are from each other, [`arena`] keeps what bodies borrow, [`hash_index`] finds by a hash, [`random`] is the only source of
//! randomness below the sockets, [`backoff`] says how long to wait before another attempt, [`wire`] turns all
//! that is said and kept into bytes.
//!
//! This crate is pure: no clock, no socket, no thread, no ambient randomness.

// Derived code names this crate by its full path, here as everywhere.
extern crate self as shoal_types;

pub mod arena;
pub mod backoff;
pub mod ballot;
pub mod bulk_load;
pub mod clock;
pub mod counted;
pub mod distance;
pub mod durability;
pub mod error;
pub mod hash_index;
pub mod id;
pub mod limits;
mod maybe_ready;
mod planted;
pub mod procedure;
pub mod random;
pub mod stamp;
pub mod time;
pub mod transaction;
pub mod transaction_clock;
pub mod tuple;
pub mod wait;
pub mod wire;

pub use arena::Arena;
pub use backoff::Backoff;
pub use ballot::Ballot;
pub use clock::{Clock, Epoch};
pub use counted::{Counted, CountedStage};
pub use distance::{Distance, DistanceMatrix, Way};
pub use durability::{Durability, UnknownDurability};
pub use error::{Aborted, Conflict, Error, KeyExcerpt, Rejected, Result, Unknown};
pub use id::{
    CallSession, ClusterId, DatacenterId, NoClusterId, NodeId, RequestId, ShardId, TableId,
    WorkerId, WorkerPlace,
};
pub use maybe_ready::MaybeReady;
pub use procedure::{Call, Footprint, Procedure, ProcedureTransaction, Procedures};
pub use random::Random;
pub use stamp::{REMOTE_CLOCKS_MAX, RemoteClock, Stamp, StampRef, VectorWatermark, View};
pub use time::Time;
pub use transaction::{Database, Rows, Scan, Transaction};
pub use transaction_clock::{EventTimes, TransactionTime};
pub use wait::{Awaited, Cause, Wait};
