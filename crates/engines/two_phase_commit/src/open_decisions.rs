//! The decisions that participants have not acknowledged, and how each participant receives them (rule P9).

use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Epoch, ShardId, Time};
use std::collections::BTreeMap;

/// The decisions of one shard, in one worker's stream, that some participants have not acknowledged.
///
/// Invariant: each has a participant that has not acknowledged it.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    open: BTreeMap<TransactionId, BTreeMap<ShardId, Delivery>>,
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
        participants: BTreeMap<ShardId, Delivery>,
    ) {
        let before = self.open.insert(transaction, participants);
        assert!(before.is_none(), "{transaction} was decided twice");
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

    /// When the home shard is to send a decision to a participant; `None` if it is acknowledged, or sent by its coordinator.
    pub(super) fn due_at(&self, transaction: TransactionId, shard: ShardId) -> Option<Time> {
        match self.open.get(&transaction)?.get(&shard)? {
            Delivery::Coordinated(_) => None,
            Delivery::RepeatedFrom(at) => Some(*at),
        }
    }

    /// The home shard sends a participant the decision, repeatedly from this time on. Says whether that has not acknowledged
    /// it.
    pub(super) fn repeat(&mut self, transaction: TransactionId, shard: ShardId, at: Time) -> bool {
        let participants = self.open.get_mut(&transaction);
        let delivery = participants.and_then(|it| it.get_mut(&shard));
        delivery.map(|it| *it = Delivery::RepeatedFrom(at)).is_some()
    }

    /// Whether there is a decision on this transaction.
    pub(super) fn contains(&self, transaction: TransactionId) -> bool {
        self.open.contains_key(&transaction)
    }

    /// The transactions whose decisions are not acknowledged.
    pub(super) fn transactions(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.open.keys().copied()
    }

    /// The transactions whose decisions a shard has not acknowledged.
    pub(super) fn of_participant(
        &self,
        shard: ShardId,
    ) -> impl Iterator<Item = TransactionId> + '_ {
        let open = self.open.iter().filter(move |(_, shards)| shards.contains_key(&shard));
        open.map(|(transaction, _)| *transaction)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Asserts the invariant above.
    pub(super) fn assert_invariants(&self) {
        for (transaction, participants) in &self.open {
            assert!(!participants.is_empty(), "P9: {transaction} is acknowledged, and kept");
        }
    }
}
