//! Newtype identifiers: a shard's number is never mistaken for a node's.
//!
//! Each displays as a letter and its number, `t3` or `s0`, in logs and errors alike.

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

impl ShardId {
    /// All shards at once, where a [`Stamp`](crate::Stamp) has one clock for many. No shard has
    /// this number.
    pub const EVERY: ShardId = ShardId(u32::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_display_as_letter_and_number() {
        let shown = format!("{} {} {} {}", TableId(3), ShardId(0), NodeId(12), WorkerId(1));
        assert_eq!(shown, "t3 s0 n12 w1");
        assert_eq!(RequestId(7).to_string(), "r7");
        assert_eq!(ShardId::EVERY.to_string(), "s4294967295");
    }
}
