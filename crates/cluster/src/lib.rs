//! A cluster without I/O: its shape, and the configuration manager.
//!
//! [`topology`] is the static shape: nodes, shards, replicas, and where a key lives. [`manager`] is the
//! replicated state machine that decides which nodes are alive, which of them lead, which epoch is open, and
//! how the closed ones ended.

pub mod manager;
pub mod topology;
