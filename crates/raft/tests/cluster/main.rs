//! Managers over the log: replicas on a network in memory that delays, loses and cuts off, in virtual
//! time.
//!
//! The library draws its election timeouts itself, so no two runs are the same; nothing here counts on
//! one course of things. What must hold in every course is checked at each turn, in `world.rs`.

mod chaos;
mod compaction;
mod limits;
mod members;
mod network;
mod scenarios;
mod world;
