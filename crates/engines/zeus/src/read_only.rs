//! Read-only transactions, at any node that has all granules at reader level (§5.3 of the paper).
//!
//! All reads come first, then all checks, in one step. A row is read only when it is validated: a pending one is waited for
//! *before* it is read (rule Z19). Each check finds the same version, still validated, and the same record of its granule. A
//! row that is pending in a check restarts the transaction: waiting there would give a cycle of transactions. Since a
//! validated version is at all followers, the rows that were read were the newest ones all at once, between the last read
//! and the first check (rule Z8). An owner obeys this, too: what it has only committed locally is shown to no client.
//!
//! The body of a transaction at the owner does see what the owner has only committed locally ([`Reader::with_own`]): otherwise it
//! would wait for the followers before each transaction on the same row. What it answers then waits until that is validated.

use crate::commit::{ReadRow, ScannedGranule};
use crate::granule::GranuleId;
use crate::ownership::Ownership;
use crate::planted_bugs::ZeusPlantedBug;
use crate::record::{Level, OwnershipTs};
use crate::rows::{GranuleRows, Row, RowKey, Rows};
use bytes::Bytes;
use shoal_engine::planted_bugs::PlantedBugs;
use shoal_types::{NodeId, TableId};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What a read finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome<T> {
    /// Validated rows.
    Shown(T),
    /// A pending row is in the way: read again once it is validated.
    Pending,
    /// The node has no copy that it may read: the granule has to be wanted.
    NoLevel,
}

/// What a read-only transaction has read, for its checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadSet {
    rows: Vec<ReadRow>,
    scans: Vec<ScannedGranule>,
    /// The record of each granule when it was read first.
    records: BTreeMap<GranuleId, OwnershipTs>,
    /// A row of its own node was read before it was validated.
    saw_pending: bool,
}

/// How far the rows are that a transaction has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStanding {
    /// What it saw pending is validated.
    Validated,
    /// Something is still pending.
    Pending,
    /// Something has been overwritten since.
    Changed,
}

/// A node's granules, as a read-only transaction sees them.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    pub(crate) node: NodeId,
    pub(crate) ownership: &'a Ownership,
    pub(crate) rows: &'a Rows,
    /// The node's lease runs. Without it another node may have written since (rule Z8).
    pub(crate) has_lease: bool,
    /// Rows are shown that this node has committed locally and that are not validated, of granules that it owns.
    pub(crate) shows_own: bool,
    pub(crate) bugs: PlantedBugs<ZeusPlantedBug>,
}

impl ReadSet {
    /// The rows that were read, for a transaction that writes after all.
    #[must_use]
    pub fn rows(&self) -> &[ReadRow] {
        &self.rows
    }

    /// The granules in which rows were scanned, or found absent.
    #[must_use]
    pub fn scans(&self) -> &[ScannedGranule] {
        &self.scans
    }

    /// Whether a row of its own node was read before it was validated.
    #[must_use]
    pub fn saw_pending(&self) -> bool {
        self.saw_pending
    }

    /// The granules that were read.
    pub fn granules(&self) -> impl Iterator<Item = &GranuleId> {
        self.records.keys()
    }
}

impl Reader<'_> {
    /// The same for the body of a transaction, which is shown what the node has committed locally. What it answers has to wait
    /// until that is validated (rule Z7): see [`ReadSet::saw_pending`].
    #[must_use]
    pub fn with_own(self) -> Self {
        Reader { shows_own: true, ..self }
    }

    /// How far the rows are that were read.
    #[must_use]
    pub fn standing(&self, reads: &ReadSet) -> ReadStanding {
        let mut standing = ReadStanding::Validated;
        for ReadRow { granule, key, version } in reads.rows.iter().filter(|_| reads.saw_pending) {
            let row = self.rows.get(granule, key);
            let shown = row.filter(|row| row.value.is_some()).map(|row| row.version);
            if shown != *version {
                return ReadStanding::Changed;
            }
            if row.is_some_and(|row| !row.is_valid) {
                standing = ReadStanding::Pending;
            }
        }
        standing
    }

    /// Reads a row; `None` in it if the row is absent.
    pub fn get(
        &self,
        reads: &mut ReadSet,
        granule: &GranuleId,
        key: &RowKey,
    ) -> ReadOutcome<Option<Bytes>> {
        let Some(o_ts) = self.record_of(granule) else { return ReadOutcome::NoLevel };
        let row = self.rows.get(granule, key);
        let pending = row.filter(|row| !row.is_valid && !self.shows_pending(granule));
        if let Some(row) = pending {
            if !self.shows_own_row(granule, row) {
                return ReadOutcome::Pending;
            }
            reads.saw_pending = true;
        }
        reads.records.entry(granule.clone()).or_insert(o_ts);
        let row = row.filter(|row| row.value.is_some());
        let version = row.map(|row| row.version);
        if version.is_none() {
            reads.scans.push(self.scanned(granule));
        }
        reads.rows.push(ReadRow { granule: granule.clone(), key: key.clone(), version });
        ReadOutcome::Shown(row.and_then(|row| row.value.clone()))
    }

    /// Reads the rows of a table of a granule within these bounds, ascending.
    pub fn scan(
        &self,
        reads: &mut ReadSet,
        granule: &GranuleId,
        table: TableId,
        bounds: (Bound<Bytes>, Bound<Bytes>),
    ) -> ReadOutcome<Vec<(Bytes, Bytes)>> {
        let Some(o_ts) = self.record_of(granule) else { return ReadOutcome::NoLevel };
        let of = self.rows.granule(granule);
        let found = || of.into_iter().flat_map(|of| of.range(table, bounds.clone()));
        let pending = || found().filter(|(_, row)| !row.is_valid && !self.shows_pending(granule));
        if pending().any(|(_, row)| !self.shows_own_row(granule, row)) {
            return ReadOutcome::Pending;
        }
        reads.saw_pending |= pending().next().is_some();
        // A deleted row is read, too: its deletion has to be validated.
        let deleted = pending().filter(|(_, row)| row.value.is_none());
        reads.rows.extend(deleted.map(|(key, _)| ReadRow {
            granule: granule.clone(),
            key: (table, key.clone()),
            version: None,
        }));
        reads.records.entry(granule.clone()).or_insert(o_ts);
        reads.scans.push(self.scanned(granule));
        let live =
            |(key, row): (&Bytes, &Row)| Some((key.clone(), row.version, row.value.clone()?));
        let rows = found().filter_map(live).map(|(key, version, value)| {
            let place = (table, key.clone());
            reads.rows.push(ReadRow {
                granule: granule.clone(),
                key: place,
                version: Some(version),
            });
            (key, value)
        });
        ReadOutcome::Shown(rows.collect())
    }

    /// Whether everything that was read was so at one time: it may be revealed. Otherwise the transaction restarts.
    #[must_use]
    pub fn check(&self, reads: &ReadSet) -> bool {
        if self.bugs.has(ZeusPlantedBug::CheckWhileReading) {
            return true;
        }
        let records = reads.records.iter();
        let are_held = records.into_iter().all(|(of, o_ts)| self.record_of(of) == Some(*o_ts));
        let scans = reads.scans.iter();
        let unchecked = self.bugs.has(ZeusPlantedBug::StructureUnchecked);
        let are_whole =
            unchecked || scans.into_iter().all(|scan| self.scanned(&scan.granule) == *scan);
        let are_same = reads.rows.iter().all(|ReadRow { granule, key, version }| {
            let row = self.rows.get(granule, key);
            let is_valid = row.is_none_or(|row| row.is_valid || self.shows_pending(granule));
            is_valid && row.filter(|row| row.value.is_some()).map(|row| row.version) == *version
        });
        are_held && are_whole && are_same
    }

    /// Whether pending rows are shown: never, without a planted bug (rule Z7).
    fn shows_pending(&self, granule: &GranuleId) -> bool {
        let owns = || self.ownership.level(self.node, granule) == Level::Owner;
        self.bugs.has(ZeusPlantedBug::ReadPending)
            || (self.bugs.has(ZeusPlantedBug::OwnerReadsOwn) && owns())
    }

    /// Whether a pending row is shown, since it was committed here and nothing else can write it.
    fn shows_own_row(&self, granule: &GranuleId, row: &Row) -> bool {
        self.shows_own
            && row.version.pipeline.coordinator.node == self.node
            && self.ownership.level(self.node, granule) == Level::Owner
    }

    /// The record under which the node may read the granule now.
    fn record_of(&self, granule: &GranuleId) -> Option<OwnershipTs> {
        let holding = self.ownership.holding(granule)?;
        let reads = self.has_lease && holding.level(self.node) >= Level::Reader;
        reads.then_some(holding.record.o_ts)
    }

    fn scanned(&self, granule: &GranuleId) -> ScannedGranule {
        let structure = self.rows.granule(granule).map_or(0, GranuleRows::structure);
        ScannedGranule { granule: granule.clone(), structure }
    }
}
