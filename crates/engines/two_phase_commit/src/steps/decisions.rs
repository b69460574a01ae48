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

use crate::message::{DecisionHome, Participant};
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use crate::shard_stream::Resend;
use crate::shard_streams::DueResend;
use crate::{TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_engine::execution::leaderships::ShardLeader;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{NodeId, ShardId, Time};

impl TwoPhaseCommit {
    /// A participant has the outcome of a committed transaction durable.
    pub(crate) fn acknowledged(&mut self, transaction: TransactionId, shard: ShardId) {
        let now = self.runtime.worker_context.now.get();
        self.streams.acknowledge(now, transaction, shard);
    }

    /// All participants have the outcome durable, and the decision may be forgotten (rule P9).
    pub(crate) fn end_decision(&mut self, at: usize, transaction: TransactionId) {
        let now = self.runtime.worker_context.now.get();
        self.streams[at].end_decision(now, transaction);
    }

    /// Answers a participant, if there is a decision, or can be none any more (rule P8).
    pub(crate) fn answer_inquiry(
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
        let at = self.streams.led_at(home.shard)?;
        let state = *self.streams[at].leadership()?;
        if self.streams[at].replay().is_decided(transaction) {
            return Some(true);
        }
        if self.options().faults.has(TwoPhaseCommitPlantedBug::PresumeAbortEarly) {
            return Some(false);
        }
        if !state.has_begun() || !self.is_sealed(at) || state.since() < home.leadership {
            return None;
        }
        let is_over = state.since() > home.leadership || self.is_presumed_aborted(at, transaction);
        is_over.then_some(false)
    }

    /// Sends again what is due and was not answered: decisions to participants that have not acknowledged them and receive
    /// them from no coordinator, and inquiries about branches in doubt.
    pub(crate) fn send_again(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        let again = now + self.options().inquire_every;
        while let Some(DueResend { at, resend, home }) = self.streams.take_resend(now, again) {
            match resend {
                Resend::Inquiry(transaction) => self.inquire(at, transaction, home, effects),
                Resend::Decision(transaction, shard) => {
                    let ShardLeader { node: to, since: leadership } =
                        self.runtime.worker_context.leaderships.leader(shard);
                    let participant = Participant { shard, leadership };
                    self.send_decision(to, transaction, home.shard, participant, true, effects);
                }
            }
        }
    }
}
