//! Runs the scenarios of `scripts/`: commands, a line of dashes, and the trace they make.
//!
//! `GOLDEN=refresh cargo test -p shoal-zeus --test protocol scripts` writes the traces anew; read the difference before you
//! commit it.
//!
//! ```text
//! cluster nodes=N [workers=N] [copied=N]         directory: n0, n1, n2; copied in parts of so many records
//! want NODE TICKET [own=a,b] [read=c] [born=MS]  release NODE TICKET       got NODE TICKET
//! commit NODE TAG [put=a/x:1] [delete=a/x] [touch=b] [worker=N] [born=MS]  touch: scans of granules
//!        [reads=NAME]                            reads: what was looked at or scanned under this name
//! look NODE NAME KEY…                            check NODE NAME           (a read-only transaction)
//! scan NODE NAME GRANULE…
//! leave NODE GRANULE                             drop-reader NODE GRANULE READER
//! deliver [FILTER…]   lose [FILTER…]   repeat [FILTER…]   (from= to= kind= count=)
//! settle              reverse          wait MICROSECONDS
//! epoch [dead=N,…] [back=N,…]          hear NODE…         crash NODE       restart NODE
//! show GRANULE                         collected NODE    (of how many `Inv`s acknowledgements are kept)
//! ```

use crate::cluster::{Cluster, Delivery, T, granule};
use bytes::Bytes;
use shoal_engine::planted_bugs::PlantedBugs;
use shoal_golden::Words;
use shoal_types::{NodeId, ShardId, Time, WorkerId};
use shoal_zeus::message::GranuleWrites;
use shoal_zeus::rows::{RowKey, RowWrite};
use shoal_zeus::{
    GranuleId, Level, LocalCommit, ReadOutcome, ReadSet, RequestKind, ScannedGranule, Ticket, Want,
    ZeusOptions, ZeusPlantedBug,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

/// A cluster, and the read-only transactions that have read.
struct Script {
    cluster: Cluster,
    reads: BTreeMap<String, ReadSet>,
}

fn list<'a>(words: &Words<'a>, name: &str) -> Vec<&'a str> {
    words.text(name).unwrap_or_default().split(',').filter(|item| !item.is_empty()).collect()
}

fn nodes(words: &Words<'_>, name: &str) -> Vec<NodeId> {
    list(words, name).iter().map(|node| NodeId(node.parse().expect("a number"))).collect()
}

/// What a read finds, as a trace has it.
fn shown<R>(found: ReadOutcome<R>, text: impl FnOnce(R) -> String) -> String {
    match found {
        ReadOutcome::Shown(found) => text(found),
        ReadOutcome::Pending => "pending".to_owned(),
        ReadOutcome::NoLevel => "no level".to_owned(),
    }
}

fn key(name: &str) -> RowKey {
    (T, Bytes::copy_from_slice(name.as_bytes()))
}

fn granule_of(key: &str) -> GranuleId {
    granule(&key[..1])
}

impl Script {
    fn run(&mut self, line: &str) {
        let words = Words::of(line);
        let first = words.plain[0];
        match first {
            "want" | "release" | "got" => self.transaction(first, &words),
            "commit" => self.commit(&words),
            "look" | "scan" | "check" => self.read_only(first, &words),
            "leave" => self.request(&words, RequestKind::Leave),
            "drop-reader" => self.request(&words, RequestKind::Drop(NodeId(words.number(3)))),
            "deliver" | "lose" | "repeat" => self.messages(first, &words),
            "settle" => self.cluster.settle(),
            "reverse" => self.cluster.deliveries.reverse(),
            "wait" => self.cluster.wait(Duration::from_micros(words.number(1))),
            "epoch" => {
                let directory = nodes(&words, "directory");
                if !directory.is_empty() {
                    self.cluster.replace_directory(directory);
                }
                self.cluster.begin_epoch(&nodes(&words, "dead"), &nodes(&words, "back"));
            }
            "hear" => {
                let nodes = words.numbers::<u32>().into_iter();
                nodes.for_each(|node| self.cluster.hear(NodeId(node)));
            }
            // The leader of the shard asks a node whether it has copied the directory.
            "ask" => {
                let (leader, other) = (NodeId(words.number(1)), NodeId(words.number(2)));
                self.cluster.step(leader, |node, now| {
                    node.ask_copied(now, ShardId(0), [other]);
                    node.tick(now);
                });
            }
            "crash" => self.cluster.crash(NodeId(words.number(1))),
            "restart" => self.cluster.restart(NodeId(words.number(1))),
            "collected" => {
                let node = NodeId(words.number(1));
                let count = self.cluster.up(node).map(|up| up.ownership().collected());
                self.cluster.trace.push(format!("{node} collects for {count:?}"));
            }
            "show" => self.show(&granule(words.plain[1])),
            other => panic!("no such command: {other}"),
        }
    }

    /// When the transaction of a command was born: now, or so many milliseconds ago.
    fn born(&self, node: NodeId, words: &Words<'_>) -> Time {
        let ago = Duration::from_millis(words.named("born").unwrap_or_default());
        Time(self.cluster.clock_of(node).0 - ago.as_nanos() as u64)
    }

    fn transaction(&mut self, command: &str, words: &Words<'_>) {
        let (node, ticket) = (NodeId(words.number(1)), Ticket(words.number(2)));
        let born = self.born(node, words);
        match command {
            "want" => {
                let levels = [("own", Level::Owner), ("read", Level::Reader)];
                let granules = levels.iter().flat_map(|(name, level)| {
                    list(words, name).into_iter().map(|name| (granule(name), *level))
                });
                let want = Want { granules: granules.collect(), born };
                self.cluster.step(node, |node, now| node.want(now, ticket, want));
            }
            "release" => drop(self.cluster.step(node, |node, now| node.release(now, ticket))),
            _ => {
                let Some(up) = self.cluster.up(node) else { return };
                let text = match (up.has_all(ticket), up.ownership().lost(ticket)) {
                    (_, Some(lost)) => format!("finds that all copies of {lost} are lost"),
                    (true, None) => "has all".to_owned(),
                    (false, None) => "waits".to_owned(),
                };
                self.cluster.trace.push(format!("{node} {text}"));
            }
        }
    }

    fn commit(&mut self, words: &Words<'_>) {
        let (node, tag) = (NodeId(words.number(1)), words.number(2));
        let mut writes: BTreeMap<GranuleId, Vec<RowWrite>> = BTreeMap::new();
        for put in list(words, "put") {
            let (key, value) = put.split_once(':').expect("a key and a value");
            let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), value.to_owned());
            let row = RowWrite { table: T, key, value: Some(Bytes::from(value)) };
            writes.entry(granule_of(put)).or_default().push(row);
        }
        for key in list(words, "delete") {
            let row =
                RowWrite { table: T, key: Bytes::copy_from_slice(key.as_bytes()), value: None };
            writes.entry(granule_of(key)).or_default().push(row);
        }
        let writes = writes.into_iter().map(|(granule, rows)| GranuleWrites { granule, rows });
        let scans = list(words, "touch").into_iter().map(|name| {
            let up = self.cluster.up(node);
            let of = up.and_then(|node| node.rows().granule(&granule(name)));
            ScannedGranule { granule: granule(name), structure: of.map_or(0, |of| of.structure()) }
        });
        let scans: Vec<ScannedGranule> = scans.collect();
        let reads = words.text("reads").map(|name| self.reads[name].clone()).unwrap_or_default();
        let commit = LocalCommit {
            worker: WorkerId(words.named("worker").unwrap_or_default()),
            born: self.born(node, words),
            tag,
            reads: reads.rows().to_vec(),
            scans: scans.into_iter().chain(reads.scans().iter().cloned()).collect(),
            writes: writes.collect(),
        };
        if commit.writes.is_empty() {
            let done = self.cluster.step(node, |node, now| node.commit_read(now, &commit));
            let text = match done {
                Some(Ok(standing)) => {
                    format!("{node} committed T{tag}, which only reads: {standing:?}")
                }
                Some(Err(why)) => format!("{node} refused T{tag}: {why:?}"),
                None => format!("{node} is down"),
            };
            return self.cluster.trace.push(text);
        }
        let done = self.cluster.step(node, |node, now| node.commit(now, commit));
        self.cluster.trace.push(match done {
            Some(Ok(slot)) => format!("{node} committed T{tag} locally as {slot}"),
            Some(Err(why)) => format!("{node} refused T{tag}: {why:?}"),
            None => format!("{node} is down"),
        });
    }

    fn read_only(&mut self, command: &str, words: &Words<'_>) {
        let (node, name) = (NodeId(words.number(1)), words.plain[2].to_owned());
        let now = self.cluster.clock_of(node);
        let Some(up) = self.cluster.up(node) else { return };
        let reader = up.reader(now);
        if command == "check" {
            let valid = reader.check(&self.reads[&name]);
            let text = if valid { "is valid" } else { "restarts" };
            return self.cluster.trace.push(format!("{node} {name} {text}"));
        }
        let reads = self.reads.entry(name.clone()).or_default();
        let mut lines = Vec::new();
        for what in &words.plain[3..] {
            let found = match command {
                "scan" => {
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    shown(reader.scan(reads, &granule(what), T, all), |rows| {
                        let rows = rows.iter().map(|(key, value)| {
                            format!("{}={}", key.escape_ascii(), value.escape_ascii())
                        });
                        rows.collect::<Vec<_>>().join(" ")
                    })
                }
                _ => shown(reader.get(reads, &granule_of(what), &key(what)), |value| {
                    value.map_or("absent".to_owned(), |value| value.escape_ascii().to_string())
                }),
            };
            lines.push(format!("{node} {name} {what}: {found}"));
        }
        self.cluster.trace.append(&mut lines);
    }

    fn request(&mut self, words: &Words<'_>, kind: RequestKind) {
        let (node, of) = (NodeId(words.number(1)), granule(words.plain[2]));
        self.cluster.step(node, |node, now| node.request(now, &of, kind));
    }

    /// Takes the messages that a command selects, in order, and delivers, loses or repeats them.
    fn messages(&mut self, command: &str, words: &Words<'_>) {
        let is_meant = |delivery: &Delivery| {
            let text = delivery.message.to_string();
            words.named("from").is_none_or(|node| delivery.from == NodeId(node))
                && words.named("to").is_none_or(|node| delivery.to == NodeId(node))
                && words.text("kind").is_none_or(|kind| text.split(' ').any(|word| word == kind))
        };
        let mut left = words.named("count").unwrap_or(usize::MAX);
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for delivery in self.cluster.deliveries.drain(..) {
            let is_taken = left > 0 && is_meant(&delivery);
            left -= usize::from(is_taken);
            if is_taken { &mut taken } else { &mut kept }.push(delivery);
        }
        self.cluster.deliveries = kept;
        match command {
            "deliver" => taken.into_iter().for_each(|delivery| self.cluster.deliver(delivery)),
            "lose" => {
                let lost = taken
                    .iter()
                    .map(|Delivery { from, to, message }| format!("lost: {from} → {to} {message}"));
                self.cluster.trace.extend(lost);
            }
            _ => {
                self.cluster.deliveries.extend(taken.clone());
                self.cluster.deliveries.extend(taken);
            }
        }
    }

    fn show(&mut self, of: &GranuleId) {
        for (id, node) in &self.cluster.nodes {
            let Some(node) = node else {
                self.cluster.trace.push(format!("{id} is down"));
                continue;
            };
            let Some(holding) = node.ownership().holding(of) else {
                self.cluster.trace.push(format!("{id} knows nothing"));
                continue;
            };
            let level = node.ownership().level(*id, of);
            let pending = holding.pending.as_ref();
            let pending =
                pending.map_or(String::new(), |pending| format!(" pending {}", pending.inv.record));
            let rows = node.rows().granule(of).into_iter().flat_map(|rows| rows.all());
            let rows = rows.map(|((_, key), row)| {
                let value = row
                    .value
                    .as_ref()
                    .map_or("deleted".to_owned(), |v| v.escape_ascii().to_string());
                let valid = if row.is_valid { "" } else { "?" };
                format!(" {}={value}{valid}", key.escape_ascii())
            });
            let (record, clock) = (&holding.record, holding.clock.0);
            let rows: String = rows.collect();
            self.cluster
                .trace
                .push(format!("{id} {level:?} {record}{pending} clock={clock}{rows}"));
        }
    }
}

/// The trace of the commands, in nodes with these bugs.
pub fn run(commands: &str, bugs: PlantedBugs<ZeusPlantedBug>) -> String {
    let mut script = None;
    shoal_golden::trace_of(commands, |line, trace| {
        if line.starts_with("cluster") {
            let words = Words::of(line);
            let nodes: u32 = words.named("nodes").expect("a number of nodes");
            let default = ZeusOptions::default();
            let copied = words.named("copied").unwrap_or(default.copied_records_max);
            let part_bytes = words.named("part").unwrap_or(default.part_bytes);
            let options = ZeusOptions { bugs, copied_records_max: copied, part_bytes, ..default };
            let workers = words.named("workers").unwrap_or(1);
            let mut cluster = Cluster::new(nodes, workers, options);
            (0..nodes).for_each(|node| cluster.hear(NodeId(node)));
            cluster.settle();
            cluster.trace.clear();
            script = Some(Script { cluster, reads: BTreeMap::new() });
            return;
        }
        let script = script.as_mut().expect("a script begins with a cluster");
        script.run(line);
        trace.append(&mut script.cluster.trace);
        trace.extend(script.cluster.violation.take().map(|what| format!("VIOLATION: {what}")));
    })
}

#[test]
fn scripts_make_their_traces() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    shoal_golden::check_scripts(&folder, 15, |path, commands| {
        let trace = run(commands, PlantedBugs::NONE);
        assert!(!trace.contains("VIOLATION"), "{}:\n{trace}", path.display());
        trace
    });
}
