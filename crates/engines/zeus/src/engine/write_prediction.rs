//! Whether a transaction that reads a granule is going to write it.
//!
//! A granule that is not here moves for a read, and once more if the transaction then writes it. Operations do not say what
//! follows them, but transactions of one family of tables do much the same again and again: so a worker counts, as branch
//! predictors of processors do, with a saturating counter for each family. Where writes have followed reads lately, a granule
//! that has to come anyway comes with its ownership. A level above the one that is needed breaks no rule; a wrong prediction
//! costs what the right one saves.

use crate::granule::GranuleId;
use shoal_types::TableId;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The greatest value of a counter.
const COUNT_MAX: u8 = 3;

/// From this value on a write is expected.
const EXPECTED_FROM: u8 = 2;

/// What a worker has seen follow its reads, by the first table of the family.
#[derive(Debug, Default)]
pub(super) struct WritePrediction {
    counts: RefCell<BTreeMap<TableId, u8>>,
}

impl WritePrediction {
    /// Whether a transaction that reads the granule is expected to write it.
    pub(super) fn expects_write(&self, granule: &GranuleId) -> bool {
        self.counts.borrow().get(&granule.family).is_some_and(|count| *count >= EXPECTED_FROM)
    }

    /// A transaction has read the granule, and written it or not.
    pub(super) fn learn(&self, granule: &GranuleId, was_written: bool) {
        let mut counts = self.counts.borrow_mut();
        let count = counts.entry(granule.family).or_insert(EXPECTED_FROM - 1);
        *count = match was_written {
            true => (*count + 1).min(COUNT_MAX),
            false => count.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn granule(family: u32) -> GranuleId {
        GranuleId { family: TableId(family), prefix: Bytes::from_static(b"p") }
    }

    #[test]
    fn one_exception_changes_no_settled_expectation() {
        let prediction = WritePrediction::default();
        assert!(!prediction.expects_write(&granule(1)));
        prediction.learn(&granule(1), true);
        assert!(prediction.expects_write(&granule(1)));
        (0..5).for_each(|_| prediction.learn(&granule(1), true));
        prediction.learn(&granule(1), false);
        assert!(prediction.expects_write(&granule(1)) && !prediction.expects_write(&granule(2)));
        prediction.learn(&granule(1), false);
        assert!(!prediction.expects_write(&granule(1)));
    }
}
