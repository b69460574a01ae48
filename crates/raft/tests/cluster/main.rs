//! Managers over the log: replicas on a simulated network that delays, loses and cuts off, in virtual time.
//!
//! The library draws its election timeouts itself, so no two runs are the same, and the tests do not depend
//! on one order of events. The invariants are checked after each turn, in `world.rs`.

mod chaos;
mod compaction;
mod limits;
mod members;
mod network;
mod scenarios;
mod world;
