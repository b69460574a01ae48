//! The log of a worker on disk, with its checkpoints: what the worker asks for becomes writes and flushes, and their answers
//! become the worker's events.
//!
//! ```text
//! worker ── Write, Checkpoint ──► WorkerLog ── DiskEffect ──► files
//!        ◄─ Recorded, Checkpoint… ──        ◄─ DiskEvent ────
//! ```
//! It opens no file: effects are carried out by [`DiskWork`], on a thread of a node or in a simulation. Those of checkpoints
//! may be carried out beside those of the log, each in their order.
//!
//! Two checkpoints are kept, and the log from the older one on: if the newer one turns out to be damaged, the older one serves.
//!
//! Invariant: a segment is freed only when two checkpoints that do not need it are durable.

use crate::WorkerEvent;
use crate::checkpoint_state::{CheckpointBlock, CheckpointStep};
use crate::recovery::{RecoveredWorker, WorkerRecovery, name_process};
use crate::worker_files::{BLOCK, CheckpointParts, WorkerFiles, WorkerLogError, remove_damaged};
use shoal_cluster::manager::ProcessInstance;
use shoal_types::ShardId;
use shoal_types::wire::encode;
use shoal_wal::{
    CheckpointHead, CheckpointRule, CheckpointWriter, DiskPlantedBugs, Folder, FolderError,
    LogEffect, LogError, LogEvent, LogIdentity, LogWriter, Position, Record, Torn, WriterOptions,
    checkpoint_name, checkpoints, keep_older, perform, remove_unfinished,
};
use std::collections::VecDeque;

/// Checkpoints that are kept: the newest, and one more for the case that it is damaged.
const KEPT: usize = 2;

/// What a worker's log takes of the disk.
#[derive(Debug, Clone, Copy)]
pub struct WorkerLogOptions {
    /// See [`WriterOptions`].
    pub writer: WriterOptions,
    /// The least growth of the log between two checkpoints, in bytes. It is that of the last checkpoint, if that was larger.
    /// Default 256 MiB.
    pub checkpoint_bytes: u64,
}

impl Default for WorkerLogOptions {
    fn default() -> WorkerLogOptions {
        WorkerLogOptions { writer: WriterOptions::default(), checkpoint_bytes: 256 << 20 }
    }
}

/// What a log wants to have done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskEffect {
    /// Write, flush, make or remove a segment.
    Log(LogEffect),
    /// Write a checkpoint.
    Checkpoint {
        /// The number of its file.
        number: u64,
        /// What is to be done.
        effect: CheckpointEffect,
    },
}

/// What a log wants to have done with its checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointEffect {
    /// Begin a file.
    Begin(CheckpointHead),
    /// Append a block to it.
    Block(CheckpointBlock),
    /// Make it durable under its name, and remove all others but these.
    Finish {
        /// The numbers of the checkpoints that stay.
        keep: Vec<u64>,
    },
    /// Forget it, and remove what there is of it.
    Abandon,
}

/// The answer to a [`DiskEffect`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskEvent {
    /// What became of an operation on a segment.
    Log(LogEvent),
    /// A step of a checkpoint is done.
    Checkpoint {
        /// The number of its file.
        number: u64,
        /// What became of it.
        progress: CheckpointProgress,
    },
}

/// What became of a [`CheckpointEffect`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointProgress {
    /// The file has begun, or is removed.
    Done,
    /// The block is written.
    Written,
    /// The checkpoint is durable, with so many bytes.
    Finished {
        /// The length of the file.
        bytes: u64,
    },
    /// It could not be done.
    Failed(FolderError),
}

/// Carries out the effects of a log in a folder.
#[derive(Debug, Default)]
pub struct DiskWork {
    checkpoint: Option<CheckpointWriter>,
}

impl DiskWork {
    /// Carries out an effect.
    pub fn perform(
        &mut self,
        folder: &mut (impl Folder + ?Sized),
        effect: DiskEffect,
    ) -> DiskEvent {
        match effect {
            DiskEffect::Log(effect) => DiskEvent::Log(perform(folder, &effect)),
            DiskEffect::Checkpoint { number, effect } => {
                let done = self.checkpoint(folder, effect);
                let progress = done.unwrap_or_else(CheckpointProgress::Failed);
                DiskEvent::Checkpoint { number, progress }
            }
        }
    }

    fn checkpoint(
        &mut self,
        folder: &mut (impl Folder + ?Sized),
        effect: CheckpointEffect,
    ) -> Result<CheckpointProgress, FolderError> {
        match effect {
            CheckpointEffect::Begin(head) => {
                self.checkpoint = Some(CheckpointWriter::begin(folder, head)?);
                Ok(CheckpointProgress::Done)
            }
            CheckpointEffect::Block(block) => {
                // There is none where its beginning failed: the log ends for that.
                if let Some(writer) = &mut self.checkpoint {
                    writer.block(folder, BLOCK, &encode(&block))?;
                }
                Ok(CheckpointProgress::Written)
            }
            CheckpointEffect::Finish { keep } => {
                let Some(writer) = self.checkpoint.take() else {
                    return Ok(CheckpointProgress::Done);
                };
                let bytes = writer.finish(folder)?;
                for number in checkpoints(folder)? {
                    if !keep.contains(&number) {
                        folder.remove(&checkpoint_name(number))?;
                    }
                }
                folder.flush_folder()?;
                Ok(CheckpointProgress::Finished { bytes })
            }
            CheckpointEffect::Abandon => {
                self.checkpoint = None;
                remove_unfinished(folder)?;
                Ok(CheckpointProgress::Done)
            }
        }
    }
}

/// A checkpoint in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeptCheckpoint {
    number: u64,
    /// The first segment that it needs.
    first: u64,
}

/// A checkpoint that is being written.
#[derive(Debug, Clone, Copy)]
struct UnfinishedCheckpoint {
    checkpoint: KeptCheckpoint,
    /// The number by which the worker knows it.
    number: u64,
    /// It is complete, but for the records up to this number, which have to be durable before it is.
    ends_after: Option<u64>,
    is_finishing: bool,
}

impl UnfinishedCheckpoint {
    fn effect(&self, effect: CheckpointEffect) -> DiskEffect {
        DiskEffect::Checkpoint { number: self.checkpoint.number, effect }
    }
}

/// The log of a worker. Step it with the answers to its effects.
#[derive(Debug)]
pub struct WorkerLog {
    writer: LogWriter,
    options: WorkerLogOptions,
    /// Records of the log itself that are not durable, by their numbers; and how many were.
    own: VecDeque<u64>,
    own_persisted: u64,
    /// The worker's records that it knows to be durable.
    reported: u64,
    under_way: Option<UnfinishedCheckpoint>,
    /// The newest first.
    kept: Vec<KeptCheckpoint>,
    last_number: u64,
    last_bytes: u64,
    /// A checkpoint is due, and the worker knows it.
    is_asked: bool,
    /// None is due before this segment: the last one was given up in that before it.
    not_before: u64,
    /// See [`shorten`](WorkerLog::shorten).
    is_to_shorten: bool,
    /// What the worker has not received.
    news: Vec<LogNews>,
    /// It had no room at the last [`take_room_change`](WorkerLog::take_room_change).
    was_full: bool,
    failure: Option<FolderError>,
    /// The processes that have written to it, this one last.
    processes: Vec<ProcessInstance>,
    /// The number of the record that names this one.
    process_record: u64,
    planted: DiskPlantedBugs,
}

/// What has happened to a log, for its worker, which receives it as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogNews {
    /// See [`WorkerEvent::Recorded`].
    Recorded {
        /// How many more records are durable.
        records: u64,
    },
    /// See [`WorkerEvent::Checkpoint`].
    CheckpointDue,
    /// See [`WorkerEvent::CheckpointWritten`].
    CheckpointWritten {
        /// The number of the checkpoint.
        number: u64,
    },
    /// See [`WorkerEvent::Checkpointed`].
    Checkpointed {
        /// The number of the checkpoint.
        number: u64,
        /// Whether it is durable.
        is_durable: bool,
    },
}

impl<M> From<LogNews> for WorkerEvent<M> {
    fn from(news: LogNews) -> WorkerEvent<M> {
        match news {
            LogNews::Recorded { records } => WorkerEvent::Recorded { records },
            LogNews::CheckpointDue => WorkerEvent::Checkpoint,
            LogNews::CheckpointWritten { number } => WorkerEvent::CheckpointWritten { number },
            LogNews::Checkpointed { number, is_durable } => {
                WorkerEvent::Checkpointed { number, is_durable }
            }
        }
    }
}

/// Whether a log has room for its next segment. Where it has none, what owns the worker has its stores refuse writes
/// (`Store::log_is_full`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRoom {
    /// It has room again.
    Enough,
    /// The disk is full.
    None {
        /// The room that the segment needs.
        segment_bytes: u64,
    },
}

/// What was found in a folder.
#[derive(Debug)]
pub struct OpenedLog {
    /// The log, which goes on.
    pub log: WorkerLog,
    /// What the worker begins with.
    pub recovered: RecoveredWorker,
    /// The checkpoint whose parts are to be [read](read_parts), if there is one.
    pub checkpoint: Option<CheckpointParts>,
    /// The former processes of the node that have written to it, the oldest first: the last ones. None in a log from before they
    /// were recorded.
    pub processes: Vec<ProcessInstance>,
    /// The number of streams whose last records are void: see [`WorkerRecovery`].
    pub void: usize,
    /// The torn end that was cut, if there was one.
    pub torn: Option<Torn>,
    /// Whether the last process had [ended in order](WorkerLog::seal).
    pub is_sealed: bool,
    /// Nothing was written there before: the worker has no memory.
    pub is_new: bool,
    /// The checkpoints that are damaged: an older one is used.
    pub damaged: Vec<LogError>,
}

impl WorkerLog {
    /// Opens the log of a folder, and reads it. This `process` writes what follows.
    ///
    /// # Errors
    /// If the files are not whole, or not those of this owner: see [`LogError`].
    pub fn open(
        folder: &mut (impl Folder + ?Sized),
        identity: LogIdentity,
        options: WorkerLogOptions,
        process: ProcessInstance,
        effects: &mut Vec<DiskEffect>,
    ) -> Result<OpenedLog, WorkerLogError> {
        remove_unfinished(folder)?;
        let files = WorkerFiles::read(folder, Some(identity))?;
        let WorkerFiles { worker, processes, void, mut recovered, numbers, used, damaged } = files;
        remove_damaged(folder, &numbers, used.map(|(place, _)| place))?;
        let mut kept = Vec::new();
        if let Some((place, head)) = used {
            kept.push(KeptCheckpoint { number: head.number, first: head.first });
            let older = numbers.get(place + 1);
            let older = keep_older(&mut recovered, folder, older.copied(), Some(identity))?;
            kept.extend(
                older.map(|CheckpointHead { number, first, .. }| KeptCheckpoint { number, first }),
            );
        }
        let last_bytes = match used {
            Some((_, head)) => folder.length(&checkpoint_name(head.number))?,
            None => 0,
        };
        let (torn, is_sealed) = (recovered.torn.clone(), recovered.is_sealed);
        let is_new = recovered.incarnation == 0 && used.is_none();
        let mut wanted = Vec::new();
        let writer = LogWriter::begin(identity, options.writer, recovered, &mut wanted);
        effects.extend(wanted.into_iter().map(DiskEffect::Log));
        let mut log = WorkerLog {
            writer,
            options,
            own: VecDeque::new(),
            own_persisted: 0,
            reported: 0,
            under_way: None,
            kept,
            last_number: numbers.first().copied().unwrap_or_default(),
            last_bytes,
            is_asked: false,
            not_before: 0,
            is_to_shorten: false,
            news: Vec::new(),
            was_full: false,
            failure: None,
            processes: processes.clone(),
            process_record: 0,
            planted: folder.planted(),
        };
        name_process(&mut log.processes, process);
        log.append_own(WorkerRecovery::PROCESS, ShardId(0), process.0.to_le_bytes().to_vec());
        log.process_record = log.writer.appended();
        let void_streams = void.len();
        for shard in void {
            log.append_own(WorkerRecovery::VOID, shard, Vec::new());
        }
        let shards = worker.snapshot_shards();
        let checkpoint = used.map(|(_, head)| CheckpointParts { number: head.number, shards });
        let (recovered, void) = (worker, void_streams);
        Ok(OpenedLog {
            log,
            recovered,
            checkpoint,
            processes,
            void,
            torn,
            is_sealed,
            is_new,
            damaged,
        })
    }

    /// Carries out what the log wants until the number of this incarnation and its process are durable: nothing may be promised, and
    /// no manager asked for anything, before. `effects` is left with the rest. Returns false where the disk has no room.
    ///
    /// # Errors
    /// The first operation that failed.
    pub fn get_ready(
        &mut self,
        folder: &mut (impl Folder + ?Sized),
        effects: &mut Vec<DiskEffect>,
    ) -> Result<bool, FolderError> {
        let (mut work, mut wanted) = (DiskWork::default(), VecDeque::from(std::mem::take(effects)));
        while self.writer.persisted() < self.process_record {
            let Some(effect) = wanted.pop_front() else { return Ok(false) };
            self.step(work.perform(folder, effect), effects);
            wanted.extend(effects.drain(..));
            if let Some(failure) = self.failure() {
                return Err(failure.clone());
            }
        }
        *effects = wanted.into();
        Ok(true)
    }

    /// Whether there is no room for more: see [`LogWriter::is_full`].
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// Whether there is room, if that has changed since the last call. At first there was.
    pub fn take_room_change(&mut self) -> Option<LogRoom> {
        let is_full = self.is_full();
        let has_changed = std::mem::replace(&mut self.was_full, is_full) != is_full;
        let segment_bytes = self.options.writer.segment_bytes;
        has_changed.then_some(if is_full {
            LogRoom::None { segment_bytes }
        } else {
            LogRoom::Enough
        })
    }

    /// Ends the log in order, when all that was written is durable: see [`LogWriter::seal`]. Nothing may be written after it.
    pub fn seal(&mut self, effects: &mut Vec<DiskEffect>) {
        self.with_writer(effects, LogWriter::seal);
    }

    /// Whether the end of a [sealed](WorkerLog::seal) log is written.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.writer.is_closed()
    }

    /// Whether all that was written is durable.
    #[must_use]
    pub fn is_persisted(&self) -> bool {
        self.writer.persisted() == self.writer.appended()
    }

    /// Why the log does nothing more: its process is to end.
    #[must_use]
    pub fn failure(&self) -> Option<&FolderError> {
        self.failure.as_ref().or_else(|| self.writer.failure())
    }

    /// Bytes of the log's files that are in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    fn append_own(&mut self, kind: u8, shard: ShardId, payload: Vec<u8>) {
        let number = self.writer.append(Record { kind, shard, payload });
        self.own.push_back(number);
    }

    fn with_writer(
        &mut self,
        effects: &mut Vec<DiskEffect>,
        change: impl FnOnce(&mut LogWriter, &mut Vec<LogEffect>),
    ) {
        let mut wanted = Vec::new();
        change(&mut self.writer, &mut wanted);
        effects.extend(wanted.into_iter().map(DiskEffect::Log));
    }

    /// Appends the worker's records, and goes on.
    pub fn write(&mut self, records: Vec<Record>, effects: &mut Vec<DiskEffect>) {
        self.append(records);
        self.go_on(effects);
    }

    /// Appends the worker's records. They are written with the next group, which [`go_on`](WorkerLog::go_on) or the answer to an effect
    /// begins: what is appended before belongs to it.
    pub fn append(&mut self, records: Vec<Record>) {
        for record in records {
            self.writer.append(record);
        }
    }

    /// Begins the next group, if none is under way and there are records for one.
    pub fn go_on(&mut self, effects: &mut Vec<DiskEffect>) {
        self.with_writer(effects, |writer, effects| writer.go_on(effects));
    }

    /// Goes on with the worker's checkpoint.
    pub fn checkpoint_step(
        &mut self,
        identity: LogIdentity,
        step: CheckpointStep,
        effects: &mut Vec<DiskEffect>,
    ) {
        match step {
            CheckpointStep::Begin { number: asked } => {
                self.is_asked = false;
                self.last_number += 1;
                let (number, first) = (self.last_number, self.writer.serial());
                let processes = self.processes.iter().map(|process| process.0);
                let payload = std::iter::once(number).chain(processes).flat_map(u64::to_le_bytes);
                let payload = payload.collect();
                self.append_own(WorkerRecovery::MARK, ShardId(0), payload);
                self.with_writer(effects, |writer, effects| writer.go_on(effects));
                let checkpoint = KeptCheckpoint { number, first };
                let (number, ends_after, is_finishing) = (asked, None, false);
                let under_way =
                    UnfinishedCheckpoint { checkpoint, number, ends_after, is_finishing };
                self.under_way = Some(under_way);
                let head = CheckpointHead { identity, number: checkpoint.number, first };
                effects.push(under_way.effect(CheckpointEffect::Begin(head)));
            }
            // A checkpoint may have been given up for want of room, which the worker does not know yet (seed 939525331).
            CheckpointStep::Block(block) => {
                let effect = |it: UnfinishedCheckpoint| it.effect(CheckpointEffect::Block(block));
                effects.extend(self.under_way.map(effect));
            }
            CheckpointStep::End => {
                let appended = self.writer.appended();
                if let Some(under_way) = &mut self.under_way {
                    under_way.ends_after = Some(appended);
                    self.finish_checkpoint(effects);
                }
            }
            CheckpointStep::Abandon => {
                let abandoned = self.under_way.take();
                effects.extend(abandoned.map(|it| it.effect(CheckpointEffect::Abandon)));
            }
        }
    }

    /// Makes the checkpoint durable when the records are that it relies on.
    fn finish_checkpoint(&mut self, effects: &mut Vec<DiskEffect>) {
        let Some(under_way) = &mut self.under_way else { return };
        let is_due = under_way.ends_after.is_some_and(|last| last <= self.writer.persisted());
        if is_due && !under_way.is_finishing {
            under_way.is_finishing = true;
            let first = under_way.checkpoint.first;
            let older = self.kept.first().map(|kept| kept.number);
            let keep = [under_way.checkpoint.number].into_iter().chain(older).collect();
            effects.push(under_way.effect(CheckpointEffect::Finish { keep }));
            if self.planted.truncate_early {
                self.with_writer(effects, |writer, effects| writer.truncate(first, effects));
            }
        }
    }

    /// Handles the answer to an effect.
    pub fn step(&mut self, event: DiskEvent, effects: &mut Vec<DiskEffect>) {
        match event {
            DiskEvent::Log(event) => {
                self.with_writer(effects, |writer, effects| writer.step(event, effects));
                self.finish_checkpoint(effects);
            }
            DiskEvent::Checkpoint { progress: CheckpointProgress::Failed(error), .. }
                if !error.is_full =>
            {
                self.failure.get_or_insert(error);
            }
            DiskEvent::Checkpoint { number, progress } => {
                // That of one that was abandoned says nothing, also if that was durable already.
                if self.under_way.is_some_and(|it| it.checkpoint.number == number) {
                    self.on_progress(&progress, effects);
                }
            }
        }
    }

    /// The checkpoint that is under way goes on.
    fn on_progress(&mut self, progress: &CheckpointProgress, effects: &mut Vec<DiskEffect>) {
        let Some(under_way) = self.under_way else { return };
        let number = under_way.number;
        match progress {
            CheckpointProgress::Done => {}
            CheckpointProgress::Written => self.news.push(LogNews::CheckpointWritten { number }),
            CheckpointProgress::Finished { bytes } => {
                assert!(under_way.is_finishing, "a checkpoint is durable that was not ended");
                self.on_checkpoint(under_way, *bytes, effects);
            }
            // For want of room. The next one is tried when the log has grown again, or the worker needs it.
            CheckpointProgress::Failed(_) => {
                self.under_way = None;
                self.not_before = self.writer.serial() + 1;
                effects.push(under_way.effect(CheckpointEffect::Abandon));
                self.news.push(LogNews::Checkpointed { number, is_durable: false });
            }
        }
    }

    fn on_checkpoint(
        &mut self,
        under_way: UnfinishedCheckpoint,
        bytes: u64,
        effects: &mut Vec<DiskEffect>,
    ) {
        self.under_way = None;
        self.last_bytes = bytes;
        self.kept.insert(0, under_way.checkpoint);
        self.kept.truncate(KEPT);
        self.news.push(LogNews::Checkpointed { number: under_way.number, is_durable: true });
        if let [_, older] = self.kept[..] {
            self.with_writer(effects, |writer, effects| writer.truncate(older.first, effects));
        }
    }

    /// What the worker is to receive, in this order.
    pub fn take_news(&mut self, news: &mut Vec<LogNews>) {
        let persisted = self.writer.persisted();
        while self.own.front().is_some_and(|number| *number <= persisted) {
            self.own.pop_front();
            self.own_persisted += 1;
        }
        let reported = persisted - self.own_persisted;
        let records = reported - std::mem::replace(&mut self.reported, reported);
        if records > 0 {
            news.push(LogNews::Recorded { records });
        }
        news.append(&mut self.news);
        let is_due = self.has_grown() || std::mem::take(&mut self.is_to_shorten) && self.is_long();
        if self.under_way.is_none() && !self.is_asked && is_due {
            self.is_asked = true;
            news.push(LogNews::CheckpointDue);
        }
    }

    /// Has a checkpoint taken, if the log is long: for one that has hardly grown for a while. The log is kept from the older of two
    /// checkpoints on, so it takes two of them until little is left. May be called at any time.
    pub fn shorten(&mut self) {
        self.is_to_shorten = true;
    }

    /// Everything before this place is flushed.
    #[must_use]
    pub fn flushed(&self) -> Position {
        self.writer.flushed()
    }

    fn rule(&self) -> CheckpointRule {
        let (log_bytes_min, last_bytes) = (self.options.checkpoint_bytes, self.last_bytes);
        CheckpointRule { log_bytes_min, last_bytes }
    }

    fn is_long(&self) -> bool {
        self.rule().is_long(self.bytes()) && self.writer.serial() >= self.not_before
    }

    fn has_grown(&self) -> bool {
        let last = self.kept.first().map_or(1, |kept| kept.first);
        let grown = self.writer.serial().saturating_sub(last) * self.options.writer.segment_bytes;
        self.rule().is_due(grown) && self.writer.serial() >= self.not_before
    }
}
