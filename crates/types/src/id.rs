//! Newtype identifiers: a shard's number is never mistaken for a node's.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(/** A table, numbered in order of creation. */ TableId(u32), "t");
id!(/** A shard: a set of partitions with one leader. */ ShardId(u32), "s");
id!(/** A node: one process. */ NodeId(u32), "n");
id!(/** A worker: one thread of a node. */ WorkerId(u32), "w");
id!(/** A client's request; a retry with the same id takes effect once. */ RequestId(u128), "r");
