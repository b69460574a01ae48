//! Agreement without I/O: the replicated streams, and the shape of a cluster.
//!
//! [`stream`] replicates one sequence of entries. [`topology`] says which nodes there are, which
//! shards they hold, and where a key lives.

pub mod stream;
pub mod topology;
