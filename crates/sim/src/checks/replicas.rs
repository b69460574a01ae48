//! All copies of a shard are equal, and equal to the model: what the leaders installed, newest last. And none has a
//! version, newest or not, that was rolled back.

use super::installed::{InstallOrder, Installed, Rows};
use super::verdict::RuleVerdict;
use shoal_cluster::topology::Topology;
use shoal_store::{CopyPart, Store, WalkPlace};
use shoal_types::{NodeId, Scan, ShardId, Stamp, StampRef, TableId};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Rows read in one page of a copy.
const PAGE_ROWS: usize = 1024;

/// Judges every replica of every shard but the one that is `lost`, without those on nodes that are `gone`.
/// `holders` returns the replicas of a shard, the leader first, `store` a replica's store, and `rolled_back` whether the version
/// with a stamp that a shard keeps was rolled back.
pub fn check(
    topology: &Topology,
    installed: &Installed,
    lost: Option<ShardId>,
    holders: impl Fn(ShardId) -> Vec<NodeId>,
    store: impl Fn(NodeId, ShardId) -> Option<Arc<Store>>,
    gone: impl Fn(NodeId) -> bool,
    rolled_back: impl Fn(ShardId, &Stamp) -> bool,
) -> RuleVerdict {
    for shard in topology.shard_ids().filter(|shard| Some(*shard) != lost) {
        let nodes = holders(shard);
        let leader = nodes[0];
        let mut reference = BTreeMap::new();
        for node in nodes.into_iter().filter(|node| !gone(*node)) {
            let Some(store) = store(node, shard) else {
                return Err(format!("{node} has no store of {shard}"));
            };
            let rejected = |stamp: StampRef<'_>| rolled_back(shard, &stamp.to_stamp());
            find_rejected(&store, rejected).map_err(|what| format!("{node}, {shard}: {what}"))?;
            let is_leader = node == leader;
            for table in topology.tables().iter() {
                let (id, empty) = (table.id(), Rows::new());
                let model = installed.rows(shard, id).unwrap_or(&empty);
                let unseen = installed.unseen(shard, id);
                agree(&mut reference, &store, id, &unseen)
                    .map_err(|what| format!("{node}, {shard}: {what}"))?;
                compare(&store, id, model, &unseen, is_leader)
                    .map_err(|what| format!("{node}, {shard}, table {}: {what}", table.name()))?;
            }
        }
    }
    Ok(())
}

/// All replicas have the same at keys that the model does not know: the first one sets the reference.
fn agree(
    reference: &mut BTreeMap<(TableId, Vec<u8>), Option<Vec<u8>>>,
    store: &Arc<Store>,
    table: TableId,
    unseen: &BTreeMap<&[u8], InstallOrder>,
) -> RuleVerdict {
    if unseen.is_empty() {
        return Ok(());
    }
    let held = rows(store, table)?;
    for key in unseen.keys() {
        let value = held.get(*key);
        let first = reference.entry((table, key.to_vec())).or_insert_with(|| value.cloned());
        if first.as_ref() != value {
            return Err(format!("'{}' is not what the first replica has", key.escape_ascii()));
        }
    }
    Ok(())
}

/// No version in the store is `rejected`.
fn find_rejected(store: &Arc<Store>, rejected: impl Fn(StampRef<'_>) -> bool) -> RuleVerdict {
    let mut session = store.session().map_err(|error| error.to_string())?;
    let all = CopyPart { records_max: usize::MAX, bytes_max: usize::MAX };
    let mut found = Ok(());
    let rest = session.copy(
        &WalkPlace::default(),
        all,
        |_| false,
        rejected,
        |version| {
            let (table, key, clock) =
                (version.table, version.key.escape_ascii(), version.stamp.clock);
            let epoch = version.stamp.epoch;
            found = Err(format!(
                "{epoch} {clock} of {table} '{key}' was rolled back, and is still there"
            ));
        },
    );
    assert!(rest.is_none(), "a copy without bounds has everything");
    found
}

/// Every live row of the store is that of the model, and the other way round, but for keys that the model does not know.
fn compare(
    store: &Arc<Store>,
    table: TableId,
    model: &Rows,
    unseen: &BTreeMap<&[u8], InstallOrder>,
    clocks: bool,
) -> RuleVerdict {
    let held = rows(store, table)?;
    let mut session = store.session().map_err(|error| error.to_string())?;
    for (key, order) in unseen {
        let transaction = session.begin();
        let newest = transaction.get_where(table, key, |_| true).ok().flatten();
        // None: it was a tombstone, and is collected, or so is a later one.
        let found = newest.map(|newest| (newest.stamp.epoch, newest.stamp.clock));
        if found.is_some_and(|found| found < *order) {
            let key = key.escape_ascii();
            return Err(format!("'{key}' has {found:?}, and had {order:?} on another replica"));
        }
    }
    drop(session);
    for (key, versions) in model {
        let found = held.get(key);
        if versions.may_show(found.map(Vec::as_slice)) || unseen.contains_key(&key[..]) {
            continue;
        }
        let key = key.escape_ascii();
        let newest = versions.newest().and_then(|newest| Some((newest, newest.value.as_ref()?)));
        return Err(match newest {
            None => format!("'{key}' should be absent"),
            Some((newest, value)) => format!(
                "'{key}' should be '{}', written by {} at {}, but is {}",
                value.escape_ascii(),
                newest.transaction,
                newest.order.1,
                found.map_or("absent".into(), |found| format!("'{}'", found.escape_ascii())),
            ),
        });
    }
    let mut unknown = held.keys().filter(|key| !model.contains_key(*key));
    if let Some(key) = unknown.find(|key| !unseen.contains_key(&key[..])) {
        return Err(format!("'{}' should be absent", key.escape_ascii()));
    }
    if clocks { compare_clocks(store, table, model, unseen) } else { Ok(()) }
}

/// The leader's newest versions are those of the model by their clocks, too.
fn compare_clocks(
    store: &Arc<Store>,
    table: TableId,
    model: &Rows,
    unseen: &BTreeMap<&[u8], InstallOrder>,
) -> RuleVerdict {
    let mut session = store.session().map_err(|error| error.to_string())?;
    let transaction = session.begin();
    for (key, versions) in model {
        let Some(newest) = versions.newest() else { continue };
        let found =
            transaction.get_where(table, key, |_| true).map_err(|error| error.to_string())?;
        let order = found.map(|found| (found.stamp.epoch, found.stamp.clock));
        if !versions.may_have(order) && !unseen.contains_key(&key[..]) {
            return Err(format!(
                "'{}' should have the clock {}, but has {order:?}",
                key.escape_ascii(),
                newest.order.1
            ));
        }
    }
    Ok(())
}

/// The live rows of a table.
fn rows(store: &Arc<Store>, table: TableId) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let mut session = store.session().map_err(|error| error.to_string())?;
    let mut rows = BTreeMap::new();
    let mut last: Option<Vec<u8>> = None;
    loop {
        let transaction = session.begin();
        let start = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let scan = Scan { start, ..Scan::all() }.limit(PAGE_ROWS);
        let page = transaction.scan(table, scan).map_err(|error| error.to_string())?;
        let full = page.len() == PAGE_ROWS;
        rows.extend(page.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        last = rows.last_key_value().map(|(key, _)| key.clone());
        if !full {
            return Ok(rows);
        }
    }
}
