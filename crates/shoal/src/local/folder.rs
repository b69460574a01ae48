//! The folder of a local cluster.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A cluster that runs on this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LocalCluster {
    /// The process that started it, and ends it.
    pub process: u32,
    /// Its nodes, in the order of their numbers.
    pub nodes: Vec<LocalNode>,
    /// Are they in network namespaces of their own?
    #[serde(default)]
    pub namespaces: bool,
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
    /// Its process; that of the cluster, if it has none of its own.
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
        serde_json::from_str(&text).map_err(|error| none(&error))
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

    /// No process runs any more.
    ///
    /// # Errors
    /// If it cannot be said.
    pub fn clear(&self) -> io::Result<()> {
        fs::remove_file(self.state())
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
