//! The rules of `zeus` that nodes' states show: Z1, at most one owner; Z3, arbiters that know a record by the same timestamp
//! know the same record; Z6, what one node shows as validated all that serve the granule have applied.
//!
//! Taken from what nodes have, never from what an owner believes of others. Nodes of one epoch are compared: what a node does
//! that has not learned of the present one reaches no other node. The other rules are judged by what clients see.

use super::verdict::RuleVerdict;
use super::{Checks, EngineRules, Moment};
use crate::violation::Violation;
use shoal_types::{Clock, Epoch, NodeId, Stamp};
use shoal_zeus::rows::{Row, RowKey};
use shoal_zeus::version::Version;
use shoal_zeus::{GranuleId, Level, OwnershipRecord, ShownRow, ZeusObservation};
use std::collections::{BTreeMap, BTreeSet};

/// What nodes have of granules, as they showed it last.
#[derive(Debug, Default)]
pub struct ZeusRules {
    epochs: BTreeMap<NodeId, Epoch>,
    granules: BTreeMap<GranuleId, BTreeMap<NodeId, Copy>>,
}

/// What a node has of a granule.
#[derive(Debug)]
struct Copy {
    level: Level,
    is_arbiter: bool,
    record: OwnershipRecord,
    clock: Clock,
    /// The newest version of each row, and whether it is validated.
    rows: BTreeMap<RowKey, (Version, bool)>,
}

impl EngineRules for ZeusRules {
    type Observation = ZeusObservation;

    const SPECULATES: bool = false;
    const ORDER: &'static str = "Z6";
    const SAFE_CLOCK: &'static str = "Z6";
    const DURABLE_FIRST: &'static str = "Z7";
    const LEASE: &'static str = "Z10";

    fn judge(
        checks: &mut Checks<ZeusRules>,
        moment: Moment,
        observation: &ZeusObservation,
    ) -> Result<(), Violation> {
        let node = moment.place.node;
        let ZeusObservation::Granule { granule, shard, epoch, rows, .. } = observation else {
            return Ok(());
        };
        let rules = &mut checks.rules;
        if rules.epochs.insert(node, *epoch) != Some(*epoch) {
            // A node shows all that it keeps when it comes to an epoch.
            rules.crashed(node);
            rules.epochs.insert(node, *epoch);
        }
        let keys = rules.update(node, observation);
        let (epochs, copies) = (&rules.epochs, &rules.granules[granule]);
        let alike: BTreeMap<NodeId, &Copy> = copies
            .iter()
            .filter(|(other, _)| epochs.get(other) == Some(epoch))
            .map(|(other, copy)| (*other, copy))
            .collect();
        moment.blame("Z1", one_owner(granule, &alike))?;
        moment.blame("Z3", same_records(granule, node, &alike))?;
        moment.blame("Z6", applied_everywhere(node, &alike, &keys))?;
        for ShownRow { key: (table, key), row } in rows {
            let Some(row) = row.as_ref().filter(|row| row.is_valid) else { continue };
            let (stamp, value) = (stamp_of(row), row.value.as_deref());
            let (replies, durable) = (&mut checks.replies, &checks.durable);
            let seen = replies.installed(*shard, &stamp, *table, key, value, durable);
            moment.blame("exactly once", seen)?;
        }
        Ok(())
    }

    fn crashed(&mut self, node: NodeId) {
        self.epochs.remove(&node);
        for copies in self.granules.values_mut() {
            copies.remove(&node);
        }
    }
}

impl ZeusRules {
    /// Notes what a node has of a granule. Says which rows are to be compared with those of other nodes.
    fn update(&mut self, node: NodeId, observation: &ZeusObservation) -> BTreeSet<RowKey> {
        let ZeusObservation::Granule { granule, level, is_arbiter, record, clock, .. } =
            observation
        else {
            return BTreeSet::new();
        };
        let ZeusObservation::Granule { is_whole, rows, .. } = observation else {
            return BTreeSet::new();
        };
        let copies = self.granules.entry(granule.clone()).or_default();
        let before = copies.remove(&node);
        let served = before.as_ref().is_some_and(|before| before.level >= Level::Reader);
        let mut held = before.map(|before| before.rows).unwrap_or_default();
        if *is_whole {
            held.clear();
        }
        for ShownRow { key, row } in rows {
            match row {
                Some(row) => held.insert(key.clone(), (row.version, row.is_valid)),
                None => held.remove(key),
            };
        }
        let keys = match *is_whole || !served {
            true => {
                let others = copies.values().flat_map(|copy| copy.rows.keys());
                others.chain(held.keys()).cloned().collect()
            }
            false => rows.iter().map(|row| row.key.clone()).collect(),
        };
        let (level, clock, is_arbiter) = (*level, *clock, *is_arbiter);
        copies.insert(node, Copy { level, is_arbiter, record: record.clone(), clock, rows: held });
        keys
    }
}

/// The version of a row as a stamp: no two versions of a row have the same.
fn stamp_of(row: &Row) -> Stamp {
    let pipeline = &row.version.pipeline;
    let coordinator = u64::from(pipeline.coordinator.node.0) << 8 | u64::from(pipeline.worker.0);
    let clock = Clock(row.version.clock.0 << 20 | coordinator);
    Stamp::local(pipeline.coordinator.since, clock)
}

fn one_owner(granule: &GranuleId, copies: &BTreeMap<NodeId, &Copy>) -> RuleVerdict {
    let owners = copies.iter().filter(|(_, copy)| copy.level == Level::Owner);
    let owners: Vec<NodeId> = owners.map(|(node, _)| *node).collect();
    match owners.len() > 1 {
        true => Err(format!("{granule} has the owners {owners:?}")),
        false => Ok(()),
    }
}

fn same_records(
    granule: &GranuleId,
    node: NodeId,
    copies: &BTreeMap<NodeId, &Copy>,
) -> RuleVerdict {
    let own = copies[&node];
    let mut others = copies.iter().filter(|(_, copy)| copy.is_arbiter && own.is_arbiter);
    let differs = |copy: &Copy| copy.record.o_ts == own.record.o_ts && copy.record != own.record;
    match others.find(|(_, copy)| differs(copy)) {
        Some((other, copy)) => {
            let (mine, others) = (&own.record, &copy.record);
            Err(format!("of {granule} {node} knows {mine}, {other} {others}"))
        }
        None => Ok(()),
    }
}

/// What a replica shows as validated, all that serve have applied, or something newer. Compares these rows of the node that
/// has changed with those of the others.
fn applied_everywhere(
    node: NodeId,
    copies: &BTreeMap<NodeId, &Copy>,
    keys: &BTreeSet<RowKey>,
) -> RuleVerdict {
    let serving = |copy: &Copy| copy.level >= Level::Reader;
    let own = copies[&node];
    if !serving(own) {
        return Ok(());
    }
    for (other, copy) in copies.iter().filter(|(other, copy)| **other != node && serving(copy)) {
        for key in keys {
            let (own, other) = (HeldBy { node, copy: own }, HeldBy { node: *other, copy });
            shown_is_applied(key, own, other)?;
            shown_is_applied(key, other, own)?;
        }
    }
    Ok(())
}

/// A node and what it has of a granule.
#[derive(Clone, Copy)]
struct HeldBy<'a> {
    node: NodeId,
    copy: &'a Copy,
}

fn shown_is_applied(key: &RowKey, shows: HeldBy<'_>, other: HeldBy<'_>) -> RuleVerdict {
    let Some((version, true)) = shows.copy.rows.get(key) else { return Ok(()) };
    let found = other.copy.rows.get(key);
    let is_newer = found.is_some_and(|(found, _)| found >= version)
        || (found.is_none() && other.copy.clock >= version.clock);
    match is_newer {
        true => Ok(()),
        false => {
            let key = key.1.escape_ascii();
            let (shows, other) = (shows.node, other.node);
            Err(format!("{shows} shows {key} at {version}, {other} has {found:?}"))
        }
    }
}
