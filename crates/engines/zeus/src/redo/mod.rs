//! What a node records in its log on disk: redo records, of what has changed in its part of the protocol.
//!
//! ```text
//! event ─► a step of the node ─► a redo record ─► the log ─ durable ─► the messages of the step are sent
//! restart: parts of the last checkpoint ─► the redo records behind its mark ─► the same state, as the same member
//! ```
//! Nothing leaves the node before what it follows from is durable. So a process that begins with what the one before it had recorded
//! is to the other nodes the same member, which was silent for a while: what it has sent, it has; what it had not sent, no node
//! knows (rule Z22). What is lost are messages, transactions under way, and what messages bring again: acknowledgements, requests.
//!
//! A record is one step's, so that no half of a step is read. It is of one or more parts, each with the holdings of granules as
//! they are at its end, and with changes in their order. Parts end where the membership or the tables change. A checkpoint takes the
//! granules one after the other, while they change: a change that is recorded behind its first part may be made again on granules that
//! are newer, and the changes behind it make that state again. Those before its first part are passed over.
//!
//! | file | holds |
//! |---|---|
//! | `stored.rs` | the form of records |
//! | `../node/restore.rs` | how a state is made again of them |
//! | `../node/checkpoint.rs` | the state in parts, for a checkpoint |

mod stored;

pub(crate) use stored::{
    Change, HoldingState, KnownHolding, RedoPart, RedoRecord, StoredHolding, StoredRow, StoredSlot,
};

use crate::granule::GranuleId;
use crate::message::ReplicationInv;
use crate::planted_bugs::ZeusPlantedBug;
use crate::rows::CarriedRow;
use crate::version::{PipelineId, Slot};
use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_engine::planted_bugs::PlantedBugs;
use shoal_types::wire::encode;
use shoal_types::{Clock, NodeId, ShardId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a node knows of granules, for records.
pub(crate) trait StoredGranules {
    /// The number of the last request of the node.
    fn requests_made(&self) -> u64;

    /// What the node knows of a granule, but for what messages bring again.
    fn stored(&self, granule: &GranuleId) -> HoldingState;
}

/// The changes of a node that are not in a record yet, and which records are durable.
#[derive(Debug, Default)]
pub(crate) struct Redo {
    /// The node has a log on disk.
    is_on: bool,
    /// What former processes have recorded is not taken yet, or not all of it: nothing is recorded.
    is_restoring: bool,
    /// What changes now follows from a change that is recorded.
    is_paused: bool,
    bugs: PlantedBugs<ZeusPlantedBug>,
    parts: Vec<RedoPart>,
    changes: Vec<Change>,
    /// The granules whose holdings have changed since the last part.
    granules: BTreeSet<GranuleId>,
    /// How many records were made.
    made: u64,
    /// How many of them are durable.
    durable: u64,
    /// How many nodes had not replayed, and how many did not know it of this one, when that was recorded in this epoch. In an epoch
    /// both only become fewer.
    barrier: Option<(usize, usize)>,
    /// The directories that were being copied, and those that were rebuilt, when that was recorded.
    directories: (BTreeSet<ShardId>, BTreeSet<ShardId>),
    /// The tables by which granules are placed; before them those of which some were dropped with the next.
    tables: Vec<Arc<Topology>>,
}

impl Redo {
    /// Nothing has changed on a node with these tables.
    pub(crate) fn new(tables: Arc<Topology>, bugs: PlantedBugs<ZeusPlantedBug>) -> Redo {
        Redo { bugs, tables: vec![tables], ..Redo::default() }
    }

    /// The node has a log on disk. Nothing is recorded until [`Redo::end_restore`]: what former processes have recorded comes first.
    pub(crate) fn begin(&mut self) {
        (self.is_on, self.is_restoring) = (true, true);
    }

    /// All that former processes have recorded is taken.
    pub(crate) fn end_restore(&mut self) {
        self.is_restoring = false;
    }

    fn records(&self) -> bool {
        self.is_on && !self.is_restoring && !self.is_paused
    }

    fn change(&mut self, change: impl FnOnce() -> Change) {
        if self.records() {
            self.changes.push(change());
        }
    }

    /// The number of the record that the present changes come into.
    pub(crate) fn next(&self) -> u64 {
        self.made + 1
    }

    /// How many records were made, and how many of them are durable.
    pub(crate) fn counts(&self) -> (u64, u64) {
        match self.bugs.has(ZeusPlantedBug::SendUnrecorded) {
            true => (self.made, self.made),
            false => (self.made, self.durable),
        }
    }

    /// Whether all changes are durable, if the node has a log on disk.
    pub(crate) fn are_durable(&self) -> bool {
        let (made, durable) = self.counts();
        made == durable && self.changes.is_empty() && self.granules.is_empty()
    }

    /// Whether the record with this number is durable, if the node has a log on disk.
    pub(crate) fn is_durable(&self, number: u64) -> bool {
        !self.is_on || number <= self.counts().1
    }

    /// So many more records are durable.
    ///
    /// # Panics
    /// If fewer were made.
    pub(crate) fn recorded(&mut self, records: u64) {
        self.durable += records;
        assert!(self.durable <= self.made, "{} of {} are durable", self.durable, self.made);
    }

    /// The state at this moment goes into a checkpoint. Returns its number.
    pub(crate) fn begin_checkpoint(&mut self) -> u64 {
        let number = self.next();
        self.change(|| Change::CheckpointBegan { number });
        number
    }

    /// A slot was committed by this node, or applied. Of its own slots it has to know also what they have read.
    pub(crate) fn apply_slot(
        &mut self,
        inv: &ReplicationInv,
        from: NodeId,
        touched: Option<&BTreeSet<GranuleId>>,
    ) {
        self.change(|| {
            let touched = touched.into_iter().flatten().cloned().collect();
            Change::Slot(StoredSlot { inv: inv.clone(), from, touched })
        });
    }

    /// All slots of a pipeline up to this one are known to be validated.
    pub(crate) fn validate(&mut self, pipeline: PipelineId, slot: Slot) {
        self.change(|| Change::Validated { pipeline, slot });
    }

    /// What the node knows of a granule has changed.
    pub(crate) fn touch(&mut self, granule: &GranuleId) {
        if self.records() && !self.granules.contains(granule) {
            self.granules.insert(granule.clone());
        }
    }

    /// The rows of a granule were carried here.
    pub(crate) fn receive_rows(&mut self, granule: &GranuleId, rows: &[CarriedRow]) {
        self.change(|| {
            let rows = rows.iter().map(StoredRow::carried).collect();
            Change::Rows { granule: granule.clone(), rows }
        });
    }

    /// All rows of a granule, whose greatest clock is this one, are known to be validated.
    pub(crate) fn validate_rows(&mut self, granule: &GranuleId, clock: Clock) {
        self.change(|| Change::RowsValid { granule: granule.clone(), clock });
    }

    /// The rows of a granule are gone.
    pub(crate) fn discard_rows(&mut self, granule: &GranuleId) {
        self.change(|| Change::RowsGone { granule: granule.clone() });
    }

    /// The last change of a part: what it brings about is not recorded until [`Redo::resume`].
    pub(crate) fn end_part(
        &mut self,
        granules: &impl StoredGranules,
        change: impl FnOnce() -> Change,
    ) {
        self.change(change);
        self.close_part(granules);
        self.is_paused = true;
        self.barrier = None;
    }

    /// The tables by which granules are placed, the former ones before them.
    pub(crate) fn tables(&self) -> &[Arc<Topology>] {
        &self.tables
    }

    /// Whether what a former process had recorded is still to be taken, or some of it.
    pub(crate) fn is_restoring(&self) -> bool {
        self.is_restoring
    }

    /// Changes are recorded again.
    pub(crate) fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Notes by which tables granules are placed. The former ones are kept where some of them are dropped.
    pub(crate) fn place(&mut self, tables: &Arc<Topology>, has_dropped: bool) {
        if !has_dropped {
            self.tables.pop();
        }
        self.tables.push(Arc::clone(tables));
    }

    fn close_part(&mut self, granules: &impl StoredGranules) {
        if self.granules.is_empty() && self.changes.is_empty() {
            return;
        }
        let stored = |granule: GranuleId| {
            let state = granules.stored(&granule);
            StoredHolding { granule, state }
        };
        let holdings = std::mem::take(&mut self.granules).into_iter().map(stored).collect();
        let changes = std::mem::take(&mut self.changes);
        self.parts.push(RedoPart { requests: granules.requests_made(), holdings, changes });
    }

    /// The record of what has changed since the last one, if the node has a log and something has.
    pub(crate) fn take(
        &mut self,
        granules: &impl StoredGranules,
        barrier: Option<(&BTreeSet<NodeId>, &BTreeSet<NodeId>)>,
        directories: (&BTreeSet<ShardId>, &BTreeSet<ShardId>),
    ) -> Option<Bytes> {
        if !self.records() {
            return None;
        }
        let sizes = barrier.map(|(replaying, unaware)| (replaying.len(), unaware.len()));
        if let Some((replaying, unaware)) = barrier.filter(|_| self.barrier != sizes) {
            self.barrier = sizes;
            let (replaying, unaware) = (replaying.clone(), unaware.clone());
            self.changes.push(Change::Barrier { replaying, unaware });
        }
        if (&self.directories.0, &self.directories.1) != directories {
            let (copying, rebuilt) = (directories.0.clone(), directories.1.clone());
            self.directories = (copying.clone(), rebuilt.clone());
            self.changes.push(Change::Directories { copying, rebuilt });
        }
        self.close_part(granules);
        if self.parts.is_empty() {
            return None;
        }
        self.made += 1;
        Some(encode(&RedoRecord { parts: std::mem::take(&mut self.parts) }))
    }
}
