//! The decisions that participants have not acknowledged, and how each participant receives them (rule P9).

use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Epoch, ShardId, Time};
use std::collections::BTreeMap;

/// The decisions of one shard, in one worker's stream, that some participants have not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    pub(super) open: BTreeMap<TransactionId, BTreeMap<ShardId, Delivery>>,
    /// When a decision is to be sent again.
    pub(super) due_at: Time,
}

/// How a participant receives a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// From the coordinator, while this leadership of the participant lasts, and for as long as the coordinator waits for
    /// another shard.
    Coordinated(Epoch),
    /// From the home shard, repeatedly from this time on.
    RepeatedFrom(Time),
}

impl Decisions {
    /// Adds a decision that these participants have to receive.
    pub(super) fn add(
        &mut self,
        transaction: TransactionId,
        participants: impl Iterator<Item = (ShardId, Delivery)>,
    ) {
        let before = self.open.insert(transaction, participants.collect());
        assert!(before.is_none(), "{transaction} was decided twice");
        self.due_at = Time::ZERO;
    }

    /// A participant has the outcome durable. Says whether it was the last.
    pub(super) fn acknowledge(&mut self, transaction: TransactionId, shard: ShardId) -> bool {
        let Some(participants) = self.open.get_mut(&transaction) else { return false };
        participants.remove(&shard);
        let is_over = participants.is_empty();
        if is_over {
            self.open.remove(&transaction);
        }
        is_over
    }

    /// The leadership of `shard` is another now, or this node's branch there is gone: a decision that was sent there may be lost.
    pub(super) fn lose_participant(&mut self, shard: ShardId) {
        for participants in self.open.values_mut() {
            if let Some(delivery) = participants.get_mut(&shard) {
                *delivery = Delivery::RepeatedFrom(Time::ZERO);
                self.due_at = Time::ZERO;
            }
        }
    }

    /// The participant of `shard` does not answer its coordinator: the home shard sends it the decision, as to one with a new leader.
    pub(super) fn hand_over(&mut self, transaction: TransactionId, shard: ShardId) {
        let participants = self.open.get_mut(&transaction);
        if let Some(delivery) = participants.and_then(|it| it.get_mut(&shard)) {
            *delivery = Delivery::RepeatedFrom(Time::ZERO);
            self.due_at = Time::ZERO;
        }
    }

    /// The transactions whose decisions are not acknowledged.
    pub(super) fn transactions(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.open.keys().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
