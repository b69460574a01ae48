//! What clients choose (how many keys, which keys, in what order) makes no operation do more than its
//! share of work: at most in proportion to the logarithm of what is there. Work is counted, not timed.

use super::{Work, counted};
use crate::{Options, Session, Store};
use shoal_types::{Epoch, Scan, StampRef, TableId};
use std::sync::Arc;

/// Sizes that double: what grows with the square of the size exceeds a bound per element soon.
const SIZES: [usize; 4] = [1_000, 2_000, 4_000, 8_000];

fn store(tables: [&str; 2]) -> (Arc<Store>, [TableId; 2], Session) {
    let store = Arc::new(Store::new(Options { hash_seed: 11, ..Options::default() }));
    let tables = tables.map(|name| store.table(name).expect("a table"));
    let session = store.session().expect("a session");
    (store, tables, session)
}

fn log2(n: usize) -> u64 {
    u64::from(n.ilog2()) + 1
}

/// Keys in no order: odd steps visit every number below a power of two.
fn scattered(n: usize) -> impl Iterator<Item = [u8; 8]> {
    let of = n.next_power_of_two() as u64;
    (0..of).map(move |at| (at * 40_503 % of).to_be_bytes()).take(n)
}

#[test]
fn a_commit_of_many_new_keys_looks_at_each_leaf_a_few_times() {
    for n in SIZES {
        let (_store, [table, _], mut session) = store(["t", "u"]);
        // Leaves to be noted, which the new keys then split.
        for key in scattered(n / 8) {
            let tx = session.begin();
            tx.put(table, &[&key[..], &[1]].concat(), b"").expect("within limits");
            tx.commit().expect("no other transaction runs");
        }
        let tx = session.begin();
        for key in scattered(n) {
            tx.insert(table, &key, b"").expect("it is new");
        }
        let probes = counted(Work::SetProbed, || tx.commit().expect("no other transaction runs"));
        assert!(probes <= 8 * n as u64, "{probes} probes for {n} new keys");
    }
}

#[test]
fn puts_and_scans_that_alternate_over_tables_order_each_write_once() {
    for n in SIZES {
        let (_store, [one, two], mut session) = store(["one", "two"]);
        let tx = session.begin();
        let work = counted(Work::KeyCompared, || {
            for (at, key) in scattered(n).enumerate() {
                let table = if at % 2 == 0 { one } else { two };
                tx.put(table, &key, b"").expect("within limits");
                for table in [one, two] {
                    tx.scan(table, Scan::all().limit(1)).expect("within limits");
                }
            }
        });
        assert!(work <= 3 * n as u64 * log2(n), "{work} comparisons for {n} writes");
    }
}

/// Keys that an unkeyed hash of multiplications and rotations maps to one value: the top bit of a word
/// survives a multiplication unchanged, and a bit of the next word undoes it.
fn crafted(n: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(|number| {
        let words = (0..16).flat_map(|pair| {
            let chosen = number as u64 >> pair & 1;
            [chosen << 63, chosen << 25]
        });
        words.flat_map(u64::to_be_bytes).collect()
    })
}

#[test]
fn keys_that_are_chosen_to_collide_do_not() {
    for n in SIZES {
        let (_store, [table, _], mut session) = store(["t", "u"]);
        let tx = session.begin();
        let probes = counted(Work::SetProbed, || {
            for key in crafted(n) {
                tx.put(table, &key, b"").expect("within limits");
                tx.get(table, &key).expect("within limits");
            }
        });
        assert!(probes <= 8 * n as u64, "{probes} probes for {n} writes");
    }
}

/// Installs versions of one key, of which those up to a clock are committed. Returns how many versions of
/// the chain were looked at.
fn install(session: &mut Session, table: TableId, n: usize, committed: u64) -> u64 {
    counted(Work::VersionVisited, || {
        for _ in 0..n {
            let tx = session.begin();
            tx.put(table, b"hot", b"").expect("within limits");
            let locked = tx.lock().expect("no other transaction runs");
            let stamp = StampRef { epoch: Epoch(1), clock: locked.draw_clock(), remote: &[] };
            locked.install(stamp, |stamp| stamp.clock.0 <= committed);
        }
    })
}

fn length(session: &mut Session, table: TableId) -> usize {
    let length = std::cell::Cell::new(0);
    let tx = session.begin();
    let count = |_: StampRef<'_>| {
        length.set(length.get() + 1);
        false
    };
    tx.get_where(table, b"hot", count).expect("within limits");
    length.get()
}

#[test]
fn a_chain_of_uncommitted_versions_is_walked_seldom() {
    for n in SIZES {
        let (_store, [table, _], mut session) = store(["t", "u"]);
        let visited = install(&mut session, table, n, 0);
        assert!(visited <= 16 * n as u64, "{visited} versions for {n} installations");
        assert_eq!(length(&mut session, table), n);
        // All is committed: the next one finds that at once, and leaves nothing behind.
        install(&mut session, table, 1, n as u64);
        assert_eq!(length(&mut session, table), 2);
    }
}

#[test]
fn a_chain_whose_commits_lag_behind_keeps_its_length() {
    let (_store, [table, _], mut session) = store(["t", "u"]);
    const LAG: usize = 1000;
    install(&mut session, table, LAG, 0);
    let (mut visited, mut longest) = (0, 0);
    for committed in 0..20 * LAG {
        visited += install(&mut session, table, 1, committed as u64);
        if committed % 100 == 0 {
            longest = longest.max(length(&mut session, table));
        }
    }
    assert!(visited <= 16 * 20 * LAG as u64, "{visited} versions");
    // What a walk missed stays until the next one, which comes before as many again have come.
    assert!(longest <= 3 * LAG, "{longest} versions where {LAG} are uncommitted");
}

/// Comparisons of keys for a lookup of each key.
fn lookups(keys: &[Vec<u8>]) -> u64 {
    let (_store, [table, _], mut session) = store(["t", "u"]);
    for key in keys {
        let tx = session.begin();
        tx.put(table, key, b"").expect("within limits");
        tx.commit().expect("no other transaction runs");
    }
    let mut compared = 0;
    for key in keys {
        let tx = session.begin();
        compared += counted(Work::KeyCompared, || {
            assert!(tx.get(table, key).expect("within limits").is_some());
        });
    }
    compared
}

#[test]
fn keys_that_share_much_are_found_with_a_few_comparisons() {
    for shared in [0, 30, 36, 40, 41, 60, 200, 4000] {
        for n in [1_000, 2_000, 4_000] {
            let keys = scattered(n).map(|key| [&vec![7; shared][..], &key].concat());
            let compared = lookups(&keys.collect::<Vec<_>>());
            // The keys differ in two bytes of eight. Three levels: the rest of the prefix in each, a separator here and there, the key.
            let bound = if shared <= 30 { 4 } else { 7 };
            assert!(compared <= bound * n as u64, "{compared} for {n} keys sharing {shared} bytes");
        }
    }
}

#[test]
fn neighbours_that_share_less_do_not_spoil_it() {
    for n in [1_000, 2_000, 4_000] {
        // In each leaf a few keys end early, so that its prefix is short and most heads are equal.
        let keys = (0..n).map(|at| match at % 8 {
            0 => format!("{:060}{at:06}/", 0).into_bytes(),
            _ => format!("{:060}{:06}/{:060}{at:06}", 0, at - at % 8, 0).into_bytes(),
        });
        let compared = lookups(&keys.collect::<Vec<_>>());
        assert!(compared <= 3 * 6 * n as u64, "{compared} comparisons for {n} keys");
    }
}
