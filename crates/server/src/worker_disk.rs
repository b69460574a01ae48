//! The disk of a worker: its log and its checkpoints, on threads of their own.
//!
//! ```text
//! worker ── Write, Checkpoint ──► log thread: one group at a time ──► files
//!        ◄─ command: news ───────              │ └ a thread that makes the next segment
//!                                              └ checkpoint thread
//! ```
//! The worker never waits. While a group is flushed, what it asks for gathers, and all of it is the next group. Checkpoints are
//! written beside the log, so that the flush of a large file delays no group.

use crate::disks::OpenedDisk;
use crate::end_reason::EndReason;
use crate::status::DiskStatus;
use crate::worker_command::WorkerCommand;
use shoal_disk::DiskFolder;
use shoal_engine::latency::LatencyHistogram;
use shoal_net::{Handle, SystemClock, UndeliveredCommand};
use shoal_node::{
    CheckpointProgress, CheckpointStep, DiskEffect, DiskEvent, DiskWork, LogNews, LogRoom,
    WorkerLog,
};
use shoal_store::Store;
use shoal_types::{Time, WorkerPlace};
use shoal_wal::{LogEffect, LogEvent, LogIdentity, Position, Record, checkpoint_name, perform};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, UNIX_EPOCH};

/// How soon a file is made again for which there was no room.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How soon a command is sent again to a worker whose queue of them was full.
const AGAIN_AFTER: Duration = Duration::from_millis(1);

/// A log that has grown by less than [`QUIET_BYTES`] within so long gets shorter.
const QUIET_AFTER: Duration = Duration::from_secs(15);

/// See [`QUIET_AFTER`]. Streams without transactions write less.
const QUIET_BYTES: u64 = 1 << 20;

/// How often the log thread asks for the free room on the disk. It wakes at least this often ([`RETRY_AFTER`]).
const MEASURE_ROOM_EVERY: Duration = Duration::from_secs(1);

/// What the log thread is asked to do.
enum DiskRequest {
    Write(Vec<Record>),
    Checkpoint(CheckpointStep),
    /// Another thread has carried out an effect.
    Done(DiskEvent),
    /// End the log in order.
    End,
}

/// What the log thread has measured.
#[derive(Debug, Clone, Copy, Default)]
struct DiskFigures {
    flushes: LatencyHistogram,
    flush_max: Duration,
    log_bytes: u64,
    is_full: bool,
    /// When the last checkpoint was written.
    checkpoint: Option<Time>,
    checkpoint_bytes: u64,
    /// The free room on the disk, at most [`MEASURE_ROOM_EVERY`] old; `None` if the system does not say.
    free_bytes: Option<u64>,
}

/// What a worker has not taken.
struct DiskNews {
    news: Mutex<Vec<LogNews>>,
    /// A command is on its way that has the worker take them.
    is_announced: AtomicBool,
    figures: Mutex<DiskFigures>,
}

impl DiskNews {
    fn figures(&self) -> MutexGuard<'_, DiskFigures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The disk, as its worker uses it. Its threads have ended, and its folder is free, when it is dropped.
pub(crate) struct WorkerDisk {
    requests: Sender<DiskRequest>,
    news: Arc<DiskNews>,
    thread: Option<JoinHandle<()>>,
    clock: SystemClock,
}

impl Drop for WorkerDisk {
    fn drop(&mut self) {
        self.request(DiskRequest::End);
        if let Some(thread) = self.thread.take() {
            // A panic there was reported, and has ended the node (`EndOnPanic`).
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for WorkerDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerDisk")
    }
}

impl WorkerDisk {
    /// Starts the threads of a log that was opened, with what it wants first.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub(crate) fn start(
        place: WorkerPlace,
        disk: OpenedDisk,
        stores: Vec<Arc<Store>>,
        worker_hosts: Handle<WorkerCommand>,
        end_reason: EndReason,
    ) -> std::io::Result<WorkerDisk> {
        let OpenedDisk { folder, identity, log, effects, checkpoint } = disk;
        let (requests, inbox) = channel();
        let figures = Mutex::new(begin_figures(&folder, &log, checkpoint));
        let clock = SystemClock::new();
        let is_announced = AtomicBool::new(false);
        let news = Arc::new(DiskNews { news: Mutex::default(), is_announced, figures });
        let checkpoints = start_checkpoints(
            place,
            folder.another(),
            requests.clone(),
            &end_reason,
            &worker_hosts,
        )?;
        let grew = (log.flushed(), clock.now());
        let thread = DiskThread {
            place,
            folder,
            identity,
            log,
            effects: effects.into(),
            news: Arc::clone(&news),
            worker_hosts,
            end_reason,
            checkpoints: Some(checkpoints),
            requests: requests.clone(),
            clock,
            stores,
            room_asked: clock.now(),
            room_measured: clock.now(),
            grew,
            helpers: Vec::new(),
        };
        let WorkerPlace { node, worker } = place;
        let name = format!("{node}-log-{}", worker.0);
        let guard = thread.end_reason.on_panic(&name, &thread.worker_hosts);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let _guard = guard;
            thread.run(&inbox);
        })?;
        Ok(WorkerDisk { requests, news, thread: Some(thread), clock })
    }

    /// Appends records to the log.
    pub(crate) fn write(&self, records: Vec<Record>) {
        self.request(DiskRequest::Write(records));
    }

    /// Goes on with a checkpoint.
    pub(crate) fn checkpoint(&self, step: CheckpointStep) {
        self.request(DiskRequest::Checkpoint(step));
    }

    /// The thread has ended where the node ends: then nothing is durable any more, which is what its worker goes by.
    fn request(&self, request: DiskRequest) {
        let _ = self.requests.send(request);
    }

    /// What the status of the worker says of its disk.
    pub(crate) fn status(&self) -> DiskStatus {
        let figures = *self.news.figures();
        // A clock that was set back since makes it new.
        let age = |at: Time| self.clock.now() - at;
        DiskStatus {
            flushes: ("flush", figures.flushes).into(),
            flush_max_ns: figures.flush_max.as_nanos() as u64,
            log_bytes: figures.log_bytes,
            is_full: figures.is_full,
            checkpoint_age_ms: figures.checkpoint.map(|at| age(at).as_millis() as u64),
            checkpoint_bytes: figures.checkpoint_bytes,
            free_bytes: figures.free_bytes,
        }
    }

    /// What has happened since the last call.
    pub(crate) fn take_news(&self) -> Vec<LogNews> {
        // In this order: what comes later is announced again.
        self.news.is_announced.store(false, Ordering::Release);
        std::mem::take(&mut *self.news.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is known before anything is written: the checkpoint that was opened is as old as its file.
fn begin_figures(folder: &DiskFolder, log: &WorkerLog, checkpoint: Option<u64>) -> DiskFigures {
    let file = checkpoint.map(|number| folder.path().join(checkpoint_name(number)));
    let file = file.and_then(|path| std::fs::metadata(path).ok());
    DiskFigures {
        log_bytes: log.bytes(),
        checkpoint: file.as_ref().and_then(|it| {
            let since = it.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(Time::ZERO + since)
        }),
        checkpoint_bytes: file.map_or(0, |it| it.len()),
        free_bytes: folder.free_bytes().ok(),
        ..DiskFigures::default()
    }
}

/// Starts the thread that writes checkpoints.
fn start_checkpoints(
    WorkerPlace { node, worker }: WorkerPlace,
    mut folder: DiskFolder,
    done: Sender<DiskRequest>,
    end_reason: &EndReason,
    worker_hosts: &Handle<WorkerCommand>,
) -> std::io::Result<(Sender<DiskEffect>, JoinHandle<()>)> {
    let (wanted, effects) = channel();
    let name = format!("{node}-checkpoint-{}", worker.0);
    let guard = end_reason.on_panic(&name, worker_hosts);
    let thread = thread::Builder::new().name(name).spawn(move || {
        let _guard = guard;
        let mut work = DiskWork::default();
        while let Ok(effect) = effects.recv() {
            let event = work.perform(&mut folder, effect);
            if done.send(DiskRequest::Done(event)).is_err() {
                break;
            }
        }
    })?;
    Ok((wanted, thread))
}

/// The state of the log thread.
struct DiskThread {
    place: WorkerPlace,
    folder: DiskFolder,
    identity: LogIdentity,
    log: WorkerLog,
    effects: VecDeque<DiskEffect>,
    news: Arc<DiskNews>,
    worker_hosts: Handle<WorkerCommand>,
    end_reason: EndReason,
    /// What the thread that writes checkpoints receives, and the thread, until it is to end.
    checkpoints: Option<(Sender<DiskEffect>, JoinHandle<()>)>,
    requests: Sender<DiskRequest>,
    clock: SystemClock,
    /// The stores of the node, which refuse writes while the log has no room.
    stores: Vec<Arc<Store>>,
    /// When a segment was asked for last for which there was no room.
    room_asked: Time,
    /// When the free room on the disk was asked for last.
    room_measured: Time,
    /// Where the log ended some time ago.
    grew: (Position, Time),
    /// The threads that make segments.
    helpers: Vec<JoinHandle<()>>,
}

impl DiskThread {
    /// Runs until the worker or the node has ended, or an operation has failed.
    fn run(mut self, inbox: &Receiver<DiskRequest>) {
        while !self.worker_hosts.is_stopped() {
            let mut goes_on = self.take_requests(inbox);
            if goes_on && let Some(event) = self.work() {
                // What was asked for while a group was flushed is all in the next one, which the event begins: what is left in the
                // inbox would wait for that one, and then for its own.
                goes_on = self.take_waiting(inbox);
                self.step(event);
            }
            if !goes_on {
                break;
            }
            if let Some(failure) = self.log.failure() {
                let WorkerPlace { node, worker } = self.place;
                // What of the file is on the disk is not known: it is never flushed again (`docs/recovery.md`).
                tracing::error!(%node, %worker, error = %failure, "the disk of a worker fails: the node ends");
                self.end_reason.set(format!("the disk of {node} fails: {failure}"));
                self.worker_hosts.stop();
                break;
            }
            self.follow_room();
            self.measure_room();
            self.follow_growth();
            self.publish();
        }
        // A checkpoint that gets its name now is flushed with all files before the log ends in order, where it was not by itself.
        if let Some((effects, thread)) = self.checkpoints.take() {
            drop(effects);
            // A panic there was reported.
            let _ = thread.join();
        }
        if self.log.failure().is_none() {
            self.seal(inbox);
        }
        for helper in self.helpers {
            let _ = helper.join();
        }
    }

    /// Ends the log in order. What it says then holds also where the system would write it out later: what the end stands for is
    /// flushed before the end is written.
    fn seal(&mut self, inbox: &Receiver<DiskRequest>) {
        let flush = |folder: &DiskFolder| match folder.flushes() {
            true => Ok(()),
            false => folder.flush_all(),
        };
        let mut is_closed =
            self.finish(inbox, WorkerLog::is_persisted) && flush(&self.folder).is_ok();
        if is_closed {
            let mut effects = Vec::new();
            self.log.seal(&mut effects);
            self.effects.extend(effects);
            is_closed = self.finish(inbox, WorkerLog::is_closed) && flush(&self.folder).is_ok();
        }
        if !is_closed {
            let WorkerPlace { node, worker } = self.place;
            tracing::warn!(%node, %worker, "the log could not be ended in order: the next process reads it as after a crash");
        }
    }

    /// Carries out what the log wants until it `is_done`, and no more checkpoints. Returns false if it never is: an operation has failed,
    /// or there is no room.
    fn finish(&mut self, inbox: &Receiver<DiskRequest>, is_done: fn(&WorkerLog) -> bool) -> bool {
        while !is_done(&self.log) {
            self.effects.retain(|effect| matches!(effect, DiskEffect::Log(_)));
            match self.effects.is_empty() {
                false => {
                    if let Some(event) = self.work() {
                        self.step(event);
                    }
                }
                // The current segment is full, and there is no room for another.
                true if self.log.is_full() => return false,
                // A segment is being made.
                true => match inbox.recv_timeout(RETRY_AFTER) {
                    Ok(DiskRequest::Done(event @ DiskEvent::Log(_))) => self.step(event),
                    Ok(_) => {}
                    Err(_) => return false,
                },
            }
            if self.log.failure().is_some() {
                return false;
            }
        }
        true
    }

    /// Takes what was asked for; waits for it where there is nothing else to do. Returns false when the thread is to end.
    fn take_requests(&mut self, inbox: &Receiver<DiskRequest>) -> bool {
        if self.effects.is_empty() {
            match inbox.recv_timeout(RETRY_AFTER) {
                Ok(DiskRequest::End) => return false,
                Ok(request) => self.take(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        let goes_on = self.take_waiting(inbox);
        let mut effects = Vec::new();
        self.log.go_on(&mut effects);
        self.effects.extend(effects);
        goes_on
    }

    /// Takes what was asked for, without waiting for more. Returns false when the thread is to end.
    fn take_waiting(&mut self, inbox: &Receiver<DiskRequest>) -> bool {
        while let Ok(request) = inbox.try_recv() {
            match request {
                DiskRequest::End => return false,
                request => self.take(request),
            }
        }
        true
    }

    fn take(&mut self, request: DiskRequest) {
        let mut effects = Vec::new();
        match request {
            DiskRequest::Write(records) => self.log.append(records),
            DiskRequest::Checkpoint(step) => {
                self.log.checkpoint_step(self.identity, step, &mut effects);
            }
            DiskRequest::Done(event) => {
                if let DiskEvent::Checkpoint {
                    progress: CheckpointProgress::Finished { bytes },
                    ..
                } = event
                {
                    let mut figures = self.news.figures();
                    (figures.checkpoint, figures.checkpoint_bytes) =
                        (Some(self.clock.now()), bytes);
                }
                self.log.step(event, &mut effects);
            }
            DiskRequest::End => {}
        }
        self.effects.extend(effects);
    }

    fn step(&mut self, event: DiskEvent) {
        self.take(DiskRequest::Done(event));
    }

    /// Carries out the next effect, and returns its answer; or has another thread do it.
    fn work(&mut self) -> Option<DiskEvent> {
        match self.effects.pop_front() {
            None => None,
            Some(effect @ DiskEffect::Checkpoint { .. }) => {
                // That thread ends with this one.
                if let Some((effects, _)) = &self.checkpoints {
                    let _ = effects.send(effect);
                }
                None
            }
            Some(DiskEffect::Log(effect @ LogEffect::Make { .. })) => {
                let (mut folder, done) = (self.folder.another(), self.requests.clone());
                self.helpers.retain(|helper| !helper.is_finished());
                let guard = self.end_reason.on_panic("that makes a segment", &self.worker_hosts);
                let wanted = effect.clone();
                let helper = thread::Builder::new().spawn(move || {
                    let _guard = guard;
                    let event = DiskEvent::Log(perform(&mut folder, &wanted));
                    let _ = done.send(DiskRequest::Done(event));
                });
                // Where the system has no thread, the log waits.
                let Ok(helper) = helper else {
                    return Some(DiskEvent::Log(perform(&mut self.folder, &effect)));
                };
                self.helpers.push(helper);
                None
            }
            Some(DiskEffect::Log(effect)) => {
                let began = self.clock.now();
                let event = perform(&mut self.folder, &effect);
                let took = self.clock.now() - began;
                self.note(matches!(effect, LogEffect::Flush { .. }).then_some(took));
                Some(DiskEvent::Log(event))
            }
        }
    }

    /// Notes what the status says, with the time that a flush took.
    fn note(&self, flush: Option<Duration>) {
        let mut figures = self.news.figures();
        if let Some(took) = flush {
            figures.flushes.add(took.as_nanos() as u64);
            figures.flush_max = figures.flush_max.max(took);
        }
        figures.log_bytes = self.log.bytes();
    }

    /// Has the stores of the node refuse writes while the log has no room, and asks for room again at times.
    fn follow_room(&mut self) {
        let (now, WorkerPlace { node, worker }) = (self.clock.now(), self.place);
        if self.log.is_full() && now - self.room_asked >= RETRY_AFTER {
            self.room_asked = now;
            self.step(DiskEvent::Log(LogEvent::Retry));
        }
        let Some(room) = self.log.take_room_change() else { return };
        self.news.figures().is_full = room != LogRoom::Enough;
        let path = self.folder.path().display();
        match room {
            LogRoom::None { segment_bytes } => {
                tracing::error!(
                    %node, %worker, %path, segment_bytes,
                    "the disk has no room for the next segment of the log: writes are refused until it has"
                );
                self.stores.iter().for_each(|store| store.log_is_full(segment_bytes));
            }
            LogRoom::Enough => {
                tracing::info!(%node, %worker, %path, "the disk has room again: writes are taken");
                self.stores.iter().for_each(|store| store.log_has_room());
            }
        }
    }

    /// Asks for the free room on the disk if that was long ago. Here, because the system may take long to answer, and the worker
    /// waits for nothing.
    fn measure_room(&mut self) {
        let now = self.clock.now();
        if now - self.room_measured >= MEASURE_ROOM_EVERY {
            self.room_measured = now;
            self.news.figures().free_bytes = self.folder.free_bytes().ok();
        }
    }

    /// Has a log that hardly grows get shorter.
    fn follow_growth(&mut self) {
        let (now, flushed, (last, since)) = (self.clock.now(), self.log.flushed(), self.grew);
        if now - since < QUIET_AFTER {
            return;
        }
        self.grew = (flushed, now);
        if flushed.serial == last.serial && flushed.offset - last.offset < QUIET_BYTES {
            self.log.shorten();
        }
    }

    /// Has the worker take what has happened.
    fn publish(&mut self) {
        let mut news = self.news.news.lock().unwrap_or_else(PoisonError::into_inner);
        let before = news.len();
        self.log.take_news(&mut news);
        let is_news = news.len() > before;
        drop(news);
        if !is_news || self.news.is_announced.swap(true, Ordering::AcqRel) {
            return;
        }
        while let Err(UndeliveredCommand::Full(_)) =
            self.worker_hosts.command(self.place.worker, WorkerCommand::TakeDiskNews)
        {
            thread::park_timeout(AGAIN_AFTER);
        }
    }
}
