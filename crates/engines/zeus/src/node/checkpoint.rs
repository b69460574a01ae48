//! A node's state in parts, for a checkpoint of the node: they are redo records, and are taken again like these.
//!
//! The first part is of one moment: the membership, the pipelines, and the slots that are pending. The granules follow, one after the
//! other, while they change; what has changed since the first part is in redo records. The log's own mark comes before those that were
//! made and not written yet when the first part was taken, and that has them: so a record says where it was taken, and those before it
//! are passed over.

use super::ZeusNode;
use crate::granule::GranuleId;
use crate::redo::{Change, RedoPart, RedoRecord, StoredGranules, StoredHolding, StoredRow};
use bytes::Bytes;
use shoal_types::wire::encode;
use std::sync::Arc;

/// A part has about so many bytes at most, but for a larger granule.
const PART_BYTES: usize = 128 << 10;

/// A part has so many granules at most.
const PART_GRANULES: usize = 512;

impl ZeusNode {
    /// The first part of a checkpoint. The next record says so.
    pub fn checkpoint_head(&mut self) -> Bytes {
        let number = self.redo.begin_checkpoint();
        let (copying, rebuilt) = (self.copies.copying().clone(), self.copies.rebuilt().clone());
        let tables = self.redo.tables().iter().map(|tables| Change::Placed(Arc::clone(tables)));
        let mut changes: Vec<Change> = tables.collect();
        changes.push(Change::CheckpointBegan { number });
        changes.push(Change::In(Arc::new(self.view.clone())));
        changes.extend(self.barrier.state().map(|(replaying, unaware)| {
            let (replaying, unaware) = (replaying.clone(), unaware.clone());
            Change::Barrier { replaying, unaware }
        }));
        changes.push(Change::Directories { copying, rebuilt });
        changes.extend(self.pipelines.stored(self.node));
        changes.extend(self.followed.stored());
        let part = RedoPart {
            requests: self.ownership.requests_made(),
            holdings: self.ownership.stored_forgotten(),
            changes,
        };
        encode(&RedoRecord { parts: vec![part] })
    }

    /// The part of a checkpoint with the granules behind this one, and the last of them if more follow.
    #[must_use]
    pub fn checkpoint_part(&self, after: Option<&GranuleId>) -> (Bytes, Option<GranuleId>) {
        let (mut holdings, mut changes, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut last = None;
        for (granule, _) in self.ownership.holdings_after(after) {
            if bytes >= PART_BYTES || holdings.len() >= PART_GRANULES {
                last = holdings.last().map(|last: &StoredHolding| last.granule.clone());
                break;
            }
            let (granule, state) = (granule.clone(), self.ownership.stored(granule));
            if let Some(of) = self.rows.granule(&granule) {
                bytes += of.bytes();
                let rows = of.all().map(|(key, row)| StoredRow::of(key, row)).collect();
                changes.push(Change::Rows { granule: granule.clone(), rows });
            }
            holdings.push(StoredHolding { granule, state });
        }
        let part = RedoPart { requests: self.ownership.requests_made(), holdings, changes };
        (encode(&RedoRecord { parts: vec![part] }), last)
    }
}
