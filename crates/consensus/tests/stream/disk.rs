//! A storage whose changes become durable late, one after the other, or never.

use bytes::Bytes;
use shoal_consensus::stream::{Length, Log, MemoryStorage, Persisted, Storage};
use std::collections::VecDeque;
use types::Ballot;

/// What the replica sees, what the disk has, and the states on the way from one to the other.
#[derive(Debug, Clone)]
pub struct Disk {
    seen: MemoryStorage,
    durable: MemoryStorage,
    pending: VecDeque<MemoryStorage>,
    late: bool,
}

impl Disk {
    /// An empty one; `late` if somebody will say when it is done.
    pub fn new(late: bool) -> Disk {
        Disk {
            seen: MemoryStorage::new(),
            durable: MemoryStorage::new(),
            pending: VecDeque::new(),
            late,
        }
    }

    /// Makes the next `count` changes durable.
    pub fn flush(&mut self, count: usize) {
        let count = count.min(self.pending.len());
        if let Some(state) = self.pending.drain(..count).next_back() {
            self.durable = state;
        }
    }

    /// What a crash leaves.
    pub fn crash(&mut self) {
        if self.late {
            self.seen = self.durable.clone();
        }
        self.pending.clear();
    }

    fn change(&mut self, change: impl FnOnce(&mut MemoryStorage)) {
        change(&mut self.seen);
        if self.late {
            self.pending.push_back(self.seen.clone());
        }
    }
}

impl Storage for Disk {
    fn promised(&self) -> Ballot {
        self.seen.promised()
    }

    fn accepted_ballot(&self) -> Ballot {
        self.seen.accepted_ballot()
    }

    fn decided(&self) -> Length {
        self.seen.decided()
    }

    fn log(&self) -> &Log {
        self.seen.log()
    }

    fn persisted(&self) -> Persisted {
        if self.late { self.durable.persisted() } else { self.seen.persisted() }
    }

    fn promise(&mut self, ballot: Ballot) {
        self.change(|storage| storage.promise(ballot));
    }

    fn append(&mut self, entry: Bytes) {
        self.change(|storage| storage.append(entry));
    }

    fn replace(&mut self, ballot: Ballot, from: Length, entries: Vec<Bytes>) {
        self.change(|storage| storage.replace(ballot, from, entries));
    }

    fn decide(&mut self, decided: Length) {
        self.change(|storage| storage.decide(decided));
    }

    fn trim(&mut self, before: Length) {
        self.change(|storage| storage.trim(before));
    }

    fn restore(&mut self, length: Length) {
        self.change(|storage| storage.restore(length));
    }
}
