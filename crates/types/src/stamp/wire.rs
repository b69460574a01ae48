//! The forms of stamps and watermarks, which hot messages carry: all numbers are short. A stamp that breaks
//! an invariant of its own is malformed; which shards there are, only the receiver knows.

use super::{RemoteClock, Stamp, VectorWatermark};
use crate::ShardId;
use crate::clock::Clock;
use crate::wire::{Coded, Input, Malformed, Short, put_short_count};
use bytes::BytesMut;

impl Coded for RemoteClock {
    const BYTES_MIN: usize = 2;

    #[inline]
    fn put(&self, out: &mut BytesMut) {
        self.shard.put_short(out);
        self.clock.put_short(out);
    }

    #[inline]
    fn take(input: &mut Input<'_>) -> Result<RemoteClock, Malformed> {
        Ok(RemoteClock { shard: Short::take_short(input)?, clock: Short::take_short(input)? })
    }
}

impl Coded for Stamp {
    const BYTES_MIN: usize = 3;

    fn put(&self, out: &mut BytesMut) {
        self.epoch.put_short(out);
        self.clock.put_short(out);
        self.remote.put_short(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Stamp, Malformed> {
        let stamp = Stamp {
            epoch: Short::take_short(input)?,
            clock: Short::take_short(input)?,
            remote: Short::take_short(input)?,
        };
        let floor = stamp.as_ref().floor();
        let ascend = stamp.remote.is_sorted_by(|one, two| one.shard < two.shard);
        // A stamp of nothing that was levelled has a floor of zero.
        let counts = |entry: &RemoteClock| entry.clock > floor || entry.shard == ShardId::EVERY;
        if !ascend || !stamp.remote.iter().all(counts) {
            return Err(input.wrong("no stamp"));
        }
        Ok(stamp)
    }
}

impl Coded for VectorWatermark {
    const BYTES_MIN: usize = 2;

    fn put(&self, out: &mut BytesMut) {
        self.epoch.put_short(out);
        put_short_count(self.clocks.len(), out);
        self.clocks.iter().for_each(|clock| clock.put_short(out));
    }

    fn take(input: &mut Input<'_>) -> Result<VectorWatermark, Malformed> {
        let epoch = Short::take_short(input)?;
        let count = input.short_count(Clock::SHORT_BYTES_MIN)?;
        // Eight bytes for each that is there.
        let mut clocks = Vec::with_capacity(count);
        for _ in 0..count {
            clocks.push(Clock::take_short(input)?);
        }
        Ok(VectorWatermark { epoch, clocks })
    }
}
