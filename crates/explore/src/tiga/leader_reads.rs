//! Reads that a leader answers at once, and that nothing certifies.

use super::Tiga;
use super::release::At;
use super::rules::Rule;
use super::state::{Entry, Origin, Queued, State};

impl Tiga {
    pub(super) fn is_read(&self, id: u8) -> bool {
        self.scenario.transactions[id as usize].is_read
    }

    /// The leader appointed last may answer: what the transaction reads is stable, and nothing that may be released elsewhere,
    /// or committed, waits in front of it.
    pub(super) fn can_read(&self, state: &State, at: At, id: u8) -> bool {
        let (shard, replica) = at;
        let of = &state.shards[shard];
        let may_lead = self.is_read(id) && self.access(id, shard).is_some();
        let (Some(leader), true) = (self.serving(state, at), may_lead) else { return false };
        let stable = self.stable(state, shard, self.ballot_of(state, at));
        let conflicts = |entry: &Entry| self.conflict(shard, entry.id, id);
        let may_be_released = |queued: &Queued| {
            let is_promised = queued.promised.is_some() && self.holds(Rule::T11);
            queued.origin != Origin::Accepted || is_promised && self.conflict(shard, queued.id, id)
        };
        state.committed_before[id as usize].is_none()
            && of.leader() == Some(replica)
            && !of.log_of(replica).iter().skip(stable).any(conflicts)
            && !leader.queue.iter().any(may_be_released)
    }

    /// The leader answers: the transaction is committed behind what it has read, and in front of all else.
    pub(super) fn read(&self, state: &mut State, (shard, replica): At, id: u8) {
        let log = state.shards[shard].log_of(replica).iter();
        let read = log.filter(|entry| self.conflict(shard, entry.id, id));
        state.read_behind[id as usize] = read.fold(0, |bits, entry| bits | 1 << entry.id);
        state.committed_before[id as usize] = Some(state.committed);
        state.committed |= 1 << id;
    }
}
