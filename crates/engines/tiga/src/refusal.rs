//! Transactions that a shard never takes: they are refused in its log first, and in words after (rule T21).
//!
//! ```text
//!   Submit, or a Propose, or the Gone of another shard ──► refused: an entry ── decided ──► Gone
//! ```
//! A leader that only remembered what it has refused would be wrong: its followers may have voted for the transaction, and
//! the next leader would find it in their lists and keep it. A decided refusal outlives the leader, and no recovery keeps what
//! it names.

use crate::leading::{Leading, Refusing};
use crate::message::Message;
use crate::planted_bugs::TigaPlantedBug;
use crate::record::Refusal;
use crate::replica::Replica;
use crate::stamp::ArrivalTimes;
use crate::step::Step;
use shoal_engine::TransactionId;
use shoal_types::{Ballot, ShardId, Time};

impl Replica {
    /// Whether the transaction is refused here, in a decided entry or in one that will be.
    pub(crate) fn is_refused(&self, id: TransactionId) -> bool {
        let is_refusing = |leading: &Leading| leading.refusing.contains_key(&id);
        self.ledger.is_refused(id) || self.leading.as_ref().is_some_and(is_refusing)
    }

    /// Refuses a transaction: says so to its coordinator, and to a shard that asks, once that is decided.
    pub(crate) fn refuse(
        &mut self,
        step: &mut Step<'_>,
        refusal: Refusal,
        asking: Option<ShardId>,
        times: ArrivalTimes,
    ) {
        let Some(ballot) = self.serves() else { return };
        let id = refusal.id;
        let is_early = step.options.bugs.has(TigaPlantedBug::RefuseBeforeRecord);
        let leading = self.leading.as_mut().expect("serves");
        if is_early {
            leading.refusing.entry(id).or_default();
        }
        if is_early || self.ledger.is_refused(id) {
            return say(step, self.shard, ballot, id, asking, times);
        }
        if !leading.refusing.contains_key(&id) {
            leading.refusals.push(refusal);
        }
        let refusing =
            leading.refusing.entry(id).or_insert(Refusing { times, ..Refusing::default() });
        refusing.asking.extend(asking);
        leading.settled_early.remove(&id);
        leading.unstable.remove(&id);
        leading.inherited.remove(&id);
    }

    /// Refusals of this leadership, or that it has adopted, are decided.
    pub(crate) fn refusals_decided(&mut self, step: &mut Step<'_>, refused: &[Refusal]) {
        let Some(ballot) = self.serves() else { return };
        for Refusal { id, .. } in refused {
            let leading = self.leading.as_mut().expect("serves");
            let Some(Refusing { times, asking }) = leading.refusing.remove(id) else { continue };
            say(step, self.shard, ballot, *id, asking, times);
        }
    }
}

/// Says that the shard does not have the transaction, and never will.
fn say(
    step: &mut Step<'_>,
    shard: ShardId,
    ballot: Ballot,
    id: TransactionId,
    asking: impl IntoIterator<Item = ShardId>,
    times: ArrivalTimes,
) {
    let ArrivalTimes { sent, arrived } = times;
    step.send(id.node, Message::Gone { id, shard, ballot, sent, arrived });
    for other in asking {
        step.send_to_leader(other, gone_at(id, shard, ballot));
    }
}

/// Says so to another participant.
pub(crate) fn gone_at(id: TransactionId, shard: ShardId, ballot: Ballot) -> Message {
    Message::Gone { id, shard, ballot, sent: Time::ZERO, arrived: Time::ZERO }
}
