//! A cluster that `shoal local` runs in a folder of its own.
//!
//! Nothing here waits without a deadline; all of them are far beyond what a busy machine takes.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// After so long something is wrong, not slow.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Local {
    folder: TempDir,
    child: Child,
    /// What it prints, line by line.
    lines: Receiver<String>,
}

impl Local {
    /// Starts a cluster of this shape, and waits until it is ready.
    pub fn start(shape: &[&str]) -> Local {
        let local = Local::begin(shape);
        local.printed_until("ready after");
        local
    }

    /// Starts a cluster of this shape.
    pub fn begin(shape: &[&str]) -> Local {
        let folder = tempfile::tempdir().expect("a folder");
        let (child, lines) = spawn(folder.path(), shape);
        Local { folder, child, lines }
    }

    /// Starts the cluster again that has ended, with these options, and waits until it is ready.
    pub fn start_again(&mut self, shape: &[&str]) {
        (self.child, self.lines) = spawn(self.folder.path(), shape);
        self.printed_until("ready after");
    }

    /// What it prints from now on, up to a line that begins like this.
    pub fn printed_until(&self, last: &str) -> Vec<String> {
        printed_until(&self.lines, last)
    }

    /// Runs a command on this cluster: its exit code, what it prints, and what it complains of.
    pub fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.run_for(arguments, PATIENCE)
    }

    /// The same, with another deadline.
    pub fn run_for(&self, arguments: &[&str], patience: Duration) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
        run(command.args(arguments).arg("--local").arg(self.folder.path()), patience)
    }

    /// Runs a command on this cluster that reads this.
    pub fn run_on(&self, arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
        let file = self.folder.path().join("input");
        std::fs::write(&file, input).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
        command.stdin(std::fs::File::open(file).expect("a file"));
        run(command.args(arguments).arg("--local").arg(self.folder.path()), PATIENCE)
    }

    /// Starts a command on this cluster that is written to while it runs.
    pub fn converse(&self, arguments: &[&str]) -> Conversation {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shoal"))
            .args(arguments)
            .arg("--local")
            .arg(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let printed = lines(child.stdout.take().expect("piped"));
        let errors = lines(child.stderr.take().expect("piped"));
        Conversation { child, printed, errors }
    }

    /// Runs a line of the shell in which `shoal` is the command.
    pub fn run_line(&self, line: &str) -> (Option<i32>, String, String) {
        run_line_in(self.folder.path(), line)
    }

    /// Runs a command that succeeds, and returns what it prints.
    pub fn run_well(&self, arguments: &[&str]) -> String {
        let (code, said, error) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}:\n{said}\n{error}");
        said
    }

    /// How its nodes are, as far as they answer.
    pub fn status(&self) -> Vec<serde_json::Value> {
        let (_, json, error) = self.run(&["status", "--json"]);
        serde_json::from_str(&json).unwrap_or_else(|wrong| panic!("{wrong}: {json}\n{error}"))
    }

    /// Is every shard led, and does every replica vote?
    pub fn is_whole(&self) -> bool {
        let (code, json, _) = self.run(&["status", "--json"]);
        let nodes: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap_or_default();
        let revision = |node: &serde_json::Value| node["revision"].as_u64();
        let same = nodes.windows(2).all(|pair| revision(&pair[0]) == revision(&pair[1]));
        code == Some(0) && same && nodes.iter().all(|node| node["empty"] == 0)
    }

    /// The processes of its nodes.
    pub fn processes(&self) -> impl Iterator<Item = i32> + use<> {
        self.nodes().into_iter().map(|node| {
            let process = node["process"].as_i64().expect("a number");
            i32::try_from(process).expect("a process")
        })
    }

    /// The addresses of its nodes.
    pub fn addresses(&self) -> impl Iterator<Item = String> + use<> {
        let address = |node: serde_json::Value| node["address"].as_str().expect("one").to_owned();
        self.nodes().into_iter().map(address)
    }

    /// Where its first node answers over HTTP.
    pub fn http(&self) -> String {
        self.nodes()[0]["http"].as_str().expect("an address").to_owned()
    }

    /// The nodes, as the cluster's folder describes them.
    fn nodes(&self) -> Vec<serde_json::Value> {
        let json = std::fs::read_to_string(self.file("cluster.json")).expect("it runs");
        let cluster: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        cluster["nodes"].as_array().expect("nodes").clone()
    }

    /// A file in its folder.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a path").to_owned()
    }

    /// Whether its folder says which nodes run.
    pub fn is_known(&self) -> bool {
        self.folder.path().join("cluster.json").exists()
    }

    /// Kills the process of its node at this place.
    pub fn kill(&self, at: usize) {
        self.signal_node(at, Signal::KILL);
    }

    /// Signals the process of its node at this place.
    pub fn signal_node(&self, at: usize, signal: Signal) {
        let process = self.processes().nth(at).and_then(Pid::from_raw).expect("a process");
        kill_process(process, signal).expect("it runs");
    }

    /// Ends it as a supervisor does.
    pub fn end(&mut self) {
        assert_eq!(self.end_by(Signal::TERM), Some(0));
    }

    /// Signals it, and returns its exit code.
    pub fn end_by(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        end_of(&mut self.child, PATIENCE, "shoal local")
    }
}

/// Starts a cluster in a folder: its process, and the lines that it prints.
fn spawn(folder: &Path, shape: &[&str]) -> (Child, Receiver<String>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shoal"))
        .args(["local", "--port", "0", "--folder"])
        .arg(folder)
        .args(shape)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = lines(child.stdout.take().expect("piped"));
    (child, lines)
}

/// Runs a command to its end: its exit code, what it prints, and what it complains of.
fn run(command: &mut Command, patience: Duration) -> (Option<i32>, String, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let said = collect(child.stdout.take().expect("piped"));
    let error = collect(child.stderr.take().expect("piped"));
    let code = end_of(&mut child, patience, &format!("{command:?}"));
    let text = |text: Receiver<String>| text.recv().expect("its pipe is closed");
    (code, text(said), text(error))
}

impl Drop for Local {
    fn drop(&mut self) {
        // Its nodes end when it does.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a process has ended; it is killed if it does not.
fn end_of(child: &mut Child, patience: Duration, what: &str) -> Option<i32> {
    let began = now();
    loop {
        if let Some(status) = child.try_wait().expect("our child") {
            return status.code();
        }
        if began.elapsed() > patience {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{what} does not end within {patience:?}");
        }
        pause();
    }
}

/// Lines of a shell in which `shoal` is the command, to be run in this folder.
fn shell(folder: &Path, lines: &str) -> Command {
    let mut command = Command::new("sh");
    let named = format!("shoal() {{ \"$SHOAL\" \"$@\"; }}\n{lines}");
    command.args(["-c", &named]).env("SHOAL", env!("CARGO_BIN_EXE_shoal")).current_dir(folder);
    command
}

/// Runs lines of a shell in this folder.
pub fn run_line_in(folder: &Path, lines: &str) -> (Option<i32>, String, String) {
    run(&mut shell(folder, lines), PATIENCE)
}

/// A command that runs in the background, in a folder.
pub struct Background {
    child: Child,
    lines: Receiver<String>,
}

impl Background {
    /// Starts one command of a shell, in the place of the shell.
    pub fn start(folder: &Path, command: &str) -> Background {
        let (program, arguments) = command.trim().split_once(' ').expect("arguments");
        let program = if program == "shoal" { "\"$SHOAL\"" } else { program };
        let mut child = shell(folder, &format!("exec {program} {arguments}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = lines(child.stdout.take().expect("piped"));
        Background { child, lines }
    }

    /// What it prints from now on, up to a line that begins like this.
    pub fn printed_until(&self, last: &str) -> Vec<String> {
        printed_until(&self.lines, last)
    }

    /// Interrupts it, as Ctrl-C does, and waits until it has ended.
    pub fn end(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        assert_eq!(end_of(&mut self.child, PATIENCE, "the command"), Some(0));
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What comes of a pipe, up to a line that begins like this.
fn printed_until(lines: &Receiver<String>, last: &str) -> Vec<String> {
    let began = now();
    let mut printed = Vec::new();
    loop {
        let left = PATIENCE.saturating_sub(began.elapsed());
        printed.push(lines.recv_timeout(left).expect("it prints this in time"));
        if printed.last().is_some_and(|line| line.starts_with(last)) {
            return printed;
        }
    }
}

/// A command that is written to while it runs.
pub struct Conversation {
    child: Child,
    printed: Receiver<String>,
    errors: Receiver<String>,
}

impl Conversation {
    fn write(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("it has not ended");
        writeln!(input, "{line}").expect("written");
    }

    /// Writes a line, and returns the next line that is printed.
    pub fn told(&mut self, line: &str) -> String {
        self.write(line);
        self.printed.recv_timeout(PATIENCE).expect("it prints a line in time")
    }

    /// Writes a line, and returns the next line of errors.
    pub fn refused(&mut self, line: &str) -> String {
        self.write(line);
        self.errors.recv_timeout(PATIENCE).expect("it complains in time")
    }

    /// Ends its input, and returns its exit code and the rest of its errors.
    pub fn end(mut self) -> (Option<i32>, Vec<String>) {
        drop(self.child.stdin.take());
        let code = end_of(&mut self.child, PATIENCE, "the command");
        (code, self.errors.iter().collect())
    }
}

/// The lines of a pipe, as they come.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (said, lines) = channel();
    thread::spawn(move || {
        // Goes on when the receiver is gone: the process that prints must not find its pipe closed.
        let printed = BufReader::new(pipe).lines();
        printed.map_while(Result::ok).for_each(|line| drop(said.send(line)));
    });
    lines
}

/// All that comes of a pipe, when it is closed.
fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (all, collected) = channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = pipe.read_to_string(&mut text);
        drop(all.send(read.map_or_else(|error| error.to_string(), |_| text)));
    });
    collected
}

/// Waits until it holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let began = now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not so: {what}");
        pause();
    }
}

/// Whether `shoal local --namespaces` can do here what it does.
///
/// # Errors
/// What the system says where it cannot.
pub fn try_namespaces() -> Result<(), String> {
    let pair = "ip link add a type veth peer name b";
    let tried = Command::new("unshare").args(["--net", "--mount", "sh", "-c", pair]).output();
    let output = tried.map_err(|error| format!("unshare: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Is there such a process?
pub fn is_alive(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process).is_ok())
}

/// Between two looks.
#[expect(clippy::disallowed_methods, reason = "processes are looked at, they do not tell")]
fn pause() {
    thread::sleep(Duration::from_millis(10));
}

#[expect(clippy::disallowed_methods, reason = "a test gives up after a while")]
fn now() -> Instant {
    Instant::now()
}
