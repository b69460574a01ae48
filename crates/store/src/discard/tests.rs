//! Rolling back: every shape of chain, every kind of reader, and random histories against a model.

use super::{RollBack, RolledBack};
use crate::index::{Lookup, Seek};
use crate::session::Pinned;
use crate::{Options, Session, Store, Transaction};
use proptest::prelude::*;
use shoal_types::{Aborted, Clock, Conflict, Epoch, Error, Scan, StampRef, TableId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEY: &[u8] = b"k";

fn store() -> (Arc<Store>, TableId, Session, Session) {
    let store = Arc::new(Store::new(Options::default()));
    let table = store.table("t").expect("a table");
    let (one, two) = (store.session().expect("a session"), store.session().expect("a session"));
    (store, table, one, two)
}

/// Installs a value, or a tombstone, in an epoch, with nothing committed yet.
fn install(session: &mut Session, table: TableId, key: &[u8], epoch: u32, value: Option<u8>) {
    let tx = session.begin();
    tx.replicate(table, key, value.as_ref().map(std::slice::from_ref)).expect("within limits");
    let locked = tx.lock().expect("no other transaction runs");
    let stamp = StampRef { epoch: Epoch(epoch), clock: locked.draw_clock(), remote: &[] };
    locked.install(stamp, |_| false);
}

fn get(session: &mut Session, table: TableId, key: &[u8]) -> Option<u8> {
    session.begin().get(table, key).expect("within limits").map(|value| value[0])
}

fn scan(session: &mut Session, table: TableId) -> Vec<(Vec<u8>, u8)> {
    let tx = session.begin();
    let rows = tx.scan(table, Scan::all()).expect("within limits");
    rows.into_iter().map(|(key, value)| (key.to_vec(), value[0])).collect()
}

/// The chain of a key, from the newest.
fn chain_of(session: &mut Session, table: TableId, key: &[u8]) -> Vec<(Version, Option<u8>)> {
    let stamps = RefCell::new(Vec::new());
    let tx = session.begin();
    let look = |stamp: StampRef<'_>| {
        stamps.borrow_mut().push(version(stamp));
        false
    };
    assert_eq!(tx.get_where(table, key, look).expect("within limits"), None);
    let value = |at: &Version| {
        let found = tx.get_where(table, key, |stamp| version(stamp) == *at);
        found.expect("within limits").expect("just seen").value.map(|value| value[0])
    };
    stamps.take().into_iter().map(|at| (at, value(&at))).collect()
}

/// Is there a record under the key, with a version or without?
fn is_in_index(store: &Store, session: &mut Session, table: TableId, key: &[u8]) -> bool {
    let _pinned = Pinned::take(session.state.get_mut());
    // SAFETY: pinned.
    matches!(unsafe { store.index(table).expect("a table").get(key) }, Lookup::Found(..))
}

/// Runs a pass to its end, by steps of `most`. Returns the last step's result, and all versions that were dropped.
fn pass(
    session: &mut Session,
    most: usize,
    rejected: impl Fn(StampRef<'_>) -> bool,
) -> (RolledBack, usize) {
    let (mut at, mut discarded) = (RollBack::default(), 0);
    loop {
        let done = session.roll_back(&at, most, &rejected, |_| false);
        assert!(!session.state.get_mut().memory.is_pinned(), "a guard between the steps");
        discarded += done.discarded;
        match done.next {
            Some(next) if !done.over => at = next,
            _ => return (done, discarded),
        }
    }
}

#[test]
fn what_is_rejected_goes_from_the_top_the_middle_and_the_bottom() {
    // From the oldest: is it rejected? And the place of what is the newest then.
    let shapes: [(&[bool], Option<u8>); 7] = [
        (&[false, true, true], Some(0)),
        (&[true, false], Some(1)),
        (&[false, true, false], Some(2)),
        (&[true, false, true, false, true, false], Some(5)),
        (&[true, true], None),
        (&[false, false], Some(1)),
        (&[true], None),
    ];
    for by_pass in [false, true] {
        for (shape, newest) in shapes {
            let (store, table, mut one, mut two) = store();
            for at in 0..shape.len() {
                install(&mut one, table, KEY, 0, Some(at as u8));
            }
            let rejected = |stamp: StampRef<'_>| shape[stamp.clock.0 as usize - 1];
            let expected = shape.iter().filter(|is_rejected| **is_rejected).count();
            let discarded = match by_pass {
                true => pass(&mut two, 1, rejected).1,
                false => two.discard(table, KEY, rejected).expect("unlocked"),
            };
            assert_eq!(discarded, expected, "{shape:?}");
            assert_eq!(get(&mut one, table, KEY), newest, "{shape:?}");
            let kept = (0..shape.len()).rev().filter(|at| !shape[*at]).map(|at| Some(at as u8));
            let stored = chain_of(&mut one, table, KEY).into_iter().map(|(_, value)| value);
            assert!(stored.eq(kept), "{shape:?}");
            assert_eq!(is_in_index(&store, &mut one, table, KEY), newest.is_some(), "{shape:?}");
            drop((one, two));
            drop(store);
        }
    }
}

#[test]
fn a_rejected_deletion_brings_the_value_back() {
    let (_store, table, mut one, mut two) = store();
    install(&mut one, table, KEY, 0, Some(1));
    install(&mut one, table, KEY, 1, None);
    assert_eq!(scan(&mut two, table), []);
    let (done, discarded) = pass(&mut two, 1, |stamp| stamp.epoch == Epoch(1));
    assert_eq!((done.next, discarded), (None, 1));
    assert_eq!(scan(&mut two, table), [(KEY.to_vec(), 1)]);
    // The session that installed the tombstone would have taken it out.
    one.sweep(|_| true);
    assert_eq!(get(&mut two, table, KEY), Some(1));
}

#[test]
fn a_committed_deletion_under_a_rejected_insertion_leaves_the_index() {
    let (store, table, mut one, mut two) = store();
    install(&mut one, table, KEY, 0, Some(1));
    install(&mut one, table, KEY, 0, None);
    install(&mut one, table, KEY, 1, Some(2));
    // It is in use, so the key would not be looked at again.
    one.sweep(|_| true);
    assert_eq!(get(&mut one, table, KEY), Some(2));
    let done = two.roll_back(&RollBack::default(), 9, |s| s.epoch == Epoch(1), |_| true);
    assert_eq!(done, RolledBack { discarded: 1, next: None, over: true });
    assert!(!is_in_index(&store, &mut one, table, KEY));
    // Where it is not known to be committed yet, a later sweep takes it.
    install(&mut one, table, KEY, 2, None);
    install(&mut one, table, KEY, 3, Some(3));
    one.sweep(|_| true);
    two.discard(table, KEY, |stamp| stamp.epoch == Epoch(3)).expect("unlocked");
    assert!(is_in_index(&store, &mut one, table, KEY));
    two.sweep(|_| true);
    assert!(!is_in_index(&store, &mut one, table, KEY));
}

/// How a transaction may have read the key.
type Reader = fn(&Transaction<&mut Session>, TableId);

#[test]
fn a_reader_of_what_is_rolled_back_does_not_validate() {
    let by_key: Reader = |tx, table| _ = tx.get(table, KEY).expect("within limits");
    let by_scan: Reader = |tx, table| _ = tx.scan(table, Scan::all()).expect("within limits");
    let by_insert: Reader = |tx, table| _ = tx.insert(table, KEY, b"i");
    let rejected = |stamp: StampRef<'_>| stamp.epoch == Epoch(1);
    // The chain from the oldest: an insertion, an overwriting, a deletion, an insertion after one.
    let chains: [&[(u32, Option<u8>)]; 5] = [
        &[(1, Some(1))],
        &[(0, Some(0)), (1, Some(1))],
        &[(0, Some(0)), (1, None)],
        &[(0, None), (1, Some(1))],
        &[(1, None)],
    ];
    for chain in chains {
        for read in [by_key, by_scan, by_insert] {
            for way in 0..3 {
                let (_store, table, mut one, mut two) = store();
                for (epoch, value) in chain {
                    install(&mut two, table, KEY, *epoch, *value);
                }
                let tx = one.begin();
                read(&tx, table);
                tx.validate().expect("nothing has changed yet");
                let discarded = match way {
                    0 => two.discard(table, KEY, rejected).expect("unlocked"),
                    1 => pass(&mut two, 1, rejected).1,
                    _ => tx.discard_read(rejected),
                };
                assert_eq!(discarded, 1, "{chain:?}");
                assert!(tx.validate().is_err(), "{chain:?} was read, and is no more");
                // Nor once the same state is there again, by others.
                let (epoch, value) = chain[chain.len() - 1];
                install(&mut two, table, KEY, epoch + 1, value);
                assert!(tx.validate().is_err(), "{chain:?} was read, and is another");
            }
        }
    }
}

#[test]
fn a_reader_of_something_else_still_validates() {
    let (_store, table, mut one, mut two) = store();
    install(&mut two, table, KEY, 0, Some(0));
    install(&mut two, table, b"other", 0, Some(0));
    let tx = one.begin();
    assert_eq!(tx.scan(table, Scan::all()).expect("within limits").len(), 2);
    install(&mut two, table, KEY, 1, Some(1));
    assert!(tx.validate().is_err());
    assert_eq!(pass(&mut two, 1, |stamp| stamp.epoch == Epoch(1)).1, 1);
    tx.validate().expect("what it read is what there is");
}

#[test]
fn a_version_that_was_rolled_back_stays_readable_for_who_has_it() {
    let (_store, table, mut one, mut two) = store();
    install(&mut two, table, KEY, 1, Some(7));
    let tx = one.begin();
    let value = tx.get(table, KEY).expect("within limits").expect("a value");
    assert_eq!(tx.discard_read(|_| true), 1);
    for round in 0..500u16 {
        install(&mut two, table, KEY, 2, Some(round as u8));
        two.discard(table, KEY, |_| true).expect("unlocked");
    }
    assert_eq!(value, [7]);
    assert_eq!(tx.discard_read(|_| true), 0);
}

#[test]
fn reading_discards_exactly_what_was_read() {
    let (_store, table, mut one, mut two) = store();
    for key in [b"a", b"b", b"c"] {
        install(&mut two, table, key, 0, Some(0));
        install(&mut two, table, key, 1, Some(1));
    }
    let tx = one.begin();
    tx.get(table, b"a").expect("within limits");
    tx.get(table, b"c").expect("within limits");
    let holder = two.begin();
    holder.put(table, b"c", b"2").expect("within limits");
    let holder = holder.lock().expect("no other transaction runs");
    assert_eq!(tx.discard_read(|stamp| stamp.epoch == Epoch(1)), 1, "one of two is locked");
    drop(holder);
    drop(tx);
    let now: Vec<u8> = scan(&mut one, table).into_iter().map(|(_, value)| value).collect();
    assert_eq!(now, [0, 1, 1]);
}

#[test]
fn a_pass_comes_back_to_what_was_locked() {
    let (store, table, mut one, mut two) = store();
    let other = store.table("other").expect("a table");
    for n in 0..100u8 {
        install(&mut one, table, &[n], 0, Some(0));
        install(&mut one, other, &[n], 1, Some(1));
        install(&mut one, table, &[n], 1, Some(1));
    }
    let rejected = |stamp: StampRef<'_>| stamp.epoch == Epoch(1);
    let held = |session: &mut Session, key: u8| {
        let tx = Transaction::on(Box::new(session.store().session().expect("a session")));
        tx.put(table, &[key], b"2").expect("within limits");
        tx.lock().expect("no other transaction runs")
    };
    let (first, second) = (held(&mut one, 30), held(&mut one, 60));
    let (done, discarded) = pass(&mut two, 7, rejected);
    assert_eq!((done.over, discarded), (true, 198));
    drop(second);
    let from = done.next.expect("two were locked");
    let done = two.roll_back(&from, 1000, rejected, |_| false);
    assert_eq!((done.discarded, done.over), (1, true), "the one that is free by now");
    // What is still locked now gets a version of a later epoch on top.
    let clock = first.draw_clock();
    first.install(StampRef { epoch: Epoch(2), clock, remote: &[] }, |_| false);
    let from = done.next.expect("one was locked");
    let done = two.roll_back(&from, 1000, rejected, |_| false);
    assert_eq!(done, RolledBack { discarded: 1, next: None, over: true });
    let mut expected: Vec<_> = (0..100u8).map(|n| (vec![n], 0)).collect();
    expected[30].1 = b'2';
    assert_eq!(scan(&mut one, table), expected);
    assert_eq!(scan(&mut one, other), []);
    assert!(!is_in_index(&store, &mut one, other, &[50]));
}

#[test]
fn a_lock_on_a_key_without_rejected_versions_is_not_in_the_way() {
    let (_store, table, mut one, mut two) = store();
    install(&mut one, table, KEY, 0, Some(0));
    let tx = one.begin();
    tx.put(table, KEY, b"1").expect("within limits");
    let _locked = tx.lock().expect("no other transaction runs");
    let done = two.roll_back(&RollBack::default(), 1, |stamp| stamp.epoch == Epoch(1), |_| true);
    assert_eq!(done, RolledBack { discarded: 0, next: None, over: true });
    assert_eq!(two.discard(table, KEY, |stamp| stamp.epoch == Epoch(1)), Ok(0));
    let refused = two.discard(table, KEY, |_| true);
    assert!(
        matches!(refused, Err(Error::Aborted(Aborted::Conflict(Conflict::Locked { .. })))),
        "{refused:?}"
    );
}

#[test]
fn steps_are_small_and_keys_may_be_long() {
    let (_store, table, mut one, mut two) = store();
    let long = |n: u32| [&n.to_be_bytes()[..], &vec![0xff; 4000][..]].concat();
    for n in 0..300u32 {
        install(&mut one, table, &long(n), 1, Some(1));
    }
    let (mut at, mut before, mut steps) = (RollBack::default(), 300, 0);
    loop {
        let done = two.roll_back(&at, 3, |_| true, |_| true);
        let now = scan(&mut one, table).len();
        assert!(done.discarded <= 3, "{done:?}");
        assert_eq!(now, before - done.discarded);
        (before, steps) = (now, steps + 1);
        let Some(next) = done.next else { break };
        at = next;
    }
    assert_eq!(before, 0);
    assert!(steps >= 100, "{steps} steps");
    // Nothing but an empty leaf or two is left.
    let _pinned = Pinned::take(one.state.get_mut());
    // SAFETY: pinned.
    let rows = unsafe { two.store().index(table).expect("a table").rows(Seek::First, 9) };
    assert_eq!(rows.records().count(), 0);
}

#[test]
fn what_is_rolled_back_is_freed() {
    let (store, table, mut one, mut two) = store();
    let mut peak = 0;
    for round in 0..200u32 {
        for n in 0..100u8 {
            install(&mut one, table, &[n], round, Some(n));
        }
        assert_eq!(pass(&mut two, 10, |_| true).1, 100);
        if round == 20 {
            peak = store.memory_bytes();
        }
    }
    let now = store.memory_bytes();
    assert!(now <= peak + (64 << 10), "from {peak} to {now} bytes");
}

#[test]
fn a_replay_neither_loses_against_what_is_rejected_nor_wins_over_what_it_hides() {
    // Clocks in the chain from the oldest, which of them are rejected, and whether a piece with
    // clock 5 wins.
    let cases: [(&[u64], &[u64], bool); 6] = [
        (&[3, 9], &[9], true),
        (&[3, 7, 9], &[9], false),
        (&[9], &[9], true),
        (&[3, 4], &[3], true),
        (&[7], &[], false),
        (&[7, 8, 9], &[7, 9], false),
    ];
    for (clocks, rejected, wins) in cases {
        let (_store, table, mut one, mut two) = store();
        for clock in clocks {
            let tx = one.begin();
            tx.put(table, KEY, &[*clock as u8]).expect("within limits");
            let stamp = StampRef { epoch: Epoch(1), clock: Clock(*clock), remote: &[] };
            tx.lock().expect("no other transaction runs").install(stamp, |_| false);
        }
        let tx = two.begin();
        tx.replicate(table, KEY, Some(&[5])).expect("within limits");
        let mut locked = tx.lock().expect("no other transaction runs");
        assert_eq!(locked.discard(|s| rejected.contains(&s.clock.0)), rejected.len());
        assert_eq!(locked.discard(|s| rejected.contains(&s.clock.0)), 0, "they are gone");
        let mut won = None;
        locked.replay(
            StampRef { epoch: Epoch(1), clock: Clock(5), remote: &[] },
            |newest| newest.clock < Clock(5),
            |_| false,
            |_, _, this| won = Some(this),
        );
        assert_eq!(won, Some(wins), "over {clocks:?} without {rejected:?}");
        let newest = clocks.iter().filter(|clock| !rejected.contains(clock)).max().copied();
        let expected = if wins { 5 } else { newest.expect("what it lost to") };
        assert_eq!(get(&mut one, table, KEY), Some(expected as u8));
    }
}

#[test]
fn discarding_under_the_locks_leaves_nothing_behind_when_the_writer_gives_up() {
    let (store, table, mut one, mut two) = store();
    install(&mut one, table, KEY, 1, Some(1));
    let tx = two.begin();
    tx.get(table, KEY).expect("within limits");
    tx.put(table, KEY, b"2").expect("within limits");
    let mut locked = tx.lock().expect("no other transaction runs");
    locked.validate().expect("nothing has changed yet");
    assert_eq!(locked.discard(|_| true), 1);
    assert!(locked.validate().is_err(), "it read what is no more");
    assert_eq!(get(&mut one, table, KEY), None);
    drop(locked);
    assert!(!is_in_index(&store, &mut one, table, KEY));
}

#[test]
fn a_predicate_that_panics_leaves_the_chain_whole() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let (_store, table, mut one, mut two) = store();
    for value in 0..4 {
        install(&mut one, table, KEY, 1, Some(value));
    }
    for calls in 0..8 {
        let left = std::cell::Cell::new(calls);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let done = two.roll_back(
                &RollBack::default(),
                1,
                |stamp| {
                    assert!(left.get() > 0, "planted");
                    left.set(left.get() - 1);
                    stamp.clock.0 % 2 == 0
                },
                |_| true,
            );
            drop(done);
        }));
        // The first is the newest, and rejected; then all four are asked under the lock.
        assert_eq!(panicked.is_err(), calls < 5, "after {calls} calls");
        let left = chain_of(&mut one, table, KEY).len();
        assert_eq!(left, if calls < 5 { 4 } else { 2 }, "after {calls} calls");
    }
}

/// Which version: its epoch and clock.
type Version = (u32, u64);

fn version(stamp: StampRef<'_>) -> Version {
    (stamp.epoch.0, stamp.clock.0)
}

#[derive(Debug, Clone)]
enum Op {
    /// Reads, then writes, under a stamp that the epoch's end will cover or not.
    Transact { reads: Vec<u8>, scan: bool, writes: Vec<(u8, Option<u8>)>, covered: bool },
    /// Locks a key for a while, if it is free.
    Hold(u8),
    /// Gives it back, with a new value or without.
    Release { install: bool, covered: bool },
    /// What is covered so far becomes committed.
    Advance,
    /// A pass over all tombstones, as a session makes it.
    Sweep,
    /// Closes the open epoch: what its final watermark does not cover is rolled back.
    Settle,
    /// A step of the pass, if one is under way.
    Step(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let write = (0..16u8, prop::option::weighted(0.7, any::<u8>()));
    let transact = (
        prop::collection::vec(0..16u8, 0..4),
        prop::bool::weighted(0.2),
        prop::collection::vec(write, 0..4),
        any::<bool>(),
    );
    let op = prop_oneof![
        12 => transact.prop_map(|(reads, scan, writes, covered)| {
            Op::Transact { reads, scan, writes, covered }
        }),
        2 => (0..16u8).prop_map(Op::Hold),
        2 => (any::<bool>(), any::<bool>())
            .prop_map(|(install, covered)| Op::Release { install, covered }),
        2 => Just(Op::Advance),
        1 => Just(Op::Sweep),
        1 => Just(Op::Settle),
        8 => (1..6usize).prop_map(Op::Step),
    ];
    prop::collection::vec(op, 1..120)
}

/// The model: every version ever installed, and its outcome.
#[derive(Default)]
struct Model {
    /// From the newest, by key.
    chains: BTreeMap<u8, Vec<(Version, Option<u8>)>>,
    /// Whether the final watermark of its epoch covers a version, or will.
    covered: BTreeMap<Version, bool>,
    /// The epoch that is open; those below are settled.
    epoch: u32,
    /// The greatest clock that is covered in `epoch`.
    watermark: u64,
}

impl Model {
    fn is_rejected(&self, at: Version) -> bool {
        at.0 < self.epoch && !self.covered[&at]
    }

    fn is_committed(&self, at: Version) -> bool {
        self.covered[&at] && (at.0 < self.epoch || at.1 <= self.watermark)
    }

    /// What is left of a key's chain when all that is rejected has gone.
    fn clean(&self, key: u8) -> Vec<(Version, Option<u8>)> {
        let mut chain = self.chains.get(&key).cloned().unwrap_or_default();
        chain.retain(|(at, _)| !self.is_rejected(*at));
        chain
    }

    fn value(&self, key: u8) -> Option<u8> {
        self.clean(key).first().and_then(|(_, value)| *value)
    }

    fn installed(&mut self, at: Version, covered: bool, writes: &BTreeMap<u8, Option<u8>>) {
        self.covered.insert(at, covered);
        for (key, value) in writes {
            self.chains.entry(*key).or_default().insert(0, (at, *value));
        }
    }

    /// What the store has of a key is what it should have, and not less than is needed.
    fn check(&self, key: u8, stored: &[(Version, Option<u8>)]) {
        let clean = self.clean(key);
        assert!(clean.starts_with(stored), "{key}: {stored:?}, not {clean:?}");
        let committed = clean.iter().position(|(at, _)| self.is_committed(*at));
        // A tombstone may have left the index meanwhile: absence is equivalent.
        let needed = committed.map_or(clean.len(), |at| at + usize::from(clean[at].1.is_some()));
        assert!(stored.len() >= needed, "{key}: {stored:?} of {clean:?}");
    }
}

/// Two tables, keys in both: the pass has to cross over.
fn place(tables: [TableId; 2], key: u8) -> (TableId, [u8; 1]) {
    (tables[usize::from(key % 2)], [key])
}

/// A world that random operations happen to.
struct World {
    store: Arc<Store>,
    tables: [TableId; 2],
    one: Session,
    sweeper: Session,
    holder: Option<(u8, crate::Locked<Box<Session>>)>,
    pass: Option<RollBack>,
    model: Model,
}

impl World {
    fn new() -> World {
        let store = Arc::new(Store::new(Options::default()));
        let tables = ["t", "u"].map(|name| store.table(name).expect("a table"));
        let [one, sweeper] = [0, 1].map(|_| store.session().expect("a session"));
        let model = Model { epoch: 1, ..Model::default() };
        World { store, tables, one, sweeper, holder: None, pass: None, model }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Transact { reads, scan, writes, covered } => {
                self.transact(reads, *scan, &writes.iter().copied().collect(), *covered);
            }
            Op::Hold(key) if self.holder.is_none() => {
                let session = Box::new(self.store.session().expect("a session"));
                let (tx, (table, bytes)) = (Transaction::on(session), place(self.tables, *key));
                tx.put(table, &bytes, &[99]).expect("within limits");
                self.holder = Some((*key, tx.lock().expect("no other transaction runs")));
            }
            Op::Hold(_) => {}
            Op::Release { install, covered } => self.release(*install, *covered),
            Op::Advance => self.model.watermark = self.store.clock().0,
            Op::Sweep => {
                let World { one, sweeper, model, .. } = self;
                one.sweep(|stamp| model.is_committed(version(stamp)));
                sweeper.sweep(|stamp| model.is_committed(version(stamp)));
            }
            Op::Settle => self.settle(),
            Op::Step(most) => self.step(*most),
        }
    }

    fn transact(
        &mut self,
        reads: &[u8],
        scan: bool,
        writes: &BTreeMap<u8, Option<u8>>,
        covered: bool,
    ) {
        let World { one, tables, model, holder, .. } = self;
        let tx = one.begin();
        let mut found: BTreeMap<u8, Option<u8>> = BTreeMap::new();
        for key in reads {
            let (table, bytes) = place(*tables, *key);
            let value = tx.get(table, &bytes).expect("within limits");
            found.insert(*key, value.map(|value| value[0]));
        }
        if scan {
            let all = (0..16).map(|key| (key, None));
            found.extend(all);
            for table in *tables {
                let rows = tx.scan(table, Scan::all()).expect("within limits");
                found.extend(rows.iter().map(|(key, value)| (key[0], Some(value[0]))));
            }
        }
        let mut met = false;
        tx.versions_read(0, usize::MAX, |read| met |= model.is_rejected(version(read.stamp)));
        if met {
            tx.discard_read(|stamp| model.is_rejected(version(stamp)));
            assert!(tx.validate().is_err(), "it read what is no more");
            drop(tx);
            let free = found.keys().filter(|key| holder.as_ref().is_none_or(|(k, _)| k != *key));
            for key in free {
                let (table, bytes) = place(*tables, *key);
                // What is deeper in the chain is for the pass.
                let stored = chain_of(one, table, &bytes).into_iter().map(|(at, _)| at).next();
                assert!(!stored.is_some_and(|at| model.is_rejected(at)), "key {key} is unchanged");
                assert_eq!(get(one, table, &bytes), model.value(*key), "key {key}");
            }
            return;
        }
        for (key, value) in found {
            assert_eq!(value, model.value(key), "key {key} is seen as it is");
        }
        for (key, value) in writes {
            let (table, bytes) = place(*tables, *key);
            let value = value.as_ref().map(std::slice::from_ref);
            tx.replicate(table, &bytes, value).expect("within limits");
        }
        let Ok(locked) = tx.lock() else {
            assert!(holder.as_ref().is_some_and(|(key, _)| writes.contains_key(key)));
            return;
        };
        let clock = locked.draw_clock();
        if let Err(error) = locked.validate() {
            assert!(holder.is_some(), "{error}");
            return;
        }
        model.installed((model.epoch, clock.0), covered, writes);
        let stamp = StampRef { epoch: Epoch(model.epoch), clock, remote: &[] };
        locked.install(stamp, |stamp| model.is_committed(version(stamp)));
    }

    fn release(&mut self, install: bool, covered: bool) {
        let Some((key, locked)) = self.holder.take() else { return };
        if !install {
            return;
        }
        let model = &mut self.model;
        let clock = locked.draw_clock();
        model.installed((model.epoch, clock.0), covered, &BTreeMap::from([(key, Some(99))]));
        let stamp = StampRef { epoch: Epoch(model.epoch), clock, remote: &[] };
        locked.install(stamp, |stamp| model.is_committed(version(stamp)));
    }

    fn settle(&mut self) {
        self.holder = None;
        // To the end, and again from what was locked on the way.
        self.step(1000);
        self.step(1000);
        assert_eq!(self.pass, None, "no lock is held");
        self.model.epoch += 1;
        self.pass = Some(RollBack::default());
    }

    fn step(&mut self, most: usize) {
        let World { sweeper, model, pass, .. } = self;
        let Some(from) = pass.take() else { return };
        let done = sweeper.roll_back(
            &from,
            most,
            |stamp| model.is_rejected(version(stamp)),
            |stamp| model.is_committed(version(stamp)),
        );
        *pass = done.next;
        if pass.is_none() {
            self.check();
        }
    }

    /// After a pass nothing is left of what is rejected, and everything else is there.
    fn check(&mut self) {
        let World { one, tables, model, holder, store, .. } = self;
        for key in 0..16 {
            let (table, bytes) = place(*tables, key);
            let stored = chain_of(one, table, &bytes);
            model.check(key, &stored);
            if holder.as_ref().is_none_or(|(held, _)| *held != key) {
                let found = is_in_index(store, one, table, &bytes);
                assert_eq!(found, !stored.is_empty(), "key {key} without a version");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn passes_and_transactions_agree_with_a_model(ops in ops()) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
        }
        for _ in 0..2 {
            world.settle();
        }
        world.step(1000);
        prop_assert_eq!(&world.pass, &None);
    }
}
