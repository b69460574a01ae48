//! The shard map of one table: the shard of a key, and the shards of a scan.
//!
//! [`Partitioning`] is what was asked for; a `Router` is the same, prepared for the path of every
//! operation: it allocates nothing for a key, and of most split keys it looks at eight bytes only.

use super::hash::shard_of;
use shoal_types::transaction::ScanEnd;
use shoal_types::wire::Coded;
use shoal_types::{Scan, ShardId};
use std::ops::Bound;

/// The first key of each range of a table, and the shard that has the range.
pub type Splits = Vec<(Box<[u8]>, ShardId)>;

/// How a table's keys are divided among the shards.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum Partitioning {
    /// By a hash of the key's first bytes, over all shards.
    #[coded(tag = 0)]
    Hash {
        /// How many bytes count; keys that agree in them live together. A shorter key counts whole,
        /// and 0 means that every key counts whole.
        prefix_bytes: usize,
    },
    /// By ranges of keys, each of which has a shard.
    #[coded(tag = 1)]
    Range {
        /// Ascending by key; the first key is empty. A shard may have several ranges.
        splits: Splits,
    },
    /// Every shard holds a copy of the whole table. Reads are local, a write goes to all shards:
    /// for tables that are small and rarely written.
    #[coded(tag = 2)]
    Everywhere,
}

impl Partitioning {
    /// A range for each shard, in their order, from these keys on; the first is empty.
    pub fn ranges(first: impl IntoIterator<Item = Vec<u8>>) -> Partitioning {
        let shards = (0..).map(ShardId);
        Partitioning::Range {
            splits: first.into_iter().map(Vec::into_boxed_slice).zip(shards).collect(),
        }
    }
}

/// The shards of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The key is on this shard only.
    One(ShardId),
    /// The key is on every shard: reads go to any of them, writes to all.
    Everywhere,
}

/// Which shards a scan has to ask. A shard may turn out to have none of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Homes {
    /// One shard has all rows of the scan.
    One(ShardId),
    /// These, each once, ascending by key (in either direction of the scan): what one has lies wholly
    /// before what the next one has.
    Ordered(Vec<ShardId>),
    /// These, each once; what they have is to be merged by key.
    Mixed(Vec<ShardId>),
    /// Any one shard: every shard has all.
    Everywhere,
}

/// A partitioning and what makes it fast.
///
/// Invariant: for `Range`, `heads` has the head of each split; else it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Router {
    partitioning: Partitioning,
    shards: u32,
    heads: Vec<u64>,
}

/// The first eight bytes of a key, as a number that compares as they do; a shorter key is filled up
/// with zeros, so equal heads decide nothing.
#[inline]
pub fn key_head(key: &[u8]) -> u64 {
    if let Some(word) = key.first_chunk() {
        return u64::from_be_bytes(*word);
    }
    let mut word = [0; 8];
    word[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(word)
}

/// The first `count` bytes of a key, or all it has; all where `count` is 0.
#[inline]
fn prefix(key: &[u8], count: usize) -> &[u8] {
    if count == 0 || count > key.len() { key } else { &key[..count] }
}

impl Router {
    /// A router for a partitioning that was validated for `shards` shards.
    pub(super) fn new(partitioning: Partitioning, shards: u32) -> Router {
        let mut heads = Vec::new();
        if let Partitioning::Range { splits } = &partitioning {
            assert!(splits.first().is_some_and(|(from, _)| from.is_empty()), "keys without a home");
            assert!(splits.is_sorted_by(|(one, _), (two, _)| one < two), "unsorted splits");
            assert!(splits.iter().all(|(_, shard)| shard.0 < shards), "a split without a shard");
            heads = splits.iter().map(|(from, _)| key_head(from)).collect();
        }
        Router { partitioning, shards, heads }
    }

    pub(super) fn partitioning(&self) -> &Partitioning {
        &self.partitioning
    }

    /// The shard or shards of `key`.
    #[inline]
    pub(super) fn home(&self, key: &[u8]) -> Home {
        match &self.partitioning {
            Partitioning::Hash { prefix_bytes } => {
                Home::One(shard_of(prefix(key, *prefix_bytes), self.shards))
            }
            Partitioning::Range { splits } => Home::One(splits[self.range_of(splits, key)].1),
            Partitioning::Everywhere => Home::Everywhere,
        }
    }

    /// How many leading bytes of a key determine its shard by themselves, for keys that have so many. `None` where that is
    /// not so, or each shard has every key.
    pub(super) fn deciding_prefix(&self) -> Option<usize> {
        match &self.partitioning {
            Partitioning::Hash { .. } if self.shards == 1 => Some(0),
            Partitioning::Hash { prefix_bytes: 0 } => None,
            Partitioning::Hash { prefix_bytes } => Some(*prefix_bytes),
            Partitioning::Range { splits } => (splits.len() == 1).then_some(0),
            Partitioning::Everywhere => None,
        }
    }

    /// The place of the range that has `key`: the last one that begins at or before it.
    #[inline]
    fn range_of(&self, splits: &[(Box<[u8]>, ShardId)], key: &[u8]) -> usize {
        let wanted = key_head(key);
        let below = self.heads.partition_point(|head| *head < wanted);
        if self.heads.get(below) != Some(&wanted) {
            // No head is below that of the first split, the empty key; so it lies below this one.
            return below - 1;
        }
        let equal = self.heads[below..].partition_point(|head| *head == wanted);
        let level = &splits[below..below + equal];
        let begun = below + level.partition_point(|(from, _)| **from <= *key);
        // The first split is the empty key, which is not above any.
        begun - 1
    }

    /// The shards that `scan` has to ask.
    pub(super) fn homes(&self, scan: &Scan<'_>) -> Homes {
        match &self.partitioning {
            Partitioning::Hash { prefix_bytes } => self.hashed_homes(*prefix_bytes, scan),
            Partitioning::Range { splits } => self.range_homes(splits, scan),
            Partitioning::Everywhere => Homes::Everywhere,
        }
    }

    fn hashed_homes(&self, prefix_bytes: usize, scan: &Scan<'_>) -> Homes {
        if let Some(shared) = shared_prefix(prefix_bytes, scan) {
            return Homes::One(shard_of(shared, self.shards));
        }
        if self.shards == 1 {
            return Homes::One(ShardId(0));
        }
        Homes::Mixed((0..self.shards).map(ShardId).collect())
    }

    fn range_homes(&self, splits: &[(Box<[u8]>, ShardId)], scan: &Scan<'_>) -> Homes {
        let first = match scan.start {
            Bound::Included(key) | Bound::Excluded(key) => self.range_of(splits, key),
            Bound::Unbounded => 0,
        };
        let end = match scan.end {
            ScanEnd::Bound(Bound::Included(key)) => self.range_of(splits, key) + 1,
            ScanEnd::Bound(Bound::Excluded(key)) => {
                splits.partition_point(|(from, _)| **from < *key)
            }
            ScanEnd::Bound(Bound::Unbounded) => splits.len(),
            ScanEnd::Prefix(key) => {
                splits.partition_point(|(from, _)| **from <= *key || from.starts_with(key))
            }
        };
        // An empty scan may end before it begins; one shard can find nothing as well as any.
        let touched = &splits[first..end.max(first + 1)];
        let mut shards: Vec<_> = touched.iter().map(|(_, shard)| *shard).collect();
        shards.dedup();
        if let [shard] = shards[..] {
            return Homes::One(shard);
        }
        let mut each_once = shards.clone();
        each_once.sort_unstable();
        each_once.dedup();
        if each_once.len() == shards.len() {
            Homes::Ordered(shards)
        } else {
            Homes::Mixed(each_once)
        }
    }
}

/// What is hashed of every key that `scan` can meet, if that is the same for all of them.
fn shared_prefix<'k>(prefix_bytes: usize, scan: &Scan<'k>) -> Option<&'k [u8]> {
    let (Bound::Included(low) | Bound::Excluded(low)) = scan.start else { return None };
    if let (Bound::Included(_), ScanEnd::Bound(end)) = (scan.start, scan.end)
        && is_single(low, end)
    {
        return Some(prefix(low, prefix_bytes));
    }
    // Below this line a key shorter than the prefix could lie between the bounds.
    if prefix_bytes == 0 || low.len() < prefix_bytes {
        return None;
    }
    let shared = &low[..prefix_bytes];
    let all_share = match scan.end {
        ScanEnd::Prefix(high) | ScanEnd::Bound(Bound::Included(high)) => high.starts_with(shared),
        ScanEnd::Bound(Bound::Excluded(high)) => high.starts_with(shared) || is_next(shared, high),
        ScanEnd::Bound(Bound::Unbounded) => false,
    };
    all_share.then_some(shared)
}

/// Whether `low` is the only key from itself up to `end`.
fn is_single(low: &[u8], end: Bound<&[u8]>) -> bool {
    match end {
        Bound::Included(high) => low == high,
        Bound::Excluded(high) => high.strip_prefix(low) == Some(&[0]),
        Bound::Unbounded => false,
    }
}

/// Whether `high` is the least key above all that begin with `shared`, and differs from it in the
/// last byte only. (Were there a carry, a shorter key could lie between.)
fn is_next(shared: &[u8], high: &[u8]) -> bool {
    let (Some((last, init)), Some((high_last, high_init))) =
        (shared.split_last(), high.split_last())
    else {
        return false;
    };
    init == high_init && last.checked_add(1) == Some(*high_last)
}
