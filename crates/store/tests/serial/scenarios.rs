//! Histories of two or three sessions, written down: each is what a planted bug needs to show.

use shoal_store::{Options, Session, Store, StoreBugs};
use shoal_types::{Result, TableId};
use std::sync::Arc;

struct World {
    store: Arc<Store>,
    table: TableId,
}

/// A store with these keys.
fn world(faults: StoreBugs, keys: impl IntoIterator<Item = u32>) -> World {
    let store = Arc::new(Store::new(Options { faults, ..Options::default() }));
    let table = store.table("t").expect("a table");
    let world = World { store, table };
    keys.into_iter().for_each(|key| world.put(key).expect("no other transaction runs"));
    world
}

impl World {
    fn session(&self) -> Session {
        self.store.session().expect("few are open")
    }

    /// Commits one write of `key` in a session of its own.
    fn put(&self, key: u32) -> Result<()> {
        let mut session = self.session();
        let tx = session.begin();
        tx.put(self.table, &key.to_be_bytes(), b"")?;
        tx.commit()
    }

    fn delete(&self, key: u32) -> Result<()> {
        let mut session = self.session();
        let tx = session.begin();
        tx.delete(self.table, &key.to_be_bytes())?;
        tx.commit()
    }
}

/// A transaction reads a leaf that is full, and splits it. A key that another puts into the right half
/// after that stops it.
fn split_by_oneself(faults: StoreBugs) -> bool {
    let world = world(faults, (0..28).map(|key| 2 * key));
    let mut session = world.session();
    let tx = session.begin();
    let rows = tx.scan(world.table, shoal_types::Scan::all()).expect("within limits");
    assert_eq!(rows.len(), 28);
    tx.put(world.table, &31u32.to_be_bytes(), b"").expect("within limits");
    let locked = tx.lock().expect("no other transaction runs");
    world.put(45).expect("it reads nothing");
    locked.validate().is_err()
}

/// A transaction inserts two keys into one full leaf: the first splits it, and the second belongs into
/// the new half.
fn two_keys_for_a_full_leaf(faults: StoreBugs) -> bool {
    let world = world(faults, (0..28).map(|key| 2 * key));
    let mut session = world.session();
    let tx = session.begin();
    for key in [31u32, 45] {
        tx.insert(world.table, &key.to_be_bytes(), b"").expect("it is new");
    }
    tx.commit().expect("no other transaction runs");
    let tx = session.begin();
    let found =
        |key: u32| tx.get(world.table, &key.to_be_bytes()).expect("within limits").is_some();
    found(31) && found(45)
}

/// A transaction finds a key absent in a leaf, which is then merged into its left neighbour. The key that
/// another puts there after that stops it.
fn gap_in_a_merged_leaf(faults: StoreBugs) -> bool {
    let world = world(faults, (0..36).map(|key| 2 * key));
    // Of the first 28, six stay: few enough to be merged by the next removal there.
    (0..22).for_each(|key| world.delete(2 * key).expect("no other transaction runs"));
    let mut session = world.session();
    let tx = session.begin();
    assert_eq!(tx.get(world.table, &61u32.to_be_bytes()), Ok(None));
    world.delete(44).expect("no other transaction wrote it");
    world.put(61).expect("it reads nothing");
    tx.validate().is_err()
}

/// A transaction begins before the era moves on, and unlinks what another one reads that began after that.
/// The other one reads it still.
fn unlinked_by_an_older_guard(faults: StoreBugs) -> bool {
    const VALUE: [u8; 3000] = [7; 3000];
    // As many as make a session look for what it can free.
    const KEYS: std::ops::Range<u32> = 0..40;
    let world = world(faults, []);
    let write = |session: &mut Session, from: u32| {
        let tx = session.begin();
        for key in KEYS {
            tx.put(world.table, &(from + key).to_be_bytes(), &VALUE).expect("within limits");
        }
        tx.commit().expect("no other transaction wrote it");
    };
    let (mut old, mut other, mut reader) = (world.session(), world.session(), world.session());
    write(&mut other, 0);
    write(&mut other, 1000);
    let older = old.begin();
    // What is overwritten here has the era move on.
    write(&mut other, 1000);
    let tx = reader.begin();
    let read = tx.get(world.table, &0u32.to_be_bytes()).expect("within limits").expect("a value");
    for key in KEYS {
        older.put(world.table, &key.to_be_bytes(), b"").expect("within limits");
    }
    older.commit().expect("it reads nothing");
    read == VALUE
}

/// The scenarios, of which each holds where no bug is planted.
#[test]
fn scenarios_hold() {
    assert!(split_by_oneself(StoreBugs::NONE));
    assert!(two_keys_for_a_full_leaf(StoreBugs::NONE));
    assert!(gap_in_a_merged_leaf(StoreBugs::NONE));
    assert!(unlinked_by_an_older_guard(StoreBugs::NONE));
}

#[cfg(feature = "faults")]
#[test]
fn planted_bugs_break_them() {
    use shoal_store::StoreBug;
    assert!(!split_by_oneself(StoreBugs::only(StoreBug::SplitUnnoted)));
    assert!(!split_by_oneself(StoreBugs::only(StoreBug::SkipNodeSet)));
    assert!(!two_keys_for_a_full_leaf(StoreBugs::only(StoreBug::GapOutlivesSplit)));
    assert!(!gap_in_a_merged_leaf(StoreBugs::only(StoreBug::MergedStaysValid)));
    assert!(!unlinked_by_an_older_guard(StoreBugs::only(StoreBug::TagTooEarly)));
}
