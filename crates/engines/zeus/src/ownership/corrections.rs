//! The corrections of degrees that are under way, and how many may be.
//!
//! After a death or a return a node may have to correct thousands of granules, each with a dozen messages. Asked for at a fixed
//! pace they keep nodes busy that are slower than the pace: their heartbeats wait behind them, leases end, and the next epoch
//! begins with as much to correct. So a correction begins when another one has ended, within a window that is governed by
//! delay, as in LEDBAT (RFC 6817): it grows while corrections take about as long as the quickest one, and shrinks when they
//! take longer, for then they, or transactions, wait for nodes.

use crate::granule::GranuleId;
use crate::record::OwnershipTs;
use shoal_types::{Backoff, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// So many corrections may always be under way: a node that has to wait for others gets on.
const WINDOW_MIN: usize = 8;

/// No more corrections than this are under way.
const WINDOW_MAX: usize = 1024;

/// A correction may take so many percent of the time of the quickest one before the window shrinks.
const LONGER_PERCENT: u32 = 150;

/// Corrections that have ended within so short a time are looked at together.
pub(super) const LOOKED_AT_AFTER: Duration = Duration::from_micros(100);

/// The corrections of a node.
#[derive(Debug)]
pub(super) struct Corrections {
    under_way: BTreeMap<GranuleId, Correction>,
    window: usize,
    /// How long the quickest correction of this epoch took.
    quickest: Duration,
}

/// A granule that was asked for.
#[derive(Debug)]
struct Correction {
    began: Time,
    /// The record that was known when it was asked for last.
    as_of: OwnershipTs,
    repeat_at: Time,
    repeats: Backoff,
}

impl Default for Corrections {
    fn default() -> Corrections {
        Corrections { under_way: BTreeMap::new(), window: WINDOW_MIN, quickest: Duration::MAX }
    }
}

impl Corrections {
    /// How many may begin.
    pub(super) fn room(&self) -> usize {
        self.window.saturating_sub(self.under_way.len())
    }

    pub(super) fn is_under_way(&self, granule: &GranuleId) -> bool {
        self.under_way.contains_key(granule)
    }

    /// The granule was asked for, for the first time or again.
    pub(super) fn ask(
        &mut self,
        granule: &GranuleId,
        as_of: OwnershipTs,
        now: Time,
        repeats: Backoff,
    ) {
        let begun = Correction { began: now, as_of, repeat_at: now, repeats };
        let correction = self.under_way.entry(granule.clone()).or_insert(begun);
        correction.as_of = as_of;
        correction.repeat_at = now + correction.repeats.advance();
    }

    /// This record of a granule is known: if it has changed since the granule was asked for, that is to be looked at. Says
    /// whether it has. A refusal changes nothing, and has to wait.
    pub(super) fn look_at(&mut self, granule: &GranuleId, o_ts: OwnershipTs, now: Time) -> bool {
        let correction = self.under_way.get_mut(granule);
        let changed = correction.filter(|correction| correction.as_of < o_ts);
        changed.map(|correction| correction.repeat_at = now).is_some()
    }

    /// The granules to be looked at: they have changed, or the last message may be lost.
    pub(super) fn due(&self, now: Time) -> Vec<GranuleId> {
        let due = self.under_way.iter().filter(|(_, correction)| correction.repeat_at <= now);
        due.map(|(granule, _)| granule.clone()).collect()
    }

    /// There is nothing left to do about the granule.
    pub(super) fn end(&mut self, granule: &GranuleId, now: Time) {
        let Some(Correction { began, .. }) = self.under_way.remove(granule) else { return };
        let took = (now - began).max(LOOKED_AT_AFTER);
        self.quickest = self.quickest.min(took);
        self.window = match took <= self.quickest * LONGER_PERCENT / 100 {
            true => (self.window + 1).min(WINDOW_MAX),
            false => (self.window - 1).max(WINDOW_MIN),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_types::TableId;

    const REPEATS: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(40));

    fn granule(number: usize) -> GranuleId {
        let prefix = Bytes::copy_from_slice(&(number as u32).to_be_bytes());
        GranuleId { family: TableId(0), prefix }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn version(version: u64) -> OwnershipTs {
        OwnershipTs { version, ..OwnershipTs::default() }
    }

    /// Corrects as many granules as there is room for, each of which takes this long.
    fn round(corrections: &mut Corrections, ms: u64) {
        let room = corrections.room();
        (0..room).for_each(|number| corrections.ask(&granule(number), version(1), at(0), REPEATS));
        assert_eq!(corrections.room(), 0);
        (0..room).for_each(|number| corrections.end(&granule(number), at(ms)));
    }

    #[test]
    fn the_window_follows_the_delay() {
        let mut corrections = Corrections::default();
        round(&mut corrections, 2);
        assert_eq!(corrections.room(), 2 * WINDOW_MIN);
        (0..20).for_each(|_| round(&mut corrections, 3));
        assert_eq!(corrections.room(), WINDOW_MAX);
        (0..20).for_each(|_| round(&mut corrections, 4));
        assert_eq!(corrections.room(), WINDOW_MIN);
    }

    #[test]
    fn a_granule_is_asked_for_again_ever_later_or_once_it_has_changed() {
        let mut corrections = Corrections::default();
        corrections.ask(&granule(1), version(1), at(0), REPEATS);
        assert_eq!((corrections.due(at(4)), corrections.due(at(5))), (vec![], vec![granule(1)]));
        corrections.ask(&granule(1), version(1), at(5), REPEATS);
        assert_eq!((corrections.due(at(14)), corrections.due(at(15))), (vec![], vec![granule(1)]));
        assert!(!corrections.look_at(&granule(1), version(1), at(6)), "it has not changed");
        assert!(!corrections.look_at(&granule(2), version(2), at(6)), "it was not asked for");
        assert!(corrections.look_at(&granule(1), version(2), at(6)));
        assert_eq!(corrections.due(at(6)), vec![granule(1)]);
        assert_eq!(corrections.room(), WINDOW_MIN - 1);
    }
}
