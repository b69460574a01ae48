//! Nodes in network namespaces of their own, so that the kernel loses their packets, and not the nodes themselves.
//!
//! ```text
//!   namespaces of `shoal local`, and of the commands that join them
//!   ┌──────────────────────────────────────────────┐
//!   │ clients      bridge shoal0, 10.91.250.250    │
//!   │                ┌───────┼───────┐             │
//!   └───────────────n0──────n1──────n2─────────────┘   a virtual interface for each node,
//!                 eth0    eth0    eth0                 whose other end is in
//!             10.91.0.1  10.91.0.2  10.91.0.3          the node's namespace
//! ```
//! `shoal local --namespaces` starts itself again in a network and a mount namespace of its own, and makes the
//! nodes' there: the machine's network stays as it is, and nothing is left when the processes have ended. Where the
//! kernel has time namespaces, the clocks that nodes count their leases by differ by days. Where it can emulate
//! networks (`netem`), packets are lost at random.
//!
//! It takes root, and the programs `ip` and `tc` (iproute2), `unshare` and `nsenter` (util-linux).

use super::LocalCluster;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, io};

/// Set in processes that are inside already.
const INSIDE: &str = "SHOAL_NAMESPACES";

/// Where clients are.
const BRIDGE: &str = "10.91.250.250/16";
/// Nodes have addresses in networks of so many.
const NODES_OF_NETWORK: usize = 200;
const PORT: u16 = 7000;
const HTTP_PORT: u16 = 7001;

/// A node's clocks are ahead of those of the node before by this.
const CLOCK_STEP_S: usize = 100_000;

/// Packets for a node that are not to arrive leave for this address, which no interface has.
const NO_INTERFACE: &str = "02:00:00:00:00:fe";

/// The namespaces of a cluster's nodes.
#[derive(Debug, Clone)]
pub struct Namespaces {
    has_clocks: bool,
    has_loss: bool,
}

/// Starts this command again in namespaces of its own, unless it is there. Returns only there, or with an error.
///
/// # Errors
/// A sentence that says why it is not possible here.
pub fn isolate() -> Result<(), String> {
    if env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let why = |error: String| {
        format!(
            "network namespaces are not possible here: {error}; they take root, iproute2 and util-linux"
        )
    };
    run("ip", ["-Version"]).map_err(why)?;
    run("unshare", ["--net", "--mount", "true"]).map_err(why)?;
    Err(again(Command::new("unshare").args(["--net", "--mount", "--"])))
}

/// Starts this command again in the namespaces of a cluster, if it has any, unless it is there. Returns only there,
/// or with an error.
///
/// # Errors
/// A sentence that says why it is not possible.
pub fn join(cluster: &LocalCluster) -> Result<(), String> {
    if !cluster.namespaces || env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let here = env::current_dir().map_err(|error| error.to_string())?;
    let mut working_folder = OsString::from("--wd=");
    working_folder.push(here);
    let target = cluster.process.to_string();
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["--target", &target, "--net", "--mount"]).arg(working_folder).arg("--");
    Err(again(&mut nsenter))
}

/// Replaces this process by `wrapper` with this command line behind it. Returns why it cannot.
fn again(wrapper: &mut Command) -> String {
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return error.to_string(),
    };
    let error = wrapper.arg(program).args(env::args_os().skip(1)).env(INSIDE, "1").exec();
    format!("cannot run {}: {error}", wrapper.get_program().display())
}

impl Namespaces {
    /// Makes a namespace for each of so many nodes, in which `loss_percent` of the packets it sends are lost.
    ///
    /// REQUIRES: [`isolate`]d.
    ///
    /// # Errors
    /// A sentence that says what the system refused.
    pub fn make(nodes: usize, loss_percent: f64) -> Result<Namespaces, String> {
        let folder = "/run/netns";
        std::fs::create_dir_all(folder).map_err(|error| format!("{folder}: {error}"))?;
        run("mount", ["-t", "tmpfs", "shoal", folder])?;
        let mut all = format!(
            "link set lo up\nlink add shoal0 type bridge\naddr add {BRIDGE} dev shoal0\nlink set shoal0 up\n"
        );
        for node in 0..nodes {
            let name = name(node);
            all += &format!(
                "netns add {name}\nlink add n{node} type veth peer name eth0 netns {name}\n\
                 link set n{node} master shoal0 up\n"
            );
        }
        batch(None, &all)?;
        let mut has_loss = loss_percent > 0.0;
        for node in 0..nodes {
            let address = address(node);
            batch(
                Some(node),
                &format!("addr add {address}/16 dev eth0\nlink set eth0 up\nlink set lo up\n"),
            )?;
            let (name, loss) = (name(node), format!("{loss_percent}%"));
            let emulated =
                ["-n", &name, "qdisc", "add", "dev", "eth0", "root", "netem", "loss", &loss];
            has_loss = has_loss && run("tc", emulated).is_ok();
        }
        let has_clocks = run("unshare", ["--time", "--boottime", "1", "true"]).is_ok();
        Ok(Namespaces { has_clocks, has_loss })
    }

    /// What of it the kernel could not do, in sentences.
    pub fn missing(&self) -> Vec<&'static str> {
        let clocks =
            "this kernel has no time namespaces: the clocks of all nodes are the machine's";
        let loss = "packets are not lost at random: this kernel cannot emulate networks (netem), or none are to be";
        let missing = [(self.has_clocks, clocks), (self.has_loss, loss)];
        missing.into_iter().filter(|(has, _)| !has).map(|(_, missing)| missing).collect()
    }

    /// What starts `program` in the namespace of a node, in the same process.
    pub fn command(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name(node)]);
        if self.has_clocks {
            let ahead = ((node + 1) * CLOCK_STEP_S).to_string();
            command.args(["unshare", "--time", "--boottime", &ahead, "--monotonic", &ahead, "--"]);
        }
        command.arg(program);
        command
    }
}

/// Where a node listens, and where it answers for its health.
pub fn listens(node: usize) -> (String, String) {
    let address = address(node);
    (format!("{address}:{PORT}"), format!("{address}:{HTTP_PORT}"))
}

/// Lets what a node sends to another arrive no more, or again.
///
/// # Errors
/// A sentence that says what the system refused.
pub fn block(from: usize, to: usize, is_blocked: bool) -> Result<(), String> {
    let (name, to) = (name(from), address(to));
    let neighbour = ["-n", &name, "neigh"];
    let change: &[&str] = match is_blocked {
        true => &["replace", &to, "lladdr", NO_INTERFACE, "dev", "eth0", "nud", "permanent"],
        false => &["del", &to, "dev", "eth0"],
    };
    let changed = run("ip", neighbour.iter().chain(change));
    // What was not blocked may not be known at all.
    if is_blocked { changed } else { Ok(()) }
}

fn name(node: usize) -> String {
    format!("node{node}")
}

fn address(node: usize) -> String {
    format!("10.91.{}.{}", node / NODES_OF_NETWORK, node % NODES_OF_NETWORK + 1)
}

/// Runs `ip` on many lines, in a node's namespace or in this one.
fn batch(node: Option<usize>, lines: &str) -> Result<(), String> {
    let mut ip = Command::new("ip");
    if let Some(node) = node {
        ip.args(["-n", &name(node)]);
    }
    ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = || -> io::Result<_> {
        let mut child = ip.spawn()?;
        let mut input = child.stdin.take().expect("piped");
        input.write_all(lines.as_bytes())?;
        drop(input);
        child.wait_with_output()
    };
    let output = run().map_err(|error| format!("ip: {error}"))?;
    outcome("ip", &output)
}

fn run(
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    outcome(program, &output.map_err(|error| format!("{program}: {error}"))?)
}

fn outcome(program: &str, output: &std::process::Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", said.lines().next().unwrap_or("it failed without a word")))
}
