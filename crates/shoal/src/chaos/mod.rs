//! Failures of a local cluster, and what became of the writes that it acknowledged meanwhile.

mod tally;
mod writers;

pub use writers::Writers;
