//! A node's metrics in the text format of Prometheus, 0.0.4.
//!
//! Counters end in `_total`, units are seconds and bytes; what is neither a counter nor a histogram is a gauge. Metrics of
//! each worker have the label `worker`, so that their sum is the node's.

use crate::process::ProcessUsage;
use crate::status::{DiskStatus, LatencyStatus, NodeStatus, ShardStatus, StreamStatus};
use crate::worker_command::WorkerCommand;
use shoal_engine::declarations::Declarations;
use shoal_engine::latency::LatencyHistogram;
use shoal_engine::metrics::{Metric, MetricKind, ShardMetric};
use shoal_net::{CloseReason, CounterTotals, DropReason, Handle};
use shoal_types::WorkerId;
use std::fmt::{Display, Write};

/// The media type of the page.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page of a node with these statuses of its workers, `None` for one that does not answer.
pub(crate) fn page(
    workers: &[Option<NodeStatus>],
    worker_hosts: &Handle<WorkerCommand>,
    declarations: &Declarations,
) -> String {
    let known: Vec<&NodeStatus> = workers.iter().flatten().collect();
    let mut page = MetricsPage::default();
    page.family("up", "gauge", "Whether the worker answers.");
    for (worker, status) in workers.iter().enumerate() {
        page.sample(&[("worker", &worker)], u8::from(status.is_some()));
    }
    if let Some(first) = known.first() {
        node(&mut page, first);
        shards(&mut page, first, declarations.shards);
    }
    streams(&mut page, &known);
    counters(&mut page, &known, &declarations.counters);
    latencies(&mut page, &known);
    disks(&mut page, &known);
    process(&mut page, &ProcessUsage::now());
    let totals = (0..).map(WorkerId).take(workers.len());
    network(&mut page, &totals.map(|worker| worker_hosts.counters_of(worker)).collect::<Vec<_>>());
    page.text
}

/// The values that are the same on all workers.
fn node(page: &mut MetricsPage, status: &NodeStatus) {
    page.family("info", "gauge", "Always 1; its labels name the node and its version.");
    let version = env!("CARGO_PKG_VERSION");
    page.sample(&[("node", &status.node), ("name", &status.name), ("version", &version)], 1);
    page.one("workers", "Worker threads of the node.", status.workers);
    let help = "Whether the manager has admitted this process of the node.";
    page.one("admitted", help, u8::from(status.admitted));
    page.one("configuration_revision", "The configuration that it follows.", status.revision);
    page.one("epoch", "The epoch that is open.", status.epoch);
    page.one("epoch_settled", "The last epoch whose end is final.", status.settled);
    let lease = status.lease_ms.map_or(f64::INFINITY, |ms| ms as f64 / 1000.0);
    page.one("lease_seconds", "Time left of its lease; infinite without managers.", lease);
    let help = "Replicas of any shard that have lost their memory and do not vote yet.";
    page.one("empty_replicas", help, status.empty);
    page.one("memory_bytes", "Bytes that the node's copies of shards take.", status.memory_bytes);
}

fn shards(page: &mut MetricsPage, status: &NodeStatus, declared: &[ShardMetric]) {
    let mut each = |name: &str, help, value: &dyn Fn(usize, &ShardStatus) -> Option<u64>| {
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
    for metric in declared {
        let number = |_: usize, shard: &ShardStatus| shard.numbers.get(metric.name).copied();
        each(&format!("shard_{}", metric.name), metric.help, &number);
    }
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

fn counters(page: &mut MetricsPage, workers: &[&NodeStatus], declared: &[Metric]) {
    page.family("transactions_open", "gauge", "Transactions under way.");
    for status in workers {
        page.sample(&[("worker", &status.worker)], status.pending);
    }
    for (at, metric) in declared.iter().enumerate() {
        match metric.kind {
            MetricKind::Counter => {
                let help = metric.help.replacen("Nanoseconds", "Seconds", 1);
                page.family(&format!("{}_total", base_unit(metric.name)), "counter", &help);
            }
            MetricKind::Greatest | MetricKind::Level => {
                page.family(metric.name, "gauge", metric.help);
            }
        }
        for status in workers {
            let count = status.counters.get(at).map_or(0, |(_, count)| *count);
            match metric.name.ends_with("_ns") {
                true => page.sample(&[("worker", &status.worker)], seconds(count)),
                false => page.sample(&[("worker", &status.worker)], count),
            }
        }
    }
    let help = "Malformed frames and messages of peers and clients.";
    count(page, workers, "malformed_total", help, |status| status.malformed);
    let help = "Messages of peers before this process could take them, of their former processes, or of nodes that follow other managers.";
    count(page, workers, "stray_messages_total", help, |status| status.strays);
    let help = "Messages with entries that were not taken, since the disk is too far behind; they are sent again.";
    count(page, workers, "refused_appends_total", help, |status| status.refused_appends);
}

/// A counter with a sample for each worker.
fn count(
    page: &mut MetricsPage,
    workers: &[&NodeStatus],
    name: &str,
    help: &str,
    of: impl Fn(&NodeStatus) -> u64,
) {
    page.family(name, "counter", help);
    for status in workers {
        page.sample(&[("worker", &status.worker)], of(status));
    }
}

/// The name of a metric in the base unit of what it measures.
fn base_unit(name: &str) -> String {
    match name.strip_suffix("_ns") {
        Some(time) => format!("{time}_seconds"),
        None => name.to_owned(),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn latencies(page: &mut MetricsPage, workers: &[&NodeStatus]) {
    let help = "How long transactions took, from the request until the outcome was acknowledged.";
    page.family("transaction_duration_seconds", "histogram", help);
    for status in workers {
        for latency in &status.outcome_latencies {
            page.histogram(&[("worker", &status.worker), ("outcome", &latency.name)], latency);
        }
    }
    let help = "How long transactions that wrote and committed were in each stage.";
    page.family("transaction_stage_seconds", "histogram", help);
    for status in workers {
        for latency in &status.stage_latencies {
            page.histogram(&[("worker", &status.worker), ("stage", &latency.name)], latency);
        }
    }
}

/// The durability, and the logs and checkpoints of workers on disk, where they have some.
fn disks(page: &mut MetricsPage, workers: &[&NodeStatus]) {
    let disks = workers.iter().filter_map(|status| Some((status.worker, status.disk.as_ref()?)));
    let disks: Vec<(u32, &DiskStatus)> = disks.collect();
    if let Some(status) = workers.first() {
        page.family("durability", "gauge", "When the cluster's replicas acknowledge: always 1.");
        page.sample(&[("level", &status.durability)], 1);
    }
    if disks.is_empty() {
        return;
    }
    page.family("disk_flush_seconds", "histogram", "How long flushes of the log took.");
    for (worker, disk) in &disks {
        page.histogram(&[("worker", worker)], &disk.flushes);
    }
    let mut each = |name, help, value: &dyn Fn(&DiskStatus) -> Option<f64>| {
        page.family(name, "gauge", help);
        for (worker, disk) in &disks {
            if let Some(value) = value(disk) {
                page.sample(&[("worker", worker)], value);
            }
        }
    };
    let help = "The longest flush since the process began.";
    each("disk_flush_max_seconds", help, &|disk| Some(seconds(disk.flush_max_ns)));
    let help = "Bytes of the log's files that are in use.";
    each("disk_log_bytes", help, &|disk| Some(disk.log_bytes as f64));
    let help = "Time since the last checkpoint.";
    each("disk_checkpoint_age_seconds", help, &|disk| Some(disk.checkpoint_age_ms? as f64 / 1e3));
    let help = "Bytes of the last checkpoint.";
    each("disk_checkpoint_bytes", help, &|disk| Some(disk.checkpoint_bytes as f64));
    let help = "Bytes that are free on the disk.";
    each("disk_free_bytes", help, &|disk| Some(disk.free_bytes? as f64));
    let help = "Whether the disk has no room for a further segment of the log.";
    each("disk_full", help, &|disk| Some(f64::from(u8::from(disk.is_full))));
}

/// What the process takes, under the names that programs of all kinds have for it.
fn process(page: &mut MetricsPage, usage: &ProcessUsage) {
    let help = "Processor time of the process, of all its threads.";
    page.begin("process_cpu_seconds_total".to_owned(), "counter", help);
    page.sample(&[], usage.cpu_seconds);
    if let Some(bytes) = usage.resident_bytes {
        let help = "Resident memory of the process.";
        page.begin("process_resident_memory_bytes".to_owned(), "gauge", help);
        page.sample(&[], bytes);
    }
    if let Some(files) = usage.open_files {
        page.begin(
            "process_open_fds".to_owned(),
            "gauge",
            "Open files and sockets of the process.",
        );
        page.sample(&[], files);
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
        "frames_in" => "Frames received.",
        "frames_out" => "Frames sent.",
        "bytes_in" => "Bytes received.",
        "bytes_out" => "Bytes sent.",
        "reads" => "Reads of sockets that returned bytes or the end.",
        "writes" => "Writes to sockets that wrote something.",
        "turns" => "Turns of the event loop that had something to do.",
        "timer_fires" => "How often the timer of the event loop fired.",
        "accepted" => "Connections that were accepted, before authentication.",
        "admitted" => "Peers and clients that were authenticated.",
        "connects" => "Connections to peers that were established.",
        "reconnects" => "Connections to peers that were not the first to that peer.",
        "clients_gone" => "Clients that disconnected or were closed.",
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
        self.begin(format!("shoal_{name}"), kind, help);
    }

    /// Begins a family whose name is common to programs of all kinds.
    fn begin(&mut self, name: String, kind: &str, help: &str) {
        self.name = name;
        let MetricsPage { text, name } = self;
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("text grows");
    }

    /// Adds a histogram to it.
    fn histogram(&mut self, labels: Labels<'_>, latency: &LatencyStatus) {
        let bounds = LatencyHistogram::bounds_ns().map(seconds).chain([f64::INFINITY]);
        let mut count = 0_u64;
        for (bound, more) in bounds.zip(&latency.counts) {
            count = count.wrapping_add(*more);
            let bound = number(bound);
            let labels: Vec<_> =
                labels.iter().copied().chain([("le", &bound as &dyn Display)]).collect();
            self.sample_of("_bucket", &labels, count);
        }
        self.sample_of("_sum", labels, seconds(latency.sum_ns));
        self.sample_of("_count", labels, count);
    }

    /// Adds a sample to it.
    fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.sample_of("", labels, value);
    }

    /// Adds a sample to it, of what the suffix says.
    fn sample_of(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        let MetricsPage { text, name } = self;
        text.push_str(name);
        text.push_str(suffix);
        for (at, (label, value)) in labels.iter().enumerate() {
            let value = value.to_string();
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let before = if at == 0 { '{' } else { ',' };
            write!(text, "{before}{label}=\"{value}\"").expect("text grows");
        }
        text.push_str(if labels.is_empty() { " " } else { "} " });
        text.push_str(&number(value));
        text.push('\n');
    }

    /// A family of one sample without labels.
    fn one(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(&[], value);
    }
}

/// A number as the format has it.
fn number(value: impl Display) -> String {
    match value.to_string() {
        text if text == "inf" => "+Inf".to_owned(),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_registry::{EngineVisitor, Protocol, RegisteredEngine};

    #[test]
    fn every_counter_says_what_it_counts() {
        for (name, _) in CounterTotals::zero().named() {
            assert_ne!(network_help(name), network_help(""), "{name}");
        }
    }

    /// Dashboards and alerts name them: see docs/operating.md.
    #[test]
    fn names_that_are_documented_stay() {
        struct Names;
        impl EngineVisitor for Names {
            type Output = Vec<String>;

            fn visit<E: RegisteredEngine>(self, _: E::Options) -> Vec<String> {
                let Declarations { counters, shards, .. } = Declarations::of::<E>();
                let counters = counters.iter().map(|metric| metric.name.to_owned());
                let shards = shards.iter().map(|metric| format!("shard_{}", metric.name));
                counters.chain(shards).collect()
            }
        }
        let mako = Protocol::Mako.options().visit(Names);
        let two_phase_commit = Protocol::TwoPhaseCommit.options().visit(Names);
        let both = "certified committed wrote cross_shard conflicts slow resent dropped operations step_keys \
                    step_keys_most batches batch_bytes replayed_bytes writers entering_ns retrying_ns executing_ns \
                    locking_ns validating_ns awaiting_ns replicated batching_ns replicating_ns shard_reached shard_drawn";
        let of_mako = "rolled_back discarded stamps stamp_entries shard_watermark";
        for name in both.split_whitespace() {
            let counted = [&mako, &two_phase_commit].map(|names| names.iter().any(|it| it == name));
            assert_eq!(counted, [true, true], "{name}");
        }
        for name in of_mako.split_whitespace() {
            let counted = [&mako, &two_phase_commit].map(|names| names.iter().any(|it| it == name));
            assert_eq!(counted, [true, false], "{name}");
        }
    }

    #[test]
    fn labels_cannot_break_out_of_their_line() {
        let mut page = MetricsPage::default();
        page.family("info", "gauge", "The node.");
        page.sample(&[("name", &"a\"b\\c\nd"), ("shard", &7)], 1);
        page.one("lease_seconds", "The time left.", f64::INFINITY);
        let expected = "# HELP shoal_info The node.\n# TYPE shoal_info gauge\n\
                        shoal_info{name=\"a\\\"b\\\\c\\nd\",shard=\"7\"} 1\n\
                        # HELP shoal_lease_seconds The time left.\n# TYPE shoal_lease_seconds gauge\n\
                        shoal_lease_seconds +Inf\n";
        assert_eq!(page.text, expected);
    }
}
