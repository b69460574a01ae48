//! The rules of `zeus` that nodes' states show: Z1, at most one owner; Z3, arbiters that know a record by the same timestamp
//! know the same record; Z6, what one node shows as validated all that serve the granule have applied. And the rules that the
//! commits of transactions show: Z4, no granule moves while a slot is pending that has read or written it; Z7, what is answered
//! with what the worker had committed locally is validated; Z9, a transaction that commits owns all that it has touched.
//!
//! Taken from what nodes have, never from what an owner believes of others. Nodes of one epoch are compared: what a node does
//! that has not learned of the present one reaches no other node. The other rules are judged by what clients see.

use super::verdict::RuleVerdict;
use super::{Checks, EngineRules, Moment};
use crate::violation::Violation;
use shoal_types::{Clock, Epoch, NodeId, Stamp, WorkerId};
use shoal_zeus::record::READERS_MIN;
use shoal_zeus::rows::{Row, RowKey};
use shoal_zeus::version::{Version, WorkerPipeline};
use shoal_zeus::{
    GranuleId, Level, OwnershipRecord, OwnershipTs, ShownRow, TransactionFact, ZeusObservation,
};
use std::collections::BTreeMap;

/// What nodes have of granules, as they showed it last.
#[derive(Debug, Default)]
pub struct ZeusRules {
    epochs: BTreeMap<NodeId, Epoch>,
    granules: BTreeMap<GranuleId, BTreeMap<NodeId, Copy>>,
    /// The transactions of nodes that are committed locally and not validated, each with what it has touched.
    pending: BTreeMap<(NodeId, WorkerId, u64), Vec<GranuleId>>,
    /// The same, by granule: how many each worker has.
    touching: BTreeMap<GranuleId, BTreeMap<(NodeId, WorkerId), u32>>,
    creations: BTreeMap<GranuleId, Creation>,
}

/// The first record of a granule.
#[derive(Debug, Default)]
struct Creation {
    o_ts: OwnershipTs,
    /// Some row of the granule was validated: clients may know what it had.
    has_rows: bool,
}

/// What a node has of a granule.
#[derive(Debug)]
struct Copy {
    /// The epoch in which the node showed it.
    epoch: Epoch,
    level: Level,
    is_arbiter: bool,
    record: OwnershipRecord,
    clock: Clock,
    rows: BTreeMap<RowKey, RowState>,
}

/// What a checker keeps of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowState {
    /// Its newest version, and whether that is validated.
    version: Version,
    is_valid: bool,
    /// It is a tombstone, which a node drops at some time.
    is_deleted: bool,
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
        let rules = &mut checks.rules;
        let (granule, shard, epoch, rows, is_whole) = match observation {
            ZeusObservation::Granule { granule, shard, epoch, rows, is_whole, .. } => {
                (granule, shard, epoch, rows, is_whole)
            }
            ZeusObservation::Transaction { worker, fact } => {
                return rules.judge_transaction(moment, *worker, fact);
            }
            ZeusObservation::Forgotten => {
                rules.forget_pending(node);
                return Ok(());
            }
            ZeusObservation::Serves { .. } => return Ok(()),
        };
        rules.epochs.insert(node, *epoch);
        moment.blame("Z21", rules.created_once(observation))?;
        let copy = rules.granules.get(granule).and_then(|copies| copies.get(&node));
        // Most rows of an observation of a whole granule are as they were.
        let changes = RowChanges::between(copy, rows, *is_whole);
        let compares_all = rules.update(node, observation, &changes);
        let alike = rules.copies_of(granule, *epoch);
        let own = *alike.iter().find(|held| held.node == node).expect("it was observed now");
        moment.blame("Z1", one_owner(granule, &alike))?;
        moment.blame("Z4", rules.moved_settled(granule, own, &alike))?;
        moment.blame("Z3", same_records(granule, own, &alike))?;
        let compared = (!compares_all).then_some(&changes);
        moment.blame("Z6", applied_everywhere(own, &alike, compared))?;
        for ShownRow { key: (table, key), row } in changes.shown {
            let Some(row) = row.as_ref().filter(|row| row.is_valid) else { continue };
            let (stamp, value) = (stamp_of(row), row.value.as_deref());
            let (replies, durable) = (&mut checks.replies, &checks.durable);
            let seen = replies.installed(*shard, &stamp, *table, key, value, durable);
            moment.blame("exactly once", seen)?;
        }
        Ok(())
    }

    /// Each granule that is not lost has an owner, and as many readers as there have to be (rule Z14), with the
    /// same rows (rule Z6).
    fn agree(&self) -> Result<(), (&'static str, String)> {
        let Some(epoch) = self.epochs.values().max().copied() else { return Ok(()) };
        let nodes = self.epochs.values().filter(|of| **of == epoch).count();
        for granule in self.granules.keys() {
            replicas_agree(granule, &self.copies_of(granule, epoch), nodes)?;
        }
        Ok(())
    }

    fn crashed(&mut self, node: NodeId) {
        self.epochs.remove(&node);
        for copies in self.granules.values_mut() {
            copies.remove(&node);
        }
        self.forget_pending(node);
    }

    /// Whether the record of a granule names this node as the only replica: the degree is restored in the background, and may
    /// not have been since the last death.
    fn has_last_copy(&self, node: NodeId) -> bool {
        let mut copies = self.granules.values().filter_map(|copies| copies.get(&node));
        copies.any(|copy| copy.record.replicas().eq([node]))
    }

    fn is_only_replica(&self, node: NodeId) -> bool {
        let mut copies = self.granules.values().flat_map(BTreeMap::values);
        copies.any(|copy| copy.record.replicas().eq([node]))
    }
}

/// How the rows of a granule differ from what the node showed before.
#[derive(Debug, Default)]
struct RowChanges<'o> {
    /// Those that it did not show like this.
    shown: Vec<&'o ShownRow>,
    /// Those that it has no more, of a whole granule.
    gone: Vec<RowKey>,
}

impl<'o> RowChanges<'o> {
    /// The changes since `copy`. In one pass over both where the granule is whole: its rows are in the order of keys.
    fn between(copy: Option<&Copy>, rows: &'o [ShownRow], is_whole: bool) -> RowChanges<'o> {
        let mut changes = RowChanges::default();
        let Some(Copy { rows: before, .. }) = copy else {
            changes.shown.extend(rows);
            return changes;
        };
        if !is_whole {
            let is_new = |shown: &&ShownRow| before.get(&shown.key).copied() != state_of(shown);
            changes.shown.extend(rows.iter().filter(is_new));
            return changes;
        }
        let mut before = before.iter().peekable();
        for shown in rows {
            while let Some((gone, _)) = before.next_if(|(key, _)| **key < shown.key) {
                changes.gone.push(gone.clone());
            }
            let same = before.next_if(|(key, _)| **key == shown.key).map(|(_, state)| *state);
            if same != state_of(shown) {
                changes.shown.push(shown);
            }
        }
        changes.gone.extend(before.map(|(gone, _)| gone.clone()));
        changes
    }

    fn keys(&self) -> impl Iterator<Item = &RowKey> {
        self.shown.iter().map(|shown| &shown.key).chain(&self.gone)
    }
}

impl ZeusRules {
    /// What the nodes of an epoch have of a granule. A node shows all that it keeps when it comes to an epoch: what it
    /// showed before is no longer what it has.
    fn copies_of(&self, granule: &GranuleId, epoch: Epoch) -> Vec<HeldBy<'_>> {
        let copies = self.granules.get(granule).into_iter().flatten();
        let of_epoch = copies
            .filter(|(node, copy)| copy.epoch == epoch && self.epochs.get(node) == Some(&epoch));
        of_epoch.map(|(node, copy)| HeldBy { node: *node, copy }).collect()
    }

    fn forget_pending(&mut self, node: NodeId) {
        self.pending.retain(|(of, _, _), _| *of != node);
        for workers in self.touching.values_mut() {
            workers.retain(|(of, _), _| *of != node);
        }
        self.touching.retain(|_, workers| !workers.is_empty());
    }

    /// Judges Z7 and Z9, and notes which granules pending slots have touched.
    fn judge_transaction(
        &mut self,
        moment: Moment,
        worker: WorkerId,
        fact: &TransactionFact,
    ) -> Result<(), Violation> {
        let node = moment.place.node;
        match fact {
            TransactionFact::Committed { number, touched } => {
                moment.blame("Z9", owns_all(node, touched))?;
                let touched = touched.iter().map(|(granule, _)| granule);
                for granule in touched.clone() {
                    let workers = self.touching.entry(granule.clone()).or_default();
                    *workers.entry((node, worker)).or_default() += 1;
                }
                self.pending.insert((node, worker, *number), touched.cloned().collect());
            }
            TransactionFact::Validated { number } => {
                let touched = self.pending.remove(&(node, worker, *number));
                for granule in touched.unwrap_or_default() {
                    let Some(workers) = self.touching.get_mut(&granule) else { continue };
                    if let Some(count) = workers.get_mut(&(node, worker)) {
                        *count -= 1;
                    }
                    workers.retain(|_, count| *count > 0);
                    if workers.is_empty() {
                        self.touching.remove(&granule);
                    }
                }
            }
            TransactionFact::ReadsValidated { touched } => {
                let mut touched = touched.iter().map(|(granule, _)| granule);
                let is_pending = |granule: &&GranuleId| {
                    let workers = self.touching.get(*granule);
                    workers.is_some_and(|workers| workers.contains_key(&(node, worker)))
                };
                let verdict = match touched.find(is_pending) {
                    Some(granule) => {
                        Err(format!("{granule} is pending, and what it has is answered"))
                    }
                    None => Ok(()),
                };
                moment.blame("Z7", verdict)?;
            }
            TransactionFact::Lost { granule, epoch } => {
                moment.blame("Z21", self.is_nowhere(granule, *epoch))?;
            }
        }
        Ok(())
    }

    /// What is reported as lost, no node of the epoch has.
    fn is_nowhere(&self, granule: &GranuleId, epoch: Epoch) -> RuleVerdict {
        let copies = self.copies_of(granule, epoch);
        match copies.iter().find(|held| held.copy.level >= Level::Reader) {
            Some(held) => Err(format!("{granule} is reported as lost, and {} has it", held.node)),
            None => Ok(()),
        }
    }

    /// A granule whose rows clients may have seen is not created again, empty.
    fn created_once(&mut self, observation: &ZeusObservation) -> RuleVerdict {
        let ZeusObservation::Granule { granule, record, rows, .. } = observation else {
            return Ok(());
        };
        let creation = self.creations.entry(granule.clone()).or_default();
        // The owner may have died before it had created it: then only readers have it.
        let is_first = record.o_ts.version == 1 && record.replicas().next().is_some();
        if is_first && record.o_ts > creation.o_ts {
            if creation.has_rows {
                let before = creation.o_ts;
                return Err(format!(
                    "{granule}, created by {before}, is created again by {record}"
                ));
            }
            creation.o_ts = record.o_ts;
        }
        creation.has_rows |=
            rows.iter().any(|row| row.row.as_ref().is_some_and(|row| row.is_valid));
        Ok(())
    }

    /// Nodes of the epoch other than the owner have no pending slot that has touched the granule.
    fn moved_settled(
        &self,
        granule: &GranuleId,
        own: HeldBy<'_>,
        copies: &[HeldBy<'_>],
    ) -> RuleVerdict {
        let node = own.node;
        if own.copy.level != Level::Owner {
            return Ok(());
        }
        let touching = self.touching.get(granule).into_iter().flat_map(BTreeMap::keys);
        let mut others = touching.map(|(other, _)| other).filter(|other| **other != node);
        match others.find(|other| copies.iter().any(|held| held.node == **other)) {
            Some(other) => {
                Err(format!("{granule} has moved to {node} while slots of {other} were pending"))
            }
            None => Ok(()),
        }
    }

    /// Notes what a node has of a granule. Says whether all of its rows are to be compared with those of other nodes; else
    /// those that have changed: the others were compared when they, or those of the other node, had.
    fn update(
        &mut self,
        node: NodeId,
        observation: &ZeusObservation,
        changes: &RowChanges<'_>,
    ) -> bool {
        let ZeusObservation::Granule {
            granule,
            shard: _,
            epoch,
            level,
            is_arbiter,
            record,
            clock,
            is_whole,
            rows,
        } = observation
        else {
            return false;
        };
        let copies = self.granules.entry(granule.clone()).or_default();
        let before = copies.remove(&node);
        let is_of_epoch = before.as_ref().is_some_and(|before| before.epoch == *epoch);
        let served = before.as_ref().is_some_and(|before| before.level >= Level::Reader);
        // What was shown in another epoch stays only where all is shown again.
        let before = before.filter(|_| is_of_epoch || *is_whole);
        let mut held = before.map(|before| before.rows).unwrap_or_default();
        for key in &changes.gone {
            held.remove(key);
        }
        let all = (!is_of_epoch && !is_whole).then_some(rows);
        for shown in all.into_iter().flatten().chain(changes.shown.iter().copied()) {
            match state_of(shown) {
                Some(state) => held.insert(shown.key.clone(), state),
                None => held.remove(&shown.key),
            };
        }
        let (epoch, level, clock, is_arbiter) = (*epoch, *level, *clock, *is_arbiter);
        let record = record.clone();
        copies.insert(node, Copy { epoch, level, is_arbiter, record, clock, rows: held });
        !is_of_epoch || !served
    }
}

fn state_of(shown: &ShownRow) -> Option<RowState> {
    let state = |row: &Row| RowState {
        version: row.version,
        is_valid: row.is_valid,
        is_deleted: row.value.is_none(),
    };
    shown.row.as_ref().map(state)
}

fn owns_all(node: NodeId, touched: &[(GranuleId, Level)]) -> RuleVerdict {
    match touched.iter().find(|(_, level)| *level != Level::Owner) {
        Some((granule, level)) => {
            Err(format!("{node} commits what has touched {granule}, of which it is {level:?}"))
        }
        None => Ok(()),
    }
}

/// The version of a row as a stamp: no two versions of a row have the same.
fn stamp_of(row: &Row) -> Stamp {
    let pipeline = &row.version.pipeline;
    let WorkerPipeline { worker, number } = pipeline.of;
    let of = u64::from(worker.0) << 4 | u64::from(number);
    let clock = Clock(row.version.clock.0 << 20 | u64::from(pipeline.coordinator.node.0) << 8 | of);
    Stamp::local(pipeline.coordinator.since, clock)
}

fn one_owner(granule: &GranuleId, copies: &[HeldBy<'_>]) -> RuleVerdict {
    let owners = copies.iter().filter(|held| held.copy.level == Level::Owner);
    if owners.clone().nth(1).is_none() {
        return Ok(());
    }
    let owners: Vec<NodeId> = owners.map(|held| held.node).collect();
    Err(format!("{granule} has the owners {owners:?}"))
}

fn same_records(granule: &GranuleId, own: HeldBy<'_>, copies: &[HeldBy<'_>]) -> RuleVerdict {
    if !own.copy.is_arbiter {
        return Ok(());
    }
    let mine = &own.copy.record;
    let mut others = copies.iter().filter(|held| held.node != own.node && held.copy.is_arbiter);
    let differs =
        |held: &&HeldBy<'_>| held.copy.record.o_ts == mine.o_ts && held.copy.record != *mine;
    match others.find(differs) {
        Some(HeldBy { node: other, copy }) => {
            let (node, others) = (own.node, &copy.record);
            Err(format!("of {granule} {node} knows {mine}, {other} {others}"))
        }
        None => Ok(()),
    }
}

/// What a replica shows as validated, all that serve have applied, or something newer. Compares the rows of the node that has
/// changed with those of the others: the `changes`, or all.
fn applied_everywhere(
    own: HeldBy<'_>,
    copies: &[HeldBy<'_>],
    changes: Option<&RowChanges<'_>>,
) -> RuleVerdict {
    let serving = |held: &HeldBy<'_>| held.copy.level >= Level::Reader;
    if !serving(&own) {
        return Ok(());
    }
    for other in copies.iter().filter(|other| other.node != own.node && serving(other)) {
        for (shows, other) in [(own, *other), (*other, own)] {
            match changes {
                Some(changes) => {
                    changes.keys().try_for_each(|key| shows.is_applied_by(other, key))?;
                }
                None => shows.all_is_applied_by(other)?,
            }
        }
    }
    Ok(())
}

/// The replicas that the newest record names have the same, and there are as many as can be of so many nodes. A reader may have
/// left the directory before it learned that the record is validated: it has the rows, and serves them when it asks.
fn replicas_agree(
    granule: &GranuleId,
    copies: &[HeldBy<'_>],
    nodes: usize,
) -> Result<(), (&'static str, String)> {
    let newest = copies.iter().map(|held| &held.copy.record).max_by_key(|record| record.o_ts);
    let Some(record) = newest.filter(|record| record.replicas().next().is_some()) else {
        return Ok(()); // It was never created, or is lost.
    };
    let held_by = |node: NodeId| {
        let held = copies.iter().find(|held| held.node == node);
        held.ok_or_else(|| ("Z14", format!("{node} has nothing of {granule}, which has {record}")))
    };
    let Some(owner) = record.owner else {
        return Err(("Z14", format!("{granule} has no owner: {record}")));
    };
    if record.readers.len() < READERS_MIN.min(nodes - 1) {
        return Err(("Z14", format!("{granule} has too few readers: {record}")));
    }
    let owner = held_by(owner)?;
    if owner.copy.level != Level::Owner {
        return Err(("Z14", format!("{} does not own {granule}, which has {record}", owner.node)));
    }
    for reader in &record.readers {
        let reader = held_by(*reader)?;
        owner
            .is_as(*reader)
            .and_then(|()| reader.is_as(*owner))
            .map_err(|what| ("Z6", format!("the replicas of {granule} differ: {what}")))?;
    }
    Ok(())
}

/// A node and what it has of a granule.
#[derive(Debug, Clone, Copy)]
struct HeldBy<'a> {
    node: NodeId,
    copy: &'a Copy,
}

impl HeldBy<'_> {
    fn is_applied_by(self, other: HeldBy<'_>, key: &RowKey) -> RuleVerdict {
        match self.copy.rows.get(key) {
            Some(shown) => self.compare(key, shown, other, other.copy.rows.get(key)),
            None => Ok(()),
        }
    }

    /// As [`HeldBy::is_applied_by`] for every row, in one pass over both.
    fn all_is_applied_by(self, other: HeldBy<'_>) -> RuleVerdict {
        let mut found = other.copy.rows.iter().peekable();
        for (key, shown) in &self.copy.rows {
            while found.next_if(|(before, _)| *before < key).is_some() {}
            let same = found.next_if(|(same, _)| *same == key).map(|(_, row)| row);
            self.compare(key, shown, other, same)?;
        }
        Ok(())
    }

    fn compare(
        self,
        key: &RowKey,
        shown: &RowState,
        other: HeldBy<'_>,
        found: Option<&RowState>,
    ) -> RuleVerdict {
        let RowState { version, is_valid, .. } = shown;
        let is_applied = match found {
            Some(found) => found.version >= *version,
            None => other.copy.clock >= version.clock,
        };
        if !is_valid || is_applied {
            return Ok(());
        }
        let (key, shows, other) = (key.1.escape_ascii(), self.node, other.node);
        Err(format!("{shows} shows {key} at {version}, {other} has {found:?}"))
    }

    /// Nothing is under way: no row is pending, and those that are there are the other's.
    fn is_as(self, other: HeldBy<'_>) -> RuleVerdict {
        for (key, state) in self.copy.rows.iter().filter(|(_, state)| !state.is_deleted) {
            let found = other.copy.rows.get(key);
            if !state.is_valid || found != Some(state) {
                let (key, node, other) = (key.1.escape_ascii(), self.node, other.node);
                return Err(format!("{node} has {key} as {state:?}, {other} as {found:?}"));
            }
        }
        Ok(())
    }
}
