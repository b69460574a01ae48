//! Votes on disk, in clusters whose nodes have logs there: a process that begins with the log of a former one has its votes.
//!
//! ```text
//!   follower: votes ──► record ─ durable ──► Vote
//!   leader:   releases ──► entry in the log of its node ─ durable ──► Vote
//!   promises a ballot ──► the log has recorded it ─ durable ──► List
//!   restart: what the log has accepted ──► records ──► the tentative list, without what the log has or rules out
//! ```
//! A record is a tentative list, of one entry or of all. All of them are in one record where those before it are void: when a
//! process or a checkpoint begins, when a leadership or a ballot has ended, and when records have become many.
//!
//! Invariant: what a replica has voted for, and sent, is in its tentative list or in its log after a restart (E11). It may have
//! more than before: what was dropped since it was voted for, if the log does not show why. Nothing of that was committed.
//!
//! Leaders vote for nothing before they have agreed on it: only what stands in the log is durable with that.

use crate::message::Envelope;
use crate::planted_bugs::TigaPlantedBug;
use crate::record::TentativeList;
use crate::replica::Replica;
use crate::stamp::ArrivalTimes;
use crate::step::{Step, VoteRecord};
use crate::tentative::{Tentative, TentativeEntries};
use crate::transaction::{History, Work};
use bytes::Bytes;
use shoal_engine::TransactionId;
use shoal_types::ShardId;
use shoal_types::wire::{decode, encode};

/// So many times as much as may be undecided is recorded before the records are replaced by one of the list.
const RECORDED_WINDOWS_MAX: usize = 8;

impl Step<'_> {
    /// Sends this once all that the replica of the shard has recorded is durable: at once where nodes keep nothing on disk.
    pub(crate) fn send_when_durable(&mut self, shard: ShardId, sends: Vec<Envelope>) {
        self.record(shard, Bytes::new(), sends);
    }

    fn record(&mut self, shard: ShardId, record: Bytes, mut sends: Vec<Envelope>) {
        if !self.is_recorded || self.options.bugs.has(TigaPlantedBug::SendUnrecorded) {
            self.output.sends.append(&mut sends);
        }
        if self.is_recorded {
            let (is_first, voids) = (false, false);
            self.output.records.push(VoteRecord { shard, record, is_first, voids, sends });
        }
    }
}

impl Replica {
    /// Sends the vote for an entry of the tentative list once that is durable.
    pub(crate) fn send_vote(&mut self, step: &mut Step<'_>, id: TransactionId, vote: Envelope) {
        if !step.is_recorded {
            return step.output.sends.push(vote);
        }
        let entries = self.tentative.get(id).map(Tentative::candidate).into_iter().collect();
        let record = encode(&TentativeList { base: self.base, entries });
        self.recorded_bytes += record.len();
        step.record(self.shard, record, vec![vote]);
        if self.recorded_bytes > RECORDED_WINDOWS_MAX * step.options.window_bytes {
            self.record_list(step);
        }
    }

    /// Whether this replica knows what it has voted for in former processes: before, it neither votes nor gives lists.
    pub(crate) fn has_votes(&self, step: &Step<'_>) -> bool {
        self.has_records || !step.is_recorded
    }

    /// Records all of the tentative list.
    pub(crate) fn record_list(&mut self, step: &mut Step<'_>) {
        self.record_all(step, false);
    }

    /// The same, where a leadership or a ballot has ended: what waits to be sent is void.
    pub(crate) fn record_end(&mut self, step: &mut Step<'_>) {
        self.record_all(step, true);
    }

    fn record_all(&mut self, step: &mut Step<'_>, voids: bool) {
        if step.is_recorded && self.has_records {
            let entries = self.tentative.candidates();
            let record = encode(&TentativeList { base: self.base, entries });
            self.recorded_bytes = record.len();
            let (shard, is_first, sends) = (self.shard, true, Vec::new());
            step.output.records.push(VoteRecord { shard, record, is_first, voids, sends });
        }
    }

    /// Takes the records of former processes, once the log is as they have left it, and records anew what counts.
    ///
    /// # Panics
    /// If one is no record of a replica: the files were checked.
    pub fn read_records(&mut self, step: &mut Step<'_>, records: &[Bytes]) {
        self.has_records = true;
        if !step.options.bugs.has(TigaPlantedBug::ForgetRecords) {
            self.take_records(records);
        }
        self.record_list(step);
    }

    fn take_records(&mut self, records: &[Bytes]) {
        let list = |record: &Bytes| decode::<TentativeList>(record).expect("a record was checked");
        let lists: Vec<TentativeList> = records.iter().map(list).collect();
        let last = lists.iter().map(|list| list.base).max().unwrap_or_default();
        self.base = self.base.max(last);
        if self.ledger.base.ballot > self.base {
            return; // A start record that is decided has what counts of all lists.
        }
        let of_base = lists.into_iter().filter(|list| list.base == self.base);
        let mut found = TentativeEntries::default();
        for candidate in of_base.flat_map(|list| list.entries) {
            let stamp = candidate.stamp();
            let is_over = stamp.t <= self.ledger.seal || self.ledger.will_be_refused(stamp.id);
            let Some(work) = Work::new(&candidate.transaction, self.shard) else { continue };
            if is_over || self.ledger.has_recent(stamp.id) {
                continue;
            }
            let (digest, predecessors) = (candidate.digest, candidate.predecessors);
            let (history, times) = (History { digest, predecessors }, ArrivalTimes::default());
            found.insert(Tentative::new(stamp, work, history, true, times));
        }
        // What the log has, or had under the ballot that ended, has dropped what stood behind it (E1).
        let kept = self.tentative.iter().map(|it| (it.stamp, it.work.clone()));
        let in_log = self.ledger.recent.values().chain(self.ledger.undecided());
        let in_log = in_log.filter_map(|record| {
            Some((record.stamp(), Work::new(&record.transaction, self.shard)?))
        });
        for (stamp, work) in kept.chain(in_log) {
            found.remove(stamp.id);
            found.drop_behind(stamp, &work);
        }
        for tentative in found.into_entries() {
            self.conflicts.note(&tentative.work.locks, tentative.stamp.t);
            self.tentative.insert(tentative);
        }
    }
}
