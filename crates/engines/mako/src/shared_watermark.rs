//! The vector watermark of an epoch as the workers of a node share it. All of it is atomic.

use shoal_types::{Clock, ShardId, StampRef, VectorWatermark};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// The node's view of the vector watermark of an epoch.
#[derive(Debug)]
pub(super) struct SharedWatermark {
    clocks: Box<[AtomicU64]>,
    /// How far a shard may ever come, where a stream of it has ended the epoch with something hanging: what
    /// it says to be safe after that is so for later epochs only.
    caps: Box<[AtomicU64]>,
    /// Shards of which no more is to be learned but how they ended: their majority is lost, and this node has said what it
    /// knows. Read while a clock is raised, so that what was said stays so.
    frozen: RwLock<Box<[bool]>>,
    /// Has a shard ended the epoch, so that it comes no further?
    ended: Box<[AtomicBool]>,
    /// Moves with every change, so that the clocks need not be looked at for nothing.
    version: AtomicU64,
}

impl SharedWatermark {
    pub(super) fn new(shards: usize) -> SharedWatermark {
        SharedWatermark {
            clocks: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            caps: (0..shards).map(|_| AtomicU64::new(u64::MAX)).collect(),
            frozen: RwLock::new(vec![false; shards].into()),
            ended: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            version: AtomicU64::new(0),
        }
    }

    /// Raises the watermark of `shard`, and says whether that changed it. Not of one that is frozen.
    pub(super) fn raise(&self, shard: ShardId, clock: Clock) -> bool {
        let frozen = self.frozen.read().unwrap_or_else(PoisonError::into_inner);
        let is_frozen = frozen.get(shard.0 as usize).copied().unwrap_or(true);
        !is_frozen && self.raise_any(shard, clock)
    }

    fn raise_any(&self, shard: ShardId, clock: Clock) -> bool {
        let Some(own) = self.clocks.get(shard.0 as usize) else { return false };
        let raised = own.fetch_max(clock.0, Ordering::AcqRel) < clock.0;
        if raised {
            self.version.fetch_add(1, Ordering::Release);
        }
        raised
    }

    /// No more is to be learned of `shard` but how it ended, from the configuration. Returns how far it is durable here,
    /// and whether it has ended there.
    pub(super) fn freeze(&self, shard: ShardId) -> (Clock, bool) {
        let mut frozen = self.frozen.write().unwrap_or_else(PoisonError::into_inner);
        frozen[shard.0 as usize] = true;
        (self.of(shard), self.has_ended(shard))
    }

    /// A stream of `shard` ends the epoch here. To be said before the stream says more to be safe.
    pub(super) fn cap(&self, shard: ShardId, clock: Clock) {
        self.caps[shard.0 as usize].fetch_min(clock.0, Ordering::AcqRel);
    }

    /// A stream that this node leads has made `shard` durable so far; that is so for the epoch up to where
    /// it ended.
    pub(super) fn raise_led(&self, shard: ShardId, clock: Clock) -> bool {
        let cap = Clock(self.caps[shard.0 as usize].load(Ordering::Acquire));
        self.raise(shard, clock.min(cap))
    }

    /// A leader says that `shard` has ended the epoch where it is. Says whether that is news. Not of one that is frozen.
    pub(super) fn end(&self, shard: ShardId) -> bool {
        let frozen = self.frozen.read().unwrap_or_else(PoisonError::into_inner);
        let is_frozen = frozen.get(shard.0 as usize).copied().unwrap_or(true);
        !is_frozen && self.end_any(shard)
    }

    /// The streams that this node leads have ended the epoch for `shard` here. Says whether that is news; nothing of one that
    /// is frozen: another worker has said what this node knows, and so the configuration says how the epoch ended.
    pub(super) fn end_led(&self, shard: ShardId, last: Clock) -> Option<bool> {
        let frozen = self.frozen.read().unwrap_or_else(PoisonError::into_inner);
        let is_frozen = frozen.get(shard.0 as usize).copied().unwrap_or(true);
        (!is_frozen).then(|| self.end_at(shard, last))
    }

    /// `shard` has ended the epoch here, for good. Says whether that is news.
    pub(super) fn end_at(&self, shard: ShardId, last: Clock) -> bool {
        self.raise_any(shard, last);
        self.end_any(shard)
    }

    fn end_any(&self, shard: ShardId) -> bool {
        let Some(ended) = self.ended.get(shard.0 as usize) else { return false };
        let news = !ended.swap(true, Ordering::AcqRel);
        if news {
            self.version.fetch_add(1, Ordering::Release);
        }
        news
    }

    /// Has `shard` ended the epoch?
    pub(super) fn has_ended(&self, shard: ShardId) -> bool {
        self.ended.get(shard.0 as usize).is_some_and(|ended| ended.load(Ordering::Acquire))
    }

    /// The shards that have ended the epoch.
    pub(super) fn ended(&self) -> impl Iterator<Item = ShardId> + '_ {
        let ended = (0..).map(ShardId).zip(&self.ended);
        ended.filter(|(_, ended)| ended.load(Ordering::Acquire)).map(|(shard, _)| shard)
    }

    /// How far `shard` is.
    pub(super) fn of(&self, shard: ShardId) -> Clock {
        let own = self.clocks.get(shard.0 as usize);
        own.map_or(Clock::ZERO, |own| Clock(own.load(Ordering::Acquire)))
    }

    /// Raises every shard's to that of `other`, and says whether that changed any.
    pub(super) fn merge(&self, other: &VectorWatermark) -> bool {
        (0..self.clocks.len() as u32)
            .map(ShardId)
            .fold(false, |changed, shard| self.raise(shard, other.of(shard)) | changed)
    }

    /// Does it cover `stamp`, which `own` keeps? See [`VectorWatermark::covers`].
    pub(super) fn covers(&self, own: ShardId, stamp: StampRef<'_>) -> bool {
        let all = || (0..self.clocks.len() as u32).map(|shard| self.of(ShardId(shard))).min();
        stamp.is_reached(own, |shard| match shard {
            ShardId::EVERY => all().unwrap_or(Clock::ZERO),
            shard => self.of(shard),
        })
    }

    /// Has a shard ended the epoch before what has this stamp, which `own` keeps?
    pub(super) fn rejects(&self, own: ShardId, stamp: StampRef<'_>) -> bool {
        let floor = stamp.entry(own, ShardId::EVERY);
        self.ended().any(|shard| {
            let last = self.of(shard);
            stamp.entry(own, shard) > last || floor > last
        })
    }

    /// Moves with every change.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Brings a worker's view up to date.
    pub(super) fn refresh(&self, view: &mut VectorWatermark) {
        for (shard, clock) in (0..).zip(&self.clocks) {
            view.raise(ShardId(shard), Clock(clock.load(Ordering::Acquire)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One worker has reported what the node knows of a shard whose majority is lost. Another, which has not learned of that, leads
    /// the shard, and the end of the epoch becomes durable.
    #[test]
    fn what_was_told_of_a_lost_shard_stays_until_the_configuration_says_more() {
        let (shard, watermark) = (ShardId(0), SharedWatermark::new(1));
        assert!(watermark.raise_led(shard, Clock(7)));
        assert_eq!(watermark.freeze(shard), (Clock(7), false));
        assert!(!watermark.raise_led(shard, Clock(9)) && !watermark.end(shard));
        assert_eq!(watermark.end_led(shard, Clock(9)), None);
        assert_eq!((watermark.of(shard), watermark.has_ended(shard)), (Clock(7), false));
        assert!(watermark.end_at(shard, Clock(8)), "the configuration says so");
        assert_eq!((watermark.of(shard), watermark.has_ended(shard)), (Clock(8), true));
    }
}
