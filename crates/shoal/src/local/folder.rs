//! The folder of a local cluster.

use serde::{Deserialize, Serialize};
use shoal_cluster::topology::Topology;
use shoal_net::Secret;
use shoal_net::client::Access;
use shoal_net::tls::ClientTls;
use shoal_types::Durability;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What the cluster was that ran here last.
const STOPPED: &str = "stopped.json";

/// The name of every local cluster.
pub const NAME: &str = "shoal";

/// The secrets and certificates of a local cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    /// Nodes and clients encrypt what they send.
    pub tls: bool,
    /// Clients have to know a secret.
    pub client_secret: bool,
}

/// A cluster that runs on this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LocalCluster {
    /// The process that started it, and ends it.
    pub process: u32,
    /// The nodes, in the order of their numbers.
    pub nodes: Vec<LocalNode>,
    /// Are they in network namespaces of their own?
    #[serde(default)]
    pub namespaces: bool,
    /// What its clients have to know and to trust.
    #[serde(default)]
    pub security: Security,
    /// What lets clients in, read from the files of the folder.
    #[serde(skip, default = "open_access")]
    pub access: Access,
}

/// The access to a cluster that asks clients for nothing.
pub fn open_access() -> Access {
    Access::open(NAME)
}

/// A node of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LocalNode {
    /// The name of the node.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Where it answers for its health and metrics, if it does.
    #[serde(default)]
    pub http: Option<String>,
    /// The process; that of the cluster, if it has none of its own.
    pub process: u32,
}

impl LocalCluster {
    /// Where clients find it.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }
}

/// The folder of a local cluster, by its path.
#[derive(Debug, Clone)]
pub struct ClusterFolder(pub PathBuf);

impl ClusterFolder {
    /// What stands in it.
    ///
    /// # Errors
    /// A sentence, if there is no cluster.
    pub fn read(&self) -> Result<LocalCluster, String> {
        let path = self.state();
        let none = |error: &dyn std::fmt::Display| {
            format!(
                "no local cluster in {}: {error}; start one with `shoal local`",
                self.0.display()
            )
        };
        let text = fs::read_to_string(&path).map_err(|error| none(&error))?;
        let cluster: LocalCluster = serde_json::from_str(&text).map_err(|error| none(&error))?;
        Ok(LocalCluster { access: self.access(cluster.security)?, ..cluster })
    }

    /// What lets clients into the cluster in this folder, if it is secured like this.
    ///
    /// # Errors
    /// A sentence, if a file for it is missing or cannot be used.
    pub fn access(&self, security: Security) -> Result<Access, String> {
        let mut access = open_access();
        if security.client_secret {
            let secret = Secret::read(&self.client_secret());
            access.secret = secret.map_err(|error| format!("the cluster's folder {error}"))?;
        }
        if security.tls {
            let path = self.authorities();
            let trusted = ClientTls::read(&path, NAME)
                .map_err(|error| format!("cannot trust {}: {error}", path.display()))?;
            access.tls = Some(trusted);
        }
        Ok(access)
    }

    /// The file with what clients have to know.
    pub fn client_secret(&self) -> PathBuf {
        self.file("client-secret")
    }

    /// The file with the certificate of the authority that vouches for the nodes.
    pub fn authorities(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// Writes down which processes run. A reader at the same time sees what was there before or this.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, cluster: &LocalCluster) -> io::Result<()> {
        let text = serde_json::to_string_pretty(cluster).expect("names and numbers");
        let next = self.0.join("cluster.json.next");
        fs::write(&next, text)?;
        fs::rename(next, self.state())
    }

    /// No process runs any more. What the nodes are is kept for [`stopped`](ClusterFolder::stopped).
    ///
    /// # Errors
    /// If it cannot be said.
    pub fn clear(&self) -> io::Result<()> {
        fs::rename(self.state(), self.file(STOPPED))
    }

    /// The cluster that ran here, if its nodes have their data on disk. It may run still.
    ///
    /// # Errors
    /// If a file of it cannot be used.
    pub fn stopped(&self) -> io::Result<Option<LocalCluster>> {
        let read = |path: &Path| match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        // Where the command was killed, it has not said that it ended.
        let state =
            [self.state(), self.file(STOPPED)].iter().find_map(|path| read(path).transpose());
        let (Some(state), Some(topology)) = (state.transpose()?, read(&self.topology())?) else {
            return Ok(None);
        };
        let topology = Topology::parse(&topology).map_err(io::Error::other)?;
        if topology.durability() == Durability::Memory {
            return Ok(None);
        }
        let cluster: LocalCluster = serde_json::from_str(&state).map_err(io::Error::other)?;
        let access = self.access(cluster.security).map_err(io::Error::other)?;
        Ok(Some(LocalCluster { access, ..cluster }))
    }

    /// The file with nodes, shards and tables.
    pub fn topology(&self) -> PathBuf {
        self.file("topology.toml")
    }

    /// The folder of a node.
    pub fn node(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file in it.
    pub fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    fn state(&self) -> PathBuf {
        self.file("cluster.json")
    }
}
