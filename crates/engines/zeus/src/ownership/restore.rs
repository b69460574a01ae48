//! What is recorded of granules, and how it comes back after a restart (`redo/`).

use super::{Holding, Ownership, PendingInv};
use crate::granule::GranuleId;
use crate::redo::{HoldingState, KnownHolding, StoredGranules, StoredHolding};
use crate::scope::Scope;
use std::sync::Arc;

impl StoredGranules for Ownership {
    fn requests_made(&self) -> u64 {
        self.requests
    }

    fn stored(&self, granule: &GranuleId) -> HoldingState {
        let forgotten = || match self.forgotten.get(granule) {
            Some(record) => HoldingState::Forgotten(Arc::new(record.clone())),
            None => HoldingState::Unknown,
        };
        self.granules.get(granule).map_or_else(forgotten, |holding| {
            let pending = holding.pending.as_ref();
            HoldingState::Known(Arc::new(KnownHolding {
                record: holding.record.clone(),
                pending: pending.map(|pending| pending.inv.clone()),
                is_acknowledged: pending.is_some_and(|pending| pending.is_acknowledged),
                hint: holding.hint,
                granted: holding.granted,
                is_replica: holding.is_replica,
                serves: holding.serves,
                begins_empty: holding.begins_empty,
                clock: holding.clock,
            }))
        })
    }
}

impl Ownership {
    /// The number of the request that a former process of the node made last.
    pub(crate) fn restore_requests(&mut self, requests: u64) {
        self.requests = requests;
    }

    /// The granules that the node has given up in this epoch.
    pub(crate) fn stored_forgotten(&self) -> Vec<StoredHolding> {
        let stored = |granule: &GranuleId| StoredHolding {
            granule: granule.clone(),
            state: self.stored(granule),
        };
        self.forgotten.keys().map(stored).collect()
    }

    /// What the node knew of a granule. Its rows are restored besides.
    pub(crate) fn restore(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        state: HoldingState,
    ) {
        self.forgotten.remove(granule);
        let known = match state {
            HoldingState::Known(known) => Arc::unwrap_or_clone(known),
            HoldingState::Forgotten(record) => {
                self.granules.remove(granule);
                self.forgotten.insert(granule.clone(), Arc::unwrap_or_clone(record));
                return;
            }
            HoldingState::Unknown => {
                self.granules.remove(granule);
                return;
            }
        };
        let is_acknowledged = known.is_acknowledged;
        let pending = known.pending.map(|inv| PendingInv {
            inv,
            is_answered: false,
            is_acknowledged,
            arrived: scope.now,
            replay_at: scope.now,
            replays: scope.options.replays(),
        });
        let holding = Holding {
            record: known.record,
            pending,
            hint: known.hint,
            request: None,
            granted: known.granted,
            is_replica: known.is_replica,
            serves: known.serves,
            begins_empty: known.begins_empty,
            clock: known.clock,
        };
        self.granules.insert(granule, holding);
        scope.rows.change_whole(granule);
    }

    /// What is pending is due, and degrees are looked at, as in a new epoch.
    pub(crate) fn end_restore(&mut self, scope: &mut Scope<'_>) {
        (self.recruit_at, self.adopt_at) = (scope.now, scope.now + scope.options.adopt_after());
        self.has_dropped = true;
        let mut pending = Vec::new();
        for (granule, holding) in self.granules.iter() {
            let owner = holding.record.owner;
            let is_ownerless = owner.is_none() && scope.is_directory_node(granule);
            if owner == Some(scope.node) || is_ownerless {
                self.uneven.insert(granule.clone());
            }
            if holding.pending.is_some() {
                pending.push(granule.clone());
            }
        }
        pending.iter().for_each(|granule| self.schedule(scope, granule));
    }
}
