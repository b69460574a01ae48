//! What a node knows and has of one granule.

use crate::message::Inv;
use crate::record::{Level, OwnershipRecord, OwnershipTs, RequestKind};
use shoal_types::{Backoff, Clock, NodeId, Time};
use std::time::Duration;

/// What a node knows and has of a granule.
#[derive(Debug, Clone, Default)]
pub struct Holding {
    /// The newest record that is validated here.
    pub record: OwnershipRecord,
    /// What arbitrates to replace it.
    pub pending: Option<PendingInv>,
    /// The newest timestamp of the granule that the node has learned of.
    pub hint: OwnershipTs,
    /// What the node has asked for, until it is granted or given up.
    pub request: Option<OpenRequest>,
    /// The number of the last request that was granted here.
    pub granted: u64,
    /// Whether the node has a copy of the rows.
    pub is_replica: bool,
    /// Whether the copy may be read. A reader that is to leave has a copy, and does not serve.
    pub serves: bool,
    /// The copy was made by an `Inv` that creates the granule, and serves once a record is validated.
    pub begins_empty: bool,
    /// The greatest clock of all rows that were ever written, deleted ones too.
    pub clock: Clock,
}

/// An `Inv` that is not validated. The directory node, or the owner, is invalid: it drives nothing.
#[derive(Debug, Clone)]
pub struct PendingInv {
    /// The `Inv` that came last.
    pub inv: Inv,
    /// It was answered; a repeat is answered again.
    pub is_answered: bool,
    /// One of the `Inv`s with this record was acknowledged: an owner must not write any more (rule Z17).
    pub is_acknowledged: bool,
    /// When the first of them came: an owner holds the granule for older transactions from then on.
    pub arrived: Time,
    /// When it is sent again.
    pub replay_at: Time,
    /// The waits until then.
    pub replays: Backoff,
}

/// A request that is not granted yet.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// The change that is asked for.
    pub kind: RequestKind,
    /// Its number; repeats have the same.
    pub number: u64,
    /// When the transaction that needs it began its first attempt.
    pub born: Time,
    /// When it is sent again.
    pub repeat_at: Time,
    /// How often it was sent since a directory node has answered.
    pub attempts: u32,
    /// The waits while no directory node answers.
    pub repeats: Backoff,
    /// How long to wait after the next refusal.
    pub backoff: Backoff,
}

impl Holding {
    /// The level at which the node may use the granule now; ownership includes reading.
    #[must_use]
    pub fn level(&self, node: NodeId) -> Level {
        match self.record.level_of(node) {
            // A record may name an owner that has lost its copy: without the rows it must not write.
            Level::Owner
                if self.is_replica
                    && self.pending.as_ref().is_none_or(|pending| !pending.is_acknowledged) =>
            {
                Level::Owner
            }
            // An owner that has acknowledged a move still reads, like the reader that it is about to be.
            Level::Owner | Level::Reader if self.is_replica && self.serves => Level::Reader,
            Level::Owner | Level::Reader | Level::None => Level::None,
        }
    }

    /// The node must wait for nothing of this granule.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.pending.is_none() && self.request.is_none()
    }

    /// When something of it has to be looked at again: it is to be sent again, or a hold is over; `None` if nothing of it is
    /// pending or requested.
    pub(super) fn due_at(&self, now: Time, hold: Duration) -> Option<Time> {
        let pending = self.pending.as_ref();
        let held = pending.filter(|pending| !pending.is_answered);
        // A hold that is over waits for slots, or for the barrier: no time ends that.
        let held = held.map(|pending| pending.arrived + hold).filter(|at| *at > now);
        let replay = pending.map(|pending| pending.replay_at);
        let repeat = self.request.as_ref().map(|request| request.repeat_at);
        [replay, held, repeat].into_iter().flatten().min()
    }

    /// It holds nothing that a later message would miss.
    pub(super) fn is_forgettable(&self) -> bool {
        self.is_settled() && !self.is_replica
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::Epoch;

    #[test]
    fn a_node_without_the_rows_has_no_level() {
        let o_ts = OwnershipTs { version: 1, epoch: Epoch(1), driver: NodeId(0) };
        let readers = [NodeId(1)].into();
        let record = OwnershipRecord { o_ts, owner: Some(NodeId(0)), readers };
        let holding = Holding { record, ..Holding::default() };
        assert_eq!([0, 1].map(|node| holding.level(NodeId(node))), [Level::None; 2]);
        let holding = Holding { is_replica: true, serves: true, ..holding };
        assert_eq!(
            [0, 1, 2].map(|node| holding.level(NodeId(node))),
            [Level::Owner, Level::Reader, Level::None]
        );
    }
}
