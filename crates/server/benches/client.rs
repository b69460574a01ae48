//! What an interactive transaction costs a client: one node, and clients that each `get` a key of their own and `put` it.
//!
//! `cargo bench -p shoal-server --bench client [-- SECONDS [ROUNDS]]`
//!
//! On loopback, and from a region that is 50 ms away one way, which the client emulates. *One thread*: each client has a
//! connection of its own, and the thread that waits for an answer reads it from the socket. *Shared*: clients are threads
//! that share a connection, which lives on a runtime with a thread of its own. *Ids*: whether commits carry ids, with which a
//! client finds out what became of one; the id's row is one more that each transaction writes.
//!
//! Rounds of all settings follow each other, so that other work on the machine meets all of them alike; medians are shown.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use shoal_client::{Cluster, ClusterOptions, TableId};
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::Procedures;
use shoal_net::{Secret, listen};
use shoal_server::{NodeConfig, Server};
use shoal_types::{DatacenterId, Distance, DistanceMatrix, NodeId};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// From the far region to the node, one way.
const FAR: Duration = Duration::from_millis(50);

/// Transactions of each client before those that count, on loopback.
const WARM_UP: u32 = 1000;

/// Where the connections of clients live.
#[derive(Debug, Clone, Copy)]
enum Connections {
    /// On the client's own thread, a connection each.
    OneThread,
    /// On a thread beside those of the clients, which share it.
    Shared,
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Setting {
    region: Option<&'static str>,
    connections: Connections,
    clients: u64,
    commit_ids: bool,
    span: Duration,
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
struct Figures {
    per_second: f64,
    p50: Duration,
    p99: Duration,
    /// Frames that the node received, for each transaction. One client waits for each of them: so many round trips.
    requests: f64,
}

/// A node without replicas and managers, and its address.
fn start() -> (Server, String) {
    let listener = listen("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let builder = Topology::builder().workers(1).datacenter("here").datacenter("far");
    let builder = builder.node_at("n0", "here", address.clone()).shard("n0", ["n0"], []);
    let builder = builder.table("counters", Partitioning::Hash { prefix_bytes: 0 });
    let far = Distance { delay: FAR, jitter: Duration::ZERO };
    let distances = DistanceMatrix::none().with(DatacenterId(0), DatacenterId(1), far);
    let topology = builder.build().and_then(|topology| topology.with_distances(&distances));
    let topology = topology.expect("a topology");
    let config = NodeConfig::new(&topology, NodeId(0), Vec::new(), Secret::new([7; 32]));
    let config = config.expect("a configuration");
    let server = Server::start(&config, Arc::new(Procedures::new()), Some(listener));
    (server.expect("a node"), address)
}

async fn connect(address: &str, Setting { region, commit_ids, .. }: Setting) -> Cluster {
    let region = region.map(str::to_owned);
    let options = ClusterOptions { region, commit_ids, ..ClusterOptions::default() };
    Cluster::connect_with(&[address], options).await.expect("a cluster")
}

/// Adds one to the counter of a client.
async fn count(db: &Cluster, counters: TableId, client: u64) {
    let counted = db.transact(async |tx| {
        let key = client.to_le_bytes();
        let before = tx.get(counters, &key).await?;
        let before =
            before.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("its own")));
        tx.put(counters, &key, &(before + 1).to_le_bytes())
    });
    counted.await.expect("nothing fails");
}

/// Runs the transactions of a client, and returns how long each took. They begin when all clients are warm.
async fn run(db: Cluster, setting: Setting, client: u64, warm: &Barrier) -> Vec<Duration> {
    let Setting { region, span, .. } = setting;
    let counters = db.table("counters").expect("it is there");
    for _ in 0..if region.is_some() { 1 } else { WARM_UP } {
        count(&db, counters, client).await;
    }
    // Before the main thread counts, and after.
    warm.wait();
    warm.wait();
    let began = Instant::now();
    let mut latencies = Vec::new();
    let mut last = began;
    while last - began < span {
        count(&db, counters, client).await;
        let now = Instant::now();
        latencies.push(now - last);
        last = now;
    }
    latencies
}

fn measure(setting: Setting) -> Figures {
    let Setting { connections, clients, span, .. } = setting;
    let (server, address) = start();
    let shared = match connections {
        Connections::OneThread => None,
        Connections::Shared => {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.expect("a runtime");
            let db = runtime.block_on(connect(&address, setting));
            Some((runtime, db))
        }
    };
    let warm = Barrier::new(clients as usize + 1);
    let one = |client: u64| match &shared {
        Some((runtime, db)) => runtime.block_on(run(db.clone(), setting, client, &warm)),
        None => {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                run(connect(&address, setting).await, setting, client, &warm).await
            })
        }
    };
    let received = || server.handle().counters().frames_in;
    let (mut latencies, before) = thread::scope(|scope| {
        let one = &one;
        let clients: Vec<_> = (0..clients).map(|client| scope.spawn(move || one(client))).collect();
        warm.wait();
        let before = received();
        warm.wait();
        let latencies = clients.into_iter().flat_map(|client| client.join().expect("it ends"));
        (latencies.collect::<Vec<Duration>>(), before)
    });
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    Figures {
        per_second: latencies.len() as f64 / span.as_secs_f64(),
        p50: at(0.5),
        p99: at(0.99),
        requests: (received() - before) as f64 / latencies.len() as f64,
    }
}

fn median<T: Copy + PartialOrd>(figures: &[Figures], of: impl Fn(&Figures) -> T) -> T {
    let mut all: Vec<T> = figures.iter().map(of).collect();
    all.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
    all[all.len() / 2]
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<f64>().ok());
    let span = Duration::from_secs_f64(numbers.next().unwrap_or(2.0));
    let rounds = numbers.next().unwrap_or(5.0) as usize;
    let mut settings = Vec::new();
    for connections in [Connections::OneThread, Connections::Shared] {
        for (region, clients, commit_ids) in [
            (None, 1, true),
            (None, 1, false),
            (None, 16, true),
            (None, 16, false),
            (Some("far"), 1, true),
        ] {
            let setting = Setting { region, connections, clients, commit_ids, span };
            settings.push((setting, Vec::new()));
        }
    }
    for _ in 0..rounds {
        for (setting, figures) in &mut settings {
            figures.push(measure(*setting));
        }
    }
    println!(
        "clients  where   connections  ids    transactions/s        p50        p99  requests each"
    );
    for (setting, figures) in &settings {
        let Setting { region, connections, clients, commit_ids, .. } = setting;
        let (region, connections) = (region.unwrap_or("near"), format!("{connections:?}"));
        let per_second = median(figures, |it| it.per_second);
        let (p50, p99) = (median(figures, |it| it.p50), median(figures, |it| it.p99));
        let requests = median(figures, |it| it.requests);
        println!(
            "{clients:7}  {region:6}  {connections:11}  {commit_ids:5}  {per_second:14.0}  {p50:9.1?}  {p99:9.1?}  {requests:13.2}"
        );
    }
}
