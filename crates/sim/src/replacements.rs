//! The replacements of replicas in a run: how often they are asked for, and which are under way.

use shoal_cluster::manager::Ask;
use std::collections::BTreeSet;

/// The replacements of a run.
#[derive(Debug, Default)]
pub(crate) struct Replacements {
    /// The mean time between two of them in nanoseconds; 0 for never.
    pub every_ns: u64,
    /// Replacements that were asked for and are not answered.
    pub asked: BTreeSet<Ask>,
    /// The number of crashes placed within replacements.
    pub crashes: u32,
}
