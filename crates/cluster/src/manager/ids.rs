//! The numbers by which the manager and nodes identify terms, processes, requests and configurations.

use shoal_types::NodeId;
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
            shoal_types::wire::Coded, shoal_types::wire::Short,
        )]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(/** A term of one manager, in one process of it; a later one is higher. 0 belongs to none. */ Term(u64));
number!(/** One instance of a node's process, drawn at random at its start. Only for equality. */ ProcessInstance(u64));
number!(/** The survivors of a node that the manager has admitted, counted from 1. */ Incarnation(u32));
number!(/** A request to change something, numbered by its sender. */ Ask(u64));
number!(/** Counts the changes of the configuration, with and without a new epoch. */ Revision(u64));
number!(/** Counts the recoveries of a cluster's managers; 0 is the one that founded it. Two never have the same one. */ Generation(u64));

impl Generation {
    /// The next generation that the manager on this node may begin.
    #[must_use]
    pub fn next(self, node: NodeId) -> Generation {
        Generation((self.count() + 1) << 32 | u64::from(node.0))
    }

    /// The least number of recoveries that have happened.
    #[must_use]
    pub fn count(self) -> u64 {
        self.0 >> 32
    }
}
