//! The maps behind one interface. The libraries' values are shared pointers to records on the heap;
//! `shoal` has its own records and versions.

use crate::keys::Batch;
use shoal_store::bare::{BareHandle, BareIndex};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

/// A record, as long as a version of a short value.
type Record = Arc<[u64; 4]>;
type Key = Box<[u8]>;

fn record(number: u64) -> Record {
    Arc::new([number; 4])
}

fn from(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(key), Bound::Unbounded)
}

/// A map that many threads can use.
pub trait Map: Sync {
    /// What one thread works on the map with.
    type Worker<'m>: Worker
    where
        Self: 'm;

    /// A map without keys.
    fn empty() -> Self;

    /// Access for the calling thread.
    fn worker(&self) -> Self::Worker<'_>;
}

/// One thread's access to a map. What operations found comes back in sum.
pub trait Worker {
    /// Inserts the keys with their numbers.
    fn insert(&mut self, batch: &Batch<'_>) -> u64;
    /// Looks the keys up; the sum of their numbers.
    fn get(&mut self, batch: &Batch<'_>) -> u64;
    /// Reads `rows` rows from each key on.
    fn scan(&mut self, batch: &Batch<'_>, rows: usize) -> u64;
}

/// The index of this crate, under a guard for each batch.
pub struct Shoal(BareIndex);

impl Map for Shoal {
    type Worker<'m> = BareHandle;

    fn empty() -> Shoal {
        Shoal(BareIndex::new().expect("an empty index"))
    }

    fn worker(&self) -> BareHandle {
        self.0.handle().expect("few threads")
    }
}

impl Worker for BareHandle {
    fn insert(&mut self, batch: &Batch<'_>) -> u64 {
        let mut guard = self.pin();
        batch.iter().map(|(key, number)| u64::from(guard.insert(key, number))).sum()
    }

    fn get(&mut self, batch: &Batch<'_>) -> u64 {
        let guard = self.pin();
        batch.iter().map(|(key, _)| guard.get(key).expect("a key that is there")).sum()
    }

    fn scan(&mut self, batch: &Batch<'_>, rows: usize) -> u64 {
        let guard = self.pin();
        let mut sum = 0;
        for (key, _) in batch.iter() {
            guard.scan(key, rows, |key, number| sum += number + key.len() as u64);
        }
        sum
    }
}

/// The adaptive radix tree of the crate `artmap`.
pub struct Art(artmap::ArtMap<Vec<u8>, Record>);

impl Map for Art {
    type Worker<'m> = &'m Art;

    fn empty() -> Art {
        Art(artmap::ArtMap::new())
    }

    fn worker(&self) -> &Art {
        self
    }
}

impl Worker for &Art {
    fn insert(&mut self, batch: &Batch<'_>) -> u64 {
        let guard = self.0.pin();
        let insert = |(key, number): (&[u8], u64)| {
            self.0.insert_with_guard(key.to_vec(), record(number), &guard).is_none()
        };
        batch.iter().map(|row| u64::from(insert(row))).sum()
    }

    fn get(&mut self, batch: &Batch<'_>) -> u64 {
        let guard = self.0.pin();
        let get = |key: &[u8]| self.0.get_with_guard(key, &guard).expect("a key that is there")[0];
        batch.iter().map(|(key, _)| get(key)).sum()
    }

    fn scan(&mut self, batch: &Batch<'_>, rows: usize) -> u64 {
        let guard = self.0.pin();
        let mut sum = 0;
        for (key, _) in batch.iter() {
            let range = self.0.range_with_guard::<_, [u8]>(from(key), &guard);
            for entry in range.take(rows) {
                sum += entry.value()[0] + entry.key().len() as u64;
            }
        }
        sum
    }
}

/// A B+-tree with lock-free reads.
pub struct Tree(scc::TreeIndex<Key, Record>);

impl Map for Tree {
    type Worker<'m> = &'m Tree;

    fn empty() -> Tree {
        Tree(scc::TreeIndex::new())
    }

    fn worker(&self) -> &Tree {
        self
    }
}

impl Worker for &Tree {
    fn insert(&mut self, batch: &Batch<'_>) -> u64 {
        // Held over the batch, so that the one each operation takes costs little.
        let _guard = scc::Guard::new();
        let insert = |(key, number): (&[u8], u64)| {
            u64::from(self.0.insert_sync(key.into(), record(number)).is_ok())
        };
        batch.iter().map(insert).sum()
    }

    fn get(&mut self, batch: &Batch<'_>) -> u64 {
        let guard = scc::Guard::new();
        let get = |key: &[u8]| self.0.peek(key, &guard).expect("a key that is there")[0];
        batch.iter().map(|(key, _)| get(key)).sum()
    }

    fn scan(&mut self, batch: &Batch<'_>, rows: usize) -> u64 {
        let guard = scc::Guard::new();
        let mut sum = 0;
        for (key, _) in batch.iter() {
            let range = self.0.range::<[u8], _>(from(key), &guard);
            for (key, record) in range.take(rows) {
                sum += record[0] + key.len() as u64;
            }
        }
        sum
    }
}

/// A lock-free skip list.
pub struct Skip(crossbeam_skiplist::SkipMap<Key, Record>);

impl Map for Skip {
    type Worker<'m> = &'m Skip;

    fn empty() -> Skip {
        Skip(crossbeam_skiplist::SkipMap::new())
    }

    fn worker(&self) -> &Skip {
        self
    }
}

impl Worker for &Skip {
    fn insert(&mut self, batch: &Batch<'_>) -> u64 {
        let insert = |(key, number): (&[u8], u64)| {
            self.0.insert(key.into(), record(number));
            1
        };
        batch.iter().map(insert).sum()
    }

    fn get(&mut self, batch: &Batch<'_>) -> u64 {
        let get = |key: &[u8]| self.0.get(key).expect("a key that is there").value()[0];
        batch.iter().map(|(key, _)| get(key)).sum()
    }

    fn scan(&mut self, batch: &Batch<'_>, rows: usize) -> u64 {
        let mut sum = 0;
        for (key, _) in batch.iter() {
            for entry in self.0.range::<[u8], _>(from(key)).take(rows) {
                sum += entry.value()[0] + entry.key().len() as u64;
            }
        }
        sum
    }
}

/// What the standard library has, behind one lock: for scale.
pub struct Locked(RwLock<BTreeMap<Key, Record>>);

impl Map for Locked {
    type Worker<'m> = &'m Locked;

    fn empty() -> Locked {
        Locked(RwLock::new(BTreeMap::new()))
    }

    fn worker(&self) -> &Locked {
        self
    }
}

impl Worker for &Locked {
    fn insert(&mut self, batch: &Batch<'_>) -> u64 {
        let insert = |(key, number): (&[u8], u64)| {
            let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
            u64::from(map.insert(key.into(), record(number)).is_none())
        };
        batch.iter().map(insert).sum()
    }

    fn get(&mut self, batch: &Batch<'_>) -> u64 {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        batch.iter().map(|(key, _)| map.get(key).expect("a key that is there")[0]).sum()
    }

    fn scan(&mut self, batch: &Batch<'_>, rows: usize) -> u64 {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut sum = 0;
        for (key, _) in batch.iter() {
            for (key, record) in map.range::<[u8], _>(from(key)).take(rows) {
                sum += record[0] + key.len() as u64;
            }
        }
        sum
    }
}
