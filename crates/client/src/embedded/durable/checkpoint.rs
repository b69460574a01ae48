//! Checkpoints of a database that is in use.

use super::durability::Durability;
use super::records::{self, CheckpointBegin, WriteRef};
use super::restore::KeptCheckpoint;
use super::shared::{LogPlace, Shared, Told, lock};
use shoal_store::{Change, CopyPart, Session, Store, WalkPlace};
use shoal_wal::{
    CheckpointHead, CheckpointRule, CheckpointWriter, Folder, FolderError, LogEvent, LogIdentity,
    checkpoint_name, checkpoints, remove_unfinished,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Checkpoints that are kept: the newest, and one more for the case that it is damaged.
const KEPT: usize = 2;

/// What is copied in one go.
const PART: CopyPart = CopyPart { records_max: 1 << 10, bytes_max: 64 << 10 };

/// The rest after each part, about as long as a part takes: transactions have the processor meanwhile.
const PAUSE: Duration = Duration::from_micros(100);

/// The checkpoints of a folder. Held while one is written, and while they are copied.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// The newest first.
    pub(super) kept: Vec<KeptCheckpoint>,
    /// The greatest number of all that there were.
    pub(super) last_number: u64,
}

/// When checkpoints are taken, and how.
#[derive(Debug, Clone)]
pub(super) struct Checkpointer {
    identity: LogIdentity,
    checkpoints: Arc<Mutex<Checkpoints>>,
    /// Held while tables come and go.
    tables: Arc<Mutex<()>>,
    segment_bytes: u64,
    rule: CheckpointRule,
    /// The segment in which the last one began.
    last_serial: u64,
}

impl Checkpointer {
    pub(super) fn new(
        identity: LogIdentity,
        checkpoints: Arc<Mutex<Checkpoints>>,
        tables: Arc<Mutex<()>>,
        segment_bytes: u64,
        log_bytes_min: u64,
        last_bytes: u64,
    ) -> Checkpointer {
        let last_serial = lock(&checkpoints).kept.first().map_or(1, |kept| kept.first);
        Checkpointer {
            identity,
            checkpoints,
            tables,
            segment_bytes,
            rule: CheckpointRule { log_bytes_min, last_bytes },
            last_serial,
        }
    }

    /// Whether the log has grown enough: it goes on in the segment `serial`.
    pub(super) fn is_due(&self, serial: u64) -> bool {
        let grown = serial.saturating_sub(self.last_serial) * self.segment_bytes;
        self.rule.is_due(grown)
    }

    /// See [`CheckpointRule::is_long`].
    pub(super) fn is_long(&self, bytes: u64) -> bool {
        self.rule.is_long(bytes)
    }

    pub(super) fn begun(&mut self, serial: u64) {
        self.last_serial = serial;
    }

    pub(super) fn completed(&mut self, bytes: u64) {
        self.rule.last_bytes = bytes;
    }

    /// What a checkpoint begins with that is taken from now on.
    pub(super) fn begin(&self, shared: &Shared, store: &Store) -> (LogPlace, CheckpointBegin) {
        let _tables = lock(&self.tables);
        let place = shared.place();
        let (next_table, tables) = (store.next_table(), store.named_tables());
        (place, CheckpointBegin { clock: place.clock, next_table, tables })
    }

    /// Takes a checkpoint that has begun. Returns the first segment that is still needed, and the bytes of the file; `None` where
    /// it was given up, or there was no room for it: the next one is tried when the log has grown again. If the folder fails in
    /// another way, the log is to end.
    pub(super) fn run(
        &self,
        begun: &(LogPlace, CheckpointBegin),
        shared: &Arc<Shared>,
        store: &Arc<Store>,
        folder: &mut (impl Folder + ?Sized),
    ) -> Option<(u64, u64)> {
        let mut done = self.try_run(begun, shared, store, folder);
        let is_given_up = match &done {
            Ok(written) => written.is_none(),
            Err(error) => error.is_full,
        };
        if is_given_up {
            // What there is of it takes the room that others need.
            done = remove_unfinished(folder).map(|()| None);
        }
        done.unwrap_or_else(|error| {
            shared.tell(Told::Segment(LogEvent::Failed(error)));
            None
        })
    }

    fn try_run(
        &self,
        begun: &(LogPlace, CheckpointBegin),
        shared: &Arc<Shared>,
        store: &Arc<Store>,
        folder: &mut (impl Folder + ?Sized),
    ) -> Result<Option<(u64, u64)>, FolderError> {
        let mut checkpoints = lock(&self.checkpoints);
        checkpoints.last_number += 1;
        let number = checkpoints.last_number;
        let written = self.write(number, begun, shared, store, folder)?;
        let Some((first, bytes)) = written else { return Ok(None) };
        checkpoints.kept.insert(0, KeptCheckpoint { number, first });
        checkpoints.kept.truncate(KEPT);
        // Before the segments that it needs.
        remove_others(folder, &checkpoints.kept)?;
        shared.checkpoints.fetch_add(1, Ordering::AcqRel);
        let is_redundant = checkpoints.kept.len() == KEPT;
        let oldest = checkpoints.kept.last().filter(|_| is_redundant);
        Ok(Some((oldest.map_or(1, |oldest| oldest.first), bytes)))
    }

    /// Writes the file. Returns the first segment that it needs, and its bytes; `None` where it was given up.
    fn write(
        &self,
        number: u64,
        (place, begin): &(LogPlace, CheckpointBegin),
        shared: &Arc<Shared>,
        store: &Arc<Store>,
        folder: &mut (impl Folder + ?Sized),
    ) -> Result<Option<(u64, u64)>, FolderError> {
        let Ok(mut session) = store.session() else { return Ok(None) };
        let head = CheckpointHead { identity: self.identity, number, first: place.serial };
        let mut writer = CheckpointWriter::begin(folder, head)?;
        writer.block(folder, records::HEAD, &begin.encode())?;
        if !write_rows(&mut writer, &mut session, shared, folder)? {
            return Ok(None);
        }
        drop(session);
        if Durability::of(Arc::clone(shared), store.clock()).wait().is_err() {
            return Ok(None);
        }
        // At least that of each row here. The last clock that was drawn may have no record.
        let end = shared.recorded();
        writer.block(folder, records::TAIL, &end.0.to_le_bytes())?;
        Ok(Some((place.serial, writer.finish(folder)?)))
    }
}

/// Writes the rows of a store, with rests. Returns false where it was given up.
fn write_rows(
    writer: &mut CheckpointWriter,
    session: &mut Session,
    shared: &Shared,
    folder: &mut (impl Folder + ?Sized),
) -> Result<bool, FolderError> {
    let mut next = Some(WalkPlace::default());
    let mut block = Vec::new();
    while let Some(from) = next {
        if shared.is_cancelled.load(Ordering::Acquire) {
            return Ok(false);
        }
        block.clear();
        next = session.copy(
            &from,
            PART,
            |_| true,
            |_| false,
            |copied| {
                block.extend(copied.stamp.clock.0.to_le_bytes());
                let (table, key, change) = (copied.table, copied.key, Change::of(copied.value));
                WriteRef { table, key, change }.encode(&mut block);
            },
        );
        if !block.is_empty() {
            writer.block(folder, records::ROWS, &block)?;
        }
        thread::park_timeout(PAUSE);
    }
    Ok(true)
}

/// Removes the checkpoints that are not kept.
fn remove_others(
    folder: &mut (impl Folder + ?Sized),
    kept: &[KeptCheckpoint],
) -> Result<(), FolderError> {
    for number in checkpoints(folder)? {
        if kept.iter().all(|kept| kept.number != number) {
            folder.remove(&checkpoint_name(number))?;
        }
    }
    folder.flush_folder()
}
