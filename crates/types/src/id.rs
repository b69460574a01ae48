//! Newtype identifiers: a shard's number is never mistaken for a node's.
//!
//! Each displays as a letter and its number, `t3` or `s0`, in logs and errors alike.

use crate::clock::Epoch;
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

/// The session under which a client calls procedures: granted by the leader of `home`, and never twice. Displays as
/// its numbers, `0.3.1.2.17`.
///
/// The first three fields name one process that leads the shard, and for how long it does without interruption; the
/// others count what that process has granted. So no two grants are equal, whatever fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CallSession {
    /// The shard whose leader granted it, and runs its calls.
    pub home: ShardId,
    /// The epoch in which the leadership of that leader began.
    pub since: Epoch,
    /// The incarnation of the leader's node.
    pub incarnation: u32,
    /// The worker that granted it, and takes all its calls.
    pub worker: WorkerId,
    /// Counts the sessions for this shard that the worker grants in this leadership, from a number drawn by chance.
    pub serial: u64,
}

impl fmt::Display for CallSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallSession { home, since, incarnation, worker, serial } = self;
        write!(f, "{}.{}.{incarnation}.{}.{serial}", home.0, since.0, worker.0)
    }
}

/// A client's call of a procedure; a retry with the same id takes effect once. Displays as `r`, its session and its
/// number, `r0.3.1.2.17-5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestId {
    /// Under which it is called.
    pub session: CallSession,
    /// Greater than those of all earlier calls under the session.
    pub number: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}-{}", self.session, self.number)
    }
}
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
        let session = CallSession {
            home: ShardId(0),
            since: Epoch(3),
            incarnation: 1,
            worker: WorkerId(2),
            serial: 17,
        };
        assert_eq!(RequestId { session, number: 5 }.to_string(), "r0.3.1.2.17-5");
        assert_eq!(ShardId::EVERY.to_string(), "s4294967295");
    }
}
