//! A database on a virtual disk: random transactions, checkpoints and losses of power, against the states that once were.

mod replies;

use super::checkpoint::{Checkpointer, Checkpoints};
use super::log::{DurableLog, LogOptions};
use super::log_thread::ThreadFolder;
use super::open_error::OpenError;
use super::records::{self, CheckpointBegin, WriteRef};
use super::restore::{Restored, restore, store_to_look_at};
use super::shared::{LogPlace, Shared, lock};
use crate::embedded::planted::EmbeddedPlantedBugs;
use replies::FlushGate;
use shoal_store::{Change, CopyPart, Delta, Session, Store, WalkPlace};
use shoal_types::{
    Clock, Epoch, Error, NodeId, Random, Rejected, ShardId, StampRef, TableId, Unknown,
};
use shoal_wal::virtual_disk::{DiskFaults, VirtualDisk};
use shoal_wal::{
    Folder, FolderError, LogEffect, LogError, LogIdentity, LogWriter, Record, WriterOptions,
    perform,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

const IDENTITY: LogIdentity = LogIdentity { cluster: None, node: NodeId(0), volume: 9 };
const SMALL: WriterOptions =
    WriterOptions { segment_bytes: 4096, group_bytes_max: 2048, page_bytes: 1024 };

/// The rows, and the names of tables, each in the place of a row without a key.
type State = BTreeMap<(TableId, Vec<u8>), Vec<u8>>;

fn state_of(store: &Arc<Store>) -> State {
    let mut session = store.session().unwrap();
    let part = CopyPart { records_max: usize::MAX, bytes_max: usize::MAX };
    let names = store.named_tables().into_iter();
    let mut state: State =
        names.map(|(name, table)| ((table, Vec::new()), name.as_bytes().to_vec())).collect();
    let next = session.copy(
        &WalkPlace::default(),
        part,
        |_| true,
        |_| false,
        |row| {
            state.insert((row.table, row.key.to_vec()), row.value.expect("a value").to_vec());
        },
    );
    assert_eq!(next, None);
    state
}

/// A process of the database, whose log is driven by hand.
struct Process {
    disk: VirtualDisk,
    store: Arc<Store>,
    session: Session,
    writer: LogWriter,
    effects: VecDeque<LogEffect>,
    checkpointer: Checkpointer,
    /// The clock of each record, in the order of their numbers.
    clocks: Vec<Clock>,
    /// What was durable when it began.
    begun: Clock,
    /// The last clock that has a record.
    recorded: Clock,
}

impl Process {
    fn start(mut disk: VirtualDisk) -> Process {
        let restored = restore(&mut disk, store_to_look_at).expect("what a crash leaves is whole");
        let Restored { store, recovered, kept, last_number, .. } = restored;
        let mut effects = Vec::new();
        let writer = LogWriter::begin(IDENTITY, SMALL, recovered, &mut effects);
        let checkpoints = Arc::new(Mutex::new(Checkpoints { kept, last_number }));
        let tables = Arc::default();
        let checkpointer = Checkpointer::new(IDENTITY, checkpoints, tables, 4096, 0, 0);
        let (session, begun) = (store.session().unwrap(), store.clock());
        let (effects, clocks) = (effects.into(), Vec::new());
        Process {
            disk,
            store,
            session,
            writer,
            effects,
            checkpointer,
            clocks,
            begun,
            recorded: begun,
        }
    }

    /// Carries out so many effects.
    fn work(&mut self, most: u64) {
        for _ in 0..most {
            let Some(effect) = self.effects.pop_front() else { return };
            let event = perform(&mut self.disk, &effect);
            self.change(|writer, effects| writer.step(event, effects));
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut LogWriter, &mut Vec<LogEffect>)) {
        let mut effects = Vec::new();
        change(&mut self.writer, &mut effects);
        self.effects.extend(effects);
    }

    fn append(&mut self, kind: u8, payload: Vec<u8>, clock: Clock) {
        self.writer.append(Record { kind, shard: ShardId(0), payload });
        self.clocks.push(clock);
        self.change(|writer, effects| writer.go_on(effects));
    }

    fn create_table(&mut self, name: &str) {
        let table = self.store.next_table();
        self.append(records::TABLE_CREATED, records::encode_table(table, name), self.recorded);
        self.store.restore_table(name, table).unwrap();
    }

    /// Drops a table, if there is another one, when that is durable.
    fn drop_table(&mut self, random: &mut Random) {
        let tables = self.store.named_tables();
        if tables.len() < 2 {
            return;
        }
        let (_, table) = *random.pick(&tables).expect("there are some");
        self.append(records::TABLE_DROPPED, records::encode_table(table, ""), self.recorded);
        self.work(u64::MAX);
        self.store.drop_table(table);
        let place = WalkPlace { table, key: Vec::new() };
        assert_eq!(self.session.free_table(&place, usize::MAX), None);
    }

    /// A transaction that writes some keys.
    fn commit(&mut self, random: &mut Random) {
        let (store, durable) = (Arc::clone(&self.store), self.durable());
        let tables: Vec<_> = store.open_tables().collect();
        let transaction = self.session.begin();
        for _ in 0..random.range_inclusive(1, 3) {
            let table = tables[random.below(tables.len() as u64) as usize];
            let key = [b'k', random.below(12) as u8];
            match random.below(4) {
                0 => transaction.delete(table, &key).unwrap(),
                1 => transaction.put(table, &key, &vec![7; random.below(300) as usize]).unwrap(),
                // Most rows differ from the one before in a byte or two: they are logged as deltas.
                _ => {
                    let mut row = [7; 100];
                    row[random.below(100) as usize] = random.below(256) as u8;
                    transaction.put(table, &key, &row).unwrap();
                }
            }
        }
        let mut locked = transaction.lock().unwrap();
        let mut record = records::encode_transaction(&locked);
        let clock = locked.draw_clock();
        records::set_clock(&mut record, clock);
        let stamp = StampRef { epoch: Epoch::default(), clock, remote: &[] };
        locked.install_committed_until(usize::MAX, stamp, |tombstone| tombstone.clock <= durable);
        drop(locked);
        self.append(records::TRANSACTION, record, clock);
        self.recorded = clock;
    }

    /// A transaction that has drawn its clock when it finds that what it read has changed.
    fn fail(&mut self) {
        let table = self.store.open_tables().next().expect("there is one");
        let transaction = self.session.begin();
        transaction.put(table, b"failed", b"value").unwrap();
        transaction.lock().unwrap().draw_clock();
    }

    fn durable(&self) -> Clock {
        let persisted = self.writer.persisted() as usize;
        persisted.checked_sub(1).map_or(self.begun, |last| self.clocks[last])
    }

    /// What a checkpoint begins with that is taken from now on.
    fn begin_checkpoint(&self) -> (LogPlace, CheckpointBegin) {
        let shared = Shared::new(Clock::ZERO, 4096);
        let place = LogPlace { clock: self.store.clock(), serial: self.writer.serial() };
        shared.set_place(place);
        self.checkpointer.begin(&shared, &self.store)
    }

    /// A checkpoint that has begun finds the rows that there are now. All is durable then.
    fn checkpoint(&mut self, begun: &(LogPlace, CheckpointBegin)) {
        self.work(u64::MAX);
        let (first, _) = self.run_checkpointer(begun).expect("the disk does not fail");
        self.change(|writer, effects| writer.truncate(first, effects));
    }

    fn run_checkpointer(&mut self, begun: &(LogPlace, CheckpointBegin)) -> Option<(u64, u64)> {
        let shared = Arc::new(Shared::new(Clock::ZERO, 4096));
        shared.advance(self.recorded, self.store.clock());
        self.checkpointer.run(begun, &shared, &self.store, &mut self.disk)
    }
}

#[test]
fn after_any_loss_of_power_there_are_the_transactions_up_to_one_clock() {
    let mut checkpoints = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut disk = VirtualDisk::new();
        // What there was after each clock that has a record; tables come and go between two.
        let mut states = BTreeMap::from([(Clock::ZERO, vec![State::new()])]);
        for _ in 0..4 {
            let mut process = Process::start(disk);
            let clock = process.store.clock();
            let state = state_of(&process.store);
            let (_, expected) = states.range(..=clock).next_back().expect("the first");
            assert!(expected.contains(&state), "seed {seed}, at {clock}: {state:?}");
            states.retain(|other, _| *other <= clock);
            process.create_table(&format!("t{}", random.next_u64()));
            states.entry(process.recorded).or_default().push(state_of(&process.store));
            // A checkpoint that has not come to the rows.
            let mut begun = None;
            for _ in 0..random.below(30) {
                match random.below(12) {
                    0 | 1 => process.fail(),
                    2 => process.create_table(&format!("t{}", random.next_u64())),
                    3 => process.drop_table(&mut random),
                    _ => process.commit(&mut random),
                }
                let at = states.entry(process.recorded).or_default();
                at.push(state_of(&process.store));
                process.work(random.below(4));
                if random.below(9) == 0 {
                    let begun = begun.take().unwrap_or_else(|| process.begin_checkpoint());
                    process.checkpoint(&begun);
                    checkpoints += 1;
                } else if random.below(9) == 0 {
                    begun.get_or_insert(process.begin_checkpoint());
                }
            }
            let durable = process.durable();
            disk = process.disk;
            disk.lose_power(|| random.below(2) == 1);
            let restored = restore(&mut disk, store_to_look_at).expect("it is whole");
            assert!(restored.store.clock() >= durable, "seed {seed}: {durable} was durable");
        }
    }
    assert!(checkpoints > 1000, "{checkpoints} checkpoints");
}

/// What is restored from a log of these changes of one row, each with its clock.
fn restored_from(changes: &[(u64, Change<&[u8]>)]) -> Result<State, OpenError> {
    let mut process = Process::start(VirtualDisk::new());
    let table = process.store.next_table();
    process.create_table("changed");
    for (clock, change) in changes {
        let mut record = clock.to_le_bytes().to_vec();
        WriteRef { table, key: b"key", change: *change }.encode(&mut record);
        process.append(records::TRANSACTION, record, Clock(*clock));
    }
    process.work(u64::MAX);
    restore(&mut process.disk, store_to_look_at).map(|restored| state_of(&restored.store))
}

#[test]
fn what_no_database_writes_is_damage() {
    let row = |byte: u8| [byte; 9];
    let delta = |base: u64, length: u32| {
        let patch = &[2, 0, 1, 0, 7][..];
        Change::Delta(Delta { base: (Epoch::default(), Clock(base)), length, patch })
    };
    let (one, two) = (row(1), row(2));
    let (one, two) = (Change::Row(&one[..]), Change::Row(&two[..]));
    let fits = restored_from(&[(10, one), (20, two), (30, delta(20, 9))]).expect("it is whole");
    assert!(fits.values().any(|value| value[..] == [2, 2, 7, 2, 2, 2, 2, 2, 2]), "{fits:?}");
    let misfits = [
        vec![(10, one), (20, delta(10, 8))],
        vec![(10, one), (20, two), (30, delta(10, 9))],
        vec![(10, one), (20, Change::Delete), (30, delta(20, 9))],
        vec![(10, one), (20, delta(15, 9))],
        vec![(10, delta(5, 9))],
        // The next transaction could have no clock.
        vec![(u64::MAX, one)],
        vec![(20, one), (10, two)],
    ];
    for changes in misfits {
        let restored = restored_from(&changes);
        assert!(
            matches!(restored, Err(OpenError::Log(LogError::Damaged { .. }))),
            "{changes:?}: {restored:?}"
        );
    }
}

/// Power is lost in every step of a checkpoint.
#[test]
fn a_checkpoint_that_is_cut_short_changes_nothing() {
    let mut random = Random::new(1);
    for flushes in 0..4 {
        let mut process = Process::start(VirtualDisk::new());
        process.create_table("t");
        for _ in 0..40 {
            process.commit(&mut random);
        }
        process.checkpoint(&process.begin_checkpoint());
        for _ in 0..40 {
            process.commit(&mut random);
        }
        process.work(u64::MAX);
        let expected = state_of(&process.store);
        match flushes {
            0 => process.disk.faults.writes = true,
            1 => process.disk.faults.flushes = true,
            2 => process.disk.faults.lies = true,
            _ => {}
        }
        let done = process.run_checkpointer(&process.begin_checkpoint());
        assert_eq!(done.is_some(), flushes >= 2);
        process.disk.faults = Default::default();
        process.disk.lose_power(|| false);
        let restored = restore(&mut process.disk, store_to_look_at).unwrap();
        assert_eq!(state_of(&restored.store), expected);
    }
}

/// A virtual disk that threads share, whose flushes can be held back.
#[derive(Clone, Default)]
struct SharedDisk {
    state: Arc<Mutex<VirtualDisk>>,
    flushes: Arc<FlushGate>,
}

impl SharedDisk {
    fn state(&self) -> MutexGuard<'_, VirtualDisk> {
        lock(&self.state)
    }
}

impl Folder for SharedDisk {
    fn names(&mut self) -> Result<Vec<String>, FolderError> {
        self.state().names()
    }
    fn length(&mut self, name: &str) -> Result<u64, FolderError> {
        self.state().length(name)
    }
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, FolderError> {
        self.state().read(name, offset, into)
    }
    fn create(&mut self, name: &str) -> Result<(), FolderError> {
        self.state().create(name)
    }
    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), FolderError> {
        self.state().write(name, offset, bytes)
    }
    fn flush(&mut self, name: &str) -> Result<(), FolderError> {
        self.flushes.pass();
        self.state().flush(name)
    }
    fn rename(&mut self, from: &str, to: &str) -> Result<(), FolderError> {
        self.state().rename(from, to)
    }
    fn remove(&mut self, name: &str) -> Result<(), FolderError> {
        self.state().remove(name)
    }
    fn flush_folder(&mut self) -> Result<(), FolderError> {
        self.state().flush_folder()
    }
}

impl ThreadFolder for SharedDisk {
    fn another(&self) -> SharedDisk {
        self.clone()
    }
}

/// A database on a virtual disk, with its threads.
struct Opened {
    disk: SharedDisk,
    session: Session,
    store: Arc<Store>,
    log: DurableLog,
    table: TableId,
}

impl Opened {
    fn on(disk: SharedDisk) -> Opened {
        Opened::with_planted(disk, EmbeddedPlantedBugs::default())
    }

    fn with_planted(disk: SharedDisk, planted: EmbeddedPlantedBugs) -> Opened {
        let options = LogOptions { segment_bytes: 4096, checkpoint_bytes: 8192, planted };
        let path = Path::new("virtual");
        let opened = DurableLog::begin(disk.clone(), path, options, store_to_look_at, || 1);
        let (store, log) = opened.expect("the disk is whole");
        let table = log.table(&store, "t").expect("there is room");
        Opened { disk, session: store.session().unwrap(), store, log, table }
    }

    fn put(&mut self, key: &[u8]) -> shoal_types::Result<()> {
        let transaction = self.session.begin();
        transaction.put(self.table, key, &[7; 300])?;
        self.log.transactions().commit(transaction)?.wait()
    }

    /// The same, but returns as well when it waits, since the disk is full: then it goes on waiting.
    fn put_unless_full(&mut self, key: &[u8]) -> shoal_types::Result<()> {
        let transaction = self.session.begin();
        transaction.put(self.table, key, &[7; 300])?;
        let transactions = self.log.transactions();
        let mut durability = transactions.commit(transaction)?;
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match Pin::new(&mut durability).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => transactions.shared.check(true)?,
            }
            std::thread::yield_now();
        }
    }

    fn read(&mut self, key: &[u8]) -> shoal_types::Result<bool> {
        let transaction = self.session.begin();
        let found = transaction.get(self.table, key)?.is_some();
        self.log.transactions().confirm_reads(&transaction)?.wait()?;
        Ok(found)
    }
}

#[test]
fn a_disk_that_fails_ends_all_waits_and_no_transaction_is_taken_after_it() {
    let failing = [
        DiskFaults { writes: true, ..DiskFaults::default() },
        DiskFaults { flushes: true, ..DiskFaults::default() },
    ];
    for (faults, puts) in failing.into_iter().flat_map(|faults| [(faults, 1), (faults, 40)]) {
        let mut opened = Opened::on(SharedDisk::default());
        for key in 0..puts {
            opened.put(&[key]).unwrap();
        }
        // Perhaps while a checkpoint is taken.
        opened.disk.state().faults = faults;
        assert_eq!(opened.put(b"lost"), Err(Unknown::LogFailed.into()));
        let after = opened.put(b"after").unwrap_err();
        assert!(matches!(after, Error::Rejected(Rejected::NotOpen { .. })), "{after}");
        assert!(opened.log.table(&opened.store, "other").is_err());
        opened.log.close();
        let Opened { disk, .. } = opened;
        disk.state().faults = DiskFaults::default();
        disk.state().lose_power(|| false);
        let mut again = Opened::on(disk);
        assert_eq!((again.read(&[0]), again.read(b"lost")), (Ok(true), Ok(false)));
    }
}

#[test]
fn a_full_disk_refuses_writes_and_no_reads_until_there_is_room() {
    let mut opened = Opened::on(SharedDisk::default());
    let used = opened.disk.state().bytes();
    opened.disk.state().bytes_max = Some(used);
    let mut count = 0_u8;
    let refused = loop {
        match opened.put_unless_full(&[count]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Rejected::DiskFull { segment_bytes: 4096 }.into());
    // A checkpoint that is taken meanwhile needs room, too.
    assert!(count > 0, "it was full before anything was written");
    assert_eq!((opened.read(&[0]), opened.read(b"new")), (Ok(true), Ok(false)));
    opened.disk.state().bytes_max = None;
    while opened.put_unless_full(b"new").is_err() {
        std::thread::yield_now();
    }
    assert_eq!(opened.read(b"new"), Ok(true));
    opened.log.close();
    let Opened { disk, .. } = opened;
    disk.state().lose_power(|| false);
    assert_eq!(Opened::on(disk).read(b"new"), Ok(true));
}
