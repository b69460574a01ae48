//! What a procedure reads on one of several shards, as the leader of that sends it to the others.

use crate::transaction::{Part, ROW_BYTES, value_bytes};
use bytes::Bytes;
use shoal_types::procedure::FootprintRange;
use shoal_types::wire::Coded;
use shoal_types::{Aborted, Conflict, Result, TableId};

/// What a procedure reads on one shard, in the order of its part: empty for certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct PartReads {
    /// The values of the keys that are read; `None` where there is no row.
    pub values: Vec<Option<Bytes>>,
    /// What is known of the declared ranges.
    pub ranges: Vec<RangeReads>,
}

/// What is known of a range.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct RangeReads {
    /// The least key from which on all rows are here. Of a range that is also written, it is behind its last row: such a range is
    /// wide, and what is appended to it reads nothing else.
    pub from: Bytes,
    /// The rows from there on, ascending.
    pub rows: Vec<(Bytes, Bytes)>,
}

impl PartReads {
    /// The bytes in a message, at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let row = |(key, value): &(Bytes, Bytes)| ROW_BYTES + key.len() + value.len();
        let rows = |range: &RangeReads| range.rows.iter().map(row).sum::<usize>();
        let ranges = self.ranges.iter().map(|range| ROW_BYTES + range.from.len() + rows(range));
        ROW_BYTES + self.values.iter().map(value_bytes).sum::<usize>() + ranges.sum::<usize>()
    }

    /// The value of a key: `None` if it is not declared as read on this shard.
    ///
    /// # Errors
    /// A conflict, where it is declared and not known.
    pub fn value(&self, part: &Part, table: TableId, key: &[u8]) -> Option<Result<Option<&[u8]>>> {
        if let Some(at) = part.reads.iter().position(|it| it.table == table && it.key == key) {
            return self.values.get(at).map(|value| Ok(value.as_deref()));
        }
        let reads = |range: &FootprintRange| range.access.reads() && range.contains(table, key);
        let rows = self.known(part, table, key, reads)?;
        Some(rows.map(|rows| {
            let found = rows.binary_search_by(|(other, _)| other[..].cmp(key)).ok();
            found.map(|at| &rows[at].1[..])
        }))
    }

    /// The rows of a range that covers `scanned`: `None` if none does that is declared as read on this shard.
    ///
    /// # Errors
    /// As for [`PartReads::value`].
    pub fn rows(&self, part: &Part, scanned: &FootprintRange) -> Option<Result<&[(Bytes, Bytes)]>> {
        let covers = |range: &FootprintRange| range.access.reads() && range.covers(scanned);
        self.known(part, scanned.table, &scanned.start, covers)
    }

    fn known(
        &self,
        part: &Part,
        table: TableId,
        from: &[u8],
        is_it: impl Fn(&FootprintRange) -> bool,
    ) -> Option<Result<&[(Bytes, Bytes)]>> {
        let at = part.declared_ranges.iter().position(is_it)?;
        let range = self.ranges.get(at)?;
        Some(match &range.from[..] <= from {
            true => Ok(&range.rows),
            false => Err(Aborted::from(Conflict::RangeChanged { table }).into()),
        })
    }
}
