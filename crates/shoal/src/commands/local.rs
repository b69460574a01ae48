//! `shoal local`: a whole cluster on this machine.

use super::shape::{Shape, engine};
use super::{CommandError, CommandOutcome, print};
use crate::clock::now;
use crate::local::{
    ClusterFolder, ClusterPlan, Interrupts, LocalCluster, Namespaces, NodeProcesses, ProcessChange,
    Security, isolate, listens, start_all, wait_ready, write_files,
};
use crate::report::{StatusReport, led_by};
use crate::{ask, duration, terminal};
use clap::{Args, Parser, value_parser};
use shoal_cluster::topology::{Partitioning, Regions};
use shoal_server::Protocol;
use shoal_server::{NodeConfig, Server};
use shoal_types::Durability;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

/// How often it is looked whether all is well.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// After a signal all is over within this, also where a node hangs that is a thread of this process.
const END_MAX: Duration = Duration::from_secs(10);

/// The first of the ports, if the command line has no other.
const PORT: u16 = 7000;

/// What a command says that was interrupted while it started a cluster.
const INTERRUPTED: &str = "interrupted before the cluster was ready; all of it has ended";

/// Start a whole cluster on this machine, and stop it with Ctrl-C
///
/// Each node is a process of its own, so that it can be killed. A node that dies is started again after a
/// while. It has lost its memory then, as after a crash, and catches up from the others, unless `--durability` says otherwise:
/// then it has what it had, and a cluster that was stopped, or killed, goes on when it is started again in its folder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal local
  shoal local --shards 3 --replicas 3 --wan 50ms
  shoal local --table accounts:hash --table events:range
  shoal local --tls --secret --port 7100 --folder secured
  shoal local --regions tiga
  shoal local --durability fsync --folder kept
  shoal local --folder kept                       the same cluster, with what is in it
  shoal local --in-process --shards 1 --replicas 1
  sudo shoal local --namespaces

Exit codes: 0 stopped, 1 it did not come up, 2 the command line is wrong")]
pub struct LocalCommand {
    #[command(flatten)]
    shape: Shape,
    /// Workers of each node
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    workers: u32,
    /// The commit protocol
    #[arg(long, default_value = Protocol::default().name(), value_parser = engine())]
    engine: Protocol,
    /// When replicas acknowledge: `memory`, when they have stored in memory; `async`, when the kernel has it; `fsync`, when it is
    /// on the disk. With the last two a node that dies begins again with what it had
    #[arg(long, value_name = "LEVEL", default_value = "memory", conflicts_with = "in_process")]
    durability: Durability,
    /// What is not flushed to the disk is lost when a node's process is killed, as if its machine lost power. With `fsync` only
    #[arg(long)]
    lose_unflushed: bool,
    /// All nodes in this process: quicker to start, and none can be killed
    #[arg(long)]
    in_process: bool,
    /// The first node's port on 127.0.0.1; the others have the next ones. 0: any that are free
    #[arg(long, default_value_t = PORT, conflicts_with = "namespaces")]
    port: u16,
    /// A table to begin with, and how its keys are divided: by a hash of them, or into ranges, one for each shard, that
    /// begin with the first bytes from 0 to 255 in equal parts. May be given several times
    #[arg(long = "table", value_name = "NAME:hash|range", value_parser = requested_table)]
    tables: Vec<RequestedTable>,
    /// Nodes and clients encrypt what they send. The certificates are made now, in the folder, where only you can read them
    #[arg(long)]
    tls: bool,
    /// Clients have to know a secret. It is drawn now, into `client-secret` in the folder, which only you can read
    #[arg(long)]
    secret: bool,
    /// Each node in a network namespace of its own, with clocks of its own where the kernel can do that, so that
    /// `shoal chaos` can let packets get lost one way. Needs root, iproute2 and util-linux
    #[arg(long, conflicts_with = "in_process")]
    namespaces: bool,
    /// So many of 100 packets are lost between namespaces, where the kernel can emulate networks
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, requires = "namespaces")]
    loss: f64,
    /// Where configurations and logs go
    #[arg(long, value_name = "FOLDER", default_value = "shoal-local")]
    folder: PathBuf,
    /// Each node answers for its health and metrics, at an address of its own
    #[arg(long)]
    http: bool,
    /// Do not start nodes again that die
    #[arg(long)]
    no_restart: bool,
    /// Start nodes that die again after this
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration::parse)]
    restart_after: Duration,
}

/// The command line without options.
#[derive(Debug, Parser)]
struct BareCommand {
    #[command(flatten)]
    command: LocalCommand,
}

/// A table that the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RequestedTable {
    name: String,
    by_range: bool,
}

fn requested_table(text: &str) -> Result<RequestedTable, String> {
    let by_range = |division| match division {
        "hash" => Some(false),
        "range" => Some(true),
        _ => None,
    };
    let parts = text.rsplit_once(':').filter(|(name, _)| !name.is_empty());
    let requested = parts.and_then(|(name, division)| {
        Some(RequestedTable { name: name.to_owned(), by_range: by_range(division)? })
    });
    requested.ok_or_else(|| "NAME:hash or NAME:range is expected".to_owned())
}

/// The nodes that run.
enum Running {
    /// Each in a process of its own.
    Processes(Option<Namespaces>),
    /// Threads of this process. They end when they are dropped.
    Here { _servers: Vec<Server> },
}

impl LocalCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let began = now();
        if self.namespaces {
            isolate().map_err(CommandError::Usage)?;
        }
        let folder = ClusterFolder(self.folder.clone());
        let processes = NodeProcesses::default();
        let (killed, forgotten) = (processes.clone(), folder.clone());
        let interrupts = Interrupts::listen(END_MAX, move || end_at_once(&killed, &forgotten));
        let mut interrupts = interrupts.map_err(|error| CommandError::Usage(error.to_string()))?;
        let plan = self.plan()?;
        let runtime = ask::runtime().map_err(|error| CommandError::Usage(error.to_string()))?;
        runtime.block_on(async {
            let Some(other) = interrupts.before(self.runs_already(&folder)).await else {
                return Err(CommandError::Database(INTERRUPTED.to_owned()));
            };
            let made = match other {
                true => Err(io::Error::other("one runs there already")),
                false => self.make_or_resume(&folder, &plan),
            };
            let (mut cluster, listeners) = made
                .map_err(|error| CommandError::file("start a cluster in", &self.folder, error))?;
            let ended = match self.start(&folder, &mut cluster, listeners, &processes) {
                Ok(running) => {
                    self.watch(&folder, cluster, running, &processes, began, &mut interrupts).await
                }
                Err(error) => Err(error),
            };
            processes.end().await;
            // The nodes have ended: commands that read it later would find none.
            let _ = folder.clear();
            ended
        })
    }

    fn plan(&self) -> Result<ClusterPlan, CommandError> {
        let plan = self.shape.plan(self.workers, self.engine)?;
        if self.lose_unflushed && self.durability != Durability::Fsync {
            let level = "--lose-unflushed: nothing else is flushed; add --durability fsync";
            return Err(CommandError::Usage(level.to_owned()));
        }
        let (durability, loses_unflushed) = (self.durability, self.lose_unflushed);
        let plan = ClusterPlan { durability, loses_unflushed, ..plan };
        let ranges = plan.even_ranges();
        let with_table = |plan: ClusterPlan, table: &RequestedTable| match table.by_range {
            true => plan.with_table(&table.name, ranges.clone()),
            false => plan.with_table(&table.name, Partitioning::Hash { prefix_bytes: 0 }),
        };
        Ok(self.tables.iter().fold(plan, with_table))
    }

    /// Whether a cluster runs in this folder.
    async fn runs_already(&self, folder: &ClusterFolder) -> bool {
        match folder.read() {
            Ok(other) => ask::topology(&other.addresses(), &other.access).await.is_ok(),
            Err(_) => false,
        }
    }

    /// Has the cluster of the folder go on, if its data is on disk; makes one otherwise. No process runs there.
    fn make_or_resume(
        &self,
        folder: &ClusterFolder,
        plan: &ClusterPlan,
    ) -> io::Result<(LocalCluster, Vec<TcpListener>)> {
        let Some(stopped) = folder.stopped()? else { return self.make(folder, plan) };
        if !self.asks_for(folder, plan, &stopped)? {
            return Err(io::Error::other(
                "it has the data of a cluster of another shape, which goes on when the options are those of then, or none; or \
                 choose another --folder, or remove this one",
            ));
        }
        Ok((LocalCluster { process: std::process::id(), ..stopped }, Vec::new()))
    }

    /// Whether this command line has the options of the cluster in this folder, or none.
    fn asks_for(
        &self,
        folder: &ClusterFolder,
        plan: &ClusterPlan,
        stopped: &LocalCluster,
    ) -> io::Result<bool> {
        let first = &stopped.nodes[0];
        let has_port =
            matches!(self.port, 0 | PORT) || first.address == format!("127.0.0.1:{}", self.port);
        let has_http = !self.http || first.http.is_some();
        if self.namespaces != stopped.namespaces || self.in_process || !has_port || !has_http {
            return Ok(false);
        }
        let bare = BareCommand::parse_from(["local"]).command;
        let bare_plan = bare.plan().map_err(|_| io::Error::other("the defaults are no plan"))?;
        let files = |command: &LocalCommand, plan: &ClusterPlan, addresses: &[String]| {
            let topology = plan.topology(addresses).map_err(io::Error::other)?;
            let node = plan.node_file(&first.name, first.http.as_deref(), command.security());
            io::Result::Ok([topology.to_toml(), node])
        };
        let any: Vec<String> =
            (0..plan.nodes().max(bare_plan.nodes())).map(|node| format!("node{node}:1")).collect();
        if files(self, plan, &any)? == files(&bare, &bare_plan, &any)? {
            return Ok(true);
        }
        let there = [folder.topology(), folder.node(&first.name).join("node.toml")];
        let [topology, node] = there.map(fs::read_to_string);
        let addresses = stopped.addresses();
        Ok(plan.nodes() as usize == addresses.len()
            && files(self, plan, &addresses)? == [topology?, node?])
    }

    fn security(&self) -> Security {
        Security { tls: self.tls, client_secret: self.secret }
    }

    /// Writes down what it is to be.
    fn make(
        &self,
        folder: &ClusterFolder,
        plan: &ClusterPlan,
    ) -> io::Result<(LocalCluster, Vec<TcpListener>)> {
        let nodes = plan.nodes() as usize;
        // Addresses in namespaces are their nodes' alone.
        let (listeners, addresses) = match self.namespaces {
            true => (Vec::new(), (0..nodes).map(|node| listens(node).0).collect()),
            false => self.listen(plan, self.port)?,
        };
        // They hold their addresses until all are chosen.
        let (_held, https) = match (self.http, self.namespaces) {
            (true, false) => self.listen(plan, self.http_port(nodes)?)?,
            (true, true) => (Vec::new(), (0..nodes).map(|node| listens(node).1).collect()),
            (false, _) => Default::default(),
        };
        let security = self.security();
        let nodes = write_files(folder, plan, &addresses, &https, security)?;
        let (process, namespaces) = (std::process::id(), self.namespaces);
        let access = folder.access(security).map_err(io::Error::other)?;
        Ok((LocalCluster { process, nodes, namespaces, security, access }, listeners))
    }

    fn listen(
        &self,
        plan: &ClusterPlan,
        first: u16,
    ) -> io::Result<(Vec<TcpListener>, Vec<String>)> {
        plan.listen(first).map_err(|error| {
            let others = "choose others with --port, or --port 0 for any that are free";
            io::Error::other(format!("{error}; {others}"))
        })
    }

    /// The first port for health and metrics: those behind the ports of so many nodes.
    fn http_port(&self, nodes: usize) -> io::Result<u16> {
        match self.port {
            0 => Ok(0),
            port => {
                let beyond = usize::from(port) + nodes;
                u16::try_from(beyond)
                    .map_err(|_| io::Error::other("--port is too great for --http"))
            }
        }
    }

    fn start(
        &self,
        folder: &ClusterFolder,
        cluster: &mut LocalCluster,
        listeners: Vec<TcpListener>,
        processes: &NodeProcesses,
    ) -> Result<Running, CommandError> {
        if self.in_process {
            let configs =
                cluster.nodes.iter().map(|node| folder.node(&node.name).join("node.toml"));
            let configs = configs.map(|path| NodeConfig::read(&path));
            let servers = start_all(configs, listeners).map_err(CommandError::Database)?;
            return Ok(Running::Here { _servers: servers });
        }
        drop(listeners);
        let made = self.namespaces.then(|| Namespaces::make(cluster.nodes.len(), self.loss));
        let namespaces = made.transpose().map_err(CommandError::Usage)?;
        for missing in namespaces.iter().flat_map(Namespaces::missing) {
            print(&format!("note: {missing}\n"))?;
        }
        for (at, node) in cluster.nodes.iter_mut().enumerate() {
            let started = processes.start(folder, namespaces.as_ref(), at, node);
            node.process = started.map_err(|error| CommandError::Database(error.to_string()))?;
        }
        Ok(Running::Processes(namespaces))
    }

    /// Looks after the nodes until the command is interrupted.
    async fn watch(
        &self,
        folder: &ClusterFolder,
        mut cluster: LocalCluster,
        running: Running,
        processes: &NodeProcesses,
        began: Instant,
        interrupts: &mut Interrupts,
    ) -> Result<CommandOutcome, CommandError> {
        let written = folder.write(&cluster);
        written.map_err(|error| CommandError::file("write to", &self.folder, error))?;
        let addresses = cluster.addresses();
        let ready = interrupts.before(wait_ready(&addresses, &cluster.access)).await;
        let Some(ready) = ready else {
            return Err(CommandError::Database(INTERRUPTED.to_owned()));
        };
        let report = ready.map_err(|error| {
            let logs = folder.0.display();
            CommandError::Database(format!("it did not come up: {error}; see {logs}/*/node.log"))
        })?;
        print(&self.welcome(folder, &cluster, &report, began.elapsed()))?;
        while interrupts.before(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            if let Running::Processes(namespaces) = &running {
                self.look_after(folder, &mut cluster, processes, namespaces.as_ref())?;
            }
        }
        Ok(CommandOutcome::Holds)
    }

    /// Starts nodes again that have died.
    fn look_after(
        &self,
        folder: &ClusterFolder,
        cluster: &mut LocalCluster,
        processes: &NodeProcesses,
        namespaces: Option<&Namespaces>,
    ) -> Result<(), CommandError> {
        let restart_after = (!self.no_restart).then_some(self.restart_after);
        for change in processes.look(restart_after) {
            let at = match change {
                ProcessChange::Ended(name, status) => {
                    print(&format!("{name} has ended: {status}\n"))?;
                    continue;
                }
                ProcessChange::Due(at) => at,
            };
            let node = &mut cluster.nodes[at];
            let name = node.name.clone();
            match processes.start(folder, namespaces, at, node) {
                Ok(process) => node.process = process,
                Err(error) => {
                    processes.postpone(at);
                    print(&format!("{name} does not start again, and is tried later: {error}\n"))?;
                    continue;
                }
            }
            print(&format!("{name} is started again\n"))?;
            // The others run on, also on a disk that is full.
            if let Err(error) = folder.write(cluster) {
                print(&format!("other commands do not find {name}: {error}\n"))?;
            }
        }
        Ok(())
    }

    fn welcome(
        &self,
        folder: &ClusterFolder,
        cluster: &LocalCluster,
        report: &StatusReport,
        took: Duration,
    ) -> String {
        let leaders = report.leaders();
        let rows = cluster.nodes.iter().zip(report.topology.members()).map(|(node, known)| {
            let (name, address) = (node.name.clone(), node.address.clone());
            let leads = led_by(&leaders, known.id);
            let http = node.http.clone().unwrap_or_else(|| "–".to_owned());
            [name, report.place(known), address, http, leads, node.process.to_string()]
        });
        let heads = ["node", "datacenter", "address", "http", "leads", "process"];
        let table = terminal::table(heads, rows);
        let distances = Regions::of(&report.topology).to_string();
        let distances = match distances.is_empty() {
            true => distances,
            false => format!("one way: {distances}\n\n"),
        };
        let at = match self.folder.to_str() {
            Some("shoal-local") | None => String::new(),
            Some(folder) => format!(" --local {}", terminal::argument(folder)),
        };
        let http = cluster.nodes[0].http.as_ref();
        let curl = http.map(|http| format!("  curl {http}/metrics\n")).unwrap_or_default();
        let connect = connect(folder, cluster);
        format!(
            "{table}\n\n{distances}ready after {:.2} s. In another terminal, in this folder:\n\n  shoal status{at}\n  \
             shoal put kv alice 'i64(100)'{at}\n  shoal get kv alice{at}\n  shoal chaos kill-leader 0{at}\n{curl}\n\
             From anywhere on this machine:\n\n  shoal status {connect}\n  shoal get kv alice {connect}\n  \
             shoal bench ycsb-a --keys 10000 {connect}\n\nCtrl-C stops all of it.\n",
            took.as_secs_f64(),
        )
    }
}

/// Kills the nodes, and ends this process, which does not end otherwise.
#[expect(
    clippy::disallowed_methods,
    reason = "another thread hangs, and would never return from main"
)]
fn end_at_once(processes: &NodeProcesses, folder: &ClusterFolder) {
    processes.kill();
    let _ = folder.clear();
    eprintln!("error: not all has ended in time; the processes of nodes are killed");
    std::process::exit(1);
}

/// The options with which a command reaches the cluster from anywhere.
fn connect(folder: &ClusterFolder, cluster: &LocalCluster) -> String {
    let mut options = format!("--connect {}", cluster.nodes[0].address);
    let files = [
        (cluster.security.client_secret, "--client-secret", folder.client_secret()),
        (cluster.security.tls, "--authorities", folder.authorities()),
    ];
    for (_, option, path) in files.into_iter().filter(|(has, ..)| *has) {
        let path = std::path::absolute(&path).unwrap_or(path);
        options += &format!(" {option} {}", terminal::argument(&path.to_string_lossy()));
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_asked_for_by_name_and_division() {
        let table = |name: &str, by_range| RequestedTable { name: name.to_owned(), by_range };
        assert_eq!(requested_table("a:hash"), Ok(table("a", false)));
        assert_eq!(requested_table("a:b:range"), Ok(table("a:b", true)));
        for wrong in ["a", "a:", ":hash", "a:ranges", "hash"] {
            let error = requested_table(wrong).expect_err(wrong);
            assert_eq!(error, "NAME:hash or NAME:range is expected");
        }
    }
}
