//! Topologies: their files, and which shard has what.

mod files;
mod fuzz_target;
mod homes;
