//! What leaders write into their streams, and how followers replay it; the same for all engines.
//!
//! | file | holds |
//! |---|---|
//! | `codec.rs` | writes as bytes; what an entry is beside its writes, each engine says itself |
//! | `replay_floor.rs` | what a copy from another replica has brought |
//! | `in_flight_clocks.rs` | a stream that is led: clocks in flight, safe clocks, pace |
//! | `replica.rs` | a node's copy of a shard, shared by its workers |
//! | `replay.rs`, `replay_budget.rs` | Thomas's rule; how much a step replays |
//! | `snapshot_transfer.rs`, `snapshot_chunk.rs` | how the chunks of a copy travel; what all of them have |

pub mod codec;
pub mod in_flight_clocks;
pub mod replay;
pub mod replay_budget;
pub mod replay_floor;
pub mod replica;
pub mod snapshot_chunk;
pub mod snapshot_transfer;
pub mod transit;
