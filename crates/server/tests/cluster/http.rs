//! Health and metrics over HTTP, and malformed requests for them.

use crate::cluster::Cluster;
use crate::durable;
use shoal_server::Protocol;
use shoal_types::{Durability, NodeId, ShardId};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn address(cluster: &Cluster, node: usize) -> SocketAddr {
    let server = cluster.servers[node].as_ref().expect("it runs");
    server.http_address().expect("it is in the configuration")
}

/// Sends this, and returns the code and what follows the head.
async fn ask(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let (head, body) = exchange(address, request).await;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.expect("a code"), body)
}

/// Sends this, and returns the head of the answer and what follows it.
async fn exchange(address: SocketAddr, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request).await.expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer, and the end");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("Connection: close"), "{head}");
    (head.to_owned(), body.to_owned())
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").as_bytes()).await
}

/// Asks for a node's health until it says this.
pub async fn until_health(cluster: &Cluster, node: usize, code: u16, said: &str) {
    let address = address(cluster, node);
    let asked = async {
        loop {
            let (now, body) = get(address, "/health").await;
            if now == code && body.contains(said) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let patience = std::time::Duration::from_secs(60);
    tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| panic!("never {code} {said}"));
}

/// The samples of a page, all of which stand in a family that is described once.
fn samples(page: &str) -> Vec<(&str, &str)> {
    let (mut family, mut families) = ("", BTreeSet::new());
    let mut is_histogram = false;
    let mut samples = Vec::new();
    for line in page.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').expect("a kind");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            is_histogram = kind == "histogram";
            for unit in ["_ns", "_us", "_ms", "_seconds_bytes", "_kb", "_mb"] {
                assert!(!name.trim_end_matches("_total").ends_with(unit), "{name}");
            }
            assert_eq!(family, name, "its help comes first");
        } else if let Some(described) = line.strip_prefix("# HELP ") {
            family = described.split(' ').next().expect("a name");
            assert!(families.insert(family), "{family} is described twice");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            let name = sample.split('{').next().expect("a name");
            let suffix = name.strip_prefix(family);
            match is_histogram {
                true => {
                    assert!(["_bucket", "_sum", "_count"].map(Some).contains(&suffix), "{line}");
                }
                false => assert_eq!(suffix, Some(""), "{line}"),
            }
            assert!(value.parse::<f64>().is_ok() || value == "+Inf", "{line}");
            assert!(samples.iter().all(|(other, _)| *other != sample), "{sample} comes twice");
            samples.push((sample, value));
        }
    }
    samples
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_say_what_status_says() {
    for (protocol, workers) in [(Protocol::Mako, 2), (Protocol::TwoPhaseCommit, 1)] {
        let cluster = Cluster::start(2, workers, protocol);
        let mut client = cluster.client(1);
        for _ in 0..5 {
            client.call(NodeId(0), ShardId(0), "count_ten", &[]).await.expect("counted");
        }
        until_health(&cluster, 0, 200, "ok").await;
        let (code, page) = get(address(&cluster, 0), "/metrics").await;
        let samples = samples(&page);
        assert_eq!(code, 200);
        let sum = |name: &str| -> f64 {
            let of = samples.iter().filter(|(sample, _)| sample.starts_with(name));
            of.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
        };
        assert!(sum("shoal_committed_total{") >= 5.0, "{page}");
        assert!(sum("shoal_slow_total{") >= 5.0, "{page}");
        assert_eq!(sum("shoal_up{"), f64::from(workers));
        assert_eq!(sum("shoal_durability{level=\"memory\"}"), 1.0);
        assert_eq!(sum("shoal_shard_appointed{shard=\"0\"}"), 1.0);
        assert!(sum("shoal_net_frames_in_total{") > 0.0 && sum("shoal_memory_bytes") > 0.0);
        let followers = samples.iter().filter(|it| it.0.starts_with("shoal_stream_behind_entries"));
        assert_eq!(followers.count(), 2 * workers as usize, "{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_loads_nothing_from_elsewhere_and_shows_what_the_node_did() {
    let cluster = Cluster::start(2, 2, Protocol::Mako);
    let address = address(&cluster, 0);
    until_health(&cluster, 0, 200, "ok").await;
    for (path, kind) in
        [("/", "text/html"), ("/dashboard.css", "text/css"), ("/dashboard.js", "text/javascript")]
    {
        let request = format!("GET {path} HTTP/1.1\r\n\r\n");
        let (head, body) = exchange(address, request.as_bytes()).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
        assert!(head.contains(&format!("\r\nContent-Type: {kind}; charset=utf-8\r\n")), "{head}");
        assert!(head.contains("\r\nContent-Security-Policy: default-src 'self'\r\n"), "{head}");
        // The name space of drawings is no address.
        let named = body.replace("http://www.w3.org/2000/svg", "");
        assert!(!named.contains("://") && !named.contains("innerHTML"), "{path}");
    }
    // There are two samples at least, and one of them has what was called.
    let mut client = cluster.client(1);
    let shown = async {
        loop {
            client.call(NodeId(0), ShardId(0), "count", &[1]).await.expect("counted");
            let (code, body) = get(address, "/dashboard.json").await;
            assert_eq!(code, 200);
            let view: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            assert_eq!((&view["workers"], &view["answering"]), (&2.into(), &2.into()), "{view}");
            assert_eq!(view["outcomes"][0], "committed");
            assert_eq!(view["nodes"].as_array().expect("nodes").len(), 6, "{view}");
            let samples = view["samples"].as_array().expect("samples");
            let committed = |it: &serde_json::Value| it["per_second"][0].as_f64() > Some(0.0);
            if samples.len() > 1 && samples.iter().any(committed) {
                return samples.iter().all(|it| it["p99_s"].is_null() != committed(it));
            }
        }
    };
    let patience = std::time::Duration::from_secs(60);
    assert!(tokio::time::timeout(patience, shown).await.expect("samples are taken"));
}

/// The labels of a histogram, its buckets in order, and its count.
type Histogram = (String, Vec<(String, u64)>, u64);

fn histograms<'p>(samples: &[(&'p str, &'p str)], family: &str) -> Vec<Histogram> {
    let mut found: Vec<Histogram> = Vec::new();
    for (sample, value) in samples {
        let Some((suffix, labels)) = sample.strip_prefix(family).and_then(|it| it.split_once('{'))
        else {
            continue;
        };
        let number = || value.parse().expect("a whole number");
        match suffix {
            "_bucket" => {
                let (labels, bound) = labels.split_once(",le=\"").expect("a bound, at the end");
                let bound = bound.trim_end_matches("\"}").to_owned();
                match found.last_mut().filter(|(last, ..)| last == labels) {
                    Some((_, buckets, _)) => buckets.push((bound, number())),
                    None => found.push((labels.to_owned(), vec![(bound, number())], u64::MAX)),
                }
            }
            "_count" => {
                let last = found.last_mut().expect("its buckets come first");
                assert_eq!(last.0, labels.trim_end_matches('}'));
                last.2 = number();
            }
            _ => {}
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latencies_are_told_by_outcome_and_stage_and_the_dashboard_names_what_there_is() {
    let place = tempfile::tempdir().expect("a folder");
    let cluster = durable::start(&place, Protocol::Mako, 1, Durability::Fsync);
    let mut client = cluster.client(1);
    // The stages of one of 16 are timed.
    for _ in 0..80 {
        client.call(NodeId(0), ShardId(0), "count_ten", &[]).await.expect("counted");
    }
    client.call(NodeId(0), ShardId(0), "nothing", &[]).await.expect_err("there is none");
    until_health(&cluster, 0, 200, "ok").await;
    let (_, page) = get(address(&cluster, 0), "/metrics").await;
    let samples = samples(&page);
    let mut named = Vec::new();
    for family in ["shoal_transaction_duration_seconds", "shoal_transaction_stage_seconds"] {
        for (labels, buckets, count) in histograms(&samples, family) {
            let bounds = buckets.iter().map(|(bound, _)| match &**bound {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().expect("seconds"),
            });
            assert!(bounds.is_sorted() && buckets.iter().map(|it| it.1).is_sorted(), "{labels}");
            assert_eq!(buckets.last(), Some(&("+Inf".to_owned(), count)), "{labels}");
            named.push((labels, count));
        }
    }
    let count = |label: &str| {
        let of = named.iter().find(|(labels, _)| labels.ends_with(&format!(",{label}")));
        of.unwrap_or_else(|| panic!("there is no {label}: {named:?}")).1
    };
    assert!(count("outcome=\"committed\"") >= 5, "{named:?}");
    for stage in ["entering", "executing", "locking", "awaiting"] {
        assert!(count(&format!("stage=\"{stage}\"")) >= 5, "{stage}: {named:?}");
    }
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes"] {
        let told = samples.iter().find(|(sample, _)| *sample == name).expect("it is told").1;
        assert!(told.parse::<f64>().expect("a number") > 0.0, "{name}");
    }

    let names: BTreeSet<&str> =
        samples.iter().filter_map(|(sample, _)| sample.split('{').next()).collect();
    // Some have no sample at first.
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let names: BTreeSet<&str> = names.into_iter().chain(families).collect();
    let dashboard = include_str!("../../../../docs/grafana.json");
    serde_json::from_str::<serde_json::Value>(dashboard).expect("JSON");
    let words = dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics: BTreeSet<&str> =
        words.filter(|word| word.starts_with("shoal_") || word.starts_with("process_")).collect();
    assert!(metrics.len() > 15, "{metrics:?}");
    assert!(metrics.contains("shoal_disk_full"), "{metrics:?}");
    let missing: Vec<_> = metrics.difference(&names).collect();
    assert!(missing.is_empty(), "the dashboard names what there is not: {missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_with_many_sockets_takes_no_place_from_others() {
    let cluster = Cluster::start(1, 1, Protocol::TwoPhaseCommit);
    until_health(&cluster, 0, 200, "ok").await;
    let address = address(&cluster, 0);
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.expect("it listens"));
    }
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.2:0".parse().expect("an address")).expect("bound");
    let mut other = socket.connect(address).await.expect("it listens");
    other.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.expect("sent");
    let mut answer = String::new();
    other.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // The peer itself is answered where it asks.
    assert_eq!(get(address, "/health").await.0, 200);
    // And what it left open is closed.
    let mut rest = Vec::new();
    let closed = silent[0].read_to_end(&mut rest).await;
    assert!(closed.is_err() || rest.is_empty(), "{}", rest.escape_ascii());

    let mut late = TcpStream::connect(address).await.expect("it listens");
    late.write_all(b"GET /met").await.expect("sent");
    let mut told = String::new();
    late.read_to_string(&mut told).await.expect("an answer");
    assert!(told.starts_with("HTTP/1.1 408 Request Timeout"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_lease_runs_out_is_not_well() {
    let mut cluster = Cluster::start(1, 1, Protocol::Mako);
    cluster.client(1).call(NodeId(0), ShardId(0), "count", &[1]).await.expect("counted");
    until_health(&cluster, 0, 200, "ok").await;
    // With most managers gone, it is granted no other.
    cluster.kill(NodeId(1));
    cluster.kill(NodeId(2));
    until_health(&cluster, 0, 503, "its lease has run out").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_badly_is_told_and_costs_nothing_else() {
    let cluster = Cluster::start(1, 1, Protocol::TwoPhaseCommit);
    until_health(&cluster, 0, 200, "ok").await;
    let address = address(&cluster, 0);
    let long = format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(16 << 10));
    let cases: [(&[u8], u16); 9] = [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /health HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /health HTTP/2.0\r\n\r\n", 400),
        (b"GET /health\r\n\r\n", 400),
        (b"GET  /health HTTP/1.1\r\n\r\n", 400),
        (b"\xff\xfe /health HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (long.as_bytes(), 431),
        (b"GET /health?full HTTP/1.0\r\n\r\n", 200),
    ];
    for (request, code) in cases {
        let (told, body) = ask(address, request).await;
        assert_eq!(told, code, "{}: {body}", request.escape_ascii());
    }
    let (code, body) = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n").await;
    assert_eq!((code, &*body), (200, ""));

    // Some go in the middle of a request.
    for _ in 0..50 {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"GET /met").await.expect("sent");
    }
    // And more than are served at once say nothing at all: they lose their places.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.expect("it listens"));
    }
    assert_eq!(get(address, "/health").await, (200, "ok\n".to_owned()));
    cluster.client(1).call(NodeId(0), ShardId(0), "count", &[1]).await.expect("counted");
}
