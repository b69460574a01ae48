//! Topologies: their files, and which shard has what.

mod files;
mod homes;
