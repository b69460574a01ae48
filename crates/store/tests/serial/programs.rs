//! Random transactions on few keys, and how they run on a store.

use crate::checker::{Committed, Key, Op, State, Value};
use shoal_store::{Locked, Options, Session, Store, StoreBugs, Transaction};
use shoal_types::{Epoch, Error, Random, Rejected, Scan, StampRef, TableId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys of a history: some leaves full, so that leaves split and merge.
pub const KEYS: Key = 120;

/// What a transaction is going to do; answers are empty yet.
pub type Program = Vec<Op>;

/// The store that a history runs on, and what all its transactions share.
pub struct World {
    store: Arc<Store>,
    table: TableId,
    /// The time that the checker uses.
    now: AtomicU64,
    values: AtomicU64,
    /// Versions up to this clock count as committed: the tombstones among them leave the index.
    committed: AtomicU64,
}

/// A transaction on its way.
pub enum Running {
    Executing(Box<Open>),
    Locked(Box<Certifying>),
}

/// A transaction whose operations are not done.
pub struct Open {
    transaction: Transaction<Box<Session>>,
    began: u64,
    todo: Program,
    done: Vec<Op>,
}

/// A transaction that has its locks.
pub struct Certifying {
    locked: Locked<Box<Session>>,
    began: u64,
    clock: Option<u64>,
    done: Vec<Op>,
}

/// How a step of a transaction ended.
pub enum Stepped {
    On(Running),
    Committed(Committed),
    Aborted,
}

/// A phase of the transactions: leaves fill and drain by turns.
#[derive(Clone, Copy)]
pub struct Mood {
    /// Of ten writes, so many are deletes.
    deletes: u64,
    /// Where most of the keys come from.
    middle: Key,
}

impl Mood {
    pub fn draw(random: &mut Random) -> Mood {
        Mood {
            deletes: *random.pick(&[1, 3, 9]).expect("some"),
            middle: random.below(KEYS.into()) as Key,
        }
    }

    fn key(self, random: &mut Random) -> Key {
        match random.below(4) {
            0 => random.below(KEYS.into()) as Key,
            _ => (self.middle + random.below(12) as Key) % KEYS,
        }
    }

    /// A transaction of up to six operations.
    pub fn program(self, world: &World, random: &mut Random) -> Program {
        let writes = random.chance(4, 5);
        // Many keys at once split a leaf that the transaction has read itself.
        let many = writes && random.chance(1, 8);
        let count = if many { 20 } else { 1 + random.below(6) };
        let op = |random: &mut Random| match random.below(if writes { 8 } else { 3 }) {
            0 | 1 => Op::Get(self.key(random), None),
            2 => {
                let low = self.key(random);
                let range = low..=low + random.below(16) as Key;
                let limit = *random.pick(&[1, 3, 100]).expect("some");
                Op::Scan { range, reverse: random.chance(1, 2), limit, rows: Vec::new() }
            }
            _ if random.below(10) < self.deletes => Op::Delete(self.key(random)),
            at => {
                let value = world.values.fetch_add(1, Ordering::Relaxed);
                match at {
                    3..6 => Op::Put(self.key(random), value),
                    _ => Op::Insert(self.key(random), value, false),
                }
            }
        };
        (0..count).map(|_| op(random)).collect()
    }
}

fn key_bytes(key: Key) -> [u8; 4] {
    key.to_be_bytes()
}

fn key_of(bytes: &[u8]) -> Key {
    Key::from_be_bytes(bytes.try_into().expect("four bytes"))
}

fn value_of(bytes: &[u8]) -> Value {
    Value::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

impl World {
    pub fn new(faults: StoreBugs) -> World {
        let store = Arc::new(Store::new(Options { faults, ..Options::default() }));
        let table = store.table("t").expect("a table");
        let (now, values, committed) = (AtomicU64::new(1), AtomicU64::new(1), AtomicU64::new(0));
        World { store, table, now, values, committed }
    }

    fn session(&self) -> Box<Session> {
        Box::new(self.store.session().expect("few are open"))
    }

    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::SeqCst)
    }

    pub fn begin(&self, todo: Program) -> Running {
        let (transaction, began) = (Transaction::on(self.session()), self.tick());
        Running::Executing(Box::new(Open { transaction, began, todo, done: Vec::new() }))
    }

    /// Commits what was installed up to now, and has tombstones leave the index.
    pub fn settle(&self) {
        self.committed.store(self.store.clock().0, Ordering::SeqCst);
        self.session().sweep(|stamp| self.is_committed(stamp));
    }

    fn is_committed(&self, stamp: StampRef<'_>) -> bool {
        stamp.clock.0 <= self.committed.load(Ordering::SeqCst)
    }

    /// What the store holds, while nothing runs.
    pub fn state(&self) -> State {
        let transaction = Transaction::on(self.session());
        let rows = transaction.scan(self.table, Scan::all()).expect("within limits");
        let state: State = rows.iter().map(|(key, value)| (key_of(key), value_of(value))).collect();
        assert_eq!(state.len(), rows.len(), "a key was found twice");
        for key in 0..KEYS {
            let found = transaction.get(self.table, &key_bytes(key)).expect("within limits");
            assert_eq!(
                found.map(value_of),
                state.get(&key).copied(),
                "{key} by itself and in a scan"
            );
        }
        state
    }

    /// One step: an operation, the locks, clock and validation, or the installation.
    pub fn step(&self, running: Running) -> Stepped {
        match running {
            Running::Executing(open) => self.execute(*open),
            Running::Locked(certifying) => self.certify(*certifying),
        }
    }

    fn execute(&self, mut open: Open) -> Stepped {
        if open.todo.is_empty() {
            return self.lock(open);
        }
        let op = self.run(&open.transaction, open.todo.remove(0));
        open.done.push(op);
        Stepped::On(Running::Executing(Box::new(open)))
    }

    fn lock(&self, Open { transaction, began, done, .. }: Open) -> Stepped {
        if !transaction.is_read_only() {
            return match transaction.lock() {
                Ok(locked) => {
                    let certifying = Certifying { locked, began, clock: None, done };
                    Stepped::On(Running::Locked(Box::new(certifying)))
                }
                Err(_) => Stepped::Aborted,
            };
        }
        match transaction.validate() {
            Ok(()) => {
                drop(transaction);
                Stepped::Committed(Committed { began, ended: self.tick(), clock: None, ops: done })
            }
            Err(_) => Stepped::Aborted,
        }
    }

    fn certify(&self, mut certifying: Certifying) -> Stepped {
        let Some(clock) = certifying.clock else {
            let clock = certifying.locked.draw_clock();
            certifying.clock = Some(clock.0);
            return match certifying.locked.validate() {
                Ok(()) => Stepped::On(Running::Locked(Box::new(certifying))),
                Err(_) => Stepped::Aborted,
            };
        };
        let Certifying { locked, began, done, .. } = certifying;
        let stamp = StampRef { epoch: Epoch(1), clock: shoal_types::Clock(clock), remote: &[] };
        locked.install(stamp, |stamp| self.is_committed(stamp));
        Stepped::Committed(Committed { began, ended: self.tick(), clock: Some(clock), ops: done })
    }

    /// Runs an operation; fills in the answer.
    fn run(&self, transaction: &Transaction<Box<Session>>, op: Op) -> Op {
        let fits = "within limits";
        match op {
            Op::Get(key, _) => {
                let value = transaction.get(self.table, &key_bytes(key)).expect(fits);
                Op::Get(key, value.map(value_of))
            }
            Op::Scan { range, reverse, limit, .. } => {
                let (low, high) = (key_bytes(*range.start()), key_bytes(*range.end()));
                let scan = Scan::range(&low[..]..=&high[..]).limit(limit);
                let scan = if reverse { scan.reverse() } else { scan };
                let found = transaction.scan(self.table, scan).expect(fits);
                let rows = found.iter().map(|(key, value)| (key_of(key), value_of(value)));
                Op::Scan { rows: rows.collect(), range, reverse, limit }
            }
            Op::Put(key, value) => {
                transaction.put(self.table, &key_bytes(key), &value.to_le_bytes()).expect(fits);
                Op::Put(key, value)
            }
            Op::Insert(key, value, _) => {
                let inserted =
                    transaction.insert(self.table, &key_bytes(key), &value.to_le_bytes());
                let exists = matches!(inserted, Err(Error::Rejected(Rejected::KeyExists { .. })));
                assert!(exists || inserted.is_ok(), "{inserted:?}");
                Op::Insert(key, value, !exists)
            }
            Op::Delete(key) => {
                transaction.delete(self.table, &key_bytes(key)).expect(fits);
                Op::Delete(key)
            }
        }
    }
}
