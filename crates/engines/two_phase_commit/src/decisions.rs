//! Decisions, as the leader of their home shard keeps them (rules P8 and P9).
//!
//! A decision is sent to each participant until that has acknowledged that its outcome is durable; then an *end* record
//! follows, and the decision is forgotten. A new leader finds the decisions without one in its stream, and goes on.
//!
//! # Presumed abort
//!
//! The answer to an inquiry is *aborted* where no decision is known, and none can appear any more. The decision on a
//! transaction can only be appended by the leadership of the home shard under which it is coordinated (its prepare records
//! name it), in the stream of its coordinator's worker. So:
//!
//! - A leader of a later leadership answers when all that it inherited of this stream is decided and replayed, and an entry of
//!   its own is durable. That a majority has promised its ballot is not enough: it keeps former leaders from having an entry
//!   accepted, but one that a single replica has accepted under a former ballot can still be adopted under a later one. Once
//!   a majority has *accepted* an entry under the ballot of this leadership, every later leader finds it among what its own
//!   majority has accepted, and adopts a sequence with that entry: nothing that was appended before, and that this leadership
//!   has not inherited, is ever decided. Raft commits an entry of the new term for the same reason (Ongaro and Ousterhout,
//!   *In search of an understandable consensus algorithm*, ATC 2014, section 8).
//! - The same leadership is the coordinator itself, in the same process, or it is the last agent (`last_agent.rs`). It appends
//!   a decision only for a transaction that it knows: one that it coordinates, or has an open branch of. It knows none twice,
//!   and one that it knows is not answered for until the decision is durable. A branch may still be on its way when home
//!   answers, and is refused then.
//!
//! No participant inquires about a decision that was forgotten: all participants have its outcome durable, and every later
//! leader of theirs finds it. A late copy of an inquiry names a leadership that has resolved the branch, and drops the answer,
//! or one that is over. That one is not answered: it may still be in doubt, if its node has not received the configuration in
//! which another leads. Home has received that configuration if it has forgotten the decision, since it takes
//! acknowledgements only from the present leader.

use super::message::{DecisionHome, Participant};
use super::open_decisions::{Decisions, Delivery};
use super::{TwoPhaseCommit, TwoPhaseCommitEffects};
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use shoal_engine::execution::leaderships::ShardLeader;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{NodeId, ShardId, Time};

impl TwoPhaseCommit {
    /// All that was inherited of the stream at this place is decided: goes on with its decisions.
    pub(super) fn find_decisions(&mut self, at: usize) {
        let mut decisions = Decisions::default();
        for (transaction, participants) in self.prepared_replays[at].decided() {
            let participants =
                participants.iter().map(|it| (*it, Delivery::RepeatedFrom(Time::ZERO)));
            decisions.add(transaction, participants);
        }
        self.decisions[at] = decisions;
    }

    /// A participant has the outcome of a committed transaction durable.
    pub(super) fn acknowledged(&mut self, transaction: TransactionId, shard: ShardId) {
        let mut places = self.decisions.iter_mut();
        if let Some(at) = places.position(|it| it.acknowledge(transaction, shard)) {
            self.end_decision(at, transaction);
        }
    }

    /// All participants have the outcome durable, and the decision may be forgotten (rule P9).
    pub(super) fn end_decision(&mut self, at: usize, transaction: TransactionId) {
        let now = self.runtime.worker_context.now.get();
        self.leader_logs[at].append(now, None, None, |batch| batch.end(transaction));
    }

    /// Answers a participant, if there is a decision, or can be none any more (rule P8).
    pub(super) fn answer_inquiry(
        &mut self,
        from: NodeId,
        transaction: TransactionId,
        home: DecisionHome,
        participant: Participant,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        // A participant that is not known here may have been followed by another, and its copy of an inquiry outlast the
        // decision. A participant whose leadership is not in this node's configuration yet repeats its inquiry.
        let asks = ShardLeader { node: from, since: participant.leadership };
        let is_present = self.has_shard(participant.shard)
            && self.runtime.worker_context.leaderships.leader(participant.shard) == asks;
        let decision = if is_present { self.decision(transaction, home) } else { None };
        match decision {
            Some(committed) => {
                self.send_decision(from, transaction, home.shard, participant, committed, effects);
            }
            None => self.runtime.counters.dropped += 1, // It is asked again.
        }
    }

    /// The decision on a transaction that was coordinated there, if there is one, or can be none any more (rule P8).
    fn decision(&mut self, transaction: TransactionId, home: DecisionHome) -> Option<bool> {
        let at = self.place_of(home.shard)?;
        let state = self.leader_logs[at].leader_state?;
        if self.prepared_replays[at].is_decided(transaction) {
            return Some(true);
        }
        if self.options().faults.has(TwoPhaseCommitPlantedBug::PresumeAbortEarly) {
            return Some(false);
        }
        if !state.began || !self.is_sealed(at) || state.since < home.leadership {
            return None;
        }
        let is_over = state.since > home.leadership || self.is_presumed_aborted(at, transaction);
        is_over.then_some(false)
    }

    /// Sends participants the decisions that they have not acknowledged, and that no coordinator sends them.
    pub(super) fn send_decisions(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        for at in 0..self.decisions.len() {
            if now < self.decisions[at].due_at {
                continue;
            }
            let (mut next, mut due) = (Time::MAX, Vec::new());
            let again = now + self.options().inquire_every;
            for (transaction, participants) in &mut self.decisions[at].open {
                for (shard, delivery) in participants {
                    let Delivery::RepeatedFrom(from) = delivery else { continue };
                    if *from <= now {
                        due.push((*transaction, *shard));
                        *from = again;
                    }
                    next = next.min(*from);
                }
            }
            self.decisions[at].due_at = next;
            let home = self.leader_logs[at].lead.shard;
            for (transaction, shard) in due {
                let ShardLeader { node: to, since: leadership } =
                    self.runtime.worker_context.leaderships.leader(shard);
                let participant = Participant { shard, leadership };
                self.send_decision(to, transaction, home, participant, true, effects);
            }
        }
    }
}
