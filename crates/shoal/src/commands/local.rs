//! `shoal local`: a whole cluster on this machine.

use super::shape::{Shape, engine};
use super::{CommandError, CommandOutcome, print};
use crate::clock::now;
use crate::local::{
    ClusterFolder, ClusterPlan, LocalCluster, LocalNode, Namespaces, isolate, listens, secret,
    start_all, wait_ready,
};
use crate::report::{StatusReport, led_by};
use crate::{ask, duration, terminal};
use clap::{Args, value_parser};
use shoal_cluster::topology::Regions;
use shoal_net::Secret;
use shoal_net::client::Access;
use shoal_server::Protocol;
use shoal_server::{NodeConfig, Server};
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often it is looked whether all is well.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Start a whole cluster on this machine, and stop it with Ctrl-C
///
/// Each node is a process of its own, so that it can be killed. A node that dies is started again after a
/// while. It has lost its memory then, as after a crash, and catches up from the others.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal local
  shoal local --shards 3 --replicas 3 --wan 50ms
  shoal local --regions tiga
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
    /// All nodes in this process: quicker to start, and none can be killed
    #[arg(long)]
    in_process: bool,
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

/// The nodes that run.
enum Running {
    /// Each in a process of its own.
    Processes { nodes: Vec<NodeProcess>, namespaces: Option<Namespaces> },
    /// They end when they are dropped.
    Here { _servers: Vec<Server> },
}

/// A node in a process of its own.
struct NodeProcess {
    name: String,
    child: Child,
    died: Option<Instant>,
}

impl LocalCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let began = now();
        if self.namespaces {
            isolate().map_err(CommandError::Usage)?;
        }
        let folder = ClusterFolder(self.folder.clone());
        let plan = self.shape.plan(self.workers, self.engine)?;
        let made = self.make(&folder, &plan);
        let (mut cluster, listeners) =
            made.map_err(|error| CommandError::file("make a cluster in", &self.folder, error))?;
        let runtime = ask::runtime().map_err(|error| CommandError::Usage(error.to_string()))?;
        let interrupts = runtime.block_on(async { Interrupts::new() });
        let mut interrupts = interrupts.map_err(|error| CommandError::Usage(error.to_string()))?;
        let running = self.start(&folder, &mut cluster, listeners)?;
        let watched = self.watch(&folder, cluster, running, began, &mut interrupts);
        let ended = runtime.block_on(watched);
        // The nodes have ended: commands that read it later would find none.
        let _ = folder.clear();
        ended
    }

    /// Writes down what it is to be.
    fn make(
        &self,
        folder: &ClusterFolder,
        plan: &ClusterPlan,
    ) -> io::Result<(LocalCluster, Vec<TcpListener>)> {
        if let Ok(other) = folder.read()
            && ask::runtime()?
                .block_on(ask::topology(&other.addresses(), &Access::open("shoal")))
                .is_ok()
        {
            return Err(io::Error::other("one runs there already"));
        }
        let nodes = (plan.shards * plan.replicas) as usize;
        // Addresses in namespaces are their nodes' alone.
        let (listeners, addresses) = match self.namespaces {
            true => (Vec::new(), (0..nodes).map(|node| listens(node).0).collect()),
            false => plan.listen()?,
        };
        let topology = plan.topology(&addresses).map_err(io::Error::other)?;
        fs::create_dir_all(&folder.0)?;
        fs::write(folder.file("topology.toml"), topology.to_toml())?;
        Secret::new(secret()?).write_hex(&folder.file("secret"))?;
        // They hold their addresses until all are chosen.
        let (_held, https) = match (self.http, self.namespaces) {
            (true, false) => plan.listen()?,
            (true, true) => (Vec::new(), (0..nodes).map(|node| listens(node).1).collect()),
            (false, _) => Default::default(),
        };
        let mut https = https.into_iter();
        let mut nodes = Vec::new();
        for (node, address) in topology.nodes().iter().zip(addresses) {
            let place = folder.node(&node.name);
            // What a former cluster's managers knew is not true of this one.
            let _ = fs::remove_dir_all(&place);
            fs::create_dir_all(&place)?;
            let http = https.next();
            fs::write(place.join("node.toml"), plan.node_file(&node.name, http.as_deref()))?;
            let (name, process) = (node.name.clone(), std::process::id());
            nodes.push(LocalNode { name, address, http, process });
        }
        let (process, namespaces) = (std::process::id(), self.namespaces);
        Ok((LocalCluster { process, nodes, namespaces }, listeners))
    }

    fn start(
        &self,
        folder: &ClusterFolder,
        cluster: &mut LocalCluster,
        listeners: Vec<TcpListener>,
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
        let mut processes = Vec::new();
        for (at, node) in cluster.nodes.iter_mut().enumerate() {
            let wrong = |error: io::Error| CommandError::Database(error.to_string());
            let child = spawn(folder, namespaces.as_ref(), at, &node.name).map_err(wrong)?;
            node.process = child.id();
            processes.push(NodeProcess { name: node.name.clone(), child, died: None });
        }
        Ok(Running::Processes { nodes: processes, namespaces })
    }

    /// Looks after the nodes until the command is interrupted.
    async fn watch(
        &self,
        folder: &ClusterFolder,
        mut cluster: LocalCluster,
        mut running: Running,
        began: Instant,
        interrupts: &mut Interrupts,
    ) -> Result<CommandOutcome, CommandError> {
        let written = folder.write(&cluster);
        written.map_err(|error| CommandError::file("write to", &self.folder, error))?;
        let addresses = cluster.addresses();
        let ready = tokio::select! {
            ready = wait_ready(&addresses) => ready,
            () = interrupts.next() => Err("interrupted".to_owned()),
        };
        let ended = match ready {
            Ok(report) => {
                print(&self.welcome(&cluster, &report, began.elapsed()))?;
                loop {
                    tokio::select! {
                        () = interrupts.next() => break,
                        () = tokio::time::sleep(LOOK_EVERY) => {}
                    }
                    self.look_after(folder, &mut cluster, &mut running)?;
                }
                Ok(CommandOutcome::Holds)
            }
            Err(error) => {
                let logs = folder.0.display();
                Err(CommandError::Database(format!(
                    "it did not come up: {error}; see {logs}/*/log"
                )))
            }
        };
        if let Running::Processes { nodes, .. } = &mut running {
            for process in nodes {
                // It may have ended already.
                let _ = process.child.kill();
                let _ = process.child.wait();
            }
        }
        ended
    }

    /// Starts nodes again that have died.
    fn look_after(
        &self,
        folder: &ClusterFolder,
        cluster: &mut LocalCluster,
        running: &mut Running,
    ) -> Result<(), CommandError> {
        let Running::Processes { nodes, namespaces } = running else { return Ok(()) };
        for (at, process) in nodes.iter_mut().enumerate() {
            let name = &process.name;
            if process.died.is_none()
                && let Ok(Some(status)) = process.child.try_wait()
            {
                process.died = Some(now());
                print(&format!("{name} has ended: {status}\n"))?;
            }
            if self.no_restart || process.died.is_none_or(|at| at.elapsed() < self.restart_after) {
                continue;
            }
            let wrong =
                |error| CommandError::Database(format!("{name} does not start again: {error}"));
            process.child = spawn(folder, namespaces.as_ref(), at, name).map_err(wrong)?;
            process.died = None;
            let node = cluster.nodes.iter_mut().find(|node| node.name == *name);
            node.expect("it is one of them").process = process.child.id();
            folder.write(cluster).map_err(wrong)?;
            print(&format!("{name} is started again\n"))?;
        }
        Ok(())
    }

    fn welcome(&self, cluster: &LocalCluster, report: &StatusReport, took: Duration) -> String {
        let leaders = report.leaders();
        let rows = cluster.nodes.iter().zip(report.topology.nodes()).map(|(node, known)| {
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
            Some(folder) => format!(" --local {folder}"),
        };
        let http = cluster.nodes[0].http.as_ref();
        let curl = http.map(|http| format!("  curl {http}/metrics\n")).unwrap_or_default();
        format!(
            "{table}\n\n{distances}ready after {:.2} s. In another terminal:\n\n  shoal status{at}\n  \
             shoal bench ycsb-a --keys 10000 --connect {}\n  shoal chaos kill-leader 0{at}\n{curl}\n\
             Ctrl-C stops all of it.\n",
            took.as_secs_f64(),
            cluster.nodes[0].address,
        )
    }
}

/// Starts the node at this place among them, which ends with this process.
fn spawn(
    folder: &ClusterFolder,
    namespaces: Option<&Namespaces>,
    at: usize,
    name: &str,
) -> io::Result<Child> {
    let program = std::env::current_exe()?;
    let mut command = match namespaces {
        Some(namespaces) => namespaces.command(at, &program),
        None => Command::new(program),
    };
    let place = folder.node(name);
    let log = File::options().create(true).append(true).open(place.join("log"))?;
    command
        .arg("serve")
        .arg("--with-input")
        .arg("--config")
        .arg(place.join("node.toml"))
        // Held open by this process: the other end notices when it ends.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}

/// Ctrl-C and SIGTERM. It listens from when it is made until it is dropped, so that a signal that comes while the command
/// does something else is not lost.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Begins to listen, on the runtime that it is called on.
    fn new() -> io::Result<Interrupts> {
        Ok(Interrupts {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal, or returns at once for one that has arrived since the last.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};

    #[test]
    fn a_signal_that_comes_between_two_looks_is_not_lost() {
        let runtime = ask::runtime().expect("a runtime");
        runtime.block_on(async {
            let mut interrupts = Interrupts::new().expect("signals");
            for signal in [Signal::INT, Signal::TERM] {
                tokio::select! {
                    biased;
                    () = interrupts.next() => panic!("no signal was sent"),
                    () = std::future::ready(()) => {}
                }
                // Nothing waits for signals at this time, as while nodes are looked after.
                kill_process(getpid(), signal).expect("sent");
                let noticed = tokio::time::timeout(Duration::from_secs(60), interrupts.next());
                noticed.await.expect("noticed");
            }
        });
    }
}
