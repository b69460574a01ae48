//! The nodes that are added and removed in a run.

/// The additions and removals of nodes of a run.
#[derive(Debug, Default)]
pub(crate) struct NodeChanges {
    /// The mean time between two of them in nanoseconds; 0 for never.
    pub every_ns: u64,
    /// The datacenters of nodes that can be added, in the order of their numbers.
    pub latecomers: Vec<usize>,
}

impl NodeChanges {
    /// No change before it is asked for; the nodes that can be added are in these datacenters.
    pub fn new(latecomers: Vec<usize>) -> NodeChanges {
        NodeChanges { every_ns: 0, latecomers }
    }
}
