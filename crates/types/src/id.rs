//! Newtype identifiers: a shard's number is never mistaken for a node's.
//!
//! Each displays as a letter and its number, `t3` or `s0`, in logs and errors alike.

use crate::clock::Epoch;
use crate::random::Random;
use crate::wire::{Coded, Short};
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded, Short)]
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
id!(/** A datacenter: a group of nodes near each other, numbered in the order of the topology. */ DatacenterId(u32), "d");

/// A cluster, from its founding on: drawn at random by the managers' first command. A cluster that is founded again, under
/// the same name and at the same addresses, has another one. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
#[coded(via = u64)]
#[repr(transparent)]
pub struct ClusterId(NonZeroU64);

impl ClusterId {
    /// The identity that a random number stands for. `None` for 0.
    #[must_use]
    pub const fn new(number: u64) -> Option<ClusterId> {
        match NonZeroU64::new(number) {
            Some(number) => Some(ClusterId(number)),
            None => None,
        }
    }

    /// One that is drawn from `random`, of which no other cluster has drawn.
    #[must_use]
    pub fn draw(random: &mut Random) -> ClusterId {
        ClusterId(NonZeroU64::new(random.next_u64()).unwrap_or(NonZeroU64::MIN))
    }

    /// The number by which handshakes and files name the cluster; never 0.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What is no [`ClusterId`] as it is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the identity of a cluster is 1 to 16 hexadecimal digits, not all of them 0")]
pub struct NoClusterId;

impl FromStr for ClusterId {
    type Err = NoClusterId;

    fn from_str(text: &str) -> Result<ClusterId, NoClusterId> {
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).map_err(|_| NoClusterId)?;
        ClusterId::new(number).filter(|_| digits && text.len() <= 16).ok_or(NoClusterId)
    }
}

impl From<&ClusterId> for u64 {
    fn from(cluster: &ClusterId) -> u64 {
        cluster.get()
    }
}

impl TryFrom<u64> for ClusterId {
    type Error = &'static str;

    fn try_from(number: u64) -> Result<ClusterId, &'static str> {
        ClusterId::new(number).ok_or("no cluster has the identity 0")
    }
}

/// Where a worker is. Displays as both ids, `n2.w0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerPlace {
    /// The node on which the worker runs.
    pub node: NodeId,
    /// The worker's number within its node, from 0.
    pub worker: WorkerId,
}

impl fmt::Display for WorkerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node, self.worker)
    }
}

/// The session under which a client calls procedures: granted by the leader of `home`, and never twice. Displays as
/// its numbers, `0.3.1.2.17`.
///
/// The first three fields name one process that leads the shard, and for how long it does without interruption; the
/// others count what that process has granted. So no two grants are equal, with any failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded)]
pub struct CallSession {
    /// The shard whose leader granted it, and runs its calls.
    #[coded(short)]
    pub home: ShardId,
    /// The epoch in which the leadership of that leader began.
    #[coded(short)]
    pub since: Epoch,
    /// The incarnation of the leader's node.
    #[coded(short)]
    pub incarnation: u32,
    /// The worker that granted it, and takes all its calls.
    #[coded(short)]
    pub worker: WorkerId,
    /// Counts the sessions for this shard that the worker grants in this leadership, from a number drawn by chance.
    #[coded(short)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded)]
pub struct RequestId {
    /// Under which it is called.
    pub session: CallSession,
    /// Greater than those of all earlier calls under the session.
    #[coded(short)]
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
    use crate::wire::{decode, encode};
    use bytes::Bytes;

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

    #[test]
    fn a_cluster_is_read_as_it_is_displayed_and_is_never_0() {
        let cluster = ClusterId::new(0x0123_4567_89ab_cdef).expect("not 0");
        assert_eq!(cluster.to_string(), "0123456789abcdef");
        assert_eq!("0123456789abcdef".parse(), Ok(cluster));
        for wrong in ["", "0000000000000000", "+1", "0123456789abcdef0", "x"] {
            assert_eq!(wrong.parse::<ClusterId>(), Err(NoClusterId), "{wrong:?}");
        }
        assert_eq!(decode::<ClusterId>(&encode(&cluster)), Ok(cluster));
        assert!(decode::<ClusterId>(&Bytes::from_static(&[0; 8])).is_err());
        let mut random = Random::new(7);
        assert_ne!(ClusterId::draw(&mut random), ClusterId::draw(&mut random));
    }
}
