//! What must hold of a topology, and what to do where it does not.

use super::cluster::{Datacenter, Node, Shard, Topology};
use super::distances;
use super::draft::{DatacenterDraft, Draft, NodeDraft, ShardDraft, TablePlan, unplaced};
use super::error::{Complaint, NOWHERE};
use super::granules::{TableDefinition, TableGranules};
use super::names::Names;
use super::partitioning::Partitioning;
use super::tables::{Table, TableMap};
use super::{DATACENTERS_MAX, NODES_MAX, RANGES_MAX, REPLICAS_MAX, SHARDS_MAX, WORKERS_MAX};
use shoal_types::limits::{KEY_BYTES_MAX, TABLE_IDS_MAX, TABLES_MAX};
use shoal_types::{DatacenterId, Durability, NodeId, ShardId, TableId, UnknownDurability};
use std::collections::BTreeMap;
use toml::Spanned;

// No shard is `ShardId::EVERY`.
const _: () = assert!(SHARDS_MAX < ShardId::EVERY.0 as usize);

/// Refuses none, and more than a limit.
fn check_count(kind: &str, count: usize, limit: &str, max: usize) -> Result<(), Complaint> {
    if count == 0 {
        return Complaint::about(NOWHERE, format!("there is no {kind}; add a [[{kind}]]"));
    }
    if count > max {
        let what = format!("there are {count} {kind}s, {limit} is {max}; use fewer");
        return Complaint::about(NOWHERE, what);
    }
    Ok(())
}

/// The cluster that a draft describes, without its tables.
pub(super) fn cluster(draft: Draft) -> Result<Topology, Complaint> {
    let workers = workers(draft.workers)?;
    let (datacenters, datacenter_names) = datacenters(draft.datacenters)?;
    let distances = distances::read(draft.distances, &datacenter_names)?;
    check_count("node", draft.nodes.len(), "NODES_MAX", NODES_MAX)?;
    check_count("shard", draft.shards.len(), "SHARDS_MAX", SHARDS_MAX)?;

    let mut node_names = Names::new("node");
    let nodes = nodes(draft.nodes, &datacenter_names, &mut node_names)?;
    let mut shards = Vec::with_capacity(draft.shards.len());
    for (id, shard) in (0..).zip(&draft.shards) {
        shards.push(self::shard(id, shard, &node_names)?);
    }
    let durability = durability(draft.durability)?;
    Ok(Topology::new(workers, datacenters, distances, nodes, shards).with_durability(durability))
}

/// The datacenters, and their names for what comes after.
pub(super) fn datacenters(
    drafts: Vec<DatacenterDraft>,
) -> Result<(Vec<Datacenter>, Names), Complaint> {
    check_count("datacenter", drafts.len(), "DATACENTERS_MAX", DATACENTERS_MAX)?;
    let mut names = Names::new("datacenter");
    let mut datacenters = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let id = DatacenterId(names.add(&draft.name)?);
        datacenters.push(Datacenter { id, name: draft.name.into_inner() });
    }
    Ok((datacenters, names))
}

fn durability(durability: Option<Spanned<String>>) -> Result<Durability, Complaint> {
    let Some(written) = durability else { return Ok(Durability::Fsync) };
    let level = written.get_ref().parse();
    level.or_else(|error: UnknownDurability| Complaint::about(written.span(), error.to_string()))
}

fn workers(workers: Option<Spanned<u32>>) -> Result<u32, Complaint> {
    let Some(workers) = workers else {
        let what = "the number of workers is missing; begin with workers = 1, or more";
        return Complaint::about(NOWHERE, what);
    };
    let what = match *workers.get_ref() {
        0 => "a node without workers does nothing; write 1 or more".to_owned(),
        count if count > WORKERS_MAX => {
            format!("a node has at most WORKERS_MAX = {WORKERS_MAX} workers; write fewer")
        }
        count => return Ok(count),
    };
    Complaint::about(workers.span(), what)
}

fn nodes(
    drafts: Vec<NodeDraft>,
    datacenters: &Names,
    names: &mut Names,
) -> Result<Vec<Node>, Complaint> {
    let mut nodes = Vec::with_capacity(drafts.len());
    let mut listeners = BTreeMap::new();
    for draft in drafts {
        let id = NodeId(names.add(&draft.name)?);
        let datacenter = DatacenterId(datacenters.find(&draft.datacenter)?);
        let name = draft.name.into_inner();
        if let Some(address) = &draft.address {
            if draft.removed {
                let what = "a removed node has no address; take the address away";
                return Complaint::about(address.span(), what);
            }
            if address.get_ref().is_empty() {
                let what = "an address has a host and a port; write one, or leave it out";
                return Complaint::about(address.span(), what);
            }
            if let Some(other) = listeners.insert(address.get_ref().clone(), name.clone()) {
                let what = format!("node {other:?} has this address already; give each its own");
                return Complaint::about(address.span(), what);
            }
        }
        let (address, removed) = (draft.address.map(Spanned::into_inner), draft.removed);
        nodes.push(Node { id, name, datacenter, address, removed });
    }
    Ok(nodes)
}

/// The last of these nodes, of which all others are those of a topology.
pub(super) fn added_node(
    nodes: Vec<NodeDraft>,
    datacenters: &[Datacenter],
) -> Result<Node, Complaint> {
    check_count("node", nodes.len(), "NODES_MAX", NODES_MAX)?;
    let mut names = Names::new("datacenter");
    for datacenter in datacenters {
        names.add(&unplaced(datacenter.name.clone()))?;
    }
    let nodes = self::nodes(nodes, &names, &mut Names::new("node"))?;
    Ok(nodes.into_iter().next_back().expect("they were counted"))
}

fn shard(id: u32, draft: &ShardDraft, names: &Names) -> Result<Shard, Complaint> {
    let voters = draft.voters.get_ref();
    check_voters(id, &draft.voters)?;
    let count = voters.len() + draft.learners.len();
    if count > REPLICAS_MAX {
        let what =
            format!("shard {id} has {count} replicas, REPLICAS_MAX is {REPLICAS_MAX}; use fewer");
        return Complaint::about(draft.voters.span(), what);
    }
    let mut replicas = Vec::with_capacity(count);
    for name in voters.iter().chain(&draft.learners) {
        let node = NodeId(names.find(name)?);
        if replicas.contains(&node) {
            let what = format!(
                "node {:?} is a replica of shard {id} already; \
                 it can be one voter or one learner of it",
                name.get_ref()
            );
            return Complaint::about(name.span(), what);
        }
        replicas.push(node);
    }
    let leader = NodeId(names.find(&draft.leader)?);
    if !replicas.contains(&leader) {
        let what = format!(
            "node {:?} holds no replica of shard {id} and cannot lead it; \
             add it to the voters or the learners, or name one of them",
            draft.leader.get_ref()
        );
        return Complaint::about(draft.leader.span(), what);
    }
    let learners = replicas.split_off(voters.len());
    Ok(Shard { leader, voters: replicas, learners })
}

fn check_voters(id: u32, voters: &Spanned<Vec<Spanned<String>>>) -> Result<(), Complaint> {
    let count = voters.get_ref().len();
    if count == 0 {
        let what = format!("shard {id} has no voter, so nothing it does could last; name one");
        return Complaint::about(voters.span(), what);
    }
    if count.is_multiple_of(2) {
        let (less, more) = (count - 1, count + 1);
        let what = format!(
            "shard {id} has {count} voters; an even number survives no more failures than one \
             fewer does, and waits for more: name {less} or {more}, or make one a learner"
        );
        return Complaint::about(voters.span(), what);
    }
    Ok(())
}

/// The tables that were planned, on so many shards, with these ids, of which the next one is `next`.
pub(super) fn tables(
    plans: Vec<(TableId, TablePlan)>,
    next: TableId,
    shards: u32,
) -> Result<TableMap, Complaint> {
    if plans.len() > TABLES_MAX {
        let count = plans.len();
        let what = format!("there are {count} tables, TABLES_MAX is {TABLES_MAX}; use fewer");
        return Complaint::about(NOWHERE, what);
    }
    let mut ids = plans.iter().map(|(id, _)| *id);
    if next.0 as usize > TABLE_IDS_MAX
        || !ids.clone().is_sorted_by(|one, two| one < two)
        || ids.next_back().is_some_and(|last| last >= next)
    {
        let what = format!(
            "the ids of the tables do not ascend up to TABLE_IDS_MAX = {TABLE_IDS_MAX}; give each its own"
        );
        return Complaint::about(NOWHERE, what);
    }
    let mut names = Names::of_tables();
    for (_, plan) in &plans {
        names.add(&plan.name)?;
        match &plan.definition.partitioning {
            Partitioning::Hash { prefix_bytes } => check_prefix(*prefix_bytes, plan)?,
            Partitioning::Range { splits } => check_splits(splits, shards, plan)?,
            Partitioning::Everywhere => {}
        }
    }
    let granules = granules(&plans)?;
    let tables = plans.into_iter().zip(granules).map(|((id, plan), granules)| {
        Table::new(id, plan.name.into_inner(), plan.definition, granules, shards)
    });
    Ok(TableMap::new(tables.collect(), next))
}

/// The granules of each of these tables.
fn granules(plans: &[(TableId, TablePlan)]) -> Result<Vec<TableGranules>, Complaint> {
    let named: BTreeMap<&str, (TableId, &TableDefinition)> = plans
        .iter()
        .map(|(id, plan)| (plan.name.get_ref().as_str(), (*id, &plan.definition)))
        .collect();
    let mut granules = Vec::with_capacity(plans.len());
    for (id, plan) in plans {
        let (table, place) = (plan.name.get_ref(), plan.granules.clone());
        let family = match &plan.definition.family {
            None => None,
            Some(family) => match named.get(family.as_str()) {
                Some(first) => Some(*first),
                None => {
                    let what = format!(
                        "table {table:?} is in the family {family:?}, and there is no such table"
                    );
                    return Complaint::about(place, what);
                }
            },
        };
        let family = family.filter(|(first, _)| first != id);
        match TableGranules::of(*id, &plan.definition, family) {
            Ok(of) => granules.push(of),
            Err(why) => return Complaint::about(place, format!("table {table:?}: {why}")),
        }
    }
    Ok(granules)
}

fn check_prefix(prefix_bytes: usize, plan: &TablePlan) -> Result<(), Complaint> {
    if prefix_bytes <= KEY_BYTES_MAX {
        return Ok(());
    }
    let what = format!(
        "prefix_bytes is {prefix_bytes}, but a key has at most KEY_BYTES_MAX = {KEY_BYTES_MAX} \
         bytes; write 0 to hash whole keys"
    );
    Complaint::about(plan.span.clone(), what)
}

fn check_splits(
    splits: &[(Box<[u8]>, ShardId)],
    shards: u32,
    plan: &TablePlan,
) -> Result<(), Complaint> {
    let table = plan.name.get_ref();
    let count = splits.len();
    if count == 0 {
        let what = format!("table {table:?} has no range; give it at least {{ shard = 0 }}");
        return Complaint::about(plan.span.clone(), what);
    }
    if count > RANGES_MAX {
        let what =
            format!("table {table:?} has {count} ranges, RANGES_MAX is {RANGES_MAX}; use fewer");
        return Complaint::about(plan.span.clone(), what);
    }
    let mut before: Option<&[u8]> = None;
    for (place, (from, shard)) in splits.iter().enumerate() {
        let what = if before.is_none() && !from.is_empty() {
            "the keys below this one have no shard; begin with a range without `from`".to_owned()
        } else if before.is_some_and(|before| *before >= **from) {
            "this range does not begin above the one before it; sort the ranges by `from`, \
             each once"
                .to_owned()
        } else if from.len() > KEY_BYTES_MAX {
            let bytes = from.len();
            format!("the key has {bytes} bytes, KEY_BYTES_MAX is {KEY_BYTES_MAX}; shorten it")
        } else if shard.0 >= shards {
            let (shard, last) = (shard.0, shards - 1);
            format!("there is no shard {shard}; they count from 0, the last one is {last}")
        } else {
            before = Some(from);
            continue;
        };
        return Complaint::about(plan.range_span(place), what);
    }
    Ok(())
}
