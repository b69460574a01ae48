//! What the threads of a database on disk share.

use super::durable_clock::DurableClock;
use shoal_types::{Clock, Rejected, Result};
use shoal_wal::{LogEvent, Position, SegmentFile};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// A message to the thread of the log.
#[derive(Debug)]
pub(super) enum Told {
    /// A clock was drawn: its transaction is installed, with this record, or failed.
    Drawn(Clock, Option<Vec<u8>>),
    /// A record of another kind; the answer comes when it is durable.
    Record { kind: u8, payload: Vec<u8>, done: Sender<()> },
    /// A segment was made, or could not be.
    Segment(LogEvent),
    /// A checkpoint ended: the first segment that is needed from now on, and its file's bytes, unless it failed.
    Checkpointed(Option<(u64, u64)>),
    /// Asks which files have the log, and how far it is flushed.
    Segments(Sender<(Vec<(u64, SegmentFile)>, Position)>),
    /// A transaction panicked that had drawn its clock, and may be installed in part: nothing that has seen it is to be logged.
    Panicked,
    /// Writes out everything, and ends.
    Close,
}

/// Whether transactions are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Taking {
    All = 0,
    /// There is no room for another segment.
    Reads = 1,
    Nothing = 2,
}

/// What the log has, for checkpoints.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LogPlace {
    /// All transactions up to this clock are installed, and in the log.
    pub(super) clock: Clock,
    /// Later ones are in this segment or behind.
    pub(super) serial: u64,
}

/// The state that threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) durable: DurableClock,
    /// The last clock that is durable and has a record: the log reaches it when it is read again. Transactions that failed have
    /// drawn clocks, and have no records.
    recorded: AtomicU64,
    inbox: Mutex<Inbox>,
    /// The thread of the log sleeps, or is about to.
    is_idle: AtomicBool,
    thread: OnceLock<Thread>,
    taking: AtomicU8,
    /// Why nothing is taken.
    reason: Mutex<Option<Box<str>>>,
    place: Mutex<LogPlace>,
    /// What a segment needs of the disk.
    pub(super) segment_bytes: u64,
    /// A checkpoint that runs gives up.
    pub(super) is_cancelled: AtomicBool,
    /// Checkpoints that were completed in this process.
    pub(super) checkpoints: AtomicU64,
}

#[derive(Debug, Default)]
struct Inbox {
    told: Vec<Told>,
    /// The thread of the log has ended: nothing is taken any more.
    is_over: bool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(clock: Clock, segment_bytes: u64) -> Shared {
        Shared {
            durable: DurableClock::new(clock),
            recorded: AtomicU64::new(clock.0),
            inbox: Mutex::default(),
            is_idle: AtomicBool::new(false),
            thread: OnceLock::new(),
            taking: AtomicU8::new(Taking::All as u8),
            reason: Mutex::new(None),
            place: Mutex::default(),
            segment_bytes,
            is_cancelled: AtomicBool::new(false),
            checkpoints: AtomicU64::new(0),
        }
    }

    /// Informs the thread of the log. Returns false where that has ended.
    pub(super) fn tell(&self, told: Told) -> bool {
        let mut inbox = lock(&self.inbox);
        if inbox.is_over {
            return false;
        }
        inbox.told.push(told);
        drop(inbox);
        if self.is_idle.load(Ordering::SeqCst) && self.is_idle.swap(false, Ordering::SeqCst) {
            self.thread.get().expect("it sleeps, so it began").unpark();
        }
        true
    }

    /// Checks that a transaction can be taken.
    ///
    /// # Errors
    /// [`Rejected::NotOpen`], and [`Rejected::DiskFull`] for one that writes.
    #[inline]
    pub(super) fn check(&self, writes: bool) -> Result<()> {
        let taking = self.taking.load(Ordering::Acquire);
        if taking == Taking::All as u8 || taking == Taking::Reads as u8 && !writes {
            return Ok(());
        }
        self.refuse(taking)
    }

    #[cold]
    fn refuse(&self, taking: u8) -> Result<()> {
        if taking == Taking::Reads as u8 {
            return Err(Rejected::DiskFull { segment_bytes: self.segment_bytes }.into());
        }
        let reason = lock(&self.reason).clone().unwrap_or_default();
        Err(Rejected::NotOpen { reason }.into())
    }

    /// Takes no transactions from now on. The first reason stays.
    pub(super) fn stop_taking(&self, reason: &str) {
        lock(&self.reason).get_or_insert_with(|| reason.into());
        self.taking.store(Taking::Nothing as u8, Ordering::Release);
    }

    /// Whether there is room for writes, as long as transactions are taken.
    pub(super) fn set_full(&self, is_full: bool) {
        let (from, to) = match is_full {
            true => (Taking::All, Taking::Reads),
            false => (Taking::Reads, Taking::All),
        };
        // Not where nothing is taken any more.
        let _ =
            self.taking.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The last durable clock that has a record.
    pub(super) fn recorded(&self) -> Clock {
        Clock(self.recorded.load(Ordering::Acquire))
    }

    pub(super) fn place(&self) -> LogPlace {
        *lock(&self.place)
    }
}

/// For the thread of the log.
impl Shared {
    pub(super) fn begin_thread(&self) {
        self.thread.set(std::thread::current()).expect("a log has one thread");
    }

    /// All up to the clock `durable` are durable; `recorded` is the last of them that has a record.
    pub(super) fn advance(&self, recorded: Clock, durable: Clock) {
        // Before those that wait go on.
        self.recorded.store(recorded.0, Ordering::Release);
        self.durable.advance(durable);
    }

    pub(super) fn set_place(&self, place: LogPlace) {
        *lock(&self.place) = place;
    }

    /// Takes the messages.
    pub(super) fn take_inbox(&self, told: &mut Vec<Told>) {
        std::mem::swap(&mut lock(&self.inbox).told, told);
    }

    /// Sleeps until a message arrives, or for so long. Returns whether there is one. May return at once where one was taken before
    /// that woke this thread; not twice in a row.
    pub(super) fn sleep(&self, at_most: Option<Duration>) -> bool {
        self.is_idle.store(true, Ordering::SeqCst);
        if lock(&self.inbox).told.is_empty() {
            match at_most {
                Some(at_most) => std::thread::park_timeout(at_most),
                None => std::thread::park(),
            }
        }
        self.is_idle.store(false, Ordering::SeqCst);
        !lock(&self.inbox).told.is_empty()
    }

    /// The thread ends: nothing more becomes durable.
    pub(super) fn end_thread(&self) {
        let mut inbox = lock(&self.inbox);
        inbox.is_over = true;
        // With the last messages, senders of answers go.
        let left = std::mem::take(&mut inbox.told);
        drop(inbox);
        drop(left);
        self.durable.end();
    }
}
