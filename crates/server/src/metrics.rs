//! A node's metrics in the text format of Prometheus, 0.0.4.
//!
//! Counters end in `_total`; all else is as it is now. What is counted by each worker has the label
//! `worker`, so that a sum is the node's.

use crate::status::{NodeStatus, ShardStatus, StreamStatus};
use crate::worker_command::WorkerCommand;
use shoal_net::{CloseReason, CounterTotals, DropReason, Handle};
use shoal_types::WorkerId;
use std::fmt::{Display, Write};

/// What the page is.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page of a node whose workers say this of themselves, `None` for one that says nothing.
pub(crate) fn page(workers: &[Option<NodeStatus>], worker_hosts: &Handle<WorkerCommand>) -> String {
    let known: Vec<&NodeStatus> = workers.iter().flatten().collect();
    let mut page = MetricsPage::default();
    page.family("up", "gauge", "Whether the worker answers.");
    for (worker, status) in workers.iter().enumerate() {
        page.sample(&[("worker", &worker)], u8::from(status.is_some()));
    }
    if let Some(first) = known.first() {
        node(&mut page, first);
        shards(&mut page, first);
    }
    streams(&mut page, &known);
    counters(&mut page, &known);
    let totals = (0..).map(WorkerId).take(workers.len());
    network(&mut page, &totals.map(|worker| worker_hosts.counters_of(worker)).collect::<Vec<_>>());
    page.text
}

/// What all workers of the node say alike.
fn node(page: &mut MetricsPage, status: &NodeStatus) {
    page.family("info", "gauge", "Always 1; its labels say who this is.");
    let version = env!("CARGO_PKG_VERSION");
    page.sample(&[("node", &status.node), ("name", &status.name), ("version", &version)], 1);
    page.one("workers", "Worker threads of the node.", status.workers);
    let help = "Whether the manager has admitted this process of the node.";
    page.one("admitted", help, u8::from(status.admitted));
    page.one("configuration_revision", "The configuration that it follows.", status.revision);
    page.one("epoch", "The epoch that is open.", status.epoch);
    page.one("epoch_settled", "The last epoch whose end is final.", status.settled);
    let lease = status.lease_ms.map_or(f64::INFINITY, |ms| ms as f64 / 1000.0);
    page.one(
        "lease_seconds",
        "What is left of its lease; without end where no manager grants any.",
        lease,
    );
    let help = "Replicas of any shard that have lost their memory and do not vote yet.";
    page.one("empty_replicas", help, status.empty);
    page.one("memory_bytes", "Bytes that the node's copies of shards take.", status.memory_bytes);
}

fn shards(page: &mut MetricsPage, status: &NodeStatus) {
    let mut each = |name, help, value: &dyn Fn(usize, &ShardStatus) -> Option<u64>| {
        page.family(name, "gauge", help);
        for (at, shard) in status.shards.iter().enumerate() {
            if let Some(value) = value(at, shard) {
                page.sample(&[("shard", &shard.shard)], value);
            }
        }
    };
    let leader = |at: usize, _: &ShardStatus| status.leaders.get(at).map(|node| u64::from(*node));
    each("shard_leader", "The node that leads the shard.", &leader);
    let help = "Whether this node is appointed to lead the shard.";
    each("shard_appointed", help, &|_, shard| Some(shard.appointed.into()));
    let help = "The clock up to which the shard is known to be durable, in the open epoch.";
    each("shard_watermark", help, &|_, shard| shard.watermark);
    let help =
        "The clock up to which this copy is durable, if it leads, or applied, if it follows.";
    each("shard_reached", help, &|_, shard| shard.reached);
    let help = "The greatest clock that was drawn, on the leader.";
    each("shard_drawn", help, &|_, shard| shard.drawn);
    let help = "Bytes of this node's copy of the shard.";
    each("shard_memory_bytes", help, &|_, shard| shard.memory_bytes.map(|bytes| bytes as u64));
}

fn streams(page: &mut MetricsPage, workers: &[&NodeStatus]) {
    let mut each = |name, help, value: &dyn Fn(&StreamStatus) -> u64| {
        page.family(name, "gauge", help);
        for status in workers {
            for stream in &status.streams {
                page.sample(&[("worker", &status.worker), ("shard", &stream.shard)], value(stream));
            }
        }
    };
    let help = "Whether this node leads the stream.";
    each("stream_leading", help, &|stream| stream.leading.into());
    each("stream_accepted_entries", "Entries that this replica has.", &|stream| stream.accepted);
    let help = "Entries that this replica knows to be decided.";
    each("stream_decided_entries", help, &|stream| stream.decided);
    each("stream_held_entries", "Entries that it keeps in memory.", &|stream| stream.held);
    let help = "Entries of the leader that a replica has not acknowledged.";
    page.family("stream_behind_entries", "gauge", help);
    for status in workers {
        for (stream, follower) in
            status.streams.iter().flat_map(|it| it.followers.iter().map(move |other| (it, other)))
        {
            let (shard, replica) = (&stream.shard, &follower.node);
            let labels: Labels<'_> =
                &[("worker", &status.worker), ("shard", shard), ("replica", replica)];
            page.sample(labels, follower.behind);
        }
    }
}

fn counters(page: &mut MetricsPage, workers: &[&NodeStatus]) {
    page.family("transactions_open", "gauge", "Transactions under way.");
    for status in workers {
        page.sample(&[("worker", &status.worker)], status.pending);
    }
    let names = workers.first().map_or(&[][..], |status| &status.counters[..]);
    for (at, (name, _)) in names.iter().enumerate() {
        page.family(&format!("{name}_total"), "counter", engine_help(name));
        for status in workers {
            let count = status.counters.get(at).map_or(0, |(_, count)| *count);
            page.sample(&[("worker", &status.worker)], count);
        }
    }
    let help = "Frames and messages of peers and clients that made no sense.";
    page.family("malformed_total", "counter", help);
    for status in workers {
        page.sample(&[("worker", &status.worker)], status.malformed);
    }
}

/// What an engine's counter counts.
fn engine_help(name: &str) -> &'static str {
    match name {
        "certified" => "Transactions that were coordinated and certified here.",
        "committed" => "Transactions that were coordinated here and whose outcome was told.",
        "wrote" => "Certified transactions that wrote.",
        "cross_shard" => "Certified transactions that wrote more than one shard.",
        "rolled_back" => "Certified transactions that were rolled back, since a shard failed.",
        "discarded" => "Versions that were dropped, since what wrote them was rolled back.",
        "conflicts" => "Attempts that met a conflict.",
        "slow" => "Transactions that took longer than slow_ms.",
        "resent" => "Requests to other workers that were sent again.",
        "dropped" => "Messages that made no sense here, or none any more.",
        "operations" => "Operations on records: read, written, scanned, replayed.",
        "stamps" => "Stamps kept with versions.",
        "stamp_entries" => "Entries of those stamps.",
        "step_keys" => {
            "Keys locked, installed or rolled back, and a sixteenth of the reads validated."
        }
        "step_keys_most" => "The most of these keys in one step.",
        "batches" => "Batches appended to streams.",
        "batch_bytes" => "Bytes of those batches.",
        "replayed_bytes" => "Bytes of writes that were replayed where the node follows.",
        "writers" => {
            "Transactions that wrote, were coordinated here and told; of these are the next."
        }
        "entering_ns" => "Nanoseconds in which they waited to be let in.",
        "retrying_ns" => {
            "Nanoseconds of their attempts that met conflicts, and of pauses after them."
        }
        "executing_ns" => "Nanoseconds in which they ran, for the last time.",
        "locking_ns" => "Nanoseconds in which they took their locks.",
        "validating_ns" => "Nanoseconds in which what they had read was validated.",
        "awaiting_ns" => "Nanoseconds from when they were certified until they were told.",
        "pieces" => {
            "Pieces of transactions in streams that are led here, once decided; of these are the next."
        }
        "batching_ns" => "Nanoseconds in which they gathered in batches.",
        "replicating_ns" => "Nanoseconds in which they were in the stream and not decided.",
        _ => "Counted by the engine.",
    }
}

fn network(page: &mut MetricsPage, workers: &[CounterTotals]) {
    let names = CounterTotals::zero().named();
    for (at, (name, _)) in names.iter().enumerate() {
        page.family(&format!("net_{name}_total"), "counter", network_help(name));
        for (worker, totals) in workers.iter().enumerate() {
            page.sample(&[("worker", &worker)], totals.named()[at].1);
        }
    }
    page.family("net_closed_total", "counter", "Connections that ended, or were refused.");
    for (worker, totals) in workers.iter().enumerate() {
        for reason in CloseReason::ALL {
            page.sample(&[("worker", &worker), ("reason", reason)], totals.closes(*reason));
        }
    }
    page.family("net_dropped_frames_total", "counter", "Frames that were dropped.");
    for (worker, totals) in workers.iter().enumerate() {
        for reason in DropReason::ALL {
            page.sample(&[("worker", &worker), ("reason", reason)], totals.drops(*reason));
        }
    }
}

/// What a counter of the network counts.
fn network_help(name: &str) -> &'static str {
    match name {
        "frames_in" => "Frames that came.",
        "frames_out" => "Frames that were sent.",
        "bytes_in" => "Bytes that came.",
        "bytes_out" => "Bytes that were sent.",
        "reads" => "Reads of sockets that got something.",
        "writes" => "Writes to sockets that gave something.",
        "turns" => "Turns of the event loop that had something to do.",
        "alarms" => "Times the alarm of the event loop went off.",
        "accepted" => "Connections that were accepted, before they proved anything.",
        "admitted" => "Peers and clients that proved themselves.",
        "connects" => "Connections to peers that came to stand.",
        "reconnects" => "Connections to peers that were not the first.",
        "clients_gone" => "Clients that left or were closed.",
        _ => "Counted by the network.",
    }
}

/// Names of labels, and what they say.
type Labels<'a> = &'a [(&'static str, &'a dyn Display)];

/// Text that grows by one family of samples after the other.
#[derive(Default)]
struct MetricsPage {
    text: String,
    /// The name of the family that is being written.
    name: String,
}

impl MetricsPage {
    /// Begins a family.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.name = format!("shoal_{name}");
        let MetricsPage { text, name } = self;
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("text grows");
    }

    /// Adds a sample to it.
    fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        let MetricsPage { text, name } = self;
        text.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let value = value.to_string();
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let before = if at == 0 { '{' } else { ',' };
            write!(text, "{before}{label}=\"{value}\"").expect("text grows");
        }
        text.push_str(if labels.is_empty() { " " } else { "} " });
        let value = value.to_string();
        text.push_str(if value == "inf" { "+Inf" } else { &value });
        text.push('\n');
    }

    /// A family of one sample without labels.
    fn one(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(&[], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_says_what_it_counts() {
        for (name, _) in CounterTotals::zero().named() {
            assert_ne!(network_help(name), network_help(""), "{name}");
        }
        for (name, _) in crate::status::named(&shoal_engine::engine::EngineCounters::default()) {
            assert_ne!(engine_help(&name), engine_help(""), "{name}");
        }
    }

    #[test]
    fn labels_cannot_break_out_of_their_line() {
        let mut page = MetricsPage::default();
        page.family("info", "gauge", "Who this is.");
        page.sample(&[("name", &"a\"b\\c\nd"), ("shard", &7)], 1);
        page.one("lease_seconds", "How long.", f64::INFINITY);
        let expected = "# HELP shoal_info Who this is.\n# TYPE shoal_info gauge\n\
                        shoal_info{name=\"a\\\"b\\\\c\\nd\",shard=\"7\"} 1\n\
                        # HELP shoal_lease_seconds How long.\n# TYPE shoal_lease_seconds gauge\n\
                        shoal_lease_seconds +Inf\n";
        assert_eq!(page.text, expected);
    }
}
