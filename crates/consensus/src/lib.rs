//! Agreement without I/O: the replicated streams, the configuration manager, the shape of a cluster.
//!
//! [`stream`] replicates one sequence of entries. [`topology`] says which nodes there are, which
//! shards they hold, and where a key lives. [`manager`] says who is alive, who leads, which epoch it is
//! and how the closed ones ended.

pub mod manager;
mod planted;
pub mod stream;
pub mod topology;
