//! What the network costs: two nodes of one worker each, on loopback, in one process.
//!
//! `cargo bench -p shoal-net --bench network [-- SECONDS]`
//!
//! *One way*: one end sends as fast as a window of messages allows, the other says now and then how far it
//! is. *Answered*: each message is answered by one, with a window of them on their way. *Idle*: one message
//! at a time, there and back; and the same between datacenters 50 ms apart.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use bytes::{BufMut, Bytes};
use shoal_net::{
    Core, CoreInput, CounterTotals, Network, NetworkConfig, Outbox, PeerConfig, Secret, listen,
};
use shoal_types::{DatacenterId, Distance, DistanceMatrix, NodeId, Time};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const MESSAGE_BYTES: usize = 64;

/// The receiver of a one-way stream says after so many messages how far it is.
const CREDIT: u64 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    OneWay,
    Answered,
}

/// What is asked of the end that sends.
struct Run {
    mode: Mode,
    window: u64,
    messages: u64,
    done: mpsc::Sender<Vec<Duration>>,
}

/// Sends when asked to; otherwise answers.
struct End {
    peer: NodeId,
    run: Option<Run>,
    up: mpsc::Sender<NodeId>,
    sent: u64,
    returned: u64,
    got: u64,
    sent_at: Time,
    trips: Vec<Duration>,
}

impl End {
    /// Fills the window.
    fn send(&mut self, now: Time, out: &mut Outbox) {
        let Some(run) = &self.run else { return };
        while self.sent < run.messages && self.sent - self.returned < run.window {
            let kind = if run.mode == Mode::OneWay { 1 } else { 2 };
            let frame = out.encode(|to| to.put_bytes(kind, MESSAGE_BYTES));
            out.to_peer(self.peer, frame);
            self.sent += 1;
            self.sent_at = now;
        }
    }

    fn receive(&mut self, now: Time, frame: &Bytes, out: &mut Outbox) {
        match frame[0] {
            // To be counted, and answered once in a while.
            1 => {
                self.got += 1;
                if self.got.is_multiple_of(CREDIT) {
                    out.to_peer(self.peer, Bytes::from_static(&[3]));
                }
            }
            2 => {
                let answer = out.encode(|to| to.put_bytes(4, MESSAGE_BYTES));
                out.to_peer(self.peer, answer);
            }
            kind => {
                self.returned += if kind == 3 { CREDIT } else { 1 };
                let run = self.run.as_ref().expect("answers are for who asked");
                if run.window == 1 {
                    self.trips.push(now - self.sent_at);
                }
                if self.returned == run.messages {
                    run.done.send(std::mem::take(&mut self.trips)).expect("the benchmark waits");
                    self.run = None;
                }
            }
        }
    }
}

impl Core for End {
    type Command = Run;

    fn step(&mut self, now: Time, input: CoreInput<Run>, out: &mut Outbox) {
        match input {
            CoreInput::Command(run) => {
                (self.run, self.sent, self.returned) = (Some(run), 0, 0);
                self.send(now, out);
            }
            CoreInput::FromPeer { frame, .. } => {
                self.receive(now, &frame, out);
                self.send(now, out);
            }
            CoreInput::PeerUp { node, .. } => self.up.send(node).expect("the benchmark waits"),
            CoreInput::Started
            | CoreInput::FromClient { .. }
            | CoreInput::FromOperator { .. }
            | CoreInput::PeerDown { .. }
            | CoreInput::ClientGone { .. }
            | CoreInput::Timer
            | CoreInput::Nudged => {}
        }
    }
}

fn start(round_trip: Duration) -> (Network<Run>, Network<Run>) {
    let listeners = [1, 2].map(|_| listen("127.0.0.1:0").expect("a port"));
    let addresses = listeners.each_ref().map(|one| one.local_addr().expect("an address"));
    let (up, ups) = mpsc::channel();
    let mut nodes = listeners.into_iter().enumerate().map(|(own, listener)| {
        let other = 1 - own;
        let peer = PeerConfig {
            node: NodeId(other as u32),
            address: addresses[other].to_string(),
            datacenter: DatacenterId(other as u32),
        };
        let config = NetworkConfig {
            peers: vec![peer],
            datacenter: DatacenterId(own as u32),
            distances: DistanceMatrix::uniform(Distance::of_round_trip(round_trip)),
            ..NetworkConfig::new("bench", NodeId(own as u32), Secret::new([7; 32]))
        };
        let up = up.clone();
        let end = move |_, _: &_| End {
            peer: NodeId(other as u32),
            run: None,
            up: up.clone(),
            sent: 0,
            returned: 0,
            got: 0,
            sent_at: Time::ZERO,
            trips: Vec::new(),
        };
        Network::start(config, listener, end).expect("a node")
    });
    let nodes = (nodes.next().expect("two"), nodes.next().expect("two"));
    for _ in 0..2 {
        ups.recv().expect("connected");
    }
    nodes
}

/// Runs until that many messages have come and their answers have, and says how long it took.
fn measure(
    node: &Network<Run>,
    mode: Mode,
    window: u64,
    messages: u64,
) -> (Duration, Vec<Duration>) {
    let (done, wait) = mpsc::channel();
    let began = Instant::now();
    let run = Run { mode, window, messages, done };
    assert!(node.handle().command(shoal_types::WorkerId(0), run).is_ok(), "a worker that listens");
    let trips = wait.recv().expect("an end");
    (began.elapsed(), trips)
}

fn calls(nodes: &(Network<Run>, Network<Run>)) -> CounterTotals {
    let mut sum = nodes.0.handle().counters();
    sum += &nodes.1.handle().counters();
    sum
}

fn under_load(nodes: &(Network<Run>, Network<Run>), mode: Mode, window: u64, span: Duration) {
    let (took, _) = measure(&nodes.0, mode, window, 256 * CREDIT);
    let fitting = 256.0 * CREDIT as f64 * span.as_secs_f64() / took.as_secs_f64();
    let messages = (fitting as u64).next_multiple_of(CREDIT).max(CREDIT);
    let before = calls(nodes);
    let (took, _) = measure(&nodes.0, mode, window, messages);
    let after = calls(nodes);
    let passed = after.frames_in - before.frames_in;
    let calls = (after.reads + after.writes) - (before.reads + before.writes);
    let turns = after.turns - before.turns;
    println!(
        "{:<10} window {window:>6}: {:>6.2} M messages/s, {:.4} system calls a message, {:.0} messages a turn",
        format!("{mode:?}"),
        passed as f64 / took.as_secs_f64() / 1e6,
        calls as f64 / passed as f64,
        passed as f64 / turns as f64,
    );
}

fn main() {
    let seconds =
        std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(2.0);
    let span = Duration::from_secs_f64(seconds);
    let nodes = start(Duration::ZERO);
    println!("two workers on loopback, messages of {MESSAGE_BYTES} bytes");
    for _ in 0..3 {
        under_load(&nodes, Mode::OneWay, 64 * CREDIT, span);
    }
    for window in [64, 1024, 16_384] {
        under_load(&nodes, Mode::Answered, window, span);
    }
    alone("Idle", &nodes, 20_000);
    alone("50 ms", &start(Duration::from_millis(50)), 40);
}

/// One message at a time.
fn alone(name: &str, nodes: &(Network<Run>, Network<Run>), messages: u64) {
    let before = calls(nodes);
    let (_, mut trips) = measure(&nodes.0, Mode::Answered, 1, messages);
    let after = calls(nodes);
    trips.sort_unstable();
    let at = |share: f64| trips[(trips.len() as f64 * share) as usize].as_nanos() as f64 / 1e3;
    let calls = (after.reads + after.writes) - (before.reads + before.writes);
    println!(
        "{name}: round trip {:.1} µs median, {:.1} µs at 99 %, {:.2} system calls a message",
        at(0.5),
        at(0.99),
        calls as f64 / (after.frames_in - before.frames_in) as f64,
    );
}
