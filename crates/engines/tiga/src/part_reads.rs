//! What a procedure reads on one of several shards, as the leader of that sends it to the others.

use crate::transaction::Part;
use bytes::Bytes;
use shoal_types::TableId;
use shoal_types::procedure::FootprintRange;
use shoal_types::wire::Coded;

/// What a procedure reads on one shard, in the order of its part: empty for certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct PartReads {
    /// The values of the keys that are read; `None` where there is no row.
    pub values: Vec<Option<Bytes>>,
    /// The rows of the ranges that are read, ascending; of ranges that are only written, none.
    pub ranges: Vec<Vec<(Bytes, Bytes)>>,
}

impl PartReads {
    /// The value of a key that is read: the outer `None` if it is not.
    #[must_use]
    pub fn value(&self, part: &Part, table: TableId, key: &[u8]) -> Option<Option<&[u8]>> {
        if let Some(at) = part.reads.iter().position(|it| it.table == table && it.key == key) {
            return self.values.get(at).map(Option::as_deref);
        }
        let reads = |range: &FootprintRange| range.access.reads() && range.contains(table, key);
        let at = part.declared_ranges.iter().position(reads)?;
        let rows = self.ranges.get(at)?;
        let found = rows.binary_search_by(|(other, _)| other[..].cmp(key)).ok();
        Some(found.map(|at| &rows[at].1[..]))
    }

    /// The rows of a range that covers `scanned`, if one does that is read.
    #[must_use]
    pub fn rows(&self, part: &Part, scanned: &FootprintRange) -> Option<&[(Bytes, Bytes)]> {
        let covers = |range: &FootprintRange| range.access.reads() && range.covers(scanned);
        let at = part.declared_ranges.iter().position(covers)?;
        self.ranges.get(at).map(Vec::as_slice)
    }
}
