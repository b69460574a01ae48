//! What must hold in every state, when a transaction is answered, and at the end.

use super::data::{Granule, Kind, NodeId, Set};
use super::state::{State, Status};
use super::step::Step;
use crate::model::Violation;

impl Step<'_> {
    /// The transactions that were answered.
    pub(super) fn answered(&self) -> Set {
        let answered = (0..).zip(&self.state.transactions);
        let answered = answered.filter(|(_, state)| state.status == Status::Answered);
        answered.fold(Set::default(), |all, (number, _)| all.with(number))
    }

    /// Answers a transaction, and judges all that were answered.
    pub(super) fn answer(&mut self, number: usize) {
        let state = &mut self.state.transactions[number];
        state.seen.clear();
        state.status = Status::Answered;
        if let Err(what) = self.judge_history() {
            self.break_rule("strict serializability", what);
        }
    }

    /// Strict serializability: one order explains what the transactions have read, and keeps real time.
    fn judge_history(&self) -> Result<(), String> {
        let committed = self.committed();
        let mut before = vec![Set::default(); self.state.transactions.len()];
        for number in committed.iter() {
            before[usize::from(number)] = self.state.transactions[usize::from(number)].after;
        }
        for granule in self.granules() {
            let reads = self.reads_of(committed, granule);
            let order = reads.iter().map(|(_, seen)| seen).max_by_key(|seen| seen.len());
            let Some(order) = order.cloned() else { continue };
            for (number, seen) in reads {
                let read = seen.strip_suffix(&[number]).unwrap_or(&seen);
                if !order.starts_with(&seen) {
                    return Err(format!("T{number} saw {seen:?} of g{granule}, others {order:?}"));
                }
                if let Some(last) = read.last() {
                    let of = &mut before[usize::from(number)];
                    *of = of.with(*last);
                }
                if let Some(next) = order.get(read.len())
                    && *next != number
                {
                    let of = &mut before[usize::from(*next)];
                    *of = of.with(number);
                }
            }
        }
        match has_cycle(&mut before) {
            true => Err(format!("no order explains {}", self.history(committed))),
            false => Ok(()),
        }
    }

    /// Transactions that were answered, and those whose writes they have read.
    fn committed(&self) -> Set {
        let answered = self.answered();
        let states = answered.iter().map(|number| &self.state.transactions[usize::from(number)]);
        let seen = states.flat_map(|state| &state.reads).flat_map(|(_, writers)| writers);
        seen.fold(answered, |all, number| all.with(*number))
    }

    /// What these have seen of a granule; a writer sees its own write, too.
    fn reads_of(&self, of: Set, granule: Granule) -> Vec<(u8, Vec<u8>)> {
        let mut reads = Vec::new();
        for number in of.iter() {
            let state = &self.state.transactions[usize::from(number)];
            let found = state.reads.iter().find(|(read, _)| *read == granule);
            if let Some((_, writers)) = found {
                let mut seen = writers.clone();
                let writes = self.scenario.transactions[usize::from(number)].writes;
                seen.extend(writes.has(granule).then_some(number));
                reads.push((number, seen));
            }
        }
        reads
    }

    fn history(&self, of: Set) -> String {
        let words = of.iter().map(|number| {
            let state = &self.state.transactions[usize::from(number)];
            let reads = state.reads.iter().map(|(granule, seen)| format!("g{granule} by {seen:?}"));
            let reads: Vec<String> = reads.collect();
            let after: Vec<String> = state.after.iter().map(|other| format!("T{other}")).collect();
            let after = match after.is_empty() {
                true => String::new(),
                false => format!(" after {} had been answered", after.join(" ")),
            };
            format!("T{number}, which read {}{after}", reads.join(" and "))
        });
        words.collect::<Vec<String>>().join("; ")
    }

    /// What must hold in every state.
    pub(super) fn check_state(&mut self) {
        let checks =
            [self.state.check_owners(), self.state.check_arbiters(self.scenario.directory)];
        let checks = checks.into_iter().chain([self.state.check_replicas()]);
        if let Some(violation) = checks.filter_map(Result::err).next() {
            self.violation.get_or_insert(violation);
        }
    }

    /// All replicas of a granule are gone: requests for it are refused.
    pub(super) fn is_lost(&self, granule: Granule) -> bool {
        !self.state.members().any(|node| self.holding(node, granule).is_replica)
    }

    /// What is still to be done at members, in words; nothing, if all is answered and validated.
    pub(super) fn unsettled(&self) -> Option<String> {
        let configuration = &self.state.configuration;
        for node in configuration.live.iter() {
            let at = self.node(node);
            if !at.is_alive || at.view.epoch < configuration.epoch {
                return Some(format!("n{node} is not in epoch {}", configuration.epoch));
            }
            if at.is_copying || !at.replays.is_empty() || !at.barrier {
                return Some(format!("n{node} has not recovered"));
            }
            if at.pipelines.iter().any(|worker| !worker.pending.is_empty()) {
                return Some(format!("n{node} has slots that are not validated"));
            }
            for granule in self.granules().filter(|granule| !self.is_lost(*granule)) {
                if let Some(what) = self.unsettled_granule(node, granule) {
                    return Some(format!("n{node} {what} g{granule}"));
                }
            }
        }
        for (number, transaction) in self.scenario.transactions.iter().enumerate() {
            let is_open = match self.state.transactions[number].status {
                Status::Waiting | Status::Reading { .. } | Status::Pending => true,
                Status::Answered | Status::Lost => false,
            };
            let mut touched = transaction.touched().iter();
            let can_run = self.state.is_member(transaction.node);
            if is_open && can_run && !touched.any(|granule| self.is_lost(granule)) {
                return Some(format!("T{number} is not answered"));
            }
        }
        None
    }

    fn unsettled_granule(&self, node: NodeId, granule: Granule) -> Option<String> {
        let holding = self.holding(node, granule);
        let requested = holding.requested.map(|kind| match kind {
            Kind::Own => "has asked to own",
            Kind::Read => "has asked to read",
            Kind::Leave => "has asked to leave",
            Kind::Drop(_) => "has asked to drop a reader of",
        });
        let invalid = holding.is_replica && !holding.row.is_valid;
        let pending = holding.pending.as_ref();
        let pending = pending.map(|pending| {
            format!("is an arbiter with an invalid record {}, of", pending.inv.record)
        });
        pending
            .or(requested.map(str::to_owned))
            .or(invalid.then(|| "is a replica with an invalid row of".to_owned()))
    }

    /// What must hold where nothing is left to do: writes are at all replicas or at none, and none that was
    /// acknowledged, or read by a transaction that has survived, is lost.
    pub(super) fn check_settled(&mut self) {
        self.check_writes();
        let visible = self.state.members().flat_map(|node| &self.node(node).holdings);
        let visible = visible.flat_map(|holding| &holding.row.writers);
        let survivors = visible.fold(self.answered(), |all, number| all.with(*number));
        for number in survivors.iter() {
            for (granule, seen) in &self.state.transactions[usize::from(number)].reads {
                let lacks = self.state.members().any(|node| {
                    let holding = self.holding(node, *granule);
                    holding.is_replica && !holding.row.writers.starts_with(seen)
                });
                if lacks {
                    let what = format!("T{number} read {seen:?} of g{granule}, which was lost");
                    return self.break_rule("Z12", what);
                }
            }
        }
    }

    fn check_writes(&mut self) {
        for (number, transaction) in self.scenario.transactions.iter().enumerate() {
            let is_answered = self.state.transactions[number].status == Status::Answered;
            let mut has = Vec::new();
            for granule in transaction.writes.iter() {
                let replicas =
                    self.state.members().filter(|node| self.holding(*node, granule).is_replica);
                has.extend(
                    replicas.map(|node| {
                        self.holding(node, granule).row.writers.contains(&(number as u8))
                    }),
                );
            }
            let is_torn = has.contains(&true) && has.contains(&false);
            if is_answered && has.contains(&false) {
                return self
                    .break_rule("acknowledged writes survive", format!("T{number} is lost"));
            }
            if is_torn {
                return self.break_rule("Z12", format!("a part of T{number} is lost"));
            }
        }
    }
}

impl State {
    /// Z1: a granule has at most one owner.
    fn check_owners(&self) -> Result<(), Violation> {
        for granule in 0..self.nodes[0].holdings.len() as Granule {
            let owners = self.members().filter(|node| {
                let holding = self.holding(*node, granule);
                let pending = holding.pending.as_ref();
                let gave = pending.is_some_and(|pending| pending.is_acknowledged);
                holding.record.owner == Some(*node) && !gave
            });
            let owners: Vec<NodeId> = owners.collect();
            if owners.len() > 1 {
                let what = format!("g{granule} has the owners {owners:?}");
                return Err(Violation { rule: "Z1", what });
            }
        }
        Ok(())
    }

    /// Z3: valid arbiters that know the same `o_ts` in one epoch know the same record.
    fn check_arbiters(&self, directory: Set) -> Result<(), Violation> {
        for granule in 0..self.nodes[0].holdings.len() as Granule {
            let arbiters = self.members().filter(|node| {
                let record = self.holding(*node, granule).record;
                directory.has(*node) || record.owner == Some(*node)
            });
            let known = arbiters.map(|node| {
                (node, self.nodes[node as usize].view.epoch, self.holding(node, granule).record)
            });
            let known: Vec<_> = known.collect();
            for (node, epoch, record) in &known {
                let other = known.iter().find(|(_, other_epoch, other)| {
                    other_epoch == epoch && other.o_ts == record.o_ts && other != record
                });
                if let Some((other, _, others)) = other {
                    let what = format!("of g{granule} n{node} knows {record}, n{other} {others}");
                    return Err(Violation { rule: "Z3", what });
                }
            }
        }
        Ok(())
    }

    /// Z6: what one replica shows as validated, all that serve have applied.
    fn check_replicas(&self) -> Result<(), Violation> {
        for granule in 0..self.nodes[0].holdings.len() as Granule {
            let replicas = self.members().filter(|node| {
                let holding = self.holding(*node, granule);
                holding.is_replica && holding.serves
            });
            let replicas: Vec<NodeId> = replicas.collect();
            for shown in replicas.iter().filter(|node| self.holding(**node, granule).row.is_valid) {
                let writers = &self.holding(*shown, granule).row.writers;
                for other in &replicas {
                    let others = &self.holding(*other, granule).row.writers;
                    if !others.starts_with(writers) {
                        let what = format!(
                            "n{shown} shows g{granule} as written by {writers:?}, and n{other} has {others:?}"
                        );
                        return Err(Violation { rule: "Z6", what });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether the relation has a cycle; it is made transitive.
fn has_cycle(before: &mut [Set]) -> bool {
    for middle in 0..before.len() {
        let through = before[middle];
        for of in before.iter_mut().filter(|of| of.has(middle as u8)) {
            *of = of.and(through);
        }
    }
    (0..).zip(before.iter()).any(|(number, before)| before.has(number))
}
