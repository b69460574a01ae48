//! The local commit: optimistic, with the levels checked in the same step.
//!
//! A transaction that writes owns everything that it read, absent rows too (rule Z9): with the level of a reader, two
//! transactions at two owners could each read what the other writes. Everything is checked and installed within one step of
//! the node, so no lock is held between.

use super::pipelines::{PendingSlot, Pipelines};
use crate::granule::GranuleId;
use crate::message::{GranuleWrites, ReplicationInv};
use crate::ownership::Ownership;
use crate::planted_bugs::ZeusPlantedBug;
use crate::record::Level;
use crate::rows::{GranuleRows, RowKey, RowWrite, Rows};
use crate::scope::Scope;
use crate::version::{PipelineId, Slot, Version, WorkerPipeline};
use bytes::Bytes;
use shoal_types::limits::{KEY_BYTES_MAX, TRANSACTION_MESSAGE_BYTES_MAX, VALUE_BYTES_MAX};
use shoal_types::{Clock, Time, WorkerId};
use std::collections::BTreeSet;

/// The bytes that a row, or the name of a granule, has in a frame beside its key and its value, at most.
const ROW_BYTES: usize = 16;

// A row of the greatest size can be written.
const _: () =
    assert!(KEY_BYTES_MAX + VALUE_BYTES_MAX + 3 * ROW_BYTES < TRANSACTION_MESSAGE_BYTES_MAX);

/// A row that a transaction has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRow {
    /// The granule that has the row.
    pub granule: GranuleId,
    /// The row.
    pub key: RowKey,
    /// The version that it saw; `None` if the row was absent or a tombstone.
    pub version: Option<Version>,
}

/// A granule in which a transaction has scanned, or found a row absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedGranule {
    /// The granule in which rows may come and go.
    pub granule: GranuleId,
    /// The structure that it saw.
    pub structure: u64,
}

/// A transaction that asks to commit at this node. It writes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalCommit {
    /// The worker that runs it.
    pub worker: WorkerId,
    /// When its first attempt began.
    pub born: Time,
    /// The name under which it is reported as validated.
    pub tag: u64,
    /// The rows it has read.
    pub reads: Vec<ReadRow>,
    /// The granules it has scanned, or found a row absent in.
    pub scans: Vec<ScannedGranule>,
    /// What it writes, each granule and each row once.
    pub writes: Vec<GranuleWrites>,
}

/// How far a transaction is that only reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadCommit {
    /// All that it has read is validated.
    Validated,
    /// It is validated with a slot that is pending.
    Pending,
}

/// Why a transaction cannot commit locally now. Nothing has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitRefusal {
    /// The node does not own a granule, or has to let it go: it has to be wanted anew.
    NotOwned(GranuleId),
    /// A pending slot of another pipeline has read or written the granule, or an older transaction waits for such slots. It passes
    /// when those are validated.
    OtherPipeline(GranuleId),
    /// Something that was read has changed.
    Changed(GranuleId),
    /// The granule would grow, and have more bytes than [`GRANULE_BYTES_MAX`](crate::granule::GRANULE_BYTES_MAX).
    GranuleFull(GranuleId),
    /// It writes so many bytes, more than [`TRANSACTION_MESSAGE_BYTES_MAX`]: its slot is sent in one frame.
    TooManyBytes(usize),
    /// Too many slots of the pipeline are pending. It passes when the oldest is validated.
    PipelineFull,
    /// The node is out of the configuration.
    NotMember,
}

impl Pipelines {
    /// Commits a transaction locally and sends it to its followers. It is not validated: nothing of it may be revealed, and no
    /// client may see its rows.
    ///
    /// # Errors
    /// [`CommitRefusal`], if it cannot be now.
    ///
    /// # Panics
    /// If it writes nothing, or there is no such worker.
    pub(crate) fn commit(
        &mut self,
        scope: &mut Scope<'_>,
        ownership: &mut Ownership,
        commit: LocalCommit,
    ) -> Result<Slot, CommitRefusal> {
        assert!(!commit.writes.is_empty(), "a transaction that writes nothing has no slot");
        let worker = commit.worker;
        let coordinator = scope.view.member(scope.node).ok_or(CommitRefusal::NotMember)?;
        let bytes = commit.slot_bytes();
        if bytes > TRANSACTION_MESSAGE_BYTES_MAX {
            return Err(CommitRefusal::TooManyBytes(bytes));
        }
        let admitted = self.admit(scope, ownership, &commit);
        if let Err(CommitRefusal::OtherPipeline(_)) = &admitted {
            for granule in commit.touched() {
                if self.touching(&granule).is_some() {
                    self.turns.wait(&granule, worker, commit.born);
                }
            }
        }
        let (touched, touching) = admitted?;
        let readers = commit.writes.iter().flat_map(|writes| ownership.readers(&writes.granule));
        let followers: BTreeSet<_> =
            readers.filter(|reader| *reader != scope.node && scope.view.is_live(*reader)).collect();
        let touching = touching.filter(|_| !scope.has(ZeusPlantedBug::SplitDependent));
        let of = touching.unwrap_or_else(|| self.choose(worker, &followers));
        let pipeline = self.get(of);
        if pipeline.pending.len() >= scope.options.slots_pending_max {
            return Err(CommitRefusal::PipelineFull);
        }
        let clocks = touched.iter().map(|granule| ownership.clock(granule));
        let least = pipeline.last_clock;
        let clock = match scope.has(ZeusPlantedBug::ClockWithoutGranule) {
            true => least,
            false => clocks.fold(least, Clock::max),
        };
        let clock = Clock(clock.0 + 1);
        let slot = pipeline.last.next();
        touched.iter().for_each(|granule| self.turns.commit(granule, worker, commit.born));
        let LocalCommit { writes, tag, .. } = commit;
        let inv = ReplicationInv {
            pipeline: PipelineId { coordinator, of },
            slot,
            previous_validated: false,
            followers,
            clock,
            writes,
        };
        for writes in &inv.writes {
            let before = ownership.clock(&writes.granule);
            assert!(
                before < clock,
                "Z15: {} has clock {before}, and {clock} is written",
                writes.granule
            );
            ownership.raise_clock(&writes.granule, clock);
            scope.rows.apply(&writes.granule, &writes.rows, inv.version(), false);
        }
        let (acknowledged, mut repeats) = (BTreeSet::new(), scope.options.repeats());
        let repeat_at = scope.now + repeats.advance();
        scope.redo.apply_slot(&inv, scope.node, Some(&touched));
        self.begin(
            scope,
            PendingSlot {
                inv,
                acknowledged,
                touched,
                tag: Some(tag),
                readers: Vec::new(),
                recorded: scope.redo.next(),
                repeat_at,
                repeats,
            },
        );
        Ok(slot)
    }

    /// Commits a transaction that only reads, behind the last slot of the pipeline that has touched something of it: it is validated
    /// with that one, and until then what it has read does not move. All that it read is committed before it: in this pipeline, or
    /// validated.
    ///
    /// # Errors
    /// [`CommitRefusal`], if it cannot be now.
    pub(crate) fn commit_read(
        &mut self,
        scope: &mut Scope<'_>,
        ownership: &Ownership,
        commit: &LocalCommit,
    ) -> Result<ReadCommit, CommitRefusal> {
        assert!(commit.writes.is_empty(), "a transaction that writes has a slot");
        scope.view.member(scope.node).ok_or(CommitRefusal::NotMember)?;
        let (touched, touching) = self.admit(scope, ownership, commit)?;
        let touching = touching.filter(|_| !scope.has(ZeusPlantedBug::AnswerBeforeReads));
        let Some(of) = touching else { return Ok(ReadCommit::Validated) };
        let last = self.get_mut(of).pending.back_mut().expect("a slot of it is pending");
        last.readers.push(commit.tag);
        let touched: Vec<_> =
            touched.into_iter().filter(|granule| last.touched.insert(granule.clone())).collect();
        touched.iter().for_each(|granule| self.touch(granule, of));
        Ok(ReadCommit::Pending)
    }

    /// All that a transaction has touched, if the node owns that, and what was read is still so; and the pipeline of the worker whose
    /// pending slots have touched something of it, if there is one. All of them have to be of that one.
    fn admit(
        &self,
        scope: &Scope<'_>,
        ownership: &Ownership,
        commit: &LocalCommit,
    ) -> Result<(BTreeSet<GranuleId>, Option<WorkerPipeline>), CommitRefusal> {
        let (touched, mut of) = (commit.touched(), None);
        for granule in &touched {
            let hold = scope.options.hold;
            let absent = || commit.reads.iter().all(|read| read.granule != *granule);
            let planted = scope.has(ZeusPlantedBug::WriteAsReader)
                || scope.has(ZeusPlantedBug::AbsenceUnowned) && absent();
            let reads_only = planted
                && commit.writes.iter().all(|writes| writes.granule != *granule)
                && ownership.level(scope.node, granule) == Level::Reader;
            let may_write = ownership.may_write(scope.node, scope.now, hold, granule, commit.born);
            if !may_write && !reads_only {
                return Err(CommitRefusal::NotOwned(granule.clone()));
            }
            let is_behind = self.turns.is_behind(granule, commit.born);
            let touching = self.touching(granule);
            let is_other = touching.is_some_and(|it| {
                it.worker != commit.worker || of.is_some_and(|pipeline| pipeline != it)
            });
            if is_behind || is_other {
                return Err(CommitRefusal::OtherPipeline(granule.clone()));
            }
            of = of.or(touching);
        }
        commit.validate(scope)?;
        Ok((touched, of))
    }
}

impl LocalCommit {
    /// Everything that it read or writes.
    pub(crate) fn touched(&self) -> BTreeSet<GranuleId> {
        let read = self.reads.iter().map(|read| &read.granule);
        let scanned = self.scans.iter().map(|scan| &scan.granule);
        let written = self.writes.iter().map(|writes| &writes.granule);
        read.chain(scanned).chain(written).cloned().collect()
    }

    /// About the bytes of its slot, and no less.
    fn slot_bytes(&self) -> usize {
        let of_row = |row: &RowWrite| row.key.len() + row.value.as_ref().map_or(0, Bytes::len);
        let of_granule = |writes: &GranuleWrites| {
            let rows = writes.rows.iter().map(|row| of_row(row) + ROW_BYTES);
            writes.granule.prefix.len() + ROW_BYTES + rows.sum::<usize>()
        };
        self.writes.iter().map(of_granule).sum()
    }

    /// What it read is still so, and what it writes has room.
    fn validate(&self, scope: &Scope<'_>) -> Result<(), CommitRefusal> {
        let rows = &*scope.rows;
        for ReadRow { granule, key, version } in &self.reads {
            let row = rows.get(granule, key).filter(|row| row.value.is_some());
            if row.map(|row| row.version) != *version {
                return Err(CommitRefusal::Changed(granule.clone()));
            }
        }
        for ScannedGranule { granule, structure } in &self.scans {
            if rows.granule(granule).map_or(0, GranuleRows::structure) != *structure {
                return Err(CommitRefusal::Changed(granule.clone()));
            }
        }
        for writes in &self.writes {
            let has = rows.granule(&writes.granule).map_or(0, GranuleRows::bytes);
            let (added, removed) = writes.growth(rows);
            let max = scope.placement.layout.granule_bytes_max(&writes.granule);
            // What does not grow passes also where it is full: it may be full of tombstones, which go once they are validated.
            if added > removed && max.is_some_and(|max| has + added - removed > max) {
                return Err(CommitRefusal::GranuleFull(writes.granule.clone()));
            }
        }
        Ok(())
    }
}

impl GranuleWrites {
    /// The bytes of keys and values that the writes add to the granule, and those that they remove. A deleted row keeps none,
    /// since its tombstone goes once it is validated.
    fn growth(&self, rows: &Rows) -> (usize, usize) {
        let of_value = |value: &Option<Bytes>| value.as_ref().map(Bytes::len);
        let (mut added, mut removed) = (0, 0);
        for write in &self.rows {
            let row = rows.get(&self.granule, &(write.table, write.key.clone()));
            removed += row.map_or(0, |row| write.key.len() + of_value(&row.value).unwrap_or(0));
            added += of_value(&write.value).map_or(0, |bytes| write.key.len() + bytes);
        }
        (added, removed)
    }
}
