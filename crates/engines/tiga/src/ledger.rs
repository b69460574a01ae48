//! A replica's copy of the log's state: what is decided, and what is accepted and not decided.
//!
//! The state follows from the entries alone, so that every replica that has applied the same entries has the same.

use crate::record::{Base, Candidate, Entry, Record, Refusal, others};
use crate::rows::Rows;
use crate::stamp::Stamp;
use crate::transaction::PREDECESSOR_BYTES;
use shoal_engine::TransactionId;
use shoal_types::{NodeId, ShardId, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// What is kept of one coordinator's transactions: records, for its questions; and the numbers of those that were refused, for
/// recoveries, too.
#[derive(Debug, Default)]
pub(crate) struct Coordinated {
    pub(crate) oldest: u64,
    pub(crate) records: BTreeMap<u64, Arc<Record>>,
    /// Each with the timestamp at which it was voted for at the latest. Until that is sealed, voters may have it in their lists.
    pub(crate) refused: BTreeMap<u64, Time>,
}

impl Coordinated {
    /// Transactions before `oldest` are over, and what stands at or below the seal is in the log or never comes.
    fn advance(&mut self, oldest: u64, seal: Time) {
        if oldest > self.oldest {
            self.oldest = oldest;
            self.records = self.records.split_off(&oldest);
            let not_over = self.refused.split_off(&oldest);
            self.refused.retain(|_, t| *t > seal);
            self.refused.extend(not_over);
        }
    }
}

/// A decided transaction of several shards that some participant may not have yet.
#[derive(Debug, Clone)]
pub struct Unsettled {
    /// The transaction's record on this shard.
    pub record: Arc<Record>,
    /// Participants that have not said that they have it decided.
    pub waits_for: BTreeSet<ShardId>,
}

/// A replica's copy of a shard.
#[derive(Debug)]
pub struct Ledger {
    shard: ShardId,
    /// What the entries have written, decided or not.
    pub rows: Rows,
    /// How many entries are decided and applied.
    pub applied: u64,
    /// Nothing at or below it comes any more.
    pub seal: Time,
    /// The last record of a recovery.
    pub base: Base,
    /// Candidates of that record that were not released since.
    pub recorded: BTreeMap<TransactionId, Candidate>,
    /// Decided records above the seal.
    pub recent: BTreeMap<Stamp, Arc<Record>>,
    recent_ids: BTreeMap<TransactionId, Time>,
    /// Decided transactions of several shards that some participant may not have.
    pub unsettled: BTreeMap<TransactionId, Unsettled>,
    pub(crate) coordinated: BTreeMap<(NodeId, WorkerId), Coordinated>,
    /// Entries that are accepted and not decided, the first with the index `applied`.
    undecided: VecDeque<Entry>,
    /// The records among them, and how many bytes each counts for.
    undecided_records: BTreeMap<TransactionId, (Arc<Record>, usize)>,
    /// The bytes of all of these.
    undecided_bytes: usize,
}

impl Ledger {
    /// The ledger of a replica that has nothing.
    #[must_use]
    pub fn new(shard: ShardId) -> Ledger {
        Ledger {
            shard,
            rows: Rows::default(),
            applied: 0,
            seal: Time::ZERO,
            base: Base::default(),
            recorded: BTreeMap::new(),
            recent: BTreeMap::new(),
            recent_ids: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            coordinated: BTreeMap::new(),
            undecided: VecDeque::new(),
            undecided_records: BTreeMap::new(),
            undecided_bytes: 0,
        }
    }

    /// How many entries are accepted and not decided.
    #[must_use]
    pub fn undecided_entries(&self) -> usize {
        self.undecided.len()
    }

    /// The bytes of the records that are accepted and not decided, as they would stand in a list.
    #[must_use]
    pub fn undecided_bytes(&self) -> usize {
        self.undecided_bytes
    }

    /// How many entries are accepted, decided or not.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.applied + self.undecided.len() as u64
    }

    /// An entry is accepted behind all others. Its records may have been appended before, by
    /// [`append_record`](Ledger::append_record).
    pub fn append(&mut self, entry: Entry) {
        let index = self.length();
        if let Entry::Batch { records, .. } = &entry {
            for record in records {
                if !self.undecided_records.contains_key(&record.id()) {
                    self.append_record(record, index, record.bytes(), 0);
                }
            }
        }
        self.undecided.push_back(entry);
    }

    /// A leader has released a transaction of so many bytes, whose entry will have this index, and which rests on so many that
    /// are not decided.
    pub fn append_record(
        &mut self,
        record: &Arc<Record>,
        index: u64,
        bytes: usize,
        predecessors: usize,
    ) {
        let Some(place) = record.transaction.place(self.shard) else { return };
        self.rows.append(&record.transaction.parts[place], record, index);
        let bytes = bytes + predecessors * PREDECESSOR_BYTES;
        self.undecided_records.insert(record.id(), (Arc::clone(record), bytes));
        self.undecided_bytes += bytes;
    }

    /// The first entry that is not decided now is. Returns it.
    ///
    /// # Panics
    /// If there is none.
    pub fn decide(&mut self) -> Entry {
        let entry = self.undecided.pop_front().expect("what is decided was accepted");
        match &entry {
            Entry::Batch { records, seal, settled, refused } => {
                for record in records {
                    self.decide_record(record);
                }
                for refusal in refused {
                    self.decide_refusal(refusal);
                }
                settled.iter().for_each(|id| drop(self.unsettled.remove(id)));
                self.advance_seal(*seal);
            }
            Entry::Start { ballot, candidates } => {
                let base = Base { ballot: *ballot, is_final: false, voters: Vec::new() };
                self.record_base(base, candidates);
            }
            Entry::Final { ballot, voters, kept } => {
                let base = Base { ballot: *ballot, is_final: true, voters: voters.clone() };
                self.record_base(base, kept);
            }
        }
        self.applied += 1;
        entry
    }

    fn record_base(&mut self, base: Base, candidates: &[Candidate]) {
        self.base = base;
        let all = candidates.iter().map(|it| (it.transaction.id, it.clone()));
        self.recorded = all.collect();
    }

    fn decide_record(&mut self, record: &Arc<Record>) {
        let id = record.id();
        assert!(!self.is_refused(id), "{id} is refused by {}, and stands in its log", self.shard);
        if record.transaction.place(self.shard).is_none() {
            return;
        }
        self.rows.decide(record, self.applied);
        if let Some((_, bytes)) = self.undecided_records.remove(&id) {
            self.undecided_bytes -= bytes;
        }
        self.recorded.remove(&id);
        self.recent.insert(record.stamp(), Arc::clone(record));
        self.recent_ids.insert(id, record.t);
        if record.transaction.is_multi() {
            let waits_for = others(&record.transaction, self.shard).collect();
            self.unsettled.insert(id, Unsettled { record: Arc::clone(record), waits_for });
        }
        let of = self.coordinated.entry((id.node, id.worker)).or_default();
        of.advance(record.transaction.oldest, self.seal);
        if id.sequence >= of.oldest {
            of.records.insert(id.sequence, Arc::clone(record));
        }
    }

    fn decide_refusal(&mut self, refusal: &Refusal) {
        let Refusal { id, oldest, t } = *refusal;
        assert!(
            self.record(id).is_none(),
            "{id} stands in the log of {} and is refused",
            self.shard
        );
        self.recorded.remove(&id);
        let of = self.coordinated.entry((id.node, id.worker)).or_default();
        of.advance(oldest, self.seal);
        if id.sequence >= of.oldest || t > self.seal {
            of.refused.insert(id.sequence, t);
        }
    }

    /// Whether a decided entry refuses a transaction that is not both over and sealed (rule T21).
    #[must_use]
    pub fn is_refused(&self, id: TransactionId) -> bool {
        let of = self.coordinated.get(&(id.node, id.worker));
        of.is_some_and(|of| of.refused.contains_key(&id.sequence))
    }

    /// Whether an entry refuses a transaction, decided or not.
    #[must_use]
    pub fn will_be_refused(&self, id: TransactionId) -> bool {
        let refuses = |entry: &Entry| match entry {
            Entry::Batch { refused, .. } => refused.iter().any(|refusal| refusal.id == id),
            Entry::Start { .. } | Entry::Final { .. } => false,
        };
        self.is_refused(id) || self.undecided.iter().any(refuses)
    }

    fn advance_seal(&mut self, seal: Time) {
        if seal <= self.seal {
            return;
        }
        self.seal = seal;
        while let Some((stamp, _)) = self.recent.first_key_value().filter(|it| it.0.t <= seal) {
            let stamp = *stamp;
            self.recent.remove(&stamp);
            self.recent_ids.remove(&stamp.id);
        }
        self.rows.drop_deleted(seal);
    }

    /// What a snapshot says of a coordinator.
    pub(crate) fn restore_coordinator(
        &mut self,
        of: (NodeId, WorkerId),
        oldest: u64,
        refused: BTreeMap<u64, Time>,
    ) {
        self.coordinated.insert(of, Coordinated { oldest, records: BTreeMap::new(), refused });
    }

    /// A record of a snapshot, and why it is kept.
    pub(crate) fn restore_record(
        &mut self,
        record: &Arc<Record>,
        is_recent: bool,
        is_coordinated: bool,
        waits_for: Option<BTreeSet<ShardId>>,
    ) {
        let id = record.id();
        if is_recent {
            self.recent.insert(record.stamp(), Arc::clone(record));
            self.recent_ids.insert(id, record.t);
        }
        if let Some(waits_for) = waits_for {
            self.unsettled.insert(id, Unsettled { record: Arc::clone(record), waits_for });
        }
        if is_coordinated {
            let of = self.coordinated.entry((id.node, id.worker)).or_default();
            of.records.insert(id.sequence, Arc::clone(record));
        }
    }

    /// The entries from `length` on that are accepted and not decided.
    pub(crate) fn undecided_from(&self, length: u64) -> Vec<Entry> {
        let decided = length.saturating_sub(self.applied) as usize;
        self.undecided.iter().skip(decided).cloned().collect()
    }

    /// What is not decided is void. Returns the records among it, in their order.
    pub fn forget_undecided(&mut self) -> Vec<Arc<Record>> {
        let undecided = std::mem::take(&mut self.undecided);
        let records = undecided.into_iter().flat_map(|entry| match entry {
            Entry::Batch { records, .. } => records,
            Entry::Start { .. } | Entry::Final { .. } => Vec::new(),
        });
        let records: Vec<_> = records.collect();
        self.undecided_records.clear();
        self.undecided_bytes = 0;
        self.rows.forget_undecided();
        records
    }

    /// The record of a transaction, if the log has it and it is not forgotten.
    #[must_use]
    pub fn record(&self, id: TransactionId) -> Option<&Arc<Record>> {
        let unsettled = || self.unsettled.get(&id).map(|it| &it.record);
        let recent = || {
            let t = *self.recent_ids.get(&id)?;
            self.recent.get(&Stamp { t, id })
        };
        let coordinated = || self.coordinated_record(id);
        let undecided = self.undecided_records.get(&id).map(|(record, _)| record);
        undecided.or_else(unsettled).or_else(recent).or_else(coordinated)
    }

    /// The record of a transaction, if it is kept for its coordinator.
    pub(crate) fn coordinated_record(&self, id: TransactionId) -> Option<&Arc<Record>> {
        self.coordinated.get(&(id.node, id.worker))?.records.get(&id.sequence)
    }

    /// Whether the record of a transaction is accepted and not decided.
    #[must_use]
    pub fn is_undecided(&self, id: TransactionId) -> bool {
        self.undecided_records.contains_key(&id)
    }

    /// Whether the log has a transaction that stands above the seal, or that is not decided.
    #[must_use]
    pub fn has_recent(&self, id: TransactionId) -> bool {
        self.recent_ids.contains_key(&id) || self.is_undecided(id)
    }

    /// Records that are accepted and not decided, in their order.
    pub fn undecided(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.undecided.iter().flat_map(|entry| match entry {
            Entry::Batch { records, .. } => &records[..],
            Entry::Start { .. } | Entry::Final { .. } => &[],
        })
    }

    /// Whether the coordinator has said that this transaction is over.
    #[must_use]
    pub fn is_over(&self, id: TransactionId) -> bool {
        let of = self.coordinated.get(&(id.node, id.worker));
        of.is_some_and(|of| id.sequence < of.oldest)
    }

    /// How many records are kept, for each reason.
    #[must_use]
    pub fn sizes(&self) -> [usize; 4] {
        let coordinated = self.coordinated.values().map(|of| of.records.len()).sum();
        [self.undecided.len(), self.recent.len(), self.unsettled.len(), coordinated]
    }
}
