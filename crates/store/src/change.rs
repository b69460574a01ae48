//! What a write makes of a row: nothing, another row, or the same row with other bytes in some places.
//!
//! ```text
//! patch = range*
//! range = skip u16 | length u16 | bytes
//! ```
//! Little-endian. `skip` counts from the end of the range before, or from the beginning of the row. A log has a **delta** of
//! a row that is updated in place: most of the bytes of a row of TPC-C's stock stay as they are. It is of use only to a
//! replica that has the row's former version, the base, which it names.

use shoal_types::wire::Coded;
use shoal_types::{Clock, Epoch};

/// The place of a version among those of its key.
pub type VersionOrder = (Epoch, Clock);

/// What a write makes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum Change<B> {
    /// A tombstone, which has to be there even where there is nothing to remove: what it has to hide may still be on its
    /// way.
    #[coded(tag = 0)]
    Delete,
    /// The whole value.
    #[coded(tag = 1)]
    Row(B),
    /// What differs from an earlier version.
    #[coded(tag = 2)]
    Delta(Delta<B>),
}

/// Where a delta is logged instead of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeltaUse {
    /// Where it takes at most half of the row.
    #[default]
    Short,
    /// Wherever it can be: for tests, whose rows are short.
    Always,
}

impl DeltaUse {
    /// Of how many bytes the patch of a row may be; `None` where a delta takes too much without any.
    pub(crate) fn patch_bytes_max(self, row: usize) -> Option<usize> {
        match self {
            DeltaUse::Short => (row / 2).checked_sub(BASE_BYTES),
            DeltaUse::Always => Some(usize::MAX),
        }
    }
}

/// What a delta costs beside its patch: its base.
const BASE_BYTES: usize = 16;

/// The difference of two versions of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct Delta<B> {
    /// The version that is changed.
    pub base: VersionOrder,
    /// The bytes of both versions.
    pub length: u32,
    /// The ranges that differ.
    pub patch: B,
}

impl<B> Change<B> {
    /// A value, or its absence.
    pub fn of(value: Option<B>) -> Change<B> {
        value.map_or(Change::Delete, Change::Row)
    }

    /// The same with other bytes.
    pub fn map<C>(self, map: impl FnOnce(B) -> C) -> Change<C> {
        match self {
            Change::Delete => Change::Delete,
            Change::Row(row) => Change::Row(map(row)),
            Change::Delta(Delta { base, length, patch }) => {
                Change::Delta(Delta { base, length, patch: map(patch) })
            }
        }
    }
}

impl<B: AsRef<[u8]>> Change<B> {
    /// The same, borrowed.
    pub fn borrowed(&self) -> Change<&[u8]> {
        match self {
            Change::Delete => Change::Delete,
            Change::Row(row) => Change::Row(row.as_ref()),
            Change::Delta(delta) => Change::Delta(delta.borrowed()),
        }
    }
}

impl<B: AsRef<[u8]>> Delta<B> {
    fn borrowed(&self) -> Delta<&[u8]> {
        Delta { base: self.base, length: self.length, patch: self.patch.as_ref() }
    }
}

impl<'b> Change<&'b [u8]> {
    /// What a log has of it: the whole value, or what differs.
    pub fn content(&self) -> &'b [u8] {
        match self {
            Change::Delete => &[],
            Change::Row(row) => row,
            Change::Delta(delta) => delta.patch,
        }
    }

    /// Whether a delta is within its row.
    pub fn is_well_formed(&self) -> bool {
        match self {
            Change::Delete | Change::Row(_) => true,
            Change::Delta(delta) => delta.is_well_formed(),
        }
    }
}

impl Delta<&[u8]> {
    /// Whether the ranges are well-formed, and within the row.
    pub fn is_well_formed(&self) -> bool {
        let (mut rest, mut end) = (self.patch, 0);
        while !rest.is_empty() {
            let Some((skip, bytes)) = take_range(&mut rest) else { return false };
            end += skip + bytes.len();
        }
        end <= self.length as usize
    }

    /// Makes the version that it is the base of into the new one.
    ///
    /// # Panics
    /// Where the base has another length, or a range is malformed.
    pub fn apply(&self, row: &mut [u8]) {
        assert_eq!(
            row.len(),
            self.length as usize,
            "M6: a delta of {:?} has another base",
            self.base
        );
        let (mut rest, mut at) = (self.patch, 0);
        while !rest.is_empty() {
            let (skip, bytes) = take_range(&mut rest).expect("well-formed");
            at += skip;
            row[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
    }
}

/// Takes off the next range: how far it is from the last, and its bytes. `None` where it is cut.
fn take_range<'p>(rest: &mut &'p [u8]) -> Option<(usize, &'p [u8])> {
    let (skip, after) = rest.split_first_chunk()?;
    let (length, after) = after.split_first_chunk()?;
    let (bytes, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
    *rest = after;
    Some((u16::from_le_bytes(*skip).into(), bytes))
}

/// A range's `skip` and `length`.
const RANGE_BYTES: usize = 4;

/// Makes `patch` what makes `old` into `new`. Returns whether that is possible, in no more than `most` bytes.
pub(crate) fn diff(old: &[u8], new: &[u8], most: usize, patch: &mut Vec<u8>) -> bool {
    patch.clear();
    if old.len() != new.len() {
        return false;
    }
    let (mut at, mut written) = (0, 0);
    loop {
        let same = same_bytes(&old[at..], &new[at..]);
        at += same;
        if at == new.len() {
            return true;
        }
        let Some(room) = most.checked_sub(patch.len() + RANGE_BYTES) else { return false };
        // A row that is another one is not looked through.
        let until = new.len().min(at + room.min(u16::MAX.into()) + RANGE_BYTES + 1);
        let differs = differing_bytes(&old[at..until], &new[at..until]);
        let (Ok(skip), Ok(length)) = (u16::try_from(at - written), u16::try_from(differs)) else {
            return false;
        };
        if differs > room {
            return false;
        }
        patch.extend(skip.to_le_bytes());
        patch.extend(length.to_le_bytes());
        patch.extend(&new[at..at + differs]);
        at += differs;
        written = at;
    }
}

/// How many bytes are the same before the first that is not.
fn same_bytes(old: &[u8], new: &[u8]) -> usize {
    let same = same_words::<32>(old, new);
    let same = same + same_words::<8>(&old[same..], &new[same..]);
    same + same_words::<1>(&old[same..], &new[same..])
}

/// How many bytes are the same, in words of so many, before the first that differs.
fn same_words<const BYTES: usize>(old: &[u8], new: &[u8]) -> usize {
    let (old, new) = (old.as_chunks::<BYTES>().0, new.as_chunks::<BYTES>().0);
    old.iter().zip(new).take_while(|(old, new)| old == new).count() * BYTES
}

/// How many bytes there are before so many that are the same that another range costs less.
fn differing_bytes(old: &[u8], new: &[u8]) -> usize {
    let mut end = 0;
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        match old == new {
            true if at >= end + RANGE_BYTES => break,
            true => {}
            false => end = at + 1,
        }
    }
    end
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use shoal_types::Random;

    const BASE: VersionOrder = (Epoch(1), Clock(7));

    #[test]
    fn a_patch_makes_the_one_into_the_other() {
        let mut random = Random::new(1);
        let mut patch = Vec::new();
        for _ in 0..2_000 {
            let length = random.below(200) as usize;
            let old: Vec<u8> = (0..length).map(|_| random.below(3) as u8).collect();
            let mut new = old.clone();
            for _ in 0..random.below(6) {
                if length > 0 {
                    new[random.below(length as u64) as usize] = random.below(3) as u8;
                }
            }
            assert!(diff(&old, &new, usize::MAX, &mut patch));
            let delta = Delta { base: BASE, length: length as u32, patch: &patch[..] };
            assert!(delta.is_well_formed());
            let mut row = old;
            delta.apply(&mut row);
            assert_eq!(row, new);
        }
    }

    #[test]
    fn what_is_far_apart_is_in_two_ranges() {
        let (old, mut new) = ([0; 100], [0; 100]);
        (new[3], new[5], new[90]) = (1, 2, 3);
        let mut patch = Vec::new();
        assert!(diff(&old, &new, 12, &mut patch));
        assert_eq!(patch, [3, 0, 3, 0, 1, 0, 2, 84, 0, 1, 0, 3]);
        assert!(!diff(&old, &new, 11, &mut patch), "more than that");
        assert!(!diff(&old, &new[..99], 100, &mut patch), "a row that grows is logged whole");
        assert!(diff(&old, &old, 0, &mut patch) && patch.is_empty());
    }

    #[test]
    fn a_range_beyond_the_row_is_malformed() {
        let delta = |length, patch| Delta { base: BASE, length, patch }.is_well_formed();
        assert!(delta(5, &[3, 0, 2, 0, 1, 1]));
        assert!(!delta(4, &[3, 0, 2, 0, 1, 1]));
        assert!(!delta(9, &[3, 0, 2, 0, 1]) && !delta(9, &[3]));
    }
}
