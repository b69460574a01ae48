//! How costs grow: the processor time per element at n, 2n, 4n and 8n, for what clients can make as large as they
//! like. A cost that is in proportion to n stays where it is; one with the square of n doubles.
//!
//! ```text
//! cargo bench -p shoal-store --bench growth
//! ```
use shoal_store::{Options, Session, Store};
use shoal_types::{Epoch, Scan, StampRef, TableId};
use std::sync::Arc;
use std::time::Duration;

const DOUBLINGS: u32 = 4;
const ROUNDS: usize = 3;

struct Bench {
    _store: Arc<Store>,
    one: TableId,
    two: TableId,
    session: Session,
}

fn bench() -> Bench {
    let store = Arc::new(Store::new(Options::default()));
    let (one, two) = (store.table("one").expect("a table"), store.table("two").expect("a table"));
    let session = store.session().expect("a session");
    Bench { _store: store, one, two, session }
}

/// `n` different keys of eight bytes, in an order far from ascending.
fn scattered(n: usize) -> impl Iterator<Item = [u8; 8]> {
    let of = n.next_power_of_two() as u64;
    (0..of).map(move |at| (at * 40_503 % of).to_be_bytes()).take(n)
}

/// The processor time of this thread.
fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is this function's own.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0, "the system counts the time of threads");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn time(run: impl FnOnce()) -> Duration {
    let begun = now();
    run();
    now() - begun
}

/// One transaction that inserts n keys.
fn inserts(n: usize) -> Duration {
    let Bench { one, mut session, .. } = bench();
    time(|| {
        let tx = session.begin();
        for key in scattered(n) {
            tx.insert(one, &key, b"value").expect("it is new");
        }
        tx.commit().expect("no other transaction runs");
    })
}

/// One transaction that puts into two tables in turn, and scans both after each put.
fn puts_and_scans(n: usize) -> Duration {
    let Bench { one, two, mut session, .. } = bench();
    time(|| {
        let tx = session.begin();
        for (at, key) in scattered(n).enumerate() {
            tx.put(if at % 2 == 0 { one } else { two }, &key, b"value").expect("within limits");
            for table in [one, two] {
                tx.scan(table, Scan::all().limit(1)).expect("within limits");
            }
        }
        tx.commit().expect("no other transaction runs");
    })
}

/// One transaction that puts keys that collide in a hash of multiplications and rotations.
fn crafted(n: usize) -> Duration {
    let Bench { one, mut session, .. } = bench();
    let key = |number: usize| -> Vec<u8> {
        let words = (0..20).flat_map(|pair| {
            let chosen = number as u64 >> pair & 1;
            [chosen << 63, chosen << 25]
        });
        words.flat_map(u64::to_be_bytes).collect()
    };
    let keys: Vec<Vec<u8>> = (0..n).map(key).collect();
    time(|| {
        let tx = session.begin();
        for key in &keys {
            tx.put(one, key, b"value").expect("within limits");
        }
        tx.commit().expect("no other transaction runs");
    })
}

/// Transactions that overwrite one key, none of them committed yet.
fn uncommitted(n: usize) -> Duration {
    let Bench { one, mut session, .. } = bench();
    time(|| {
        for _ in 0..n {
            let tx = session.begin();
            tx.put(one, b"hot", b"value").expect("within limits");
            let locked = tx.lock().expect("no other transaction runs");
            let stamp = StampRef { epoch: Epoch(1), clock: locked.draw_clock(), remote: &[] };
            locked.install(stamp, |_| false);
        }
    })
}

/// Lookups of keys that share so many bytes.
fn lookups<const SHARED: usize>(n: usize) -> Duration {
    let Bench { one, mut session, .. } = bench();
    let keys: Vec<Vec<u8>> = scattered(n).map(|key| [&[7; SHARED][..], &key].concat()).collect();
    for keys in keys.chunks(1000) {
        let tx = session.begin();
        keys.iter().for_each(|key| tx.put(one, key, b"value").expect("within limits"));
        tx.commit().expect("no other transaction runs");
    }
    let mut found = 0;
    let taken = time(|| {
        for keys in keys.chunks(10) {
            let tx = session.begin();
            for key in keys {
                found += usize::from(tx.get(one, key).expect("within limits").is_some());
            }
        }
    });
    assert_eq!(found, n);
    taken
}

/// What is measured: its name, the least n, and how.
type Case = (&'static str, usize, fn(usize) -> Duration);

const CASES: [Case; 9] = [
    ("insert n keys in one transaction", 10_000, inserts),
    ("put and scan in turn over two tables", 5_000, puts_and_scans),
    ("put n keys with equal unkeyed hashes", 5_000, crafted),
    ("overwrite one key n times, uncommitted", 5_000, uncommitted),
    ("get, 8 shared bytes", 10_000, lookups::<8>),
    ("get, 38 shared bytes", 10_000, lookups::<38>),
    ("get, 44 shared bytes", 10_000, lookups::<44>),
    ("get, 200 shared bytes", 10_000, lookups::<200>),
    ("get, 1000 shared bytes", 10_000, lookups::<1000>),
];

fn main() {
    println!("ns of processor time per element, median of {ROUNDS}, at n, 2n, 4n, 8n");
    for (name, least, run) in CASES {
        print!("{name:40} n = {least:6}:");
        for n in (0..DOUBLINGS).map(|doubling| least << doubling) {
            let mut rounds = [(); ROUNDS].map(|()| run(n));
            rounds.sort();
            print!(" {:8}", rounds[ROUNDS / 2].as_nanos() / n as u128);
        }
        println!();
    }
}
