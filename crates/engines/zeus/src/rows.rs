//! The rows of the granules that a node holds, and which of them are validated.
//!
//! A row is *pending* while its newest version is not validated: the slot that wrote it is committed at its owner, and not
//! yet applied by all followers. No client may see a pending row (rule Z7). A row is valid again only once its newest
//! version is: the validation of an older one changes nothing (rule Z15).
//!
//! A deleted row is a tombstone until its version is validated, and then gone; the granule's clock, which is kept beside
//! its level, remembers it.
//!
//! The *structure* of a granule changes whenever a row comes or goes, a tombstone being absent. A transaction that scanned,
//! or found a row absent, is valid only while it has not changed, as with the node versions of Silo (SOSP'13, §4.6). A node
//! draws the structures of all its granules from one counter: a copy that it discards and receives again, with rows that
//! came meanwhile, never has the structure that an earlier copy had.

use crate::granule::GranuleId;
use crate::granule_map::GranuleMap;
use crate::version::Version;
use bytes::Bytes;
use shoal_types::wire::Coded;
use shoal_types::{Clock, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A row's place: its table and its key.
pub type RowKey = (TableId, Bytes);

/// What a transaction writes to one row of a granule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Coded)]
pub struct RowWrite {
    /// The table, of the family of the granule.
    #[coded(short)]
    pub table: TableId,
    /// Its whole key.
    pub key: Bytes,
    /// Its new value; `None` deletes it.
    pub value: Option<Bytes>,
}

/// A row as a granule carries it to a new replica. Deleted rows are not carried.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Coded)]
pub struct CarriedRow {
    /// The table, of the family of the granule.
    #[coded(short)]
    pub table: TableId,
    /// Its whole key.
    pub key: Bytes,
    /// Its newest version, which is validated.
    pub version: Version,
    /// The value that this version gave it.
    pub value: Bytes,
}

/// The newest version of a row at one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The slot that wrote it, and its clock.
    pub version: Version,
    /// Its value; `None` for a tombstone.
    pub value: Option<Bytes>,
    /// Whether it is validated.
    pub is_valid: bool,
}

/// All rows of a node, by granule.
#[derive(Debug, Default)]
pub struct Rows {
    granules: GranuleMap<GranuleRows>,
    /// Granules that have changed, also in their records, since a checker asked; `None` if it is not noted.
    changed: Option<BTreeMap<GranuleId, ChangedRows>>,
    /// How often rows have become valid.
    validations: u64,
    /// The greatest structure that a granule of this node has had.
    last_structure: u64,
}

/// The rows of a granule that have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedRows {
    /// All of them may have.
    pub is_whole: bool,
    /// These have.
    pub keys: BTreeSet<RowKey>,
}

/// The rows of one granule, and how many bytes they have.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct GranuleRows {
    rows: BTreeMap<RowKey, Row>,
    structure: u64,
    bytes: usize,
}

impl CarriedRow {
    /// The bytes of its key and its value.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

impl Rows {
    /// The rows of a granule; `None` if the node has none of it.
    #[must_use]
    pub fn granule(&self, granule: &GranuleId) -> Option<&GranuleRows> {
        self.granules.get(granule)
    }

    /// The newest version of a row, pending or not.
    #[must_use]
    pub fn get(&self, granule: &GranuleId, key: &RowKey) -> Option<&Row> {
        self.granules.get(granule)?.rows.get(key)
    }

    /// From now on it is noted which granules change.
    pub(crate) fn watch(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// Whether it is noted which granules change.
    pub(crate) fn is_watched(&self) -> bool {
        self.changed.is_some()
    }

    /// The record of the granule has changed.
    pub(crate) fn change(&mut self, granule: &GranuleId) {
        self.change_rows(granule, &[]);
    }

    /// All rows of the granule have changed.
    pub(crate) fn change_whole(&mut self, granule: &GranuleId) {
        if let Some(changed) = &mut self.changed {
            changed.entry(granule.clone()).or_default().is_whole = true;
        }
    }

    fn change_rows(&mut self, granule: &GranuleId, writes: &[RowWrite]) {
        if let Some(changed) = &mut self.changed {
            let keys = &mut changed.entry(granule.clone()).or_default().keys;
            keys.extend(writes.iter().map(|write| (write.table, write.key.clone())));
        }
    }

    /// The granules that have changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> BTreeMap<GranuleId, ChangedRows> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// How often rows have become valid: what waits for a pending row is looked at when this grows.
    pub(crate) fn validations(&self) -> u64 {
        self.validations
    }

    /// What waits for rows or slots is to be looked at, though no row has become valid.
    pub(crate) fn wake(&mut self) {
        self.validations += 1;
    }

    /// Installs what a slot writes to a granule; a row that has a newer version keeps it.
    pub fn apply(
        &mut self,
        granule: &GranuleId,
        writes: &[RowWrite],
        version: Version,
        is_valid: bool,
    ) {
        self.change_rows(granule, writes);
        let of = self.granules.get_or_insert_with(granule, GranuleRows::default);
        let mut has_changed = false;
        for write in writes {
            has_changed |= of.install(write, version, is_valid);
        }
        if has_changed {
            self.last_structure += 1;
            of.structure = self.last_structure;
        }
    }

    /// The slot that wrote `version` is validated: the rows of `writes` whose newest version it is are valid (rule Z15).
    pub fn validate(&mut self, granule: &GranuleId, writes: &[RowWrite], version: Version) {
        self.change_rows(granule, writes);
        self.validations += 1;
        let Some(of) = self.granules.get_mut(granule) else { return };
        writes.iter().for_each(|write| of.validate(write, version));
    }

    /// The rows of `writes` are taken for valid at any version (`ValidateNewer`).
    pub(crate) fn validate_newer(&mut self, granule: &GranuleId, writes: &[RowWrite]) {
        let Some(of) = self.granules.get_mut(granule) else { return };
        for write in writes {
            let row = of.rows.get(&(write.table, write.key.clone()));
            if let Some(version) = row.map(|row| row.version) {
                of.validate(write, version);
            }
        }
    }

    /// All rows of the granule are known to be validated: nothing was pending when its owner let it go.
    pub fn validate_all(&mut self, granule: &GranuleId) {
        self.validate_until(granule, Clock(u64::MAX));
    }

    /// All rows of the granule with clocks up to this one are known to be validated.
    pub(crate) fn validate_until(&mut self, granule: &GranuleId, clock: Clock) {
        self.change_whole(granule);
        self.validations += 1;
        let Some(of) = self.granules.get_mut(granule) else { return };
        let rows = of.rows.values_mut();
        rows.filter(|row| row.version.clock <= clock).for_each(|row| row.is_valid = true);
        of.remove_tombstones();
    }

    /// Rows of the granule as another node is given them: those behind `after`, of `bytes_max` bytes at most, or one. Says
    /// whether they are the last.
    #[must_use]
    pub fn carried(
        &self,
        granule: &GranuleId,
        after: Option<&RowKey>,
        bytes_max: usize,
    ) -> (Vec<CarriedRow>, bool) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let of = self.granules.get(granule);
        let rows = of.into_iter().flat_map(|of| of.rows.range((start, Bound::Unbounded)));
        let (mut carried, mut bytes) = (Vec::new(), 0);
        for ((table, key), row) in rows {
            let Some(value) = row.value.clone() else { continue };
            let (table, key) = (*table, key.clone());
            let row = CarriedRow { table, key, version: row.version, value };
            bytes += row.bytes();
            if bytes > bytes_max && !carried.is_empty() {
                return (carried, false);
            }
            carried.push(row);
        }
        (carried, true)
    }

    /// Replaces the granule's rows by those that were carried here.
    pub fn receive(&mut self, granule: &GranuleId, carried: Vec<CarriedRow>) {
        self.change_whole(granule);
        self.validations += 1;
        self.last_structure += 1;
        let mut of = GranuleRows { structure: self.last_structure, ..GranuleRows::default() };
        for CarriedRow { table, key, version, value } in carried {
            of.bytes += key.len() + value.len();
            of.rows.insert((table, key), Row { version, value: Some(value), is_valid: true });
        }
        self.granules.insert(granule, of);
    }

    /// Replaces the granule's rows by those that a former process of the node had.
    pub(crate) fn restore(
        &mut self,
        granule: &GranuleId,
        stored: impl Iterator<Item = (RowKey, Row)>,
    ) {
        self.change_whole(granule);
        self.last_structure += 1;
        let mut of = GranuleRows { structure: self.last_structure, ..GranuleRows::default() };
        for (key, row) in stored {
            of.bytes += key.1.len() + row.value.as_ref().map_or(0, Bytes::len);
            of.rows.insert(key, row);
        }
        self.granules.insert(granule, of);
    }

    /// Forgets the granule's rows: the node is no replica of it any more.
    pub fn discard(&mut self, granule: &GranuleId) {
        self.change_whole(granule);
        self.granules.remove(granule);
    }

    /// Forgets all rows, and what has changed. What was scanned before is never taken for what comes.
    pub(crate) fn clear(&mut self) {
        self.granules.clear();
        if let Some(changed) = &mut self.changed {
            changed.clear();
        }
    }
}

impl GranuleRows {
    /// Changes whenever a row comes or goes, and with each copy that the node receives; no structure returns. A row that goes
    /// leaves a tombstone, whose removal changes nothing. 0 before there was a row.
    #[must_use]
    pub fn structure(&self) -> u64 {
        self.structure
    }

    /// The bytes of keys and values; a tombstone has those of its key.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no row has a pending version.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.rows.values().all(|row| row.is_valid)
    }

    /// The rows of a table within these bounds, ascending, tombstones included.
    pub fn range(
        &self,
        table: TableId,
        bounds: (Bound<Bytes>, Bound<Bytes>),
    ) -> impl Iterator<Item = (&Bytes, &Row)> {
        let (start, end) = bounds;
        let first = match start {
            Bound::Included(key) => Bound::Included((table, key)),
            Bound::Excluded(key) => Bound::Excluded((table, key)),
            Bound::Unbounded => Bound::Included((table, Bytes::new())),
        };
        let is_before = move |key: &Bytes| match &end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        };
        let rows = self.rows.range((first, Bound::Unbounded));
        rows.take_while(move |((of, key), _)| *of == table && is_before(key))
            .map(|((_, key), row)| (key, row))
    }

    /// All rows, by table and key, tombstones included.
    pub fn all(&self) -> impl Iterator<Item = (&RowKey, &Row)> {
        self.rows.iter()
    }

    /// Says whether a row came or went.
    fn install(&mut self, write: &RowWrite, version: Version, is_valid: bool) -> bool {
        let place = (write.table, write.key.clone());
        let value_bytes = write.value.as_ref().map_or(0, Bytes::len);
        let was_there = match self.rows.get_mut(&place) {
            Some(row) if row.version >= version => return false,
            Some(row) => {
                let was_there = row.value.is_some();
                self.bytes -= row.value.as_ref().map_or(0, Bytes::len);
                *row = Row { version, value: write.value.clone(), is_valid };
                was_there
            }
            None => {
                self.bytes += write.key.len();
                self.rows.insert(place, Row { version, value: write.value.clone(), is_valid });
                false
            }
        };
        self.bytes += value_bytes;
        if is_valid {
            self.remove_tombstone(write);
        }
        was_there != write.value.is_some()
    }

    fn validate(&mut self, write: &RowWrite, version: Version) {
        let row = self.rows.get_mut(&(write.table, write.key.clone()));
        let Some(row) = row.filter(|row| row.version == version) else { return };
        row.is_valid = true;
        self.remove_tombstone(write);
    }

    /// Removes the row if it is a validated tombstone.
    fn remove_tombstone(&mut self, write: &RowWrite) {
        let place = (write.table, write.key.clone());
        let is_gone = |row: &Row| row.is_valid && row.value.is_none();
        if self.rows.get(&place).is_some_and(is_gone) {
            self.rows.remove(&place);
            self.bytes -= write.key.len();
        }
    }

    fn remove_tombstones(&mut self) {
        let mut freed = 0;
        self.rows.retain(|(_, key), row| {
            let is_gone = row.is_valid && row.value.is_none();
            freed += if is_gone { key.len() } else { 0 };
            !is_gone
        });
        self.bytes -= freed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{PipelineId, Slot, WorkerPipeline};
    use crate::view::Member;
    use proptest::prelude::*;
    use shoal_types::{Clock, Epoch, NodeId, WorkerId};

    const T: TableId = TableId(0);

    fn granule() -> GranuleId {
        GranuleId { family: T, prefix: Bytes::from_static(b"g") }
    }

    fn version(clock: u64) -> Version {
        let coordinator = Member { node: NodeId(0), since: Epoch(1) };
        let of = WorkerPipeline { worker: WorkerId(0), number: 0 };
        let pipeline = PipelineId { coordinator, of };
        Version { clock: Clock(clock), pipeline, slot: Slot(clock) }
    }

    fn write(key: &'static str, value: Option<&'static str>) -> RowWrite {
        let value = value.map(|value| Bytes::from_static(value.as_bytes()));
        RowWrite { table: T, key: Bytes::from_static(key.as_bytes()), value }
    }

    fn row<'r>(rows: &'r Rows, key: &'static str) -> Option<&'r Row> {
        rows.get(&granule(), &(T, Bytes::from_static(key.as_bytes())))
    }

    #[test]
    fn a_late_validation_validates_nothing_newer() {
        let mut rows = Rows::default();
        let (old, new) = ([write("gx", Some("old"))], [write("gx", Some("new"))]);
        rows.apply(&granule(), &old, version(1), false);
        rows.apply(&granule(), &new, version(2), false);
        rows.validate(&granule(), &old, version(1));
        assert!(!row(&rows, "gx").expect("a row").is_valid);
        rows.validate(&granule(), &new, version(2));
        assert!(row(&rows, "gx").expect("a row").is_valid);
        rows.apply(&granule(), &old, version(1), false);
        assert!(row(&rows, "gx").expect("a row").is_valid, "an older version comes late");
    }

    /// All rows of the granule, as they are carried.
    fn carried(rows: &Rows) -> Vec<CarriedRow> {
        let (carried, is_last) = rows.carried(&granule(), None, usize::MAX);
        assert!(is_last);
        carried
    }

    #[test]
    fn parts_make_the_whole() {
        let mut rows = Rows::default();
        let writes = ["ga", "gb", "gc", "gd"].map(|key| write(key, Some("12")));
        rows.apply(&granule(), &writes, version(1), true);
        rows.apply(&granule(), &[write("gb", None)], version(2), false);
        for (bytes_max, parts) in [(0, 3), (7, 3), (8, 2), (12, 1)] {
            let (mut all, mut made, mut is_last) = (Vec::<CarriedRow>::new(), 0, false);
            while !is_last {
                let after = all.last().map(|row| (row.table, row.key.clone()));
                let (part, last) = rows.carried(&granule(), after.as_ref(), bytes_max);
                all.extend(part);
                (made, is_last) = (made + 1, last);
            }
            assert_eq!((made, all), (parts, carried(&rows)), "{bytes_max}");
        }
    }

    #[test]
    fn a_tombstone_stays_until_it_is_validated() {
        let mut rows = Rows::default();
        rows.apply(&granule(), &[write("gx", Some("x"))], version(1), true);
        let before = rows.granule(&granule()).expect("it has rows").structure();
        let delete = [write("gx", None)];
        rows.apply(&granule(), &delete, version(2), false);
        assert_eq!(row(&rows, "gx").expect("a tombstone").value, None);
        assert_eq!(carried(&rows), []);
        rows.validate(&granule(), &delete, version(2));
        assert_eq!(row(&rows, "gx"), None);
        let after = rows.granule(&granule()).expect("it had rows");
        assert!(after.structure() > before && after.bytes() == 0);
    }

    #[test]
    fn carried_rows_replace_what_is_there() {
        let (mut from, mut to) = (Rows::default(), Rows::default());
        from.apply(&granule(), &[write("gx", Some("x")), write("gy", None)], version(2), false);
        to.apply(&granule(), &[write("gz", Some("z"))], version(1), true);
        from.validate_all(&granule());
        to.receive(&granule(), carried(&from));
        assert_eq!(to.granule(&granule()).map(GranuleRows::bytes), Some(3));
        assert_eq!((row(&to, "gz"), row(&to, "gx")), (None, row(&from, "gx")));
        to.discard(&granule());
        assert!(to.granule(&granule()).is_none());
    }

    #[test]
    fn no_structure_of_a_copy_returns_with_the_next() {
        let (mut from, mut to) = (Rows::default(), Rows::default());
        from.apply(&granule(), &[write("gx", Some("x"))], version(1), true);
        to.receive(&granule(), carried(&from));
        let scanned = to.granule(&granule()).map(GranuleRows::structure);
        to.discard(&granule());
        from.apply(&granule(), &[write("gy", Some("y"))], version(2), true);
        to.receive(&granule(), carried(&from));
        assert_ne!(to.granule(&granule()).map(GranuleRows::structure), scanned);
        to.clear();
        to.receive(&granule(), Vec::new());
        assert!(to.granule(&granule()).map(GranuleRows::structure) > scanned);
    }

    #[test]
    fn a_range_is_of_one_table() {
        let mut rows = Rows::default();
        let other = RowWrite { table: TableId(1), ..write("ga", Some("other")) };
        rows.apply(
            &granule(),
            &[write("ga", Some("1")), write("gb", Some("2")), other],
            version(1),
            true,
        );
        let of = rows.granule(&granule()).expect("it has rows");
        let keys = |bounds| of.range(T, bounds).map(|(key, _)| key.clone()).collect::<Vec<_>>();
        assert_eq!(keys((Bound::Unbounded, Bound::Unbounded)), ["ga", "gb"]);
        let a = Bytes::from_static(b"ga");
        assert_eq!(keys((Bound::Excluded(a.clone()), Bound::Unbounded)), ["gb"]);
        assert_eq!(keys((Bound::Unbounded, Bound::Included(a))), ["ga"]);
    }

    proptest! {
        /// Slots applied in any order, and validated in any order, end as the newest of each row.
        #[test]
        fn the_newest_version_wins_in_any_order(
            slots in proptest::collection::vec((0_usize..3, proptest::option::of(0_usize..2)), 1..8),
            order in proptest::collection::vec(any::<prop::sample::Index>(), 8),
        ) {
            let (keys, values) = (["ga", "gb", "gc"], ["1", "2"]);
            let slots: Vec<_> = slots.iter().map(|(key, value)| write(keys[*key], value.map(|at| values[at]))).collect();
            let mut waiting: Vec<usize> = (0..slots.len()).collect();
            let mut rows = Rows::default();
            let mut applied = Vec::new();
            for pick in order.iter().cycle().take(slots.len()) {
                let at = waiting.remove(pick.index(waiting.len()));
                rows.apply(&granule(), &slots[at..=at], version(at as u64 + 1), false);
                applied.push(at);
            }
            for at in applied {
                rows.validate(&granule(), &slots[at..=at], version(at as u64 + 1));
            }
            let mut bytes = 0;
            for key in keys {
                let last = slots.iter().enumerate().rev().find(|(_, write)| write.key == key);
                let last = last.and_then(|(at, write)| Some((version(at as u64 + 1), write.value.clone()?)));
                let found = row(&rows, key);
                bytes += last.as_ref().map_or(0, |(_, value)| key.len() + value.len());
                prop_assert_eq!(found.map(|row| (row.version, row.value.clone().expect("no tombstone stays"))), last);
                prop_assert!(found.is_none_or(|row| row.is_valid));
            }
            prop_assert_eq!(rows.granule(&granule()).map_or(0, GranuleRows::bytes), bytes);
        }
    }
}
