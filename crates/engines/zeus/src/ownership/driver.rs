//! A directory node that drives: it makes the next record of a request, and invalidates the present one.

use super::Ownership;
use super::favoured::Favoured;
use crate::message::{Inv, MessageBody, OwnershipRequest};
use crate::planted_bugs::ZeusPlantedBug;
use crate::record::{OwnershipRecord, OwnershipTs, READERS_MIN, RequestKind, Requested};
use crate::scope::Scope;
use shoal_types::{Epoch, NodeId, Time};
use std::collections::BTreeSet;

impl Ownership {
    /// A request has come to a directory node. A repeat of one that is under way is ignored. It is refused with the record that is known here unless it can be driven:
    ///
    /// - the record is validated and nothing is pending (rule Z16);
    /// - the requester knew this record: otherwise the request may be a repeat of one that was granted (rule Z5);
    /// - there is an owner, or the barrier is passed (rule Z11);
    /// - no older transaction waits for the granule;
    /// - it changes levels, and leaves enough readers (rule Z14);
    /// - a live node has the rows.
    pub(crate) fn on_request(
        &mut self,
        scope: &mut Scope<'_>,
        from: NodeId,
        request: &OwnershipRequest,
    ) {
        let granule = &request.granule;
        let Some(by) = scope.view.member(from) else { return };
        if !scope.is_directory_node(granule) || scope.is_silent(granule) {
            return;
        }
        if self.known_o_ts(granule).version == 0 && scope.may_have_lost(granule) {
            // Its copies would be lost with the directory, so it is said to be lost, and not created (rule Z21).
            let o_ts = OwnershipTs { version: 1, epoch: scope.view.epoch, driver: scope.node };
            self.on_val(scope, granule, OwnershipRecord { o_ts, ..OwnershipRecord::default() });
        }
        let born = Time(scope.now.0.saturating_sub(request.waited.as_nanos() as u64));
        let favoured = self.favoured.get(granule).filter(|favoured| favoured.until > scope.now);
        let is_first = favoured.is_none_or(|favoured| favoured.by == by || favoured.born > born);
        let holding = self.holding_mut(granule);
        let pending = holding.pending.as_ref().map(|pending| &pending.inv);
        if pending.is_some_and(|inv| inv.requested.by == by && inv.number == request.number) {
            // It is under way: the arbiters answer the requester, and send the `Inv` again if one does not.
            return;
        }
        let known = holding.record.clone();
        let may_drive = (holding.pending.is_none() || scope.has(ZeusPlantedBug::DriveOnPending))
            && is_first
            && (request.as_of >= known.o_ts || scope.has(ZeusPlantedBug::StaleRequestMoves))
            && (known.owner.is_some() || scope.may_pass_barrier());
        let directory: Vec<NodeId> = scope.directory(granule).collect();
        let readers_min = match scope.has(ZeusPlantedBug::DropLastReader) {
            true => 0,
            false => READERS_MIN,
        };
        let granted = known.granted(request.kind, from, directory.into_iter(), readers_min);
        let inv = granted.filter(|_| may_drive).and_then(|mut record| {
            let (epoch, driver) = match scope.has(ZeusPlantedBug::TimestampWithoutEpoch) {
                true => (Epoch(0), scope.node),
                false => (scope.view.epoch, scope.node),
            };
            record.o_ts = OwnershipTs { version: known.o_ts.version + 1, epoch, driver };
            // The first request creates the granule; a node that wants to read it owns it, since no other does.
            let creates = known.is_uncreated();
            let kind = if creates { RequestKind::Own } else { request.kind };
            let inv = Inv {
                granule: granule.clone(),
                record,
                replaced: known.clone(),
                requested: Requested { kind, by },
                number: request.number,
                waited: request.waited,
                arbiters: BTreeSet::new(),
                source: None,
                answer_to: from,
            };
            addressed(scope, inv)
        });
        let Some(inv) = inv else {
            let is_pending = holding.pending.is_some();
            let body = MessageBody::Nack { granule: granule.clone(), record: known, is_pending };
            scope.send(from, body);
            if is_first && request.kind.takes() {
                let until = scope.now + scope.options.favour;
                self.favoured.insert(granule.clone(), Favoured { by, born, until });
            }
            self.note(scope, granule);
            return;
        };
        self.favoured.remove(granule);
        assert!(inv.record.o_ts > known.o_ts, "Z17: {inv:?} does not follow {known}");
        let arbiters = inv.arbiters.clone();
        scope.send_to_all(arbiters, &MessageBody::Inv(inv));
    }
}

/// The invalidation with its arbiters in this epoch, and the reader that gives the rows where there is no owner; `None` if
/// the requester needs rows that no live node has.
pub(super) fn addressed(scope: &Scope<'_>, mut inv: Inv) -> Option<Inv> {
    let owner = inv.replaced.owner.filter(|owner| scope.view.is_live(*owner));
    inv.arbiters = scope.directory(&inv.granule).chain(owner).collect();
    if let RequestKind::Drop(reader) = inv.requested.kind
        && scope.view.is_live(reader)
    {
        inv.arbiters.insert(reader);
    }
    if inv.creates() {
        // They have the empty copy from the `Inv` only, also where they have left the directory since.
        let readers = inv.record.readers.iter().filter(|reader| scope.view.is_live(**reader));
        inv.arbiters.extend(readers);
    }
    inv.source = None;
    if owner.is_none() && lacks_rows(&inv) {
        let source = inv.replaced.readers.iter().find(|reader| scope.view.is_live(**reader))?;
        inv.source = Some(*source);
        inv.arbiters.insert(*source);
    }
    Some(inv)
}

/// The invalidation with its arbiters in this epoch. Where no live node can give the rows, the arbiters only have to agree: a
/// requester that lives has applied, and notifies them so, or concludes that the granule is lost.
pub(super) fn addressed_anew(scope: &Scope<'_>, inv: &Inv) -> Inv {
    addressed(scope, inv.clone()).unwrap_or_else(|| Inv {
        arbiters: scope.directory(&inv.granule).collect(),
        source: None,
        ..inv.clone()
    })
}

/// Whether the requester has to be given the rows, by the records and not by its own word.
pub(super) fn lacks_rows(inv: &Inv) -> bool {
    let requester = inv.requested.by.node;
    inv.requested.kind.takes() && !inv.creates() && !inv.replaced.readers.contains(&requester)
}

/// The nodes that learn of a record once it is validated: the arbiters and the requester, less this node and the dead.
pub(super) fn told(scope: &Scope<'_>, inv: &Inv, arbiters: &BTreeSet<NodeId>) -> Vec<NodeId> {
    let all = arbiters.iter().copied().chain([inv.requested.by.node]);
    let told: BTreeSet<NodeId> =
        all.filter(|node| *node != scope.node && scope.view.is_live(*node)).collect();
    told.into_iter().collect()
}
