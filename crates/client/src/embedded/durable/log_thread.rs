//! The thread of the log: appends transactions in the order of their clocks, and carries out what the writer wants.

use super::checkpoint::Checkpointer;
use super::clock_order::ClockOrder;
use super::records;
use super::shared::{LogPlace, Shared, Told};
use shoal_disk::DiskFolder;
use shoal_store::Store;
use shoal_types::{Clock, ShardId};
use shoal_wal::{Folder, LogEffect, LogEvent, LogWriter, Record, perform};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How soon a file is made again for which there was no room.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A log that nothing was written to for so long gets shorter.
const QUIET_AFTER: Duration = Duration::from_secs(10);

/// A folder that several threads use, though no two of them the same file at once.
pub(crate) trait ThreadFolder: Folder + Send + 'static {
    /// A handle for another thread.
    fn another(&self) -> Self;
}

impl ThreadFolder for DiskFolder {
    fn another(&self) -> DiskFolder {
        DiskFolder::another(self)
    }
}

/// The state of the thread.
pub(super) struct LogThread<F> {
    shared: Arc<Shared>,
    store: Arc<Store>,
    folder: F,
    writer: LogWriter,
    effects: VecDeque<LogEffect>,
    order: ClockOrder,
    /// What is durable when the record of a number is.
    clocks: VecDeque<Reached>,
    /// The last clock whose transaction has a record.
    recorded: Clock,
    /// Answers to records of other kinds, by their numbers.
    answers: VecDeque<(u64, Sender<()>)>,
    checkpointer: Checkpointer,
    checkpoint: Option<JoinHandle<()>>,
    /// Makes a segment.
    maker: Option<JoinHandle<()>>,
    /// A transaction has, and all later ones are without a record.
    has_panicked: bool,
    /// How often in a row it has rested and received nothing: from the second time on it has slept as long as it wanted.
    quiet_rests: u32,
    is_closing: bool,
    is_sealed: bool,
}

/// What is durable when the record `number` is.
struct Reached {
    number: u64,
    /// All up to this clock.
    clock: Clock,
    /// The last one up to there that has a record.
    recorded: Clock,
}

/// Ends the waits when the thread ends, in any way.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.stop_taking("the thread of its log has ended");
        self.0.end_thread();
    }
}

impl<F: ThreadFolder> LogThread<F> {
    /// The thread of a log whose writer has begun, with what it wants first.
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Arc<Store>,
        folder: F,
        checkpointer: Checkpointer,
        writer: LogWriter,
        effects: Vec<LogEffect>,
    ) -> LogThread<F> {
        let (order, recorded) = (ClockOrder::after(store.clock()), store.clock());
        LogThread {
            shared,
            store,
            folder,
            writer,
            effects: effects.into(),
            order,
            clocks: VecDeque::new(),
            recorded,
            answers: VecDeque::new(),
            checkpointer,
            checkpoint: None,
            maker: None,
            has_panicked: false,
            quiet_rests: 0,
            is_closing: false,
            is_sealed: false,
        }
    }

    /// Runs until the log is closed, or fails.
    pub(super) fn run(mut self) {
        self.shared.begin_thread();
        let ending = Ending(Arc::clone(&self.shared));
        let mut told = Vec::new();
        loop {
            let mut is_told = self.take_inbox(&mut told);
            self.change(|writer, effects| writer.go_on(effects));
            let has_worked = !self.effects.is_empty();
            if let Some(event) = self.work() {
                // What came while a group was flushed is all in the next one, which the event begins.
                is_told |= self.take_inbox(&mut told);
                self.change(|writer, effects| writer.step(event, effects));
            }
            if let Some(failure) = self.writer.failure() {
                self.shared.stop_taking(&failure.to_string());
                break;
            }
            if self.has_panicked {
                break;
            }
            self.publish();
            if self.is_closing && self.try_close() {
                break;
            }
            if !is_told && !has_worked && self.effects.is_empty() {
                self.rest();
            }
        }
        self.shared.is_cancelled.store(true, Ordering::Release);
        // Before others are waited for: they may wait for what is not durable.
        drop(ending);
        self.answers.clear();
        // The folder's lock is free when all its users have ended.
        for user in [self.checkpoint.take(), self.maker.take()].into_iter().flatten() {
            let _ = user.join();
        }
    }

    fn handle(&mut self, told: Told) {
        match told {
            // A caller that was not stopped in time; it learns that its transaction may be lost.
            Told::Drawn(..) | Told::Record { .. } if self.is_sealed => {}
            Told::Drawn(clock, record) => {
                self.order.put(clock, record);
                while let Some((clock, record)) = self.order.next() {
                    if let Some(payload) = record {
                        self.append(records::TRANSACTION, payload);
                        self.recorded = clock;
                    }
                    let (number, recorded) = (self.writer.appended(), self.recorded);
                    self.clocks.push_back(Reached { number, clock, recorded });
                }
            }
            Told::Record { kind, payload, done } => {
                let number = self.append(kind, payload);
                self.answers.push_back((number, done));
            }
            Told::Segment(event) => self.change(|writer, effects| writer.step(event, effects)),
            Told::Checkpointed(done) => {
                if let Some(ended) = self.checkpoint.take() {
                    let _ = ended.join();
                }
                if let Some((first, bytes)) = done {
                    self.checkpointer.completed(bytes);
                    self.change(|writer, effects| writer.truncate(first, effects));
                }
            }
            Told::Segments(answer) => {
                // Not awaited any more if this fails.
                let _ = answer.send((self.writer.segments().collect(), self.writer.flushed()));
            }
            Told::Panicked => self.has_panicked = true,
            Told::Close => self.is_closing = true,
        }
    }

    fn append(&mut self, kind: u8, payload: Vec<u8>) -> u64 {
        self.writer.append(Record { kind, shard: ShardId(0), payload })
    }

    fn change(&mut self, change: impl FnOnce(&mut LogWriter, &mut Vec<LogEffect>)) {
        let mut effects = Vec::new();
        change(&mut self.writer, &mut effects);
        self.effects.extend(effects);
    }

    /// Takes what others have left, through a buffer that is empty. Returns whether there was anything.
    fn take_inbox(&mut self, told: &mut Vec<Told>) -> bool {
        self.shared.take_inbox(told);
        let is_told = !told.is_empty();
        told.drain(..).for_each(|told| self.handle(told));
        is_told
    }

    /// Carries out the next effect, and returns its answer. Files are made on a thread of their own, since that takes long: then
    /// there is no answer yet.
    fn work(&mut self) -> Option<LogEvent> {
        let effect = self.effects.pop_front()?;
        if let LogEffect::Make { .. } = effect {
            let (mut folder, shared) = (self.folder.another(), Arc::clone(&self.shared));
            // The last one has sent what it made, and ends; until it has, it is a user of the folder.
            if let Some(ended) = self.maker.take() {
                let _ = ended.join();
            }
            self.maker = Some(thread::spawn(move || {
                shared.tell(Told::Segment(perform(&mut folder, &effect)));
            }));
            return None;
        }
        Some(perform(&mut self.folder, &effect))
    }

    /// Informs others how far the log is.
    fn publish(&mut self) {
        let persisted = self.writer.persisted();
        let mut last = None;
        while self.clocks.front().is_some_and(|reached| reached.number <= persisted) {
            last = self.clocks.pop_front();
        }
        if let Some(Reached { clock, recorded, .. }) = last {
            self.shared.advance(recorded, clock);
        }
        while self.answers.front().is_some_and(|(number, _)| *number <= persisted) {
            let (_, done) = self.answers.pop_front().expect("there is one");
            // Not awaited any more if this fails.
            let _ = done.send(());
        }
        self.shared.set_full(self.writer.is_full());
        let place = LogPlace { clock: self.order.last(), serial: self.writer.serial() };
        self.shared.set_place(place);
        if self.checkpoint.is_none() && !self.is_closing && self.checkpointer.is_due(place.serial) {
            self.begin_checkpoint();
        }
    }

    fn begin_checkpoint(&mut self) {
        let (checkpointer, shared) = (self.checkpointer.clone(), Arc::clone(&self.shared));
        let (store, mut folder) = (Arc::clone(&self.store), self.folder.another());
        self.checkpointer.begun(self.writer.serial());
        self.checkpoint = Some(thread::spawn(move || {
            let begun = checkpointer.begin(&shared, &store);
            let done = checkpointer.run(&begun, &shared, &store, &mut folder);
            shared.tell(Told::Checkpointed(done));
        }));
    }

    /// Seals the log when everything is in it. Returns whether it is on the disk, or cannot be.
    fn try_close(&mut self) -> bool {
        // A transaction that has drawn its clock delivers it.
        let is_complete = self.order.last() == self.store.clock();
        if is_complete && !self.is_sealed {
            self.is_sealed = true;
            self.change(|writer, effects| writer.seal(effects));
        }
        // Without room, what does not fit is lost: its callers receive an error.
        let is_stuck = self.is_sealed && self.writer.is_full() && self.effects.is_empty();
        self.writer.is_closed() || is_stuck
    }

    fn rest(&mut self) {
        let is_full = self.writer.is_full();
        let is_long = self.checkpoint.is_none() && self.checkpointer.is_long(self.writer.bytes());
        let at_most = match is_full {
            true => Some(RETRY_AFTER),
            false => is_long.then_some(QUIET_AFTER),
        };
        let is_told = self.shared.sleep(at_most);
        self.quiet_rests = if is_told { 0 } else { self.quiet_rests + 1 };
        if is_full {
            self.change(|writer, effects| writer.step(LogEvent::Retry, effects));
        } else if is_long && self.quiet_rests >= 2 {
            self.quiet_rests = 0;
            // The log is kept from the older of two checkpoints on: with another one after this, little of it is left.
            self.begin_checkpoint();
        }
    }
}
