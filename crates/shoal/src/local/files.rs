//! The files of a cluster's nodes, before it starts.

use super::certificates::certify;
use super::folder::{ClusterFolder, LocalNode, Security};
use super::plan::{ClusterPlan, secret};
use shoal_net::Secret;
use std::{fs, io};

/// Writes the files of a cluster that is to be like this, in the place of those of a former one. Its nodes listen at
/// `addresses`, and answer for their health at `https`, as far as that goes.
///
/// # Errors
/// If a file cannot be written.
pub fn write_files(
    folder: &ClusterFolder,
    plan: &ClusterPlan,
    addresses: &[String],
    https: &[String],
    security: Security,
) -> io::Result<Vec<LocalNode>> {
    let topology = plan.topology(addresses).map_err(io::Error::other)?;
    fs::create_dir_all(&folder.0)?;
    fs::write(folder.topology(), topology.to_toml())?;
    Secret::new(secret()?).write_hex(&folder.file("secret"))?;
    let mut nodes = Vec::new();
    for (at, (node, address)) in topology.nodes().iter().zip(addresses).enumerate() {
        let place = folder.node(&node.name);
        // What a former cluster's managers knew is not true of this one.
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place)?;
        let http = https.get(at).cloned();
        let file = plan.node_file(&node.name, http.as_deref(), security);
        fs::write(place.join("node.toml"), file)?;
        let (name, process) = (node.name.clone(), std::process::id());
        nodes.push(LocalNode { name, address: address.clone(), http, process });
    }
    if security.client_secret {
        Secret::new(secret()?).write_hex(&folder.client_secret())?;
    }
    if security.tls {
        certify(folder, nodes.iter().map(|node| &*node.name))?;
    }
    Ok(nodes)
}
