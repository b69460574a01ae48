//! The rows of a granule that moves: a large granule travels in parts.
//!
//! ```text
//!   requester                     sender: the owner, or a reader where there is none
//!      │◄───── Ack, first rows ─────┤
//!      ├───── PartRequest, after ──►│
//!      │◄───────── Part ────────────┤
//!      ├── Val, to all arbiters ───►│
//! ```
//! The sender has acknowledged the record. Until it learns of the `Val`, it writes nothing to the granule (rule Z17), and no
//! other node owns it: all parts are of the same rows. The requester counts the sender as one that has acknowledged, and completes
//! once it has the last part (rule Z2). A part that does not come is requested again: one loss costs one wait, and nothing of what
//! has come. Waits grow as those of other requests do: where the network is slow, what is sent twice would make it slower.

use super::driver::lacks_rows;
use super::{Collected, Holding, Ownership};
use crate::granule::GranuleId;
use crate::message::{CarriedPart, MessageBody, PartRequest};
use crate::record::OwnershipTs;
use crate::rows::RowKey;
use crate::scope::Scope;
use shoal_types::NodeId;

impl Ownership {
    /// Requests the next part of the rows, if some have come and more follow, and they are for this node.
    pub(super) fn request_part(
        &mut self,
        scope: &mut Scope<'_>,
        granule: &GranuleId,
        o_ts: OwnershipTs,
    ) {
        let waits = self.open.waits();
        let Some(collected) = self.collected.get_mut(&(granule.clone(), o_ts)) else { return };
        collected.part_due = None;
        if scope.view.member(scope.node) != Some(collected.ack.inv.requested.by) {
            return;
        }
        if let (Some(after), Some(sender)) = (collected.next_after(), collected.sender) {
            let due = scope.now + collected.part_repeats.advance() * waits;
            collected.part_due = Some(due);
            self.parts_due = Some(self.parts_due.map_or(due, |before| before.min(due)));
            let request = PartRequest { granule: granule.clone(), o_ts, after };
            scope.send(sender, MessageBody::PartRequest(request));
        }
    }

    /// Requests the parts again that have not come in time.
    pub(super) fn repeat_part_requests(&mut self, scope: &mut Scope<'_>) {
        if self.parts_due.is_none_or(|at| at > scope.now) {
            return;
        }
        let is_due = |collected: &Collected| collected.part_due.is_some_and(|at| at <= scope.now);
        let due = self.collected.iter().filter(|(_, collected)| is_due(collected));
        let due: Vec<_> = due.map(|(place, _)| place.clone()).collect();
        for (granule, o_ts) in due {
            self.request_part(scope, &granule, o_ts);
        }
        self.parts_due = self.collected.values().filter_map(|collected| collected.part_due).min();
    }

    /// A requester wants the next rows of a granule. Only while the record that this node has acknowledged is pending here are
    /// they those that the first part is of.
    pub(crate) fn on_part_request(
        &mut self,
        scope: &mut Scope<'_>,
        from: NodeId,
        request: PartRequest,
    ) {
        let Some(holding) = self.granules.get(&request.granule) else { return };
        let is_for_it = holding.pending.as_ref().is_some_and(|pending| {
            let inv = &pending.inv;
            inv.record.o_ts == request.o_ts && inv.requested.by.node == from
        });
        if !is_for_it {
            return;
        }
        let part = holding.part_to_give(scope, &request.granule, Some(&request.after));
        if let Some(part) = part {
            scope.send(from, MessageBody::Part { request, part });
        }
    }

    /// More rows have come. A part that is not the next one was repeated, or is of what was discarded since.
    pub(crate) fn on_part(
        &mut self,
        scope: &mut Scope<'_>,
        from: NodeId,
        request: &PartRequest,
        part: CarriedPart,
    ) {
        let PartRequest { granule, o_ts, after } = request;
        let place = (granule.clone(), *o_ts);
        let Some(collected) = self.collected.get_mut(&place) else { return };
        if collected.sender != Some(from) || collected.next_after().as_ref() != Some(after) {
            return;
        }
        let Some(rows) = &mut collected.ack.rows else { return };
        if rows.clock != part.clock {
            return; // No node of ours sends it: all parts are of one state of the granule.
        }
        self.counters.parts += 1;
        rows.rows.extend(part.rows);
        rows.is_last = part.is_last;
        collected.changed = scope.now;
        collected.part_repeats.reset();
        self.request_part(scope, granule, *o_ts);
        self.complete(scope, granule, *o_ts);
    }
}

impl Collected {
    /// A node has acknowledged with the first rows. Repeated by the same node, they are those that have come. Says whether they
    /// had not.
    pub(super) fn take_first_part(&mut self, from: NodeId, rows: CarriedPart) -> bool {
        let is_new = self.sender != Some(from);
        if is_new {
            (self.ack.rows, self.sender) = (Some(rows), Some(from));
            self.part_repeats.reset();
        }
        is_new
    }

    /// The row behind which the next part begins; `None` unless more follow than have come.
    pub(super) fn next_after(&self) -> Option<RowKey> {
        self.ack.rows.as_ref()?.next_after()
    }
}

impl Holding {
    /// The rows behind this one, if the pending record is acknowledged and this node gives them to a requester that has none.
    pub(super) fn part_to_give(
        &self,
        scope: &Scope<'_>,
        granule: &GranuleId,
        after: Option<&RowKey>,
    ) -> Option<CarriedPart> {
        let pending = self.pending.as_ref().filter(|pending| pending.is_answered)?;
        let inv = &pending.inv;
        let is_sender = [self.record.owner, inv.source].contains(&Some(scope.node));
        let gives = is_sender && inv.requested.by.node != scope.node && lacks_rows(inv);
        (gives && self.is_replica).then(|| {
            let (rows, is_last) = scope.rows.carried(granule, after, scope.options.part_bytes);
            CarriedPart { clock: self.clock, rows, is_last }
        })
    }
}
