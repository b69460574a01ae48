//! Health and metrics over HTTP, and those who ask for them badly.

use crate::cluster::Cluster;
use shoal_server::Protocol;
use shoal_types::{NodeId, ShardId};
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
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request).await.expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer, and the end");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    assert!(head.contains("Connection: close"), "{head}");
    (code.expect("a code"), body.to_owned())
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
    let mut samples = Vec::new();
    for line in page.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').expect("a kind");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert_eq!(family, name, "its help comes first");
        } else if let Some(described) = line.strip_prefix("# HELP ") {
            family = described.split(' ').next().expect("a name");
            assert!(families.insert(family), "{family} is described twice");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            assert_eq!(sample.split('{').next(), Some(family), "{line}");
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
        assert_eq!(sum("shoal_shard_appointed{shard=\"0\"}"), 1.0);
        assert!(sum("shoal_net_frames_in_total{") > 0.0 && sum("shoal_memory_bytes") > 0.0);
        let followers = samples.iter().filter(|it| it.0.starts_with("shoal_stream_behind_entries"));
        assert_eq!(followers.count(), 2 * workers as usize, "{page}");
    }
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
