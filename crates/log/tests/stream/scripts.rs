//! Runs the scenarios of `stream_scripts/`: commands, a line of dashes, and the trace they make.
//!
//! `GOLDEN=refresh cargo test -p shoal-log --test stream scripts` writes the traces
//! anew; read the difference before you commit it.
//!
//! ```text
//! cluster voters=1,2,3 [learners=4] [others=5] [window=N] [window_bytes=N] [window_bytes_max=N] [message=N]
//!         [unpersisted=N] [late]
//! lead NODE EPOCH           propose NODE ENTRY…        persist NODE [CHANGES]
//! deliver [FILTER…]         drop [FILTER…]             repeat [FILTER…]   (from= to= kind= count=)
//! settle                    reverse  (what is on its way)
//! wait MS                   trim NODE LENGTH           snapshot NODE TO
//! crash NODE                restart NODE [empty]       votes NODE yes|no
//! reborn NODE REPLICA       show
//! forge FROM TO KIND [FIELD=VALUE…]
//! ```

use crate::cluster::{Cluster, Delivery, ballot, show};
use bytes::Bytes;
use shoal_golden::Words;
use shoal_log::{
    LogLength, MemoryStorage, StreamEvent, StreamMembers, StreamMessage, StreamOptions,
};
use shoal_types::{Ballot, NodeId};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How these scripts' words are parsed.
trait StreamWords {
    fn node(&self, place: usize) -> NodeId;
    fn length(&self, name: &str) -> LogLength;
    fn list(&self, name: &str) -> impl Iterator<Item = &str>;
    fn nodes(&self, name: &str) -> Vec<NodeId>;
    /// The ballot that is written as `epoch.node`.
    fn ballot(&self, name: &str) -> Ballot;
    fn entries(&self) -> Vec<Bytes>;
}

impl StreamWords for Words<'_> {
    fn node(&self, place: usize) -> NodeId {
        NodeId(self.number(place))
    }

    fn length(&self, name: &str) -> LogLength {
        LogLength(self.named(name).unwrap_or_default())
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        self.text(name).unwrap_or_default().split(',').filter(|item| !item.is_empty())
    }

    fn nodes(&self, name: &str) -> Vec<NodeId> {
        self.list(name).map(|id| NodeId(id.parse().expect("a number"))).collect()
    }

    fn ballot(&self, name: &str) -> Ballot {
        let Some((epoch, node)) = self.text(name).and_then(|word| word.split_once('.')) else {
            return Ballot::default();
        };
        ballot(epoch.parse().expect("a number"), NodeId(node.parse().expect("a number")))
    }

    fn entries(&self) -> Vec<Bytes> {
        self.list("entries").map(|entry| Bytes::from(entry.to_owned())).collect()
    }
}

fn build(words: &Words<'_>) -> Cluster {
    let default = StreamOptions::default();
    let options = StreamOptions {
        window_entries: words.named("window").unwrap_or(default.window_entries),
        window_bytes: words.named("window_bytes").unwrap_or(default.window_bytes),
        window_bytes_max: words.named("window_bytes_max").unwrap_or(default.window_bytes_max),
        message_bytes_max: words.named("message").unwrap_or(default.message_bytes_max),
        unpersisted_bytes_max: words.named("unpersisted").unwrap_or(default.unpersisted_bytes_max),
        ..default
    };
    let members = StreamMembers {
        voters: words.nodes("voters"),
        learners: words.nodes("learners"),
        ..StreamMembers::default()
    };
    Cluster::new(members, &words.nodes("others"), options, words.has("late"))
}

fn kind(message: &StreamMessage) -> String {
    show(message).split(' ').next().expect("a word").to_owned()
}

/// Removes the messages that a command selects from the cluster, in order.
fn taken(cluster: &mut Cluster, words: &Words<'_>) -> Vec<Delivery> {
    let meant = |delivery: &Delivery| {
        words.named("from").is_none_or(|id| u64::from(delivery.from.0) == id)
            && words.named("to").is_none_or(|id| u64::from(delivery.to.0) == id)
            && words.text("kind").is_none_or(|name| kind(&delivery.message) == name)
    };
    let mut left = words.named("count").unwrap_or(u64::MAX);
    let (mut taken, mut kept) = (Vec::new(), Vec::new());
    for delivery in cluster.deliveries.drain(..) {
        if left > 0 && meant(&delivery) {
            left -= 1;
            taken.push(delivery);
        } else {
            kept.push(delivery);
        }
    }
    cluster.deliveries = kept;
    taken
}

fn forged(words: &Words<'_>) -> Delivery {
    let (from, to) = (words.node(1), words.node(2));
    let ballot = words.ballot("ballot");
    let (accepted_ballot, accepted) = (words.ballot("has"), words.length("accepted"));
    let (decided, first) = (words.length("decided"), words.length("from"));
    let (length, everywhere) = (words.length("length"), words.length("everywhere"));
    let entries = words.entries();
    let round = words.named("round").unwrap_or_default();
    let message = match words.plain[3] {
        "Prepare" => StreamMessage::Prepare { ballot, accepted_ballot, accepted, decided },
        "Promise" => {
            let (from, votes) = (first, true);
            StreamMessage::Promise {
                ballot,
                accepted_ballot,
                accepted,
                decided,
                from,
                entries,
                votes,
            }
        }
        "Fetch" => {
            let messages = words.named("messages").unwrap_or(1);
            StreamMessage::Fetch { ballot, accepted_ballot, from: first, messages }
        }
        "Append" => {
            let (adopted, base, prev) =
                (words.ballot("adopted"), words.length("base"), words.length("prev"));
            StreamMessage::Append {
                ballot,
                adopted,
                base,
                prev,
                entries,
                decided,
                everywhere,
                round,
            }
        }
        "Accepted" => {
            let (next, until) = (words.length("next"), words.length("until"));
            let (until, votes) = (until.max(next), true);
            StreamMessage::Accepted { ballot, length, next, until, decided, round, votes }
        }
        "Decide" => StreamMessage::Decide { ballot, decided, everywhere },
        "Snapshot" => {
            StreamMessage::Snapshot { ballot, length, state: Bytes::from_static(b"forged") }
        }
        "Rejected" => StreamMessage::Rejected { ballot, promised: words.ballot("promised") },
        other => panic!("no such message: {other}"),
    };
    Delivery { from, to, message }
}

fn show_nodes(cluster: &mut Cluster) {
    let lines: Vec<_> = cluster
        .nodes
        .iter()
        .map(|(id, node)| {
            let Some(stream) = &node.stream else { return format!("{id} is down") };
            let mut line = format!(
                "{id} ballot={} start={} decided={} accepted={}",
                stream.ballot(),
                stream.start(),
                stream.decided(),
                stream.accepted()
            );
            if stream.is_leading() {
                let (waiting, room) = (stream.unacknowledged(), stream.has_room());
                write!(line, " leading unacknowledged={waiting} room={room}").expect("a string");
            }
            let counters = stream.counters();
            for (name, count) in [
                ("bad", counters.bad_messages),
                ("late", counters.late_messages),
                ("dropped", counters.dropped_proposals),
                ("retries", counters.retries),
                ("refused", counters.refused_appends),
            ] {
                if count > 0 {
                    write!(line, " {name}={count}").expect("a string");
                }
            }
            write!(line, " everywhere={}", stream.replicated_everywhere()).expect("a string");
            line
        })
        .collect();
    cluster.trace.extend(lines);
}

fn run_command(cluster: &mut Cluster, line: &str) -> Result<(), String> {
    let words = Words::of(line);
    match words.plain[0] {
        "lead" => {
            let (id, epoch) = (words.node(1), words.number::<u32>(2));
            cluster.step(id, StreamEvent::Lead { ballot: ballot(epoch, id), continues: true })
        }
        "propose" => words.plain[2..].iter().try_for_each(|entry| {
            let entry = Bytes::from((*entry).to_owned());
            cluster.step(words.node(1), StreamEvent::Propose { entry })
        }),
        "persist" => {
            let changes = if words.plain.len() > 2 { words.number(2) } else { usize::MAX };
            cluster.persist(words.node(1), changes)
        }
        "deliver" => {
            let mut deliveries = taken(cluster, &words).into_iter();
            deliveries.try_for_each(|delivery| cluster.deliver(delivery))
        }
        "drop" => {
            let lost = taken(cluster, &words);
            let lines =
                lost.iter().map(|l| format!("lost: {} → {} {}", l.from, l.to, show(&l.message)));
            cluster.trace.extend(lines);
            Ok(())
        }
        "repeat" => {
            let deliveries = taken(cluster, &words);
            cluster.deliveries.extend(deliveries.clone());
            cluster.deliveries.extend(deliveries);
            Ok(())
        }
        "reverse" => {
            cluster.deliveries.reverse();
            Ok(())
        }
        "settle" => cluster.settle(),
        "wait" => cluster.wait(Duration::from_millis(words.number(1))),
        "trim" => {
            cluster.step(words.node(1), StreamEvent::Trim { before: LogLength(words.number(2)) })
        }
        "snapshot" => cluster.give_snapshot(words.node(1), words.node(2)),
        "crash" => {
            cluster.crash(words.node(1));
            Ok(())
        }
        "restart" => {
            let empty = words.has("empty").then(MemoryStorage::new);
            cluster.restart(words.node(1), empty)
        }
        "votes" => {
            let votes = words.plain[2] == "yes";
            cluster.step(words.node(1), StreamEvent::Votes { votes })
        }
        "reborn" => cluster.step(words.node(1), StreamEvent::Reborn { replica: words.node(2) }),
        "forge" => cluster.deliver(forged(&words)),
        "show" => {
            show_nodes(cluster);
            Ok(())
        }
        other => panic!("no such command: {other}"),
    }
}

/// The trace of the commands.
fn run(commands: &str) -> String {
    let mut cluster = None;
    shoal_golden::trace_of(commands, |line, trace| {
        if line.starts_with("cluster") {
            cluster = Some(build(&Words::of(line)));
            return;
        }
        let cluster = cluster.as_mut().expect("a script begins with a cluster");
        let result = run_command(cluster, line);
        trace.append(&mut cluster.trace);
        trace.extend(result.err().map(|error| format!("VIOLATION: {error}")));
    })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stream_scripts")
}

#[test]
fn scripts_make_their_traces() {
    shoal_golden::check_scripts(&folder(), 20, |path, commands| {
        let trace = run(commands);
        assert!(!trace.contains("VIOLATION"), "{}:\n{trace}", path.display());
        trace
    });
}

/// A violation in a script has to appear in its trace.
#[test]
fn violations_are_seen_in_scripts() {
    let trace = run("cluster voters=1,2,3\nforge 1 2 Append ballot=1.1 entries=x decided=1\n\
                     forge 3 2 Append ballot=2.3 adopted=1.1 base=1 prev=1 entries=y decided=2\n\
                     forge 3 1 Append ballot=2.3 entries=z decided=1");
    assert!(trace.contains("VIOLATION: n2 does not lead"), "{trace}");
    assert!(trace.contains("VIOLATION: decided entry 0"), "{trace}");
}
