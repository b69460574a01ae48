//! What a follower has released and not synced: its tentative list (E11), and what a transaction rests on.
//!
//! A vote is final, and so is its digest. Digests that were not voted are computed again when that changes on which they rest.

use crate::digest::{Digest, Resource, key_resource, table_resource};
use crate::ledger::Ledger;
use crate::locks::{Lock, LockIndex, Mode};
use crate::planted_bugs::TigaPlantedBug;
use crate::record::{Candidate, Record};
use crate::stamp::{ArrivalTimes, Stamp};
use crate::step::Step;
use crate::transaction::{History, KeyAccess, Predecessor, Work};
use shoal_engine::TransactionId;
use shoal_types::{ShardId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A released transaction that is not synced.
#[derive(Debug, Clone)]
pub struct Tentative {
    /// Where it stands.
    pub stamp: Stamp,
    /// What it does.
    pub work: Work,
    /// What it rests on.
    pub history: History,
    /// The transaction was voted for, or stood in a log.
    pub is_voted: bool,
    /// Why it was not voted for when that was looked at last.
    pub waits_for: Option<Predecessor>,
    /// When it was sent, and when it arrived.
    pub times: ArrivalTimes,
}

impl Tentative {
    /// A transaction that is released and not synced.
    #[must_use]
    pub fn new(
        stamp: Stamp,
        work: Work,
        history: History,
        is_voted: bool,
        times: ArrivalTimes,
    ) -> Tentative {
        Tentative { stamp, work, history, is_voted, waits_for: None, times }
    }

    /// As it stands in a list.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        Candidate {
            t: self.stamp.t,
            digest: self.history.digest,
            predecessors: self.history.predecessors.clone(),
            transaction: Arc::clone(&self.work.transaction),
        }
    }

    /// Its bytes in a list.
    fn bytes(&self) -> usize {
        self.work.bytes + self.history.bytes()
    }
}

/// The tentative list of a replica.
#[derive(Debug, Default)]
pub struct TentativeEntries {
    entries: BTreeMap<TransactionId, Tentative>,
    stamps: BTreeSet<Stamp>,
    locks: LockIndex,
    withheld: BTreeSet<Stamp>,
    /// The bytes of all, as they would stand in a list.
    bytes: usize,
}

impl TentativeEntries {
    /// Adds a transaction; one that is there already is replaced.
    pub fn insert(&mut self, tentative: Tentative) {
        self.remove(tentative.stamp.id);
        self.locks.add(tentative.stamp, &tentative.work.locks);
        self.bytes += tentative.bytes();
        if !tentative.is_voted {
            self.withheld.insert(tentative.stamp);
        }
        self.stamps.insert(tentative.stamp);
        self.entries.insert(tentative.stamp.id, tentative);
    }

    /// Takes a transaction out.
    pub fn remove(&mut self, id: TransactionId) -> Option<Tentative> {
        let tentative = self.entries.remove(&id)?;
        self.locks.remove(tentative.stamp, &tentative.work.locks);
        self.bytes -= tentative.bytes();
        self.withheld.remove(&tentative.stamp);
        self.stamps.remove(&tentative.stamp);
        Some(tentative)
    }

    /// The transaction of this name.
    #[must_use]
    pub fn get(&self, id: TransactionId) -> Option<&Tentative> {
        self.entries.get(&id)
    }

    /// The transaction is voted for now.
    pub fn vote(&mut self, id: TransactionId, history: History) {
        if let Some(tentative) = self.entries.get_mut(&id) {
            self.withheld.remove(&tentative.stamp);
            self.bytes -= tentative.bytes();
            (tentative.is_voted, tentative.history) = (true, history);
            self.bytes += tentative.bytes();
        }
    }

    /// The vote for the transaction waits for this one.
    pub fn withhold(&mut self, id: TransactionId, waits_for: Predecessor) {
        if let Some(tentative) = self.entries.get_mut(&id) {
            tentative.waits_for = Some(waits_for);
        }
    }

    /// Whether no vote may rest on this transaction, which is released: it is of several shards and not synced, or not voted
    /// for itself (rule T5).
    #[must_use]
    pub fn is_open(&self, before: &Predecessor) -> bool {
        let tentative = self.entries.get(&before.stamp.id);
        tentative.is_some_and(|it| before.is_multi || !it.is_voted)
    }

    /// The first ones that were not voted for and may be now, in their order.
    #[must_use]
    pub fn withheld(&self, most: usize) -> Vec<TransactionId> {
        let waits = |stamp: &&Stamp| {
            let waits_for = self.entries.get(&stamp.id).and_then(|it| it.waits_for.as_ref());
            waits_for.is_some_and(|before| self.is_open(before))
        };
        let may_be = self.withheld.iter().filter(|stamp| !waits(stamp));
        may_be.take(most).map(|stamp| stamp.id).collect()
    }

    /// Drops those that conflict with a synced one and have smaller stamps (E1). Returns how many.
    pub fn drop_behind(&mut self, stamp: Stamp, work: &Work) -> usize {
        let mut behind: Vec<Stamp> = self.locks.before(stamp, &work.locks).collect();
        behind.sort_unstable();
        behind.dedup();
        behind.iter().for_each(|stamp| drop(self.remove(stamp.id)));
        behind.len()
    }

    /// Drops those at or below a seal: they are in the log, or never come.
    pub fn drop_sealed(&mut self, seal: Time) {
        while let Some(stamp) = self.stamps.first().copied().filter(|stamp| stamp.t <= seal) {
            self.remove(stamp.id);
        }
    }

    /// The transactions in it.
    pub fn ids(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.entries.keys().copied()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Tentative> {
        self.entries.values()
    }

    /// All of them, taken out.
    pub fn into_entries(self) -> impl Iterator<Item = Tentative> {
        self.entries.into_values()
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        *self = TentativeEntries::default();
    }

    /// The bytes of all, as they would stand in a list.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// As a voter gives them to a new leader: those that it has voted for.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let voted = self.entries.values().filter(|it| it.is_voted);
        let mut candidates: Vec<Candidate> = voted.map(Tentative::candidate).collect();
        candidates.sort_by_key(Candidate::stamp);
        candidates
    }

    /// Keeps records that were accepted and not decided when their ballot ended: a vote may have rested on each. They come
    /// in the order of the log.
    pub fn keep_undecided(&mut self, shard: ShardId, records: &[Arc<Record>]) {
        let mut before = UndecidedWriters::default();
        for record in records {
            let Some(work) = Work::new(&record.transaction, shard) else { continue };
            let predecessors = before.of(&work);
            let history = History { digest: record.digest, predecessors };
            let stamp = record.stamp();
            before.add(stamp, &work);
            let times = ArrivalTimes::default();
            self.insert(Tentative::new(stamp, work, history, true, times));
        }
    }
}

/// Undecided records by what they have written, for those that rest on them directly.
#[derive(Debug, Default)]
struct UndecidedWriters {
    keys: BTreeMap<Resource, Predecessor>,
    /// All that have written something, for those that read ranges; and those that wrote ranges.
    all: LockIndex,
    ranges: LockIndex,
    is_multi: BTreeMap<Stamp, bool>,
}

impl UndecidedWriters {
    fn add(&mut self, stamp: Stamp, work: &Work) {
        let is_multi = work.transaction.is_multi();
        let part = work.part();
        for key in &part.writes {
            let resource = key_resource(key.table, &key.key);
            self.keys.insert(resource, Predecessor { stamp, is_multi });
        }
        let writes = |lock: &&Lock| matches!(lock.mode, Mode::Write | Mode::IntendWrite);
        let written: Vec<Lock> = work.locks.iter().filter(writes).copied().collect();
        self.all.add(stamp, &written);
        if part.ranges.iter().any(|range| range.writes) {
            self.ranges.add(stamp, &written);
        }
        self.is_multi.insert(stamp, is_multi);
    }

    fn of(&self, work: &Work) -> Vec<Predecessor> {
        let part = work.part();
        let keys = work.keys().map(|key| key_resource(key.table, &key.key));
        let keys = keys.filter_map(|resource| self.keys.get(&resource));
        let mut found: BTreeMap<Stamp, bool> =
            keys.map(|before| (before.stamp, before.is_multi)).collect();
        let reads_range = part.ranges.iter().any(|range| range.reads);
        let index = if reads_range { &self.all } else { &self.ranges };
        found.extend(index.rivals(&work.locks).map(|stamp| (stamp, self.is_multi[&stamp])));
        let found = found.into_iter();
        found.map(|(stamp, is_multi)| Predecessor { stamp, is_multi }).collect()
    }
}

/// What a transaction at `stamp` rests on: the log, and the tentative entries with smaller stamps.
#[must_use]
pub fn history(
    step: &Step<'_>,
    ledger: &Ledger,
    tentative: &TentativeEntries,
    stamp: Stamp,
    work: &Work,
) -> History {
    let mut found = Found { ledger, tentative, stamp, predecessors: BTreeMap::new() };
    let mut digester = work.digester(stamp.t);
    let part = work.part();
    let covers_reads_alone = step.options.bugs.has(TigaPlantedBug::BlindWriteWithoutHistory);
    let keys = if covers_reads_alone { part.reads.len() } else { usize::MAX };
    for key in work.keys().take(keys) {
        digester.digest(found.key(key));
    }
    if !step.options.bugs.has(TigaPlantedBug::DigestWithoutReaders) {
        for key in &part.writes {
            digester.digest(found.readers(key));
        }
    }
    for range in part.ranges.iter().filter(|range| range.reads) {
        digester.digest(found.range(range.resource()));
        digester.digest(found.range_writers(table_resource(range.table)));
    }
    let predecessors = found.predecessors.into_iter();
    let predecessors =
        predecessors.map(|(stamp, is_multi)| Predecessor { stamp, is_multi }).collect();
    History { digest: digester.finish(), predecessors }
}

struct Found<'f> {
    ledger: &'f Ledger,
    tentative: &'f TentativeEntries,
    stamp: Stamp,
    predecessors: BTreeMap<Stamp, bool>,
}

impl Found<'_> {
    /// The digest of the last writer of a key, with those of ranges that hold it.
    fn key(&mut self, access: &KeyAccess) -> Digest {
        let KeyAccess { table, key, .. } = access;
        let resource = key_resource(*table, key);
        let last = self.tentative.locks.last_writer(self.stamp, resource);
        let digest = match last {
            Some(last) => self.tentative_digest(last),
            None => {
                if let Some(writer) = self.ledger.rows.undecided_writer(*table, key) {
                    self.predecessors.insert(writer.stamp, writer.is_multi);
                }
                self.ledger.rows.get(*table, key).map_or(Digest::NONE, |row| row.digest)
            }
        };
        access.around().fold(digest, |sum, range| sum.plus(self.range_writers(range)))
    }

    /// The sum of the digests of those that have read a key since it was written last, and of those that have read a range that holds
    /// it: what overwrites the key comes behind them.
    fn readers(&mut self, access: &KeyAccess) -> Digest {
        let KeyAccess { table, key, .. } = access;
        let resource = key_resource(*table, key);
        let last = self.tentative.locks.last_writer(self.stamp, resource);
        let mut sum = match last {
            Some(_) => Digest::NONE,
            None => self.ledger.rows.readers(*table, key),
        };
        let locks = &self.tentative.locks;
        let mut readers: Vec<Stamp> = locks.readers(last, self.stamp, resource).collect();
        for range in access.around() {
            sum = sum.plus(self.ledger.rows.range_readers(range));
            readers.extend(locks.readers(None, self.stamp, range));
        }
        readers.into_iter().fold(sum, |sum, reader| sum.plus(self.tentative_digest(reader)))
    }

    fn tentative_digest(&mut self, stamp: Stamp) -> Digest {
        let tentative = &self.tentative.entries[&stamp.id];
        self.predecessors.insert(stamp, tentative.work.transaction.is_multi());
        tentative.history.digest
    }

    /// The sum of the digests of all that have written something within a range.
    fn range(&mut self, resource: u64) -> Digest {
        let mut sum = self.ledger.rows.range(resource).writers;
        let writers: Vec<_> = self.tentative.locks.writers(self.stamp, resource).collect();
        for (stamp, _) in writers {
            sum = sum.plus(self.tentative_digest(stamp));
        }
        let undecided = self.ledger.rows.undecided_writers(resource);
        self.predecessors.extend(undecided.map(|writer| (writer.stamp, writer.is_multi)));
        sum
    }

    /// The sum of the digests of those that have written a range as a whole.
    fn range_writers(&mut self, resource: u64) -> Digest {
        let rows = &self.ledger.rows;
        let mut sum = match rows.has_range_writers {
            true => rows.range(resource).range_writers,
            false => Digest::NONE,
        };
        if self.tentative.locks.last_writer(self.stamp, resource).is_some() {
            let writers = self.tentative.locks.writers(self.stamp, resource);
            let whole = writers.filter(|(_, mode)| *mode == Mode::Write).map(|(stamp, _)| stamp);
            for stamp in whole.collect::<Vec<_>>() {
                sum = sum.plus(self.tentative_digest(stamp));
            }
        }
        sum
    }
}
