//! A cluster without I/O: its shape, and the configuration manager.
//!
//! [`topology`] says which nodes there are, which shards they hold, and where a key lives. [`manager`]
//! says which nodes are alive, which of them lead, which epoch it is and how the closed ones ended.

pub mod manager;
pub mod topology;
