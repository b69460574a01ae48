//! Runs the scenarios of `tests/engine_scripts/`: commands, a line of dashes, and the trace they make.
//!
//! `GOLDEN=refresh cargo test -p shoal-node --test node scripts` writes the traces anew; read the difference before you
//! commit it. A cluster of real workers, one a node; the script is its network and its clock.
//!
//! ```text
//! cluster shards=N [voters=3] [learners=0] [coordinators=0] [attempts=1] [managed] [streams] [replay] [stamps=N] [wait=MS] [trim=N] [part=N]
//! run NAME NODE OPERATION, OPERATION…               begins a transaction at a node; what follows an operation waits for it
//!     get K   put K V   insert K V   delete K   scan PREFIX   add K N   pause   rollback
//! resume NAME                                       a transaction that pauses goes on
//! deliver [FILTER…]   drop [FILTER…]   repeat [FILTER…]      (from= to= kind= shard= count=)
//! hold [FILTER…]      release                       messages that stay on their way until they are released
//! settle                                            delivers all, and what comes of it; no time passes
//! wait MS                                           lets time pass, and delivers all
//! crash NODE          restart NODE [empty]          cut NODE [manager|nodes]     heal
//! show                                              what each replica has
//! ```
//! The key says the shard: `a…` is on s0, led by n0; `b…` on s1, led by n1; and so on. The other voters and the learners of
//! all shards are the nodes after the leaders, then come the coordinators, which have no replicas. Messages name transactions by their node and
//! their number there, from n0.0 on.
//!
//! No time passes but in `wait`, and 0.1 ms when a transaction begins. Every message waits for the script, but for two kinds. What the replicas of a stream say
//! to each other is delivered at once and not shown: `streams` shows it, and leaves it to the script, and `hold kind=stream`
//! keeps entries from becoming durable. With `managed` there is a configuration manager, whose leases are 60 ms and whose
//! messages are not shown; without it the configuration never changes. A gossip that says what the last one said, or
//! is for a node that leads nothing, is delivered and not shown; with `replay` followers are shown, and what they apply. Leaders serve when the script begins.

mod cluster;
mod conversations;
mod engines;
mod mako;
mod messages;
mod observations;
mod tiga;
mod transactions;
mod two_phase_commit;
mod zeus;

use cluster::{Cluster, Filter};
use engines::{Mako, TracedEngine, TwoPhaseCommit, Zeus};
use shoal_golden::Words;
use shoal_types::NodeId;
use std::path::Path;
use std::time::Duration;

fn run_command<E: TracedEngine>(cluster: &mut Cluster<E>, line: &str) {
    let words = Words::of(line);
    let node = |place| NodeId(words.number(place));
    match words.plain[0] {
        "run" => {
            let operations = line.splitn(4, ' ').nth(3).expect("operations");
            cluster.run(words.plain[1], node(2), operations);
        }
        "resume" => cluster.resume(words.plain[1]),
        "deliver" => cluster.deliver(&Filter::of(&words)),
        "drop" => cluster.lose(&Filter::of(&words)),
        "repeat" => cluster.repeat(&Filter::of(&words)),
        "hold" => cluster.hold(Filter::of(&words)),
        "release" => cluster.release(),
        "settle" => cluster.settle(),
        "wait" => cluster.wait(Duration::from_millis(words.number(1))),
        "crash" => cluster.crash(node(1)),
        "restart" => cluster.restart(node(1), words.has("empty")),
        "cut" => cluster.cut(node(1), !words.has("nodes"), !words.has("manager")),
        "heal" => cluster.heal(),
        "show" => cluster.show(),
        other => panic!("no such command: {other}"),
    }
    cluster.pump();
}

/// The trace of the commands.
fn run<E: TracedEngine>(commands: &str) -> String {
    let mut cluster = None;
    shoal_golden::trace_of(commands, |line, trace| {
        if line.starts_with("cluster") {
            cluster = Some(Cluster::<E>::new(&Words::of(line)));
            return;
        }
        let cluster = cluster.as_mut().expect("a script begins with a cluster");
        run_command(cluster, line);
        trace.append(&mut cluster.trace);
    })
}

fn check<E: TracedEngine>(engine: &str, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine_scripts").join(engine);
    shoal_golden::check_scripts(&folder, least, |_, commands| run::<E>(commands));
}

#[test]
fn scripts_of_mako_make_their_traces() {
    check::<Mako>("mako", 20);
}

#[test]
fn scripts_of_two_phase_commit_make_their_traces() {
    check::<TwoPhaseCommit>("two_phase_commit", 10);
}

#[test]
fn scripts_of_zeus_make_their_traces() {
    check::<Zeus>("zeus", 20);
}
