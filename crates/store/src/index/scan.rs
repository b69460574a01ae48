//! Scans: a leaf at a time, forward or backward.

use super::inner::Separator;
use super::leaf::{LEAF_MAX, Leaf};
use super::{Index, Kind, LeafVersion, Step, kind};
use crate::faults::StoreBug;
use crate::record::Record;
use crate::sync::spin_loop;
use std::ptr::NonNull;

/// Where a scan begins, or goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seek<'k> {
    /// Upwards from the least key.
    First,
    /// Upwards from this key, which counts.
    From(&'k [u8]),
    /// Upwards from this key, which does not count.
    After(&'k [u8]),
    /// Downwards from the greatest key.
    Last,
    /// Downwards from this key, which counts.
    DownFrom(&'k [u8]),
    /// Downwards from this key, which does not count.
    Before(&'k [u8]),
}

/// The part of one leaf that a scan asked for, as it was at one version.
pub(crate) struct LeafRows<'g> {
    /// The leaf, for the node set.
    pub(crate) leaf: LeafVersion,
    records: [Option<NonNull<Record>>; LEAF_MAX],
    count: usize,
    /// Where to go on; `None` at the end of the table.
    pub(crate) next: Option<Seek<'g>>,
}

impl LeafRows<'_> {
    /// The records, in the scan's direction.
    pub(crate) fn records(&self) -> impl Iterator<Item = NonNull<Record>> + Clone {
        self.records[..self.count].iter().copied().flatten()
    }
}

impl Seek<'_> {
    fn is_down(self) -> bool {
        matches!(self, Seek::Last | Seek::DownFrom(_) | Seek::Before(_))
    }
}

impl Index {
    /// Reads the leaf where `seek` leads, and at most `most` of its records.
    ///
    /// # Safety
    /// The caller holds a guard during `'g`.
    pub(crate) unsafe fn rows<'g>(&self, seek: Seek<'_>, most: usize) -> LeafRows<'g> {
        loop {
            if let Some(rows) = self.try_rows(seek, most) {
                return rows;
            }
            spin_loop();
        }
    }

    fn try_rows<'g>(&self, seek: Seek<'_>, most: usize) -> Option<LeafRows<'g>> {
        // The separators next to the path: the leaf's bounds.
        let (mut low, mut high) = (None, None);
        let mut step = self.root()?;
        loop {
            let Step { node, version } = step;
            match kind(node) {
                Kind::Inner(node) => {
                    let place = match seek {
                        Seek::First => 0,
                        Seek::Last => node.header().count(),
                        Seek::From(key) | Seek::After(key) | Seek::DownFrom(key) => {
                            node.place_of(key)?
                        }
                        Seek::Before(key) => node.place_before(key)?,
                    };
                    low = place.checked_sub(1).and_then(|at| node.separator(at)).or(low);
                    let bounded = place < node.header().count();
                    high = if bounded { Some(node.separator(place)?) } else { high };
                    step = self.down(Step { node, version }, place)?;
                }
                Kind::Leaf(leaf) => {
                    // SAFETY: separators are kept by the caller's guard, during 'g.
                    let key = |bound: NonNull<Separator>| unsafe { Separator::key(bound) };
                    let next = match seek.is_down() {
                        true => low.map(|bound| Seek::Before(key(bound))),
                        false => high.map(|bound| Seek::From(key(bound))),
                    };
                    let leaf_version = LeafVersion { leaf: leaf.pointer(), version };
                    let mut rows =
                        LeafRows { leaf: leaf_version, records: [None; LEAF_MAX], count: 0, next };
                    rows.take(&leaf, seek, most)?;
                    let checked =
                        self.faults.has(StoreBug::ScanUnchecked) || node.is_unchanged(version);
                    return checked.then_some(rows);
                }
            }
        }
    }
}

impl LeafRows<'_> {
    /// Copies what `seek` asks for.
    fn take(&mut self, leaf: &Leaf, seek: Seek<'_>, most: usize) -> Option<()> {
        let count = leaf.header().count();
        let below = |key| leaf.find(key).map(|place| (place.at, usize::from(place.equal)));
        let (start, end) = match seek {
            Seek::First => (0, count),
            Seek::From(key) => (below(key)?.0, count),
            Seek::After(key) => (below(key).map(|(at, equal)| at + equal)?, count),
            Seek::Last => (0, count),
            Seek::DownFrom(key) => (0, below(key).map(|(at, equal)| at + equal)?),
            Seek::Before(key) => (0, below(key)?.0),
        };
        self.count = end.saturating_sub(start).min(most);
        for (offset, slot) in self.records[..self.count].iter_mut().enumerate() {
            let at = if seek.is_down() { end - 1 - offset } else { start + offset };
            *slot = Some(leaf.record(at)?);
        }
        if self.count < end.saturating_sub(start) {
            // SAFETY: the record is kept by the caller's guard.
            let key = self.records[..self.count]
                .last()
                .copied()
                .flatten()
                .map(|record| unsafe { Record::key(record) });
            self.next =
                key.map(|key| if seek.is_down() { Seek::Before(key) } else { Seek::After(key) });
        }
        Some(())
    }
}
