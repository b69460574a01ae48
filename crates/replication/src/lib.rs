//! Replicas of shards that are kept by streams: what leaders write into their streams, how followers replay it, and how
//! snapshots travel. For engines whose leaders order the transactions of a shard by clocks that they draw from its store.
//!
//! ```text
//!   leader                                                       follower
//!   lock, draw a clock ─► in flight ─► resolved ─► entry, with   replay, in any order of the streams:
//!                                                  a safe clock  on one key the greatest clock wins
//! ```
//! Rules, which engines number among their own:
//!
//! - *Clock order*: a leader draws a clock while it holds the locks of a transaction, so versions of a key are installed in the
//!   order of their clocks.
//! - *Safe clock*: the safe clock in an entry is below every clock that the worker has drawn and not resolved.
//! - *Replay*: of the writes to a key, the one with the greatest epoch and clock wins, in any order of arrival.
//!
//! A snapshot brings what was in the store at a clock; replay skips what is at or below it.
//!
//! | file | holds |
//! |---|---|
//! | `codec.rs` | writes as bytes; each engine defines what an entry holds beside its writes |
//! | `replay_floor.rs` | what a copy from another replica has brought |
//! | `in_flight_clocks.rs`, `transit.rs` | a stream that is led: clocks in flight, safe clocks, pace; how long its entries take |
//! | `replica.rs` | a node's copy of a shard, shared by its workers |
//! | `replay.rs`, `replay_budget.rs`, `applied_write.rs` | Thomas's rule; how much a step replays; what checkers see of it |
//! | `snapshot_transfer.rs`, `snapshot_chunk.rs` | how the chunks of a copy travel; what all of them have |
//! | `checkpoint_copy.rs` | the chunks of a copy that goes into a checkpoint of the node itself |

pub mod applied_write;
pub mod checkpoint_copy;
pub mod codec;
pub mod in_flight_clocks;
pub mod replay;
pub mod replay_budget;
pub mod replay_floor;
pub mod replica;
pub mod snapshot_chunk;
pub mod snapshot_transfer;
pub mod transit;
