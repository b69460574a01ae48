//! `shoal status`: how a cluster is.

use super::{Trouble, Verdict, print};
use crate::ask;
use crate::local::Folder;
use crate::terminal::table;
use clap::Args;
use consensus::topology::Topology;
use net::Secret;
use net::client::Access;
use server::NodeStatus;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use workloads::report::words;

/// Show how the nodes of a cluster are: leaders, epochs, leases, streams, memory
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal status
  shoal status --connect 10.0.0.1:7000 --json

Exit codes: 0 every node answers and every shard is led, 1 not so, 2 there is no cluster")]
pub struct Status {
    #[command(flatten)]
    target: Target,
    /// Print what the nodes say as JSON
    #[arg(long)]
    json: bool,
}

/// Which cluster is meant.
#[derive(Debug, Args)]
pub struct Target {
    /// The folder of a cluster that `shoal local` has started
    #[arg(long, value_name = "FOLDER", default_value = "shoal-local")]
    local: PathBuf,
    /// Addresses of a cluster that runs elsewhere, instead
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    connect: Vec<String>,
    /// The cluster's name
    #[arg(long, default_value = "shoal")]
    cluster: String,
    /// A file with the secret of its clients, if it has one
    #[arg(long, value_name = "FILE")]
    client_secret: Option<PathBuf>,
}

impl Target {
    /// Where it is.
    pub fn addresses(&self) -> Result<Vec<String>, Trouble> {
        if !self.connect.is_empty() {
            return Ok(self.connect.clone());
        }
        let cluster = Folder(self.local.clone()).read().map_err(Trouble::Usage)?;
        Ok(cluster.addresses())
    }

    /// What lets clients in.
    pub fn access(&self) -> Result<Access, Trouble> {
        let mut access = Access::open(&*self.cluster);
        if let Some(path) = &self.client_secret {
            let secret = fs::read(path).map_err(|error| Trouble::file("read", path, error))?;
            access.secret = Secret::new(secret.trim_ascii_end());
        }
        Ok(access)
    }
}

/// What each node of a cluster says of itself, or why it says nothing.
#[derive(Debug)]
pub struct Report {
    pub topology: Topology,
    pub nodes: Vec<Result<NodeStatus, String>>,
}

impl Report {
    /// Asks everybody, as clients of this access that know these addresses.
    ///
    /// # Errors
    /// A sentence, if nobody says where the nodes are.
    pub async fn gather(addresses: &[String], access: &Access) -> Result<Report, String> {
        let topology = ask::topology(addresses, access).await?;
        let mut nodes = Vec::new();
        for node in topology.nodes() {
            let unknown = || format!("{} has no address", node.name);
            nodes.push(match &node.address {
                Some(address) => ask::status(address, access, 0).await,
                None => Err(unknown()),
            });
        }
        Ok(Report { topology, nodes })
    }

    /// The node that leads each shard, by its own word and under a lease.
    pub fn leaders(&self) -> BTreeMap<u32, u32> {
        let told = self.nodes.iter().flatten().filter(|node| node.lease_ms != Some(0));
        told.flat_map(|node| {
            let leading = node.streams.iter().filter(|stream| stream.leading);
            leading.map(|stream| (stream.shard, node.node))
        })
        .collect()
    }

    /// Does every node answer, and is every shard led?
    pub fn is_well(&self) -> bool {
        let led = self.leaders().len() == self.topology.shards() as usize;
        led && self.nodes.iter().all(Result::is_ok)
    }

    fn text(&self) -> String {
        let leaders = self.leaders();
        let farthest = |shard: u32| {
            let streams = self.nodes.iter().flatten().flat_map(|node| &node.streams);
            streams.filter(|stream| stream.shard == shard).map(|stream| stream.decided).max()
        };
        let rows = self.topology.nodes().iter().zip(&self.nodes).map(|(node, status)| {
            let place = &self.topology.datacenters()[node.datacenter.0 as usize].name;
            let Ok(status) = status else {
                let none = || "–".to_owned();
                return [
                    node.name.clone(),
                    place.clone(),
                    "does not answer".to_owned(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                ];
            };
            let leads = leaders.iter().filter(|(_, leader)| **leader == node.id.0);
            let leads: Vec<String> = leads.map(|(shard, _)| format!("S{shard}")).collect();
            let lag = status
                .streams
                .iter()
                .map(|stream| farthest(stream.shard).unwrap_or_default() - stream.decided);
            let count = |name: &str| {
                let found = status.counters.iter().find(|(counter, _)| counter == name);
                words::count(found.map_or(0, |(_, count)| *count))
            };
            [
                node.name.clone(),
                place.clone(),
                if leads.is_empty() {
                    "follows".to_owned()
                } else {
                    format!("leads {}", leads.join(" "))
                },
                format!("e{}", status.epoch),
                status.lease_ms.map_or_else(|| "for ever".to_owned(), |ms| format!("{ms} ms")),
                words::count(lag.sum()),
                words::count(status.pending as u64),
                count("committed"),
                format!("{} MiB", status.memory_bytes >> 20),
            ]
        });
        let heads = [
            "node",
            "datacenter",
            "role",
            "epoch",
            "lease",
            "entries behind",
            "open",
            "committed",
            "memory",
        ];
        table(heads, rows)
    }
}

impl Status {
    pub(super) fn run(&self) -> Result<Verdict, Trouble> {
        let (addresses, access) = (self.target.addresses()?, self.target.access()?);
        let runtime = ask::runtime().map_err(|error| Trouble::Usage(error.to_string()))?;
        let report = runtime.block_on(Report::gather(&addresses, &access));
        let report = report.map_err(Trouble::Usage)?;
        if self.json {
            let known: Vec<&NodeStatus> = report.nodes.iter().flatten().collect();
            let json = serde_json::to_string_pretty(&known).expect("numbers and names");
            print(&(json + "\n"))?;
        } else {
            print(&(report.text() + "\n"))?;
            for silent in report.nodes.iter().filter_map(|node| node.as_ref().err()) {
                print(&format!("warning: {silent}\n"))?;
            }
        }
        Ok(if report.is_well() { Verdict::Holds } else { Verdict::Fails })
    }
}
