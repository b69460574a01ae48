//! What must hold of all nodes at any time. Records and validated rows are taken from what nodes have, never from what an
//! owner believes of others.

use crate::cluster::Cluster;
use shoal_types::NodeId;
use shoal_zeus::{GranuleId, Level, ZeusNode};
use std::collections::BTreeSet;

/// Checks the whole cluster; the error is the first rule that is broken.
pub fn check(cluster: &Cluster) -> Result<(), String> {
    let members: Vec<(NodeId, &ZeusNode)> =
        cluster.members().into_iter().filter_map(|node| Some((node, cluster.up(node)?))).collect();
    let granules = members.iter().flat_map(|(_, node)| node.ownership().holdings());
    let granules: BTreeSet<&GranuleId> = granules.map(|(granule, _)| granule).collect();
    for granule in granules {
        one_owner(&members, granule)?;
        arbiters_agree(&members, granule)?;
        validated_everywhere(&members, granule)?;
    }
    Ok(())
}

/// Z1: at most one node may write.
fn one_owner(members: &[(NodeId, &ZeusNode)], granule: &GranuleId) -> Result<(), String> {
    let owns =
        |(node, up): &&(NodeId, &ZeusNode)| up.ownership().level(*node, granule) == Level::Owner;
    let owners: Vec<NodeId> = members.iter().filter(owns).map(|(node, _)| *node).collect();
    match owners.len() > 1 {
        true => Err(format!("Z1: {granule} has the owners {owners:?}")),
        false => Ok(()),
    }
}

/// Z3: directory nodes and owners that know a record by the same timestamp, in the same epoch, know the same record. An owner that
/// serves no more has let the granule go.
fn arbiters_agree(members: &[(NodeId, &ZeusNode)], granule: &GranuleId) -> Result<(), String> {
    let mut known = Vec::new();
    for (node, up) in members {
        let Some(holding) = up.ownership().holding(granule) else { continue };
        let is_owner = holding.record.owner == Some(*node) && holding.serves;
        let is_arbiter = up.view().directories[0].nodes.contains(node) || is_owner;
        if is_arbiter {
            known.push((node, up.view().epoch, &holding.record));
        }
    }
    for (node, epoch, record) in &known {
        let other = known.iter().find(|(_, other_epoch, other)| {
            other_epoch == epoch && other.o_ts == record.o_ts && other != record
        });
        if let Some((other, _, others)) = other {
            return Err(format!("Z3: of {granule} {node} knows {record}, {other} {others}"));
        }
    }
    Ok(())
}

/// Z6: what one replica shows as validated, all that serve have applied, or something newer.
fn validated_everywhere(
    members: &[(NodeId, &ZeusNode)],
    granule: &GranuleId,
) -> Result<(), String> {
    let serving =
        members.iter().filter(|(node, up)| up.ownership().level(*node, granule) >= Level::Reader);
    let serving: Vec<_> = serving.collect();
    for (shown, up) in &serving {
        let Some(rows) = up.rows().granule(granule) else { continue };
        for (key, row) in rows.all().filter(|(_, row)| row.is_valid) {
            for (other, others) in &serving {
                let has = others.rows().get(granule, key).map(|row| row.version);
                let clock = others.ownership().holding(granule).map(|holding| holding.clock);
                let is_newer = has.is_some_and(|has| has >= row.version)
                    || (has.is_none() && clock.is_some_and(|clock| clock >= row.version.clock));
                if !is_newer {
                    let version = row.version;
                    let key = key.1.escape_ascii();
                    return Err(format!(
                        "Z6: {shown} shows {key} at {version}, {other} has {has:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}
