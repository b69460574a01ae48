//! Who opens epochs, hears how they ended, and says when they are settled: a stand-in for the
//! configuration manager that never fails. What it says reaches a node after any time, and out of order.

use std::collections::BTreeMap;
use types::{Clock, Epoch, Random, ShardId, VectorWatermark};

/// Epochs that may be closed and not settled.
const CLOSING_MAX: u32 = 3;

/// How often epochs change; see the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// On average, so long from one epoch to the next; 0 for never.
    pub every_ns: u64,
    /// What the authority says, and hears, takes up to so long.
    pub delay_ns_max: u64,
}

/// What a node is told.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// An epoch is open.
    Opened(Epoch),
    /// An epoch has ended.
    Settled(VectorWatermark),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Authority {
    changes: Changes,
    shards: u32,
    open: Epoch,
    settled: Epoch,
    reports: BTreeMap<(Epoch, ShardId), Clock>,
}

impl Authority {
    /// The first epoch is open.
    pub(crate) fn new(shards: u32) -> Authority {
        let changes = Changes::default();
        let (open, settled) = (Epoch(1), Epoch(0));
        Authority { changes, shards, open, settled, reports: BTreeMap::new() }
    }

    /// From now on epochs change that often.
    pub(crate) fn set_changes(&mut self, changes: Changes) {
        self.changes = changes;
    }

    /// When the next change is to be, from now on; `None` for never.
    pub(crate) fn pause_ns(&self, random: &mut Random) -> Option<u64> {
        let every = self.changes.every_ns;
        (every > 0).then(|| random.range_inclusive(1, 2 * every))
    }

    /// How long something said or heard takes.
    pub(crate) fn delay_ns(&self, random: &mut Random) -> u64 {
        random.below(self.changes.delay_ns_max.max(1))
    }

    /// Opens an epoch, unless too many are closing.
    pub(crate) fn open_next(&mut self) -> Option<Epoch> {
        if self.open.0 - self.settled.0 > CLOSING_MAX {
            return None;
        }
        self.open.0 += 1;
        Some(self.open)
    }

    /// The leader of `shard` reports the end of an epoch. Returns what is settled by it, in order.
    pub(crate) fn report(
        &mut self,
        shard: ShardId,
        epoch: Epoch,
        watermark: Clock,
    ) -> Result<Vec<VectorWatermark>, String> {
        if epoch >= self.open {
            return Err(format!("{shard} reports the end of {epoch}, which is open"));
        }
        if let Some(before) = self.reports.insert((epoch, shard), watermark) {
            return Err(format!("{shard} reports the end of {epoch} twice: {before}, {watermark}"));
        }
        let mut settled = Vec::new();
        loop {
            let next = Epoch(self.settled.0 + 1);
            let mut last = VectorWatermark::new(next, self.shards as usize);
            for shard in (0..self.shards).map(ShardId) {
                let Some(clock) = self.reports.get(&(next, shard)) else { return Ok(settled) };
                last.raise(shard, *clock);
            }
            self.settled = next;
            settled.push(last);
        }
    }

    /// Is every epoch settled that is closed?
    pub(crate) fn is_quiet(&self) -> bool {
        self.settled.0 + 1 == self.open.0
    }
}
