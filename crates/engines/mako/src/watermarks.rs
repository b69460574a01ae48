//! What a worker knows to be durable: of each epoch that is open or closing, its vector watermark, and which shards have
//! ended it; of those that are settled, the final one (`docs/recovery.md`).
//!
//! A version is **committed** once each entry of its stamp is covered, **rolled back** once one exceeds the end of its
//! shard, and else **undecided** (rule M12). An epoch is settled once all shards have ended it, with any outcome
//! of those before.

use crate::planted_bugs::MakoPlantedBug;
use shoal_engine::PlantedBugs;
use shoal_types::{Clock, Epoch, ShardId, Stamp, StampRef, VectorWatermark};
use std::collections::{BTreeMap, BTreeSet};

/// The vector watermarks that a worker knows, by epoch, and which shards have ended each.
#[derive(Debug, Clone)]
pub(crate) struct Watermarks {
    shards: usize,
    faults: PlantedBugs<MakoPlantedBug>,
    /// The last epoch that this worker has learned of.
    newest: Epoch,
    /// FVWs that do not cover all of their epoch. Those of epochs up to `forgotten` are kept no more.
    finals: BTreeMap<Epoch, VectorWatermark>,
    forgotten: Epoch,
    /// Of the epochs that are not settled, the newest last.
    live: Vec<VectorWatermark>,
    /// Shards that have ended such an epoch, and come no further in it.
    ended: BTreeSet<(Epoch, ShardId)>,
}

impl Watermarks {
    /// Nothing is durable yet; `epoch` is the first.
    pub(crate) fn new(
        epoch: Epoch,
        shards: usize,
        faults: PlantedBugs<MakoPlantedBug>,
    ) -> Watermarks {
        Watermarks {
            shards,
            faults,
            newest: epoch,
            finals: BTreeMap::new(),
            forgotten: Epoch(0),
            live: vec![VectorWatermark::new(epoch, shards)],
            ended: BTreeSet::new(),
        }
    }

    /// How a settled epoch ended.
    pub(crate) fn last(&self, epoch: Epoch) -> VectorWatermark {
        assert!(self.is_settled(epoch), "{epoch} is not settled");
        let known = self.finals.get(&epoch).cloned();
        known.unwrap_or_else(|| VectorWatermark::whole(epoch, self.shards))
    }

    /// Forgets the FVWs of epochs up to `last`: no version is left here that one of them does not cover, and what streams
    /// still bring of these epochs their own FVWs judge.
    pub(crate) fn forget(&mut self, last: Epoch) {
        if last > self.forgotten {
            self.forgotten = last;
            self.finals = self.finals.split_off(&Epoch(last.0 + 1));
        }
    }

    /// How the epochs up to this one ended may be known no more.
    pub(crate) fn forgotten(&self) -> Epoch {
        self.forgotten
    }

    /// The oldest FVW that is kept and does not cover all of its epoch.
    pub(crate) fn first_partial(&self) -> Option<Epoch> {
        self.finals.first_key_value().map(|(epoch, _)| *epoch)
    }

    /// The FVWs of epochs up to `last` that do not cover all of theirs.
    pub(crate) fn partial(&self, last: Epoch) -> impl Iterator<Item = &VectorWatermark> {
        self.finals.range(..=last).map(|(_, watermark)| watermark)
    }

    /// How many epochs are not settled, how many FVWs are kept, and how many ends of epochs that are not settled.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        [self.live.len(), self.finals.len(), self.ended.len()]
    }

    /// Is this, kept by `own`, lost for good? Either its epoch is settled without it, or a shard has ended
    /// that before what it depends on.
    pub(crate) fn rejects(&self, own: ShardId, stamp: StampRef<'_>) -> bool {
        let Some(watermark) = self.live(stamp.epoch) else {
            return self.is_settled(stamp.epoch) && !self.covers(own, stamp);
        };
        let floor = stamp.entry(own, ShardId::EVERY);
        self.ended_in(stamp.epoch).any(|shard| {
            let last = watermark.of(shard);
            stamp.entry(own, shard) > last || floor > last
        })
    }

    /// `shard` has ended this epoch where its watermark is now. Says whether that is news.
    pub(crate) fn end(&mut self, epoch: Epoch, shard: ShardId) -> bool {
        self.live(epoch).is_some() && self.ended.insert((epoch, shard))
    }

    /// The shards that have ended this epoch, which is not settled.
    pub(crate) fn ended_in(&self, epoch: Epoch) -> impl Iterator<Item = ShardId> + '_ {
        let (first, last) = ((epoch, ShardId(0)), (epoch, ShardId::EVERY));
        self.ended.range(first..=last).map(|(_, shard)| *shard)
    }

    /// Epochs up to this one are settled, and the next is not.
    pub(crate) fn settled(&self) -> Epoch {
        self.live.first().map_or(self.newest, |first| Epoch(first.epoch().0 - 1))
    }

    /// Is it known how an epoch ended on all shards?
    pub(crate) fn is_settled(&self, epoch: Epoch) -> bool {
        epoch <= self.newest && self.live(epoch).is_none()
    }

    /// How an epoch ended on a shard, if that is known.
    pub(crate) fn end_of(&self, epoch: Epoch, shard: ShardId) -> Option<Clock> {
        let known = self.is_settled(epoch) || self.ended.contains(&(epoch, shard));
        known.then(|| self.of(epoch, shard))
    }

    /// A shard that has not said how it ended the epoch of what has this stamp, kept by `own`, which depends on more of
    /// it than is known to be durable.
    pub(crate) fn waits_for(&self, own: ShardId, stamp: StampRef<'_>) -> Option<ShardId> {
        let watermark = self.live(stamp.epoch)?;
        let shards = (0..self.shards as u32).map(ShardId);
        let mut open = shards.filter(|shard| !self.ended.contains(&(stamp.epoch, *shard)));
        open.find(|shard| stamp.entry(own, *shard) > watermark.of(*shard))
    }

    /// Epochs up to this one are open or closing.
    pub(crate) fn begin(&mut self, newest: Epoch) {
        while self.newest < newest {
            self.newest.0 += 1;
            self.live.push(VectorWatermark::new(self.newest, self.shards));
        }
    }

    /// An epoch that was not settled has ended like this.
    pub(crate) fn settle(&mut self, last: VectorWatermark) {
        let at = self.live.iter().position(|live| live.epoch() == last.epoch());
        let first = self.live.remove(at.expect("it is not settled"));
        let shards = || (0..self.shards as u32).map(ShardId);
        assert!(
            shards().all(|shard| first.of(shard) <= last.of(shard)),
            "M9: {first:?} was durable, and {last:?} is final"
        );
        assert!(
            self.ended_in(last.epoch()).all(|shard| first.of(shard) == last.of(shard)),
            "M9: {first:?} is how {:?} have ended, and {last:?} is final",
            self.ended
        );
        self.ended.retain(|(epoch, _)| *epoch != last.epoch());
        if !last.is_whole() && last.epoch() > self.forgotten {
            self.finals.insert(last.epoch(), last);
        }
    }

    /// The watermark of an epoch that is not settled.
    pub(crate) fn live(&self, epoch: Epoch) -> Option<&VectorWatermark> {
        // Mostly it is the open one.
        self.live.iter().rfind(|live| live.epoch() == epoch)
    }

    /// See [`live`](Watermarks::live).
    pub(crate) fn live_mut(&mut self, epoch: Epoch) -> Option<&mut VectorWatermark> {
        self.live.iter_mut().rfind(|live| live.epoch() == epoch)
    }

    /// All epochs that are not settled, oldest first.
    pub(crate) fn all_live(&self) -> impl Iterator<Item = &VectorWatermark> {
        self.live.iter()
    }

    /// Whether all that `stamp`, kept by `own`, depends on is committed.
    pub(crate) fn covers(&self, own: ShardId, stamp: StampRef<'_>) -> bool {
        match self.live(stamp.epoch) {
            Some(watermark) => watermark.covers(own, stamp),
            None if stamp.epoch <= self.newest => {
                self.finals.get(&stamp.epoch).is_none_or(|last| {
                    let by_clock = self.faults.has(MakoPlantedBug::RollBackByClock);
                    last.covers(own, stamp) || (by_clock && stamp.clock <= last.of(own))
                })
            }
            None => false,
        }
    }

    /// See [`Stamp::prune`].
    pub(crate) fn prune(&self, stamp: &mut Stamp) {
        if let Some(watermark) = self.live(stamp.epoch) {
            stamp.prune(watermark);
        }
    }

    /// How far `shard` is known to be durable for the transactions of `epoch`.
    pub(crate) fn of(&self, epoch: Epoch, shard: ShardId) -> Clock {
        match self.live(epoch) {
            Some(watermark) => watermark.of(shard),
            None if epoch <= self.newest => {
                self.finals.get(&epoch).map_or(Clock::MAX, |last| last.of(shard))
            }
            None => Clock::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: ShardId = ShardId(0);

    fn last(epoch: u32, clock: Clock) -> VectorWatermark {
        let mut last = VectorWatermark::new(Epoch(epoch), 1);
        last.raise(S, clock);
        last
    }

    #[test]
    fn a_stamp_is_judged_by_its_own_epoch() {
        let mut watermarks = Watermarks::new(Epoch(1), 1, PlantedBugs::NONE);
        watermarks.begin(Epoch(3));
        watermarks.live_mut(Epoch(2)).expect("live").raise(S, Clock(7));
        let covers = |watermarks: &Watermarks, epoch, clock| {
            watermarks.covers(S, Stamp::local(Epoch(epoch), Clock(clock)).as_ref())
        };
        assert!(covers(&watermarks, 2, 7) && !covers(&watermarks, 2, 8));
        assert!(!covers(&watermarks, 1, 1) && !covers(&watermarks, 3, 1));
        assert!(!covers(&watermarks, 9, 1), "no end is known");
        watermarks.settle(last(1, Clock::MAX));
        watermarks.settle(last(2, Clock(9)));
        assert!(covers(&watermarks, 1, 1_000_000), "nothing was left hanging");
        assert!(covers(&watermarks, 2, 9) && !covers(&watermarks, 2, 10));
        assert_eq!(watermarks.of(Epoch(2), S), Clock(9));
        assert_eq!(watermarks.settled(), Epoch(2));
    }

    /// Before the epoch is settled: what depends on more of a shard than there is of it at its end is lost, and
    /// nothing else.
    #[test]
    fn what_a_shard_has_ended_without_is_lost() {
        let other = ShardId(1);
        let mut watermarks = Watermarks::new(Epoch(1), 2, PlantedBugs::NONE);
        watermarks.begin(Epoch(2));
        watermarks.live_mut(Epoch(1)).expect("live").raise(S, Clock(7));
        let stamp = |clock, shard, remote| {
            let mut stamp = Stamp::local(Epoch(1), Clock(clock));
            stamp.push(S, shard, Clock(remote));
            stamp
        };
        let all = [stamp(7, other, 9), stamp(8, other, 1), stamp(1, ShardId::EVERY, 8)];
        let rejected = |watermarks: &Watermarks| {
            all.clone().map(|stamp| watermarks.rejects(S, stamp.as_ref()))
        };
        assert_eq!(rejected(&watermarks), [false; 3], "it may come further");
        assert!(watermarks.end(Epoch(1), S) && !watermarks.end(Epoch(1), S));
        assert_eq!(rejected(&watermarks), [false, true, true]);
        assert!(!watermarks.end(Epoch(9), S), "no end is known");
        let mut last = VectorWatermark::new(Epoch(1), 2);
        last.raise(S, Clock(7));
        last.raise(other, Clock(9));
        watermarks.settle(last);
        assert_eq!(rejected(&watermarks), [false, true, true], "as was said");
        assert_eq!(watermarks.ended_in(Epoch(1)).count(), 0);
    }

    /// An epoch is settled whether those before are or not.
    #[test]
    fn an_epoch_waits_for_none_before() {
        let other = ShardId(1);
        let mut watermarks = Watermarks::new(Epoch(1), 2, PlantedBugs::NONE);
        watermarks.begin(Epoch(3));
        let stamp = |epoch, clock, remote| {
            let mut stamp = Stamp::local(Epoch(epoch), Clock(clock));
            stamp.push(S, other, Clock(remote));
            stamp
        };
        watermarks.live_mut(Epoch(1)).expect("live").raise(S, Clock(7));
        watermarks.end(Epoch(1), S);
        watermarks.settle(VectorWatermark::whole(Epoch(2), 2));
        let (lost, open) = (stamp(1, 8, 1), stamp(1, 7, 1));
        assert!(watermarks.rejects(S, lost.as_ref()), "whatever the other shard says");
        assert!(!watermarks.rejects(S, open.as_ref()) && !watermarks.covers(S, open.as_ref()));
        assert_eq!(watermarks.waits_for(S, open.as_ref()), Some(other));
        assert!(watermarks.covers(S, stamp(2, 90, 90).as_ref()));
        assert_eq!((watermarks.settled(), watermarks.is_settled(Epoch(2))), (Epoch(0), true));
        assert_eq!(watermarks.end_of(Epoch(1), S), Some(Clock(7)));
        assert_eq!(watermarks.end_of(Epoch(1), other), None);
        assert_eq!(watermarks.end_of(Epoch(2), other), Some(Clock::MAX));
        let mut last = VectorWatermark::new(Epoch(1), 2);
        last.raise(S, Clock(7));
        watermarks.settle(last);
        assert!(watermarks.rejects(S, open.as_ref()));
        assert_eq!(watermarks.settled(), Epoch(2));
    }

    #[test]
    #[should_panic(expected = "M9")]
    fn what_a_shard_has_ended_with_is_final() {
        let mut watermarks = Watermarks::new(Epoch(1), 1, PlantedBugs::NONE);
        watermarks.begin(Epoch(2));
        watermarks.live_mut(Epoch(1)).expect("live").raise(S, Clock(7));
        watermarks.end(Epoch(1), S);
        watermarks.settle(last(1, Clock(8)));
    }

    #[test]
    #[should_panic(expected = "M9")]
    fn what_was_durable_stays() {
        let mut watermarks = Watermarks::new(Epoch(1), 1, PlantedBugs::NONE);
        watermarks.live_mut(Epoch(1)).expect("live").raise(S, Clock(7));
        watermarks.settle(last(1, Clock(6)));
    }
}
