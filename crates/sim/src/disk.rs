//! The disk of a worker: a virtual one, with the log that its streams write to and its checkpoints, in the format of real ones.

use crate::fault_schedule::DiskTroubles;
use shoal_cluster::manager::ProcessInstance;
use shoal_node::{
    CheckpointEffect, CheckpointStep, DiskEffect, DiskEvent, DiskWork, LogRoom, OpenedLog,
    RecoveredWorker, WorkerEvent, WorkerLog, WorkerLogError, WorkerLogOptions, read_parts,
};
use shoal_types::{Random, Time, WorkerPlace};
use shoal_wal::virtual_disk::{DiskDelays, DiskFaults, DiskQueue, VirtualDisk};
use shoal_wal::{DiskPlantedBugs, Folder, LogEvent, LogIdentity, Record, WriterOptions};
use std::collections::VecDeque;
use std::time::Duration;

/// Small, so that logs go over many segments, records over several, and checkpoints are frequent.
const OPTIONS: WorkerLogOptions = WorkerLogOptions {
    writer: WriterOptions {
        segment_bytes: 16 << 10,
        group_bytes_max: 4 << 10,
        page_bytes: 1 << 10,
    },
    checkpoint_bytes: 64 << 10,
};

/// One operation in so many stalls, for ten times the longest that others take.
const STALLS_ONE_IN: u64 = 200;

/// A log gets shorter after one in so many turns.
const SHORTEN_ONE_IN: u64 = 1_000;

/// Of disks that are full at times, each is so often.
const FULL_TIMES: u64 = 4;

/// And so long at most.
const FULL_MAX: Duration = Duration::from_millis(400);

/// While a disk is full, its log asks for room so often.
const RETRY_EVERY: Duration = Duration::from_millis(5);

/// While a process begins, a read fails after fewer than this, drawn anew each time.
const READS_MAX: u64 = 256;

/// A disk that lies about flushes keeps its state once in so many turns.
const KEEPS_ONE_IN: u64 = 16;

/// What processes found on a disk, and in what their ends interrupted it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DiskCounts {
    /// Streams whose last records were void.
    pub(crate) void_streams: u64,
    /// Ends that were torn, and cut.
    pub(crate) torn_ends: u64,
    /// Checkpoints that were damaged, so that an older one was used.
    pub(crate) older_checkpoints: u64,
    /// Checkpoints of which some blocks were written when the process ended.
    pub(crate) ended_in_blocks: u64,
    /// Checkpoints that were to become durable when the process ended.
    pub(crate) ended_in_finish: u64,
}

/// The disk of a worker, which outlives the processes of its node.
#[derive(Debug)]
pub(crate) struct SimulatedDisk {
    identity: LogIdentity,
    disk: VirtualDisk,
    work: DiskWork,
    queue: DiskQueue,
    /// The steps of checkpoints that are under way, with the times at which they are done.
    checkpoint_queue: VecDeque<(Time, DiskEffect)>,
    longest: Duration,
    /// When there is no room on it, from and until, the next time last.
    full: Vec<(Time, Time)>,
    /// Whether it may be put back.
    keeps_images: bool,
    /// The disk as it was when some process had ended.
    image: Option<VirtualDisk>,
    /// Whether it reports flushes that it has not done.
    lies: bool,
    /// The state in which a disk that lies is after a loss of power.
    kept: Option<VirtualDisk>,
    /// When an operation fails.
    fails_at: Option<Time>,
    /// The log of the current process.
    log: Option<WorkerLog>,
    /// What has happened since this was taken last.
    counts: DiskCounts,
    /// What the log wants, and the disk has not received.
    wanted: Vec<DiskEffect>,
    random: Random,
}

impl SimulatedDisk {
    /// An empty disk, whose operations take at most `longest`; `lies` about flushes if that is planted.
    pub(crate) fn new(
        place: WorkerPlace,
        longest: Duration,
        planted: DiskPlantedBugs,
        lies: bool,
        mut random: Random,
    ) -> SimulatedDisk {
        let longest = longest.max(Duration::from_nanos(2));
        let delays = DiskDelays {
            least: Duration::from_nanos(1),
            most: longest,
            stalls_one_in: STALLS_ONE_IN,
            stall: longest * 10,
        };
        let WorkerPlace { node, worker } = place;
        let volume = random.next_u64() ^ u64::from(worker.0);
        SimulatedDisk {
            identity: LogIdentity { cluster: None, node, volume },
            disk: VirtualDisk::new().with_planted(planted),
            work: DiskWork::default(),
            queue: DiskQueue::new(delays, random.fork(1)),
            checkpoint_queue: VecDeque::new(),
            longest,
            full: Vec::new(),
            keeps_images: false,
            image: None,
            lies,
            kept: None,
            fails_at: None,
            log: None,
            counts: DiskCounts::default(),
            wanted: Vec::new(),
            random,
        }
    }

    /// Begins the log of a process. Returns what the worker begins with, the events that it receives before it starts, and the
    /// former processes that the log names.
    ///
    /// # Panics
    /// If the log cannot be read: what is damaged beyond use was replaced ([`damage`](SimulatedDisk::damage)).
    pub(crate) fn begin<M>(
        &mut self,
        process: ProcessInstance,
    ) -> (RecoveredWorker, Vec<WorkerEvent<M>>, Vec<ProcessInstance>) {
        let (node, wanted) = (self.identity.node, &mut self.wanted);
        let opened = WorkerLog::open(&mut self.disk, self.identity, OPTIONS, process, wanted);
        let opened = opened.unwrap_or_else(|error| panic!("the log of {node}: {error}"));
        let OpenedLog { mut log, recovered, checkpoint, processes, void, torn, damaged, .. } =
            opened;
        // A node does not start before there is room for its first segment.
        let bytes_max = self.disk.bytes_max.take();
        let is_ready = log.get_ready(&mut self.disk, &mut self.wanted);
        assert_eq!(is_ready, Ok(true), "the log of {node} has room, and nothing fails");
        self.disk.bytes_max = bytes_max;
        self.log = Some(log);
        self.counts.void_streams += void as u64;
        self.counts.torn_ends += u64::from(torn.is_some());
        self.counts.older_checkpoints += u64::from(!damaged.is_empty() && checkpoint.is_some());
        let mut parts = Vec::new();
        if let Some(checkpoint) = checkpoint {
            let (disk, identity) = (&mut self.disk, self.identity);
            let read = read_parts(disk, identity, &checkpoint, |part| parts.push(part));
            read.unwrap_or_else(|error| panic!("the checkpoint of {node}: {error}"));
        }
        (recovered, parts, processes)
    }

    /// Begins the log of a process whose disk fails to be read, at some point. Returns whether that is why it does not begin.
    ///
    /// # Panics
    /// If what cannot be read is taken for damaged: then the node would give up its memory.
    pub(crate) fn fails_to_begin(&mut self, process: ProcessInstance) -> bool {
        let reads_max = 1 + self.random.below(READS_MAX);
        self.disk.faults.reads_after = Some(self.random.below(reads_max) as u32);
        let (identity, mut effects) = (self.identity, Vec::new());
        let opened = WorkerLog::open(&mut self.disk, identity, OPTIONS, process, &mut effects);
        let parts = opened.map(|opened| opened.checkpoint);
        let read = parts.and_then(|parts| match parts {
            Some(parts) => read_parts::<()>(&mut self.disk, identity, &parts, |_| ()),
            None => Ok(()),
        });
        self.disk.faults.reads_after = None;
        let Err(error) = read else { return false };
        assert!(!error.is_damage(), "what cannot be read is taken for damaged: {error}");
        true
    }

    /// Appends records to the log.
    pub(crate) fn write(&mut self, records: Vec<Record>) {
        let log = self.log.as_mut().expect("a process writes");
        log.write(records, &mut self.wanted);
    }

    /// Goes on with a checkpoint.
    pub(crate) fn checkpoint(&mut self, step: CheckpointStep) {
        let log = self.log.as_mut().expect("a process writes");
        log.checkpoint_step(self.identity, step, &mut self.wanted);
    }

    /// Draws when the disk is full, and when it fails.
    pub(crate) fn plan_troubles(&mut self, now: Time, troubles: DiskTroubles) {
        let DiskTroubles { full_within_ns, fail_within_ns, put_back_percent, .. } = troubles;
        self.keeps_images = put_back_percent > 0;
        let random = &mut self.random;
        if full_within_ns > 0 {
            let mut begin = || Time(now.0 + random.below(full_within_ns));
            let mut begins: Vec<Time> = (0..FULL_TIMES).map(|_| begin()).collect();
            begins.sort_unstable();
            let span = |from: Time| (from, from + FULL_MAX.mul_f64(random.unit()));
            self.full = begins.into_iter().rev().map(span).collect();
        }
        self.fails_at =
            (fail_within_ns > 0).then(|| Time(now.0 + self.random.below(fail_within_ns)));
    }

    /// Each operation of a log takes this long from now on.
    pub(crate) fn set_delay(&mut self, each: Duration) {
        let stall = Duration::ZERO;
        self.queue.set_delays(DiskDelays { least: each, most: each, stalls_one_in: 0, stall });
    }

    /// There is room, and nothing fails, from now on.
    pub(crate) fn heal(&mut self) {
        (self.full, self.fails_at) = (Vec::new(), None);
        (self.disk.bytes_max, self.disk.faults) = (None, DiskFaults::default());
    }

    /// What has happened since the last call.
    pub(crate) fn take_counts(&mut self) -> DiskCounts {
        std::mem::take(&mut self.counts)
    }

    /// See [`WorkerLog::take_room_change`].
    pub(crate) fn take_room_change(&mut self) -> Option<LogRoom> {
        self.log.as_mut()?.take_room_change()
    }

    /// Whether an operation has failed: the process is to end.
    pub(crate) fn has_failed(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.failure().is_some())
    }

    /// What is wrong with the disk begins, or is over, as planned; a log that has no room asks for it.
    fn follow_troubles(&mut self, now: Time) {
        self.full.pop_if(|(_, until)| *until <= now);
        let is_full = self.full.last().is_some_and(|(from, _)| *from <= now);
        self.disk.bytes_max = is_full.then(|| self.disk.bytes_max.unwrap_or(self.disk.bytes()));
        if self.fails_at.take_if(|at| *at <= now).is_some() {
            let writes = self.random.chance(1, 2);
            self.disk.faults = DiskFaults { writes, flushes: !writes, ..DiskFaults::default() };
        }
        if let Some(log) = self.log.as_mut().filter(|log| log.is_full()) {
            log.step(DiskEvent::Log(LogEvent::Retry), &mut self.wanted);
        }
    }

    /// Changes bits at rest. Returns whether what is there cannot be read any more, or lacks its end: then the disk is of no use.
    pub(crate) fn damage(&mut self) -> bool {
        let before = self.disk.clone();
        let names: Vec<String> = self.disk.names().expect("a virtual disk has names");
        for _ in 0..1 + self.random.below(3) {
            let Some(name) = self.random.pick(&names) else { continue };
            let bits = 8 * self.disk.length(name).expect("it is there");
            if bits > 0 {
                self.disk.flip(name, self.random.below(bits));
            }
        }
        match self.opened_with(DiskPlantedBugs::default()) {
            // What is at rest was flushed: an end that is missing now may have been acknowledged.
            Ok(opened) if opened.torn.is_none() => {
                if opened.damaged.is_empty() {
                    self.disk = before;
                }
                false
            }
            Ok(_) => true,
            // A bug that is planted may pass over it.
            Err(_) => self.opened_with(self.disk.planted()).is_err(),
        }
    }

    /// Puts an image of the disk in its place that was taken before `admitted` wrote to it. Returns false where there is none.
    pub(crate) fn put_back(&mut self, admitted: ProcessInstance) -> bool {
        let Some(image) = self.image.take() else { return false };
        let present = std::mem::replace(&mut self.disk, image);
        let opened = self.opened_with(DiskPlantedBugs::default());
        let is_older = opened.is_ok_and(|opened| {
            !opened.processes.is_empty() && !opened.processes.contains(&admitted)
        });
        if !is_older {
            self.disk = present;
        }
        is_older
    }

    /// What a process with these bugs would find.
    fn opened_with(&self, planted: DiskPlantedBugs) -> Result<OpenedLog, WorkerLogError> {
        let mut read = self.disk.clone().with_planted(planted);
        let process = ProcessInstance::default();
        WorkerLog::open(&mut read, self.identity, OPTIONS, process, &mut Vec::new())
    }

    /// When the next operation ends, of those that are under way at `now`, or the log asks for room.
    pub(crate) fn due(&mut self, now: Time) -> Option<Time> {
        for effect in self.wanted.drain(..) {
            match effect {
                DiskEffect::Log(effect) => self.queue.submit(Duration::from_nanos(now.0), effect),
                DiskEffect::Checkpoint { .. } => {
                    let takes = self.random.below(self.longest.as_nanos() as u64);
                    let begins = self.checkpoint_queue.back().map_or(now, |(at, _)| now.max(*at));
                    let done = begins + Duration::from_nanos(takes);
                    self.checkpoint_queue.push_back((done, effect));
                }
            }
        }
        let log = self
            .queue
            .due()
            .map(|due| Time(u64::try_from(due.as_nanos()).expect("virtual time fits")));
        let checkpoint = self.checkpoint_queue.front().map(|(at, _)| *at);
        let is_full = self.log.as_ref().is_some_and(WorkerLog::is_full);
        let retry = is_full.then(|| now + RETRY_EVERY);
        log.into_iter().chain(checkpoint).chain(retry).min()
    }

    /// Ends the operations that are done. Returns what the worker is to receive.
    pub(crate) fn complete<M>(&mut self, now: Time) -> Vec<WorkerEvent<M>> {
        self.follow_troubles(now);
        let mut news = Vec::new();
        let Some(log) = &mut self.log else { return Vec::new() };
        while let Some(event) = self.queue.complete(Duration::from_nanos(now.0), &mut self.disk) {
            log.step(DiskEvent::Log(event), &mut self.wanted);
        }
        while self.checkpoint_queue.front().is_some_and(|(done, _)| *done <= now) {
            let (_, effect) = self.checkpoint_queue.pop_front().expect("it is done");
            let event = self.work.perform(&mut self.disk, effect);
            log.step(event, &mut self.wanted);
        }
        if self.random.chance(1, SHORTEN_ONE_IN) {
            log.shorten();
        }
        if self.lies && self.random.chance(1, KEEPS_ONE_IN) {
            self.kept = Some(self.disk.clone());
        }
        log.take_news(&mut news);
        news.into_iter().map(WorkerEvent::from).collect()
    }

    /// Ends the process. Without power, any part of what was written and not flushed is lost.
    pub(crate) fn crash(&mut self, power: bool) {
        if let Some((_, DiskEffect::Checkpoint { effect, .. })) = self.checkpoint_queue.front() {
            match effect {
                CheckpointEffect::Block(_) => self.counts.ended_in_blocks += 1,
                CheckpointEffect::Finish { .. } => self.counts.ended_in_finish += 1,
                CheckpointEffect::Begin(_) | CheckpointEffect::Abandon => {}
            }
        }
        self.queue.clear();
        self.checkpoint_queue.clear();
        self.wanted.clear();
        self.work = DiskWork::default();
        self.log = None;
        self.disk.faults = DiskFaults::default();
        let kept = self.kept.take();
        if !power {
            self.disk = kept.unwrap_or_else(|| std::mem::take(&mut self.disk));
            let random = &mut self.random;
            self.disk.lose_power(|| random.chance(1, 2));
        }
        if self.keeps_images && self.image.is_none() {
            self.image = Some(self.disk.clone());
        }
    }

    /// Replaces the disk by an empty one.
    pub(crate) fn replace(&mut self) {
        self.disk = VirtualDisk::new().with_planted(self.disk.planted());
        self.identity.volume = self.random.next_u64();
        self.image = None;
    }
}
