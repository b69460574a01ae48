//! The laws of stamps and watermarks, on few shards and small clocks, so that they often meet.

use super::*;
use proptest::prelude::*;

/// Shards of the configuration.
const SHARDS: u32 = 5;

/// A stamp and the shard that keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    own: ShardId,
    pub(crate) stamp: Stamp,
}

impl Kept {
    fn view(&self) -> View<'_> {
        self.stamp.seen_by(self.own)
    }

    fn merged(&self, other: &Kept) -> Kept {
        let mut merged = self.clone();
        merged.stamp.merge(self.own, other.view());
        merged
    }

    /// The stamp as what it means: a clock for each shard, and one for all others.
    fn clocks(&self) -> Vec<Clock> {
        (0..SHARDS)
            .map(ShardId)
            .chain([ShardId::EVERY])
            .map(|shard| self.view().entry(shard))
            .collect()
    }

    fn assert_invariants(&self) {
        let (remote, floor) = (&self.stamp.remote, self.stamp.as_ref().floor());
        assert!(remote.is_sorted_by(|one, two| one.shard < two.shard), "{self:?}");
        let above = |entry: &RemoteClock| entry.shard == ShardId::EVERY || entry.clock > floor;
        assert!(remote.iter().all(|entry| entry.clock > Clock::ZERO && above(entry)), "{self:?}");
        assert!(remote.iter().all(|entry| entry.shard != self.own), "{self:?}");
    }
}

fn shard() -> impl Strategy<Value = ShardId> {
    (0..SHARDS).prop_map(ShardId)
}

fn epoch() -> impl Strategy<Value = Epoch> {
    prop_oneof![9 => Just(Epoch(1)), 1 => Just(Epoch(2))]
}

pub(crate) fn kept() -> impl Strategy<Value = Kept> {
    let named = prop_oneof![8 => shard(), 1 => Just(ShardId::EVERY)];
    let pushes = prop::collection::vec((named, 0_u64..8), 0..8);
    (shard(), epoch(), 0_u64..8, pushes).prop_map(|(own, epoch, clock, pushes)| {
        let mut stamp = Stamp::local(epoch, Clock(clock));
        for (shard, clock) in pushes {
            stamp.push(own, shard, Clock(clock));
        }
        Kept { own, stamp }
    })
}

pub(crate) fn watermark() -> impl Strategy<Value = VectorWatermark> {
    let clocks = prop::collection::vec(0_u64..8, SHARDS as usize);
    (epoch(), clocks).prop_map(|(epoch, clocks)| VectorWatermark {
        epoch,
        clocks: clocks.into_iter().map(Clock).collect(),
    })
}

/// A watermark, and one at least as far.
fn advancing() -> impl Strategy<Value = (VectorWatermark, VectorWatermark)> {
    (watermark(), prop::collection::vec((shard(), 0_u64..12), 0..4)).prop_map(|(before, raises)| {
        let mut after = before.clone();
        for (shard, clock) in raises {
            after.raise(shard, Clock(clock));
        }
        (before, after)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_push_raises_one_entry(mut kept in kept(), shard in shard(), clock in 0_u64..8) {
        let mut expected = kept.clocks();
        expected[shard.0 as usize] = expected[shard.0 as usize].max(Clock(clock));
        kept.stamp.push(kept.own, shard, Clock(clock));
        kept.assert_invariants();
        prop_assert_eq!(kept.clocks(), expected);
    }

    #[test]
    fn a_push_of_the_floor_raises_all_entries(mut kept in kept(), floor in 0_u64..8) {
        let expected: Vec<_> = kept.clocks().into_iter().map(|clock| clock.max(Clock(floor))).collect();
        kept.stamp.push(kept.own, ShardId::EVERY, Clock(floor));
        kept.assert_invariants();
        prop_assert_eq!(kept.clocks(), expected);
    }

    #[test]
    fn the_order_is_that_of_vectors((a, b) in (kept(), kept())) {
        let (x, y) = (a.clocks(), b.clocks());
        let below = x.iter().zip(&y).all(|(x, y)| x <= y);
        let above = x.iter().zip(&y).all(|(x, y)| x >= y);
        let expected = match (a.stamp.epoch.cmp(&b.stamp.epoch), below, above) {
            (Ordering::Equal, true, true) => Some(Ordering::Equal),
            (Ordering::Equal, true, false) => Some(Ordering::Less),
            (Ordering::Equal, false, true) => Some(Ordering::Greater),
            (Ordering::Equal, false, false) => None,
            (by_epoch, ..) => Some(by_epoch),
        };
        prop_assert_eq!(a.view().partial_cmp(&b.view()), expected);
    }

    #[test]
    fn the_order_is_partial((a, b, c) in (kept(), kept(), kept())) {
        let (a, b, c) = (a.view(), b.view(), c.view());
        prop_assert!(a <= a);
        prop_assert_eq!(a <= b && b <= a, a == b);
        prop_assert!(!(a <= b && b <= c) || a <= c);
    }

    #[test]
    fn merge_is_the_least_upper_bound((a, b, c) in (kept(), kept(), kept())) {
        let merged = a.merged(&b);
        let reversed = b.merged(&a);
        merged.assert_invariants();
        prop_assert!(a.view() <= merged.view() && b.view() <= merged.view(), "upper bound");
        let bounded = a.view() <= c.view() && b.view() <= c.view();
        prop_assert!(!bounded || merged.view() <= c.view(), "least");
        prop_assert_eq!(merged.view(), reversed.view(), "commutative");
        prop_assert_eq!(a.merged(&a).stamp, a.stamp.clone(), "idempotent");
        let (left, right) = (merged.merged(&c), a.merged(&b.merged(&c)));
        prop_assert_eq!(left.view(), right.view(), "associative");
    }

    #[test]
    fn a_stamp_is_the_same_whoever_keeps_it(a in kept(), own in shard(), below in 0_u64..3) {
        let (entry, floor) = (a.view().entry(own), a.stamp.as_ref().floor());
        let drawn = match (own == a.own, entry == floor) {
            (true, _) => a.stamp.clock,
            (false, true) => Clock(floor.0.saturating_sub(below)),
            (false, false) => entry,
        };
        let kept = Kept { own, stamp: a.view().kept_by(own, drawn) };
        kept.assert_invariants();
        prop_assert_eq!(kept.view(), a.view());
        prop_assert_eq!(kept.stamp.clock, drawn);
    }

    #[test]
    fn covers_asks_every_shard(a in kept(), watermark in watermark()) {
        let durable = |shard| a.view().entry(shard) <= watermark.of(shard);
        let covered = a.stamp.epoch == watermark.epoch && (0..SHARDS).map(ShardId).all(durable);
        prop_assert_eq!(watermark.covers(a.own, a.stamp.as_ref()), covered);
    }

    #[test]
    fn covers_is_monotone_in_the_watermark(a in kept(), (before, after) in advancing()) {
        prop_assert!(before <= after);
        let covers = |watermark: &VectorWatermark| watermark.covers(a.own, a.stamp.as_ref());
        prop_assert!(!covers(&before) || covers(&after));
    }

    #[test]
    fn covers_is_antitone_in_the_stamp(a in kept(), b in kept(), watermark in watermark()) {
        prop_assume!(a.stamp.epoch == b.stamp.epoch);
        let greater = a.merged(&b);
        let covers = |kept: &Kept| watermark.covers(kept.own, kept.stamp.as_ref());
        prop_assert!(!covers(&greater) || (covers(&a) && covers(&b)));
        prop_assert_eq!(covers(&greater), covers(&a) && covers(&b), "a merge adds no dependency");
    }

    #[test]
    fn prune_leaves_covers_alone(a in kept(), (before, after) in advancing()) {
        let mut pruned = a.clone();
        pruned.stamp.prune(&before);
        pruned.assert_invariants();
        prop_assert!(pruned.view() <= a.view());
        for watermark in [&before, &after] {
            let covers = |kept: &Kept| watermark.covers(kept.own, kept.stamp.as_ref());
            prop_assert_eq!(covers(&pruned), covers(&a));
        }
        let left = |entry: &RemoteClock| before.of(entry.shard) < entry.clock;
        prop_assert!(before.epoch != a.stamp.epoch || pruned.stamp.remote.iter().all(left));
    }

    #[test]
    fn collapse_bounds_and_only_grows(a in kept(), max in 1_usize..5, watermark in watermark()) {
        let mut collapsed = a.clone();
        collapsed.stamp.collapse(max);
        collapsed.assert_invariants();
        prop_assert!(collapsed.stamp.remote.len() <= max.min(a.stamp.remote.len()));
        prop_assert!(a.view() <= collapsed.view());
        prop_assert_eq!(a.stamp.clock, collapsed.stamp.clock);
        let covers = |kept: &Kept| watermark.covers(kept.own, kept.stamp.as_ref());
        prop_assert!(!covers(&collapsed) || covers(&a));
    }

    #[test]
    fn watermarks_only_rise((mut a, b) in (watermark(), watermark())) {
        let before = a.clone();
        let changed = a.merge(&b);
        prop_assert_eq!(changed, a != before);
        prop_assert!(before <= a);
        prop_assert!(b.partial_cmp(&before).is_none() || b <= a);
        prop_assert!(!a.merge(&b), "idempotent");
    }
}

#[test]
fn the_example_of_the_header_holds() {
    let (s0, s2, s5) = (ShardId(0), ShardId(2), ShardId(5));
    let mut read = Stamp::local(Epoch(1), Clock(90));
    read.prune(&VectorWatermark::new(Epoch(1), 6));
    let mut stamp = Stamp::local(Epoch(1), Clock(17));
    stamp.merge(s0, read.seen_by(s5));
    stamp.push(s0, s2, Clock(4));
    assert_eq!(stamp.remote, [entry(2, 4), entry(5, 90)]);
    let other = stamp.seen_by(s0).kept_by(s2, Clock(4));
    assert_eq!((other.clock, &other.remote[..]), (Clock(4), &[entry(0, 17), entry(5, 90)][..]));
}

#[test]
fn a_shard_outside_the_configuration_is_never_durable() {
    let mut watermark = VectorWatermark::new(Epoch(1), 2);
    assert!(watermark.raise(ShardId(0), Clock::MAX) && watermark.raise(ShardId(1), Clock(5)));
    assert!(!watermark.raise(ShardId(2), Clock(5)) && !watermark.raise(ShardId::EVERY, Clock(5)));
    let mut stamp = Stamp::local(Epoch(1), Clock(5));
    stamp.push(ShardId(1), ShardId::EVERY, Clock(5));
    assert!(watermark.covers(ShardId(1), stamp.as_ref()));
    stamp.push(ShardId(1), ShardId(2), Clock(6));
    assert!(!watermark.covers(ShardId(1), stamp.as_ref()));
    assert_eq!(watermark.partial_cmp(&VectorWatermark::new(Epoch(1), 3)), None);
    assert_eq!(watermark.partial_cmp(&VectorWatermark::new(Epoch(2), 2)), None);
}

#[test]
fn a_collapse_keeps_the_greatest_clocks() {
    let mut stamp = Stamp::local(Epoch(1), Clock(1));
    for (shard, clock) in [(1, 10), (2, 40), (3, 20), (4, 30), (5, 20)] {
        stamp.push(ShardId(0), ShardId(shard), Clock(clock));
    }
    stamp.collapse(5);
    assert_eq!(stamp.remote.len(), 5, "it fits as it is");
    stamp.collapse(3);
    let floor = RemoteClock { shard: ShardId::EVERY, clock: Clock(20) };
    assert_eq!(stamp.remote, [entry(2, 40), entry(4, 30), floor]);
    assert_eq!(stamp.as_ref().entry(ShardId(0), ShardId(77)), Clock(20));
}

fn entry(shard: u32, clock: u64) -> RemoteClock {
    RemoteClock { shard: ShardId(shard), clock: Clock(clock) }
}
