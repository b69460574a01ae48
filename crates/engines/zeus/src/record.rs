//! Ownership records: which node owns a granule, which nodes read it, and what requests make of that.
//!
//! The directory nodes of the granule's shard have its record, and so has the owner. Records of a granule are ordered by
//! their timestamp `o_ts`; of contending ones the greater wins (Zeus, EuroSys'21, §4.1). It has the epoch besides the
//! version and the driver: an arbitration that was begun in one epoch and not finished must not share its timestamp with
//! one of a later epoch (rule Z17).

use crate::view::Member;
use shoal_types::wire::Coded;
use shoal_types::{Epoch, NodeId};
use std::collections::BTreeSet;
use std::fmt;

/// So many readers a granule has beside its owner, where there are as many nodes. `Leave` and `Drop` keep them.
pub const READERS_MIN: usize = 2;

/// The timestamp of a record; the greater wins. Displays as `version.epoch.driver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded)]
pub struct OwnershipTs {
    /// One more than that of the record it replaces; 0 only where there is no record.
    #[coded(short)]
    pub version: u64,
    /// The epoch in which it was driven.
    #[coded(short)]
    pub epoch: Epoch,
    /// The directory node that drove it.
    #[coded(short)]
    pub driver: NodeId,
}

impl fmt::Display for OwnershipTs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.version, self.epoch.0, self.driver.0)
    }
}

/// What a node may do with a granule's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub enum Level {
    /// It has no copy of them.
    #[coded(tag = 0)]
    None,
    /// It has a copy, which the owner keeps current, and reads it.
    #[coded(tag = 1)]
    Reader,
    /// It alone writes them.
    #[coded(tag = 2)]
    Owner,
}

/// The owner and the readers of a granule. The default is that of a granule that was never created.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded)]
#[coded(check = OwnershipRecord::check)]
pub struct OwnershipRecord {
    /// Its place in the order of the granule's records.
    pub o_ts: OwnershipTs,
    /// The owner; `None` while it is dead and no other node has taken the granule.
    pub owner: Option<NodeId>,
    /// The readers, without the owner.
    pub readers: BTreeSet<NodeId>,
}

/// What a request asks of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub enum RequestKind {
    /// The requester becomes the owner; the old one becomes a reader.
    #[coded(tag = 0)]
    Own,
    /// The requester becomes a reader.
    #[coded(tag = 1)]
    Read,
    /// The requester, a reader, gives its copy up.
    #[coded(tag = 2)]
    Leave,
    /// The requester, the owner, has this reader give its copy up.
    #[coded(tag = 3)]
    Drop(NodeId),
}

impl RequestKind {
    /// Whether the requester gains a level.
    #[must_use]
    pub fn takes(self) -> bool {
        match self {
            RequestKind::Own | RequestKind::Read => true,
            RequestKind::Leave | RequestKind::Drop(_) => false,
        }
    }
}

impl OwnershipRecord {
    /// The granule was never created: it has no rows anywhere.
    #[must_use]
    pub fn is_uncreated(&self) -> bool {
        self.o_ts.version == 0
    }

    /// All nodes that had the granule have died, as far as the record says.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        !self.is_uncreated() && self.owner.is_none() && self.readers.is_empty()
    }

    fn check(&self) -> Result<(), &'static str> {
        match self.owner.is_none_or(|owner| !self.readers.contains(&owner)) {
            true => Ok(()),
            false => Err("a node that is both owner and reader"),
        }
    }

    /// The level that the record gives the node.
    #[must_use]
    pub fn level_of(&self, node: NodeId) -> Level {
        match self.owner == Some(node) {
            true => Level::Owner,
            false if self.readers.contains(&node) => Level::Reader,
            false => Level::None,
        }
    }

    /// The nodes that have a copy, the owner first.
    pub fn replicas(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.owner.into_iter().chain(self.readers.iter().copied())
    }

    /// Removes the nodes that are dead from owner and readers.
    pub fn strip(&mut self, is_dead: impl Fn(NodeId) -> bool) {
        self.owner = self.owner.filter(|owner| !is_dead(*owner));
        self.readers.retain(|reader| !is_dead(*reader));
    }

    /// The record after a request by `from` has been granted, still with this one's timestamp; `None` if it is refused:
    /// the owner asks for what it has, or there would be fewer readers than `readers_min` (rule Z14). A reader may ask
    /// to read: after a `Leave` that was refused it must not serve before that is granted. Where the granule was never
    /// created, `first_readers` get a copy of it, which is empty.
    #[must_use]
    pub fn granted(
        &self,
        kind: RequestKind,
        from: NodeId,
        first_readers: impl Iterator<Item = NodeId>,
        readers_min: usize,
    ) -> Option<OwnershipRecord> {
        let mut record = self.clone();
        let is_owner = self.owner == Some(from);
        let spare = self.readers.len() > readers_min;
        match kind {
            RequestKind::Own | RequestKind::Read if self.is_uncreated() => {
                record.owner = Some(from);
                record.readers =
                    first_readers.filter(|reader| *reader != from).take(READERS_MIN).collect();
            }
            RequestKind::Own if !is_owner => {
                record.readers.extend(self.owner);
                record.readers.remove(&from);
                record.owner = Some(from);
            }
            RequestKind::Read if !is_owner => {
                record.readers.insert(from);
            }
            RequestKind::Leave if self.owner.is_some() && spare && self.readers.contains(&from) => {
                record.readers.remove(&from);
            }
            RequestKind::Drop(reader) if is_owner && spare && self.readers.contains(&reader) => {
                record.readers.remove(&reader);
            }
            RequestKind::Own | RequestKind::Read | RequestKind::Leave | RequestKind::Drop(_) => {
                return None;
            }
        }
        Some(record)
    }
}

impl fmt::Display for OwnershipRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.o_ts)?;
        match self.owner {
            Some(owner) => write!(f, "{owner}")?,
            None => write!(f, "-")?,
        }
        self.readers.iter().try_for_each(|reader| write!(f, " {reader}"))?;
        write!(f, ")")
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestKind::Own => write!(f, "own"),
            RequestKind::Read => write!(f, "read"),
            RequestKind::Leave => write!(f, "leave"),
            RequestKind::Drop(reader) => write!(f, "drop {reader}"),
        }
    }
}

/// A request of one member of the configuration: its answers go to no later process of that node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
pub struct Requested {
    /// What it asks for.
    pub kind: RequestKind,
    /// The node that asks.
    pub by: Member,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(version: u64, owner: Option<u32>, readers: &[u32]) -> OwnershipRecord {
        OwnershipRecord {
            o_ts: OwnershipTs { version, epoch: Epoch(1), driver: NodeId(0) },
            owner: owner.map(NodeId),
            readers: readers.iter().copied().map(NodeId).collect(),
        }
    }

    fn grant(from: &OwnershipRecord, kind: RequestKind, by: u32) -> Option<OwnershipRecord> {
        from.granted(kind, NodeId(by), [0, 1, 2].map(NodeId).into_iter(), READERS_MIN)
    }

    #[test]
    fn timestamps_are_ordered_by_version_then_epoch_then_driver() {
        let ts = |version, epoch, driver| OwnershipTs {
            version,
            epoch: Epoch(epoch),
            driver: NodeId(driver),
        };
        assert!(
            ts(2, 1, 9) < ts(3, 1, 0) && ts(3, 1, 0) < ts(3, 1, 1) && ts(3, 1, 9) < ts(3, 2, 0)
        );
        assert_eq!(ts(3, 2, 1).to_string(), "3.2.1");
    }

    #[test]
    fn the_first_request_creates_with_the_directory_as_readers() {
        let none = OwnershipRecord::default();
        for kind in [RequestKind::Own, RequestKind::Read] {
            let created = grant(&none, kind, 1).expect("it is granted");
            assert_eq!(
                (created.owner, created.readers),
                (Some(NodeId(1)), [0, 2].map(NodeId).into())
            );
        }
        assert_eq!(grant(&none, RequestKind::Leave, 1), None);
    }

    #[test]
    fn an_old_owner_becomes_a_reader() {
        let moved =
            grant(&record(3, Some(0), &[1, 2]), RequestKind::Own, 1).expect("it is granted");
        assert_eq!(moved, record(3, Some(1), &[0, 2]));
        assert_eq!(moved.to_string(), "3.1.0(n1 n0 n2)");
        assert_eq!(moved.level_of(NodeId(1)), Level::Owner);
        assert_eq!(moved.level_of(NodeId(0)), Level::Reader);
        assert_eq!(moved.level_of(NodeId(5)), Level::None);
        assert_eq!(moved.replicas().collect::<Vec<_>>(), [1, 0, 2].map(NodeId));
        assert_eq!(grant(&moved, RequestKind::Own, 1), None, "it is the owner already");
        assert_eq!(grant(&moved, RequestKind::Read, 2), Some(moved), "it may have stopped serving");
    }

    #[test]
    fn readers_stay_where_there_would_be_too_few() {
        let few = record(3, Some(0), &[1, 2]);
        assert_eq!(grant(&few, RequestKind::Leave, 1), None);
        assert_eq!(grant(&few, RequestKind::Drop(NodeId(1)), 0), None);
        let many = record(3, Some(0), &[1, 2, 3]);
        assert_eq!(grant(&many, RequestKind::Leave, 1), Some(record(3, Some(0), &[2, 3])));
        let drop = RequestKind::Drop(NodeId(2));
        assert_eq!(grant(&many, drop, 0), Some(record(3, Some(0), &[1, 3])));
        assert_eq!(grant(&many, drop, 1), None, "only the owner drops");
        assert_eq!(
            grant(&record(3, None, &[1, 2, 3]), RequestKind::Leave, 1),
            None,
            "it has no owner"
        );
    }

    #[test]
    fn the_dead_are_in_no_record() {
        let mut stripped = record(3, Some(0), &[1, 2]);
        stripped.strip(|node| node == NodeId(0) || node == NodeId(2));
        assert_eq!(stripped, record(3, None, &[1]));
    }

    proptest! {
        /// A node owns or reads, never both; and what is granted to a node is what it asked for.
        #[test]
        fn an_owner_is_no_reader(requests in proptest::collection::vec((0_u8..4, 0_u32..5, 0_u32..5), 0..20)) {
            let mut record = OwnershipRecord::default();
            for (kind, by, other) in requests {
                let kind = match kind {
                    0 => RequestKind::Own,
                    1 => RequestKind::Read,
                    2 => RequestKind::Leave,
                    _ => RequestKind::Drop(NodeId(other)),
                };
                let Some(mut next) = grant(&record, kind, by) else { continue };
                prop_assert!(next.owner.is_none_or(|owner| !next.readers.contains(&owner)));
                let level = next.level_of(NodeId(by));
                match kind {
                    RequestKind::Own => prop_assert_eq!(level, Level::Owner),
                    RequestKind::Read => prop_assert!(level >= Level::Reader),
                    RequestKind::Leave => prop_assert_eq!(level, Level::None),
                    RequestKind::Drop(reader) => prop_assert_eq!(next.level_of(reader), Level::None),
                }
                prop_assert!(kind.takes() || next.readers.len() >= READERS_MIN);
                next.o_ts.version += 1;
                record = next;
            }
        }
    }
}
