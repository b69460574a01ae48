//! Read-only transactions at replicas (§5.3): all reads, then all checks.

use super::data::{Granule, NodeId};
use super::rules::Rule;
use super::state::{Seen, Status};
use super::step::Step;

impl Step<'_> {
    /// The transaction can take its next step.
    pub(super) fn can_read(&self, number: usize) -> bool {
        let transaction = &self.scenario.transactions[number];
        let (at, granules) = (transaction.node, transaction.reads);
        let has_lease = self.state.is_member(at) || !self.keeps(Rule::Lease);
        if !has_lease || !self.node(at).is_alive {
            return false;
        }
        let state = &self.state.transactions[number];
        match state.status {
            Status::Waiting => {
                let holds_all = granules.iter().all(|granule| self.has_reader_level(at, granule));
                holds_all && granules.iter().next().is_some_and(|first| self.shows(at, first))
            }
            Status::Reading { checked } => {
                let Some(next) = granules.iter().nth(state.seen.len()) else {
                    // Without the rule, a row that is still pending is waited for.
                    let waits = !self.keeps(Rule::WaitBeforeRead);
                    let check = granules.iter().nth(usize::from(checked));
                    let seen = state.seen[usize::from(checked)];
                    return check.is_none_or(|check| {
                        let row = &self.holding(at, check).row;
                        !waits || row.is_valid || row.version != seen.version
                    });
                };
                self.shows(at, next) || !self.has_reader_level(at, next)
            }
            Status::Pending | Status::Answered | Status::Lost => false,
        }
    }

    fn has_reader_level(&self, node: NodeId, granule: Granule) -> bool {
        let holding = self.holding(node, granule);
        holding.is_replica && holding.serves
    }

    /// The row may be read: it is validated, and held at reader level.
    fn shows(&self, node: NodeId, granule: Granule) -> bool {
        self.has_reader_level(node, granule)
            && (self.is_shown(node, granule) || !self.keeps(Rule::WaitBeforeRead))
    }

    fn is_shown(&self, node: NodeId, granule: Granule) -> bool {
        let holding = self.holding(node, granule);
        let own = !self.keeps(Rule::ReadValidated) && holding.record.owner == Some(node);
        holding.row.is_valid || own
    }

    /// Reads the next granule, or checks the next, or restarts if it cannot.
    pub(super) fn read_on(&mut self, number: usize) {
        let transaction = &self.scenario.transactions[number];
        let (at, granules) = (transaction.node, transaction.reads);
        let read = self.state.transactions[number].seen.len();
        let checked = match self.state.transactions[number].status {
            Status::Reading { checked } => checked,
            Status::Waiting | Status::Pending | Status::Answered | Status::Lost => {
                self.state.transactions[number].after = self.answered();
                0
            }
        };
        if let Some(granule) = granules.iter().nth(read) {
            if !self.shows(at, granule) {
                return self.restart(number);
            }
            let holding = self.holding(at, granule);
            let seen = Seen { version: holding.row.version, o_ts: holding.record.o_ts };
            let writers = holding.row.writers.clone();
            let in_time = self.keeps(Rule::CheckAfterReads);
            let state = &mut self.state.transactions[number];
            state.seen.push(seen);
            state.reads.push((granule, writers));
            state.status = Status::Reading { checked: 0 };
            if !in_time && state.seen.len() == granules.len() as usize {
                self.answer(number);
            }
            return;
        }
        let at_check = granules.iter().nth(usize::from(checked));
        let Some(granule) = at_check else { return };
        let seen = self.state.transactions[number].seen[usize::from(checked)];
        let holding = self.holding(at, granule);
        let is_same = holding.row.version == seen.version && holding.record.o_ts == seen.o_ts;
        if !is_same || !self.is_shown(at, granule) || !self.has_reader_level(at, granule) {
            return self.restart(number);
        }
        self.state.transactions[number].status = Status::Reading { checked: checked + 1 };
        if u32::from(checked) + 1 == granules.len() {
            self.answer(number);
        }
    }

    pub(super) fn restart(&mut self, number: usize) {
        let state = &mut self.state.transactions[number];
        (state.status, state.after) = (Status::Waiting, Default::default());
        state.reads.clear();
        state.seen.clear();
    }
}
