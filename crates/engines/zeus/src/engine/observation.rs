//! What the engine lets a checker see: what nodes have of granules, taken from their state and never from what an owner
//! believes of others.

use super::shared::SharedNode;
use super::transaction_fact::TransactionFact;
use crate::granule::GranuleId;
use crate::record::{Level, OwnershipRecord};
use crate::rows::{ChangedRows, Row, RowKey};
use shoal_types::{Ballot, Clock, Epoch, ShardId, WorkerId};

/// What a worker lets a checker see.
#[derive(Debug, Clone, PartialEq)]
pub enum ZeusObservation {
    /// The worker leads its stream of a shard: the shard is served, since nothing has to be recovered from streams.
    Serves {
        /// The shard that is led.
        shard: ShardId,
        /// The ballot of the leadership.
        ballot: Ballot,
    },
    /// Something has become of a transaction.
    Transaction {
        /// The worker of the node that runs it.
        worker: WorkerId,
        /// What has become of it.
        fact: TransactionFact,
    },
    /// The node was out: what its workers had committed and not validated is forgotten. Observed once for each membership.
    Forgotten,
    /// A granule has changed at the node.
    Granule {
        /// The granule that has changed.
        granule: GranuleId,
        /// The shard in whose directory it is.
        shard: ShardId,
        /// The epoch that the node knows.
        epoch: Epoch,
        /// The level at which the node may use it.
        level: Level,
        /// Whether the node has its record as a directory node or as the owner.
        is_arbiter: bool,
        /// The newest record that is validated at the node.
        record: OwnershipRecord,
        /// The greatest clock of its rows that the node knows of.
        clock: Clock,
        /// Whether `rows` are all that the node has of it; else they are those that may have changed.
        is_whole: bool,
        /// Rows as the node has them.
        rows: Vec<ShownRow>,
    },
}

/// A row as a node has it.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownRow {
    /// Its table and key.
    pub key: RowKey,
    /// Its newest version; `None` if the node has none.
    pub row: Option<Row>,
}

/// Shows what has become of transactions, and then the granules that have changed. A process that is not admitted shows nothing: its
/// disks may be older than what the node had, and it does nothing until that is decided (rule Z22).
pub(super) fn show(shared: &mut SharedNode, observations: &mut Vec<ZeusObservation>) {
    if shared.node.is_restoring() || !shared.node.is_admitted() {
        return;
    }
    let facts = shared.facts.drain(..);
    observations.extend(facts.map(|(worker, fact)| ZeusObservation::Transaction { worker, fact }));
    let changed = shared.node.take_changed();
    let node = &shared.node;
    for (granule, ChangedRows { is_whole, keys }) in changed {
        let shown =
            |key: &RowKey, row: Option<&Row>| ShownRow { key: key.clone(), row: row.cloned() };
        let of = node.rows().granule(&granule);
        let rows = match is_whole {
            true => of
                .into_iter()
                .flat_map(|of| of.all())
                .map(|(key, row)| shown(key, Some(row)))
                .collect(),
            false => keys.iter().map(|key| shown(key, node.rows().get(&granule, key))).collect(),
        };
        let holding = node.ownership().holding(&granule);
        let record = holding.map(|holding| holding.record.clone()).unwrap_or_default();
        let shard = node.placement().shard_of(&granule);
        let me = node.id();
        let is_directory_node =
            node.view().directories.get(shard.0 as usize).is_some_and(|it| it.nodes.contains(&me));
        observations.push(ZeusObservation::Granule {
            shard,
            epoch: node.view().epoch,
            level: node.ownership().level(me, &granule),
            is_arbiter: is_directory_node || record.owner == Some(me),
            clock: holding.map(|holding| holding.clock).unwrap_or_default(),
            record,
            is_whole,
            rows,
            granule,
        });
    }
}
