//! Against ping-pong: where a granule has moved to this node again and again within a short time, a transaction of a client that needs it
//! goes to the owner, and the granule stays there.
//!
//! Each time a transaction here is about to ask for the ownership of a granule, the granule has moved away since this node asked
//! last. What this counts are therefore moves to here; between two of them it moved away.

use crate::granule::GranuleId;
use crate::record::OwnershipTs;
use shoal_types::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// A granule that has come here so often, and was taken away after that, has moved more than three times.
const COMES_MAX: u32 = 2;

/// The most granules whose moves are counted. Beyond it, all are forgotten: those that move again and again are soon back.
const COUNTED_MAX: usize = 1 << 12;

/// How often granules have moved to this node lately.
#[derive(Debug)]
pub(super) struct MovePace {
    /// Moves within this span count together.
    within: Duration,
    counted: BTreeMap<GranuleId, Comes>,
}

/// The moves of one granule to this node.
#[derive(Debug, Clone, Copy)]
struct Comes {
    since: Time,
    /// The newest record of the granule when it was asked for last: all that ask for the same move count once.
    asked_as_of: OwnershipTs,
    count: u32,
}

impl MovePace {
    pub(super) fn new(within: Duration) -> MovePace {
        MovePace { within, counted: BTreeMap::new() }
    }

    /// A transaction is about to ask for the ownership of a granule, whose newest record known here has this timestamp. Returns
    /// whether the granule has moved too often for that.
    pub(super) fn ask(&mut self, now: Time, granule: &GranuleId, as_of: OwnershipTs) -> bool {
        let first = Comes { since: now, asked_as_of: as_of, count: 1 };
        let Some(comes) = self.counted.get_mut(granule) else {
            if self.counted.len() >= COUNTED_MAX {
                self.counted.clear();
            }
            self.counted.insert(granule.clone(), first);
            return false;
        };
        if now - comes.since > self.within {
            *comes = first;
        } else if comes.asked_as_of != as_of {
            comes.asked_as_of = as_of;
            comes.count += 1;
        }
        comes.count > COMES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_types::{Epoch, NodeId, TableId};

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn as_of(version: u64) -> OwnershipTs {
        OwnershipTs { version, epoch: Epoch(1), driver: NodeId(0) }
    }

    #[test]
    fn the_third_time_within_a_tenth_of_a_second_is_too_often() {
        let granule = GranuleId { family: TableId(0), prefix: Bytes::from_static(b"p") };
        let mut pace = MovePace::new(Duration::from_millis(100));
        assert!(!pace.ask(at(0), &granule, as_of(1)));
        for _ in 0..5 {
            assert!(!pace.ask(at(1), &granule, as_of(1)), "it is on its way for another one");
        }
        assert!(!pace.ask(at(10), &granule, as_of(3)));
        assert!(pace.ask(at(20), &granule, as_of(5)));
        assert!(pace.ask(at(100), &granule, as_of(5)));
        assert!(!pace.ask(at(101), &granule, as_of(5)), "that was long ago");
        assert!(!pace.ask(at(110), &granule, as_of(7)));
    }
}
