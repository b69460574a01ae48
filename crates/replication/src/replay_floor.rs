//! What a copy of a shard from another replica has brought to this one, of all streams, however far this
//! node's own streams have come. What is replayed of that would come too late: what has replaced or deleted it
//! may be gone without a trace.

use shoal_store::WalkPlace;
use shoal_types::{Clock, TableId};
use std::cmp::Reverse;

/// Up to which clock snapshots have brought which keys, so that replay skips what is older. The default:
/// nothing.
///
/// What was deleted by one copy must not come back before another has come as far: so none that says more of some
/// keys takes the place of one that says more of others.
#[derive(Debug, Default)]
pub struct ReplayFloor {
    claims: Vec<ReplayClaim>,
}

/// All keys before a place are as they were at some clock, or later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayClaim {
    /// The clock.
    pub cut: Clock,
    /// The place. `None`: it is so for all keys.
    pub until: Option<WalkPlace>,
}

impl ReplayFloor {
    /// Has the replica what was written to `key` at `clock`, or what came in its place?
    pub fn has(&self, table: TableId, key: &[u8], clock: Clock) -> bool {
        let covers = |until: &WalkPlace| until.is_behind(table, key);
        let has =
            |claim: &ReplayClaim| clock <= claim.cut && claim.until.as_ref().is_none_or(covers);
        self.claims.iter().any(has)
    }

    /// Of all keys the replica has what was written up to here, or what came in its place.
    pub fn whole(&self) -> Clock {
        let whole = self.claims.iter().filter(|claim| claim.until.is_none());
        whole.map(|claim| claim.cut).max().unwrap_or_default()
    }

    /// What the replica has of which keys, where its own streams are applied up to `reached`: each claim says more of its
    /// keys than those that follow, and the last is about all keys.
    pub fn claims_above(&self, reached: Clock) -> Vec<ReplayClaim> {
        let whole = ReplayClaim { cut: self.whole().max(reached), until: None };
        // No claim says what another says: so the greater one's keys are fewer.
        let mut claims: Vec<ReplayClaim> =
            self.claims.iter().filter(|claim| claim.cut > whole.cut).cloned().collect();
        claims.sort_unstable_by_key(|claim| Reverse(claim.cut));
        claims.push(whole);
        claims
    }

    /// How many claims there are.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Has no copy brought anything?
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Everything before `until` has come, as it was at `cut` or later; `None` where that is everything.
    pub fn raise(&mut self, cut: Clock, until: Option<WalkPlace>) {
        let new = ReplayClaim { cut, until };
        if !self.claims.iter().any(|claim| claim.says(&new)) {
            self.claims.retain(|claim| !new.says(claim));
            self.claims.push(new);
        }
    }
}

impl ReplayClaim {
    /// Does it say what the other says?
    fn says(&self, other: &ReplayClaim) -> bool {
        let reaches = match (&self.until, &other.until) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => own >= other,
        };
        reaches && self.cut >= other.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_count_as_far_as_they_have_come() {
        let mut floor = ReplayFloor::default();
        assert!(floor.is_empty() && floor.whole() == Clock::ZERO);
        let (one, two) = (TableId(1), TableId(2));
        let place = |key: &[u8]| Some(WalkPlace { table: one, key: key.to_vec() });
        assert!(!floor.has(one, b"a", Clock(1)));
        floor.raise(Clock(7), place(b"m"));
        assert!(floor.has(one, b"a", Clock(7)) && floor.has(TableId(0), b"z", Clock(7)));
        assert!(!floor.has(one, b"a", Clock(8)), "after the cut");
        assert!(!floor.has(one, b"m", Clock(7)) && !floor.has(two, b"a", Clock(7)), "to come");
        floor.raise(Clock(9), place(b"b"));
        assert!(floor.has(one, b"a", Clock(9)) && floor.has(one, b"l", Clock(7)));
        assert!(!floor.is_empty() && floor.whole() == Clock::ZERO, "no copy is whole");
        let claim = |cut, until| ReplayClaim { cut: Clock(cut), until };
        let [a, b] = [claim(9, place(b"b")), claim(7, place(b"m"))];
        assert_eq!(floor.claims_above(Clock(3)), [a.clone(), b, claim(3, None)]);
        assert_eq!(floor.claims_above(Clock(7)), [a, claim(7, None)]);
        assert_eq!(floor.claims_above(Clock(9)), [claim(9, None)]);
        floor.raise(Clock(7), None);
        assert_eq!(floor.whole(), Clock(7));
        assert!(floor.has(two, b"a", Clock(7)) && floor.has(one, b"a", Clock(9)));
        assert!(!floor.has(two, b"a", Clock(8)));
        floor.raise(Clock(5), None);
        assert_eq!(floor.claims.len(), 2, "what says less is not kept: {floor:?}");
        floor.raise(Clock(9), None);
        assert_eq!(floor.claims, [ReplayClaim { cut: Clock(9), until: None }]);
    }
}
