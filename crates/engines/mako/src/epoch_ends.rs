//! What `mako` says of the end of an epoch on a shard: its final shard watermark, the payload that the manager keeps
//! unread. [`Clock::MAX`] says that nothing was left hanging. The final ends of all shards are the final vector watermark
//! (`docs/recovery.md`).

use shoal_cluster::manager::{EpochEnd, FinalEnds};
use shoal_types::{Clock, ShardId, VectorWatermark};

/// The end of an epoch of which a shard has all up to `clock`.
pub fn end_at(clock: Clock) -> EpochEnd {
    EpochEnd::up_to(clock.0)
}

/// Up to which clock a shard has an epoch that ended so. Of an end that no leader of this engine has reported: none of it.
pub fn clock_of(end: &EpochEnd) -> Clock {
    Clock(end.number().unwrap_or_default())
}

/// The final vector watermark of an epoch.
pub fn watermark_of(last: &FinalEnds) -> VectorWatermark {
    let mut watermark = VectorWatermark::new(last.epoch(), last.shards());
    for (shard, end) in (0..).map(ShardId).zip(last.ends()) {
        watermark.raise(shard, clock_of(end));
    }
    watermark
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::Epoch;

    #[test]
    fn a_watermark_is_what_the_shards_have_reported() {
        let clocks = [Clock(0), Clock(17), Clock::MAX];
        let last = FinalEnds::new(Epoch(4), clocks.map(end_at).to_vec());
        let watermark = watermark_of(&last);
        assert_eq!(watermark.epoch(), Epoch(4));
        assert_eq!([0, 1, 2].map(|shard| watermark.of(ShardId(shard))), clocks);
        assert_eq!(clock_of(&EpochEnd::part(b"no number")), Clock(0));
    }
}
