//! What waits for the watermark, without one waiting behind another.
//!
//! Each item waits at the first shard that does not cover its stamp, in order of the clock it needs
//! there. When that shard has come so far, it moves on to the next one, or is done. So a slow shard
//! delays only those that depend on it, and a step of one shard's watermark looks at no more than the
//! items it frees.
//!
//! Most stamps have no remote entries, and a shard gives them out with ascending clocks. Such items wait in a queue of their
//! shard, in the order of these clocks; one that comes out of that order waits as the others do.
//!
//! Invariant: the clocks of a queue of local items ascend.

use shoal_types::{Clock, ShardId, Stamp, VectorWatermark};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Items of type `T` and their stamps.
#[derive(Debug)]
pub(crate) struct DurabilityWait<T> {
    /// For each shard: the items that it keeps and whose stamps have no remote entries.
    local: Vec<VecDeque<LocalItem<T>>>,
    /// The other items.
    items: BTreeMap<u64, WaitingItem<T>>,
    next: u64,
    /// For each shard: the clock that is needed, and by which item. Those that need all shards to
    /// have come somewhere (a collapsed stamp's floor) wait in the last one.
    queues: Vec<BinaryHeap<Reverse<(Clock, u64)>>>,
}

#[derive(Debug)]
struct LocalItem<T> {
    number: u64,
    stamp: Stamp,
    item: T,
}

#[derive(Debug)]
struct WaitingItem<T> {
    own: ShardId,
    stamp: Stamp,
    item: T,
}

impl<T> DurabilityWait<T> {
    /// None, in a configuration of so many shards.
    pub(crate) fn new(shards: usize) -> DurabilityWait<T> {
        let queues = (0..=shards).map(|_| BinaryHeap::new()).collect();
        let local = (0..shards).map(|_| VecDeque::new()).collect();
        DurabilityWait { local, items: BTreeMap::new(), next: 0, queues }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.items.len() + self.local.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Adds an item that waits for `stamp`, kept by `own`; gives it back if it need not wait.
    pub(crate) fn push(
        &mut self,
        watermark: &VectorWatermark,
        own: ShardId,
        stamp: Stamp,
        item: T,
    ) -> Option<(Stamp, T)> {
        let Some((shard, clock)) = first_uncovered(watermark, own, &stamp) else {
            return Some((stamp, item));
        };
        let number = self.next;
        self.next += 1;
        let local = &mut self.local[own.0 as usize];
        let is_last = local.back().is_none_or(|last| last.stamp.clock <= clock);
        if stamp.as_ref().remote.is_empty() && is_last {
            local.push_back(LocalItem { number, stamp, item });
            return None;
        }
        self.items.insert(number, WaitingItem { own, stamp, item });
        self.queue(shard).push(Reverse((clock, number)));
        None
    }

    /// Takes out what `watermark` covers: shard by shard, in the order of the clocks that are needed there.
    pub(crate) fn advance(
        &mut self,
        watermark: &VectorWatermark,
        mut done: impl FnMut(ShardId, Stamp, T),
    ) {
        for at in 0..self.queues.len() {
            let shard = match at == self.queues.len() - 1 {
                true => ShardId::EVERY,
                false => ShardId(at as u32),
            };
            let reached = watermark.of(shard);
            loop {
                let local = self.local.get(at).and_then(VecDeque::front);
                let local = local.map(|first| (first.stamp.clock, first.number));
                let other = self.queues[at].peek().map(|Reverse(first)| *first);
                let Some(next) = local.into_iter().chain(other).min() else { break };
                if next.0 > reached {
                    break;
                }
                if local == Some(next) {
                    let first = self.local[at].pop_front().expect("seen above");
                    done(shard, first.stamp, first.item);
                } else {
                    self.queues[at].pop();
                    self.advance_other(watermark, next.1, &mut done);
                }
            }
        }
    }

    /// An item has waited long enough at a shard: it is done, or waits at the next.
    fn advance_other(
        &mut self,
        watermark: &VectorWatermark,
        number: u64,
        done: &mut impl FnMut(ShardId, Stamp, T),
    ) {
        let Some(item) = self.items.get(&number) else { return }; // It was taken out.
        match first_uncovered(watermark, item.own, &item.stamp) {
            Some((shard, clock)) => self.queue(shard).push(Reverse((clock, number))),
            None => {
                let WaitingItem { own, stamp, item } =
                    self.items.remove(&number).expect("seen above");
                done(own, stamp, item);
            }
        }
    }

    /// Takes out the items that `picked` picks out, each with the shard that it waits for, in the order in which they came.
    pub(crate) fn take_if(
        &mut self,
        watermark: &VectorWatermark,
        picked: impl Fn(&T) -> bool,
    ) -> Vec<(ShardId, T)> {
        let waits_for =
            |item: &WaitingItem<T>| match first_uncovered(watermark, item.own, &item.stamp) {
                // A floor waits for the shard that is furthest behind.
                Some((ShardId::EVERY, _)) => least(watermark),
                Some((shard, _)) => shard,
                None => item.own,
            };
        let others = self.items.extract_if(.., |_, item| picked(&item.item));
        let mut taken: Vec<(u64, ShardId, T)> =
            others.map(|(number, item)| (number, waits_for(&item), item.item)).collect();
        for (shard, local) in (0..).map(ShardId).zip(&mut self.local) {
            if local.iter().any(|waiting| picked(&waiting.item)) {
                let (gone, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(local)
                    .into_iter()
                    .partition(|waiting: &LocalItem<T>| picked(&waiting.item));
                *local = kept;
                taken.extend(gone.into_iter().map(|it| (it.number, shard, it.item)));
            }
        }
        taken.sort_unstable_by_key(|(number, _, _)| *number);
        taken.into_iter().map(|(_, shard, item)| (shard, item)).collect()
    }

    /// The items that wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let local = self.local.iter().flatten().map(|waiting| &waiting.item);
        local.chain(self.items.values().map(|item| &item.item))
    }

    /// Takes out everything that waits, in the order in which it came.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (ShardId, Stamp, T)> + use<T> {
        self.queues.iter_mut().for_each(BinaryHeap::clear);
        let others = std::mem::take(&mut self.items).into_iter();
        let mut all: Vec<(u64, (ShardId, Stamp, T))> =
            others.map(|(number, it)| (number, (it.own, it.stamp, it.item))).collect();
        for (shard, local) in (0..).map(ShardId).zip(&mut self.local) {
            all.extend(local.drain(..).map(|it| (it.number, (shard, it.stamp, it.item))));
        }
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, item)| item)
    }

    fn queue(&mut self, shard: ShardId) -> &mut BinaryHeap<Reverse<(Clock, u64)>> {
        let last = self.queues.len() - 1;
        &mut self.queues[(shard.0 as usize).min(last)]
    }
}

/// The shard that is furthest behind.
fn least(watermark: &VectorWatermark) -> ShardId {
    let shards = (0..watermark.shards() as u32).map(ShardId);
    shards.min_by_key(|shard| watermark.of(*shard)).unwrap_or(ShardId(0))
}

/// A shard that has not come as far as `stamp` needs, and how far that is.
fn first_uncovered(
    watermark: &VectorWatermark,
    own: ShardId,
    stamp: &Stamp,
) -> Option<(ShardId, Clock)> {
    assert_eq!(watermark.epoch(), stamp.epoch, "clocks of different epochs do not compare");
    let own = std::iter::once((own, stamp.clock));
    let remote = stamp.as_ref().remote.iter().map(|entry| (entry.shard, entry.clock));
    own.chain(remote).find(|(shard, clock)| watermark.of(*shard) < *clock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::Epoch;

    const S: [ShardId; 3] = [ShardId(0), ShardId(1), ShardId(2)];

    fn stamp(clocks: [u64; 3]) -> Stamp {
        let mut stamp = Stamp::local(Epoch(1), Clock(clocks[0]));
        stamp.push(S[0], S[1], Clock(clocks[1]));
        stamp.push(S[0], S[2], Clock(clocks[2]));
        stamp
    }

    #[test]
    fn a_slow_shard_delays_only_those_who_need_it() {
        let mut watermark = VectorWatermark::new(Epoch(1), 3);
        let mut durability_wait = DurabilityWait::new(3);
        let free = durability_wait.push(&watermark, S[0], stamp([0, 0, 0]), "free");
        assert_eq!(free, Some((stamp([0, 0, 0]), "free")));
        assert_eq!(durability_wait.push(&watermark, S[0], stamp([5, 0, 9]), "slow"), None);
        assert_eq!(durability_wait.push(&watermark, S[0], stamp([6, 1, 0]), "quick"), None);
        let mut floor = Stamp::local(Epoch(1), Clock(1));
        floor.push(S[0], ShardId::EVERY, Clock(3));
        assert_eq!(durability_wait.push(&watermark, S[0], floor, "all"), None);
        let mut advance = |shard: usize, clock: u64| {
            let mut done = Vec::new();
            watermark.raise(S[shard], Clock(clock));
            durability_wait.advance(&watermark, |_, _, item| done.push(item));
            done
        };
        assert_eq!(advance(0, 7), [""; 0]);
        assert_eq!(advance(1, 4), ["quick"]);
        assert_eq!(advance(2, 3), ["all"]);
        assert_eq!(advance(2, 8), [""; 0]);
        assert_eq!(advance(2, 9), ["slow"]);
        assert_eq!(durability_wait.len(), 0);
    }

    #[test]
    fn what_was_taken_out_does_not_come_back() {
        let mut watermark = VectorWatermark::new(Epoch(1), 3);
        let mut durability_wait = DurabilityWait::new(3);
        assert_eq!(durability_wait.push(&watermark, S[0], stamp([5, 0, 9]), "old"), None);
        assert_eq!(durability_wait.push(&watermark, S[0], stamp([6, 0, 9]), "new"), None);
        watermark.raise(S[0], Clock(5));
        let taken = durability_wait.take_if(&watermark, |item| *item == "old");
        assert_eq!(taken, [(S[2], "old")]);
        watermark.raise(S[0], Clock(9));
        watermark.raise(S[2], Clock(9));
        let mut done = Vec::new();
        durability_wait.advance(&watermark, |_, _, item| done.push(item));
        assert_eq!((done, durability_wait.len()), (vec!["new"], 0));
    }

    #[test]
    fn local_stamps_wait_in_order_and_others_do_not_wait_behind_them() {
        let mut watermark = VectorWatermark::new(Epoch(1), 3);
        let mut durability_wait = DurabilityWait::new(3);
        for (clock, item) in [(5, "first"), (7, "second"), (7, "third"), (6, "late")] {
            let stamp = Stamp::local(Epoch(1), Clock(clock));
            assert_eq!(durability_wait.push(&watermark, S[0], stamp, item), None);
        }
        assert_eq!(durability_wait.push(&watermark, S[0], stamp([8, 0, 1]), "remote"), None);
        let other = Stamp::local(Epoch(1), Clock(1));
        assert_eq!(durability_wait.push(&watermark, S[1], other, "other"), None);
        let mut advance = |shard: usize, clock: u64| {
            let mut done = Vec::new();
            watermark.raise(S[shard], Clock(clock));
            durability_wait.advance(&watermark, |own, stamp, item| {
                assert!(watermark.covers(own, stamp.as_ref()), "{item} is not covered");
                done.push(item);
            });
            done
        };
        assert_eq!(advance(0, 6), ["first", "late"]);
        assert_eq!(advance(2, 9), [""; 0]);
        assert_eq!(advance(0, 8), ["second", "third", "remote"]);
        assert_eq!(durability_wait.iter().collect::<Vec<_>>(), [&"other"]);
        let taken = durability_wait.take_if(&watermark, |item| *item == "other");
        assert_eq!((taken, durability_wait.len()), (vec![(S[1], "other")], 0));
    }

    #[test]
    fn all_is_taken_with_its_stamp() {
        let watermark = VectorWatermark::new(Epoch(1), 3);
        let mut durability_wait = DurabilityWait::new(3);
        let (local, remote) = (Stamp::local(Epoch(1), Clock(5)), stamp([6, 1, 0]));
        durability_wait.push(&watermark, S[0], remote.clone(), "remote");
        durability_wait.push(&watermark, S[0], local.clone(), "local");
        let all: Vec<_> = durability_wait.take_all().collect();
        assert_eq!(all, [(S[0], remote, "remote"), (S[0], local, "local")]);
        assert_eq!(durability_wait.len(), 0);
    }
}
