//! What a procedure says ahead of what it will touch, and of whether it can be executed in pieces.
//!
//! Engines that order transactions before they execute them, or that move data to where it is used, have to know what
//! a transaction touches before it runs. The declaration binds: a procedure must not touch anything outside of it.
//! A declaration that is too wide is safe and costs concurrency.

use crate::id::TableId;
use crate::transaction::{Scan, ScanEnd};
use crate::wire::Coded;
use bytes::Bytes;
use std::ops::Bound;

/// How a transaction can be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// In independent pieces, one a shard, each on the rows of that shard alone. The results of the pieces are joined
    /// by [`Procedure::combine`](super::Procedure::combine). What one piece writes, returns or refuses does not depend on
    /// what another reads. And what one refuses, all refuse, as where it follows from the arguments: an engine may execute them
    /// apart, so that others do not learn of a refusal, and then the caller receives
    /// [`Unknown::Participant`](crate::Unknown::Participant).
    Pieces,
    /// Only as a whole, with everything that it reads in one place. It depends on nothing but its arguments and what
    /// it reads, so that every place that has all of that finds the same.
    Whole,
    /// As a whole, and what it touches is known only once it has run: the footprint says nothing.
    #[default]
    Unknown,
}

/// What happens to the rows of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum Access {
    /// Some are read; so is the absence of others.
    #[coded(tag = 0)]
    Read,
    /// Some are written, inserted or deleted, and none is read.
    #[coded(tag = 1)]
    Write,
    /// Some are read, and some are written.
    #[coded(tag = 2)]
    ReadWrite,
}

impl Access {
    /// True for `Read` and `ReadWrite`.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// True for `Write` and `ReadWrite`.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

/// A key of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FootprintKey {
    /// The table of the key.
    pub table: TableId,
    /// The key that is accessed.
    pub key: Bytes,
}

/// A range of a table's keys.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct FootprintRange {
    /// The table of the range.
    #[coded(short)]
    pub table: TableId,
    /// The least key of the range.
    pub start: Bytes,
    /// The first key behind it; `None` where it goes to the end of the table.
    pub end: Option<Bytes>,
    /// What happens to its rows.
    pub access: Access,
}

impl FootprintRange {
    /// The range of a scan, of any limit and direction.
    pub fn of(table: TableId, scan: &Scan<'_>, access: Access) -> FootprintRange {
        let start = match scan.start {
            Bound::Unbounded => Bytes::new(),
            Bound::Included(key) => Bytes::copy_from_slice(key),
            Bound::Excluded(key) => successor(key),
        };
        let end = match scan.end {
            ScanEnd::Bound(Bound::Unbounded) => None,
            ScanEnd::Bound(Bound::Excluded(key)) => Some(Bytes::copy_from_slice(key)),
            ScanEnd::Bound(Bound::Included(key)) => Some(successor(key)),
            ScanEnd::Prefix(prefix) => behind_prefix(prefix),
        };
        FootprintRange { table, start, end, access }
    }

    /// A scan of all of the range.
    pub fn scan(&self) -> Scan<'_> {
        let end = self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        Scan::range((Bound::Included(&self.start[..]), end))
    }

    /// Whether the key is in the range.
    pub fn contains(&self, table: TableId, key: &[u8]) -> bool {
        let is_before_end = self.end.as_deref().is_none_or(|end| key < end);
        table == self.table && self.start <= key && is_before_end
    }

    /// Whether all keys of the other one are in this range.
    pub fn covers(&self, other: &FootprintRange) -> bool {
        let ends_before = match (&self.end, &other.end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(other)) => other <= end,
        };
        self.table == other.table && self.start <= other.start && ends_before
    }
}

/// What a transaction touches, and its [`Shape`].
///
/// A key that is read and written is in both lists. An insert reads that its key is absent, and writes it; an addition
/// reads and writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Keys that are read, whether they are present or not.
    pub reads: Vec<FootprintKey>,
    /// Keys that are written, inserted or deleted.
    pub writes: Vec<FootprintKey>,
    /// Ranges that are scanned, or in which keys are touched that are not known ahead.
    pub ranges: Vec<FootprintRange>,
    /// How it can be executed.
    pub shape: Shape,
}

impl Footprint {
    /// The footprint of a transaction whose reads decide what it touches.
    pub fn unknown() -> Footprint {
        Footprint::default()
    }

    /// The footprint of a transaction that touches nothing yet, and is executed in pieces.
    pub fn pieces() -> Footprint {
        Footprint { shape: Shape::Pieces, ..Footprint::default() }
    }

    /// The footprint of a transaction that touches nothing yet, and is executed as a whole.
    pub fn whole() -> Footprint {
        Footprint { shape: Shape::Whole, ..Footprint::default() }
    }

    /// Adds a key that is read.
    pub fn read(&mut self, table: TableId, key: &[u8]) {
        self.reads.push(FootprintKey { table, key: Bytes::copy_from_slice(key) });
    }

    /// Adds a key that is written, inserted or deleted, and not read.
    pub fn write(&mut self, table: TableId, key: &[u8]) {
        self.writes.push(FootprintKey { table, key: Bytes::copy_from_slice(key) });
    }

    /// Adds a key that is read and written.
    pub fn read_write(&mut self, table: TableId, key: &[u8]) {
        let key = FootprintKey { table, key: Bytes::copy_from_slice(key) };
        self.reads.push(key.clone());
        self.writes.push(key);
    }

    /// Adds the range of a scan, of any limit and direction.
    pub fn range(&mut self, table: TableId, scan: &Scan<'_>, access: Access) {
        self.ranges.push(FootprintRange::of(table, scan, access));
    }

    /// Whether the key may be read.
    pub fn allows_read(&self, table: TableId, key: &[u8]) -> bool {
        contains(&self.reads, table, key) || self.is_in_range(table, key, Access::reads)
    }

    /// Whether the key may be written.
    pub fn allows_write(&self, table: TableId, key: &[u8]) -> bool {
        contains(&self.writes, table, key) || self.is_in_range(table, key, Access::writes)
    }

    /// Whether the range of the scan may be read.
    pub fn allows_scan(&self, table: TableId, scan: &Scan<'_>) -> bool {
        let scanned = FootprintRange::of(table, scan, Access::Read);
        self.ranges.iter().any(|range| range.access.reads() && range.covers(&scanned))
    }

    fn is_in_range(&self, table: TableId, key: &[u8], access: impl Fn(Access) -> bool) -> bool {
        self.ranges.iter().any(|range| access(range.access) && range.contains(table, key))
    }
}

fn contains(keys: &[FootprintKey], table: TableId, key: &[u8]) -> bool {
    keys.iter().any(|known| known.table == table && known.key == key)
}

/// The least key above this one.
pub fn successor(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// The least key above all that begin with the prefix, if there is one.
fn behind_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(3);

    fn with_range(scan: Scan<'_>, access: Access) -> Footprint {
        let mut footprint = Footprint::whole();
        footprint.range(TABLE, &scan, access);
        footprint
    }

    #[test]
    fn keys_are_allowed_as_they_were_declared() {
        let mut footprint = Footprint::pieces();
        footprint.read(TABLE, b"a");
        footprint.write(TABLE, b"b");
        footprint.read_write(TABLE, b"c");
        let allowed =
            |key: &[u8]| (footprint.allows_read(TABLE, key), footprint.allows_write(TABLE, key));
        assert_eq!(allowed(b"a"), (true, false));
        assert_eq!(allowed(b"b"), (false, true));
        assert_eq!(allowed(b"c"), (true, true));
        assert_eq!(allowed(b"d"), (false, false));
        assert!(!footprint.allows_read(TableId(4), b"a"), "another table");
        assert!(!footprint.allows_scan(TABLE, &Scan::prefix(b"a")), "a key is no range");
    }

    #[test]
    fn ranges_cover_keys_and_narrower_scans() {
        let footprint = with_range(Scan::prefix(b"ab"), Access::Read);
        assert!(footprint.allows_read(TABLE, b"ab") && footprint.allows_read(TABLE, b"ab\xff\xff"));
        assert!(!footprint.allows_read(TABLE, b"ac") && !footprint.allows_read(TABLE, b"aa"));
        assert!(!footprint.allows_write(TABLE, b"ab"), "it is only read");
        assert!(footprint.allows_scan(TABLE, &Scan::prefix(b"abc").reverse().limit(1)));
        let inside = Scan::range(b"ab1".as_slice()..=b"ab2".as_slice());
        assert!(footprint.allows_scan(TABLE, &inside));
        for wider in [Scan::all(), Scan::prefix(b"a"), Scan::range(b"ab".as_slice()..)] {
            assert!(!footprint.allows_scan(TABLE, &wider), "{wider:?}");
        }
        let written = with_range(Scan::prefix(b"ab"), Access::Write);
        assert!(written.allows_write(TABLE, b"ab") && !written.allows_read(TABLE, b"ab"));
        assert!(!written.allows_scan(TABLE, &Scan::prefix(b"ab")));
    }

    #[test]
    fn bounds_of_every_kind_become_half_open_ranges() {
        let all = with_range(Scan::all(), Access::ReadWrite);
        assert!(all.allows_write(TABLE, b"\xff\xff") && all.allows_scan(TABLE, &Scan::all()));
        let after = Bound::Excluded(b"b".as_slice());
        let between =
            with_range(Scan::range((after, Bound::Included(b"d".as_slice()))), Access::Read);
        let read = [&b"b"[..], b"b\0", b"d", b"d\0"].map(|key| between.allows_read(TABLE, key));
        assert_eq!(read, [false, true, true, false]);
        let to_the_end = with_range(Scan::prefix(b"\xff\xff"), Access::Read);
        assert!(to_the_end.allows_read(TABLE, b"\xff\xff\xff"));
    }
}
