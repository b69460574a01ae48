//! Lookups that go down the index side by side, level by level, so that their waits for memory overlap.

use crate::index::Probe;
use crate::memory::prefetch;
use crate::record::Record;
use crate::store::Store;
use shoal_types::TableId;
use std::ptr::NonNull;

/// How many keys are looked up together: what fits the first cache with their leaves.
pub(crate) const TOGETHER: usize = 32;

/// The records of up to [`TOGETHER`] keys, where there is one and it is found; asks for the first `version_bytes` of the newest version
/// of each. In rounds, each of which asks for what the next one needs. Lookups are not validated: a key that is not found
/// may be there all the same.
///
/// # Safety
/// The caller holds a guard for as long as it uses the records.
pub(crate) unsafe fn find_together<'k>(
    store: &Store,
    keys: impl Iterator<Item = Option<(TableId, &'k [u8])>> + Clone,
    version_bytes: usize,
) -> [Option<NonNull<Record>>; TOGETHER] {
    let mut probes: [Option<Probe>; TOGETHER] = [None; TOGETHER];
    for (probe, wanted) in probes.iter_mut().zip(keys.clone()) {
        let index = wanted.and_then(|(table, _)| store.index(table).ok());
        // SAFETY: the caller's guard; so for all below.
        *probe = index.map(|index| unsafe { index.probe() });
    }
    let keys = keys.map(Option::unwrap_or_default);
    let mut deeper = true;
    while std::mem::take(&mut deeper) {
        for (probe, (_, key)) in probes.iter_mut().zip(keys.clone()) {
            // SAFETY: as above.
            deeper |= probe.as_mut().is_some_and(|probe| unsafe { probe.descend(key) });
        }
    }
    let mut records = [None; TOGETHER];
    for ((record, probe), (_, key)) in records.iter_mut().zip(probes).zip(keys.clone()) {
        // SAFETY: as above.
        *record = probe.and_then(|probe| unsafe { probe.record(key) });
    }
    for (found, (table, key)) in records.iter_mut().zip(keys) {
        let Some(record) = *found else { continue };
        // SAFETY: as above.
        match unsafe { Record::is_live(record, table, key) } {
            // SAFETY: as above.
            true => prefetch(unsafe { record.as_ref() }.word().version(), version_bytes),
            false => *found = None,
        }
    }
    records
}
