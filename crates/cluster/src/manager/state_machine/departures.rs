//! Nodes that have left the membership, and whose copies of data are not made anew yet, where memberships have epochs and nodes keep
//! their memory on disks.
//!
//! Without disks, data is lost when all nodes that have it are silent, and to declare them dead only makes room for others. With disks
//! it would be lost by declaring them dead: their next processes would still have it. So a node stays a member while some data may
//! have no other copy. Data has [`COPIES_SPARE`] copies more than it needs. So many nodes may be silent, or have left before the leaders
//! of all shards reported that their data is whole, in an epoch without them; while there are more, none leaves. After a power failure
//! nodes come back one after the other, and the first ones must not take the last ones for dead.
//!
//! The field of the state machine is encoded last, and not at all while it is empty: images from before it existed are read as such.

use bytes::BytesMut;
use shoal_types::wire::{Coded, Input, Malformed};
use shoal_types::{Epoch, NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet};

/// So many copies of data may be missing.
const COPIES_SPARE: usize = 2;

/// Since which epoch each node is out, and the shards whose leaders have not reported that their data is whole without it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Departures(BTreeMap<NodeId, (Epoch, BTreeSet<ShardId>)>);

pub(super) fn put(Departures(departures): &Departures, out: &mut BytesMut) {
    if !departures.is_empty() {
        departures.put(out);
    }
}

pub(super) fn take(input: &mut Input<'_>) -> Result<Departures, Malformed> {
    match input.end() {
        Ok(()) => Ok(Departures::default()),
        Err(_) => Coded::take(input).map(Departures),
    }
}

impl Departures {
    /// Whether all data lacks no copy, as far as leaders have reported.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether other copies of all data are left if these nodes leave, too.
    pub(super) fn allow(&self, silent: impl Iterator<Item = NodeId>) -> bool {
        let others = silent.filter(|node| !self.0.contains_key(node));
        others.count() + self.0.len() <= COPIES_SPARE
    }

    /// A node is out from this epoch on.
    pub(super) fn add(
        &mut self,
        node: NodeId,
        since: Epoch,
        shards: impl Iterator<Item = ShardId>,
    ) {
        self.0.insert(node, (since, shards.collect()));
    }

    /// Whether it is awaited that the data of the shard is whole.
    pub(super) fn await_shard(&self, shard: ShardId) -> bool {
        self.0.values().any(|(_, shards)| shards.contains(&shard))
    }

    /// In this epoch all data of the shard has as many copies as it is to have.
    pub(super) fn end(&mut self, shard: ShardId, epoch: Epoch) {
        self.0.retain(|_, (since, shards)| {
            if *since <= epoch {
                shards.remove(&shard);
            }
            !shards.is_empty()
        });
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
