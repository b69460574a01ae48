//! M6: followers apply a piece only when it is durable with all it depends on, and on one key the
//! greatest (epoch, clock) wins, in any order of arrival (Thomas's rule).

use super::durable::Durable;
use super::installed::Installed;
use super::transactions::SeenAttempt;
use super::verdict::RuleVerdict;
use shoal_types::{Clock, Epoch, NodeId, ShardId, Stamp, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// The versions that replicas have applied.
#[derive(Debug)]
pub struct Replay {
    shards: usize,
    /// The newest applied versions, for each pair of a node and a shard.
    replicas: Vec<BTreeMap<TableId, Newest>>,
    /// Keys that nodes have installed themselves, as leaders: the checks do not track what the stores hold of
    /// these.
    own: BTreeSet<(NodeId, ShardId, TableId, Vec<u8>)>,
}

/// The greatest (epoch, clock) that was applied to each key of a table.
type Newest = BTreeMap<Vec<u8>, (Epoch, Clock)>;

/// Judges that a version is applied: by its own stamp, and by the one that its writer was certified with.
pub fn covered(
    shard: ShardId,
    stamp: &Stamp,
    writer: Option<&SeenAttempt>,
    durable: &Durable,
) -> RuleVerdict {
    let certified = writer.and_then(|writer| writer.certified.as_ref());
    let missing = durable
        .missing(shard, stamp)
        .or_else(|| certified.and_then(|it| durable.missing(it.own, &it.stamp)));
    let Some((missing, clock)) = missing else { return Ok(()) };
    let (own, up_to) = (stamp.clock, durable.of(missing));
    Err(format!(
        "a version of {shard} with clock {own} was applied, which depends on {missing} up to \
         {clock}, while that is durable up to {up_to} only"
    ))
}

/// A version that a follower has looked at.
#[derive(Debug, Clone, Copy)]
pub struct AppliedVersion<'a> {
    /// The shard that is replayed.
    pub shard: ShardId,
    /// The version's stamp as the shard keeps it.
    pub stamp: &'a Stamp,
    /// The table of the key.
    pub table: TableId,
    /// The key that is written.
    pub key: &'a [u8],
    /// Whether the version is the newest one now.
    pub won: bool,
}

impl Replay {
    /// No replica has applied a version.
    pub fn new(nodes: usize, shards: usize) -> Replay {
        Replay { shards, replicas: vec![BTreeMap::new(); nodes * shards], own: BTreeSet::new() }
    }

    /// A node has installed a version as the leader.
    pub fn installed(&mut self, node: NodeId, shard: ShardId, table: TableId, key: &[u8]) {
        self.own.insert((node, shard, table, key.to_vec()));
    }

    /// A node has crashed: its stores are empty, and it applies everything again.
    pub fn crashed(&mut self, node: NodeId) {
        let first = node.0 as usize * self.shards;
        self.replicas[first..first + self.shards].iter_mut().for_each(BTreeMap::clear);
        self.own.retain(|(other, ..)| *other != node);
    }

    /// A follower has applied a version, and reports whether it replaced the newest one.
    pub fn applied(
        &mut self,
        node: NodeId,
        version: AppliedVersion<'_>,
        installed: &Installed,
    ) -> RuleVerdict {
        let AppliedVersion { shard, stamp, table, key, won } = version;
        let rows = &mut self.replicas[node.0 as usize * self.shards + shard.0 as usize];
        let rows = rows.entry(table).or_default();
        let order = (stamp.epoch, stamp.clock);
        let before = rows.get_mut(key);
        let is_newer = before.as_ref().is_none_or(|before| order > **before);
        let judged = !self.own.contains(&(node, shard, table, key.to_vec()));
        // A copy brought the version while its entry was replayed in slices, and it was collected, as tombstones are: the next
        // slice applies it again (mako 67409724).
        let is_repeated = won
            && before.as_ref().is_some_and(|before| **before == order)
            && !installed.is_live(shard, stamp, table, key);
        if won != is_newer && !is_repeated && judged {
            let did = if won { "replaced" } else { "gave way to" };
            let before =
                before.map_or("nothing".into(), |(epoch, clock)| format!("{epoch} {clock}"));
            return Err(format!(
                "{} {} of {table} '{}' on {shard} {did} {before}",
                order.0,
                order.1,
                key.escape_ascii()
            ));
        }
        match before {
            Some(before) => *before = order.max(*before),
            None => drop(rows.insert(key.to_vec(), order)),
        }
        Ok(())
    }
}
