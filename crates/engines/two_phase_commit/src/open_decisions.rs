//! The decisions that are still to be told, and how each participant is told (rule P9).

use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Epoch, ShardId, Time};
use std::collections::BTreeMap;

/// The decisions of one shard, in one worker's stream, that some participants have not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    pub(super) open: BTreeMap<TransactionId, BTreeMap<ShardId, Telling>>,
    /// No participant is to be told anything before.
    pub(super) tell_at: Time,
}

/// How a participant is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    /// By the coordinator, as long as this leadership of the participant lasts, and for as long as it waits for another
    /// shard.
    Coordinated(Epoch),
    /// From this time on, again and again.
    From(Time),
}

impl Decisions {
    /// A decision that these participants have to be told.
    pub(super) fn add(
        &mut self,
        transaction: TransactionId,
        participants: impl Iterator<Item = (ShardId, Telling)>,
    ) {
        let before = self.open.insert(transaction, participants.collect());
        assert!(before.is_none(), "{transaction} was decided twice");
        self.tell_at = Time::ZERO;
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

    /// The leadership of `shard` is another now, or this node's branch there is gone: what was told there may be lost.
    pub(super) fn lose_participant(&mut self, shard: ShardId) {
        for participants in self.open.values_mut() {
            if let Some(telling) = participants.get_mut(&shard) {
                *telling = Telling::From(Time::ZERO);
                self.tell_at = Time::ZERO;
            }
        }
    }

    /// The participant of `shard` does not answer its coordinator: it is told like one with a new leader.
    pub(super) fn hand_over(&mut self, transaction: TransactionId, shard: ShardId) {
        let participants = self.open.get_mut(&transaction);
        if let Some(telling) = participants.and_then(|it| it.get_mut(&shard)) {
            *telling = Telling::From(Time::ZERO);
            self.tell_at = Time::ZERO;
        }
    }

    /// The transactions that this process coordinates itself, or of which others are told.
    pub(super) fn transactions(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.open.keys().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
