//! The index against `BTreeMap`: few keys that collide, long shared prefixes, every kind of seek.

use super::{Index, Insertion, Lookup, Seek};
use crate::faults::StoreBugs;
use crate::memory::{Arena, Heap};
use crate::reclaim::{Eras, Memory, Retired};
use crate::record::Record;
use proptest::prelude::*;
use shoal_types::{Random, TableId};
use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// An index with one session, and the model beside it.
struct Bench {
    index: Index,
    memory: Memory,
    model: BTreeMap<Vec<u8>, NonNull<Record>>,
    arena: Arc<Arena>,
    eras: Arc<Eras>,
}

impl Bench {
    fn new() -> Bench {
        let arena = Arc::new(Arena::default());
        let eras = Arc::new(Eras::new(1, usize::MAX, StoreBugs::NONE));
        let index = Index::new(&mut Heap::new(Arc::clone(&arena)), StoreBugs::NONE);
        let memory = Memory::new(&eras, &arena).expect("a free slot");
        Bench { index, memory, model: BTreeMap::new(), arena, eras }
    }

    fn insert(&mut self, key: &[u8]) {
        self.memory.pin();
        let record = Record::allocate(&mut self.memory.heap, TableId(0), key);
        // SAFETY: pinned, and the record is new.
        match unsafe { self.index.insert(record, &mut self.memory, &mut |_| {}) } {
            Insertion::Inserted => assert_eq!(self.model.insert(key.to_vec(), record), None),
            Insertion::Exists(there) => {
                assert_eq!(self.model.get(key), Some(&there), "{key:?}");
                // SAFETY: never shared.
                unsafe { Record::free(record, &mut self.memory.heap) };
            }
        }
        self.memory.unpin();
    }

    fn remove(&mut self, key: &[u8]) {
        self.memory.pin();
        // SAFETY: pinned; so in `kill`.
        let removed = unsafe {
            self.index
                .remove(key, &mut self.memory, &mut |record| record.as_ref().kill(ptr::null_mut()))
        };
        assert_eq!(removed, self.model.remove(key), "{key:?}");
        removed.into_iter().for_each(|record| self.memory.retire(Retired::Record(record)));
        self.memory.unpin();
    }

    fn get(&mut self, key: &[u8]) -> Option<NonNull<Record>> {
        self.memory.pin();
        // SAFETY: pinned.
        let found = match unsafe { self.index.get(key) } {
            Lookup::Found(record, _) => Some(record),
            Lookup::Absent(_) => None,
        };
        self.memory.unpin();
        found
    }

    /// All keys that a scan from `seek` finds, `most` at a time.
    fn scan(&mut self, seek: Seek<'_>, most: usize) -> Vec<Vec<u8>> {
        self.memory.pin();
        let mut keys = Vec::new();
        let mut next = Some(seek);
        while let Some(seek) = next {
            // SAFETY: pinned.
            let rows = unsafe { self.index.rows(seek, most) };
            // SAFETY: as above.
            keys.extend(rows.records().map(|record| unsafe { Record::key(record) }.to_vec()));
            next = rows.next;
        }
        self.memory.unpin();
        keys
    }

    fn check(&mut self, probe: &[u8], most: usize) {
        let model = self.model.clone();
        let keys = |range: &mut dyn Iterator<Item = (&Vec<u8>, &NonNull<Record>)>| -> Vec<Vec<u8>> {
            range.map(|(key, _)| key.clone()).collect()
        };
        let probe_vec = probe.to_vec();
        use std::ops::Bound::{Excluded, Unbounded};
        assert_eq!(self.get(probe), model.get(probe).copied());
        assert_eq!(self.scan(Seek::First, most), keys(&mut model.iter()));
        assert_eq!(self.scan(Seek::Last, most), keys(&mut model.iter().rev()));
        assert_eq!(self.scan(Seek::From(probe), most), keys(&mut model.range(probe_vec.clone()..)));
        let after = (Excluded(probe_vec.clone()), Unbounded);
        assert_eq!(self.scan(Seek::After(probe), most), keys(&mut model.range(after)));
        let down = model.range(..=probe_vec.clone());
        assert_eq!(self.scan(Seek::DownFrom(probe), most), keys(&mut down.rev()));
        let before = model.range(..probe_vec);
        assert_eq!(self.scan(Seek::Before(probe), most), keys(&mut before.rev()));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let mut heap = Heap::new(Arc::clone(&self.arena));
        // SAFETY: no other thread is there; the session is at rest.
        unsafe {
            self.index.tear_down(&mut heap, &mut |heap, record| Record::free(record, heap));
        }
        // What waits in the limbo is freed as an orphan.
        let replacement = Arc::new(Eras::new(1, usize::MAX, StoreBugs::NONE));
        self.memory = Memory::new(&replacement, &self.arena).expect("a free slot");
        // SAFETY: no session of these eras is left.
        unsafe { self.eras.free_orphans(&mut heap) };
        drop(heap);
        if !std::thread::panicking() {
            assert_eq!(self.arena.bytes(), 0, "the index leaks");
        }
    }
}

/// Keys that share prefixes of every length, end in zeros, and are prefixes of each other.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0..3u8, 1..12),
        (0..400u32)
            .prop_map(|n| format!("a common prefix of more than forty bytes {n:06}").into_bytes()),
        (0..400u16).prop_map(|n| n.to_be_bytes().to_vec()),
        (0..40u64).prop_map(|n| [&[7; 20][..], &n.to_be_bytes()].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_btreemap(
        operations in prop::collection::vec((any::<bool>(), keys()), 1..900),
        probes in prop::collection::vec((keys(), 1..40usize), 4),
    ) {
        let mut bench = Bench::new();
        for (insert, key) in &operations {
            if *insert { bench.insert(key) } else { bench.remove(key) }
        }
        for (probe, most) in &probes {
            bench.check(probe, *most);
        }
        // Empty it: every merge, down to one leaf.
        for (_, key) in &operations {
            bench.remove(key);
        }
        prop_assert!(bench.model.is_empty());
        bench.check(b"x", 5);
    }
}

#[test]
fn ascending_descending_and_random_orders_fill_and_drain() {
    let order = |seed: u64| {
        let mut keys: Vec<u32> = (0..20_000).collect();
        let mut random = Random::new(seed);
        for i in (1..keys.len()).rev() {
            keys.swap(i, random.below(i as u64 + 1) as usize);
        }
        keys
    };
    let orders =
        [(0..20_000).collect::<Vec<u32>>(), (0..20_000).rev().collect(), order(1), order(2)];
    for (fill, drain) in orders.iter().zip(orders.iter().rev()) {
        let mut bench = Bench::new();
        fill.iter().for_each(|n| bench.insert(format!("warehouse/0001/{n:08}").as_bytes()));
        bench.check(b"warehouse/0001/00010000", 1000);
        drain.iter().for_each(|n| bench.remove(format!("warehouse/0001/{n:08}").as_bytes()));
        assert!(bench.model.is_empty());
    }
}

#[test]
fn a_queue_keeps_its_size() {
    let mut bench = Bench::new();
    let mut most = 0;
    for n in 0..200_000_u64 {
        bench.insert(&n.to_be_bytes());
        if n >= 100 {
            bench.remove(&(n - 100).to_be_bytes());
        }
        if n == 20_000 {
            most = bench.arena.bytes();
        }
    }
    let now = bench.arena.bytes();
    assert!(now <= most + (256 << 10), "from {most} to {now} bytes for 100 keys");
}
